package directory

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// DefaultPriority is that of an endpoint that names none (R8).
const DefaultPriority = 100

// Foremost is the priority 0 of a capability document; a zero Priority stands for no priority.
const Foremost = -1

// MaxAgents bounds the directory.
const MaxAgents = 10_000

// MaxTimeout bounds how long an operator may let one call take.
const MaxTimeout = 24 * time.Hour

// Agent is one agent as its operator describes it.
type Agent struct {
	Name      string       // 1 to 63 of a-z 0-9 - _ . ; starts with a letter or digit
	ID        ect.Identity // its SPIFFE id; empty: judged by its TLS name
	Endpoints []Endpoint   // at least one, one per binding; none where Capability says them
	Rules     policy.Rules
	// AssuranceLevel is its ect_assurance_level: the lowest level of evidence
	// that it takes and that others produce for it (CPAT, Protocol Capability
	// Advertisement); 0: it declares none. The higher of operator and document.
	AssuranceLevel ect.Level
	Timeout        time.Duration // of one call; zero: the gateway's default

	Capability string // URL of its capability document; empty: the operator described it
	Pin        bool   // a changed description waits for an operator (R9)
	Plain      bool   // it is on this machine and takes plain HTTP, whatever the directory allows

	// Expose is what of an MCP server callers of other protocols see besides its
	// tools: ExposePrompts, ExposeResources. ExposeTools says nothing more.
	Expose []string
	Undo   Undo // of the configuration; zero for agents that are added at run time

	// From the capability document; zero without one.
	Lifecycle Lifecycle
	// Namespaces are those of ECT extensions that its document says; nil: it says none.
	Namespaces []string
	Gateways   []string // translate endpoints that it can be reached through
	// Listings are the names of the listed agents that a capability document
	// named by a caller describes: it is called as one of them, or not at all.
	Listings []string
	Beyond   []canonical.Binding // protocols that are not spoken here, preferred first: another gateway may
}

// Undo is what an operator says of how the work of an agent is undone (R22). It is immutable.
type Undo struct {
	ReadOnly   []string                     // tools that change nothing, so that no checkpoint precedes them; [AllTools]: all
	Own        bool                         // the agent rolls back itself, when it is asked in its protocol or at /.well-known/atd/rollback of its host
	Compensate map[string]compensation.Rule // by tool; a tool of ReadOnly has no rule, and rules count before Own
}

// AllTools stands in Undo.ReadOnly for every tool.
const AllTools = "*"

// IsReadOnly reports whether an operator says that a tool changes nothing.
func (u Undo) IsReadOnly(tool string) bool {
	return slices.Contains(u.ReadOnly, tool) || slices.Contains(u.ReadOnly, AllTools)
}

// clone is an Undo that shares no list or map.
func (u Undo) clone() Undo {
	return Undo{ReadOnly: slices.Clone(u.ReadOnly), Own: u.Own, Compensate: maps.Clone(u.Compensate)}
}

// Listed reports whether an operator gave the agent its name. Those that a
// caller found by their capability document have its URL instead.
func (a Agent) Listed() bool { return !strings.Contains(a.Name, "/") }

// Endpoint is one way to reach an agent.
type Endpoint struct {
	Binding  canonical.Binding
	Version  string // empty: negotiated
	URL      string // absolute https URL; http only where the directory allows loopback
	Priority int    // lower is preferred (AEPB, Capability Document Format); zero: DefaultPriority
	GRPC     string // host:port where it takes A2A over gRPC, which is then spoken; empty: as its card says

	// Through is the gateway behind which the agent is, under the same name; then
	// there is no URL, and this gateway need not speak the protocol. Empty: it is
	// reached directly.
	Through ect.Identity

	// What an operator says where a protocol leaves it open; empty: as the
	// protocol prefers.
	Form      string // of carriage: bare, for µACP agents that know no gateways; tagged, where they take the name of an ECT in a vendor option
	DID       string // whose signature the agent's answers bear (AINP)
	Signature string // what an AINP signature covers: SignatureDraft, SignatureRaw or SignatureNone
}

// What Endpoint.Signature may say. SignatureNone is for agents that cannot sign.
const (
	SignatureDraft = "draft"
	SignatureRaw   = "jcs-raw"
	SignatureNone  = "none"
)

// special judges what only some protocols leave open.
func (e Endpoint) special() string {
	switch {
	case e.Form != "" && e.Binding != "uacp-v1":
		return "a form is chosen for uacp-v1 alone"
	case e.Form != "" && e.Form != "bare" && e.Form != "tagged" && e.Form != "enveloped":
		return "a form is enveloped, bare or tagged"
	case (e.DID != "" || e.Signature != "") && e.Binding != "ainp-v1":
		return "a DID and a signature are ainp-v1's"
	case e.DID != "" && !strings.HasPrefix(e.DID, "did:key:") && !strings.HasPrefix(e.DID, "did:web:"):
		return "a DID is a did:key or a did:web"
	case e.Signature != "" && e.Signature != SignatureDraft && e.Signature != SignatureRaw && e.Signature != SignatureNone:
		return "a signature is draft, jcs-raw or none"
	}
	return ""
}

// beyond judges an endpoint behind another gateway.
func (e Endpoint) beyond() string {
	switch {
	case !validID(e.Through):
		return "through is the SPIFFE id of a peer"
	case e.URL != "" || e.GRPC != "" || e.Form != "" || e.DID != "" || e.Signature != "" || e.Version != "":
		return "an endpoint behind another gateway has no URL and nothing else of its own: that gateway knows them"
	case !identifies(e.Binding):
		return "a protocol is named like mcp-v1"
	}
	return ""
}

// identifies: the text has the form of a binding identifier, NAME-vNUMBER (AEPB,
// AEPB Protocol Binding Registry). Which ones there are, gateways know that speak them.
func identifies(id canonical.Binding) bool {
	name, number, ok := strings.Cut(string(id), "-v")
	return ok && name != "" && number != "" && len(id) <= maxBinding &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && strings.Trim(number, "0123456789") == ""
}

// maxBinding bounds a binding identifier, in bytes.
const maxBinding = 64

// HasRevisions reports whether an operator may pin one of several revisions of a
// binding's protocol (agents.NAME.revision).
func HasRevisions(binding string) bool { return binding == mcpBinding }

// What Agent.Expose may say.
const (
	maxExpose = 3

	ExposeTools     = "tools"
	ExposePrompts   = "prompts"
	ExposeResources = "resources"
)

// Exposable reports whether Agent.Expose may say this.
func Exposable(what string) bool {
	return what == ExposeTools || what == ExposePrompts || what == ExposeResources
}

// InvalidAgentError says why an agent cannot be listed.
type InvalidAgentError struct{ Name, Reason string }

func (e *InvalidAgentError) Error() string {
	return fmt.Sprintf("agent %q: %s", e.Name, e.Reason)
}

// Endpoint picks where to send a message that arrived in binding from: the
// agent's own endpoint of that binding, else the lowest priority, ties by
// binding id (R8). Zero: the agent has none.
func (a Agent) Endpoint(from canonical.Binding) Endpoint {
	var best Endpoint
	for i, e := range a.Endpoints {
		if e.Binding == from {
			return e
		}
		if i == 0 || e.before(best) {
			best = e
		}
	}
	return best
}

func (e Endpoint) before(other Endpoint) bool {
	if x, y := e.Rank(), other.Rank(); x != y {
		return x < y
	}
	return e.Binding < other.Binding
}

// EndpointOf finds the endpoint of one binding.
func (a Agent) EndpointOf(binding canonical.Binding) (Endpoint, bool) {
	for _, e := range a.Endpoints {
		if e.Binding == binding {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Rank is the priority that counts: the default where none was written.
func (e Endpoint) Rank() int {
	switch e.Priority {
	case 0:
		return DefaultPriority
	case Foremost:
		return 0
	default:
		return e.Priority
	}
}

func (a Agent) validate(speaks func(canonical.Binding) bool, plainLoopback bool) error {
	if reasons := a.mistakes(speaks, plainLoopback); len(reasons) > 0 {
		return &InvalidAgentError{Name: a.Name, Reason: strings.Join(reasons, "; ")}
	}
	return nil
}

// mistakes are all that can be told apart.
func (a Agent) mistakes(speaks func(canonical.Binding) bool, plainLoopback bool) (reasons []string) {
	say := func(wrong bool, reason string) {
		if wrong {
			reasons = append(reasons, reason)
		}
	}
	say(!validName(a.Name), "a name is 1 to 63 of a-z 0-9 - _ . and starts with a letter or digit")
	if err := a.Rules.Validate(); err != nil {
		say(true, err.Error())
	}
	say(a.ID != "" && !validID(a.ID), "the id is not the SPIFFE id of a workload, such as spiffe://example.com/calculator")
	say(a.AssuranceLevel < 0 || a.AssuranceLevel > ect.L3, "an assurance level is L1, L2 or L3")
	say(len(a.Expose) > maxExpose || slices.ContainsFunc(a.Expose, func(what string) bool { return !Exposable(what) }), "what is exposed is tools, prompts or resources")
	say(a.plainWithID(), "an agent without TLS (plain) proves no id")
	say(a.Timeout < 0 || a.Timeout > MaxTimeout, "the time limit is 0 to "+MaxTimeout.String())
	say(a.Capability != "" && len(a.Endpoints) > 0, "its endpoints are in its capability document: name one or the other")
	say(a.Capability != "" && !documentURL(a.Capability, a.takesPlain(plainLoopback, "")), "the capability document must have an https URL")
	say(a.Capability == "" && len(a.Endpoints) == 0, "at least one endpoint is required, or a capability document")
	seen := map[canonical.Binding]bool{}
	for _, e := range a.Endpoints {
		say(e.Through == "" && !speaks(e.Binding), "this gateway does not speak "+string(e.Binding))
		say(seen[e.Binding], "two endpoints for "+string(e.Binding))
		seen[e.Binding] = true
		if e.Through != "" {
			say(e.beyond() != "", e.beyond())
			continue
		}
		reason := cmp.Or(e.reached(a.takesPlain(plainLoopback, e.Binding)), e.special())
		say(reason != "", reason)
		if _, _, err := net.SplitHostPort(e.GRPC); e.GRPC != "" {
			say(err != nil || checkURL("https://"+e.GRPC, false) != "", "the place for gRPC is no host:port")
		}
	}
	return reasons
}

// takesPlain reports whether a URL of the agent may be one of this machine without TLS. Datagrams are for development.
func (a Agent) takesPlain(plainLoopback bool, binding canonical.Binding) bool {
	return plainLoopback || a.Plain && !strings.HasPrefix(string(binding), "uacp-")
}

func (a Agent) plainWithID() bool { return a.Plain && a.ID != "" }

// reached judges what an operator says of how an endpoint is reached. A program is an
// operator's to name: no capability document can.
func (e Endpoint) reached(plainLoopback bool) string {
	if !e.IsProgram() {
		return e.checkURL(plainLoopback)
	}
	if _, err := stdio.Parse(e.URL); err != nil {
		return err.Error()
	}
	if e.Binding != mcpBinding {
		return "a program speaks mcp-v1"
	}
	return ""
}

// mcpBinding is the one binding whose agents can be programs.
const mcpBinding = "mcp-v1"

// IsProgram reports whether the agent is a program that this gateway runs.
func (e Endpoint) IsProgram() bool { return stdio.IsProgram(e.URL) }

// Audience is how evidence names an agent without an identity that is reached here: by its URL,
// a program by the agent's name, because its command and variables are for operators.
func (e Endpoint) Audience(agent string) string {
	if e.IsProgram() {
		return stdio.Scheme + ":" + agent
	}
	return e.URL
}

func validName(name string) bool {
	return name != "" && len(name) <= 63 && !strings.ContainsAny(name[:1], "-_.") && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// validID: spiffe://TRUST-DOMAIN/PATH and nothing else. No agent could prove any
// other id, and every handshake with it would fail.
func validID(id ect.Identity) bool {
	rest, ok := strings.CutPrefix(string(id), "spiffe://")
	domain, path, _ := strings.Cut(rest, "/")
	return ok && domain != "" && path != "" && !strings.ContainsAny(rest, "?#%*@: \\")
}

// checkURL: an endpoint that is not HTTP has its protocol's own scheme, with
// the s of TLS, a port, and nothing else: uacps://host:port for uacp-v1. Without
// the s it is one of datagrams, which are for development.
func (e Endpoint) checkURL(plainLoopback bool) string {
	name, _, _ := strings.Cut(string(e.Binding), "-")
	if name == "slim" {
		return checkSLIM(e.URL)
	}
	u, err := url.Parse(e.URL)
	if err == nil && name == "ainp" && (u.Scheme == "wss" || u.Scheme == "ws") {
		return checkURL("http"+strings.TrimPrefix(e.URL, "ws"), plainLoopback) // a WebSocket begins as a request
	}
	if err == nil && name == "uacp" && u.Scheme == name {
		if address := net.ParseIP(u.Hostname()); !plainLoopback || address == nil || !address.IsLoopback() {
			return "datagrams (uacp://address:port) have no protection: only dev sends them, and only to an address of this machine"
		}
		u.Scheme = name + "s"
	}
	if err != nil || u.Scheme != name+"s" {
		if name == "uacp" {
			return "the endpoint must be " + name + "s://host:port"
		}
		return checkURL(e.URL, plainLoopback)
	}
	if u.Hostname() == "" || u.Port() == "" || u.User != nil || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return "the endpoint must be " + name + "s://host:port"
	}
	return ""
}

// checkSLIM: SLIM is reached through nodes that the operator connects us to, and
// whether the way there is protected is judged there.
func checkSLIM(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "slim" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		strings.Count(u.Path, "/") != 3 || strings.Contains(u.Path+"/", "//") {
		return "an endpoint on SLIM is slim://NODE/ORG/NAMESPACE/SERVICE"
	}
	return ""
}

// checkURL demands TLS (AEPB, Protocol Downgrade Prevention); only a
// development gateway may speak plain HTTP, and only to loopback.
func checkURL(text string, plainLoopback bool) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return "the endpoint is not an absolute URL such as https://host:port/path (a program that speaks over standard input and output is added with --stdio -- COMMAND)"
	case u.User != nil:
		return "an endpoint URL must not hold credentials"
	case u.Fragment != "":
		return "an endpoint URL must not have a fragment"
	case u.Scheme == "https":
		return ""
	case u.Scheme == "http" && plainLoopback && loopback(u.Hostname()):
		return ""
	default:
		return "the endpoint must be an https URL (http only in dev or with plain: true, and only to this machine)"
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// Validate judges an agent by all that can be told without knowing which
// protocols this gateway speaks. Its error is an *InvalidAgentError.
func Validate(a Agent, plainLoopback bool) error {
	return a.validate(func(canonical.Binding) bool { return true }, plainLoopback)
}

// Mistakes are the reasons of Validate, each for itself.
func Mistakes(a Agent, plainLoopback bool) []string {
	return a.mistakes(func(canonical.Binding) bool { return true }, plainLoopback)
}

// Programs are the running programs of agents. *stdio.Host is one.
type Programs interface {
	// Drop ends those of an agent that are not this program any more; empty: all of them.
	Drop(agent, program string)
}

type noPrograms struct{}

func (noPrograms) Drop(string, string) {}
