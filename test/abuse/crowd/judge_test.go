package crowd

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harmless is a round of 10 seconds in which the strangers harmed no one.
func harmless() Observed {
	o := Observed{Round: Round{Name: "round"}, Length: 10 * time.Second, Peak: mostResident, Counts: Counts{
		surfacePublic:  {Tried: strangers, CameIn: 3000, Ended: 1500, MostHeld: leastHeld},
		surfaceMetrics: {Tried: leastMetrics, CameIn: 300, Ended: 300, MostHeld: 40},
	}}
	for n := range 50 {
		for _, name := range visitNames() {
			o.Visits = append(o.Visits, Visit{Name: name, Took: time.Duration(1+n) * time.Millisecond})
		}
	}
	return o
}

func TestJudge_AHarmlessRoundHasNoViolation(t *testing.T) {
	t.Parallel()
	if found := Judge(harmless()); len(found) > 0 {
		t.Errorf("violations %q", found)
	}
}

// TestJudge_PlantedViolations: each violation, planted alone, is found and is the only one.
func TestJudge_PlantedViolations(t *testing.T) {
	t.Parallel()
	type planted struct {
		plant func(*Observed)
		want  string
	}
	change := func(o *Observed, surface string, do func(*Tally)) {
		tally := o.Counts[surface]
		do(&tally)
		o.Counts[surface] = tally
	}
	cases := map[string]planted{
		"too few strangers": {
			func(o *Observed) { change(o, surfacePublic, func(t *Tally) { t.Tried = 4095 }) }, "only 4095 strangers came and 96 stayed at once, want 4096 and 96",
		},
		"strangers who did not stay": {
			func(o *Observed) { change(o, surfacePublic, func(t *Tally) { t.MostHeld = leastHeld - 1 }) }, "only 4096 strangers came and 95 stayed at once",
		},
		"too few at listen.metrics": {
			func(o *Observed) { change(o, surfaceMetrics, func(t *Tally) { t.Tried = 511 }) }, "only 511 strangers came to listen.metrics, want 512",
		},
		"a gateway that ended": {func(o *Observed) { o.Ended = true }, "the gateway has ended"},
		"too much memory":      {func(o *Observed) { o.Peak = 193 }, "the gateway had 193 MiB resident, the bound is 192"},
	}
	for i, name := range visitNames() {
		cases["lost: "+name] = planted{func(o *Observed) { o.Visits[len(o.Visits)-len(visitNames())+i].Lost = errors.New("reset") }, name + ": 1 of 50 new connections were lost, the first: reset"}
		cases["too few: "+name] = planted{func(o *Observed) { o.Visits = slices.Delete(o.Visits, i, i+1) }, name + ": only 49 new connections were tried, want 50"}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := harmless()
			tc.plant(&o)
			if found := Judge(o); len(found) != 1 || !strings.HasPrefix(found[0], "round: "+tc.want) {
				t.Errorf("violations %q, want %q alone", found, tc.want)
			}
		})
	}
}

func TestTable_NamesEverything(t *testing.T) {
	t.Parallel()
	o := harmless()
	o.Visits[0].Lost = errors.New("reset")
	var out strings.Builder
	if err := Table(&out, o, Judge(o)); err != nil {
		t.Fatal(err)
	}
	for _, want := range append(visitNames(), "50   1     25ms  49ms", "192 MiB at most, bound 192 MiB", "96 held at most; 4096 tried, 3000 came in, 1500 ended", "1 violations") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

// TestLength_IsBounded: a short run has time for the strangers to come, and a long one has an end.
func TestLength_IsBounded(t *testing.T) {
	t.Parallel()
	for attack, want := range map[time.Duration]time.Duration{10 * time.Second: 10 * time.Second, time.Minute: 15 * time.Second, time.Hour: 30 * time.Second} {
		if got := Length(attack); got != want {
			t.Errorf("%s: %s, want %s", attack, got, want)
		}
	}
	if come := strangers * comePace; come > shortest/2 {
		t.Errorf("they come in %s, want at most half of %s", come, shortest)
	}
}
