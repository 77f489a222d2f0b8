package approval

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// KindLevel is at which level a workflow is held, among the kinds of entries.
const KindLevel = "level"

// lookInterval is how long it takes at most until a replica knows what another has decided about a workflow.
const lookInterval = time.Second

// Level is how a workflow stands: where it is held, new messages of it wait, or are refused (R23).
type Level struct {
	hitl.Standing

	Workflow string `json:"wid"`
	Token    string `json:"token,omitempty"` // what the gateway signed of the last change
}

// Levels knows which workflows are held. It is safe for concurrent use.
type Levels struct {
	now     func() time.Time
	logger  *slog.Logger
	start   Start
	records *record.Machine[Level]

	mu     sync.Mutex
	levels map[string]Level // by the workflow
	looked bool             // all were read from the store once
}

// Start finds the token that began a workflow; false: it has no start on record.
type Start func(ctx context.Context, wid string) (start ect.ID, found bool, err error)

// NewLevels makes one that knows nothing yet.
func NewLevels(deps record.Deps, start Start) (*Levels, error) {
	l := &Levels{now: deps.Now, logger: deps.Logger, start: start, levels: map[string]Level{}}
	var err error
	l.records, err = record.New(record.Kind[Level]{
		Encode: func(h Level) ([]byte, error) { return json.Marshal(h) },
		Decode: func(text []byte) (h Level, err error) { return h, json.Unmarshal(text, &h) },
		Life:   life,
		Token:  func(h Level) string { return h.Token },
		Sealed: func(h Level, compact string) Level { h.Token = compact; return h },
		Announce: func(_ context.Context, _ state.EntryKey, h Level) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			if before, known := l.levels[h.Workflow]; !known || before.Term < h.Term {
				l.levels[h.Workflow] = h
			}
			return nil
		},
		Gone: func(key state.EntryKey) {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.levels, key.ID)
		},
	}, deps)
	return l, err
}

// Order is a change of a level.
type Order struct {
	Event  hitl.StandingEvent
	After  attest.Lineage // what the order follows from: an error, a result of a rollback, a start
	Holder string         // in whose share its evidence counts; empty: the gateway's own
}

// Change holds a workflow, or lets it go on. What is held already as demanded stays as it is. Its errors are those of
// [hitl.Standing.Next], *[problem.QueryError], those of the store and of the evidence, and *[problem.ConflictError].
func (l *Levels) Change(ctx context.Context, wid string, o Order) (Level, error) {
	if !utf8.ValidString(o.Event.Reason) || strings.ContainsFunc(o.Event.Reason, unicode.IsControl) {
		return Level{}, &problem.QueryError{Reason: "a reason is a text without control characters"}
	}
	key := state.EntryKey{Kind: KindLevel, ID: wid}
	level, _, err := l.records.Decide(ctx, key, func(before record.Found[Level]) (Level, *attest.Statement, error) {
		now := before.Value
		now.Workflow = wid
		if due := now.Due(); !due.IsZero() && !o.Event.At.Before(due) {
			if next, err := now.Next(hitl.StandingEvent{Step: hitl.Overdue, At: o.Event.At}); err == nil {
				now.Standing = next
			}
		}
		next, err := now.Next(o.Event)
		switch {
		case err != nil:
			return now, nil, err
		case next.Term == before.Value.Term:
			return now, nil, record.ErrUnchanged
		}
		return Level{next, wid, now.Token}, levelStatement(now, next, o), nil
	})
	return level, levelError(err)
}

// levelError is an error of the store as one of recording; those of a decision stay as they are.
func levelError(err error) error {
	if _, step := errors.AsType[*hitl.StandingError](err); step {
		return err
	}
	return recording(err)
}

// levelStatement is what the gateway signs: a call for humans, or that one of them lets the workflow go on, behind
// what held it (ATD, Interaction with HITL).
func levelStatement(before Level, next hitl.Standing, o Order) *attest.Statement {
	st := &attest.Statement{Act: ect.ActEscalate, Lineage: o.After, Ext: ect.Ext{}, Holder: o.Holder}
	st.Ext.SetString(ect.ExtEscalation, string(next.Mode))
	if o.Event.Step == hitl.Lift {
		st.Act, st.Lineage = ect.ActApprovalGranted, attest.After(before.Token)
	}
	if next.By != "" {
		st.Ext.SetString(ect.ExtApprover, next.By)
	}
	if reason := next.Reason + next.Why; reason != "" {
		st.Ext.SetText(ect.ExtReason, reason)
	}
	return st
}

// Of is how a workflow stands, as this replica knows it.
func (l *Levels) Of(wid string) Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.levels[wid].at(l.now())
}

// at is how a workflow stands at a time: a pause that was not lifted has become a stop.
func (h Level) at(now time.Time) Level {
	if due := h.Due(); !due.IsZero() && !now.Before(due) {
		if next, err := h.Next(hitl.StandingEvent{Step: hitl.Overdue, At: due}); err == nil {
			h.Standing = next
		}
	}
	return h
}

// Read is how a workflow stands, as all replicas know it. Its errors are those of the store.
func (l *Levels) Read(ctx context.Context, wid string) (Level, error) {
	found, err := l.records.Read(ctx, state.EntryKey{Kind: KindLevel, ID: wid})
	return found.Value.at(l.now()), recording(err)
}

// List is the workflows that are held, as this replica knows them.
func (l *Levels) List() (list []Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.levels {
		if h.Mode != "" && h.Mode != hitl.Running {
			list = append(list, h)
		}
	}
	return list
}

// Refusal says why a message of a workflow is not taken: a *[problem.LevelError]; nil: it is. begins: it begins work.
// Other errors are those of the store, before it was read once.
func (l *Levels) Refusal(ctx context.Context, wid, operation string, begins bool) error {
	if wid == "" || !begins {
		return nil
	}
	l.mu.Lock()
	looked := l.looked
	l.mu.Unlock()
	if !looked {
		if err := l.look(ctx); err != nil {
			return attest.Recording(err)
		}
	}
	h := l.Of(wid)
	if h.Passes(operation, begins) {
		return nil
	}
	return &problem.LevelError{Workflow: wid, Stopped: h.Mode == hitl.Stopped, Reason: h.Reason + h.Why}
}

func (l *Levels) look(ctx context.Context) error {
	err := l.records.Look(ctx, KindLevel, "")
	if err == nil {
		l.mu.Lock()
		l.looked = true
		l.mu.Unlock()
	}
	return err
}

// Watch adopts what other replicas decide. It returns when ctx ends.
func (l *Levels) Watch(ctx context.Context) {
	for worker.Pause(ctx, lookInterval) {
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			l.logger.WarnContext(ctx, "levels of workflows are not known anew", slog.Any("error", err))
		}
	}
}

// Set changes how a workflow stands, for an operator. Its errors are those of [Levels.Change].
func (l *Levels) Set(ctx context.Context, wid string, e hitl.StandingEvent) (Level, error) {
	after := attest.Lineage{Workflow: wid}
	start, found, err := l.start(ctx, wid)
	if err != nil {
		return Level{}, attest.Recording(err)
	}
	if found {
		after.Parents = []ect.ID{start}
	}
	return l.Change(ctx, wid, Order{Event: e, After: after})
}

// Failed holds a workflow after an error of it, where a rule says so (ATD, HITL Escalation on Error).
func (l *Levels) Failed(ctx context.Context, rules hitl.Rules, f workflow.Failure, compact string) {
	severity, kind := f.Kind()
	reaction, ok := rules.MatchError(severity.String(), string(kind))
	if !ok {
		return
	}
	e := hitl.StandingEvent{Step: hitl.Pause, At: l.now().UTC(), Why: "an error of severity " + severity.String(), Roles: reaction.Roles}
	if reaction.Level == hitl.LevelStop {
		e.Step = hitl.Stop
	}
	l.order(ctx, f.Workflow, Order{Event: e, After: attest.After(compact), Holder: f.Holder})
}

// RolledBack stops the workflow of a rollback result that says that it failed (ATD, Interaction with HITL, 2).
func (l *Levels) RolledBack(ctx context.Context, result ect.Verified) {
	if status, _ := result.Extension(ect.ExtStatus); status != "failed" {
		return
	}
	l.Hold(ctx, hitl.Stop, "a rollback failed", attest.Lineage{Workflow: result.Workflow(), Parents: []ect.ID{result.ID()}})
}

// Hold pauses or stops the workflow of a lineage, for a reason of the gateway's own.
func (l *Levels) Hold(ctx context.Context, step hitl.Step, why string, after attest.Lineage) {
	l.order(ctx, after.Workflow, Order{Event: hitl.StandingEvent{Step: step, At: l.now().UTC(), Why: why}, After: after})
}

// order changes a level for a reason of the gateway's own. What cannot be recorded is logged: operators are told of the
// error all the same.
func (l *Levels) order(ctx context.Context, wid string, o Order) {
	attrs := []any{slog.String("wid", wid), slog.String("step", string(o.Event.Step)), slog.String("reason", o.Event.Why)}
	if _, err := l.Change(context.WithoutCancel(ctx), wid, o); err != nil {
		l.logger.ErrorContext(ctx, "the level of a workflow is not changed: look after it", append(attrs, slog.Any("error", err))...)
		return
	}
	l.logger.WarnContext(ctx, "the level of a workflow is changed", attrs...)
}
