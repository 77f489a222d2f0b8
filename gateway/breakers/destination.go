package breakers

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// destination is the breaker of one destination.
type destination struct {
	set        *Set
	key        key
	downstream string
	label      string
	listed     bool // an operator named it

	mu       sync.Mutex
	breaker  breaker.Breaker
	blame    blame
	leasing  bool      // it is found out whether this replica probes
	probing  bool      // it does
	reserved bool      // the probe was a question what the agent is: the next message goes on with it
	looked   time.Time // when it was found out last
	changed  time.Time
}

// idle: it is closed, so that nothing is lost with it but what it has counted.
func (d *destination) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.breaker.State() == breaker.Closed
}

// ask lets a call through, or refuses it with a *[problem.CircuitOpenError]. probe: it is the
// one call by which the destination is tried.
func (d *destination) ask(ctx context.Context, describes bool) (probe bool, err error) {
	d.mu.Lock()
	if d.breaker.State() == breaker.Closed {
		d.mu.Unlock()
		return false, nil
	}
	config, now := *d.set.circuit.Load(), d.set.deps.Now()
	if d.reserved && !describes && d.breaker.State() == breaker.HalfOpen {
		d.reserved = false
		d.mu.Unlock()
		return true, nil
	}
	next, verdict, change := d.breaker.Ask(config, now)
	elsewhere := d.breaker.State() == breaker.HalfOpen && !verdict.Pass && !d.probing && !now.Before(d.looked.Add(askAgain)) // what came of its probe is known there
	switch {
	case !verdict.Probe && !elsewhere:
		d.breaker = next
		d.mu.Unlock()
		d.share(ctx, config, change)
		d.tell(ctx, change, now, true)
	case d.leasing:
		d.mu.Unlock()
		verdict = breaker.Verdict{Wait: askAgain}
	default:
		d.leasing, d.looked, d.reserved = true, now, false
		d.mu.Unlock()
		verdict = d.lease(ctx, config, now)
	}
	if verdict.Pass {
		return verdict.Probe, nil
	}
	return false, &problem.CircuitOpenError{Agent: d.downstream, RetryAfter: verdict.Wait}
}

// reserve leaves the probe to the next message, after an agent has answered what it is.
func (d *destination) reserve(probe bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved = d.reserved || probe
}

// report counts how a call ended.
func (d *destination) report(ctx context.Context, caller ect.Identity, err error, probe bool) {
	config, now := *d.set.circuit.Load(), d.set.deps.Now()
	outcome, own := outcomeOf(err)
	d.mu.Lock()
	if counted := d.blame.take(outcome, own, caller, now, config.Window); !probe {
		outcome = counted
	}
	var change breaker.Change
	d.breaker, change = d.breaker.Report(config, now, outcome, probe)
	d.probing = d.probing && !probe
	d.mu.Unlock()
	d.share(ctx, config, change)
	d.tell(ctx, change, now, true)
}

// count counts what was read. While this replica probes, that is the probe's reply.
func (d *destination) count(ctx context.Context, caller ect.Identity, err error) {
	d.mu.Lock()
	probe := d.probing
	d.mu.Unlock()
	d.report(ctx, caller, err, probe)
}

// tell leaves evidence of a change that this replica has made, and says it to those who watch.
func (d *destination) tell(ctx context.Context, change breaker.Change, now time.Time, own bool) {
	if !change.Happened() {
		return
	}
	ctx, deps := context.WithoutCancel(ctx), d.set.deps
	d.mu.Lock()
	d.changed = now
	d.mu.Unlock()
	deps.Metrics.BreakerChanged(d.label, change.To.String())
	deps.Logger.WarnContext(ctx, "circuit breaker", slog.String("agent", d.downstream), slog.String("from", change.From.String()),
		slog.String("to", change.To.String()), slog.Int("failures", change.Failures), slog.Int("calls", change.Samples), slog.Duration("cooldown", change.Cooldown))
	event := Event{Agent: d.downstream, State: change.To.String(), At: now, Replica: deps.Replica}
	if act, ext, ok := change.Claims(d.downstream); ok && own {
		event.Token = d.set.sign(ctx, d.downstream, act, ext)
	}
	d.set.publish(event)
	if !own {
		return
	}
	if breaker.Escalates(change) && d.listed { // operators are not called about what callers name
		d.set.escalate(ctx, d.downstream, "probes")
	}
	if change.From == breaker.Closed && change.To == breaker.Open && d.listed {
		d.set.opened(ctx, d.downstream, now)
	}
}
