package interop

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// a2aOldOverHTTP is A2A 0.3 without JSON-RPC, as the official Go SDK speaks it.
func a2aOldOverHTTP(t *testing.T, g *gw) {
	t.Helper()
	t.Run("client", func(t *testing.T) { a2aOldHTTPClient(t, g) })
	t.Run("agent", func(t *testing.T) { a2aOldHTTPAgent(t, g) })
}

func a2aOldHTTPClient(t *testing.T, g *gw) {
	t.Helper()
	server := g.toolbox(t, "for-old-http", true)
	for _, tt := range []struct {
		name, skill, input, wire string
		state                    a2a.TaskState
	}{
		{"sum above 2^53", "add", `{"a":9007199254740992,"b":3}`, `"sum":9007199254740995`, a2a.TaskStateCompleted},
		{"echo", "echo", `{"message":"good evening"}`, "good evening", a2a.TaskStateCompleted},
		{"a failing tool fails the task", "fail", `{}`, "always fails", a2a.TaskStateFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			who := g.authenticated(t)
			got, err := oldSDKCall(t, who, g.agentURL("for-old-http"), typed(tt.skill, tt.input), oldREST(who))
			if err != nil {
				t.Fatal(err)
			}
			e := only(t, who.wire.exchanges())
			task, ok := got.(*a2a.Task)
			if !ok || task.Status.State != tt.state || !strings.Contains(e.Response, tt.wire) || !strings.Contains(e.Request, `"content"`) {
				t.Errorf("got %+v: %s", got, e.Response)
			}
			check(t, g.auditor().answered(e, who.id, server.Received()))
		})
	}
	t.Run("an unknown tool is an error", func(t *testing.T) {
		who := g.authenticated(t)
		got, err := oldSDKCall(t, who, g.agentURL("for-old-http"), typed("nonesuch", `{}`), oldREST(who))
		if err == nil || !strings.Contains(err.Error(), "no such skill") {
			t.Fatalf("got %+v: %v", got, err)
		}
		all := who.wire.exchanges()
		if len(all) != 1 || all[0].Status != http.StatusBadRequest || !strings.Contains(all[0].Response, `"reason":"SKILL_NOT_FOUND"`) {
			t.Fatalf("%+v", all)
		}
		check(t, g.auditor().refused(all[0]))
	})
}

// heardBy keeps the messages that a handler is asked.
func heardBy(endpoint http.Handler) (recording http.Handler, received func() []peers.Received) {
	var mu sync.Mutex
	var got []peers.Received
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			mu.Lock()
			got = append(got, peers.Received{Method: r.Method, Path: r.URL.Path, Evidence: r.Header.Values("Execution-Context"), Body: body})
			mu.Unlock()
			endpoint.ServeHTTP(w, r)
		}), func() []peers.Received {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(got)
		}
}

func a2aOldHTTPAgent(t *testing.T, g *gw) {
	t.Helper()
	endpoint, received := heardBy(a2av0.NewRESTHandler(a2asrv.NewHandler(repeater{})))
	g.list(t, "old-http", "a2a-v1", repeats(t, g, "old-http", a2a.TransportProtocolHTTPJSON, endpoint))
	file := a2a.NewRawPart([]byte{0, 1, 0xff})
	file.Filename, file.MediaType = "f.bin", "application/octet-stream"
	t.Run("MCP", func(t *testing.T) {
		who := g.authenticated(t)
		args := `{"message":"good evening","data":{"n":1},"files":[{"name":"f.bin","mediaType":"application/octet-stream","bytes":"AAH/"}]}`
		got, err := peers.MCPCall(t.Context(), who.client, g.agentURL("old-http")+"/mcp", false, "repeat", []byte(args))
		if err != nil || got.Result.IsError || !strings.Contains(got.Text(), "good evening") || len(got.Result.Content) != 3 {
			t.Fatalf("%+v: %v", got.Result, err)
		}
		e := only(t, who.wire.exchanges())
		if !strings.Contains(e.Response, `"blob":"AAH/"`) {
			t.Errorf("the file came back otherwise: %s", e.Response)
		}
		check(t, g.auditor().answered(e, who.id, received()))
	})
	t.Run("A2A 1.0", func(t *testing.T) {
		who := g.authenticated(t)
		list := a2a.NewDataPart([]any{"a", 1})
		list.MediaType = "application/json"
		got, err := peers.A2ACall(t.Context(), who.client, g.agentURL("old-http"), a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("good evening"), list, file))
		if err != nil || got.Text() != "good evening" {
			t.Fatalf("%q: %v", got.Text(), err)
		}
		parts := got.Task.Artifacts[0].Parts
		if values, ok := parts[1].Data().([]any); !ok || len(values) != 2 || parts[1].MediaType != "application/json" {
			t.Errorf("the list came back as %+v", parts[1])
		}
		if !bytes.Equal(parts[2].Raw(), file.Raw()) || parts[2].Filename != "f.bin" {
			t.Errorf("the file came back as %+v", parts[2])
		}
		check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, received()))
	})
	t.Run("A2A 0.3", func(t *testing.T) {
		for name, over := range map[string]func(caller) (a2a.SendMessageResult, error){
			"over HTTP": func(who caller) (a2a.SendMessageResult, error) {
				return oldSDKCall(t, who, g.agentURL("old-http"), a2a.NewMessage(a2a.MessageRoleUser, file), oldREST(who))
			},
			"over JSON-RPC": func(who caller) (a2a.SendMessageResult, error) {
				return oldSDKCall(t, who, g.agentURL("old-http"), a2a.NewMessage(a2a.MessageRoleUser, file), oldRPC(who))
			},
		} {
			who := g.authenticated(t)
			got, err := over(who)
			task, ok := got.(*a2a.Task)
			if err != nil || !ok || task.Status.State != a2a.TaskStateCompleted || !bytes.Equal(task.Artifacts[0].Parts[0].Raw(), file.Raw()) {
				t.Errorf("%s: got %+v: %v", name, got, err)
			}
			check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, received()))
		}
	})
	t.Run("its refusal", func(t *testing.T) {
		who := g.authenticated(t)
		message := a2a.NewMessageForTask(a2a.MessageRoleUser, a2a.TaskInfo{TaskID: "nonesuch"}, a2a.NewTextPart("hello"))
		if got, err := peers.A2ACall(t.Context(), who.client, g.agentURL("old-http"), message); err == nil {
			t.Fatalf("task %s", got.State())
		}
		e := only(t, who.wire.exchanges())
		if code, _ := rpcError(t, e); code != -32001 {
			t.Errorf("code %d in %s", code, e.Response)
		}
	})
	for _, r := range received() {
		if r.Path != "/v1/message:send" {
			t.Errorf("asked at %s", r.Path)
		}
	}
}
