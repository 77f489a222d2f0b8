package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loopback returns a server configuration for 127.0.0.1 and a client that trusts it.
func loopback(t *testing.T) (*tls.Config, *http.Client) {
	t.Helper()
	lender := httptest.NewUnstartedServer(http.NotFoundHandler())
	lender.StartTLS()
	client := lender.Client()
	conf := &tls.Config{Certificates: lender.TLS.Certificates}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		lender.Close()
	})
	return conf, client
}

func startAgent(t *testing.T) (*A2AAgent, *http.Client) {
	t.Helper()
	conf, client := loopback(t)
	agent, err := NewA2AAgent(t.Context(), Deps{TLS: conf})
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, client, agent.Stop)
	return agent, client
}

func startMCP(t *testing.T, stateless bool) (*MCPServer, *http.Client) {
	t.Helper()
	conf, client := loopback(t)
	server, err := NewMCPServer(t.Context(), MCPDeps{Deps: Deps{TLS: conf}, Stateless: stateless})
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, client, server.Stop)
	return server, client
}

func stopLater(t *testing.T, client *http.Client, stop func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

func TestConcierge_Behaviours(t *testing.T) {
	t.Parallel()
	agent, client := startAgent(t)
	for _, tt := range []struct {
		name, text, want string
		state            a2a.TaskState
	}{
		{"default completes a task with an artifact", "hello", "You said: hello", a2a.TaskStateCompleted},
		{"a colon alone means nothing", "note: hello", "You said: note: hello", a2a.TaskStateCompleted},
		{"fail", "fail: no table left", "no table left", a2a.TaskStateFailed},
		{"reject", "reject: not dressed", "not dressed", a2a.TaskStateRejected},
		{"ask", "ask: for how many?", "for how many?", a2a.TaskStateInputRequired},
		{"message", "message: good evening", "good evening", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := A2ACall(t.Context(), client, agent.URL(), a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(tt.text)))
			if err != nil {
				t.Fatal(err)
			}
			if got.State() != tt.state || got.Text() != tt.want {
				t.Errorf("state %q text %q, want %q %q", got.State(), got.Text(), tt.state, tt.want)
			}
		})
	}
}

func TestConcierge_FinishesATaskAfterAnInput(t *testing.T) {
	t.Parallel()
	agent, client := startAgent(t)
	request, err := A2ACall(t.Context(), client, agent.URL(), a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("ask: for how many?")))
	if err != nil {
		t.Fatal(err)
	}
	done, err := A2ACall(t.Context(), client, agent.URL(),
		a2a.NewMessageForTask(a2a.MessageRoleUser, request.Task, a2a.NewTextPart("two")))
	if err != nil {
		t.Fatal(err)
	}
	if done.Task.ID != request.Task.ID || done.State() != a2a.TaskStateCompleted {
		t.Errorf("task %s %s, want %s completed", done.Task.ID, done.State(), request.Task.ID)
	}
}

func TestConcierge_ReturnsOtherParts(t *testing.T) {
	t.Parallel()
	agent, client := startAgent(t)
	file := &a2a.Part{Content: a2a.Raw("\x00\xff"), Filename: "bits.bin", MediaType: "application/octet-stream"}
	data := a2a.NewDataPart(map[string]any{"guests": 2.0})
	got, err := A2ACall(t.Context(), client, agent.URL(), a2a.NewMessage(a2a.MessageRoleUser, file, data))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a2a.ContentParts{file, data}, got.Task.Artifacts[0].Parts); diff != "" {
		t.Error(diff)
	}
}

func TestMCPServer_EveryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		name              string
		stateless, legacy bool
		version           string
	}{
		{"stateless server, modern client", true, false, "2026-07-28"},
		{"stateless server, legacy client", true, true, LegacyMCP},
		{"stateful server, modern client falls back", false, false, LegacyMCP},
		{"stateful server, legacy client", false, true, LegacyMCP},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			server, client := startMCP(t, mode.stateless)
			got, err := MCPCall(t.Context(), client, server.URL(), mode.legacy, "echo", json.RawMessage(`{"message":"hello"}`))
			if err != nil {
				t.Fatal(err)
			}
			if got.Version != mode.version || got.Text() != "hello" || got.Result.IsError || len(got.Tools) != 4 {
				t.Errorf("version %s, text %q, isError %t, %d tools", got.Version, got.Text(), got.Result.IsError, len(got.Tools))
			}
		})
	}
}

func TestMCPServer_Tools(t *testing.T) {
	t.Parallel()
	server, client := startMCP(t, true)
	for _, tt := range []struct {
		name, tool, args, want string
		failed                 bool
	}{
		{"add above 2^53", "add", `{"a":9007199254740993,"b":2}`, `{"sum":9007199254740995}`, false},
		{"add above 2^64", "add", `{"a":340282366920938463463374607431768211456,"b":-1}`, `{"sum":340282366920938463463374607431768211455}`, false},
		{"add refuses fractions", "add", `{"a":1.5,"b":2}`, "a is not an integer", true},
		{"add refuses a missing summand", "add", `{"a":1}`, "add needs the integers a and b", true},
		{"add refuses strangers", "add", `{"a":1,"b":2,"c":3}`, "add needs the integers a and b", true},
		{"echo keeps everything", "echo", `{"message":"ß\u2028 \"x\""}`, "ß\u2028 \"x\"", false},
		{"echo needs its message", "echo", `{}`, "echo needs the string message", true},
		{"fail", "fail", `{}`, "this tool always fails", true},
		{"weather", "weather", `{"city":"Oslo","day":"2026-11-21"}`, "Sunny in Oslo on 2026-11-21.", false},
		{"weather needs both", "weather", `{"city":"Oslo"}`, "weather needs the strings city and day", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := MCPCall(t.Context(), client, server.URL(), false, tt.tool, json.RawMessage(tt.args))
			if err != nil {
				t.Fatal(err)
			}
			if got.Text() != tt.want || got.Result.IsError != tt.failed {
				t.Errorf("text %q isError %t, want %q %t", got.Text(), got.Result.IsError, tt.want, tt.failed)
			}
		})
	}
}

func TestMCPServer_OnlySelectedTools(t *testing.T) {
	t.Parallel()
	conf, client := loopback(t)
	server, err := NewMCPServer(t.Context(), MCPDeps{Deps: Deps{TLS: conf}, Stateless: true, Tools: []string{"echo"}})
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, client, server.Stop)
	got, err := MCPCall(t.Context(), client, server.URL(), false, "echo", json.RawMessage(`{"message":"x"}`))
	if err != nil || len(got.Tools) != 1 || got.Tools[0].Name != "echo" {
		t.Errorf("tools %v, %v", got.Tools, err)
	}
}

func TestMCPServer_StructuredSumIsExact(t *testing.T) {
	t.Parallel()
	server, client := startMCP(t, true)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":9007199254740993,"b":2}}}`
	answer := post(t, client, server.URL(), body, nil)
	if want := `"structuredContent":{"sum":9007199254740995}`; !strings.Contains(answer, want) {
		t.Errorf("answer %s lacks %s", answer, want)
	}
}

func TestReceived_RecordsEvidenceAndIsBounded(t *testing.T) {
	t.Parallel()
	server, client := startMCP(t, true)
	evidence := []string{"one.two.three, four.five.six", "seven.eight.nine"}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	post(t, client, server.URL(), body, evidence)
	want := []Received{{Method: http.MethodPost, Path: "/mcp", Evidence: evidence, Body: []byte(body)}}
	if diff := cmp.Diff(want, server.Received()); diff != "" {
		t.Error(diff)
	}
	for n := range maxKept {
		post(t, client, server.URL(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, n), nil)
	}
	stored := server.Received()
	if len(stored) != maxKept || bytes.Contains(stored[0].Body, []byte("tools/list")) {
		t.Errorf("%d kept, oldest %s", len(stored), stored[0].Body)
	}
	post(t, client, server.URL(), strings.Repeat(" ", maxKeptBody+1), nil)
	if last := server.Received()[maxKept-1]; last.Body != nil {
		t.Errorf("a body of %d bytes was kept", len(last.Body))
	}
}

func TestMCPServer_BodyLimit(t *testing.T) {
	t.Parallel()
	server, client := startMCP(t, true)
	resp, err := client.Post(server.URL(), "application/json", strings.NewReader(strings.Repeat(" ", maxBody+1)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusRequestEntityTooLarge || len(server.Received()) != 0 {
		t.Errorf("status %d, %d kept", resp.StatusCode, len(server.Received()))
	}
}

func TestA2AAgent_OnlyTLS13(t *testing.T) {
	t.Parallel()
	agent, client := startAgent(t)
	old := client.Transport.(*http.Transport).Clone()
	old.TLSClientConfig.MaxVersion = tls.VersionTLS12
	defer old.CloseIdleConnections()
	resp, err := (&http.Client{Transport: old}).Get(agent.URL())
	if err == nil {
		_ = resp.Body.Close()
		t.Error("TLS 1.2 was accepted")
	}
	if _, err := NewA2AAgent(t.Context(), Deps{}); !errors.Is(err, ErrNoTLS) {
		t.Errorf("without TLS: %v", err)
	}
}

func TestMCPServer_StopEndsOpenSessions(t *testing.T) {
	t.Parallel()
	conf, client := loopback(t)
	server, err := NewMCPServer(t.Context(), MCPDeps{Deps: Deps{TLS: conf}})
	if err != nil {
		t.Fatal(err)
	}
	// A client that never says goodbye.
	post(t, client, server.URL(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, nil)
	client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func post(t *testing.T, client *http.Client, url, body string, evidence []string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, v := range evidence {
		req.Header.Add("Execution-Context", v)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
