package a2a03

import (
	"encoding/json"
	"strings"

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
	if scheme != nil && (len(elements) == 0 || !rawjson.Equal(elements[0], scheme)) {
		schemes = rawjson.ArrayOf([]json.RawMessage{scheme})
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

// Over HTTP settings have a name made of the task's and their own:
// tasks/TASK/pushNotificationConfigs/CONFIG.
const (
	nameTasks   = "tasks/"
	nameConfigs = "/pushNotificationConfigs/"
)

// push raises a request to keep settings.
func (f *fromHTTP) push(params json.RawMessage, path string) json.RawMessage {
	o := f.open(params, path, []string{"config", "configId", "parent"}, paramsNew)
	task, id := o.Take("taskId"), o.Take("configId")
	o.Take("parent")
	raised := f.setting(o.Take("config"), o.Path("config"))
	inner := rawjson.Open(raised)
	inner.Take("taskId")
	if !isText(id) || inner.Has("id") {
		id = nil
	}
	b := rawjson.NewBuilder().Raw("taskId", task).Raw("id", id)
	return b.Merge(object(inner)).Bytes()
}

// setting raises settings with their name. What the name says is said by the
// settings' own members; where it says otherwise, the name goes.
func (f *fromHTTP) setting(raw json.RawMessage, path string) json.RawMessage {
	if !rawjson.IsObject(raw) {
		f.fail(path, "required")
		return nil
	}
	o := f.open(raw, path, []string{"name", pushConfig}, nil)
	name, _ := rawjson.Unquote(o.Take("name"))
	task, id, named := strings.Cut(strings.TrimPrefix(name, nameTasks), nameConfigs)
	inner := o.Take(pushConfig)
	if !rawjson.IsObject(inner) {
		f.fail(o.Path(pushConfig), "required")
		return nil
	}
	config := rawjson.Open(f.config(inner, o.Path(pushConfig)))
	b := rawjson.NewBuilder()
	if named {
		b.Raw("taskId", rawjson.Quote(task))
	}
	if own := rawText(object(config), "id"); named && own == "" {
		b.Raw("id", rawjson.Quote(id))
		config.Take("id")
		f.formed()
	} else if own != id || !named { // no name is of another form too
		f.formed()
	}
	return b.Raw(keyOuter, o.Rest()).Merge(object(config)).Bytes()
}

// push lowers a request to keep settings.
func (h *toHTTP) push(params json.RawMessage) json.RawMessage {
	o := rawjson.Parse(params, "")
	b := rawjson.NewBuilder().Raw("taskId", o.Peek("taskId"))
	b.Raw("config", h.setting(object(o)))
	return b.Bytes()
}

func (h *toHTTP) setting(raw json.RawMessage) json.RawMessage {
	o := rawjson.Parse(h.lowerer.push(raw), "")
	task, inner := rawText(object(o), "taskId"), o.Peek(pushConfig)
	o.Take("taskId")
	name := nameTasks + task + nameConfigs + rawText(inner, "id")
	return rawjson.NewBuilder().String("name", name).Merge(object(o)).Bytes()
}

// pushResult raises what was answered.
func (f *fromHTTP) pushResult(result json.RawMessage, path string) json.RawMessage {
	o := f.open(result, path, nil, nil)
	switch {
	case o.Has("configs"):
		return f.page(result, path, "configs", f.setting)
	case o.Has(pushConfig):
		return f.setting(result, path)
	default:
		return result
	}
}

// pushResult lowers it.
func (h *toHTTP) pushResult(result json.RawMessage) json.RawMessage {
	o := rawjson.Parse(result, "")
	switch {
	case o.Has("configs"):
		return h.page(result, "configs", func(raw json.RawMessage, _ string) json.RawMessage { return h.setting(raw) })
	case o.Has("url"):
		return h.setting(result)
	default:
		return result
	}
}
