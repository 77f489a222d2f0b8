package breakers

import (
	"maps"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

const (
	// maxCallers bounds the callers of one destination that are remembered. Each takes one place, so
	// one who wants another forgotten needs as many identities.
	maxCallers = 256
	// useful is how long an answer shows that an agent works for others than those who fail: longer
	// than the window, since agents are not asked in each one.
	useful = time.Hour
	// never is the threshold that no rate exceeds.
	never = 1000
	// maxDoubled is how often a cool-down is doubled, at most: it has reached its bound by then.
	maxDoubled = 10
	// outnumber: callers who fail are so many for each one that had an answer within that time.
	outnumber = 4
)

// callerFailures is how the calls of one caller went of late, as far as it may have caused how they ended.
type callerFailures struct {
	run      int       // failed since its last answer
	failed   time.Time // the last that failed
	answered time.Time // the last answer; zero: none
	until    time.Time // its calls are refused until then
	trying   bool      // one that was let through nevertheless is under way
}

func (s *callerFailures) seen() time.Time {
	if s.failed.After(s.answered) {
		return s.failed
	}
	return s.answered
}

// enough is how many failures in a row of one caller count: so many that it takes two callers to open
// a breaker, and not one beside another who fails once.
func enough(config breaker.Config) int { return (config.MinSamples + 1) / 2 }

// fails reports whether a caller has failed lately, and not just now and then.
func (s *callerFailures) fails(config breaker.Config, now time.Time) bool {
	since := now.Add(-useful)
	return s.failed.After(since) && (s.run >= enough(config) || s.run > 0 && !s.answered.After(since))
}

// ending is how a call ended.
type ending struct {
	outcome breaker.Outcome
	own     bool // a failure of the destination's own: no caller can have caused it
	probe   bool
	began   time.Time // when it was sent; zero: not known
}

// callers are those of one destination. The zero value knows none.
type callers map[ect.Identity]*callerFailures

// of is the standing of a caller, which may be changed.
func (c *callers) of(caller ect.Identity) *callerFailures {
	if s := (*c)[caller]; s != nil {
		return s
	}
	if *c == nil {
		*c = callers{}
	}
	if len(*c) >= maxCallers {
		c.forget()
	}
	s := &callerFailures{}
	(*c)[caller] = s
	return s
}

// forget drops the caller that was here least recently.
func (c *callers) forget() {
	delete(*c, slices.MinFunc(slices.Collect(maps.Keys(*c)), func(a, b ect.Identity) int {
		return (*c)[a].seen().Compare((*c)[b].seen())
	}))
}

// look is the standing of a caller.
func (c callers) look(caller ect.Identity) callerFailures {
	if s := c[caller]; s != nil {
		return *s
	}
	return callerFailures{}
}

// let notes that a call goes through of a caller that has to be refused otherwise: it has only this one.
func (c *callers) let(caller ect.Identity, config breaker.Config, now time.Time) {
	s := c.of(caller)
	s.trying, s.until = true, now.Add(config.ProbeLimit)
}

// take notes how a call of a caller ended, and returns for how long that caller is refused from now on.
func (c *callers) take(caller ect.Identity, e ending, config breaker.Config, now time.Time) (refused time.Duration) {
	switch s := (*c)[caller]; {
	case e.outcome == breaker.Success:
		*c.of(caller) = callerFailures{answered: now}
	case e.outcome == breaker.Failure && !e.own:
		return c.of(caller).fail(config, now, e)
	case s != nil && s.trying:
		s.trying, s.until = false, now
	}
	return 0
}

// fail counts a failure. One of a call from before its caller was refused changes nothing, nor does one of
// a call that was under way when another failed: what ends many calls at once is one failure.
func (s *callerFailures) fail(config breaker.Config, now time.Time, e ending) (refused time.Duration) {
	if !s.trying && (now.Before(s.until) || !e.began.IsZero() && e.began.Before(s.failed)) {
		return 0
	}
	s.run, s.failed, s.trying = s.run+1, now, false
	if e.probe || s.tooMany(config) {
		refused = min(config.Cooldown<<min(max(s.run-config.MinSamples, 0), maxDoubled), config.MaxCooldown)
	}
	s.until = now.Add(refused)
	return refused
}

// tooMany reports whether a caller has failed so often in a row that it has one call after each wait.
func (s *callerFailures) tooMany(config breaker.Config) bool {
	return s.run >= config.MinSamples && config.Threshold < never
}

// together is how many failures open a breaker: those of several callers who fail, of each no more than
// enough, while no other one has an answer. 0: there is no such thing.
func (c callers) together(config breaker.Config, now time.Time) int {
	failures, failing, answered := 0, 0, 0
	since := now.Add(-config.Window)
	for _, s := range c {
		switch {
		case s.fails(config, now):
			if s.failed.After(since) {
				failures, failing = failures+min(s.run, enough(config)), failing+1
			}
		case s.answered.After(since):
			return 0
		case s.answered.After(now.Add(-useful)):
			answered++
		}
	}
	if failing < 2 || failing < outnumber*answered {
		return 0
	}
	return failures
}
