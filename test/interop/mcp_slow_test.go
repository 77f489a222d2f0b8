package interop

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	form "github.com/aepb/aepb-gateway/translators/mcp"
)

// napArguments are what the tools nap and naps of servers take.
type napArguments struct {
	Milliseconds int    `json:"ms"`
	Key          string `json:"key"` // of the call, which is counted under it
}

// sleeper starts an MCP server of the SDK for Go whose tool nap takes its time and says nothing
// meanwhile, and whose tool naps says how often that ran.
func (g *gw) sleeper(t *testing.T, name string, options *mcp.StreamableHTTPOptions) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	var mu sync.Mutex
	ran := map[string]int{}
	count := func(key string, more int) string {
		mu.Lock()
		defer mu.Unlock()
		ran[key] += more
		return strconv.Itoa(ran[key])
	}
	add := func(tool string, do func(context.Context, napArguments) string) {
		server.AddTool(&mcp.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in napArguments
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			return texts(do(ctx, in)), nil
		})
	}
	add("naps", func(_ context.Context, in napArguments) string { return count(in.Key, 0) })
	add("nap", func(ctx context.Context, in napArguments) string {
		count(in.Key, 1)
		select {
		case <-time.After(time.Duration(in.Milliseconds) * time.Millisecond):
			return "slept " + strconv.Itoa(in.Milliseconds)
		case <-ctx.Done():
			return "canceled"
		}
	})
	server.AddTool(&mcp.Tool{Name: "client", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		who := r.Session.InitializeParams().ClientInfo
		return texts(who.Name + " " + who.Version), nil
	})
	listener, mux, _ := serveTLS(t, g, name, newDesk(), func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
	})
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options))
	g.list(t, name, "mcp-v1", listener.URL+"/mcp")
}

// jsSlowJob is a server that slow-client.mjs calls, and jsSlowReport what it saw of it.
type (
	jsSlowJob struct {
		Endpoint string `json:"endpoint"`
		Mode     string `json:"mode"` // auto, legacy or sse
	}
	jsSlowReport struct {
		Naps   [][2]string `json:"naps"` // what the tool returned, and how often it ran
		Errors []string    `json:"errors"`
	}
)

// mcpSlow: clients of the SDKs that want progress have the result of a tool that says nothing until
// then, and the tool runs once.
func mcpSlow(t *testing.T, g *gw) {
	t.Helper()
	js := newJavascript(t)
	g.sleeper(t, "sleeper-streams", nil)
	g.sleeper(t, "sleeper-json", &mcp.StreamableHTTPOptions{JSONResponse: true})
	names := []string{"sleeper-streams", "sleeper-json", js.oldServer(t, g, "sleeper-sse", "")}
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, name := range names {
		for _, version := range form.Revisions() {
			if version != form.LegacyFirst { // which the SDK for Go does not speak
				napsOfGo(t, g, &calls, name, version)
			}
		}
	}
	napsOfJS(t, g, js, names)
}

func napsOfJS(t *testing.T, g *gw, js javascript, names []string) {
	t.Helper()
	var jobs []jsSlowJob
	var want, got []jsSlowReport
	for _, name := range names {
		for mode, path := range map[string]string{"auto": "/mcp", "legacy": "/mcp", "sse": "/mcp/sse"} {
			jobs = append(jobs, jsSlowJob{g.agentURL(name) + path, mode})
			want = append(want, jsSlowReport{Naps: [][2]string{{"slept 300", "1"}, {"slept 5000", "1"}}, Errors: []string{}})
		}
	}
	js.run(t, g.CAFile(), "slow-client.mjs", jobs, &got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%+v: %s", jobs, diff)
	}
}

// napsOfGo begins the calls of a client of the SDK for Go.
func napsOfGo(t *testing.T, g *gw, calls *sync.WaitGroup, name, version string) {
	t.Helper()
	session := oldSession(t, g.authenticated(t), g.agentURL(name)+"/mcp", version)
	if version != form.Modern && name != "sleeper-sse" {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "client"})
		if err != nil || string(mustJSON(result.Content)) != string(mustJSON(texts("old-client 1.0.0").Content)) {
			t.Errorf("%s was told the client %s, %v", name, mustJSON(result), err)
		}
	}
	for _, ms := range []int{300, 5000} {
		in := napArguments{ms, version + strconv.Itoa(ms)}
		calls.Go(func() {
			for _, c := range [][2]string{{"nap", "slept " + strconv.Itoa(ms)}, {"naps", "1"}} {
				params := &mcp.CallToolParams{Name: c[0], Arguments: in}
				params.SetProgressToken(in.Key)
				result, err := session.CallTool(t.Context(), params)
				if err != nil || result.IsError {
					t.Errorf("%s to %s %v: %+v %v", c[0], name, in, result, err)
				} else if got, want := string(mustJSON(result.Content)), string(mustJSON(texts(c[1]).Content)); got != want {
					t.Errorf("%s to %s %v: %s, want %s", c[0], name, in, got, want)
				}
			}
		})
	}
}
