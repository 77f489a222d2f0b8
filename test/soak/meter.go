package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

var errMeter = errors.New("soak: the gateway's process cannot be read")

// measure samples the gateway until the load is over.
func (r *rig) measure(ctx context.Context, every, total time.Duration) ([]sample, error) {
	var samples []sample
	start := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for time.Since(start) < total {
		s, err := r.sample(ctx)
		if err != nil {
			return samples, err
		}
		s.At = time.Since(start)
		samples = append(samples, s)
		select {
		case <-ctx.Done():
			return samples, ctx.Err()
		case <-tick.C:
		}
	}
	return samples, nil
}

func (r *rig) sample(ctx context.Context) (s sample, err error) {
	page, err := r.gateway.Metrics(ctx)
	if err != nil {
		return s, err
	}
	if s.Goroutines, err = metric(page, "go_goroutines"); err != nil {
		return s, err
	}
	pid := strconv.Itoa(r.gateway.PID())
	if s.RSS, err = resident(pid); err != nil {
		return s, err
	}
	files, err := os.ReadDir("/proc/" + pid + "/fd")
	s.Files = float64(len(files))
	return s, err
}

// metric is a metric without labels, or with exactly these.
func metric(page, name string) (float64, error) {
	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%w: no metric %s", errMeter, name)
}

// resident is the memory of a process in KiB.
func resident(pid string) (float64, error) {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
		}
	}
	return 0, errMeter
}
