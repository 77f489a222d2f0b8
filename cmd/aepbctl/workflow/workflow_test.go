package workflow

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// issuer signs tokens as the client of a development gateway, whose folder is dir.
func issuer(t *testing.T, dir string) *ecttest.Party {
	t.Helper()
	dev, err := identity.LoadOrCreate(dir, "aepb.dev", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	kid, err := ect.Thumbprint(dev.Client.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	key, _ := dev.Client.Key.(*ecdsa.PrivateKey)
	return &ecttest.Party{ID: dev.Client.ID, Key: key, Chain: dev.Client.Chain, KeyID: kid}
}

// TestWorkflow_FromFile: the states of a workflow are found in a file of tokens with the CA alone, and the exit code
// is 1 only when it ended without success or a token does not verify.
func TestWorkflow_FromFile(t *testing.T) {
	t.Parallel()
	dir, empty := t.TempDir(), t.TempDir()
	who, wid := issuer(t, dir), string(ect.NewID())
	token := func(act ect.Act, parent ect.ID, ext string) (string, ect.ID) {
		recipe := ecttest.Recipe{Claims: ect.Claims{ID: ect.NewID(), Act: act, Audience: []string{"spiffe://aepb.dev/agents/calculator"}, Workflow: wid}, Payload: ecttest.Raw{}}
		if parent != "" {
			recipe.Claims.Parents = []ect.ID{parent}
		}
		if ext != "" {
			recipe.Payload["ext"] = ext
		}
		return ecttest.Mint(t, who, recipe), recipe.Claims.ID
	}
	start, startID := token(ect.ActWorkflowStart, "", `{"atd.wf_id":"`+wid+`","atd.description":"plan the evening","atd.node_count":2}`)
	const route = `"aepb.caller":"spiffe://aepb.dev/ann","aepb.source_protocol":"a2a-v1","aepb.dest_protocol":"mcp-v1"`
	request, requestID := token(ect.ActTranslate, startID, `{"aepb.leg":"request",`+route+`}`)
	reply, _ := token(ect.ActTranslate, requestID, `{"aepb.leg":"reply","aepb.translation_warnings":["L05 dropped /x"],`+route+`}`)
	failure, _ := token(ect.ActTranslateError, requestID, `{"aepb.error":"upstream_unreachable",`+route+`}`)
	end, _ := token(ect.ActWorkflowComplete, startID, `{"atd.wf_id":"`+wid+`","atd.terminal_status":"success"}`)
	forged := strings.Replace(reply, ".", ".e", 1)
	for name, tc := range map[string]struct {
		tokens []string
		args   []string
		code   int
		want   []string
	}{
		"begun":            {[]string{start}, nil, program.ExitOK, []string{`"plan the evening" of client: running for `, ", 0 of 2 steps done\n"}},
		"a step runs":      {[]string{request, start}, nil, program.ExitOK, []string{"\n1 running     ann -> agents/calculator: request a2a-v1 → mcp-v1, "}},
		"a step is done":   {[]string{start, request, reply}, nil, program.ExitOK, []string{": success, 1 of 2 steps done, no completion on record\n1 done        ann -> ", ", lost 1 (L05)\n"}},
		"completed":        {[]string{start, request, reply, end}, nil, program.ExitOK, []string{": success after "}},
		"a step failed":    {[]string{start, request, failure}, nil, program.ExitFailed, []string{": failed, ", "\n1 failed      ann -> ", "; upstream_unreachable\n"}},
		"a parent missing": {[]string{request}, nil, program.ExitOK, []string{"INCOMPLETE: parent " + string(startID) + " is not among the tokens"}},
		"a forged token":   {[]string{start, request, forged}, nil, program.ExitFailed, []string{"\n1 running ", "\nNOT VERIFIED: token "}},
		"below a forged":   {[]string{start, strings.Replace(request, ".", ".e", 1), reply}, nil, program.ExitFailed, []string{"NOT VERIFIED: token "}},
		"of another CA":    {[]string{start}, []string{"--trust-domain", "else.dev"}, program.ExitFailed, []string{": running for 0 s, 0 of 0 steps done\nNOT VERIFIED: token " + string(startID)}},
		"watched":          {[]string{start}, []string{"--watch"}, program.ExitUsage, []string{"[file watch]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"workflow", wid, "--dir", empty, "--ca", filepath.Join(dir, "ca.pem"), "--file", "-"}, tc.args...)
			var out, errs bytes.Buffer
			code := program.Run(t.Context(), Commands, args, strings.NewReader(strings.Join(tc.tokens, "\n")), &out, &errs)
			text := out.String() + errs.String()
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing in:\n%s", want, text)
				}
			}
		})
	}
	// From a file, as JSON, and with a picture.
	file, image := filepath.Join(t.TempDir(), "tokens"), filepath.Join(t.TempDir(), "workflow.svg")
	if err := os.WriteFile(file, []byte(start+"\n"+request+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := program.Run(t.Context(), Commands, []string{"workflow", wid, "--dir", empty, "--ca", filepath.Join(dir, "ca.pem"), "--file", file, "-o", "json", "--svg", image}, nil, &out, &errs)
	var report workflow.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || code != program.ExitOK || len(report.Steps) != 1 || report.Steps[0].State != workflow.Running {
		t.Errorf("exit code %d, %v: %s%s", code, err, &out, &errs)
	}
	if drawn, err := os.ReadFile(image); err != nil || !strings.Contains(string(drawn), ">running</text>") {
		t.Errorf("the picture is %s: %v", drawn, err)
	}
	// Tokens of another workflow say nothing about this one.
	out.Reset()
	code = program.Run(t.Context(), Commands, []string{"workflow", string(ect.NewID()), "--dir", empty, "--ca", filepath.Join(dir, "ca.pem"), "--file", file}, nil, &out, &errs)
	if code != program.ExitFailed || !strings.Contains(errs.String(), "no token of workflow ") {
		t.Errorf("of another workflow: exit code %d: %s%s", code, &out, &errs)
	}
}

// TestWorkflow_HostileText: whatever tokens and agents say, a line is a line, and a picture is one.
func TestWorkflow_HostileText(t *testing.T) {
	t.Parallel()
	report := terminaltest.Of[workflow.Report]()
	report.Steps, report.Missing = slices.Repeat(report.Steps[:1], 3), []ect.ID{terminaltest.Hostile}
	v := workflowView{report, []refusedToken{{terminaltest.Hostile, terminaltest.Hostile}}, proof.Names(nil), terminaltest.Hostile}
	var out bytes.Buffer
	if err := terminal.PrintRows(&out, v.lines(&out)); err != nil {
		t.Fatal(err)
	}
	terminaltest.Harmless(t, "lines", out.String(), 1+3+1+1+1+len(report.Findings))
	out.Reset()
	if err := v.picture().SVG(&out); err != nil {
		t.Fatal(err)
	}
	terminaltest.Harmless(t, "picture", out.String(), strings.Count(out.String(), "\n"))
	if err := xml.Unmarshal(out.Bytes(), new(struct{})); err != nil {
		t.Error(err)
	}
}

// TestWorkflow_Ended: work that is done may go on in a workflow that was begun, until it is completed.
func TestWorkflow_Ended(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		report workflow.Report
		want   bool
	}{
		"running":              {workflow.Report{Status: "running"}, false},
		"done, with a start":   {workflow.Report{Status: "success", Starter: "ann"}, false},
		"done, without one":    {workflow.Report{Status: "success"}, true},
		"completed":            {workflow.Report{Status: "success", Starter: "ann", Declared: "success"}, true},
		"failed, with a start": {workflow.Report{Status: "failed", Starter: "ann"}, true},
	} {
		if got := (workflowView{Report: tc.report}).ended(); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestWorkflow_ShowChanges: a terminal gets all lines anew, a file only those that changed, and JSON is one value a line.
func TestWorkflow_ShowChanges(t *testing.T) {
	t.Parallel()
	at := func(seconds int, state workflow.State) workflowView {
		return workflowView{Report: workflow.Report{
			Workflow: "w", Status: "running", Elapsed: time.Duration(seconds) * time.Second,
			Steps: []workflow.StepReport{{ID: "a", State: workflow.Done}, {ID: "b", State: state, Elapsed: time.Duration(seconds) * time.Second}},
		}, name: terminal.Word[string]}
	}
	var screen terminaltest.Screen
	var file, values bytes.Buffer
	for output, out := range map[string]io.Writer{"text": &file, "json": &values, "": &screen} {
		var shown map[string]bool
		for _, v := range []workflowView{at(1, workflow.Running), at(2, workflow.Running), at(3, workflow.Failed)} {
			var err error
			if shown, err = terminal.ShowChanges(out, output, shown, v.lines(out), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for line := range strings.Lines(file.String()) {
		got = append(got, strings.Join(strings.Fields(line)[:2], " "))
	}
	if text := strings.Join(got, ", "); text != "workflow w:, 1 done, 2 running, 2 failed" {
		t.Errorf("a file gets %s", text)
	}
	if n := strings.Count(screen.String(), "\x1b[H\x1b[2Jworkflow w: running for "); n != 3 || strings.Count(screen.String(), "\n") != 9 {
		t.Errorf("a terminal gets %q", screen.String())
	}
	if n := strings.Count(values.String(), "\n"); n != 2 || strings.Count(values.String(), `"wid":"w"`) != 2 {
		t.Errorf("as JSON: %s", &values)
	}
}
