package gatewaytest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// echo says again what was said: the words, and the rest part by part.
func (p *part) echo(body *canonical.Invoke, text string) *canonical.Result {
	r := p.result("You said: " + text)
	more := slices.DeleteFunc(slices.Clone(body.Turn.Parts), func(p canonical.Part) bool { return p.Kind == canonical.KindText })
	var args struct {
		Data  json.RawMessage
		Files []struct {
			Name, MediaType, URI string
			Bytes                []byte
		}
	}
	if body.Call != nil && len(more) == 0 && json.Unmarshal(body.Call.Args, &args) == nil {
		if args.Data != nil {
			more = append(more, canonical.Part{Kind: canonical.KindData, Data: args.Data})
		}
		for _, f := range args.Files {
			kind := canonical.KindFile
			if f.URI != "" {
				kind = canonical.KindRef
			}
			more = append(more, canonical.Part{Kind: kind, Name: f.Name, Media: f.MediaType, Bytes: f.Bytes, URI: f.URI})
		}
	}
	for i := range more {
		more[i].Extensions = nil
	}
	switch {
	case r.Task != nil:
		r.Task.Artifacts[0].Parts = append(r.Task.Artifacts[0].Parts, more...)
	default:
		r.Output.Parts = append(r.Output.Parts, more...)
	}
	return r
}

func textPart(text string) []canonical.Part {
	return []canonical.Part{{Kind: canonical.KindText, Text: text}}
}

func spoken1(text string) *canonical.Content {
	return &canonical.Content{ID: string(ect.NewID()), Role: canonical.RoleAgent, Parts: textPart(text)}
}

// result is a text, as the agent's protocol likes to say one.
func (p *part) result(text string) *canonical.Result {
	if p.words == a2a.Binding {
		return &canonical.Result{Task: &canonical.Task{
			ID: p.task(), ContextID: p.context(), Status: canonical.Status{State: canonical.StateCompleted},
			Artifacts: []canonical.Artifact{{ID: "a1", Parts: textPart(text)}},
		}}
	}
	return &canonical.Result{Output: &canonical.Output{Parts: textPart(text)}}
}

// sum is a value, as the agent's protocol likes to say one.
func (p *part) sum(sum string) *canonical.Result {
	value := json.RawMessage(`{"sum":` + sum + `}`)
	if r := p.result(""); r.Task != nil {
		r.Task.Artifacts[0].Parts = []canonical.Part{{Kind: canonical.KindData, Data: value}}
		return r
	}
	return &canonical.Result{Output: &canonical.Output{Structured: value}}
}

func (p *part) failure(text string) *canonical.Result {
	if p.words == a2a.Binding {
		return &canonical.Result{Task: &canonical.Task{
			ID: p.task(), ContextID: p.context(), Status: canonical.Status{State: canonical.StateFailed, Message: spoken1(text)},
		}}
	}
	return &canonical.Result{Output: &canonical.Output{Parts: textPart(text), Failed: true}}
}

func (p *part) context() string {
	if id := p.request.Conversation.ContextID; id != "" {
		return id
	}
	return "played"
}

func (p *part) task() string { return string(ect.NewID()) }

// message is something that the agent says in answer.
func (p *part) message(phase canonical.Phase, body canonical.Body) *canonical.Message {
	m := &canonical.Message{
		Op: p.request.Op, Phase: phase, Body: body, Correlation: canonical.Correlation{WireID: p.request.Correlation.WireID},
		Conversation: canonical.Conversation{ContextID: p.context(), TaskID: p.request.Conversation.TaskID},
	}
	m.Preferences.TaskOK = p.request.Preferences.TaskOK
	if _, native := body.(*canonical.Native); native {
		m.Origin = canonical.Origin{Binding: p.words, Version: p.request.Origin.Version}
	}
	if r, ok := body.(*canonical.Result); ok && r.Task != nil {
		m.Conversation.TaskID, m.Conversation.ContextID = r.Task.ID, r.Task.ContextID
	}
	return m
}

// encoded is that in the agent's words.
func (p *part) encoded(m *canonical.Message) (translators.Wire, error) {
	wire, _, err := p.form.Encode(m, translators.Target{
		Version: p.request.Origin.Version, Form: p.call.Wire.Form, Stream: m.Phase == canonical.PhaseEvent,
		Capability: p.capability(), Stamp: p.simulator.stamp(p.call.Wire.Binding, p.call.Program.Sender),
	})
	if err != nil {
		return wire, err
	}
	wire.Binding = p.call.Wire.Binding
	wire.Re, wire.Path, wire.Event = p.request.Op, p.call.Wire.Path, m.Phase == canonical.PhaseEvent
	return p.simulator.frame(wire)
}

func (p *part) capability() *canonical.Capability {
	if p.known == nil {
		return nil
	}
	c := p.known.Capabilities[0]
	if p.words == mcp.Binding { // a server's tool has a schema of its own, and answers in its own way
		c.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	return &c
}

func (p *part) reply(body canonical.Body) (transport.Answer, error) {
	wire, err := p.encoded(p.message(canonical.PhaseResponse, body))
	return transporttest.Answer(wire), err
}

// stamp is what only the simulator knows of a message.
func (tr *Simulator) stamp(id canonical.Binding, to string) translators.Addressing {
	stamper, ok := tr.List[id].Dialer.(transport.Addresser)
	if !ok {
		return translators.Addressing{}
	}
	return translators.Addressing{From: stamper.Self(), To: to, At: time.Now()}
}

func (tr *Simulator) frame(wire translators.Wire) (translators.Wire, error) {
	if framer, ok := tr.List[wire.Binding].Dialer.(transport.WireFormat); ok {
		framed, _, err := framer.Frame(wire)
		return framed, err
	}
	return wire, nil
}

func (tr *Simulator) unframe(wire translators.Wire) (translators.Wire, error) {
	if framer, ok := tr.List[wire.Binding].Dialer.(transport.WireFormat); ok {
		return framer.Unframe(wire)
	}
	return wire, nil
}
