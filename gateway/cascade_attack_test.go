package gateway_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/approval"
	undo "github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// calls has a caller with a token of its own call a tool, and returns the checkpoint of the call.
func (b *bookingGateway) calls(t *testing.T, who *ecttest.Party, tool, input string) (made ect.Claims) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"` + string(ect.NewID()) + `","role":"ROLE_USER","parts":[{"data":{"skill":"` + tool + `","input":` + input + `}}]}}}`
	token, err := who.Signer(t, time.Now).Sign(ect.Claims{
		Audience: []string{string(b.self.ID)}, Workflow: b.wid, Act: "work", Parents: []ect.ID{b.last}, OutputHash: ect.Hash([]byte(body)),
	})
	if err != nil {
		t.Fatal(err)
	}
	call := b.call(body, token.Compact())
	call.Caller.Peer = who.Peer()
	answer, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	for _, compact := range answer.Evidence {
		if c := claims(t, compact); c.Act == ect.ActCheckpoint {
			made = c
		}
	}
	return made
}

// TestAttack_WorkBuiltWhileACascadeWaits: what another caller builds on a branch after it was found, and before it is undone, is not
// undone with it. Humans decide.
func TestAttack_WorkBuiltWhileACascadeWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := cascading(t)
		start := b.last
		first := b.does(t, "create_booking", `{"guest":"Alan"}`)
		b.after(start).does(t, "create_booking", `{"guest":"Ada"}`)
		branch := b.last
		hold := make(chan struct{})
		b.hotel.hold = map[string]chan struct{}{"cancel_booking": hold}
		if _, err := b.Parts().Rollbacks.Begin(t.Context(), undo.Command{From: first.ID}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.does(t, "pay", `{"amount":100}`)
		synctest.Wait()
		b.after(branch).calls(t, b.server, "create_booking", `{"guest":"Grace"}`)
		close(hold)
		<-time.After(5 * time.Second)
		if !maps.Equal(b.hotel.guests(), map[string]string{"b2": "Ada", "b3": "Grace"}) {
			t.Errorf("booked are %v, the agent got %q", b.hotel.guests(), b.hotel.called())
		}
		b.waiting(t, hitl.Pending)
	})
}

// TestAttack_GrantOfOneOfTwoQuestions: a workflow that waits for two answers goes on after the second grant, so that a harmless question does
// not lift the pause of another one.
func TestAttack_GrantOfOneOfTwoQuestions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := cascading(t)
		start := b.last
		var ends []ect.ID
		for range 2 {
			b.after(start).does(t, "send_mail", `{"to":"Ada"}`)
			ends = append(ends, b.last)
		}
		hold := make(chan struct{})
		b.hotel.hold = map[string]chan struct{}{"pay": hold}
		var both sync.WaitGroup
		for _, end := range ends {
			call := b.call(`{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"` + string(end) + `","role":"ROLE_USER","parts":[{"data":{"skill":"pay","input":{}}}]}}}`)
			call.Parent = string(end)
			both.Go(func() { _, _ = b.Exchange(t.Context(), call) })
		}
		synctest.Wait()
		close(hold)
		both.Wait()
		<-time.After(5 * time.Second)
		page, err := b.Parts().Approvals.List(t.Context(), approval.Query{State: hitl.Pending})
		if err != nil || len(page.Approvals) != 2 {
			t.Fatalf("%d approvals (%v), expected 2", len(page.Approvals), err)
		}
		for i, want := range []hitl.Mode{hitl.Paused, hitl.Running} {
			view, err := b.Parts().Approvals.Show(t.Context(), page.Approvals[i].ID)
			if err == nil {
				_, err = b.Parts().Approvals.Decide(t.Context(), view.ID, approval.Decision{Grant: true, Approver: boss, Roles: []string{"approver"}, Shown: view.Shown, Reason: "seen"})
			}
			<-time.After(5 * time.Second)
			if level := b.Parts().Levels.Of(b.wid); err != nil || level.Mode != want {
				t.Errorf("after grant %d (%v) the workflow is %s, want %s", i+1, err, level.Mode, want)
			}
		}
	})
}

// endless has a workflow that has grown beyond what is read.
type endless struct {
	ect.Store

	full atomic.Bool
}

func (e *endless) Workflow(ctx context.Context, wid, after string, limit int) ([]ect.Record, string, error) {
	records, next, err := e.Store.Workflow(ctx, wid, after, limit)
	if e.full.Load() && len(records) > 0 {
		records = slices.Repeat(records[:1], dag.MaxNodes+1)
	}
	return records, next, err
}

// TestAttack_FailureInAWorkflowTooLarge: a failure in a workflow that a member has filled, so that the branch of the failure cannot be
// known, is for humans at once.
func TestAttack_FailureInAWorkflowTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		grown := &endless{}
		b := newServed(t, gateway.Settings{Constraints: policy.Constraints{Cascade: policy.CascadeAlways}}, func(d *gateway.Deps) { grown.Store, d.Evidence = d.Evidence, grown })
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.hotel.fail = func(string) error { grown.full.Store(true); return nil }
		b.does(t, "pay", `{"amount":100}`)
		<-time.After(5 * time.Second)
		b.waiting(t, hitl.Pending)
		if level := b.Parts().Levels.Of(b.wid); level.Mode != hitl.Paused {
			t.Errorf("the workflow is %s", level.Mode)
		}
	})
}

// stale gives one reader of a rollback under way what it read only later.
type stale struct {
	store.Entries

	armed atomic.Bool
	reads atomic.Int64
	later chan struct{}
}

func (s *stale) Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error) {
	entry, found, err := s.Entries.Get(ctx, key)
	if key.Kind == undo.KindUndo && s.armed.Load() && s.reads.Add(1) == 2 { // the first one looks for replicas that are gone
		<-s.later
	}
	return entry, found, err
}

// TestCascade_ReadBeforeTheEnd: a look that has read a rollback as under way before it ended does not begin it anew: the agent is asked once.
func TestCascade_ReadBeforeTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := &stale{later: make(chan struct{})}
		b := newServed(t, gateway.Settings{Constraints: policy.Constraints{Cascade: policy.CascadeAlways}}, func(d *gateway.Deps) { entries.Entries, d.Entries = d.Entries, entries })
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		hold := make(chan struct{})
		b.hotel.hold = map[string]chan struct{}{"cancel_booking": hold}
		b.does(t, "pay", `{"amount":100}`)
		synctest.Wait()
		entries.armed.Store(true)
		<-time.After(1500 * time.Millisecond)
		if entries.reads.Load() != 2 {
			t.Fatalf("the rollback was read %d times, expected 2", entries.reads.Load())
		}
		close(hold)
		<-time.After(5 * time.Second)
		close(entries.later)
		<-time.After(5 * time.Second)
		level := b.Parts().Levels.Of(b.wid)
		if n := b.hotel.count("cancel_booking"); n != 1 || level.Mode == hitl.Stopped {
			t.Errorf("the agent was asked %d times, the workflow is %s", n, level.Mode)
		}
	})
}

// crowded has no space for what follows from failures.
type crowded struct{ store.Entries }

func (c crowded) Swap(ctx context.Context, key state.EntryKey, revision uint64, value []byte, until time.Time) (uint64, bool, error) {
	if key.Kind == undo.KindAftermath {
		return 0, false, &state.FullError{What: "records", Own: true}
	}
	return c.Entries.Swap(ctx, key, revision, value, until)
}

// TestAttack_FailureWithAFullShare: a caller that has filled its share of the store leaves the errors of its steps on record all the same.
func TestAttack_FailureWithAFullShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newServed(t, gateway.Settings{Constraints: policy.Constraints{Cascade: policy.CascadeAlways}}, func(d *gateway.Deps) { d.Entries = crowded{d.Entries} })
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.does(t, "pay", `{"amount":100}`)
		if tokens := b.tokensOf(t, b.wid); !slices.ContainsFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActError }) {
			t.Errorf("on record are %v", acts(tokens))
		}
	})
}

// TestAttack_QuestionUnderAUsedID: a caller that gives the request for a rollback the id of an approval that was granted for something else
// does not have that grant count for what its rollback leaves to humans, and does not use it up.
func TestAttack_QuestionUnderAUsedID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newServed(t, gateway.Settings{})
		mail, id := b.does(t, "send_mail", `{"to":"Ada"}`), ect.NewID()
		content := []byte(`{"about":"something else"}`)
		err := approval.Ask(t.Context(), b.Parts().Approvals, approval.Question{
			ID: string(id), About: "other", Asker: b.server.ID, Workflow: b.wid, Gated: mail.ID, Input: ect.Hash(content), Content: content,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.decide(t, true)
		token, err := b.caller.Signer(t, time.Now).Sign(ect.Claims{
			ID: id, Audience: []string{string(b.self.ID)}, Workflow: b.wid, Act: ect.ActRollbackRequest, Parents: []ect.ID{mail.ID},
			Ext: ect.Ext{ect.ExtATDReason: []byte(`"off"`), ect.ExtCascade: []byte("false")},
		})
		if err == nil {
			_, err = b.rollBack(t, b.caller, token.Compact())
		}
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Second)
		b.waiting(t, hitl.Pending)
		b.waiting(t, hitl.Granted)
		if level := b.Parts().Levels.Of(b.wid); level.Mode != hitl.Paused {
			t.Errorf("the workflow is %s", level.Mode)
		}
	})
}

// TestAttack_GrantOfAnotherReason: a grant lets a workflow go on that was paused for its question, and not one that a rule about errors has
// paused or stopped, though the same role lifts both.
func TestAttack_GrantOfAnotherReason(t *testing.T) {
	t.Parallel()
	for step, mode := range map[hitl.Step]hitl.Mode{hitl.Pause: hitl.Paused, hitl.Stop: hitl.Stopped} {
		synctest.Test(t, func(t *testing.T) {
			b := cascading(t)
			b.does(t, "send_mail", `{"to":"Ada"}`)
			b.hotel.fail = func(string) error {
				_, err := b.Parts().Levels.Set(t.Context(), b.wid, hitl.StandingEvent{Step: step, At: time.Now(), Why: "an error of severity critical", Roles: []string{"approver"}})
				if err != nil {
					t.Error(err)
				}
				return nil
			}
			b.does(t, "pay", `{"amount":100}`)
			<-time.After(3 * time.Second)
			b.decide(t, true)
			<-time.After(3 * time.Second)
			if level := b.Parts().Levels.Of(b.wid); level.Mode != mode {
				t.Errorf("the workflow is %s, want %s", level.Mode, mode)
			}
		})
	}
}
