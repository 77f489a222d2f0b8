package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// approvalRules are rules of the configuration.
func approvalRules(t testing.TB, rules ...hitl.Config) hitl.Rules {
	t.Helper()
	parsed, err := hitl.ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

var boss = hitl.Approver{ID: "spiffe://example.com/boss", Name: "boss"}

// gated is a bed whose tool add needs an approval.
func gated(t testing.TB, edits ...func(*gateway.Deps)) *fixture {
	t.Helper()
	return newFixture(t, gateway.Settings{Approvals: approvalRules(t, hitl.Config{Tool: "add"})}, policy.Rules{Open: true}, edits...)
}

// waiting is the one approval that is there in a state.
func (b *fixture) waiting(t testing.TB, state hitl.State) approval.View {
	t.Helper()
	page, err := b.Parts().Approvals.List(t.Context(), approval.Query{State: state})
	if err != nil || len(page.Approvals) != 1 {
		t.Fatalf("%d approvals are %s, expected one (%v)", len(page.Approvals), state, err)
	}
	view, err := b.Parts().Approvals.Show(t.Context(), page.Approvals[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

func (b *fixture) decide(t testing.TB, grant bool) hitl.Approval {
	t.Helper()
	view := b.waiting(t, hitl.Pending)
	a, err := b.Parts().Approvals.Decide(t.Context(), view.ID, approval.Decision{Grant: grant, Approver: boss, Roles: []string{"approver"}, Shown: view.Shown, Reason: "seen"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// a2aTask is the task of an A2A answer.
func a2aTask(t testing.TB, answer transport.Answer) (task struct {
	ID     string
	Status struct {
		State   string
		Message json.RawMessage
	}
	Artifacts json.RawMessage
},
) {
	t.Helper()
	var body struct{ Result json.RawMessage }
	if err := json.Unmarshal(answer.Wire().Body, &body); err != nil {
		t.Fatal(err)
	}
	var wrapped struct{ Task json.RawMessage }
	if json.Unmarshal(body.Result, &wrapped) == nil && len(wrapped.Task) > 0 {
		body.Result = wrapped.Task
	}
	if err := json.Unmarshal(body.Result, &task); err != nil {
		t.Fatalf("%v: %s", err, answer.Wire().Body)
	}
	return task
}

// TestApproval_OfATask: a call of a caller that knows tasks waits in one, goes to the agent once when it is
// granted, and has the decision among its parents.
func TestApproval_OfATask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, releaseOfATask)
}

func releaseOfATask(t *testing.T) {
	b := timed(t, hitl.Config{})
	answer, err := b.Exchange(t.Context(), b.call(addBody))
	if err != nil {
		t.Fatal(err)
	}
	task := a2aTask(t, answer)
	view := b.waiting(t, hitl.Pending)
	if task.Status.State != "TASK_STATE_AUTH_REQUIRED" || !bytes.Contains(task.Status.Message, []byte("/hitl/approvals/"+view.ID)) || len(b.agent.bodies) != 0 {
		t.Fatalf("the task is %s, %d calls were sent: %s", task.Status.State, len(b.agent.bodies), answer.Wire().Body)
	}
	if view.Call.Tool != "add" || view.Call.Caller != b.caller.ID || view.Task != task.ID || !view.Whole || !strings.Contains(view.Text, `"b": 2`) || ect.Hash([]byte(view.Text)) != view.Shown {
		t.Errorf("the approval is %+v:\n%s", view.Approval, view.Text)
	}
	a := b.decide(t, true)
	synctest.Wait()
	done, err := b.Exchange(t.Context(), b.call(`{"jsonrpc":"2.0","id":8,"method":"GetTask","params":{"id":"`+task.ID+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := a2aTask(t, done); got.Status.State != "TASK_STATE_COMPLETED" || !bytes.Contains(got.Artifacts, []byte(`"sum":3`)) || len(b.agent.bodies) != 1 {
		t.Errorf("released, the task is %+v, and %d calls were sent: %s", got.Status.State, len(b.agent.bodies), done.Wire().Body)
	}
	tokens := b.tokensOf(t, a.Origin.Workflow)
	at := func(act ect.Act) ect.Claims { return tokens[slices.Index(acts(tokens), act)] }
	intent, decision := at(ect.ActIntent), at(ect.ActApprovalGranted)
	if intent.ID != a.Origin.Gated || intent.InputHash != ect.Hash([]byte(addBody)) || decision.InputHash != intent.InputHash || !slices.Equal(decision.Parents, []ect.ID{intent.ID}) {
		t.Errorf("the intent is %+v, the decision %+v", intent, decision)
	}
	if who, _ := decision.Ext.String(ect.ExtApprover); who != string(boss.ID) {
		t.Errorf("the decision is of %s", who)
	}
	requests := slices.DeleteFunc(slices.Clone(tokens), func(c ect.Claims) bool {
		return c.Act != ect.ActTranslate || !slices.Equal(c.Parents, []ect.ID{intent.ID, decision.ID})
	})
	if len(requests) != 1 || requests[0].OutputHash != ect.Hash(b.agent.bodies[0]) || requests[0].InputHash != intent.InputHash {
		t.Errorf("the requests behind the decision are %+v", requests)
	}
	if used := b.waiting(t, hitl.Consumed); used.ID != view.ID {
		t.Errorf("consumed is %s", used.ID)
	}
	if waiting, _ := b.Parts().Approvals.Usage(); waiting != 0 {
		t.Errorf("%d approvals wait", waiting)
	}
}

// TestApproval_Denied: a denied call is never sent, and its task says so.
func TestApproval_Denied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := timed(t, hitl.Config{})
		id := b.park(t)
		b.decide(t, false)
		synctest.Wait()
		state, why := b.taskState(t, id)
		if state != "TASK_STATE_REJECTED" || !bytes.Contains(why, []byte("denied")) || !bytes.Contains(why, []byte("seen")) || len(b.agent.bodies) != 0 {
			t.Errorf("the task is %s (%s), %d calls were sent", state, why, len(b.agent.bodies))
		}
	})
}

// TestApproval_SentAgain: a caller that knows no tasks is refused until its call is granted; the same call then
// goes through once, under whatever number its message has, and another call does not.
func TestApproval_SentAgain(t *testing.T) {
	t.Parallel()
	b := gated(t)
	t.Cleanup(func() { _ = b.Close() })
	send := func(id, args string) (transport.Answer, error) {
		return b.Exchange(t.Context(), b.callTool(id, args))
	}
	refused := func(id, args, state string) string {
		t.Helper()
		_, err := send(id, args)
		waits, ok := errors.AsType[*problem.ApprovalError](err)
		if !ok || waits.State != state {
			t.Fatalf("%s is answered with %v, expected an approval that is %s", args, err, state)
		}
		return waits.ID
	}
	one := refused("1", `{"a":1,"b":2}`, "pending")
	if again := refused("2", `{"a":1,"b":2}`, "pending"); again != one {
		t.Errorf("the same call has two approvals: %s and %s", one, again)
	}
	b.decide(t, true)
	refused("3", `{"a":1,"b":3}`, "pending")
	if answer, err := send("4", `{"a":1,"b":2}`); err != nil || !bytes.Contains(answer.Wire().Body, []byte(`"sum":3`)) {
		t.Fatalf("the granted call: %v", err)
	}
	if third := refused("5", `{"a":1,"b":2}`, "pending"); third == one || len(b.agent.bodies) != 1 {
		t.Errorf("granted once, the call was sent %d times", len(b.agent.bodies))
	}
}

// callTool is a call of the tool add by a caller of MCP.
func (b *fixture) callTool(id, args string, tokens ...string) transport.Call {
	c := b.call(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"add","arguments":`+args+`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, tokens...)
	c.Wire.Binding, c.Wire.Version = "mcp-v1", "2026-07-28"
	return c
}

// TestApproval_SentAgainUnderOtherRules: a pending approval is void once the rules demand more, and a denial holds for
// its time whatever they say.
func TestApproval_SentAgainUnderOtherRules(t *testing.T) {
	t.Parallel()
	b := gated(t)
	advance := b.advance()
	t.Cleanup(func() { _ = b.Close() })
	id := func(state string) string {
		t.Helper()
		_, err := b.Exchange(t.Context(), b.callTool("1", `{"a":1,"b":2}`))
		waits, ok := errors.AsType[*problem.ApprovalError](err)
		if !ok || waits.State != state {
			t.Fatalf("got %v, expected an approval that is %s", err, state)
		}
		return waits.ID
	}
	first := id("pending")
	b.Apply(gateway.Settings{Approvals: approvalRules(t, hitl.Config{Tool: "add", Approvers: 2})})
	second := id("pending")
	if second == first {
		t.Error("the approval under the old rules still counts")
	}
	b.decide(t, false)
	b.Apply(gateway.Settings{Approvals: approvalRules(t, hitl.Config{Tool: "add"})})
	if again := id("denied"); again != second {
		t.Errorf("denied is %s, expected %s", again, second)
	}
	advance(16 * time.Minute)
	if third := id("pending"); third == second {
		t.Error("a denial holds for ever")
	}
}

// TestApproval_WaitingLeavesNoFailures: a caller that looks again and again whether its call is granted leaves nothing
// on record but the intent.
func TestApproval_WaitingLeavesNoFailures(t *testing.T) {
	t.Parallel()
	b := gated(t)
	t.Cleanup(func() { _ = b.Close() })
	for range 5 {
		if _, err := b.Exchange(t.Context(), b.callTool("1", `{"a":1,"b":2}`)); err == nil {
			t.Fatal("the call was sent")
		}
	}
	a := b.waiting(t, hitl.Pending)
	if got := acts(b.tokensOf(t, a.Origin.Workflow)); !slices.Equal(got, []ect.Act{ect.ActIntent}) {
		t.Errorf("the tokens are %v", got)
	}
}

// TestAttack_Approvals_OfOneCaller: a caller fills its own share of approvals, and another one is asked for all the same.
func TestAttack_Approvals_OfOneCaller(t *testing.T) {
	t.Parallel()
	b := gated(t)
	t.Cleanup(func() { _ = b.Close() })
	reserve := func(caller ect.Identity, id string) error {
		return b.Parts().Approvals.Reserve(t.Context(), id, "", hitl.Call{Caller: caller, Agent: "calculator"})
	}
	for i := range approval.OfOneCaller {
		if err := reserve(b.caller.ID, fmt.Sprint("a", i)); err != nil {
			t.Fatal(i, err)
		}
	}
	_, err := b.Exchange(t.Context(), b.callTool("1", `{"a":1,"b":2}`))
	if over, ok := errors.AsType[*quota.ExceededError](err); !ok || !over.Own {
		t.Errorf("one more: %v", err)
	}
	if err := reserve("spiffe://example.com/other", "b"); err != nil {
		t.Errorf("of another caller: %v", err)
	}
	if err := b.Parts().Approvals.Cancel(t.Context(), "a0", "not wanted"); err != nil {
		t.Error(err)
	}
}

// TestApprovals_ListOfThoseThatWait: those that wait are listed however many are over.
func TestApprovals_ListOfThoseThatWait(t *testing.T) {
	t.Parallel()
	b := gated(t)
	t.Cleanup(func() { _ = b.Close() })
	approvals := b.Parts().Approvals
	for i := range approval.MaxPage + 20 {
		call := hitl.Call{Caller: b.caller.ID, Agent: "calculator", Digest: fmt.Sprint(i)}
		a, err := approvals.Open(t.Context(), string(ect.NewID()), "", "", approval.Request{
			Call: call, Demand: hitl.Demand{Wait: time.Hour}, Sign: func(context.Context) (string, ect.ID, error) { return "w", "gated", nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if i%40 == 0 {
			continue
		}
		if err := approvals.Cancel(t.Context(), a.ID, "not wanted"); err != nil {
			t.Fatal(err)
		}
	}
	page, err := approvals.List(t.Context(), approval.Query{State: hitl.Pending})
	if err != nil || len(page.Approvals) != 3 || page.Next != "" {
		t.Errorf("%d approvals wait, and more behind %q, expected 3 (%v)", len(page.Approvals), page.Next, err)
	}
}
