package workflow

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// Bounds of what is remembered of workflows that were read. What is forgotten is read again.
const (
	maxReadings = 64     // workflows
	maxRead     = 40_000 // tokens of all of them, some 20 MB
	// largeFrom is how many tokens make a workflow large. The states of a large one are found anew at most each
	// second, and in at most one part of costShare of the time, so that a member that fills its workflow with
	// tokens of many parents costs the gateway little.
	largeFrom = 1000
	freshFor  = time.Second
	costShare = 20

	maxParsers = 4   // goroutines that read the tokens of a page …
	minParsed  = 100 // … of so many tokens each at least
)

// reading is what is known of the tokens of one workflow. They are read once: tokens never change.
type reading struct {
	mu      sync.Mutex
	after   string // cursor of the store behind the last whole page that was read
	whole   int    // tokens of whole pages; further ones are read again
	tokens  []workflow.Token
	run     workflow.Run
	err     error     // why there is no run
	built   int       // tokens that run was made of
	planned bool      // it was made of a descriptor, too
	at      time.Time // when run was made
	cost    time.Duration

	used time.Time // guarded by readings.mu
	size int       // guarded by readings.mu
}

// readings are those of the workflows that were asked for last.
type readings struct {
	mu    sync.Mutex
	all   map[string]*reading
	total int
}

// of is the reading of a workflow, and drops the oldest ones if there are too many.
func (r *readings) of(wid string, now time.Time) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.all[wid]
	if one == nil {
		one = &reading{}
		r.all[wid] = one
	}
	one.used = now
	for len(r.all) > maxReadings || r.total > maxRead && len(r.all) > 1 {
		oldest := ""
		for name, other := range r.all {
			if name != wid && (oldest == "" || other.used.Before(r.all[oldest].used)) {
				oldest = name
			}
		}
		r.total -= r.all[oldest].size
		delete(r.all, oldest)
	}
	return one
}

// grew counts the tokens of a reading.
func (r *readings) grew(wid string, one *reading, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[wid] == one {
		r.total += size - one.size
		one.size = size
	}
}

// read reads a workflow from its tokens on record. lately: of a large workflow, what was found within the
// last second is enough. A caller that had large workflows read rests for costShare times as long as that took,
// so that it cannot have one after the other read: it gets what is remembered, or a *[problem.WaitingError].
func (s *Service) read(ctx context.Context, wid string, who ect.Identity, lately bool) (workflow.Run, []workflow.Token, error) {
	now := s.deps.Now()
	one := s.readings.of(wid, now)
	one.mu.Lock()
	defer one.mu.Unlock()
	rests, large := s.resting.has(string(who), now), len(one.tokens) >= largeFrom
	if lately && large && (rests || now.Sub(one.at) < max(freshFor, costShare*one.cost)) {
		return one.run, one.tokens, one.err
	}
	if rests && (large || one.at.IsZero()) {
		return workflow.Run{}, nil, &problem.WaitingError{Reason: "large workflows were read for this caller just now: try again in a moment, or split the work into smaller workflows"}
	}
	if err := s.readOn(ctx, wid, one); err != nil {
		return workflow.Run{}, nil, err
	}
	s.readings.grew(wid, one, len(one.tokens))
	plan, planned, err := s.Descriptor(ctx, wid)
	if err != nil {
		return workflow.Run{}, nil, err
	}
	if one.built != len(one.tokens) || one.at.IsZero() || one.planned != planned {
		one.run, one.err = workflow.New(wid, one.tokens, plan.Planned(s.names(ctx)))
		one.built, one.planned = len(one.tokens), planned
	}
	one.at = s.deps.Now()
	one.cost = one.at.Sub(now)
	s.rest(who, len(one.tokens), now)
	return one.run, one.tokens, one.err
}

// Read is a workflow as its tokens on record say it is, and these, for a caller that asks for it. Its errors are
// *[workflow.TooLargeError], *[problem.WaitingError] for a caller whose last readings cost much, and *[problem.RecordingError].
func (s *Service) Read(ctx context.Context, wid string, who ect.Identity) (workflow.Run, []workflow.Token, error) {
	return s.read(ctx, wid, who, false)
}

// rest has a caller rest if a large workflow was read for it, since some time.
func (s *Service) rest(who ect.Identity, tokens int, since time.Time) {
	if now := s.deps.Now(); tokens >= largeFrom {
		s.resting.add(string(who), now.Add(costShare*now.Sub(since)))
	}
}

// readOn reads the tokens of a workflow that came since.
func (s *Service) readOn(ctx context.Context, wid string, one *reading) error {
	tokens := one.tokens[:one.whole]
	if len(tokens) < len(one.tokens) {
		tokens = slices.Clip(tokens) // reports may still read the rest
	}
	for one.whole <= maxSteps {
		records, next, err := s.deps.Store.Workflow(ctx, wid, one.after, pageSize)
		if err != nil {
			return attest.Recording(err)
		}
		if next == "" && len(records) == len(one.tokens)-one.whole {
			return nil // nothing is new
		}
		tokens = append(tokens, s.parse(ctx, records)...)
		one.tokens = tokens
		if next == "" {
			return nil
		}
		one.after, one.whole = next, len(tokens)
	}
	return nil
}

// parse reads the tokens of records, on several processors.
func (s *Service) parse(ctx context.Context, records []ect.Record) []workflow.Token {
	tokens, readable := make([]workflow.Token, len(records)), make([]bool, len(records))
	part := max((len(records)+maxParsers-1)/maxParsers, minParsed)
	var group sync.WaitGroup
	for from := 0; from < len(records); from += part {
		to := min(from+part, len(records))
		group.Go(func() {
			var parser ect.RecordParser
			for i, r := range records[from:to] {
				claims, err := parser.Parse(r.Compact)
				if err != nil {
					s.deps.Logger.WarnContext(ctx, "a token on record cannot be read", slog.String("jti", string(r.ID)), slog.Any("error", err))
					continue
				}
				tokens[from+i], readable[from+i] = workflow.TokenOf(claims), true
			}
		})
	}
	group.Wait()
	n := 0
	for i := range tokens {
		if readable[i] {
			tokens[n] = tokens[i]
			n++
		}
	}
	return tokens[:n]
}
