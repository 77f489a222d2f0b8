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
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// KindLevel is at which level a workflow is held, among the kinds of entries.
const KindLevel = "level"

// lookInterval is how long it takes at most until a replica knows what another has decided about a workflow.
const lookInterval = time.Second

// Held is a workflow that is held, or was: new messages of it wait, or are refused (R23).
type Held struct {
	hitl.Standing

	Workflow string `json:"wid"`
	Token    string `json:"token,omitempty"` // what the gateway signed of the last change
}

// Levels knows which workflows are held. It is safe for concurrent use.
type Levels struct {
	now     func() time.Time
	logger  *slog.Logger
	records *record.Machine[Held]

	mu     sync.Mutex
	held   map[string]Held // by the workflow
	looked bool            // all were read from the store once
}

// NewLevels makes one that knows nothing yet.
func NewLevels(deps record.Deps) (*Levels, error) {
	l := &Levels{now: deps.Now, logger: deps.Logger, held: map[string]Held{}}
	var err error
	l.records, err = record.New(record.Kind[Held]{
		Encode: func(h Held) ([]byte, error) { return json.Marshal(h) },
		Decode: func(text []byte) (h Held, err error) { return h, json.Unmarshal(text, &h) },
		Life:   life,
		Token:  func(h Held) string { return h.Token },
		Sealed: func(h Held, compact string) Held { h.Token = compact; return h },
		Announce: func(_ context.Context, _ state.EntryKey, h Held) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			if before, known := l.held[h.Workflow]; !known || before.Term < h.Term {
				l.held[h.Workflow] = h
			}
			return nil
		},
		Gone: func(key state.EntryKey) {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.held, key.ID)
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
func (l *Levels) Change(ctx context.Context, wid string, o Order) (Held, error) {
	if !utf8.ValidString(o.Event.Reason) || strings.ContainsFunc(o.Event.Reason, unicode.IsControl) {
		return Held{}, &problem.QueryError{Reason: "a reason is a text without control characters"}
	}
	key := state.EntryKey{Kind: KindLevel, ID: wid}
	held, _, err := l.records.Decide(ctx, key, func(before record.Found[Held]) (Held, *attest.Statement, error) {
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
		return Held{next, wid, now.Token}, levelStatement(now, next, o), nil
	})
	return held, levelError(err)
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
func levelStatement(before Held, next hitl.Standing, o Order) *attest.Statement {
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
func (l *Levels) Of(wid string) Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[wid]
	if due := h.Due(); !due.IsZero() && !l.now().Before(due) {
		if next, err := h.Next(hitl.StandingEvent{Step: hitl.Overdue, At: due}); err == nil {
			h.Standing = next
		}
	}
	return h
}

// Held lists the workflows that are held, as this replica knows them.
func (l *Levels) Held() (list []Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		if h.Mode != "" && h.Mode != hitl.Running {
			list = append(list, h)
		}
	}
	return list
}

// Refusal says why a message of a workflow is not taken: a *[problem.HeldError]; nil: it is. begins: it begins work.
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
	return &problem.HeldError{Workflow: wid, Stopped: h.Mode == hitl.Stopped, Reason: h.Reason + h.Why}
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
