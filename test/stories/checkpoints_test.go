package stories

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
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

const (
	depositsAt = "/atd/checkpoints"
	stateText  = "the state of an agent \x00\xff"
)

// begun begins a workflow of the development client.
func begun(t *testing.T, b *gatewaytest.Fixture) (wid string, start ect.ID) {
	t.Helper()
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/atd/workflows"})
	var out struct {
		Workflow string `json:"wid"`
		ID       ect.ID `json:"jti"`
	}
	if got.Status != http.StatusCreated || json.Unmarshal(got.Body, &out) != nil {
		t.Fatalf("no workflow begins: %d %s", got.Status, got.Body)
	}
	return out.Workflow, out.ID
}

// checkpointOf is a checkpoint of a party, and what is changed of it.
func checkpointOf(t *testing.T, b *gatewaytest.Fixture, who *ecttest.Party, wid string, parent ect.ID, change func(*ect.Claims)) string {
	t.Helper()
	made := pure.Checkpoint{Reversible: true, RollbackURI: "https://agent.example" + pure.Path, TTL: time.Hour}
	c := ect.Claims{
		Act: ect.ActCheckpoint, Audience: []string{b.Self()}, Workflow: wid, Parents: []ect.ID{parent}, OutputHash: ect.Hash([]byte(stateText)), Ext: made.Ext(),
	}
	if change != nil {
		change(&c)
	}
	return gatewaytest.Signing(t, who, c)
}

func deposit(via *http.Client, tokens ...string) gatewaytest.HTTPRequest {
	return gatewaytest.HTTPRequest{Via: via, At: depositsAt, Media: "application/octet-stream", Body: stateText, Tokens: tokens}
}

// TestCheckpoints_Deposit: an agent deposits its state and gets it back with its token, as often as it asks; the state
// is in no log.
func TestCheckpoints_Deposit(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	wid, start := begun(t, b)
	token := checkpointOf(t, b, b.Me, wid, start, nil)
	claims, _, err := ect.ParseUnverified(token)
	gatewaytest.Must(t, err)
	for range 2 {
		var out checkpoints.Deposited
		got := b.Send(t, deposit(nil, token))
		if got.Status != http.StatusCreated || json.Unmarshal(got.Body, &out) != nil || out.ID != claims.ID || out.Workflow != wid ||
			!out.Expires.Equal(time.Unix(claims.IssuedAt, 0).Add(time.Hour)) || got.Header.Get("Location") != depositsAt+"/"+string(claims.ID) {
			t.Fatalf("%d %s, at %s", got.Status, got.Body, got.Header.Get("Location"))
		}
	}
	got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: depositsAt + "/" + string(claims.ID), Media: "-"})
	if got.Status != http.StatusOK || string(got.Body) != stateText || got.Header.Get("Cache-Control") != "private, no-store" ||
		got.Header.Get("Content-Type") != "application/octet-stream" || got.Header.Get(ect.HeaderName) != token {
		t.Errorf("fetched as %d %q with %v", got.Status, got.Body, got.Header)
	}
	view := gatewaytest.Answered[checkpoints.View](t, b.Send(t, b.Operator(http.MethodGet, "/api/checkpoints/"+string(claims.ID), "", nil)), http.StatusOK)
	if view.ID != claims.ID || view.How != checkpoints.ByDeposit || view.Agent != string(b.Me.ID) || view.Size != len(stateText) || view.Outcome != "" {
		t.Errorf("operators see %+v", view)
	}
	if strings.Contains(b.Logs.String(), stateText[:20]) {
		t.Error("the state is in the log")
	}
}

// TestCheckpoints_Mistakes: what is no deposit of the caller's own is refused with the problem that says why, and
// nothing is kept of it.
func TestCheckpoints_Mistakes(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	wid, start := begun(t, b)
	good := checkpointOf(t, b, b.Me, wid, start, nil)
	with := func(change func(*ect.Claims)) gatewaytest.HTTPRequest {
		return deposit(nil, checkpointOf(t, b, b.Me, wid, start, change))
	}
	long, text, other := deposit(nil, good), deposit(nil, good), deposit(nil, good)
	long.Body, text.Media, other.Body = strings.Repeat("x", checkpoint.MaxDeposit+1), "text/plain", "another state"
	for name, c := range map[string]struct {
		gatewaytest.HTTPRequest
		status int
		code   string
	}{
		"no token":           {deposit(nil), 403, "ect_required"},
		"two tokens":         {deposit(nil, good, b.Token(t, "x")), 400, "malformed_message"},
		"no token at all":    {deposit(nil, "x"), 400, "ect_invalid"},
		"another media type": {text, 415, "unsupported_media_type"},
		"too long":           {long, 413, "too_large"},
		"another state":      {other, 403, "ect_invalid"},
		"another act":        {with(func(c *ect.Claims) { c.Act = ect.ActError }), 403, "ect_invalid"},
		"no parent":          {with(func(c *ect.Claims) { c.Parents = nil }), 403, "ect_invalid"},
		"no time to live":    {with(func(c *ect.Claims) { delete(c.Ext, ect.ExtTTL) }), 403, "ect_invalid"},
		"no workflow":        {with(func(c *ect.Claims) { c.Workflow = "" }), 403, "ect_invalid"},
		"another token's id": {deposit(nil, otherToken(t, b, wid, start)), 403, "ect_invalid"},
		"no caller":          {deposit(b.Anonymous, good), 401, "unauthenticated"},
		"of another caller":  {deposit(b.As(t, "/concierge"), good), 403, "forbidden"},
	} {
		got := b.Send(t, c.HTTPRequest)
		if got.Status != c.status || !bytes.Contains(got.Body, []byte(`"code":"`+c.code+`"`)) || bytes.Contains(got.Body, []byte(c.Body)) {
			t.Errorf("%s: got %d %s, expected %d %s", name, got.Status, gatewaytest.Short(got.Body), c.status, c.code)
		}
	}
	list := gatewaytest.Answered[checkpoints.Page](t, b.Send(t, b.Operator(http.MethodGet, "/api/checkpoints?wid="+wid, "", nil)), http.StatusOK)
	if len(list.Checkpoints) != 1 {
		t.Errorf("kept are %+v, expected the first of the two with one id", list)
	}
}

// otherToken is a checkpoint under the id of another that is kept.
func otherToken(t *testing.T, b *gatewaytest.Fixture, wid string, start ect.ID) string {
	t.Helper()
	id := ect.NewID()
	first := checkpointOf(t, b, b.Me, wid, start, func(c *ect.Claims) { c.ID = id })
	if got := b.Send(t, deposit(nil, first)); got.Status != http.StatusCreated {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	return checkpointOf(t, b, b.Me, wid, start, func(c *ect.Claims) { c.ID, c.Ext[ect.ExtReversible] = id, json.RawMessage("false") })
}

// TestAttack_Checkpoints_OutsiderDeposits: a caller deposits a state into the workflow of others, with a token of its
// own that names a token of the workflow as parent. It is refused, and nothing of it is kept or on record.
func TestAttack_Checkpoints_OutsiderDeposits(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	wid, start := begun(t, b)
	svid := b.SVID(t, "/mallory")
	token := checkpointOf(t, b, b.Party(t, svid), wid, start, nil)
	via := b.Caller(t, svid)
	if got := b.Send(t, deposit(via, token)); got.Status != http.StatusForbidden || !bytes.Contains(got.Body, []byte(`"forbidden"`)) {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	list := gatewaytest.Answered[checkpoints.Page](t, b.Send(t, b.Operator(http.MethodGet, "/api/checkpoints?wid="+wid, "", nil)), http.StatusOK)
	records := workflowFixture(t, b, b.Client, wid)
	if len(list.Checkpoints) != 0 || len(records) != 1 {
		t.Errorf("%d checkpoints are kept, and %d tokens are on record, expected the start alone", len(list.Checkpoints), len(records))
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{Via: via, Method: http.MethodGet, At: "/atd/workflows/" + wid, Media: "-"}); got.Status != http.StatusNotFound {
		t.Errorf("it became a member by that: %d %s", got.Status, got.Body)
	}
}

// TestAttack_Checkpoints_StateOfAnother: a caller asks for the state that another agent deposited, also after it deposited
// one of its own under the same id in a workflow of its own. It gets its own alone; for other callers there is no such state.
func TestAttack_Checkpoints_StateOfAnother(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	wid, start := begun(t, b)
	token := checkpointOf(t, b, b.Me, wid, start, nil)
	claims, _, err := ect.ParseUnverified(token)
	gatewaytest.Must(t, err)
	if got := b.Send(t, deposit(nil, token)); got.Status != http.StatusCreated {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	svid := b.SVID(t, "/mallory")
	fetch := func(via *http.Client) gatewaytest.Reply {
		return b.Send(t, gatewaytest.HTTPRequest{Via: via, Method: http.MethodGet, At: depositsAt + "/" + string(claims.ID), Media: "-"})
	}
	mallory := b.Caller(t, svid)
	if got := fetch(mallory); got.Status != http.StatusNotFound || got.Header.Get(ect.HeaderName) != "" {
		t.Errorf("another caller: %d %s", got.Status, got.Body)
	}
	if got := fetch(b.Anonymous); got.Status != http.StatusUnauthorized {
		t.Errorf("a caller without an identity: %d %s", got.Status, got.Body)
	}
	began := gatewaytest.Answered[struct {
		Workflow string `json:"wid"`
		ID       ect.ID `json:"jti"`
	}](t, b.Send(t, gatewaytest.HTTPRequest{Via: mallory, At: "/atd/workflows"}), http.StatusCreated)
	const own = "a state of its own"
	its := deposit(mallory, checkpointOf(t, b, b.Party(t, svid), began.Workflow, began.ID, func(c *ect.Claims) { c.ID, c.OutputHash = claims.ID, ect.Hash([]byte(own)) }))
	its.Body = own
	if got := b.Send(t, its); got.Status != http.StatusCreated {
		t.Fatalf("its own: %d %s", got.Status, got.Body)
	}
	if got := fetch(mallory); string(got.Body) != own {
		t.Errorf("under the same id it gets %d %s", got.Status, got.Body)
	}
	if got := fetch(nil); string(got.Body) != stateText {
		t.Errorf("its agent gets %d %s", got.Status, got.Body)
	}
	path := "/api/checkpoints/" + string(claims.ID)
	if got := b.Send(t, b.Operator(http.MethodGet, path, "", nil)); got.Status != http.StatusConflict || !bytes.Contains(got.Body, []byte(wid)) {
		t.Errorf("operators are not told that there are two: %d %s", got.Status, got.Body)
	}
	if view := gatewaytest.Answered[checkpoints.View](t, b.Send(t, b.Operator(http.MethodGet, path+"?wid="+wid, "", nil)), http.StatusOK); view.Agent != string(b.Me.ID) {
		t.Errorf("in that workflow operators see %+v", view)
	}
}

// TestAttack_Checkpoints_IDOfAnother: a member of a workflow deposits a state under the id of a checkpoint that another
// member deposited there. It is told that the id is taken, and the first state stays as it was.
func TestAttack_Checkpoints_IDOfAnother(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	wid, start := begun(t, b)
	call := gatewaytest.ToolCall("calculator", "add", `{"a":41000,"b":1}`)
	call.Header["Aepb-Parent-Jti"] = string(start)
	b.Right(t, b.Send(t, call), `"sum":41001`)
	token := checkpointOf(t, b, b.Me, wid, start, nil)
	claims, _, err := ect.ParseUnverified(token)
	gatewaytest.Must(t, err)
	if got := b.Send(t, deposit(nil, token)); got.Status != http.StatusCreated {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	svid := b.SVID(t, "/calculator")
	member := b.Caller(t, svid)
	fresh := checkpointOf(t, b, b.Party(t, svid), wid, start, nil)
	if got := b.Send(t, deposit(member, fresh)); got.Status != http.StatusCreated {
		t.Fatalf("under an id of its own: %d %s", got.Status, got.Body)
	}
	taken := checkpointOf(t, b, b.Party(t, svid), wid, start, func(c *ect.Claims) { c.ID = claims.ID })
	if got := b.Send(t, deposit(member, taken)); got.Status != http.StatusForbidden || !bytes.Contains(got.Body, []byte(`"ect_invalid"`)) {
		t.Errorf("under the id of another: %d %s", got.Status, got.Body)
	}
	at := depositsAt + "/" + string(claims.ID)
	if got := b.Send(t, gatewaytest.HTTPRequest{Via: member, Method: http.MethodGet, At: at, Media: "-"}); got.Status != http.StatusNotFound {
		t.Errorf("it reads the state of another: %d %s", got.Status, got.Body)
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: at, Media: "-"}); string(got.Body) != stateText || got.Header.Get(ect.HeaderName) != token {
		t.Errorf("the first state became %d %q", got.Status, got.Body)
	}
}

// addsAndTakesAway has the sum of a call be undone by a call that takes one away from it.
func addsAndTakesAway(t *testing.T, b *gatewaytest.Fixture) {
	t.Helper()
	rule, err := compensation.ParseRule([]byte(`{"tool":"add","arguments":{"a":{"result":"/sum"},"b":-1}}`))
	gatewaytest.Must(t, err)
	agent, ok := b.Directory().Find("calculator")
	if !ok {
		t.Fatal("the calculator is not listed")
	}
	agent.Undo = directory.Undo{Compensate: map[string]compensation.Rule{"add": rule}}
	gatewaytest.Must(t, b.Directory().Put(agent))
}

// ordered is a request of an operator for a rollback, by its role.
func ordered(t *testing.T, b *gatewaytest.Fixture, role, body string) gatewaytest.Reply {
	t.Helper()
	return b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/"+role), At: b.At.Admin + "/api/rollbacks", Body: body})
}

// TestRollbacks_OfAnOperator: an operator sees the checkpoint of a call, what a rollback would do, and begins one; the
// agent is called once more, and each step is shown. What was undone is undone once.
func TestRollbacks_OfAnOperator(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: gatewaytest.Staff(), NoToken: true})
	addsAndTakesAway(t, b)
	wid, start := begun(t, b)
	call := gatewaytest.ToolCall("calculator", "add", `{"a":41000,"b":1}`)
	call.Header["Aepb-Parent-Jti"] = string(start)
	b.Right(t, b.Send(t, call), `"sum":41001`)
	looks := func(path string) gatewaytest.Reply {
		return b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/viewer"), Method: http.MethodGet, At: b.At.Admin + path})
	}
	list := gatewaytest.Answered[checkpoints.Page](t, looks("/api/checkpoints?wid="+wid), http.StatusOK)
	if len(list.Checkpoints) != 1 {
		t.Fatalf("%d checkpoints, expected that of the call", len(list.Checkpoints))
	}
	made := list.Checkpoints[0]
	if made.Agent != "calculator" || made.Tool != "add" || made.How != checkpoints.ByCall || made.UndoTool != "add" || made.Outcome != "known" || made.Workflow != wid {
		t.Errorf("the checkpoint is %+v", made)
	}
	order := `{"checkpoint":"` + string(made.ID) + `"`
	ahead := gatewaytest.Answered[checkpoints.Plan](t, ordered(t, b, "operator", order+`,"plan":true}`), http.StatusOK)
	if len(ahead.Steps) != 1 || ahead.Steps[0].How != undo.ByCall || ahead.Steps[0].Checkpoint != made.ID || len(ahead.Agents) != 1 || ahead.Agents[0] != "calculator" || ahead.Workflow != wid || !ahead.By.After(time.Now()) {
		t.Errorf("planned is %+v", ahead)
	}
	if n := len(b.CallsOf(41001)); n != 0 {
		t.Errorf("the agent was called %d times by a plan", n)
	}
	got := ordered(t, b, "operator", order+`,"reason":"it was wrong"}`)
	view := gatewaytest.Answered[rollback.View](t, got, http.StatusAccepted)
	at := "/api/rollbacks/" + wid + "/" + string(view.Request)
	if got.Header.Get("Location") != at {
		t.Errorf("it is at %s", got.Header.Get("Location"))
	}
	gatewaytest.Within(t, gatewaytest.Patience, "the rollback ends", func() bool {
		view = gatewaytest.Answered[rollback.View](t, looks(at), http.StatusOK)
		return view.Status != ""
	})
	if view.Status != undo.StatusCompleted || len(view.Steps) != 1 || view.Steps[0].State != undo.StepCompleted || view.Steps[0].Request != "" {
		t.Errorf("it ended as %+v", view)
	}
	if n := len(b.CallsOf(41001)); n != 1 {
		t.Errorf("the agent was called %d times", n)
	}
	for _, say := range []string{`"operator":"the operator"`, `"path":"/api/rollbacks"`} {
		if !strings.Contains(b.Logs.String(), say) {
			t.Errorf("%s is not in the log", say)
		}
	}
	if strings.Contains(b.Logs.String(), "41000") {
		t.Error("an argument is in the log")
	}
}

// TestAttack_Rollbacks_WithoutTheRole: operators without the role operator, and callers, begin a rollback or ask for its
// plan. They are refused, and the agent hears nothing.
func TestAttack_Rollbacks_WithoutTheRole(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: gatewaytest.Staff(), NoToken: true})
	addsAndTakesAway(t, b)
	wid, start := begun(t, b)
	call := gatewaytest.ToolCall("calculator", "add", `{"a":41000,"b":1}`)
	call.Header["Aepb-Parent-Jti"] = string(start)
	b.Right(t, b.Send(t, call), `"sum":41001`)
	list := gatewaytest.Answered[checkpoints.Page](t, b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/viewer"), Method: http.MethodGet, At: b.At.Admin + "/api/checkpoints?wid=" + wid}), http.StatusOK)
	order := `{"checkpoint":"` + string(list.Checkpoints[0].ID) + `","cascade":true,"reason":"mine"`
	before := len(workflowFixture(t, b, b.Client, wid))
	for _, role := range []string{"viewer", "approver", "auditor", "stranger"} {
		for _, body := range []string{order + "}", order + `,"plan":true}`} {
			if got := ordered(t, b, role, body); got.Status != http.StatusForbidden {
				t.Errorf("%s: %d %s", role, got.Status, got.Body)
			}
		}
	}
	if after := len(workflowFixture(t, b, b.Client, wid)); after != before || len(b.CallsOf(41001)) != 0 {
		t.Errorf("%d tokens became %d, and the agent was called", before, after)
	}
	for _, path := range []string{"/api/checkpoints?wid=" + wid, "/api/rollbacks/" + wid + "/x"} {
		if got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + path}); got.Status != http.StatusForbidden {
			t.Errorf("a caller reads %s: %d %s", path, got.Status, got.Body)
		}
	}
}

// TestAttack_Rollbacks_IDOfACheckpoint: an agent signs a checkpoint of its own under the id of the one that the gateway made
// of its call, and puts it on record in the same workflow. The call is undone all the same.
func TestAttack_Rollbacks_IDOfACheckpoint(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: gatewaytest.Staff(), NoToken: true})
	addsAndTakesAway(t, b)
	wid, start := begun(t, b)
	call := gatewaytest.ToolCall("calculator", "add", `{"a":41000,"b":1}`)
	call.Header["Aepb-Parent-Jti"] = string(start)
	b.Right(t, b.Send(t, call), `"sum":41001`)
	list := gatewaytest.Answered[checkpoints.Page](t, b.Send(t, gatewaytest.HTTPRequest{Via: b.As(t, "/staff/viewer"), Method: http.MethodGet, At: b.At.Admin + "/api/checkpoints?wid=" + wid}), http.StatusOK)
	made := list.Checkpoints[0]
	svid := b.SVID(t, "/calculator")
	same := checkpointOf(t, b, b.Party(t, svid), wid, start, func(c *ect.Claims) { c.ID, c.Ext[ect.ExtReversible] = made.ID, json.RawMessage("false") })
	if got := b.Send(t, deposit(b.Caller(t, svid), same)); got.Status != http.StatusForbidden {
		t.Fatalf("deposited: %d %s", got.Status, got.Body)
	}
	ahead := gatewaytest.Answered[checkpoints.Plan](t, ordered(t, b, "operator", `{"checkpoint":"`+string(made.ID)+`","wid":"`+wid+`","plan":true}`), http.StatusOK)
	if len(ahead.Steps) != 1 || ahead.Steps[0].How != undo.ByCall || ahead.Steps[0].Agent != "calculator" {
		t.Errorf("planned is %+v", ahead)
	}
}
