package interop

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/test/interop/askers"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// TestQuestion_AnsweredByAepbctl: aepbctl signs its own tokens, and its answer to a question stays in the workflow of the
// question, at one gateway and over two. What it prints as JSON names the task, and verifies.
func TestQuestion_AnsweredByAepbctl(t *testing.T) {
	t.Parallel()
	programs, err := devgateway.BuildAll(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := askers.Start(t)
	run := func(t *testing.T, args ...string) []byte {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), filepath.Join(programs, "aepbctl"), append([]string{"--dir", g.Dir}, args...)...).Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return out
	}
	for _, way := range askers.Ways() {
		for _, agent := range askers.Agents() {
			t.Run(way.Name+" to "+agent.Name, func(t *testing.T) {
				name := way.Agent(agent)
				var question struct{ Workflow, State, Task string }
				if err := json.Unmarshal(run(t, append([]string{"send", name, "-o", "json"}, says(t, agent.Asks)...)...), &question); err != nil {
					t.Fatal(err)
				}
				if question.State != "input required" || question.Task == "" {
					t.Fatalf("the agent did not ask: %+v", question)
				}
				answered := string(run(t, append([]string{"send", name, "--task", question.Task}, says(t, agent.Answer)...)...))
				if !strings.Contains(answered, "state: completed") || !strings.Contains(answered, "(workflow "+question.Workflow+")") {
					t.Errorf("the answer is not in workflow %s: %s", question.Workflow, answered)
				}
				g.HasWorkflows(t, way, "aepbctl", 1)
			})
		}
	}
}

// says is a part of a message as flags of aepbctl send.
func says(t *testing.T, part json.RawMessage) []string {
	t.Helper()
	var p struct {
		Text string
		Data struct {
			Skill string
			Input json.RawMessage
		}
	}
	var form struct{ Data json.RawMessage }
	if err := json.Unmarshal(part, &p); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(part, &form); err != nil {
		t.Fatal(err)
	}
	switch {
	case p.Text != "":
		return []string{"--text", p.Text}
	case p.Data.Skill != "":
		return []string{"--tool", p.Data.Skill, "--args", string(p.Data.Input)}
	default:
		return []string{"--args", string(form.Data)}
	}
}
