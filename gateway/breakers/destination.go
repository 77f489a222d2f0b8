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

	mu      sync.Mutex
	breaker breaker.Breaker
	blame   blame
	turn    turn
	looked  time.Time // when it was found out last whether this replica probes
	changed time.Time
}

// turn is what this replica has to do with the probe.
type turn uint8

const (
	noTurn   turn = iota
	leasing       // it is found out whether this replica probes
	probing       // it does
	reserved      // it does: the probe was a question what the agent is, and the next message goes on with it
)

// probes reports whether this replica has the probe. The lock is held.
func (d *destination) probes() bool { return d.turn == probing || d.turn == reserved }

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
	if d.turn == reserved && !describes && d.breaker.State() == breaker.HalfOpen {
		d.turn = probing
		d.mu.Unlock()
		return true, nil
	}
	next, verdict, change := d.breaker.Ask(config, now)
	elsewhere := d.breaker.State() == breaker.HalfOpen && !verdict.Pass && !d.probes() && !now.Before(d.looked.Add(askAgain)) // what came of its probe is known there
	switch {
	case !verdict.Probe && !elsewhere:
		d.breaker = next
		d.mu.Unlock()
		d.share(ctx, config, change)
		d.tell(ctx, change, now, true)
	case d.turn == leasing:
		d.mu.Unlock()
		verdict = breaker.Verdict{Wait: askAgain}
	default:
		d.turn, d.looked = leasing, now
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
	if probe && d.turn == probing {
		d.turn = reserved
	}
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
	if probe && d.probes() {
		d.turn = noTurn
	}
	d.mu.Unlock()
	d.share(ctx, config, change)
	d.tell(ctx, change, now, true)
}

// count counts what was read. While this replica probes, that is the probe's reply.
func (d *destination) count(ctx context.Context, caller ect.Identity, err error) {
	d.mu.Lock()
	probe := d.probes()
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
