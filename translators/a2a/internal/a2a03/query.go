package a2a03

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// query lowers the params of a question about tasks.
func (l *lowerer) query(params json.RawMessage) json.RawMessage {
	return l.params(rawjson.Parse(params, ""))
}

func (l *lowerer) params(o *rawjson.Object) json.RawMessage {
	metadata, b := l.tenant(o), rawjson.NewBuilder()
	l.rest(b, o, paramsNew, "/body")
	return b.Raw("metadata", metadata).Bytes()
}

// tenant takes the metadata, with the tenant in it.
func (l *lowerer) tenant(o *rawjson.Object) json.RawMessage {
	metadata := l.clear(o.Take("metadata"), "/body", "tenant")
	if tenant := o.Take("tenant"); tenant != nil {
		metadata = l.carry(metadata, []rawjson.Member{{Name: "tenant", Value: tenant}}, canonical.LossIDs, "/conversation/tenant")
	}
	return metadata
}

// query lowers parameters that stand in a path and a query, which have no place for
// a tenant or metadata.
func (h *toHTTP) query(params json.RawMessage) json.RawMessage {
	o := rawjson.Parse(params, "")
	h.unplaced(o)
	return object(o)
}

func (l *lowerer) unplaced(o *rawjson.Object) {
	l.dropIf(o.Take("tenant") != nil, canonical.LossIDs, "/conversation/tenant")
	l.dropIf(o.Take("metadata") != nil, canonical.LossMetadata, "/body/extensions")
}

// tasks raises one page of tasks.
func (r *raiser) tasks(result json.RawMessage, path string) json.RawMessage {
	return r.page(result, path, "tasks", r.task)
}

func (f *fromHTTP) tasks(result json.RawMessage, path string) json.RawMessage {
	return f.page(result, path, "tasks", f.raised)
}

// page raises every element of one member.
func (r *raiser) page(raw json.RawMessage, path, list string, to func(json.RawMessage, string) json.RawMessage) json.RawMessage {
	return changed(rawjson.NewBuilder(), r.open(raw, path, nil, nil), in(list, each(to)))
}

// tasks lowers one page of tasks.
func (l *lowerer) tasks(result json.RawMessage) json.RawMessage {
	return l.page(result, "tasks", l.task)
}

func (h *toHTTP) tasks(result json.RawMessage) json.RawMessage {
	return h.page(result, "tasks", h.lowered)
}

func (l *lowerer) page(raw json.RawMessage, list string, to func(json.RawMessage, string) json.RawMessage) json.RawMessage {
	return changed(rawjson.NewBuilder(), rawjson.Parse(raw, "/body"), in(list, each(to)))
}

// keyOuter is the member that keeps what stood around settings of 0.3.
const keyOuter = profile.ExtensionURI + "#outer"

// alone lowers a task that stands alone.
func (l *lowerer) alone(task json.RawMessage) json.RawMessage { return l.task(task, bodyTask) }

func (h *toHTTP) alone(task json.RawMessage) json.RawMessage { return h.lowered(task, bodyTask) }
