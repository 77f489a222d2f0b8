package attacks

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/policy/hitl"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// pending sends a call that has to wait, and gives its approval.
func pending(t *testing.T, b *gatewaytest.Fixture, l gatewaytest.HTTPRequest) (id string) {
	t.Helper()
	got := string(b.Send(t, l).Body)
	found := gatewaytest.ApprovalPath.FindStringSubmatch(got)
	if found == nil || !strings.Contains(got, `"approval_state":"pending"`) {
		t.Fatalf("the call is answered with %s", got)
	}
	return found[1]
}

// parked makes a call of A2A, of which a task waits.
func parked(t *testing.T, b *gatewaytest.Fixture, n int64) (id, task string) {
	t.Helper()
	return gatewaytest.ApprovalCallers()["A2A 1.0 JSON-RPC"].Waits(t, b, "calculator", n)
}

// TestAttack_ApprovalForAnotherCall: a caller that has an approval sends another call in place of the approved one:
// with other arguments, for another tool, to another agent, or in another writing, and another caller sends the
// same. None of these is sent on that approval, unless it says the same; in all one is.
func TestAttack_ApprovalForAnotherCall(t *testing.T) {
	t.Parallel()
	p := gatewaytest.GatedAgents()
	p.Config.Policy.Approvals = append(p.Config.Policy.Approvals, config.Approval{Agent: "members"})
	b := gatewaytest.NewFixture(t, p)
	const n = 1000
	good := gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":1}`)
	id := pending(t, b, good)
	b.Approves(t, id)
	other := good
	other.Via = b.As(t, "/mallory")
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"arguments":    gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":2}`),
		"one more":     gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":1,"c":1}`),
		"a duplicate":  gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":1,"b":3}`),
		"tool":         gatewaytest.ToolCall("calculator", "echo", `{"a":1000,"b":1}`),
		"agent":        gatewaytest.ToolCall("members", "add", `{"a":1000,"b":1}`),
		"caller":       other,
		"order":        gatewaytest.ToolCall("calculator", "add", `{"b":1,"a":1000}`),
		"a decimal":    gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":1.0}`),
		"an exponent":  gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":1e0}`),
		"escaped name": gatewaytest.ToolCall("calculator", "add", `{"\u0061":1000,"b":1}`),
	} {
		if got := b.Send(t, l); strings.Contains(string(got.Body), `"result"`) || len(b.CallsOf(n)) != 0 {
			t.Errorf("another call (%s) was sent: %d %s", name, got.Status, got.Body)
		}
	}
	b.Right(t, b.Send(t, good), `"sum":1001`)
	b.Released(t, id, n)
}

// TestAttack_ApprovalUsedTwice: a call that was approved once is sent many times at once, and its approver approves
// many times. The agent gets it once.
func TestAttack_ApprovalUsedTwice(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.GatedAgents())
	good := gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":1}`)
	id := pending(t, b, good)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() { b.Approves(t, id) })
	}
	group.Wait()
	for range 20 {
		group.Go(func() { b.Send(t, good) })
	}
	group.Wait()
	b.Released(t, id, 1000)
	if got := b.Decides(t, "approver", id, "deny"); got.Status != http.StatusConflict {
		t.Errorf("denied after it was sent: %d %s", got.Status, got.Body)
	}
	_, task := parked(t, b, 2000)
	found := gatewaytest.ApprovalPath.FindStringSubmatch(gatewaytest.ApprovalCallers()["A2A 1.0 JSON-RPC"].Ask(t, b, "calculator", task))
	for range 5 {
		group.Go(func() { b.Approves(t, found[1]) })
	}
	group.Wait()
	gatewaytest.ApprovalCallers()["A2A 1.0 JSON-RPC"].Succeeds(t, b, task, 2000)
	b.Released(t, found[1], 2000)
}

// TestAttack_ApprovalByOneInsteadOfTwo: one approver grants twice where two are demanded, on the admin listener and
// with a token, and a caller with the role grants its own call. Nothing is sent before two others have.
func TestAttack_ApprovalByOneInsteadOfTwo(t *testing.T) {
	t.Parallel()
	p := gatewaytest.GatedAgents()
	p.Config.Policy.Approvals[0].Approvers = 2
	third := config.Operator{ID: "spiffe://" + gatewaytest.TrustDomain + "/staff/third", Roles: []string{"approver"}}
	p.Config.Admin.Operators["the third"] = third
	b := gatewaytest.NewFixture(t, p)
	good := gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":1}`)
	good.Via = b.As(t, "/staff/third")
	id := pending(t, b, good)
	if got := b.Decides(t, "third", id, "approve"); got.Status != http.StatusForbidden {
		t.Errorf("it approves its own call: %d %s", got.Status, got.Body)
	}
	b.Approves(t, id)
	b.Approves(t, id)
	if again := pending(t, b, good); again != id {
		t.Errorf("it waits for the approval %s", again)
	}
	b.Unsent(t, id, 1000, hitl.Pending)
	if got := b.Decides(t, "second", id, "approve"); got.Status != http.StatusOK {
		t.Errorf("the second approver: %d %s", got.Status, got.Body)
	}
	b.Right(t, b.Send(t, good), `"sum":1001`)
}

// TestAttack_ApprovalAfterTheEnd: an approver grants what was denied, what is over, and what was sent.
func TestAttack_ApprovalAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewApprovalGateway(t, gatewaytest.GatedAgents())
	brief := gatewaytest.ToolCall("brief-calculator", "add", `{"a":3000,"b":1}`)
	late := pending(t, b, brief)
	denied, task := parked(t, b, 2000)
	if got := b.Decides(t, "approver", denied, "deny"); got.Status != http.StatusOK {
		t.Errorf("denying: %d %s", got.Status, got.Body)
	}
	gatewaytest.Within(t, gatewaytest.Patience, "it expires", func() bool { return b.Approval(t, late).State == hitl.Expired })
	for _, id := range []string{denied, late} {
		for _, who := range []string{"approver", "second"} {
			if got := b.Decides(t, who, id, "approve"); got.Status != http.StatusConflict {
				t.Errorf("granted after the end: %d %s", got.Status, got.Body)
			}
		}
	}
	b.Unsent(t, denied, 2000, hitl.Denied)
	b.Unsent(t, late, 3000, hitl.Expired)
	c := gatewaytest.ApprovalCallers()["A2A 1.0 JSON-RPC"]
	if answer := c.Later(t, b, "calculator", task, 2000); !strings.Contains(answer, c.Words.Rejected) {
		t.Errorf("the task is %s", answer)
	}
}

// decision is a request with an approver's own token about an approval.
func decision(t *testing.T, b *gatewaytest.Fixture, who, id string, edit func(*ect.Claims)) gatewaytest.HTTPRequest {
	t.Helper()
	a := b.Approval(t, id)
	svid := b.SVID(t, "/staff/"+who)
	claims := ect.Claims{
		Act: ect.ActApprovalGranted, Audience: []string{b.Self()}, Workflow: a.Workflow, Parents: []ect.ID{a.Gated}, InputHash: a.Call.Input,
	}
	edit(&claims)
	return gatewaytest.HTTPRequest{
		Via: b.Caller(t, svid), At: "/hitl/approvals/" + id + "/decision", Body: `{"shown":"` + a.Shown + `"}`,
		Tokens: []string{ecttest.Mint(t, b.Party(t, svid), ecttest.Recipe{Claims: claims})},
	}
}

// TestAttack_ApprovalOfAnotherWorkflow: the token of a decision about one call is brought for another one, whole or
// with some of its claims. The same token for its own call is taken.
func TestAttack_ApprovalOfAnotherWorkflow(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.GatedAgents())
	other := b.Approval(t, pending(t, b, gatewaytest.ToolCall("calculator", "add", `{"a":2000,"b":1}`)))
	good := gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":1}`)
	id := pending(t, b, good)
	for name, edit := range map[string]func(*ect.Claims){
		"all": func(c *ect.Claims) {
			c.Workflow, c.Parents, c.InputHash = other.Workflow, []ect.ID{other.Gated}, other.Call.Input
		},
		"workflow": func(c *ect.Claims) { c.Workflow = other.Workflow },
		"parent":   func(c *ect.Claims) { c.Parents = []ect.ID{other.Gated} },
		"both":     func(c *ect.Claims) { c.Parents = append(c.Parents, other.Gated) },
		"input":    func(c *ect.Claims) { c.InputHash = other.Call.Input },
	} {
		if got := b.Send(t, decision(t, b, "approver", id, edit)); got.Status != http.StatusForbidden {
			t.Errorf("a decision about another call (%s): %d %s", name, got.Status, got.Body)
		}
	}
	b.Unsent(t, id, 1000, hitl.Pending)
	if got := b.Send(t, decision(t, b, "approver", id, func(*ect.Claims) {})); got.Status != http.StatusOK {
		t.Errorf("a decision about this call: %d %s", got.Status, got.Body)
	}
	b.Right(t, b.Send(t, good), `"sum":1001`)
	b.Released(t, id, 1000)
}

// TestAttack_ApprovalWithoutARole: operators without the role, callers and strangers decide, on both listeners and
// with tokens of their own.
func TestAttack_ApprovalWithoutARole(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.GatedAgents())
	good := gatewaytest.ToolCall("calculator", "add", `{"a":1000,"b":1}`)
	id := pending(t, b, good)
	for _, who := range []string{"viewer", "operator", "auditor", "stranger"} {
		if got := b.Decides(t, who, id, "approve"); got.Status != http.StatusForbidden && got.Status != http.StatusUnauthorized {
			t.Errorf("%s grants: %d %s", who, got.Status, got.Body)
		}
		if got := b.Send(t, decision(t, b, who, id, func(*ect.Claims) {})); got.Status != http.StatusForbidden && got.Status != http.StatusNotFound {
			t.Errorf("%s grants with a token: %d %s", who, got.Status, got.Body)
		}
	}
	own := decision(t, b, "approver", id, func(*ect.Claims) {})
	own.Via = nil // the caller brings what the approver has signed
	if got := b.Send(t, own); got.Status != http.StatusForbidden {
		t.Errorf("the caller brings the decision: %d %s", got.Status, got.Body)
	}
	if again := pending(t, b, good); again != id {
		t.Errorf("it waits for the approval %s", again)
	}
	b.Unsent(t, id, 1000, hitl.Pending)
}

// TestAttack_ApprovalOfHostileText: arguments turn the text of the approver around, forge its lines, or are too long
// to be read. What can be seen is shown; what cannot be shown whole cannot be granted.
func TestAttack_ApprovalOfHostileText(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.GatedAgents())
	const forged = "x\u202e\u2066\x1b[2J\r\nagent: \u200bharmless\u2028\U000e0041\x00\u00ad"
	text, err := json.Marshal(map[string]string{"message": forged, "\u202emessage": forged})
	gatewaytest.Must(t, err)
	a := b.Approval(t, pending(t, b, gatewaytest.ToolCall("calculator", "echo", string(text))))
	if !a.Whole || strings.ContainsFunc(a.Text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !strings.Contains(a.Text, `\u{202E}`) {
		t.Errorf("shown whole: %v\n%q", a.Whole, a.Text)
	}
	if lines := strings.Count("\n"+a.Text, "\nagent: "); lines != 1 {
		t.Errorf("%d lines name an agent:\n%s", lines, a.Text)
	}
	long := pending(t, b, gatewaytest.ToolCall("calculator", "echo", `{"message":"`+strings.Repeat("x", 1<<20)+`"}`))
	if a := b.Approval(t, long); a.Whole || len(a.Text) > hitl.MaxShown {
		t.Errorf("shown whole: %v, %d bytes", a.Whole, len(a.Text))
	}
	if got := b.Decides(t, "approver", long, "approve"); got.Status != http.StatusForbidden {
		t.Errorf("granted unseen: %d %s", got.Status, got.Body)
	}
	if got := b.Decides(t, "approver", long, "deny"); got.Status != http.StatusOK {
		t.Errorf("denied: %d %s", got.Status, got.Body)
	}
}

// TestAttack_ApprovalsOfOneCallerFillAll: one caller makes calls that wait without end, in tasks and without. It has
// its share, and an approval of another caller goes on.
func TestAttack_ApprovalsOfOneCallerFillAll(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.GatedAgents())
	mallory := b.As(t, "/mallory")
	waiting := 0
	for n := range int64(150) {
		l := gatewaytest.HTTPRequest{Via: mallory, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(n), Header: map[string]string{"A2A-Version": "1.0"}}
		if n%2 == 0 {
			l = gatewaytest.ToolCall("calculator", "add", gatewaytest.AddArguments(n))
			l.Via = mallory
		}
		got := b.Send(t, l)
		switch text := string(got.Body); {
		case gatewaytest.ApprovalPath.MatchString(text):
			waiting++
		case !strings.Contains(text, "approvals that wait"):
			t.Fatalf("call %d is answered with %d %s", n, got.Status, text)
		}
	}
	if waiting != 100 {
		t.Errorf("%d calls of one caller wait, expected 100", waiting)
	}
	id, task := parked(t, b, 5000)
	b.Approves(t, id)
	gatewaytest.ApprovalCallers()["A2A 1.0 JSON-RPC"].Succeeds(t, b, task, 5000)
	b.Released(t, id, 5000)
}

// TestAttack_ApprovalUnderAnotherPolicy: policy changes while a call waits: the rule, the right of the caller, or
// the agent. What was granted under the former policy is not sent, in a task and without.
func TestAttack_ApprovalUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config.Config){
		"rule": func(c *config.Config) {
			c.Policy.Approvals = []config.Approval{{ID: "stricter", Agent: "calculator", Approvers: 2}}
		},
		"caller": func(c *config.Config) {
			agent := c.Agents["calculator"]
			agent.Callers = []string{"spiffe://" + gatewaytest.TrustDomain + "/somebody-else"}
			c.Agents["calculator"] = agent
		},
		"agent": func(c *config.Config) { delete(c.Agents, "calculator") },
	} {
		t.Run(name, func(t *testing.T) {
			b := gatewaytest.NewFixture(t, gatewaytest.GatedAgents())
			good := gatewaytest.ToolCall("calculator", "add", `{"a":2000,"b":1}`)
			again := pending(t, b, good)
			b.Approves(t, again)
			id, task := parked(t, b, 1000)
			next := b.Settings()
			next.Agents = maps.Clone(next.Agents)
			change(&next)
			gatewaytest.Must(t, b.Reload(t.Context(), next))
			b.Approves(t, id)
			gatewaytest.Within(t, gatewaytest.Patience, "the call is given up", func() bool { return b.Approval(t, id).State == hitl.Canceled })
			b.Unsent(t, id, 1000, hitl.Canceled)
			if got := b.Send(t, good); strings.Contains(string(got.Body), `"result"`) || len(b.CallsOf(2000)) != 0 {
				t.Errorf("sent again: %d %s", got.Status, got.Body)
			}
			if name != "rule" {
				return // its caller cannot ask about it
			}
			c := gatewaytest.ApprovalCallers()["A2A 1.0 JSON-RPC"]
			if answer := c.Later(t, b, "calculator", task, 1000); !strings.Contains(answer, c.Words.Rejected) || !strings.Contains(answer, "rules have changed") {
				t.Errorf("the task is %s", answer)
			}
		})
	}
}

// TestAttack_ApprovalOfATaskThatIsAnswered: messages to a task that waits for an approval change what is sent, or
// answer in place of the approver: over A2A and µACP.
func TestAttack_ApprovalOfATaskThatIsAnswered(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.GatedAgents())
	id, task := parked(t, b, 1000)
	for _, part := range []string{`{"text":"approved"}`, `{"data":{"skill":"add","input":{"a":2000,"b":1}}}`, `{"data":{"action":"accept"}}`} {
		got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Header: map[string]string{"A2A-Version": "1.0"}, Body: gatewaytest.JSONRPC("SendMessage",
			`{"message":{"messageId":"m2","taskId":"`+task+`","role":"ROLE_USER","parts":[`+part+`]}}`)})
		if !strings.Contains(string(got.Body), "a human decides about the call of this task") {
			t.Errorf("%s is answered with %s", part, got.Body)
		}
	}
	framed := string(b.AskUACP(t, "calculator", gatewaytest.UACPRequest(t, "invoke", task, gatewaytest.TextInvoke("approved"))))
	if !strings.Contains(framed, "a human decides about the call of this task") && !strings.Contains(framed, "no such task") {
		t.Errorf("over µACP it is answered with %q", framed)
	}
	b.Unsent(t, id, 1000, hitl.Pending)
	b.Approves(t, id)
	gatewaytest.ApprovalCallers()["A2A 1.0 JSON-RPC"].Succeeds(t, b, task, 1000)
	b.Released(t, id, 1000)
	if len(b.CallsOf(2000)) != 0 {
		t.Error("the agent has got what was said to the task")
	}
}

// TestAttack_ApprovalOfOthersIsRead: callers read an approval of another caller, and its task. Its own caller sees
// how it stands, and not the text.
func TestAttack_ApprovalOfOthersIsRead(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.GatedAgents())
	id, task := parked(t, b, 1000)
	read := gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: "/hitl/approvals/" + id}
	own := b.Send(t, read)
	if own.Status != http.StatusOK || !strings.Contains(string(own.Body), `"state":"pending"`) || strings.Contains(string(own.Body), strconv.Itoa(1000)) {
		t.Errorf("its caller reads %d %s", own.Status, own.Body)
	}
	for name, via := range map[string]*http.Client{"another": b.As(t, "/mallory"), "an agent": b.As(t, "/calculator"), "without a certificate": b.Anonymous, "a viewer": b.As(t, "/staff/viewer")} {
		l := read
		l.Via = via
		absent := l
		absent.At = "/hitl/approvals/0b39f2a1-6a0c-4a3e-9f0e-3c1a4f6f5d11"
		got, none := b.Send(t, l), b.Send(t, absent)
		if got.Status != none.Status || got.Status == http.StatusOK || strings.Contains(string(got.Body), "pending") {
			t.Errorf("%s reads %d %s, and %d of one that does not exist", name, got.Status, got.Body, none.Status)
		}
		about := b.Send(t, gatewaytest.HTTPRequest{Via: via, At: gatewaytest.EndpointA2A, Header: map[string]string{"A2A-Version": "1.0"}, Body: gatewaytest.JSONRPC("GetTask", `{"id":"`+task+`"}`)})
		if strings.Contains(string(about.Body), id) {
			t.Errorf("%s reads the task: %s", name, about.Body)
		}
	}
}
