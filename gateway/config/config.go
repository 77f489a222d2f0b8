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

// Config is the file. Every key may be left out.
type Config struct {
	Listen    Listen          `yaml:"listen"`
	PublicURL string          `yaml:"public_url"`  // where callers reach us, such as https://gw.example.com; needed by serve
	PublicRPC string          `yaml:"public_grpc"` // where callers reach listen.grpc, host:port, for agents' cards; default: the host of public_url and the port listened at
	Identity  Identity        `yaml:"identity"`
	TLS       TLS             `yaml:"tls"`
	Admin     Admin           `yaml:"admin"`
	State     State           `yaml:"state"`
	Log       Log             `yaml:"log"`
	Limits    Limits          `yaml:"limits"`
	Policy    Policy          `yaml:"policy"`
	ECT       ECT             `yaml:"ect"`
	Peers     map[string]Peer `yaml:"peers"`     // what is special about a peer, by its SPIFFE id
	Documents Documents       `yaml:"documents"` // capability documents that callers may name as destination
	Timeout   Duration        `yaml:"timeout"`   // of one call to an agent; default 5m

	ShutdownDelay *Duration `yaml:"shutdown_delay"` // how long everything goes on after a signal to stop, while readiness fails, so that load balancers notice; default 5s, in dev 0
	ShutdownGrace Duration  `yaml:"shutdown_grace"` // how long work under way may last after that, background work included, while new work gets 503 with Retry-After; what is left then fails on record; default 20s, in dev 5s. A change of either needs a restart. The process ends within 2s more: by default 27s after the signal, and Kubernetes gives 30s

	Version string `yaml:"version"`   // semantic version of this gateway in its capability document and in the ECTs that it signs; default: that of the program. check-config --before tells when its first number must rise. A change needs a restart
	Life    Life   `yaml:"lifecycle"` // of this gateway

	SLIM   SLIM             `yaml:"slim"`
	AINP   AINP             `yaml:"ainp"`
	Agents map[string]Agent `yaml:"agents"` // by name: 1 to 63 of a-z 0-9 - _ .

	hash     string    // of the file's bytes; empty: there is no file
	file     source    // its bytes
	mistakes []mistake // of syntax and type that it has
}

// Listen is where the listeners are. serve takes it; dev has flags.
type Listen struct {
	Public string `yaml:"public"` // default :8443
	GRPC   string `yaml:"grpc"`   // A2A over gRPC, also in dev; default: not served
	Admin  string `yaml:"admin"`  // default 127.0.0.1:9443

	Metrics string `yaml:"metrics"` // /metrics, /healthz and /readyz alone, over plain HTTP and without credentials, for Prometheus and probes; also in dev; such as :9464, where aepbctl healthz looks. They hold no secrets, but names of agents. Default: not served. A change needs a restart

	UACP      string `yaml:"uacp"`       // for µACP over TLS, such as :8888; default: none. The TLS server name begins with the agent's name, and at least one label follows; of several agents the longest name is meant
	UACPUDP   string `yaml:"uacp_udp"`   // for µACP in datagrams, without protection: only in dev, and on a loopback address; default: none
	UACPAgent string `yaml:"uacp_agent"` // whom µACP callers reach who give no such name

	UACPConnections ConnectionBounds `yaml:"uacp_connections"` // connections of µACP over TLS; those without an identity are in their handshake, and the oldest of the address with most gives way to the next. A change needs a restart
}

// ConnectionBounds bounds connections that stay open. A zero field takes its default.
type ConnectionBounds struct {
	Total        int `yaml:"total"`        // of all identified callers, at once; default 64
	PerCaller    int `yaml:"per_caller"`   // of one identified caller; default half of total
	Unidentified int `yaml:"unidentified"` // besides, whose caller has proved no identity yet; default 64
	PerAddress   int `yaml:"per_address"`  // of these, from one network address; default a quarter of unidentified
}

// AINP is who the gateway is in AINP.
type AINP struct {
	Key     string            `yaml:"key"`     // file with its Ed25519 key, PEM (PKCS #8); without it serve does not speak AINP, dev makes one
	DID     string            `yaml:"did"`     // default: the did:key of the key
	Callers map[string]string `yaml:"callers"` // the SPIFFE ids that callers' DIDs stand for, by DID. Documents of did:web are fetched for these and for agents' did alone; a caller that is known only by its DID names a recipient in to_did

	Sockets ConnectionBounds `yaml:"sockets"` // WebSockets; one without a client certificate is refused unless there are callers, and closed if its first message, of at most 256 KiB, is not verified within 30s. A change needs a restart
}

// Identity is who the gateway is (AEPB, Gateway Trust): files, read at start and
// whenever they change.
type Identity struct {
	TrustDomain string `yaml:"trust_domain"` // such as example.com
	Certificate string `yaml:"certificate"`  // X.509-SVID with its chain, PEM
	Key         string `yaml:"key"`          // its private key, PEM (PKCS #8)
	Bundle      string `yaml:"bundle"`       // trust anchors: PEM, or a SPIFFE bundle in JSON

	Federated map[string]string `yaml:"federated"` // files with the trust anchors of other trust domains, as in bundle, by trust domain; a domain that is taken out is not trusted any more, and its connections end; with workload_api the API says it

	WorkloadAPI string `yaml:"workload_api"` // address of the SPIFFE Workload API, such as unix:///run/spire/agent.sock, instead of certificate, key and bundle

	Issuers map[string]string `yaml:"issuers"` // files with the JWK sets of identity servers whose workload identity tokens are taken, by trust domain
}

// TLS is what callers see who judge by host name instead of SPIFFE id.
type TLS struct {
	Certificate string `yaml:"certificate"` // PEM with its chain; default: the SVID
	Key         string `yaml:"key"`         // its private key, PEM
}

// Admin guards the admin listener (R17).
type Admin struct {
	Operators map[string]Operator `yaml:"operators"` // who may use /api, by name; at least one under serve, in dev also who has the token file
	Hosts     []string            `yaml:"hosts"`     // names that may stand in the Host of a request to /api, besides localhost, 127.0.0.1, ::1 and the host of public_url: exact host names or IP addresses, without a port
}

// Operator is somebody who operates the gateway.
type Operator struct {
	ID    string   `yaml:"id"`    // the SPIFFE id of its client certificate
	Roles []string `yaml:"roles"` // viewer, operator, approver, auditor: at least one; each may look
}

// State is where state is kept.
type State struct {
	Path        string `yaml:"path"`         // bbolt file; default: in memory, gone with the process
	EvidenceMiB int    `yaml:"evidence_mib"` // of ECTs kept for GET /ects and /workflows, on disk with path; full, the caller that holds most loses its oldest; default 36, with path 24576, with Redis 1024
	Key         string `yaml:"key"`          // file with the keys that seal what is kept in path or redis: lines of 32 bytes in hexadecimal or base64, the first seals and all open; read at start, the same for all replicas; default: for path a file beside it (path.key), which is made; for redis required by serve
	Unverified  bool   `yaml:"unverified"`   // true: without key, all that stands in redis is believed, whichever program wrote it, and webhooks with credentials are refused; default false
	Redis       Redis  `yaml:"redis"`        // shared by several replicas; instead of path

	Records          int `yaml:"records"`                // tasks, MCP sessions, questions, push settings and the like of all callers; one kind takes at most three quarters. Without space the oldest ended task of the caller with most goes first. In a Redis cluster maxmemory alone bounds them; default 65536
	RecordsMiB       int `yaml:"records_mib"`            // the same in MiB; default 32, with Redis 64
	CallerRecords    int `yaml:"records_per_caller"`     // of one caller, whose oldest ended tasks go first; without any, it gets 429. In a Redis cluster: of one caller, agent and kind; default a sixteenth of records
	CallerRecordsKiB int `yaml:"records_kib_per_caller"` // the same in KiB; default a sixteenth of records_mib, and at least two records of 1 MiB
	AnswersMiB       int `yaml:"answers_mib"`            // of answers kept for repeated messages; without space the oldest of the caller with most goes first. In Redis maxmemory bounds them; default 12
	CallerAnswersKiB int `yaml:"answers_kib_per_caller"` // of one caller, whose oldest go first; default a quarter of answers_mib, and at least two answers of 1 MiB
}

// Redis keeps the state of several replicas (R18, R19).
type Redis struct {
	Addresses  []string `yaml:"addresses"`    // host:port of a server, of two or more nodes of a cluster, or of Sentinels; none: no Redis
	Cluster    bool     `yaml:"cluster"`      // the one address is a cluster's
	Master     string   `yaml:"master"`       // what the Sentinels at the addresses call the master
	Wait       int      `yaml:"wait"`         // replicas of Redis that must have a task before it counts; default 0
	Durability string   `yaml:"durability"`   // asserted: a server without appendonly is taken, because something else makes it durable
	Replicas   int      `yaml:"max_replicas"` // of this gateway; each one's part of the limits; default 3
	Timeout    Duration `yaml:"timeout"`      // of one operation, 10ms to 10s; default 1s
	Prefix     string   `yaml:"prefix"`       // of every key; default aepb:
	Plaintext  string   `yaml:"plaintext"`    // loopback: no TLS, and loopback addresses alone

	UsernameFile         string   `yaml:"username_file"`          // file with the name to log in with
	PasswordFile         string   `yaml:"password_file"`          // file with its password
	SentinelUsernameFile string   `yaml:"sentinel_username_file"` // the same for the Sentinels
	SentinelPasswordFile string   `yaml:"sentinel_password_file"`
	TLS                  RedisTLS `yaml:"tls"` // 1.3
}

// RedisTLS is how Redis is known, and how it knows us.
type RedisTLS struct {
	CA          string `yaml:"ca"`          // PEM of who signs its certificate; default: the system's
	Certificate string `yaml:"certificate"` // ours, PEM with its chain
	Key         string `yaml:"key"`         // its private key, PEM
	ServerName  string `yaml:"server_name"` // in its certificate; default: the address
}

// Log says what is logged, as JSON on standard error.
type Log struct {
	Level string `yaml:"level"` // debug, info (default), warn or error
}

// Limits bound each source (AEPB, Gateway Requirements item 6), and what all
// callers hold of one process. A caller is its identity, or its network address
// if it has shown none.
type Limits struct {
	Rate  float64 `yaml:"rate"`  // requests per second of one caller; default 50, in dev 1000
	Burst int     `yaml:"burst"` // requests at once; default 100, in dev 2000

	MemoryMiB             int      `yaml:"memory_mib"`              // that the process may take with all its bounds full. Bounds that are not said follow from it, and those that are said are refused if all add up to more. Of state, background and the soft memory limit read at the start; default 768, for a container of 1 GiB
	Connections           int      `yaml:"connections"`             // open at once of callers that proved an identity, and besides a quarter as many of strangers, and a quarter as many on which nothing was asked yet; when there are more, one without a request under way ends; default 768
	ConnectionsPerAddress *int     `yaml:"connections_per_address"` // of strangers, and of those on which nothing was asked yet; default an eighth of connections, in dev all; 0: each counts for itself, where all callers share the address of a load balancer
	FirstRequest          Duration `yaml:"first_request"`           // from the beginning of a connection, handshake included, until its first request; default 10s
	Requests              int      `yaml:"requests"`                // under way at once, and a quarter as many of callers without an identity; default 512
	Streams               int      `yaml:"streams"`                 // answers under way that are streams of events, and a quarter as many of callers without an identity; they do not count as requests; default 512
	InFlightMiB           int      `yaml:"in_flight_mib"`           // of bodies that are being read, of answers from 64 KiB on from when an agent sends them until their caller has them, and of what streams add up to; default 32
	BodyWait              Duration `yaml:"body_wait"`               // in which a body that is being read must bring 8 KiB for each second, and one of more than 480 KiB the sixtieth part of it, or end; default 10s
	WriteWait             Duration `yaml:"write_wait"`              // in which a reader must take a part of its answer; default 30s
	Sessions              int      `yaml:"mcp_sessions"`            // of one caller at one agent; when one more begins, the one that was not used for longest ends. Read at the start; default 1024
	AllWorkers            int      `yaml:"background"`              // tasks that go on without a waiting request; one with a message of more than 32 KiB counts for each 32 KiB of it. Read at the start; default 256
	Share                 int      `yaml:"share"`                   // one caller may have one of so many of the connections, requests, streams, bytes in flight, tasks in the background, used tokens and open streams of MCP sessions; of connections in dev all. For MCP and the background read at the start; default 4: a quarter
	Programs              int      `yaml:"programs"`                // processes of agents that are programs, at once; one that is not in use gives way to the next, and a caller waits up to a second for it; default 32: eight of one caller, so 32 callers with one session at work each, and at worst 11. Read at the start
	ProgramIdle           Duration `yaml:"program_idle"`            // after which a process that is not used ends; default 5m. Read at the start
	TaskUnchanged         Duration `yaml:"task_unchanged"`          // how long an agent that is asked how its task stands may answer that it works, without any change, before it is not asked any more; the caller is told so, and the task is not ended; default 0: no limit
	AnswerWait            Duration `yaml:"answer_wait"`             // how long an agent that has asked its caller, and keeps its stream open or has work of its own under way, waits for the answer; then the question is canceled, or its call ends with an error; default 10m
}

// Policy is the translation policy (AEPB, Translation Policy).
type Policy struct {
	Document      string    `yaml:"document"`                 // file with a policy document (JSON, constraints and DAG nodes as the drafts have them); it narrows what stands here
	MinSecurity   string    `yaml:"min_protocol_security"`    // tls-1.3; default: plain HTTP to loopback in dev, else tls-1.3 anyway
	MaxHops       *int      `yaml:"max_translation_hops"`     // default 3; 0: none
	HopScope      string    `yaml:"hop_scope"`                // path (default) or ancestry (R1)
	MinLevel      string    `yaml:"min_level"`                // L1 or L2: the lowest level of the ECTs that callers bring, and no message without one is taken; default: no rule
	AllowedSource *[]string `yaml:"allowed_source_protocols"` // absent: all; empty: none
	AllowedDest   *[]string `yaml:"allowed_dest_protocols"`   // absent: all; empty: none
	AllowLosses   []string  `yaml:"allow_losses"`             // loss codes that are no semantic_loss (R7)
	Gateways      []string  `yaml:"gateways"`                 // peers that may carry others' ECTs (R2)

	CircuitThreshold string   `yaml:"circuit_threshold"` // the circuit breaker of an agent opens when more of its calls fail; above 0, at most 1, up to three decimals; default 0.5
	CircuitWindow    Duration `yaml:"circuit_window"`    // in which calls count, 1s to 1h; default 60s
	EscalationURL    string   `yaml:"escalation_url"`    // where is posted that an agent needs a human: three probes of it in a row have failed, or the breakers of three agents opened within a minute. JSON with agent, state, reason, at, instance and ect, which is in Execution-Context too; https, and its host may have a private address
	CircuitSamples   int      `yaml:"circuit_samples"`   // fewer calls in the window open nothing; 1 to 10000; default 5 (R21)
}

// Documents are the capability documents that callers may name as destination
// at the translate endpoint, instead of an agent (R8). One that describes a listed
// agent is that agent, under the rules of both; one that uses the id of a listed
// agent, or an address of listed agents, peers or this gateway, is refused.
type Documents struct {
	Hosts   []string `yaml:"hosts"`   // host, host:port or *.domain; none: no document. Private addresses only by exact name
	Callers []string `yaml:"callers"` // SPIFFE ids, or prefixes ending in /*; none: nobody, in dev everybody (R2)
}

// ECT says what evidence callers must bring.
type ECT struct {
	Require bool `yaml:"require"` // refuse unattested messages at native endpoints too (R3)
}

// Peer is what is special about somebody who sends or reads ECTs, or is another
// gateway.
type Peer struct {
	Gateway  string   `yaml:"gateway"`     // URL of its translate endpoint, if it is a gateway through which messages may go on: https://…/aepb/translate
	Callers  []string `yaml:"callers"`     // who may be sent on through it to agents that are not listed here: SPIFFE ids, or prefixes ending in /*; none: nobody, in dev everybody (R2)
	Dialect  string   `yaml:"dialect"`     // seed (default), 00, 01 or dual; default: as the peer writes itself
	MinLevel string   `yaml:"min_level"`   // L1 or L2 (default): the lowest level of its own ECTs; a translation is never L1
	InBody   bool     `yaml:"ect_in_body"` // its A2A and MCP messages, events of streams, errors and what its webhooks are told have their ECTs in the body too, to and from it, as metadata or _meta, in errors among the details or in data (R5); over gRPC they have not
	Keys     string   `yaml:"keys"`        // file with a JWK set that its ECTs may be signed with, besides its certificates
}

// Agent is one agent.
type Agent struct {
	ID         string     `yaml:"id"`                  // its SPIFFE id; its TLS certificate must carry it
	Endpoints  []Endpoint `yaml:"endpoints"`           // at least one, one per binding; none with capability
	Capability string     `yaml:"capability"`          // URL of its capability document, which says its endpoints
	Pin        bool       `yaml:"pin"`                 // a changed description of itself waits for aepbctl agents accept (R9)
	Revision   string     `yaml:"revision"`            // of its MCP endpoint, the only one that it is spoken to in: 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26 or 2024-11-05; default: an MCP caller's own where the server has it, with sessions; else, for callers who can be asked, the newest with sessions, on which servers of either style ask
	Expose     []string   `yaml:"expose"`              // of an MCP server to callers of other protocols, besides tools: prompts (as skills prompt.NAME), resources (as skills resource.read and resource.list); tools may be named too; default: tools alone
	Callers    []string   `yaml:"callers"`             // SPIFFE ids, or prefixes ending in /*, each for one operation only if #invoke, #task.get and the like follows; none: nobody, in dev everybody (R2)
	Level      string     `yaml:"ect_assurance_level"` // L1, L2 or L3: the lowest level of evidence that it takes; default: as translations always are, L2
	RequireECT bool       `yaml:"require_ect"`         // refuse unattested messages for this agent (R3)
	Timeout    Duration   `yaml:"timeout"`             // of one call; default: the gateway's
	Life       Life       `yaml:"lifecycle"`           // how it stands
}

// Endpoint is one way to reach an agent.
type Endpoint struct {
	Binding  string `yaml:"binding"`  // a2a-v1, mcp-v1, slim-v1, uacp-v1 or ainp-v1
	Version  string `yaml:"version"`  // default: negotiated
	URL      string `yaml:"url"`      // https; in dev also http to loopback; for uacp-v1 uacps://host:port, in dev also uacp://address:port for datagrams to loopback, for slim-v1 slim://node/org/namespace/service
	Priority int    `yaml:"priority"` // lower is preferred; default 100
	GRPC     string `yaml:"grpc"`     // host:port where it is to be reached with A2A over gRPC; url is then that of its card alone; default: as its card says, JSON-RPC before HTTP before gRPC

	Program Program `yaml:"program"` // mcp-v1, instead of url: an MCP server that speaks over standard input and output, which this gateway runs

	Through string `yaml:"through"` // instead of url: SPIFFE id of a peer that is a gateway, which lists the agent under the same name; binding need not be spoken here

	Form      string `yaml:"form"`      // uacp-v1: enveloped (default), bare for agents that know no gateways, or tagged: bare, with the jti of the request's ECT in the vendor option 0x41
	DID       string `yaml:"did"`       // ainp-v1: whose signature its answers must bear; default: any did:key's
	Signature string `yaml:"signature"` // ainp-v1: what signatures cover: draft (default), jcs-raw as the reference code does, or none for agents that cannot sign
}

// Program is an MCP server over standard input and output.
type Program struct {
	Command   []string          `yaml:"command"`    // the program, found in PATH if it is no path, and its arguments
	Dir       string            `yaml:"dir"`        // where it starts, an absolute path; default: where the gateway did
	Env       map[string]string `yaml:"env"`        // variables besides PATH, HOME, USER, LANG and TMPDIR, by name
	EnvFiles  map[string]string `yaml:"env_files"`  // files with the values of variables that are secret, by name; read at each start
	Shared    bool              `yaml:"shared"`     // true: one process for all callers, which can ask them nothing; default false: one for each session of each caller
	MemoryMiB int               `yaml:"memory_mib"` // that it and all it starts may take, on Linux; one that takes more is ended; default 512
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
	out := policy.Constraints{HopScope: policy.HopScope(c.Policy.HopScope), AllowLosses: c.Policy.AllowLosses}
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
	all := []string{c.Identity.Certificate, c.Identity.Key, c.Identity.Bundle, c.TLS.Certificate, c.TLS.Key}
	all = slices.AppendSeq(all, maps.Values(c.Identity.Issuers))
	all = slices.AppendSeq(all, maps.Values(c.Identity.Federated))
	for _, peer := range c.Peers {
		all = append(all, peer.Keys)
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
			Capability: a.Capability, Pin: a.Pin, Expose: a.Expose,
			Rules: policy.Rules{Callers: a.Callers, RequireECT: a.RequireECT, Open: dev && len(a.Callers) == 0},
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
