package stories

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/descriptor"
	"github.com/aepb/aepb-gateway/gateway/httpapi/workflows"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

const sums = `{"wf_id":"sums","description":"adds, then adds again","nodes":[
	{"id":"first","label":"add","agent":"calculator"},{"id":"second","label":"add","agent":"calculator"},{"id":"last","label":"report","hitl_required":true}],
	"edges":[{"from":"first","to":"second"},{"from":"second","to":"last"}]}`

// TestPlan_StoredAndFollowed: an operator stores a plan; a caller without tokens begins a workflow that follows it, and
// sees which call began which node, what is pending, and what was not planned. Agents and gates are those of the gateway.
func TestPlan_StoredAndFollowed(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	store := func(text string) gatewaytest.Reply {
		request := b.Operator(http.MethodPost, "/api/descriptors", text, nil)
		request.Media = "application/atd-workflow+json"
		return b.Send(t, request)
	}
	if got := store(strings.ReplaceAll(sums, "calculator", "abacus")); got.Status != http.StatusBadRequest || !strings.Contains(string(got.Body), "is not in the directory") {
		t.Errorf("an unknown agent: %d %s", got.Status, got.Body)
	}
	if got := store(strings.Replace(sums, `"hitl_required":true`, `"hitl_required":true,"required_role":"operator:eve"`, 1)); got.Status != http.StatusBadRequest || !strings.Contains(string(got.Body), "gates without role") {
		t.Errorf("a gate that is closed to all: %d %s", got.Status, got.Body)
	}
	version := gatewaytest.Answered[descriptor.Version](t, store(sums), http.StatusCreated)
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/atd/workflows", Body: `{"descriptor":"sums"}`})
	var began struct {
		Workflow string `json:"wid"`
		ID       ect.ID `json:"jti"`
		Token    string `json:"ect"`
	}
	if got.Status != http.StatusCreated || json.Unmarshal(got.Body, &began) != nil {
		t.Fatalf("no workflow begins: %d %s", got.Status, got.Body)
	}
	start, _, err := ect.ParseUnverified(began.Token)
	gatewaytest.Must(t, err)
	if hash, _ := start.Ext.String(ect.ExtPlanHash); version.Number != 1 || hash != version.Hash || string(start.Ext[ect.ExtNodeCount]) != "3" {
		t.Errorf("version %+v, and the start says %s", version, start.Ext)
	}
	for i, want := range []string{"first:done second:pending last:pending", "first:done second:done last:pending", "first:done second:done :done last:pending"} {
		call := gatewaytest.ToolCall("calculator", "add", gatewaytest.AddArguments(int64(i+1)))
		call.Header["Aepb-Parent-Jti"] = string(began.ID)
		if got := b.Send(t, call); got.Status != http.StatusOK {
			t.Fatalf("call %d: %d %s", i+1, got.Status, got.Body)
		}
		report := gatewaytest.Answered[workflow.Report](t, b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/atd/workflows/" + began.Workflow, Media: "-"}), http.StatusOK)
		var nodes []string
		unplanned := []ect.ID(nil)
		for _, s := range report.Steps {
			nodes = append(nodes, s.Planned+":"+string(s.State))
			if s.Planned == "" {
				unplanned = append(unplanned, s.ID)
			}
		}
		if text := strings.Join(nodes, " "); text != want || report.Status != "running" || report.Descriptor != "sums" || !slices.Equal(report.Unplanned, unplanned) {
			t.Errorf("after call %d: %s, want %s: %+v", i+1, text, want, report)
		}
	}
	followed := gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/atd/workflows/" + began.Workflow + "/descriptor", Media: "-"}
	if plan := gatewaytest.Answered[workflows.Followed](t, b.Send(t, followed), http.StatusOK); plan.Text != sums || plan.Version != 1 || plan.Hash != version.Hash || len(plan.Agents["calculator"]) == 0 {
		t.Errorf("the plan that a member reads is %+v", plan)
	}
	followed.Via, _ = b.ClientOf(t, "/outsider")
	if got := b.Send(t, followed); got.Status != http.StatusNotFound {
		t.Errorf("another caller reads the plan: %d %s", got.Status, got.Body)
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{At: "/atd/workflows", Body: `{"descriptor":"others"}`}); got.Status != http.StatusNotFound || !strings.Contains(string(got.Body), "aepbctl workflow put") {
		t.Errorf("an unknown descriptor: %d %s", got.Status, got.Body)
	}
	if log := b.Logs.String(); !strings.Contains(log, `"path":"/api/descriptors"`) {
		t.Error("the log does not say who stored it")
	}
}
