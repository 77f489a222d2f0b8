package execution

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var rewriteGolden = flag.Bool("update", false, "write testdata/next.txt as the table has it")

// factNames are the facts as testdata/next.txt has them.
var factNames = [facts]string{"agent task", "can subscribe", "stream open", "asking", "answers apart", "stubborn", "fetches"}

// TestNext_EveryStateAndEvent holds the table, as Next reads it, against one that a newcomer reads.
func TestNext_EveryStateAndEvent(t *testing.T) {
	t.Parallel()
	file := filepath.Join("testdata", "next.txt")
	got := whole()
	if *rewriteGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the table is\n%s", got)
	}
}

// whole is what each state does with each event.
func whole() string {
	var b strings.Builder
	for s := range Completed {
		fmt.Fprintf(&b, "%s\n", s)
		for e := range events {
			fmt.Fprintf(&b, "  %-15s %s\n", e, cell(s, e))
		}
	}
	b.WriteString("completed, failed, canceled, released, overtaken\n  every event     nothing follows\n")
	return b.String()
}

// cell is what follows on an event: the first of its rules whose facts all hold.
func cell(s State, e Event) string {
	var rules []string
	for _, r := range table {
		if r.on != e || !slices.Contains(r.from, s) {
			continue
		}
		var when []string
		for i := range facts {
			if r.when>>i&1 == 1 {
				when = append(when, factNames[i])
			}
		}
		to := r.to
		if to == same {
			to = s
		}
		if len(when) == 0 && len(rules) == 0 {
			return to.String()
		}
		if len(when) == 0 {
			return strings.Join(append(rules, "else "+to.String()), "; ")
		}
		rules = append(rules, strings.Join(when, " and ")+": "+to.String())
	}
	return strings.Join(append(rules, "impossible"), "; ")
}

// twin is the machine in other words: what an execution waits for, and what ends it.
func twin(s State, e Event, f Facts) (State, bool) {
	has := func(fact Facts) bool { return f&fact == fact }
	asksAgain := func() State { // how an agent with a task is asked
		switch {
		case has(Stubborn) || !has(AgentTask):
			return Failed
		case s == Fetching:
			return Fetching
		case has(CanSubscribe):
			return Subscribed
		}
		return Polling
	}
	goesOn := func() State { // with the stream in which the agent asked
		if has(Fetches) {
			return Fetching
		}
		return Streaming
	}
	gone := func() State {
		if has(AgentTask) {
			return Released
		}
		return Failed
	}
	hears := s <= Fetching
	open := hears || s == Input
	ended := s == Closing || s == Settled
	switch e { //nolint:exhaustive // events is no event
	case StreamOpened:
		if s == Sent {
			return Streaming, true
		}
		return s, hears
	case Update:
		if s == Input {
			return goesOn(), true
		}
		return s, hears
	case Outcome:
		if open && has(StreamOpen) {
			return Closing, true
		}
		if open {
			return Settled, true
		}
		return s, ended
	case AgentAsks:
		return Input, open
	case ResultApart:
		return Fetching, s == Polling
	case CallAgain, TaskDemanded:
		return Sent, hears
	case Quiet, Broke:
		return asksAgain(), open
	case Refused:
		return Polling, s == Subscribed
	case StreamClosed:
		if s == Closing {
			return Settled, true
		}
		return s, open
	case Answered, AnswerRefused:
		switch {
		case has(Asking):
			return Input, s == Input
		case e == AnswerRefused, has(StreamOpen):
			return goesOn(), s == Input
		case has(AnswersApart) && has(CanSubscribe):
			return Subscribed, s == Input
		case has(AnswersApart):
			return Polling, s == Input
		}
		return Sent, s == Input
	case Unchanged:
		return Released, s == Polling
	case Deadline, Dropped:
		return gone(), open || ended || s == Canceling
	case Unsaid:
		return Failed, open || ended || s == Canceling
	case Cancel:
		return Canceling, open || ended || s == Canceling
	case AgentStopped:
		return Canceled, s == Canceling
	case EndedElsewhere:
		return Overtaken, open || ended || s == Canceling
	case Saved:
		if s == Settled {
			return Completed, true
		}
		return s, s == Closing
	}
	return s, false
}

// steps is how far a random walk goes.
func steps(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("AEPB_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 100_000
}

// walk lets random events happen, to one execution after the other, and returns the first in which
// a table and the twin differ; "": there is none.
func walk(rows []row, random *rand.Rand, n int) string {
	s := Sent
	for range n {
		e, f := Event(random.UintN(uint(events))), Facts(random.UintN(1<<facts))
		before := s
		var err error
		s, err = next(rows, s, e, f)
		if before.Final() {
			if s != before || err != nil {
				return fmt.Sprintf("%s follows on %s, which is final", s, before)
			}
			s = Sent
			continue
		}
		want, ok := twin(before, e, f)
		if ok != (err == nil) || ok && s != want || err != nil && s != before {
			return fmt.Sprintf("%s, %s with %b: %s, %v; the twin says %s, %t", before, e, f, s, err, want, ok)
		}
		if e == Answered && err == nil && before != Input {
			return "an answer without a question"
		}
	}
	return ""
}

// TestNext_Twin walks with a twin of other words: no state without an exit, every final one told
// once, no answer without a question.
func TestNext_Twin(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if wrong := walk(table[:], rand.New(rand.NewPCG(seed, 1)), steps(t)); wrong != "" {
		t.Errorf("seed %d: %s", seed, wrong)
	}
	for s := range Completed {
		ends := false
		for e := range events {
			next, err := Next(s, e, 0)
			ends = ends || err == nil && next != s
		}
		if !ends {
			t.Errorf("%s has no exit", s)
		}
	}
}

// TestNext_PlantedFaults: a table with a fault is found by the walk.
func TestNext_PlantedFaults(t *testing.T) {
	t.Parallel()
	for i := range table {
		for name, plant := range map[string]func(*row){
			"another end":   func(r *row) { r.to = (r.to + 1) % states },
			"one fact more": func(r *row) { r.when ^= AgentTask },
			"no such row":   func(r *row) { r.from = nil },
		} {
			planted := append([]row(nil), table[:]...)
			plant(&planted[i])
			if walk(planted, rand.New(rand.NewPCG(uint64(i), 2)), 200_000) == "" && !alike(planted) {
				t.Errorf("row %d (%v on %s), %s: not found", i, table[i].from, table[i].on, name)
			}
		}
	}
}

// alike reports whether a fault changes nothing: another row gives the same.
func alike(planted []row) bool {
	for s := range Completed {
		for e := range events {
			for f := range Facts(1) << facts {
				a, errA := next(table[:], s, e, f)
				b, errB := next(planted, s, e, f)
				if a != b || (errA == nil) != (errB == nil) {
					return false
				}
			}
		}
	}
	return true
}

// TestImpossibleError_Names: the error names what cannot happen, and where.
func TestImpossibleError_Names(t *testing.T) {
	t.Parallel()
	_, err := Next(Settled, Answered, 0)
	if impossible, ok := errors.AsType[*ImpossibleError](err); !ok || impossible.State != Settled || !strings.Contains(err.Error(), `"answered" cannot happen to one that is settled`) {
		t.Error(err)
	}
}
