package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// end is how a call ended for whoever looks.
type end string

const (
	endRight  end = "right"  // done, with an answer
	endError  end = "error"  // an error in the caller's own protocol, or a task that failed
	endBroken end = "broken" // a connection broke, where everybody sees it
	endLost   end = "lost"   // a task that is reported as lost
	endAsks   end = "asks"   // the agent waits for an answer
	endOpen   end = "open"   // it is said to be at work
	endHung   end = "hung"   // nobody answered
	endSilent end = "silent" // a stream ended properly, without its end
	endGone   end = "gone"   // accepted work that is not known any more
)

// outcome is a call as its caller lived through it.
type outcome struct {
	kind, key   string
	end         end
	said        string    // with endRight: the answer
	agent, task string    // accepted work, and whose; empty: none was
	refused     time.Time // when somebody last said that the task cannot be told now, since it was last told of
	atOnce      bool      // the first answer told the end: nothing was left to ask about
	why         string
}

// sight is what one replica says afterwards of accepted work: endError is a task
// that failed, endBroken that the replica could not say.
type sight struct {
	end  end
	said string
	why  string
}

// evidence is everything that is judged.
type evidence struct {
	outcomes []outcome
	sights   map[string][]sight  // by task, one for each replica
	runs     map[string][]string // by what a call does, the answers that the agent gave: one for each time that it did it
	streams  []string            // that ended properly without their end
}

// count is how the calls of one kind went.
type count struct {
	Kind     string `json:"kind"`
	Calls    int    `json:"calls"`
	Accepted int    `json:"accepted"` // by the agent
	Right    int    `json:"right"`
	Error    int    `json:"error"`
	Broken   int    `json:"broken"`
	Lost     int    `json:"lost"`
	Forgot   int    `json:"forgotten"` // told at once, and then not known to some replica any more
}

// lie is something that must not happen.
type lie struct {
	What string `json:"what"`
	Kind string `json:"kind,omitempty"`
	Key  string `json:"key,omitempty"`
	Why  string `json:"why,omitempty"`
}

// The lies.
const (
	lieFalse    = "false success"
	lieGone     = "accepted work is gone"
	lieOpen     = "accepted work never ends"
	lieTwice    = "done twice"
	lieSilent   = "a stream ended without its end"
	lieHung     = "no answer"
	lieQuarrel  = "replicas disagree"
	lieNothing  = "nothing ended right"
	maxLieWhy   = 300
	askedSuffix = "/answer" // of the key of the second half of a conversation
)

// judge counts, and finds the lies.
func judge(e evidence) ([]count, []lie) {
	counts := map[string]*count{}
	var lies []lie
	for _, o := range e.outcomes {
		c := counts[o.kind]
		if c == nil {
			c = &count{Kind: o.kind}
			counts[o.kind] = c
		}
		for _, what := range e.lies(o) {
			lies = append(lies, lie{what, o.kind, o.key, cut(o.why + e.seen(o))})
		}
		c.add(e.settled(o), len(e.runs[o.key]) > 0)
		if slices.ContainsFunc(e.sights[o.task], func(s sight) bool { return s.end == endGone }) {
			c.Forgot++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.runs)) {
		if times := len(e.runs[key]); times > 1 {
			lies = append(lies, lie{What: lieTwice, Key: key})
		}
	}
	for _, why := range e.streams {
		lies = append(lies, lie{What: lieSilent, Why: cut(why)})
	}
	sorted := slices.SortedFunc(maps.Values(counts), func(a, b *count) int { return cmp.Compare(a.Kind, b.Kind) })
	out := make([]count, len(sorted))
	for i, c := range sorted {
		if out[i] = *c; c.Right == 0 {
			lies = append(lies, lie{What: lieNothing, Kind: c.Kind})
		}
	}
	return out, lies
}

// lies are those that the caller of one call was told.
func (e evidence) lies(o outcome) []string {
	var found []string
	say := func(what string) {
		if !slices.Contains(found, what) {
			found = append(found, what)
		}
	}
	switch o.end {
	case endRight:
		if !e.given(o.key, o.said) {
			say(lieFalse)
		}
	case endSilent:
		say(lieSilent)
	case endGone:
		say(lieGone)
	case endHung:
		say(lieHung)
	case endOpen, endAsks:
		if o.task == "" {
			say(lieOpen)
		}
	case endError, endBroken, endLost:
	}
	if o.task == "" {
		return found
	}
	seen := e.sights[o.task]
	if len(seen) == 0 {
		say(lieGone)
	}
	for _, s := range seen {
		switch {
		case s.end == endGone && o.atOnce:
		case s.end == endGone:
			say(lieGone)
		case s.end == endRight && !e.given(o.key, s.said):
			say(lieFalse)
		case s.end == endOpen, s.end == endBroken:
			say(lieOpen)
		}
		if !o.atOnce && (s.end != seen[0].end || s.said != seen[0].said) {
			say(lieQuarrel)
		}
	}
	return found
}

// given: the agent gave this very answer to this very call.
func (e evidence) given(key, said string) bool { return slices.Contains(e.runs[key], said) }

// settled is the end of a call, also if its caller did not live to see it.
func (e evidence) settled(o outcome) end {
	if seen := e.sights[o.task]; o.end != endRight && len(seen) > 0 {
		return seen[0].end
	}
	return o.end
}

// seen tells of what the replicas said, for a lie.
func (e evidence) seen(o outcome) string {
	var b strings.Builder
	for _, s := range e.sights[o.task] {
		b.WriteString("; " + string(s.end) + " " + s.why)
	}
	return b.String()
}

func (c *count) add(how end, accepted bool) {
	c.Calls++
	if accepted {
		c.Accepted++
	}
	switch how {
	case endRight:
		c.Right++
	case endLost:
		c.Lost++
	case endBroken:
		c.Broken++
	default:
		c.Error++
	}
}

func cut(text string) string {
	if len(text) > maxLieWhy {
		return text[:maxLieWhy]
	}
	return text
}

// report is what came of an act: the line that a machine reads.
type report struct {
	Act     string  `json:"act"`
	Seconds float64 `json:"seconds"`
	Kinds   []count `json:"kinds"`
	Lies    []lie   `json:"lies"`
	Honest  bool    `json:"honest"`
	Error   string  `json:"error,omitempty"`
	Log     string  `json:"-"` // of the gateways

	calls []outcome
	note  string
}

// details tell how each call ended that did not end right.
func (r report) details(w io.Writer) {
	for _, o := range r.calls {
		if o.end != endRight {
			fmt.Fprintf(w, "%s %s %s %s: %s\n", o.kind, o.key, o.end, o.task, cut(o.why))
		}
	}
	fmt.Fprintf(w, "%s\n", r.Log)
}

// maxLies is how many are printed of an act.
const maxLies = 20

// told is what the act ends with: its lies, so that whoever has but the last lines
// of what was printed knows them too.
func (r report) told() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d in act %s", len(r.Lies), r.Act)
	for _, l := range r.Lies[:min(len(r.Lies), maxLies)] {
		fmt.Fprintf(&b, "\n  %s: %s %s %s", l.What, l.Kind, l.Key, l.Why)
	}
	return b.String()
}

func (r report) table(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s\tcalls\taccepted\tright\terror\tbroken\tlost\tforgotten\t\n", r.Act)
	for _, c := range r.Kinds {
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.Kind, c.Calls, c.Accepted, c.Right, c.Error, c.Broken, c.Lost, c.Forgot)
	}
	err := out.Flush()
	if r.note != "" {
		fmt.Fprintln(w, r.note)
	}
	fmt.Fprintf(w, "%d lies\n", len(r.Lies))
	return err
}
