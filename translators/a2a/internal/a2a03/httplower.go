package a2a03

import (
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// toHTTP turns what JSON-RPC says in 0.3 into the HTTP form.
type toHTTP struct{ lowerer }

// request lowers the params of SendMessage to the body of /v1/message:send.
func (h *toHTTP) request(params json.RawMessage) json.RawMessage {
	o := rawjson.Parse(h.lowerer.request(params), "")
	b := rawjson.NewBuilder().Raw("message", h.message(o.Take("message"), "/body/turn"))
	b.Raw("configuration", h.configuration(o.Take("configuration")))
	return b.Merge(object(o)).Bytes()
}

// result lowers the result of SendMessage to the answer.
func (h *toHTTP) result(result json.RawMessage) json.RawMessage {
	return changed(rawjson.NewBuilder(), rawjson.Parse(result, "/body"), in(kindTask, ofObject(h.lowered)), in(kindMessage, ofObject(h.loweredMessage)))
}

// lowered is a task of the HTTP form.
func (h *toHTTP) lowered(task json.RawMessage, path string) json.RawMessage {
	return h.task(h.lowerer.task(task, path), path)
}

// loweredMessage is a message that is all of a body, in the HTTP form.
func (h *toHTTP) loweredMessage(message json.RawMessage, _ string) json.RawMessage {
	const place = "/body/turn"
	return h.message(h.lowerer.message(message, place), place)
}

// configuration always says whether to wait: the proto has the opposite by
// silence, and not every peer takes silence so.
func (h *toHTTP) configuration(raw json.RawMessage) json.RawMessage {
	const place = "/preferences"
	o := rawjson.Open(raw)
	h.dropIf(raw != nil && len(o.Members()) == 0, canonical.LossEmpty, place)
	b := rawjson.NewBuilder()
	switch wait := o.Take("blocking"); {
	case string(wait) == "false":
		b.Raw("blocking", wait)
	default:
		b.Raw("blocking", json.RawMessage("true"))
		if wait != nil {
			h.drop(canonical.LossEmpty, place+"/noWait")
		}
	}
	if isZero(o.Peek("historyLength")) { // which would be none at all
		o.Take("historyLength")
		h.drop(canonical.LossHistory, place+"/historyLength")
	}
	b.Raw(pushHTTP, o.Take("pushNotificationConfig"))
	h.rest(b, o, configHTTP, place)
	return b.Bytes()
}

func (h *toHTTP) message(raw json.RawMessage, path string) json.RawMessage {
	if !rawjson.IsObject(raw) {
		return raw
	}
	o := rawjson.Parse(raw, "")
	o.Take("kind")
	b := rawjson.NewBuilder().Raw("role", named(o.Take("role"), roles))
	b.Raw(contentHTTP, mapped(o.Take("parts"), path+"/parts", h.part))
	h.rest(b, o, messageHTTP, path)
	return b.Bytes()
}

// named gives a value of JSON-RPC its name in the proto.
func named(raw json.RawMessage, table []name) json.RawMessage {
	text, _ := rawjson.Unquote(raw)
	i := slices.IndexFunc(table, func(n name) bool { return n.old == text })
	switch {
	case i < 0:
		return raw // null, or nothing
	case table[i].newer == canceledNew:
		return rawjson.Quote(cancelledHTTP)
	default:
		return rawjson.Quote(table[i].newer)
	}
}

func (h *toHTTP) task(raw json.RawMessage, path string) json.RawMessage {
	o := rawjson.Parse(raw, path)
	o.Take("kind")
	if string(o.Peek("contextId")) == `""` {
		o.Take("contextId")
	}
	return changed(rawjson.NewBuilder(), o,
		in("status", h.status), in("artifacts", each(h.artifact)), in("history", each(h.message)))
}

func (h *toHTTP) status(raw json.RawMessage, path string) json.RawMessage {
	if !rawjson.IsObject(raw) {
		return raw
	}
	state := func(value json.RawMessage, _ string) json.RawMessage { return named(value, states) }
	return changed(rawjson.NewBuilder(), rawjson.Parse(raw, path), in("state", state), in("message", h.message))
}

func (h *toHTTP) artifact(raw json.RawMessage, path string) json.RawMessage {
	return changed(rawjson.NewBuilder(), rawjson.Parse(raw, path), in("parts", each(h.part)))
}

func (h *toHTTP) part(raw json.RawMessage, path string) json.RawMessage {
	o := rawjson.Parse(raw, "")
	kind, _ := rawjson.Unquote(o.Take("kind"))
	b, value := rawjson.NewBuilder(), o.Take(kind)
	switch kind {
	case kindFile:
		value = h.file(value, path)
	case kindData:
		value = rawjson.NewBuilder().Raw(kindData, value).Bytes()
	}
	b.Raw(kind, value)
	h.rest(b, o, contents, path)
	return b.Bytes()
}

func (h *toHTTP) file(raw json.RawMessage, path string) json.RawMessage {
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilder()
	data := o.Take("bytes")
	if text, ok := rawjson.Unquote(data); ok {
		data = rawjson.Quote(base64.StdEncoding.EncodeToString([]byte(text)))
	}
	b.Raw(bytesHTTP, data).Raw(uriHTTP, o.Take("uri"))
	b.Raw("name", o.Take("name")).Raw("mimeType", o.Take("mimeType"))
	h.rest(b, o, fileHTTP, path)
	return b.Bytes()
}
