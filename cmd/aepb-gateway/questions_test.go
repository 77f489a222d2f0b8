package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/grpctest"
	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// workflowsOf remembers in which workflows a gateway has put records.
type workflowsOf struct {
	ect.Store

	mu   sync.Mutex
	wids []string
}

// Put implements ect.Store.
func (w *workflowsOf) Put(ctx context.Context, r ect.Record) error {
	w.mu.Lock()
	if r.Workflow != "" && !slices.Contains(w.wids, r.Workflow) {
		w.wids = append(w.wids, r.Workflow)
	}
	w.mu.Unlock()
	return w.Store.Put(ctx, r)
}

// since are the workflows since forget.
func (w *workflowsOf) since() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.wids)
}

func (w *workflowsOf) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wids = nil
}

// questionPatience is how long the record of a stream's end may take.
const questionPatience = 2 * time.Second

// questioned is a gateway with agents that ask, and the workflows of what they were asked.
type questioned struct {
	*bed
	seen *workflowsOf
	far  bool // the agents are at another gateway
	open bool // which is asked in MCP, and whose record of the end of its stream may be missing here
}

func newQuestioned(t *testing.T) questioned {
	t.Helper()
	q := questioned{seen: &workflowsOf{}}
	q.bed = newBed(t, plan{config: staff(), observe: q.observe})
	return q
}

func (q questioned) observe(k *stores) { q.seen.Store, k.evidence = k.evidence, q.seen }

// behind is a first gateway, which reaches the agents of this one by an endpoint that they have here.
func (q questioned) behind(t *testing.T, name string, e directory.Endpoint, agents ...string) questioned {
	t.Helper()
	first := questioned{seen: &workflowsOf{}, far: true}
	first.bed = q.besides(t, name, plan{config: config.Config{Admin: staff().Admin}, observe: first.observe})
	for _, agent := range agents {
		at := e
		at.URL = "/agents/" + agent + e.URL
		first.through(t, agent, q.bed, at)
	}
	return first
}

// bookingServer is an MCP server whose tool asks before it answers: by a request to its session, or with its result.
func bookingServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "asker", Version: "1"}, nil)
	form := map[string]any{"type": "object", "properties": map[string]any{"people": map[string]any{"type": "string"}}, "required": []any{"people"}}
	server.AddTool(&mcp.Tool{Name: "book", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, ok := r.Params.InputResponses["q"].(*mcp.ElicitResult)
		if !ok {
			ask := &mcp.ElicitParams{Mode: "form", Message: "for how many?", RequestedSchema: form}
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": ask}, RequestState: "s"}, nil
		}
		people, _ := answer.Content["people"].(string)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "booked for " + people}}}, nil
	})
	return server
}

// listAskers lists an MCP server that asks, in both ways.
func (q questioned) listAskers(t *testing.T) {
	t.Helper()
	for name, stateless := range map[string]bool{"asker-modern": true, "asker-legacy": false} {
		server := bookingServer()
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: stateless})
		listening := q.listServer(t, name, "mcp-v1", "/mcp", handler)
		t.Cleanup(func() {
			listening.CloseClientConnections() // a call that still asks ends with its connection
			for session := range server.Sessions() {
				_ = session.Close()
			}
		})
	}
}

// answeredByA2A asks an agent as a client of A2A does, and answers its question.
func (q questioned) answeredByA2A(t *testing.T, agent string) {
	t.Helper()
	asks, answer := grpctest.SkillMessage("book", map[string]any{}), a2a.NewDataPart(map[string]any{"people": "four"})
	switch agent {
	case "concierge":
		asks, answer = a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("ask: for how many?")), a2a.NewTextPart("four")
	case "forecast": // the gateway itself asks for the arguments
		asks = a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("How will the weather be?"))
		answer = a2a.NewDataPart(map[string]any{"city": "Oslo", "day": "today"})
	}
	base := q.at.Public + "/agents/" + agent
	got, err := peers.A2ACall(t.Context(), q.client, base, asks)
	must(t, err)
	if got.Task == nil || got.State() != a2a.TaskStateInputRequired {
		t.Fatalf("the agent did not ask: %+v", got.Task)
	}
	got, err = peers.A2ACall(t.Context(), q.client, base, a2a.NewMessageForTask(a2a.MessageRoleUser, got.Task, answer))
	must(t, err)
	if got.State() != a2a.TaskStateCompleted {
		t.Fatalf("after the answer: %+v", got.Task)
	}
}

// answeredByMCP does the same as a client of MCP in a revision.
func (q questioned) answeredByMCP(t *testing.T, agent, version string) {
	t.Helper()
	tool, args := "book", map[string]any{}
	if agent == "concierge" {
		tool, args = peers.ConciergeSkill, map[string]any{"message": "ask: for how many?"}
	}
	asked := 0
	client := mcp.NewClient(&mcp.Implementation{Name: "answers", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked++
			content := map[string]any{}
			schema, _ := r.Params.RequestedSchema.(map[string]any)
			properties, _ := schema["properties"].(map[string]any)
			for name := range properties {
				content[name] = "four"
			}
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		},
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: q.at.Public + "/agents/" + agent + "/mcp", HTTPClient: q.client, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	must(t, err)
	defer func() { _ = session.Close() }()
	got, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	must(t, err)
	if asked == 0 || got.IsError {
		t.Fatalf("asked %d times, then: %+v", asked, got)
	}
}

// isOneWorkflow demands that all since the last call is one workflow, which an auditor finds nothing wrong with. The
// records of a stream's end may follow its last event.
func (q questioned) isOneWorkflow(t *testing.T) (records []audit.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), questionPatience)
	defer cancel()
	var wrong []string
	err := wait.Until(ctx, "one whole workflow", func() bool {
		records, wrong = q.judged(t)
		return len(wrong) == 0
	})
	if err != nil {
		t.Error(err, wrong)
		for i, r := range records {
			leg, _ := r.Claims.Ext.String(ect.ExtLeg)
			t.Log(i+1, r.Claims.ID, r.Claims.Issuer, r.Claims.Act, leg, r.Claims.Parents)
		}
	}
	return records
}

// judged are the records since the last call, and what is wrong with them.
func (q questioned) judged(t *testing.T) (records []audit.Record, wrong []string) {
	t.Helper()
	wids := q.seen.since()
	if len(wids) != 1 {
		wrong = append(wrong, strconv.Itoa(len(wids))+" workflows, expected one")
	}
	for _, wid := range wids {
		of := audit.Ordered(audit.Verify(t.Context(), q.judge, q.pageOf(t, wid)))
		for _, finding := range audit.Judge(of, "is not there") {
			if q.open && strings.Contains(finding.Text, "opens a stream that no record closes") {
				continue
			}
			wrong = append(wrong, "record "+strconv.Itoa(finding.Record)+" "+finding.Text)
		}
		records = append(records, of...)
	}
	roots := 0
	for _, r := range records {
		if len(r.Claims.Parents) == 0 {
			roots++
		}
	}
	if roots != 1 {
		wrong = append(wrong, strconv.Itoa(roots)+" records have no parent, expected the one that began the workflow")
	}
	return records, wrong
}

// followsQuestion demands that the request with the answer has the reply with the question as parent.
func (q questioned) followsQuestion(t *testing.T, records []audit.Record) {
	t.Helper()
	replies := map[ect.ID]bool{}
	for _, r := range records {
		leg, _ := r.Claims.Ext.String(ect.ExtLeg)
		if leg == "reply" && r.Claims.Issuer == q.dev.Gateway.ID {
			replies[r.Claims.ID] = true
		}
	}
	if !slices.ContainsFunc(records, func(r audit.Record) bool {
		leg, _ := r.Claims.Ext.String(ect.ExtLeg)
		return leg == "request" && r.Claims.Issuer == q.dev.Gateway.ID && slices.ContainsFunc(r.Claims.Parents, func(id ect.ID) bool { return replies[id] })
	}) {
		t.Error("no request has the reply with the question as parent")
		for i, r := range records {
			leg, _ := r.Claims.Ext.String(ect.ExtLeg)
			t.Log(i+1, r.Claims.ID, r.Claims.Issuer, r.Claims.Act, leg, r.Claims.Parents)
		}
	}
}

// pageOf are the tokens of a workflow as an auditor reads them at the admin API.
func (q questioned) pageOf(t *testing.T, wid string) []string {
	t.Helper()
	got := q.send(t, letter{via: q.as(t, "/staff/auditor"), method: http.MethodGet, media: "-", at: q.at.Admin + "/api/workflows/" + wid})
	var page struct {
		ECTs []string `json:"ects"`
	}
	if got.status != http.StatusOK || json.Unmarshal(got.body, &page) != nil {
		t.Fatalf("the workflow: %d %s", got.status, short(got.body))
	}
	return page.ECTs
}

// TestQuestion_IsOneWorkflow: the answer to a question stays in the workflow of the question, also through two
// gateways, although unmodified clients know nothing of workflows.
func TestQuestion_IsOneWorkflow(t *testing.T) {
	t.Parallel()
	near := newQuestioned(t)
	near.listAskers(t)
	agents := []string{"concierge", "forecast", "asker-modern", "asker-legacy"}
	throughMCP := near.behind(t, "gateway-m", directory.Endpoint{Binding: "mcp-v1", URL: "/mcp"}, agents...)
	throughMCP.open = true
	for way, q := range map[string]questioned{
		"one gateway":     near,
		"two through A2A": near.behind(t, "gateway-a", directory.Endpoint{Binding: "a2a-v1", URL: "/a2a"}, agents...),
		"two through MCP": throughMCP,
	} {
		for _, agent := range agents {
			t.Run(way+", A2A to "+agent, func(t *testing.T) {
				q.seen.forget()
				q.answeredByA2A(t, agent)
				q.followsQuestion(t, q.isOneWorkflow(t))
			})
		}
		for _, version := range []string{"2026-07-28", "2025-11-25"} {
			for _, agent := range agents {
				if agent == "forecast" || q.relays(agent, version) {
					continue
				}
				t.Run(way+", MCP "+version+" to "+agent, func(t *testing.T) {
					q.seen.forget()
					q.answeredByMCP(t, agent, version)
					q.isOneWorkflow(t)
				})
			}
		}
	}
}

// relays: between two of one revision of MCP the server keeps its question itself, and the gateway, which sees two
// calls that share no task, records two workflows.
func (q questioned) relays(agent, version string) bool {
	return q.open || !q.far && (agent == "asker-modern" && version == "2026-07-28" || agent == "asker-legacy" && version == "2025-11-25")
}
