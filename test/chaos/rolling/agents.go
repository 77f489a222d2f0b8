package rolling

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/test/conformance/tasked"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The agents, by the names that they are listed under.
const (
	agentWorker = "worker" // A2A: has tasks
	agentTools  = "tools"  // MCP without tasks: a call that breaks cannot be asked about
	agentTasks  = "tasks"  // MCP with tasks
	agentHeld   = "held"   // MCP of a revision with sessions: it asks in a stream that it keeps open
)

// What the agents are told to do.
const (
	howQuick = "quick"
	howSlow  = "slow"
	howAsk   = "ask"
)

const (
	slowStep    = 200 * time.Millisecond
	maxBody     = 1 << 20
	answered    = "/answer" // ends the key of the second half of a conversation
	taskingTool = "slow_compute"
	askingTool  = "confirm_delete" // of the same server
)

// journal counts how often the agents did what a key names.
type journal struct {
	mu   sync.Mutex
	runs map[string]int
}

func (j *journal) run(key string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.runs == nil {
		j.runs = map[string]int{}
	}
	j.runs[key]++
	return "done " + key
}

func (j *journal) times(key string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.runs[key]
}

// job is what one message says: how, for which key, and how long it takes.
type job struct {
	How   string `json:"how"`
	Key   string `json:"key"`
	Takes int    `json:"ms"`
}

func (j job) text() string { return j.How + " " + j.Key + " " + strconv.Itoa(j.Takes) }

func (j job) takes() time.Duration { return time.Duration(j.Takes) * time.Millisecond }

// jobIn reads what text wrote.
func jobIn(text string) (job, bool) {
	words := strings.Fields(text)
	if len(words) < 3 {
		return job{}, false
	}
	takes, err := strconv.Atoi(words[2])
	return job{words[0], words[1], takes}, err == nil
}

// worker is the A2A agent.
type worker struct{ journal *journal }

var _ a2asrv.AgentExecutor = worker{}

// Execute does what one message says. Work goes on without its client.
func (w worker) Execute(ctx context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		var j job
		for _, p := range ec.Message.Parts {
			if found, ok := jobIn(p.Text()); ok {
				j = found
			}
		}
		if ec.StoredTask != nil {
			w.finish(ec, w.journal.run(questionKey(ec.StoredTask)+answered), yield)
			return
		}
		output := w.journal.run(j.Key)
		if !yield(a2a.NewSubmittedTask(ec, ec.Message), nil) {
			return
		}
		if j.How == howAsk {
			question := a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, a2a.NewTextPart("what about "+j.Key+" ?"))
			yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateInputRequired, question), nil)
			return
		}
		for end := time.Now().Add(j.takes()); time.Now().Before(end); {
			if !wait.Pause(ctx, slowStep) || !yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateWorking, nil), nil) {
				return
			}
		}
		w.finish(ec, output, yield)
	}
}

// questionKey is what a task that has asked is about.
func questionKey(t *a2a.Task) string {
	for _, m := range append([]*a2a.Message{t.Status.Message}, t.History...) {
		if m == nil {
			continue
		}
		for _, p := range m.Parts {
			if words := strings.Fields(p.Text()); len(words) > 2 && words[0] == "what" {
				return words[2]
			}
			if j, ok := jobIn(p.Text()); ok && j.How == howAsk {
				return j.Key
			}
		}
	}
	return "unknown"
}

func (worker) finish(ec *a2asrv.ExecutorContext, output string, yield func(a2a.Event, error) bool) {
	artifact := a2a.NewArtifactEvent(ec, a2a.NewTextPart(output))
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

func workerCard(base string) *a2a.AgentCard {
	return &a2a.AgentCard{
		Name: "Worker", Description: "Does what it is told.", Version: "1.0.0",
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(base, a2a.TransportProtocolJSONRPC)},
		Capabilities:        a2a.AgentCapabilities{Streaming: true},
		DefaultInputModes:   []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: "work", Name: "Work", Description: "Works.", Tags: []string{"work"}}},
	}
}

// keyed is the schema of all arguments.
const keyed = `{"type":"object","properties":{"key":{"type":"string"},"ms":{"type":"integer"}},"required":["key"]}`

// tools is the MCP server whose calls are no tasks.
func tools(j *journal) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1.0.0"}, nil)
	for _, name := range []string{howQuick, howSlow, howAsk} {
		s.AddTool(&mcp.Tool{Name: name, Description: "Works.", InputSchema: json.RawMessage(keyed)},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return callTool(ctx, j, req)
			})
	}
	return s
}

func callTool(ctx context.Context, j *journal, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var todo job
	if err := json.Unmarshal(req.Params.Arguments, &todo); err != nil {
		return nil, err
	}
	switch {
	case req.Params.Name == howAsk && len(req.Params.InputResponses) > 0:
		return says(j.run(todo.Key + answered)), nil
	case req.Params.Name == howAsk:
		j.run(todo.Key)
		return &mcp.CallToolResult{RequestState: todo.Key, InputRequests: mcp.InputRequestMap{"q": asks(todo.Key)}}, nil
	}
	output := j.run(todo.Key)
	if !wait.Pause(ctx, todo.takes()) {
		return nil, ctx.Err()
	}
	return says(output), nil
}

// streamAsker is the MCP server that asks in a stream which it keeps open. It gives up when life
// ends: the SDK does not, even if its client has gone, and its session could not be closed.
func streamAsker(life context.Context, j *journal) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "held", Version: "1.0.0"}, nil)
	s.AddTool(&mcp.Tool{Name: howAsk, Description: "Asks.", InputSchema: json.RawMessage(keyed)},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var todo job
			if err := json.Unmarshal(req.Params.Arguments, &todo); err != nil {
				return nil, err
			}
			j.run(todo.Key)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(life, cancel)()
			if _, err := req.Session.Elicit(ctx, asks(todo.Key)); err != nil {
				return nil, err
			}
			return says(j.run(todo.Key + answered)), nil
		})
	return s
}

func asks(key string) *mcp.ElicitParams {
	return &mcp.ElicitParams{
		Message:         "what about " + key + " ?",
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"answer": map[string]any{"type": "string"}}, "required": []string{"answer"}},
	}
}

func says(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// counting notes what the server that has tasks is told to do, and which answers it gets.
type counting struct {
	journal *journal
	next    http.Handler

	mu   sync.Mutex
	keys map[string]string // by task
}

var _ http.Handler = (*counting)(nil)

// ServeHTTP reads the call and its answer as they pass.
func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	output := httptest.NewRecorder()
	c.next.ServeHTTP(output, r)
	c.note(body, output.Body.Bytes())
	w.Header().Set("Content-Type", output.Header().Get("Content-Type"))
	w.WriteHeader(output.Code)
	_, _ = w.Write(output.Body.Bytes()) // a gateway that has gone needs no answer
}

func (c *counting) note(call, answer []byte) {
	var m struct {
		Method string `json:"method"`
		Params struct {
			Task      string `json:"taskId"`
			Arguments struct {
				Label    string `json:"label"`
				Filename string `json:"filename"`
			} `json:"arguments"`
		} `json:"params"`
	}
	var begun struct {
		Result mcpTask `json:"result"`
	}
	if errors.Join(json.Unmarshal(call, &m), json.Unmarshal(answer, &begun)) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.Method {
	case "tools/call":
		key := m.Params.Arguments.Label + m.Params.Arguments.Filename
		c.journal.run(key)
		c.keys[begun.Result.ID] = key
	case "tasks/update":
		c.journal.run(c.keys[m.Params.Task] + answered)
	}
}

// agents are all of them on one server, and the webhook's receiver on another.
type agents struct {
	server, hooks *httptest.Server
	servers       []*mcp.Server
	posts         *posts
	end           context.CancelFunc // of what they wait for
}

func serveAgents(ctx context.Context, trust *devgateway.Trust, j *journal) (*agents, error) {
	conf, err := trust.PeerTLS("agents")
	if err != nil {
		return nil, err
	}
	a := &agents{server: httptest.NewUnstartedServer(nil), posts: &posts{}}
	life, end := context.WithCancel(ctx)
	a.end, a.servers = end, []*mcp.Server{tools(j), streamAsker(life, j)}
	base := "https://" + a.server.Listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(workerCard(base)))
	mux.Handle("/", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(worker{j}, a2asrv.WithLogger(slog.New(slog.DiscardHandler)))))
	mux.Handle("/tools", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return a.servers[0] }, &mcp.StreamableHTTPOptions{Stateless: true}))
	mux.Handle("/held", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return a.servers[1] }, nil))
	mux.Handle("/tasks", &counting{journal: j, next: &tasked.Server{}, keys: map[string]string{}})
	a.server.Config.Handler, a.server.TLS = mux, conf
	a.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // gateways die in the middle
	a.server.StartTLS()
	a.hooks = httptest.NewServer(a.posts)
	return a, nil
}

// stop ends the sessions first, since their open streams would hold the server.
func (a *agents) stop() {
	a.end()
	for _, server := range a.servers {
		for session := range server.Sessions() {
			_ = session.Close() // it may be broken
		}
	}
	for _, s := range []*httptest.Server{a.server, a.hooks} {
		s.CloseClientConnections()
		s.Close()
	}
}

// posts is what the webhooks were told: by key, the ends.
type posts struct {
	mu   sync.Mutex
	ends map[string][]string
}

var _ http.Handler = (*posts)(nil)

// ServeHTTP takes one post. Its path is the key of the work.
func (p *posts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var e event
	if err = errors.Join(err, json.Unmarshal(body, &e)); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
	if state := e.state(); ended(state) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ends == nil {
			p.ends = map[string][]string{}
		}
		key := strings.TrimPrefix(r.URL.Path, "/")
		p.ends[key] = append(p.ends[key], state)
	}
}

func (p *posts) of(key string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.ends[key]...)
}
