package gateway

import (
	"bytes"
	"context"
	"encoding/json"

	keep "github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// made is the checkpoint of a message, and what was heard of its outcome so far. All methods of a nil one do nothing.
type made struct {
	keep.Made

	outcome keep.Outcome
	over    bool // the outcome is known
}

// protect makes the checkpoint of a message that may change something, which is signed and not sent (R22). agent is how tokens name its agent. A message that goes on with
// work that is under way has none: that of the work covers it.
func (g *Gateway) protect(ctx context.Context, x *request, agent string) error {
	if x.in.Call.Agent == "" || x.message.Op != canonical.OpInvoke || !x.started && !x.settings.Constraints.Checkpoint {
		return nil
	}
	repeats := x.claim != nil && x.claim.Prior.Resume == store.ResumeState
	tool, way := x.route.Called(x.message), x.to.Agent.Undo
	work := checkpoint.Work{
		Begins: x.record == nil || x.approval != "" || repeats, InWorkflow: x.started, Required: x.settings.Constraints.Checkpoint,
		Changes: destroys(x.route.Capability), ReadOnly: way.IsReadOnly(tool),
	}
	if !work.Needs() {
		return nil
	}
	action := keep.Action{
		Workflow: x.lineage.Workflow, Request: x.trail.Request(), Audience: []string{agent, string(x.in.Call.Caller.ID)},
		Agent: x.to.Agent.Name, Tool: tool, Undo: way, TTL: x.settings.CheckpointTTL, Owner: x.owner(), Holder: x.in.Holder,
	}
	if invoke, ok := x.message.Body.(*canonical.Invoke); ok && invoke.Call != nil {
		action.Call = invoke.Call.Args
	}
	m, err := g.parts.Checkpoints.Make(ctx, action)
	if err != nil {
		return err
	}
	x.trail.Add(m.Compact, m.ID)
	x.made = &made{Made: m}
	return nil
}

// destroys reports whether an agent says of a tool that it changes something. What it says makes the gateway more careful alone.
func destroys(c *canonical.Capability) bool {
	if c == nil || len(c.Annotations) == 0 {
		return false
	}
	var hints struct {
		Destructive bool `json:"destructiveHint"`
	}
	return json.Unmarshal(c.Annotations, &hints) == nil && hints.Destructive
}

// hears notes what a reply, or an event, says of the outcome.
func (c *made) hears(m *canonical.Message) {
	if c == nil {
		return
	}
	if canonical.FailureOf(m) != "" {
		c.outcome, c.over = keep.Outcome{Failed: true}, true
		return
	}
	switch body := m.Body.(type) {
	case *canonical.Result:
		c.over = body.Task == nil || body.Task.Status.State.Terminal()
		c.outcome.Failed = body.Pending != nil // it asks first, and has done nothing
	case *canonical.Event:
		c.over = c.over || body.Turn != nil || body.Status != nil && body.Status.State.Terminal() || body.Task != nil && body.Task.Status.State.Terminal()
	}
	if value := resultOf(m); value != nil {
		c.outcome.Result = value
	}
}

// ended keeps the outcome of a message that needed a checkpoint, once it is known.
func (g *Gateway) ended(ctx context.Context, x *request) {
	if x.made == nil || !x.made.over {
		return
	}
	g.parts.Checkpoints.Ended(context.WithoutCancel(ctx), x.made.Made, x.made.outcome)
	x.made = nil
}

// resultOf is the value that an answer has, for what points into it: the structured result, else the data, else the text,
// which is read as JSON if it is that. Nil: the answer has no value.
func resultOf(m *canonical.Message) json.RawMessage {
	switch body := m.Body.(type) {
	case *canonical.Result:
		switch {
		case body.Output != nil:
			return valueOf(body.Output.Structured, body.Output.Parts)
		case body.Turn != nil:
			return valueOf(nil, body.Turn.Parts)
		case body.Task != nil:
			return valueOfTask(body.Task)
		}
	case *canonical.Event:
		switch {
		case body.Task != nil:
			return valueOfTask(body.Task)
		case body.Artifact != nil:
			return valueOf(nil, body.Artifact.Artifact.Parts)
		case body.Turn != nil:
			return valueOf(nil, body.Turn.Parts)
		}
	}
	return nil
}

func valueOfTask(t *canonical.Task) json.RawMessage {
	if t.Output != nil {
		return valueOf(t.Output.Structured, t.Output.Parts)
	}
	for i := range t.Artifacts {
		if value := valueOf(nil, t.Artifacts[i].Parts); value != nil {
			return value
		}
	}
	return nil
}

func valueOf(structured json.RawMessage, parts []canonical.Part) json.RawMessage {
	if structured != nil {
		return structured
	}
	for i := range parts {
		if len(parts[i].Data) > 0 {
			return parts[i].Data
		}
	}
	text, there := canonical.TextOf(parts, "\n")
	switch {
	case !there:
		return nil
	case json.Valid([]byte(text)):
		return bytes.TrimSpace([]byte(text))
	}
	quoted, _ := json.Marshal(text)
	return quoted
}
