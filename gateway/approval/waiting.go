package approval

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// waiting is an approval that is not over, as the index has it.
type waiting struct {
	Due    time.Time // when to look at it
	Opened time.Time
	Call   hitl.Call
	Task   string `json:",omitempty"`
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

// Usage says how many approvals wait, and since when the oldest does; the zero time: none does.
func (s *Service) Usage() (count int, oldest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting.all {
		if oldest.IsZero() || w.Opened.Before(oldest) {
			oldest = w.Opened
		}
	}
	return len(s.waiting.all), oldest
}

// enter books an approval in its caller's share and writes that it is not over. Its errors are those of the
// store, and *[quota.ExceededError].
func (s *Service) enter(ctx context.Context, id string, w waiting) error {
	if _, err := s.readWaiting(ctx, false); err != nil {
		return err
	}
	if err := s.book(id, w); err != nil {
		return err
	}
	value, err := json.Marshal(w)
	if err == nil {
		_, _, err = s.deps.Entries.Swap(ctx, waitingKey(id, w.Call), 0, value, w.Opened.Add(life))
	}
	if err != nil {
		s.forget(id)
		return attest.Recording(err)
	}
	return nil
}

func (s *Service) book(id string, w waiting) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.waiting.all[id]; !there {
		own := s.waiting.owned[w.Call.Owner()] >= OfOneCaller
		if own || len(s.waiting.all) >= OfAll {
			return &quota.ExceededError{Resource: "approvals that wait", Own: own}
		}
	}
	s.waiting.put(id, w)
	return nil
}

func (s *Service) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.releases[id] != "" {
		delete(s.releases, id)
	}
	s.waiting.remove(id)
}

// lookAgain has each replica look at an approval at a time. Its errors are those of the store.
func (s *Service) lookAgain(ctx context.Context, id string, due time.Time) error {
	for range maxRaces {
		entry, found, err := s.deps.Entries.Get(ctx, state.EntryKey{Kind: KindWaiting, ID: id})
		if err != nil {
			return attest.Recording(err)
		}
		var w waiting
		if !found || json.Unmarshal(entry.Value, &w) != nil {
			return nil // it is over
		}
		w.Due = due
		value, err := json.Marshal(w)
		if err != nil {
			return err
		}
		_, first, err := s.deps.Entries.Swap(ctx, waitingKey(id, w.Call), entry.Revision, value, w.Opened.Add(life))
		if err != nil {
			return attest.Recording(err)
		}
		if first {
			s.mu.Lock()
			s.waiting.put(id, w)
			s.mu.Unlock()
			return nil
		}
	}
	return nil // others look at it
}

// drop says that an approval is over. Where that fails, the next look at it does.
func (s *Service) drop(ctx context.Context, id string) {
	s.forget(id)
	if err := s.deps.Entries.Delete(ctx, state.EntryKey{Kind: KindWaiting, ID: id}); err != nil {
		s.deps.Logger.WarnContext(ctx, "an approval that is over is looked at once more", slog.String("approval", id), slog.Any("error", err))
	}
}

// readWaiting reads the index, unless it was read before and again is false, and returns the ids that are due.
func (s *Service) readWaiting(ctx context.Context, again bool) (due []string, err error) {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	if known && !again {
		return nil, nil
	}
	now, found := s.deps.Now(), newIndex()
	for after := ""; ; {
		entries, err := s.deps.Entries.List(ctx, KindWaiting, "", after, MaxPage)
		if err != nil {
			return nil, attest.Recording(err)
		}
		for _, entry := range entries {
			var w waiting
			if after = entry.Key.ID; json.Unmarshal(entry.Value, &w) != nil {
				continue
			}
			found.put(after, w)
			if !w.Due.After(now) || s.failed(after) {
				due = append(due, after)
			}
		}
		if len(entries) < MaxPage {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.known = found, true
	return due, nil
}

// Watch looks at what is due from now on: it ends what nobody decides in time, and goes on where another replica
// ended. It returns when ctx ends.
func (s *Service) Watch(ctx context.Context) {
	for worker.Pause(ctx, interval) {
		due, err := s.readWaiting(ctx, true)
		if err != nil {
			s.deps.Logger.WarnContext(ctx, "approvals are not looked at", slog.Any("error", err))
		}
		for _, id := range due {
			if err := s.visit(ctx, id); err != nil && ctx.Err() == nil {
				s.deps.Logger.WarnContext(ctx, "an approval is looked at again later", slog.String("approval", id), slog.Any("error", err))
			}
		}
	}
}

// visit does what an approval needs that is due.
func (s *Service) visit(ctx context.Context, id string) error {
	a, err := s.read(ctx, id)
	if _, missing := errors.AsType[*problem.NotFoundError](err); missing {
		return s.abandon(ctx, id)
	}
	if err != nil {
		return err
	}
	now := s.deps.Now()
	if late := !now.Before(a.Until); late && (a.State == hitl.Pending || a.State == hitl.Granted) {
		if a, _, err = s.on(ctx, id, hitl.Event{Kind: overdue(a), At: now.UTC(), Reason: "no human decided in time"}); err != nil {
			return err
		}
	}
	return s.settle(ctx, a)
}

// overdue is what happens to an approval whose time is over.
func overdue(a hitl.Approval) hitl.Kind {
	switch {
	case a.State == hitl.Granted || a.Demand.Unreachable == hitl.DenyCall || a.Raised:
		return hitl.Expire
	case a.Demand.Unreachable == hitl.Continue && a.Whole:
		return hitl.Proceed
	case a.Demand.Unreachable == hitl.Escalate:
		return hitl.Raise
	}
	return hitl.Expire
}

// abandon ends the task of an approval that its replica did not write before it ended.
func (s *Service) abandon(ctx context.Context, id string) error {
	s.mu.Lock()
	w := s.waiting.all[id]
	s.mu.Unlock()
	if w.Task != "" {
		a := hitl.Approval{ID: id, State: hitl.Canceled, Call: w.Call, Task: w.Task}
		if err := s.deps.Tasks.End(ctx, a, "the gateway ended before it could ask for an approval: nothing was sent"); err != nil {
			return err
		}
	}
	s.drop(ctx, id)
	return nil
}

// settle does what follows from the state of an approval. It may be done again.
func (s *Service) settle(ctx context.Context, a hitl.Approval) error {
	if a.State == hitl.Granted || a.State == hitl.Denied {
		s.deps.Notices.decided(ctx, a)
	}
	switch {
	case a.State == hitl.Granted && a.Task != "":
		return s.release(ctx, a)
	case !a.State.Over():
		return s.lookAgain(ctx, a.ID, a.Until)
	case a.State == hitl.Consumed && a.Task != "" && a.Replica == s.deps.Replica:
		return s.finish(ctx, a)
	case a.State == hitl.Consumed && a.Task != "" && s.deps.Alive(ctx, a.Replica):
		return s.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter)) // that replica has it in hand
	case a.Task != "":
		return s.end(ctx, a, reasonOfEnd(a))
	}
	s.drop(ctx, a.ID)
	return nil
}

// release sends a granted call of which a task waits, or ends the task.
func (s *Service) release(ctx context.Context, a hitl.Approval) error {
	if !s.begin(a.ID) {
		return s.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter))
	}
	failure := s.deps.Tasks.Release(ctx, a)
	s.ended(a.ID, failure)
	if failure == nil {
		s.drop(ctx, a.ID)
		return nil
	}
	now, err := s.read(ctx, a.ID)
	if err != nil {
		return errors.Join(failure, err)
	}
	unsent, never := errors.AsType[*problem.UnsentError](failure)
	switch {
	case now.State == hitl.Consumed && now.Replica != s.deps.Replica: // another replica was first
		return s.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter))
	case now.State == hitl.Consumed: // it is never sent again
		return s.finish(ctx, now)
	case !never:
		return errors.Join(failure, s.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter)))
	}
	if now, _, err = s.on(ctx, a.ID, hitl.Event{Kind: hitl.Cancel, At: s.deps.Now().UTC(), Reason: unsent.Reason}); err != nil {
		return err
	}
	return s.end(ctx, now, reasonOfEnd(now))
}

// begin notes that this replica releases a call; false: it does so already.
func (s *Service) begin(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if failure, begun := s.releases[id]; begun && failure == "" {
		return false
	}
	s.releases[id] = ""
	return true
}

// ended notes how a release ended. Why one failed is kept until its task is ended.
func (s *Service) ended(id string, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.releases, id)
	if unsent, ok := errors.AsType[*problem.UnsentError](failure); ok {
		s.releases[id] = "the call was approved, and failed: " + unsent.Reason + ": nothing was sent"
	} else if failure != nil {
		s.releases[id] = "the call was approved, and failed: " + failure.Error() + ": whether the agent has got it is not known"
	}
}

// failed reports whether this replica has a task to end: others look at it as well, and put that off.
func (s *Service) failed(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releases[id] != ""
}

// finish ends the task of a call that this replica has consumed and could not send.
func (s *Service) finish(ctx context.Context, a hitl.Approval) error {
	s.mu.Lock()
	failure, begun := s.releases[a.ID]
	s.mu.Unlock()
	switch {
	case begun && failure == "":
		return s.lookAgain(ctx, a.ID, s.deps.Now().Add(settleAfter))
	case begun:
		return s.end(ctx, a, failure)
	}
	s.drop(ctx, a.ID)
	return nil
}

// end ends the task of an approval that is over.
func (s *Service) end(ctx context.Context, a hitl.Approval, why string) error {
	if err := s.deps.Tasks.End(ctx, a, why); err != nil {
		return err
	}
	s.drop(ctx, a.ID)
	return nil
}

// reasonOfEnd says to a caller why its task ends.
func reasonOfEnd(a hitl.Approval) string {
	why := reason(a)
	switch a.State {
	case hitl.Denied:
		return "the call was denied, and not sent" + because(why)
	case hitl.Consumed:
		return "the gateway that released the call was lost: whether the agent has got it is not known"
	case hitl.Canceled:
		why = a.Why // whatever an approver said before
	case hitl.Pending, hitl.Granted, hitl.Expired:
	}
	return "the call was not approved, and not sent" + because(why)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
