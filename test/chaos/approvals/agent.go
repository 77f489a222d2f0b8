package approvals

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// tool is what the agent does, for the key in its arguments.
const tool = "work"

// answersIn is how long the agent takes.
const answersIn = 150 * time.Millisecond

// journal counts what the agent got, by the key of the call.
type journal struct {
	mu    sync.Mutex
	got   map[string]int
	tells map[string]func() // what to do when a call comes
}

func newJournal() *journal { return &journal{got: map[string]int{}, tells: map[string]func(){}} }

// expect has a function called when the agent gets a call.
func (j *journal) expect(key string, come func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tells[key] = come
}

func (j *journal) add(key string) {
	j.mu.Lock()
	j.got[key]++
	come := j.tells[key]
	j.mu.Unlock()
	if come != nil {
		come()
	}
}

func (j *journal) times(key string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.got[key]
}

// agent is an MCP server without tasks: who loses its answer cannot ask about it.
type agent struct{ server *httptest.Server }

func serveAgent(trust *devgateway.Trust, j *journal) (*agent, error) {
	conf, err := trust.PeerTLS("agent")
	if err != nil {
		return nil, err
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil)
	const schema = `{"type":"object","properties":{"key":{"type":"string"}},"required":["key"]}`
	s.AddTool(&mcp.Tool{Name: tool, Description: "Works.", InputSchema: json.RawMessage(schema)},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var args struct {
				Key string `json:"key"`
			}
			if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
				return nil, err
			}
			j.add(args.Key)
			if !wait.Pause(ctx, answersIn) {
				return nil, ctx.Err()
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: done(args.Key)}}}, nil
		})
	a := &agent{httptest.NewUnstartedServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))}
	a.server.TLS = conf
	a.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // gateways die in the middle
	a.server.StartTLS()
	return a, nil
}

// done is the agent's answer.
func done(key string) string { return "done " + key }

func (a *agent) stop() {
	a.server.CloseClientConnections()
	a.server.Close()
}
