package a2a

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a/internal/a2a03"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Binding is the registered identifier of A2A (AEPB, IANA Considerations).
const Binding canonical.Binding = "a2a-v1"

// The protocol versions that this package speaks, newest first.
const (
	Version   = "1.0"
	Version03 = "0.3"
)

// Media is the media type of a body. The HTTP form has one of its own besides.
const Media = "application/json"

// The header fields of the protocol (A2A 3.2.6). 0.3 names no version, and has
// another name for the extensions.
const (
	HeaderVersion      = "A2A-Version"
	HeaderExtensions   = "A2A-Extensions"
	HeaderExtensions03 = "X-A2A-Extensions"
)

// HeaderVersion and HeaderExtensions by their names in an http.Header: any other
// costs a copy each time.
const (
	fieldVersion    = "A2a-Version"
	fieldExtensions = "A2a-Extensions"
)

// Translator is the codec. It is immutable.
type Translator struct {
	cfg  translators.Config
	info translators.Info
}

var (
	_ translators.Translator     = (*Translator)(nil)
	_ translators.EvidencePlacer = (*Translator)(nil)
)

// Envelope is the outermost level of a JSON-RPC message, unjudged.
type Envelope = jsonrpc.Envelope

// Skim reads the envelope of a body, valid JSON or not, for a transport that must
// route it. false: it is no object, or its version or method is no string. Decode
// judges the rest.
func Skim(body []byte) (Envelope, bool) { return jsonrpc.Skim(body) }

// New returns a codec with the given bounds.
func New(cfg translators.Config) *Translator {
	cfg = cfg.WithDefaults()
	return &Translator{cfg, translators.Info{
		Binding: Binding, Name: "A2A", Versions: []string{Version, Version03}, Media: []string{Media},
		BodyLimit: cfg.BodyLimit, Depth: cfg.Depth, Streams: translators.StreamsTask,
	}}
}

// Info describes the protocol.
func (t *Translator) Info() translators.Info { return t.info }

// The members of each object (specification/a2a.proto of 1.0).
var (
	requestMembers   = []string{"tenant", "message", "configuration", "metadata"}
	configMembers    = []string{"acceptedOutputModes", "historyLength", "returnImmediately", "taskPushNotificationConfig"}
	messageMembers   = []string{"messageId", "role", "parts", "metadata", "extensions", "contextId", "taskId", "referenceTaskIds"}
	partMembers      = []string{"text", "raw", "url", "data", "metadata", "filename", "mediaType"}
	responseMembers  = []string{"task", "message"}
	taskMembers      = []string{"id", "contextId", "status", "artifacts", "history", "metadata"}
	statusMembers    = []string{"state", "message", "timestamp"}
	artifactMembers  = []string{"artifactId", "name", "description", "parts", "metadata", "extensions"}
	errorMembers     = []string{"code", "message", "data"}
	cardMembers      = []string{"name", "description", "supportedInterfaces", "provider", "version", "documentationUrl", "capabilities", "securitySchemes", "securityRequirements", "defaultInputModes", "defaultOutputModes", "skills", "signatures", "iconUrl"}
	skillMembers     = []string{"id", "name", "description", "tags", "examples", "inputModes", "outputModes", "securityRequirements"}
	interfaceMembers = []string{"url", "protocolBinding", "tenant", "protocolVersion"}
	providerMembers  = []string{"organization", "url"}
	queryMembers     = []string{"tenant", "id", "historyLength", "metadata"}
	filterMembers    = []string{"tenant", "contextId", "status", "pageSize", "pageToken", "historyLength", "statusTimestampAfter", "includeArtifacts"}
	listMembers      = []string{"tasks", "nextPageToken", "pageSize", "totalSize"}
	pushMembers      = []string{"tenant", "id", "taskId", "url", "token", "authentication"}
	pushListMembers  = []string{"tenant", "taskId", "pageSize", "pageToken"}
	pushesMembers    = []string{"configs", "nextPageToken"}
	authMembers      = []string{"scheme", "credentials"}
	eventMembers     = []string{"task", "message", "statusUpdate", "artifactUpdate"}
	statusEvent      = []string{"taskId", "contextId", "status", "metadata"}
	artifactEvent    = []string{"taskId", "contextId", "artifact", "append", "lastChunk", "metadata"}
)

// enum is a canonical value with its name and number in the protocol.
type enum struct {
	value, name, number string
}

var roles = []enum{
	{string(canonical.RoleCaller), "ROLE_USER", "1"},
	{string(canonical.RoleAgent), "ROLE_AGENT", "2"},
}

var states = []enum{
	{string(canonical.StateUnknown), "TASK_STATE_UNSPECIFIED", "0"},
	{string(canonical.StateSubmitted), "TASK_STATE_SUBMITTED", "1"},
	{string(canonical.StateWorking), "TASK_STATE_WORKING", "2"},
	{string(canonical.StateCompleted), "TASK_STATE_COMPLETED", "3"},
	{string(canonical.StateFailed), "TASK_STATE_FAILED", "4"},
	{string(canonical.StateCanceled), "TASK_STATE_CANCELED", "5"},
	{string(canonical.StateInputRequired), "TASK_STATE_INPUT_REQUIRED", "6"},
	{string(canonical.StateRejected), "TASK_STATE_REJECTED", "7"},
	{string(canonical.StateAuthRequired), "TASK_STATE_AUTH_REQUIRED", "8"},
}

// traceFields are the W3C headers that go along with a message.
func traceFields(t *canonical.Trace) []named[string] {
	return []named[string]{{"Traceparent", &t.Parent}, {"Tracestate", &t.State}, {"Baggage", &t.Baggage}}
}

// named is a value by its name.
type named[T any] struct {
	name string
	at   *T
}

// joined is a field's value with its lines put together (RFC 9110 5.3).
func joined(h http.Header, name string) string { return strings.Join(h.Values(name), ", ") }

// sayable reports whether text may stand in a header field.
func sayable(text string) bool {
	for i := 0; i < len(text); i++ {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return text != ""
}

// Spoken is the version of this package that a peer means by version: "1.0" by
// 1, 1.0 and any 1.x, "0.3" by 0.3 and any 0.3.x. Empty: none.
func Spoken(version string) string {
	switch {
	case version == "1", strings.HasPrefix(version, "1."):
		return Version
	case a2a03.Speaks(version):
		return Version03
	default:
		return ""
	}
}

// spoken is the version of a message: what its header or its carrier says; else
// what its method's name or its result shows, because peers of 0.3 say nothing.
func spoken(w translators.Wire, env jsonrpc.Message) (string, error) {
	value, header := Spoken(w.Version), Spoken(w.Header.Get(fieldVersion))
	if (w.Version != "" && value == "") || (w.Header.Get(fieldVersion) != "" && header == "") {
		return Version, unsupportedVersion()
	}
	if env.Method != "" && value != "" && header != "" && value != header {
		return value, &canonical.Error{Code: canonical.CodeHeaderMismatch, Message: "the message is of one version, its header of another"}
	}
	value = cmp.Or(value, header)
	shown := shows(env)
	switch {
	case value == "" && shown == "":
		return Version, nil
	case value == "":
		return shown, nil
	case env.Method != "" && shown != "" && shown != value:
		return value, &canonical.Error{
			Code:    canonical.CodeUnsupportedVersion,
			Message: "method " + env.Method + " is A2A " + shown + ", but " + HeaderVersion + " says " + value, // a name of our table
		}
	default:
		return value, nil
	}
}

func unsupportedVersion() *canonical.Error {
	return &canonical.Error{Code: canonical.CodeUnsupportedVersion, Message: "this agent speaks A2A 1.0 and 0.3: name one of them in A2A-Version"}
}

// shows is the version that a message belongs to by its looks; empty: either.
func shows(env jsonrpc.Message) string {
	switch {
	case operationOf(env.Method, Version) != nil:
		return Version
	case operationOf(env.Method, Version03) != nil:
		return Version03
	case rawjson.IsObject(env.Result) && rawjson.Parse(env.Result, "").Has("kind"):
		return Version03
	default:
		return ""
	}
}

// spoke refuses targets that cannot be spoken.
func spoke(target translators.Target) error {
	switch {
	case target.Version != Version && target.Version != Version03:
		return unsupportedVersion()
	case !slices.Contains([]string{"", TransportJSONRPC, FormHTTP, FormGRPC, FormPush}, target.Form),
		target.Form == FormGRPC && target.Version != Version, target.Form == FormPush && target.Version != Version03:
		return unsupportedVersion()
	default:
		return nil
	}
}

// extensionsField is the header field of the extensions.
func extensionsField(version string) string {
	if version == Version03 {
		return "X-" + fieldExtensions
	}
	return fieldExtensions
}

// raise turns what a message of 0.3 says into the words of 1.0.
func raise(m *canonical.Message, raw json.RawMessage, path string, words a2a03.Words, form string) (json.RawMessage, []canonical.Loss, error) {
	if m.Origin.Version != Version03 {
		return raw, nil, nil
	}
	return a2a03.Raise(words, form == FormHTTP, raw, path)
}

// lower turns what was written into the words of 0.3, if that is the target.
func (e *encoder) lower(raw json.RawMessage, words a2a03.Words) json.RawMessage {
	if e.target.Version != Version03 {
		return raw
	}
	raw, losses := a2a03.Lower(words, e.target.Form == FormHTTP, raw)
	e.between(losses)
	return raw
}

// between takes over losses between versions. A message that was born in 0.3
// carries nothing there that it did not carry before.
func (e *encoder) between(losses []canonical.Loss) {
	native := e.home && e.m.Origin.Version == Version03
	for _, loss := range losses {
		if loss.Fate == canonical.Dropped || !native {
			e.losses = append(e.losses, loss)
		}
	}
}

// versioned is a card in the words of the target's version.
func (e *encoder) versioned(c *canonical.Description, card json.RawMessage) (json.RawMessage, error) {
	var losses []canonical.Loss
	var err error
	switch {
	case e.target.Version == Version03:
		card, losses, err = a2a03.LowerCard(card)
	case e.home && e.m.Origin.Version == Version03:
		card, losses = a2a03.Unsecured(card)
	}
	e.between(losses)
	fewer := func(l canonical.Loss) bool { return l.Path == a2a03.PlaceInterfaces }
	if slices.ContainsFunc(losses, fewer) && slices.Equal(c.Versions, versionsOf(c.Interfaces)) {
		e.drop(canonical.LossPeerInfo, "/body/versions") // they go without saying only with the interfaces
	}
	return card, err
}

var _ translators.InputStyler = (*Translator)(nil)

// Asks reports how an agent asks: by a task, in any version.
func (t *Translator) Asks(string, string) translators.Asking { return translators.AskTask }

var _ translators.Historian = (*Translator)(nil)

// TellsHistory reports that tasks of both versions have a history, and statuses a timestamp.
func (t *Translator) TellsHistory(string) bool { return true }

// keyECT is the member of metadata that holds tokens, for peers that do not see the
// header (R5).
const keyECT = profile.ExtensionURI + "/ect"

// Bears returns the places for evidence. They are the metadata of a request to send a message,
// of the task or message that answers, and of each event; an error has a list of details.
// Most other requests of 1.0 have no such place, and over gRPC nothing is JSON.
func (t *Translator) Bears(w translators.Wire) []translators.Place {
	var around []string // of what a message in JSON-RPC says
	if w.Form != FormHTTP && w.Form != FormPush {
		around = []string{"result"}
	}
	at := func(with string, path ...string) translators.Place {
		return translators.Place{Path: path, With: with, Object: "metadata", Key: keyECT}
	}
	in := func(member string) translators.Place { return at("", append(slices.Clip(around), member)...) }
	details := translators.Place{Path: []string{"error"}, With: "message", Object: "data", Key: keyECT, List: true}
	if w.Form == FormHTTP {
		details.Object = "details"
	}
	switch {
	case w.Form == FormGRPC:
		return nil
	case w.Form == FormHTTP && w.Re == "":
		return []translators.Place{at("message")}
	case w.Re == "":
		return []translators.Place{at("message", "params")}
	case w.Event:
		return []translators.Place{
			in("task"), in("message"), in("statusUpdate"), in("artifactUpdate"),
			at("status", around...), at("artifact", around...), at("messageId", around...), details,
		}
	default:
		return []translators.Place{in("task"), in("message"), at("status", around...), at("messageId", around...), details}
	}
}
