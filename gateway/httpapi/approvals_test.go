package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/httpapi/approvals"
	"github.com/aepb/aepb-gateway/gateway/listing"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	approvalID   = "0b39f2a1-6a0c-4a3e-9f0e-3c1a4f6f5d11"
	approvalText = "agent files, tool delete_all\n{\"path\": \"/\u202e\"}"
	shownHash    = "hash-of-the-text"
	gatedID      = "5b0f6d0e-6d0f-4c3f-9a43-5d6f0f2f5c11"
	approvalWID  = "8d6b1f0e-0f52-4a4e-8a35-6b0b1f0f3c22"
)

// memory keeps approvals in memory, by the machine of package hitl.
type memory struct {
	mu     sync.Mutex
	views  map[string]approval.View
	query  approval.Query
	fails  error // of each question, if not nil
	levels map[string]approval.Level
}

func (m *memory) Levels() []approval.Level {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.levels))
}

func (m *memory) Set(_ context.Context, wid string, e hitl.StandingEvent) (approval.Level, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := m.levels[wid].Next(e)
	if err != nil {
		return approval.Level{}, err
	}
	if m.levels == nil {
		m.levels = map[string]approval.Level{}
	}
	m.levels[wid] = approval.Level{Standing: next, Workflow: wid}
	return m.levels[wid], m.fails
}

func (m *memory) List(_ context.Context, q approval.Query) (approval.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.query = q
	var page approval.Page
	for _, id := range slices.Sorted(maps.Keys(m.views)) {
		a := m.views[id].Approval
		switch {
		case q.State != "" && a.State != q.State, id <= q.After:
		case len(page.Approvals) == q.Limit:
			page.Next = page.Approvals[q.Limit-1].ID
			return page, m.fails
		default:
			page.Approvals = append(page.Approvals, a)
		}
	}
	return page, m.fails
}

func (m *memory) Show(_ context.Context, id string) (approval.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	view, ok := m.views[id]
	if !ok {
		return view, &problem.NotFoundError{What: "approval of a name", Hint: "look elsewhere"}
	}
	return view, m.fails
}

func (m *memory) Decide(_ context.Context, id string, d approval.Decision) (hitl.Approval, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	view := m.views[id]
	event := hitl.Event{Kind: hitl.Deny, At: time.Now(), Approver: d.Approver, Roles: d.Roles, Reason: d.Reason, Shown: d.Shown, Token: d.Token}
	if d.Grant {
		event.Kind = hitl.Grant
	}
	next, err := view.Next(event)
	if err == nil {
		view.Approval = next
		m.views[id] = view
	}
	return next, err
}

// verified judges tokens as the gateway does, and L1 tokens too.
type verified struct{ *ect.Verifier }

func (v verified) Decision(ctx context.Context, caller identity.Caller, holder, compact string) (ect.Verified, error) {
	claims, _, err := ect.ParseUnverified(compact)
	if err != nil {
		return ect.Verified{}, err
	}
	return v.Verify(ctx, compact, ect.Check{Purpose: ect.Source, Peer: caller.Peer, Body: claims.InputHash, Holder: ect.Identity(holder)})
}

// deciding is a gateway with one approval that waits, and those who ask about it.
type deciding struct {
	*memory

	public, admin                         *surface
	caller, approver, oncall, eve, viewer *ecttest.Party
	auditor, approvingCaller              *ecttest.Party
	log                                   *bytes.Buffer
}

func newApproval(caller ect.Identity) approval.View {
	return approval.View{Text: approvalText, Approval: hitl.Approval{
		Form: hitl.Form, ID: approvalID, Term: 1, State: hitl.Pending, Shown: shownHash, Whole: true, Task: "task-1",
		Call:   hitl.Call{Caller: caller, Agent: "files", Operation: "invoke", Tool: "delete_all", Digest: ect.Hash([]byte("message"))},
		Origin: hitl.Origin{Workflow: approvalWID, Gated: gatedID, Input: ect.Hash([]byte("message"))},
		Demand: hitl.Demand{Rules: []string{"approval-1"}, Roles: []string{"approver"}, Approvers: 1, Wait: time.Hour, Unreachable: hitl.DenyCall},
		Opened: time.Now(), Changed: time.Now(), Until: time.Now().Add(time.Hour),
	}}
}

func newDeciding(t *testing.T) *deciding {
	t.Helper()
	party := func(name string) *ecttest.Party {
		return ecttest.NewParty(t, ect.Identity("spiffe://example.com/"+name))
	}
	d := &deciding{
		caller: party("caller"), approver: party("people/ann"), oncall: party("people/oncall"), eve: party("eve"), viewer: party("people/bob"),
		auditor: party("people/auditor"), approvingCaller: party("people/carl"), log: &bytes.Buffer{},
	}
	d.memory = &memory{views: map[string]approval.View{approvalID: newApproval(d.caller.ID)}}
	logger := slog.New(slog.NewTextHandler(d.log, nil))
	people := map[ect.Identity]policy.Operator{}
	for name, roles := range map[string][]policy.Role{
		"ann": {policy.RoleApprover}, "oncall": {policy.RoleOperator}, "bob": {policy.RoleViewer}, "auditor": {policy.RoleAuditor}, "carl": {policy.RoleApprover},
	} {
		id := ect.Identity("spiffe://example.com/people/" + name)
		people[id] = policy.Operator{Name: name, ID: id, Roles: roles}
	}
	operators := func(id ect.Identity) (policy.Operator, bool) { who, ok := people[id]; return who, ok }
	verifier, err := ect.NewVerifier(ect.VerifierDeps{
		Keys: ecttest.KeysOf(d.caller, d.approver, d.oncall, d.eve, d.approvingCaller), Replay: ecttest.NewReplay(), Audience: []string{"spiffe://example.com/gateway"}, MinLevel: ect.L1,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.public, d.admin = d.surfaces(t, logger, operators, verified{verifier})
	return d
}

func (d *deciding) surfaces(t *testing.T, logger *slog.Logger, operators httpapi.Operators, tokens approvals.Tokens) (public, admin *surface) {
	t.Helper()
	registry, err := translators.NewRegistry(a2a.New(translators.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	store := ecttest.NewStore()
	members, err := membership.New(membership.Deps{Store: store, Self: "spiffe://example.com/gateway"})
	if err != nil {
		t.Fatal(err)
	}
	calls := &fakeHandler{}
	deps := httpapi.PublicDeps{
		EvidenceDeps: httpapi.EvidenceDeps{Evidence: store, Members: members}, Handler: calls, Undo: httpapi.Undo{Rollbacker: calls}, Registry: registry,
		Humans:  httpapi.Humans{Approvals: approvals.Public{Service: d.memory, Tokens: tokens, Operators: operators, Logger: logger}},
		Callers: httpapi.Callers{Authenticators: []httpapi.Authenticator{byToken}},
		BaseURL: func(*http.Request) string { return "https://gw.example" }, Logger: logger,
	}
	handler, err := httpapi.Public(deps)
	if err != nil {
		t.Fatal(err)
	}
	deps.Approvals.Tokens = nil
	if _, err := httpapi.Public(deps); err == nil {
		t.Error("approvals without a verifier of tokens are served")
	}
	agents, err := directory.New(directory.Deps{Describers: map[canonical.Binding]transport.Describer{"a2a-v1": quiet{}}, Egress: quiet{}, Now: time.Now, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := listing.New(listing.Deps{Directory: agents, Now: time.Now, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	operated, err := httpapi.Admin(httpapi.AdminDeps{
		MonitoringDeps: httpapi.MonitoringDeps{Metrics: http.NotFoundHandler(), Ready: func() error { return nil }, Logger: logger},
		Directory:      agents, Agents: listed, Registry: registry, Operators: operators, Hosts: []string{"127.0.0.1"}, Records: httpapi.Records{Approvals: d.memory, Levels: levels{d.memory}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &surface{handler: handler}, &surface{handler: operated}
}

// token is a decision of a party about the approval, and what is changed of it.
func (d *deciding) token(t *testing.T, from *ecttest.Party, change func(*ect.Claims)) string {
	t.Helper()
	a := d.views[approvalID].Approval
	claims := ect.Claims{
		Audience: []string{"spiffe://example.com/gateway"}, Workflow: a.Origin.Workflow, Act: ect.ActApprovalGranted, Parents: []ect.ID{a.Origin.Gated}, InputHash: a.Origin.Input,
	}
	if change != nil {
		change(&claims)
	}
	return ecttest.Mint(t, from, ecttest.Recipe{Claims: claims})
}

const decisionPath = "/hitl/approvals/" + approvalID + "/decision"

// decide posts a token on the public listener.
func (d *deciding) decide(from *ecttest.Party, token, body string) *httptest.ResponseRecorder {
	header := jsonBody()
	if token != "" {
		header.Set(ect.HeaderName, token)
	}
	return d.public.do(http.MethodPost, decisionPath, body, from, header)
}

// order posts a decision on the admin listener.
func (d *deciding) order(from *ecttest.Party, body string) *httptest.ResponseRecorder {
	return d.admin.do(http.MethodPost, adminPath+"/decision", body, from, jsonBody())
}

func (d *deciding) state() hitl.State { return d.views[approvalID].State }

const (
	adminPath = "https://127.0.0.1:9443/api/approvals/" + approvalID
	shownBody = `{"shown":"` + shownHash + `","reason":"fine"}`
	approve   = `{"decision":"approve","shown":"` + shownHash + `","reason":"fine"}`
)

// TestApprovals_Read: a caller sees how its approval stands and no text; approvers see all, and each read is logged;
// others get 404, in the same words as where there is none.
func TestApprovals_Read(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	absent := d.public.do(http.MethodGet, "/hitl/approvals/other", "", d.approver, nil)
	get := func(who *ecttest.Party) *httptest.ResponseRecorder {
		return d.public.do(http.MethodGet, "/hitl/approvals/"+approvalID, "", who, nil)
	}
	own := get(d.caller)
	var members map[string]any
	if err := json.Unmarshal(own.Body.Bytes(), &members); err != nil || own.Code != 200 {
		t.Fatalf("the caller: %d %s", own.Code, own.Body)
	}
	if diff := cmp.Diff([]string{"id", "rules", "state", "task", "until", "wid"}, slices.Sorted(maps.Keys(members))); diff != "" {
		t.Errorf("the caller (-want +got):\n%s", diff)
	}
	if d.log.Len() != 0 {
		t.Errorf("a caller's own read is logged: %s", d.log)
	}
	var full approvals.Full
	if w := get(d.approver); w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &full) != nil || full.Text != approvalText || full.Shown != shownHash || full.Call.Tool != "delete_all" || full.Gated != gatedID {
		t.Errorf("the approver: %d %s", w.Code, w.Body)
	}
	if line := d.log.String(); !strings.Contains(line, "text of an approval read") || !strings.Contains(line, "operator=ann") || !strings.Contains(line, approvalID) || strings.Contains(line, "delete_all") {
		t.Errorf("the log has %q", line)
	}
	for _, who := range []*ecttest.Party{d.eve, d.viewer, d.auditor, d.oncall} {
		if w := get(who); w.Code != 404 || !sameProblem(t, w, absent) {
			t.Errorf("%s: %d %s, expected what is said of an id that does not exist: %s", who.ID, w.Code, w.Body, absent.Body)
		}
	}
	if w := get(nil); w.Code != 401 {
		t.Errorf("without an identity: %d", w.Code)
	}
	d.demand("operator:oncall")
	if w := get(d.oncall); w.Code != 200 || !strings.Contains(w.Body.String(), "delete_all") {
		t.Errorf("the operator that is demanded: %d %s", w.Code, w.Body)
	}
	d.demand("operator:other")
	if w := get(d.oncall); w.Code != 404 {
		t.Errorf("an operator where another is demanded: %d %s", w.Code, w.Body)
	}
}

// byToken knows the bearer of a token as an approver.
func byToken(_ context.Context, r credential.Request) (identity.Caller, bool, error) {
	shown := r.Fields("Authorization")
	return identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/people/ann"}}, len(shown) > 0, nil
}

// TestAttack_Approvals_TokenIsNoCertificate: a bearer token makes no operator of its bearer (R17).
func TestAttack_Approvals_TokenIsNoCertificate(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	bearer := http.Header{"Authorization": {"Bearer x"}}
	if w := d.public.do(http.MethodGet, "/hitl/approvals/"+approvalID, "", nil, bearer); w.Code != 404 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// demand has the approval demand roles.
func (d *deciding) demand(roles ...string) {
	view := d.views[approvalID]
	view.Demand.Roles = roles
	d.views[approvalID] = view
}

// sameProblem reports whether two problems differ in their path and number alone.
func sameProblem(t *testing.T, a, b *httptest.ResponseRecorder) bool {
	t.Helper()
	var both [2]map[string]any
	for i, w := range []*httptest.ResponseRecorder{a, b} {
		if err := json.Unmarshal(w.Body.Bytes(), &both[i]); err != nil {
			t.Fatal(err)
		}
		delete(both[i], "instance")
		delete(both[i], "request_id")
	}
	return cmp.Equal(both[0], both[1])
}

// TestApprovals_ReadByOperators: operators see approvals; auditors and approvers see the text, and that is logged.
func TestApprovals_ReadByOperators(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	for who, reads := range map[*ecttest.Party]bool{d.viewer: false, d.oncall: false, d.approver: true, d.auditor: true} {
		d.log.Reset()
		w := d.admin.do(http.MethodGet, adminPath, "", who, nil)
		var full approvals.Full
		if err := json.Unmarshal(w.Body.Bytes(), &full); w.Code != 200 || err != nil || full.Shown != shownHash {
			t.Errorf("%s: %d %s", who.ID, w.Code, w.Body)
		}
		if (full.Text == approvalText) != reads || (full.Text == "") == reads || strings.Contains(d.log.String(), "text of an approval read") != reads {
			t.Errorf("%s: the text is %q, the log %q", who.ID, full.Text, d.log)
		}
	}
	for who, want := range map[*ecttest.Party]int{d.eve: 403, d.caller: 403, d.viewer: 404} {
		if w := d.admin.do(http.MethodGet, adminPath+"x", "", who, nil); w.Code != want {
			t.Errorf("%s: %d, expected %d", who.ID, w.Code, want)
		}
	}
}

// TestApprovals_Pages: approvals come in pages, of one state, and without texts.
func TestApprovals_Pages(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	for i := range 4 {
		view := newApproval(d.caller.ID)
		view.ID = fmt.Sprintf("1%d", i)
		if i == 3 {
			view.State = hitl.Denied
		}
		d.views[view.ID] = view
	}
	var ids []string
	for query := "?state=pending&limit=3"; query != ""; {
		w := d.admin.do(http.MethodGet, "https://127.0.0.1:9443/api/approvals"+query, "", d.approver, nil)
		var page approvals.Page
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 || strings.Contains(w.Body.String(), "delete_all\\n") {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		for _, a := range page.Approvals {
			ids = append(ids, a.ID)
		}
		link := w.Header().Get("Link")
		if (link != "") != (page.Next != "") {
			t.Errorf("next is %q, the link %q", page.Next, link)
		}
		query, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
	}
	if want := []string{approvalID, "10", "11", "12"}; !slices.Equal(ids, want) {
		t.Errorf("got %q, expected %q", ids, want)
	}
	for _, query := range []string{"?state=maybe", "?limit=0", "?limit=x", "?limit=-1"} {
		if w := d.admin.do(http.MethodGet, "https://127.0.0.1:9443/api/approvals"+query, "", d.viewer, nil); w.Code != 400 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	if d.admin.do(http.MethodGet, "https://127.0.0.1:9443/api/approvals?limit=99999", "", d.viewer, nil); d.query.Limit != approval.MaxPage {
		t.Errorf("the limit is %d", d.query.Limit)
	}
}

// TestApprovals_Decide: an approver decides on either listener; the record says who, what was shown, and which token.
func TestApprovals_Decide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decide func(*deciding) *httptest.ResponseRecorder
		want   hitl.State
		by     string
	}{
		"token, granted": {func(d *deciding) *httptest.ResponseRecorder {
			return d.decide(d.approver, d.token(t, d.approver, nil), shownBody)
		}, hitl.Granted, "ann"},
		"token, denied": {func(d *deciding) *httptest.ResponseRecorder {
			return d.decide(d.approver, d.token(t, d.approver, func(c *ect.Claims) { c.Act = ect.ActApprovalDenied }), shownBody)
		}, hitl.Denied, "ann"},
		"order, granted": {func(d *deciding) *httptest.ResponseRecorder { return d.order(d.approver, approve) }, hitl.Granted, "ann"},
		"order, denied": {func(d *deciding) *httptest.ResponseRecorder {
			return d.order(d.approver, strings.Replace(approve, "approve", "deny", 1))
		}, hitl.Denied, "ann"},
		"order of the operator that is demanded": {func(d *deciding) *httptest.ResponseRecorder {
			d.demand("operator:oncall")
			return d.order(d.oncall, approve)
		}, hitl.Granted, "oncall"},
		"token of the operator that is demanded": {func(d *deciding) *httptest.ResponseRecorder {
			d.demand("operator:oncall")
			return d.decide(d.oncall, d.token(t, d.oncall, nil), shownBody)
		}, hitl.Granted, "oncall"},
	} {
		d := newDeciding(t)
		w := c.decide(d)
		var full approvals.Full
		if err := json.Unmarshal(w.Body.Bytes(), &full); err != nil || w.Code != 200 || full.State != c.want || d.state() != c.want || full.Text != "" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
			continue
		}
		got := d.views[approvalID].Decisions[0]
		if got.Approver.Name != c.by || got.Approver.ID != ect.Identity("spiffe://example.com/people/"+c.by) || got.Reason != "fine" || got.Shown != shownHash || (got.Token != "") != strings.HasPrefix(name, "token") {
			t.Errorf("%s: recorded %+v", name, got)
		}
	}
}

// TestAttack_Approvals_Decide: what is no decision of an approver about this call changes nothing.
func TestAttack_Approvals_Decide(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	approver, caller := d.approver, d.caller
	changed := func(change func(*ect.Claims)) string { return d.token(t, approver, change) }
	unsigned := func(from *ecttest.Party) string {
		a := d.views[approvalID].Approval
		return ecttest.MintUnsigned(t, from, ecttest.Recipe{Claims: ect.Claims{
			Audience: []string{"spiffe://example.com/gateway"}, Workflow: a.Origin.Workflow, Act: ect.ActApprovalGranted, Parents: []ect.ID{a.Origin.Gated}, InputHash: a.Origin.Input,
		}})
	}
	good := d.token(t, approver, nil)
	for name, c := range map[string]struct {
		from        *ecttest.Party
		token, body string
		status      int
		code        string
	}{
		"a stranger":                      {d.eve, d.token(t, d.eve, nil), shownBody, 404, "not_found"},
		"a stranger with another's token": {d.eve, good, shownBody, 404, "not_found"},
		"its caller":                      {caller, d.token(t, caller, nil), shownBody, 403, "forbidden"},
		"its caller, another's token":     {caller, good, shownBody, 403, "forbidden"},
		"an operator without the role":    {d.oncall, d.token(t, d.oncall, nil), shownBody, 404, "not_found"},
		"an approver, another's token":    {d.approvingCaller, good, shownBody, 403, "ect_invalid"},
		"another workflow":                {approver, changed(func(c *ect.Claims) { c.Workflow = string(ect.NewID()) }), shownBody, 403, "forbidden"},
		"no workflow":                     {approver, changed(func(c *ect.Claims) { c.Workflow = "" }), shownBody, 403, "forbidden"},
		"another inp_hash":                {approver, changed(func(c *ect.Claims) { c.InputHash = ect.Hash([]byte("other")) }), shownBody, 403, "forbidden"},
		"no inp_hash":                     {approver, changed(func(c *ect.Claims) { c.InputHash = "" }), shownBody, 403, "forbidden"},
		"another parent":                  {approver, changed(func(c *ect.Claims) { c.Parents = []ect.ID{ect.NewID()} }), shownBody, 403, "forbidden"},
		"two parents":                     {approver, changed(func(c *ect.Claims) { c.Parents = append(c.Parents, ect.NewID()) }), shownBody, 403, "forbidden"},
		"no parent":                       {approver, changed(func(c *ect.Claims) { c.Parents = nil }), shownBody, 403, "forbidden"},
		"another act":                     {approver, changed(func(c *ect.Claims) { c.Act = "approve" }), shownBody, 403, "ect_invalid"},
		"another audience":                {approver, changed(func(c *ect.Claims) { c.Audience = []string{"spiffe://x/y"} }), shownBody, 403, "ect_invalid"},
		"L1":                              {approver, unsigned(approver), shownBody, 403, "ect_invalid"},
		"no token":                        {approver, "", shownBody, 403, "ect_required"},
		"two tokens":                      {approver, good + "," + changed(nil), shownBody, 400, "malformed_message"},
		"no token at all":                 {approver, "x.y", shownBody, 400, "ect_invalid"},
		"another text":                    {approver, changed(nil), `{"shown":"other"}`, 403, "forbidden"},
		"no text":                         {approver, good, `{"reason":"x"}`, 400, "malformed_message"},
		"duplicate members":               {approver, good, `{"shown":"other","shown":"` + shownHash + `"}`, 400, "malformed_message"},
		"another case":                    {approver, good, `{"Shown":"` + shownHash + `"}`, 400, "malformed_message"},
		"an unknown member":               {approver, good, `{"shown":"` + shownHash + `","grant":true}`, 400, "malformed_message"},
		"no object":                       {approver, good, `[]`, 400, "malformed_message"},
		"two values":                      {approver, good, shownBody + shownBody, 400, "malformed_message"},
		"no body":                         {approver, good, ``, 400, "malformed_message"},
		"a reason of 10,000 characters":   {approver, good, `{"shown":"` + shownHash + `","reason":"` + strings.Repeat("x", 10_000) + `"}`, 413, "too_large"},
		"a reason of 513 bytes":           {approver, good, `{"shown":"` + shownHash + `","reason":"` + strings.Repeat("x", 513) + `"}`, 400, "malformed_message"},
		"a reason of two lines":           {approver, good, `{"shown":"` + shownHash + `","reason":"a\nb"}`, 400, "malformed_message"},
		"a reason with U+2028":            {approver, good, `{"shown":"` + shownHash + `","reason":"a\u2028b"}`, 400, "malformed_message"},
	} {
		w := d.decide(c.from, c.token, c.body)
		if w.Code != c.status || code(w) != c.code || d.state() != hitl.Pending || len(d.views[approvalID].Decisions) != 0 {
			t.Errorf("%s: got %d %s, state %s, expected %d %s", name, w.Code, w.Body, d.state(), c.status, c.code)
		}
	}
	if w := d.public.do(http.MethodPost, decisionPath, shownBody, approver, http.Header{ect.HeaderName: {good}, "Content-Type": {"text/plain"}}); w.Code != 415 {
		t.Errorf("another media type: %d", w.Code)
	}
	if w := d.decide(approver, good, shownBody); w.Code != 200 || d.state() != hitl.Granted {
		t.Errorf("what was refused has used up the token: %d %s", w.Code, w.Body)
	}
}

// TestAttack_Approvals_StrangerLearnsNothing: a decision about an approval of others is answered as one about none.
func TestAttack_Approvals_StrangerLearnsNothing(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	for _, body := range []string{shownBody, `{}`, `{"shown":"x"}`} {
		for _, token := range []string{"", "x.y", d.token(t, d.eve, nil)} {
			header := jsonBody()
			if token != "" {
				header.Set(ect.HeaderName, token)
			}
			there := d.decide(d.eve, token, body)
			absent := d.public.do(http.MethodPost, "/hitl/approvals/other/decision", body, d.eve, header)
			if there.Code != absent.Code || !sameProblem(t, there, absent) {
				t.Errorf("%s: %s, and of an id that does not exist %s", body, there.Body, absent.Body)
			}
		}
	}
}

// TestAttack_Approvals_Own: a caller with the role approver does not decide about its own call.
func TestAttack_Approvals_Own(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	view := newApproval(d.approvingCaller.ID)
	d.views[approvalID] = view
	for name, w := range map[string]*httptest.ResponseRecorder{
		"token": d.decide(d.approvingCaller, d.token(t, d.approvingCaller, nil), shownBody), "order": d.order(d.approvingCaller, approve),
	} {
		if w.Code != 403 || code(w) != "forbidden" || d.state() != hitl.Pending {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestAttack_Approvals_Replay: a token counts once. The same again changes nothing, also with another body, and a
// denial under the id of a grant is not taken for it.
func TestAttack_Approvals_Replay(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	id := ect.NewID()
	granted := d.token(t, d.approver, func(c *ect.Claims) { c.ID = id })
	for _, body := range []string{shownBody, shownBody, `{"shown":"` + shownHash + `","reason":"other"}`} {
		if w := d.decide(d.approver, granted, body); w.Code != 200 || d.state() != hitl.Granted {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if made := d.views[approvalID].Decisions; len(made) != 1 || made[0].Reason != "fine" || d.views[approvalID].Term != 2 {
		t.Errorf("decisions are %+v", made)
	}
	denied := d.token(t, d.approver, func(c *ect.Claims) { c.ID, c.Act = id, ect.ActApprovalDenied })
	if w := d.decide(d.approver, denied, shownBody); w.Code == 200 {
		t.Errorf("a denial under a used id: %d %s", w.Code, w.Body)
	}
	view := d.views[approvalID]
	view.Decisions = nil // another approval of the same call
	view.State = hitl.Pending
	d.views[approvalID] = view
	if w := d.decide(d.approver, granted, shownBody); w.Code != 409 || d.state() != hitl.Pending {
		t.Errorf("a used token for another approval: %d %s", w.Code, w.Body)
	}
}

// TestAttack_Approvals_Order: what is no decision of an operator with the role changes nothing.
func TestAttack_Approvals_Order(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	for name, c := range map[string]struct {
		from   *ecttest.Party
		body   string
		status int
	}{
		"a stranger":                     {d.eve, approve, 403},
		"its caller":                     {d.caller, approve, 403},
		"no certificate":                 {nil, approve, 403},
		"a viewer":                       {d.viewer, approve, 403},
		"an auditor":                     {d.auditor, approve, 403},
		"an operator without the demand": {d.oncall, approve, 403},
		"another text":                   {d.approver, strings.Replace(approve, shownHash, "other", 1), 403},
		"no text":                        {d.approver, `{"decision":"approve"}`, 400},
		"another decision":               {d.approver, strings.Replace(approve, "approve", "maybe", 1), 400},
		"duplicate members":              {d.approver, `{"decision":"deny",` + approve[1:], 400},
		"an unknown member":              {d.approver, `{"roles":["approver"],` + approve[1:], 400},
		"a reason of 10,000 characters":  {d.approver, strings.Replace(approve, "fine", strings.Repeat("x", 10_000), 1), 413},
		"a reason of 513 bytes":          {d.approver, strings.Replace(approve, "fine", strings.Repeat("x", 513), 1), 400},
	} {
		if w := d.order(c.from, c.body); w.Code != c.status || d.state() != hitl.Pending {
			t.Errorf("%s: got %d %s, expected %d", name, w.Code, w.Body, c.status)
		}
	}
	if log := d.log.String(); !strings.Contains(log, "result=refused operator=bob") || !strings.Contains(log, "result=refused operator=auditor") {
		t.Errorf("orders without a role are not refused before they are read: %s", log)
	}
	d.demand("operator:other")
	for _, who := range []*ecttest.Party{d.oncall, d.approver} {
		if w := d.order(who, approve); w.Code != 403 || d.state() != hitl.Pending {
			t.Errorf("%s where another operator is demanded: %d %s", who.ID, w.Code, w.Body)
		}
	}
	d.demand()
	if w := d.order(d.oncall, approve); w.Code != 403 || d.state() != hitl.Pending {
		t.Errorf("an operator where no role is demanded: %d %s", w.Code, w.Body)
	}
	d.demand("approver")
	if w := d.order(d.approver, strings.Replace(approve, "approve", "deny", 1)); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := d.order(d.approvingCaller, approve); w.Code != 409 || code(w) != "conflict" || d.state() != hitl.Denied {
		t.Errorf("after a denial: %d %s", w.Code, w.Body)
	}
	if w := d.admin.do(http.MethodPost, "https://127.0.0.1:9443/api/approvals/other/decision", approve, d.approver, jsonBody()); w.Code != 404 {
		t.Errorf("an id that does not exist: %d", w.Code)
	}
}

// TestApprovals_ServiceFails: trouble of the store shows no approval.
func TestApprovals_ServiceFails(t *testing.T) {
	t.Parallel()
	d := newDeciding(t)
	d.fails = &problem.RecordingError{Err: io.ErrUnexpectedEOF}
	for name, w := range map[string]*httptest.ResponseRecorder{
		"read":            d.public.do(http.MethodGet, "/hitl/approvals/"+approvalID, "", d.approver, nil),
		"decision":        d.decide(d.approver, d.token(t, d.approver, nil), shownBody),
		"list":            d.admin.do(http.MethodGet, "https://127.0.0.1:9443/api/approvals", "", d.approver, nil),
		"operator's read": d.admin.do(http.MethodGet, adminPath, "", d.approver, nil),
		"order":           d.order(d.approver, approve),
	} {
		if w.Code != 503 || strings.Contains(w.Body.String(), "delete_all") || d.state() != hitl.Pending {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// levels are those of a memory.
type levels struct{ *memory }

func (l levels) List() []approval.Level { return l.Levels() }
