package stories

import (
	"io"
	"net/http"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// taskStream is an A2A agent with the skill "fake" whose stream begins with the task t1.
// The first stream completes it; each one after that goes on until its caller leaves.
// began says that a stream was begun.
func taskStream(t *testing.T, b *gatewaytest.Fixture, name string, completes int) (began chan struct{}) {
	t.Helper()
	began = make(chan struct{}, 8)
	f := &gatewaytest.Fake{}
	f.Silly = gatewaytest.Replacing(`"capabilities":{}`, `"capabilities":{"streaming":true}`)
	f.Conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		if !strings.Contains(r.Header.Get("Accept"), "event-stream") {
			gatewaytest.Well(w, r, good)
			return
		}
		head, _, _ := strings.Cut(string(good), `"result"`)
		w.Header().Set("Content-Type", "text/event-stream")
		say := func(result string) {
			_, _ = io.WriteString(w, "data: "+head+`"result":`+result+"}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		say(`{"task":{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_WORKING"}}}`)
		began <- struct{}{}
		if int(f.Calls.Load()) <= completes {
			say(`{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"}}}`)
			return
		}
		f.Wait(r)
	}
	b.Serve(t, name, "a2a-v1", f, gatewaytest.Host{})
	return began
}

// TestReusedTaskID_IsTheAgentsFault: an agent that gives a new task the id of one that
// has ended is answered for as a bad reply of the agent, not as a failure of the gateway
// (A2A 1.0, 3.4.2: ids of tasks are unique).
func TestReusedTaskID_IsTheAgentsFault(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	taskStream(t, b, "forgetful", 1)
	first := b.Send(t, gatewaytest.A2ATo(b.Client, "forgetful", gatewaytest.Streamed(gatewaytest.TextBody("one"))))
	if !strings.Contains(string(first.Body), "TASK_STATE_COMPLETED") {
		t.Fatalf("%d %s", first.Status, first.Body)
	}
	got := b.Send(t, gatewaytest.A2ATo(b.Client, "forgetful", gatewaytest.Streamed(gatewaytest.TextBody("two"))))
	if body := string(got.Body); !strings.Contains(body, `"code":-32006`) || !strings.Contains(body, "has ended") || strings.Contains(body, "The gateway failed") {
		t.Errorf("%d %s, want a bad reply of the agent", got.Status, body)
	}
}

// TestCanceledCall_IsNoFailureOfTheGateway: a call that its client has canceled is told
// as canceled, in streams and out of them (MCP 2025-11-25, Cancellation).
func TestCanceledCall_IsNoFailureOfTheGateway(t *testing.T) {
	t.Parallel()
	for name, meta := range map[string]string{"one answer": "", "a stream": `,"_meta":{"progressToken":"p"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
			began := taskStream(t, b, "slow", 0)
			header := gatewaytest.MCPHeader("2025-06-18")
			header["Mcp-Session-Id"] = b.Initialize(t, b.Client, "slow")
			call := b.Request(t, gatewaytest.HTTPRequest{At: "/agents/slow/mcp", Header: header, Body: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fake","arguments":{"message":"x"}` + meta + `}}`})
			answered := make(chan gatewaytest.Reply, 1)
			go func() {
				got, err := gatewaytest.Receive(b.Client, call)
				if err != nil {
					t.Errorf("no answer: %v", err)
				}
				answered <- got
			}()
			<-began
			stop := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow/mcp", Header: header, Body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`})
			if stop.Status != http.StatusAccepted {
				t.Errorf("the cancellation: %d %s", stop.Status, stop.Body)
			}
			got := <-answered
			if body := string(got.Body); !strings.Contains(body, "canceled by its caller") || !strings.Contains(body, `"id":7`) || strings.Contains(body, "The gateway failed") || strings.Contains(body, "did not end in time") {
				t.Errorf("%d %s, want to be told that it was canceled", got.Status, body)
			}
			if got.Status >= http.StatusInternalServerError {
				t.Errorf("HTTP status %d", got.Status)
			}
		})
	}
}
