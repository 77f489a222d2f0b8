package a2a

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// encoder writes one message.
type encoder struct {
	m      *canonical.Message
	target translators.Target
	home   bool // the message came from A2A: what it carries was there before
	losses []canonical.Loss
}

// Encode writes a message for an A2A peer. It fails with a *canonical.Error.
func (t *Translator) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	target.Version = cmp.Or(target.Version, Version)
	if err := spoke(target); err != nil {
		return translators.Wire{}, nil, err
	}
	e := &encoder{m: m, target: target, home: m.Origin.Binding == Binding}
	wire, err := e.wire()
	if err != nil {
		return translators.Wire{}, nil, err
	}
	wire.Binding, wire.Version, wire.Form, wire.Media = Binding, target.Version, target.Form, Media
	wire.Header = e.header()
	return wire, e.losses, nil
}

func (e *encoder) wire() (translators.Wire, error) {
	switch body := e.m.Body.(type) {
	case *canonical.Error:
		failure, status := e.failure(body)
		wire := e.sayError(e.m.Correlation.WireID, failure, status)
		wire.Event = e.target.Stream
		return wire, nil
	case *canonical.Description:
		card, err := e.card(body)
		if err == nil {
			card, err = e.versioned(body, card)
		}
		return translators.Wire{Body: card, Re: canonical.OpDescribe}, err
	case *canonical.Native:
		return e.native(body)
	}
	if e.m.Phase == canonical.PhaseRequest {
		return e.encodeRequest()
	}
	result, err := e.answered()
	if err != nil {
		return translators.Wire{}, err
	}
	return e.sayResult(e.lower(result, answers(e.m.Op, e.m.Phase == canonical.PhaseEvent))), nil
}

// encodeRequest writes a request.
func (e *encoder) encodeRequest() (translators.Wire, error) {
	o := asks(e.m, e.target.Stream || e.home && e.m.Preferences.Stream)
	if o == nil {
		return translators.Wire{}, noCounterpart(e.m)
	}
	var params json.RawMessage
	var err error
	switch body := e.m.Body.(type) {
	case *canonical.Invoke:
		params, err = e.request(body)
	case *canonical.TaskQuery:
		params, err = e.query(body)
	case *canonical.TaskFilter:
		params = e.filter(body)
	case *canonical.PushRequest:
		params, err = e.pushRequest(body)
	default:
		err = noCounterpart(e.m)
	}
	if err == nil && e.m.Correlation.WireID == nil && !unpaired(e.target.Form) {
		err = unstamped("request id")
	}
	if err != nil {
		return translators.Wire{}, err
	}
	return e.sayRequest(o, e.lower(params, o.params))
}

// answered writes a reply, or one event of it.
func (e *encoder) answered() (json.RawMessage, error) {
	bare := e.m.Op == canonical.OpTaskGet || e.m.Op == canonical.OpTaskCancel || e.m.Op == canonical.OpTaskResult
	switch body := e.m.Body.(type) {
	case *canonical.Event:
		return e.event(body)
	case *canonical.Result:
		raw, err := e.response(body)
		if err != nil || !bare {
			return raw, err
		}
		task := rawjson.Parse(raw, "").Peek("task")
		if task == nil {
			return nil, &canonical.Error{Code: canonical.CodeBadUpstream, Message: "the agent sent a message, expected a task"}
		}
		return task, nil
	case *canonical.TaskList:
		return e.taskList(body), nil
	case *canonical.PushConfig:
		return e.config(body, e.m.Conversation.Tenant, "/body"), nil
	case *canonical.PushList:
		return e.pushList(body), nil
	case *canonical.Done:
		e.dropQuery(body.Extensions)
		return newWriter(body.Extensions[Binding], nil).bytes(), nil
	default:
		return nil, noCounterpart(e.m)
	}
}

// unstamped is the error for a message without an id that only the gateway mints.
func unstamped(what string) error {
	return &canonical.Error{Code: canonical.CodeInternal, Message: "the " + what + " was not stamped"}
}

// lose declares something that is carried. A message that was born in A2A
// carries nothing that was not there before.
func (e *encoder) lose(code canonical.LossCode, path string) {
	if !e.home {
		e.losses = append(e.losses, canonical.Loss{Code: code, Path: path, Fate: canonical.Carried})
	}
}

// add takes over losses that shared code found.
func (e *encoder) add(losses []canonical.Loss) {
	for _, loss := range losses {
		if loss.Fate == canonical.Dropped {
			e.losses = append(e.losses, loss)
		} else {
			e.lose(loss.Code, loss.Path)
		}
	}
}

func (e *encoder) drop(code canonical.LossCode, path string) {
	e.losses = append(e.losses, canonical.Loss{Code: code, Path: path, Fate: canonical.Dropped})
}

// loseIf and dropIf declare what is there.
func (e *encoder) loseIf(there bool, code canonical.LossCode, path string) {
	if there {
		e.lose(code, path)
	}
}

func (e *encoder) dropIf(there bool, code canonical.LossCode, path string) {
	if there {
		e.drop(code, path)
	}
}

// mint gives a message inside a task an id made from the task's, unless it
// came without one from A2A.
func (e *encoder) mint(id string) string {
	if e.home {
		return ""
	}
	return id
}

// wrap builds what a level carries and declares it.
func (e *encoder) wrap(canon *rawjson.Builder, ext canonical.Extensions, path string) json.RawMessage {
	e.add(profile.ForeignLosses(ext, Binding, path))
	return profile.Wrap(canon.Object(), ext, Binding)
}

// carry writes message-level members into canon.
func (e *encoder) carry(canon *rawjson.Builder, fields []profile.Field) {
	m := e.m
	if _, own := m.Extensions[Binding]; own {
		foreign := *m
		foreign.Extensions = maps.Clone(m.Extensions)
		delete(foreign.Extensions, Binding)
		m = &foreign
	}
	e.add(profile.CarryMessage(canon, m, fields...))
}

func (e *encoder) header() http.Header {
	h := http.Header{}
	if e.target.Version == Version {
		h.Set(fieldVersion, Version)
	}
	for _, uri := range e.activated() {
		h.Add(extensionsField(e.target.Version), uri)
	}
	for i, f := range traceFields(&e.m.Trace) {
		if sayable(*f.at) {
			h.Set(f.name, *f.at)
		} else if *f.at != "" {
			e.drop(canonical.LossTrace, "/trace/"+[]string{"parent", "state", "baggage"}[i])
		}
	}
	return h
}

// activated is the A2A-Extensions header: what it was, and our own extension
// where the message newly uses it.
func (e *encoder) activated() []string {
	var values []string
	if raw := e.m.Extensions[Binding]; raw != nil {
		value, _ := rawjson.Unquote(rawjson.Parse(raw, "").Take(HeaderExtensions))
		if sayable(value) {
			values = append(values, value)
		} else {
			e.drop(canonical.LossExtension, "/extensions/"+string(Binding))
		}
	}
	if e.typed() && !strings.Contains(strings.Join(values, ","), profile.ExtensionURI) {
		values = append(values, profile.ExtensionURI)
	}
	return values
}

// typed reports whether the request becomes a P2 turn here.
func (e *encoder) typed() bool {
	invoke, ok := e.m.Body.(*canonical.Invoke)
	if !ok || len(invoke.Turn.Parts) > 0 {
		return false
	}
	turn, err := profile.TurnOf(invoke, e.target.Capability)
	if err != nil {
		return false
	}
	_, ok = profile.TypedTurn(turn.Content.Parts)
	return ok
}

func (e *encoder) request(invoke *canonical.Invoke) (json.RawMessage, error) {
	turn, err := profile.TurnOf(invoke, e.target.Capability)
	if err != nil {
		return nil, err
	}
	id := e.m.Correlation.MessageID
	switch {
	case id == "" && turn.Content.ID == "":
		return nil, unstamped("message id")
	case id == "":
		id = turn.Content.ID
	case len(turn.Content.Parts) == 0 && len(invoke.Answers) == 0:
		return nil, &canonical.Error{Code: canonical.CodeBadParams, Message: "the message has no content"}
	}
	e.add(turn.Losses)
	w := newWriter(turn.Extensions[Binding], requestMembers)
	w.selects = true
	w.text("tenant", e.m.Conversation.Tenant)
	w.b.Raw("configuration", e.configuration(w.form("configuration")))
	canon := rawjson.NewBuilder()
	e.answers(invoke, &turn.Content, canon)
	w.b.Raw("message", e.turn(&turn, id))
	e.carry(canon, carriedRequest)
	if invoke.TTL != nil {
		e.span(canon, keyTTL, *invoke.TTL, "/body/ttl")
	}
	e.dropIf(invoke.Push != nil, canonical.LossCredentials, "/body/push")
	w.metadata(e.wrap(canon, turn.Extensions, "/body"))
	return w.bytes(), nil
}

// turn writes the message of a request.
func (e *encoder) turn(turn *profile.Turn, id string) json.RawMessage {
	const path = "/body/turn"
	c, conv := turn.Content, e.m.Conversation
	conv.ContextID = cmp.Or(conv.ContextID, turn.Conversation.ContextID)
	conv.TaskID = cmp.Or(conv.TaskID, turn.Conversation.TaskID)
	c.Role = cmp.Or(c.Role, canonical.RoleCaller)
	w := newWriter(c.Extensions[Binding], messageMembers)
	w.selects = true
	e.message(w, &c, path, id)
	w.ids(&conv)
	ours := e.wrap(rawjson.NewBuilder(), c.Extensions, path)
	if skill := e.skill(c.Parts); skill != "" {
		ours = profile.Merge(ours, rawjson.NewBuilder().String("skill", skill).Bytes())
	}
	w.metadata(ours)
	e.dropIf(e.m.Preferences.Stream && !e.home && !e.target.Stream, canonical.LossStatusUpdates, "/preferences/stream")
	return w.bytes()
}

// skill is the hint which skill a message is for. A caller of another protocol
// chose one by its call; words alone would not say which. An agent whose card
// lists no skills has none to name.
func (e *encoder) skill(parts []canonical.Part) string {
	_, typed := profile.TypedTurn(parts)
	if e.m.To.Skill == "" && !e.home && !typed && e.target.Capability != nil && !implied(e.target.Capability) {
		return e.target.Capability.ID
	}
	return e.m.To.Skill
}

func (w *writer) ids(conv *canonical.Conversation) {
	w.text("contextId", conv.ContextID)
	w.text("taskId", conv.TaskID)
	w.texts("referenceTaskIds", conv.ReferenceTasks)
}

func (e *encoder) configuration(leftover json.RawMessage) json.RawMessage {
	p := e.m.Preferences
	if leftover != nil && leftover[0] != '{' {
		if len(p.AcceptMedia) == 0 && p.HistoryLength == nil && !p.NoWait {
			return leftover
		}
		leftover = nil
	}
	w := newWriter(leftover, configMembers)
	w.texts("acceptedOutputModes", p.AcceptMedia)
	w.integer("historyLength", p.HistoryLength)
	w.flag("returnImmediately", p.NoWait)
	if push := w.form("taskPushNotificationConfig"); string(push) == "null" {
		w.b.Raw("taskPushNotificationConfig", push)
	}
	if raw := w.bytes(); leftover != nil || string(raw) != "{}" {
		return raw
	}
	return nil
}

func (w *writer) integer(name string, value *int) {
	form := w.form(name)
	text, quoted := rawjson.Unquote(form)
	if !quoted {
		text = string(form)
	}
	number, err := strconv.ParseInt(text, 10, 32)
	switch {
	case value == nil && string(form) == "null", value != nil && err == nil && int(number) == *value:
		w.b.Raw(name, form)
	case value != nil:
		w.b.Raw(name, json.RawMessage(strconv.Itoa(*value)))
	}
}

func (e *encoder) response(r *canonical.Result) (json.RawMessage, error) {
	conv := e.m.Conversation
	if came, its, ok := profile.ResultOf(r); ok {
		r, conv = came, its // an A2A result that went through another protocol
	}
	if r.Output != nil {
		return e.output(r.Output, r.Extensions)
	}
	canon := rawjson.NewBuilder()
	if ext := profile.Wrap(nil, r.Extensions, Binding); ext != nil {
		canon.Raw(keyResult, ext)
		e.add(profile.ForeignLosses(r.Extensions, Binding, "/body"))
	}
	w := newWriter(r.Extensions[Binding], responseMembers)
	switch {
	case r.Task != nil:
		task := *r.Task
		task.ID = cmp.Or(task.ID, conv.TaskID)
		task.ContextID = cmp.Or(task.ContextID, conv.ContextID)
		e.carry(canon, carriedTask)
		w.b.Raw("task", e.task(&task, canon, "/body/task"))
		w.raw("message", nil)
	case r.Turn != nil:
		e.carry(canon, carriedMessage)
		w.raw("task", nil)
		w.b.Raw("message", e.answer(r.Turn, &conv, canon))
	case r.Pending != nil:
		return nil, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "A2A has no input request without a task"}
	default:
		return nil, &canonical.Error{Code: canonical.CodeInternal, Message: "the result is empty"}
	}
	return w.bytes(), nil
}

// answer writes a reply that is a message.
func (e *encoder) answer(c *canonical.Content, conv *canonical.Conversation, canon *rawjson.Builder) json.RawMessage {
	const path = "/body/turn"
	w := newWriter(c.Extensions[Binding], messageMembers)
	id := cmp.Or(c.ID, e.m.Correlation.MessageID)
	e.message(w, c, path, id)
	w.ids(conv)
	w.metadata(e.wrap(canon, c.Extensions, path))
	return w.bytes()
}

// numbers declares a number that a double cannot hold: it is sent digit for
// digit, and a peer that reads protobuf values rounds it.
func (e *encoder) numbers(raw json.RawMessage, path string) {
	if ExactNumbers(raw) {
		return
	}
	if invoke, ok := e.m.Body.(*canonical.Invoke); ok && len(invoke.Turn.Parts) == 0 {
		path = "/body/call/args"
	}
	e.lose(canonical.LossNumbers, path)
}

// ExactNumbers looks at the numbers of a JSON value, outside strings. Up to 15
// significant digits and a small exponent survive a double; so do integers up
// to 2^53.
func ExactNumbers(raw json.RawMessage) bool {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case c == '-' || (c >= '0' && c <= '9'):
			start := i
			for i < len(raw) && strings.IndexByte("+-.eE0123456789", raw[i]) >= 0 {
				i++
			}
			if !exactNumber(string(raw[start:i])) {
				return false
			}
			i--
		}
	}
	return true
}

func exactNumber(text string) bool {
	text = strings.TrimPrefix(text, "-")
	mantissa, exponent := text, ""
	if cut := strings.IndexAny(text, "eE"); cut >= 0 {
		mantissa, exponent = text[:cut], text[cut+1:]
	}
	digits := strings.TrimLeft(strings.Replace(mantissa, ".", "", 1), "0")
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n <= 1<<53
	}
	if exponent != "" {
		n, err := strconv.Atoi(exponent)
		if err != nil || n > 290 || n < -290 {
			return digits == ""
		}
	}
	return len(strings.TrimRight(digits, "0")) <= 15 && len(mantissa) <= 300
}
