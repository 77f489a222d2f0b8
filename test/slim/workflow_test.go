package slim_test

import (
	"encoding/json"
	"strings"
	"testing"

	steps "github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// TestWorkflow_StepOverSLIM: a real application takes part in a workflow by naming its parent in the metadata of a
// message, and no more. The pure package and aepbctl read the same states.
func TestWorkflow_StepOverSLIM(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, toolbox := w.toolbox(t)
	g := w.gateway(t, "first", w.on("first", "spiffe://"+domain+"/client")+"\nagents: {toolbox: "+toolbox+"}")
	g.await(t, "connected to the SLIM node")
	var begun struct{ WID, JTI string }
	decode(t, g.ctl(t, "workflow", "begin", "--description", "add up", "-o", "json"), &begun)
	alice := w.app(t, "org/agents/alice", nil)
	var h handle
	eventually(t, func() error {
		return alice.begin(t, job{"job": "open", "app": "org/agents/alice", "to": "org/first/toolbox"})(&h)
	})
	ask := func(body, parent string) received {
		t.Helper()
		alice.do(t, job{"job": "publish", "session": h.Session, "body": body, "metadata": job{"aepb-parent-jti": parent}}, nil)
		var got received
		alice.do(t, job{"job": "receive", "session": h.Session}, &got)
		return got
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"alice","version":"1"}}}`, begun.JTI)
	if got := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"a":40,"b":2}}}`, begun.JTI); !strings.Contains(got.Body, "42") {
		t.Fatalf("%+v", got)
	}
	var report steps.Report
	decode(t, g.ctl(t, "workflow", begun.WID, "-o", "json"), &report)
	if len(report.Steps) != 1 || report.Steps[0].State != steps.Done || report.Steps[0].Protocol != "slim-v1 → mcp-v1" ||
		report.Steps[0].Caller != "spiffe://"+domain+"/client" || report.Description != "add up" {
		t.Errorf("%+v", report)
	}
	var done struct{ Status steps.Status }
	decode(t, g.ctl(t, "workflow", "complete", begun.WID, "-o", "json"), &done)
	if text := g.ctl(t, "workflow", begun.WID); done.Status != steps.StatusSuccess || !strings.Contains(text, ": success after ") {
		t.Errorf("%s: %s", done.Status, text)
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}
