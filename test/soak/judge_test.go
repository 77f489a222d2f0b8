package main

import (
	"io"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const kib = 1 << 10

// synthetic makes samples of an hour, of which only the memory is interesting.
func synthetic(rss func(at time.Duration) float64) []sample {
	var samples []sample
	for at := time.Duration(0); at < time.Hour; at += 5 * time.Second {
		samples = append(samples, sample{At: at, RSS: rss(at), Goroutines: 60, Files: 40})
	}
	return samples
}

// TestJudge_LeaksAndNoise shows the judge what it must tell apart.
func TestJudge_LeaksAndNoise(t *testing.T) {
	t.Parallel()
	const base = 100 << 10
	random := rand.New(rand.NewPCG(1, 2))
	noise := func() float64 { return random.NormFloat64() * 4 * kib }
	hours := func(at time.Duration) float64 { return at.Hours() }
	for name, tc := range map[string]struct {
		rss  func(time.Duration) float64
		flat bool
	}{
		"still":                 {func(time.Duration) float64 { return base }, true},
		"noise":                 {func(time.Duration) float64 { return base + noise() }, true},
		"saw tooth":             {func(at time.Duration) float64 { return base + float64(at%(7*time.Minute))/float64(time.Minute)*3*kib }, true},
		"spikes":                {func(at time.Duration) float64 { return base + float64(at/(5*time.Second)%20/19)*200*kib }, true},
		"growth in the warm-up": {func(at time.Duration) float64 { return base + math.Min(hours(at)*6, 1)*50*kib }, true},
		"falls":                 {func(at time.Duration) float64 { return base - hours(at)*50*kib }, true},
		"leak":                  {func(at time.Duration) float64 { return base + hours(at)*60*kib }, false},
		"leak in noise":         {func(at time.Duration) float64 { return base + hours(at)*60*kib + noise()*2 }, false},
		"late leak":             {func(at time.Duration) float64 { return base + math.Max(0, hours(at)-0.6)*200*kib }, false},
		"late step":             {func(at time.Duration) float64 { return base + math.Round(hours(at)*0.7)*40*kib }, false},
		"doubles at once":       {func(at time.Duration) float64 { return base * (1 + math.Round(hours(at)*0.9)) }, false},
	} {
		findings, err := judge(synthetic(tc.rss), 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if findings[0].Flat != tc.flat || !findings[1].Flat || !findings[2].Flat {
			t.Errorf("%s: %+v", name, findings)
		}
		if err := table(io.Discard, findings); err != nil {
			t.Error(err)
		}
	}
}

// TestJudge_SeesEveryResource plants a leak in each.
func TestJudge_SeesEveryResource(t *testing.T) {
	t.Parallel()
	for i, plant := range []func(*sample, float64){
		func(s *sample, x float64) { s.RSS += x * 80 * kib },
		func(s *sample, x float64) { s.Goroutines += x * 60 },
		func(s *sample, x float64) { s.Files += x * 40 },
	} {
		samples := synthetic(func(time.Duration) float64 { return 100 * kib })
		for j := range samples {
			plant(&samples[j], samples[j].At.Hours())
		}
		findings, err := judge(samples, 5*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for k, f := range findings {
			if f.Flat != (k != i) {
				t.Errorf("leak %d: %+v", i, f)
			}
		}
	}
}

func TestJudge_NeedsEnoughSamples(t *testing.T) {
	t.Parallel()
	if _, err := judge(synthetic(func(time.Duration) float64 { return 1 }), 59*time.Minute); err == nil {
		t.Error("a dozen samples were enough")
	}
}
