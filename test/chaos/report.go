package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

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

func (r report) table(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s\tcalls\taccepted\tright\terror\tbroken\tlost\t\n", r.Act)
	for _, c := range r.Kinds {
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.Kind, c.Calls, c.Accepted, c.Right, c.Error, c.Broken, c.Lost)
	}
	err := out.Flush()
	fmt.Fprintf(w, "%d lies\n", len(r.Lies))
	for i, l := range r.Lies {
		if i == maxLies {
			break
		}
		fmt.Fprintf(w, "  %s: %s %s %s\n", l.What, l.Kind, l.Key, l.Why)
	}
	return err
}
