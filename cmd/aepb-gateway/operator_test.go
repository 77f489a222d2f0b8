package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// staff is a gateway whose operators have one role each.
func staff() config.Config {
	operators := map[string]config.Operator{}
	for _, role := range []string{"viewer", "operator", "approver", "auditor"} {
		operators["the "+role] = config.Operator{ID: "spiffe://" + devTrustDomain + "/staff/" + role, Roles: []string{role}}
	}
	return config.Config{Admin: config.Admin{Operators: operators}}
}

// as is a client with the certificate of one of them, or of a stranger.
func (b *bed) as(t *testing.T, path string) *http.Client {
	t.Helper()
	svid, err := b.dev.Authority.Issue(path, identity.SVIDRequest{})
	must(t, err)
	return b.caller(t, svid)
}

// Operators are known by certificate and may what their role says (R17).
func TestOperatorsByCertificate(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: staff(), noToken: true})
	document := agentJSON("visitor", "mcp-v1", "https://visitor.example/mcp")
	certified := func(path, method, at, body string) letter {
		return letter{via: b.as(t, path), method: method, at: b.at.Admin + at, body: body}
	}
	forbidden := want{status: 403, code: "forbidden"}
	var cases []refusal
	for _, role := range []string{"viewer", "approver", "auditor"} {
		cases = append(cases,
			sent(role+" adds", certified("/staff/"+role, "POST", "/api/agents", document), forbidden),
			sent(role+" removes", certified("/staff/"+role, "DELETE", "/api/agents/calculator", ""), forbidden))
	}
	cases = append(cases,
		sent("a stranger looks", certified("/client", "GET", "/api/agents", ""), forbidden),
		sent("a stranger asks who it is", certified("/client", "GET", "/api/operator", ""), forbidden),
		sent("an operator of a lower path", certified("/staff/operator/x", "GET", "/api/agents", ""), forbidden),
		sent("nobody looks", letter{via: b.anonymous, method: "GET", at: b.at.Admin + "/api/agents"}, forbidden),
		sent("a token where there is none", b.operator("GET", "/api/agents", "", nil), forbidden),
	)
	withToken := certified("/staff/operator", "GET", "/api/agents", "")
	withToken.header = map[string]string{"Authorization": "Bearer " + b.adminToken}
	cases = append(cases, sent("an operator with a token besides", withToken, forbidden))
	fromElsewhere := certified("/staff/operator", "POST", "/api/agents", document)
	fromElsewhere.header = map[string]string{"Origin": "https://evil.example"}
	cases = append(cases, sent("a browser of an operator on a foreign page", fromElsewhere, forbidden))
	refusals(t, b, cases)

	for _, role := range []string{"viewer", "operator", "approver", "auditor"} {
		if got := b.send(t, certified("/staff/"+role, "GET", "/api/agents", "")); got.status != http.StatusOK || strings.Contains(string(got.body), "visitor") {
			t.Errorf("%s: got %d %s", role, got.status, got.body)
		}
		got, self := b.send(t, certified("/staff/"+role, "GET", "/api/operator", "")), fmt.Sprintf(`{"name":"the %[1]s","id":"spiffe://%[2]s/staff/%[1]s","roles":["%[1]s"],"open":true}`, role, devTrustDomain)
		if got.status != http.StatusOK || string(got.body) != self {
			t.Errorf("%s is known as %d %s, want %s", role, got.status, got.body, self)
		}
	}
	if got := b.send(t, certified("/staff/operator", "POST", "/api/agents", document)); got.status != http.StatusCreated {
		t.Errorf("the operator may not add: %d %s", got.status, got.body)
	}
	if got := b.send(t, certified("/staff/operator", "DELETE", "/api/agents/visitor", "")); got.status != http.StatusNoContent {
		t.Errorf("the operator may not remove: %d %s", got.status, got.body)
	}
	logs := b.logs.String()
	for _, say := range []string{`"operator":"the operator"`, `"result":"done"`, `"result":"refused"`, `"path":"/api/agents/visitor"`} {
		if !strings.Contains(logs, say) {
			t.Errorf("%s is not in the log", say)
		}
	}
}

// Operators come and go while the gateway runs.
func TestOperatorsReload(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: staff(), noToken: true})
	look := func() int {
		return b.send(t, letter{via: b.as(t, "/staff/viewer"), method: "GET", at: b.at.Admin + "/api/agents"}).status
	}
	if got := look(); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
	next := b.settings.config
	next.Admin = config.Admin{}
	must(t, b.reload(t.Context(), next))
	if got := look(); got != http.StatusForbidden {
		t.Errorf("who is no operator any more still looks: %d", got)
	}
}

// Auditors read every workflow and ECT, at the admin listener and, with their
// certificate, at the public one; each read is logged. Other roles need membership.
func TestOperator_AuditorReadsAllEvidence(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: staff(), noToken: true})
	legs := b.work(t)
	wid, jti := "/workflows/"+legs[0].Workflow, "/ects/"+string(legs[0].ID)
	for role, want := range map[string]int{"auditor": 200, "viewer": 403, "operator": 403, "approver": 403, "stranger": 403} {
		via := b.as(t, "/staff/"+role)
		for _, path := range []string{wid, jti} {
			if got := b.send(t, letter{via: via, method: http.MethodGet, media: "-", at: b.at.Admin + "/api" + path}); got.status != want {
				t.Errorf("%s at the admin listener: %s got %d, want %d", role, path, got.status, want)
			}
			public := map[int]int{200: 200, 403: 404}[want]
			if got := b.send(t, letter{via: via, method: http.MethodGet, media: "-", at: path}); got.status != public {
				t.Errorf("%s at the public listener: %s got %d, want %d", role, path, got.status, public)
			}
		}
	}
	if n := strings.Count(b.logs.String(), "evidence read by an auditor"); n != 4 {
		t.Errorf("%d reads of the auditor are logged, want 4", n)
	}
}

// TestOperator_AuditorListsWorkflows: only auditors list the workflows of all callers, and each read is logged.
func TestOperator_AuditorListsWorkflows(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: staff(), noToken: true})
	wid := b.work(t)[0].Workflow
	path := b.at.Admin + "/api/workflows?since=" + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for role, want := range map[string]int{"auditor": 200, "viewer": 403, "operator": 403, "approver": 403, "stranger": 403} {
		got := b.send(t, letter{via: b.as(t, "/staff/"+role), method: http.MethodGet, media: "-", at: path})
		if lists := strings.Contains(string(got.body), wid); got.status != want || lists != (want == 200) {
			t.Errorf("%s got %d %s, want %d", role, got.status, got.body, want)
		}
	}
	if n := strings.Count(b.logs.String(), "evidence read by an auditor"); n != 1 {
		t.Errorf("%d reads of the auditor are logged, want 1", n)
	}
	got := b.send(t, letter{via: b.as(t, "/staff/auditor"), method: http.MethodGet, media: "-", at: b.at.Admin + "/api/workflows?since=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	if want := `{"wids":[]}`; got.status != http.StatusOK || strings.TrimSpace(string(got.body)) != want {
		t.Errorf("since an hour that has not come: got %d %s, want %s", got.status, got.body, want)
	}
}

// TestOperator_AuditorWithoutACertificate: at the public listener, who names an auditor
// with a bearer token alone is a caller like any other (R17): a token can be stolen and
// passed on, a certificate's key cannot.
func TestOperator_AuditorWithoutACertificate(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: staff(), noToken: true})
	legs, key := b.work(t), b.newTokenKey(t)
	bearer := map[string]string{"Authorization": "Bearer " + key.token(t, "spiffe://"+devTrustDomain+"/staff/auditor", b.self(), time.Minute)}
	for _, path := range []string{"/workflows/" + legs[0].Workflow, "/ects/" + string(legs[0].ID)} {
		if got := b.send(t, letter{via: b.anonymous, method: http.MethodGet, media: "-", at: path, header: bearer}); got.status != http.StatusNotFound {
			t.Errorf("with a token: %s got %d, want 404", path, got.status)
		}
		if got := b.send(t, letter{via: b.as(t, "/staff/auditor"), method: http.MethodGet, media: "-", at: path}); got.status != http.StatusOK {
			t.Errorf("with a certificate: %s got %d, want 200", path, got.status)
		}
	}
	if n := strings.Count(b.logs.String(), "evidence read by an auditor"); n != 2 {
		t.Errorf("%d reads of the auditor are logged, want the 2 with a certificate", n)
	}
}
