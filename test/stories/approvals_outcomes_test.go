package stories

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/policy/hitl"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestApprovals_OfEveryCaller: callers of every protocol learn in their own words that a human decides about their
// call, and how that ends. What was approved is sent once; all else is never sent.
func TestApprovals_OfEveryCaller(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewApprovalGateway(t, gatewaytest.GatedAgents())
	number, late := int64(1000), map[string]func(*testing.T){}
	for name, c := range gatewaytest.ApprovalCallers() {
		number += 10
		late[name] = expires(t, b, c, number)
	}
	for name, c := range gatewaytest.ApprovalCallers() {
		for outcome, play := range map[string]func(*testing.T, *gatewaytest.Fixture, gatewaytest.ApprovalCaller, int64){"approved": goesOn, "denied": isDenied, "canceled": isCanceled} {
			number += 10
			t.Run(name+" "+outcome, func(t *testing.T) { play(t, b, c, number) })
		}
	}
	for name, expired := range late {
		t.Run(name+" expired", expired)
	}
}

func goesOn(t *testing.T, b *gatewaytest.Fixture, c gatewaytest.ApprovalCaller, n int64) {
	t.Helper()
	id, task := c.Waits(t, b, c.Agent, n)
	b.Approves(t, id)
	c.Succeeds(t, b, task, n)
	b.Released(t, id, n)
}

func isDenied(t *testing.T, b *gatewaytest.Fixture, c gatewaytest.ApprovalCaller, n int64) {
	t.Helper()
	id, task := c.Waits(t, b, c.Agent, n)
	if got := b.Decides(t, "approver", id, "deny"); got.Status != http.StatusOK {
		t.Fatalf("denying: %d %s", got.Status, got.Body)
	}
	answer := c.Later(t, b, c.Agent, task, n)
	if c.Ask == nil {
		c.Refusal(t, answer, "refused", "denied")
	}
	if !strings.Contains(answer, c.Words.Rejected) || !strings.Contains(answer, "denied") || !strings.Contains(answer, "not today") {
		t.Errorf("denied, it is told %q", answer)
	}
	b.Unsent(t, id, n, hitl.Denied)
}

// isCanceled cancels a call that waits, where the protocol can.
func isCanceled(t *testing.T, b *gatewaytest.Fixture, c gatewaytest.ApprovalCaller, n int64) {
	t.Helper()
	if c.Cancel == nil {
		return
	}
	id, task := c.Waits(t, b, c.Agent, n)
	if answer := c.Cancel(t, b, c.Agent, task) + c.Ask(t, b, c.Agent, task); !strings.Contains(answer, c.Words.Canceled) {
		t.Errorf("canceled, it is told %q", answer)
	}
	if got := b.Decides(t, "approver", id, "approve"); got.Status != http.StatusConflict {
		t.Errorf("approving what was canceled: %d %s", got.Status, got.Body)
	}
	b.Unsent(t, id, n, hitl.Canceled)
}

// expires makes a call about which no human decides, and gives what has to be so once its time is over.
func expires(t *testing.T, b *gatewaytest.Fixture, c gatewaytest.ApprovalCaller, n int64) func(*testing.T) {
	t.Helper()
	agent := "brief-" + c.Agent
	id, task := c.Waits(t, b, agent, n)
	return func(t *testing.T) {
		t.Helper()
		gatewaytest.Within(t, gatewaytest.Patience, "it expires", func() bool { return b.Approval(t, id).State == hitl.Expired })
		if c.Ask == nil {
			if again, _ := c.Waits(t, b, agent, n); again == id {
				t.Errorf("expired, it has the same approval")
			}
		} else if answer := c.Later(t, b, agent, task, n); !strings.Contains(answer, c.Words.Rejected) || !strings.Contains(answer, "no human decided in time") {
			t.Errorf("expired, it is told %q", answer)
		}
		b.Unsent(t, id, n, hitl.Expired)
	}
}

// TestApprovals_AtAnotherReplica: a caller that was cut off learns at another replica what became of its call. It was
// sent once, by whichever replica.
func TestApprovals_AtAnotherReplica(t *testing.T) {
	t.Parallel()
	p := gatewaytest.GatedAgents()
	p.Config.State = gatewaytest.NewRedis(t).State()
	first := gatewaytest.NewApprovalGateway(t, p)
	p.Config.Agents = first.Settings().Agents
	nodes := gatewaytest.NewSLIMNet(t, &p)
	second := first.Besides(t, "gateway", p)
	second.Slim, second.Tools, second.Talker = nodes, first.Tools, first.Talker
	for _, b := range []*gatewaytest.Fixture{first, second} {
		gatewaytest.Within(t, gatewaytest.Patience, "tokens are taken", func() bool {
			return b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: gatewaytest.AddBody(1)})).Status == http.StatusOK
		})
	}
	number := int64(5000)
	for name, c := range gatewaytest.ApprovalCallers() {
		number += 10
		t.Run(name, func(t *testing.T) {
			id, task := c.Waits(t, first, c.Agent, number)
			first.Client.CloseIdleConnections()
			second.Approves(t, id)
			c.Succeeds(t, second, task, number)
			second.Released(t, id, number)
		})
	}
}

// TestApprovals_SubscribersOfAWaitingTask: a caller that subscribes to a task which waits for an approval is told of
// its end in the stream.
func TestApprovals_SubscribersOfAWaitingTask(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.GatedAgents())
	c := gatewaytest.ApprovalCallers()["A2A 1.0 stream"]
	for n, decision := range map[int64]string{1000: "approve", 2000: "deny"} {
		id, task := c.Waits(t, b, c.Agent, n)
		l := gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.JSONRPC("SubscribeToTask", `{"id":"`+task+`"}`), Header: map[string]string{"A2A-Version": "1.0"}}
		response, err := b.Client.Do(b.Request(t, l))
		gatewaytest.Must(t, err)
		lines := bufio.NewScanner(response.Body)
		if lines.Scan(); !strings.Contains(lines.Text(), c.Words.Waits) || !strings.Contains(lines.Text(), id) {
			t.Errorf("the stream begins with %s", lines.Text())
		}
		if got := b.Decides(t, "approver", id, decision); got.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", decision, got.Status, got.Body)
		}
		var rest strings.Builder
		for lines.Scan() {
			rest.WriteString(lines.Text())
		}
		gatewaytest.Must(t, response.Body.Close())
		end := map[string]string{"approve": "TASK_STATE_COMPLETED", "deny": c.Words.Rejected}[decision]
		if !strings.Contains(rest.String(), end) || decision == "approve" && !strings.Contains(rest.String(), c.Result(n)) {
			t.Errorf("%s: the stream goes on with %s", decision, rest.String())
		}
	}
}
