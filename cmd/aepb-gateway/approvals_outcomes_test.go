package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi/approvals"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// gatedAgents are agents whose calls humans approve, in fifteen minutes or, where the name begins with brief, in one
// second, and the operators that do.
func gatedAgents() plan {
	operators := map[string]config.Operator{}
	for name, role := range map[string]string{"approver": "approver", "second": "approver", "auditor": "auditor", "viewer": "viewer", "operator": "operator"} {
		operators["the "+name] = config.Operator{ID: "spiffe://" + devTrustDomain + "/staff/" + name, Roles: []string{role}}
	}
	return plan{config: config.Config{
		Admin: config.Admin{Operators: operators}, Limits: manyRequests(),
		Policy: config.Policy{Approvals: []config.Approval{
			{ID: "calls", Agent: "calculator"}, {ID: "talks", Agent: "concierge"}, {ID: "brief", Agent: "brief-*", Wait: config.Duration(time.Second)},
		}},
	}}
}

// newApprovalGateway is a gateway of such agents, on a node of SLIM.
func newApprovalGateway(t *testing.T, p plan) *bed {
	t.Helper()
	net := newSLIMNet(t, &p)
	b := newBed(t, p)
	b.slim = net
	for _, name := range []string{"calculator", "concierge"} {
		agent, ok := b.directory.Find(name)
		if !ok {
			t.Fatal(name)
		}
		agent.Name = "brief-" + name
		must(t, b.directory.Put(agent))
	}
	return b
}

// approval is an approval as the admin API has it.
func (b *bed) approval(t *testing.T, id string) (a approvals.Full) {
	t.Helper()
	got := b.send(t, letter{via: b.as(t, "/staff/approver"), method: http.MethodGet, media: "-", at: b.at.Admin + "/api/approvals/" + id})
	if got.status != http.StatusOK || json.Unmarshal(got.body, &a) != nil {
		t.Fatalf("the approval %s: %d %s", id, got.status, got.body)
	}
	return a
}

// decides has an operator decide about an approval as it is shown now.
func (b *bed) decides(t *testing.T, who, id, decision string) reply {
	t.Helper()
	return b.send(t, letter{
		via: b.as(t, "/staff/"+who), at: b.at.Admin + "/api/approvals/" + id + "/decision",
		body: `{"decision":"` + decision + `","shown":"` + b.approval(t, id).Shown + `","reason":"not today"}`,
	})
}

// approves has the approver approve.
func (b *bed) approves(t *testing.T, id string) {
	t.Helper()
	if got := b.decides(t, "approver", id, "approve"); got.status != http.StatusOK {
		t.Fatalf("approving: %d %s", got.status, got.body)
	}
}

// callsOf are the messages to the agents of a gateway that call with a number.
func (b *bed) callsOf(n int64) (found [][]byte) {
	number, text := `"a":`+strconv.FormatInt(n, 10), spoken(n)
	for _, received := range [][]peers.Received{b.tools.Received(), b.talker.Received()} {
		for _, r := range received {
			if body := string(r.Body); strings.Contains(body, number) || strings.Contains(body, text) {
				found = append(found, r.Body)
			}
		}
	}
	return found
}

// claimsIn are the claims of the tokens in a workflow.
func (b *bed) claimsIn(t *testing.T, wid string) (out []ect.Claims) {
	t.Helper()
	got := b.send(t, letter{via: b.as(t, "/staff/auditor"), method: http.MethodGet, media: "-", at: "/workflows/" + wid})
	var page struct {
		ECTs []string `json:"ects"`
	}
	if got.status != http.StatusOK || json.Unmarshal(got.body, &page) != nil {
		t.Fatalf("the workflow %s: %d %s", wid, got.status, got.body)
	}
	for _, compact := range page.ECTs {
		v, err := b.judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		must(t, err)
		out = append(out, v.Claims())
	}
	return out
}

// released demands that an approval let one call through, of which the evidence says so.
func (b *bed) released(t *testing.T, id string, n int64) {
	t.Helper()
	calls, a := b.callsOf(n), b.approval(t, id)
	if len(calls) != 1 || a.State != hitl.Consumed || len(a.Decisions) != 1 {
		t.Errorf("approved once, it was sent %d times, and its approval is %s with %d decisions", len(calls), a.State, len(a.Decisions))
		return
	}
	claims := b.claimsIn(t, a.Workflow)
	after := []ect.ID{a.Decisions[0].Token} // and the intent of a message that was sent again without a token
	var behind []ect.Claims
	for _, c := range claims {
		if c.Act == ect.ActIntent && slices.Contains(c.Parents, after[0]) {
			after = append(after, c.ID)
		}
		if c.ID == after[0] && (c.Act != ect.ActApprovalGranted || !slices.Equal(c.Parents, []ect.ID{a.Gated}) || c.InputHash != a.Call.Input) {
			t.Errorf("the decision is %+v", c)
		}
	}
	for _, c := range claims {
		if c.Act == ect.ActTranslate && slices.ContainsFunc(c.Parents, func(id ect.ID) bool { return slices.Contains(after, id) }) {
			behind = append(behind, c)
		}
	}
	if len(behind) != 1 || behind[0].OutputHash != ect.Hash(calls[0]) {
		t.Errorf("%d requests are behind the decision, expected the one that was sent", len(behind))
	}
}

// unsent demands that nothing was sent, and that an approval is in a state.
func (b *bed) unsent(t *testing.T, id string, n int64, state hitl.State) {
	t.Helper()
	if a, calls := b.approval(t, id), b.callsOf(n); a.State != state || len(calls) != 0 {
		t.Errorf("the approval is %s, expected %s; the call was sent %d times", a.State, state, len(calls))
	}
}

// waits makes a call that has to wait, and gives its approval and, where its caller is told by one, its task.
func (c approvalCaller) waits(t *testing.T, b *bed, agent string, n int64) (id, task string) {
	t.Helper()
	answer := c.call(t, b, agent, n)
	found := approvalPath.FindStringSubmatch(answer)
	if found == nil || !strings.Contains(answer, c.words.waits) || !strings.Contains(answer, c.words.refused) {
		t.Fatalf("the call is answered with %q", answer)
	}
	if c.ask == nil {
		c.refusal(t, answer, "required", "pending")
		return found[1], ""
	}
	return found[1], taskNamed(t, answer)
}

// refusal demands a refusal in the caller's own words, which says how its approval stands. A protocol without room
// for data says so in its text.
func (c approvalCaller) refusal(t *testing.T, answer, code, state string) {
	t.Helper()
	if c.words.bare {
		if len(approvalPath.FindAllString(answer, -1)) != map[string]int{"required": 1}[code] || !strings.Contains(answer, "approv") {
			t.Errorf("refused, it is told %q", answer)
		}
		return
	}
	for _, part := range []string{`"code":"approval_` + code + `"`, `"approval_state":"` + state + `"`, `"approval":"/hitl/approvals/`, c.words.refused} {
		if !strings.Contains(answer, part) {
			t.Errorf("%s is not in %q", part, answer)
		}
	}
}

// later is what a caller is told once its approval is no longer waited for: about its task, or of the same call.
func (c approvalCaller) later(t *testing.T, b *bed, agent, task string, n int64) (answer string) {
	t.Helper()
	if c.ask == nil {
		return c.call(t, b, agent, n)
	}
	within(t, patience, "the task goes on", func() bool {
		answer = c.ask(t, b, agent, task)
		return !strings.Contains(answer, c.words.waits) && !strings.Contains(answer, "_WORKING") && !strings.Contains(answer, `"working"`)
	})
	return answer
}

// result is what a call of a number comes to.
func (c approvalCaller) result(n int64) string {
	if c.agent == "calculator" {
		return strconv.FormatInt(n+1, 10)
	}
	return "You said: " + spoken(n)
}

// TestApprovals_OfEveryCaller: callers of every protocol learn in their own words that a human decides about their
// call, and how that ends. What was approved is sent once; all else is never sent.
func TestApprovals_OfEveryCaller(t *testing.T) {
	t.Parallel()
	b := newApprovalGateway(t, gatedAgents())
	number, late := int64(1000), map[string]func(*testing.T){}
	for name, c := range approvalCallers() {
		number += 10
		late[name] = b.expires(t, c, number)
	}
	for name, c := range approvalCallers() {
		for outcome, play := range map[string]func(*bed, *testing.T, approvalCaller, int64){"approved": (*bed).goesOn, "denied": (*bed).isDenied, "canceled": (*bed).isCanceled} {
			number += 10
			t.Run(name+" "+outcome, func(t *testing.T) { play(b, t, c, number) })
		}
	}
	for name, expired := range late {
		t.Run(name+" expired", expired)
	}
}

func (b *bed) goesOn(t *testing.T, c approvalCaller, n int64) {
	t.Helper()
	id, task := c.waits(t, b, c.agent, n)
	b.approves(t, id)
	c.succeeds(t, b, task, n)
	b.released(t, id, n)
}

// succeeds demands the result of a call that was approved.
func (c approvalCaller) succeeds(t *testing.T, b *bed, task string, n int64) {
	t.Helper()
	answer := c.later(t, b, c.agent, task, n)
	if c.ask != nil {
		within(t, patience, "the task has its result", func() bool {
			answer = c.ask(t, b, c.agent, task)
			return strings.Contains(answer, c.result(n))
		})
	}
	if !strings.Contains(answer, c.result(n)) {
		t.Errorf("approved, it is answered with %q", answer)
	}
}

func (b *bed) isDenied(t *testing.T, c approvalCaller, n int64) {
	t.Helper()
	id, task := c.waits(t, b, c.agent, n)
	if got := b.decides(t, "approver", id, "deny"); got.status != http.StatusOK {
		t.Fatalf("denying: %d %s", got.status, got.body)
	}
	answer := c.later(t, b, c.agent, task, n)
	if c.ask == nil {
		c.refusal(t, answer, "refused", "denied")
	}
	if !strings.Contains(answer, c.words.rejected) || !strings.Contains(answer, "denied") || !strings.Contains(answer, "not today") {
		t.Errorf("denied, it is told %q", answer)
	}
	b.unsent(t, id, n, hitl.Denied)
}

// isCanceled cancels a call that waits, where the protocol can.
func (b *bed) isCanceled(t *testing.T, c approvalCaller, n int64) {
	t.Helper()
	if c.cancel == nil {
		return
	}
	id, task := c.waits(t, b, c.agent, n)
	if answer := c.cancel(t, b, c.agent, task) + c.ask(t, b, c.agent, task); !strings.Contains(answer, c.words.canceled) {
		t.Errorf("canceled, it is told %q", answer)
	}
	if got := b.decides(t, "approver", id, "approve"); got.status != http.StatusConflict {
		t.Errorf("approving what was canceled: %d %s", got.status, got.body)
	}
	b.unsent(t, id, n, hitl.Canceled)
}

// expires makes a call about which no human decides, and gives what has to be so once its time is over.
func (b *bed) expires(t *testing.T, c approvalCaller, n int64) func(*testing.T) {
	t.Helper()
	agent := "brief-" + c.agent
	id, task := c.waits(t, b, agent, n)
	return func(t *testing.T) {
		t.Helper()
		within(t, patience, "it expires", func() bool { return b.approval(t, id).State == hitl.Expired })
		if c.ask == nil {
			if again, _ := c.waits(t, b, agent, n); again == id {
				t.Errorf("expired, it has the same approval")
			}
		} else if answer := c.later(t, b, agent, task, n); !strings.Contains(answer, c.words.rejected) || !strings.Contains(answer, "no human decided in time") {
			t.Errorf("expired, it is told %q", answer)
		}
		b.unsent(t, id, n, hitl.Expired)
	}
}

// TestApprovals_AtAnotherReplica: a caller that was cut off learns at another replica what became of its call. It was
// sent once, by whichever replica.
func TestApprovals_AtAnotherReplica(t *testing.T) {
	t.Parallel()
	p := gatedAgents()
	p.config.State = newRedis(t).state()
	first := newApprovalGateway(t, p)
	p.config.Agents = first.settings.config.Agents
	nodes := newSLIMNet(t, &p)
	second := first.besides(t, "gateway", p)
	second.slim, second.tools, second.talker = nodes, first.tools, first.talker
	for _, b := range []*bed{first, second} {
		within(t, patience, "tokens are taken", func() bool {
			return b.send(t, b.sealed(t, letter{at: toMembers, body: addBody(1)})).status == http.StatusOK
		})
	}
	number := int64(5000)
	for name, c := range approvalCallers() {
		number += 10
		t.Run(name, func(t *testing.T) {
			id, task := c.waits(t, first, c.agent, number)
			first.client.CloseIdleConnections()
			second.approves(t, id)
			c.succeeds(t, second, task, number)
			second.released(t, id, number)
		})
	}
}

// TestApprovals_SubscribersOfAWaitingTask: a caller that subscribes to a task which waits for an approval is told of
// its end in the stream.
func TestApprovals_SubscribersOfAWaitingTask(t *testing.T) {
	t.Parallel()
	b := newBed(t, gatedAgents())
	c := approvalCallers()["A2A 1.0 stream"]
	for n, decision := range map[int64]string{1000: "approve", 2000: "deny"} {
		id, task := c.waits(t, b, c.agent, n)
		l := letter{at: doorA2A, body: jsonRPC("SubscribeToTask", `{"id":"`+task+`"}`), header: map[string]string{"A2A-Version": "1.0"}}
		response, err := b.client.Do(b.request(t, l))
		must(t, err)
		lines := bufio.NewScanner(response.Body)
		if lines.Scan(); !strings.Contains(lines.Text(), c.words.waits) || !strings.Contains(lines.Text(), id) {
			t.Errorf("the stream begins with %s", lines.Text())
		}
		if got := b.decides(t, "approver", id, decision); got.status != http.StatusOK {
			t.Fatalf("%s: %d %s", decision, got.status, got.body)
		}
		var rest strings.Builder
		for lines.Scan() {
			rest.WriteString(lines.Text())
		}
		must(t, response.Body.Close())
		end := map[string]string{"approve": "TASK_STATE_COMPLETED", "deny": c.words.rejected}[decision]
		if !strings.Contains(rest.String(), end) || decision == "approve" && !strings.Contains(rest.String(), c.result(n)) {
			t.Errorf("%s: the stream goes on with %s", decision, rest.String())
		}
	}
}
