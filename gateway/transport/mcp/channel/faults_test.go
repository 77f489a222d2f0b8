package channel_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport/mcp/channel"
)

// latest waits for the nth server.
func (s *stage) latest(n int) *server {
	for {
		s.mu.Lock()
		if len(s.opened) >= n {
			defer s.mu.Unlock()
			return s.opened[n-1]
		}
		s.mu.Unlock()
	}
}

var shared = channel.Key{Agent: "files", URL: "stdio:?arg=x", Shared: true}

// TestShared_RefusedInitializeHarmsNoCall: a server without sessions refuses one; the calls of
// others at it go on, and whoever asked reads the refusal.
func TestShared_RefusedInitializeHarmsNoCall(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	waits := s.ask(t.Context(), shared, "", call("1", ""))
	one := s.latest(1)
	<-one.in
	begins := s.ask(t.Context(), shared, "", hello)
	<-one.in
	refusal := `{"jsonrpc":"2.0","id":"h","error":{"code":-32022,"message":"no"}}`
	one.out <- refusal
	got := <-begins
	if got.err != nil {
		t.Fatal(got.err)
	}
	if body := s.whole(got.response); body != refusal || got.response.Header.Get("Mcp-Session-Id") != "" {
		t.Errorf("got %s", body)
	}
	select {
	case <-one.over:
		t.Fatal("its channel was closed")
	case one.out <- reply("1"):
	}
	if answer := <-waits; answer.err != nil || s.whole(answer.response) != reply("1") {
		t.Errorf("got %v", answer.err)
	}
}

// TestShared_InitializeThatIsGivenUp: neither does one whose caller leaves.
func TestShared_InitializeThatIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	waits := s.ask(t.Context(), shared, "", call("1", ""))
	one := s.latest(1)
	<-one.in
	ctx, cancel := context.WithCancel(t.Context())
	begins := s.ask(ctx, shared, "", hello)
	<-one.in
	cancel()
	if got := <-begins; got.err == nil {
		t.Error("it got an answer")
	}
	select {
	case <-one.over:
		t.Fatal("its channel was closed")
	case one.out <- reply("1"):
	}
	if answer := <-waits; answer.err != nil || s.whole(answer.response) != reply("1") {
		t.Errorf("got %v", answer.err)
	}
}

// TestShared_HandshakeEndsAtOnce: the server knows that its client is ready before anybody can
// ask it anything, whatever becomes of the one who came first.
func TestShared_HandshakeEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	begins := s.ask(t.Context(), shared, "", hello)
	one := s.latest(1)
	<-one.in
	one.out <- welcome
	got := <-begins
	_ = s.whole(got.response)
	session := got.response.Header.Get("Mcp-Session-Id")
	waits := s.ask(t.Context(), shared, session, call("1", ""))
	if first := <-one.in; !strings.Contains(first, "notifications/initialized") {
		t.Errorf("it got %s", first)
		one.out <- reply("1")
		_ = s.whole((<-waits).response)
		return
	}
	<-one.in
	one.out <- reply("1")
	_ = s.whole((<-waits).response)
	if _, err := s.do(t.Context(), shared, http.MethodPost, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); err != nil {
		t.Error(err)
	}
	if len(one.in) > 0 {
		t.Errorf("it was told again: %s", <-one.in)
	}
}

// TestServers_ChannelThatIsAboutToEnd: whoever finds it by its key gets another.
func TestServers_ChannelThatIsAboutToEnd(t *testing.T) {
	t.Parallel()
	for i, key := range []channel.Key{shared, {Agent: "files", URL: "stdio:?arg=x", Caller: "spiffe://a/b"}} {
		s := newStage(t)
		ask := func(n int) {
			id := strconv.Itoa(n)
			waits := s.ask(t.Context(), key, "", call(id, ""))
			one := s.latest(n)
			select {
			case <-one.in:
				one.out <- reply(id)
			case got := <-waits:
				t.Fatalf("%d: %+v", i, got.response)
			}
			if got := <-waits; got.err != nil || s.whole(got.response) != reply(id) {
				t.Errorf("got %v", got.err)
			}
		}
		ask(1)
		one := s.latest(1)
		one.mu.Lock()
		if one.uses != 0 {
			t.Errorf("%d uses", one.uses)
		}
		one.ending = true
		one.mu.Unlock()
		ask(2)
	}
}
