package rollback

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/ect"
)

// The reasons that the journal itself gives.
const (
	reasonNever    = "the action cannot be undone, or its checkpoint has ended"
	reasonOverdue  = "the time for the rollback is over"
	reasonDeclined = "an operator stopped the workflow instead of letting it go on"
	reasonUnknown  = "no answer came: it is not known whether the agent undid it"
)

const (
	maxToken  = 16 << 10 // bytes of a compact token
	maxRunner = 256      // bytes
)

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	Took       EventKind = "took"      // another runner goes on
	Paused     EventKind = "paused"    // the workflow is paused: a human looks before the first step
	Released   EventKind = "released"  // the human let it go on
	Declined   EventKind = "declined"  // the human stopped it instead: each step is left to it
	Sent       EventKind = "sent"      // the request of a step is signed: send it
	Unanswered EventKind = "lost"      // no answer came: it is sent again
	Undone     EventKind = "undone"    // the agent undid the step
	Failed     EventKind = "failed"    // the agent refused, or answered wrongly
	Overdue    EventKind = "overdue"   // By has passed, and the atd:error is signed
	Escalated  EventKind = "escalated" // the atd:escalate is signed
	Ended      EventKind = "ended"     // the atd:rollback_result is signed
)

// Event is something that happened.
type Event struct {
	Kind     EventKind
	Step     int       // of Sent, Unanswered, Undone and Failed: its place in Steps
	At       time.Time // required
	Token    string    // of Sent, Overdue, Escalated and Ended: the compact token that was signed, at most 16 KiB
	Restored string    // of Undone: the out_hash of the answer; empty: it had no such claim
	Reason   string    // of Failed: why; cut at 512 bytes
	Runner   string    // of Took: who goes on, 1 to 256 bytes
}

// Next makes the journal after an event, with the table of the package documentation. Its error is a [*StateError]: the
// event does not fit, and the journal comes back as it was. An event that was applied before does not fit any more.
func (j Journal) Next(e Event) (Journal, error) {
	next := j
	next.Steps = slices.Clone(j.Steps)
	next.Term++
	if problem := next.apply(e); problem != "" {
		err := &StateError{Kind: e.Kind, Step: e.Step, because: problem}
		if e.aboutStep() && e.Step >= 0 && e.Step < len(j.Steps) {
			err.State = j.Steps[e.Step].State
		}
		return j, err
	}
	return next, nil
}

// aboutStep reports whether an event is about one step.
func (e Event) aboutStep() bool {
	return slices.Contains([]EventKind{Sent, Unanswered, Undone, Failed}, e.Kind)
}

// signs reports whether an event brings a token.
func (e Event) signs() bool {
	return slices.Contains([]EventKind{Sent, Overdue, Escalated, Ended}, e.Kind)
}

// apply changes a journal that has its steps for itself, or says why it does not.
func (j *Journal) apply(e Event) (problem string) {
	at, open := j.current()
	switch {
	case j.Status != "":
		return "the rollback has ended"
	case e.signs() && !isToken(e.Token):
		return "it needs the compact token that was signed, of at most 16 KiB"
	case e.aboutStep() && (!open || e.Step != at):
		return "this is not the step that is undone now"
	case e.Kind == Sent && j.Review.open():
		return "a human looks before the first step"
	case e.aboutStep():
		return j.Steps[at].apply(e, j.By)
	}
	return j.applyWhole(e)
}

// applyWhole changes a journal by an event that is about no single step.
func (j *Journal) applyWhole(e Event) (problem string) {
	switch e.Kind {
	case Took:
		return j.take(e.Runner)
	case Paused, Released, Declined:
		return j.review(e)
	case Overdue:
		return j.expire(e)
	case Escalated:
		return j.escalate(e)
	case Ended:
		return j.end(e)
	default:
		return "there is no such kind of event"
	}
}

// apply changes the step that is undone now.
func (p *Progress) apply(e Event, by time.Time) (problem string) {
	switch {
	case e.Kind == Sent:
		return p.send(e, by)
	case p.State != StepSent:
		return "its request is not signed yet"
	case e.Kind == Undone && e.Restored != "" && !isHash(e.Restored):
		return "what was restored is no hash of 43 characters"
	case e.Kind == Undone:
		p.State, p.Restored = StepCompleted, e.Restored
	case e.Kind == Failed:
		p.State, p.Reason = StepFailed, text(e.Reason)
	case p.Tries == MaxTries: // Unanswered
		p.State, p.Reason = StepFailed, reasonUnknown
	default:
		p.Tries++
	}
	return ""
}

func (p *Progress) send(e Event, by time.Time) (problem string) {
	switch {
	case p.State != StepWaiting:
		return "its request is signed already: send that one"
	case !e.At.Before(by):
		return reasonOverdue
	}
	p.State, p.Request, p.Tries = StepSent, e.Token, 1
	return ""
}

func (j *Journal) take(runner string) (problem string) {
	switch {
	case !isName(runner, maxRunner):
		return "it needs the name of the runner, of 1 to 256 bytes"
	case runner == j.Runner:
		return "this runner has it already"
	}
	j.Runner = runner
	return ""
}

// reviews says which event leads where.
var reviews = map[Review]map[EventKind]Review{
	ReviewWanted: {Paused: ReviewPaused, Declined: ReviewDeclined},
	ReviewPaused: {Released: ReviewReleased, Declined: ReviewDeclined},
}

func (j *Journal) review(e Event) (problem string) {
	to, fits := reviews[j.Review][e.Kind]
	if _, open := j.current(); !fits || !open {
		return "no human is to look now, or the look is over"
	}
	j.Review = to
	if to == ReviewDeclined {
		j.leave(reasonDeclined)
	}
	return ""
}

// leave leaves all steps that have not ended to a human.
func (j *Journal) leave(reason string) {
	for i := range j.Steps {
		switch p := &j.Steps[i]; p.State {
		case StepWaiting:
			p.State, p.Reason = StepEscalated, reason
		case StepSent:
			p.State, p.Reason = StepEscalated, reason+": "+reasonUnknown
		default:
		}
	}
}

func (j *Journal) expire(e Event) (problem string) {
	_, open := j.current()
	switch {
	case !open:
		return "no step is left to undo"
	case e.At.Before(j.By):
		return "the time for the rollback is not over"
	}
	j.Error = e.Token
	j.leave(reasonOverdue)
	return ""
}

func (j *Journal) escalate(e Event) (problem string) {
	if j.Due(e.At).Kind != Escalate {
		return "steps are left to undo, or no step needs a human, or it was escalated before"
	}
	j.Escalation = e.Token
	return ""
}

func (j *Journal) end(e Event) (problem string) {
	if j.Due(e.At).Kind != End {
		return "steps are left to undo, or a human was not told yet"
	}
	j.Result, j.Status, j.Ended = e.Token, j.Outcome(), instant(e.At)
	return ""
}

// isToken reports whether a text can be a compact token.
func isToken(text string) bool {
	return len(text) > 0 && len(text) <= maxToken && !strings.ContainsFunc(text, notOfToken)
}

// notOfToken finds what a compact token does not consist of.
func notOfToken(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
}

// isHash accepts what [ect.Hash] makes.
func isHash(text string) bool {
	sum, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(sum) == 32 && len(text) == 43
}

// isName accepts a text of 1 to limit bytes without control characters.
func isName(text string, limit int) bool {
	return text != "" && len(text) <= limit && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// text cuts a reason to what a token may say.
func text(reason string) string {
	ext := ect.Ext{}
	ext.SetText(ect.ExtATDReason, reason)
	out, _ := ext.String(ect.ExtATDReason)
	return out
}

func instant(t time.Time) time.Time { return t.Round(0).UTC() }
