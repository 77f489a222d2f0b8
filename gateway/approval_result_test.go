package gateway_test

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// TestApproval_ResultOfATask: a caller of MCP that takes the result of its task while that waits for an approval
// is answered once there is one, or with the reason of the denial.
func TestApproval_ResultOfATask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grant bool
		want  string
	}{"granted": {true, "done it"}, "denied": {false, `"error":`}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenes := map[string][]scene{streaming: {{events: []string{wholeTask("SUBMITTED", ""), artifact("done it"), status("COMPLETED", "")}}}}
			play(t, scenes, func(s *stage) { resultOfATask(s, c.grant, c.want) })
		})
	}
}

func resultOfATask(s *stage, grant bool, want string) {
	t := s.t
	s.Apply(gateway.Settings{Approvals: approvalRules(t, hitl.Config{Agent: "writer"})})
	if err := s.TakeOver(); err != nil {
		t.Fatal(err)
	}
	began := s.ask(t, s, s.legacy(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":`+askingHi+`,"task":{}}}`))
	task := regexp.MustCompile(`"taskId":"([^"]+)"`).FindSubmatch(began.Wire().Body)
	if task == nil {
		t.Fatalf("no task in %s", began.Wire().Body)
	}
	result := make(chan string, 1)
	go func() {
		answer, err := s.Exchange(t.Context(), s.legacy(`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"`+string(task[1])+`"}}`))
		if err != nil {
			result <- err.Error()
			return
		}
		result <- string(answer.Wire().Body)
	}()
	synctest.Wait()
	if len(result) > 0 {
		t.Error("it is answered before the decision")
	}
	page, err := s.Parts().Approvals.List(t.Context(), approval.Query{State: hitl.Pending})
	if err != nil || len(page.Approvals) != 1 {
		t.Fatalf("%d approvals wait, expected one (%v)", len(page.Approvals), err)
	}
	view, err := s.Parts().Approvals.Show(t.Context(), page.Approvals[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	decision := approval.Decision{Grant: grant, Approver: boss, Roles: []string{"approver"}, Shown: view.Shown, Reason: "seen"}
	if _, err := s.Parts().Approvals.Decide(t.Context(), view.ID, decision); err != nil {
		t.Fatal(err)
	}
	if got := <-result; !strings.Contains(got, want) || strings.Contains(got, "seen") == grant {
		t.Errorf("the result is %s, expected %s", got, want)
	}
}
