package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// sample is the gateway's process at an instant.
type sample struct {
	At         time.Duration // since the load began
	RSS        float64       // KiB
	Goroutines float64
	Files      float64 // open descriptors
}

// resource is one figure of a sample, and by how much it may differ and still be
// flat: a share of the second quarter's median plus an amount, since small
// processes breathe more.
type resource struct {
	name  string
	of    func(sample) float64
	share float64
	slack float64
}

func resources() []resource {
	return []resource{
		// Answers live for ten minutes: in a short run they are still coming.
		{"rss_kib", func(s sample) float64 { return s.RSS }, 0.10, 24 << 10},
		{"goroutines", func(s sample) float64 { return s.Goroutines }, 0.10, 16},
		{"files", func(s sample) float64 { return s.Files }, 0.10, 10},
	}
}

// minSamples after the warm-up; fewer decide nothing.
const minSamples = 16

// finding is the judgement of one resource.
type finding struct {
	Name    string  `json:"name"`
	Second  float64 `json:"second_quarter"` // median
	Last    float64 `json:"last_quarter"`   // median
	Peak    float64 `json:"peak"`
	Slope   float64 `json:"slope_per_hour"` // median of all slopes
	Drift   float64 `json:"drift"`          // what the slope makes of the whole time after the warm-up
	Allowed float64 `json:"allowed"`        // of the medians' difference and of the drift, upwards
	Flat    bool    `json:"flat"`
}

// judge looks at what came after the warm-up. A resource is flat if the last
// quarter's median is not above the second's by more than what is allowed, and if
// neither would the typical slope lead there in all that time. Falling is no leak.
func judge(samples []sample, warm time.Duration) ([]finding, error) {
	samples = slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return s.At < warm })
	if len(samples) < minSamples {
		return nil, fmt.Errorf("soak: only %d samples after the warm-up; %d are needed", len(samples), minSamples)
	}
	var findings []finding
	for _, r := range resources() {
		findings = append(findings, r.judge(samples))
	}
	return findings, nil
}

func (r resource) judge(samples []sample) finding {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = r.of(s)
	}
	quarter := len(values) / 4
	f := finding{
		Name: r.name, Second: median(values[quarter : 2*quarter]), Last: median(values[len(values)-quarter:]),
		Peak: slices.Max(values),
	}
	slope := typicalSlope(samples, values)
	f.Slope = slope * float64(time.Hour)
	f.Drift = slope * float64(samples[len(samples)-1].At-samples[0].At)
	f.Allowed = f.Second*r.share + r.slack
	f.Flat = f.Last-f.Second <= f.Allowed && f.Drift <= f.Allowed
	return f
}

// maxPoints bounds the pairs that typicalSlope looks at.
const maxPoints = 512

// typicalSlope is the median of the slopes between all pairs of samples, per
// nanosecond (Theil 1950, Sen 1968).
func typicalSlope(samples []sample, values []float64) float64 {
	step := len(samples)/maxPoints + 1
	var slopes []float64
	for i := 0; i < len(samples); i += step {
		for j := i + step; j < len(samples); j += step {
			if span := samples[j].At - samples[i].At; span > 0 {
				slopes = append(slopes, (values[j]-values[i])/float64(span))
			}
		}
	}
	return median(slopes)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func table(w io.Writer, findings []finding) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "resource\tsecond quarter\tlast quarter\tpeak\tper hour\tdrift\tallowed\tflat\t\n")
	for _, f := range findings {
		fmt.Fprintf(out, "%s\t%.0f\t%.0f\t%.0f\t%+.0f\t%+.0f\t%.0f\t%t\t\n", f.Name, f.Second, f.Last, f.Peak, f.Slope, f.Drift, f.Allowed, f.Flat)
	}
	return out.Flush()
}
