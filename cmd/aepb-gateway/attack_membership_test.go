package main

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
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// attacker is an identity of the trust domain that has no part in the work which it
// attacks.
type attacker struct {
	*bed
	party  *ecttest.Party
	client *http.Client
}

func (b *bed) attacker(t *testing.T) attacker {
	t.Helper()
	svid := b.svid(t, "/attacker")
	return attacker{b, b.party(t, svid), b.caller(t, svid)}
}

// get asks for a path and returns the status.
func (a attacker) get(t *testing.T, path string) int {
	t.Helper()
	return a.send(t, letter{via: a.client, method: http.MethodGet, media: "-", at: path}).status
}

// plant sends a translate-only message with a token of the attacker's own.
func (a attacker) plant(t *testing.T, c ect.Claims) reply {
	t.Helper()
	body := addBody(a.number())
	c.Audience, c.OutputHash = []string{a.self()}, ect.Hash([]byte(body))
	return a.send(t, letter{via: a.client, at: toNobody, body: body, tokens: []string{ecttest.Mint(t, a.party, ecttest.Recipe{Claims: c})}})
}

// work is a workflow of the development client's: the claims of the two legs.
func (b *bed) work(t *testing.T) []ect.Claims {
	t.Helper()
	n := b.number()
	got := b.send(t, b.sealed(t, letter{body: addBody(n)}))
	b.right(t, got, `"sum":`+strconv.FormatInt(n+1, 10))
	return b.proofs(t, got)
}

// ectsOf counts the tokens of a workflow that the development client is shown.
func (b *bed) ectsOf(t *testing.T, wid string) int {
	t.Helper()
	got := b.send(t, letter{method: http.MethodGet, media: "-", at: "/workflows/" + wid})
	var page struct {
		ECTs []string `json:"ects"`
	}
	if got.status != http.StatusOK || json.Unmarshal(got.body, &page) != nil {
		t.Fatalf("the workflow of the client: %d %s", got.status, short(got.body))
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
	b := newBed(t, plan{})
	a, legs := b.attacker(t), b.work(t)
	wid := legs[0].Workflow
	before := b.ectsOf(t, wid)
	reads := func(when string) {
		t.Helper()
		for path, want := range map[string]int{"/workflows/" + wid: 404, "/ects/" + string(legs[0].ID): 404, "/ects/" + string(legs[1].ID): 404} {
			if got := a.get(t, path); got != want {
				t.Errorf("%s: the attacker's GET of %s got %d, want %d", when, path, got, want)
			}
		}
		hook := a.send(t, letter{via: a.client, at: "/hitl/callbacks", body: `{"wid":"` + wid + `","uri":"https://attacker.example/"}`})
		if hook.status != http.StatusNotFound {
			t.Errorf("%s: the attacker's hook got %d, want 404", when, hook.status)
		}
	}
	reads("before")
	for name, parents := range map[string][]ect.ID{
		"a root":                    nil,
		"a child of our leg":        {legs[0].ID},
		"a child of both legs":      {legs[0].ID, legs[1].ID},
		"a child of an unknown one": {ect.NewID()},
	} {
		if got := a.plant(t, ect.Claims{Workflow: wid, Parents: parents}); got.status != http.StatusForbidden || len(got.header.Values(ect.HeaderName)) != 0 {
			t.Errorf("%s: the planted token got %d with %d ECTs, want 403 without any", name, got.status, len(got.header.Values(ect.HeaderName)))
		}
		reads(name)
	}
	// The same in a message that policy refuses, in the workflow and in one of its own.
	body := addBody(b.number())
	for _, workflow := range []string{wid, string(ect.NewID())} {
		token := ecttest.Mint(t, a.party, ecttest.Recipe{Claims: ect.Claims{Audience: []string{b.self()}, Workflow: workflow, OutputHash: ect.Hash([]byte(body))}})
		if got := b.send(t, letter{via: a.client, at: "/aepb/translate?from=a2a-v1&dest=closed", body: body, tokens: []string{token}}); got.status != http.StatusForbidden {
			t.Errorf("the closed agent: got %d, want 403", got.status)
		}
		if got := a.get(t, "/workflows/"+workflow); got != http.StatusNotFound {
			t.Errorf("after a refused message its sender reads %d, want 404", got)
		}
	}
	if after := b.ectsOf(t, wid); after != before {
		t.Errorf("the workflow has %d tokens, want %d as before the attack", after, before)
	}
}

// TestAttack_OwnTokenMakesAParty is hardening finding 1 and hole 2: a rollback
// request whose parents were the victim's checkpoint and a token of the attacker's
// own, or a child of the checkpoint that the attacker signed, reached the agent. Now
// each parent must have come of work of the requester.
func TestAttack_OwnTokenMakesAParty(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	agent := b.undoable(t, "undo", "a2a-v1")
	a := b.attacker(t)
	got := b.send(t, letter{at: "/agents/undo/a2a", body: textBody("go"), header: map[string]string{"A2A-Version": "1.0"}})
	if got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, short(got.body))
	}
	checkpoint := agent.last
	planted, root := ect.NewID(), ect.NewID()
	a.plant(t, ect.Claims{ID: planted, Workflow: checkpoint.Workflow, Parents: []ect.ID{checkpoint.ID}})
	a.plant(t, ect.Claims{ID: root, Workflow: checkpoint.Workflow})
	// Its own work with the same agent, in a workflow of its own, is no way round.
	own := b.send(t, letter{via: a.client, at: "/agents/undo/a2a", body: textBody("go"), header: map[string]string{"A2A-Version": "1.0"}})
	ownLeg := b.proofs(t, own)[0]
	agent.tell(func() { agent.last = checkpoint })
	for name, parents := range map[string][]ect.ID{
		"the victim's checkpoint":              {checkpoint.ID},
		"that and a planted child of it":       {checkpoint.ID, planted},
		"a planted child of it":                {planted},
		"that and a planted root":              {checkpoint.ID, root},
		"that and a token of the attacker's":   {checkpoint.ID, ownLeg.ID},
		"a token of the attacker's in its own": {ownLeg.ID},
	} {
		asks := b.rollback(t, a.party, checkpoint.Workflow, parents...)
		asks.via = a.client
		if got := b.send(t, asks); got.status != http.StatusForbidden {
			t.Errorf("%s: got %d, want 403", name, got.status)
		}
	}
	if len(agent.asked) != 0 {
		t.Errorf("the agent was asked %d times to roll back another's work", len(agent.asked))
	}
	if got := b.send(t, b.rollback(t, b.me, checkpoint.Workflow, checkpoint.ID)); got.status != http.StatusOK {
		t.Errorf("the victim's own rollback got %d %s", got.status, short(got.body))
	}
}

// TestAttack_NamesakeBlocksRollback is hardening finding 15 and hole 3: a stranger's
// token with the id of the victim's own request kept the victim from rolling back.
func TestAttack_NamesakeBlocksRollback(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	agent := b.undoable(t, "undo", "a2a-v1")
	a := b.attacker(t)
	body := textBody("go")
	source := ecttest.Mint(t, b.me, b.recipe(body))
	got := b.send(t, letter{at: "/aepb/translate?from=a2a-v1&dest=undo", body: body, tokens: []string{source}})
	if got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, short(got.body))
	}
	claims, _, err := ect.ParseUnverified(source)
	must(t, err)
	if got := a.plant(t, ect.Claims{ID: claims.ID, Workflow: string(ect.NewID())}); got.status != http.StatusOK {
		t.Fatalf("the namesake in a workflow of its own: %d %s", got.status, short(got.body))
	}
	if got := a.plant(t, ect.Claims{ID: claims.ID, Workflow: claims.Workflow}); got.status != http.StatusForbidden {
		t.Errorf("the namesake in the victim's workflow: %d, want 403", got.status)
	}
	for name, parents := range map[string][]ect.ID{
		"the checkpoint": {agent.last.ID}, "the checkpoint and its own request": {agent.last.ID, claims.ID},
	} {
		if got := b.send(t, b.rollback(t, b.me, claims.Workflow, parents...)); got.status != http.StatusOK {
			t.Errorf("rollback of %s: %d %s", name, got.status, short(got.body))
		}
	}
}

// TestAttack_StoredAnswerGoesToAnotherCaller is hole 4: who showed the bytes and the
// token of another caller's message got the stored answer, without being allowed to
// call the agent. Now policy is asked first.
func TestAttack_StoredAnswerGoesToAnotherCaller(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	a := b.attacker(t)
	n := b.number()
	body := addBody(n)
	token := b.token(t, body)
	at := "/aepb/translate?from=a2a-v1&dest=members"
	first := b.send(t, letter{at: at, body: body, tokens: []string{token}})
	b.right(t, first, `"sum":`+strconv.FormatInt(n+1, 10))
	again := b.send(t, letter{at: at, body: body, tokens: []string{token}})
	if again.status != http.StatusOK || string(again.body) != string(first.body) {
		t.Errorf("the caller's own repetition got %d %s", again.status, short(again.body))
	}
	for name, via := range map[string]*http.Client{"another caller": a.client, "a stranger": b.anonymous} {
		if got := b.send(t, letter{via: via, at: at, body: body, tokens: []string{token}}); got.status == http.StatusOK || strings.Contains(string(got.body), "sum") {
			t.Errorf("%s got the stored answer: %d %s", name, got.status, short(got.body))
		}
	}
	// The caller itself gets it only as long as it may call the agent.
	agent, _ := b.directory.Find("members")
	agent.Rules = policy.Rules{Callers: []string{string(a.party.ID)}}
	must(t, b.directory.Put(agent))
	if got := b.send(t, letter{at: at, body: body, tokens: []string{token}}); got.status != http.StatusForbidden {
		t.Errorf("a caller who may not call the agent any more got %d, want 403", got.status)
	}
}

// TestAttack_StoredRollbackAfterTheRightIsGone belongs to hole 4: the same rollback
// request always gets the stored result, also from a caller who may not call the
// agent any more. Now policy is asked first.
func TestAttack_StoredRollbackAfterTheRightIsGone(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	agent := b.undoable(t, "undo", "a2a-v1")
	if got := b.send(t, letter{at: "/agents/undo/a2a", body: textBody("go"), header: map[string]string{"A2A-Version": "1.0"}}); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, short(got.body))
	}
	asks := b.rollback(t, b.me, agent.last.Workflow, agent.last.ID)
	for range 2 {
		if got := b.send(t, asks); got.status != http.StatusOK {
			t.Fatalf("a rollback of one's own work: %d %s", got.status, short(got.body))
		}
	}
	listed, _ := b.directory.Find("undo")
	listed.Rules = policy.Rules{Callers: []string{"spiffe://" + devTrustDomain + "/another"}}
	must(t, b.directory.Put(listed))
	if got := b.send(t, asks); got.status != http.StatusForbidden || len(got.header.Values(ect.HeaderName)) != 0 {
		t.Errorf("the stored result after the right is gone: %d, want 403", got.status)
	}
}

// TestAttack_LevelWithoutAnyToken is hole 5: a minimum level refused a weak token and
// let a message without any token pass. Where policy sets the level, a message
// without a token is refused; the level that an agent declares alone is met by our
// own token, so that unmodified clients get in.
func TestAttack_LevelWithoutAnyToken(t *testing.T) {
	t.Parallel()
	strict := newBed(t, plan{config: config.Config{Policy: config.Policy{MinLevel: "L2"}}})
	n := strict.number()
	bare := letter{at: doorA2A, body: addBody(n), header: map[string]string{"A2A-Version": "1.0"}}
	if got := strict.send(t, bare); !strings.Contains(string(got.body), "ect_required") {
		t.Errorf("without a token: %d %s", got.status, short(got.body))
	}
	strict.right(t, strict.send(t, strict.sealed(t, bare)), `"sum":`+strconv.FormatInt(n+1, 10))
	declared := newBed(t, plan{})
	agent, _ := declared.directory.Find("calculator")
	agent.AssuranceLevel = ect.L2
	must(t, declared.directory.Put(agent))
	declared.right(t, declared.send(t, bare), `"sum":`+strconv.FormatInt(n+1, 10))
}

// TestAttack_ReplyEvidenceOfAnotherWorkflow is hole 6: a token of any issuer and any
// workflow that came with a reply became the only parent of the reply's ECT. Now
// only the agent's own token counts that descends from our request; the others are
// declared, and the request's ECT is always a parent.
func TestAttack_ReplyEvidenceOfAnotherWorkflow(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	svid := b.svid(t, "/witness")
	agent, other := b.party(t, svid), b.party(t, b.svid(t, "/other"))
	var sign func(leg ect.Claims) string
	f := &fake{conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		leg, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		if err == nil {
			w.Header().Set(ect.HeaderName, sign(leg))
		}
		well(w, r, good)
	}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(f.speakMCP))
	server.TLS = serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.list(t, "witness", "mcp-v1", server.URL, host{id: svid.ID})
	foreign := b.work(t)
	var minted ect.ID
	mint := func(by *ecttest.Party, c ect.Claims) string {
		minted, c.Audience, c.ID = ect.NewID(), []string{b.self()}, ""
		c.ID = minted
		return ecttest.Mint(t, by, ecttest.Recipe{Claims: c})
	}
	for name, tc := range map[string]struct {
		bound bool
		sign  func(leg ect.Claims) string
	}{
		"the agent's, of our request": {true, func(leg ect.Claims) string {
			return mint(agent, ect.Claims{Workflow: leg.Workflow, Parents: []ect.ID{leg.ID}})
		}},
		"the agent's, of another workflow": {false, func(ect.Claims) string {
			return mint(agent, ect.Claims{Workflow: foreign[0].Workflow, Parents: []ect.ID{foreign[0].ID}})
		}},
		"the agent's, a root": {false, func(leg ect.Claims) string { return mint(agent, ect.Claims{Workflow: leg.Workflow}) }},
		"another issuer's, of our request": {false, func(leg ect.Claims) string {
			return mint(other, ect.Claims{Workflow: leg.Workflow, Parents: []ect.ID{leg.ID}})
		}},
	} {
		sign = tc.sign
		n := b.number()
		got := b.send(t, b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=witness", body: addBody(n)}))
		if got.status != http.StatusOK {
			t.Fatalf("%s: got %d %s", name, got.status, short(got.body))
		}
		legs := b.proofs(t, got)
		unbound, _ := legs[1].Ext.Strings(ect.ExtUnboundEvidence)
		if isParent := slices.Contains(legs[1].Parents, minted); isParent != tc.bound || !slices.Contains(legs[1].Parents, legs[0].ID) {
			t.Errorf("%s: parents of the reply %v, the agent's token %s", name, legs[1].Parents, minted)
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
	first := newBed(t, plan{})
	second := first.beside(t, "gateway-2", config.Config{})
	var calls atomic.Int32
	second.ainpAgent(t, "scribe", &ainpFake{seen: func([]byte) { calls.Add(1) }}, directory.Endpoint{})
	first.knows(t, second)
	ask := func() reply {
		return first.send(t, first.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=scribe", body: addBody(first.number())}))
	}
	allow := func(protocols ...string) {
		settings := first.settings.gatewaySettings()
		settings.Constraints = policy.Constraints{AllowedDest: protocols, RestrictDest: true}
		first.gateway.Apply(settings)
	}
	allow("a2a-v1", "mcp-v1")
	if got := ask(); got.status != http.StatusForbidden || problemCode(t, got) != "policy_violation" || calls.Load() != 0 {
		t.Errorf("a forbidden protocol behind a peer: %d %s, %d calls", got.status, short(got.body), calls.Load())
	}
	allow("ainp-v1")
	if got := ask(); got.status != http.StatusOK || calls.Load() != 1 {
		t.Errorf("an allowed protocol behind a peer: %d %s, %d calls", got.status, short(got.body), calls.Load())
	}
}

// TestAttack_DrainingTakesRunningWork is hole 8: an agent whose document turned to
// draining took the tasks under way with it. Now it takes no new work, and what it
// began can be asked for.
func TestAttack_DrainingTakesRunningWork(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	var status atomic.Value
	status.Store("active")
	library := b.library(t, b.svid(t, "/calculator"), func(w http.ResponseWriter, r *http.Request) {
		page(b.calculatorDocument(t, status.Load().(string), "null"))(w, r)
	})
	b.describe(t, "ending", library.url, "")
	v1, at := map[string]string{"A2A-Version": "1.0"}, "/agents/ending/a2a"
	got := b.send(t, letter{at: at, body: addBody(b.number()), header: v1})
	found := regexp.MustCompile(`"task":\{[^{}]*"id":"([^"]+)"|"id":"([0-9a-f-]{36})"`).FindSubmatch(got.body)
	if got.status != http.StatusOK || found == nil {
		t.Fatalf("got %d %s", got.status, short(got.body))
	}
	id := string(found[1]) + string(found[2])
	status.Store("draining")
	b.describe(t, "ending", library.url, "") // its document is read again
	ask := `{"jsonrpc":"2.0","id":"g","method":"GetTask","params":{"id":"` + id + `"}}`
	if got := b.send(t, letter{at: at, body: ask, header: v1}); got.status != http.StatusOK || !strings.Contains(string(got.body), id) || strings.Contains(string(got.body), `"error"`) {
		t.Errorf("a task of the draining agent: %d %s", got.status, short(got.body))
	}
	if got := b.send(t, letter{at: at, body: addBody(b.number()), header: v1}); !strings.Contains(string(got.body), "draining") || strings.Contains(string(got.body), `"sum"`) {
		t.Errorf("new work for the draining agent: %d %s", got.status, short(got.body))
	}
}

// TestAttack_OutsiderApproves is hardening finding 1: an identity with one token of
// its own in the workflow granted what a human should decide, and its decision was
// told to the webhook; the true decision after it was refused as a conflict. Now the
// role of an approver is needed, and the decision is bound to what it decides.
func TestAttack_OutsiderApproves(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	agent := &uacpFake{}
	b.uacpAgent(t, "abacus", agent, "")
	agent.undo = b.undoes(t, agent)
	told := make(chan string, 8)
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told <- r.Header.Get(ect.HeaderName)
		w.WriteHeader(http.StatusNoContent)
	}))
	hook.TLS = serving(b.svid(t, "/hook"))
	hook.StartTLS()
	t.Cleanup(hook.Close)
	got := b.send(t, letter{at: "/agents/abacus/a2a", body: addBody(1), header: map[string]string{"A2A-Version": "1.0"}})
	legs := b.proofs(t, got)
	wid := legs[0].Workflow
	if got := b.send(t, letter{at: "/hitl/callbacks", body: `{"wid":"` + wid + `","uri":"` + hook.URL + `"}`}); got.status != http.StatusCreated {
		t.Fatalf("the victim's hook: %d %s", got.status, short(got.body))
	}
	a := b.attacker(t)
	planted := ect.NewID()
	a.plant(t, ect.Claims{ID: planted, Workflow: wid, Parents: []ect.ID{legs[0].ID}, InputHash: legs[0].InputHash})
	attackerSVID, approverSVID, agentSVID := b.svid(t, "/attacker"), b.svid(t, approverPath), b.svid(t, "/abacus-impostor")
	decide := func(by string, c ect.Claims) bool {
		t.Helper()
		who := attackerSVID
		switch by {
		case "approver":
			who = approverSVID
		case "impostor":
			who = agentSVID
		case "requester":
			who = b.dev.Client
		}
		c.Audience, c.Workflow = []string{b.self()}, wid
		if c.Act == "" {
			c.Act = ect.ActApprovalGranted
		}
		token := ecttest.Mint(t, b.party(t, who), ecttest.Recipe{Claims: c})
		conn := b.dialUACP(t, "abacus", who)
		must(t, writeFrameTo(conn, b.signal(t, &canonical.Message{Op: canonical.OpDecision, Body: &canonical.Signal{Approval: "a-1", Token: token}})))
		frame, err := readFrameOf(conn)
		must(t, err)
		return !strings.Contains(string(frame), "urn:aepb:problem")
	}
	about := ect.Claims{Parents: []ect.ID{legs[0].ID}, InputHash: legs[0].InputHash}
	other := about
	other.InputHash = ect.Hash([]byte("something else"))
	for name, accepted := range map[string]bool{
		"an outsider":                      decide("attacker", about),
		"an outsider, by its own token":    decide("attacker", ect.Claims{Parents: []ect.ID{planted}, InputHash: legs[0].InputHash}),
		"an identity without the role":     decide("impostor", about),
		"the one who asked for the work":   decide("requester", about),
		"an approver, for another input":   decide("approver", other),
		"an approver, for no token at all": decide("approver", ect.Claims{Parents: []ect.ID{ect.NewID()}}),
	} {
		if accepted {
			t.Errorf("%s decides", name)
		}
	}
	if len(told) != 0 {
		t.Error("a forged decision was told")
	}
	if !decide("approver", about) {
		t.Error("the approver's decision is refused")
	}
	select {
	case <-told:
	case <-time.After(patience):
		t.Error("the approver's decision was not told")
	}
}

// TestAttack_WorkflowPagesTakeMemory is hardening finding 5a: a workflow of many
// tokens was served in one piece, so that some readers took all memory. Now a page
// has at most 100 tokens, whatever is asked for.
func TestAttack_WorkflowPagesTakeMemory(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	wid, n := string(ect.NewID()), 0
	for range 60 {
		body := addBody(b.number())
		recipe := b.recipe(body)
		recipe.Claims.Workflow = wid
		if got := b.send(t, letter{at: toNobody, body: body, tokens: []string{ecttest.Mint(t, b.me, recipe)}}); got.status != http.StatusOK {
			t.Fatalf("got %d %s", got.status, short(got.body))
		}
		n += 2
	}
	for _, query := range []string{"", "?limit=100000"} {
		var page struct {
			ECTs []string `json:"ects"`
			Next string   `json:"next"`
		}
		got := b.send(t, letter{method: http.MethodGet, media: "-", at: "/workflows/" + wid + query})
		must(t, json.Unmarshal(got.body, &page))
		if len(page.ECTs) != 100 || page.Next == "" {
			t.Errorf("%q: a page of %d tokens, next %q; want 100 and a cursor", query, len(page.ECTs), page.Next)
		}
		got = b.send(t, letter{method: http.MethodGet, media: "-", at: "/workflows/" + wid + "?after=" + url.QueryEscape(page.Next)})
		must(t, json.Unmarshal(got.body, &page))
		if len(page.ECTs) != n-100 {
			t.Errorf("%q: the last page has %d tokens, want %d", query, len(page.ECTs), n-100)
		}
	}
}

// gateway2 is the path of the second gateway's identity.
const gateway2 = "gateway-2"

// neighbours are two gateways: the first lists the second as one that carries the
// tokens of others, and the second sends on to the first.
func neighbours(t *testing.T) (first, second *bed) {
	t.Helper()
	first = newBed(t, plan{config: config.Config{Policy: config.Policy{Gateways: []string{"spiffe://" + devTrustDomain + "/" + gateway2}}}})
	second = first.beside(t, gateway2, config.Config{})
	second.knows(t, first)
	return first, second
}

// large makes a token so large that it does not fit beside a gateway's own, and small
// enough to be taken.
func large(c *ect.Claims) {
	c.Ext = ect.Ext{"x": json.RawMessage(`"` + strings.Repeat("x", 3900) + `"`)}
	for n := range 8 {
		c.Audience = append(c.Audience, "spiffe://"+devTrustDomain+"/audience/"+strconv.Itoa(n))
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
	a, body := first.attacker(t), addBody(first.number())
	source := first.token(t, body)
	got := first.send(t, letter{body: body, tokens: []string{source}})
	first.right(t, got, `"sum":`)
	victims, _, err := ect.ParseUnverified(source)
	must(t, err)
	legs := first.proofs(t, got)
	wid, before := victims.Workflow, first.ectsOf(t, victims.Workflow)
	outside := func(when string) {
		t.Helper()
		for _, path := range []string{"/workflows/" + wid, "/ects/" + string(victims.ID), "/ects/" + string(legs[0].ID), "/ects/" + string(legs[1].ID)} {
			if got := a.get(t, path); got != http.StatusNotFound {
				t.Errorf("%s: the attacker's GET of %s got %d, want 404", when, path, got)
			}
		}
		hook := a.send(t, letter{via: a.client, at: "/hitl/callbacks", body: `{"wid":"` + wid + `","uri":"https://attacker.example/"}`})
		if hook.status != http.StatusNotFound {
			t.Errorf("%s: the attacker's hook got %d, want 404", when, hook.status)
		}
		if after := first.ectsOf(t, wid); after != before {
			t.Errorf("%s: the workflow has %d tokens, want %d as before", when, after, before)
		}
	}
	outside("before")
	namesake := ect.NewID() // of a token of the attacker's own, at the first gateway
	if got := a.plant(t, ect.Claims{ID: namesake, Workflow: string(ect.NewID())}); got.status != http.StatusOK {
		t.Fatalf("a token in a workflow of the attacker's own: %d", got.status)
	}
	const onward = "/aepb/translate?from=a2a-v1&to=mcp-v1&dest=calculator"
	for name, id := range map[string]ect.ID{"the victim's id": victims.ID, "our leg's id": legs[0].ID, "an id planted before": namesake, "an id of its own": ""} {
		for _, size := range []string{"large", "small"} {
			second, body := second, addBody(first.number())
			c := ect.Claims{ID: id, Workflow: wid, Audience: []string{second.self(), first.self()}, OutputHash: ect.Hash([]byte(body))}
			switch {
			case size == "small":
				c.Parents = []ect.ID{legs[1].ID}
			case id == victims.ID || id == namesake:
				second = first.beside(t, gateway2, config.Config{}) // it has never heard of any of this
				second.knows(t, first)
				fallthrough
			default:
				large(&c)
			}
			token := ecttest.Mint(t, a.party, ecttest.Recipe{Claims: c})
			got := second.send(t, letter{via: a.client, at: onward, body: body, tokens: []string{token}})
			if got.status < 400 || strings.Contains(string(got.body), `"sum"`) {
				t.Errorf("%s, %s, %d bytes: %d %s", name, size, len(token), got.status, short(got.body))
			}
			outside(name + ", " + size)
		}
		// A gateway that leaves the source out all the same.
		if id == "" {
			id = ect.NewID()
		}
		body := addBody(first.number())
		c := ect.Claims{
			Act: ect.ActTranslate, Workflow: wid, Parents: []ect.ID{id}, Audience: []string{first.self(), string(a.party.ID)}, OutputHash: ect.Hash([]byte(body)), Ext: ect.Ext{},
		}
		c.Ext.SetString(ect.ExtCaller, string(a.party.ID))
		c.Ext.SetString(ect.ExtLeg, "request")
		carried := ecttest.Mint(t, first.party(t, second.dev.Gateway), ecttest.Recipe{Claims: c})
		if got := first.send(t, letter{via: first.caller(t, second.dev.Gateway), body: body, tokens: []string{carried}}); got.status != http.StatusForbidden {
			t.Errorf("%s, without its source: %d, want 403", name, got.status)
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
	a := first.attacker(t) // here a user like any other
	ask := func(name string, c ect.Claims, via *http.Client, who *ecttest.Party) {
		t.Helper()
		n := first.number()
		body := addBody(n)
		c.Audience, c.OutputHash = []string{second.self()}, ect.Hash([]byte(body))
		got := second.send(t, letter{via: via, at: "/aepb/translate?from=a2a-v1&to=mcp-v1&dest=calculator", body: body, tokens: []string{ecttest.Mint(t, who, ecttest.Recipe{Claims: c})}})
		if got.status != http.StatusOK || !strings.Contains(string(got.body), `"sum":`+strconv.FormatInt(n+1, 10)) {
			t.Errorf("%s: %d %s", name, got.status, short(got.body))
		}
	}
	root, elsewhere := ect.Claims{ID: ect.NewID(), Workflow: string(ect.NewID())}, string(ect.NewID())
	ask("the first message", root, a.client, a.party)
	ask("a further root", ect.Claims{Workflow: root.Workflow}, a.client, a.party)
	ask("a child of the first", ect.Claims{Workflow: root.Workflow, Parents: []ect.ID{root.ID}}, a.client, a.party)
	ask("the first message of a workflow begun elsewhere", ect.Claims{Workflow: elsewhere, Parents: []ect.ID{ect.NewID()}}, a.client, a.party)
	ask("the next one there", ect.Claims{Workflow: elsewhere, Parents: []ect.ID{ect.NewID()}}, a.client, a.party)
	for _, wid := range []string{root.Workflow, elsewhere} {
		if got := a.get(t, "/workflows/"+wid); got != http.StatusOK {
			t.Errorf("the user reads its own workflow: %d, want 200", got)
		}
	}
	legs := first.work(t)
	ask("a member of the workflow", ect.Claims{Workflow: legs[0].Workflow, Parents: []ect.ID{legs[1].ID}}, first.client, first.me)
}
