package envelope

import (
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Key is the member that holds the object.
const Key = "aepb"

// The members that are the gateway's evidence and callbacks, and no part of the
// message: codecs take them out before Read, and of them write a parent alone.
const (
	SlotECT    = "ect"           // array of compact JWS
	SlotParent = "parent_jti"    // of the ECT that the message came of, for peers that sign or read none
	SlotHITL   = "hitl_callback" // URI for the decision of a human
)

// kindMember says which kind of result the message has.
const kindMember = "kind"

// Strip takes the slots out of an aepb object. The rest is nil when nothing is left.
func Strip(object json.RawMessage) json.RawMessage {
	if len(object) == 0 || object[0] != '{' {
		return object
	}
	o := rawjson.Parse(object, "")
	for _, slot := range []string{SlotECT, SlotParent, SlotHITL} {
		o.Take(slot)
	}
	return o.Rest()
}

// Codec is the object beside the native members of one protocol. It is immutable
// and safe for concurrent use. Make one and keep it: to list the fields costs
// more than to write most messages.
type Codec struct{ fields []field }

// New makes the codec of a protocol, by the binding whose extensions its native
// members hold.
func New(own canonical.Binding) *Codec { return &Codec{fields(own)} }

// Difference is what a message says beyond a view of it.
type Difference struct {
	Members json.RawMessage // of an aepb object; nil: nothing
	Losses  []canonical.Loss
}

// Write finds out what m says beyond view, which must have a body of the same
// type. Neither message is changed.
func (c *Codec) Write(m, view *canonical.Message) Difference {
	var d Difference
	b := rawjson.NewBuilder()
	view = alike(m, view, b)
	for i := range c.fields {
		f := &c.fields[i]
		raw := f.difference(m, view)
		b.Raw(f.name, raw)
		if raw != nil && string(raw) != "null" {
			d.Losses = append(d.Losses, f.losses(m)...)
		}
	}
	d.Members = b.Object()
	d.Losses = append(d.Losses, unsayable(m)...)
	return d
}

// Unnative takes out of the view of an error what only says in whose words it is.
func Unnative(m, view *canonical.Message) {
	if e, seen := body[canonical.Error](m), body[canonical.Error](view); e != nil && seen != nil && e.Native == nil {
		seen.Native = nil
	}
}

// alike recasts the view's result to the kind that m has, and says so.
func alike(m, view *canonical.Message, b *rawjson.Builder) *canonical.Message {
	out := *view
	switch event := m.Body.(type) {
	case *canonical.Result:
		seen, ok := view.Body.(*canonical.Result)
		if !ok || KindOf(event) == KindOf(seen) {
			return view
		}
		b.String(kindMember, KindOf(event))
		out.Body = recast(seen, KindOf(event))
	case *canonical.Event:
		seen, ok := view.Body.(*canonical.Event)
		if !ok || KindOfEvent(event) == KindOfEvent(seen) {
			return view
		}
		b.String(EventMember, KindOfEvent(event))
		out.Body, _ = recastEvent(seen, KindOfEvent(event))
	default:
		return view
	}
	return &out
}

// Read lays the members of an aepb object over m, which was read from native
// members and belongs to the caller alone. rest is what Write never writes.
// When ok is false the object is not one of Write's, and m is spoilt.
func (c *Codec) Read(object json.RawMessage, m *canonical.Message) (rest json.RawMessage, ok bool) {
	if len(object) == 0 || object[0] != '{' {
		return nil, false
	}
	o := rawjson.Parse(object, "")
	if kind, present := o.String(kindMember); present {
		result, isResult := m.Body.(*canonical.Result)
		if !isResult || !known(kind) {
			return nil, false
		}
		m.Body = recast(result, kind)
	}
	if kind, given := o.String(EventMember); given {
		e, isEvent := m.Body.(*canonical.Event)
		if !isEvent {
			return nil, false
		}
		recast, ok := recastEvent(e, kind)
		if !ok {
			return nil, false
		}
		m.Body = recast
	}
	for _, f := range c.fields {
		raw := o.Take(f.name)
		if raw == nil {
			continue
		}
		if string(raw) == "null" {
			raw = nil
		}
		if !f.set(m, raw) {
			return nil, false
		}
	}
	return o.Rest(), o.Err() == nil
}

// Join joins the parts of an object; the first to say a member wins.
func Join(objects ...json.RawMessage) json.RawMessage {
	b, names := rawjson.NewBuilder(), []string{}
	for _, object := range objects {
		if !rawjson.IsObject(object) {
			continue
		}
		for _, member := range rawjson.Parse(object, "").Members() {
			if !slices.Contains(names, member.Name) {
				b.Raw(member.Name, member.Value)
				names = append(names, member.Name)
			}
		}
	}
	return b.Object()
}

// HasKind reports whether an object says that its message is a result.
func HasKind(object json.RawMessage) bool {
	return len(object) > 0 && object[0] == '{' && rawjson.Parse(object, "").Has(kindMember)
}
