package a2a03

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// RaiseParams raises the params of a question about tasks, which differ by the
// tenant alone.
func RaiseParams(params json.RawMessage, path string) (json.RawMessage, []canonical.Loss, error) {
	r := &raiser{}
	out := r.params(params, path)
	return out, r.losses, r.err
}

// LowerParams lowers them.
func LowerParams(params json.RawMessage) (json.RawMessage, []canonical.Loss) {
	l := &lowerer{}
	o := rawjson.Parse(params, "")
	return l.params(o), l.losses
}

func (l *lowerer) params(o *rawjson.Object) json.RawMessage {
	metadata := l.clear(o.Take("metadata"), "/body", "tenant")
	if tenant := o.Take("tenant"); tenant != nil {
		metadata = l.carry(metadata, []rawjson.Member{{Name: "tenant", Value: tenant}}, canonical.LossIDs, "/conversation/tenant")
	}
	b := rawjson.NewBuilder()
	l.rest(b, o, paramsNew, "/body")
	return b.Raw("metadata", metadata).Bytes()
}

// LowerParamsHTTP lowers those that stand in a path and a query: there is no
// room for a tenant or metadata.
func LowerParamsHTTP(params json.RawMessage) (json.RawMessage, []canonical.Loss) {
	l := &lowerer{}
	o := rawjson.Parse(params, "")
	l.unplaced(o)
	return object(o), l.losses
}

func (l *lowerer) unplaced(o *rawjson.Object) {
	if o.Take("tenant") != nil {
		l.drop(canonical.LossIDs, "/conversation/tenant")
	}
	if o.Take("metadata") != nil {
		l.drop(canonical.LossMetadata, "/body/extensions")
	}
}

// RaiseTask raises a task that stands alone.
func RaiseTask(result json.RawMessage, path string) (json.RawMessage, []canonical.Loss, error) {
	r := &raiser{}
	out := r.task(result, path)
	return out, r.losses, r.err
}

// RaiseTaskHTTP raises one of the HTTP form.
func RaiseTaskHTTP(result json.RawMessage, path string) (json.RawMessage, []canonical.Loss, error) {
	f := &fromHTTP{&raiser{}}
	out := f.raised(result, path)
	return out, f.losses, f.err
}

// LowerTask lowers a task that stands alone.
func LowerTask(result json.RawMessage) (json.RawMessage, []canonical.Loss) {
	l := &lowerer{}
	out := l.task(result, bodyTask)
	return out, l.losses
}

// LowerTaskHTTP lowers one to the HTTP form.
func LowerTaskHTTP(result json.RawMessage) (json.RawMessage, []canonical.Loss) {
	h := &toHTTP{&lowerer{}}
	out := h.lowered(result, bodyTask)
	return out, h.losses
}

// RaiseTasks raises one page of tasks.
func RaiseTasks(result json.RawMessage, path string) (json.RawMessage, []canonical.Loss, error) {
	r := &raiser{}
	out := r.page(result, path, "tasks", r.task)
	return out, r.losses, r.err
}

// RaiseTasksHTTP raises one of the HTTP form.
func RaiseTasksHTTP(result json.RawMessage, path string) (json.RawMessage, []canonical.Loss, error) {
	f := &fromHTTP{&raiser{}}
	out := f.page(result, path, "tasks", f.raised)
	return out, f.losses, f.err
}

// page raises every element of one member.
func (r *raiser) page(raw json.RawMessage, path, list string, to func(json.RawMessage, string) json.RawMessage) json.RawMessage {
	return changed(rawjson.NewBuilder(), r.open(raw, path, nil, nil), change{list, each(to)})
}

// LowerTasks lowers one page of tasks.
func LowerTasks(result json.RawMessage) (json.RawMessage, []canonical.Loss) {
	l := &lowerer{}
	out := l.page(result, "tasks", l.task)
	return out, l.losses
}

// LowerTasksHTTP lowers one to the HTTP form.
func LowerTasksHTTP(result json.RawMessage) (json.RawMessage, []canonical.Loss) {
	h := &toHTTP{&lowerer{}}
	out := h.page(result, "tasks", h.lowered)
	return out, h.losses
}

func (l *lowerer) page(raw json.RawMessage, list string, to func(json.RawMessage, string) json.RawMessage) json.RawMessage {
	return changed(rawjson.NewBuilder(), rawjson.Parse(raw, "/body"), change{list, each(to)})
}

// keyOuter is the member that keeps what stood around settings of 0.3.
const keyOuter = profile.ExtensionURI + "#outer"
