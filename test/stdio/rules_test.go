package stdio

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The commands of the example configuration, for which tests put those of the servers that are installed here.
const (
	memoryCommand   = "[/usr/local/bin/mcp-server-memory]"
	filesCommand    = "[/usr/local/bin/mcp-server-filesystem, /srv/documents]"
	gitCommand      = "[/usr/local/bin/git-mcp-server]"
	databaseCommand = "[/usr/local/bin/mcp-server-sqlite, --db-path, /var/lib/aepb/orders.db]"
)

// exampleAgents is the section agents of deploy/examples/rollback.yaml, with the rules as they are there. Agents whose command is not
// in programs are not called.
func exampleAgents(t *testing.T, programs map[string][]string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "examples", "rollback.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, agents, _ := strings.Cut(string(text), "\nagents:\n")
	agents = strings.ReplaceAll(agents, "spiffe://example.com/assistants/*", "spiffe://aepb.dev/client")
	for _, example := range []string{memoryCommand, filesCommand, gitCommand, databaseCommand} {
		command, err := json.Marshal(append([]string{"env"}, programs[example]...))
		if err != nil || strings.Count(agents, example) != 1 {
			t.Fatalf("%s stands %d times in the example, expected once (%v)", example, strings.Count(agents, example), err)
		}
		agents = strings.Replace(agents, example, string(command), 1)
	}
	return "agents:\n" + agents
}

// ruleGateway is a gateway with the agents of the example.
type ruleGateway struct {
	*devgateway.Process

	ctl string // aepbctl
}

func newRuleGateway(t *testing.T, programs map[string][]string) *ruleGateway {
	t.Helper()
	g := startGateway(t, "limits: {programs: 16, share: 1}\n"+exampleAgents(t, programs))
	folder, err := devgateway.BuildAll(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &ruleGateway{Process: g, ctl: filepath.Join(folder, "aepbctl")}
}

// run runs aepbctl, which has to succeed.
func (b *ruleGateway) run(t *testing.T, input []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), b.ctl, args...)
	var errs bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("aepbctl %s: %v\n%s%s", args, err, out, errs.Bytes())
	}
	return out
}

// reads is the text that a tool answers outside of every workflow.
func (b *ruleGateway) reads(t *testing.T, agent, tool, input string) string {
	t.Helper()
	client := b.Client(b.ClientSVID())
	defer client.CloseIdleConnections()
	reply, err := peers.MCPCall(t.Context(), client, b.Public+"/agents/"+agent+"/mcp", false, tool, json.RawMessage(input))
	if err != nil || reply.Result.IsError {
		t.Fatalf("%s: %v %s", tool, err, reply.Text())
	}
	return reply.Text()
}

// undoFlow is a workflow of the development client, which calls tools with an unmodified A2A client. As the [http.RoundTripper] of that
// client it puts the header that names a parent into each call.
type undoFlow struct {
	gateway *ruleGateway
	client  *http.Client
	wid     string
	last    ect.ID // what the next call names as its parent

	tokens []ect.Claims // of the last answer to a call
}

// begin begins a workflow.
func (b *ruleGateway) begin(t *testing.T) *undoFlow {
	t.Helper()
	f := &undoFlow{gateway: b, client: b.Client(b.ClientSVID())}
	t.Cleanup(f.client.CloseIdleConnections)
	status, body, _ := f.post(t, "/atd/workflows", "", "{}")
	var begun struct {
		Workflow string `json:"wid"`
		ID       ect.ID `json:"jti"`
	}
	if err := json.Unmarshal(body, &begun); err != nil || status != http.StatusCreated {
		t.Fatalf("the workflow does not begin: %d %s", status, body)
	}
	f.wid, f.last = begun.Workflow, begun.ID
	return f
}

// post sends JSON to the gateway, with a token unless that is empty.
func (f *undoFlow) post(t *testing.T, path, token, body string) (int, []byte, []ect.Claims) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.gateway.Public+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set(ect.HeaderName, token)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := claimsIn(resp.Header)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer, tokens
}

// claimsIn are the claims of the tokens in a header. [undoFlow.verified] verifies them.
func claimsIn(header http.Header) ([]ect.Claims, error) {
	tokens, err := ect.ParseHeader(header.Values(ect.HeaderName), ect.Limits{})
	if err != nil {
		return nil, err
	}
	all := make([]ect.Claims, len(tokens))
	for i, compact := range tokens {
		if all[i], _, err = ect.ParseUnverified(compact); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// RoundTrip implements [http.RoundTripper].
func (f *undoFlow) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPost {
		return f.client.Transport.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Aepb-Parent-Jti", string(f.last))
	resp, err := f.client.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	f.tokens, err = claimsIn(resp.Header)
	return resp, err
}

// calls calls a tool after what the workflow did before. It returns the checkpoint of the call, which is empty where there is no such
// checkpoint, and the state of the task.
func (f *undoFlow) calls(t *testing.T, agent, tool, input string) (ect.ID, a2a.TaskState, error) {
	t.Helper()
	part := a2a.NewDataPart(map[string]any{"skill": tool, "input": json.RawMessage(input)})
	part.MediaType = "application/json"
	reply, err := peers.A2ACall(t.Context(), &http.Client{Transport: f}, f.gateway.Public+"/agents/"+agent+"/", a2a.NewMessage(a2a.MessageRoleUser, part))
	if err != nil {
		return "", "", err
	}
	var made ect.ID
	for _, c := range f.tokens {
		if f.last = c.ID; c.Act == ect.ActCheckpoint {
			made = c.ID
		}
	}
	return made, reply.State(), nil
}

// does calls a tool that has to succeed, and returns the checkpoint of the call.
func (f *undoFlow) does(t *testing.T, agent, tool, input string) ect.ID {
	t.Helper()
	made, state, err := f.calls(t, agent, tool, input)
	if err != nil || state != a2a.TaskStateCompleted || made == "" {
		t.Fatalf("%s: the task is %q, its checkpoint %q (%v)", tool, state, made, err)
	}
	return made
}

// fails calls a tool that has to fail.
func (f *undoFlow) fails(t *testing.T, agent, tool, input string) {
	t.Helper()
	if _, state, err := f.calls(t, agent, tool, input); err != nil || state != a2a.TaskStateFailed {
		t.Fatalf("%s: the task is %q, expected that it fails (%v)", tool, state, err)
	}
}

// signs signs a token of the workflow as the development client.
func (f *undoFlow) signs(t *testing.T, c devgateway.Claims) (compact string) {
	t.Helper()
	minter, err := f.gateway.NewMinter()
	if err == nil {
		c.Workflow = f.wid
		compact, err = minter.Sign(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

// rollsBack posts a rollback request that the caller signs, and returns the status in the result.
func (f *undoFlow) rollsBack(t *testing.T, to ect.ID) string {
	t.Helper()
	request := f.signs(t, devgateway.Claims{
		Act: string(ect.ActRollbackRequest), Parents: []string{string(to)},
		Ext: map[string]any{ect.ExtATDReason: "a later step failed", ect.ExtCascade: true},
	})
	code, body, tokens := f.post(t, "/.well-known/atd/rollback", request, `{"exec_act":"atd:rollback_request"}`)
	for _, c := range tokens {
		of, _ := c.Ext.String(ect.ExtCheckpointID)
		if status, _ := c.Ext.String(ect.ExtStatus); c.Act == ect.ActRollbackResult && of == string(to) {
			return status
		}
	}
	t.Fatalf("the answer has no result of the rollback: %d %s", code, body)
	return ""
}

// verified has aepbctl verify all tokens of the workflow with the trust anchor alone, and counts them by act.
func (f *undoFlow) verified(t *testing.T) map[ect.Act]int {
	t.Helper()
	tokens := f.gateway.run(t, nil, "dag", f.wid, "--dir", f.gateway.Dir, "-o", "json")
	noGateway := t.TempDir()
	out := f.gateway.run(t, tokens, "ect", "verify", "--dir", noGateway, "--ca", f.gateway.CAFile(), "-o", "json")
	var judged struct {
		ECTs []struct {
			Act ect.Act `json:"exec_act"`
		} `json:"ects"`
	}
	if err := json.Unmarshal(out, &judged); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	acts := map[ect.Act]int{}
	for _, v := range judged.ECTs {
		acts[v.Act]++
	}
	return acts
}
