package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// a2aOld is A2A 0.3 on either side of the gateway, with the words of its
// specification and nothing that knows of a later version.
func a2aOld(t *testing.T, g *gw) {
	t.Helper()
	t.Run("client", func(t *testing.T) { a2aOldClient(t, g) })
	t.Run("agent", func(t *testing.T) { a2aOldAgent(t, g) })
}

// post sends JSON as a client of 0.3 does: no version in the header.
func post(t *testing.T, who caller, url, body string) (status int, answer []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := who.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}

func oldSend(part string) string {
	return `{"jsonrpc":"2.0","id":"q","method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[` + part + `]}}}`
}

func a2aOldClient(t *testing.T, g *gw) {
	t.Helper()
	server := g.toolbox(t, "for-old", true)
	who := g.authenticated(t)
	status, answer := post(t, who, g.agentURL("for-old")+"/a2a", oldSend(`{"kind":"data","data":{"skill":"add","input":{"a":9007199254740993,"b":2}}}`))
	for _, want := range []string{`"kind":"task"`, `"state":"completed"`, `"kind":"data"`, `"sum":9007199254740995`} {
		if status != http.StatusOK || !bytes.Contains(answer, []byte(want)) {
			t.Errorf("status %d, and %s lacks %s", status, answer, want)
		}
	}
	check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, server.Received()))

	_, answer = post(t, g.authenticated(t), g.agentURL("for-old")+"/a2a/", `{"jsonrpc":"2.0","id":"q","method":"tasks/get","params":{"id":"t"}}`)
	if !bytes.Contains(answer, []byte(`"code":-32001`)) {
		t.Errorf("tasks/get: %s", answer)
	}
	status, answer = post(t, g.authenticated(t), g.agentURL("for-old")+"/a2a/v1/message:send", `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}}`)
	if status != http.StatusBadRequest || !bytes.Contains(answer, []byte("INVALID_PARAMS")) {
		t.Errorf("the words of JSON-RPC over HTTP: %d %s", status, answer)
	}
}

// oldAgent answers every message with what it heard, in the words of 0.3.
func oldAgent(t *testing.T, g *gw) (url string, received func() []peers.Received) {
	t.Helper()
	var mu sync.Mutex
	var got []peers.Received
	server := httptest.NewUnstartedServer(nil)
	server.TLS = g.peerTLS(t, "old")
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"protocolVersion":"0.3.0","name":"Old","description":"Old","version":"1","url":"`+server.URL+`/rpc","preferredTransport":"JSONRPC",`+
				`"capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"talk","name":"Talk","description":"Talks","tags":["t"]}]}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, peers.Received{Method: r.Method, Path: r.URL.Path, Evidence: r.Header.Values("Execution-Context"), Body: body})
		mu.Unlock()
		var call struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Message struct {
					Kind, Role string
					Parts      json.RawMessage
				}
			}
		}
		if json.Unmarshal(body, &call) != nil || call.Method != "message/send" || call.Params.Message.Kind != "message" || call.Params.Message.Role != "user" || r.Header.Get("A2A-Version") != "" {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"not 0.3"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(call.ID)+`,"result":{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"},"artifacts":[{"artifactId":"a","parts":`+string(call.Params.Message.Parts)+`}]}}`)
	})
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, func() []peers.Received {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

func a2aOldAgent(t *testing.T, g *gw) {
	t.Helper()
	url, received := oldAgent(t, g)
	g.list(t, "old", "a2a-v1", url)
	t.Run("MCP", func(t *testing.T) {
		who := g.authenticated(t)
		got, err := peers.MCPCall(t.Context(), who.client, g.agentURL("old")+"/mcp", false, "talk", []byte(`{"message":"good evening"}`))
		if err != nil || got.Result.IsError || !strings.Contains(got.Text(), "good evening") {
			t.Fatalf("%+v: %v", got.Result, err)
		}
		check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, received()))
	})
	t.Run("A2A 1.0", func(t *testing.T) {
		who := g.authenticated(t)
		got, err := peers.A2ACall(t.Context(), who.client, g.agentURL("old"), said("good evening"))
		if err != nil || got.Text() != "good evening" {
			t.Fatalf("%q: %v", got.Text(), err)
		}
		check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, received()))
	})
	t.Run("A2A 0.3", func(t *testing.T) {
		who := g.authenticated(t)
		_, answer := post(t, who, g.agentURL("old")+"/a2a", oldSend(`{"kind":"text","text":"good evening"}`))
		if !bytes.Contains(answer, []byte(`"kind":"text"`)) || !bytes.Contains(answer, []byte("good evening")) {
			t.Errorf("got %s", answer)
		}
		check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, received()))
	})
}
