package breakers

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// destination is the breaker of one destination.
type destination struct {
	set        *Set
	key        key
	downstream string
	label      string
	listed     bool         // an operator named it, and all callers share it; else it is of one caller
	place      *quota.Grant // of one that is not listed, in its caller's share

	mu        sync.Mutex
	breaker   breaker.Breaker
	callers   callers // of one that is listed
	byCallers bool    // it opened for what callers may have caused
	turn      turn
	prober    ect.Identity // the last one
	due       time.Time    // until then is told what came of its probe
	looked    time.Time    // when it was found out last whether this replica probes
	changed   time.Time
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

// idle reports whether the breaker is closed: then it can be dropped, and only its counts are lost.
func (d *destination) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.breaker.State() == breaker.Closed
}

// refused refuses a caller whose calls failed too often in a row. The lock is held.
func (d *destination) refused(caller ect.Identity, now time.Time) error {
	if wait := d.callers.look(caller).until.Sub(now); wait > 0 {
		return &problem.CircuitOpenError{Agent: d.downstream, RetryAfter: (wait + time.Second - 1).Truncate(time.Second), Own: true}
	}
	return nil
}

// passes reports whether an open breaker is not against this caller: others have opened it by what
// they may have caused and this one does not fail, or one that fails more often holds the probe. The
// lock is held.
func (d *destination) passes(caller ect.Identity, config breaker.Config, now time.Time) bool {
	if !d.listed || !d.byCallers && !d.probes() {
		return false
	}
	s, prober := d.callers.look(caller), d.callers.look(d.prober)
	return d.byCallers && !s.fails(config, now) || d.probes() && prober.fails(config, now) && s.run < prober.run
}

// pass is how a call was let through.
type pass uint8

const (
	free    pass = iota
	alone        // it is the one call of its caller until it has ended
	asProbe      // it is the one call by which the destination is tried
)

// ask lets a call through, or refuses it with a *[problem.CircuitOpenError].
func (d *destination) ask(ctx context.Context, caller ect.Identity, describes bool) (pass, error) {
	d.giveUp(ctx)
	config, now := *d.set.circuit.Load(), d.set.deps.Now()
	d.mu.Lock()
	if p, known, err := d.decide(caller, describes, config, now); known {
		d.mu.Unlock()
		return p, err
	}
	next, verdict, change := d.breaker.Ask(config, now)
	elsewhere := d.breaker.State() == breaker.HalfOpen && !verdict.Pass && !d.probes() && !now.Before(d.looked.Add(askAgain)) // what came of its probe is known there
	switch {
	case !verdict.Probe && !elsewhere:
		d.breaker = next
		d.mu.Unlock()
		d.recordAndShare(ctx, config, change, now)
	case d.turn == leasing:
		d.mu.Unlock()
		verdict = breaker.Verdict{Wait: askAgain}
	default:
		d.turn, d.looked = leasing, now
		d.mu.Unlock()
		verdict = d.lease(ctx, caller, config, now)
	}
	switch {
	case verdict.Probe:
		return asProbe, nil
	case verdict.Pass:
		return free, nil
	}
	return free, &problem.CircuitOpenError{Agent: d.downstream, RetryAfter: verdict.Wait}
}

// decide lets a call through, or refuses it, as far as the state of the breaker stays as it is. The lock
// is held.
func (d *destination) decide(caller ect.Identity, describes bool, config breaker.Config, now time.Time) (p pass, known bool, err error) {
	if err := d.refused(caller, now); err != nil {
		return free, true, err
	}
	closed, s := d.breaker.State() == breaker.Closed, d.callers.look(caller)
	switch {
	case closed && !s.tooMany(config):
		return free, true, nil
	case closed || d.passes(caller, config, now):
		d.callers.let(caller, config, now)
		return alone, true, nil
	case d.turn == reserved && !describes && d.breaker.State() == breaker.HalfOpen:
		d.begin(caller, config, now)
		return asProbe, true, nil
	}
	return free, false, nil
}

// begin gives the probe to a caller. The lock is held.
func (d *destination) begin(caller ect.Identity, config breaker.Config, now time.Time) {
	d.turn, d.prober, d.due = probing, caller, now.Add(config.ProbeLimit)
	if d.listed {
		d.callers.let(caller, config, now)
	}
}

// giveUp takes a probe of which nothing was told in time for a failure, which its caller may have caused.
func (d *destination) giveUp(ctx context.Context) {
	d.mu.Lock()
	prober, overdue := d.prober, d.listed && d.probes() && !d.set.deps.Now().Before(d.due)
	d.mu.Unlock()
	if overdue {
		d.report(ctx, prober, ending{outcome: breaker.Failure, probe: true})
	}
}

// described goes on after an agent has answered what it is: its probe is left to the next message.
func (d *destination) described(caller ect.Identity, probe bool) {
	config, now := *d.set.circuit.Load(), d.set.deps.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.callers.take(caller, ending{outcome: breaker.Unknown}, config, now)
	if probe && d.turn == probing {
		d.turn = reserved
	}
}

// report counts how a call ended.
func (d *destination) report(ctx context.Context, caller ect.Identity, e ending) {
	config, now := *d.set.circuit.Load(), d.set.deps.Now()
	d.mu.Lock()
	change, refused := d.take(caller, e, config, now)
	if d.probes() && (e.probe && caller == d.prober || d.breaker.State() == breaker.Closed) {
		d.turn = noTurn
	}
	d.mu.Unlock()
	if refused > 0 {
		d.set.deps.Logger.WarnContext(ctx, "a caller is refused, since its last calls have failed", slog.String("agent", d.downstream), slog.String("caller", string(caller)), slog.Duration("cooldown", refused))
	}
	d.recordAndShare(ctx, config, change, now)
}

// recordAndShare leaves evidence of a change that this replica has made, and then shows it to the others,
// who record nothing for a change that they adopt: if this replica dies in between, they find out themselves.
func (d *destination) recordAndShare(ctx context.Context, config breaker.Config, change breaker.Change, now time.Time) {
	d.tell(ctx, change, now, true)
	d.share(ctx, config, change)
}

// take counts how a call ended by who can have caused it, and returns for how long its caller is refused.
// The lock is held.
func (d *destination) take(caller ect.Identity, e ending, config breaker.Config, now time.Time) (change breaker.Change, refused time.Duration) {
	before, closed := d.callers.look(caller), d.breaker.State() == breaker.Closed
	blamed := d.listed && e.outcome == breaker.Failure && !e.own
	if d.listed {
		refused = d.callers.take(caller, e, config, now)
	}
	switch {
	case e.outcome == breaker.Success && d.byCallers && !closed:
		d.breaker, change = d.breaker.Close(now)
	case blamed && closed:
		n := d.callers.together(config, now)
		d.breaker, change = d.breaker.Open(config, now, n, n)
	case blamed && (!e.probe || before.fails(config, now)):
		d.breaker, change = d.breaker.Report(config, now, breaker.Unknown, e.probe)
	default:
		d.breaker, change = d.breaker.Report(config, now, e.outcome, e.probe)
	}
	if e.outcome == breaker.Failure && (!blamed || change.Samples > 0) {
		d.byCallers = blamed
	}
	return change, refused
}

// count counts what was read. While this caller has the probe, that is the probe's reply.
func (d *destination) count(ctx context.Context, caller ect.Identity, e ending) {
	d.mu.Lock()
	e.probe = d.probes() && caller == d.prober
	d.mu.Unlock()
	d.report(ctx, caller, e)
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
		d.set.escalate(ctx, d.downstream, breaker.ReasonProbes)
	}
	if change.From == breaker.Closed && change.To == breaker.Open && d.listed {
		d.set.opened(ctx, d.downstream, now)
	}
}
