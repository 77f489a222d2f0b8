package a2a03

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// fromHTTP turns the HTTP form of 0.3 into what JSON-RPC says in 0.3.
type fromHTTP struct{ raiser }

// request raises the body of /v1/message:send to the params of SendMessage.
func (f *fromHTTP) request(body json.RawMessage, path string) json.RawMessage {
	params := f.body(body, path)
	if f.err != nil {
		return nil
	}
	return f.raiser.request(params, path)
}

// result raises the answer to it. The object that holds a task or a message is
// that of 1.0.
func (f *fromHTTP) result(body json.RawMessage, path string) json.RawMessage {
	o := f.open(body, path, responseHTTP, nil)
	return changed(rawjson.NewBuilder(), o, in(kindTask, ofObject(f.raised)), in(kindMessage, ofObject(f.raisedMessage)))
}

// raised is a task of 1.0.
func (f *fromHTTP) raised(task json.RawMessage, path string) json.RawMessage {
	return f.raiser.task(f.task(task, path), path)
}

// raisedMessage is a message of 1.0.
func (f *fromHTTP) raisedMessage(message json.RawMessage, path string) json.RawMessage {
	return f.raiser.message(f.message(message, path), path)
}

// body takes the wish to wait, which JSON-RPC has by silence, from who says
// nothing at all: peers take a request without configuration so.
func (f *fromHTTP) body(raw json.RawMessage, path string) json.RawMessage {
	o := f.open(raw, path, nil, nil)
	if !isSet(o.Peek("configuration")) {
		o.Take("configuration")
		f.formed()
	}
	return changed(rawjson.NewBuilder(), o, in("message", f.message), in("configuration", f.configuration))
}

// configuration reads the preferences. As in proto3, an absent flag is false, and a number
// that is 0 is absent.
func (f *fromHTTP) configuration(raw json.RawMessage, path string) json.RawMessage {
	o := f.open(raw, path, configHTTP, configRPC)
	b := rawjson.NewBuilder()
	switch wait := o.Take("blocking"); {
	case !isSet(wait):
		b.Raw("blocking", json.RawMessage("false"))
		f.formed()
	case string(wait) == "false":
		b.Raw("blocking", wait)
	case string(wait) != "true":
		o.Fail("blocking", "not a boolean")
		f.check(o)
	}
	if isZero(o.Peek("historyLength")) {
		o.Take("historyLength")
		f.formed()
	}
	config := changed(b, o, change{pushHTTP, "pushNotificationConfig", nil})
	if string(config) == "{}" {
		return nil
	}
	return config
}

func isZero(raw json.RawMessage) bool { return string(raw) == "0" || string(raw) == `"0"` }

func (f *fromHTTP) message(raw json.RawMessage, path string) json.RawMessage {
	if isNull(raw) {
		return raw
	}
	o := f.open(raw, path, messageHTTP, messageRPC)
	return changed(rawjson.NewBuilder().String("kind", kindMessage), o, in("role", f.named(roles)), change{contentHTTP, "parts", each(f.part)})
}

// named gives values of the proto their names in JSON-RPC.
func (f *fromHTTP) named(table []name) func(json.RawMessage, string) json.RawMessage {
	return func(raw json.RawMessage, path string) json.RawMessage {
		text, _ := rawjson.Unquote(raw)
		switch text {
		case cancelledHTTP:
			text = canceledNew
		case canceledNew: // which peers read as well
			f.formed()
		}
		return valued(&f.raiser, raw, path, table, func(n name) (bool, string) { return n.newer == text, n.old })
	}
}

func (f *fromHTTP) task(raw json.RawMessage, path string) json.RawMessage {
	o := f.open(raw, path, nil, taskOld)
	b := rawjson.NewBuilder().String("kind", kindTask)
	switch context := o.Peek("contextId"); {
	case context == nil:
		b.String("contextId", "")
	case string(context) == `""`:
		f.formed()
	}
	return changed(b, o, in("status", f.status), in("artifacts", each(f.artifact)), in("history", each(f.message)))
}

func (f *fromHTTP) status(raw json.RawMessage, path string) json.RawMessage {
	if isNull(raw) {
		return raw
	}
	o := f.open(raw, path, nil, nil)
	return changed(rawjson.NewBuilder(), o, in("state", f.named(states)), in("message", f.message))
}

func (f *fromHTTP) artifact(raw json.RawMessage, path string) json.RawMessage {
	return changed(rawjson.NewBuilder(), f.open(raw, path, nil, nil), in("parts", each(f.part)))
}

func (f *fromHTTP) part(raw json.RawMessage, path string) json.RawMessage {
	return lenient(&f.raiser, f.strictPart, raw, path, rawjson.NewBuilder().String("kind", kindData))
}

func (f *fromHTTP) strictPart(raw json.RawMessage, path string) json.RawMessage {
	o := f.open(raw, path, contents, kindOnly)
	b := rawjson.NewBuilder()
	switch kind := f.content(o); kind {
	case kindFile:
		b.String("kind", kind).Raw(kind, f.file(o.Take(kind), o.Path(kind)))
	case kindData:
		b.String("kind", kind).Raw(kind, f.data(o))
	default:
		b.String("kind", kindText).Raw(kindText, o.Take(kindText))
	}
	f.check(o)
	return b.Merge(object(o)).Bytes()
}

// content is the one content that a part has. Another one may be null.
func (f *fromHTTP) content(o *rawjson.Object) string {
	found := ""
	for _, kind := range contents {
		switch value := o.Peek(kind); {
		case value == nil:
		case isNull(value):
			o.Take(kind)
			f.formed()
		case found != "":
			o.Fail(kind, "a part has one content")
		default:
			found = kind
		}
	}
	if found == "" {
		o.Fail("", "a part needs a content")
	}
	return found
}

// data takes the value out of the object that is around it. One that is no
// object itself, which the proto does not allow and peers send, is wrapped.
func (f *fromHTTP) data(part *rawjson.Object) json.RawMessage {
	o := f.open(part.Take(kindData), part.Path(kindData), dataHTTP, nil)
	value := o.Take(kindData)
	if o.Rest() != nil {
		f.losses = append(f.losses, canonical.Loss{Code: canonical.LossExtension, Path: "/body", Fate: canonical.Dropped})
	}
	metadata := part.Peek("metadata")
	switch {
	case !isSet(value):
		o.Fail(kindData, "required")
		f.check(o)
	case !rawjson.IsObject(value) && (metadata == nil || isNull(metadata) || rawjson.IsObject(metadata)):
		f.formed()
		m := rawjson.Open(part.Take("metadata"))
		m.Take(keyCompat)
		m.Put(keyCompat, json.RawMessage("true"))
		part.Put("metadata", m.Rest())
		value = rawjson.NewBuilder().Raw(keyValue, value).Bytes()
	}
	return value
}

// file takes bytes out of their second base64. Peers put the text that JSON-RPC
// has into a field of bytes, which ProtoJSON encodes once more.
func (f *fromHTTP) file(raw json.RawMessage, path string) json.RawMessage {
	o := f.open(raw, path, fileHTTP, fileRPC)
	if isSet(o.Peek(bytesHTTP)) == isSet(o.Peek(uriHTTP)) {
		o.Fail("", "a file needs exactly one of "+bytesHTTP+" and "+uriHTTP)
		f.check(o)
	}
	return changed(rawjson.NewBuilder(), o, change{bytesHTTP, "bytes", f.inner}, change{uriHTTP, "uri", func(uri json.RawMessage, place string) json.RawMessage {
		if !isText(uri) && !isNull(uri) {
			f.fail(place, "not a string")
		}
		return uri
	}})
}

// inner is the text that was encoded. What it says must be base64 again.
func (f *fromHTTP) inner(raw json.RawMessage, place string) json.RawMessage {
	if isNull(raw) {
		return raw
	}
	encoded, ok := rawjson.Unquote(raw)
	text, once := rawjson.Unbase64(encoded)
	_, twice := rawjson.Unbase64(string(text))
	if !ok || !once || !twice || !utf8.Valid(text) {
		f.fail(place, "not base64 of base64")
	}
	if string(rawjson.Quote(base64.StdEncoding.EncodeToString(text))) != string(raw) {
		f.formed()
	}
	return rawjson.Quote(string(text))
}

func isSet(raw json.RawMessage) bool { return raw != nil && !isNull(raw) }

// object is what is left of an object.
func object(o *rawjson.Object) json.RawMessage {
	if rest := o.Rest(); rest != nil {
		return rest
	}
	return json.RawMessage("{}")
}
