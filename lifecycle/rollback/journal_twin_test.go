package rollback_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// journalTwin is a rollback as the list of all events that happened to it, judged afresh each time.
type journalTwin struct {
	ways   []rollback.How
	review bool // a human is to look first
	log    []rollback.Event
}

// looks says how far the look of a human is.
func (w journalTwin) looks() rollback.Review {
	switch {
	case !w.review:
		return ""
	case w.count(rollback.Declined, -1) > 0:
		return rollback.ReviewDeclined
	case w.count(rollback.Released, -1) > 0:
		return rollback.ReviewReleased
	case w.count(rollback.Paused, -1) > 0:
		return rollback.ReviewPaused
	}
	return rollback.ReviewWanted
}

// count is how many events of a kind there were about a step; below zero: about any.
func (w journalTwin) count(kind rollback.EventKind, step int) (n int) {
	for _, e := range w.log {
		if e.Kind == kind && (step < 0 || e.Step == step) {
			n++
		}
	}
	return n
}

func (w journalTwin) state(step int) rollback.StepState {
	switch {
	case w.ways[step] == rollback.Nothing:
		return rollback.StepSkipped
	case w.ways[step] == rollback.Never:
		return rollback.StepEscalated
	case w.count(rollback.Undone, step) > 0:
		return rollback.StepCompleted
	case w.count(rollback.Failed, step) > 0, w.count(rollback.Unanswered, step) == rollback.MaxTries:
		return rollback.StepFailed
	case w.count(rollback.Overdue, -1)+w.count(rollback.Declined, -1) > 0:
		return rollback.StepEscalated
	case w.count(rollback.Sent, step) > 0:
		return rollback.StepSent
	default:
		return rollback.StepWaiting
	}
}

func (w journalTwin) number(state rollback.StepState) (n int) {
	for step := range w.ways {
		if w.state(step) == state {
			n++
		}
	}
	return n
}

// turn is the step that is undone now; -1: there is none.
func (w journalTwin) turn() int {
	for step := range w.ways {
		if s := w.state(step); w.number(rollback.StepFailed) == 0 && (s == rollback.StepWaiting || s == rollback.StepSent) {
			return step
		}
	}
	return -1
}

func (w journalTwin) runner() string {
	runner := "runner 1"
	for _, e := range w.log {
		if e.Kind == rollback.Took {
			runner = e.Runner
		}
	}
	return runner
}

// fits reports whether an event is possible now.
func (w journalTwin) fits(e rollback.Event) bool {
	over := !e.At.Before(noon.Add(time.Hour))
	turn, human, informed := w.turn(), w.number(rollback.StepEscalated) > 0, w.count(rollback.Escalated, -1) > 0
	if w.count(rollback.Ended, -1) > 0 {
		return false
	}
	switch e.Kind {
	case rollback.Took:
		return e.Runner != "" && e.Runner != w.runner()
	case rollback.Sent:
		return e.Token != "" && turn >= 0 && e.Step == turn && w.state(turn) == rollback.StepWaiting && !over &&
			(w.looks() == "" || w.looks() == rollback.ReviewReleased)
	case rollback.Paused:
		return turn >= 0 && w.looks() == rollback.ReviewWanted
	case rollback.Released:
		return turn >= 0 && w.looks() == rollback.ReviewPaused
	case rollback.Declined:
		return turn >= 0 && (w.looks() == rollback.ReviewPaused || w.looks() == rollback.ReviewWanted)
	case rollback.Unanswered, rollback.Failed:
		return turn >= 0 && e.Step == turn && w.state(turn) == rollback.StepSent
	case rollback.Undone:
		return turn >= 0 && e.Step == turn && w.state(turn) == rollback.StepSent && (e.Restored == "" || len(e.Restored) == 43)
	case rollback.Overdue:
		return e.Token != "" && turn >= 0 && over
	case rollback.Escalated:
		return e.Token != "" && turn < 0 && human && !informed
	case rollback.Ended:
		return e.Token != "" && turn < 0 && (informed || !human)
	default:
		return false
	}
}

// shown is what can be compared of a journal.
type journalShown struct {
	term   uint64
	runner string
	review rollback.Review
	states []rollback.StepState
	tries  []int
	tokens []string // of requests, the error, the escalation, the result
	status rollback.Status
	ended  bool
}

func (w journalTwin) shown() journalShown {
	s := journalShown{term: uint64(1 + len(w.log)), runner: w.runner(), review: w.looks(), ended: w.count(rollback.Ended, -1) > 0}
	token := func(kind rollback.EventKind, step int) (text string) {
		for _, e := range w.log {
			if e.Kind == kind && (step < 0 || e.Step == step) {
				text = e.Token
			}
		}
		return text
	}
	for step := range w.ways {
		s.states = append(s.states, w.state(step))
		s.tries = append(s.tries, min(w.count(rollback.Sent, step)*(1+w.count(rollback.Unanswered, step)), rollback.MaxTries))
		s.tokens = append(s.tokens, token(rollback.Sent, step))
	}
	s.tokens = append(s.tokens, token(rollback.Overdue, -1), token(rollback.Escalated, -1), token(rollback.Ended, -1))
	done := w.number(rollback.StepCompleted)
	switch {
	case !s.ended:
	case done+w.number(rollback.StepSkipped) == len(w.ways):
		s.status = rollback.StatusCompleted
	case done > 0:
		s.status = rollback.StatusPartial
	case w.number(rollback.StepFailed) > 0:
		s.status = rollback.StatusFailed
	default:
		s.status = rollback.StatusEscalated
	}
	return s
}

func shownOf(j rollback.Journal) journalShown {
	s := journalShown{term: j.Term, runner: j.Runner, review: j.Review, status: j.Status, ended: !j.Ended.IsZero()}
	for _, p := range j.Steps {
		s.states, s.tries, s.tokens = append(s.states, p.State), append(s.tries, p.Tries), append(s.tokens, p.Request)
	}
	s.tokens = append(s.tokens, j.Error, j.Escalation, j.Result)
	return s
}

// randomEvent is an event that often fits.
func randomEvent(r *rand.Rand, j rollback.Journal, n int) rollback.Event {
	kinds := []rollback.EventKind{
		rollback.Took, rollback.Sent, rollback.Unanswered, rollback.Undone, rollback.Failed, rollback.Overdue, rollback.Escalated, rollback.Ended, rollback.Paused, rollback.Released, rollback.Declined, "",
	}
	e := rollback.Event{
		Kind: kinds[r.IntN(len(kinds))], Step: r.IntN(len(j.Steps)+2) - 1, At: noon.Add(time.Duration(r.IntN(61)) * time.Minute), Token: fmt.Sprint("token-", n),
		Restored: []string{"", ect.Hash([]byte{byte(n)}), "state"}[r.IntN(3)], Reason: "refused", Runner: fmt.Sprint("runner ", r.IntN(3)),
	}
	if due := j.Due(e.At); r.IntN(2) == 0 {
		e.Step = due.Step
		switch due.Kind {
		case rollback.Hold:
			e.Kind = rollback.Paused
		case rollback.Await:
			e.Kind = rollback.Released
		case rollback.Sign:
			e.Kind = rollback.Sent
		case rollback.Send:
			e.Kind = []rollback.EventKind{rollback.Unanswered, rollback.Unanswered, rollback.Unanswered, rollback.Undone, rollback.Undone, rollback.Failed}[r.IntN(6)]
		case rollback.Report:
			e.Kind = rollback.Overdue
		case rollback.Escalate:
			e.Kind = rollback.Escalated
		case rollback.End:
			e.Kind = rollback.Ended
		default:
		}
	}
	if r.IntN(20) == 0 {
		e.Token, e.Runner = "", ""
	}
	return e
}

// journalPromises checks in words what holds of each change.
func journalPromises(was, is rollback.Journal, e rollback.Event) string {
	if _, err := is.Next(e); err == nil && e.Kind != rollback.Unanswered {
		return "the same event has a second effect"
	}
	sent := 0
	for i, p := range is.Steps {
		before := was.Steps[i]
		switch {
		case before.State != rollback.StepWaiting && before.State != rollback.StepSent && before != p:
			return "a step changed after its end"
		case before.Request != "" && before.Request != p.Request:
			return "a second request was signed"
		case p.State == rollback.StepCompleted && before.State != p.State && (e.Kind != rollback.Undone || e.Step != i):
			return "a step is completed without its answer"
		case p.Request != "" && slices.ContainsFunc(is.Steps[:i], func(q rollback.Progress) bool {
			return q.State == rollback.StepWaiting || q.State == rollback.StepSent || q.State == rollback.StepFailed
		}):
			return "a step was sent before its turn"
		}
		if p.State == rollback.StepSent {
			sent++
		}
	}
	switch {
	case sent > 1:
		return "two steps are sent at once"
	case is.Term != was.Term+1:
		return "the term did not grow by one"
	case was.Status != "":
		return "something changed after the end"
	case is.Status != "" && is.Due(e.At).Kind != rollback.Done:
		return "something is due after the end"
	}
	return ""
}

// finish does what is due when the time is over, until nothing is.
func finish(j rollback.Journal) error {
	late := noon.Add(2 * time.Hour)
	for range 4 {
		due := j.Due(late)
		kind, is := map[rollback.EffectKind]rollback.EventKind{rollback.Report: rollback.Overdue, rollback.Escalate: rollback.Escalated, rollback.End: rollback.Ended}[due.Kind]
		if due.Kind == rollback.Done {
			return nil
		}
		next, err := j.Next(rollback.Event{Kind: kind, At: late, Token: "token"})
		if !is || err != nil {
			return fmt.Errorf("%s is due: %w", due.Kind, err)
		}
		j = next
	}
	return errors.New("it does not end")
}

// TestJournal_Twin goes through random events with the journal and its twin.
func TestJournal_Twin(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(22, 10))
	ways := []rollback.How{rollback.ByAgent, rollback.ByCall, rollback.ByCall, rollback.ByCall, rollback.Nothing, rollback.Never}
	seen := map[string]int{}
	for range steps(t) {
		w := journalTwin{}
		for range random.IntN(5) {
			w.ways = append(w.ways, ways[random.IntN(len(ways))])
		}
		j := begin(w.ways...)
		if w.review = random.IntN(3) == 0; w.review {
			j.Review = rollback.ReviewWanted
		}
		for n := range random.IntN(16) {
			e := randomEvent(random, j, n)
			next, err := j.Next(e)
			if fits := w.fits(e); fits != (err == nil) {
				t.Fatalf("%+v: %v, the twin says %t after %+v of %v", e, err, fits, w.log, w.ways)
			}
			if err != nil {
				seen["refused"]++
				continue
			}
			w.log = append(w.log, e)
			seen[string(e.Kind)]++
			if got, want := shownOf(next), w.shown(); !reflect.DeepEqual(got, want) {
				t.Fatalf("got  %+v\nwant %+v\nafter %+v of %v", got, want, w.log, w.ways)
			}
			if problem := journalPromises(j, next, e); problem != "" {
				t.Fatalf("%s: after %+v of %v", problem, w.log, w.ways)
			}
			j = next
		}
		seen["status "+string(j.Status)]++
		if err := finish(j); err != nil {
			t.Fatalf("%v: after %+v of %v", err, w.log, w.ways)
		}
		if random.IntN(5) > 0 {
			continue
		}
		text, err := j.Encode()
		if again, errAgain := rollback.Decode(text); err != nil || errAgain != nil || !reflect.DeepEqual(again, j) {
			t.Fatalf("%v, %v: stored and read as %+v\nwas %+v", err, errAgain, again, j)
		}
	}
	for _, kind := range []string{"refused", "took", "sent", "lost", "undone", "failed", "overdue", "escalated", "ended", "paused", "released", "declined", "status completed", "status partial", "status failed", "status escalated", "status "} {
		if seen[kind] < 50 {
			t.Errorf("only %d cases of %q", seen[kind], kind)
		}
	}
	t.Log(seen)
}
