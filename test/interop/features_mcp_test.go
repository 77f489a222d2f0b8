package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// featuresOfMCP is what every MCP client sees of an agent; relayed: both speak one
// revision, so the server itself judges an answer that does not fit.
func featuresOfMCP(at *callee, relayed bool) features {
	want := features{
		"accepted": "answer: four", "answer that does not fit": "refused", "times asked": "4", "asked again": "answer: four",
		"progress": "one two", "whole": "half whole", "canceled call": "true", "unknown tool": "refused -32602",
	}
	if !at.mcp {
		maps.Copy(want, features{
			"declined": "answer: declined", "canceled": "refused", "arguments that do not fit": "refused",
			"progress":                  "one two half  whole", // the chunks of an artifact are progress too
			"tools of who can be asked": "work", "tools of who cannot be asked": "work",
		})
		return want
	}
	all := slices.Sorted(maps.Keys(newDesk().tools()))
	maps.Copy(want, features{
		"declined": "answer: decline", "canceled": "answer: cancel", "tools of who cannot be asked": strings.Join(all, " "),
	})
	all = append(all, shyTool)
	slices.Sort(all)
	want["tools of who can be asked"] = strings.Join(all, " ")
	if relayed {
		want["answer that does not fit"], want["times asked"] = "answer: ", "1"
	}
	return want
}

// shyTool is shown to clients that can be asked alone.
const shyTool = "shy"

func addShyTool(server *mcp.Server) {
	server.AddTool(&mcp.Tool{Name: shyTool, InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, request)
			requested, ok := request.(*mcp.ListToolsRequest)
			list, lists := result.(*mcp.ListToolsResult)
			if can := (&mcp.ClientCapabilities{}); ok && lists && err == nil {
				if c := requested.ClientCapabilities(); c != nil {
					can = c
				}
				list.Tools = slices.DeleteFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == shyTool && can.Elicitation == nil })
			}
			return result, err
		}
	})
}

type mcpFeatureAgent struct {
	Endpoint string `json:"endpoint"`
	MCP      bool   `json:"mcp"`
	Job      string `json:"job"`
}

type notificationAgent struct {
	Endpoint string `json:"endpoint"`
	URI      string `json:"uri"`
}

// mcpFeatureJob is what a client has to do, as mcp-features.mjs reads it.
type mcpFeatureJob struct {
	Mode   string                       `json:"mode"`
	Agents map[string]mcpFeatureAgent   `json:"agents"`
	News   map[string]notificationAgent `json:"news"`
	Plain  string                       `json:"plain"` // has no skills
}

type mcpFeatureReport struct {
	Agents map[string]features `json:"agents"`
	News   map[string]features `json:"news"`
	Plain  string              `json:"plain"`
}

// mcpFeatures has both SDKs use all that MCP has, in two revisions, at agents of A2A
// and MCP. What a Go client hears of a server unasked is in mcp_native_test.go.
func mcpFeatures(t *testing.T, g *gw) {
	t.Helper()
	agents := map[string]*callee{
		"A2A":              g.worker(t, "call-worker", "1.0"),
		"MCP " + modernMCP: g.workshop(t, "call-shop-modern", true),
		"MCP " + legacyMCP: g.workshop(t, "call-shop-legacy", false),

		"MCP over SSE, " + legacyMCP: g.shopOverSSE(t, "call-shop-sse"),
	}
	g.carded(t, "call-plain", func(card *a2a.AgentCard) { card.Skills = []a2a.AgentSkill{} })
	notification := map[string]notificationAgent{}
	for _, space := range []*newsroom{g.newsroom(t, "feature-news-modern", true), g.newsroom(t, "feature-news-legacy", false)} {
		notification[space.name] = notificationAgent{g.agentURL(space.name) + "/mcp", notificationURI}
	}
	for way, c := range map[string]struct {
		mode, version string
		run           func(*testing.T, mcpFeatureJob) mcpFeatureReport
	}{
		modernMCP + " in Go": {modernMCP, modernMCP, g.goMCPFeatures}, legacyMCP + " in Go": {legacyMCP, legacyMCP, g.goMCPFeatures},
		modernMCP + " in JavaScript": {"auto", modernMCP, g.jsMCPFeatures}, legacyMCP + " in JavaScript": {"legacy", legacyMCP, g.jsMCPFeatures},
	} {
		t.Run(way, func(t *testing.T) {
			job := mcpFeatureJob{Mode: c.mode, News: notification, Plain: g.agentURL("call-plain") + "/mcp", Agents: map[string]mcpFeatureAgent{}}
			for name, at := range agents {
				job.Agents[name] = mcpFeatureAgent{g.agentURL(at.name) + "/mcp", at.mcp, way + " " + name}
			}
			got := c.run(t, job)
			for name, at := range agents {
				if diff := cmp.Diff(featuresOfMCP(at, strings.HasSuffix(name, c.version)), got.Agents[name]); diff != "" {
					t.Error(name, diff)
				}
			}
			for name, seen := range got.News {
				if diff := cmp.Diff(features{"heard": "gossip warning, " + notificationURI + ", tools"}, seen); diff != "" {
					t.Error(name, diff)
				}
			}
			if got.Plain != "message firstsecondthird" {
				t.Errorf("an agent without skills: %q", got.Plain)
			}
		})
	}
}

func (g *gw) jsMCPFeatures(t *testing.T, job mcpFeatureJob) mcpFeatureReport {
	t.Helper()
	var got mcpFeatureReport
	newJavascript(t).run(t, g.CAFile(), "mcp-features.mjs", job, &got)
	if len(got.News) != len(job.News) {
		t.Errorf("news of %d servers", len(got.News))
	}
	return got
}

// goMCPFeatures does what mcp-features.mjs does, but for the news.
func (g *gw) goMCPFeatures(t *testing.T, job mcpFeatureJob) mcpFeatureReport {
	t.Helper()
	report := mcpFeatureReport{Agents: map[string]features{}}
	for name, at := range job.Agents {
		r := &mcpFeatureRun{mcpFeatureAgent: at, seen: features{}, steps: make(chan string, 100)}
		r.seen["tools of who cannot be asked"] = toolsOf(t, g.host(t, at.Endpoint, job.Mode, &mcp.ClientOptions{}))
		r.session = g.host(t, at.Endpoint, job.Mode, &mcp.ClientOptions{
			ElicitationHandler: func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return r.answer(q.Params), nil
			},
			ProgressNotificationHandler: func(_ context.Context, n *mcp.ProgressNotificationClientRequest) {
				r.steps <- n.Params.Message
			},
		})
		r.seen["tools of who can be asked"] = toolsOf(t, r.session)
		r.all(t)
		report.Agents[name] = r.seen
	}
	plain := g.host(t, job.Plain, job.Mode, &mcp.ClientOptions{})
	result, err := plain.CallTool(t.Context(), &mcp.CallToolParams{Name: "message", Arguments: map[string]any{"message": "many: x"}})
	if err != nil {
		t.Fatal(err)
	}
	report.Plain = toolsOf(t, plain) + " " + blockText(result)
	return report
}

// host is an SDK client at an endpoint.
func (g *gw) host(t *testing.T, endpoint, version string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	if options.Capabilities == nil {
		options.Capabilities = &mcp.ClientCapabilities{} // and not those that the SDK claims by itself
	}
	return g.connect(t, mcp.NewClient(&mcp.Implementation{Name: "features", Version: "1"}, options), endpoint, version)
}

func (g *gw) connect(t *testing.T, client *mcp.Client, endpoint, version string) *mcp.ClientSession {
	t.Helper()
	who := g.authenticated(t)
	who.client.Transport = who.wire.next // which does not wait for the end of a stream
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: endpoint, HTTPClient: who.client, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func toolsOf(t *testing.T, session *mcp.ClientSession) string {
	t.Helper()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// mcpFeatureRun is a Go client at one agent.
type mcpFeatureRun struct {
	mcpFeatureAgent
	session *mcp.ClientSession
	seen    features
	answer  user
	steps   chan string
}

func (r *mcpFeatureRun) want(word string) *mcp.CallToolParams {
	if r.MCP {
		return &mcp.CallToolParams{Name: word, Arguments: map[string]any{"job": r.Job}}
	}
	return &mcp.CallToolParams{Name: "work", Arguments: map[string]any{"message": word + ": " + r.Job}}
}

// call says what comes of a call, or how it was refused.
func (r *mcpFeatureRun) call(t *testing.T, p *mcp.CallToolParams) (text string, result *mcp.CallToolResult) {
	t.Helper()
	result, err := r.session.CallTool(t.Context(), p)
	switch wrong, ok := errors.AsType[*jsonrpc.Error](err); {
	case ok:
		return fmt.Sprintf("refused %d", wrong.Code), nil
	case err != nil:
		return "refused " + err.Error(), nil
	case result.IsError:
		return "refused " + blockText(result), result
	}
	return blockText(result), result
}

func (r *mcpFeatureRun) all(t *testing.T) {
	t.Helper()
	r.requested(t)
	r.notified(t)
	r.canceled(t)
	r.seen["unknown tool"], _ = r.call(t, &mcp.CallToolParams{Name: "none", Arguments: map[string]any{}})
	if !r.MCP {
		text, result := r.call(t, &mcp.CallToolParams{Name: "work", Arguments: map[string]any{"message": 7}})
		if r.seen["arguments that do not fit"], _, _ = strings.Cut(text, " "); result == nil {
			t.Errorf("arguments that do not fit are no result of the tool: %s", text)
		}
	}
}

func (r *mcpFeatureRun) requested(t *testing.T) {
	t.Helper()
	times := 0
	nothing := func(*mcp.ElicitParams) *mcp.ElicitResult {
		times++
		return &mcp.ElicitResult{Action: "accept"} // all else the SDK itself refuses
	}
	leave := func(*mcp.ElicitParams) *mcp.ElicitResult { return &mcp.ElicitResult{Action: "cancel"} }
	for _, one := range []struct {
		what string
		user user
	}{
		{"accepted", fill("four")}, {"declined", decline}, {"canceled", leave}, {"answer that does not fit", nothing}, {"asked again", fill("four")},
	} {
		r.answer = one.user
		text, _ := r.call(t, r.want("ask"))
		if strings.HasPrefix(text, "refused") {
			text = "refused"
		}
		r.seen[one.what] = text
	}
	r.seen["times asked"] = strconv.Itoa(times)
}

// notified calls a tool that says how far it is.
func (r *mcpFeatureRun) notified(t *testing.T) {
	t.Helper()
	p := r.want("stream")
	p.SetProgressToken("bar")
	text, result := r.call(t, p)
	var steps []string
	want := 2
	if !r.MCP { // the chunks of an artifact are progress too
		want = 4
	}
	until(t, func() bool { // the SDK has handlers of their own pace
		for len(r.steps) > 0 {
			steps = append(steps, <-r.steps)
		}
		return len(steps) >= want
	})
	r.seen["progress"], r.seen["whole"] = strings.Join(steps, " "), text
	if !r.MCP && result != nil {
		r.seen["whole"] = remarshal[messageOutput](t, result.StructuredContent).Text
	}
}

// canceled takes back a call that works until then.
func (r *mcpFeatureRun) canceled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := r.want("hold")
	p.SetProgressToken("hold")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, err := r.session.CallTool(ctx, p); err == nil {
			t.Error("a canceled call has a result")
		}
	})
	if r.MCP {
		r.call(t, r.want("begun"))
	} else {
		until(t, func() bool { return len(r.steps) > 0 })
	}
	cancel()
	waiting.Wait()
	r.seen["canceled call"], _ = r.call(t, r.want("stopped"))
}
