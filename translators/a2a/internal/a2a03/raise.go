package a2a03

import (
	"encoding/json"
	"strconv"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// raiser turns one message of 0.3 into one of 1.0. The first failure stays.
type raiser struct {
	err    error
	losses []canonical.Loss
	reply  bool // an agent wrote it: a part that cannot be read costs that part
}

// lenient reads a part of a message. One in a reply that cannot be read is data, as it came, and the
// loss is declared: a task that the agent has done must not become an error.
func lenient(r *raiser, read func(json.RawMessage, string) json.RawMessage, raw json.RawMessage, path string, b *rawjson.Builder) json.RawMessage {
	before, losses := r.err, len(r.losses)
	out := read(raw, path)
	if r.err == nil || before != nil || !r.reply {
		return out
	}
	r.err = nil
	r.losses = append(r.losses[:losses], canonical.Loss{Code: canonical.LossExtension, Path: path, Fate: canonical.Carried})
	return b.Raw("data", raw).Bytes()
}

// request raises the params of message/send to those of SendMessage.
func (r *raiser) request(params json.RawMessage, path string) json.RawMessage {
	return r.params(params, path, in("message", r.message), in("configuration", r.configuration))
}

// query raises the params of a question about tasks, which differ by the tenant alone.
func (r *raiser) query(params json.RawMessage, path string) json.RawMessage {
	return r.params(params, path)
}

// params raises those of any request, whose tenant is in the metadata in 0.3.
func (r *raiser) params(params json.RawMessage, path string, changes ...change) json.RawMessage {
	o := r.open(params, path, nil, paramsNew)
	metadata, carried := unpack(o.Peek("metadata"), "tenant")
	b := rawjson.NewBuilder()
	for _, m := range carried {
		b.Raw(m.Name, m.Value)
	}
	rest := in("metadata", func(json.RawMessage, string) json.RawMessage { return metadata })
	return changed(b, o, append(changes, rest)...)
}

// result raises the result of message/send, a task or a message, to the object
// that holds either in 1.0.
func (r *raiser) result(result json.RawMessage, path string) json.RawMessage {
	o := r.open(result, path, taskOld, nil)
	kind := o.PeekText("kind")
	b := rawjson.NewBuilder()
	switch {
	case kind == kindTask, kind == "" && o.Has("status"):
		b.Raw("task", r.task(result, path))
	case kind == kindMessage, kind == "" && o.Has("parts"):
		b.Raw("message", r.message(result, path))
	default:
		o.Fail("kind", "neither a task nor a message")
		r.check(o)
	}
	return b.Bytes()
}

func (r *raiser) check(o *rawjson.Object) {
	if r.err == nil {
		r.err = o.Err()
	}
}

// open reads an object and refuses members that a careless reader takes for
// those in old, and all that 1.0 takes for those in newer.
func (r *raiser) open(raw json.RawMessage, path string, old, newer []string) *rawjson.Object {
	return judged(r, rawjson.Parse(raw, path), old, newer)
}

func judged(r *raiser, o *rawjson.Object, old, newer []string) *rawjson.Object {
	for _, m := range o.Members() {
		if n, found := like(m.Name, old); found && n != m.Name {
			o.Fail(n, "given twice or misspelt")
		}
		if n, found := like(m.Name, newer); found {
			o.Fail(n, "a member of another version")
		}
	}
	r.check(o)
	return o
}

func (r *raiser) fail(path, reason string) {
	o := rawjson.Parse([]byte("{}"), path)
	o.Fail("", reason)
	r.check(o)
}

// formed declares that something which 0.3 demands was not there and will be.
func (r *raiser) formed() {
	r.losses = append(r.losses, canonical.Loss{Code: canonical.LossBytes, Path: "/body", Fate: canonical.Dropped})
}

// kind takes the discriminator of an object that can be only one thing.
func (r *raiser) kind(o *rawjson.Object, want string) {
	switch raw := o.Take("kind"); {
	case raw == nil:
		r.formed()
	case string(raw) != `"`+want+`"`:
		o.Fail("kind", "not "+want)
		r.check(o)
	}
}

// mapped is an array with every element changed; what is no array is left to the reader of 1.0.
func mapped(raw json.RawMessage, path string, each func(json.RawMessage, string) json.RawMessage) json.RawMessage {
	elements, ok := rawjson.Elements(raw)
	if !ok || len(elements) == 0 {
		return raw
	}
	out := make([]json.RawMessage, len(elements))
	for i, element := range elements {
		out[i] = each(element, path+"/"+strconv.Itoa(i))
	}
	return rawjson.ArrayOf(out)
}

// each changes every element of an array.
func each(to func(json.RawMessage, string) json.RawMessage) func(json.RawMessage, string) json.RawMessage {
	return func(raw json.RawMessage, path string) json.RawMessage { return mapped(raw, path, to) }
}

// ofObject changes an object; what is none stays as it is.
func ofObject(to func(json.RawMessage, string) json.RawMessage) func(json.RawMessage, string) json.RawMessage {
	return func(raw json.RawMessage, path string) json.RawMessage {
		if !rawjson.IsObject(raw) {
			return raw
		}
		return to(raw, path)
	}
}

// change is what becomes of the member of a name, at its place.
type change struct {
	member, as string
	to         func(value json.RawMessage, place string) json.RawMessage // nil: nothing but its name changes
}

// in is a change of a member that keeps its name.
func in(member string, to func(json.RawMessage, string) json.RawMessage) change {
	return change{member, member, to}
}

// changed writes the members of an object, some of them changed; one without a
// value is left out.
func changed(b *rawjson.Builder, o *rawjson.Object, changes ...change) json.RawMessage {
	for _, m := range o.Members() {
		name := m.Name
		for _, c := range changes {
			if c.member != m.Name {
				continue
			}
			if name = c.as; c.to != nil {
				m.Value = c.to(m.Value, o.Path(m.Name))
			}
		}
		b.Raw(name, m.Value)
	}
	return b.Bytes()
}

// enum gives values their names in 1.0. 0.3 will have no others.
func (r *raiser) enum(table []name) func(json.RawMessage, string) json.RawMessage {
	return func(raw json.RawMessage, path string) json.RawMessage {
		text, _ := rawjson.Unquote(raw)
		return valued(r, raw, path, table, func(n name) (bool, string) { return n.old == text, n.newer })
	}
}

// valued is what stands for the one in a table that is meant.
func valued(r *raiser, raw json.RawMessage, path string, table []name, matches func(name) (bool, string)) json.RawMessage {
	for _, n := range table {
		if is, other := matches(n); is {
			return rawjson.Quote(other)
		}
	}
	if !isNull(raw) {
		r.fail(path, "no value of this version")
	}
	return raw
}

func (r *raiser) message(raw json.RawMessage, path string) json.RawMessage {
	if isNull(raw) {
		return raw
	}
	o := r.open(raw, path, messageOld, nil)
	r.kind(o, kindMessage)
	return changed(rawjson.NewBuilder(), o, in("role", r.enum(roles)), in("parts", each(r.part)))
}

func (r *raiser) task(raw json.RawMessage, path string) json.RawMessage {
	o := r.open(raw, path, taskOld, nil)
	r.kind(o, kindTask)
	switch context := o.Peek("contextId"); {
	case context == nil:
		r.formed()
	case string(context) == `""`: // what a task without a context says
		o.Take("contextId")
	}
	return changed(rawjson.NewBuilder(), o,
		in("status", r.status), in("artifacts", each(r.artifact)), in("history", each(r.message)))
}

func (r *raiser) status(raw json.RawMessage, path string) json.RawMessage {
	if isNull(raw) {
		return raw
	}
	o := r.open(raw, path, nil, nil)
	return changed(rawjson.NewBuilder(), o, in("state", r.enum(states)), in("message", r.message))
}

func (r *raiser) artifact(raw json.RawMessage, path string) json.RawMessage {
	o := r.open(raw, path, nil, nil)
	return changed(rawjson.NewBuilder(), o, in("parts", each(r.part)))
}

// configuration turns the wish to wait around: blocking that is not said means
// to wait, as returnImmediately that is not said does.
func (r *raiser) configuration(raw json.RawMessage, path string) json.RawMessage {
	if isNull(raw) {
		return raw
	}
	return changed(rawjson.NewBuilder(), r.open(raw, path, configOld, configNew),
		change{"blocking", "returnImmediately", func(wait json.RawMessage, _ string) json.RawMessage { return opposite(wait) }},
		change{"pushNotificationConfig", "taskPushNotificationConfig", nil})
}

// opposite of a boolean; what is none stays.
func opposite(raw json.RawMessage) json.RawMessage {
	switch string(raw) {
	case "true":
		return json.RawMessage("false")
	case "false":
		return json.RawMessage("true")
	default:
		return raw
	}
}

func (r *raiser) part(raw json.RawMessage, path string) json.RawMessage {
	return lenient(r, r.strictPart, raw, path, rawjson.NewBuilder())
}

func (r *raiser) strictPart(raw json.RawMessage, path string) json.RawMessage {
	o := r.open(raw, path, partOld, partNew)
	kind := partKind(r, o)
	metadata, b := o.Take("metadata"), rawjson.NewBuilder()
	switch kind {
	case kindFile:
		r.file(b, o)
	case kindData:
		metadata = r.data(b, o, metadata)
	default:
		if !isText(o.Peek("text")) {
			o.Fail("text", "not a string")
		}
	}
	if kind != kindFile {
		if file := o.Peek("file"); file != nil && !isNull(file) {
			o.Fail("file", "not in a part of another kind")
		}
		var carried []rawjson.Member
		metadata, carried = unpack(metadata, carriedPart[0].canon, carriedPart[1].canon)
		for _, m := range carried {
			b.Raw(memberOf(m.Name), m.Value)
		}
	}
	r.check(o)
	return changed(b.Raw("metadata", metadata), o)
}

func memberOf(canon string) string {
	for _, c := range carriedPart {
		if c.canon == canon {
			return c.member
		}
	}
	return canon
}

// partKind takes the kind of a part; one that says none is what its content is.
func partKind(r *raiser, o *rawjson.Object) string {
	raw := o.Take("kind")
	kind, _ := rawjson.Unquote(raw)
	if raw == nil {
		r.formed()
		for _, k := range []string{kindText, kindFile, kindData} {
			if o.Has(k) {
				return k
			}
		}
	}
	if kind != kindText && kind != kindData && kind != kindFile {
		o.Fail("kind", "no kind of part")
	}
	return kind
}

// data takes an object, or the value that was wrapped in one.
func (r *raiser) data(b *rawjson.Builder, o *rawjson.Object, metadata json.RawMessage) json.RawMessage {
	value := o.Take("data")
	if !rawjson.IsObject(value) {
		o.Fail("data", "not an object")
		return metadata
	}
	if inner, wrapped := unwrapped(value, metadata); wrapped {
		value, metadata = inner, unmarked(metadata)
	}
	b.Raw("data", value)
	return metadata
}

// unwrapped finds data that is no object inside the one it was wrapped in.
func unwrapped(value, metadata json.RawMessage) (json.RawMessage, bool) {
	if string(rawjson.Open(metadata).Peek(keyCompat)) != "true" {
		return nil, false
	}
	members := rawjson.Parse(value, "").Members()
	if len(members) != 1 || members[0].Name != keyValue || rawjson.IsObject(members[0].Value) {
		return nil, false
	}
	return members[0].Value, true
}

// unmarked is metadata without the mark of wrapped data.
func unmarked(metadata json.RawMessage) json.RawMessage {
	m := rawjson.Open(metadata)
	m.Take(keyCompat)
	return m.Rest()
}

// file takes the content of a file part. What it says beyond 1.0 stays under
// its own name.
func (r *raiser) file(b *rawjson.Builder, o *rawjson.Object) {
	file := r.open(o.Take("file"), o.Path("file"), fileOld, nil)
	for _, pair := range filePairs {
		b.Raw(pair.member, file.Take(pair.file))
	}
	b.Raw("file", file.Rest())
}

// filePairs are the members of a file, and those of the part in 1.0.
var filePairs = []struct{ file, member string }{
	{"bytes", "raw"}, {"uri", "url"}, {"name", "filename"}, {"mimeType", "mediaType"},
}
