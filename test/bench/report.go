package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/aepb/aepb-gateway/test/bench/lasting"
)

// document is what --json prints.
type document struct {
	Raised []raised `json:"raised"`

	Idle []idle   `json:"idle"`
	Runs []result `json:"runs"`

	Refusals []result `json:"refusals,omitempty"`

	Bridges []result `json:"bridges,omitempty"`

	Pairs   []pair           `json:"pairs,omitempty"`
	Lasting []lasting.Figure `json:"lasting,omitempty"`
}

// raised is what the gateway's configuration raises for a measurement.
type raised struct {
	Name          string `json:"name"`
	Configuration string `json:"configuration"` // YAML
}

// raises is that of all measurements, or of the one that is wanted.
func raises(only string) (all []raised) {
	measured := names()
	if only == bridgeName {
		measured = []string{bridgeName}
	}
	for _, name := range measured {
		r := raised{name, gatewayLimits}
		if slices.Contains(lasting.Names(), name) {
			r.Configuration = lasting.Configuration(name)
		}
		if only == "" || only == name {
			all = append(all, r)
		}
	}
	return all
}

// heading says what the gateway's configuration raises, a line for each measurement.
func heading(w io.Writer, all []raised) error {
	var text strings.Builder
	text.WriteString("configuration of the gateway, which raises:\n")
	for _, r := range all {
		fmt.Fprintf(&text, "  %s: %s\n", r.Name, strings.ReplaceAll(strings.TrimSpace(r.Configuration), "\n", "; "))
	}
	_, err := io.WriteString(w, text.String()+"\n")
	return err
}

// baseline is the case that the others are compared to.
const baseline = "floor"

// column is one figure of a run.
type column struct {
	title string
	value func(result) (float64, bool)
}

func always(value func(result) float64) func(result) (float64, bool) {
	return func(r result) (float64, bool) { return value(r), true }
}

func columns() []column {
	return []column{
		{"rps", always(func(r result) float64 { return r.RPS })},
		{"p50 us", always(func(r result) float64 { return r.P50 })},
		{"p99 us", always(func(r result) float64 { return r.P99 })},
		{"cpu us/call", always(func(r result) float64 { return r.CPU })},
		{"allocs/call", func(r result) (float64, bool) {
			if r.Allocs == nil {
				return 0, false
			}
			return *r.Allocs, true
		}},
		{"rss KiB", always(func(r result) float64 { return float64(r.RSS) })},
	}
}

// table prints what is raised, what the processes take at idle, the medians, and the
// medians of the per-round ratios to floor.
func table(w io.Writer, d document) (err error) {
	if err := heading(w, d.Raised); err != nil {
		return err
	}
	if len(d.Lasting) > 0 {
		defer func() { err = errors.Join(err, lasting.Table(w, d.Lasting)) }()
	}
	defer func() { err = errors.Join(err, pairTable(w, d.Pairs)) }()
	if err := bridgeTables(w, d.Bridges); err != nil {
		return err
	}
	if err := ratios(w, d.Refusals); err != nil || len(d.Runs) == 0 {
		return err
	}
	if err := atRest(w, d.Idle); err != nil {
		return err
	}
	return ratios(w, d.Runs)
}

// ratios prints the medians of runs, and those of the per-round ratios to floor.
func ratios(w io.Writer, runs []result) error {
	if len(runs) == 0 {
		return nil
	}
	if err := block(w, "medians", "%.0f", runs, medianOf); err != nil {
		return err
	}
	return block(w, "medians of the per-round ratios to "+baseline, "%.2f", runs, medianRatio)
}

// bridgeTables prints, for each direction, the medians and those of the per-round ratios.
func bridgeTables(w io.Writer, all []result) error {
	for _, d := range directions() {
		runs := slices.DeleteFunc(slices.Clone(all), func(r result) bool { return r.Name != d.String() })
		if len(runs) == 0 {
			continue
		}
		if err := errors.Join(block(w, "medians", "%.0f", runs, medianOf), bridgeRatios(w, runs)); err != nil {
			return err
		}
	}
	return nil
}

// compared is one case beside another.
type compared struct{ name, to string }

// comparisons are those that the cases of the runs allow. That of the gateway to itself shows
// how far a ratio is from 1 without any difference.
func comparisons(runs []result) (all []compared) {
	ran := present(runs)
	for _, one := range []compared{
		{"gateway", bridgeName}, {"gateway", eagerName}, {againName, "gateway"}, {eagerName, bridgeName}, {"gateway", formerName},
	} {
		if slices.Contains(ran, one.name) && slices.Contains(ran, one.to) {
			all = append(all, one)
		}
	}
	for _, name := range ran {
		if strings.HasPrefix(name, procsPrefix) {
			all = append(all, compared{name, bridgeName}, compared{name, "gateway"})
		}
	}
	return all
}

func bridgeRatios(w io.Writer, runs []result) error {
	var text strings.Builder
	text.WriteString("callers\tratio\t")
	for _, col := range columns() {
		text.WriteString(col.title + "\t")
	}
	for _, concurrency := range concurrencies() {
		for _, one := range comparisons(runs) {
			fmt.Fprintf(&text, "\n%d\t%s / %s\t", concurrency, one.name, one.to)
			for _, col := range columns() {
				v, ok := ratioTo(one.to)(runs, one.name, concurrency, col)
				text.WriteString(cell("%.2f", v, ok) + "\t")
			}
		}
	}
	if _, err := io.WriteString(w, runs[0].Name+": medians of the per-round ratios\n"); err != nil {
		return err
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := io.WriteString(out, text.String()+"\n\n"); err != nil {
		return err
	}
	return out.Flush()
}

func atRest(w io.Writer, all []idle) error {
	var text strings.Builder
	text.WriteString("resident memory at idle, KiB:")
	for _, one := range all {
		fmt.Fprintf(&text, "  %s %d", one.Case, one.RSS)
	}
	_, err := io.WriteString(w, text.String()+"\n\n")
	return err
}

func block(w io.Writer, title, format string, runs []result, value func([]result, string, int, column) (float64, bool)) error {
	var text strings.Builder
	text.WriteString("callers\tcase\t")
	for _, col := range columns() {
		text.WriteString(col.title + "\t")
	}
	for _, concurrency := range concurrencies() {
		for _, name := range present(runs) {
			fmt.Fprintf(&text, "\n%d\t%s\t", concurrency, name)
			for _, col := range columns() {
				v, ok := value(runs, name, concurrency, col)
				text.WriteString(cell(format, v, ok) + "\t")
			}
		}
	}
	if _, err := io.WriteString(w, runs[0].Name+": "+title+"\n"); err != nil {
		return err
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := io.WriteString(out, text.String()+"\n\n"); err != nil {
		return err
	}
	return out.Flush()
}

func cell(format string, value float64, ok bool) string {
	if !ok {
		return "n/a"
	}
	return fmt.Sprintf(format, value)
}

// present lists the cases that ran, those of the exchange in their usual order before the others.
func present(runs []result) []string {
	var names []string
	for _, name := range append(caseNames(), formerName) {
		if slices.ContainsFunc(runs, func(r result) bool { return r.Case == name }) {
			names = append(names, name)
		}
	}
	for _, r := range runs {
		if !slices.Contains(names, r.Case) {
			names = append(names, r.Case)
		}
	}
	return names
}

// byRound is a figure of a case at a concurrency, by round.
func byRound(runs []result, name string, concurrency int, col column) map[int]float64 {
	values := map[int]float64{}
	for _, r := range runs {
		if r.Case != name || r.Concurrency != concurrency {
			continue
		}
		if v, ok := col.value(r); ok {
			values[r.Round] = v
		}
	}
	return values
}

func medianOf(runs []result, name string, concurrency int, col column) (float64, bool) {
	var values []float64
	for _, v := range byRound(runs, name, concurrency, col) {
		values = append(values, v)
	}
	return median(values)
}

func medianRatio(runs []result, name string, concurrency int, col column) (float64, bool) {
	return ratioTo(baseline)(runs, name, concurrency, col)
}

// ratioTo is the median of a case's ratios to another case, round by round.
func ratioTo(other string) func(runs []result, name string, concurrency int, col column) (float64, bool) {
	return func(runs []result, name string, concurrency int, col column) (float64, bool) {
		return ratiosMedian(byRound(runs, other, concurrency, col), byRound(runs, name, concurrency, col))
	}
}

func ratiosMedian(base, values map[int]float64) (float64, bool) {
	var ratios []float64
	for round, v := range values {
		if base[round] > 0 {
			ratios = append(ratios, v/base[round])
		}
	}
	return median(ratios)
}

func median(values []float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle], true
	}
	return (values[middle-1] + values[middle]) / 2, true
}
