package a2a03

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// lowerer turns one message of 1.0, as the codec writes it, into one of 0.3.
type lowerer struct{ losses []canonical.Loss }

// request lowers the params of SendMessage to those of message/send.
func (l *lowerer) request(params json.RawMessage) json.RawMessage {
	o := rawjson.Parse(params, "")
	metadata, b := l.tenant(o), rawjson.NewBuilder()
	b.Raw("message", l.message(o.Take("message"), "/body/turn"))
	b.Raw("configuration", l.configuration(o.Take("configuration")))
	b.Raw("metadata", metadata)
	l.rest(b, o, paramsNew, "/body")
	return b.Bytes()
}

// result lowers the result of SendMessage to the task or message itself.
func (l *lowerer) result(result json.RawMessage) (out json.RawMessage) {
	for _, m := range rawjson.Parse(result, "").Members() {
		switch {
		case m.Name == "task" && rawjson.IsObject(m.Value):
			out = l.task(m.Value, bodyTask)
		case m.Name == "message" && rawjson.IsObject(m.Value):
			out = l.message(m.Value, "/body/turn")
		default:
			l.around(m)
		}
	}
	return out
}

func (l *lowerer) lose(code canonical.LossCode, path string, fate canonical.Fate) {
	l.losses = append(l.losses, canonical.Loss{Code: code, Path: path, Fate: fate})
}

func (l *lowerer) drop(code canonical.LossCode, path string) { l.lose(code, path, canonical.Dropped) }

func (l *lowerer) dropIf(there bool, code canonical.LossCode, path string) {
	if there {
		l.drop(code, path)
	}
}

// carry packs members into metadata; where something stands in the way they are lost.
func (l *lowerer) carry(metadata json.RawMessage, members []rawjson.Member, code canonical.LossCode, path string) json.RawMessage {
	out, ok := pack(metadata, members)
	if ok {
		l.filled(metadata, path)
		l.lose(code, path, canonical.Carried)
	} else {
		l.drop(code, path)
	}
	return out
}

// filled declares metadata that was there and said nothing, and now says something.
func (l *lowerer) filled(metadata json.RawMessage, path string) {
	if isNull(metadata) || (rawjson.IsObject(metadata) && rawjson.Open(metadata).Rest() == nil) {
		l.drop(canonical.LossEmpty, path+"/extensions/a2a-v1/metadata")
	}
}

// clear takes out of metadata what a reader of 0.3 would take for carried.
func (l *lowerer) clear(metadata json.RawMessage, path string, names ...string) json.RawMessage {
	out, found := unpack(metadata, names...)
	if len(found) > 0 {
		l.drop(canonical.LossMetadata, path+"/extensions")
	}
	return out
}

// rest writes what is left of an object, but for members that 0.3, or a reader
// that raises it again, takes for something else.
func (l *lowerer) rest(b *rawjson.Builder, o *rawjson.Object, names []string, path string) {
	for _, m := range o.Members() {
		if _, found := like(m.Name, names); !found {
			b.Raw(m.Name, m.Value)
		} else if isNull(m.Value) {
			l.drop(canonical.LossEmpty, path+"/"+m.Name)
		} else {
			l.drop(canonical.LossExtension, path+"/extensions/a2a-v1/"+m.Name)
		}
	}
}

// enum gives a value its name in 0.3; one that 0.3 does not have becomes other.
func (l *lowerer) enum(raw json.RawMessage, table []name, other string, code canonical.LossCode, path string) json.RawMessage {
	if raw == nil || isNull(raw) {
		return raw
	}
	text, _ := rawjson.Unquote(raw)
	for _, n := range table {
		if n.newer == text {
			return rawjson.Quote(n.old)
		}
		if n.number == string(raw) {
			l.drop(canonical.LossBytes, "/body")
			return rawjson.Quote(n.old)
		}
	}
	l.drop(code, path)
	return rawjson.Quote(other)
}

func (l *lowerer) message(raw json.RawMessage, path string) json.RawMessage {
	if !rawjson.IsObject(raw) {
		return raw
	}
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilder().String("kind", kindMessage)
	b.Raw("messageId", l.required(o.Take("messageId"), "", path+"/id"))
	role := l.enum(o.Take("role"), roles, "agent", canonical.LossHistory, path+"/role")
	b.Raw("role", l.required(role, "agent", path+"/role"))
	b.Raw("parts", mapped(o.Take("parts"), path+"/parts", l.part))
	l.rest(b, o, messageOld, path)
	return b.Bytes()
}

// required fills in a member that 0.3 demands and 1.0 does not.
func (l *lowerer) required(raw json.RawMessage, otherwise, path string) json.RawMessage {
	if raw != nil && !isNull(raw) {
		return raw
	}
	l.drop(canonical.LossEmpty, path)
	return rawjson.Quote(otherwise)
}

// bodyTask is the place of a task that is the body itself.
const bodyTask = "/body/task"

func (l *lowerer) task(raw json.RawMessage, path string) json.RawMessage {
	o := rawjson.Parse(raw, "")
	context := o.Take("contextId")
	switch {
	case context == nil:
		context = rawjson.Quote("") // 0.3 demands one
	case isNull(context), string(context) == `""`:
		l.drop(canonical.LossEmpty, path+"/contextID")
		context = rawjson.Quote("")
	}
	b := rawjson.NewBuilder().String("kind", kindTask).Raw("contextId", context)
	b.Raw("status", l.status(o.Take("status"), path+"/status"))
	b.Raw("artifacts", mapped(o.Take("artifacts"), path+"/artifacts", l.artifact))
	b.Raw("history", mapped(o.Take("history"), path+"/history", l.message))
	l.rest(b, o, taskOld, path)
	return b.Bytes()
}

func (l *lowerer) status(raw json.RawMessage, path string) json.RawMessage {
	if !rawjson.IsObject(raw) {
		return raw
	}
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilder().Raw("state", l.enum(o.Take("state"), states, "unknown", canonical.LossState, path+"/state"))
	b.Raw("message", l.message(o.Take("message"), path+"/message"))
	l.rest(b, o, nil, path)
	return b.Bytes()
}

func (l *lowerer) artifact(raw json.RawMessage, path string) json.RawMessage {
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilder().Raw("artifactId", l.required(o.Take("artifactId"), "", path+"/id"))
	b.Raw("parts", mapped(o.Take("parts"), path+"/parts", l.part))
	l.rest(b, o, nil, path)
	return b.Bytes()
}

func (l *lowerer) configuration(raw json.RawMessage) json.RawMessage {
	if !rawjson.IsObject(raw) {
		return raw
	}
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilder().Raw("blocking", opposite(o.Take("returnImmediately")))
	b.Raw("pushNotificationConfig", o.Take("taskPushNotificationConfig"))
	l.rest(b, o, configBoth, "/preferences")
	return b.Bytes()
}

func (l *lowerer) part(raw json.RawMessage, path string) json.RawMessage {
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilder()
	metadata := o.Take("metadata")
	text, data := o.Peek("text"), o.Peek("data")
	switch {
	case text != nil && !isNull(text):
		b.String("kind", kindText).Raw("text", o.Take("text"))
		metadata = l.extras(o, metadata, path)
	case data != nil:
		b.String("kind", kindData)
		metadata = l.data(b, o.Take("data"), metadata, path)
		metadata = l.extras(o, metadata, path)
	default:
		l.file(b.String("kind", kindFile), o, path)
	}
	b.Raw("metadata", metadata)
	if file := o.Take("file"); isNull(file) {
		b.Raw("file", file)
	} else if file != nil {
		l.drop(canonical.LossExtension, path+"/extensions/a2a-v1/file")
	}
	l.rest(b, o, partBoth, path)
	return b.Bytes()
}

// extras carries the media type and the file name of a text or of data.
func (l *lowerer) extras(o *rawjson.Object, metadata json.RawMessage, path string) json.RawMessage {
	metadata = l.clear(metadata, path, carriedPart[0].canon, carriedPart[1].canon)
	for _, c := range carriedPart {
		if value := o.Take(c.member); value != nil {
			metadata = l.carry(metadata, []rawjson.Member{{Name: c.canon, Value: value}}, canonical.LossMediaType, path+"/"+c.canon)
		}
	}
	return metadata
}

// data writes an object, or wraps what is none and marks it.
func (l *lowerer) data(b *rawjson.Builder, value, metadata json.RawMessage, path string) json.RawMessage {
	if _, ambiguous := unwrapped(rawjson.ObjectOr(value), metadata); rawjson.IsObject(value) && ambiguous {
		metadata = unmarked(metadata)
		l.drop(canonical.LossMetadata, path+"/extensions")
	}
	if rawjson.IsObject(value) {
		b.Raw("data", value)
		return metadata
	}
	l.filled(metadata, path)
	m := rawjson.Open(metadata)
	if m.Take(keyCompat) != nil {
		l.drop(canonical.LossMetadata, path+"/extensions")
	}
	m.Put(keyCompat, json.RawMessage("true"))
	b.Raw("data", rawjson.NewBuilder().Raw(keyValue, value).Bytes())
	return m.Rest()
}

func (l *lowerer) file(b *rawjson.Builder, o *rawjson.Object, path string) {
	file := rawjson.NewBuilder()
	for _, pair := range filePairs {
		file.Raw(pair.file, o.Take(pair.member))
	}
	if left := o.Peek("file"); rawjson.IsObject(left) {
		l.rest(file, rawjson.Parse(o.Take("file"), ""), fileOld, path)
	}
	b.Raw("file", file.Bytes())
	if o.Peek("file") != nil {
		o.Take("file")
		l.drop(canonical.LossExtension, path+"/extensions/a2a-v1/file")
	}
}
