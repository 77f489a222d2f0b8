package main

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
)

// sourceOf signs a source for a body in the attacker's own name.
func (a attacker) sourceOf(t *testing.T, body string) string {
	t.Helper()
	return ecttest.Mint(t, a.party, a.recipe(body))
}

// TestAttack_OwnSourceBesideAnothersToken: the attacker knows a token of the victim
// and its body, as every agent behind us does, and sends both beside a newer token of
// its own. Before, it got the victim's stored answer; a token that the victim had not
// sent yet was used up, and the victim then got the answer to the attacker's message.
// Now only a caller's own tokens are used up, and answered from what is stored.
func TestAttack_OwnSourceBesideAnothersToken(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	a := b.attacker(t)
	n := b.number()
	body := addBody(n)
	token := b.token(t, body)
	b.right(t, b.send(t, letter{at: toMembers, body: body, tokens: []string{token}}), `"sum":`+strconv.FormatInt(n+1, 10))
	for name, tokens := range map[string][]string{
		"behind its own": {a.sourceOf(t, body), token}, "before its own": {token, a.sourceOf(t, body)},
	} {
		got := b.send(t, letter{via: a.client, at: toNobody, body: body, tokens: tokens})
		if strings.Contains(string(got.body), "sum") {
			t.Errorf("the victim's token %s: the attacker got the stored answer", name)
		}
	}
	n = b.number()
	body = addBody(n)
	token = b.token(t, body)
	if got := b.send(t, letter{via: a.client, at: toNobody, body: body, tokens: []string{a.sourceOf(t, body), token}}); got.status != http.StatusOK {
		t.Errorf("a message of the attacker's own beside another's token: %d %s", got.status, short(got.body))
	}
	b.right(t, b.send(t, letter{at: toMembers, body: body, tokens: []string{token}}), `"sum":`+strconv.FormatInt(n+1, 10))
}

// TestAttack_StoredAnswerOfAnotherAgent: a caller who may not call an agent any more
// repeats an earlier message to it at another agent, which it may call. Before, it got
// the stored answer of the first agent. Now a token that was used for one agent is a
// replay at every other.
func TestAttack_StoredAnswerOfAnotherAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	n := b.number()
	body := addBody(n)
	token := b.token(t, body)
	b.right(t, b.send(t, letter{at: toMembers, body: body, tokens: []string{token}}), `"sum":`+strconv.FormatInt(n+1, 10))
	agent, _ := b.directory.Find("members")
	agent.Rules = policy.Rules{Callers: []string{"spiffe://" + devTrustDomain + "/another"}}
	must(t, b.directory.Put(agent))
	for _, at := range []string{toMembers, toNobody, "/aepb/translate?from=a2a-v1&dest=calculator"} {
		if got := b.send(t, letter{at: at, body: body, tokens: []string{token}}); got.status != http.StatusForbidden || strings.Contains(string(got.body), "sum") {
			t.Errorf("at %s: %d %s, want 403", at, got.status, short(got.body))
		}
	}
}

// TestAttack_StoredAnswerOfAnOperationThatIsNotPermittedNow: a caller may still call
// the agent, but not this operation. Before, the operation was judged only after the
// stored answer had been given. Now it is judged before.
func TestAttack_StoredAnswerOfAnOperationThatIsNotPermittedNow(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	n := b.number()
	body := addBody(n)
	token := b.token(t, body)
	b.right(t, b.send(t, letter{at: toMembers, body: body, tokens: []string{token}}), `"sum":`+strconv.FormatInt(n+1, 10))
	agent, _ := b.directory.Find("members")
	agent.Rules = policy.Rules{Callers: []string{string(b.me.ID) + "#task.get"}}
	must(t, b.directory.Put(agent))
	if got := b.send(t, letter{at: toMembers, body: body, tokens: []string{token}}); got.status != http.StatusForbidden || strings.Contains(string(got.body), "sum") {
		t.Errorf("got %d %s, want 403", got.status, short(got.body))
	}
}

// TestAttack_ApproverJoinsByItsDecision: an approver may decide about work of others
// without belonging to it. It named its own decision as the parent of an ordinary
// message. Before, that message became part of the workflow and the approver a member,
// who reads all of it. Now a parent reference needs membership of its workflow.
func TestAttack_ApproverJoinsByItsDecision(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	legs := b.work(t)
	wid := legs[0].Workflow
	svid := b.svid(t, approverPath)
	approver := attacker{b, b.party(t, svid), b.caller(t, svid)}
	decision := ect.NewID()
	body := addBody(b.number())
	token := ecttest.Mint(t, approver.party, ecttest.Recipe{Claims: ect.Claims{
		ID: decision, Act: ect.ActApprovalGranted, Audience: []string{b.self()}, Workflow: wid, Parents: []ect.ID{legs[0].ID},
		InputHash: legs[0].InputHash, OutputHash: ect.Hash([]byte(body)),
	}})
	if got := b.send(t, letter{via: approver.client, at: toNobody, body: body, tokens: []string{token}}); got.status != http.StatusForbidden {
		t.Errorf("a message that is no decision: %d, want 403", got.status)
	}
	got := b.send(t, letter{via: approver.client, at: doorA2A, body: addBody(b.number()), header: map[string]string{
		"A2A-Version": "1.0", transport.FieldParent: string(decision),
	}})
	if strings.Contains(string(got.body), `"sum"`) {
		t.Errorf("the approver's message got into the workflow: %d %s", got.status, short(got.body))
	}
	if got := approver.get(t, "/workflows/"+wid); got != http.StatusNotFound {
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
			b := newBed(t, plan{})
			a := b.attacker(t)
			recipe := b.recipe("")
			wid, began := recipe.Claims.Workflow, 0
			library := b.library(t, b.svid(t, "/calculator"), func(w http.ResponseWriter, r *http.Request) {
				body := addBody(b.number())
				own := b.recipe(body)
				own.Claims.Workflow = wid
				if got := b.send(t, letter{at: toNobody, body: body, tokens: []string{ecttest.Mint(t, b.me, own)}}); got.status == http.StatusOK { //nolint:contextcheck // the test's context
					began++
				}
				page(b.calculatorDocument(t, "active", "null"))(w, r)
			})
			b.describe(t, "slow", library.url, "")
			body := addBody(b.number())
			token := ecttest.Mint(t, a.party, ecttest.Recipe{Claims: ect.Claims{
				Audience: []string{b.self()}, Workflow: wid, Parents: parents, OutputHash: ect.Hash([]byte(body)),
			}})
			got := b.send(t, letter{via: a.client, at: "/aepb/translate?from=a2a-v1&dest=slow", body: body, tokens: []string{token}})
			if began == 0 {
				t.Fatal("the workflow did not begin meanwhile")
			}
			if got.status != http.StatusForbidden {
				t.Errorf("the attacker's message got %d %s, want 403", got.status, short(got.body))
			}
			if got := a.get(t, "/workflows/"+wid); got != http.StatusNotFound {
				t.Errorf("the attacker reads the workflow: %d, want 404", got)
			}
			if got := b.ectsOf(t, wid); got != 2 {
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
	b := newBed(t, plan{})
	a := b.attacker(t)
	agent, helper := b.undoable(t, "undo", "a2a-v1"), b.party(t, b.svid(t, "/helper"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == rollbackAt {
			agent.undo(t, w, r)
			return
		}
		agent.speakA2A(w, r)
	}))
	t.Cleanup(server.Close)
	b.list(t, "undo", "a2a-v1", server.URL+"/agent", host{plain: true})
	agent.other = func(w http.ResponseWriter, asked, _ string) {
		request, _, err := ect.ParseUnverified(asked)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set(ect.HeaderName, signing(t, helper, ect.Claims{
			Act: ect.ActRollbackResult, Audience: []string{string(request.Issuer), string(a.party.ID)}, Workflow: request.Workflow, Parents: []ect.ID{request.ID},
			OutputHash: ect.Hash([]byte("as it was")), Ext: restored(request),
		}))
	}
	if got := b.send(t, letter{at: "/agents/undo/a2a", body: textBody("go"), header: map[string]string{"A2A-Version": "1.0"}}); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, short(got.body))
	}
	if got := b.send(t, b.rollback(t, b.me, agent.last.Workflow, agent.last.ID)); got.status != http.StatusOK {
		t.Fatalf("the rollback got %d %s", got.status, short(got.body))
	}
	if got := a.get(t, "/workflows/"+agent.last.Workflow); got != http.StatusNotFound {
		t.Errorf("who is named by the result reads the workflow: %d, want 404", got)
	}
}

// TestAttack_StoredRollbackOfAnOperationThatIsNotPermittedNow: a caller who may still
// call the agent, but not roll back there, repeats an earlier rollback. Before, it got
// the stored result. Now the operation is judged first.
func TestAttack_StoredRollbackOfAnOperationThatIsNotPermittedNow(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	agent := b.undoable(t, "undo", "a2a-v1")
	if got := b.send(t, letter{at: "/agents/undo/a2a", body: textBody("go"), header: map[string]string{"A2A-Version": "1.0"}}); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, short(got.body))
	}
	asks := b.rollback(t, b.me, agent.last.Workflow, agent.last.ID)
	for _, tc := range []struct {
		operation string
		want      int
	}{{"", http.StatusOK}, {"#rollback", http.StatusOK}, {"#invoke", http.StatusForbidden}} {
		listed, _ := b.directory.Find("undo")
		listed.Rules = policy.Rules{Callers: []string{string(b.me.ID) + tc.operation}}
		must(t, b.directory.Put(listed))
		if got := b.send(t, asks); got.status != tc.want {
			t.Errorf("a caller with the rule %q: %d, want %d", tc.operation, got.status, tc.want)
		}
	}
}
