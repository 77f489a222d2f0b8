package uacp

import (
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
)

// Binding is µACP's protocol binding identifier.
const Binding canonical.Binding = "uacp-v1"

// Media is the media type of a frame.
const Media = "application/octet-stream"

// The forms of carriage.
const (
	// FormEnveloped puts what was said and what µACP cannot say into one JSON
	// payload: {"body": …, "aepb": {…}}. It is the first form.
	FormEnveloped = "enveloped"
	// FormBare leaves the payload to what was said, for peers that know no gateways.
	FormBare = "bare"
	// FormTagged is how a bare peer is asked that reads one option of the vendors'
	// range: OptParent names the ECT that testifies to the request. What is said in
	// it is bare.
	FormTagged = "tagged"
)

// The topics of requests. Those below /mcp are the reference bridge's; their
// payloads are JSON-RPC.
const (
	TopicCall     = "/mcp/tools/call"
	TopicList     = "/mcp/tools/list"
	TopicSend     = "/a2a/message/send"
	TopicDescribe = "/.well-known/aepb"

	TopicTaskGet    = "/a2a/tasks/get"    // the payload is {"id": …}; the reply says how the task stands
	TopicTaskCancel = "/a2a/tasks/cancel" // the same
	TopicTaskList   = "/a2a/tasks/list"   // the payload says which; the reply is a page of tasks
	TopicTask       = "/a2a/tasks/"       // and behind it, of an OBSERVE, the task that is to be told of

	TopicRollback = "/aepb/rollback" // the payload is an ECT, and so is the reply's
	TopicDecision = "/aepb/hitl/"    // and behind it what was decided about; the payload is an ECT
)

// reserved are the prefixes of topics that are ours or the bridge's: a topic
// below them that is not served is refused, any other one is an agent's own.
func reserved() []string { return []string{"/mcp/", "/a2a/", "/aepb/", "/.well-known/"} }

// Translator is the codec. It is immutable and safe for concurrent use.
type Translator struct {
	cfg    translators.Config
	info   translators.Info
	beside *envelope.Codec
}

var (
	_ translators.Translator   = (*Translator)(nil)
	_ translators.Hasher       = (*Translator)(nil)
	_ translators.FormDetector = (*Translator)(nil)
	_ translators.InputStyler  = (*Translator)(nil)
	_ translators.Signaler     = (*Translator)(nil)
	_ translators.ParentReader = (*Translator)(nil)
)

// New builds a codec with the given bounds; zero fields take their defaults.
// A body is never longer than a frame.
func New(cfg translators.Config) *Translator {
	cfg = cfg.WithDefaults()
	cfg.BodyLimit = min(cfg.BodyLimit, MaxFrame)
	return &Translator{cfg, translators.Info{
		Binding: Binding, Name: "µACP", Versions: []string{Profile}, Media: []string{Media},
		BodyLimit: cfg.BodyLimit, Depth: cfg.Depth, Streams: translators.StreamsTask,
	}, envelope.New(Binding)}
}

// Info describes the protocol.
func (t *Translator) Info() translators.Info { return t.info }

// HashForm names what HashInput gives.
func (t *Translator) HashForm() string { return translators.HashWithoutECT }

// FormOf is the package's FormOf.
func (t *Translator) FormOf(body []byte) string { return FormOf(body) }

// Asks reports how an agent asks: by a task that waits for input, in an envelope. A bare
// reply has no place for the id of that task.
func (t *Translator) Asks(_, form string) translators.Asking {
	if form == FormBare || form == FormTagged {
		return translators.AskNone
	}
	return translators.AskTask
}

// Signals reports that µACP has rollbacks and decisions in either form of
// carriage; a callback needs an envelope.
func (t *Translator) Signals(op canonical.Op, target translators.Target) bool {
	return op == canonical.OpRollback || op == canonical.OpDecision || op == canonical.OpInvoke && target.Form != FormBare && target.Form != FormTagged
}

// Parent is Opened.Parent of a frame's bytes.
func (t *Translator) Parent(body []byte) (string, error) {
	o, err := Open(body)
	if err != nil {
		return "", err
	}
	return o.Parent()
}

// HashInput is the package's HashInput.
func (t *Translator) HashInput(body []byte) ([]byte, error) { return HashInput(body) }

func refuse(code canonical.Code, message string) error {
	return &canonical.Error{Code: code, Message: message}
}
