package breaker_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// ATD-41, R21: three distinct within 60 s, said once per 60 s.
func TestOpenings_ThreeWithinAMinuteEscalate(t *testing.T) {
	t.Parallel()
	type step struct {
		at  time.Duration
		who string
	}
	const second = time.Second
	for name, row := range map[string]struct {
		steps []step
		want  []string // "step: since who who"
	}{
		"three":                     {[]step{{0, "c"}, {30 * second, "a"}, {60 * second, "b"}}, []string{"2: 0s a b c"}},
		"two":                       {[]step{{0, "a"}, {0, "b"}}, nil},
		"one, thrice":               {[]step{{0, "a"}, {1, "a"}, {2, "a"}, {3, "a"}}, nil},
		"two, twice":                {[]step{{0, "a"}, {1, "b"}, {2, "a"}, {3, "b"}}, nil},
		"too late":                  {[]step{{0, "a"}, {1, "b"}, {60*second + 1, "c"}}, nil},
		"the first opens again":     {[]step{{0, "a"}, {1, "b"}, {30 * second, "a"}, {60 * second, "c"}}, []string{"3: 1ns a b c"}},
		"a fourth":                  {[]step{{0, "a"}, {0, "b"}, {0, "c"}, {60 * second, "d"}}, []string{"2: 0s a b c"}},
		"said again after a minute": {[]step{{0, "a"}, {0, "b"}, {0, "c"}, {59 * second, "d"}, {60 * second, "a"}, {60*second + 1, "b"}}, []string{"2: 0s a b c", "5: 59s a b d"}},
		"out of order":              {[]step{{10 * second, "a"}, {0, "b"}, {5 * second, "c"}}, []string{"2: 0s a b c"}},
		"the clock is set back":     {[]step{{0, "a"}, {0, "b"}, {-3600 * second, "c"}, {-3600 * second, "d"}, {-3600 * second, "e"}}, []string{"4: -1h0m0s c d e"}},
	} {
		var o breaker.Openings
		var got []string
		for i, s := range row.steps {
			var e breaker.Escalation
			var ok bool
			if o, e, ok = o.Opened(after(s.at), s.who); ok {
				got = append(got, strconv.Itoa(i)+": "+e.Since.Sub(start).String()+" "+strings.Join(e.Who, " "))
			} else if e.Who != nil {
				t.Errorf("%s: %+v without its word", name, e)
			}
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestOpenings_Raised: for as long as no other escalation is said.
func TestOpenings_Raised(t *testing.T) {
	t.Parallel()
	var o breaker.Openings
	for _, who := range []string{"a", "b", "c"} {
		if o.Raised(start) {
			t.Errorf("before the opening of %s", who)
		}
		o, _, _ = o.Opened(start, who)
	}
	for at, want := range map[time.Duration]bool{-time.Minute - 1: false, -time.Minute: true, 0: true, time.Minute: true, time.Minute + 1: false} {
		if got := o.Raised(after(at)); got != want {
			t.Errorf("%s after it: %t, want %t", at, got, want)
		}
	}
}

// Sixteen at most are remembered; the value before a step stays what it was.
func TestOpenings_Bounded(t *testing.T) {
	t.Parallel()
	var o breaker.Openings
	for i := range 1000 {
		o, _, _ = o.Opened(start, strconv.Itoa(i))
	}
	before := o
	o, e, ok := o.Opened(after(time.Minute), "last")
	if ok || before == o {
		t.Errorf("%+v, %t", e, ok)
	}
	if _, e, ok = before.Opened(after(time.Minute), "x"); ok {
		t.Errorf("%+v within a minute of an escalation", e)
	}
	for i := range 100 {
		o, e, ok = o.Opened(after(time.Minute+1), strconv.Itoa(i))
		if ok {
			break
		}
	}
	if len(e.Who) > 16 {
		t.Errorf("%d are remembered, at most 16", len(e.Who))
	}
}

func TestEscalates_OnTheThirdFailedProbe(t *testing.T) {
	t.Parallel()
	failed := breaker.Change{From: breaker.HalfOpen, To: breaker.Open, Failures: 1, Samples: 1, FailedProbes: 3}
	if !breaker.Escalates(failed) {
		t.Error("the third failed probe does not")
	}
	for name, set := range map[string]func(c *breaker.Change){
		"the second":      func(c *breaker.Change) { c.FailedProbes = 2 },
		"the fourth":      func(c *breaker.Change) { c.FailedProbes = 4 },
		"the next probe":  func(c *breaker.Change) { c.From, c.To, c.Samples = breaker.Open, breaker.HalfOpen, 0 },
		"a success":       func(c *breaker.Change) { c.To, c.Samples = breaker.Closed, 0 },
		"nothing learned": func(c *breaker.Change) { c.Samples = 0 },
	} {
		c := failed
		if set(&c); breaker.Escalates(c) {
			t.Errorf("%s does", name)
		}
	}
}
