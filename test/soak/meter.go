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
	now, err := resident(pid)
	if err != nil {
		return s, err
	}
	s.RSS = now.All
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

// footprint is the resident memory of a process in KiB: all of it, and the part that is no
// page of a file. Pages of the program and of the state file that were read count for the
// first, but the system takes them back when it needs memory.
type footprint struct {
	All float64 `json:"all_kib"`
	Own float64 `json:"own_kib"`
}

func (f footprint) String() string { return fmt.Sprintf("%.0f KiB (%.0f its own)", f.All, f.Own) }

func resident(pid string) (f footprint, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return f, err
	}
	for line := range strings.Lines(string(text)) {
		for name, to := range map[string]*float64{"VmRSS:": &f.All, "RssAnon:": &f.Own} {
			if value, ok := strings.CutPrefix(line, name); ok && err == nil {
				*to, err = strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			}
		}
	}
	if f.All == 0 || f.Own == 0 {
		err = errors.Join(err, errMeter)
	}
	return f, err
}
