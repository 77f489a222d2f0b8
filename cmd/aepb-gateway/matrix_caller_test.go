package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// caller is somebody who speaks as one side does, to one agent of another side.
type caller struct {
	*troupe
	side  side
	to    side   // where the agent stands
	agent string // as the gateway lists it
	form  translators.Translator
	ep    transport.Endpoint
	wid   string // of all that it says

	notes   *notes
	parents []ect.ID // of what it says next
	began   func()   // is called at the first event of a stream; nil: nothing is

	eachEvent func(*hearing) // is called at every event of a stream; nil: nothing is

	dialer interface {
		transport.Dialer
		transport.Describer
	}
}

func (tr *troupe) caller(t *testing.T, from, to side, agent string) *caller {
	t.Helper()
	name := tr.listed(to, agent)
	return &caller{
		troupe: tr, side: from, to: to, agent: name, form: tr.list[from.binding].form, ep: tr.door(from, name),
		wid: string(ect.NewID()), dialer: tr.dialer(t, from.binding), notes: &notes{},
	}
}

// words is whose words the caller uses.
func (c *caller) words() canonical.Binding { return c.side.words(c.form) }

// hearing is what a caller was answered.
type hearing struct {
	messages []*canonical.Message
	events   int
	evidence []string
	failure  error // of the wire
}

// request is a message of the caller.
func (c *caller) request(op canonical.Op, body canonical.Body) *canonical.Message {
	m := &canonical.Message{Op: op, Phase: canonical.PhaseRequest, Body: body, Correlation: canonical.Correlation{WireID: own(ect.NewID())}}
	if c.words() != uacp.Binding { // nothing of it is foreign; a frame that came from home would have its options from there
		m.Origin = canonical.Origin{Binding: c.words(), Version: c.side.version}
	}
	if c.side.form == "GRPC" {
		m.Conversation.Tenant = c.agent
	}
	m.Preferences.CanAnswer = c.ep.AnswerModes
	switch op {
	case canonical.OpInvoke:
		m.Correlation.MessageID = string(ect.NewID())
	case canonical.OpTaskGet, canonical.OpTaskCancel, canonical.OpTaskAnswer, canonical.OpTaskResult, canonical.OpTaskList:
		m.Preferences.TaskOK = true // which modern MCP says with every request
	default:
	}
	return m
}

// invoke says words, natively: a protocol of calls calls the only tool with them.
func (c *caller) invoke(text string) *canonical.Invoke {
	if c.side.form == uacp.FormBare {
		text += " " + c.wid
	}
	if c.words() == mcp.Binding {
		args, err := json.Marshal(map[string]string{"message": text})
		if err != nil {
			return nil
		}
		return &canonical.Invoke{Call: &canonical.Call{Name: "play", Args: args}}
	}
	return &canonical.Invoke{Turn: canonical.Content{ID: string(ect.NewID()), Role: canonical.RoleCaller, Parts: textPart(text)}}
}

// said is a message in the caller's words.
func (c *caller) said(m *canonical.Message, stream bool) (translators.Wire, []canonical.Loss, error) {
	wire, losses, err := c.form.Encode(m, translators.Target{
		Version: c.side.version, Form: c.side.form, Stream: stream, Stamp: c.stamp(c.side.binding, ""),
	})
	if err != nil {
		return wire, losses, err
	}
	wire.Binding, wire.Hasher = c.side.binding, translators.HasherOf(c.form)
	wire, err = c.frame(wire)
	return wire, losses, err
}

// sealed is a message with a token of the caller's own.
func (c *caller) sealed(ctx context.Context, wire translators.Wire) (transport.Sealed, error) {
	c.keeps(wire.HashInput())
	token, err := c.signer.Sign(ect.Claims{
		Act: "send_task", Audience: []string{c.stage.self()}, Workflow: c.wid, Parents: c.parents, OutputHash: ect.Hash(wire.HashInput()),
	})
	if err != nil {
		return transport.Sealed{}, err
	}
	receipt, err := c.recorder.Record(ctx, token, ect.Filing{})
	if err != nil {
		return transport.Sealed{}, err
	}
	attested, err := transport.Attest(receipt, wire)
	if err != nil {
		return transport.Sealed{}, err
	}
	return attested.Seal()
}

// ask sends a message and hears what comes of it. answer is asked for what to
// answer in the middle of a stream; nil: nothing is.
func (c *caller) ask(ctx context.Context, m *canonical.Message, stream bool, answer func(*canonical.Ask)) *hearing {
	out := &hearing{}
	wire, _, err := c.said(m, stream)
	if err != nil {
		out.failure = err
		return out
	}
	sealed, err := c.sealed(ctx, wire)
	if err != nil {
		out.failure = err
		return out
	}
	began := time.Now()
	reply, err := c.dialer.Dial(ctx, c.ep, sealed)
	c.notes.answered(m.Op, time.Since(began))
	out.evidence = reply.Evidence
	switch {
	case err != nil:
		out.failure = err
	case reply.Events != nil:
		defer func() { _ = reply.Events.Close() }()
		out.failure = c.listen(ctx, reply.Events, m.Op, out, answer)
	case len(reply.Wire.Body) > 0 || reply.Wire.Status > 0:
		out.failure = c.hear(reply.Wire, m.Op, false, out)
	}
	return out
}

// listen hears a stream to its end.
func (c *caller) listen(ctx context.Context, events transport.Events, op canonical.Op, out *hearing, answer func(*canonical.Ask)) error {
	for {
		event, err := events.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out.evidence = append(out.evidence, event.Evidence...)
		if len(event.Wire.Body) == 0 && event.Wire.Status == 0 {
			continue
		}
		if err := c.hear(event.Wire, op, true, out); err != nil {
			return err
		}
		if out.events++; out.events == 1 && c.began != nil {
			c.began()
		}
		if c.eachEvent != nil {
			c.eachEvent(out)
		}
		last := out.messages[len(out.messages)-1]
		if e, ok := last.Body.(*canonical.Event); ok && e.Ask != nil && answer != nil {
			answer(e.Ask)
		}
		if _, told := last.Body.(*canonical.Event); !told && c.form.Info().Streams == translators.StreamsReply {
			continue // what closes the stream may follow
		}
	}
}

func (c *caller) hear(wire translators.Wire, op canonical.Op, event bool, out *hearing) error {
	wire.Binding, wire.Version, wire.Form, wire.Re, wire.Event = c.side.binding, c.side.version, c.side.form, op, event
	wire, err := c.unframe(wire)
	if err != nil {
		return err
	}
	m, err := c.form.Decode(wire)
	if err != nil {
		return err
	}
	out.messages = append(out.messages, m)
	return nil
}

// last is the last message.
func (h *hearing) last() canonical.Body {
	if len(h.messages) == 0 {
		return nil
	}
	return h.messages[len(h.messages)-1].Body
}

// refusal is what was answered in place of an answer; nil: nothing was, or it was
// none of the protocol's.
func (h *hearing) refusal() *canonical.Error {
	if said, ok := errors.AsType[*canonical.Error](h.failure); ok {
		return said
	}
	said, _ := h.last().(*canonical.Error)
	return said
}

// refused is the code of a refusal; empty: there is none.
func (h *hearing) refused() string {
	said := h.refusal()
	switch {
	case said != nil:
		return string(said.Code)
	case h.failure != nil:
		return "broken: " + h.failure.Error()
	default:
		return ""
	}
}

// dialogue is the one that the answer is in; empty: in none.
func (h *hearing) dialogue() string {
	for _, m := range h.messages {
		if m.Conversation.ContextID != "" {
			return m.Conversation.ContextID
		}
		if r, ok := m.Body.(*canonical.Result); ok && r.Output != nil {
			var told struct {
				In string `json:"context_id"`
			}
			if json.Unmarshal(r.Output.Structured, &told) == nil && told.In != "" {
				return told.In
			}
		}
	}
	return ""
}

// task is the newest snapshot of work that was heard; nil: none.
func (h *hearing) task() *canonical.Task {
	var out *canonical.Task
	for _, m := range h.messages {
		switch body := m.Body.(type) {
		case *canonical.Result:
			if body.Task != nil {
				out = body.Task
			}
		case *canonical.Event:
			if body.Task != nil {
				out = body.Task
			}
		}
	}
	return out
}

// state is how the work stands in the end; empty: nobody says so.
func (h *hearing) state() canonical.State {
	var out canonical.State
	for _, m := range h.messages {
		switch body := m.Body.(type) {
		case *canonical.Result:
			switch {
			case body.Task != nil:
				out = body.Task.Status.State
			case body.Output != nil && body.Output.Failed:
				out = canonical.StateFailed
			case body.Output != nil:
				out = canonical.StateCompleted
			}
		case *canonical.Event:
			switch {
			case body.Task != nil:
				out = body.Task.Status.State
			case body.Status != nil:
				out = body.Status.State
			}
		}
	}
	return out
}

// parts are all that was heard, but what was said on the way.
func (h *hearing) parts() []canonical.Part {
	var out []canonical.Part
	output := func(o *canonical.Output) {
		if o == nil {
			return
		}
		out = append(out, o.Parts...)
		if o.Structured != nil {
			out = append(out, canonical.Part{Kind: canonical.KindData, Data: o.Structured})
		}
	}
	task := func(k *canonical.Task) {
		if k == nil {
			return
		}
		if k.Status.Message != nil {
			out = append(out, k.Status.Message.Parts...)
		}
		for _, a := range k.Artifacts {
			out = append(out, a.Parts...)
		}
		output(k.Output)
	}
	for _, m := range h.messages {
		switch body := m.Body.(type) {
		case *canonical.Result:
			if body.Turn != nil {
				out = append(out, body.Turn.Parts...)
			}
			task(body.Task)
			output(body.Output)
		case *canonical.Event:
			task(body.Task)
			switch {
			case body.Turn != nil:
				out = append(out, body.Turn.Parts...)
			case body.Artifact != nil:
				out = append(out, body.Artifact.Artifact.Parts...)
			case body.Status != nil && body.Status.Message != nil:
				out = append(out, body.Status.Message.Parts...)
			}
		}
	}
	return out
}

// text is all that was heard in words.
func (h *hearing) text() string {
	var out []string
	for _, p := range h.parts() {
		switch p.Kind {
		case canonical.KindText:
			out = append(out, p.Text)
		case canonical.KindData:
			out = append(out, string(p.Data))
		default:
		}
	}
	return strings.Join(out, " ")
}

// noticed is what was said on the way.
func (h *hearing) noticed() string {
	var out []string
	for _, m := range h.messages {
		e, ok := m.Body.(*canonical.Event)
		if !ok {
			continue
		}
		if e.Progress != nil {
			out = append(out, e.Progress.Message)
		}
		if e.Status != nil && e.Status.Message != nil {
			for _, p := range e.Status.Message.Parts {
				out = append(out, p.Text)
			}
		}
		if e.Task != nil && e.Task.Status.Message != nil {
			for _, p := range e.Task.Status.Message.Parts {
				out = append(out, p.Text)
			}
		}
	}
	return strings.Join(out, " ")
}

// exposed: the agent can be called on the node.
func (c *caller) exposed(ctx context.Context) bool {
	c.troupe.mu.Lock()
	defer c.troupe.mu.Unlock()
	if !c.troupe.seen[c.agent] {
		_, _, err := c.dialer.Describe(ctx, c.ep)
		c.troupe.seen[c.agent] = err == nil
	}
	return c.troupe.seen[c.agent]
}

// plainly is the same caller without a connection that stays open.
func (tr *troupe) plainly(c *caller) *caller {
	out := *c
	out.side.form = ""
	out.ep = tr.door(out.side, c.agent)
	return &out
}
