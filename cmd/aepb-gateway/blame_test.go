package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// taskStream is an A2A agent with the skill "fake" whose stream begins with the task t1.
// The first stream completes it; each one after that goes on until its caller leaves.
// began says that a stream was begun.
func (b *bed) taskStream(t *testing.T, name string, completes int) (began chan struct{}) {
	t.Helper()
	began = make(chan struct{}, 8)
	f := &fake{}
	f.silly = replacing(`"capabilities":{}`, `"capabilities":{"streaming":true}`)
	f.conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		if !strings.Contains(r.Header.Get("Accept"), "event-stream") {
			well(w, r, good)
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
		if int(f.calls.Load()) <= completes {
			say(`{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_COMPLETED"}}}`)
			return
		}
		f.wait(r)
	}
	b.serve(t, name, "a2a-v1", f, host{})
	return began
}

// TestReusedTaskID_IsTheAgentsFault: an agent that gives a new task the id of one that
// has ended is answered for as a bad reply of the agent, not as a failure of the gateway
// (A2A 1.0, 3.4.2: ids of tasks are unique).
func TestReusedTaskID_IsTheAgentsFault(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.taskStream(t, "forgetful", 1)
	first := b.send(t, a2aTo(b.client, "forgetful", streamed(textBody("one"))))
	if !strings.Contains(string(first.body), "TASK_STATE_COMPLETED") {
		t.Fatalf("%d %s", first.status, first.body)
	}
	got := b.send(t, a2aTo(b.client, "forgetful", streamed(textBody("two"))))
	if body := string(got.body); !strings.Contains(body, `"code":-32006`) || !strings.Contains(body, "has ended") || strings.Contains(body, "The gateway failed") {
		t.Errorf("%d %s, want a bad reply of the agent", got.status, body)
	}
}

// TestCanceledCall_IsNoFailureOfTheGateway: a call that its client has canceled is told
// as canceled, in streams and out of them (MCP 2025-11-25, Cancellation).
func TestCanceledCall_IsNoFailureOfTheGateway(t *testing.T) {
	t.Parallel()
	for name, meta := range map[string]string{"one answer": "", "a stream": `,"_meta":{"progressToken":"p"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, plan{})
			began := b.taskStream(t, "slow", 0)
			header := mcpHeader("2025-06-18")
			header["Mcp-Session-Id"] = b.initialize(t, b.client, "slow")
			call := b.request(t, letter{at: "/agents/slow/mcp", header: header, body: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"fake","arguments":{"message":"x"}` + meta + `}}`})
			answered := make(chan reply, 1)
			go func() {
				got, err := receive(b.client, call)
				if err != nil {
					t.Errorf("no answer: %v", err)
				}
				answered <- got
			}()
			<-began
			stop := b.send(t, letter{at: "/agents/slow/mcp", header: header, body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`})
			if stop.status != http.StatusAccepted {
				t.Errorf("the cancellation: %d %s", stop.status, stop.body)
			}
			got := <-answered
			if body := string(got.body); !strings.Contains(body, "canceled by its caller") || !strings.Contains(body, `"id":7`) || strings.Contains(body, "The gateway failed") || strings.Contains(body, "did not end in time") {
				t.Errorf("%d %s, want to be told that it was canceled", got.status, body)
			}
			if got.status >= http.StatusInternalServerError {
				t.Errorf("HTTP status %d", got.status)
			}
		})
	}
}
