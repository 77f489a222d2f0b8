package lifecycle_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle"
)

// twin is a lifecycle as simple as it can be said: texts and seconds, and a case for each thing
// that can happen. It shares no line with the package.
type twin struct {
	state                string
	term                 int
	deprecated, sunset   int64 // seconds; 0: unset
	successor, why, from string
	at                   int64
	step                 int // 4: retiring, 5: ended
	final                int64
}

// twinOrder is an order to both.
type twinOrder struct {
	to, why, by, successor string
	at, sunset             int64
	force, now, forget     bool
}

const (
	tooLong  = 501
	oneDay   = 86400
	tenMins  = 600
	goodURI  = "https://a.example/.well-known/aepb"
	otherURI = "https://b.example:8443/x?y=z"
)

// apply answers with the kind of the error, or with whether the order was forced.
func (w *twin) apply(a twinOrder) (problem string, forced bool) {
	if known := a.to == "active" || a.to == "deprecated" || a.to == "draining" || a.to == "retired"; known && a.forget && w.state != "retired" {
		return "TransitionError", false
	}
	switch w.state + ">" + a.to {
	case "active>deprecated", "active>draining", "deprecated>active", "deprecated>draining":
	case "draining>active":
		if w.step == 5 || a.by == "configuration" {
			return "TransitionError", false
		}
	case "draining>retired":
		if w.step != 5 && a.by == "configuration" || w.step == 4 && !a.now {
			return "TransitionError", false
		}
	case "retired>active":
		if !a.forget || a.by == "configuration" {
			return "TransitionError", false
		}
	default:
		if a.to != "active" && a.to != "deprecated" && a.to != "draining" && a.to != "retired" {
			return "StatusError", false
		}
		return "TransitionError", false
	}
	if a.why == "" || len(a.why) >= tooLong || strings.Contains(a.why, "\n") {
		return "ReasonError", false
	}
	if a.by == "" {
		return "OrderError", false
	}
	if a.successor != "" && a.successor != goodURI && a.successor != otherURI {
		return "SuccessorError", false
	}
	if a.at == 0 {
		return "OrderError", false
	}
	if a.sunset != 0 {
		if a.to == "active" || a.to == "retired" || a.to == "deprecated" && a.sunset < a.at || a.to == "draining" && a.sunset < w.deprecated {
			return "OrderError", false
		}
	}
	if a.now && (a.to == "active" || a.to == "deprecated") {
		return "OrderError", false
	}
	if a.to == "draining" && (w.state == "active" || a.at-w.deprecated < oneDay) {
		if !a.force {
			return "TooSoonError", false
		}
		forced = true
	}
	w.move(a)
	return "", forced
}

func (w *twin) move(a twinOrder) {
	if a.to == "retired" && w.step != 5 && !a.now {
		w.step, w.final, w.why, w.from = 4, a.at+tenMins, a.why, a.by
		return
	}
	w.state, w.term, w.why, w.from, w.at = a.to, w.term+1, a.why, a.by, a.at
	if a.successor != "" {
		w.successor = a.successor
	}
	switch a.to {
	case "active":
		w.deprecated, w.sunset, w.step, w.final, w.successor = 0, 0, 0, 0, a.successor
	case "deprecated":
		w.deprecated, w.sunset = a.at, a.sunset
	case "draining":
		w.sunset = a.sunset
		if w.sunset == 0 {
			w.sunset = a.at
		}
		if w.sunset < w.deprecated {
			w.sunset = w.deprecated
		}
		if a.now {
			w.final = a.at
		}
	case "retired":
		w.final = a.at
	}
}

// next does a step of the graceful end, if there is one to do.
func (w *twin) next(work bool, now int64) bool {
	if w.state != "draining" {
		return false
	}
	noGrace := w.final != 0 && w.final <= w.at
	switch {
	case w.step == 0, w.step == 1:
		w.step++
	case w.step == 2 && !work:
		w.step = 3
		if !noGrace {
			w.final = now + tenMins
		}
	case w.step == 3 && work && !noGrace && w.final < now+tenMins:
		w.final = now + tenMins + 30
	case w.step == 3 && !work && now >= w.final, w.step == 4 && !work && now >= w.final:
		w.step = 5
	case w.step == 5, w.step == 4 && now >= w.final:
		w.state, w.term = "retired", w.term+1
	default:
		return false
	}
	return true
}

// sketch is a record as its twin has it.
func sketch(r lifecycle.Record) twin {
	unix := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.Unix()
	}
	state := string(r.Status)
	if state == "" {
		state = "active"
	}
	return twin{state, int(r.Term), unix(r.DeprecatedAt), unix(r.SunsetAt), r.Successor, r.Reason, r.By, unix(r.At), int(r.Step), unix(r.FinalAt)}
}

// TestTwin_RandomOrders gives random orders to a record and to its twin, loses what was not
// stored now and then, and asks after each what must always be so. AEPB_STEPS sets how many
// orders, AEPB_SEED which ones.
func TestTwin_RandomOrders(t *testing.T) {
	t.Parallel()
	orders, seed := number(t, "AEPB_STEPS", 50_000), number(t, "AEPB_SEED", 1)
	g := orderMaker{rand.New(rand.NewPCG(uint64(seed), 7)), 1_800_000_000}
	r, w := lifecycle.Record{Agent: "pricing"}, &twin{state: "active"}
	retired := 0
	for i := range orders {
		before := r
		var forced bool
		if g.IntN(4) == 0 {
			work := g.IntN(2) == 0
			g.now += int64(g.IntN(tenMins))
			next, step, ok := r.Next(work, time.Unix(g.now, 0))
			if w.next(work, g.now) != ok || step != next.Step {
				t.Fatalf("seed %d, order %d: next of %+v: %v", seed, i, before, ok)
			}
			r = next
		} else {
			a := g.order()
			next, change, err := r.Apply(a.real())
			problem, twinForced := w.apply(a)
			if kind(err) != problem || change.Forced != twinForced {
				t.Fatalf("seed %d, order %d: %+v to %+v: %v, the twin says %q, %v", seed, i, a, before, err, problem, twinForced)
			}
			r, forced = next, change.Forced
		}
		if got := sketch(r); got != *w {
			t.Fatalf("seed %d, order %d: %+v, the twin says %+v", seed, i, got, *w)
		}
		for words, holds := range always {
			if !holds(before, r, forced) {
				t.Fatalf("seed %d, order %d: %s: %+v became %+v", seed, i, words, before, r)
			}
		}
		if r.Status == lifecycle.Retired {
			if retired++; retired%16 == 0 { // and a while after it
				r, w = lifecycle.Record{Agent: "pricing"}, &twin{state: "active"}
			}
		}
	}
	if retired < orders/50 {
		t.Errorf("only %d of %d records came to their end", retired, orders)
	}
}

// always is what must be so after every step, in words.
var always = map[string]func(before, after lifecycle.Record, forced bool) bool{
	"a retired agent never changes, unless it is forgotten": func(before, after lifecycle.Record, _ bool) bool {
		return before.Status != lifecycle.Retired || after == before || after.Status == lifecycle.Active && after.Term == before.Term+1 && after.Step == 0
	},
	"the term grows by one with each change of status, and with nothing else": func(before, after lifecycle.Record, _ bool) bool {
		if _, ok := after.ChangeFrom(before); ok {
			return after.Term == before.Term+1
		}
		return after.Term == before.Term
	},
	"a new transition is not signed yet": func(before, after lifecycle.Record, _ bool) bool {
		return after.Term == before.Term || after.Token == ""
	},
	"a record that encodes decodes to itself, and every record encodes": func(before, after lifecycle.Record, _ bool) bool {
		if after == before {
			return true
		}
		text, err := after.Encode()
		if err != nil {
			return false
		}
		back, err := lifecycle.Decode(text)
		if after.Status == "" {
			after.Status = lifecycle.Active
		}
		return err == nil && back == after
	},
	"the graceful end goes on by one step, or is taken back whole by an operator": func(before, after lifecycle.Record, _ bool) bool {
		back := after.Status == lifecycle.Active && after.Step == 0 && (before.Step < lifecycle.Ended || before.Status == lifecycle.Retired)
		return after.Step == before.Step || after.Step == before.Step+1 || back ||
			before.Step == lifecycle.Finished && after.Step == lifecycle.Ended || before.Step < lifecycle.Retiring && after.Step == lifecycle.Retiring
	},
	"who drains without 24 hours of notice was forced": func(before, after lifecycle.Record, forced bool) bool {
		began := after.Status == lifecycle.Draining && before.Status != lifecycle.Draining
		noticed := before.Status == lifecycle.Deprecated && after.At.Sub(before.DeprecatedAt) >= lifecycle.Notice
		return forced == (began && !noticed)
	},
	"a document has the times that its status asks for": func(_, after lifecycle.Record, _ bool) bool {
		switch after.Status {
		case lifecycle.Deprecated:
			return !after.DeprecatedAt.IsZero()
		case lifecycle.Draining, lifecycle.Retired:
			return !after.SunsetAt.IsZero()
		default:
			return after.DeprecatedAt.IsZero() && after.SunsetAt.IsZero()
		}
	},
	"new work goes to who is active or deprecated, and only there": func(_, after lifecycle.Record, _ bool) bool {
		ends := after.Status == lifecycle.Draining || after.Status == lifecycle.Retired
		return after.Admits().NewWork == !ends && after.Admits().Serves == (after.Status != lifecycle.Retired)
	},
	"when it is final is only ever later, until it is retired or taken back": func(before, after lifecycle.Record, _ bool) bool {
		return after.Term != before.Term || !after.FinalAt.Before(before.FinalAt) || after.Step == lifecycle.Retiring
	},
	"from wherever it is, a drain without work is retired within six steps": func(_, after lifecycle.Record, _ bool) bool {
		if after.Status != lifecycle.Draining {
			return true
		}
		for i := range 6 {
			after, _, _ = after.Next(false, later(after.At, after.FinalAt).Add(time.Duration(i)*time.Minute))
		}
		return after.Status == lifecycle.Retired
	},
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// orderMaker makes orders, most of which have nothing wrong in themselves.
type orderMaker struct {
	*rand.Rand

	now int64
}

func (g *orderMaker) order() twinOrder {
	g.now += int64(g.IntN(oneDay))
	pick := func(most string, others ...string) string {
		if g.IntN(4) > 0 {
			return most
		}
		return others[g.IntN(len(others))]
	}
	a := twinOrder{
		to:        []string{"active", "deprecated", "deprecated", "draining", "draining", "draining", "retired", pick("draining", "", "gone", "Active")}[g.IntN(8)],
		why:       pick("because "+strconv.Itoa(g.IntN(100)), "", "a\nb", strings.Repeat("a", tooLong), strings.Repeat("a", tooLong-1)),
		by:        pick("ana", "configuration", "configuration", "configuration", ""),
		successor: pick("", goodURI, otherURI, goodURI, otherURI, "http://a.example/", goodURI+"#"),
		at:        g.now,
		force:     g.IntN(3) == 0,
		now:       g.IntN(3) == 0,
		forget:    g.IntN(8) == 0,
	}
	switch g.IntN(16) {
	case 0:
		a.at -= oneDay // another replica's clock
	case 1:
		a.at = 0
	}
	if g.IntN(4) == 0 {
		a.sunset = g.now + int64(g.IntN(4*oneDay)) - oneDay
	}
	return a
}

// real is the order in the package's words.
func (a twinOrder) real() lifecycle.Order {
	at := func(seconds int64) time.Time {
		if seconds == 0 {
			return time.Time{}
		}
		return time.Unix(seconds, 0)
	}
	return lifecycle.Order{
		To: lifecycle.Status(a.to), Reason: a.why, By: a.by, Successor: a.successor, At: at(a.at), Sunset: at(a.sunset), Force: a.force, Now: a.now, Forget: a.forget,
	}
}

func kind(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", err), "*lifecycle.")
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
