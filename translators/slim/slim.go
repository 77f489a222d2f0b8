package slim

import (
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Binding is SLIM's protocol binding identifier (AEPB, IANA Considerations).
const Binding canonical.Binding = "slim-v1"

// FormRPC is A2A's calls on SLIMRPC; the empty form is JSON-RPC.
const FormRPC = "SLIMRPC"

// Media is the media type of a body.
const Media = "application/json"

// Whose words a version has; its rest is their version.
const (
	prefixA2A = "a2a-"
	prefixMCP = "mcp-"
)

// VersionA2A is the words of A2A 1.0.
const VersionA2A = prefixA2A + a2a.Version

// VersionMCP is the words of a revision of MCP.
func VersionMCP(revision string) string { return prefixMCP + revision }

// Revision is the revision of MCP whose words a version has; false: none's.
func Revision(version string) (string, bool) { return strings.CutPrefix(version, prefixMCP) }

// Skim reads the JSON-RPC envelope of a body for a transport that must route it; false:
// it is no object, or its version or method is no string. Decode judges the rest.
func Skim(body []byte) (a2a.Envelope, bool) { return a2a.Skim(body) }

// Translator is the codec. It is immutable and safe for concurrent use.
type Translator struct {
	cfg  translators.Config
	info translators.Info
	a2a  *a2a.Translator
	mcp  *mcp.Translator
}

var (
	_ translators.Translator  = (*Translator)(nil)
	_ translators.Namer       = (*Translator)(nil)
	_ translators.InputStyler = (*Translator)(nil)
	_ translators.TaskStyler  = (*Translator)(nil)
	_ translators.Tunneled    = (*Translator)(nil)
	_ translators.Historian   = (*Translator)(nil)
	_ translators.Streamer    = (*Translator)(nil)
	_ translators.Signaler    = (*Translator)(nil)
)

// New builds a codec with the given bounds; zero fields take their defaults.
func New(cfg translators.Config) *Translator {
	cfg = cfg.WithDefaults()
	t := &Translator{cfg: cfg, a2a: a2a.New(cfg), mcp: mcp.New(cfg)}
	versions := []string{VersionA2A}
	for _, revision := range t.mcp.Info().Versions {
		versions = append(versions, VersionMCP(revision))
	}
	t.info = translators.Info{
		Binding: Binding, Name: "SLIM", Versions: versions, Media: []string{Media},
		BodyLimit: cfg.BodyLimit, Depth: cfg.Depth, Streams: translators.StreamsTask,
	}
	return t
}

// Info describes the protocol.
func (t *Translator) Info() translators.Info { return t.info }

// CapabilityNames are MCP's, the strictest of the profiles.
func (t *Translator) CapabilityNames(capabilities []canonical.Capability) []string {
	return t.mcp.CapabilityNames(capabilities)
}

// Asks reports how an agent asks: by a task of A2A, or by a reply of MCP 2026-07-28. On a
// plain session no request waits for an answer.
func (t *Translator) Asks(version, form string) translators.Asking {
	revision, ok := Revision(version)
	if !ok {
		return translators.AskTask
	}
	if asks := t.mcp.Asks(revision, form); asks == translators.AskReply {
		return asks
	}
	return translators.AskNone
}

// Tasks are kept as MCP keeps them in a revision.
func (t *Translator) Tasks(version string) translators.Tasking {
	if revision, ok := Revision(version); ok {
		return t.mcp.Tasks(revision)
	}
	return translators.TaskingNone
}

// TaskOnly is what MCP says of a tool.
func (t *Translator) TaskOnly(c *canonical.Capability) bool { return t.mcp.TaskOnly(c) }

// Carries is the protocol whose words a version uses.
func (t *Translator) Carries(version string) canonical.Binding {
	if _, ok := Revision(version); ok {
		return mcp.Binding
	}
	return a2a.Binding
}

// TellsHistory reports whether tasks have a history: those of A2A do, also over SLIM.
func (t *Translator) TellsHistory(version string) bool {
	return version != "" && t.Carries(version) == a2a.Binding
}

// StreamsIn is how the protocol streams whose words a version uses.
func (t *Translator) StreamsIn(version string) translators.Streams {
	if _, ok := Revision(version); ok {
		return t.mcp.Info().Streams
	}
	return t.info.Streams
}

// words is one of the protocols whose words are used.
type words struct {
	codec   translators.Translator
	binding canonical.Binding
	prefix  string
	version string // its own
}

// of finds the words of a version; false: there are none.
func (t *Translator) of(version string) (words, bool) {
	if !slices.Contains(t.info.Versions, version) {
		return words{}, false
	}
	if revision, ok := Revision(version); ok {
		return words{t.mcp, mcp.Binding, prefixMCP, revision}, true
	}
	return words{t.a2a, a2a.Binding, prefixA2A, strings.TrimPrefix(version, prefixA2A)}, true
}

// shown finds the codec of a message whose sender named no version. A request
// shows it by its method: only A2A's begin with a capital.
func (t *Translator) shown(w translators.Wire) words {
	byA2A := words{t.a2a, a2a.Binding, prefixA2A, a2a.Version}
	if w.Form == FormRPC || w.Re != "" {
		return byA2A
	}
	method := ""
	if len(w.Body) <= t.info.BodyLimit {
		method = methodOf(w.Body, t.info.Depth)
	}
	if method != "" && method[0] >= 'A' && method[0] <= 'Z' {
		return byA2A
	}
	return words{t.mcp, mcp.Binding, prefixMCP, ""}
}

func unsupportedVersion() *canonical.Error {
	return &canonical.Error{Code: canonical.CodeUnsupportedVersion, Message: "over SLIM this gateway speaks A2A 1.0 and MCP"}
}
