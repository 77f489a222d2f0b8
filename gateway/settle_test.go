package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// aside is state of which one step is played.
type aside struct {
	Entries
	get    func() error // before a look at who is alive
	swap   func()       // before a write
	answer func(context.Context) (Entry, bool, error)
}

func (a *aside) Get(ctx context.Context, key EntryKey) (Entry, bool, error) {
	if a.get != nil && key.Kind == entryRunner {
		return Entry{}, false, a.get()
	}
	return a.Entries.Get(ctx, key)
}

func (a *aside) Swap(ctx context.Context, key EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if a.swap != nil {
		first := a.swap
		a.swap = nil
		first()
	}
	return a.Entries.Swap(ctx, key, old, value, until)
}

func (a *aside) Await(ctx context.Context, key EntryKey, after uint64) (Entry, bool, error) {
	if a.answer != nil {
		return a.answer(ctx)
	}
	return a.Entries.Await(ctx, key, after)
}

// keeper is a process that keeps one record.
func keeper(t *testing.T, rec record) (*Gateway, *aside, *record) {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	played := &aside{Entries: memory.Entries()}
	g := &Gateway{Deps: Deps{Entries: played, Answers: memory, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, instance: "here"}
	if err := g.startWorkers(0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	rec.Form, rec.key = recordForm, EntryKey{Kind: entryTask, Group: "g", ID: "t"}
	rec.Task.ID = "t"
	if ok, err := g.save(t.Context(), &rec); !ok || err != nil {
		t.Fatalf("the record is not kept: %v, %v", ok, err)
	}
	return g, played, &rec
}

// What a lost process held is settled as far as that is known: an agent's own task
// can be asked about, and its question is asked again; anything else has failed.
func TestWhatALostProcessHeldIsSettled(t *testing.T) {
	t.Parallel()
	asking := canonical.Task{Status: canonical.Status{State: canonical.StateInputRequired}, Inputs: []canonical.Input{{Key: "k"}}}
	working := canonical.Task{Status: canonical.Status{State: canonical.StateWorking}}
	done := canonical.Task{Status: canonical.Status{State: canonical.StateCompleted}}
	for name, c := range map[string]struct {
		rec   record
		state canonical.State
		round int
		left  bool // nobody works on it any more
	}{
		"work":                      {record{Runner: "gone", Task: working}, canonical.StateFailed, 0, true},
		"a question":                {record{Runner: "gone", Waits: waitsOpen, Round: 2, Task: asking}, canonical.StateFailed, 3, true},
		"an agent's task":           {record{Runner: "gone", Follower: "gone", TaskID: "u", Task: working}, canonical.StateWorking, 0, true},
		"an agent's task that asks": {record{Runner: "gone", Follower: "gone", TaskID: "u", Waits: waitsOpen, Round: 2, Task: asking}, canonical.StateWorking, 3, true},
		"a question for its caller": {record{Runner: "gone", TaskID: "u", Waits: waitsTask, Round: 2, Task: asking}, canonical.StateInputRequired, 2, true},
		"what has ended":            {record{Runner: "gone", Task: done}, canonical.StateCompleted, 0, false},
		"our own":                   {record{Runner: "here", Task: working}, canonical.StateWorking, 0, false},
		"nobody's":                  {record{TaskID: "u", Follower: "gone", Task: working}, canonical.StateWorking, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _, rec := keeper(t, c.rec)
			before := rec.revision
			if err := g.settleLost(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			kept, err := g.load(t.Context(), rec.key)
			if err != nil || kept.revision != rec.revision || (rec.revision != before) != c.left {
				t.Fatalf("it is at %d on record, at %d here, and was at %d: %v", kept.revision, rec.revision, before, err)
			}
			for who, r := range map[string]*record{"here": rec, "on record": kept} {
				open := r.Waits == waitsOpen || r.Task.Status.State != canonical.StateInputRequired && len(r.Task.Inputs) > 0
				if r.Task.Status.State != c.state || r.Round != c.round || c.left && (r.Runner != "" || r.Follower != "" || open) {
					t.Errorf("%s it is %+v", who, r)
				}
			}
		})
	}
}

// Of several that notice, one settles it, and the others see what it has become.
func TestWhatSomebodyElseHasSettled(t *testing.T) {
	t.Parallel()
	lost := record{Runner: "gone", Task: canonical.Task{Status: canonical.Status{State: canonical.StateWorking}}}
	g, played, rec := keeper(t, lost)
	first := *rec
	first.Runner, first.Task.Status.State = "", canonical.StateCanceled
	played.swap = func() {
		if ok, err := g.save(t.Context(), &first); !ok || err != nil {
			t.Errorf("the other is not kept: %v, %v", ok, err)
		}
	}
	if err := g.settleLost(t.Context(), rec); err != nil || rec.Task.Status.State != canonical.StateCanceled || rec.revision != first.revision {
		t.Errorf("it is %+v, %v", rec, err)
	}

	g, played, rec = keeper(t, lost)
	played.swap = func() { _ = played.Delete(t.Context(), rec.key) }
	var refused *canonical.Error
	if err := g.settleLost(t.Context(), rec); !errors.As(err, &refused) || refused.Code != canonical.CodeTaskNotFound {
		t.Errorf("without its record: %v", err)
	}

	g, played, rec = keeper(t, lost)
	played.get = func() error { return &state.UnavailableError{} }
	var away *problem.RecordingError
	if err := g.settleLost(t.Context(), rec); !errors.As(err, &away) || rec.Runner != "gone" {
		t.Errorf("while the state is away: %v, %+v", err, rec)
	}
}

// A change that comes with the end of the wait is heard, and the end of the record
// is not taken for the end of the wait.
func TestAChangeAtTheEndOfTheWait(t *testing.T) {
	t.Parallel()
	const limit = runnerLife
	working := record{Task: canonical.Task{Status: canonical.Status{State: canonical.StateWorking}}}
	for name, c := range map[string]struct {
		limit  time.Duration
		leaves bool // the caller leaves at the same moment
		answer func(ctx context.Context, changed Entry) (Entry, bool, error)
		want   canonical.State // empty: nothing is heard
		err    error
	}{
		"a change":                   {limit, false, func(_ context.Context, e Entry) (Entry, bool, error) { return e, true, nil }, canonical.StateCompleted, nil},
		"a change, and nobody waits": {limit, true, func(_ context.Context, e Entry) (Entry, bool, error) { return e, true, nil }, canonical.StateCompleted, nil},
		"nothing":                    {limit, false, func(ctx context.Context, _ Entry) (Entry, bool, error) { return Entry{}, false, ctx.Err() }, "", nil},
		"nothing, and nobody waits":  {limit, true, func(ctx context.Context, _ Entry) (Entry, bool, error) { return Entry{}, false, ctx.Err() }, "", context.Canceled},
		"nothing yet":                {2 * limit, false, func(ctx context.Context, _ Entry) (Entry, bool, error) { return Entry{}, false, ctx.Err() }, canonical.StateWorking, nil},
		"the record ends":            {limit, false, func(context.Context, Entry) (Entry, bool, error) { return Entry{}, false, nil }, "", &canonical.Error{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, played, rec := keeper(t, working)
				later := *rec
				later.Task.Status.State = canonical.StateCompleted
				value, err := json.Marshal(later)
				if err != nil {
					t.Fatal(err)
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				played.answer = func(within context.Context) (Entry, bool, error) {
					<-within.Done()
					if c.leaves {
						leave()
					}
					return c.answer(within, Entry{Key: rec.key, Revision: rec.revision + 1, Value: value})
				}
				began := time.Now()
				next, err := g.changed(ctx, &exchange{}, rec, c.limit)
				if took := time.Since(began); took != limit {
					t.Errorf("it took %v", took)
				}
				if _, refused := errors.AsType[*canonical.Error](c.err); refused && !errors.As(err, new(*canonical.Error)) || !refused && !errors.Is(err, c.err) {
					t.Errorf("%v, not %v", err, c.err)
				}
				if next == nil && c.want != "" || next != nil && next.Task.Status.State != c.want {
					t.Errorf("it has become %+v", next)
				}
			})
		})
	}
}

// The same with the state as it is: a record that is kept exactly as long as one waits.
func TestARecordThatEndsWithTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, played, rec := keeper(t, record{Task: canonical.Task{Status: canonical.Status{State: canonical.StateWorking}}})
		value, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		if rec.revision, _, err = played.Entries.Swap(t.Context(), rec.key, rec.revision, value, time.Now().Add(runnerLife)); err != nil {
			t.Fatal(err)
		}
		next, err := g.changed(t.Context(), &exchange{}, rec, runnerLife)
		if err != nil && !errors.As(err, new(*canonical.Error)) || next != nil {
			t.Errorf("at its end it is %+v, %v", next, err)
		}
		<-time.After(time.Nanosecond)
		if next, err := g.changed(t.Context(), &exchange{}, rec, runnerLife); next != nil || !errors.As(err, new(*canonical.Error)) {
			t.Errorf("then it is %+v, %v", next, err)
		}
	})
}
