package attacks

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// ectsOf counts the tokens of a workflow that the development client is shown.
func ectsOf(t *testing.T, b *gatewaytest.Fixture, wid string) int {
	t.Helper()
	got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: "/workflows/" + wid})
	var page struct {
		ECTs []string `json:"ects"`
	}
	if got.Status != http.StatusOK || json.Unmarshal(got.Body, &page) != nil {
		t.Fatalf("the workflow of the client: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	return len(page.ECTs)
}

// TestAttack_OwnTokenMakesAMember is hardening finding 1 and hole 1 of the audit: an
// identity that knows a workflow's name sent one message with a token of its own in
// it, allowed or refused, and could then read every token of the workflow and
// register an approval hook. Now the token is refused, whatever its parents are, and
// nothing of it is recorded.
func TestAttack_OwnTokenMakesAMember(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	a, directions := b.Attacker(t), b.Work(t)
	wid := directions[0].Workflow
	before := ectsOf(t, b, wid)
	reads := func(when string) {
		t.Helper()
		for path, want := range map[string]int{"/workflows/" + wid: 404, "/ects/" + string(directions[0].ID): 404, "/ects/" + string(directions[1].ID): 404} {
			if got := a.Get(t, path); got != want {
				t.Errorf("%s: the attacker's GET of %s got %d, want %d", when, path, got, want)
			}
		}
		hook := a.Send(t, gatewaytest.HTTPRequest{Via: a.Client, At: "/hitl/callbacks", Body: `{"wid":"` + wid + `","uri":"https://attacker.example/"}`})
		if hook.Status != http.StatusNotFound {
			t.Errorf("%s: the attacker's hook got %d, want 404", when, hook.Status)
		}
	}
	reads("before")
	for name, parents := range map[string][]ect.ID{
		"a root":                    nil,
		"a child of our leg":        {directions[0].ID},
		"a child of both legs":      {directions[0].ID, directions[1].ID},
		"a child of an unknown one": {ect.NewID()},
	} {
		if got := a.Plant(t, ect.Claims{Workflow: wid, Parents: parents}); got.Status != http.StatusForbidden || len(got.Header.Values(ect.HeaderName)) != 0 {
			t.Errorf("%s: the planted token got %d with %d ECTs, want 403 without any", name, got.Status, len(got.Header.Values(ect.HeaderName)))
		}
		reads(name)
	}
	// The same in a message that policy refuses, in the workflow and in one of its own.
	body := gatewaytest.AddBody(b.Number())
	for _, workflow := range []string{wid, string(ect.NewID())} {
		token := ecttest.Mint(t, a.Party, ecttest.Recipe{Claims: ect.Claims{Audience: []string{b.Self()}, Workflow: workflow, OutputHash: ect.Hash([]byte(body))}})
		if got := b.Send(t, gatewaytest.HTTPRequest{Via: a.Client, At: "/aepb/translate?from=a2a-v1&dest=closed", Body: body, Tokens: []string{token}}); got.Status != http.StatusForbidden {
			t.Errorf("the closed agent: got %d, want 403", got.Status)
		}
		if got := a.Get(t, "/workflows/"+workflow); got != http.StatusNotFound {
			t.Errorf("after a refused message its sender reads %d, want 404", got)
		}
	}
	if after := ectsOf(t, b, wid); after != before {
		t.Errorf("the workflow has %d tokens, want %d as before the attack", after, before)
	}
}

// TestAttack_OwnTokenMakesAParty is hardening finding 1 and hole 2: a rollback
// request whose parents were the victim's checkpoint and a token of the attacker's
// own, or a child of the checkpoint that the attacker signed, reached the agent. Now
// each parent must have come of work of the requester.
func TestAttack_OwnTokenMakesAParty(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	agent := b.Undoable(t, "undo", "a2a-v1")
	a := b.Attacker(t)
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/undo/a2a", Body: gatewaytest.TextBody("go"), Header: map[string]string{"A2A-Version": "1.0"}})
	if got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	checkpoint := agent.Last
	planted, root := ect.NewID(), ect.NewID()
	a.Plant(t, ect.Claims{ID: planted, Workflow: checkpoint.Workflow, Parents: []ect.ID{checkpoint.ID}})
	a.Plant(t, ect.Claims{ID: root, Workflow: checkpoint.Workflow})
	// Its own work with the same agent, in a workflow of its own, is no way round.
	own := b.Send(t, gatewaytest.HTTPRequest{Via: a.Client, At: "/agents/undo/a2a", Body: gatewaytest.TextBody("go"), Header: map[string]string{"A2A-Version": "1.0"}})
	ownDirection := b.Proofs(t, own)[0]
	agent.Tell(func() { agent.Last = checkpoint })
	for name, parents := range map[string][]ect.ID{
		"the victim's checkpoint":              {checkpoint.ID},
		"that and a planted child of it":       {checkpoint.ID, planted},
		"a planted child of it":                {planted},
		"that and a planted root":              {checkpoint.ID, root},
		"that and a token of the attacker's":   {checkpoint.ID, ownDirection.ID},
		"a token of the attacker's in its own": {ownDirection.ID},
	} {
		asks := b.Rollback(t, a.Party, checkpoint.Workflow, parents...)
		asks.Via = a.Client
		if got := b.Send(t, asks); got.Status != http.StatusForbidden {
			t.Errorf("%s: got %d, want 403", name, got.Status)
		}
	}
	if len(agent.Requests) != 0 {
		t.Errorf("the agent was asked %d times to roll back another's work", len(agent.Requests))
	}
	if got := b.Send(t, b.Rollback(t, b.Me, checkpoint.Workflow, checkpoint.ID)); got.Status != http.StatusOK {
		t.Errorf("the victim's own rollback got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
}

// TestAttack_NamesakeBlocksRollback is hardening finding 15 and hole 3: a stranger's
// token with the id of the victim's own request kept the victim from rolling back.
func TestAttack_NamesakeBlocksRollback(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	agent := b.Undoable(t, "undo", "a2a-v1")
	a := b.Attacker(t)
	body := gatewaytest.TextBody("go")
	source := ecttest.Mint(t, b.Me, b.Recipe(body))
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=undo", Body: body, Tokens: []string{source}})
	if got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	claims, _, err := ect.ParseUnverified(source)
	gatewaytest.Must(t, err)
	if got := a.Plant(t, ect.Claims{ID: claims.ID, Workflow: string(ect.NewID())}); got.Status != http.StatusOK {
		t.Fatalf("the namesake in a workflow of its own: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	if got := a.Plant(t, ect.Claims{ID: claims.ID, Workflow: claims.Workflow}); got.Status != http.StatusForbidden {
		t.Errorf("the namesake in the victim's workflow: %d, want 403", got.Status)
	}
	for name, parents := range map[string][]ect.ID{
		"the checkpoint": {agent.Last.ID}, "the checkpoint and its own request": {agent.Last.ID, claims.ID},
	} {
		if got := b.Send(t, b.Rollback(t, b.Me, claims.Workflow, parents...)); got.Status != http.StatusOK {
			t.Errorf("rollback of %s: %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
	}
}

// TestAttack_StoredAnswerGoesToAnotherCaller is hole 4: who showed the bytes and the
// token of another caller's message got the stored answer, without being allowed to
// call the agent. Now policy is asked first.
func TestAttack_StoredAnswerGoesToAnotherCaller(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	a := b.Attacker(t)
	n := b.Number()
	body := gatewaytest.AddBody(n)
	token := b.Token(t, body)
	at := "/aepb/translate?from=a2a-v1&dest=members"
	first := b.Send(t, gatewaytest.HTTPRequest{At: at, Body: body, Tokens: []string{token}})
	b.Right(t, first, `"sum":`+strconv.FormatInt(n+1, 10))
	again := b.Send(t, gatewaytest.HTTPRequest{At: at, Body: body, Tokens: []string{token}})
	if again.Status != http.StatusOK || string(again.Body) != string(first.Body) {
		t.Errorf("the caller's own repetition got %d %s", again.Status, gatewaytest.Short(again.Body))
	}
	for name, via := range map[string]*http.Client{"another caller": a.Client, "a stranger": b.Anonymous} {
		if got := b.Send(t, gatewaytest.HTTPRequest{Via: via, At: at, Body: body, Tokens: []string{token}}); got.Status == http.StatusOK || strings.Contains(string(got.Body), "sum") {
			t.Errorf("%s got the stored answer: %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
	}
	// The caller itself gets it only as long as it may call the agent.
	agent, _ := b.Directory().Find("members")
	agent.Rules = policy.Rules{Callers: []string{string(a.Party.ID)}}
	gatewaytest.Must(t, b.Directory().Put(agent))
	if got := b.Send(t, gatewaytest.HTTPRequest{At: at, Body: body, Tokens: []string{token}}); got.Status != http.StatusForbidden {
		t.Errorf("a caller who may not call the agent any more got %d, want 403", got.Status)
	}
}

// TestAttack_StoredRollbackAfterTheRightIsGone belongs to hole 4: the same rollback
// request always gets the stored result, also from a caller who may not call the
// agent any more. Now policy is asked first.
func TestAttack_StoredRollbackAfterTheRightIsGone(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	agent := b.Undoable(t, "undo", "a2a-v1")
	if got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/undo/a2a", Body: gatewaytest.TextBody("go"), Header: map[string]string{"A2A-Version": "1.0"}}); got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	asks := b.Rollback(t, b.Me, agent.Last.Workflow, agent.Last.ID)
	for range 2 {
		if got := b.Send(t, asks); got.Status != http.StatusOK {
			t.Fatalf("a rollback of one's own work: %d %s", got.Status, gatewaytest.Short(got.Body))
		}
	}
	listed, _ := b.Directory().Find("undo")
	listed.Rules = policy.Rules{Callers: []string{"spiffe://" + gatewaytest.TrustDomain + "/another"}}
	gatewaytest.Must(t, b.Directory().Put(listed))
	if got := b.Send(t, asks); got.Status != http.StatusForbidden || len(got.Header.Values(ect.HeaderName)) != 0 {
		t.Errorf("the stored result after the right is gone: %d, want 403", got.Status)
	}
}

// TestAttack_LevelWithoutAnyToken is hole 5: a minimum level refused a weak token and
// let a message without any token pass. Where policy sets the level, a message
// without a token is refused; the level that an agent declares alone is met by our
// own token, so that unmodified clients get in.
func TestAttack_LevelWithoutAnyToken(t *testing.T) {
	t.Parallel()
	strict := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Policy: config.Policy{MinLevel: "L2"}}})
	n := strict.Number()
	bare := gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(n), Header: map[string]string{"A2A-Version": "1.0"}}
	if got := strict.Send(t, bare); !strings.Contains(string(got.Body), "ect_required") {
		t.Errorf("without a token: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	strict.Right(t, strict.Send(t, strict.Sealed(t, bare)), `"sum":`+strconv.FormatInt(n+1, 10))
	declared := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	agent, _ := declared.Directory().Find("calculator")
	agent.AssuranceLevel = ect.L2
	gatewaytest.Must(t, declared.Directory().Put(agent))
	declared.Right(t, declared.Send(t, bare), `"sum":`+strconv.FormatInt(n+1, 10))
}

// TestAttack_ReplyEvidenceOfAnotherWorkflow is hole 6: a token of any issuer and any
// workflow that came with a reply became the only parent of the reply's ECT. Now
// only the agent's own token counts that descends from our request; the others are
// declared, and the request's ECT is always a parent.
func TestAttack_ReplyEvidenceOfAnotherWorkflow(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	svid := b.SVID(t, "/witness")
	agent, other := b.Party(t, svid), b.Party(t, b.SVID(t, "/other"))
	var sign func(direction ect.Claims) string
	f := &gatewaytest.Fake{Conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		direction, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		if err == nil {
			w.Header().Set(ect.HeaderName, sign(direction))
		}
		gatewaytest.Well(w, r, good)
	}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(f.SpeakMCP))
	server.TLS = gatewaytest.Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.List(t, "witness", "mcp-v1", server.URL, gatewaytest.Host{ID: svid.ID})
	foreign := b.Work(t)
	var minted ect.ID
	mint := func(by *ecttest.Party, c ect.Claims) string {
		minted, c.Audience, c.ID = ect.NewID(), []string{b.Self()}, ""
		c.ID = minted
		return ecttest.Mint(t, by, ecttest.Recipe{Claims: c})
	}
	for name, tc := range map[string]struct {
		bound bool
		sign  func(direction ect.Claims) string
	}{
		"the agent's, of our request": {true, func(direction ect.Claims) string {
			return mint(agent, ect.Claims{Workflow: direction.Workflow, Parents: []ect.ID{direction.ID}})
		}},
		"the agent's, of another workflow": {false, func(ect.Claims) string {
			return mint(agent, ect.Claims{Workflow: foreign[0].Workflow, Parents: []ect.ID{foreign[0].ID}})
		}},
		"the agent's, a root": {false, func(direction ect.Claims) string { return mint(agent, ect.Claims{Workflow: direction.Workflow}) }},
		"another issuer's, of our request": {false, func(direction ect.Claims) string {
			return mint(other, ect.Claims{Workflow: direction.Workflow, Parents: []ect.ID{direction.ID}})
		}},
	} {
		sign = tc.sign
		n := b.Number()
		got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=witness", Body: gatewaytest.AddBody(n)}))
		if got.Status != http.StatusOK {
			t.Fatalf("%s: got %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
		directions := b.Proofs(t, got)
		unbound, _ := directions[1].Ext.Strings(ect.ExtUnboundEvidence)
		if isParent := slices.Contains(directions[1].Parents, minted); isParent != tc.bound || !slices.Contains(directions[1].Parents, directions[0].ID) {
			t.Errorf("%s: parents of the reply %v, the agent's token %s", name, directions[1].Parents, minted)
		}
		if declared := slices.Contains(unbound, string(minted)); declared == tc.bound {
			t.Errorf("%s: declared as unbound %v, want %v", name, unbound, !tc.bound)
		}
	}
}

// TestAttack_ForbiddenProtocolBehindAPeer is hole 7: allowed_dest_protocols judged
// the protocol in which a peer takes the message, so that a forbidden protocol was
// reached through a peer and an allowed one refused.
func TestAttack_ForbiddenProtocolBehindAPeer(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second := first.Beside(t, "gateway-2", config.Config{})
	var calls atomic.Int32
	second.AINPAgent(t, "scribe", &gatewaytest.AINPFake{Seen: func([]byte) { calls.Add(1) }}, directory.Endpoint{})
	first.Knows(t, second)
	ask := func() gatewaytest.Reply {
		return first.Send(t, first.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=scribe", Body: gatewaytest.AddBody(first.Number())}))
	}
	allow := func(protocols ...string) {
		settings := first.Conf.Pipeline()
		settings.Constraints = policy.Constraints{AllowedDest: protocols, RestrictDest: true}
		first.Gateway().Apply(settings)
	}
	allow("a2a-v1", "mcp-v1")
	if got := ask(); got.Status != http.StatusForbidden || gatewaytest.ProblemCode(t, got) != "policy_violation" || calls.Load() != 0 {
		t.Errorf("a forbidden protocol behind a peer: %d %s, %d calls", got.Status, gatewaytest.Short(got.Body), calls.Load())
	}
	allow("ainp-v1")
	if got := ask(); got.Status != http.StatusOK || calls.Load() != 1 {
		t.Errorf("an allowed protocol behind a peer: %d %s, %d calls", got.Status, gatewaytest.Short(got.Body), calls.Load())
	}
}

// TestAttack_DrainingTakesRunningWork is hole 8: an agent whose document turned to
// draining took the tasks under way with it. Now it takes no new work, and what it
// began can be asked for.
func TestAttack_DrainingTakesRunningWork(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	var status atomic.Value
	status.Store("active")
	library := b.Library(t, b.SVID(t, "/calculator"), func(w http.ResponseWriter, r *http.Request) {
		gatewaytest.Page(b.CalculatorDocument(t, status.Load().(string), "null"))(w, r)
	})
	b.Describe(t, "ending", library.URL, "")
	v1, at := map[string]string{"A2A-Version": "1.0"}, "/agents/ending/a2a"
	got := b.Send(t, gatewaytest.HTTPRequest{At: at, Body: gatewaytest.AddBody(b.Number()), Header: v1})
	found := regexp.MustCompile(`"task":\{[^{}]*"id":"([^"]+)"|"id":"([0-9a-f-]{36})"`).FindSubmatch(got.Body)
	if got.Status != http.StatusOK || found == nil {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	id := string(found[1]) + string(found[2])
	status.Store("draining")
	b.Describe(t, "ending", library.URL, "") // its document is read again
	ask := `{"jsonrpc":"2.0","id":"g","method":"GetTask","params":{"id":"` + id + `"}}`
	if got := b.Send(t, gatewaytest.HTTPRequest{At: at, Body: ask, Header: v1}); got.Status != http.StatusOK || !strings.Contains(string(got.Body), id) || strings.Contains(string(got.Body), `"error"`) {
		t.Errorf("a task of the draining agent: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{At: at, Body: gatewaytest.AddBody(b.Number()), Header: v1}); !strings.Contains(string(got.Body), "draining") || strings.Contains(string(got.Body), `"sum"`) {
		t.Errorf("new work for the draining agent: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
}

// TestAttack_OutsiderApproves is hardening finding 1: an identity with one token of
// its own in the workflow granted what a human should decide, and its decision was
// told to the webhook; the true decision after it was refused as a conflict. Now the
// role of an approver is needed, and the decision is bound to what it decides.
func TestAttack_OutsiderApproves(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	agent := &gatewaytest.UACPFake{}
	b.UACPAgent(t, "abacus", agent, "")
	agent.Undo = b.Undoes(t, agent)
	notified := make(chan string, 8)
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		notified <- r.Header.Get(ect.HeaderName)
		w.WriteHeader(http.StatusNoContent)
	}))
	hook.TLS = gatewaytest.Serving(b.SVID(t, "/hook"))
	hook.StartTLS()
	t.Cleanup(hook.Close)
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/abacus/a2a", Body: gatewaytest.AddBody(1), Header: map[string]string{"A2A-Version": "1.0"}})
	directions := b.Proofs(t, got)
	wid := directions[0].Workflow
	if got := b.Send(t, gatewaytest.HTTPRequest{At: "/hitl/callbacks", Body: `{"wid":"` + wid + `","uri":"` + hook.URL + `"}`}); got.Status != http.StatusCreated {
		t.Fatalf("the victim's hook: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	a := b.Attacker(t)
	planted := ect.NewID()
	a.Plant(t, ect.Claims{ID: planted, Workflow: wid, Parents: []ect.ID{directions[0].ID}, InputHash: directions[0].InputHash})
	attackerSVID, approverSVID, agentSVID := b.SVID(t, "/attacker"), b.SVID(t, gatewaytest.ApproverPath), b.SVID(t, "/abacus-impostor")
	decide := func(by string, c ect.Claims) bool {
		t.Helper()
		who := attackerSVID
		switch by {
		case "approver":
			who = approverSVID
		case "impostor":
			who = agentSVID
		case "requester":
			who = b.Dev.Client
		}
		c.Audience, c.Workflow = []string{b.Self()}, wid
		if c.Act == "" {
			c.Act = ect.ActApprovalGranted
		}
		token := ecttest.Mint(t, b.Party(t, who), ecttest.Recipe{Claims: c})
		conn := b.DialUACP(t, "abacus", who)
		gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, b.Signal(t, &canonical.Message{Op: canonical.OpDecision, Body: &canonical.Signal{Approval: "a-1", Token: token}})))
		frame, err := gatewaytest.ReadFrameOf(conn)
		gatewaytest.Must(t, err)
		return !strings.Contains(string(frame), "urn:aepb:problem")
	}
	about := ect.Claims{Parents: []ect.ID{directions[0].ID}, InputHash: directions[0].InputHash}
	other := about
	other.InputHash = ect.Hash([]byte("something else"))
	for name, accepted := range map[string]bool{
		"an outsider":                      decide("attacker", about),
		"an outsider, by its own token":    decide("attacker", ect.Claims{Parents: []ect.ID{planted}, InputHash: directions[0].InputHash}),
		"an identity without the role":     decide("impostor", about),
		"the one who asked for the work":   decide("requester", about),
		"an approver, for another input":   decide("approver", other),
		"an approver, for no token at all": decide("approver", ect.Claims{Parents: []ect.ID{ect.NewID()}}),
	} {
		if accepted {
			t.Errorf("%s decides", name)
		}
	}
	if len(notified) != 0 {
		t.Error("a forged decision was told")
	}
	if !decide("approver", about) {
		t.Error("the approver's decision is refused")
	}
	select {
	case <-notified:
	case <-time.After(gatewaytest.Patience):
		t.Error("the approver's decision was not told")
	}
}

// TestAttack_WorkflowPagesTakeMemory is hardening finding 5a: a workflow of many
// tokens was served in one piece, so that some readers took all memory. Now a page
// has at most 100 tokens, whatever is asked for.
func TestAttack_WorkflowPagesTakeMemory(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	wid, n := string(ect.NewID()), 0
	for range 60 {
		body := gatewaytest.AddBody(b.Number())
		recipe := b.Recipe(body)
		recipe.Claims.Workflow = wid
		if got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToNobody, Body: body, Tokens: []string{ecttest.Mint(t, b.Me, recipe)}}); got.Status != http.StatusOK {
			t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
		}
		n += 2
	}
	for _, query := range []string{"", "?limit=100000"} {
		var page struct {
			ECTs []string `json:"ects"`
			Next string   `json:"next"`
		}
		got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: "/workflows/" + wid + query})
		gatewaytest.Must(t, json.Unmarshal(got.Body, &page))
		if len(page.ECTs) != 100 || page.Next == "" {
			t.Errorf("%q: a page of %d tokens, next %q; want 100 and a cursor", query, len(page.ECTs), page.Next)
		}
		got = b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: "/workflows/" + wid + "?after=" + url.QueryEscape(page.Next)})
		gatewaytest.Must(t, json.Unmarshal(got.Body, &page))
		if len(page.ECTs) != n-100 {
			t.Errorf("%q: the last page has %d tokens, want %d", query, len(page.ECTs), n-100)
		}
	}
}

// gateway2 is the path of the second gateway's identity.
const gateway2 = "gateway-2"

// neighbours are two gateways: the first lists the second as one that carries the
// tokens of others, and the second sends on to the first.
func neighbours(t *testing.T) (first, second *gatewaytest.Fixture) {
	t.Helper()
	first = gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Policy: config.Policy{Gateways: []string{"spiffe://" + gatewaytest.TrustDomain + "/" + gateway2}}}})
	second = first.Beside(t, gateway2, config.Config{})
	second.Knows(t, first)
	return first, second
}

// large makes a token so large that it does not fit beside a gateway's own, and small
// enough to be taken.
func large(c *ect.Claims) {
	c.Ext = ect.Ext{"x": json.RawMessage(`"` + strings.Repeat("x", 3900) + `"`)}
	for n := range 8 {
		c.Audience = append(c.Audience, "spiffe://"+gatewaytest.TrustDomain+"/audience/"+strconv.Itoa(n))
	}
}

// TestAttack_ListedGatewayBringsItsUserIn is finding N2: a user of a listed gateway sent
// that a token with the workflow of others and the id of a token there, too large to be
// passed on. The gateway left it out, and the first one took the other's token with that
// id for the user's: the user could read the workflow and register an approval hook. Now
// the gateway does not send a message on without its source, the first one takes no
// gateway's word for its user's part, and it looks for a parent in its workflow alone.
func TestAttack_ListedGatewayBringsItsUserIn(t *testing.T) {
	t.Parallel()
	first, second := neighbours(t)
	a, body := first.Attacker(t), gatewaytest.AddBody(first.Number())
	source := first.Token(t, body)
	got := first.Send(t, gatewaytest.HTTPRequest{Body: body, Tokens: []string{source}})
	first.Right(t, got, `"sum":`)
	victims, _, err := ect.ParseUnverified(source)
	gatewaytest.Must(t, err)
	directions := first.Proofs(t, got)
	wid, before := victims.Workflow, ectsOf(t, first, victims.Workflow)
	outside := func(when string) {
		t.Helper()
		for _, path := range []string{"/workflows/" + wid, "/ects/" + string(victims.ID), "/ects/" + string(directions[0].ID), "/ects/" + string(directions[1].ID)} {
			if got := a.Get(t, path); got != http.StatusNotFound {
				t.Errorf("%s: the attacker's GET of %s got %d, want 404", when, path, got)
			}
		}
		hook := a.Send(t, gatewaytest.HTTPRequest{Via: a.Client, At: "/hitl/callbacks", Body: `{"wid":"` + wid + `","uri":"https://attacker.example/"}`})
		if hook.Status != http.StatusNotFound {
			t.Errorf("%s: the attacker's hook got %d, want 404", when, hook.Status)
		}
		if after := ectsOf(t, first, wid); after != before {
			t.Errorf("%s: the workflow has %d tokens, want %d as before", when, after, before)
		}
	}
	outside("before")
	namesake := ect.NewID() // of a token of the attacker's own, at the first gateway
	if got := a.Plant(t, ect.Claims{ID: namesake, Workflow: string(ect.NewID())}); got.Status != http.StatusOK {
		t.Fatalf("a token in a workflow of the attacker's own: %d", got.Status)
	}
	const onward = "/aepb/translate?from=a2a-v1&to=mcp-v1&dest=calculator"
	for name, id := range map[string]ect.ID{"the victim's id": victims.ID, "our leg's id": directions[0].ID, "an id planted before": namesake, "an id of its own": ""} {
		for _, size := range []string{"large", "small"} {
			second, body := second, gatewaytest.AddBody(first.Number())
			c := ect.Claims{ID: id, Workflow: wid, Audience: []string{second.Self(), first.Self()}, OutputHash: ect.Hash([]byte(body))}
			switch {
			case size == "small":
				c.Parents = []ect.ID{directions[1].ID}
			case id == victims.ID || id == namesake:
				second = first.Beside(t, gateway2, config.Config{}) // it has never heard of any of this
				second.Knows(t, first)
				fallthrough
			default:
				large(&c)
			}
			token := ecttest.Mint(t, a.Party, ecttest.Recipe{Claims: c})
			got := second.Send(t, gatewaytest.HTTPRequest{Via: a.Client, At: onward, Body: body, Tokens: []string{token}})
			if got.Status < 400 || strings.Contains(string(got.Body), `"sum"`) {
				t.Errorf("%s, %s, %d bytes: %d %s", name, size, len(token), got.Status, gatewaytest.Short(got.Body))
			}
			outside(name + ", " + size)
		}
		// A gateway that leaves the source out all the same.
		if id == "" {
			id = ect.NewID()
		}
		body := gatewaytest.AddBody(first.Number())
		c := ect.Claims{
			Act: ect.ActTranslate, Workflow: wid, Parents: []ect.ID{id}, Audience: []string{first.Self(), string(a.Party.ID)}, OutputHash: ect.Hash([]byte(body)), Ext: ect.Ext{},
		}
		c.Ext.SetString(ect.ExtCaller, string(a.Party.ID))
		c.Ext.SetString(ect.ExtLeg, "request")
		carried := ecttest.Mint(t, first.Party(t, second.Dev.Gateway), ecttest.Recipe{Claims: c})
		if got := first.Send(t, gatewaytest.HTTPRequest{Via: first.Caller(t, second.Dev.Gateway), Body: body, Tokens: []string{carried}}); got.Status != http.StatusForbidden {
			t.Errorf("%s, without its source: %d, want 403", name, got.Status)
		}
		outside(name + ", without its source")
	}
}

// TestListedGateway_CarriesItsUsers is the honest side of finding N2: a user of the
// second gateway begins a workflow that the first one does not know, and goes on in it;
// and a member of a workflow at the first one goes on there through the second.
func TestListedGateway_CarriesItsUsers(t *testing.T) {
	t.Parallel()
	first, second := neighbours(t)
	a := first.Attacker(t) // here a user like any other
	ask := func(name string, c ect.Claims, via *http.Client, who *ecttest.Party) {
		t.Helper()
		n := first.Number()
		body := gatewaytest.AddBody(n)
		c.Audience, c.OutputHash = []string{second.Self()}, ect.Hash([]byte(body))
		got := second.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/aepb/translate?from=a2a-v1&to=mcp-v1&dest=calculator", Body: body, Tokens: []string{ecttest.Mint(t, who, ecttest.Recipe{Claims: c})}})
		if got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"sum":`+strconv.FormatInt(n+1, 10)) {
			t.Errorf("%s: %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
	}
	root, elsewhere := ect.Claims{ID: ect.NewID(), Workflow: string(ect.NewID())}, string(ect.NewID())
	ask("the first message", root, a.Client, a.Party)
	ask("a further root", ect.Claims{Workflow: root.Workflow}, a.Client, a.Party)
	ask("a child of the first", ect.Claims{Workflow: root.Workflow, Parents: []ect.ID{root.ID}}, a.Client, a.Party)
	ask("the first message of a workflow begun elsewhere", ect.Claims{Workflow: elsewhere, Parents: []ect.ID{ect.NewID()}}, a.Client, a.Party)
	ask("the next one there", ect.Claims{Workflow: elsewhere, Parents: []ect.ID{ect.NewID()}}, a.Client, a.Party)
	for _, wid := range []string{root.Workflow, elsewhere} {
		if got := a.Get(t, "/workflows/"+wid); got != http.StatusOK {
			t.Errorf("the user reads its own workflow: %d, want 200", got)
		}
	}
	directions := first.Work(t)
	ask("a member of the workflow", ect.Claims{Workflow: directions[0].Workflow, Parents: []ect.ID{directions[1].ID}}, first.Client, first.Me)
}
