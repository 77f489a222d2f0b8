package gateway_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// lateGrant is a store in which a grant that changes nothing takes longer than a release. Both wait, so that the grant
// reads the approval before the release consumes it, and goes on with what it read after that.
type lateGrant struct{ store.Entries }

const releaseAfter, grantAfter, agentAfter = time.Second, 5 * time.Second, 20 * time.Second

func (l lateGrant) Get(ctx context.Context, key store.EntryKey) (store.Entry, bool, error) {
	if key.Kind == store.KindTask { // the release reads it first
		time.Sleep(releaseAfter)
	}
	return l.Entries.Get(ctx, key)
}

func (l lateGrant) Confirm(ctx context.Context, key store.EntryKey, revision uint64) (bool, error) {
	ok, err := l.Entries.Confirm(ctx, key, revision)
	if key.Kind == approval.KindApproval {
		time.Sleep(grantAfter)
	}
	return ok, err
}

// TestApproval_GrantedAgainDuringRelease: an approver grants once more, and the gateway follows that second grant only
// after the first one has released the call. The task stays with the agent, and has its result.
func TestApproval_GrantedAgainDuringRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := timed(t, hitl.Config{}, func(d *gateway.Deps) { d.Entries = lateGrant{d.Entries} })
		b.agent.called = func(string, json.RawMessage) (string, error) {
			time.Sleep(agentAfter)
			return "", nil
		}
		id := b.park(t)
		view := b.waiting(t, hitl.Pending)
		grant := approval.Decision{Grant: true, Approver: boss, Roles: []string{"approver"}, Shown: view.Shown}
		for range 2 {
			if a, err := b.Parts().Approvals.Decide(t.Context(), view.ID, grant); err != nil || a.State != hitl.Granted {
				t.Fatalf("the approval is %s, %v", a.State, err)
			}
		}
		if a := b.onlyApproval(t); a.State != hitl.Consumed {
			t.Errorf("after the second grant the approval is %s", a.State)
		}
		time.Sleep(time.Minute)
		if state, why := b.taskState(t, id); state != "TASK_STATE_COMPLETED" || len(b.agent.bodies) != 1 {
			t.Errorf("the task is %s (%s), the call was sent %d times", state, why, len(b.agent.bodies))
		}
		if waiting, _ := b.Parts().Approvals.Usage(); waiting != 0 {
			t.Errorf("%d approvals wait", waiting)
		}
	})
}
