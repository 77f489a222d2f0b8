package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// Sizes of what is not measured.
const (
	warmCalls  = 200 // of each case before the first round, at each concurrency
	spareCalls = 100 // prepared beyond what the last slice used and a half more
)

// result is one slice: a case at a concurrency in a round.
type result struct {
	Name        string   `json:"name"`
	Case        string   `json:"case"`
	Concurrency int      `json:"concurrency"`
	Round       int      `json:"round"`
	RPS         float64  `json:"rps"`
	P50         float64  `json:"p50_us"`
	P99         float64  `json:"p99_us"`
	CPU         float64  `json:"cpu_us_per_call"`
	Allocs      *float64 `json:"allocs_per_call,omitempty"` // nil: the process does not tell
	RSS         int      `json:"rss_kb"`
}

// measureBridges compares the gateway with the bridge of the official SDKs, one direction after
// the other, each with processes of its own.
func measureBridges(ctx context.Context, o options, progress io.Writer) (runs []result, err error) {
	dir, err := os.MkdirTemp("", "aepb-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary, err := devgateway.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, d := range directions() {
		say(progress, d.String())
		some, err := measureDirection(ctx, dir, binary, d, o, progress)
		if err != nil {
			return nil, err
		}
		runs = append(runs, some...)
	}
	return runs, nil
}

func measureDirection(ctx context.Context, dir, binary string, d direction, o options, progress io.Writer) (runs []result, err error) {
	c := &cast{http2: o.http2, binary: binary}
	defer func() { err = errors.Join(err, c.stop(ctx)) }()
	if dir, err = os.MkdirTemp(dir, "direction-"); err != nil {
		return nil, err
	}
	if err := c.found(ctx, dir, true); err != nil {
		return nil, err
	}
	agents, err := c.start(ctx, "agents", script{Seed: make([]byte, ed25519.SeedSize)}) // no AINP is spoken
	if err != nil {
		return nil, err
	}
	if err := c.bridges(ctx, dir, d, o.sides(), agents.url); err != nil {
		return nil, err
	}
	runs, err = c.rounds(ctx, o, progress)
	for i := range runs {
		runs[i].Name = d.String()
	}
	return runs, err
}

// idle is a case's process before anybody called it.
type idle struct {
	Case string `json:"case"`
	RSS  int    `json:"rss_kb"`
}

func (c *cast) idle() ([]idle, error) {
	all := make([]idle, len(c.subjects))
	for i, s := range c.subjects {
		memory, err := resident(s.process.pid)
		if err != nil {
			return nil, err
		}
		all[i] = idle{s.name, memory}
	}
	return all, nil
}

// rounds lets the cases take turns. Who begins changes from round to round, so
// that a machine that grows slower or faster favours nobody.
func (c *cast) rounds(ctx context.Context, o options, progress io.Writer) ([]result, error) {
	span := time.Duration(o.seconds / float64(o.rounds) * float64(time.Second))
	if err := c.warm(ctx); err != nil {
		return nil, err
	}
	var runs []result
	for round := range o.rounds {
		say(progress, fmt.Sprintf("round %d of %d", round+1, o.rounds))
		for _, concurrency := range concurrencies() {
			for i := range c.subjects {
				s := c.subjects[(i+round)%len(c.subjects)]
				r, err := s.slice(ctx, concurrency, span)
				if err != nil {
					return nil, err
				}
				r.Round = round + 1
				runs = append(runs, r)
			}
		}
	}
	return runs, nil
}

// warm opens the connections, fills the caches and finds out how many calls a
// slice will need.
func (c *cast) warm(ctx context.Context) error {
	for _, s := range c.subjects {
		for _, concurrency := range concurrencies() {
			calls, err := s.calls.prepare(ctx, warmCalls)
			if err != nil {
				return err
			}
			seen, err := s.load(ctx, calls, concurrency, callTimeout)
			if err != nil {
				return err
			}
			s.rate[concurrency] = seen.rps()
		}
	}
	return nil
}

// slice measures a case once.
func (s *subject) slice(ctx context.Context, concurrency int, span time.Duration) (result, error) {
	calls, err := s.calls.prepare(ctx, int(s.rate[concurrency]*span.Seconds()*1.5)+spareCalls)
	if err != nil {
		return result{}, err
	}
	before, err := s.process.before(ctx)
	if err != nil {
		return result{}, err
	}
	seen, err := s.load(ctx, calls, concurrency, span)
	if err != nil {
		return result{}, err
	}
	after, err := s.process.after(ctx)
	if err != nil {
		return result{}, err
	}
	memory, err := resident(s.process.pid)
	if err != nil {
		return result{}, err
	}
	s.rate[concurrency] = seen.rps()
	return s.result(concurrency, seen, before, after, memory), nil
}

func (s *subject) result(concurrency int, seen observation, before, after reading, memory int) result {
	n := float64(max(seen.calls, 1))
	r := result{
		Name: exchangeName, Case: s.name, Concurrency: concurrency,
		RPS: seen.rps(), P50: seen.quantile(0.50), P99: seen.quantile(0.99),
		CPU: float64(after.cpu-before.cpu) / float64(time.Microsecond) / n, RSS: memory,
	}
	if after.allocs > 0 {
		per := float64(after.allocs-before.allocs) / n
		r.Allocs = &per
	}
	return r
}
