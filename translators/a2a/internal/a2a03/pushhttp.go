package a2a03

import (
	"encoding/json"
	"strings"

	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

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
		b.Raw("taskId", quote(task))
	}
	if own := rawText(object(config), "id"); named && own == "" {
		b.Raw("id", quote(id))
		config.Take("id")
		f.formed()
	} else if own != id {
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
