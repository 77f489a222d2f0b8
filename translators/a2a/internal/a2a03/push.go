package a2a03

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The names of 0.3 for push notification settings.
const (
	pushConfig   = "pushNotificationConfig"
	pushConfigID = "pushNotificationConfigId"
)

var (
	pushOld    = []string{"taskId", pushConfig}
	settingNew = []string{"tenant", "taskId"}
	queryOld   = []string{"id", pushConfigID}
)

// push raises settings with the task that they are for.
func (r *raiser) push(raw json.RawMessage, path string) json.RawMessage {
	o := r.open(raw, path, pushOld, paramsNew)
	inner := o.Take(pushConfig)
	if !rawjson.IsObject(inner) {
		o.Fail(pushConfig, "required")
		r.check(o)
		return nil
	}
	b := rawjson.NewBuilder().Raw("taskId", o.Take("taskId")).Raw(keyOuter, o.Rest())
	return b.Merge(r.config(inner, o.Path(pushConfig))).Bytes()
}

// config raises settings by themselves.
func (r *raiser) config(raw json.RawMessage, path string) json.RawMessage {
	if !rawjson.IsObject(raw) {
		return raw
	}
	o := r.open(raw, path, nil, settingNew)
	return changed(rawjson.NewBuilder(), o, in("authentication", ofObject(r.authentication)))
}

// authentication takes the one scheme that 1.0 has; a list that says more stays.
func (r *raiser) authentication(raw json.RawMessage, path string) json.RawMessage {
	o := r.open(raw, path, []string{"schemes"}, []string{"scheme"})
	schemes := o.Take("schemes")
	elements, ok := rawjson.Elements(schemes)
	if schemes != nil && !ok {
		o.Fail("schemes", "not an array")
		r.check(o)
	}
	b := rawjson.NewBuilder()
	if len(elements) > 0 {
		b.Raw("scheme", elements[0])
	}
	if len(elements) != 1 {
		b.Raw("schemes", schemes)
	}
	return b.Merge(object(o)).Bytes()
}

// push lowers settings with the task that they are for.
func (l *lowerer) push(raw json.RawMessage) json.RawMessage {
	o := rawjson.Parse(raw, "")
	l.dropIf(o.Take("tenant") != nil, canonical.LossIDs, "/conversation/tenant")
	task, outer := o.Take("taskId"), o.Take(keyOuter)
	b := rawjson.NewBuilder().Raw("taskId", task).Raw(pushConfig, l.config(object(o)))
	if rawjson.IsObject(outer) {
		l.rest(b, rawjson.Parse(outer, ""), pushOld, "/body")
	}
	return b.Bytes()
}

func (l *lowerer) config(raw json.RawMessage) json.RawMessage {
	return changed(rawjson.NewBuilder(), rawjson.Parse(raw, ""), in("authentication", ofObject(l.authentication)))
}

func (l *lowerer) authentication(raw json.RawMessage, _ string) json.RawMessage {
	o := rawjson.Parse(raw, "")
	scheme, schemes := o.Take("scheme"), o.Take("schemes")
	elements, _ := rawjson.Elements(schemes)
	switch {
	case len(elements) > 0 && scheme != nil && rawjson.Equal(elements[0], scheme):
	case scheme == nil && schemes != nil && len(elements) == 0:
	case scheme != nil:
		schemes = rawjson.ArrayOf([]json.RawMessage{scheme})
	default:
		schemes = rawjson.ArrayOf(nil)
	}
	return rawjson.NewBuilder().Raw("schemes", schemes).Merge(object(o)).Bytes()
}

// pushQuery raises which settings are meant.
func (r *raiser) pushQuery(params json.RawMessage, path string) json.RawMessage {
	raised := r.params(params, path)
	if r.err != nil {
		return nil
	}
	o := r.open(raised, path, queryOld, []string{"taskId"})
	b := rawjson.NewBuilder().Raw("taskId", o.Take("id")).Raw("id", o.Take(pushConfigID))
	return b.Merge(object(o)).Bytes()
}

// pushQuery lowers it.
func (l *lowerer) pushQuery(params json.RawMessage) json.RawMessage {
	return l.setting(params, l.params)
}

// pushQuery lowers it to a path.
func (h *toHTTP) pushQuery(params json.RawMessage) json.RawMessage {
	return h.lowerer.setting(params, func(o *rawjson.Object) json.RawMessage { h.unplaced(o); return object(o) })
}

// setting names settings. 0.3 has no pages of them.
func (l *lowerer) setting(params json.RawMessage, rest func(*rawjson.Object) json.RawMessage) json.RawMessage {
	o := rawjson.Parse(params, "")
	b := rawjson.NewBuilder().Raw("id", o.Take("taskId")).Raw(pushConfigID, o.Take("id"))
	l.dropIf(o.Take("pageSize") != nil, canonical.LossPush, "/body/size")
	l.dropIf(o.Take("pageToken") != nil, canonical.LossPush, "/body/cursor")
	return b.Merge(rest(o)).Bytes()
}

// pushResult raises what was answered: settings, a list of them, or nothing.
func (r *raiser) pushResult(result json.RawMessage, path string) json.RawMessage {
	if elements, ok := rawjson.Elements(result); ok {
		return rawjson.NewBuilder().Raw("configs", mapped(rawjson.ArrayOf(elements), path, r.push)).Bytes()
	}
	if isNull(result) {
		return json.RawMessage("{}")
	}
	if o := rawjson.Parse(result, path); o.Err() != nil || !o.Has(pushConfig) {
		r.check(o)
		return result
	}
	return r.push(result, path)
}

// pushResult lowers it.
func (l *lowerer) pushResult(result json.RawMessage) json.RawMessage {
	o := rawjson.Parse(result, "")
	switch {
	case o.Has("configs"):
		list := mapped(o.Take("configs"), "/body/configs", func(raw json.RawMessage, _ string) json.RawMessage { return l.push(raw) })
		l.dropIf(string(o.Take("nextPageToken")) > `""`, canonical.LossPush, "/body/next")
		for _, m := range o.Members() {
			l.around(m)
		}
		return list
	case o.Has("url"):
		return l.push(result)
	default:
		for _, m := range o.Members() {
			l.around(m)
		}
		return json.RawMessage("null")
	}
}
