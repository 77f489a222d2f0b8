package mcp

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// extTasks is the extension of 2026-07-28 that lets a task stand in place of a
// result; a client declares it on each request.
const extTasks = "io.modelcontextprotocol/tasks"

// declared reads from a client's capabilities what it can be asked, and whether
// a task may answer it.
func declared(raw json.RawMessage, version string) (modes []canonical.Mode, taskOK bool) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	o := rawjson.Parse(raw, "")
	if form, url := elicits(o.Peek("elicitation"), version); form || url {
		if form {
			modes = append(modes, canonical.ModeForm)
		}
		if url {
			modes = append(modes, canonical.ModeURL)
		}
	}
	for _, mode := range natives {
		if rawjson.IsObject(o.Peek(string(mode))) {
			modes = append(modes, mode)
		}
	}
	extensions := o.Peek("extensions")
	return modes, version == Modern && rawjson.IsObject(extensions) && rawjson.IsObject(rawjson.Parse(extensions, "").Peek(extTasks))
}

// elicits reports which input requests a client takes. An empty capability means forms, the
// only kind before 2025-11-25.
func elicits(raw json.RawMessage, version string) (form, url bool) {
	if !rawjson.IsObject(raw) || version <= LegacyMarch {
		return false, false
	}
	if version == LegacyJune {
		return true, false
	}
	o := rawjson.Parse(raw, "")
	url = rawjson.IsObject(o.Peek("url"))
	return rawjson.IsObject(o.Peek("form")) || !url, url
}

// natives are the capabilities of a client whose requests only MCP has, under the names
// that MCP has for them.
var natives = [...]canonical.Mode{canonical.ModeSampling, canonical.ModeRoots}

// declaring writes a client's capabilities in the words of a revision.
func declaring(askable []canonical.Mode, taskOK bool, version string) json.RawMessage {
	none := json.RawMessage("{}")
	b := rawjson.NewBuilder()
	form := slices.Contains(askable, canonical.ModeForm) || slices.Contains(askable, canonical.ModeText)
	url := slices.Contains(askable, canonical.ModeURL) && version >= Legacy
	switch {
	case version <= LegacyMarch:
	case version == LegacyJune && form:
		b.Raw("elicitation", none)
	case form || url:
		modes := b.Begin("elicitation")
		if form {
			modes.Raw("form", none)
		}
		if url {
			modes.Raw("url", none)
		}
		modes.End()
	}
	for _, mode := range natives {
		if slices.Contains(askable, mode) {
			b.Raw(string(mode), none)
		}
	}
	if taskOK && version == Modern {
		b.Begin("extensions").Raw(extTasks, none).End()
	}
	return b.Bytes()
}

// tasksOffered reports whether a server's capabilities say that it keeps tasks.
func tasksOffered(raw json.RawMessage, version string) bool {
	if !rawjson.IsObject(raw) {
		return false
	}
	o := rawjson.Parse(raw, "")
	if version == Modern {
		extensions := o.Peek("extensions")
		return rawjson.IsObject(extensions) && rawjson.IsObject(rawjson.Parse(extensions, "").Peek(extTasks))
	}
	return version == Legacy && rawjson.IsObject(o.Peek("tasks"))
}

// offers writes a server's capabilities in the words of a revision: its own, as
// far as the revision has them, else those of an agent that has skills only.
func (e *encoder) offers(own json.RawMessage, tasks bool) json.RawMessage {
	if !rawjson.IsObject(own) {
		own = json.RawMessage(`{"tools":{}}`)
	}
	b := rawjson.NewBuilder()
	var extensions json.RawMessage
	for _, m := range rawjson.Parse(own, "").Members() {
		switch m.Name {
		case "tasks": // written below, in the words of the revision
		case "extensions":
			extensions = m.Value
		default:
			b.Raw(m.Name, m.Value)
		}
	}
	if tasks && e.version == Legacy {
		b.Raw("tasks", json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`))
	}
	if e.modern {
		b.Raw("extensions", withTasks(extensions, tasks))
	}
	return b.Bytes()
}

// withTasks is a set of extensions with the one for tasks, or without it.
func withTasks(extensions json.RawMessage, tasks bool) json.RawMessage {
	b := rawjson.NewBuilder()
	if rawjson.IsObject(extensions) {
		for _, m := range rawjson.Parse(extensions, "").Members() {
			if m.Name != extTasks {
				b.Raw(m.Name, m.Value)
			}
		}
	}
	if tasks {
		b.Raw(extTasks, json.RawMessage("{}"))
	}
	return b.Object()
}

var _ translators.TaskStyler = (*Translator)(nil)

// Tasks came with 2025-11-25; since 2026-07-28 they are an extension, and others.
func (t *Translator) Tasks(version string) translators.Tasking {
	switch version {
	case Modern:
		return translators.TaskingWhole
	case Legacy:
		return translators.TaskingApart
	default:
		return translators.TaskingNone
	}
}

// The words of a tool's execution.taskSupport (2025-11-25); none is forbidden.
const (
	taskRequired = "required"
	taskOptional = "optional"
)

// TaskOnly reads what a tool says of tasks.
func (t *Translator) TaskOnly(c *canonical.Capability) bool { return taskSupport(c) == taskRequired }

func taskSupport(c *canonical.Capability) string {
	text, _ := rawjson.Unquote(member(member(c.Extensions[Binding], "execution"), "taskSupport"))
	return text
}

// AsTasks is what a tool says in 2025-11-25 whose server decides by itself what
// becomes a task: that each call of it may be one.
func AsTasks(ext canonical.Extensions) canonical.Extensions {
	own := ext[Binding]
	if own != nil && (!rawjson.IsObject(own) || rawjson.Parse(own, "").Has("execution")) {
		return ext
	}
	execution := rawjson.NewBuilder().String("taskSupport", taskOptional).Bytes()
	out := maps.Clone(ext)
	if out == nil {
		out = canonical.Extensions{}
	}
	out[Binding] = rawjson.NewBuilder().Merge(own).Raw("execution", execution).Bytes()
	return out
}
