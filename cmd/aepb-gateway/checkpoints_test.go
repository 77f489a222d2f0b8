package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/httpapi/checkpoints"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	pure "github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
)

const (
	depositsAt = "/atd/checkpoints"
	stateText  = "the state of an agent \x00\xff"
)

// begun begins a workflow of the development client.
func (b *bed) begun(t *testing.T) (wid string, start ect.ID) {
	t.Helper()
	got := b.send(t, letter{at: "/atd/workflows"})
	var out struct {
		Workflow string `json:"wid"`
		ID       ect.ID `json:"jti"`
	}
	if got.status != http.StatusCreated || json.Unmarshal(got.body, &out) != nil {
		t.Fatalf("no workflow begins: %d %s", got.status, got.body)
	}
	return out.Workflow, out.ID
}

// checkpointOf is a checkpoint of a party, and what is changed of it.
func (b *bed) checkpointOf(t *testing.T, who *ecttest.Party, wid string, parent ect.ID, change func(*ect.Claims)) string {
	t.Helper()
	made := pure.Checkpoint{Reversible: true, RollbackURI: "https://agent.example" + pure.Path, TTL: time.Hour}
	c := ect.Claims{
		Act: ect.ActCheckpoint, Audience: []string{b.self()}, Workflow: wid, Parents: []ect.ID{parent}, OutputHash: ect.Hash([]byte(stateText)), Ext: made.Ext(),
	}
	if change != nil {
		change(&c)
	}
	return signing(t, who, c)
}

func deposit(via *http.Client, tokens ...string) letter {
	return letter{via: via, at: depositsAt, media: "application/octet-stream", body: stateText, tokens: tokens}
}

// TestCheckpoints_Deposit: an agent deposits its state and gets it back with its token, as often as it asks; the state
// is in no log.
func TestCheckpoints_Deposit(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	wid, start := b.begun(t)
	token := b.checkpointOf(t, b.me, wid, start, nil)
	claims, _, err := ect.ParseUnverified(token)
	must(t, err)
	for range 2 {
		var out checkpoints.Deposited
		got := b.send(t, deposit(nil, token))
		if got.status != http.StatusCreated || json.Unmarshal(got.body, &out) != nil || out.ID != claims.ID || out.Workflow != wid ||
			!out.Expires.Equal(time.Unix(claims.IssuedAt, 0).Add(time.Hour)) || got.header.Get("Location") != depositsAt+"/"+string(claims.ID) {
			t.Fatalf("%d %s, at %s", got.status, got.body, got.header.Get("Location"))
		}
	}
	got := b.send(t, letter{method: http.MethodGet, at: depositsAt + "/" + string(claims.ID), media: "-"})
	if got.status != http.StatusOK || string(got.body) != stateText || got.header.Get("Cache-Control") != "private, no-store" ||
		got.header.Get("Content-Type") != "application/octet-stream" || got.header.Get(ect.HeaderName) != token {
		t.Errorf("fetched as %d %q with %v", got.status, got.body, got.header)
	}
	view := answered[checkpoints.View](t, b.send(t, b.operator(http.MethodGet, "/api/checkpoints/"+string(claims.ID), "", nil)), http.StatusOK)
	if view.ID != claims.ID || view.How != checkpoints.ByDeposit || view.Agent != string(b.me.ID) || view.Size != len(stateText) || view.Outcome != "" {
		t.Errorf("operators see %+v", view)
	}
	if strings.Contains(b.logs.String(), stateText[:20]) {
		t.Error("the state is in the log")
	}
}

func answered[T any](t *testing.T, got reply, status int) (out T) {
	t.Helper()
	if got.status != status || json.Unmarshal(got.body, &out) != nil {
		t.Fatalf("got %d %s, expected %d and %T", got.status, got.body, status, out)
	}
	return out
}

// TestCheckpoints_Mistakes: what is no deposit of the caller's own is refused with the problem that says why, and
// nothing is kept of it.
func TestCheckpoints_Mistakes(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	wid, start := b.begun(t)
	good := b.checkpointOf(t, b.me, wid, start, nil)
	with := func(change func(*ect.Claims)) letter {
		return deposit(nil, b.checkpointOf(t, b.me, wid, start, change))
	}
	long, text, other := deposit(nil, good), deposit(nil, good), deposit(nil, good)
	long.body, text.media, other.body = strings.Repeat("x", checkpoint.MaxDeposit+1), "text/plain", "another state"
	for name, c := range map[string]struct {
		letter
		status int
		code   string
	}{
		"no token":           {deposit(nil), 403, "ect_required"},
		"two tokens":         {deposit(nil, good, b.token(t, "x")), 400, "malformed_message"},
		"no token at all":    {deposit(nil, "x"), 400, "ect_invalid"},
		"another media type": {text, 415, "unsupported_media_type"},
		"too long":           {long, 413, "too_large"},
		"another state":      {other, 403, "ect_invalid"},
		"another act":        {with(func(c *ect.Claims) { c.Act = ect.ActError }), 403, "ect_invalid"},
		"no parent":          {with(func(c *ect.Claims) { c.Parents = nil }), 403, "ect_invalid"},
		"no time to live":    {with(func(c *ect.Claims) { delete(c.Ext, ect.ExtTTL) }), 403, "ect_invalid"},
		"no workflow":        {with(func(c *ect.Claims) { c.Workflow = "" }), 403, "ect_invalid"},
		"another token's id": {deposit(nil, b.otherToken(t, wid, start)), 403, "ect_invalid"},
		"no caller":          {deposit(b.anonymous, good), 401, "unauthenticated"},
		"of another caller":  {deposit(b.as(t, "/concierge"), good), 403, "forbidden"},
	} {
		got := b.send(t, c.letter)
		if got.status != c.status || !bytes.Contains(got.body, []byte(`"code":"`+c.code+`"`)) || bytes.Contains(got.body, []byte(c.body)) {
			t.Errorf("%s: got %d %s, expected %d %s", name, got.status, short(got.body), c.status, c.code)
		}
	}
	list := answered[checkpoints.Page](t, b.send(t, b.operator(http.MethodGet, "/api/checkpoints?wid="+wid, "", nil)), http.StatusOK)
	if len(list.Checkpoints) != 1 {
		t.Errorf("kept are %+v, expected the first of the two with one id", list)
	}
}

// otherToken is a checkpoint under the id of another that is kept.
func (b *bed) otherToken(t *testing.T, wid string, start ect.ID) string {
	t.Helper()
	id := ect.NewID()
	first := b.checkpointOf(t, b.me, wid, start, func(c *ect.Claims) { c.ID = id })
	if got := b.send(t, deposit(nil, first)); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return b.checkpointOf(t, b.me, wid, start, func(c *ect.Claims) { c.ID, c.Ext[ect.ExtReversible] = id, json.RawMessage("false") })
}

// TestAttack_Checkpoints_OutsiderDeposits: a caller deposits a state into the workflow of others, with a token of its
// own that names a token of the workflow as parent. It is refused, and nothing of it is kept or on record.
func TestAttack_Checkpoints_OutsiderDeposits(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	wid, start := b.begun(t)
	svid := b.svid(t, "/mallory")
	token := b.checkpointOf(t, b.party(t, svid), wid, start, nil)
	via := b.caller(t, svid)
	if got := b.send(t, deposit(via, token)); got.status != http.StatusForbidden || !bytes.Contains(got.body, []byte(`"forbidden"`)) {
		t.Errorf("%d %s", got.status, got.body)
	}
	list := answered[checkpoints.Page](t, b.send(t, b.operator(http.MethodGet, "/api/checkpoints?wid="+wid, "", nil)), http.StatusOK)
	records := b.workflow(t, b.client, wid)
	if len(list.Checkpoints) != 0 || len(records) != 1 {
		t.Errorf("%d checkpoints are kept, and %d tokens are on record, expected the start alone", len(list.Checkpoints), len(records))
	}
	if got := b.send(t, letter{via: via, method: http.MethodGet, at: "/atd/workflows/" + wid, media: "-"}); got.status != http.StatusNotFound {
		t.Errorf("it became a member by that: %d %s", got.status, got.body)
	}
}

// TestAttack_Checkpoints_StateOfAnother: a caller asks for the state that another agent deposited, also after it deposited
// one of its own under the same id in a workflow of its own. It gets its own alone; for other callers there is no such state.
func TestAttack_Checkpoints_StateOfAnother(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	wid, start := b.begun(t)
	token := b.checkpointOf(t, b.me, wid, start, nil)
	claims, _, err := ect.ParseUnverified(token)
	must(t, err)
	if got := b.send(t, deposit(nil, token)); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	svid := b.svid(t, "/mallory")
	fetch := func(via *http.Client) reply {
		return b.send(t, letter{via: via, method: http.MethodGet, at: depositsAt + "/" + string(claims.ID), media: "-"})
	}
	mallory := b.caller(t, svid)
	if got := fetch(mallory); got.status != http.StatusNotFound || got.header.Get(ect.HeaderName) != "" {
		t.Errorf("another caller: %d %s", got.status, got.body)
	}
	if got := fetch(b.anonymous); got.status != http.StatusUnauthorized {
		t.Errorf("a caller without an identity: %d %s", got.status, got.body)
	}
	began := answered[struct {
		Workflow string `json:"wid"`
		ID       ect.ID `json:"jti"`
	}](t, b.send(t, letter{via: mallory, at: "/atd/workflows"}), http.StatusCreated)
	const own = "a state of its own"
	its := deposit(mallory, b.checkpointOf(t, b.party(t, svid), began.Workflow, began.ID, func(c *ect.Claims) { c.ID, c.OutputHash = claims.ID, ect.Hash([]byte(own)) }))
	its.body = own
	if got := b.send(t, its); got.status != http.StatusCreated {
		t.Fatalf("its own: %d %s", got.status, got.body)
	}
	if got := fetch(mallory); string(got.body) != own {
		t.Errorf("under the same id it gets %d %s", got.status, got.body)
	}
	if got := fetch(nil); string(got.body) != stateText {
		t.Errorf("its agent gets %d %s", got.status, got.body)
	}
	path := "/api/checkpoints/" + string(claims.ID)
	if got := b.send(t, b.operator(http.MethodGet, path, "", nil)); got.status != http.StatusConflict || !bytes.Contains(got.body, []byte(wid)) {
		t.Errorf("operators are not told that there are two: %d %s", got.status, got.body)
	}
	if view := answered[checkpoints.View](t, b.send(t, b.operator(http.MethodGet, path+"?wid="+wid, "", nil)), http.StatusOK); view.Agent != string(b.me.ID) {
		t.Errorf("in that workflow operators see %+v", view)
	}
}

// TestAttack_Checkpoints_IDOfAnother: a member of a workflow deposits a state under the id of a checkpoint that another
// member deposited there. It is told that the id is taken, and the first state stays as it was.
func TestAttack_Checkpoints_IDOfAnother(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	wid, start := b.begun(t)
	call := toolCall("calculator", "add", `{"a":41000,"b":1}`)
	call.header["Aepb-Parent-Jti"] = string(start)
	b.right(t, b.send(t, call), `"sum":41001`)
	token := b.checkpointOf(t, b.me, wid, start, nil)
	claims, _, err := ect.ParseUnverified(token)
	must(t, err)
	if got := b.send(t, deposit(nil, token)); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	svid := b.svid(t, "/calculator")
	member := b.caller(t, svid)
	fresh := b.checkpointOf(t, b.party(t, svid), wid, start, nil)
	if got := b.send(t, deposit(member, fresh)); got.status != http.StatusCreated {
		t.Fatalf("under an id of its own: %d %s", got.status, got.body)
	}
	taken := b.checkpointOf(t, b.party(t, svid), wid, start, func(c *ect.Claims) { c.ID = claims.ID })
	if got := b.send(t, deposit(member, taken)); got.status != http.StatusForbidden || !bytes.Contains(got.body, []byte(`"ect_invalid"`)) {
		t.Errorf("under the id of another: %d %s", got.status, got.body)
	}
	at := depositsAt + "/" + string(claims.ID)
	if got := b.send(t, letter{via: member, method: http.MethodGet, at: at, media: "-"}); got.status != http.StatusNotFound {
		t.Errorf("it reads the state of another: %d %s", got.status, got.body)
	}
	if got := b.send(t, letter{method: http.MethodGet, at: at, media: "-"}); string(got.body) != stateText || got.header.Get(ect.HeaderName) != token {
		t.Errorf("the first state became %d %q", got.status, got.body)
	}
}

// addsAndTakesAway has the sum of a call be undone by a call that takes one away from it.
func (b *bed) addsAndTakesAway(t *testing.T) {
	t.Helper()
	rule, err := compensation.ParseRule([]byte(`{"tool":"add","arguments":{"a":{"result":"/sum"},"b":-1}}`))
	must(t, err)
	agent, ok := b.directory.Find("calculator")
	if !ok {
		t.Fatal("the calculator is not listed")
	}
	agent.Undo = directory.Undo{Compensate: map[string]compensation.Rule{"add": rule}}
	must(t, b.directory.Put(agent))
}

// ordered is a request of an operator for a rollback, by its role.
func (b *bed) ordered(t *testing.T, role, body string) reply {
	t.Helper()
	return b.send(t, letter{via: b.as(t, "/staff/"+role), at: b.at.Admin + "/api/rollbacks", body: body})
}

// TestRollbacks_OfAnOperator: an operator sees the checkpoint of a call, what a rollback would do, and begins one; the
// agent is called once more, and each step is shown. What was undone is undone once.
func TestRollbacks_OfAnOperator(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: staff(), noToken: true})
	b.addsAndTakesAway(t)
	wid, start := b.begun(t)
	call := toolCall("calculator", "add", `{"a":41000,"b":1}`)
	call.header["Aepb-Parent-Jti"] = string(start)
	b.right(t, b.send(t, call), `"sum":41001`)
	looks := func(path string) reply {
		return b.send(t, letter{via: b.as(t, "/staff/viewer"), method: http.MethodGet, at: b.at.Admin + path})
	}
	list := answered[checkpoints.Page](t, looks("/api/checkpoints?wid="+wid), http.StatusOK)
	if len(list.Checkpoints) != 1 {
		t.Fatalf("%d checkpoints, expected that of the call", len(list.Checkpoints))
	}
	made := list.Checkpoints[0]
	if made.Agent != "calculator" || made.Tool != "add" || made.How != checkpoints.ByCall || made.UndoTool != "add" || made.Outcome != "known" || made.Workflow != wid {
		t.Errorf("the checkpoint is %+v", made)
	}
	order := `{"checkpoint":"` + string(made.ID) + `"`
	ahead := answered[checkpoints.Plan](t, b.ordered(t, "operator", order+`,"plan":true}`), http.StatusOK)
	if len(ahead.Steps) != 1 || ahead.Steps[0].How != undo.ByCall || ahead.Steps[0].Checkpoint != made.ID || len(ahead.Agents) != 1 || ahead.Agents[0] != "calculator" || ahead.Workflow != wid || !ahead.By.After(time.Now()) {
		t.Errorf("planned is %+v", ahead)
	}
	if n := len(b.callsOf(41001)); n != 0 {
		t.Errorf("the agent was called %d times by a plan", n)
	}
	got := b.ordered(t, "operator", order+`,"reason":"it was wrong"}`)
	view := answered[rollback.View](t, got, http.StatusAccepted)
	at := "/api/rollbacks/" + wid + "/" + string(view.Request)
	if got.header.Get("Location") != at {
		t.Errorf("it is at %s", got.header.Get("Location"))
	}
	within(t, patience, "the rollback ends", func() bool {
		view = answered[rollback.View](t, looks(at), http.StatusOK)
		return view.Status != ""
	})
	if view.Status != undo.StatusCompleted || len(view.Steps) != 1 || view.Steps[0].State != undo.StepCompleted || view.Steps[0].Request != "" {
		t.Errorf("it ended as %+v", view)
	}
	if n := len(b.callsOf(41001)); n != 1 {
		t.Errorf("the agent was called %d times", n)
	}
	for _, say := range []string{`"operator":"the operator"`, `"path":"/api/rollbacks"`} {
		if !strings.Contains(b.logs.String(), say) {
			t.Errorf("%s is not in the log", say)
		}
	}
	if strings.Contains(b.logs.String(), "41000") {
		t.Error("an argument is in the log")
	}
}

// TestAttack_Rollbacks_WithoutTheRole: operators without the role operator, and callers, begin a rollback or ask for its
// plan. They are refused, and the agent hears nothing.
func TestAttack_Rollbacks_WithoutTheRole(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: staff(), noToken: true})
	b.addsAndTakesAway(t)
	wid, start := b.begun(t)
	call := toolCall("calculator", "add", `{"a":41000,"b":1}`)
	call.header["Aepb-Parent-Jti"] = string(start)
	b.right(t, b.send(t, call), `"sum":41001`)
	list := answered[checkpoints.Page](t, b.send(t, letter{via: b.as(t, "/staff/viewer"), method: http.MethodGet, at: b.at.Admin + "/api/checkpoints?wid=" + wid}), http.StatusOK)
	order := `{"checkpoint":"` + string(list.Checkpoints[0].ID) + `","cascade":true,"reason":"mine"`
	before := len(b.workflow(t, b.client, wid))
	for _, role := range []string{"viewer", "approver", "auditor", "stranger"} {
		for _, body := range []string{order + "}", order + `,"plan":true}`} {
			if got := b.ordered(t, role, body); got.status != http.StatusForbidden {
				t.Errorf("%s: %d %s", role, got.status, got.body)
			}
		}
	}
	if after := len(b.workflow(t, b.client, wid)); after != before || len(b.callsOf(41001)) != 0 {
		t.Errorf("%d tokens became %d, and the agent was called", before, after)
	}
	for _, path := range []string{"/api/checkpoints?wid=" + wid, "/api/rollbacks/" + wid + "/x"} {
		if got := b.send(t, letter{method: http.MethodGet, at: b.at.Admin + path}); got.status != http.StatusForbidden {
			t.Errorf("a caller reads %s: %d %s", path, got.status, got.body)
		}
	}
}

// TestAttack_Rollbacks_IDOfACheckpoint: an agent signs a checkpoint of its own under the id of the one that the gateway made
// of its call, and puts it on record in the same workflow. The call is undone all the same.
func TestAttack_Rollbacks_IDOfACheckpoint(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: staff(), noToken: true})
	b.addsAndTakesAway(t)
	wid, start := b.begun(t)
	call := toolCall("calculator", "add", `{"a":41000,"b":1}`)
	call.header["Aepb-Parent-Jti"] = string(start)
	b.right(t, b.send(t, call), `"sum":41001`)
	list := answered[checkpoints.Page](t, b.send(t, letter{via: b.as(t, "/staff/viewer"), method: http.MethodGet, at: b.at.Admin + "/api/checkpoints?wid=" + wid}), http.StatusOK)
	made := list.Checkpoints[0]
	svid := b.svid(t, "/calculator")
	same := b.checkpointOf(t, b.party(t, svid), wid, start, func(c *ect.Claims) { c.ID, c.Ext[ect.ExtReversible] = made.ID, json.RawMessage("false") })
	if got := b.send(t, deposit(b.caller(t, svid), same)); got.status != http.StatusForbidden {
		t.Fatalf("deposited: %d %s", got.status, got.body)
	}
	ahead := answered[checkpoints.Plan](t, b.ordered(t, "operator", `{"checkpoint":"`+string(made.ID)+`","wid":"`+wid+`","plan":true}`), http.StatusOK)
	if len(ahead.Steps) != 1 || ahead.Steps[0].How != undo.ByCall || ahead.Steps[0].Agent != "calculator" {
		t.Errorf("planned is %+v", ahead)
	}
}
