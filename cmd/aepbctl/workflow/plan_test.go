package workflow

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/lifecycle/descriptor"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

const evening = `{"wf_id":"evening","nodes":[{"id":"book","label":"book a table","act":"book","agent":"diner","reversible":true},
{"id":"pay","label":"pay","hitl_required":true,"required_role":"operator"}],"edges":[{"from":"book","to":"pay"}]}`

// run runs a command, and returns its exit code and what it wrote.
func run(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = program.Run(t.Context(), Commands, append([]string{"workflow"}, args...), nil, &out, &errs)
	return code, out.String() + errs.String()
}

// TestPlan_Offline: a file is checked, printed and drawn without a gateway.
func TestPlan_Offline(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, wrong, svg := filepath.Join(dir, "evening.json"), filepath.Join(dir, "wrong.json"), filepath.Join(dir, "plan.svg")
	for name, text := range map[string]string{file: evening, wrong: strings.Replace(evening, `"to":"pay"`, `"to":"tip"`, 1)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := "workflow evening: 2 nodes in 2 waves\nwave 1: book book a table, agent diner\nwave 2: pay pay, gate: operator approves, irreversible, after book\n"
	if code, text := run(t, "plan", file, "--offline", "--dir", dir); code != program.ExitOK || text != want {
		t.Errorf("exit code %d: %s, want %s", code, text, want)
	}
	if code, text := run(t, "plan", wrong, "--offline", "--dir", dir); code == program.ExitOK || !strings.Contains(text, `edge from "book" to "tip"`) {
		t.Errorf("a wrong one: exit code %d: %s", code, text)
	}
	if code, text := run(t, "draw", file, "--svg", svg, "--dir", dir); code != program.ExitOK {
		t.Errorf("drawn: exit code %d: %s", code, text)
	}
	drawn, err := os.ReadFile(svg)
	if err != nil || strings.Count(string(drawn), ">pending</text>") != 2 || strings.Count(string(drawn), "C") != 1 {
		t.Errorf("the picture is %s: %v", drawn, err)
	}
	if code, text := run(t, "draw", file, "--dir", dir); code != program.ExitUsage || !strings.Contains(text, "--svg is required") {
		t.Errorf("without a file: exit code %d: %s", code, text)
	}
}

// TestPlan_Gateway: the commands send the text as it is with its media type, and print what the gateway says.
func TestPlan_Gateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issuer(t, dir)
	file := filepath.Join(dir, "evening.json")
	if err := os.WriteFile(file, []byte(evening), 0o600); err != nil {
		t.Fatal(err)
	}
	version := `"wf_id":"evening","version":2,"sha256":"x","by":"ann","at":"2026-11-29T08:00:00Z"`
	text, _ := json.Marshal(evening)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		sent := r.Header.Get("Content-Type") == descriptor.MediaType && body.String() == evening
		answer, status := `{}`, http.StatusNotFound
		switch at := r.Method + " " + r.URL.RequestURI(); {
		case at == "POST /api/descriptors?check=true" && sent:
			status = http.StatusOK
		case at == "POST /api/descriptors" && sent:
			answer, status = "{"+version+"}", http.StatusCreated
		case at == "GET /api/descriptors":
			answer, status = `{"descriptors":[{`+version+`}]}`, http.StatusOK
		case at == "GET /api/descriptors/evening?version=2", at == "GET /api/descriptors/evening":
			answer, status = "{"+version+`,"text":`+string(text)+`,"plan":{"agents":{"diner":["stdio:diner"]}}}`, http.StatusOK
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(gateway.Close)
	svg := filepath.Join(dir, "plan.svg")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"plan", file}, "wave 2: pay pay, gate"},
		{[]string{"put", file}, "evening version 2\n"},
		{[]string{"list"}, "evening  2        2026-11-29T08:00:00Z  ann\n"},
		{[]string{"show", "evening", "--version", "2"}, evening},
		{[]string{"draw", "evening", "--svg", svg}, ""},
	} {
		if code, text := run(t, append(tc.args, "--dir", dir, "--admin", gateway.URL)...); code != program.ExitOK || !strings.Contains(text, tc.want) {
			t.Errorf("%q: exit code %d: %s, want %s", tc.args, code, text, tc.want)
		}
	}
	if drawn, err := os.ReadFile(svg); err != nil || !strings.Contains(string(drawn), "stdio:diner") {
		t.Errorf("the picture is %s: %v", drawn, err)
	}
}

// TestWorkflow_Planned: a run shows which step began which node, nodes that have not begun, steps that are not planned,
// and the edges of the plan in its picture.
func TestWorkflow_Planned(t *testing.T) {
	t.Parallel()
	d, err := descriptor.Parse([]byte(evening))
	if err != nil {
		t.Fatal(err)
	}
	follows := &plan{Descriptor: d, version: 1, agents: map[string][]string{"diner": {"spiffe://example.com/diner"}}}
	task := func(id ect.ID, act ect.Act) workflow.Token {
		return workflow.Token{Node: dag.Node{ID: id, Workflow: "w", Issuer: "spiffe://example.com/ann", Act: act, IssuedAt: 100}, Audience: []string{"spiffe://example.com/diner"}}
	}
	tokens := []workflow.Token{task("a", "book"), task("b", "sing")}
	r, err := workflow.New("w", tokens, follows.planned())
	if err != nil {
		t.Fatal(err)
	}
	v := workflowView{Report: r.Report(tokens, time.Unix(160, 0)), name: proof.Names(nil), noPlan: "a reason"}
	var out bytes.Buffer
	if err := terminal.PrintRows(&out, v.lines(&out)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{": node book book, ", ": sing, 1 min, not planned", "3 pending     any agent: node pay pay\n", "NO PLAN: a reason"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &out)
		}
	}
	out.Reset()
	if err := v.picture().SVG(&out); err != nil || strings.Count(out.String(), ">pending</text>") != 1 || strings.Count(out.String(), " C") != 1 {
		t.Errorf("the picture is %s: %v", &out, err)
	}
}
