package stories

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

// rollsBackItself has an agent do something in a workflow that was begun, and the gateway ask it to roll back, for an operator.
func rollsBackItself(t *testing.T, b *gatewaytest.Fixture, name, body string) {
	t.Helper()
	agent, found := b.Directory().Find(name)
	if !found {
		t.Fatalf("%s is not listed", name)
	}
	agent.Undo = directory.Undo{Own: true}
	gatewaytest.Must(t, b.Directory().Put(agent))
	_, start := begun(t, b)
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + name + "/a2a", Body: body, Header: map[string]string{"A2A-Version": "1.0", "Aepb-Parent-Jti": string(start)}})
	if got.Status != http.StatusOK || got.Header.Get("Aepb-Reversible") != "true" {
		t.Fatalf("%s: %d, reversible is %q: %s", name, got.Status, got.Header.Get("Aepb-Reversible"), gatewaytest.Short(got.Body))
	}
	var made ect.ID
	for _, compact := range got.Header.Values(ect.HeaderName) {
		if claims, _, err := ect.ParseUnverified(compact); err == nil && claims.Act == ect.ActCheckpoint && string(claims.Issuer) == b.Self() {
			made = claims.ID
		}
	}
	rollbacks := b.Gateway().Parts().Rollbacks
	view, err := rollbacks.Begin(t.Context(), rollback.Command{From: made, Reason: "wrong"})
	gatewaytest.Must(t, err)
	wid := view.Workflow
	gatewaytest.Within(t, 10*time.Second, "the end of the rollback", func() bool {
		view, err = rollbacks.Look(t.Context(), wid, view.Request)
		gatewaytest.Must(t, err)
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
	p := gatewaytest.Plan{}
	net := gatewaytest.NewSLIMNet(t, &p)
	b := gatewaytest.NewFixture(t, p)

	over := b.Undoable(t, "undo-a2a-v1", "a2a-v1")
	rollsBackItself(t, b, "undo-a2a-v1", gatewaytest.TextBody("go"))
	b.Undoable(t, "undo-mcp-v1", "mcp-v1")
	rollsBackItself(t, b, "undo-mcp-v1", gatewaytest.AddBody(1))
	over.Tell(func() {
		request, _, err := ect.ParseUnverified(over.Requests[0][0])
		if err != nil || string(request.Issuer) != b.Self() || len(over.Requests) != 1 {
			t.Errorf("the agent was asked %d times, by %s", len(over.Requests), request.Issuer)
		}
	})

	frames := &gatewaytest.UACPFake{}
	b.UACPAgent(t, "abacus", frames, "")
	frames.Undo = b.Undoes(t, frames)
	rollsBackItself(t, b, "abacus", gatewaytest.AddBody(1))

	svid := b.SVID(t, "/careful")
	intents := &careful{t: t, b: b, by: b.Party(t, svid)}
	server := httptest.NewUnstartedServer(intents)
	server.TLS = gatewaytest.Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.ListAs(t, "careful", svid.ID, directory.Endpoint{Binding: ainp.Binding, URL: server.URL, DID: gatewaytest.Did("careful").DID})
	rollsBackItself(t, b, "careful", gatewaytest.TextBody("go"))

	var requests atomic.Int64
	member := &gatewaytest.SlimFake{}
	b.SlimAgent(t, net, "adder", "", member)
	signer := b.Party(t, b.SVID(t, "/adder"))
	member.Rollback = func(token string) string {
		requests.Add(1)
		request, _, err := ect.ParseUnverified(token)
		if err != nil {
			return ""
		}
		return gatewaytest.Signing(t, signer, ect.Claims{
			Act: ect.ActRollbackResult, Audience: []string{b.Self()}, Workflow: request.Workflow, Parents: []ect.ID{request.ID}, Ext: gatewaytest.Restored(request),
		})
	}
	rollsBackItself(t, b, "adder", gatewaytest.AddBody(1))
	if requests.Load() != 1 {
		t.Errorf("the member was asked %d times", requests.Load())
	}
}
