package mcp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// shared is a keeper of several doors, which may be away.
type shared struct {
	stored
	away atomic.Bool
}

func (s *shared) Get(ctx context.Context, group, id string) ([]byte, uint64, bool, error) {
	if s.away.Load() {
		return nil, 0, false, errors.New("away")
	}
	return s.stored.Get(ctx, group, id)
}

// replica is one door of several with the same keeper.
func (s *shared) replica(t *testing.T, r transport.Handler) http.Handler {
	t.Helper()
	endpoint, err := tmcp.NewServer(tmcp.ServerDeps{Form: mcp.New(translators.Config{}), Keeper: s, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(endpoint.Close)
	return endpoint.Handler(r)
}

// visitor is somebody at the door of an agent.
type visitor struct {
	who     identity.Caller
	address string
	agent   string
}

func (v visitor) request(ctx context.Context, method, session, body string) *http.Request {
	r := httptest.NewRequestWithContext(transport.WithCaller(ctx, v.who, v.address), method, "https://gw.example/agents/"+v.agent+"/mcp", strings.NewReader(body))
	r.SetPathValue("agent", v.agent)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	return r
}

func (v visitor) ask(t *testing.T, at http.Handler, method, session, body string) *httptest.ResponseRecorder {
	t.Helper()
	out := httptest.NewRecorder()
	at.ServeHTTP(out, v.request(t.Context(), method, session, body))
	return out
}

func caller(id string) identity.Caller { return identity.Caller{Peer: ect.Peer{ID: ect.Identity(id)}} }

// TestSession_BelongsToItsCaller: nobody else finds it, at no other agent, and of
// those without a name none at another address.
func TestSession_BelongsToItsCaller(t *testing.T) {
	t.Parallel()
	const ping = `{"jsonrpc":"2.0","id":3,"method":"ping"}`
	nameless := identity.Caller{Peer: ect.Peer{ID: "spiffe://td/anonymous"}, Anonymous: true}
	for name, c := range map[string]struct{ owner, other visitor }{
		"another caller":           {visitor{caller("spiffe://td/a"), "192.0.2.1", "chef"}, visitor{caller("spiffe://td/b"), "192.0.2.1", "chef"}},
		"another agent":            {visitor{caller("spiffe://td/a"), "192.0.2.1", "chef"}, visitor{caller("spiffe://td/a"), "192.0.2.1", "baker"}},
		"a nameless one elsewhere": {visitor{nameless, "192.0.2.1", "chef"}, visitor{nameless, "192.0.2.2", "chef"}},
	} {
		keeper := &shared{stored: newKept(t, time.Now)}
		endpoint := keeper.replica(t, &notifying{handler: handler{description: chef()}})
		id := c.owner.ask(t, endpoint, http.MethodPost, "", hello).Header().Get("Mcp-Session-Id")
		if id == "" {
			t.Fatalf("%s: no session", name)
		}
		for method, body := range map[string]string{http.MethodPost: ping, http.MethodGet: "", http.MethodDelete: ""} {
			if got := c.other.ask(t, endpoint, method, id, body); got.Code != http.StatusNotFound {
				t.Errorf("%s: %s is answered with %d %s", name, method, got.Code, got.Body)
			}
		}
		if got := c.owner.ask(t, endpoint, http.MethodPost, id, ping); got.Code != http.StatusOK {
			t.Errorf("%s: its owner has %d %s", name, got.Code, got.Body)
		}
	}
	elsewhere := visitor{caller("spiffe://td/a"), "192.0.2.1", "chef"}
	keeper := &shared{stored: newKept(t, time.Now)}
	endpoint := keeper.replica(t, &notifying{handler: handler{description: chef()}})
	id := elsewhere.ask(t, endpoint, http.MethodPost, "", hello).Header().Get("Mcp-Session-Id")
	elsewhere.address = "192.0.2.2"
	if got := elsewhere.ask(t, endpoint, http.MethodPost, id, ping); got.Code != http.StatusOK {
		t.Errorf("who has a name may move: %d %s", got.Code, got.Body)
	}
}

// TestSession_StreamEndsWithIt: it keeps the session alive, whether or not it
// can be looked for, and ends when any replica ends the session.
func TestSession_StreamEndsWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keeper := &shared{stored: newKept(t, time.Now)}
		r := &notifying{handler: handler{description: chef()}}
		here, there := keeper.replica(t, r), keeper.replica(t, r)
		v := visitor{caller("spiffe://td/a"), "192.0.2.1", "chef"}
		id := v.ask(t, here, http.MethodPost, "", hello).Header().Get("Mcp-Session-Id")
		var over atomic.Bool
		stream := httptest.NewRecorder()
		go func() {
			here.ServeHTTP(stream, v.request(t.Context(), http.MethodGet, id, ""))
			over.Store(true)
		}()
		time.Sleep(35 * time.Minute) // longer than a session lives by itself
		keeper.away.Store(true)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		keeper.away.Store(false)
		if over.Load() {
			t.Fatalf("it ended by itself: %d %s", stream.Code, stream.Body)
		}
		if got := v.ask(t, there, http.MethodDelete, id, ""); got.Code != http.StatusNoContent {
			t.Errorf("DELETE: %d %s", got.Code, got.Body)
		}
		time.Sleep(time.Minute)
		if synctest.Wait(); !over.Load() {
			t.Error("it goes on without its session")
		}
	})
}

// guarded is a road on which somebody is not let in any more.
type guarded struct {
	notifying
	limit, admit error
}

func (g *guarded) Limit(context.Context, transport.CallInfo) (limit.Pass, error) {
	return transporttest.Pass(g.limit)
}

func (g *guarded) Admit(context.Context, transport.CallInfo) error { return g.admit }

// TestSession_StreamAndDeleteNeedPermission, nor end a session, although it is his; and
// whoever is over his limit is so without a body too.
func TestSession_StreamAndDeleteNeedPermission(t *testing.T) {
	t.Parallel()
	r := &guarded{notifying: notifying{handler: handler{description: chef()}}}
	endpoint := (&shared{stored: newKept(t, time.Now)}).replica(t, r)
	v := visitor{caller("spiffe://td/a"), "192.0.2.1", "chef"}
	id := v.ask(t, endpoint, http.MethodPost, "", hello).Header().Get("Mcp-Session-Id")
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		r.limit, r.admit = nil, &policy.Forbidden{Agent: "chef"}
		if got := v.ask(t, endpoint, method, id, ""); got.Code != http.StatusForbidden {
			t.Errorf("%s, not admitted: %d %s", method, got.Code, got.Body)
		}
		r.limit, r.admit = &limit.ExceededError{RetryAfter: time.Minute}, nil
		if got := v.ask(t, endpoint, method, id, ""); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "60" {
			t.Errorf("%s, over the limit: %d %s", method, got.Code, got.Body)
		}
		r.limit = nil
		if got := v.ask(t, endpoint, method, "", ""); got.Code != http.StatusBadRequest && got.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s, without a session: %d %s", method, got.Code, got.Body)
		}
	}
	if got := v.ask(t, endpoint, http.MethodDelete, id, ""); got.Code != http.StatusNoContent {
		t.Errorf("at last: %d %s", got.Code, got.Body)
	}
}
