package rollback

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// undoServer is the admin API of a gateway with some checkpoints and one rollback.
type undoServer struct {
	mu     sync.Mutex
	views  []checkpointView // two a page
	plan   rollbackPlan
	looks  []rollbackView // what each look at the rollback finds, and the last one again; the first is the answer to its order
	orders []string       // bodies
}

func (s *undoServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, value any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(value)
	}
	id, one := strings.CutPrefix(r.URL.Path, "/api/checkpoints/")
	switch {
	case r.URL.Path == "/api/checkpoints" && r.URL.Query().Get("wid") == "w":
		answer(http.StatusOK, s.page(r.URL.Query().Get("after")))
	case one:
		for _, v := range s.views {
			if string(v.ID) == id && r.URL.Query().Get("wid") != "x" {
				answer(http.StatusOK, v)
				return
			}
		}
		answer(http.StatusNotFound, map[string]string{"code": "not_found", "detail": "no such checkpoint"})
	case r.Method == http.MethodPost && r.URL.Path == "/api/rollbacks":
		body, _ := io.ReadAll(r.Body)
		s.orders = append(s.orders, string(body))
		var order rollbackOrder
		switch {
		case json.Unmarshal(body, &order) != nil || order.Checkpoint != "c":
			answer(http.StatusConflict, map[string]string{"code": "conflict", "detail": "steps depend on it: a of spiffe://example.org/b is done"})
		case order.Plan:
			answer(http.StatusOK, s.plan)
		default:
			answer(http.StatusAccepted, s.look())
		}
	case r.URL.Path == "/api/rollbacks/w/r" && len(s.looks) > 0:
		answer(http.StatusOK, s.look())
	default:
		answer(http.StatusNotFound, map[string]string{"code": "not_found", "detail": "no such rollback"})
	}
}

func (s *undoServer) page(after string) any {
	list := []checkpointView{}
	for _, v := range s.views {
		if string(v.ID) <= after {
			continue
		}
		if len(list) == 2 {
			return map[string]any{"checkpoints": list, "next": list[1].ID}
		}
		list = append(list, v)
	}
	return map[string]any{"checkpoints": list}
}

func (s *undoServer) look() rollbackView {
	first := s.looks[0]
	if len(s.looks) > 1 {
		s.looks = s.looks[1:]
	}
	return first
}

// startUndo serves checkpoints, and returns what names their gateway to a command.
func startUndo(t *testing.T, s *undoServer) []string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	if _, err := identity.LoadOrCreate(dir, "example.org", time.Now); err != nil {
		t.Fatal(err)
	}
	return []string{"--dir", dir, "--admin", server.URL}
}

func keptCheckpoint(id ect.ID, how, undoTool, outcome string) checkpointView {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return checkpointView{
		ID: id, Workflow: "w", Parents: []ect.ID{"a"}, Agent: "files", Tool: "write", Reversible: true, How: how, UndoTool: undoTool, Outcome: outcome,
		Made: at, Expires: at.Add(24 * time.Hour), Size: 120,
	}
}

// TestCheckpoints_Text: a list of all pages and one checkpoint say how work is undone; what agents name is escaped.
func TestCheckpoints_Text(t *testing.T) {
	t.Parallel()
	own := keptCheckpoint("5", "deposit", "", "")
	own.Agent, own.Tool = "spiffe://example.org/\x1b[2J", ""
	flags := startUndo(t, &undoServer{views: []checkpointView{
		keptCheckpoint("1", "compensation", "restore", "known"), keptCheckpoint("2", "compensation", "restore", "unknown"), keptCheckpoint("3", "compensation", "restore", "failed"),
		keptCheckpoint("4", "agent", "", ""), own, keptCheckpoint("6", "irreversible", "", ""),
	}})
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"list": {[]string{"list", "--wid", "w"}, program.ExitOK, `CHECKPOINT  AGENT                           TOOL   UNDONE BY                    MADE                  UNTIL
1           files                           write  call of restore              2030-01-02T03:04:05Z  2030-01-03T03:04:05Z
2           files                           write  a human: no result is known  2030-01-02T03:04:05Z  2030-01-03T03:04:05Z
3           files                           write  nothing to undo              2030-01-02T03:04:05Z  2030-01-03T03:04:05Z
4           files                           write  the agent                    2030-01-02T03:04:05Z  2030-01-03T03:04:05Z
5           "spiffe://example.org/\x1b[2J"  -      the agent, from its state    2030-01-02T03:04:05Z  2030-01-03T03:04:05Z
6           files                           write  a human                      2030-01-02T03:04:05Z  2030-01-03T03:04:05Z
`},
		"show": {[]string{"show", "1", "--wid", "w"}, program.ExitOK, `checkpoint 1
workflow   w
parent     a
agent      files
tool       write
undone by  call of restore
made       2030-01-02T03:04:05Z
until      2030-01-03T03:04:05Z
size       120 bytes
`},
		"show another":             {[]string{"show", "9"}, program.ExitFailed, ""},
		"show of another workflow": {[]string{"show", "1", "--wid", "x"}, program.ExitFailed, ""},
		"list of no workflow":      {[]string{"list"}, program.ExitUsage, ""},
	} {
		var out, errs bytes.Buffer
		if got := program.Run(t.Context(), Commands, append(append([]string{"checkpoints"}, c.args...), flags...), nil, &out, &errs); got != c.code || out.String() != c.want {
			t.Errorf("%s: exit %d, %s\n%s", name, got, &errs, &out)
		}
	}
	var out bytes.Buffer
	if got := program.Run(t.Context(), Commands, append([]string{"checkpoints", "list", "--wid", "w", "-o", "json"}, flags...), nil, &out, io.Discard); got != program.ExitOK || strings.Count(out.String(), `"jti"`) != 6 {
		t.Errorf("as JSON: exit %d, %s", got, &out)
	}
}

// TestAttack_Checkpoints_EndlessList: a gateway that always names a next page is not asked for ever.
func TestAttack_Checkpoints_EndlessList(t *testing.T) {
	t.Parallel()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		_, _ = io.WriteString(w, `{"checkpoints":[],"next":"x"}`)
	}))
	defer server.Close()
	dir := t.TempDir()
	if _, err := identity.LoadOrCreate(dir, "example.org", time.Now); err != nil {
		t.Fatal(err)
	}
	if got := program.Run(t.Context(), Commands, []string{"checkpoints", "list", "--wid", "w", "--dir", dir, "--admin", server.URL}, nil, io.Discard, io.Discard); got != program.ExitFailed || requests != maxCheckpointPages {
		t.Errorf("exit %d after %d requests", got, requests)
	}
}

func threeSteps() []rollback.Step {
	return []rollback.Step{
		{Checkpoint: "c3", Action: "a3", Agent: "printer", How: rollback.Never},
		{Checkpoint: "c2", Action: "a2", Agent: "concierge", How: rollback.ByAgent},
		{Checkpoint: "c1", Action: "a1", Agent: "files", How: rollback.Nothing},
		{Checkpoint: "c", Action: "a", Agent: "files", How: rollback.ByCall},
	}
}

const planText = `rollback to checkpoint c of workflow w, until 2030-01-02T03:04:05Z at most:
1 printer: action a3 cannot be undone, and a human is told (checkpoint c3)
2 concierge: the agent is asked to roll back action a2 (checkpoint c2)
3 files: nothing to undo, because action a1 failed (checkpoint c1)
4 files: a call undoes action a (checkpoint c)
agents whose work is undone: concierge, files, printer
a human has to undo: c3
out of date then, because they used what is undone: s1, s2
`

func threeAgents() rollbackPlan {
	return rollbackPlan{
		Workflow: "w", From: "c", Cascade: true, Steps: threeSteps(), Agents: []string{"concierge", "files", "printer"}, Escalate: []ect.ID{"c3"}, Stale: []ect.ID{"s1", "s2"},
		By: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

// TestRollback_Plan: what would happen is said in words, and nothing begins.
func TestRollback_Plan(t *testing.T) {
	t.Parallel()
	s := &undoServer{plan: threeAgents()}
	flags := startUndo(t, s)
	var out, errs bytes.Buffer
	if got := program.Run(t.Context(), Commands, append([]string{"rollback", "--plan", "c", "--cascade"}, flags...), nil, &out, &errs); got != program.ExitOK || out.String() != planText {
		t.Errorf("exit %d, %s\n%s", got, &errs, &out)
	}
	if len(s.orders) != 1 || s.orders[0] != `{"checkpoint":"c","cascade":true,"plan":true}` {
		t.Errorf("asked is %q", s.orders)
	}
	out.Reset()
	var p rollbackPlan
	if got := program.Run(t.Context(), Commands, append([]string{"rollback", "--plan", "c", "-o", "json"}, flags...), nil, &out, io.Discard); got != program.ExitOK || json.Unmarshal(out.Bytes(), &p) != nil || len(p.Steps) != 4 {
		t.Errorf("as JSON: exit %d, %s", got, &out)
	}
	errs.Reset()
	if got := program.Run(t.Context(), Commands, append([]string{"rollback", "--plan", "other"}, flags...), nil, io.Discard, &errs); got != program.ExitFailed || !strings.Contains(errs.String(), "steps depend on it: a of spiffe://example.org/b is done") {
		t.Errorf("with dependants: exit %d, %s", got, &errs)
	}
}

// undone is a rollback with a status and steps in some states.
func undone(status rollback.Status, states ...rollback.StepState) rollbackView {
	v := rollbackView{Workflow: "w", From: "c", Request: "r", Status: status}
	for i, s := range threeSteps() {
		p := rollback.Progress{Step: s, State: states[i]}
		if p.State == rollback.StepFailed {
			p.Tries, p.Reason = 3, "no\x1b answer"
		}
		v.Steps = append(v.Steps, p)
	}
	return v
}

const (
	waits, sent, completed = rollback.StepWaiting, rollback.StepSent, rollback.StepCompleted
	escalated, skipped     = rollback.StepEscalated, rollback.StepSkipped
)

// TestRollback_Steps: each change of a step is shown once until the rollback is over. The exit code says whether all is undone,
// and every other status says what to do.
func TestRollback_Steps(t *testing.T) {
	t.Parallel()
	lift := ", then let the workflow go on: aepbctl workflow lift w --reason TEXT\n"
	const head, printer, none = "rollback r of workflow w to checkpoint c\n", "printer: action a3 cannot be undone, and a human is told (checkpoint c3)\n", "3 skipped   files: nothing to undo, because action a1 failed (checkpoint c1)\n"
	const toAgent, called = "concierge: the agent is asked to roll back action a2 (checkpoint c2)", "files: a call undoes action a (checkpoint c)"
	for name, c := range map[string]struct {
		looks []rollbackView
		code  int
		want  string
	}{
		"completed": {
			[]rollbackView{
				undone("", completed, sent, skipped, waits), undone("", completed, sent, skipped, waits),
				undone(rollback.StatusCompleted, completed, completed, skipped, completed),
			},
			program.ExitOK,
			head + "1 completed " + printer + "2 sent      " + toAgent + "\n" + none + "4 waiting   " + called + "\n" +
				"2 completed " + toAgent + "\n4 completed " + called + "\ncompleted: all is undone\n",
		},
		"partial": {
			[]rollbackView{undone(rollback.StatusPartial, escalated, completed, skipped, rollback.StepFailed)},
			program.ExitFailed,
			head + "1 escalated " + printer + "2 completed " + toAgent + "\n" + none + "4 failed    " + called + `, try 3: no\x1b answer` +
				"\npartial: some of it is undone, and some is not; undo by hand what is not completed" + lift,
		},
		"escalated": {
			[]rollbackView{undone(rollback.StatusEscalated, escalated, skipped, skipped, skipped)},
			program.ExitFailed,
			head + "1 escalated " + printer + "2 skipped   " + toAgent + "\n" + none + "4 skipped   " + called +
				"\nescalated: the gateway cannot undo this; undo by hand what is escalated" + lift,
		},
		"failed": {
			[]rollbackView{undone(rollback.StatusFailed, escalated, rollback.StepFailed, skipped, waits)},
			program.ExitFailed,
			head + "1 escalated " + printer + "2 failed    " + toAgent + `, try 3: no\x1b answer` + "\n" + none + "4 waiting   " + called +
				"\nfailed: nothing is undone; correct what the reasons name and roll back again, or undo it by hand" + lift,
		},
	} {
		s := &undoServer{looks: c.looks}
		flags := startUndo(t, s)
		var out, errs bytes.Buffer
		if got := program.Run(t.Context(), Commands, append([]string{"rollback", "c", "--cascade", "--reason", "why", "--yes"}, flags...), nil, &out, &errs); got != c.code || out.String() != c.want || errs.Len() != 0 {
			t.Errorf("%s: exit %d, %s\n%s", name, got, &errs, &out)
		}
		if len(s.orders) != 1 || s.orders[0] != `{"checkpoint":"c","cascade":true,"reason":"why"}` {
			t.Errorf("%s: ordered is %q", name, s.orders)
		}
		out.Reset()
		s.looks = s.looks[len(s.looks)-1:]
		if got := program.Run(t.Context(), Commands, append([]string{"rollback", "show", "w", "r", "-o", "json"}, flags...), nil, &out, io.Discard); got != c.code || !strings.Contains(out.String(), `"status":"`+string(c.looks[len(c.looks)-1].Status)) {
			t.Errorf("%s: shown with exit %d, %s", name, got, &out)
		}
	}
}

// TestRollback_Asks: on a terminal the plan is printed and the rollback begins after yes alone; a script passes --yes,
// and both pass a reason.
func TestRollback_Asks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typed  string
		args   []string
		code   int
		orders int
		says   string
	}{
		"yes":              {"yes\n", []string{"--reason", "why"}, program.ExitOK, 2, "undo this? type yes: "},
		"no":               {"no\n", []string{"--reason", "why"}, program.ExitFailed, 1, "nothing is undone: the answer was not yes"},
		"an end":           {"", []string{"--reason", "why"}, program.ExitFailed, 1, "nothing is undone"},
		"yes in advance":   {"", []string{"--reason", "why", "--yes"}, program.ExitOK, 1, ""},
		"without a reason": {"yes\n", []string{"--yes"}, program.ExitUsage, 0, "--reason is required"},
	} {
		s := &undoServer{plan: threeAgents(), looks: []rollbackView{undone(rollback.StatusCompleted, completed, completed, skipped, completed)}}
		var out bytes.Buffer
		var screen terminaltest.Screen
		got := program.Run(t.Context(), Commands, append(append([]string{"rollback", "c"}, c.args...), startUndo(t, s)...), terminaltest.Keyboard{Reader: strings.NewReader(c.typed)}, &out, &screen)
		if got != c.code || len(s.orders) != c.orders || !strings.Contains(screen.String(), c.says) || c.orders > 1 && !strings.HasPrefix(screen.String(), planText) {
			t.Errorf("%s: exit %d, ordered %q, %s\n%s", name, got, s.orders, &screen, &out)
		}
	}
	s := &undoServer{}
	var errs bytes.Buffer
	if got := program.Run(t.Context(), Commands, append([]string{"rollback", "c", "--reason", "why"}, startUndo(t, s)...), strings.NewReader("yes\n"), io.Discard, &errs); got != program.ExitUsage || len(s.orders) != 0 || !strings.Contains(errs.String(), "--yes is required") {
		t.Errorf("a script without --yes: exit %d, ordered %q, %s", got, s.orders, &errs)
	}
}

// TestRollback_Interrupted: who stops looking learns that the rollback goes on, and how to see it again.
func TestRollback_Interrupted(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	flags := startUndo(t, &undoServer{looks: []rollbackView{undone("", waits, waits, waits, waits)}})
	var errs bytes.Buffer
	out := writerFunc(func(text []byte) (int, error) { stop(); return len(text), nil })
	const want = "the rollback goes on at the gateway, and aepbctl rollback show w r shows it"
	if got := program.Run(ctx, Commands, append([]string{"rollback", "show", "w", "r"}, flags...), nil, out, &errs); got != program.ExitFailed || !strings.Contains(errs.String(), want) {
		t.Errorf("exit %d, %s", got, &errs)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }
