package main

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/test/abuse/shares"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The agents: an MCP server with one tool that has two required arguments, and an
// A2A agent with one skill.
const (
	toolAgent  = "tools"  // the good caller and the hostile identity may call it
	skillAgent = "worker" // the good caller alone
	work       = "work"   // the tool, and the skill
)

// What the tool does, as its argument how says.
const (
	howQuick = "quick" // answer at once
	howSlow  = "slow"  // answer after slowTime
	howLarge = "large" // answer with largeAnswer bytes
)

const (
	slowTime    = 3 * time.Second
	largeAnswer = 1 << 20
)

// rollbackPath is where an agent is asked to undo work (ATD).
const rollbackPath = "/.well-known/atd/rollback"

// agents are both on one server, which counts what only an attacker causes.
type agents struct {
	*httptest.Server
	fetches   atomic.Int64 // of DID documents, which no caller with an identity asks for
	rollbacks atomic.Int64 // which the good caller never asks for
}

func serveAgents(trust *devgateway.Trust) (*agents, error) {
	conf, err := trust.PeerTLS("agents")
	if err != nil {
		return nil, err
	}
	a := &agents{Server: httptest.NewUnstartedServer(nil)}
	server := toolServer()
	mux := http.NewServeMux()
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(workerCard("https://"+a.Listener.Addr().String())))
	mux.Handle("/", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(worker{}, a2asrv.WithLogger(slog.New(slog.DiscardHandler)))))
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	agents := shares.Agent(mux)
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/did.json"):
			a.fetches.Add(1)
			http.NotFound(w, r)
		case r.URL.Path == rollbackPath:
			a.rollbacks.Add(1)
			http.NotFound(w, r)
		default:
			agents.ServeHTTP(w, r)
		}
	})
	a.TLS = conf
	a.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // gateways are ended in the middle
	a.StartTLS()
	return a, nil
}

func (a *agents) stop() {
	a.CloseClientConnections()
	a.Close()
}

// answerTo is the only right answer to a call.
func answerTo(key string) string { return "done " + key }

func toolServer() *mcp.Server {
	const schema = `{"type":"object","properties":{"key":{"type":"string"},"how":{"type":"string"}},"required":["key","how"],"additionalProperties":false}`
	s := mcp.NewServer(&mcp.Implementation{Name: toolAgent, Version: "1.0.0"}, nil)
	s.AddTool(&mcp.Tool{Name: work, Description: "Works.", InputSchema: json.RawMessage(schema)},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var args struct{ Key, How string }
			if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
				return nil, err
			}
			said := answerTo(args.Key)
			switch args.How {
			case howLarge:
				said += strings.Repeat(" x", largeAnswer/2)
			case howSlow:
				if !wait.Pause(ctx, slowTime) {
					return nil, ctx.Err()
				}
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}, nil
		})
	return s
}

// worker is the A2A agent: the last word of a message is its key.
type worker struct{}

var _ a2asrv.AgentExecutor = worker{}

// Execute answers at once.
func (worker) Execute(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		key := "unreadable"
		for _, p := range ec.Message.Parts {
			if words := strings.Fields(p.Text()); len(words) > 0 {
				key = words[len(words)-1]
			}
		}
		yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(answerTo(key))), nil)
	}
}

// Cancel has nothing to end.
func (worker) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil)
	}
}

func workerCard(base string) *a2a.AgentCard {
	return &a2a.AgentCard{
		Name: "Worker", Description: "Works.", Version: "1.0.0",
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(base, a2a.TransportProtocolJSONRPC)},
		Capabilities:        a2a.AgentCapabilities{Streaming: true},
		DefaultInputModes:   []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: work, Name: "Work", Description: "Works.", Tags: []string{"work"}}},
	}
}
