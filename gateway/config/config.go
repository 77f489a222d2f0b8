// Package config is what an operator writes: one strict YAML file.
//
// Every key has a default that works. An unknown key, a wrong type or a value
// out of range is an error with its line and column; all of them are listed at
// once. Secrets never stand in the file, only paths to them.
package config

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Config is the configuration file. Every key may be left out. The comment of a key is its documentation in
// docs/configuration.md and in the schema beside it: what it sets, its unit and its default, in at most 200 characters.
type Config struct {
	Listen    Listen                 `yaml:"listen"`      // Addresses of the listeners. serve reads all of them; dev takes public and admin from its flags.
	PublicURL string                 `yaml:"public_url"`  // URL where callers reach this gateway, such as https://gw.example.com. Required by serve.
	PublicRPC string                 `yaml:"public_grpc"` // host:port where callers reach listen.grpc, for the cards of agents. Default: the host of public_url and the port of listen.grpc.
	Identity  Identity               `yaml:"identity"`    // SPIFFE identity of this gateway, and the trust anchors for its callers and agents.
	APIKeys   APIKeys                `yaml:"api_keys"`    // API keys of callers that have neither a certificate nor tokens of an identity server.
	OAuth     map[string]OAuthIssuer `yaml:"oauth"`       // Authorization servers (OAuth 2.1, OpenID Connect) whose access tokens are accepted from callers, by name. Default: none.
	TLS       TLS                    `yaml:"tls"`         // Certificate for clients that check a host name instead of a SPIFFE ID.
	CORS      CORS                   `yaml:"cors"`        // Pages of other origins that browsers let ask this gateway.
	Admin     Admin                  `yaml:"admin"`       // Who may use the admin API.
	State     State                  `yaml:"state"`       // Where tasks, sessions and evidence are stored. Default: in memory.
	Log       Log                    `yaml:"log"`         // What is logged, as JSON, to standard error.
	Limits    Limits                 `yaml:"limits"`      // Limits of each caller and of the process. A caller is an identity, or a network address if it shows no identity.
	Policy    Policy                 `yaml:"policy"`      // Translation policy and circuit breakers.
	Consensus Consensus              `yaml:"consensus"`   // Which agents decide together, and how.
	ECT       ECT                    `yaml:"ect"`         // Evidence (ECTs) that callers must send.
	Peers     map[string]Peer        `yaml:"peers"`       // Settings of single senders and readers of ECTs, and other gateways, by SPIFFE ID.
	Documents Documents              `yaml:"documents"`   // Capability documents that callers may name as destination at the translate endpoint, instead of a listed agent.
	Timeout   Duration               `yaml:"timeout"`     // Longest duration of one call to an agent. Default: 5m.

	ShutdownDelay *Duration `yaml:"shutdown_delay"` // Time from the signal to stop during which work goes on and /readyz fails, so that load balancers notice. Default: 5s, in dev 0.
	ShutdownGrace Duration  `yaml:"shutdown_grace"` // Time after shutdown_delay for work that is under way; new work gets 503. The process ends at most 2s later. Default: 20s, in dev 5s. Needs a restart.

	Version string `yaml:"version"`   // Semantic version of this gateway in its capability document and in its ECTs. Default: that of the program. Needs a restart.
	Life    Life   `yaml:"lifecycle"` // Lifecycle of this gateway.

	SLIM   SLIM             `yaml:"slim"`   // Connections to SLIM nodes.
	AINP   AINP             `yaml:"ainp"`   // Identity and connections of this gateway in AINP.
	Agents map[string]Agent `yaml:"agents"` // The agents, by name: 1 to 63 of a-z 0-9 - _ . beginning with a letter or digit.

	from origin
}

// origin is what a configuration was read from.
type origin struct {
	hash     string    // of the file's bytes; empty: there is no file
	file     source    // its bytes
	mistakes []mistake // of syntax and type that it has
}

// Listen is where the listeners are. serve takes it; dev has flags.
type Listen struct {
	Public string `yaml:"public"` // Address of the public listener. Default: :8443.
	GRPC   string `yaml:"grpc"`   // Address for A2A over gRPC, also in dev. Default: not served.
	Admin  string `yaml:"admin"`  // Address of the admin listener. Default: 127.0.0.1:9443.

	Metrics string `yaml:"metrics"` // Address for /metrics, /healthz and /readyz over plain HTTP without credentials, such as :9464; also in dev. The pages name agents. Default: not served. Needs a restart.

	UACP      string `yaml:"uacp"`       // Address for µACP over TLS, such as :8888. The TLS server name begins with the agent's name and a dot. Default: not served.
	UACPUDP   string `yaml:"uacp_udp"`   // Loopback address for µACP in unprotected UDP datagrams, in dev only. Default: not served.
	UACPAgent string `yaml:"uacp_agent"` // Agent for µACP datagrams, and for callers whose TLS server name names no agent. Default: none.

	UACPConnections ConnectionBounds `yaml:"uacp_connections"` // Limits of connections of µACP over TLS. Needs a restart.
}

// ConnectionBounds bounds connections that stay open. A zero field takes its default.
type ConnectionBounds struct {
	Total        int `yaml:"total"`        // Connections of all identified callers at once. Default: 64.
	PerCaller    int `yaml:"per_caller"`   // Connections of one identified caller. Default: half of total.
	Unidentified int `yaml:"unidentified"` // Additional connections of callers that have not proved an identity yet. Default: 64.
	PerAddress   int `yaml:"per_address"`  // Connections without an identity from one network address. Default: a quarter of unidentified.
}

// AINP is who the gateway is in AINP.
type AINP struct {
	Key     string            `yaml:"key"`     // File with the Ed25519 key (PEM, PKCS #8). Without it serve does not speak AINP, and dev makes a key.
	DID     string            `yaml:"did"`     // DID of this gateway: did:key or did:web. Default: the did:key of the key.
	Callers map[string]string `yaml:"callers"` // SPIFFE IDs of callers, by DID. Documents of did:web are fetched only for these DIDs and the did of agents.

	Sockets ConnectionBounds `yaml:"sockets"` // Limits of WebSockets. The first message of a client without a certificate must be verified within 30s. Needs a restart.
}

// Identity is who the gateway is (AEPB, Gateway Trust): files, read at start and
// whenever they change.
type Identity struct {
	TrustDomain string `yaml:"trust_domain"` // Trust domain of this gateway, such as example.com. Required by serve.
	Certificate string `yaml:"certificate"`  // File with the X.509-SVID and its chain (PEM). Required by serve unless workload_api is set.
	Key         string `yaml:"key"`          // File with the private key of certificate (PEM, PKCS #8).
	Bundle      string `yaml:"bundle"`       // File with the trust anchors of the trust domain: PEM, or a SPIFFE bundle (JSON).

	Federated map[string]string `yaml:"federated"` // Files with the trust anchors of other trust domains, by trust domain. Connections of a domain end when it is removed. Not with workload_api.

	WorkloadAPI string `yaml:"workload_api"` // Address of the SPIFFE Workload API, such as unix:///run/spire/agent.sock, instead of certificate, key and bundle.

	Issuers map[string]string `yaml:"issuers"` // Files with the JWK sets of identity servers whose workload identity tokens are accepted, by trust domain.
}

// TLS is what callers see who judge by host name instead of SPIFFE id.
type TLS struct {
	Certificate string `yaml:"certificate"` // File with the certificate and its chain (PEM). Default: the X.509-SVID.
	Key         string `yaml:"key"`         // File with the private key of certificate (PEM).
}

// Admin guards the admin listener (R17).
type Admin struct {
	Operators map[string]Operator `yaml:"operators"` // Who may use /api, by name. serve needs at least one; dev also accepts its token file.
	Hosts     []string            `yaml:"hosts"`     // Host names or IP addresses, without a port, that the Host field of /api requests may name besides localhost, 127.0.0.1, ::1 and the host of public_url.
}

// Operator is a person or a program that operates the gateway.
type Operator struct {
	ID    string   `yaml:"id"`    // SPIFFE ID of the operator's client certificate. Required.
	Roles []string `yaml:"roles"` // At least one of viewer, operator, approver, auditor. Every role may read what viewer may.
}

// State is where state is kept.
type State struct {
	Path        string `yaml:"path"`         // Database file. Default: state is kept in memory and ends with the process.
	EvidenceMiB int    `yaml:"evidence_mib"` // MiB for ECTs that GET /ects and /workflows serve. When full, the caller that holds most loses its oldest. Default: 36, with path 24576, with redis 1024.
	Key         string `yaml:"key"`          // File with keys that encrypt stored state: lines of 32 bytes, hexadecimal or base64; the first encrypts, all decrypt. Default: made at path.key; serve with redis requires it.
	Unverified  bool   `yaml:"unverified"`   // true: state in redis is used without key, whichever program wrote it, and webhooks with credentials are refused. Default: false.
	Redis       Redis  `yaml:"redis"`        // Redis that replicas share, instead of path.

	Records          int `yaml:"records"`                // Number of tasks, MCP sessions, questions, webhooks and similar records of all callers. In a Redis cluster maxmemory is the limit. Default: 65536.
	RecordsMiB       int `yaml:"records_mib"`            // Size of these records in MiB. Default: 32, with redis 64.
	CallerRecords    int `yaml:"records_per_caller"`     // Number of records of one caller. Its oldest ended tasks are removed first; without any, it gets 429. Default: a sixteenth of records.
	CallerRecordsKiB int `yaml:"records_kib_per_caller"` // Size of the records of one caller in KiB. Default: a sixteenth of records_mib, and at least two records of 1 MiB.
	AnswersMiB       int `yaml:"answers_mib"`            // MiB for answers kept for repeated messages. When full, the caller that holds most loses its oldest. In redis maxmemory is the limit. Default: 12.
	CallerAnswersKiB int `yaml:"answers_kib_per_caller"` // KiB for the kept answers of one caller. Default: a quarter of answers_mib, and at least two answers of 1 MiB.
}

// Redis keeps the state of several replicas (R18, R19).
type Redis struct {
	Addresses  []string `yaml:"addresses"`    // host:port of one server, of nodes of a cluster, or of Sentinels. Default: Redis is not used.
	Cluster    bool     `yaml:"cluster"`      // true: a single address is a node of a cluster. Default: false.
	Master     string   `yaml:"master"`       // Name of the master that the Sentinels at addresses know.
	Wait       int      `yaml:"wait"`         // Number of Redis replicas that must confirm a task before it is accepted, 0 to 16. Default: 0.
	Durability string   `yaml:"durability"`   // asserted: a server without appendonly is accepted, because its data is made durable by other means.
	Replicas   int      `yaml:"max_replicas"` // Number of replicas of this gateway, which divide the limits among them. Default: 3.
	Timeout    Duration `yaml:"timeout"`      // Longest duration of one Redis operation, 10ms to 10s. Default: 1s.
	Prefix     string   `yaml:"prefix"`       // Prefix of every Redis key. Default: aepb:.
	Plaintext  string   `yaml:"plaintext"`    // loopback: connect without TLS, to loopback addresses only. Default: TLS.

	UsernameFile         string   `yaml:"username_file"`          // File with the user name for Redis.
	PasswordFile         string   `yaml:"password_file"`          // File with the password for Redis.
	SentinelUsernameFile string   `yaml:"sentinel_username_file"` // File with the user name for the Sentinels.
	SentinelPasswordFile string   `yaml:"sentinel_password_file"` // File with the password for the Sentinels.
	TLS                  RedisTLS `yaml:"tls"`                    // TLS 1.3 to Redis and the Sentinels.
}

// RedisTLS is how Redis is known, and how it knows us.
type RedisTLS struct {
	CA          string `yaml:"ca"`          // File with the certificates of the authorities that sign the certificate of Redis (PEM). Default: those of the system.
	Certificate string `yaml:"certificate"` // File with the client certificate of this gateway and its chain (PEM).
	Key         string `yaml:"key"`         // File with the private key of certificate (PEM).
	ServerName  string `yaml:"server_name"` // Name that the certificate of Redis must carry. Default: the host of the address.
}

// Log says what is logged, as JSON on standard error.
type Log struct {
	Level string `yaml:"level"` // Lowest level that is logged: debug, info, warn or error. Default: info.
}

// Limits bound each source (AEPB, Gateway Requirements item 6), and what all
// callers hold of one process. A caller is its identity, or its network address
// if it has shown none.
type Limits struct {
	Rate  float64 `yaml:"rate"`  // Requests per second of one caller. Default: 50, in dev 1000.
	Burst int     `yaml:"burst"` // Requests of one caller at once. Default: 100, in dev 2000.

	MemoryMiB             int      `yaml:"memory_mib"`              // MiB that the process may use with all limits reached. Unset limits follow from it, and set limits must fit in it. Default: 768, for a container of 1 GiB.
	Connections           int      `yaml:"connections"`             // Open connections of identified callers. A quarter as many may come from callers without an identity, and a quarter may be without a request yet. Default: 768.
	ConnectionsPerAddress *int     `yaml:"connections_per_address"` // Connections without an identity or a request from one address; 0: no such limit, for a load balancer in front. Default: an eighth of connections, in dev all.
	FirstRequest          Duration `yaml:"first_request"`           // Time from the start of a connection, TLS handshake included, to its first request. Default: 10s.
	Requests              int      `yaml:"requests"`                // Requests under way at once; a quarter as many of callers without an identity. Default: 512.
	Streams               int      `yaml:"streams"`                 // Answers under way that are event streams; a quarter as many of callers without an identity. Default: 512.
	InFlightMiB           int      `yaml:"in_flight_mib"`           // MiB of bodies that are being read, of answers of 64 KiB or more until they are sent, and of buffered streams. Default: 32.
	BodyWait              Duration `yaml:"body_wait"`               // Time in which a body must bring 8 KiB for each second of this time, and a body over 480 KiB a sixtieth of its length. Default: 10s.
	WriteWait             Duration `yaml:"write_wait"`              // Time in which a client must accept a part of its answer. Default: 30s.
	Sessions              int      `yaml:"mcp_sessions"`            // MCP sessions of one caller at one agent; a further one ends the session that is unused for longest. Default: 1024. Needs a restart.
	AllWorkers            int      `yaml:"background"`              // Tasks that run without a waiting request; a message over 32 KiB counts once for each 32 KiB. Default: 256. Needs a restart.
	Share                 int      `yaml:"share"`                   // Divisor of a caller's part: 4 lets one caller have a quarter of connections, requests, streams, bytes and background tasks. Default: 4; dev does not divide connections.
	Programs              int      `yaml:"programs"`                // Processes of agents that are programs, at once. An unused process ends for the next one, which waits up to 1s. Default: 32. Needs a restart.
	ProgramIdle           Duration `yaml:"program_idle"`            // Time after which an unused process ends. Default: 5m. Needs a restart.
	TaskUnchanged         Duration `yaml:"task_unchanged"`          // Time for which an agent may report a running task without a change before it is not asked any more; the task does not end. Default: 0, no limit.
	AnswerWait            Duration `yaml:"answer_wait"`             // Time for which a question of an agent waits for the caller's answer; then the question is canceled or its call fails. Default: 10m.
}

// Policy is the translation policy (AEPB, Translation Policy).
type Policy struct {
	Document      string    `yaml:"document"`                 // File with a policy document (JSON), which restricts this section further.
	MinSecurity   string    `yaml:"min_protocol_security"`    // tls-1.3: also in dev, no plain HTTP to loopback. Default: dev allows plain HTTP to loopback, serve requires TLS 1.3.
	MaxHops       *int      `yaml:"max_translation_hops"`     // Number of translations that a message may pass through; 0: no translation. Default: 3.
	HopScope      string    `yaml:"hop_scope"`                // What counts as a hop: path, the translations of this message; or ancestry, all in its ECTs. Default: path.
	Graph         string    `yaml:"graph"`                    // What becomes of a task whose ECT breaks a rule of its workflow's graph (a used id, a parent that is unknown, younger or of another workflow, a cycle): off, warn or refuse. Default: warn.
	MinLevel      string    `yaml:"min_level"`                // L1 or L2: lowest assurance level of the ECTs that callers send; messages without an ECT are refused. Default: no such rule.
	AllowedSource *[]string `yaml:"allowed_source_protocols"` // Protocols that messages may be translated from, such as a2a-v1. Default: all; an empty list: none.
	AllowedDest   *[]string `yaml:"allowed_dest_protocols"`   // Protocols that messages may be translated to, such as mcp-v1. Default: all; an empty list: none.
	AllowLosses   []string  `yaml:"allow_losses"`             // Codes of losses, such as L07, that do not refuse a translation as semantic_loss.
	Gateways      []string  `yaml:"gateways"`                 // SPIFFE IDs, or prefixes ending in /*, of peers that may send ECTs of other agents.

	CircuitThreshold string   `yaml:"circuit_threshold"` // Share of failed calls above which the circuit breaker of an agent opens: above 0, at most 1, three decimals. Default: 0.5.
	CircuitWindow    Duration `yaml:"circuit_window"`    // Time in which the calls of a circuit breaker count: whole seconds, 1s to 1h. Default: 60s.
	EscalationURL    string   `yaml:"escalation_url"`    // https URL that gets a POST (JSON) when three probes of an agent failed in a row, or within a minute the breakers of three gateways opened for one agent, or those of three agents here.
	CircuitSamples   int      `yaml:"circuit_samples"`   // Number of calls in circuit_window below which a circuit breaker stays closed, 1 to 10000. Default: 5.

	CheckpointTTL Duration `yaml:"checkpoint_ttl"` // Time for which a checkpoint is kept, and twice the time that a rollback may take: whole seconds, 1m to 720h. Default: 24h.

	Approvals []Approval `yaml:"approvals"` // Rules that say which calls humans approve before they are sent, at most 256.

	Priorities []Priority `yaml:"priorities"` // Classes in which calls wait for agents with a concurrency, at most 256; the first that matches counts. Default: normal for all.
}

// Documents are the capability documents that callers may name as destination
// at the translate endpoint, instead of an agent (R8). One that describes a listed
// agent is that agent, under the rules of both; one that uses the id of a listed
// agent, or an address of listed agents, peers or this gateway, is refused.
type Documents struct {
	Hosts   []string `yaml:"hosts"`   // Hosts of capability documents: host, host:port or *.domain; private addresses only by exact name. Default: no documents.
	Callers []string `yaml:"callers"` // SPIFFE IDs, or prefixes ending in /*, of callers that may name a document. Default: no caller, in dev every caller.
}

// ECT says what evidence callers must bring.
type ECT struct {
	Require bool `yaml:"require"` // true: requests of native protocol clients without an ECT are refused too. Default: false.
}

// Peer holds settings for one party that sends or reads ECTs, such as another gateway.
type Peer struct {
	Gateway  string   `yaml:"gateway"`     // URL of the peer's translate endpoint if it is a gateway that messages may be forwarded to: https://HOST/aepb/translate.
	Callers  []string `yaml:"callers"`     // SPIFFE IDs, or prefixes ending in /*, whose messages may be forwarded to agents that are not listed here. Default: no caller, in dev every caller.
	Dialect  string   `yaml:"dialect"`     // Format of ECTs for this peer: seed, 00, 01 or dual. Default: the format that the peer uses, else seed.
	MinLevel string   `yaml:"min_level"`   // L1 or L2: lowest assurance level of the peer's own ECTs. Default: L2.
	InBody   bool     `yaml:"ect_in_body"` // true: A2A and MCP messages to and from this peer carry ECTs in the body too, in metadata or _meta; not over gRPC. Default: false.
	Keys     string   `yaml:"keys"`        // File with a JWK set with which the peer may sign ECTs, besides its certificates.
}

// Agent is one agent.
type Agent struct {
	ID         string      `yaml:"id"`                  // SPIFFE ID that the agent's TLS certificate must carry. Default: the certificate must carry the host name.
	Endpoints  []Endpoint  `yaml:"endpoints"`           // Endpoints, one per binding. At least one, unless capability is set.
	Capability string      `yaml:"capability"`          // URL of the agent's capability document, which names its endpoints.
	Credential *Credential `yaml:"credential"`          // What the agent is shown besides the certificate of this gateway. Default: nothing.
	Plain      bool        `yaml:"plain"`               // true: endpoints and capability may be http URLs of this machine, such as a sidecar's; callers' messages pass without TLS. Default: false.
	Pin        bool        `yaml:"pin"`                 // true: a changed description of the agent waits for aepbctl agents accept. Default: false.
	Revision   string      `yaml:"revision"`            // The only MCP revision for the agent's MCP endpoint: 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26 or 2024-11-05. Default: chosen for each caller.
	Expose     []string    `yaml:"expose"`              // What callers of other protocols see of an MCP server: tools, prompts (skills prompt.NAME), resources (skills resource.read, resource.list). Default: tools.
	Callers    []string    `yaml:"callers"`             // SPIFFE IDs, or prefixes ending in /*; a suffix such as #invoke or #task.get allows one operation, #invoke:NAME one tool or skill, with * for any characters. Default: no caller, in dev every caller.
	Tools      []string    `yaml:"tools"`               // Patterns, with * for any characters, of the tools and skills that any caller may invoke, at most 256. Others are not listed. Default: all.
	Level      string      `yaml:"ect_assurance_level"` // L1, L2 or L3: lowest level of evidence that the agent accepts; translations have L2. Default: L2.
	RequireECT bool        `yaml:"require_ect"`         // true: messages for this agent without an ECT are refused. Default: false.
	Timeout    Duration    `yaml:"timeout"`             // Longest duration of one call. Default: the gateway's timeout.
	Life       Life        `yaml:"lifecycle"`           // Lifecycle of the agent.

	Concurrency *int     `yaml:"concurrency"`  // Number of calls that the agent gets at once from each replica, 1 to 10000; further ones wait, in the order of policy.priorities. Default: no limit, no call waits.
	LongestWait Duration `yaml:"longest_wait"` // With concurrency: time after which a waiting call goes before those of higher classes, 1s to 1h. Default: 300s.

	ToolNames  map[string]string       `yaml:"tool_names"` // Names under which callers see and call tools and skills, by the agent's own names, at most 256. Default: the agent's own names.
	ReadOnly   []string                `yaml:"read_only"`  // Tools that change nothing, so that no checkpoint is written before them; "*": all tools. Default: no tool.
	Rollback   string                  `yaml:"rollback"`   // own: the agent rolls back itself, when it is asked in its protocol or at /.well-known/atd/rollback of its host. Default: it does not.
	Compensate map[string]Compensation `yaml:"compensate"` // How calls are undone, by tool, at most 256; of a tool that stands here the agent is not asked to roll back. Default: no tool.
}

// Endpoint is one way to reach an agent.
type Endpoint struct {
	Binding  string `yaml:"binding"`  // Protocol: a2a-v1, mcp-v1, slim-v1, uacp-v1 or ainp-v1.
	Version  string `yaml:"version"`  // Protocol version. Default: negotiated.
	URL      string `yaml:"url"`      // https URL; for uacp-v1 uacps://HOST:PORT, for slim-v1 slim://NODE/ORG/NAMESPACE/SERVICE. dev also allows http and uacp to loopback.
	Priority int    `yaml:"priority"` // Rank among endpoints; lower is preferred. Default: 100.
	GRPC     string `yaml:"grpc"`     // host:port for A2A over gRPC; url then names the card only. Default: as the card says, JSON-RPC before HTTP before gRPC.

	Program Program `yaml:"program"` // MCP server that speaks over standard input and output and that this gateway runs; mcp-v1, instead of url.

	Through string `yaml:"through"` // SPIFFE ID of a peer with gateway that lists the agent under the same name, instead of url. The binding may be one that this gateway does not speak.

	Form      string `yaml:"form"`      // For uacp-v1: enveloped; bare, for agents without gateway support; or tagged, which is bare with the jti of the ECT in option 0x41. Default: enveloped.
	DID       string `yaml:"did"`       // For ainp-v1: DID that must sign the agent's answers. Default: any did:key.
	Signature string `yaml:"signature"` // For ainp-v1, what signatures cover: draft; jcs-raw, as the reference code does; or none, for agents that cannot sign. Default: draft.
}

// Program is an MCP server over standard input and output.
type Program struct {
	Command   []string          `yaml:"command"`    // The program and its arguments. A program that is no path is searched in PATH.
	Dir       string            `yaml:"dir"`        // Working directory, an absolute path. Default: that of the gateway.
	Env       map[string]string `yaml:"env"`        // Environment variables besides PATH, HOME, USER, LANG and TMPDIR, by name.
	EnvFiles  map[string]string `yaml:"env_files"`  // Files with the values of secret environment variables, by name. They are read at each start of the program.
	Shared    bool              `yaml:"shared"`     // true: one process for all callers, which cannot ask them questions. Default: false, one process for each session of each caller.
	MemoryMiB int               `yaml:"memory_mib"` // MiB that the process and its children may use, on Linux; a process that uses more is ended. Default: 512.
}

// url is the program as an endpoint names it; empty: there is none.
func (p Program) url() string {
	if len(p.Command) == 0 {
		return ""
	}
	return stdio.Program{Command: p.Command, Dir: p.Dir, Env: p.Env, EnvFiles: p.EnvFiles, Shared: p.Shared, MemoryMiB: p.MemoryMiB}.URL()
}

// Constraints is the policy in the words of package policy.
func (c Config) Constraints() policy.Constraints {
	out := policy.Constraints{HopScope: policy.HopScope(c.Policy.HopScope), Graph: policy.GraphRule(c.Policy.Graph), AllowLosses: c.Policy.AllowLosses}
	out.MinSecurity, _ = policy.ParseSecurity(c.Policy.MinSecurity)
	out.MinLevel = levels[c.Policy.MinLevel]
	out.Circuit.Threshold, _ = policy.ParseThreshold(c.Policy.CircuitThreshold)
	out.Circuit.Window, out.Circuit.Samples = time.Duration(c.Policy.CircuitWindow), c.Policy.CircuitSamples
	if c.Policy.MaxHops != nil {
		out.MaxHops = cmp.Or(*c.Policy.MaxHops, -1) // package policy reads zero as "default"
	}
	if c.Policy.AllowedSource != nil {
		out.RestrictSource, out.AllowedSource = true, *c.Policy.AllowedSource
	}
	if c.Policy.AllowedDest != nil {
		out.RestrictDest, out.AllowedDest = true, *c.Policy.AllowedDest
	}
	return out
}

// Files are those that the configuration names and that may change while the
// gateway runs, sorted.
func (c Config) Files() []string {
	all := []string{c.Identity.Certificate, c.Identity.Key, c.Identity.Bundle, c.TLS.Certificate, c.TLS.Key, c.APIKeys.File}
	all = slices.AppendSeq(all, maps.Values(c.Identity.Issuers))
	all = slices.AppendSeq(all, maps.Values(c.Identity.Federated))
	for _, peer := range c.Peers {
		all = append(all, peer.Keys)
	}
	for _, issuer := range c.OAuth {
		all = append(all, issuer.Introspection.SecretFile)
	}
	for _, n := range c.SLIM.Nodes {
		if n.JWT != nil {
			all = append(all, n.JWT.Keys)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(file string) bool { return file == "" })
}

// Operators are the operators in the words of package policy, by id.
func (c Config) Operators() map[ect.Identity]policy.Operator {
	out := make(map[ect.Identity]policy.Operator, len(c.Admin.Operators))
	for name, o := range c.Admin.Operators {
		out[ect.Identity(o.ID)] = o.as(name)
	}
	return out
}

func (o Operator) as(name string) policy.Operator {
	out := policy.Operator{Name: name, ID: ect.Identity(o.ID)}
	for _, role := range o.Roles {
		out.Roles = append(out.Roles, policy.Role(role))
	}
	return out
}

// DIDs are the callers of AINP by their DIDs.
func (c Config) DIDs() map[string]ect.Identity {
	out := make(map[string]ect.Identity, len(c.AINP.Callers))
	for did, id := range c.AINP.Callers {
		out[did] = ect.Identity(id)
	}
	return out
}

// Gateways are the peers that may carry other agents' ECTs.
func (c Config) Gateways() []ect.Identity {
	out := make([]ect.Identity, len(c.Policy.Gateways))
	for i, id := range c.Policy.Gateways {
		out[i] = ect.Identity(id)
	}
	return out
}

// InBody are the peers whose ECTs are in the body too.
func (c Config) InBody() map[ect.Identity]bool {
	out := map[ect.Identity]bool{}
	for id, peer := range c.Peers {
		if peer.InBody {
			out[ect.Identity(id)] = true
		}
	}
	return out
}

// Limit is the limits in the words of package limit.
func (c Config) Limit() limit.Config {
	return limit.Config{Rate: c.Limits.Rate, Burst: c.Limits.Burst, Replicas: c.State.Redis.replicas()}
}

// VisitorRules are the documents in the words of package directory.
func (c Config) VisitorRules(dev bool) directory.Documents {
	d := c.Documents
	return directory.Documents{Hosts: d.Hosts, Rules: policy.Rules{Callers: d.Callers, Open: dev && len(d.Callers) == 0}}
}

// PeerGateways are the peers that are gateways, in the words of package directory.
func (c Config) PeerGateways(dev bool) []directory.Peer {
	var out []directory.Peer
	for _, id := range slices.Sorted(maps.Keys(c.Peers)) {
		if p := c.Peers[id]; p.Gateway != "" {
			out = append(out, directory.Peer{
				ID: ect.Identity(id), URL: p.Gateway, Rules: policy.Rules{Callers: p.Callers, Open: dev && len(p.Callers) == 0},
			})
		}
	}
	return out
}

// Directory lists the agents. In a development gateway an agent without a list
// of callers is open to everybody (R2).
func (c Config) Directory(dev bool) []directory.Agent {
	var out []directory.Agent
	for name, a := range c.Agents {
		agent := directory.Agent{
			Name: name, ID: ect.Identity(a.ID), Timeout: time.Duration(a.Timeout), AssuranceLevel: levels[a.Level],
			Capability: a.Capability, Pin: a.Pin, Plain: a.Plain, Expose: a.Expose, Undo: a.undo(),
			Rules: policy.Rules{
				Callers: a.Callers, RequireECT: a.RequireECT, Open: dev && len(a.Callers) == 0, Tools: a.Tools, Names: policy.NewNames(a.ToolNames),
			},
		}
		for _, e := range a.Endpoints {
			if e.Version == "" && directory.HasRevisions(e.Binding) {
				e.Version = a.Revision
			}
			agent.Endpoints = append(agent.Endpoints, directory.Endpoint{
				Binding: canonical.Binding(e.Binding), Version: e.Version, URL: cmp.Or(e.URL, e.Program.url()), Priority: e.Priority, GRPC: e.GRPC,
				Through: ect.Identity(e.Through), Form: e.Form, DID: e.DID, Signature: e.Signature,
			})
		}
		out = append(out, agent)
	}
	return out
}
