package main

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
)

// toolCall is a call of a tool of an agent of MCP by a caller of MCP, who sends it again until it is approved.
func toolCall(agent, tool, arguments string) letter {
	return letter{at: "/agents/" + agent + "/mcp", body: modernCall(tool, arguments), header: mirror("tools/call", tool)}
}

// pending sends a call that has to wait, and gives its approval.
func (b *bed) pending(t *testing.T, l letter) (id string) {
	t.Helper()
	got := string(b.send(t, l).body)
	found := approvalPath.FindStringSubmatch(got)
	if found == nil || !strings.Contains(got, `"approval_state":"pending"`) {
		t.Fatalf("the call is answered with %s", got)
	}
	return found[1]
}

// parked makes a call of A2A, of which a task waits.
func (b *bed) parked(t *testing.T, n int64) (id, task string) {
	t.Helper()
	return approvalCallers()["A2A 1.0 JSON-RPC"].waits(t, b, "calculator", n)
}

// TestAttack_ApprovalForAnotherCall: a caller that has an approval sends another call in place of the approved one:
// with other arguments, for another tool, to another agent, or in another writing, and another caller sends the
// same. None of these is sent on that approval, unless it says the same; in all one is.
func TestAttack_ApprovalForAnotherCall(t *testing.T) {
	t.Parallel()
	p := gatedAgents()
	p.config.Policy.Approvals = append(p.config.Policy.Approvals, config.Approval{Agent: "members"})
	b := newBed(t, p)
	const n = 1000
	good := toolCall("calculator", "add", `{"a":1000,"b":1}`)
	id := b.pending(t, good)
	b.approves(t, id)
	other := good
	other.via = b.as(t, "/mallory")
	for name, l := range map[string]letter{
		"arguments":    toolCall("calculator", "add", `{"a":1000,"b":2}`),
		"one more":     toolCall("calculator", "add", `{"a":1000,"b":1,"c":1}`),
		"a duplicate":  toolCall("calculator", "add", `{"a":1000,"b":1,"b":3}`),
		"tool":         toolCall("calculator", "echo", `{"a":1000,"b":1}`),
		"agent":        toolCall("members", "add", `{"a":1000,"b":1}`),
		"caller":       other,
		"order":        toolCall("calculator", "add", `{"b":1,"a":1000}`),
		"a decimal":    toolCall("calculator", "add", `{"a":1000,"b":1.0}`),
		"an exponent":  toolCall("calculator", "add", `{"a":1000,"b":1e0}`),
		"escaped name": toolCall("calculator", "add", `{"\u0061":1000,"b":1}`),
	} {
		if got := b.send(t, l); strings.Contains(string(got.body), `"result"`) || len(b.callsOf(n)) != 0 {
			t.Errorf("another call (%s) was sent: %d %s", name, got.status, got.body)
		}
	}
	b.right(t, b.send(t, good), `"sum":1001`)
	b.released(t, id, n)
}

// TestAttack_ApprovalUsedTwice: a call that was approved once is sent many times at once, and its approver approves
// many times. The agent gets it once.
func TestAttack_ApprovalUsedTwice(t *testing.T) {
	t.Parallel()
	b := newBed(t, gatedAgents())
	good := toolCall("calculator", "add", `{"a":1000,"b":1}`)
	id := b.pending(t, good)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() { b.approves(t, id) })
	}
	group.Wait()
	for range 20 {
		group.Go(func() { b.send(t, good) })
	}
	group.Wait()
	b.released(t, id, 1000)
	if got := b.decides(t, "approver", id, "deny"); got.status != http.StatusConflict {
		t.Errorf("denied after it was sent: %d %s", got.status, got.body)
	}
	_, task := b.parked(t, 2000)
	found := approvalPath.FindStringSubmatch(approvalCallers()["A2A 1.0 JSON-RPC"].ask(t, b, "calculator", task))
	for range 5 {
		group.Go(func() { b.approves(t, found[1]) })
	}
	group.Wait()
	approvalCallers()["A2A 1.0 JSON-RPC"].succeeds(t, b, task, 2000)
	b.released(t, found[1], 2000)
}

// TestAttack_ApprovalByOneInsteadOfTwo: one approver grants twice where two are demanded, on the admin listener and
// with a token, and a caller with the role grants its own call. Nothing is sent before two others have.
func TestAttack_ApprovalByOneInsteadOfTwo(t *testing.T) {
	t.Parallel()
	p := gatedAgents()
	p.config.Policy.Approvals[0].Approvers = 2
	third := config.Operator{ID: "spiffe://" + devTrustDomain + "/staff/third", Roles: []string{"approver"}}
	p.config.Admin.Operators["the third"] = third
	b := newBed(t, p)
	good := toolCall("calculator", "add", `{"a":1000,"b":1}`)
	good.via = b.as(t, "/staff/third")
	id := b.pending(t, good)
	if got := b.decides(t, "third", id, "approve"); got.status != http.StatusForbidden {
		t.Errorf("it approves its own call: %d %s", got.status, got.body)
	}
	b.approves(t, id)
	b.approves(t, id)
	if again := b.pending(t, good); again != id {
		t.Errorf("it waits for the approval %s", again)
	}
	b.unsent(t, id, 1000, hitl.Pending)
	if got := b.decides(t, "second", id, "approve"); got.status != http.StatusOK {
		t.Errorf("the second approver: %d %s", got.status, got.body)
	}
	b.right(t, b.send(t, good), `"sum":1001`)
}

// TestAttack_ApprovalAfterTheEnd: an approver grants what was denied, what is over, and what was sent.
func TestAttack_ApprovalAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := newApprovalGateway(t, gatedAgents())
	brief := toolCall("brief-calculator", "add", `{"a":3000,"b":1}`)
	late := b.pending(t, brief)
	denied, task := b.parked(t, 2000)
	if got := b.decides(t, "approver", denied, "deny"); got.status != http.StatusOK {
		t.Errorf("denying: %d %s", got.status, got.body)
	}
	within(t, patience, "it expires", func() bool { return b.approval(t, late).State == hitl.Expired })
	for _, id := range []string{denied, late} {
		for _, who := range []string{"approver", "second"} {
			if got := b.decides(t, who, id, "approve"); got.status != http.StatusConflict {
				t.Errorf("granted after the end: %d %s", got.status, got.body)
			}
		}
	}
	b.unsent(t, denied, 2000, hitl.Denied)
	b.unsent(t, late, 3000, hitl.Expired)
	c := approvalCallers()["A2A 1.0 JSON-RPC"]
	if answer := c.later(t, b, "calculator", task, 2000); !strings.Contains(answer, c.words.rejected) {
		t.Errorf("the task is %s", answer)
	}
}

// decision is a letter with an approver's own token about an approval.
func (b *bed) decision(t *testing.T, who, id string, edit func(*ect.Claims)) letter {
	t.Helper()
	a := b.approval(t, id)
	svid := b.svid(t, "/staff/"+who)
	claims := ect.Claims{
		Act: ect.ActApprovalGranted, Audience: []string{b.self()}, Workflow: a.Workflow, Parents: []ect.ID{a.Gated}, InputHash: a.Call.Input,
	}
	edit(&claims)
	return letter{
		via: b.caller(t, svid), at: "/hitl/approvals/" + id + "/decision", body: `{"shown":"` + a.Shown + `"}`,
		tokens: []string{ecttest.Mint(t, b.party(t, svid), ecttest.Recipe{Claims: claims})},
	}
}

// TestAttack_ApprovalOfAnotherWorkflow: the token of a decision about one call is brought for another one, whole or
// with some of its claims. The same token for its own call is taken.
func TestAttack_ApprovalOfAnotherWorkflow(t *testing.T) {
	t.Parallel()
	b := newBed(t, gatedAgents())
	other := b.approval(t, b.pending(t, toolCall("calculator", "add", `{"a":2000,"b":1}`)))
	good := toolCall("calculator", "add", `{"a":1000,"b":1}`)
	id := b.pending(t, good)
	for name, edit := range map[string]func(*ect.Claims){
		"all": func(c *ect.Claims) {
			c.Workflow, c.Parents, c.InputHash = other.Workflow, []ect.ID{other.Gated}, other.Call.Input
		},
		"workflow": func(c *ect.Claims) { c.Workflow = other.Workflow },
		"parent":   func(c *ect.Claims) { c.Parents = []ect.ID{other.Gated} },
		"both":     func(c *ect.Claims) { c.Parents = append(c.Parents, other.Gated) },
		"input":    func(c *ect.Claims) { c.InputHash = other.Call.Input },
	} {
		if got := b.send(t, b.decision(t, "approver", id, edit)); got.status != http.StatusForbidden {
			t.Errorf("a decision about another call (%s): %d %s", name, got.status, got.body)
		}
	}
	b.unsent(t, id, 1000, hitl.Pending)
	if got := b.send(t, b.decision(t, "approver", id, func(*ect.Claims) {})); got.status != http.StatusOK {
		t.Errorf("a decision about this call: %d %s", got.status, got.body)
	}
	b.right(t, b.send(t, good), `"sum":1001`)
	b.released(t, id, 1000)
}

// TestAttack_ApprovalWithoutARole: operators without the role, callers and strangers decide, on both listeners and
// with tokens of their own.
func TestAttack_ApprovalWithoutARole(t *testing.T) {
	t.Parallel()
	b := newBed(t, gatedAgents())
	good := toolCall("calculator", "add", `{"a":1000,"b":1}`)
	id := b.pending(t, good)
	for _, who := range []string{"viewer", "operator", "auditor", "stranger"} {
		if got := b.decides(t, who, id, "approve"); got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
			t.Errorf("%s grants: %d %s", who, got.status, got.body)
		}
		if got := b.send(t, b.decision(t, who, id, func(*ect.Claims) {})); got.status != http.StatusForbidden && got.status != http.StatusNotFound {
			t.Errorf("%s grants with a token: %d %s", who, got.status, got.body)
		}
	}
	own := b.decision(t, "approver", id, func(*ect.Claims) {})
	own.via = nil // the caller brings what the approver has signed
	if got := b.send(t, own); got.status != http.StatusForbidden {
		t.Errorf("the caller brings the decision: %d %s", got.status, got.body)
	}
	if again := b.pending(t, good); again != id {
		t.Errorf("it waits for the approval %s", again)
	}
	b.unsent(t, id, 1000, hitl.Pending)
}

// TestAttack_ApprovalOfHostileText: arguments turn the text of the approver around, forge its lines, or are too long
// to be read. What can be seen is shown; what cannot be shown whole cannot be granted.
func TestAttack_ApprovalOfHostileText(t *testing.T) {
	t.Parallel()
	b := newBed(t, gatedAgents())
	const forged = "x\u202e\u2066\x1b[2J\r\nagent: \u200bharmless\u2028\U000e0041\x00\u00ad"
	text, err := json.Marshal(map[string]string{"message": forged, "\u202emessage": forged})
	must(t, err)
	a := b.approval(t, b.pending(t, toolCall("calculator", "echo", string(text))))
	if !a.Whole || strings.ContainsFunc(a.Text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !strings.Contains(a.Text, `\u{202E}`) {
		t.Errorf("shown whole: %v\n%q", a.Whole, a.Text)
	}
	if lines := strings.Count("\n"+a.Text, "\nagent: "); lines != 1 {
		t.Errorf("%d lines name an agent:\n%s", lines, a.Text)
	}
	long := b.pending(t, toolCall("calculator", "echo", `{"message":"`+strings.Repeat("x", 1<<20)+`"}`))
	if a := b.approval(t, long); a.Whole || len(a.Text) > hitl.MaxShown {
		t.Errorf("shown whole: %v, %d bytes", a.Whole, len(a.Text))
	}
	if got := b.decides(t, "approver", long, "approve"); got.status != http.StatusForbidden {
		t.Errorf("granted unseen: %d %s", got.status, got.body)
	}
	if got := b.decides(t, "approver", long, "deny"); got.status != http.StatusOK {
		t.Errorf("denied: %d %s", got.status, got.body)
	}
}

// TestAttack_ApprovalsOfOneCallerFillAll: one caller makes calls that wait without end, in tasks and without. It has
// its share, and an approval of another caller goes on.
func TestAttack_ApprovalsOfOneCallerFillAll(t *testing.T) {
	t.Parallel()
	b := newBed(t, gatedAgents())
	mallory := b.as(t, "/mallory")
	waiting := 0
	for n := range int64(150) {
		l := letter{via: mallory, at: doorA2A, body: addBody(n), header: map[string]string{"A2A-Version": "1.0"}}
		if n%2 == 0 {
			l = toolCall("calculator", "add", addArguments(n))
			l.via = mallory
		}
		got := b.send(t, l)
		switch text := string(got.body); {
		case approvalPath.MatchString(text):
			waiting++
		case !strings.Contains(text, "approvals that wait"):
			t.Fatalf("call %d is answered with %d %s", n, got.status, text)
		}
	}
	if waiting != 100 {
		t.Errorf("%d calls of one caller wait, expected 100", waiting)
	}
	id, task := b.parked(t, 5000)
	b.approves(t, id)
	approvalCallers()["A2A 1.0 JSON-RPC"].succeeds(t, b, task, 5000)
	b.released(t, id, 5000)
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
			agent.Callers = []string{"spiffe://" + devTrustDomain + "/somebody-else"}
			c.Agents["calculator"] = agent
		},
		"agent": func(c *config.Config) { delete(c.Agents, "calculator") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, gatedAgents())
			good := toolCall("calculator", "add", `{"a":2000,"b":1}`)
			again := b.pending(t, good)
			b.approves(t, again)
			id, task := b.parked(t, 1000)
			next := b.settings.config
			next.Agents = maps.Clone(next.Agents)
			change(&next)
			must(t, b.reload(t.Context(), next))
			b.approves(t, id)
			within(t, patience, "the call is given up", func() bool { return b.approval(t, id).State == hitl.Canceled })
			b.unsent(t, id, 1000, hitl.Canceled)
			if got := b.send(t, good); strings.Contains(string(got.body), `"result"`) || len(b.callsOf(2000)) != 0 {
				t.Errorf("sent again: %d %s", got.status, got.body)
			}
			if name != "rule" {
				return // its caller cannot ask about it
			}
			c := approvalCallers()["A2A 1.0 JSON-RPC"]
			if answer := c.later(t, b, "calculator", task, 1000); !strings.Contains(answer, c.words.rejected) || !strings.Contains(answer, "rules have changed") {
				t.Errorf("the task is %s", answer)
			}
		})
	}
}

// TestAttack_ApprovalOfATaskThatIsAnswered: messages to a task that waits for an approval change what is sent, or
// answer in place of the approver: over A2A and µACP.
func TestAttack_ApprovalOfATaskThatIsAnswered(t *testing.T) {
	t.Parallel()
	b := newBed(t, gatedAgents())
	id, task := b.parked(t, 1000)
	for _, part := range []string{`{"text":"approved"}`, `{"data":{"skill":"add","input":{"a":2000,"b":1}}}`, `{"data":{"action":"accept"}}`} {
		got := b.send(t, letter{at: doorA2A, header: map[string]string{"A2A-Version": "1.0"}, body: jsonRPC("SendMessage",
			`{"message":{"messageId":"m2","taskId":"`+task+`","role":"ROLE_USER","parts":[`+part+`]}}`)})
		if !strings.Contains(string(got.body), "a human decides about the call of this task") {
			t.Errorf("%s is answered with %s", part, got.body)
		}
	}
	framed := string(b.askUACP(t, "calculator", wish(t, "invoke", task, telling("approved"))))
	if !strings.Contains(framed, "a human decides about the call of this task") && !strings.Contains(framed, "no such task") {
		t.Errorf("over µACP it is answered with %q", framed)
	}
	b.unsent(t, id, 1000, hitl.Pending)
	b.approves(t, id)
	approvalCallers()["A2A 1.0 JSON-RPC"].succeeds(t, b, task, 1000)
	b.released(t, id, 1000)
	if len(b.callsOf(2000)) != 0 {
		t.Error("the agent has got what was said to the task")
	}
}

// TestAttack_ApprovalOfOthersIsRead: callers read an approval of another caller, and its task. Its own caller sees
// how it stands, and not the text.
func TestAttack_ApprovalOfOthersIsRead(t *testing.T) {
	t.Parallel()
	b := newBed(t, gatedAgents())
	id, task := b.parked(t, 1000)
	read := letter{method: http.MethodGet, media: "-", at: "/hitl/approvals/" + id}
	own := b.send(t, read)
	if own.status != http.StatusOK || !strings.Contains(string(own.body), `"state":"pending"`) || strings.Contains(string(own.body), strconv.Itoa(1000)) {
		t.Errorf("its caller reads %d %s", own.status, own.body)
	}
	for name, via := range map[string]*http.Client{"another": b.as(t, "/mallory"), "an agent": b.as(t, "/calculator"), "without a certificate": b.anonymous, "a viewer": b.as(t, "/staff/viewer")} {
		l := read
		l.via = via
		absent := l
		absent.at = "/hitl/approvals/0b39f2a1-6a0c-4a3e-9f0e-3c1a4f6f5d11"
		got, none := b.send(t, l), b.send(t, absent)
		if got.status != none.status || got.status == http.StatusOK || strings.Contains(string(got.body), "pending") {
			t.Errorf("%s reads %d %s, and %d of one that does not exist", name, got.status, got.body, none.status)
		}
		about := b.send(t, letter{via: via, at: doorA2A, header: map[string]string{"A2A-Version": "1.0"}, body: jsonRPC("GetTask", `{"id":"`+task+`"}`)})
		if strings.Contains(string(about.body), id) {
			t.Errorf("%s reads the task: %s", name, about.body)
		}
	}
}
