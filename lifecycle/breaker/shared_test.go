package breaker_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// R21: what one replica has found out holds for all, and only the one that found it out
// has a token and a figure for it.
func TestAdopt_States(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	open := opened(t, c)
	half, probeAt := probing(t, c)
	closed, _ := half.Report(c, probeAt.Add(1), breaker.Success, true)
	again, _ := half.Report(c, probeAt.Add(1), breaker.Failure, true)
	busy, _ := report(c, breaker.Breaker{}, start, "ffff")
	at := probeAt.Add(2)
	for name, row := range map[string]struct {
		own, other breaker.Breaker
		want       breaker.State
		taken      bool
	}{
		"it opened":                      {busy, open, breaker.Open, true},
		"it probes":                      {open, half, breaker.HalfOpen, true},
		"its probe succeeded":            {open, closed, breaker.Closed, true},
		"its probe failed":               {open, again, breaker.Open, true},
		"ours probes, its has failed":    {half, again, breaker.Open, true},
		"ours probes, its has succeeded": {half, closed, breaker.Closed, true},
		"older: it was open":             {closed, open, breaker.Closed, false},
		"older: it was half open":        {again, half, breaker.Open, false},
		"it has seen nothing":            {open, breaker.Breaker{}, breaker.Open, false},
		"the same":                       {half, half, breaker.HalfOpen, false},
	} {
		got, change := row.own.Adopt(c, at, row.other.Shared())
		if got.State() != row.want || change != (breaker.Change{From: row.own.State(), To: row.want}) || !row.taken && got != row.own {
			t.Errorf("%s: %s, %+v", name, got.State(), change)
		}
		if row.taken && got.Shared() != row.other.Shared() {
			t.Errorf("%s: %+v, want %+v", name, got.Shared(), row.other.Shared())
		}
		if _, _, ok := change.Claims("a"); ok || breaker.Escalates(change) {
			t.Errorf("%s: %+v has a token or escalates", name, change)
		}
	}
	// Closed there and here: the samples of here stay.
	if b, _ := busy.Adopt(c, at, closed.Shared()); b == closed {
		t.Error("samples are lost")
	} else if b, _ = report(c, b, start, "f"); b.State() != breaker.Open {
		t.Error("the fifth failure did not open it")
	}
}

// R21, ATD-37: of a hundred replicas with ten callers each, one call goes out, whichever
// swap comes first; the others adopt. When that replica dies, one probes after it.
func TestAdopt_OneProbeForAll(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	stored := opened(t, c).Shared()
	replicas := make([]breaker.Breaker, 100)
	for i := range replicas {
		replicas[i], _ = replicas[i].Adopt(c, start, stored)
	}
	// All ask first, then all try to swap what they read before.
	probes := func(at time.Time) (count int) {
		read := stored
		for i, b := range replicas {
			for range 10 {
				next, v, change := b.Ask(c, at.Add(time.Duration(len(replicas)-i)))
				switch {
				case !change.Happened():
					b = next
				case stored == read: // our swap succeeds
					b, stored = next, next.Shared()
					if v.Probe {
						count++
					}
				default: // it fails: next, v and change are dropped
					b, _ = b.Adopt(c, at, stored)
				}
			}
			replicas[i] = b
		}
		return count
	}
	if n := probes(start.Add(c.Cooldown)); n != 1 {
		t.Errorf("%d probes, want 1", n)
	}
	if n := probes(start.Add(c.Cooldown + c.ProbeLimit/2)); n != 0 {
		t.Errorf("%d probes beside one under way", n)
	}
	gone := start.Add(c.Cooldown + c.ProbeLimit + time.Second)
	if n := probes(gone); n != 0 || stored.State != breaker.Open || stored.FailedProbes != 1 {
		t.Errorf("%d probes when one was lost, %+v, want one failure for all", n, stored)
	}
	if n := probes(gone.Add(2*c.Cooldown + time.Second)); n != 1 {
		t.Errorf("%d probes after the longer cool-down, want 1", n)
	}
}

// Whatever another replica's clock says, a wait has its bounds, and what we find out
// afterwards is the newer.
func TestAdopt_OtherClock(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	for _, ahead := range []time.Duration{-time.Hour, -time.Second, 0, time.Second, time.Hour, 290 * 365 * 24 * time.Hour} {
		s := breaker.Shared{State: breaker.Open, Until: after(ahead + time.Hour), Cooldown: time.Hour, FailedProbes: 1 << 40, At: after(ahead)}
		b, _ := breaker.Breaker{}.Adopt(c, start, s)
		if got := b.Shared(); got.Cooldown != c.MaxCooldown || got.Until.After(after(c.MaxCooldown)) || !got.At.Equal(s.At) {
			t.Errorf("%s ahead: %+v", ahead, got)
		}
		if later, _ := b.Adopt(c, after(time.Minute), s); later != b {
			t.Errorf("%s ahead, adopted again: %+v, want the same end", ahead, later.Shared())
		}
		next, v, _ := b.Ask(c, after(c.MaxCooldown))
		if !v.Probe || !next.Shared().At.After(s.At) {
			t.Errorf("%s ahead: %+v, %+v, want a newer state", ahead, v, next.Shared())
		}
		if back, change := next.Adopt(c, after(c.MaxCooldown), s); back != next || change.Happened() {
			t.Errorf("%s ahead: the old state came back", ahead)
		}
	}
}

// Replicas that see the same states end in the same one, in whatever sequence.
func TestAdopt_Converges(t *testing.T) {
	t.Parallel()
	c := breaker.Defaults()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		list := make([]breaker.Shared, 6)
		for i := range list {
			s := breaker.Shared{State: breaker.State(random.IntN(3)), At: after(time.Duration(random.IntN(4)))}
			if s.State != breaker.Closed {
				s.Cooldown, s.Until = 30*time.Second, s.At.Add(30*time.Second)
			}
			list[i] = s
		}
		var ends [2]breaker.Breaker
		for i := range ends {
			random.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
			for _, s := range list {
				ends[i], _ = ends[i].Adopt(c, start, s)
			}
		}
		if ends[0] != ends[1] {
			t.Fatalf("%+v or %+v of %+v", ends[0].Shared(), ends[1].Shared(), list)
		}
	}
}

const sharedText = `{"state":"open","until":"2026-03-01T12:00:30.000000001Z","cooldown":"30s","failed_probes":2,"at":"2026-03-01T12:00:00Z"}`

func TestShared_JSON(t *testing.T) {
	t.Parallel()
	s := breaker.Shared{State: breaker.Open, Until: after(30*time.Second + 1), Cooldown: 30 * time.Second, FailedProbes: 2, At: start}
	text, err := json.Marshal(s)
	if err != nil || string(text) != sharedText {
		t.Fatalf("%s, %v", text, err)
	}
	for _, text := range []string{
		sharedText,
		strings.ReplaceAll(sharedText, ",", " ,\n "),
		strings.Replace(sharedText, "T12:00:00Z", "T13:00:00+01:00", 1),
		`{"at":"2026-03-01T12:00:00Z",` + strings.Replace(strings.TrimPrefix(sharedText, "{"), `,"at":"2026-03-01T12:00:00Z"`, "", 1),
	} {
		var got breaker.Shared
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != s {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, s := range []breaker.Shared{
		{State: 3},
		{Cooldown: -1},
		{Cooldown: time.Hour},
		{FailedProbes: -1},
		{FailedProbes: 1 << 31},
		{At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Until: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if text, err := s.MarshalJSON(); !errors.Is(err, breaker.ErrShared) {
			t.Errorf("%+v: %s, %v, want ErrShared", s, text, err)
		}
	}
}

func TestShared_StrictDecode(t *testing.T) {
	t.Parallel()
	with := func(old, text string) string {
		if !strings.Contains(sharedText, old) {
			t.Fatalf("no %s", old)
		}
		return strings.Replace(sharedText, old, text, 1)
	}
	for name, text := range map[string]string{
		"empty":               ``,
		"null":                `null`,
		"an array":            `[]`,
		"no member":           `{}`,
		"cut":                 sharedText[:len(sharedText)-1],
		"two":                 sharedText + sharedText,
		"a bracket behind it": sharedText + "}",
		"unknown member":      with(`{`, `{"probe":true,`),
		"a member twice":      with(`{`, `{"state":"closed",`),
		"twice, escaped":      with(`{`, `{"st\u0061te":"closed",`),
		"other letters":       with(`"state"`, `"State"`),
		"member absent":       with(`"failed_probes":2,`, ``),
		"member null":         with(`:2,`, `:null,`),
		"unknown state":       with(`"open"`, `"ajar"`),
		"state as a number":   with(`"open"`, `1`),
		"state in capitals":   with(`"open"`, `"Open"`),
		"time without a zone": with(`:00Z"`, `:00"`),
		"time as a number":    with(`"2026-03-01T12:00:00Z"`, `1`),
		"year before 0":       with(`2026-03-01T12:00:00Z`, `0000-01-01T00:00:00+01:00`),
		"cool-down in minus":  with(`30s"`, `-30s"`),
		"cool-down too long":  with(`"30s"`, `"5m1s"`),
		"cool-down otherwise": with(`"30s"`, `"0.5m"`),
		"cool-down as number": with(`"30s"`, `30`),
		"probes below 0":      with(`:2,`, `:-1,`),
		"probes too many":     with(`:2,`, `:1073741825,`),
		"probes as a decimal": with(`:2,`, `:2.0,`),
		"too long":            with(`{`, `{`+strings.Repeat(" ", 512)),
	} {
		before := breaker.Shared{FailedProbes: 7}
		got := before
		if err := got.UnmarshalJSON([]byte(text)); !errors.Is(err, breaker.ErrShared) || got != before {
			t.Errorf("%s: %+v, %v, want ErrShared", name, got, err)
		}
	}
}

// What is read at all is written so that it is read as the same, and can be adopted.
func FuzzShared_Roundtrip(f *testing.F) {
	f.Add([]byte(sharedText))
	f.Add([]byte(strings.Replace(sharedText, "open", "half_open", 1)))
	f.Add([]byte(strings.Replace(sharedText, `"30s"`, `"0s"`, 1)))
	f.Add([]byte(strings.Replace(sharedText, "2026-03-01T12:00:00Z", "9999-12-31T23:59:59.999999999-23:59", 1)))
	f.Add([]byte(`{"state":"open","state":"open"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s, again breaker.Shared
		if err := s.UnmarshalJSON(text); err != nil {
			if !errors.Is(err, breaker.ErrShared) || s != again {
				t.Fatalf("%v, %+v", err, s)
			}
			return
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", s, err)
		}
		if err := again.UnmarshalJSON(written); err != nil || again != s {
			t.Fatalf("%s: %+v, %v, want %+v", written, again, err, s)
		}
		c := breaker.Defaults()
		b, _ := breaker.Breaker{}.Adopt(c, start, s)
		if got := b.Shared(); got.State != breaker.Closed && (got.Until.After(start.Add(c.MaxCooldown)) || got.Cooldown > c.MaxCooldown) {
			t.Fatalf("%+v is out of bounds", got)
		}
	})
}
