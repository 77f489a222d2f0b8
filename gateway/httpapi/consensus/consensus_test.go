package consensus_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	coordinator "github.com/aepb/aepb-gateway/gateway/consensus"
	rounds "github.com/aepb/aepb-gateway/gateway/httpapi/consensus"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/quota"
)

const alice = ect.Identity("spiffe://example.com/alice")

// question is what the coordinator was asked.
type question struct {
	who       ect.Identity
	id, after string
	at, limit int
	text      string
}

// recorder answers every question with err, and keeps what it was asked.
type recorder struct {
	err   error
	last  question
	page  []consensus.Round
	next  string
	notes []coordinator.Message
	more  bool
	tells []bool // of Follow
}

func (r *recorder) Group(_ context.Context, name string, who ect.Identity) (consensus.Group, []consensus.Member, ect.Identity, error) {
	r.last = question{who: who, id: name}
	return consensus.Group{Name: name, Mechanisms: consensus.Mechanisms(), Proposers: map[ect.Identity]int{"b": 1, "a": 1, "c": 1}}, []consensus.Member{{ID: alice, Weight: 100}}, alice, r.err
}

func (r *recorder) Propose(_ context.Context, who ect.Identity, text []byte) (consensus.Round, error) {
	r.last = question{who: who, text: string(text)}
	return consensus.Round{Proposal: consensus.Proposal{Round: "r/1"}}, r.err
}

func (r *recorder) Vote(_ context.Context, who ect.Identity, round string, text []byte) (string, error) {
	r.last = question{who: who, id: round, text: string(text)}
	return "hash", r.err
}

func (r *recorder) Acknowledge(ctx context.Context, who ect.Identity, round string, text []byte) (string, error) {
	return r.Vote(ctx, who, round, text)
}

func (r *recorder) Show(_ context.Context, id string, who ect.Identity) (consensus.Round, error) {
	r.last = question{who: who, id: id}
	return consensus.Round{Phase: consensus.Voting}, r.err
}

func (r *recorder) List(_ context.Context, who ect.Identity, after string, limit int) ([]consensus.Round, string, error) {
	r.last = question{who: who, after: after, limit: limit}
	return r.page, r.next, r.err
}

func (r *recorder) Messages(_ context.Context, round string, who ect.Identity, after, limit int) ([]coordinator.Message, bool, error) {
	r.last = question{who: who, id: round, at: after, limit: limit}
	return r.notes, r.more, r.err
}

func (r *recorder) Follow(_ context.Context, id string, who ect.Identity, tell func(consensus.Round, bool) error) error {
	r.last = question{who: who, id: id}
	for _, changed := range r.tells {
		if err := tell(consensus.Round{Phase: consensus.Voting}, changed); err != nil {
			return err
		}
	}
	return r.err
}

// do sends one request to the routes of both listeners; an empty who has no identity.
func (r *recorder) do(who ect.Identity, method, target, media, body string) *httptest.ResponseRecorder {
	gin.SetMode(gin.TestMode)
	engine := gin.New()
	rounds.Mount(engine, r)
	rounds.Admin{Rounds: r}.Mount(engine.Group("/api"))
	request := httptest.NewRequest(method, target, strings.NewReader(body))
	if media != "" {
		request.Header.Set("Content-Type", media)
	}
	request = request.WithContext(transport.WithCaller(request.Context(), identity.Caller{Peer: ect.Peer{ID: who}, Anonymous: who == ""}, "192.0.2.1"))
	w := httptest.NewRecorder()
	engine.ServeHTTP(w, request)
	return w
}

// code is the code of a problem; empty: it is none.
func code(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var p struct{ Code string }
	if w.Code >= 400 && json.Unmarshal(w.Body.Bytes(), &p) != nil {
		t.Errorf("no problem: %s", w.Body)
	}
	return p.Code
}

// route is a route of the public listener and a body that it takes.
type route struct {
	method, target, body string
	status               int
}

func publicRoutes() []route {
	const at = "/consensus/rounds/x"
	return []route{
		{http.MethodGet, "/consensus/groups/x", "", http.StatusOK},
		{http.MethodPost, "/consensus/rounds", "{}", http.StatusCreated},
		{http.MethodGet, "/consensus/rounds", "", http.StatusOK},
		{http.MethodGet, at, "", http.StatusOK},
		{http.MethodPost, at + "/votes", "{}", http.StatusAccepted},
		{http.MethodGet, at + "/votes", "", http.StatusOK},
		{http.MethodPost, at + "/ack", "{}", http.StatusAccepted},
		{http.MethodGet, at + "/events", "", http.StatusOK},
	}
}

// TestRoutes_Callers: each route passes the identity of its caller on, and refuses callers without one before the coordinator is asked.
func TestRoutes_Callers(t *testing.T) {
	t.Parallel()
	for _, r := range publicRoutes() {
		s := &recorder{tells: []bool{true}}
		if w := s.do("", r.method, r.target, "application/json", r.body); code(t, w) != "forbidden" || w.Code != http.StatusForbidden || s.last != (question{}) {
			t.Errorf("%s %s without an identity: %d, asked %+v", r.method, r.target, w.Code, s.last)
		}
		if w := s.do(alice, r.method, r.target, "application/json", r.body); w.Code != r.status || s.last.who != alice || s.last.text != r.body {
			t.Errorf("%s %s: %d %s, asked %+v", r.method, r.target, w.Code, w.Body, s.last)
		}
	}
}

// TestRoutes_Errors: what the coordinator refuses is told as a problem of its kind, on each route and both listeners.
func TestRoutes_Errors(t *testing.T) {
	t.Parallel()
	routes := append(publicRoutes(), route{method: http.MethodGet, target: "/api/consensus"}, route{method: http.MethodGet, target: "/api/consensus/x"})
	for name, c := range map[string]struct {
		err    error
		status int
		code   string
		again  string // Retry-After
	}{
		"an unknown round":  {&problem.NotFoundError{What: "round"}, http.StatusNotFound, "not_found", ""},
		"no participant":    {&policy.Forbidden{Reason: "x"}, http.StatusForbidden, "forbidden", ""},
		"a bad message":     {&consensus.InvalidError{Message: "vote", Reason: "x"}, http.StatusBadRequest, "malformed_message", ""},
		"a bad signature":   {&ect.InvalidError{Reason: ect.ReasonInvalidSignature}, http.StatusForbidden, "ect_invalid", ""},
		"a refusal":         {&consensus.RefusedError{Reason: "x"}, http.StatusForbidden, "policy_violation", ""},
		"too late":          {&consensus.RefusedError{Reason: "x", Late: true}, http.StatusConflict, "conflict", ""},
		"too soon":          {&consensus.RefusedError{Reason: "x", Again: 7 * time.Second}, http.StatusConflict, "conflict", "7"},
		"over":              {&consensus.StateError{Phase: consensus.Committed, Kind: consensus.Look}, http.StatusConflict, "conflict", ""},
		"too many":          {&quota.ExceededError{Resource: "rounds", Own: true}, http.StatusTooManyRequests, "rate_limited", ""},
		"an id that is had": {&problem.ConflictError{Reason: "x"}, http.StatusConflict, "conflict", ""},
		"no store":          {&problem.RecordingError{Err: errors.New("x")}, http.StatusServiceUnavailable, "unavailable", ""},
		"another":           {errors.New("a secret of the gateway"), http.StatusInternalServerError, "internal_error", ""},
	} {
		for _, r := range routes {
			w := (&recorder{err: c.err}).do(alice, r.method, r.target, "application/json", r.body)
			if w.Code != c.status || code(t, w) != c.code || c.again != "" && w.Header().Get("Retry-After") != c.again || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%s at %s %s: %d %s, Retry-After %q", name, r.method, r.target, w.Code, w.Body, w.Header().Get("Retry-After"))
			}
		}
	}
}

// TestRoutes_Bodies: a message is JSON of a bounded size; nothing else reaches the coordinator.
func TestRoutes_Bodies(t *testing.T) {
	t.Parallel()
	for target, limit := range map[string]int{
		"/consensus/rounds": 2 * consensus.MaxProposal, "/consensus/rounds/x/votes": 2 * consensus.MaxVote, "/consensus/rounds/x/ack": 8 * consensus.MaxVote,
	} {
		full := strings.Repeat("x", limit)
		for name, c := range map[string]struct {
			media, body string
			status      int
			code        string
		}{
			"no media type":    {"", "{}", http.StatusUnsupportedMediaType, "unsupported_media_type"},
			"a text":           {"text/plain", "{}", http.StatusUnsupportedMediaType, "unsupported_media_type"},
			"other JSON":       {"application/json-seq", "{}", http.StatusUnsupportedMediaType, "unsupported_media_type"},
			"too large":        {"application/json", full + "x", http.StatusRequestEntityTooLarge, "too_large"},
			"as large as can":  {"application/json", full, 0, ""},
			"with a parameter": {"Application/JSON ; charset=utf-8", "{}", 0, ""},
		} {
			s := &recorder{}
			w := s.do(alice, http.MethodPost, target, c.media, c.body)
			switch {
			case c.status == 0 && (w.Code >= 400 || s.last.text != c.body):
				t.Errorf("%s to %s: %d %s", name, target, w.Code, w.Body)
			case c.status != 0 && (w.Code != c.status || code(t, w) != c.code || s.last != (question{})):
				t.Errorf("%s to %s: %d %s", name, target, w.Code, w.Body)
			}
		}
	}
}

// TestRoutes_Pages: a page has at most a hundred rounds or messages, and says where the next one begins.
func TestRoutes_Pages(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/consensus/rounds", "/consensus/rounds/x/votes", "/api/consensus"} {
		for query, limit := range map[string]int{"": 100, "?limit=1": 1, "?limit=100": 100, "?limit=101": 100, "?limit=0": 0, "?limit=-1": 0, "?limit=x": 0, "?limit=99999999999999999999": 0} {
			s := &recorder{}
			w := s.do(alice, http.MethodGet, target+query, "", "")
			if refused := limit == 0; refused != (w.Code == http.StatusBadRequest) || refused != (s.last == question{}) || s.last.limit != limit {
				t.Errorf("%s%s: %d, asked %+v", target, query, w.Code, s.last)
			}
		}
	}
	for after, ok := range map[string]bool{"0": true, "7": true, "-1": false, "x": false, "1.5": false} {
		s := &recorder{}
		w := s.do(alice, http.MethodGet, "/consensus/rounds/x/votes?after="+after, "", "")
		if ok != (w.Code == http.StatusOK) || ok && strconv.Itoa(s.last.at) != after {
			t.Errorf("after %s: %d, asked %+v", after, w.Code, s.last)
		}
	}
	s := &recorder{page: []consensus.Round{{}, {}}, next: "n"}
	for target, who := range map[string]ect.Identity{"/consensus/rounds": alice, "/api/consensus": ""} {
		var page rounds.Page
		w := s.do(alice, http.MethodGet, target+"?after=a", "", "")
		if json.Unmarshal(w.Body.Bytes(), &page) != nil || len(page.Rounds) != 2 || page.Next != "n" || s.last.after != "a" || s.last.who != who {
			t.Errorf("%s: %s, asked %+v", target, w.Body, s.last)
		}
	}
	if w := (&recorder{}).do(alice, http.MethodGet, "/consensus/rounds", "", ""); w.Body.String() != `{"rounds":[]}` {
		t.Errorf("no rounds: %s", w.Body)
	}
	if w := (&recorder{notes: []coordinator.Message{{Kind: "vote", Compact: "no vote"}}}).do(alice, http.MethodGet, "/consensus/rounds/x/votes", "", ""); w.Code < 400 || strings.Contains(w.Body.String(), "no vote") {
		t.Errorf("a message that cannot be read: %d %s", w.Code, w.Body)
	}
}

// TestRoutes_Answers: what is told is not kept by caches, a round that opens is at its path, and a group is told alike each time.
func TestRoutes_Answers(t *testing.T) {
	t.Parallel()
	s := &recorder{}
	w := s.do(alice, http.MethodPost, "/consensus/rounds", "application/json", "{}")
	if w.Header().Get("Location") != "/consensus/rounds/r%2F1" || w.Header().Get("Cache-Control") != "private, no-store" {
		t.Errorf("opened with %v", w.Header())
	}
	if w := (&recorder{err: errors.New("x")}).do(alice, http.MethodPost, "/consensus/rounds", "application/json", "{}"); w.Header().Get("Location") != "" {
		t.Errorf("refused with %v", w.Header())
	}
	for range 20 {
		var g rounds.GroupView
		w := s.do(alice, http.MethodGet, "/consensus/groups/team", "", "")
		if json.Unmarshal(w.Body.Bytes(), &g) != nil || len(g.Proposers) != 3 || g.Proposers[0] != "a" || g.Proposers[1] != "b" || g.Threshold != 50 || g.Quorum[consensus.Weighted] != 50 {
			t.Fatalf("the group is %s", w.Body)
		}
	}
}

// TestEvents_Stream: each change is an event, each beat without one a comment; a refusal before the first event is a problem, and an
// error after it ends the stream.
func TestEvents_Stream(t *testing.T) {
	t.Parallel()
	const at = "/consensus/rounds/x/events"
	w := (&recorder{tells: []bool{true, false, true}, err: errors.New("the store is away")}).do(alice, http.MethodGet, at, "", "")
	parts := strings.Split(w.Body.String(), "\n\n")
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" || w.Header().Get("Cache-Control") != "no-store" || len(parts) != 4 ||
		!strings.HasPrefix(parts[0], "event: round\ndata: {") || parts[1] != ": " || parts[2] != parts[0] || parts[3] != "" || !w.Flushed {
		t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
	}
}

// TestMount_Nothing: without a coordinator there are no routes.
func TestMount_Nothing(t *testing.T) {
	t.Parallel()
	engine := gin.New()
	rounds.Mount(engine, nil)
	rounds.Admin{}.Mount(engine)
	if routes := engine.Routes(); len(routes) != 0 {
		t.Errorf("%v", routes)
	}
}
