package mcp_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestStream_CountPerCallerIsBounded: one caller at its share gets 429, unless the
// stream takes the place of the session's own; another caller gets its stream.
func TestStream_CountPerCallerIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keeper := &shared{stored: newKept(t, time.Now)}
		endpoint, err := tmcp.NewServer(tmcp.ServerDeps{Form: mcp.New(translators.Config{}), Keeper: keeper, Now: time.Now, Streams: 2})
		if err != nil {
			t.Fatal(err)
		}
		at := endpoint.Handler(&notifying{handler: handler{description: chef()}})
		var open sync.WaitGroup
		stream := func(v visitor, session string) *httptest.ResponseRecorder {
			out := httptest.NewRecorder()
			open.Go(func() { at.ServeHTTP(out, v.request(t.Context(), http.MethodGet, session, "")) })
			synctest.Wait()
			return out
		}
		session := func(v visitor) string { return v.ask(t, at, http.MethodPost, "", hello).Header().Get("Mcp-Session-Id") }
		greedy := visitor{caller("spiffe://td/a"), "192.0.2.1", "chef"}
		other := visitor{caller("spiffe://td/b"), "192.0.2.1", "chef"}
		first, second, third := session(greedy), session(greedy), session(greedy)
		stream(greedy, first)
		stream(greedy, second)
		if got := stream(greedy, third); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" {
			t.Errorf("a third stream: %d %s", got.Code, got.Body)
		}
		if got := stream(greedy, second); got.Code != http.StatusOK {
			t.Errorf("in place of its own: %d %s", got.Code, got.Body)
		}
		if got := stream(other, session(other)); got.Code != http.StatusOK {
			t.Errorf("another caller: %d %s", got.Code, got.Body)
		}
		greedy.ask(t, at, http.MethodDelete, first, "")
		synctest.Wait()
		if got := stream(greedy, third); got.Code != http.StatusOK {
			t.Errorf("after one has ended: %d %s", got.Code, got.Body)
		}
		endpoint.Close()
		open.Wait()
	})
}
