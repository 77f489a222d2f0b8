package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
)

// Binding is MCP's protocol binding identifier.
const Binding canonical.Binding = "mcp-v1"

// The methods that the codec reads and writes.
const (
	MethodCall       = "tools/call"
	MethodList       = "tools/list"
	MethodDiscover   = "server/discover"
	MethodInitialize = "initialize"
	MethodPing       = "ping"
	// MethodInitialized ends a legacy handshake.
	MethodInitialized = "notifications/initialized"
)

// Translator is the codec. It is immutable and safe for concurrent use.
type Translator struct {
	cfg  translators.Config
	info translators.Info
}

var (
	_ translators.Translator     = (*Translator)(nil)
	_ translators.Namer          = (*Translator)(nil)
	_ translators.EvidencePlacer = (*Translator)(nil)
)

// New builds a codec with the given bounds; zero fields take their defaults.
func New(cfg translators.Config) *Translator {
	cfg = cfg.WithDefaults()
	return &Translator{cfg, translators.Info{
		Binding: Binding, Name: "MCP", Versions: Revisions(), Media: []string{"application/json"},
		BodyLimit: cfg.BodyLimit, Depth: cfg.Depth, Streams: translators.StreamsReply,
	}}
}

// Info describes the protocol.
func (t *Translator) Info() translators.Info { return t.info }

// Envelope is the outermost level of a message, unjudged.
type Envelope = jsonrpc.Envelope

// Skim reads the envelope of a body, valid JSON or not, for a transport that must
// route it. false: it is no object, or its version or method is no string. Decode
// judges the rest.
func Skim(body []byte) (Envelope, bool) { return jsonrpc.Skim(body) }

// CapabilityNames gives each skill the tool name under which MCP clients see
// it: its id, with every character outside [A-Za-z0-9_.-] replaced by "_". Ids that
// become equal, and ids that had to be cut or are empty, get six hex digits of their
// SHA-256. An id that is a name as MCP wants it (1 to 128 of these characters) always
// keeps it, so that no skill is listed under the id of another one.
func (t *Translator) CapabilityNames(capabilities []canonical.Capability) []string {
	names := make([]string, len(capabilities))
	taken := make(map[string]bool, len(capabilities))
	alike := make(map[string]int, len(capabilities))
	for i := range capabilities {
		id := capabilities[i].ID
		alike[sanitise(id)]++
		if id != "" && len(id) <= maxName && sanitise(id) == id && !taken[id] {
			names[i], taken[id] = id, true
		}
	}
	for i := range capabilities {
		if names[i] != "" {
			continue
		}
		id := capabilities[i].ID
		name := sanitise(id)
		if len(name) > maxName || name == "" || alike[name] > 1 {
			name = withHash(sanitise(id), id)
		}
		for n := 1; taken[name]; n++ { // for equal ids, and where an id looks like another one's name
			name = withHash(sanitise(id), id+"\x00"+strconv.Itoa(n))
		}
		names[i], taken[name] = name, true
	}
	return names
}

const (
	maxName  = 128 // bytes, MCP server/tools
	hashSize = 6   // hex digits
)

func sanitise(id string) string {
	name := []byte(id)
	for i, c := range name {
		safe := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
		if !safe {
			name[i] = '_'
		}
	}
	return string(name)
}

func withHash(name, id string) string {
	sum := sha256.Sum256([]byte(id))
	keep := min(len(name), maxName-hashSize-1)
	return name[:keep] + "_" + hex.EncodeToString(sum[:])[:hashSize]
}

func known(version string) bool { return slices.Contains(Revisions(), version) }

// choose is the version that Encode writes.
func choose(target translators.Target) (string, error) {
	if target.Version == "" {
		return Modern, nil
	}
	if !slices.Contains(Revisions(), target.Version) {
		return "", unsupportedVersion(target.Version)
	}
	return target.Version, nil
}

// keyECT is the member of _meta that holds tokens, for peers that do not see the
// header (R5).
const keyECT = profile.MetaPrefix + "ect"

// Bears returns the places for evidence: the _meta of a request's params, of its result and of a
// notification; an error has data.
func (t *Translator) Bears(translators.Wire) []translators.Place {
	at := func(path, object string) translators.Place {
		return translators.Place{Path: []string{path}, Object: object, Key: keyECT}
	}
	refusal := at("error", "data")
	refusal.With = "message"
	return []translators.Place{at("params", "_meta"), at("result", "_meta"), refusal}
}

// The methods of servers and clients beside those in mcp.go.
const (
	methodPromptsGet    = "prompts/get"
	methodPrompts       = "prompts/list"
	methodResources     = "resources/list"
	methodTemplates     = "resources/templates/list"
	methodResourcesRead = "resources/read"
	methodTaskGet       = "tasks/get"
	methodTaskList      = "tasks/list"
	methodTaskCancel    = "tasks/cancel"
	methodTaskResult    = "tasks/result"
	methodTaskUpdate    = "tasks/update"
	methodElicit        = "elicitation/create"

	noticeProgress  = "notifications/progress"
	noticeMessage   = "notifications/message"
	noticeCancelled = "notifications/cancelled"
)

// methods lists what a client may ask a server, by revision, from the official
// schemas; since and until are the first and the last revision that have it. A
// server asks its client the last three.
var methods = [...]struct{ name, since, until string }{
	{MethodCall, LegacyFirst, Modern},
	{MethodList, LegacyFirst, Modern},
	{MethodDiscover, Modern, Modern},
	{MethodInitialize, LegacyFirst, Legacy},
	{MethodPing, LegacyFirst, Legacy},
	{methodPrompts, LegacyFirst, Modern},
	{methodPromptsGet, LegacyFirst, Modern},
	{methodResources, LegacyFirst, Modern},
	{methodTemplates, LegacyFirst, Modern},
	{methodResourcesRead, LegacyFirst, Modern},
	{"completion/complete", LegacyFirst, Modern},
	{methodSetLevel, LegacyFirst, Legacy},
	{methodSubscribe, LegacyFirst, Legacy},
	{methodUnsubscribe, LegacyFirst, Legacy},
	{methodSubscriptions, Modern, Modern},
	{methodTaskGet, Legacy, Modern},
	{methodTaskCancel, Legacy, Modern},
	{methodTaskList, Legacy, Legacy},
	{methodTaskResult, Legacy, Legacy},
	{methodTaskUpdate, Modern, Modern},
	{methodElicit, "", ""},
	{"sampling/createMessage", "", ""},
	{"roots/list", "", ""},
}

// serves reports whether a revision has a method. A method that no revision has is
// an extension, which the agent may know.
func serves(version, method string) bool {
	for _, m := range methods {
		if m.name == method {
			return m.since != "" && m.since <= version && version <= m.until
		}
	}
	return method != ""
}

// notices lists the notifications of a server that not every revision has.
var notices = [...]struct{ name, since, until string }{
	{"notifications/elicitation/complete", Legacy, Legacy},
	{"notifications/tasks/status", Legacy, Legacy},
	{"notifications/tasks", Modern, Modern},
	{noticeAgreed, Modern, Modern},
}

func notifies(version, method string) bool {
	for _, n := range notices {
		if n.name == method {
			return n.since <= version && version <= n.until
		}
	}
	return true
}

// nameMember is the parameter that a modern request repeats in Mcp-Name; empty: none.
func nameMember(method string) string {
	switch method {
	case MethodCall, methodPromptsGet:
		return "name"
	case methodResourcesRead:
		return "uri"
	case methodTaskGet, methodTaskCancel, methodTaskUpdate:
		return "taskId"
	default:
		return ""
	}
}
