package main

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The agents do what the first word of a message says, for the key that follows:
//
//	quick   answer at once
//	slow    answer after some steps, each of them told
//	ask     ask something, and answer when that is answered
//
// Their answer holds a word that nobody can guess.

const (
	slowSteps = 4
	slowStep  = 300 * time.Millisecond
	skill     = "work"
)

// journal is what the agents did, by what a call is for.
type journal struct {
	mu   sync.Mutex
	runs map[string][]string
}

// run notes that a call is done, and makes the answer to it.
func (j *journal) run(key string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.runs == nil {
		j.runs = map[string][]string{}
	}
	said := "done " + key + " " + uuid.NewString()
	j.runs[key] = append(j.runs[key], said)
	return said
}

// again notes the second half of a conversation, and returns the answer that the
// first half made.
func (j *journal) again(key string) string {
	j.run(key + askedSuffix)
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.runs[key]) == 0 {
		return "nobody asked"
	}
	return j.runs[key][0]
}

func (j *journal) all() map[string][]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make(map[string][]string, len(j.runs))
	for key, said := range j.runs {
		all[key] = append([]string(nil), said...)
	}
	return all
}

// answerIn finds an answer in a text.
func answerIn(text string) string {
	words := strings.Fields(text)
	for i := range words {
		if words[i] == "done" && i+2 < len(words) {
			return strings.Join(words[i:i+3], " ")
		}
	}
	return ""
}

// worker is the A2A agent.
type worker struct{ journal *journal }

var _ a2asrv.AgentExecutor = worker{}

// Execute does what one message says.
func (w worker) Execute(ctx context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		how, key := instruction(ec.Message.Parts)
		if how == "answer" || ec.StoredTask != nil {
			w.finish(ec, w.journal.again(key), yield)
			return
		}
		said := w.journal.run(key)
		if !yield(a2a.NewSubmittedTask(ec, ec.Message), nil) {
			return
		}
		if how == "ask" {
			question := a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, a2a.NewTextPart("what about "+key+" ?"))
			yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateInputRequired, question), nil)
			return
		}
		for range slowSteps {
			if how == "slow" && (!wait.Pause(ctx, slowStep) || !yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateWorking, nil), nil)) {
				return
			}
		}
		w.finish(ec, said, yield)
	}
}

func (worker) finish(ec *a2asrv.ExecutorContext, said string, yield func(a2a.Event, error) bool) {
	artifact := a2a.NewArtifactEvent(ec, a2a.NewTextPart(said))
	artifact.LastChunk = true
	if yield(artifact, nil) {
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCompleted, nil), nil)
	}
}

// Cancel gives a task up.
func (worker) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil)
	}
}

// instruction reads the first two words of a message.
func instruction(parts a2a.ContentParts) (how, key string) {
	for _, p := range parts {
		if words := strings.Fields(p.Text()); len(words) >= 2 {
			return words[0], words[1]
		}
	}
	return "quick", "unreadable"
}

func workerCard(base string) *a2a.AgentCard {
	return &a2a.AgentCard{
		Name: "Worker", Description: "Does what it is told.", Version: "1.0.0",
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(base, a2a.TransportProtocolJSONRPC)},
		Capabilities:        a2a.AgentCapabilities{Streaming: true},
		DefaultInputModes:   []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: skill, Name: "Work", Description: "Works.", Tags: []string{"work"}}},
	}
}

// tools is the MCP server: quick and slow, each with the key as its argument.
func tools(j *journal) *mcp.Server {
	const schema = `{"type":"object","properties":{"key":{"type":"string"}},"required":["key"],"additionalProperties":false}`
	s := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1.0.0"}, nil)
	for _, name := range []string{"quick", "slow"} {
		s.AddTool(&mcp.Tool{Name: name, Description: "Works.", InputSchema: json.RawMessage(schema)},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return work(ctx, j, req)
			})
	}
	return s
}

func work(ctx context.Context, j *journal, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
		return nil, err
	}
	said := j.run(args.Key)
	for i := range slowSteps {
		if req.Params.Name != "slow" {
			break
		}
		if !wait.Pause(ctx, slowStep) {
			return nil, ctx.Err()
		}
		if token := req.Params.GetProgressToken(); token != nil {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // nobody may be listening
				ProgressToken: token, Progress: float64(i + 1), Total: slowSteps,
			})
		}
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said}}}, nil
}

// agents are all of them on one server: the worker at the root, and the tools
// with sessions and without.
type agents struct {
	*httptest.Server
	servers []*mcp.Server
}

func serveAgents(trust *devgateway.Trust, j *journal) (*agents, error) {
	conf, err := trust.PeerTLS("agents")
	if err != nil {
		return nil, err
	}
	a := &agents{Server: httptest.NewUnstartedServer(nil)}
	base := "https://" + a.Listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(workerCard(base)))
	mux.Handle("/", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(worker{j}, a2asrv.WithLogger(slog.New(slog.DiscardHandler)))))
	for path, stateless := range map[string]bool{"/modern": true, "/legacy": false} {
		server := tools(j)
		a.servers = append(a.servers, server)
		mux.Handle(path, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{Stateless: stateless}))
	}
	a.Config.Handler, a.TLS = mux, conf
	a.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // gateways die in the middle
	a.StartTLS()
	return a, nil
}

// stop ends the sessions first, since their open streams would hold the server.
func (a *agents) stop() {
	for _, server := range a.servers {
		for session := range server.Sessions() {
			_ = session.Close()
		}
	}
	a.CloseClientConnections()
	a.Close()
}
