package a2a03

import (
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The kinds of updates, and the members of 1.0 that hold them.
const (
	kindStatus     = "status-update"
	kindArtifact   = "artifact-update"
	statusUpdate   = "statusUpdate"
	artifactUpdate = "artifactUpdate"
)

// final is what 0.3 says of an update and 1.0 leaves to the state.
const final = "final"

// settled are the states after which a stream says no more.
var settled = []string{"completed", "failed", "canceled", "rejected", "input-required", "auth-required"}

var updateOld = []string{"kind", final}

// event raises one item of a stream to the object of 1.0 that holds it.
func (r *raiser) event(result json.RawMessage, path string) json.RawMessage {
	o := r.open(result, path, taskOld, nil)
	switch kind := o.PeekText("kind"); kind {
	case kindStatus:
		return rawjson.NewBuilder().Raw(statusUpdate, r.statusUpdate(o)).Bytes()
	case kindArtifact:
		return rawjson.NewBuilder().Raw(artifactUpdate, r.artifactUpdate(o)).Bytes()
	default:
		return r.result(result, path)
	}
}

func (r *raiser) statusUpdate(o *rawjson.Object) json.RawMessage {
	judged(r, o, updateOld, nil)
	r.kind(o, kindStatus)
	r.final(o, rawText(o.Peek("status"), "state"))
	return changed(rawjson.NewBuilder(), o, in("status", r.status))
}

// final takes what the state says anyway; one that says otherwise stays.
func (r *raiser) final(o *rawjson.Object, state string) {
	switch raw := o.Peek(final); {
	case raw == nil:
		r.formed()
	case string(raw) != "true" && string(raw) != "false":
		o.Fail(final, "not a boolean")
		r.check(o)
	case (string(raw) == "true") == ends(state):
		o.Take(final)
	}
}

func ends(state string) bool { return slices.Contains(settled, state) }

// rawText is a text member of an object; "": there is none.
func rawText(object json.RawMessage, name string) string {
	return rawjson.Open(object).PeekText(name)
}

func (r *raiser) artifactUpdate(o *rawjson.Object) json.RawMessage {
	judged(r, o, messageOld, nil)
	r.kind(o, kindArtifact)
	return changed(rawjson.NewBuilder(), o, in("artifact", ofObject(r.artifact)))
}

// event raises one item of a stream over HTTP.
func (f *fromHTTP) event(body json.RawMessage, path string) json.RawMessage {
	o := f.open(body, path, []string{kindTask, kindMessage, statusUpdate, artifactUpdate}, nil)
	return changed(rawjson.NewBuilder(), o,
		in(kindTask, ofObject(f.raised)),
		in(kindMessage, ofObject(f.raisedMessage)),
		in(statusUpdate, ofObject(func(value json.RawMessage, place string) json.RawMessage {
			return f.raiser.statusUpdate(rawjson.Parse(f.update(value, place, kindStatus), place))
		})),
		in(artifactUpdate, ofObject(func(value json.RawMessage, place string) json.RawMessage {
			return f.raiser.artifactUpdate(rawjson.Parse(f.update(value, place, kindArtifact), place))
		})))
}

// update gives an update the words of JSON-RPC.
func (f *fromHTTP) update(raw json.RawMessage, path, kind string) json.RawMessage {
	o := f.open(raw, path, updateOld, messageOld)
	b := rawjson.NewBuilder().String("kind", kind)
	if kind == kindStatus && !o.Has(final) { // a flag that is not said is false
		b.Raw(final, json.RawMessage("false"))
		f.formed()
	}
	return changed(b, o, in("status", f.status), in("artifact", ofObject(f.artifact)))
}

// event lowers one item of a stream.
func (l *lowerer) event(result json.RawMessage) json.RawMessage {
	o := rawjson.Parse(result, "")
	for name, lower := range map[string]func(json.RawMessage) json.RawMessage{statusUpdate: l.statusUpdate, artifactUpdate: l.artifactUpdate} {
		if value := o.Peek(name); rawjson.IsObject(value) {
			o.Take(name)
			out := lower(value)
			for _, m := range o.Members() {
				l.around(m)
			}
			return out
		}
	}
	return l.result(result)
}

// around declares what stands around an item: 0.3 has nothing there.
func (l *lowerer) around(m rawjson.Member) {
	code := canonical.LossExtension
	if isNull(m.Value) {
		code = canonical.LossEmpty
	}
	l.drop(code, "/body/extensions/a2a-v1/"+m.Name)
}

func (l *lowerer) statusUpdate(raw json.RawMessage) json.RawMessage {
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilder().String("kind", kindStatus)
	l.place(b, o)
	status := l.status(o.Take("status"), "/body/status")
	b.Raw("status", status)
	switch encoded := o.Take(final); string(encoded) {
	case "true", "false":
		b.Raw(final, encoded)
	default:
		b.Bool(final, ends(rawText(status, "state")))
	}
	l.rest(b, o, updateOld, "/body")
	return b.Bytes()
}

func (l *lowerer) artifactUpdate(raw json.RawMessage) json.RawMessage {
	o := rawjson.Parse(raw, "")
	b := rawjson.NewBuilder().String("kind", kindArtifact)
	l.place(b, o)
	b.Raw("artifact", l.artifact(o.Take("artifact"), "/body/artifact/artifact"))
	l.rest(b, o, messageOld, "/body")
	return b.Bytes()
}

// place says which task an update is of; 0.3 demands a context.
func (l *lowerer) place(b *rawjson.Builder, o *rawjson.Object) {
	b.Raw("taskId", l.required(o.Take("taskId"), "", "/conversation/taskID"))
	b.Raw("contextId", l.required(o.Take("contextId"), "", "/conversation/contextID"))
}

// event lowers one item of a stream to the HTTP form.
func (h *toHTTP) event(result json.RawMessage) json.RawMessage {
	update := func(lower func(json.RawMessage) json.RawMessage) func(json.RawMessage, string) json.RawMessage {
		return ofObject(func(value json.RawMessage, _ string) json.RawMessage { return h.update(lower(value)) })
	}
	return changed(rawjson.NewBuilder(), rawjson.Parse(result, "/body"),
		in(kindTask, ofObject(h.lowered)), in(kindMessage, ofObject(h.loweredMessage)),
		in(statusUpdate, update(h.lowerer.statusUpdate)), in(artifactUpdate, update(h.lowerer.artifactUpdate)))
}

func (h *toHTTP) update(raw json.RawMessage) json.RawMessage {
	o := rawjson.Parse(raw, "/body")
	o.Take("kind")
	artifact := func(value json.RawMessage, place string) json.RawMessage { return h.artifact(value, place+"/artifact") }
	return changed(rawjson.NewBuilder(), o, in("status", h.status), in("artifact", ofObject(artifact)))
}
