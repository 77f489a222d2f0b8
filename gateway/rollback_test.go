package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/problem"
	undo "github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	pure "github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// TestCheckpoint_PrecedesTheCall: when the agent gets a consequential call, its checkpoint is on record, with the request as
// its parent, the hash of what is stored, and the three claims of the draft (ATD, Checkpoint ECT Format; R22).
func TestCheckpoint_PrecedesTheCall(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{CheckpointTTL: time.Hour}).opened(t)
	var seen []ect.Act
	b.hotel.fail = func(string) error { seen = acts(b.tokensOf(t, b.wid)); return nil }
	made := b.does(t, "create_booking", `{"guest":"Ada"}`)
	if !slices.Equal(seen, []ect.Act{ect.ActWorkflowStart, ect.ActIntent, ect.ActTranslate, ect.ActCheckpoint}) {
		t.Errorf("on record at the call were %v", seen)
	}
	tokens := b.tokensOf(t, b.wid)
	c, err := checkpoint.Parse(made)
	if err != nil || !c.Reversible || c.TTL != time.Hour || c.RollbackURI != "https://gateway.example.com/.well-known/atd/rollback" || !slices.Equal(c.Parents, []ect.ID{tokens[2].ID}) {
		t.Errorf("%v: the checkpoint is %+v", err, c)
	}
	saved, err := b.Parts().Checkpoints.Find(t.Context(), b.wid, made.ID)
	if err != nil || saved.Plan == nil || saved.Plan.Tool != "create_booking" || saved.Outcome == nil || string(saved.Outcome.Result) != `{"id":"b1"}` {
		t.Errorf("%v: saved is %+v", err, saved)
	}
	for _, token := range b.tokensOf(t, b.wid) {
		text, err := json.Marshal(token)
		if err != nil || strings.Contains(string(text), "Ada") || strings.Contains(string(text), "cancel_booking") {
			t.Errorf("%v: a token has the state: %s", err, text)
		}
	}
}

// TestCheckpoint_Placement: reads of the operator's list need no checkpoint, what an agent calls destructive needs one all the
// same, and without a start on record only policy demands one.
func TestCheckpoint_Placement(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{}).opened(t)
	b.does(t, "create_booking", `{"guest":"Ada"}`)
	if made := b.does(t, "get_booking", `{"id":"b1"}`); made.Act != "" {
		t.Error("a read has a checkpoint")
	}
	b.agent.more = slices.DeleteFunc(b.agent.more, func(c canonical.Capability) bool { return c.ID == "get_booking" })
	b.agent.more = append(b.agent.more, canonical.Capability{
		ID: "get_booking", Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: json.RawMessage(`{"destructiveHint":true}`),
	})
	b.Directory.Outdated("calculator")
	if made := b.does(t, "get_booking", `{"id":"b1"}`); made.Act != ect.ActCheckpoint {
		t.Error("a tool that its agent calls destructive has no checkpoint")
	}
	answer, err := b.Exchange(t.Context(), b.call(addBody))
	if err != nil || len(answer.Evidence) != 2 {
		t.Errorf("without a workflow: %v, %d tokens", err, len(answer.Evidence))
	}
	b.Apply(gateway.Settings{Constraints: policy.Constraints{Checkpoint: true}})
	if answer, err = b.Exchange(t.Context(), b.call(addBody)); err != nil || len(answer.Evidence) != 3 || claims(t, answer.Evidence[1]).Act != ect.ActCheckpoint {
		t.Errorf("where policy demands one: %v, %d tokens", err, len(answer.Evidence))
	}
}

// TestRollback_SameRequest: the same request gets the same result, after days as well, and undoes nothing more; another request
// under its jti is refused (ATD, Rollback Timeout and Escalation; R6).
func TestRollback_SameRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBookings(t, gateway.Settings{})
		b.clock = time.Now
		b.opened(t)
		made := b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.setNow(time.Now())
		token := b.request(t, b.caller, made.ID, false)
		first, err := b.rollBack(t, b.caller, token)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * 24 * time.Hour)
		again, err := b.rollBack(t, b.caller, token)
		if err != nil || again.Wire().Header.Get(rollback.Field) != first.Wire().Header.Get(rollback.Field) || string(again.Wire().Body) != string(first.Wire().Body) {
			t.Errorf("%v: the same request got another answer", err)
		}
		if n := b.hotel.count("cancel_booking"); n != 1 {
			t.Errorf("it was canceled %d times", n)
		}
		forged := claims(t, token)
		forged.Ext.SetBool(ect.ExtCascade, true)
		other, err := b.caller.Signer(t, func() time.Time { return b.now() }).Sign(forged)
		if err != nil {
			t.Fatal(err)
		}
		var invalid *ect.InvalidError
		if _, err := b.rollBack(t, b.caller, other.Compact()); !errors.As(err, &invalid) || invalid.Reason != ect.ReasonReplay {
			t.Errorf("another request under the same jti: %v", err)
		}
	})
}

// TestRollback_Dependants: without a cascade a step that others used is not undone, and the refusal names them; a sibling stays as it is
// (ATD, Partial Rollback and Blast Radius Containment).
func TestRollback_Dependants(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{}).opened(t)
	start := b.last
	first := b.does(t, "create_booking", `{"guest":"Ada"}`)
	second := b.does(t, "rename_guest", `{"id":"b1","guest":"Grace"}`)
	b.last = start
	b.does(t, "create_booking", `{"guest":"Alan"}`)
	_, err := b.rollBack(t, b.caller, b.request(t, b.caller, first.ID, false))
	var depends *pure.DependsError
	tokens := b.tokensOf(t, b.wid)
	if !errors.As(err, &depends) || !slices.ContainsFunc(tokens, func(c ect.Claims) bool {
		return c.Act == ect.ActIntent && strings.Contains(depends.Error(), string(c.ID))
	}) {
		t.Errorf("got %v, expected a refusal that names the step", err)
	}
	if result := b.undoes(t, second.ID, false); statusOf(result) != "completed" || b.hotel.booked["b1"] != "Ada" {
		t.Errorf("the last step: %s, booked %v", statusOf(result), b.hotel.booked)
	}
	if result := b.undoes(t, first.ID, false); statusOf(result) != "completed" || len(b.hotel.booked) != 1 || b.hotel.booked["b2"] != "Alan" {
		t.Errorf("then the first: %s, booked %v", statusOf(result), b.hotel.booked)
	}
}

// TestRollback_Irreversible: what cannot be undone is left to a human: nothing is sent, the result says so, and the workflow is paused (ATD,
// Checkpoint ECT Format; Interaction with HITL).
func TestRollback_Irreversible(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{}).opened(t)
	made := b.does(t, "send_mail", `{"to":"Ada"}`)
	if reversible, ok := made.Ext.Bool(ect.ExtReversible); reversible || !ok {
		t.Error("a mail can be undone")
	}
	calls := len(b.hotel.calls)
	result := b.undoes(t, made.ID, true)
	if statusOf(result) != "escalated" || len(b.hotel.calls) != calls {
		t.Errorf("the result is %s, the agent got %d calls", statusOf(result), len(b.hotel.calls)-calls)
	}
	tokens := b.tokensOf(t, b.wid)
	if !slices.Contains(acts(tokens), ect.ActEscalate) {
		t.Errorf("on record are %v", acts(tokens))
	}
	if level := b.Parts().Levels.Of(b.wid); level.Mode != hitl.Paused {
		t.Errorf("the workflow is %s", level.Mode)
	}
}

// TestRollback_AgentFails: an agent that does not undo its work stops the workflow, and nothing that it was built upon is undone.
func TestRollback_AgentFails(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{}).opened(t)
	first := b.does(t, "create_booking", `{"guest":"Ada"}`)
	b.does(t, "rename_guest", `{"id":"b1","guest":"Grace"}`)
	b.hotel.fail = func(string) error {
		delete(b.hotel.booked, "b1") // it is gone, so that it cannot be renamed
		return nil
	}
	result := b.undoes(t, first.ID, true)
	if statusOf(result) != "failed" || b.hotel.count("cancel_booking") != 0 {
		t.Errorf("the result is %s, the agent got %q", statusOf(result), b.hotel.calls)
	}
	if level := b.Parts().Levels.Of(b.wid); level.Mode != hitl.Stopped {
		t.Errorf("the workflow is %s", level.Mode)
	}
}

// TestRollback_LostAnswer: a compensating call whose answer is unanswered is sent again with the same bytes and the same token, so that an agent
// can tell that it has got it before.
func TestRollback_LostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBookings(t, gateway.Settings{})
		b.clock = time.Now
		b.opened(t)
		made := b.does(t, "create_booking", `{"guest":"Ada"}`)
		failures := []error{
			&transport.TimeoutError{Agent: "calculator"}, &transport.RefusedError{Agent: "calculator", Status: http.StatusTooManyRequests, Code: problem.CodeRateLimited},
		}
		b.hotel.fail = func(string) error {
			if len(failures) == 0 {
				return nil
			}
			err := failures[0]
			failures = failures[1:]
			return err
		}
		before := len(b.agent.bodies)
		b.setNow(time.Now())
		if result := b.undoes(t, made.ID, false); statusOf(result) != "completed" {
			t.Errorf("the result is %s", statusOf(result))
		}
		bodies, tokens := b.agent.bodies[before:], b.agent.tokens[before:]
		if len(bodies) != 3 || string(bodies[0]) != string(bodies[1]) || string(bodies[1]) != string(bodies[2]) || tokens[0][0] != tokens[1][0] || tokens[1][0] != tokens[2][0] {
			t.Errorf("the agent got %q with %d tokens", bodies, len(tokens))
		}
	})
}

// TestRollback_Overdue: a rollback that is not over by half the checkpoint's ttl ends with an atd:error of the type timeout, calls a human, and
// says that what it was about is escalated (ATD, Rollback Timeout and Escalation).
func TestRollback_Overdue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBookings(t, gateway.Settings{CheckpointTTL: 2 * time.Minute})
		b.clock = time.Now
		b.opened(t)
		made := b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.hotel.fail = func(string) error { return &transport.TimeoutError{Agent: "calculator"} }
		b.setNow(time.Now())
		token := b.request(t, b.caller, made.ID, false)
		var waits *problem.WaitingError
		if _, err := b.rollBack(t, b.caller, token); !errors.As(err, &waits) {
			t.Errorf("after a minute: %v, expected that it goes on", err)
		}
		time.Sleep(10 * time.Minute)
		answer, err := b.rollBack(t, b.caller, token)
		if err != nil {
			t.Fatal(err)
		}
		result := claims(t, answer.Wire().Header.Get(rollback.Field))
		tokens := b.tokensOf(t, b.wid)
		at := slices.IndexFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActError })
		if statusOf(result) != "escalated" || at < 0 {
			t.Fatalf("the result is %s, on record are %v", statusOf(result), acts(tokens))
		}
		kind, _ := tokens[at].Ext.String(ect.ExtErrorType)
		of, _ := tokens[at].Ext.String(ect.ExtCheckpointID)
		if kind != "timeout" || of != string(made.ID) || !slices.ContainsFunc(tokens, func(c ect.Claims) bool {
			return c.Act == ect.ActEscalate && slices.Equal(c.Parents, []ect.ID{tokens[at].ID})
		}) {
			t.Errorf("the error is %s about %s, on record are %v", kind, of, acts(tokens))
		}
		if text, err := json.Marshal(tokens); err != nil || strings.Contains(string(text), "Ada") {
			t.Errorf("%v: a token has what the checkpoint keeps: %s", err, text)
		}
	})
}

// TestAttack_OutsiderRollsBack: an identity without a part in what a checkpoint is about rolls nothing back, though it knows workflow and checkpoint.
func TestAttack_OutsiderRollsBack(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{}).opened(t)
	made := b.does(t, "create_booking", `{"guest":"Ada"}`)
	var forbidden *policy.Forbidden
	if _, err := b.rollBack(t, b.server, b.request(t, b.server, made.ID, true)); !errors.As(err, &forbidden) {
		t.Errorf("got %v", err)
	}
	if b.hotel.count("cancel_booking") != 0 {
		t.Error("it was undone")
	}
}

// TestRollback_Operator: an operator sees what would happen, begins it without a token of its own, and sees how it ends; the request on record names
// the operator.
func TestRollback_Operator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBookings(t, gateway.Settings{})
		b.clock = time.Now
		b.opened(t)
		made := b.does(t, "create_booking", `{"guest":"Ada"}`)
		command := undo.Command{From: made.ID, Reason: "on request", Operator: "ops"}
		wid, plan, err := b.Parts().Rollbacks.Foresee(t.Context(), command)
		if err != nil || wid != b.wid || len(plan.Steps) != 1 || !slices.Equal(plan.Blast, []string{"calculator"}) || b.hotel.count("cancel_booking") != 0 {
			t.Fatalf("%v: the plan is %+v", err, plan)
		}
		view, err := b.Parts().Rollbacks.Begin(t.Context(), command)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if view, err = b.Parts().Rollbacks.Look(t.Context(), wid, view.Request); err != nil || view.Status != "completed" || len(b.hotel.booked) != 0 {
			t.Errorf("%v: it stands at %+v", err, view)
		}
		request := b.tokensOf(t, b.wid)
		at := slices.IndexFunc(request, func(c ect.Claims) bool { return c.ID == view.Request })
		if who, _ := request[at].Ext.String(ect.ExtApprover); who != "ops" {
			t.Errorf("the request names %q", who)
		}
	})
}

// TestRollback_OneAtATime: while a rollback of a workflow goes on, another one waits; other workflows do not.
func TestRollback_OneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBookings(t, gateway.Settings{})
		b.clock = time.Now
		b.opened(t)
		start := b.last
		first := b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.last = start
		second := b.does(t, "create_booking", `{"guest":"Grace"}`)
		other := &bookingGateway{fixture: b.fixture, hotel: b.hotel}
		third := other.opened(t).does(t, "create_booking", `{"guest":"Alan"}`)
		hold := make(chan struct{})
		b.agent.called = func(tool string, args json.RawMessage) (string, error) {
			if strings.Contains(string(args), "Ada") {
				<-hold
			}
			return b.hotel.call(tool, args)
		}
		if _, err := b.Parts().Rollbacks.Begin(t.Context(), undo.Command{From: first.ID}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var waits *problem.WaitingError
		if _, err := b.Parts().Rollbacks.Begin(t.Context(), undo.Command{From: second.ID}); !errors.As(err, &waits) {
			t.Errorf("a second one: %v", err)
		}
		if result := other.undoes(t, third.ID, false); statusOf(result) != "completed" {
			t.Errorf("of another workflow: %s", statusOf(result))
		}
		close(hold)
		synctest.Wait()
		if _, err := b.Parts().Rollbacks.Begin(t.Context(), undo.Command{From: second.ID}); err != nil {
			t.Errorf("after the first: %v", err)
		}
		synctest.Wait()
		if len(b.hotel.booked) != 0 {
			t.Errorf("booked is %v", b.hotel.booked)
		}
	})
}

// newLossyBooking are two replicas with one store, of which the first ends at a write.
func newLossyBooking(t *testing.T, left int, arrives bool) (first, second *bookingGateway, store *mortal) {
	t.Helper()
	store = &mortal{left: -1, arrives: arrives}
	first = newBookings(t, gateway.Settings{}, func(d *gateway.Deps) { store.Entries, d.Entries = d.Entries, store })
	first.agent.gone = store.ended
	second = newBookings(t, gateway.Settings{}, func(d *gateway.Deps) {
		d.Entries, d.Signer, d.Verifier, d.Blobs = store.Entries, first.Signer, first.Verifier, first.Blobs
		d.Recorder, d.Evidence, d.Answers, d.Conversations = first.Recorder, first.Evidence, first.Answers, first.Conversations
	})
	second.caller, second.memory, second.self = first.caller, first.memory, first.self
	second.hotel, second.agent.called = first.hotel, first.hotel.call
	first.clock, second.clock = time.Now, time.Now
	for _, b := range []*bookingGateway{second, first} {
		if err := b.TakeOver(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		time.Sleep(time.Millisecond)
	}
	first.opened(t)
	second.wid = first.wid
	store.left = left
	return first, second, store
}

// TestRollback_ReplicaLostAtEachWrite: whichever write a replica ends at, the other one finishes the rollback: each step is undone, in order, and a
// compensating call that came twice came with one token (R18), and the result is on record.
func TestRollback_ReplicaLostAtEachWrite(t *testing.T) {
	t.Parallel()
	for left := 1; ; left++ {
		ends := 0
		for _, arrives := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				first, second, store := newLossyBooking(t, -1, arrives)
				first.hotel.twice = true
				made := first.does(t, "create_booking", `{"guest":"Ada"}`)
				first.does(t, "rename_guest", `{"id":"b1","guest":"Grace"}`)
				store.mu.Lock()
				store.left = left
				store.mu.Unlock()
				sent := len(first.agent.bodies)
				first.setNow(time.Now())
				token := first.request(t, first.caller, made.ID, true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, _ = first.rollBack(t, first.caller, token)
				<-ctx.Done()
				cancel()
				if !store.ended() {
					return
				}
				ends++
				time.Sleep(2 * time.Minute)
				second.setNow(time.Now())
				answer, err := second.rollBack(t, second.caller, token)
				if err != nil { // the request itself was unanswered, or its token is used up by now: the caller signs another one
					answer, err = second.rollBack(t, second.caller, second.request(t, second.caller, made.ID, true))
				}
				if err == nil {
					result := claims(t, answer.Wire().Header.Get(rollback.Field)).ID
					if !slices.ContainsFunc(second.tokensOf(t, second.wid), func(c ect.Claims) bool { return c.ID == result }) {
						t.Errorf("it ended at write %d (%t): the result is not on record", left, arrives)
					}
				}
				if err != nil || len(first.hotel.booked) != 0 {
					t.Errorf("it ended at write %d (%t): %v, booked %v", left, arrives, err, first.hotel.booked)
				}
				tokens := map[string]string{}
				for i, body := range slices.Concat(first.agent.bodies[sent:], second.agent.bodies) {
					all := slices.Concat(first.agent.tokens[sent:], second.agent.tokens)
					if before, again := tokens[string(body)]; again && before != all[i][0] {
						t.Errorf("it ended at write %d: the same call came with two tokens", left)
					}
					tokens[string(body)] = all[i][0]
				}
				if len(tokens) != 2 {
					t.Errorf("it ended at write %d (%t): the agent got %d different calls, expected two: %q", left, arrives, len(tokens), slices.Collect(maps.Keys(tokens)))
				}
			})
		}
		if ends == 0 {
			if left < 5 {
				t.Errorf("a rollback has %d writes", left)
			}
			return
		}
	}
}

// TestCheckpoint_InTheBody: a caller that wants its evidence in the body finds the checkpoint there, which says whether the call can be undone.
func TestCheckpoint_InTheBody(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{}).opened(t)
	b.Apply(gateway.Settings{ECTInBody: map[ect.Identity]bool{b.caller.ID: true}})
	call := b.call(`{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"send_mail","input":{"to":"Ada"}}}]}}}`)
	call.Parent = string(b.last)
	answer, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(answer.Evidence, func(compact string) bool { return claims(t, compact).Act == ect.ActCheckpoint })
	if at < 0 || !strings.Contains(string(answer.Wire().Body), answer.Evidence[at]) {
		t.Errorf("the answer is %s", answer.Wire().Body)
	}
}

// TestRollback_ContentIsOver: a step below whose checkpoint is over cannot be undone any more. A cascade says so, and leaves it to a human, instead of
// passing it over.
func TestRollback_ContentIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBookings(t, gateway.Settings{CheckpointTTL: time.Hour})
		b.clock = time.Now
		b.opened(t)
		first := b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.Apply(gateway.Settings{CheckpointTTL: time.Minute})
		b.does(t, "rename_guest", `{"id":"b1","guest":"Grace"}`)
		time.Sleep(10 * time.Minute)
		b.setNow(time.Now())
		result := b.undoes(t, first.ID, true)
		if statusOf(result) != "partial" || string(result.Ext[ect.ExtCascaded]) != `[{"agent":"calculator","status":"escalated"}]` || len(b.hotel.booked) != 0 {
			t.Errorf("the result is %s with %s, booked %v", statusOf(result), result.Ext[ect.ExtCascaded], b.hotel.booked)
		}
		if level := b.Parts().Levels.Of(b.wid); level.Mode != hitl.Paused {
			t.Errorf("the workflow is %s", level.Mode)
		}
	})
}

// TestCheckpoint_RefusedIsNotSent: a call whose checkpoint is refused does not leave, and its caller is told when to try again; a call that needs no
// checkpoint goes on.
func TestCheckpoint_RefusedIsNotSent(t *testing.T) {
	t.Parallel()
	b := newBookings(t, gateway.Settings{}).opened(t)
	start := b.last
	for range checkpoint.Burst {
		b.last = start
		b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.setNow(b.now().Add(10 * time.Millisecond)) // within the limit of calls
	}
	b.last = start
	call := b.call(`{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"create_booking","input":{"guest":"Ada"}}}]}}}`)
	call.Parent = string(start)
	refused := 0
	for range 50 {
		if _, err := b.Exchange(t.Context(), call); err != nil {
			if p := problem.From(err); p.Status != http.StatusTooManyRequests || p.RetryAfter <= 0 {
				t.Fatalf("got %v", err)
			}
			refused++
		}
	}
	if booked := b.hotel.count("create_booking"); refused < 25 || booked != checkpoint.Burst+50-refused {
		t.Errorf("%d refused, the agent got %d calls", refused, booked)
	}
	b.does(t, "get_booking", `{"id":"b1"}`)
}

// TestRollback_TokensAreOver: where tokens of the workflow are not on record any more, what depends on a checkpoint is not known, so nothing is undone.
func TestRollback_TokensAreOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBookings(t, gateway.Settings{CheckpointTTL: 30 * 24 * time.Hour})
		b.clock = time.Now
		b.opened(t)
		made := b.does(t, "create_booking", `{"guest":"Ada"}`)
		b.does(t, "send_mail", `{"to":"Ada"}`)
		time.Sleep(20 * 24 * time.Hour)
		var over *pure.ForgottenError
		if _, err := b.Parts().Rollbacks.Begin(t.Context(), undo.Command{From: made.ID, Cascade: true}); !errors.As(err, &over) || b.hotel.count("cancel_booking") != 0 {
			t.Errorf("got %v", err)
		}
		if tokens := b.tokensOf(t, b.wid); !slices.ContainsFunc(tokens, func(c ect.Claims) bool { return c.ID == made.ID }) {
			t.Errorf("the checkpoint is not on record any more: %v", acts(tokens))
		}
	})
}
