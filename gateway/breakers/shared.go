package breakers

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// KindBreaker is what replicas share of a breaker, among the kinds of entries.
const KindBreaker = "breaker"

const (
	sharedFor = time.Hour   // what replicas share is of no use later
	askAgain  = time.Second // who met the probe of another replica
)

func (d *destination) sharedKey() state.EntryKey {
	return state.EntryKey{Kind: KindBreaker, Group: d.key.kind + " " + d.key.name, ID: KindBreaker}
}

// read is what the replicas share; the zero revision: nothing, or nothing that can be read.
func (d *destination) read(ctx context.Context) (shared breaker.Shared, revision uint64, known bool, err error) {
	if !d.listed {
		return shared, 0, false, nil
	}
	found, err := d.set.records.Read(ctx, d.sharedKey())
	return found.Value, found.Revision, found.Revision != 0, err
}

// decode reads what replicas share. What cannot be read is as old as can be: it is replaced.
func decode(value []byte) (shared breaker.Shared, err error) {
	_ = json.Unmarshal(value, &shared) // what it refuses leaves the zero value
	return shared, nil
}

func (d *destination) write(ctx context.Context, shared breaker.Shared, revision uint64) (first bool, err error) {
	if !d.listed {
		return true, nil
	}
	value, err := json.Marshal(shared)
	if err != nil {
		return false, err
	}
	_, first, err = d.set.deps.Entries.Swap(ctx, d.sharedKey(), revision, value, d.set.deps.Now().Add(sharedFor))
	return first, err
}

// lease gets the probe that all replicas have together (R21): a call of this replica is
// it, or another replica has it, or knows already what came of it. While the store cannot be
// asked, each replica has its own.
func (d *destination) lease(ctx context.Context, caller ect.Identity, config breaker.Config, now time.Time) breaker.Verdict {
	shared, revision, known, err := d.read(ctx)
	d.mu.Lock()
	was := d.breaker
	before := was
	var adopted breaker.Change
	if known {
		before, adopted = before.Adopt(config, now, shared)
	}
	next, verdict, change := before.Ask(config, now)
	d.mu.Unlock()
	if verdict.Probe && err == nil {
		var first bool
		if first, err = d.write(ctx, next.Shared(), revision); err == nil && !first {
			next, verdict, change = before, breaker.Verdict{Wait: askAgain}, breaker.Change{}
		}
	}
	if err != nil {
		d.set.deps.Logger.WarnContext(ctx, "the probe of a circuit breaker is not shared", slog.String("agent", d.downstream), slog.Any("error", err))
	}
	d.mu.Lock()
	if d.turn = noTurn; d.breaker == was { // else an answer has closed it meanwhile
		d.breaker = next
		if verdict.Probe {
			d.begin(caller, config, now)
		}
	}
	d.mu.Unlock()
	d.tell(ctx, adopted, now, false)
	if verdict.Probe { // which was shared to get it, and has no token
		d.tell(ctx, change, now, true)
	} else {
		d.recordAndShare(ctx, config, change, now)
	}
	return verdict
}

// share tells the other replicas of a change. What cannot be written they find out themselves.
func (d *destination) share(ctx context.Context, config breaker.Config, change breaker.Change) {
	if change.Happened() {
		d.shareState(ctx, config)
	}
}

// shareState tells the other replicas how the breaker stands, unless they know more.
func (d *destination) shareState(ctx context.Context, config breaker.Config) {
	if !d.listed {
		return
	}
	_, _, err := d.set.records.Decide(context.WithoutCancel(ctx), d.sharedKey(), func(theirs record.Found[breaker.Shared]) (breaker.Shared, *attest.Statement, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		own, _ := d.breaker.Adopt(config, d.set.deps.Now(), theirs.Value)
		if theirs.Revision != 0 && own != d.breaker { // the others know more
			return theirs.Value, nil, record.ErrUnchanged
		}
		return d.breaker.Shared(), nil, nil
	})
	if err != nil {
		d.set.deps.Logger.WarnContext(ctx, "the state of a circuit breaker is not shared", slog.String("agent", d.downstream), slog.Any("error", err))
	}
}
