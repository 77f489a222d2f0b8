package interop

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// a2aOldSDK is A2A 0.3 as the official Go SDK speaks it.
func a2aOldSDK(t *testing.T, g *gw) {
	t.Helper()
	t.Run("client", func(t *testing.T) { a2aOldSDKClient(t, g) })
	t.Run("agent", func(t *testing.T) { a2aOldSDKAgent(t, g) })
}

// oldSDKCall reads the gateway's card as a client of 0.3 does and sends one message.
func oldSDKCall(t *testing.T, who caller, url string, message *a2a.Message, over a2aclient.FactoryOption) (a2a.SendMessageResult, error) {
	t.Helper()
	resolver := agentcard.Resolver{Client: who.client, CardParser: func(b []byte) (*a2a.AgentCard, error) {
		card, err := a2av0.NewAgentCardParser()(b)
		if err == nil { // what a client that knows no other version makes of it
			card.SupportedInterfaces = oldOnly(card.SupportedInterfaces)
		}
		return card, err
	}}
	card, err := resolver.Resolve(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithDefaultsDisabled(), over)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, client.Destroy()) }()
	return client.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: message})
}

// oldRPC and oldREST are the transports of 0.3.
func oldRPC(who caller) a2aclient.FactoryOption {
	return a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: who.client})
}

func oldREST(who caller) a2aclient.FactoryOption {
	return a2av0.WithRESTTransport(a2av0.RESTTransportConfig{Client: who.client})
}

func oldOnly(all []*a2a.AgentInterface) []*a2a.AgentInterface {
	var old []*a2a.AgentInterface
	for _, i := range all {
		if i.ProtocolVersion == a2av0.Version {
			old = append(old, i)
		}
	}
	return old
}

func a2aOldSDKClient(t *testing.T, g *gw) {
	t.Helper()
	server := g.toolbox(t, "for-old-sdk", true)
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
			got, err := oldSDKCall(t, who, g.agentURL("for-old-sdk"), typed(tt.skill, tt.input), oldRPC(who))
			if err != nil {
				t.Fatal(err)
			}
			e := only(t, who.wire.exchanges())
			task, ok := got.(*a2a.Task)
			if !ok || task.Status.State != tt.state || !strings.Contains(e.Response, tt.wire) || !strings.Contains(e.Request, `"message/send"`) {
				t.Errorf("got %+v: %s", got, e.Response)
			}
			check(t, g.auditor().answered(e, who.id, server.Received()))
		})
	}
	t.Run("an unknown tool is an error", func(t *testing.T) {
		who := g.anonymous(t)
		if got, err := oldSDKCall(t, who, g.agentURL("for-old-sdk"), typed("nonesuch", `{}`), oldRPC(who)); err == nil {
			t.Fatalf("got %+v", got)
		}
		check(t, g.auditor().refused(only(t, who.wire.exchanges())))
	})
}

// repeater completes a task with what it heard.
type repeater struct{}

var _ a2asrv.AgentExecutor = repeater{}

func (repeater) Execute(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		_ = yield(a2a.NewSubmittedTask(ec, ec.Message), nil) &&
			yield(a2a.NewArtifactEvent(ec, ec.Message.Parts...), nil) &&
			yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCompleted, nil), nil)
	}
}

func (repeater) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

// repeats starts an agent of 0.3 that is reached in one way, at /agent.
func repeats(t *testing.T, g *gw, name string, over a2a.TransportProtocol, endpoint http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.TLS = g.peerTLS(t, name)
	mux := http.NewServeMux()
	server.Config.Handler = mux
	server.StartTLS()
	t.Cleanup(server.Close)
	iface := a2a.NewAgentInterface(server.URL+"/agent", over)
	iface.ProtocolVersion = a2av0.Version
	card := &a2a.AgentCard{
		Name: "Repeater", Description: "Repeats", Version: "1", SupportedInterfaces: []*a2a.AgentInterface{iface},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: "repeat", Name: "Repeat", Description: "Repeats", Tags: []string{"t"}}},
	}
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewAgentCardHandler(a2av0.NewStaticAgentCardProducer(card)))
	mux.Handle("/agent", endpoint)
	mux.Handle("/agent/", http.StripPrefix("/agent", endpoint))
	return server.URL
}

// a2aOldSDKAgent is an SDK agent behind the SDK's own 0.3 handler.
func a2aOldSDKAgent(t *testing.T, g *gw) {
	t.Helper()
	g.list(t, "old-sdk", "a2a-v1", repeats(t, g, "old-sdk", a2a.TransportProtocolJSONRPC, a2av0.NewJSONRPCHandler(a2asrv.NewHandler(repeater{}))))

	t.Run("MCP", func(t *testing.T) {
		who := g.authenticated(t)
		args := `{"message":"good evening","data":{"n":1},"files":[{"name":"f.bin","mediaType":"application/octet-stream","bytes":"AAE="}]}`
		got, err := peers.MCPCall(t.Context(), who.client, g.agentURL("old-sdk")+"/mcp", false, "repeat", []byte(args))
		if err != nil || got.Result.IsError || !strings.Contains(got.Text(), "good evening") {
			t.Fatalf("%+v: %v", got.Result, err)
		}
		if len(got.Result.Content) != 3 {
			t.Errorf("%d blocks: %+v", len(got.Result.Content), got.Result.Content)
		}
	})
	t.Run("A2A 1.0", func(t *testing.T) {
		who := g.authenticated(t)
		list := a2a.NewDataPart([]any{"a", 1})
		list.MediaType = "application/json"
		message := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("good evening"), list)
		got, err := peers.A2ACall(t.Context(), who.client, g.agentURL("old-sdk"), message)
		if err != nil || got.Text() != "good evening" {
			t.Fatalf("%q: %v", got.Text(), err)
		}
		back := got.Task.Artifacts[0].Parts[1]
		if values, ok := back.Data().([]any); !ok || len(values) != 2 || back.MediaType != "application/json" {
			t.Errorf("the list came back as %+v", back)
		}
	})
	t.Run("A2A 0.3", func(t *testing.T) {
		who := g.authenticated(t)
		got, err := oldSDKCall(t, who, g.agentURL("old-sdk"), said("good evening"), oldRPC(who))
		if err != nil {
			t.Fatal(err)
		}
		if task, ok := got.(*a2a.Task); !ok || task.Status.State != a2a.TaskStateCompleted {
			t.Errorf("got %+v", got)
		}
	})
}
