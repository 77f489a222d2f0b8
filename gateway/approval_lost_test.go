package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// mortal is the store as a process has it that ends at its so-manieth write: nothing that it does later has an
// effect. What it wrote last may have arrived or not.
type mortal struct {
	store.Entries
	mu      sync.Mutex
	left    int  // writes until its end; negative: it lives
	arrives bool // the last write does
	writes  int
	outage  time.Duration // after which the store can be used again; 0: never
	until   time.Time     // when that is over
}

var errEnded = &state.UnavailableError{}

// write reports whether a write has an effect, and whether its process learns of it.
func (m *mortal) write() (arrives, lives bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	switch {
	case m.left < 0:
		return true, true
	case m.left == 0 && (m.until.IsZero() || time.Now().Before(m.until)):
		return false, false
	case m.left == 0:
		return true, true
	}
	if m.left--; m.left == 0 {
		if m.outage > 0 {
			m.until = time.Now().Add(m.outage)
		}
		return m.arrives, false
	}
	return true, true
}

// works has the store work from now on; false: it has worked all the time.
func (m *mortal) works() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = -1
	return !m.until.IsZero()
}

func (m *mortal) ended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left == 0 && (m.until.IsZero() || time.Now().Before(m.until))
}

func (m *mortal) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	arrives, lives := m.write()
	if !arrives {
		return 0, false, errEnded
	}
	revision, ok, err := m.Entries.Swap(ctx, key, old, value, until)
	if !lives {
		return 0, false, errEnded
	}
	return revision, ok, err
}

func (m *mortal) Delete(ctx context.Context, key store.EntryKey) error {
	arrives, lives := m.write()
	if !arrives {
		return errEnded
	}
	if err := m.Entries.Delete(ctx, key); lives {
		return err
	}
	return errEnded
}

func (m *mortal) Get(ctx context.Context, key store.EntryKey) (store.Entry, bool, error) {
	if m.ended() {
		return store.Entry{}, false, errEnded
	}
	return m.Entries.Get(ctx, key)
}

func (m *mortal) List(ctx context.Context, kind, group, after string, limit int) ([]store.Entry, error) {
	if m.ended() {
		return nil, errEnded
	}
	return m.Entries.List(ctx, kind, group, after, limit)
}

func (m *mortal) Confirm(ctx context.Context, key store.EntryKey, revision uint64) (bool, error) {
	if m.ended() {
		return false, errEnded
	}
	return m.Entries.Confirm(ctx, key, revision)
}

// lossy are two replicas with one store, of which the first ends at a write.
type lossy struct {
	first, second *fixture
	store         *mortal
}

func newLossy(t *testing.T, left int, arrives bool) *lossy {
	t.Helper()
	l := &lossy{store: &mortal{left: left, arrives: arrives}}
	l.first = gated(t, func(d *gateway.Deps) {
		l.store.Entries, d.Entries = d.Entries, l.store
	})
	l.first.agent.gone = l.store.ended
	l.second = gated(t, func(d *gateway.Deps) {
		d.Entries, d.Signer, d.Verifier = l.store.Entries, l.first.Signer, l.first.Verifier
		d.Recorder, d.Evidence, d.Answers, d.Conversations = l.first.Recorder, l.first.Evidence, l.first.Answers, l.first.Conversations
	})
	l.second.caller, l.second.memory = l.first.caller, l.first.memory
	l.first.clock, l.second.clock = time.Now, time.Now
	for _, b := range []*fixture{l.second, l.first} { // the second one looks first at what is due
		if err := b.TakeOver(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	return l
}

func (l *lossy) sent() (n int) {
	for _, b := range []*fixture{l.first, l.second} {
		b.agent.mu.Lock()
		n += len(b.agent.bodies)
		b.agent.mu.Unlock()
	}
	return n
}

// grant has an operator decide at the first replica, and at the second if that has ended.
func (l *lossy) grant(t *testing.T) {
	t.Helper()
	for _, b := range []*fixture{l.first, l.second} {
		page, err := b.Parts().Approvals.List(t.Context(), approval.Query{})
		if err != nil || len(page.Approvals) == 0 || page.Approvals[0].State != hitl.Pending {
			continue
		}
		a := page.Approvals[0]
		if view, err := b.Parts().Approvals.Show(t.Context(), a.ID); err == nil && view.Text == "" {
			t.Errorf("the text of approval %s is lost", a.ID)
		}
		_, _ = b.Parts().Approvals.Decide(t.Context(), a.ID, approval.Decision{Grant: true, Approver: boss, Roles: []string{"approver"}, Shown: a.Shown})
	}
}

// TestApproval_ReplicaLostAtEachWrite: a process ends at any write of parking, deciding and releasing a call. The
// call is sent once or never, and its task says how it ended.
func TestApproval_ReplicaLostAtEachWrite(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	for _, arrives := range []bool{false, true} {
		for left, more := 1, true; more; left++ {
			synctest.Test(t, func(t *testing.T) {
				l := newLossy(t, left, arrives)
				answer, err := l.first.Exchange(t.Context(), l.first.call(addBody))
				known := err == nil
				l.grant(t)
				time.Sleep(2 * time.Minute)
				more = l.store.ended()
				state := "not told"
				if known {
					state = l.state(t, a2aTask(t, answer).ID)
				}
				switch sent := l.sent(); {
				case sent > 1:
					t.Errorf("lost at write %d (%v): the call was sent %d times", left, arrives, sent)
				case state == "TASK_STATE_COMPLETED" && sent != 1, state == "TASK_STATE_REJECTED" && sent != 0, !terminal(state):
					t.Errorf("lost at write %d (%v): the call was sent %d times, and its task is %s", left, arrives, sent, state)
				}
				if open := l.open(t); open != 0 {
					t.Errorf("lost at write %d (%v): %d tasks of the caller wait for ever", left, arrives, open)
				}
				ends[state]++
				for _, b := range []*fixture{l.first, l.second} {
					_ = b.Close()
				}
			})
		}
	}
	t.Log(ends)
	if ends["TASK_STATE_COMPLETED"] == 0 || ends["TASK_STATE_FAILED"] == 0 || ends["not told"] == 0 {
		t.Errorf("tasks ended as %v, expected some of each", ends)
	}
}

// TestApproval_StoreLostAtEachWrite: the store of one of two gateways fails at any write, and works again later. The call
// is sent once or never, and its task ends and says which.
func TestApproval_StoreLostAtEachWrite(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	for _, arrives := range []bool{false, true} {
		for left, more := 1, true; more; left++ {
			synctest.Test(t, func(t *testing.T) {
				l := newLossy(t, left, arrives)
				l.store.outage, l.first.agent.gone = 5*time.Second, nil // its process lives
				b := l.first
				answer, err := b.Exchange(t.Context(), b.call(addBody))
				known := err == nil
				l.grant(t)
				time.Sleep(10 * time.Second)
				l.grant(t)
				time.Sleep(2 * time.Minute)
				more = l.store.works()
				state, why := "not told", ""
				if known {
					state, why = l.stateOf(t, a2aTask(t, answer).ID)
				}
				sent := l.sent()
				failed := state == "TASK_STATE_FAILED" && !strings.Contains(why, "not known") && (sent != 0 || !strings.Contains(why, "nothing was sent"))
				if sent > 1 || state == "TASK_STATE_COMPLETED" && sent != 1 || state == "TASK_STATE_REJECTED" && sent != 0 || failed || !terminal(state) {
					t.Errorf("failed at write %d (%v): the call was sent %d times, and its task is %s: %s", left, arrives, sent, state, why)
				}
				ends[state]++
				for _, b := range []*fixture{l.first, l.second} {
					_ = b.Close()
				}
			})
		}
	}
	t.Log(ends)
	if ends["TASK_STATE_COMPLETED"] == 0 || ends["TASK_STATE_FAILED"] == 0 || ends["not told"] == 0 {
		t.Errorf("tasks ended as %v, expected some of each", ends)
	}
}

func terminal(state string) bool {
	return state == "TASK_STATE_COMPLETED" || state == "TASK_STATE_REJECTED" || state == "TASK_STATE_FAILED" || state == "not told"
}

// state is how a task stands, as the second replica tells.
func (l *lossy) state(t *testing.T, id string) string {
	t.Helper()
	state, _ := l.stateOf(t, id)
	return state
}

func (l *lossy) stateOf(t *testing.T, id string) (state, why string) {
	t.Helper()
	answer, err := l.second.Exchange(t.Context(), l.second.call(`{"jsonrpc":"2.0","id":8,"method":"GetTask","params":{"id":"`+id+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	status := a2aTask(t, answer).Status
	return status.State, string(status.Message)
}

// open counts the tasks of the caller that have not ended.
func (l *lossy) open(t *testing.T) (n int) {
	t.Helper()
	answer, err := l.second.Exchange(t.Context(), l.second.call(`{"jsonrpc":"2.0","id":9,"method":"ListTasks","params":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Result struct {
			Tasks []struct{ Status struct{ State string } }
		}
	}
	if err := json.Unmarshal(answer.Wire().Body, &body); err != nil {
		t.Fatal(err)
	}
	for _, task := range body.Result.Tasks {
		if !terminal(task.Status.State) {
			n++
		}
	}
	return n
}

// TestApproval_SentAgainWhenItsReplicaIsLost: the same for a caller that sends its call again, at the other replica.
// Each approval lets one call through at most.
func TestApproval_SentAgainWhenItsReplicaIsLost(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{false, true} {
		for left, more := 1, true; more; left++ {
			synctest.Test(t, func(t *testing.T) {
				l := newLossy(t, left, arrives)
				granted, through := 0, 0
				for _, b := range []*fixture{l.first, l.second, l.second, l.second} {
					var answer transport.Answer
					answer, err := b.Exchange(t.Context(), b.callTool("1", `{"a":1,"b":2}`))
					if waits, ok := errors.AsType[*problem.ApprovalError](err); ok && waits.State == "pending" {
						l.grant(t)
						granted++
					}
					if err == nil && len(answer.Wire().Body) > 0 {
						through++
					}
					time.Sleep(30 * time.Second)
				}
				more = l.store.ended()
				if sent := l.sent(); sent > granted || through == 0 || sent < through {
					t.Errorf("lost at write %d (%v): granted %d times, the call was sent %d times and answered %d times", left, arrives, granted, sent, through)
				}
				for _, b := range []*fixture{l.first, l.second} {
					_ = b.Close()
				}
			})
		}
	}
}
