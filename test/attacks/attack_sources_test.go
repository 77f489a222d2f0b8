package attacks

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// sourceOf signs a source for a body in the attacker's own name.
func sourceOf(t *testing.T, a gatewaytest.Attacker, body string) string {
	t.Helper()
	return ecttest.Mint(t, a.Party, a.Recipe(body))
}

// TestAttack_OwnSourceBesideAnothersToken: the attacker knows a token of the victim
// and its body, as every agent behind us does, and sends both beside a newer token of
// its own. Before, it got the victim's stored answer; a token that the victim had not
// sent yet was used up, and the victim then got the answer to the attacker's message.
// Now only a caller's own tokens are used up, and answered from what is stored.
func TestAttack_OwnSourceBesideAnothersToken(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	a := b.Attacker(t)
	n := b.Number()
	body := gatewaytest.AddBody(n)
	token := b.Token(t, body)
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: body, Tokens: []string{token}}), `"sum":`+strconv.FormatInt(n+1, 10))
	for name, tokens := range map[string][]string{
		"behind its own": {sourceOf(t, a, body), token}, "before its own": {token, sourceOf(t, a, body)},
	} {
		got := b.Send(t, gatewaytest.HTTPRequest{Via: a.Client, At: gatewaytest.ToNobody, Body: body, Tokens: tokens})
		if strings.Contains(string(got.Body), "sum") {
			t.Errorf("the victim's token %s: the attacker got the stored answer", name)
		}
	}
	n = b.Number()
	body = gatewaytest.AddBody(n)
	token = b.Token(t, body)
	if got := b.Send(t, gatewaytest.HTTPRequest{Via: a.Client, At: gatewaytest.ToNobody, Body: body, Tokens: []string{sourceOf(t, a, body), token}}); got.Status != http.StatusOK {
		t.Errorf("a message of the attacker's own beside another's token: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: body, Tokens: []string{token}}), `"sum":`+strconv.FormatInt(n+1, 10))
}

// TestAttack_StoredAnswerOfAnotherAgent: a caller who may not call an agent any more
// repeats an earlier message to it at another agent, which it may call. Before, it got
// the stored answer of the first agent. Now a token that was used for one agent is a
// replay at every other.
func TestAttack_StoredAnswerOfAnotherAgent(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	n := b.Number()
	body := gatewaytest.AddBody(n)
	token := b.Token(t, body)
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: body, Tokens: []string{token}}), `"sum":`+strconv.FormatInt(n+1, 10))
	agent, _ := b.Directory().Find("members")
	agent.Rules = policy.Rules{Callers: []string{"spiffe://" + gatewaytest.TrustDomain + "/another"}}
	gatewaytest.Must(t, b.Directory().Put(agent))
	for _, at := range []string{gatewaytest.ToMembers, gatewaytest.ToNobody, "/aepb/translate?from=a2a-v1&dest=calculator"} {
		if got := b.Send(t, gatewaytest.HTTPRequest{At: at, Body: body, Tokens: []string{token}}); got.Status != http.StatusForbidden || strings.Contains(string(got.Body), "sum") {
			t.Errorf("at %s: %d %s, want 403", at, got.Status, gatewaytest.Short(got.Body))
		}
	}
}

// TestAttack_StoredAnswerOfAnOperationThatIsNotPermittedNow: a caller may still call
// the agent, but not this operation. Before, the operation was judged only after the
// stored answer had been given. Now it is judged before.
func TestAttack_StoredAnswerOfAnOperationThatIsNotPermittedNow(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	n := b.Number()
	body := gatewaytest.AddBody(n)
	token := b.Token(t, body)
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: body, Tokens: []string{token}}), `"sum":`+strconv.FormatInt(n+1, 10))
	agent, _ := b.Directory().Find("members")
	agent.Rules = policy.Rules{Callers: []string{string(b.Me.ID) + "#task.get"}}
	gatewaytest.Must(t, b.Directory().Put(agent))
	if got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToMembers, Body: body, Tokens: []string{token}}); got.Status != http.StatusForbidden || strings.Contains(string(got.Body), "sum") {
		t.Errorf("got %d %s, want 403", got.Status, gatewaytest.Short(got.Body))
	}
}

// TestAttack_ApproverJoinsByItsDecision: an approver may decide about work of others
// without belonging to it. It named its own decision as the parent of an ordinary
// message. Before, that message became part of the workflow and the approver a member,
// who reads all of it. Now a parent reference needs membership of its workflow.
func TestAttack_ApproverJoinsByItsDecision(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	directions := b.Work(t)
	wid := directions[0].Workflow
	svid := b.SVID(t, gatewaytest.ApproverPath)
	approver := gatewaytest.Attacker{Fixture: b, Party: b.Party(t, svid), Client: b.Caller(t, svid)}
	decision := ect.NewID()
	body := gatewaytest.AddBody(b.Number())
	token := ecttest.Mint(t, approver.Party, ecttest.Recipe{Claims: ect.Claims{
		ID: decision, Act: ect.ActApprovalGranted, Audience: []string{b.Self()}, Workflow: wid, Parents: []ect.ID{directions[0].ID},
		InputHash: directions[0].InputHash, OutputHash: ect.Hash([]byte(body)),
	}})
	if got := b.Send(t, gatewaytest.HTTPRequest{Via: approver.Client, At: gatewaytest.ToNobody, Body: body, Tokens: []string{token}}); got.Status != http.StatusForbidden {
		t.Errorf("a message that is no decision: %d, want 403", got.Status)
	}
	got := b.Send(t, gatewaytest.HTTPRequest{Via: approver.Client, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number()), Header: map[string]string{
		"A2A-Version": "1.0", transport.FieldParent: string(decision),
	}})
	if strings.Contains(string(got.Body), `"sum"`) {
		t.Errorf("the approver's message got into the workflow: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	if got := approver.Get(t, "/workflows/"+wid); got != http.StatusNotFound {
		t.Errorf("the approver reads the workflow: %d, want 404", got)
	}
}

// TestAttack_MessageThatWaitsForAWorkflow: the attacker learns the name of a workflow
// that is about to begin here. Its message was judged when nothing was on record yet,
// and waited for an agent's document while the workflow began. Before, its token, or
// the evidence of its refusal, then made it a member. Now a token that would begin a
// workflow is refused where one has begun, and the refusal is kept apart.
func TestAttack_MessageThatWaitsForAWorkflow(t *testing.T) {
	t.Parallel()
	for name, parents := range map[string][]ect.ID{"a root": nil, "a child of an invented one": {ect.NewID()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
			a := b.Attacker(t)
			recipe := b.Recipe("")
			wid, began := recipe.Claims.Workflow, 0
			library := b.Library(t, b.SVID(t, "/calculator"), func(w http.ResponseWriter, r *http.Request) {
				body := gatewaytest.AddBody(b.Number())
				own := b.Recipe(body)
				own.Claims.Workflow = wid
				if got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToNobody, Body: body, Tokens: []string{ecttest.Mint(t, b.Me, own)}}); got.Status == http.StatusOK { //nolint:contextcheck // the test's context
					began++
				}
				gatewaytest.Page(b.CalculatorDocument(t, "active", "null"))(w, r)
			})
			b.Describe(t, "slow", library.URL, "")
			body := gatewaytest.AddBody(b.Number())
			token := ecttest.Mint(t, a.Party, ecttest.Recipe{Claims: ect.Claims{
				Audience: []string{b.Self()}, Workflow: wid, Parents: parents, OutputHash: ect.Hash([]byte(body)),
			}})
			got := b.Send(t, gatewaytest.HTTPRequest{Via: a.Client, At: "/aepb/translate?from=a2a-v1&dest=slow", Body: body, Tokens: []string{token}})
			if began == 0 {
				t.Fatal("the workflow did not begin meanwhile")
			}
			if got.Status != http.StatusForbidden {
				t.Errorf("the attacker's message got %d %s, want 403", got.Status, gatewaytest.Short(got.Body))
			}
			if got := a.Get(t, "/workflows/"+wid); got != http.StatusNotFound {
				t.Errorf("the attacker reads the workflow: %d, want 404", got)
			}
			if got := ectsOf(t, b, wid); got != 2 {
				t.Errorf("the workflow has %d tokens, want the 2 of its owner", got)
			}
		})
	}
}

// TestAttack_RollbackResultOfAnotherIssuer: an agent that the directory knows by its
// URL alone answers a rollback with a result that another party signed, and that names
// a third. Before, that result made the third a member. Now only the result of an
// agent with an identity makes members.
func TestAttack_RollbackResultOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	a := b.Attacker(t)
	agent, helper := b.Undoable(t, "undo", "a2a-v1"), b.Party(t, b.SVID(t, "/helper"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == gatewaytest.RollbackAt {
			agent.Undo(t, w, r)
			return
		}
		agent.SpeakA2A(w, r)
	}))
	t.Cleanup(server.Close)
	b.List(t, "undo", "a2a-v1", server.URL+"/agent", gatewaytest.Host{Plain: true})
	agent.Other = func(w http.ResponseWriter, requested, _ string) {
		request, _, err := ect.ParseUnverified(requested)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set(ect.HeaderName, gatewaytest.Signing(t, helper, ect.Claims{
			Act: ect.ActRollbackResult, Audience: []string{string(request.Issuer), string(a.Party.ID)}, Workflow: request.Workflow, Parents: []ect.ID{request.ID},
			OutputHash: ect.Hash([]byte("as it was")), Ext: gatewaytest.Restored(request),
		}))
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/undo/a2a", Body: gatewaytest.TextBody("go"), Header: map[string]string{"A2A-Version": "1.0"}}); got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	if got := b.Send(t, b.Rollback(t, b.Me, agent.Last.Workflow, agent.Last.ID)); got.Status != http.StatusOK {
		t.Fatalf("the rollback got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	if got := a.Get(t, "/workflows/"+agent.Last.Workflow); got != http.StatusNotFound {
		t.Errorf("who is named by the result reads the workflow: %d, want 404", got)
	}
}

// TestAttack_StoredRollbackOfAnOperationThatIsNotPermittedNow: a caller who may still
// call the agent, but not roll back there, repeats an earlier rollback. Before, it got
// the stored result. Now the operation is judged first.
func TestAttack_StoredRollbackOfAnOperationThatIsNotPermittedNow(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	agent := b.Undoable(t, "undo", "a2a-v1")
	if got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/undo/a2a", Body: gatewaytest.TextBody("go"), Header: map[string]string{"A2A-Version": "1.0"}}); got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	asks := b.Rollback(t, b.Me, agent.Last.Workflow, agent.Last.ID)
	for _, tc := range []struct {
		operation string
		want      int
	}{{"", http.StatusOK}, {"#rollback", http.StatusOK}, {"#invoke", http.StatusForbidden}} {
		listed, _ := b.Directory().Find("undo")
		listed.Rules = policy.Rules{Callers: []string{string(b.Me.ID) + tc.operation}}
		gatewaytest.Must(t, b.Directory().Put(listed))
		if got := b.Send(t, asks); got.Status != tc.want {
			t.Errorf("a caller with the rule %q: %d, want %d", tc.operation, got.Status, tc.want)
		}
	}
}
