package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/lifecycle"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)

const operator = "spiffe://example.com/operator/ana"

// order is one that nothing is wrong with.
func order(to lifecycle.Status) lifecycle.Order {
	return lifecycle.Order{To: to, Reason: "replaced by pricing-v3", By: operator, At: start}
}

// in is a record that has come to a state as it should.
func in(t *testing.T, status lifecycle.Status) lifecycle.Record {
	t.Helper()
	r := lifecycle.Record{Agent: "pricing"}
	way := []lifecycle.Status{lifecycle.Deprecated, lifecycle.Draining, lifecycle.Retired}
	for i := range slices.Index(way, status) + 1 {
		o := order(way[i])
		o.At, o.Now = start.Add(time.Duration(i)*48*time.Hour), way[i] == lifecycle.Retired
		r = apply(t, r, o)
	}
	return r
}

func apply(t *testing.T, r lifecycle.Record, o lifecycle.Order) lifecycle.Record {
	t.Helper()
	next, _, err := r.Apply(o)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// TestApply_Table tries every cell of the table, with all that an order may need.
func TestApply_Table(t *testing.T) {
	t.Parallel()
	states := []lifecycle.Status{lifecycle.Active, lifecycle.Deprecated, lifecycle.Draining, lifecycle.Retired}
	table := map[lifecycle.Status]string{ // in the order of states: + possible, - not, = the same
		lifecycle.Active:     "=++-",
		lifecycle.Deprecated: "+=+-",
		lifecycle.Draining:   "+-=+",
		lifecycle.Retired:    "---=",
	}
	for _, from := range states {
		for i, to := range states {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				t.Parallel()
				before := in(t, from)
				o := order(to)
				o.Force, o.Now = true, to == lifecycle.Retired
				after, change, err := before.Apply(o)
				if table[from][i] == '+' {
					if err != nil || after.Status != to || after.Term != before.Term+1 {
						t.Fatalf("%+v, %v", after, err)
					}
					if change.Agent != "pricing" || change.From != from || change.To != to || change.Reason != o.Reason {
						t.Errorf("%+v", change)
					}
					return
				}
				refused, ok := errors.AsType[*lifecycle.TransitionError](err)
				if !ok || refused.From != from || refused.To != to {
					t.Fatalf("%v", err)
				}
				if after != before || change != (lifecycle.Change{}) {
					t.Error("a refused order changed something")
				}
				for j, possible := range states {
					if table[from][j] == '+' && !strings.Contains(err.Error(), string(possible)) {
						t.Errorf("%q does not list %s", err, possible)
					}
				}
				if same := strings.Contains(err.Error(), "already"); same != (table[from][i] == '=') {
					t.Errorf("%q", err)
				}
				if final := strings.Contains(err.Error(), "final"); final != (from == lifecycle.Retired) {
					t.Errorf("%q", err)
				}
			})
		}
	}
}

func TestApply_OrderIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from   lifecycle.Status
		to     lifecycle.Status
		change func(o *lifecycle.Order)
		want   error
	}{
		"no state":                                  {"", "", func(*lifecycle.Order) {}, &lifecycle.StatusError{}},
		"an unknown state":                          {"", "Retired", func(*lifecycle.Order) {}, &lifecycle.StatusError{}},
		"no reason":                                 {"", "deprecated", func(o *lifecycle.Order) { o.Reason = "" }, &lifecycle.ReasonError{}},
		"a blank reason":                            {"", "deprecated", func(o *lifecycle.Order) { o.Reason = " \u00a0" }, &lifecycle.ReasonError{}},
		"a long reason":                             {"", "deprecated", func(o *lifecycle.Order) { o.Reason = strings.Repeat("ü", 501) }, &lifecycle.ReasonError{}},
		"a reason of two lines":                     {"", "deprecated", func(o *lifecycle.Order) { o.Reason = "a\nb" }, &lifecycle.ReasonError{}},
		"a reason with an escape":                   {"", "deprecated", func(o *lifecycle.Order) { o.Reason = "a\x1b[2J" }, &lifecycle.ReasonError{}},
		"a reason that is not UTF-8":                {"", "deprecated", func(o *lifecycle.Order) { o.Reason = "a\xff" }, &lifecycle.ReasonError{}},
		"a successor over http":                     {"", "deprecated", successor("http://a.example/.well-known/aepb"), &lifecycle.SuccessorError{}},
		"a successor that is a name":                {"", "deprecated", successor("pricing-v3"), &lifecycle.SuccessorError{}},
		"a successor without a host":                {"", "deprecated", successor("https:///aepb"), &lifecycle.SuccessorError{}},
		"a successor with a port alone":             {"", "deprecated", successor("https://:443/aepb"), &lifecycle.SuccessorError{}},
		"a successor with user info":                {"", "deprecated", successor("https://u:p@a.example/"), &lifecycle.SuccessorError{}},
		"a successor with a fragment":               {"", "deprecated", successor("https://a.example/#x"), &lifecycle.SuccessorError{}},
		"a successor with an empty one":             {"", "deprecated", successor("https://a.example/#"), &lifecycle.SuccessorError{}},
		"a successor that ends a header":            {"", "deprecated", successor("https://a.example/\r\nX: y"), &lifecycle.SuccessorError{}},
		"a successor that ends a link":              {"", "deprecated", successor("https://a.example/>;rel=x"), &lifecycle.SuccessorError{}},
		"a successor beyond ASCII":                  {"", "deprecated", successor("https://a.example/ü"), &lifecycle.SuccessorError{}},
		"a long successor":                          {"", "deprecated", successor("https://a.example/" + strings.Repeat("a", 2048)), &lifecycle.SuccessorError{}},
		"no operator":                               {"", "deprecated", func(o *lifecycle.Order) { o.By = "" }, &lifecycle.OrderError{}},
		"an operator of two lines":                  {"", "deprecated", func(o *lifecycle.Order) { o.By = "a\nb" }, &lifecycle.OrderError{}},
		"no time":                                   {"", "deprecated", func(o *lifecycle.Order) { o.At = time.Time{} }, &lifecycle.OrderError{}},
		"a time beyond RFC 3339":                    {"", "deprecated", func(o *lifecycle.Order) { o.At = start.AddDate(9000, 0, 0) }, &lifecycle.OrderError{}},
		"a sunset before the deprecation":           {"", "deprecated", sunset(-time.Second), &lifecycle.OrderError{}},
		"a sunset of an active agent":               {"deprecated", "active", sunset(time.Hour), &lifecycle.OrderError{}},
		"a sunset of a retired agent":               {"draining", "retired", sunset(time.Hour), &lifecycle.OrderError{}},
		"a deprecation without a grace":             {"", "deprecated", func(o *lifecycle.Order) { o.Now = true }, &lifecycle.OrderError{}},
		"a drain without being deprecated":          {"", "draining", func(*lifecycle.Order) {}, &lifecycle.TooSoonError{}},
		"a drain too soon":                          {"deprecated", "draining", func(o *lifecycle.Order) { o.At = start.Add(24*time.Hour - 1) }, &lifecycle.TooSoonError{}},
		"a drain from before":                       {"deprecated", "draining", func(o *lifecycle.Order) { o.At = start.Add(-time.Hour) }, &lifecycle.TooSoonError{}},
		"a drain that the configuration ends":       {"draining", "retired", configured, &lifecycle.TransitionError{From: "draining", To: "retired"}},
		"a drain that the configuration takes back": {"draining", "active", configured, &lifecycle.TransitionError{From: "draining", To: "active"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := in(t, tc.from)
			o := order(tc.to)
			tc.change(&o)
			after, _, err := before.Apply(o)
			if got, want := fmt.Sprintf("%T", err), fmt.Sprintf("%T", tc.want); got != want {
				t.Fatalf("%s (%v), want %s", got, err, want)
			}
			if early, ok := errors.AsType[*lifecycle.TooSoonError](err); ok && !early.Until.Equal(start.Add(24*time.Hour)) {
				t.Errorf("until %v", early.Until)
			}
			if after != before {
				t.Error("a refused order changed something")
			}
		})
	}
}

func successor(uri string) func(*lifecycle.Order) {
	return func(o *lifecycle.Order) { o.Successor = uri }
}

func sunset(later time.Duration) func(*lifecycle.Order) {
	return func(o *lifecycle.Order) { o.Sunset = start.Add(later) }
}

func configured(o *lifecycle.Order) { o.By = lifecycle.Configuration }

// TestApply_LastTermIsRefused: a term that cannot grow would let two writes stand side by side.
func TestApply_LastTermIsRefused(t *testing.T) {
	t.Parallel()
	r := lifecycle.Record{Term: 1 << 53}
	if _, _, err := r.Apply(order(lifecycle.Deprecated)); !isA[*lifecycle.RecordError](err) {
		t.Error(err)
	}
}

func TestApply_UnknownStateGoesNowhere(t *testing.T) {
	t.Parallel()
	r := lifecycle.Record{Status: "paused"}
	if _, _, err := r.Apply(order(lifecycle.Active)); !isA[*lifecycle.TransitionError](err) {
		t.Error(err)
	}
	if r.Admits() != (lifecycle.Verdict{}) {
		t.Error("an unknown state lets something through")
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func TestApply_LongestFieldsAreTaken(t *testing.T) {
	t.Parallel()
	o := order(lifecycle.Deprecated)
	o.Reason = strings.Repeat("ü", 500)
	o.Successor = "https://a.example:8443/" + strings.Repeat("a", 2048-23) + ""
	o.Sunset = start
	if r := apply(t, lifecycle.Record{}, o); r.Reason != o.Reason || r.Successor != o.Successor {
		t.Errorf("%+v", r)
	}
}

// TestApply_Notice: 24 hours between deprecated and draining, or force, which is on record.
func TestApply_Notice(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from   lifecycle.Status
		after  time.Duration
		force  bool
		forced bool
	}{
		"to the moment":               {"deprecated", 24 * time.Hour, false, false},
		"later":                       {"deprecated", 48 * time.Hour, false, false},
		"force where it is of no use": {"deprecated", 24 * time.Hour, true, false},
		"a moment too soon":           {"deprecated", 24*time.Hour - 1, true, true},
		"at once":                     {"active", 0, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := order(lifecycle.Draining)
			o.At, o.Force = start.Add(tc.after), tc.force
			r, change, err := in(t, tc.from).Apply(o)
			if err != nil {
				t.Fatal(err)
			}
			if change.Forced != tc.forced || strings.Contains(change.Warning, "24 hours") != tc.forced || !strings.Contains(change.Warning, "for good ten minutes after its last work") {
				t.Errorf("%+v", change)
			}
			if !r.SunsetAt.Equal(o.At) || r.Step != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestApply_Fields follows one agent through all that may happen to it.
func TestApply_Fields(t *testing.T) {
	t.Parallel()
	const next = "https://v3.example/.well-known/aepb"
	zone := time.FixedZone("", 3600)
	r := lifecycle.Record{Agent: "pricing", Token: "a.b.c"}

	o := order(lifecycle.Deprecated)
	o.At, o.Sunset, o.Successor = start.In(zone), start.Add(96*time.Hour), next
	r = apply(t, r, o)
	want := lifecycle.Record{
		Agent: "pricing", Status: lifecycle.Deprecated, Term: 1, DeprecatedAt: start, SunsetAt: start.Add(96 * time.Hour),
		Successor: next, Reason: o.Reason, By: operator, At: start,
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Fatal(diff)
	}

	o = order(lifecycle.Draining)
	o.At, o.Reason = start.Add(25*time.Hour), "as announced"
	r.Token = "a.b.c"
	r = apply(t, r, o)
	want.Status, want.Term, want.SunsetAt, want.Reason, want.At = lifecycle.Draining, 2, o.At, o.Reason, o.At
	if diff := cmp.Diff(want, r); diff != "" {
		t.Fatal("the successor stays, the token goes: ", diff)
	}

	r.Step, r.FinalAt = lifecycle.Finished, start.Add(27*time.Hour)
	o = order(lifecycle.Active)
	o.At = start.Add(26 * time.Hour)
	r = apply(t, r, o)
	want = lifecycle.Record{Agent: "pricing", Status: lifecycle.Active, Term: 3, Reason: o.Reason, By: operator, At: o.At}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Fatal("active again means nothing is announced: ", diff)
	}
}

// TestApply_NoticeOfBrokenRecord: a record that does not say since when an agent is deprecated,
// or that still does although it is active, does not shorten the notice.
func TestApply_NoticeOfBrokenRecord(t *testing.T) {
	t.Parallel()
	for _, r := range []lifecycle.Record{
		{Status: lifecycle.Deprecated, Term: 1},
		{Status: lifecycle.Active, Term: 2, DeprecatedAt: start.Add(-48 * time.Hour)},
	} {
		if _, _, err := r.Apply(order(lifecycle.Draining)); !isA[*lifecycle.TooSoonError](err) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestApply_RetireNow: an operator may end a drain that is not finished, and is told that this is final.
func TestApply_RetireNow(t *testing.T) {
	t.Parallel()
	for step := lifecycle.Step(0); step <= lifecycle.Ended; step++ {
		r := in(t, lifecycle.Draining)
		r.Step = step
		o := order(lifecycle.Retired)
		o.Now = true
		next, change, err := r.Apply(o)
		if err != nil || change.Forced || next.Step != step || next.Status != lifecycle.Retired || !next.FinalAt.Equal(o.At) {
			t.Fatal(next, change, err)
		}
		if (change.Warning == "") != (step == lifecycle.Ended) {
			t.Errorf("%v: %q", step, change.Warning)
		}
	}
}

// TestApply_RetireTwice: an agent that is being retired already is not given more time by the same order; it can
// be retired at once, and taken back.
func TestApply_RetireTwice(t *testing.T) {
	t.Parallel()
	r := apply(t, in(t, lifecycle.Draining), order(lifecycle.Retired))
	o := order(lifecycle.Retired)
	o.At = start.Add(time.Minute)
	if _, _, err := r.Apply(o); !isA[*lifecycle.TransitionError](err) || !strings.Contains(err.Error(), r.FinalAt.Format(time.RFC3339)) {
		t.Error(err)
	}
	o.Now = true
	if apply(t, r, o).Status != lifecycle.Retired {
		t.Error("it is not retired at once")
	}
	if back := apply(t, r, order(lifecycle.Active)); back.Status != lifecycle.Active || !back.FinalAt.IsZero() {
		t.Errorf("%+v", back)
	}
}

// TestApply_Forget: an order that forgets makes a retired agent active, and nothing else may forget.
func TestApply_Forget(t *testing.T) {
	t.Parallel()
	o := order(lifecycle.Active)
	o.Forget = true
	before := in(t, lifecycle.Retired)
	want := lifecycle.Record{Agent: "pricing", Status: lifecycle.Active, Term: before.Term + 1, Reason: o.Reason, By: operator, At: start}
	if r := apply(t, before, o); r != want {
		t.Errorf("%+v", r)
	}
	for _, from := range []lifecycle.Status{lifecycle.Deprecated, lifecycle.Draining} {
		if _, _, err := in(t, from).Apply(o); !isA[*lifecycle.TransitionError](err) {
			t.Errorf("%s: %v", from, err)
		}
	}
	const says = "the agent is active already: only a retired agent can be forgotten"
	if _, _, err := in(t, lifecycle.Active).Apply(o); err == nil || err.Error() != says {
		t.Errorf("active: %v, expected %s", err, says)
	}
	configured(&o)
	if _, _, err := before.Apply(o); !isA[*lifecycle.TransitionError](err) {
		t.Error(err)
	}
}

// TestApply_SignedShutdownIsTheEnd: who has said that it ended does not come back.
func TestApply_SignedShutdownIsTheEnd(t *testing.T) {
	t.Parallel()
	r := in(t, lifecycle.Draining)
	r.Step = lifecycle.Ended
	if _, _, err := r.Apply(order(lifecycle.Active)); !isA[*lifecycle.TransitionError](err) {
		t.Error(err)
	}
	o := order(lifecycle.Retired)
	configured(&o) // the graceful end of a drain that the configuration ordered
	if _, _, err := r.Apply(o); err != nil {
		t.Error(err)
	}
}

func TestAdmits_EachState(t *testing.T) {
	t.Parallel()
	all := lifecycle.Verdict{Serves: true, NewWork: true}
	for status, want := range map[lifecycle.Status]lifecycle.Verdict{
		"": all, lifecycle.Active: all, lifecycle.Deprecated: all, lifecycle.Draining: {Serves: true}, lifecycle.Retired: {},
	} {
		if got := (lifecycle.Record{Status: status}).Admits(); got != want {
			t.Errorf("%q: %+v", status, got)
		}
	}
}

func TestParseStatus_FourOnly(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"active", "deprecated", "draining", "retired"} {
		if got, err := lifecycle.ParseStatus(text); err != nil || string(got) != text {
			t.Error(got, err)
		}
	}
	for _, text := range []string{"", "Active", "active ", "paused"} {
		_, err := lifecycle.ParseStatus(text)
		if !isA[*lifecycle.StatusError](err) || !strings.Contains(err.Error(), "active, deprecated, draining or retired") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRecord_Due: a configuration moves a record on that no operator has changed, and takes back
// what it ordered itself.
func TestRecord_Due(t *testing.T) {
	t.Parallel()
	due := map[[2]string]bool{
		{"active", "deprecated"}: true, {"active", "draining"}: true, {"deprecated", "draining"}: true, {"deprecated", "active"}: true,
	}
	for _, by := range []string{"ann", lifecycle.Configuration} {
		for _, from := range []string{"active", "deprecated", "draining", "retired"} {
			for _, to := range []string{"", "active", "deprecated", "draining", "retired"} {
				r := lifecycle.Record{Status: lifecycle.Status(from), By: by, Term: 1}
				want := due[[2]string{from, to}] && by == lifecycle.Configuration
				if got := r.Due(lifecycle.Order{To: lifecycle.Status(to), By: lifecycle.Configuration}); got != want {
					t.Errorf("%q to %q, last changed by %s: %t", from, to, by, got)
				}
			}
		}
	}
	for to, want := range map[lifecycle.Status]bool{lifecycle.Active: false, lifecycle.Deprecated: true, lifecycle.Draining: true, lifecycle.Retired: false} {
		if got := (lifecycle.Record{}).Due(lifecycle.Order{To: to}); got != want {
			t.Errorf("the first order, to %s: %t", to, got)
		}
	}
}

// TestOrder_Check: an order of a configuration is judged before there is a record.
func TestOrder_Check(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		order lifecycle.Order
		good  bool
	}{
		"deprecated": {lifecycle.Order{To: lifecycle.Deprecated, Reason: "r", Successor: "https://example.org/next", Sunset: at}, true},
		"draining":   {lifecycle.Order{To: lifecycle.Draining, Reason: "r", Sunset: at}, true},
		"active":     {lifecycle.Order{To: lifecycle.Active, Reason: "r"}, true},
		"retired":    {lifecycle.Order{To: lifecycle.Retired, Reason: "r"}, false},
		"no status":  {lifecycle.Order{Reason: "r"}, false},
		"no reason":  {lifecycle.Order{To: lifecycle.Deprecated}, false},
		"successor":  {lifecycle.Order{To: lifecycle.Deprecated, Reason: "r", Successor: "http://example.org/next"}, false},
		"sunset":     {lifecycle.Order{To: lifecycle.Active, Reason: "r", Sunset: at}, false},
		"no need":    {lifecycle.Order{To: lifecycle.Active, Reason: "r", Successor: "https://example.org/next"}, false},
	} {
		c.order.By = lifecycle.Configuration
		if err := c.order.Check(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
