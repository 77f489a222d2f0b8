package gateway_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway"
	undo "github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// cascading is a hotel whose calls are undone when a later one fails.
func cascading(t *testing.T) *bookingGateway {
	t.Helper()
	return newServed(t, gateway.Settings{Constraints: policy.Constraints{Cascade: policy.CascadeAlways}})
}

// newServed is a hotel whose gateway goes on with what has to wait.
func newServed(t *testing.T, settings gateway.Settings, edits ...func(*gateway.Deps)) *bookingGateway {
	t.Helper()
	b := newBookings(t, settings, edits...)
	b.clock = time.Now
	if err := b.TakeOver(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	b.opened(t)
	b.setNow(time.Now())
	return b
}

// after makes the next call follow from a token.
func (b *bookingGateway) after(id ect.ID) *bookingGateway {
	b.last = id
	return b
}

// breaks has a call fail in a way that leaves open what it did.
func (b *bookingGateway) breaks(t *testing.T, tool, input string) {
	t.Helper()
	b.hotel.fail = func(called string) error {
		if called != tool {
			return nil
		}
		return &transport.TimeoutError{Agent: "calculator"}
	}
	call := b.call(`{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"` + string(ect.NewID()) + `","role":"ROLE_USER","parts":[{"data":{"skill":"` + tool + `","input":` + input + `}}]}}}`)
	call.Parent = string(b.last)
	if _, err := b.Exchange(t.Context(), call); err == nil {
		t.Fatalf("%s did not fail", tool)
	}
	b.hotel.fail = nil
}

// TestCascade_OwnBranch: a step that fails takes with it what led to it alone, in reverse order, and leaves a finished sibling and what
// both follow from as they are; the tokens say what followed from what (AEPB, Translation Failure Handling; ATD, Partial Rollback).
func TestCascade_OwnBranch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := cascading(t)
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		fork := b.last
		first := b.does(t, "create_booking", `{"guest":"Grace"}`)
		b.does(t, "rename_guest", `{"id":"b2","guest":"Barbara"}`)
		branch := b.last
		b.after(fork).does(t, "create_booking", `{"guest":"Alan"}`)
		b.after(branch).does(t, "pay", `{"amount":100}`)
		synctest.Wait()
		if !maps.Equal(b.hotel.guests(), map[string]string{"b1": "Ada", "b3": "Alan"}) || b.hotel.count("cancel_booking") != 1 || b.hotel.count("rename_guest") != 2 {
			t.Errorf("booked are %v, the agent got %q", b.hotel.guests(), b.hotel.called())
		}
		tokens := b.tokensOf(t, b.wid)
		failed := tokens[slices.IndexFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActError })]
		request := tokens[slices.IndexFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActRollbackRequest })]
		cause, _ := request.Ext.Strings(ect.ExtUpstreamErrors)
		if whole, _ := request.Ext.Bool(ect.ExtCascade); !slices.Equal(request.Parents, []ect.ID{first.ID}) || !whole || !slices.Equal(cause, []string{string(failed.ID)}) || request.Issuer != b.self.ID {
			t.Errorf("the request is %+v", request)
		}
		result := tokens[len(tokens)-1]
		if result.Act != ect.ActRollbackResult || statusOf(result) != "completed" || !slices.Equal(result.Parents, []ect.ID{request.ID}) {
			t.Errorf("the last token is %+v", result)
		}
		if level := b.Parts().Levels.Of(b.wid); level.Mode == hitl.Paused || level.Mode == hitl.Stopped {
			t.Errorf("the workflow is %s", level.Mode)
		}
	})
}

// TestCascade_WhoseWord: the operator's rule decides, else the token of the caller whose step fails; without either an error undoes nothing.
func TestCascade_WhoseWord(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule   policy.Cascade
		caller string // atd.cascade of its token
		undone bool
	}{
		"no word":               {},
		"the caller's no":       {caller: "false"},
		"the caller's text":     {caller: `"true"`},
		"the caller":            {caller: "true", undone: true},
		"the operator":          {rule: policy.CascadeAlways, undone: true},
		"the operator's no":     {rule: policy.CascadeNever, caller: "true"},
		"the operator and a no": {rule: policy.CascadeAlways, caller: "false", undone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newServed(t, gateway.Settings{Constraints: policy.Constraints{Cascade: tc.rule}})
				b.does(t, "create_booking", `{"guest":"Ada"}`)
				ext := ect.Ext{}
				if tc.caller != "" {
					ext[ect.ExtCascade] = []byte(tc.caller)
				}
				b.pays(t, b.caller, ext)
				synctest.Wait()
				if undone := len(b.hotel.guests()) == 0; undone != tc.undone {
					t.Errorf("booked are %v", b.hotel.guests())
				}
			})
		})
	}
}

// pays has a caller with a token of its own make a call that fails.
func (b *bookingGateway) pays(t *testing.T, who *ecttest.Party, ext ect.Ext) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"` + string(ect.NewID()) + `","role":"ROLE_USER","parts":[{"data":{"skill":"pay","input":{}}}]}}}`
	token, err := who.Signer(t, time.Now).Sign(ect.Claims{
		Audience: []string{string(b.self.ID)}, Workflow: b.wid, Act: "pay", Parents: []ect.ID{b.last}, OutputHash: ect.Hash([]byte(body)), Ext: ext,
	})
	if err != nil {
		t.Fatal(err)
	}
	call := b.call(body, token.Compact())
	call.Caller.Peer = who.Peer()
	if _, err := b.Exchange(t.Context(), call); err != nil {
		t.Fatal(err)
	}
}

// TestCascade_StopsAtWhatCannotBeUndone: what lies above a step that cannot be undone stays until an approver has decided: the workflow is paused, goes on
// after a grant, and is stopped after a denial. Who made the failing call does not decide (ATD, Interaction with HITL, 1).
func TestCascade_StopsAtWhatCannotBeUndone(t *testing.T) {
	t.Parallel()
	for _, grant := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := cascading(t)
			b.does(t, "create_booking", `{"guest":"Ada"}`)
			mail := b.does(t, "send_mail", `{"to":"Ada"}`)
			b.does(t, "create_booking", `{"guest":"Grace"}`)
			b.does(t, "pay", `{"amount":100}`)
			time.Sleep(3 * time.Second)
			if !maps.Equal(b.hotel.guests(), map[string]string{"b1": "Ada"}) {
				t.Errorf("booked are %v", b.hotel.guests())
			}
			if level := b.Parts().Levels.Of(b.wid); level.Mode != hitl.Paused {
				t.Errorf("the workflow is %s", level.Mode)
			}
			view := b.waiting(t, hitl.Pending)
			if !strings.Contains(view.Text, string(mail.ID)) || !strings.Contains(view.Text, "before send_mail") || view.Call.Caller != b.caller.ID {
				t.Errorf("the approver sees %q of %s", view.Text, view.Call.Caller)
			}
			b.decide(t, grant)
			time.Sleep(3 * time.Second)
			want := map[bool]hitl.Mode{true: hitl.Running, false: hitl.Stopped}[grant]
			if level := b.Parts().Levels.Of(b.wid); level.Mode != want {
				t.Errorf("granted %t: the workflow is %s", grant, level.Mode)
			}
			if len(b.hotel.guests()) != 1 {
				t.Errorf("granted %t: booked are %v", grant, b.hotel.guests())
			}
		})
	}
}

// TestCascade_UnknownOutcome: a call of which nothing is known and that cannot be undone leaves all that led to it, and calls an approver; without a cascade the
// workflow goes on meanwhile.
func TestCascade_UnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, cascade := range []policy.Cascade{policy.CascadeAlways, ""} {
		synctest.Test(t, func(t *testing.T) {
			b := newServed(t, gateway.Settings{Constraints: policy.Constraints{Cascade: cascade}})
			b.does(t, "create_booking", `{"guest":"Ada"}`)
			b.breaks(t, "send_mail", `{"to":"Ada"}`)
			synctest.Wait()
			b.waiting(t, hitl.Pending)
			if paused := b.Parts().Levels.Of(b.wid).Mode == hitl.Paused; len(b.hotel.guests()) != 1 || paused != (cascade != "") {
				t.Errorf("%q: paused %t, booked are %v", cascade, paused, b.hotel.guests())
			}
		})
	}
}

// TestCascade_TwoRoots: a step that joins two branches takes both with it, one after the other.
func TestCascade_TwoRoots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := cascading(t)
		start := b.last
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		left := b.last
		b.after(start).does(t, "create_booking", `{"guest":"Grace"}`)
		body := `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m9","role":"ROLE_USER","parts":[{"data":{"skill":"pay","input":{}}}]}}}`
		if _, err := b.Exchange(t.Context(), b.call(body, b.task(t, b.wid, body, left, b.last))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if len(b.hotel.guests()) != 0 || b.hotel.count("cancel_booking") != 2 {
			t.Errorf("booked are %v, the agent got %q", b.hotel.guests(), b.hotel.called())
		}
	})
}

// TestCascade_WaitsForAnotherRollback: a failure during a rollback of the same workflow is not forgotten.
func TestCascade_WaitsForAnotherRollback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := cascading(t)
		start := b.last
		first := b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.after(start).does(t, "create_booking", `{"guest":"Grace"}`)
		hold := make(chan struct{})
		b.hotel.hold = map[string]chan struct{}{"cancel_booking": hold}
		if _, err := b.Parts().Rollbacks.Begin(t.Context(), undo.Command{From: first.ID}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.does(t, "pay", `{"amount":100}`)
		time.Sleep(3 * time.Second)
		if len(b.hotel.guests()) != 2 {
			t.Errorf("booked are %v", b.hotel.guests())
		}
		close(hold)
		time.Sleep(3 * time.Second)
		if len(b.hotel.guests()) != 0 || b.hotel.count("cancel_booking") != 2 {
			t.Errorf("booked are %v, the agent got %q", b.hotel.guests(), b.hotel.called())
		}
	})
}

// TestAttack_CascadeIntoOthersBranches: a member whose step fails with atd.cascade undoes nothing that another caller did, with a token of its own or
// without, though its step follows from that.
func TestAttack_CascadeIntoOthersBranches(t *testing.T) {
	t.Parallel()
	for _, attested := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newServed(t, gateway.Settings{})
			if attested {
				body := `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"create_booking","input":{"guest":"Ada"}}}]}}}`
				answer, err := b.Exchange(t.Context(), b.call(body, b.task(t, b.wid, body, b.last)))
				if err != nil {
					t.Fatal(err)
				}
				b.last = claims(t, answer.Evidence[len(answer.Evidence)-1]).ID
			} else {
				b.does(t, "create_booking", `{"guest":"Ada"}`)
			}
			b.pays(t, b.server, ect.Ext{ect.ExtCascade: []byte("true")})
			time.Sleep(3 * time.Second)
			tokens := b.tokensOf(t, b.wid)
			failed := slices.ContainsFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActError })
			if !failed || len(b.hotel.guests()) != 1 || slices.ContainsFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActRollbackRequest }) {
				t.Errorf("attested %t: booked are %v, on record are %v", attested, b.hotel.guests(), acts(tokens))
			}
		})
	}
}

// TestCascade_ReplicaLostAtEachWrite: wherever the replica ends that a step failed at, the other one undoes the branch, each call once.
func TestCascade_ReplicaLostAtEachWrite(t *testing.T) {
	t.Parallel()
	for left := 1; ; left++ {
		ends, undone := 0, 0
		for _, arrives := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				first, second, store := newLossyBooking(t, -1, arrives)
				for _, g := range []*bookingGateway{first, second} {
					g.Apply(gateway.Settings{Constraints: policy.Constraints{Cascade: policy.CascadeAlways}})
				}
				first.hotel.twice = true
				first.does(t, "create_booking", `{"guest":"Ada"}`)
				first.does(t, "rename_guest", `{"id":"b1","guest":"Grace"}`)
				parent := first.last
				store.mu.Lock()
				store.left = left
				store.mu.Unlock()
				sent := len(first.agent.bodies)
				body := `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m9","role":"ROLE_USER","parts":[{"data":{"skill":"pay","input":{}}}]}}}`
				call := first.call(body)
				call.Parent = string(parent)
				_, err := first.Exchange(t.Context(), call)
				time.Sleep(time.Second)
				if !store.ended() {
					return
				}
				ends++
				time.Sleep(2 * time.Minute)
				tokens := second.tokensOf(t, second.wid)
				failed := slices.ContainsFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActError })
				if failed != (len(first.hotel.guests()) == 0) {
					t.Errorf("it ended at write %d (%t): %v, booked %v, on record are %v", left, arrives, err, first.hotel.guests(), acts(tokens))
				}
				if failed {
					undone++
				}
				calls := map[string]string{}
				all := slices.Concat(first.agent.tokens[sent:], second.agent.tokens)
				for i, body := range slices.Concat(first.agent.bodies[sent:], second.agent.bodies) {
					if before, again := calls[string(body)]; again && before != all[i][0] {
						t.Errorf("it ended at write %d: the same call came with two tokens", left)
					}
					calls[string(body)] = all[i][0]
				}
				if failed && len(calls) != 3 {
					t.Errorf("it ended at write %d (%t): the agent got %d different calls, expected three", left, arrives, len(calls))
				}
			})
		}
		if ends == 0 {
			if left < 12 {
				t.Errorf("a failure and its rollback have %d writes", left)
			}
			return
		}
		if left > 12 && undone == 0 {
			t.Errorf("it ended at write %d, and nothing was undone", left)
		}
	}
}
