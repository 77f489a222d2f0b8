package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// callTimeout bounds one call; slower is a failure, not a slow call.
const callTimeout = 30 * time.Second

// subject is a case under load.
type subject struct {
	name    string
	url     string
	client  *http.Client
	headers func(http.Header)
	calls   callMaker
	process process
	rate    map[int]float64                   // calls per second seen last, by concurrency
	inside  bool                              // its ECTs stand in the messages
	via     func(context.Context, call) error // in place of HTTP; nil: HTTP
	bare    bool                              // its answers come without ECTs
	refused bool                              // its answers are 503 that say when to come back
	opening bool                              // no call is refused yet
	probes  atomic.Int64                      // of those, calls that tried the agent in vain
}

// observation is what the client saw of one slice.
type observation struct {
	calls   int
	elapsed time.Duration
	took    []time.Duration // sorted
}

// load sends calls from a number of callers, each waiting for its answer before
// the next, until the time is up or the calls are. The first wrong answer ends
// it with an error: a benchmark of failures is none.
func (s *subject) load(ctx context.Context, calls []call, concurrency int, span time.Duration) (observation, error) {
	var next atomic.Int64
	took := make([][]time.Duration, concurrency)
	start := time.Now()
	callers, ctx := errgroup.WithContext(ctx)
	for caller := range concurrency {
		callers.Go(func() error {
			for time.Since(start) < span {
				i := int(next.Add(1)) - 1
				if i >= len(calls) {
					return nil
				}
				begin := time.Now()
				if err := s.send(ctx, calls[i]); err != nil {
					return err
				}
				took[caller] = append(took[caller], time.Since(begin))
			}
			return nil
		})
	}
	err := callers.Wait()
	seen := observation{elapsed: time.Since(start), took: slices.Concat(took...)}
	seen.calls = len(seen.took)
	slices.Sort(seen.took)
	return seen, err
}

func (s *subject) send(ctx context.Context, c call) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if s.via != nil {
		return s.via(ctx, c)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(c.body))
	if err != nil {
		return err
	}
	s.headers(req.Header)
	if c.token != "" {
		req.Header.Set("Execution-Context", c.token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("bench: %s: %w", s.name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("bench: %s: %w", s.name, err)
	}
	if s.refused {
		return s.refusal(resp, body)
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), echoed) {
		return fmt.Errorf("bench: %s answered %s: %.500s", s.name, resp.Status, body)
	}
	if (c.token != "" || s.inside) && !s.bare && resp.Header.Get("Execution-Context") == "" {
		return fmt.Errorf("bench: %s answered without an ECT", s.name)
	}
	return nil
}

// quantile of sorted durations, in microseconds.
func (o observation) quantile(q float64) float64 {
	if len(o.took) == 0 {
		return 0
	}
	return float64(o.took[int(q*float64(len(o.took)-1))]) / float64(time.Microsecond)
}

func (o observation) rps() float64 { return float64(o.calls) / o.elapsed.Seconds() }
