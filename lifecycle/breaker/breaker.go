package breaker

import (
	"time"
)

// State of a breaker (ATD, Circuit Breaker State Machine).
type State uint8

// The three states. Closed lets calls through, Open refuses them, HalfOpen waits for a
// probe and refuses all other calls.
const (
	Closed State = iota
	Open
	HalfOpen
)

var stateNames = [...]string{"closed", "open", "half_open"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Outcome is how a call ended, as far as it tells about the agent.
type Outcome uint8

// The outcomes. Unknown: nothing was learned, because the caller left, for example, or
// the agent refused this request with good reason.
const (
	Success Outcome = iota
	Failure
	Unknown
)

const (
	leastWait = time.Second // between two probes, and what a refusal says at least
	maxProbes = 1 << 30     // failed probes are counted up to here
)

// Verdict says whether a call may be made.
type Verdict struct {
	Pass  bool
	Probe bool          // this call finds out: report it as the probe, within Config.ProbeLimit
	Wait  time.Duration // of a refusal: when to come back; whole seconds, at least 1 s
}

// Change is what a step did to the state. What was adopted from another replica has no
// figures: that replica tells of it.
type Change struct {
	From, To          State
	Failures, Samples int           // why it opened; of a failed probe 1 and 1
	Window            time.Duration // of those
	Cooldown          time.Duration // To Open: that now runs; To Closed: that was waited
	FailedProbes      int           // in a row, up to now
}

// Happened reports whether the state is another one.
func (c Change) Happened() bool { return c.From != c.To }

// Breaker stands before one agent. It is an immutable, comparable value; the zero value
// is closed and has seen nothing.
type Breaker struct {
	state        State
	until        time.Time     // Open: no call before; HalfOpen: the probe has ended by then
	cooldown     time.Duration // the newest; zero while closed
	failedProbes int           // in a row since it opened
	at           time.Time     // of the newest change; orders what replicas share
	window       window        // while closed
}

// State is as of the newest step.
func (b Breaker) State() State { return b.state }

// Ask says whether a call may be made. The first after the cool-down becomes the probe;
// a probe that was not reported in time counts as failed here.
func (b Breaker) Ask(c Config, at time.Time) (Breaker, Verdict, Change) {
	at = plain(at)
	b.within(c, at)
	change := Change{From: b.state, To: b.state}
	switch {
	case b.state == Closed:
		return b, Verdict{Pass: true}, change
	case at.Before(b.until):
	case b.state == Open:
		b = b.become(HalfOpen, at)
		b.until = at.Add(c.ProbeLimit)
		change.To, change.Cooldown, change.FailedProbes = HalfOpen, b.cooldown, b.failedProbes
		return b, Verdict{Pass: true, Probe: true}, change
	default:
		b, change = b.probeFailed(c, at)
	}
	wait := (b.until.Sub(at) + time.Second - 1).Truncate(time.Second)
	return b, Verdict{Wait: max(wait, leastWait)}, change
}

// Report says how a call ended that Ask let through. A call from before the breaker
// opened changes nothing afterwards. A report of an earlier time than one before it
// counts, but does not open.
func (b Breaker) Report(c Config, at time.Time, o Outcome, probe bool) (Breaker, Change) {
	at = plain(at)
	b.within(c, at)
	switch {
	case b.state == Closed && o != Unknown:
		change := b.sample(c, at, o == Failure)
		return b, change
	case b.state == HalfOpen && probe:
		return b.probed(c, at, o)
	}
	return b, Change{From: b.state, To: b.state}
}

// sample counts a call and opens if more of them failed than may. It multiplies,
// because a rate that was rounded would open at the threshold or not above it.
func (b *Breaker) sample(c Config, at time.Time, failed bool) Change {
	if !b.window.add(c.Window, at, failed) {
		return Change{From: Closed, To: Closed}
	}
	opened, change := b.Open(c, at, int(b.window.failures), int(b.window.samples))
	*b = opened
	return change
}

// Open opens a closed breaker if of so many samples more failed than may: its owner has
// counted them.
func (b Breaker) Open(c Config, at time.Time, failures, samples int) (Breaker, Change) {
	if b.state != Closed || samples < c.MinSamples || failures*maxThreshold <= c.Threshold*samples {
		return b, Change{From: b.state, To: b.state}
	}
	b = b.opened(plain(at), min(c.Cooldown, c.MaxCooldown))
	return b, Change{From: Closed, To: Open, Failures: failures, Samples: samples, Window: c.Window, Cooldown: b.cooldown}
}

// Close closes a breaker, whose owner knows that the agent answers.
func (b Breaker) Close(at time.Time) (Breaker, Change) {
	change := Change{From: b.state, To: Closed, Cooldown: b.cooldown, FailedProbes: b.failedProbes}
	if b.state != Closed {
		b = b.become(Closed, plain(at))
		b.until, b.cooldown, b.failedProbes = time.Time{}, 0, 0
	}
	return b, change
}

// Slow makes a breaker that is not closed wait the longest cool-down between probes until it
// closes: several gateways have found that the agent is down (ATD, Coordinated Circuit
// Breaking). A cool-down that runs already lasts as long, a probe under way goes on. A second
// Slow changes nothing, so that others cannot put a probe off for ever.
func (b Breaker) Slow(c Config, at time.Time) Breaker {
	at = plain(at)
	b.within(c, at)
	if b.state == Closed || b.cooldown >= c.MaxCooldown {
		return b
	}
	longer := c.MaxCooldown - b.cooldown
	until := b.until
	if b.state == Open {
		until = until.Add(longer)
	}
	b = b.become(b.state, at)
	b.until, b.cooldown = until, c.MaxCooldown
	b.within(c, at)
	return b
}

// probed judges the probe. One that taught nothing leaves the rest as it was, and the
// next may come at once, though not faster than the least wait.
func (b Breaker) probed(c Config, at time.Time, o Outcome) (Breaker, Change) {
	switch {
	case o == Failure || o == Success && !at.Before(b.until):
		return b.probeFailed(c, at)
	case o == Success:
		return b.Close(at)
	}
	b = b.become(Open, at)
	b.until = at.Add(leastWait)
	return b, Change{From: HalfOpen, To: Open, Cooldown: b.cooldown}
}

func (b Breaker) probeFailed(c Config, at time.Time) (Breaker, Change) {
	b.failedProbes = min(b.failedProbes+1, maxProbes)
	b = b.opened(at, min(2*b.cooldown, c.MaxCooldown))
	return b, Change{
		From: HalfOpen, To: Open, Failures: 1, Samples: 1, Window: c.Window,
		Cooldown: b.cooldown, FailedProbes: b.failedProbes,
	}
}

func (b Breaker) opened(at time.Time, cooldown time.Duration) Breaker {
	b = b.become(Open, at)
	b.until, b.cooldown = at.Add(cooldown), cooldown
	return b
}

// become is the change itself. It is later than the one before whatever the clock
// says, so that of two replicas the one that knows more is believed.
func (b Breaker) become(s State, at time.Time) Breaker {
	if !at.After(b.at) {
		at = b.at.Add(1)
	}
	b.state, b.at, b.window = s, at, window{}
	return b
}

// within brings back what is further away than it can be: the clock was set back, runs
// behind that of another replica, or the settings have changed.
func (b *Breaker) within(c Config, at time.Time) {
	if b.state == Closed {
		return
	}
	b.cooldown = min(max(b.cooldown, leastWait), c.MaxCooldown)
	limit := b.cooldown
	if b.state == HalfOpen {
		limit = c.ProbeLimit
	}
	if latest := at.Add(limit); b.until.After(latest) {
		b.until = latest
	}
}

// plain is a time that replicas can share and values can be compared with.
func plain(at time.Time) time.Time { return at.Round(0).UTC() }
