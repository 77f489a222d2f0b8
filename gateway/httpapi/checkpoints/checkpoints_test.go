package checkpoints_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/httpapi/checkpoints"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	pure "github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/policy"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	goleak.VerifyTestMain(m)
}

const (
	workflow = "8d6b1f0e-0f52-4a4e-8a35-6b0b1f0f3c22"
	hidden   = "an-argument-of-the-call"
)

// recorded is a service of checkpoints over memory, its blobs, and what was logged.
type recorded struct {
	*checkpoint.Service

	blobs *state.MemoryBlobs
	agent *ecttest.Party
	log   bytes.Buffer
	rollbacks
}

// rollbacks keeps the commands that it gets, and answers with what it is told.
type rollbacks struct {
	planned, begun []rollback.Command
	fails          error
}

func (r *rollbacks) Locate(_ context.Context, wid string, _ ect.ID) (string, error) {
	if wid != "" {
		return wid, r.fails
	}
	return workflow, r.fails
}

func (r *rollbacks) Foresee(_ context.Context, c rollback.Command) (string, undo.Plan, error) {
	r.planned = append(r.planned, c)
	return workflow, undo.Plan{From: c.From, Cascade: c.Cascade}, r.fails
}

func (r *rollbacks) Begin(_ context.Context, c rollback.Command) (rollback.View, error) {
	r.begun = append(r.begun, c)
	return rollback.View{Workflow: workflow, From: c.From, Request: "the/request"}, r.fails
}

func (r *rollbacks) Look(_ context.Context, wid string, request ect.ID) (rollback.View, error) {
	return rollback.View{Workflow: wid, Request: request}, r.fails
}

func newRecorded(t *testing.T) *recorded {
	t.Helper()
	k := &recorded{agent: ecttest.NewParty(t, "spiffe://example.com/agent")}
	var err error
	if k.blobs, err = state.NewMemoryBlobs(state.BlobBounds{}, time.Now); err != nil {
		t.Fatal(err)
	}
	k.Service, err = checkpoint.New(checkpoint.Deps{
		Blobs: k.blobs, Place: "https://gw.example" + pure.Path, Count: func(string) {}, Now: time.Now, Logger: slog.New(slog.NewTextHandler(&k.log, nil)),
		Belongs: func(context.Context, string, ect.Identity) (bool, error) { return false, nil },
		Read: func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New("not asked")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// put keeps a checkpoint of a state, and what is known of its outcome; spoil changes the state after it was hashed.
func (k *recorded) put(t *testing.T, id ect.ID, reversible bool, content, outcome string, deposit, spoil bool) {
	t.Helper()
	made := pure.Checkpoint{Reversible: reversible, RollbackURI: "https://gw.example" + pure.Path, TTL: time.Hour}
	token, err := k.agent.Signer(t, time.Now).Sign(ect.Claims{
		ID: id, Act: ect.ActCheckpoint, Audience: []string{"x"}, Workflow: workflow, Parents: []ect.ID{ect.NewID()}, OutputHash: ect.Hash([]byte(content)), Ext: made.Ext(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if spoil {
		content += " "
	}
	text, err := json.Marshal(map[string]any{"v": 1, "token": token.Compact(), "state": []byte(content), "deposit": deposit})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{string(id): string(text), string(id) + ".outcome": outcome} {
		if value == "" {
			continue
		}
		if err := k.blobs.Put(t.Context(), state.BlobKey{Group: workflow, ID: key, Owner: "o"}, []byte(value), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
}

func idOf(n int) ect.ID { return ect.ID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)) }

// serve asks the routes of the admin listener, in the name of ann.
func (k *recorded) serve(method, target, body string) *httptest.ResponseRecorder {
	engine := gin.New()
	checkpoints.Admin{
		Records:  checkpoints.Records{Checkpoints: k, Rollbacks: &k.rollbacks},
		Operator: func(*http.Request) (policy.Operator, error) { return policy.Operator{Name: "ann"}, nil },
	}.Mount(engine)
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	engine.ServeHTTP(w, r)
	return w
}

const (
	byCall  = `{"v":1,"agent":"files","tool":"write","undo":{"tool":"restore","arguments":{"path":"x"},"call":{"path":"` + hidden + `"}}}`
	byAfter = `{"v":1,"agent":"files","tool":"create","undo":{"tool":"delete","arguments":{"id":"x"},"result":true}}`
	byAgent = `{"v":1,"agent":"concierge","own":true}`
	never   = `{"v":1,"agent":"printer","tool":"print"}`
)

// TestList_Ways: each way of undoing and what is known of the outcome is named, and no state and no argument is shown.
// What was altered is left out and logged.
func TestList_Ways(t *testing.T) {
	t.Parallel()
	k := newRecorded(t)
	k.put(t, idOf(1), true, byCall, "", false, false)
	k.put(t, idOf(2), true, byAfter, "", false, false)
	k.put(t, idOf(3), true, byAfter, `{"v":1,"result":"`+hidden+`"}`, false, false)
	k.put(t, idOf(4), true, byAfter, `{"v":1,"failed":true}`, false, false)
	k.put(t, idOf(5), true, byAgent, "", false, false)
	k.put(t, idOf(6), false, never, "", false, false)
	k.put(t, idOf(7), true, hidden, "", true, false)
	k.put(t, idOf(8), false, hidden, "", true, false)
	k.put(t, idOf(9), true, byCall, "", false, true)
	w := k.serve(http.MethodGet, "/checkpoints?wid="+workflow, "")
	var page checkpoints.Page
	if w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &page) != nil || page.Next != "" || w.Header().Get("Link") != "" || w.Header().Get("Cache-Control") != "private, no-store" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var got []string
	for _, v := range page.Checkpoints {
		got = append(got, fmt.Sprint(v.Agent, ",", v.Tool, ",", v.How, ",", v.UndoTool, ",", v.Outcome, ",", v.Reversible))
		if v.Workflow != workflow || len(v.Parents) != 1 || !v.Expires.Equal(v.Made.Add(time.Hour)) || v.Size == 0 {
			t.Errorf("%+v", v)
		}
	}
	want := []string{
		"files,write,compensation,restore,,true", "files,create,compensation,delete,unknown,true", "files,create,compensation,delete,known,true",
		"files,create,compensation,delete,failed,true", "concierge,,agent,,,true", "printer,print,irreversible,,,false",
		"spiffe://example.com/agent,,deposit,,,true", "spiffe://example.com/agent,,irreversible,,,false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if text := w.Body.String() + k.log.String(); strings.Contains(text, hidden) || !strings.Contains(k.log.String(), "altered") {
		t.Errorf("shown or logged is %s", text)
	}
	if w := k.serve(http.MethodGet, "/checkpoints/"+string(idOf(9)), ""); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "was altered") {
		t.Errorf("one that was altered: %d %s", w.Code, w.Body)
	}
	if w := k.serve(http.MethodGet, "/checkpoints/"+string(idOf(1)), ""); w.Code != http.StatusOK || strings.Contains(w.Body.String(), hidden) {
		t.Errorf("one: %d %s", w.Code, w.Body)
	}
	if w := k.serve(http.MethodGet, "/checkpoints/"+string(idOf(1))+"?wid=another", ""); w.Code != http.StatusNotFound {
		t.Errorf("one of another workflow: %d %s", w.Code, w.Body)
	}
}

// TestList_Pages: pages follow each other by after and by Link until all were listed once, with outcomes between them,
// and the last page names no next one, even if it is full.
func TestList_Pages(t *testing.T) {
	t.Parallel()
	k := newRecorded(t)
	const all = 120
	for n := range all {
		k.put(t, idOf(n), true, byAfter, `{"v":1}`, false, false)
	}
	for _, limit := range []int{7, 40, 60, 100} {
		var ids []ect.ID
		target := fmt.Sprintf("/checkpoints?wid=%s&limit=%d", workflow, limit)
		for pages := 0; target != ""; pages++ {
			w := k.serve(http.MethodGet, target, "")
			var page checkpoints.Page
			if w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &page) != nil || len(page.Checkpoints) > limit || pages > all/limit {
				t.Fatalf("page %d of %d: %d, %d checkpoints", pages, limit, w.Code, len(page.Checkpoints))
			}
			for _, v := range page.Checkpoints {
				ids = append(ids, v.ID)
			}
			link, _, linked := strings.Cut(strings.TrimPrefix(w.Header().Get("Link"), "<"), ">")
			if linked != (page.Next != "") {
				t.Fatalf("next is %q, and the link %q", page.Next, link)
			}
			if target = ""; linked {
				target = "/checkpoints" + link
			}
		}
		if len(ids) != all || !slices.IsSorted(ids) {
			t.Errorf("pages of %d list %d checkpoints", limit, len(ids))
		}
	}
	var most checkpoints.Page
	if w := k.serve(http.MethodGet, "/checkpoints?limit=99999&wid="+workflow, ""); json.Unmarshal(w.Body.Bytes(), &most) != nil || len(most.Checkpoints) != 100 {
		t.Errorf("a page of at most 99999 has %d checkpoints, expected 100", len(most.Checkpoints))
	}
	if w := k.serve(http.MethodGet, "/checkpoints?wid=another", ""); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `{"checkpoints":[]}` {
		t.Errorf("of a workflow without checkpoints: %d %s", w.Code, w.Body)
	}
	for _, query := range []string{"", "?limit=1", "?wid=w&limit=0", "?wid=w&limit=x", "?wid=w&limit=-1"} {
		if w := k.serve(http.MethodGet, "/checkpoints"+query, ""); w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d %s", query, w.Code, w.Body)
		}
	}
}

// TestRollbacks_Orders: a command has what the body says and the name of the operator, not one from the body; a plan
// begins nothing.
func TestRollbacks_Orders(t *testing.T) {
	t.Parallel()
	k := newRecorded(t)
	w := k.serve(http.MethodPost, "/rollbacks", `{"checkpoint":"c","wid":"w","cascade":true,"reason":"why"}`)
	if w.Code != http.StatusAccepted || w.Header().Get("Location") != "/api/rollbacks/"+workflow+"/the%2Frequest" || !strings.Contains(w.Body.String(), `"steps":[]`) {
		t.Errorf("begun: %d %s at %s", w.Code, w.Body, w.Header().Get("Location"))
	}
	want := rollback.Command{Workflow: "w", From: "c", Cascade: true, Reason: "why", Operator: "ann"}
	if !slices.Equal(k.begun, []rollback.Command{want}) || k.planned != nil {
		t.Errorf("begun is %+v, planned %+v", k.begun, k.planned)
	}
	w = k.serve(http.MethodPost, "/rollbacks", `{"checkpoint":"c","plan":true}`)
	if w.Code != http.StatusOK || len(k.begun) != 1 || len(k.planned) != 1 ||
		strings.TrimSpace(w.Body.String()) != `{"wid":"`+workflow+`","checkpoint":"c","cascade":false,"steps":[],"agents":[],"escalate":[],"stale":[],"by":"0001-01-01T00:00:00Z"}` {
		t.Errorf("planned: %d %s", w.Code, w.Body)
	}
	if w := k.serve(http.MethodGet, "/rollbacks/w/r", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"request":"r","steps":[]`) {
		t.Errorf("looked at: %d %s", w.Code, w.Body)
	}
}

// TestRollbacks_Mistakes: what is no order begins nothing, and errors of planning are told with their codes.
func TestRollbacks_Mistakes(t *testing.T) {
	t.Parallel()
	k := newRecorded(t)
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"no checkpoint":         {`{"reason":"why"}`, 400},
		"no reason":             {`{"checkpoint":"c"}`, 400},
		"two lines":             {`{"checkpoint":"c","reason":"a\nb"}`, 400},
		"a line separator":      {`{"checkpoint":"c","reason":"a\u2028b"}`, 400},
		"a long reason":         {`{"checkpoint":"c","reason":"` + strings.Repeat("x", 513) + `"}`, 400},
		"an unknown member":     {`{"checkpoint":"c","reason":"why","operator":"root"}`, 400},
		"a member twice":        {`{"checkpoint":"c","reason":"why","cascade":false,"cascade":true}`, 400},
		"a text for a truth":    {`{"checkpoint":"c","reason":"why","plan":"true"}`, 400},
		"no object":             {`[]`, 400},
		"more than 8 KiB":       {`{"checkpoint":"` + strings.Repeat("c", 8<<10) + `","reason":"why"}`, 413},
		"a plan with a newline": {`{"checkpoint":"c","plan":true,"reason":"a\nb"}`, 400},
	} {
		if w := k.serve(http.MethodPost, "/rollbacks", c.body); w.Code != c.status || k.begun != nil || k.planned != nil {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	for want, fails := range map[string]error{
		`"status":409,"code":"conflict","detail":"steps depend on it: a of b"`: &problem.ConflictError{Reason: "steps depend on it: a of b"},
		`"status":409,"code":"in_progress"`:                                    &problem.WaitingError{Reason: "another one is under way"},
		`"status":404,"code":"not_found"`:                                      &problem.NotFoundError{What: "checkpoint"},
		`"status":503,"code":"unavailable"`:                                    &problem.RecordingError{Err: errors.New("disk")},
	} {
		k.fails = fails
		for _, w := range []*httptest.ResponseRecorder{
			k.serve(http.MethodPost, "/rollbacks", `{"checkpoint":"c","reason":"why"}`), k.serve(http.MethodPost, "/rollbacks", `{"checkpoint":"c","plan":true}`),
			k.serve(http.MethodGet, "/rollbacks/w/r", ""), k.serve(http.MethodGet, "/checkpoints/c", ""),
		} {
			if !strings.Contains(w.Body.String(), want) || w.Header().Get("Location") != "" {
				t.Errorf("%v: %d %s", fails, w.Code, w.Body)
			}
		}
	}
}

// deposited keeps what is deposited with it, and by whom.
type deposited struct {
	who     checkpoint.Depositor
	content []byte
	calls   int
}

func (d *deposited) Deposit(_ context.Context, who checkpoint.Depositor, _ string, content []byte) (pure.Checkpoint, error) {
	d.who, d.content, d.calls = who, content, d.calls+1
	return pure.Checkpoint{ID: "c", Workflow: workflow}, nil
}

func (d *deposited) Fetch(context.Context, ect.Identity, ect.ID) (checkpoint.Saved, []byte, error) {
	return checkpoint.Saved{}, nil, &pure.AlteredError{ID: "c"}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read before its token was judged")
	return 0, errors.New("read")
}

// TestDeposit_Bounds: a state of the largest size is taken in the name and the share of its caller, one byte more is
// not, and without a token nothing is read.
func TestDeposit_Bounds(t *testing.T) {
	t.Parallel()
	agent, d := ecttest.NewParty(t, "spiffe://example.com/agent"), &deposited{}
	engine := gin.New()
	checkpoints.Mount(engine, d)
	send := func(r *http.Request) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r.Header.Set("Content-Type", "application/octet-stream")
		engine.ServeHTTP(w, r.WithContext(transport.WithCaller(r.Context(), identity.Caller{Peer: agent.Peer()}, "192.0.2.1")))
		return w
	}
	token := ecttest.Mint(t, agent, ecttest.Recipe{})
	for size, status := range map[int]int{0: 201, checkpoint.MaxDeposit: 201, checkpoint.MaxDeposit + 1: 413} {
		d.content = nil
		r := httptest.NewRequest(http.MethodPost, "/atd/checkpoints", bytes.NewReader(make([]byte, size)))
		r.Header.Set(ect.HeaderName, token)
		if w := send(r); w.Code != status || status == 201 && (len(d.content) != size || d.who.ID != agent.ID || d.who.Owner != string(agent.ID) || d.who.Holder == "") {
			t.Errorf("%d bytes: %d %s, %d bytes of %+v", size, w.Code, w.Body, len(d.content), d.who)
		}
	}
	before := d.calls
	if w := send(httptest.NewRequest(http.MethodPost, "/atd/checkpoints", unread{t})); w.Code != http.StatusForbidden || d.calls != before {
		t.Errorf("without a token: %d %s", w.Code, w.Body)
	}
	if w := send(httptest.NewRequest(http.MethodGet, "/atd/checkpoints/c", nil)); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "was altered") {
		t.Errorf("a state that was altered: %d %s", w.Code, w.Body)
	}
}
