package envelope

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func modes() []canonical.Mode {
	return []canonical.Mode{canonical.ModeText, canonical.ModeForm, canonical.ModeURL, canonical.ModeNative}
}

// questionFields are about what an agent asks and what is answered, and how
// long work is kept.
func questionFields() []field {
	pending := of(body[canonical.Result], func(r *canonical.Result) *canonical.Pending { return r.Pending })
	return []field{
		flag("task_ok", canonical.LossPeerInfo, "/preferences/taskOK", func(m *canonical.Message) *bool { return &m.Preferences.TaskOK }),
		member("can_answer", canonical.LossPeerInfo, "/preferences/canAnswer",
			func(m *canonical.Message) *[]canonical.Mode { return &m.Preferences.CanAnswer }, writeCanAnswer, readCanAnswer),
		inputs("asks", "/body/task/inputs", of(task, func(t *canonical.Task) *[]canonical.Input { return &t.Inputs })),
		inputs("pending", "/body/pending/inputs", of(pending, func(p *canonical.Pending) *[]canonical.Input { return &p.Inputs })),
		text("pending_state", canonical.LossRequestState, "/body/pending/state", of(pending, func(p *canonical.Pending) *string { return &p.State })),
		text("request_state", canonical.LossRequestState, "/body/state", of(body[canonical.Invoke], func(i *canonical.Invoke) *string { return &i.State })),
		answers("answers", of(body[canonical.Invoke], func(i *canonical.Invoke) *[]canonical.Answer { return &i.Answers })),
		optional("ttl_ns", canonical.LossCaching, "/body/ttl", of(body[canonical.Invoke], func(i *canonical.Invoke) **time.Duration { return &i.TTL }), writeDuration, readDuration),
		moment("created", canonical.LossHistory, "/body/task/created", of(task, func(t *canonical.Task) *time.Time { return &t.Created })),
		optional("task_ttl_ns", canonical.LossCaching, "/body/task/ttl", of(task, func(t *canonical.Task) **time.Duration { return &t.TTL }), writeDuration, readDuration),
		member("poll_ns", canonical.LossCaching, "/body/task/poll", of(task, func(t *canonical.Task) *time.Duration { return &t.Poll }), writePoll, readDuration),
		optional("task_output", canonical.LossContent, "/body/task/output",
			of(task, func(t *canonical.Task) **canonical.Output { return &t.Output }), writeOutput, readOutput),
		optional("task_failure", canonical.LossErrorDetail, "/body/task/failure",
			of(task, func(t *canonical.Task) **canonical.Error { return &t.Failure }), writeError, readError),
		canDo("streams", "/body/streams", func(d *canonical.Description) *bool { return &d.Streams }),
		canDo("pushes", "/body/pushes", func(d *canonical.Description) *bool { return &d.Pushes }),
		canDo("tasks", "/body/tasks", func(d *canonical.Description) *bool { return &d.Tasks }),
	}
}

// unsayable declares what no envelope carries: where changes are posted to is
// between the caller and us.
func unsayable(m *canonical.Message) []canonical.Loss {
	if i := body[canonical.Invoke](m); i != nil && i.Push != nil {
		return []canonical.Loss{{Code: canonical.LossPush, Path: "/body/push", Fate: canonical.Dropped}}
	}
	return nil
}

func canDo(name, path string, at func(*canonical.Description) *bool) field {
	return flag(name, canonical.LossPeerInfo, path, of(body[canonical.Description], at))
}

func writeCanAnswer(modes []canonical.Mode) json.RawMessage {
	if len(modes) == 0 {
		return nil
	}
	values := make([]string, len(modes))
	for i, mode := range modes {
		values[i] = string(mode)
	}
	return rawjson.ArrayOfStrings(values)
}

func readCanAnswer(raw json.RawMessage) (answerable []canonical.Mode, ok bool) {
	values, ok := rawjson.Texts(raw)
	for _, value := range values {
		mode := canonical.Mode(value)
		ok = ok && (slices.Contains(modes(), mode) || mode == canonical.ModeSampling || mode == canonical.ModeRoots)
		answerable = append(answerable, mode)
	}
	return answerable, ok
}

func inputs(name, path string, at func(*canonical.Message) *[]canonical.Input) field {
	return list(name, canonical.LossElicitation, path, at, writeInput, readInput)
}

func answers(name string, at func(*canonical.Message) *[]canonical.Answer) field {
	return list(name, canonical.LossElicitation, "/body/answers", at, WriteAnswer, readAnswer)
}

func writeInput(in *canonical.Input) json.RawMessage {
	b := rawjson.NewBuilder().String("key", in.Key).String("mode", string(in.Mode)).Raw("prompt", writeParts(in.Prompt)).
		Raw("schema", in.Schema).Optional("url", in.URL).Raw("ext", profile.WriteExt(in.Extensions, ""))
	if n := in.Native; n != nil {
		b.Raw("native", rawjson.NewBuilder().String("method", n.Method).Raw("params", n.Params).Raw("result", n.Result).Bytes())
	}
	return b.Bytes()
}

func readInput(raw json.RawMessage) (in canonical.Input, ok bool) {
	o := rawjson.Parse(raw, "")
	in.Key = o.Required("key")
	in.Mode = canonical.Mode(o.Required("mode"))
	ok = readParts(o.Take("prompt"), &in.Prompt) && (in.Mode == "" || slices.Contains(modes(), in.Mode))
	in.Schema = o.Take("schema")
	in.URL, _ = o.String("url")
	in.Extensions, ok = takeExt(o, ok)
	if n := o.Object("native"); n != nil {
		in.Native = &canonical.Native{Method: n.Required("method"), Params: n.Take("params"), Result: n.Take("result")}
		ok = ok && n.Err() == nil && len(n.Members()) == 0
	}
	return in, ok && o.Err() == nil && len(o.Members()) == 0
}

func takeExt(o *rawjson.Object, ok bool) (canonical.Extensions, bool) {
	raw := o.Take("ext")
	if raw == nil {
		return nil, ok
	}
	ext, fits := profile.ReadExt(raw, "")
	return ext, ok && fits
}

func readAnswer(raw json.RawMessage) (a canonical.Answer, ok bool) {
	o := rawjson.Parse(raw, "")
	a = canonical.Answer{Key: o.Required("key"), Action: canonical.Action(o.Required("action")), Value: o.Take("value")}
	known := slices.Contains([]canonical.Action{"", canonical.Accept, canonical.Decline, canonical.Cancel}, a.Action)
	ok = readParts(o.Take("parts"), &a.Parts) && known
	a.Extensions, ok = takeExt(o, ok)
	return a, ok && o.Err() == nil && len(o.Members()) == 0
}

func writeDuration(d *time.Duration) json.RawMessage {
	return json.RawMessage(strconv.FormatInt(int64(*d), 10))
}

func readDuration(raw json.RawMessage) (time.Duration, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return time.Duration(n), err == nil && strconv.FormatInt(n, 10) == string(raw)
}

func writePoll(d time.Duration) json.RawMessage {
	if d == 0 {
		return nil
	}
	return writeDuration(&d)
}

func writeOutput(out *canonical.Output) json.RawMessage {
	return rawjson.NewBuilder().Raw("parts", writeParts(out.Parts)).Raw("structured", out.Structured).
		Bool("failed", out.Failed).Bytes()
}

func readOutput(raw json.RawMessage) (out canonical.Output, ok bool) {
	o := rawjson.Parse(raw, "")
	out.Structured = o.Take("structured")
	ok = readParts(o.Take("parts"), &out.Parts)
	out.Failed, _ = o.Bool("failed")
	return out, ok && o.Err() == nil && len(o.Members()) == 0
}

// writeError and readError use the fields of an error that is a body.
func writeError(e *canonical.Error) json.RawMessage {
	inner := &canonical.Message{Body: e}
	b := rawjson.NewBuilder()
	for _, f := range errorFields() {
		b.Raw(f.name, f.get(inner))
	}
	return b.Raw("ext", profile.WriteExt(e.Extensions, "")).Bytes()
}

func readError(raw json.RawMessage) (e canonical.Error, ok bool) {
	o := rawjson.Parse(raw, "")
	inner, ok := &canonical.Message{Body: &e}, true
	for _, f := range errorFields() {
		if value := o.Take(f.name); value != nil {
			ok = ok && f.set(inner, value)
		}
	}
	e.Extensions, ok = takeExt(o, ok)
	return e, ok && o.Err() == nil && len(o.Members()) == 0
}
