package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const rollbackAt = "/.well-known/atd/rollback"

// undoable is an agent over HTTP that sets a checkpoint at every call, and goes
// back to it where ATD says. Its endpoint can be switched off.
type undoable struct {
	fake
	who   *ecttest.Party
	mu    sync.Mutex
	last  ect.Claims // the latest checkpoint
	off   bool
	asked [][]string                                        // the tokens of each rollback request
	other func(w http.ResponseWriter, request, good string) // in place of a good result
}

func (u *undoable) tell(do func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	do()
}

// undoable lists one under a name.
func (b *bed) undoable(t *testing.T, name string, binding canonical.Binding) *undoable {
	t.Helper()
	svid := b.svid(t, "/"+name)
	u := &undoable{who: b.party(t, svid)}
	u.conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		sent, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		checkpoint := signing(t, u.who, ect.Claims{Act: "atd:checkpoint", Audience: []string{b.self()}, Workflow: sent.Workflow, Parents: []ect.ID{sent.ID}})
		w.Header().Set(ect.HeaderName, checkpoint)
		u.tell(func() { u.last, _, err = ect.ParseUnverified(checkpoint) })
		well(w, r, good)
	}
	speak := u.speakMCP
	if binding == "a2a-v1" {
		speak = u.speakA2A
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		off := u.off
		u.mu.Unlock()
		switch {
		case r.URL.Path == rollbackAt && r.Method == http.MethodPost:
			u.undo(t, w, r)
		case off:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			speak(w, r)
		}
	}))
	server.TLS = serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.list(t, name, binding, server.URL+"/agent", host{id: svid.ID})
	return u
}

func (u *undoable) undo(t *testing.T, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	tokens := r.Header.Values(ect.HeaderName)
	u.asked = append(u.asked, tokens)
	request, _, err := ect.ParseUnverified(tokens[0])
	if err != nil || request.Act != ect.ActRollbackRequest {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	result := signing(t, u.who, ect.Claims{
		Act: ect.ActRollbackResult, Audience: []string{string(request.Issuer)}, Workflow: request.Workflow, Parents: []ect.ID{request.ID},
		OutputHash: ect.Hash([]byte("as it was")), Ext: restored(request),
	})
	if u.other != nil {
		u.other(w, tokens[0], result)
		return
	}
	w.Header().Set(ect.HeaderName, result)
}

// TestRollbackOverHTTP: whoever had work done through a door asks to undo it where
// ATD says, and so is the agent asked, each in the other's stead; both without the
// doors and endpoints of their protocols, and once for the same request.
func TestRollbackOverHTTP(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	tool := func(name string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{"message":"x"},` + modernMeta + `}}`
	}
	agents := map[canonical.Binding]*undoable{"a2a-v1": b.undoable(t, "undo-a2a-v1", "a2a-v1"), "mcp-v1": b.undoable(t, "undo-mcp-v1", "mcp-v1")}
	for binding, agent := range agents {
		name := "undo-" + string(binding)
		called := "add"
		if binding == "a2a-v1" {
			called = "fake"
		}
		for from, door := range map[canonical.Binding]letter{
			"a2a-v1": {at: "/agents/" + name + "/a2a", body: textBody("go"), header: map[string]string{"A2A-Version": "1.0"}},
			"mcp-v1": {at: "/agents/" + name + "/mcp", body: tool(called), header: mirror("tools/call", called)},
		} {
			if from == "a2a-v1" && binding == "mcp-v1" {
				door.body = addBody(1)
			}
			got := b.send(t, door)
			if got.status != http.StatusOK {
				t.Fatalf("%s to %s: %d %s", from, binding, got.status, short(got.body))
			}
			agent.tell(func() { agent.off = true })
			b.directory.Outdated(name) // whoever asks it now who it is hears nothing
			b.rollsBack(t, agent, from, binding)
			b.refusesRollbacks(t, agent)
			agent.tell(func() { agent.off = false })
		}
	}
	b.works(t)
}

// rollback is a request of somebody's to go back to a checkpoint.
func (b *bed) rollback(t *testing.T, who *ecttest.Party, wid string, par ...ect.ID) letter {
	t.Helper()
	return letter{at: rollbackAt, body: `{"exec_act":"atd:rollback_request"}`, tokens: []string{signing(t, who, ect.Claims{
		Act: ect.ActRollbackRequest, Audience: []string{b.self()}, Workflow: wid, Parents: par,
		Ext: ect.Ext{"atd.reason": json.RawMessage(`"it went wrong"`), "atd.cascade": json.RawMessage("false")},
	})}}
}

func (b *bed) rollsBack(t *testing.T, agent *undoable, from, to canonical.Binding) {
	t.Helper()
	before := len(agent.asked)
	asks := b.rollback(t, b.me, agent.last.Workflow, agent.last.ID)
	got := b.send(t, asks)
	tokens := got.header.Values(ect.HeaderName)
	if got.status != http.StatusOK || len(tokens) != 3 {
		t.Fatalf("%s to %s: %d, %d tokens: %s", from, to, got.status, len(tokens), short(got.body))
	}
	if got := agent.asked[before]; got[0] != asks.tokens[0] || !slices.Contains(got, tokens[1]) {
		t.Errorf("%s to %s: the agent heard %d tokens, not the request first and ours after it", from, to, len(got))
	}
	request, _, err := ect.ParseUnverified(asks.tokens[0])
	must(t, err)
	result, _, err := ect.ParseUnverified(tokens[0])
	must(t, err)
	translated := b.legsOf(t, tokens[1:])
	source, _ := translated[0].Ext.String(ect.ExtSourceProtocol)
	dest, _ := translated[0].Ext.String(ect.ExtDestProtocol)
	var said struct {
		Act ect.Act  `json:"exec_act"`
		Par []ect.ID `json:"par"`
	}
	must(t, json.Unmarshal(got.body, &said))
	for what, ok := range map[string]bool{
		"the result answers the request": result.Act == ect.ActRollbackResult && slices.Equal(result.Parents, []ect.ID{request.ID}) && result.Issuer == agent.who.ID,
		"the body repeats it":            said.Act == result.Act && slices.Equal(said.Par, result.Parents),
		"leg 1 is about the request":     slices.Equal(translated[0].Parents, []ect.ID{request.ID}),
		"leg 2 is about the result":      translated[1].Parents[0] == result.ID && translated[1].OutputHash == ect.Hash(got.body),
		"between both protocols":         source == string(from) && dest == string(to),
	} {
		if !ok {
			t.Errorf("%s to %s: not so: %s", from, to, what)
		}
	}
	again := b.send(t, asks)
	if again.status != http.StatusOK || string(again.body) != string(got.body) || !slices.Equal(again.header.Values(ect.HeaderName), tokens) || len(agent.asked) != before+1 {
		t.Errorf("%s to %s: the same request got %d after %d", from, to, again.status, len(agent.asked)-before)
	}
}

// refusesRollbacks of those who have no part, of what is no request, and results
// that are not to be believed.
func (b *bed) refusesRollbacks(t *testing.T, agent *undoable) {
	t.Helper()
	wid, par := agent.last.Workflow, agent.last.ID
	before := len(agent.asked)
	svid := b.svid(t, "/stranger")
	stranger := b.rollback(t, b.party(t, svid), wid, par)
	stranger.via = b.caller(t, svid)
	nobody, borrowed := b.rollback(t, b.me, wid, par), b.rollback(t, b.me, wid, par)
	nobody.via, borrowed.via = b.anonymous, stranger.via
	bare, text, long := b.rollback(t, b.me, wid, par), b.rollback(t, b.me, wid, par), b.rollback(t, b.me, wid, par)
	bare.tokens, text.media, long.body = nil, "text/plain", string(make([]byte, 65<<10))
	for name, c := range map[string]struct {
		asks   letter
		status int
		code   string
	}{
		"a stranger":            {stranger, 403, "forbidden"},
		"nobody":                {nobody, 401, "unauthenticated"},
		"somebody else's token": {borrowed, 403, "ect_invalid"},
		"another workflow":      {b.rollback(t, b.me, string(ect.NewID()), par), 403, "forbidden"},
		"an unknown checkpoint": {b.rollback(t, b.me, wid, ect.NewID()), 403, "forbidden"},
		"no checkpoint":         {b.rollback(t, b.me, wid), 403, "forbidden"},
		"no token":              {bare, 403, "ect_required"},
		"another media type":    {text, 415, "unsupported_media_type"},
		"too long":              {long, 413, "too_large"},
		"another method":        {letter{method: http.MethodGet, at: rollbackAt}, 405, "method_not_allowed"},
	} {
		if got := b.send(t, c.asks); got.status != c.status || problemCode(t, got) != c.code {
			t.Errorf("%s: %d %s", name, got.status, short(got.body))
		}
	}
	if len(agent.asked) != before {
		t.Errorf("the agent heard of %d of those", len(agent.asked)-before)
	}
	b.doubts(t, agent)
}

// doubts: an agent's refusal and its bad answers are told as problems.
func (b *bed) doubts(t *testing.T, agent *undoable) {
	t.Helper()
	fails := func(status int) func(http.ResponseWriter, string, string) {
		return func(w http.ResponseWriter, _, _ string) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		}
	}
	for name, c := range map[string]struct {
		other  func(w http.ResponseWriter, request, good string)
		status int
	}{
		"it refuses":            {fails(http.StatusForbidden), http.StatusForbidden},
		"it cannot":             {fails(http.StatusNotFound), http.StatusUnprocessableEntity},
		"it points elsewhere":   {fails(http.StatusTemporaryRedirect), http.StatusBadGateway},
		"no result":             {func(http.ResponseWriter, string, string) {}, http.StatusBadGateway},
		"the request as result": {func(w http.ResponseWriter, request, _ string) { w.Header().Set(ect.HeaderName, request) }, http.StatusBadGateway},
		"of another signature": {func(w http.ResponseWriter, _, good string) {
			w.Header().Set(ect.HeaderName, good[:len(good)-6]+"AAAAAA")
		}, http.StatusBadGateway},
		"of somebody else": {func(w http.ResponseWriter, request, _ string) {
			asked, _, err := ect.ParseUnverified(request)
			if err == nil {
				w.Header().Set(ect.HeaderName, signing(t, b.me, ect.Claims{
					Act: ect.ActRollbackResult, Audience: []string{b.self()}, Workflow: asked.Workflow, Parents: []ect.ID{asked.ID},
				}))
			}
		}, http.StatusBadGateway},
		"as the body": {func(w http.ResponseWriter, _, good string) { _, _ = w.Write([]byte(good)) }, http.StatusOK},
	} {
		agent.tell(func() { agent.other = c.other })
		if got := b.send(t, b.rollback(t, b.me, agent.last.Workflow, agent.last.ID)); got.status != c.status {
			t.Errorf("%s: %d %s", name, got.status, short(got.body))
		}
	}
	agent.tell(func() { agent.other = nil })
}
