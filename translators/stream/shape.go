package stream

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Shape says between which ways a [Shaper] stands, and for whom.
type Shape struct {
	From, To translators.Streams
	// TaskID and ContextID are those of the task that a stream of tasks begins
	// with if the source shows none.
	TaskID, ContextID string
	// Token is what the reader of a stream with a reply wants progress under;
	// nil: it wants none.
	Token json.RawMessage
	Relay bool // both sides speak one protocol: events pass unchanged
}

// Shaper tells the events of one stream in the way of another.
type Shaper struct {
	shape Shape
	begun bool
	last  *big.Rat         // the greatest progress said so far
	first []canonical.Part // of an artifact that has begun, and of which nothing more has come
}

// NewShaper begins a stream.
func NewShaper(s Shape) *Shaper { return &Shaper{shape: s} }

// Event tells one event. What it leaves out on purpose is among the losses.
func (s *Shaper) Event(e *canonical.Event) ([]canonical.Event, []canonical.Loss) {
	switch {
	case s.shape.From == s.shape.To && !s.anew(e):
		return []canonical.Event{*e}, nil
	case s.shape.To == translators.StreamsTask:
		return s.toTask(e)
	case s.shape.To == translators.StreamsReply:
		return s.toReply(e)
	default:
		return nil, nil
	}
}

// anew reports whether an event must be written anew for a protocol with notifications. A change
// of state (AINP) is progress elsewhere (MCP), and progress has its receiver's token.
func (s *Shaper) anew(e *canonical.Event) bool {
	if s.shape.Relay || s.shape.To != translators.StreamsReply {
		return false
	}
	return e.Status != nil || e.Artifact != nil || e.Progress != nil && !bytes.Equal(e.Progress.Token, s.shape.Token)
}

// toTask turns notifications into changes of a task, and sends that task first.
func (s *Shaper) toTask(e *canonical.Event) ([]canonical.Event, []canonical.Loss) {
	switch {
	case e.Task != nil, e.Turn != nil:
		s.begun = true
		return []canonical.Event{*e}, nil
	case e.Ask != nil:
		status := canonical.Status{State: canonical.StateInputRequired}
		return s.begin(canonical.Event{Status: &status, Inputs: []canonical.Input{e.Ask.Input}}), nil
	case e.Native != nil:
		return nil, dropped(canonical.LossPrompts, "/body/native")
	case e.Log != nil:
		return nil, dropped(canonical.LossProgress, "/body/log")
	case e.Progress != nil:
		e.Progress = &canonical.Progress{Value: e.Progress.Value, Total: e.Progress.Total, Message: e.Progress.Message}
	}
	return s.begin(*e), nil
}

// begin puts the task in front of its first change.
func (s *Shaper) begin(e canonical.Event) []canonical.Event {
	if s.begun {
		return []canonical.Event{e}
	}
	s.begun = true
	return []canonical.Event{{Task: begun(s.shape.TaskID, s.shape.ContextID)}, e}
}

// Begin is what a stream of tasks says before anything has happened. One that
// comes from a stream of tasks begins by itself.
func (s *Shaper) Begin() []canonical.Event {
	if s.begun || s.shape.To != translators.StreamsTask || s.shape.From == s.shape.To {
		return nil
	}
	s.begun = true
	return []canonical.Event{{Task: begun(s.shape.TaskID, s.shape.ContextID)}}
}

// toReply turns changes, and chunks of artifacts as they come, into progress for a caller that
// asked for it. The reply holds whole artifacts. The first chunk of one waits for the next
// event: often it is the whole artifact, and the reply follows.
func (s *Shaper) toReply(e *canonical.Event) ([]canonical.Event, []canonical.Loss) {
	if e.Artifact != nil && (e.Artifact.Append || !e.Artifact.Last) {
		events := s.chunk(s.first)
		if s.first = e.Artifact.Artifact.Parts; e.Artifact.Append {
			events, s.first = append(events, s.chunk(s.first)...), nil
		}
		return events, dropped(canonical.LossChunks, "/body/artifact")
	}
	var before []canonical.Event
	if ends := e.Turn != nil || e.Task != nil && Settled(e.Task.Status.State) || e.Status != nil && Settled(e.Status.State); !ends {
		before = s.chunk(s.first)
	}
	s.first = nil
	events, losses := s.change(e)
	return append(before, events...), losses
}

// change is an event that is no chunk, as progress.
func (s *Shaper) change(e *canonical.Event) ([]canonical.Event, []canonical.Loss) {
	switch {
	case e.Status != nil && !Settled(e.Status.State):
		text := ""
		if e.Status.Message != nil {
			text, _ = canonical.TextOf(e.Status.Message.Parts, "\n\n")
		}
		if s.shape.Token == nil || text == "" {
			return nil, dropped(canonical.LossStatusUpdates, "/body/status")
		}
		return s.progress(&canonical.Progress{Message: text}), nil
	case e.Progress != nil && s.shape.Token != nil:
		return s.progress(e.Progress), nil
	case e.Progress != nil:
		return nil, dropped(canonical.LossProgress, "/body/progress")
	default:
		return nil, nil
	}
}

// maxChunk bounds the text of a chunk that is sent as progress, in bytes.
const maxChunk = 1 << 10

// chunk tells the words of a chunk as progress: their beginning, where there are many. All of it is in the reply.
func (s *Shaper) chunk(parts []canonical.Part) []canonical.Event {
	text, _ := canonical.TextOf(parts, "\n\n")
	if s.shape.Token == nil || text == "" {
		return nil
	}
	if len(text) > maxChunk {
		end := maxChunk
		for end > 0 && !utf8.RuneStart(text[end]) { // not every codec sees to it that a text is one
			end--
		}
		if text = text[:end]; text == "" {
			return nil
		}
	}
	return s.progress(&canonical.Progress{Message: text})
}

// progress keeps the value strictly increasing (MCP, progress).
func (s *Shaper) progress(p *canonical.Progress) []canonical.Event {
	copied := *p
	copied.Token = s.shape.Token
	value, ok := number(p.Value)
	if !ok || s.last != nil && value.Cmp(s.last) <= 0 {
		value = s.next()
		copied.Value = json.RawMessage(strings.TrimSuffix(value.FloatString(0), "."))
		copied.Total = nil
	}
	s.last = value
	return []canonical.Event{{Progress: &copied}}
}

// next is the next whole number.
func (s *Shaper) next() *big.Rat {
	if s.last == nil {
		return big.NewRat(1, 1)
	}
	whole := new(big.Int).Quo(s.last.Num(), s.last.Denom())
	return new(big.Rat).SetInt(whole.Add(whole, big.NewInt(1)))
}

// number reads a JSON number exactly; one of more than 32 characters is none,
// and neither is one with a large exponent.
func number(raw json.RawMessage) (*big.Rat, bool) {
	const longest, farthest = 32, 64
	if len(raw) == 0 || len(raw) > longest {
		return nil, false
	}
	if _, exp, ok := strings.Cut(strings.ToLower(string(raw)), "e"); ok {
		if n, err := strconv.Atoi(exp); err != nil || n > farthest || n < -farthest {
			return nil, false
		}
	}
	return new(big.Rat).SetString(string(raw))
}

// End tells the reply of the source, where it has one: in events, or as the
// reply that it is. What a stream of tasks adds up to is the reply for those who
// want one, and nothing new for others: it is not told here.
func (s *Shaper) End(result *canonical.Result) ([]canonical.Event, *canonical.Result) {
	switch {
	case s.shape.To != translators.StreamsTask:
		return nil, result
	case result.Task != nil && !s.begun:
		s.begun = true
		return []canonical.Event{{Task: result.Task}}, nil
	case result.Turn != nil && !s.begun:
		s.begun = true
		return []canonical.Event{{Turn: result.Turn}}, nil
	case result.Turn != nil: // in a stream with a task, what is said belongs to it
		result = &canonical.Result{Output: &canonical.Output{Parts: result.Turn.Parts}, Extensions: result.Extensions}
	}
	return append(s.Begin(), Unfold(result)...), nil
}

func dropped(code canonical.LossCode, path string) []canonical.Loss {
	return []canonical.Loss{{Code: code, Path: path, Fate: canonical.Dropped}}
}
