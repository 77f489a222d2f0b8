package gatewaytest

import (
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

// GatedAgents are agents whose calls humans approve, in fifteen minutes or, where the name begins with brief, in one
// second, and the operators that do.
func GatedAgents() Plan {
	operators := map[string]config.Operator{}
	for name, role := range map[string]string{"approver": "approver", "second": "approver", "auditor": "auditor", "viewer": "viewer", "operator": "operator"} {
		operators["the "+name] = config.Operator{ID: "spiffe://" + TrustDomain + "/staff/" + name, Roles: []string{role}}
	}
	return Plan{Config: config.Config{
		Admin: config.Admin{Operators: operators}, Limits: ManyRequests(),
		Policy: config.Policy{Approvals: []config.Approval{
			{ID: "calls", Agent: "calculator"}, {ID: "talks", Agent: "concierge"}, {ID: "brief", Agent: "brief-*", Wait: config.Duration(time.Second)},
		}},
	}}
}

// NewApprovalGateway is a gateway of such agents, on a node of SLIM.
func NewApprovalGateway(t *testing.T, p Plan) *Fixture {
	t.Helper()
	net := NewSLIMNet(t, &p)
	b := NewFixture(t, p)
	b.Slim = net
	for _, name := range []string{"calculator", "concierge"} {
		agent, ok := b.Directory().Find(name)
		if !ok {
			t.Fatal(name)
		}
		agent.Name = "brief-" + name
		Must(t, b.Directory().Put(agent))
	}
	return b
}

// Approval is an approval as the admin API has it.
func (b *Fixture) Approval(t *testing.T, id string) (a approvals.Full) {
	t.Helper()
	got := b.Send(t, HTTPRequest{Via: b.As(t, "/staff/approver"), Method: http.MethodGet, Media: "-", At: b.At.Admin + "/api/approvals/" + id})
	if got.Status != http.StatusOK || json.Unmarshal(got.Body, &a) != nil {
		t.Fatalf("the approval %s: %d %s", id, got.Status, got.Body)
	}
	return a
}

// Decides has an operator decide about an approval as it is shown now.
func (b *Fixture) Decides(t *testing.T, who, id, decision string) Reply {
	t.Helper()
	return b.Send(t, HTTPRequest{
		Via: b.As(t, "/staff/"+who), At: b.At.Admin + "/api/approvals/" + id + "/decision",
		Body: `{"decision":"` + decision + `","shown":"` + b.Approval(t, id).Shown + `","reason":"not today"}`,
	})
}

// Approves has the approver approve.
func (b *Fixture) Approves(t *testing.T, id string) {
	t.Helper()
	if got := b.Decides(t, "approver", id, "approve"); got.Status != http.StatusOK {
		t.Fatalf("approving: %d %s", got.Status, got.Body)
	}
}

// CallsOf are the messages to the agents of a gateway that call with a number.
func (b *Fixture) CallsOf(n int64) (found [][]byte) {
	number, text := `"a":`+strconv.FormatInt(n, 10), spoken(n)
	for _, received := range [][]peers.Received{b.Tools.Received(), b.Talker.Received()} {
		for _, r := range received {
			if body := string(r.Body); strings.Contains(body, number) || strings.Contains(body, text) {
				found = append(found, r.Body)
			}
		}
	}
	return found
}

// claimsIn are the claims of the tokens in a workflow.
func (b *Fixture) claimsIn(t *testing.T, wid string) (out []ect.Claims) {
	t.Helper()
	got := b.Send(t, HTTPRequest{Via: b.As(t, "/staff/auditor"), Method: http.MethodGet, Media: "-", At: "/workflows/" + wid})
	var page struct {
		ECTs []string `json:"ects"`
	}
	if got.Status != http.StatusOK || json.Unmarshal(got.Body, &page) != nil {
		t.Fatalf("the workflow %s: %d %s", wid, got.Status, got.Body)
	}
	for _, compact := range page.ECTs {
		v, err := b.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		Must(t, err)
		out = append(out, v.Claims())
	}
	return out
}

// Released demands that an approval let one call through, of which the evidence says so.
func (b *Fixture) Released(t *testing.T, id string, n int64) {
	t.Helper()
	calls, a := b.CallsOf(n), b.Approval(t, id)
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

// Unsent demands that nothing was sent, and that an approval is in a state.
func (b *Fixture) Unsent(t *testing.T, id string, n int64, state hitl.State) {
	t.Helper()
	if a, calls := b.Approval(t, id), b.CallsOf(n); a.State != state || len(calls) != 0 {
		t.Errorf("the approval is %s, expected %s; the call was sent %d times", a.State, state, len(calls))
	}
}

// Waits makes a call that has to wait, and gives its approval and, where its caller is told by one, its task.
func (c ApprovalCaller) Waits(t *testing.T, b *Fixture, agent string, n int64) (id, task string) {
	t.Helper()
	answer := c.call(t, b, agent, n)
	found := ApprovalPath.FindStringSubmatch(answer)
	if found == nil || !strings.Contains(answer, c.Words.Waits) || !strings.Contains(answer, c.Words.refused) {
		t.Fatalf("the call is answered with %q", answer)
	}
	if c.Ask == nil {
		c.Refusal(t, answer, "required", "pending")
		return found[1], ""
	}
	return found[1], taskNamed(t, answer)
}

// Refusal demands a refusal in the caller's own words, which says how its approval stands. A protocol without room
// for data says so in its text.
func (c ApprovalCaller) Refusal(t *testing.T, answer, code, state string) {
	t.Helper()
	if c.Words.bare {
		if len(ApprovalPath.FindAllString(answer, -1)) != map[string]int{"required": 1}[code] || !strings.Contains(answer, "approv") {
			t.Errorf("refused, it is told %q", answer)
		}
		return
	}
	for _, part := range []string{`"code":"approval_` + code + `"`, `"approval_state":"` + state + `"`, `"approval":"/hitl/approvals/`, c.Words.refused} {
		if !strings.Contains(answer, part) {
			t.Errorf("%s is not in %q", part, answer)
		}
	}
}

// Later is what a caller is told once its approval is no longer waited for: about its task, or of the same call.
func (c ApprovalCaller) Later(t *testing.T, b *Fixture, agent, task string, n int64) (answer string) {
	t.Helper()
	if c.Ask == nil {
		return c.call(t, b, agent, n)
	}
	Within(t, Patience, "the task goes on", func() bool {
		answer = c.Ask(t, b, agent, task)
		return !strings.Contains(answer, c.Words.Waits) && !strings.Contains(answer, "_WORKING") && !strings.Contains(answer, `"working"`)
	})
	return answer
}

// Result is what a call of a number comes to.
func (c ApprovalCaller) Result(n int64) string {
	if c.Agent == "calculator" {
		return strconv.FormatInt(n+1, 10)
	}
	return "You said: " + spoken(n)
}

// Succeeds demands the result of a call that was approved.
func (c ApprovalCaller) Succeeds(t *testing.T, b *Fixture, task string, n int64) {
	t.Helper()
	answer := c.Later(t, b, c.Agent, task, n)
	if c.Ask != nil {
		Within(t, Patience, "the task has its result", func() bool {
			answer = c.Ask(t, b, c.Agent, task)
			return strings.Contains(answer, c.Result(n))
		})
	}
	if !strings.Contains(answer, c.Result(n)) {
		t.Errorf("approved, it is answered with %q", answer)
	}
}
