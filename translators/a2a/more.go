package a2a

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// What tasks of other protocols say and those of A2A do not, in canon.
const (
	keyCreated = "created"
	keyTTL     = "ttl"
	keyPoll    = "pollInterval"
	keyFailure = "failure"
	keyYield   = "outcome" // the task's artifact or status is its Output: the state that it had besides
)

// moreOf takes the members out of canon that more wrote.
func moreOf(t *canonical.Task, canon *rawjson.Object) {
	if at, ok := timeIn(canon.Peek(keyCreated)); ok {
		canon.Take(keyCreated)
		t.Created = at
	}
	if ttl, ok := durationIn(canon.Peek(keyTTL)); ok {
		canon.Take(keyTTL)
		t.TTL = &ttl
	}
	if poll, ok := durationIn(canon.Peek(keyPoll)); ok && poll > 0 {
		canon.Take(keyPoll)
		t.Poll = poll
	}
	if failure := failureIn(canon.Peek(keyFailure)); failure != nil {
		canon.Take(keyFailure)
		t.Failure = failure
	}
}

// more writes what a task of A2A has no member for.
func (e *encoder) more(t *canonical.Task, canon *rawjson.Builder, path string) {
	if !t.Created.IsZero() {
		canon.String(keyCreated, t.Created.UTC().Format(time.RFC3339Nano))
		e.lose(canonical.LossHistory, path+"/created")
	}
	if t.TTL != nil {
		e.span(canon, keyTTL, *t.TTL, path+"/ttl")
	}
	if t.Poll != 0 {
		e.span(canon, keyPoll, t.Poll, path+"/poll")
	}
	if t.Failure != nil {
		canon.Raw(keyFailure, sayFailureOf(t.Failure))
		e.lose(canonical.LossErrorDetail, path+"/failure")
	}
}

func (e *encoder) span(canon *rawjson.Builder, name string, d time.Duration, path string) {
	if d < 0 {
		e.drop(canonical.LossCaching, path)
		return
	}
	canon.String(name, delay(d))
	e.lose(canonical.LossCaching, path)
}

func timeIn(raw json.RawMessage) (time.Time, bool) {
	text, ok := rawjson.Unquote(raw)
	at, err := time.Parse(time.RFC3339Nano, text)
	return at.UTC(), ok && err == nil && !at.IsZero() && at.UTC().Format(time.RFC3339Nano) == text
}

func durationIn(raw json.RawMessage) (time.Duration, bool) {
	text, ok := rawjson.Unquote(raw)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0 && strings.HasSuffix(text, "s") && delay(d) == text
}

// sayFailureOf writes why a task failed, whole.
func sayFailureOf(f *canonical.Error) json.RawMessage {
	b := rawjson.NewBuilder().String("code", string(f.Code)).Optional("message", f.Message)
	if f.RetryAfter > 0 {
		b.String("retryDelay", delay(f.RetryAfter))
	}
	b.Raw("schema", f.Schema)
	if len(f.Details) > 0 {
		b.Array("details", f.Details)
	}
	if n := f.Native; n != nil {
		b.Raw("native", rawjson.NewBuilder().String("binding", string(n.Binding)).
			Raw("code", json.RawMessage(strconv.FormatInt(n.Code, 10))).Raw("data", n.Data).Bytes())
	}
	return b.Raw("extensions", profile.WriteExt(f.Extensions, "")).Bytes()
}

// failureIn reads it; nil: it is not what sayFailureOf writes.
func failureIn(raw json.RawMessage) *canonical.Error {
	if !rawjson.IsObject(raw) {
		return nil
	}
	o := rawjson.Parse(raw, "")
	f := &canonical.Error{Code: canonical.Code(memberText(o, "code", "")), Message: memberText(o, "message", ""), Schema: o.Peek("schema")}
	f.RetryAfter, _ = durationIn(o.Peek("retryDelay"))
	f.Details, _ = rawjson.Elements(o.Peek("details"))
	if native := o.Peek("native"); rawjson.IsObject(native) {
		f.Native = upstream(rawjson.Parse(native, ""))
	}
	if ext := o.Peek("extensions"); rawjson.IsObject(ext) {
		f.Extensions = canonical.Extensions{}
		for _, m := range rawjson.Parse(ext, "").Members() {
			f.Extensions[canonical.Binding(m.Name)] = m.Value
		}
	}
	if f.Code == "" || !rawjson.Equal(sayFailureOf(f), raw) {
		return nil
	}
	return f
}

// sayableTask is a task in the members that A2A has: its questions and its failure
// are in its status, its output is an artifact, or the words of a failure.
func (e *encoder) sayableTask(t *canonical.Task, canon *rawjson.Builder, path string) *canonical.Task {
	out := *t
	if t.Failure != nil && t.Status.Message == nil && t.Failure.Message != "" {
		out.Status.Message = &canonical.Content{Role: canonical.RoleAgent, Parts: []canonical.Part{{Kind: canonical.KindText, Text: t.Failure.Message}}}
	}
	out.Status = *e.asking(&out.Status, t.Inputs, path, t.ID)
	if t.Output == nil {
		return &out
	}
	if len(t.Artifacts) > 0 || t.Output.Failed && out.Status.Message != nil {
		e.drop(canonical.LossContent, path+"/output")
		return &out
	}
	canon.String(keyYield, string(t.Status.State))
	return &out
}

// yield writes the output of a task: its artifacts, or the message of its status.
func (e *encoder) yield(t *canonical.Task, path string) (artifacts []json.RawMessage, message json.RawMessage) {
	parts := e.outputParts(t.Output, path+"/output")
	if t.Output.Failed {
		return nil, failed(canonical.Conversation{TaskID: t.ID, ContextID: t.ContextID}, parts)
	}
	return []json.RawMessage{rawjson.NewBuilder().String("artifactId", resultArtifact).Array("parts", parts).Bytes()}, nil
}

// yielded makes a task's artifact its output again, if saying it so gives the
// very same task.
func yielded(m *canonical.Message, t *canonical.Task, canon *rawjson.Object, raw json.RawMessage) {
	state, ok := rawjson.Unquote(canon.Peek(keyYield))
	if !ok {
		return
	}
	output, ok := outputOf(t)
	if !ok {
		return
	}
	again, copied := *t, *m
	again.Output, again.Artifacts, again.Status.State = output, nil, canonical.State(state)
	if output.Failed {
		again.Status.Message = nil
	}
	rest := without(canon, keyYield)
	again.Extensions = replaced(t.Extensions, t.Extensions[Binding])
	delete(again.Extensions, profile.CanonKey)
	again.Extensions = again.Extensions.With(profile.CanonKey, rest)
	if len(again.Extensions) == 0 {
		again.Extensions = nil
	}
	e := &encoder{m: &copied, home: true}
	extra := rawjson.NewBuilder()
	e.carry(extra, carriedTask)
	if rawjson.Equal(e.task(&again, extra, ""), raw) {
		*t = again
	}
}

// native is what only A2A has, in the words of the target's version.
func (e *encoder) native(n *canonical.Native) (translators.Wire, error) {
	if !e.home {
		return translators.Wire{}, noCounterpart(e.m)
	}
	if e.m.Phase == canonical.PhaseRequest {
		o := operationOf(n.Method, e.m.Origin.Version)
		if o == nil || o.op != canonical.OpNative {
			return translators.Wire{}, noCounterpart(e.m)
		}
		params := n.Params
		if tenant := e.m.Conversation.Tenant; tenant != "" { // that the agent's own card wants named
			params = rawjson.NewBuilder().Merge(without(rawjson.Parse(rawjson.OrEmpty(params), ""), "tenant")).String("tenant", tenant).Bytes()
		}
		return e.sayRequest(o, params)
	}
	return e.sayResult(n.Result), nil
}
