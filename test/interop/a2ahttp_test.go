package interop

import (
	"net/http"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// a2aOverHTTP is A2A 1.0 in its HTTP form, on either side of the gateway.
func a2aOverHTTP(t *testing.T, g *gw) {
	t.Helper()
	t.Run("client", func(t *testing.T) { a2aHTTPClient(t, g) })
	t.Run("agent", func(t *testing.T) { a2aHTTPAgent(t, g) })
}

// a2aHTTPClient is an SDK client that has no JSON-RPC.
func a2aHTTPClient(t *testing.T, g *gw) {
	t.Helper()
	server := g.toolbox(t, "over-http", true)
	for _, tt := range []struct {
		name, skill, input, wire string
		state                    a2a.TaskState
	}{
		{"sum above 2^53", "add", `{"a":9007199254740993,"b":2}`, `"sum":9007199254740995`, a2a.TaskStateCompleted},
		{"a failing tool fails the task", "fail", `{}`, "always fails", a2a.TaskStateFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			who := g.authenticated(t)
			got, err := peers.A2ACallOver(t.Context(), who.client, g.agentURL("over-http"), typed(tt.skill, tt.input), a2aclient.WithRESTTransport(who.client))
			if err != nil {
				t.Fatal(err)
			}
			e := only(t, who.wire.exchanges())
			if got.State() != tt.state || !strings.Contains(e.Response, tt.wire) || strings.Contains(e.Request+e.Response, "jsonrpc") {
				t.Errorf("state %s: %s", got.State(), e.Response)
			}
			check(t, g.auditor().answered(e, who.id, server.Received()))
		})
	}
	t.Run("an unknown tool is an error", func(t *testing.T) {
		who := g.authenticated(t)
		got, err := peers.A2ACallOver(t.Context(), who.client, g.agentURL("over-http"), typed("nonesuch", `{}`), a2aclient.WithRESTTransport(who.client))
		if err == nil {
			t.Fatalf("task %s", got.State())
		}
		all := who.wire.exchanges()
		if len(all) != 1 || all[0].Status != http.StatusBadRequest || !strings.Contains(all[0].Response, `"reason":"SKILL_NOT_FOUND"`) {
			t.Fatalf("%+v", all)
		}
		check(t, g.auditor().refused(all[0]))
	})
}

// a2aHTTPAgent is an SDK agent that has no JSON-RPC, called in every way.
func a2aHTTPAgent(t *testing.T, g *gw) {
	t.Helper()
	agent, err := peers.NewA2AAgentOver(t.Context(), peers.Deps{TLS: g.peerTLS(t, "http-agent")}, a2a.TransportProtocolHTTPJSON, "")
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, "http-agent", agent.Stop)
	g.list(t, "http-agent", "a2a-v1", agent.URL())
	t.Run("MCP", func(t *testing.T) {
		who := g.authenticated(t)
		got, err := peers.MCPCall(t.Context(), who.client, g.agentURL("http-agent")+"/mcp", false, peers.ConciergeSkill, []byte(`{"message":"good evening"}`))
		if err != nil || got.Result.IsError || !strings.Contains(got.Text(), "You said: good evening") {
			t.Fatalf("%+v: %v", got.Result, err)
		}
		check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, agent.Received()))
	})
	t.Run("A2A", func(t *testing.T) {
		who := g.authenticated(t)
		got, err := peers.A2ACall(t.Context(), who.client, g.agentURL("http-agent"), said("good evening"))
		if err != nil || got.Text() != "You said: good evening" {
			t.Fatalf("%q: %v", got.Text(), err)
		}
		check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, agent.Received()))
	})
	t.Run("its refusal", func(t *testing.T) {
		who := g.authenticated(t)
		message := a2a.NewMessageForTask(a2a.MessageRoleUser, a2a.TaskInfo{TaskID: "nonesuch"}, a2a.NewTextPart("hello"))
		if got, err := peers.A2ACall(t.Context(), who.client, g.agentURL("http-agent"), message); err == nil {
			t.Fatalf("task %s", got.State())
		}
		e := only(t, who.wire.exchanges())
		if code, _ := rpcError(t, e); code != -32001 {
			t.Errorf("code %d in %s", code, e.Response)
		}
	})
	for _, r := range agent.Received() {
		if r.Method == http.MethodPost && r.Path != "/message:send" && r.Path != "/message:stream" {
			t.Errorf("asked at %s", r.Path)
		}
	}
}
