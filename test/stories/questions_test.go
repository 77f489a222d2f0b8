package stories

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

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/server"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/questions"
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
	*gatewaytest.Fixture
	seen *workflowsOf
	far  bool // the agents are at another gateway
	open bool // which is asked in MCP, and whose record of the end of its stream may be missing here
}

func newQuestioned(t *testing.T) questioned {
	t.Helper()
	q := questioned{seen: &workflowsOf{}}
	q.Fixture = gatewaytest.NewFixture(t, gatewaytest.Plan{Config: gatewaytest.Staff(), Observe: q.observe})
	return q
}

func (q questioned) observe(k *server.Stored) { q.seen.Store, k.Evidence = k.Evidence, q.seen }

// behind is a first gateway, which reaches the agents of this one by an endpoint that they have here.
func (q questioned) behind(t *testing.T, name string, e directory.Endpoint, agents ...string) questioned {
	t.Helper()
	first := questioned{seen: &workflowsOf{}, far: true}
	first.Fixture = q.Besides(t, name, gatewaytest.Plan{Config: config.Config{Admin: gatewaytest.Staff().Admin}, Observe: first.observe})
	for _, agent := range agents {
		at := e
		at.URL = "/agents/" + agent + e.URL
		through(t, first.Fixture, agent, q.Fixture, at)
	}
	return first
}

// listAskers lists an MCP server that asks, in both ways.
func (q questioned) listAskers(t *testing.T) {
	t.Helper()
	for name, stateless := range map[string]bool{"asker-modern": true, "asker-legacy": false} {
		handler, end := questions.Server(stateless)
		server := listServerFixture(t, q.Fixture, name, "mcp-v1", "/mcp", handler)
		t.Cleanup(func() {
			server.CloseClientConnections() // a call that still asks ends with its connection
			end()
		})
	}
}

// isOneWorkflow demands that all since the last call is one workflow, which an auditor finds nothing wrong with. The
// records of a stream's end may follow its last event.
func (q questioned) isOneWorkflow(t *testing.T) (all questions.Workflow) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), questionPatience)
	defer cancel()
	var wrong []string
	if !gatewaytest.Soon(ctx, func() bool {
		all, wrong = q.judged(t)
		return len(wrong) == 0
	}) {
		t.Errorf("%q in\n%s", wrong, all)
	}
	return all
}

// judged are the records since the last call, and what is wrong with them.
func (q questioned) judged(t *testing.T) (all questions.Workflow, wrong []string) {
	t.Helper()
	wids := q.seen.since()
	if len(wids) != 1 {
		wrong = append(wrong, strconv.Itoa(len(wids))+" workflows, expected one")
	}
	for _, wid := range wids {
		workflow, found := questions.Read(t.Context(), q.Judge, q.pageOf(t, wid))
		all, wrong = append(all, workflow...), append(wrong, found...)
	}
	return all, slices.DeleteFunc(wrong, func(text string) bool {
		return q.open && strings.Contains(text, "opens a stream that no record closes")
	})
}

// pageOf are the tokens of a workflow as an auditor reads them at the admin API.
func (q questioned) pageOf(t *testing.T, wid string) []string {
	t.Helper()
	got := q.Send(t, gatewaytest.HTTPRequest{Via: q.As(t, "/staff/auditor"), Method: http.MethodGet, Media: "-", At: q.At.Admin + "/api/workflows/" + wid})
	var page struct {
		ECTs []string `json:"ects"`
	}
	if got.Status != http.StatusOK || json.Unmarshal(got.Body, &page) != nil {
		t.Fatalf("the workflow: %d %s", got.Status, gatewaytest.Short(got.Body))
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
				gatewaytest.Must(t, questions.AnswerA2A(t.Context(), q.Client, q.At.Public+"/agents/"+agent, agent))
				if workflow := q.isOneWorkflow(t); !workflow.Answers(q.Dev.Gateway.ID) {
					t.Errorf("no request has the reply with the question as parent in\n%s", workflow)
				}
			})
		}
		for _, version := range []string{"2026-07-28", "2025-11-25"} {
			for _, agent := range agents {
				if agent == "forecast" || q.relays(agent, version) {
					continue
				}
				t.Run(way+", MCP "+version+" to "+agent, func(t *testing.T) {
					q.seen.forget()
					gatewaytest.Must(t, questions.AnswerMCP(t.Context(), q.Client, q.At.Public+"/agents/"+agent+"/mcp", version, agent))
					q.isOneWorkflow(t)
				})
			}
		}
	}
}

// relays: between two of the revision with sessions the server's question and its answer pass as messages of their own, and the
// gateway, which does not know which call they are about, records the answer in a workflow of its own.
func (q questioned) relays(agent, version string) bool {
	return q.open || !q.far && agent == "asker-legacy" && version == "2025-11-25"
}
