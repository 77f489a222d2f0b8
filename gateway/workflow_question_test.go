package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
)

// TestWorkflow_AnswerToAQuestion: in a workflow with a start a caller looks at a task that has not ended, and answers its question, with tokens of its
// own that name the reply or its own token before as parent: what goes on with a task does not wait for the end of that task.
func TestWorkflow_AnswerToAQuestion(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"after the reply": false, "after its own token": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{
				invoking: {{reply: wholeTask("INPUT_REQUIRED", "")}, {reply: wholeTask("COMPLETED", oneArt)}}, looking: {{reply: result(taskOf("INPUT_REQUIRED", ""))}},
			}, func(s *stage) {
				t := s.t
				wid, compact, err := s.Parts().Workflows.Begin(t.Context(), identity.Caller{Peer: s.caller.Peer()}, "", work.Plan{})
				if err != nil {
					t.Fatal(err)
				}
				last := claims(t, compact).ID
				says := func(method, params string) string {
					t.Helper()
					call := s.a2a(method, params)
					token, err := s.caller.Signer(t, time.Now).Sign(ect.Claims{
						Audience: []string{string(s.self.ID)}, Workflow: wid, Act: "talk", Parents: []ect.ID{last}, OutputHash: ect.Hash(call.Wire.Body),
					})
					if err != nil {
						t.Fatal(err)
					}
					call.Evidence = []string{token.Compact()}
					got, err := s.Exchange(t.Context(), call)
					if err != nil {
						t.Fatalf("%s: %v", method, err)
					}
					if last = token.ID(); !own {
						last = claims(t, got.Evidence[len(got.Evidence)-1]).ID
					}
					<-time.After(2 * time.Second) // a reading of the workflow is fresh for a second
					return string(got.Wire().Body)
				}
				id, state := taskIn(t, []byte(says(invoking, called)))
				if state != "TASK_STATE_INPUT_REQUIRED" {
					t.Fatalf("the task is %s", state)
				}
				says(looking, `{"id":"`+id+`"}`)
				if got := says(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"text":"Ada"}]}}`); !strings.Contains(got, "TASK_STATE_COMPLETED") {
					t.Errorf("the answer leads to %s", got)
				}
			})
		})
	}
}
