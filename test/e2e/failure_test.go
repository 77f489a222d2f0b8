package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// demoRetires: the scene shows each state of an agent that breaks, recovers and is retired,
// in this order, what its callers are told then, and the evidence of it.
func demoRetires(t *testing.T, bin string) {
	t.Helper()
	t.Parallel()
	playsScene(t, bin, "failure", []string{
		`(?m)^1\. .*breaks`, `200 OK`,
		`500 Internal`, `503 Service`, `503 Service`, `503 Service`, `503 Service`, `503 Service`,
		`the breaker is open`, `● atd:circuit_open \{.*"atd.downstream_agent":"spiffe://demo.aepb/agents/calculator","atd.error_rate":1,"atd.window_s":60\}`,
		`503 Service Unavailable .*"retryDelay":"30s".*"circuit_open"`, `Retry-After: 30\n`,
		`(?m)^2\. .*mended`, `200 OK`, `the breaker is closed`, `● atd:circuit_close \{.*"atd.cooldown_s":30,`,
		`(?m)^3\. .*deprecates`, `● aepb:lifecycle_change .*"aepb.to_state":"deprecated"`,
		`200 OK`, `Deprecation: @\d+\n`, `Sunset: .* GMT\n`, `Link: <https://.*>; rel="successor-version"\n`,
		`(?m)^4\. .*drains`, `● aepb:lifecycle_change .*"aepb.forced":true.*"aepb.to_state":"draining"`,
		`503 Service Unavailable .*"code":"draining"`, `Retry-After: \d+\n`, `Location: https://`,
		`(?m)^5\. .*retired`, `● aepb:shutdown \{`, `● aepb:lifecycle_change .*"aepb.to_state":"retired"`,
		`410 Gone`, `Link: <https://.*>; rel="successor-version"\n`,
		`(?m)^● atd:circuit_open .*verified\n` +
			`● atd:circuit_close .*verified\n` +
			`● aepb:lifecycle_change .*verified\n` +
			`● aepb:lifecycle_change .*verified\n` +
			`● aepb:shutdown .*verified\n` +
			`● aepb:lifecycle_change .*verified\n` +
			`All 6 ECTs`,
	})
}

// demoApproves: the scene shows a call that waits, what the approver reads, a grant, a denial, how both tasks end, and
// the evidence of both decisions.
func demoApproves(t *testing.T, bin string) {
	t.Helper()
	t.Parallel()
	playsScene(t, bin, "approval", []string{
		`(?m)^1\. `, `TASK_STATE_AUTH_REQUIRED`, `● aepb:intent \{`,
		`(?m)^2\. `, `│ tool: "add"`, `│   "a": 3,`,
		`(?m)^3\. `, `● hitl:approval_granted \{.*"aepb.approver":"developer"`, `TASK_STATE_COMPLETED`,
		`(?m)^4\. `, `TASK_STATE_AUTH_REQUIRED`, `│   "a": 1000000,`, `● hitl:approval_denied \{`, `TASK_STATE_REJECTED`,
		`(?m)^● aepb:intent .*verified\n● hitl:approval_granted .*verified\n● aepb:intent .*verified\n● hitl:approval_denied .*verified\nAll 4 ECTs`,
	})
}

// demoUndoes: the scene shows steps at agents of three protocols, one that fails, that exactly two are undone, what an approver is left
// with, and how each step ends.
func demoUndoes(t *testing.T, bin string) {
	t.Helper()
	t.Parallel()
	playsScene(t, bin, "rollback", []string{
		`(?m)^1\. .*"atd.cascade":true`, `(?m)^2\. `, `book_table +at calculator +Aepb-Reversible: true`,
		`(?m)^3\. `, `mail +at concierge +Aepb-Reversible: false`, `book_table +at calculator +Aepb-Reversible: true`, `reserve_boat +at dock +Aepb-Reversible: true`,
		`booked now: \{"bookings":\["table-1","table-2"\]\}, boats reserved: 1`,
		`(?m)^4\. `, `pay_deposit`, `(?m)^5\. `, `● atd:rollback_request \{.*"atd.cascade":true.*"atd.upstream_errors":\["`,
		`booked now: \{"bookings":\["table-1"\]\}, boats reserved: 0`,
		`(?m)^6\. `, `│ approve: the steps stay, and the workflow goes on\.`, `│ deny: the workflow is stopped\.`, `│ words: "These steps cannot be undone\."`, `│ "agent": "concierge"`, `● hitl:approval_granted \{.*"aepb.approver":"developer"`,
		`done +spiffe://demo.aepb/agents/calculator\n +done +spiffe://demo.aepb/agents/concierge\n` +
			` +rolled_back spiffe://demo.aepb/agents/calculator\n +rolled_back spiffe://demo.aepb/agents/dock\n +escalated +spiffe://demo.aepb/agents/calculator\n`,
		`All \d\d ECTs of the workflow verified`,
	})
}

// playsScene has the demo play a scene, and finds all that is wanted in what it prints, in this order.
func playsScene(t *testing.T, bin, scene string, wanted []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), demoLimit)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "aepb-gateway"), "demo", "--scene", scene)
	cmd.Stderr = &stderr
	printed, err := cmd.Output()
	if err != nil || stderr.Len() != 0 {
		t.Fatalf("%v\n%s\n%s", err, printed, stderr.String())
	}
	rest := printed
	for _, want := range wanted {
		at := regexp.MustCompile(want).FindIndex(rest)
		if at == nil {
			t.Fatalf("no %s in the rest of\n%s", want, printed)
		}
		rest = rest[at[1]:]
	}
}
