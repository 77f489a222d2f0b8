package peers

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// ConciergeSkill is the id of the only skill of the A2A agent.
const ConciergeSkill = "concierge"

// A2AAgent is a running A2A 1.0 agent with one skill, the concierge. A text that
// starts with a word of this table and a colon decides how it answers:
//
//	fail:     a task that ends FAILED, with the rest as its status message
//	reject:   a task that ends REJECTED, with the rest as its status message
//	ask:      a task that stops at INPUT_REQUIRED with the rest as its question;
//	          the next message to that task completes it
//	message:  a direct Message with the rest as its text, no task
//
// Anything else completes a task with one artifact: "You said: …" and then every
// part that was not text, as the SDK read it.
type A2AAgent struct{ server server }

// NewA2AAgent starts the agent on a free loopback port. Its card is at
// /.well-known/agent-card.json; JSON-RPC is served at the root.
func NewA2AAgent(ctx context.Context, d Deps) (*A2AAgent, error) {
	return NewA2AAgentOver(ctx, d, a2a.TransportProtocolJSONRPC, "")
}

// NewA2AAgentOver starts the same agent with another binding, which its card names alone:
// HTTP+JSON below the root, or what is served at another host:port.
func NewA2AAgentOver(ctx context.Context, d Deps, binding a2a.TransportProtocol, elsewhere string) (*A2AAgent, error) {
	a := &A2AAgent{}
	err := a.server.listen(ctx, d, func(base string) http.Handler {
		requests := Concierge(d)
		mux := http.NewServeMux()
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(conciergeCard(cmp.Or(elsewhere, base), binding)))
		handler := a2asrv.NewJSONRPCHandler(requests)
		if binding == a2a.TransportProtocolHTTPJSON {
			handler = a2asrv.NewRESTHandler(requests)
		}
		mux.Handle("/", handler)
		return mux
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Concierge answers the requests of any binding.
func Concierge(d Deps) a2asrv.RequestHandler {
	return a2asrv.NewHandler(concierge{}, a2asrv.WithLogger(d.logger()))
}

// URL is both the base of the agent's card and its JSON-RPC endpoint.
func (a *A2AAgent) URL() string { return a.server.base }

// Received returns the newest requests that reached the agent, oldest first.
func (a *A2AAgent) Received() []Received { return a.server.journal.snapshot() }

// Stop ends the agent, giving running requests until ctx ends, and waits for it.
func (a *A2AAgent) Stop(ctx context.Context) error {
	return a.server.stop(ctx)
}

func conciergeCard(base string, binding a2a.TransportProtocol) *a2a.AgentCard {
	return &a2a.AgentCard{
		Name:        "Concierge",
		Description: "Answers politely and gives back what it was handed.",
		Version:     "1.0.0",
		SupportedInterfaces: []*a2a.AgentInterface{
			a2a.NewAgentInterface(base, binding),
		},
		Capabilities:       a2a.AgentCapabilities{Streaming: true},
		DefaultInputModes:  []string{"text/plain", "application/json"},
		DefaultOutputModes: []string{"text/plain", "application/json"},
		Skills: []a2a.AgentSkill{{
			ID:          ConciergeSkill,
			Name:        "Concierge",
			Description: "Takes any message and says what it heard.",
			Tags:        []string{"talk"},
			Examples:    []string{"A table for two at eight, please."},
		}},
	}
}

// concierge is the agent's behaviour. It keeps nothing: the SDK's task store does.
type concierge struct{}

var _ a2asrv.AgentExecutor = concierge{}

// Execute answers one message.
func (concierge) Execute(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		for _, event := range answer(ec) {
			if !yield(event, nil) {
				return
			}
		}
	}
}

// Cancel gives up a task that waits for an answer.
func (concierge) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil)
	}
}

// answer lists the events that one message causes.
func answer(ec *a2asrv.ExecutorContext) []a2a.Event {
	text, rest := split(ec.Message.Parts)
	word, tail, found := strings.Cut(text, ":")
	say := a2a.NewTextPart(strings.TrimSpace(tail))
	if found && word == "message" {
		return []a2a.Event{a2a.NewMessageForTask(a2a.MessageRoleAgent, a2a.TaskInfo{ContextID: ec.ContextID}, say)}
	}
	var events []a2a.Event
	if ec.StoredTask == nil {
		events = append(events, a2a.NewSubmittedTask(ec, ec.Message))
	}
	if state, ok := outcome(word); found && ok {
		answered := a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, say)
		return append(events, a2a.NewStatusUpdateEvent(ec, state, answered))
	}
	return append(events, reply(ec, text, rest), a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCompleted, nil))
}

// outcome is the state that a leading word asks for.
func outcome(word string) (a2a.TaskState, bool) {
	switch word {
	case "fail":
		return a2a.TaskStateFailed, true
	case "reject":
		return a2a.TaskStateRejected, true
	case "ask":
		return a2a.TaskStateInputRequired, true
	default:
		return "", false
	}
}

func reply(ec *a2asrv.ExecutorContext, text string, rest []*a2a.Part) *a2a.TaskArtifactUpdateEvent {
	var parts []*a2a.Part
	if text != "" || len(rest) == 0 {
		parts = append(parts, a2a.NewTextPart("You said: "+text))
	}
	event := a2a.NewArtifactEvent(ec, append(parts, rest...)...)
	event.Artifact.Name = "reply"
	event.LastChunk = true
	return event
}

// split joins the text parts by blank lines and returns the others as they are.
func split(parts []*a2a.Part) (string, []*a2a.Part) {
	var texts []string
	var rest []*a2a.Part
	for _, p := range parts {
		if t, ok := p.Content.(a2a.Text); ok {
			texts = append(texts, string(t))
			continue
		}
		rest = append(rest, p)
	}
	return strings.Join(texts, "\n\n"), rest
}
