package gatewaytest

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

// Caller is somebody who speaks as one side does, to one agent of another side.
type Caller struct {
	*Simulator
	side  Side
	to    Side   // where the agent stands
	agent string // as the gateway lists it
	form  translators.Translator
	ep    transport.Endpoint
	Wid   string // of all that it says

	notes   *notes
	parents []ect.ID // of what it says next
	Began   func()   // is called at the first event of a stream; nil: nothing is

	EachEvent func(*Received) // is called at every event of a stream; nil: nothing is

	dialer interface {
		transport.Dialer
		transport.Describer
	}
}

// Caller is a new caller of one side, with a workflow of its own, of an agent of another side that the gateway lists.
func (tr *Simulator) Caller(t *testing.T, from, to Side, agent string) *Caller {
	t.Helper()
	name := tr.Listed(to, agent)
	return &Caller{
		Simulator: tr, side: from, to: to, agent: name, form: tr.List[from.Binding].Codec, ep: tr.endpoint(from, name),
		Wid: string(ect.NewID()), dialer: tr.dialer(t, from.Binding), notes: &notes{},
	}
}

// words is whose words the caller uses.
func (c *Caller) words() canonical.Binding { return c.side.Words(c.form) }

// Received is what a caller was answered.
type Received struct {
	Messages []*canonical.Message
	Events   int
	Evidence []string
	failure  error // of the wire
}

// Request is a message of the caller.
func (c *Caller) Request(op canonical.Op, body canonical.Body) *canonical.Message {
	m := &canonical.Message{Op: op, Phase: canonical.PhaseRequest, Body: body, Correlation: canonical.Correlation{WireID: own(ect.NewRandomID())}}
	if c.words() != uacp.Binding { // nothing of it is foreign; a frame that came from home would have its options from there
		m.Origin = canonical.Origin{Binding: c.words(), Version: c.side.version}
	}
	if c.side.Form == "GRPC" {
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

// Invoke says words, natively: a protocol of calls calls the only tool with them.
func (c *Caller) Invoke(text string) *canonical.Invoke {
	if c.side.Form == uacp.FormBare {
		text += " " + c.Wid
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

// encode is a message in the caller's words.
func (c *Caller) encode(m *canonical.Message, stream bool) (translators.Wire, []canonical.Loss, error) {
	wire, losses, err := c.form.Encode(m, translators.Target{
		Version: c.side.version, Form: c.side.Form, Stream: stream, Stamp: c.stamp(c.side.Binding, ""),
	})
	if err != nil {
		return wire, losses, err
	}
	wire.Binding, wire.Hasher = c.side.Binding, translators.HasherOf(c.form)
	wire, err = c.frame(wire)
	return wire, losses, err
}

// sealed is a message with a token of the caller's own.
func (c *Caller) sealed(ctx context.Context, wire translators.Wire) (transport.Sealed, error) {
	c.keeps(wire.HashInput())
	token, err := c.signer.Sign(ect.Claims{
		Act: "send_task", Audience: []string{c.Stage.Self()}, Workflow: c.Wid, Parents: c.parents, OutputHash: ect.Hash(wire.HashInput()),
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

// Ask sends a message and hears what comes of it. answer is asked for what to
// answer in the middle of a stream; nil: nothing is.
func (c *Caller) Ask(ctx context.Context, m *canonical.Message, stream bool, answer func(*canonical.Ask)) *Received {
	out := &Received{}
	wire, _, err := c.encode(m, stream)
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
	out.Evidence = reply.Evidence
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
func (c *Caller) listen(ctx context.Context, events transport.Events, op canonical.Op, out *Received, answer func(*canonical.Ask)) error {
	for {
		event, err := events.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		out.Evidence = append(out.Evidence, event.Evidence...)
		if len(event.Wire.Body) == 0 && event.Wire.Status == 0 {
			continue
		}
		if err := c.hear(event.Wire, op, true, out); err != nil {
			return err
		}
		if out.Events++; out.Events == 1 && c.Began != nil {
			c.Began()
		}
		if c.EachEvent != nil {
			c.EachEvent(out)
		}
		last := out.Messages[len(out.Messages)-1]
		if e, ok := last.Body.(*canonical.Event); ok && e.Ask != nil && answer != nil {
			answer(e.Ask)
		}
		if _, isEvent := last.Body.(*canonical.Event); !isEvent && c.form.Info().Streams == translators.StreamsReply {
			continue // what closes the stream may follow
		}
	}
}

func (c *Caller) hear(wire translators.Wire, op canonical.Op, event bool, out *Received) error {
	wire.Binding, wire.Version, wire.Form, wire.Re, wire.Event = c.side.Binding, c.side.version, c.side.Form, op, event
	wire, err := c.unframe(wire)
	if err != nil {
		return err
	}
	m, err := c.form.Decode(wire)
	if err != nil {
		return err
	}
	out.Messages = append(out.Messages, m)
	return nil
}

// last is the last message.
func (h *Received) last() canonical.Body {
	if len(h.Messages) == 0 {
		return nil
	}
	return h.Messages[len(h.Messages)-1].Body
}

// Refusal is what was answered in place of an answer; nil: nothing was, or it was
// none of the protocol's.
func (h *Received) Refusal() *canonical.Error {
	if refusal, ok := errors.AsType[*canonical.Error](h.failure); ok {
		return refusal
	}
	refusal, _ := h.last().(*canonical.Error)
	return refusal
}

// Refused is the code of a refusal; empty: there is none.
func (h *Received) Refused() string {
	refusal := h.Refusal()
	switch {
	case refusal != nil:
		return string(refusal.Code)
	case h.failure != nil:
		return "broken: " + h.failure.Error()
	default:
		return ""
	}
}

// dialogue is the one that the answer is in; empty: in none.
func (h *Received) dialogue() string {
	for _, m := range h.Messages {
		if m.Conversation.ContextID != "" {
			return m.Conversation.ContextID
		}
		if r, ok := m.Body.(*canonical.Result); ok && r.Output != nil {
			var structured struct {
				In string `json:"context_id"`
			}
			if json.Unmarshal(r.Output.Structured, &structured) == nil && structured.In != "" {
				return structured.In
			}
		}
	}
	return ""
}

// Task is the newest snapshot of work that was heard; nil: none.
func (h *Received) Task() *canonical.Task {
	var out *canonical.Task
	for _, m := range h.Messages {
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

// State is how the work stands in the end; empty: nobody says so.
func (h *Received) State() canonical.State {
	var out canonical.State
	for _, m := range h.Messages {
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
func (h *Received) parts() []canonical.Part {
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
	for _, m := range h.Messages {
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

// Text is all that was heard in words.
func (h *Received) Text() string {
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

// Noticed is what was said on the way.
func (h *Received) Noticed() string {
	var out []string
	for _, m := range h.Messages {
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

// Exposed: the agent can be called on the node.
func (c *Caller) Exposed(ctx context.Context) bool {
	c.Simulator.mu.Lock()
	defer c.Simulator.mu.Unlock()
	if !c.Simulator.seen[c.agent] {
		_, _, err := c.dialer.Describe(ctx, c.ep)
		c.Simulator.seen[c.agent] = err == nil
	}
	return c.Simulator.seen[c.agent]
}

// plainly is the same caller without a connection that stays open.
func (tr *Simulator) plainly(c *Caller) *Caller {
	out := *c
	out.side.Form = ""
	out.ep = tr.endpoint(out.side, c.agent)
	return &out
}
