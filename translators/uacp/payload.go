package uacp

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/envelope"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The media types that stand for content types without a canonical kind.
const (
	mediaCBOR     = "application/cbor"
	mediaProtobuf = "application/x-protobuf"
)

// content is what a payload says, in either form of carriage.
type content struct {
	kind  uint32 // a content type; contentNone: bytes of no declared type
	text  string
	json  json.RawMessage
	data  []byte
	empty bool // nothing is said at all

	enveloped bool
	aepb      json.RawMessage // without the gateway's slots; nil: nothing
	callback  string          // URL to which a human's decision is posted
}

// memberStreams says in a description that an agent can be observed.
const memberStreams = "streams"

// bodyMember holds, in an enveloped payload, what was said.
const bodyMember = "body"

// readContent reads a frame's payload.
func (t *Translator) readContent(f Frame) (content, error) {
	c := content{kind: f.contentType(), data: f.Payload}
	switch {
	case len(f.Payload) == 0:
		c.empty = true
	case c.kind == contentJSON:
		return c, t.readJSON(&c)
	case c.kind == contentText || c.kind == contentNone:
		if utf8.Valid(f.Payload) {
			c.kind, c.text = contentText, string(f.Payload)
		} else {
			c.kind = contentNone
		}
	}
	return c, nil
}

func (t *Translator) readJSON(c *content) error {
	if err := rawjson.Check(c.data, t.cfg.BodyLimit, t.cfg.Depth); err != nil {
		return err
	}
	c.json = trimmed(c.data)
	if c.json[0] != '{' {
		return nil
	}
	w, ok := unwrapped(c.json)
	if !ok {
		return nil
	}
	slots := rawjson.Parse(w.object, "/"+envelope.Key)
	c.callback, _ = slots.String(envelope.SlotHITL)
	if _, _ = slots.String(envelope.SlotParent); slots.Err() != nil {
		return slots.Err()
	}
	c.enveloped, c.aepb, c.json = true, envelope.Strip(w.object), w.body
	if text, ok := rawjson.Unquote(w.body); ok {
		c.kind, c.text = contentText, text
	}
	c.empty = w.body == nil
	return nil
}

func trimmed(raw []byte) json.RawMessage {
	return bytes.Trim(raw, " \t\r\n")
}

// parts is what was said as parts of a message.
func (c *content) parts() []canonical.Part {
	switch {
	case c.empty:
		return nil
	case c.kind == contentText:
		return []canonical.Part{{Kind: canonical.KindText, Text: c.text}}
	case c.kind == contentJSON:
		return []canonical.Part{{Kind: canonical.KindData, Data: c.json}}
	default:
		return []canonical.Part{{Kind: canonical.KindFile, Bytes: c.data, Media: mediaOf(c.kind)}}
	}
}

func mediaOf(kind uint32) string {
	switch kind {
	case contentCBOR:
		return mediaCBOR
	case contentProtobuf:
		return mediaProtobuf
	default:
		return ""
	}
}

// rpc is a JSON-RPC envelope, if that is what was said, and it is all of it.
func (t *Translator) rpc(c *content) (jsonrpc.Message, bool) {
	if c.empty || c.kind != contentJSON || len(c.json) == 0 || c.json[0] != '{' || !rawjson.Parse(c.json, "").Has("jsonrpc") {
		return jsonrpc.Message{}, false
	}
	env, err := jsonrpc.Parse(c.json, t.cfg)
	return env, err == nil && env.Losses == nil
}

// say lays parts out as one content. bare joins texts, because there is no
// other place for them; ok is false when that would say something else.
func say(parts []canonical.Part, bare bool) (c content, ok bool) {
	if len(parts) == 0 {
		return content{kind: contentNone, empty: true}, true
	}
	if len(parts) == 1 {
		return sayPart(&parts[0], bare)
	}
	if !bare {
		return content{kind: contentNone, empty: true}, true
	}
	text, ok := canonical.TextOf(parts, "\n\n")
	return content{kind: contentText, text: text}, ok
}

func sayPart(p *canonical.Part, bare bool) (content, bool) {
	switch {
	case p.Kind == canonical.KindText && (p.Text != "" || !bare):
		return content{kind: contentText, text: p.Text}, true
	case p.Kind == canonical.KindData && len(p.Data) > 0:
		return content{kind: contentJSON, json: trimmed(p.Data)}, true
	case p.Kind == canonical.KindFile && bare && len(p.Bytes) > 0:
		return content{kind: kindOf(p.Media), data: p.Bytes}, true
	case p.Kind == canonical.KindRef && bare && p.URI != "":
		return content{kind: contentText, text: p.URI}, true
	default:
		return content{kind: contentNone, empty: true}, !bare
	}
}

func kindOf(media string) uint32 {
	switch media {
	case mediaCBOR:
		return contentCBOR
	case mediaProtobuf:
		return contentProtobuf
	default:
		return contentNone
	}
}

// value is what is said as a JSON value, for the body of an envelope.
func (c *content) value() json.RawMessage {
	switch {
	case c.empty:
		return nil
	case c.kind == contentText:
		return rawjson.Quote(c.text)
	case c.kind == contentJSON:
		return c.json
	default:
		return nil
	}
}

// payload writes the content in its own form of carriage, and says its type.
func (c *content) payload() ([]byte, uint32) {
	if c.enveloped {
		return rawjson.NewBuilder().Raw(bodyMember, c.value()).Raw(envelope.Key, rawjson.OrEmpty(c.aepb)).Bytes(), contentJSON
	}
	switch {
	case c.empty:
		return nil, contentNone
	case c.kind == contentText:
		return []byte(c.text), contentText
	case c.kind == contentJSON:
		return c.json, contentJSON
	default:
		return c.data, c.kind
	}
}
