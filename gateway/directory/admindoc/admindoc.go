// Package admindoc is what the admin API says of agents, as documents: for the API, and for
// aepbctl, which reads them.
package admindoc

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/policy"
)

// Agent is an agent as the admin API shows and takes it.
type Agent struct {
	Name           string            `json:"name"`
	ID             string            `json:"id,omitempty"`
	Capability     string            `json:"capability,omitempty"`
	Pin            bool              `json:"pin,omitempty"`
	Expose         []string          `json:"expose,omitempty"`
	Endpoints      []Endpoint        `json:"endpoints"`
	Callers        []string          `json:"callers,omitempty"`
	RequireECT     bool              `json:"require_ect,omitempty"`
	Tools          []string          `json:"tools,omitempty"`      // patterns of what is offered
	ToolNames      map[string]string `json:"tool_names,omitempty"` // under which it is offered, by the agent's own
	TimeoutSeconds int               `json:"timeout_seconds,omitempty"`
	From           string            `json:"from,omitempty"` // configuration, state or process
	Description    *Summary          `json:"description,omitempty"`
	Lifecycle      *Lifecycle        `json:"lifecycle,omitempty"`
	Descriptions   []Pin             `json:"descriptions,omitempty"`

	Credential *Credential `json:"credential,omitempty"`
}

// Credential is how the credential stands that an agent is shown. It holds no secret.
type Credential struct {
	Kind  string     `json:"kind"`            // header, bearer, basic, oauth, oauth-exchange or certificate
	Ends  *time.Time `json:"ends,omitempty"`  // of the gateway's own token
	Error string     `json:"error,omitempty"` // why the last attempt to get one failed
}

// Encode writes the document of an agent as JSON.
func Encode(doc Agent) ([]byte, error) { return json.Marshal(doc) }

// Decode reads what Encode writes: an unknown member, or a member twice, is an error.
func Decode(value []byte) (doc Agent, err error) {
	return doc, json.Unmarshal(value, &doc, json.RejectUnknownMembers(true))
}

// Endpoint is where an agent is reached, and in which protocol.
type Endpoint struct {
	Binding  string `json:"binding"`
	Version  string `json:"version,omitempty"`
	URL      string `json:"url"`
	Command  string `json:"command,omitempty"` // of the program at URL, as aepbctl shows it; URL alone counts
	Priority int    `json:"priority,omitempty"`
	GRPC     string `json:"grpc,omitempty"`
	Through  string `json:"through,omitempty"`

	Form      string `json:"form,omitempty"`
	DID       string `json:"did,omitempty"`
	Signature string `json:"signature,omitempty"`
}

// Operator is the operator who asks, as the gateway knows it.
type Operator struct {
	Name  string        `json:"name"`
	ID    string        `json:"id,omitempty"` // absent: known by a token, in dev
	Roles []policy.Role `json:"roles"`
	Open  bool          `json:"open"` // agents without callers may be called by everybody: a development gateway
}

// Configuration is what of its configuration a gateway cannot change without a restart.
type Configuration struct {
	RestartKeys map[string]string `json:"restart_keys"` // by key; one that is absent has its default
}

// Process is one that runs for an agent.
type Process struct {
	PID       int       `json:"pid"`
	Agent     string    `json:"agent"`
	Caller    string    `json:"caller,omitempty"` // whose work it does; absent: the gateway itself asks, or all callers share it
	Program   string    `json:"program"`
	Started   time.Time `json:"started"`
	Used      time.Time `json:"used"`
	Uses      int       `json:"uses"` // under way
	MemoryMiB int       `json:"memory_mib"`
}

// Summary is what an agent says about itself, or why it could not be asked.
type Summary struct {
	Name         string   `json:"name,omitempty"`
	Version      string   `json:"version,omitempty"`
	Protocol     string   `json:"protocol_version,omitempty"`
	Asking       string   `json:"asking_version,omitempty"` // for callers of other protocols who can be asked, where it is another
	Capabilities []string `json:"capabilities,omitempty"`
	Error        string   `json:"error,omitempty"`

	Omitted []Omission `json:"left_out,omitempty"` // what it lists and cannot be used: the first 20

	// URL is where it is called, and Why says why; absent: at the listed URL.
	URL string `json:"url,omitempty"`
	Why string `json:"url_reason,omitempty"`
}

// Omission is an entry of an agent's list that cannot be used.
type Omission struct {
	Name   string `json:"name,omitempty"` // absent: it has none
	Reason string `json:"reason"`
}

// Lifecycle holds all five members, null where unset (AEPB, Lifecycle).
type Lifecycle struct {
	Status       string  `json:"status"`
	Version      string  `json:"version"`
	DeprecatedAt *string `json:"deprecated_at"`
	SunsetAt     *string `json:"sunset_at"`
	Successor    *string `json:"successor"`
}

// Pin is the description of an endpoint that counts, and what waits.
type Pin struct {
	Binding string   `json:"binding"`
	Hash    string   `json:"sha256"`
	Pending *Pending `json:"pending,omitempty"`
}

// Pending is a description that waits to be accepted, and what it changes.
type Pending struct {
	Hash    string   `json:"sha256"`
	Changes []Change `json:"changes"`
}

// Change is one thing that an agent says otherwise than before.
type Change struct {
	Capability string   `json:"capability,omitempty"` // absent: the agent itself
	Kind       string   `json:"kind"`
	Members    []string `json:"members,omitempty"`
	Was        string   `json:"was,omitempty"`
	Is         string   `json:"is,omitempty"`
}
