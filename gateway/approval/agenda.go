package approval

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// agenda says which approvals are not over, when each is to be looked at, and which this replica releases.
type agenda struct {
	entries Entries
	now     func() time.Time
	logger  *slog.Logger

	reads sync.Mutex // is taken for as long as the index is read

	mu       sync.Mutex
	waiting  index            // as this replica knows it
	known    bool             // it was read from the store
	changed  map[string]bool  // the approvals that were put into it or taken out while it is read; nil: it is not read
	releases map[string]error // that this replica has begun, by id: why it failed; nil: it goes on
}

// put notes an approval that is not over. The agenda is locked.
func (a *agenda) put(id string, w waiting) {
	a.waiting.put(id, w)
	if a.changed != nil {
		a.changed[id] = true
	}
}

func newAgenda(deps Deps) *agenda {
	return &agenda{entries: deps.Entries, now: deps.Now, logger: deps.Logger, waiting: newIndex(), releases: map[string]error{}}
}

// find is what is known here of an approval that is not over.
func (a *agenda) find(id string) waiting {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waiting.all[id]
}

// announces reports whether the decision of an approval is to be told, and notes that it is: it is told once, and
// once more where a replica ends before that is noted.
func (a *agenda) announces(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, there := a.waiting.all[id]
	if !there || w.Announced {
		return !there
	}
	w.Announced = true
	a.put(id, w)
	return true
}

// failure is why the release of an approval failed that this replica has begun; begun: it has.
func (a *agenda) failure(id string) (begun bool, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	why, begun = a.releases[id]
	return begun, why
}

// waiting is an approval that is not over, as the index has it.
type waiting struct {
	Due    time.Time // when to look at it
	Opened time.Time
	Call   hitl.Call
	Task   string `json:",omitempty"`

	Announced bool `json:",omitempty"` // its decision was told to callbacks
}

func waitingKey(id string, c hitl.Call) state.EntryKey {
	return state.EntryKey{Kind: KindWaiting, ID: id, Owner: c.Owner()}
}

// index is what is known here of all approvals that are not over.
type index struct {
	all   map[string]waiting // by the id of the approval
	owned map[string]int     // how many of them a caller has
}

func newIndex() index { return index{map[string]waiting{}, map[string]int{}} }

func (i index) put(id string, w waiting) {
	if _, there := i.all[id]; !there {
		i.owned[w.Call.Owner()]++
	}
	i.all[id] = w
}

func (i index) remove(id string) {
	w, there := i.all[id]
	if !there {
		return
	}
	delete(i.all, id)
	if owner := w.Call.Owner(); i.owned[owner] > 1 {
		i.owned[owner]--
	} else {
		delete(i.owned, owner)
	}
}

// usage says how many approvals wait, and since when the oldest does; the zero time: none does.
func (a *agenda) usage() (count int, oldest time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.waiting.all {
		if oldest.IsZero() || w.Opened.Before(oldest) {
			oldest = w.Opened
		}
	}
	return len(a.waiting.all), oldest
}

// enter books an approval in its caller's share and writes that it is not over. Its errors are those of the
// store, and *[quota.ExceededError].
func (a *agenda) enter(ctx context.Context, id string, w waiting) error {
	if _, err := a.readWaiting(ctx, false); err != nil {
		return err
	}
	if err := a.book(id, w); err != nil {
		return err
	}
	value, err := json.Marshal(w)
	if err == nil {
		_, _, err = a.entries.Swap(ctx, waitingKey(id, w.Call), 0, value, w.Opened.Add(life))
	}
	if err != nil {
		a.forget(id)
		return attest.Recording(err)
	}
	return nil
}

func (a *agenda) book(id string, w waiting) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there := a.waiting.all[id]; !there {
		own := a.waiting.owned[w.Call.Owner()] >= OfOneCaller
		if own || len(a.waiting.all) >= OfAll {
			return &quota.ExceededError{Resource: "approvals that wait", Own: own}
		}
	}
	a.put(id, w)
	return nil
}

func (a *agenda) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.releases[id] != nil {
		delete(a.releases, id)
	}
	a.waiting.remove(id)
	if a.changed != nil {
		a.changed[id] = true
	}
}

// lookAgain has each replica look at an approval at a time. Its errors are those of the store.
func (a *agenda) lookAgain(ctx context.Context, id string, due time.Time) error {
	for range maxRaces {
		entry, found, err := a.entries.Get(ctx, state.EntryKey{Kind: KindWaiting, ID: id})
		if err != nil {
			return attest.Recording(err)
		}
		var w waiting
		if !found {
			return nil // it is over
		}
		if err := json.Unmarshal(entry.Value, &w); err != nil {
			return err
		}
		w.Due, w.Announced = due, w.Announced || a.find(id).Announced
		value, err := json.Marshal(w)
		if err != nil {
			return err
		}
		_, first, err := a.entries.Swap(ctx, waitingKey(id, w.Call), entry.Revision, value, w.Opened.Add(life))
		if err != nil {
			return attest.Recording(err)
		}
		if first {
			a.mu.Lock()
			a.put(id, w)
			a.mu.Unlock()
			return nil
		}
	}
	return nil // others look at it
}

// drop says that an approval is over. Where that fails, the next look at it does.
func (a *agenda) drop(ctx context.Context, id string) {
	a.forget(id)
	if err := a.entries.Delete(ctx, state.EntryKey{Kind: KindWaiting, ID: id}); err != nil {
		a.logger.WarnContext(ctx, "an approval that is over is looked at once more", slog.String("approval", id), slog.Any("error", err))
	}
}

func (a *agenda) isKnown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// watchChanges has changes noted in a set; nil: no more.
func (a *agenda) watchChanges(changed map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = changed
}

// readWaiting reads the index, unless it was read before and again is false, and returns the ids that are due.
func (a *agenda) readWaiting(ctx context.Context, again bool) (due []string, err error) {
	if !again && a.isKnown() {
		return nil, nil
	}
	a.reads.Lock()
	defer a.reads.Unlock()
	a.watchChanges(map[string]bool{})
	defer a.watchChanges(nil)
	now, found := a.now(), newIndex()
	for after := ""; ; {
		entries, err := a.entries.List(ctx, KindWaiting, "", after, MaxPage)
		if err != nil {
			return nil, attest.Recording(err)
		}
		for _, entry := range entries {
			var w waiting
			if after = entry.Key.ID; json.Unmarshal(entry.Value, &w) != nil {
				continue
			}
			found.put(after, w)
			if !w.Due.After(now) || a.failed(after) {
				due = append(due, after)
			}
		}
		if len(entries) < MaxPage {
			break
		}
	}
	a.mu.Lock()
	for id := range a.changed { // since the reading began, so what was read of it may be old
		if w, there := a.waiting.all[id]; there {
			found.put(id, w)
		} else {
			found.remove(id)
		}
	}
	a.waiting, a.known = found, true
	a.mu.Unlock()
	return due, nil
}

// failed reports whether this replica has a task to end: others look at it as well, and put that off.
func (a *agenda) failed(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.releases[id] != nil
}

// begin notes that this replica releases a call, and returns why it failed to before; false: it does so already.
func (a *agenda) begin(id string) (first bool, before error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, begun := a.releases[id]
	if begun && before == nil {
		return false, nil
	}
	a.releases[id] = nil
	return true, before
}

// ended notes how a release ended. Why one failed is kept until its task is ended.
func (a *agenda) ended(id string, failure error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if delete(a.releases, id); failure != nil {
		a.releases[id] = failure
	}
}
