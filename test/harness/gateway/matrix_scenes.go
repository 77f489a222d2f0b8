package gatewaytest

import (
	"context"
	"encoding/json"
	"io"
	"strconv"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// line is one message of a scene; nil: nothing to say.
type line func(context.Context) (canonical.Body, error)

// scene is a stream that an agent plays.
type scene struct {
	part  *part
	lines []line
}

// Next plays the next line.
func (s *scene) Next(ctx context.Context) (transport.Event, error) {
	if len(s.lines) == 0 {
		return transport.Event{}, io.EOF
	}
	body, err := s.lines[0](ctx)
	s.lines = s.lines[1:]
	if err != nil {
		return transport.Event{}, err
	}
	phase := canonical.PhaseEvent
	if _, reply := body.(*canonical.Result); reply {
		phase = canonical.PhaseResponse
	}
	wire, err := s.part.encoded(s.part.message(phase, body))
	return transport.Event{Wire: wire}, err
}

// Close ends it.
func (s *scene) Close() error { return nil }

func (p *part) play(lines ...line) (transport.Answer, error) {
	return transporttest.Stream(&scene{p, lines}), nil
}

func saying1(body canonical.Body) line {
	return func(context.Context) (canonical.Body, error) { return body, nil }
}

// streams: whoever asked listens to more than one message.
func (p *part) streams() bool {
	switch {
	case p.words == mcp.Binding:
		return p.request.Correlation.Progress != nil && p.call.Wire.Binding == mcp.Binding
	case p.call.Wire.Binding == ainp.Binding:
		return p.call.Wire.Form == ainp.FormSocket
	default:
		return p.request.Preferences.Stream
	}
}

// tell says how it goes.
func (p *part) tell() (transport.Answer, error) {
	if !p.streams() {
		return p.reply(p.result("first second"))
	}
	switch p.words {
	case mcp.Binding:
		return p.play(
			saying1(&canonical.Event{Progress: &canonical.Progress{Token: p.request.Correlation.Progress, Value: json.RawMessage("1"), Message: "under way"}}),
			saying1(p.result("first second")),
		)
	case ainp.Binding:
		return p.play(
			saying1(&canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, Message: spoken1("under way")}}),
			saying1(p.result("first second")),
		)
	default:
		p.request.Conversation.TaskID = p.task()
		task := &canonical.Task{ID: p.request.Conversation.TaskID, ContextID: p.context(), Status: canonical.Status{State: canonical.StateSubmitted}}
		return p.play(
			saying1(&canonical.Event{Task: task}),
			saying1(&canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, Message: spoken1("under way")}}),
			saying1(artifactOf("first")), saying1(artifactOf("second")),
			saying1(&canonical.Event{Status: &canonical.Status{State: canonical.StateCompleted}}),
		)
	}
}

// Steps is how far a doCountUp goes.
const Steps = 10

// countUp says how far it is, step by step.
func (p *part) countUp(name string) (transport.Answer, error) {
	if !p.streams() {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "only in a stream"}
	}
	job := p.begin(name, canonical.StateWorking, false)
	var lines []line
	for i := range Steps {
		lines = append(lines, func(ctx context.Context) (canonical.Body, error) {
			if i > 0 {
				if err := job.wait(ctx); err != nil {
					return nil, err
				}
			}
			text := "step " + strconv.Itoa(i+1)
			if p.words == mcp.Binding {
				return &canonical.Event{Progress: &canonical.Progress{
					Token: p.request.Correlation.Progress, Value: json.RawMessage(strconv.Itoa(i + 1)), Message: text,
				}}, nil
			}
			return &canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, Message: spoken1(text)}}, nil
		})
	}
	return p.play(append(lines, saying1(p.result("counted")))...)
}

// spell says one artifact chunk by chunk, and another with two texts at once.
func (p *part) spell() (transport.Answer, error) {
	if !p.streams() {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "only in a stream"}
	}
	p.request.Conversation.TaskID = p.task()
	task := &canonical.Task{ID: p.request.Conversation.TaskID, ContextID: p.context(), Status: canonical.Status{State: canonical.StateWorking}}
	lines := []line{saying1(&canonical.Event{Task: task})}
	for i, chunk := range []string{"Hello ", "wor", "ld"} {
		lines = append(lines, saying1(&canonical.Event{Artifact: &canonical.ArtifactUpdate{
			Append: i > 0, Last: i == 2, Artifact: canonical.Artifact{ID: "spelled", Parts: textPart(chunk)},
		}}))
	}
	two := artifactOf("one")
	two.Artifact.Artifact.Parts = append(two.Artifact.Artifact.Parts, textPart("two")...)
	return p.play(append(lines, saying1(two), saying1(&canonical.Event{Status: &canonical.Status{State: canonical.StateCompleted}}))...)
}

func artifactOf(text string) *canonical.Event {
	return &canonical.Event{Artifact: &canonical.ArtifactUpdate{Last: true, Artifact: canonical.Artifact{ID: text, Parts: textPart(text)}}}
}
