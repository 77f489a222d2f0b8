package stories

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// Operators are known by certificate and may what their role says (R17).
func TestOperators_ByCertificate(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: gatewaytest.Staff(), NoToken: true})
	document := gatewaytest.AgentJSON("visitor", "mcp-v1", "https://visitor.example/mcp")
	certified := func(path, method, at, body string) gatewaytest.HTTPRequest {
		return gatewaytest.HTTPRequest{Via: b.As(t, path), Method: method, At: b.At.Admin + at, Body: body}
	}
	forbidden := gatewaytest.Want{Status: 403, Code: "forbidden"}
	var cases []gatewaytest.Refusal
	for _, role := range []string{"viewer", "approver", "auditor"} {
		cases = append(cases,
			gatewaytest.Sent(role+" adds", certified("/staff/"+role, "POST", "/api/agents", document), forbidden),
			gatewaytest.Sent(role+" removes", certified("/staff/"+role, "DELETE", "/api/agents/calculator", ""), forbidden))
	}
	cases = append(cases,
		gatewaytest.Sent("a stranger looks", certified("/client", "GET", "/api/agents", ""), forbidden),
		gatewaytest.Sent("a stranger asks who it is", certified("/client", "GET", "/api/operator", ""), forbidden),
		gatewaytest.Sent("an operator of a lower path", certified("/staff/operator/x", "GET", "/api/agents", ""), forbidden),
		gatewaytest.Sent("nobody looks", gatewaytest.HTTPRequest{Via: b.Anonymous, Method: "GET", At: b.At.Admin + "/api/agents"}, forbidden),
		gatewaytest.Sent("a token where there is none", b.Operator("GET", "/api/agents", "", nil), forbidden),
	)
	withToken := certified("/staff/operator", "GET", "/api/agents", "")
	withToken.Header = map[string]string{"Authorization": "Bearer " + b.AdminToken}
	cases = append(cases, gatewaytest.Sent("an operator with a token besides", withToken, forbidden))
	fromElsewhere := certified("/staff/operator", "POST", "/api/agents", document)
	fromElsewhere.Header = map[string]string{"Origin": "https://evil.example"}
	cases = append(cases, gatewaytest.Sent("a browser of an operator on a foreign page", fromElsewhere, forbidden))
	gatewaytest.Refusals(t, b, cases)

	for _, role := range []string{"viewer", "operator", "approver", "auditor"} {
		if got := b.Send(t, certified("/staff/"+role, "GET", "/api/agents", "")); got.Status != http.StatusOK || strings.Contains(string(got.Body), "visitor") {
			t.Errorf("%s: got %d %s", role, got.Status, got.Body)
		}
		got, self := b.Send(t, certified("/staff/"+role, "GET", "/api/operator", "")), fmt.Sprintf(`{"name":"the %[1]s","id":"spiffe://%[2]s/staff/%[1]s","roles":["%[1]s"],"open":true}`, role, gatewaytest.TrustDomain)
		if got.Status != http.StatusOK || string(got.Body) != self {
			t.Errorf("%s is known as %d %s, want %s", role, got.Status, got.Body, self)
		}
	}
	if got := b.Send(t, certified("/staff/operator", "POST", "/api/agents", document)); got.Status != http.StatusCreated {
		t.Errorf("the operator may not add: %d %s", got.Status, got.Body)
	}
	if got := b.Send(t, certified("/staff/operator", "DELETE", "/api/agents/visitor", "")); got.Status != http.StatusNoContent {
		t.Errorf("the operator may not remove: %d %s", got.Status, got.Body)
	}
	logs := b.Logs.String()
	for _, say := range []string{`"operator":"the operator"`, `"result":"done"`, `"result":"refused"`, `"path":"/api/agents/visitor"`} {
		if !strings.Contains(logs, say) {
			t.Errorf("%s is not in the log", say)
		}
	}
}

// Operators come and go while the gateway runs.
func TestOperators_Reload(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: gatewaytest.Staff(), NoToken: true})
	look := func() int {
		return b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/viewer"), Method: "GET", At: b.At.Admin + "/api/agents"}).Status
	}
	if got := look(); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
	next := b.Settings()
	next.Admin = config.Admin{}
	gatewaytest.Must(t, b.Reload(t.Context(), next))
	if got := look(); got != http.StatusForbidden {
		t.Errorf("who is no operator any more still looks: %d", got)
	}
}

// Auditors read every workflow and ECT, at the admin listener and, with their
// certificate, at the public one; each read is logged. Other roles need membership.
func TestOperator_AuditorReadsAllEvidence(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: gatewaytest.Staff(), NoToken: true})
	directions := b.Work(t)
	wid, jti := "/workflows/"+directions[0].Workflow, "/ects/"+string(directions[0].ID)
	for role, want := range map[string]int{"auditor": 200, "viewer": 403, "operator": 403, "approver": 403, "stranger": 403} {
		via := b.As(t, "/staff/"+role)
		for _, path := range []string{wid, jti} {
			if got := b.Send(t, gatewaytest.HTTPRequest{Via: via, Method: http.MethodGet, Media: "-", At: b.At.Admin + "/api" + path}); got.Status != want {
				t.Errorf("%s at the admin listener: %s got %d, want %d", role, path, got.Status, want)
			}
			public := map[int]int{200: 200, 403: 404}[want]
			if got := b.Send(t, gatewaytest.HTTPRequest{Via: via, Method: http.MethodGet, Media: "-", At: path}); got.Status != public {
				t.Errorf("%s at the public listener: %s got %d, want %d", role, path, got.Status, public)
			}
		}
	}
	if n := strings.Count(b.Logs.String(), "evidence read by an auditor"); n != 4 {
		t.Errorf("%d reads of the auditor are logged, want 4", n)
	}
}

// TestOperator_AuditorListsWorkflows: only auditors list the workflows of all callers, and each read is logged.
func TestOperator_AuditorListsWorkflows(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: gatewaytest.Staff(), NoToken: true})
	wid := b.Work(t)[0].Workflow
	path := b.At.Admin + "/api/workflows?since=" + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for role, want := range map[string]int{"auditor": 200, "viewer": 403, "operator": 403, "approver": 403, "stranger": 403} {
		got := b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/"+role), Method: http.MethodGet, Media: "-", At: path})
		if lists := strings.Contains(string(got.Body), wid); got.Status != want || lists != (want == 200) {
			t.Errorf("%s got %d %s, want %d", role, got.Status, got.Body, want)
		}
	}
	if n := strings.Count(b.Logs.String(), "evidence read by an auditor"); n != 1 {
		t.Errorf("%d reads of the auditor are logged, want 1", n)
	}
	got := b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/auditor"), Method: http.MethodGet, Media: "-", At: b.At.Admin + "/api/workflows?since=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	if want := `{"wids":[]}`; got.Status != http.StatusOK || strings.TrimSpace(string(got.Body)) != want {
		t.Errorf("since an hour that has not come: got %d %s, want %s", got.Status, got.Body, want)
	}
}

// TestOperator_AuditorWithoutACertificate: at the public listener, who names an auditor
// with a bearer token alone is a caller like any other (R17): a token can be stolen and
// passed on, a certificate's key cannot.
func TestOperator_AuditorWithoutACertificate(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: gatewaytest.Staff(), NoToken: true})
	directions, key := b.Work(t), b.NewTokenKey(t)
	bearer := map[string]string{"Authorization": "Bearer " + key.Token(t, "spiffe://"+gatewaytest.TrustDomain+"/staff/auditor", b.Self(), time.Minute)}
	for _, path := range []string{"/workflows/" + directions[0].Workflow, "/ects/" + string(directions[0].ID)} {
		if got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, Method: http.MethodGet, Media: "-", At: path, Header: bearer}); got.Status != http.StatusNotFound {
			t.Errorf("with a token: %s got %d, want 404", path, got.Status)
		}
		if got := b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/auditor"), Method: http.MethodGet, Media: "-", At: path}); got.Status != http.StatusOK {
			t.Errorf("with a certificate: %s got %d, want 200", path, got.Status)
		}
	}
	if n := strings.Count(b.Logs.String(), "evidence read by an auditor"); n != 2 {
		t.Errorf("%d reads of the auditor are logged, want the 2 with a certificate", n)
	}
}
