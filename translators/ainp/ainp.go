package ainp

import (
	"maps"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Binding is AINP's protocol binding identifier.
const Binding canonical.Binding = "ainp-v1"

// Version is the protocol version that every envelope states.
const Version = "0.1.0"

// Media is the media type of an envelope.
const Media = "application/json"

// FormSocket is the form of messages on a connection that stays open
// (Wire.Form): more than one may answer an intent, and the sender can be asked.
const FormSocket = "WEBSOCKET"

// PayloadLimit is how large a payload may be, in bytes (draft-ainp-protocol-00).
const PayloadLimit = 1 << 20

// headerReserve is what an envelope may have beside its payload, in bytes.
const headerReserve = 64 << 10

// Translator is the codec. It is immutable and safe for concurrent use.
type Translator struct {
	cfg    translators.Config
	info   translators.Info
	beside *envelope.Codec
}

var (
	_ translators.Translator   = (*Translator)(nil)
	_ translators.Hasher       = (*Translator)(nil)
	_ translators.ParentReader = (*Translator)(nil)
)

// New builds a codec with the given bounds; zero fields take their defaults.
// A body is never longer than AINP allows.
func New(cfg translators.Config) *Translator {
	cfg = cfg.WithDefaults()
	cfg.BodyLimit = min(cfg.BodyLimit, PayloadLimit+headerReserve)
	return &Translator{cfg, translators.Info{
		Binding: Binding, Name: "AINP", Versions: []string{Version}, Media: []string{Media},
		BodyLimit: cfg.BodyLimit, Depth: cfg.Depth, Streams: translators.StreamsReply, RandomIDs: true,
	}, envelope.New(Binding)}
}

// Info describes the protocol.
func (t *Translator) Info() translators.Info { return t.info }

// HashForm names what HashInput gives.
func (t *Translator) HashForm() string { return translators.HashWithoutECT }

// Unstamped is what the extensions of a message say beside its time and its signature.
func (t *Translator) Unstamped(message canonical.Extensions) canonical.Extensions {
	out := maps.Clone(message)
	delete(out, Binding)
	return out.With(Binding, rawjson.Without(message[Binding], "timestamp", "sig"))
}

// HashInput is the package's HashInput.
func (t *Translator) HashInput(body []byte) ([]byte, error) { return HashInput(body) }

// Parent is Envelope.Parent of a body.
func (t *Translator) Parent(body []byte) (string, error) {
	e, err := Open(body)
	if err != nil {
		return "", err
	}
	return e.Parent()
}

func refuse(code canonical.Code, message string) error {
	return &canonical.Error{Code: code, Message: message}
}

// unstamped is the error for a message without something that only the gateway knows.
func unstamped(what string) error {
	return refuse(canonical.CodeInternal, "the "+what+" was not stamped")
}
