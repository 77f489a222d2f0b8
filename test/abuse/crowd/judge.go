package crowd

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Round is one gateway and the strangers there.
type Round struct {
	Name      string
	Addresses int
	Limits    string // in the configuration, beside the rate; empty: the defaults
}

// Rounds are all of them.
func Rounds() []Round {
	return []Round{
		{"strangers from 12 addresses", 12, ""},
		{"strangers from one address", 1, "connections_per_address: 0"},
	}
}

// Length is how long a round is meant to last in a run whose attacks have this long.
func Length(attack time.Duration) time.Duration {
	return max(shortest, min(attack/4, longest))
}

const (
	shortest = 10 * time.Second // they have come after half of it
	longest  = 30 * time.Second
)

// Observed is what is judged of one round.
type Observed struct {
	Round  Round
	Length time.Duration // that it really had
	Visits []Visit
	Counts Counts
	Peak   int  // MiB that the gateway had resident at most
	Ended  bool // the gateway is no more
}

const (
	mostResident = 192 // MiB
	leastHeld    = 96  // at once, half of the places that strangers have by default
	leastMetrics = 512 // tries at listen.metrics
	leastVisits  = 0.5 // of those that the pace makes; each waits for the one before it
)

// Judge finds the violations.
func Judge(o Observed) []string {
	var found []string
	say := func(format string, args ...any) {
		found = append(found, o.Round.Name+": "+fmt.Sprintf(format, args...))
	}
	for _, name := range visitNames() {
		made, lost, first := o.visits(name)
		if want := leastVisits * o.Length.Seconds() / visitPace.Seconds(); float64(made) < want {
			say("%s: only %d new connections were tried, want %.0f: nothing was proved", name, made, want)
		}
		if lost > 0 {
			say("%s: %d of %d new connections were lost, the first: %v", name, lost, made, first)
		}
	}
	if public := o.Counts[surfacePublic]; public.Tried < strangers || public.MostHeld < leastHeld {
		say("only %d strangers came and %d stayed at once, want %d and %d: nothing was proved", public.Tried, public.MostHeld, strangers, leastHeld)
	}
	if metrics := o.Counts[surfaceMetrics]; metrics.Tried < leastMetrics {
		say("only %d strangers came to listen.metrics, want %d: nothing was proved", metrics.Tried, leastMetrics)
	}
	if o.Ended {
		say("the gateway has ended")
	}
	if o.Peak > mostResident {
		say("the gateway had %d MiB resident, the bound is %d", o.Peak, mostResident)
	}
	return found
}

// visits are how many of one name there were, how many were lost, and why the first was.
func (o Observed) visits(name string) (made, lost int, first error) {
	for _, v := range o.Visits {
		if v.Name != name {
			continue
		}
		if made++; v.Lost != nil {
			if lost++; first == nil {
				first = v.Lost
			}
		}
	}
	return made, lost, first
}

// Table prints what came of one round.
func Table(w io.Writer, o Observed, found []string) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%s\tnew\tlost\tp50\tp99\n", o.Round.Name)
	for _, name := range visitNames() {
		made, lost, _ := o.visits(name)
		fmt.Fprintf(out, "%s\t%d\t%d\t%s\t%s\n", name, made, lost, quantile(o.Visits, name, 0.5), quantile(o.Visits, name, 0.99))
	}
	fmt.Fprintf(out, "round\t%s\n", o.Length.Round(100*time.Millisecond))
	fmt.Fprintf(out, "RSS\t%d MiB at most, bound %d MiB\n", o.Peak, mostResident)
	for _, name := range []string{surfacePublic, surfaceMetrics} {
		t := o.Counts[name]
		fmt.Fprintf(out, "strangers at %s\t%d held at most; %d tried, %d came in, %d ended\n", name, t.MostHeld, t.Tried, t.CameIn, t.Ended)
	}
	err := out.Flush()
	fmt.Fprintf(w, "%d violations\n\n", len(found))
	return err
}
