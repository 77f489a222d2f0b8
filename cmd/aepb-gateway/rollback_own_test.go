package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

// rollsBackItself has an agent do something in a workflow that was begun, and the gateway ask it to roll back, for an operator.
func (b *bed) rollsBackItself(t *testing.T, name, body string) {
	t.Helper()
	agent, found := b.directory.Find(name)
	if !found {
		t.Fatalf("%s is not listed", name)
	}
	agent.Undo = directory.Undo{Own: true}
	must(t, b.directory.Put(agent))
	_, start := b.begun(t)
	got := b.send(t, letter{at: "/agents/" + name + "/a2a", body: body, header: map[string]string{"A2A-Version": "1.0", "Aepb-Parent-Jti": string(start)}})
	if got.status != http.StatusOK || got.header.Get("Aepb-Reversible") != "true" {
		t.Fatalf("%s: %d, reversible is %q: %s", name, got.status, got.header.Get("Aepb-Reversible"), short(got.body))
	}
	var made ect.ID
	for _, compact := range got.header.Values(ect.HeaderName) {
		if claims, _, err := ect.ParseUnverified(compact); err == nil && claims.Act == ect.ActCheckpoint && string(claims.Issuer) == b.self() {
			made = claims.ID
		}
	}
	rollbacks := b.gateway.Parts().Rollbacks
	view, err := rollbacks.Begin(t.Context(), rollback.Command{From: made, Reason: "wrong"})
	must(t, err)
	wid := view.Workflow
	within(t, 10*time.Second, "the end of the rollback", func() bool {
		view, err = rollbacks.Look(t.Context(), wid, view.Request)
		must(t, err)
		return view.Status != ""
	})
	if view.Status != "completed" || len(view.Steps) != 1 || view.Steps[0].How != "agent" {
		t.Errorf("%s: the rollback is %+v", name, view)
	}
}

// TestRollback_ByTheAgentsOwnSignal: an agent of each protocol that rolls back itself is asked in the form of its protocol, with a token of the
// gateway's own: over HTTP beside its endpoint, in a frame of µACP, an AtdRollbackRequest of AINP, a call of SLIM.
func TestRollback_ByTheAgentsOwnSignal(t *testing.T) {
	t.Parallel()
	p := plan{}
	net := newSLIMNet(t, &p)
	b := newBed(t, p)

	over := b.undoable(t, "undo-a2a-v1", "a2a-v1")
	b.rollsBackItself(t, "undo-a2a-v1", textBody("go"))
	b.undoable(t, "undo-mcp-v1", "mcp-v1")
	b.rollsBackItself(t, "undo-mcp-v1", addBody(1))
	over.tell(func() {
		request, _, err := ect.ParseUnverified(over.asked[0][0])
		if err != nil || string(request.Issuer) != b.self() || len(over.asked) != 1 {
			t.Errorf("the agent was asked %d times, by %s", len(over.asked), request.Issuer)
		}
	})

	frames := &uacpFake{}
	b.uacpAgent(t, "abacus", frames, "")
	frames.undo = b.undoes(t, frames)
	b.rollsBackItself(t, "abacus", addBody(1))

	svid := b.svid(t, "/careful")
	intents := &careful{t: t, b: b, by: b.party(t, svid)}
	server := httptest.NewUnstartedServer(intents)
	server.TLS = serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.listAs(t, "careful", svid.ID, directory.Endpoint{Binding: ainp.Binding, URL: server.URL, DID: did("careful").DID})
	b.rollsBackItself(t, "careful", textBody("go"))

	var requests atomic.Int64
	member := &slimFake{}
	b.slimAgent(t, net, "adder", "", member)
	signer := b.party(t, b.svid(t, "/adder"))
	member.rollback = func(token string) string {
		requests.Add(1)
		request, _, err := ect.ParseUnverified(token)
		if err != nil {
			return ""
		}
		return signing(t, signer, ect.Claims{
			Act: ect.ActRollbackResult, Audience: []string{b.self()}, Workflow: request.Workflow, Parents: []ect.ID{request.ID}, Ext: restored(request),
		})
	}
	b.rollsBackItself(t, "adder", addBody(1))
	if requests.Load() != 1 {
		t.Errorf("the member was asked %d times", requests.Load())
	}
}
