package ainp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/policy/quota"
	form "github.com/aepb/aepb-gateway/translators/ainp"
)

// stranger marks a context as that of a connection that proved no identity.
func stranger(ctx context.Context) context.Context {
	return transport.WithoutCaller(ctx, &problem.UnauthenticatedError{}, "192.0.2.1")
}

// unlimited is a fakeHandler that asks for no identity when the limit is asked: as the
// gateway does, which lets the address pay.
func unlimited() *fakeHandler {
	return &fakeHandler{exchange: echo, limit: func(transport.CallInfo) error { return nil }}
}

// TestAttack_StrangerMakesUsFetchPublicAddress is finding 3: each message of a
// stranger made the gateway send one request to whatever public host the sender's
// did:web named. Now none is sent for a DID that the operator does not name, with
// an identity or without.
func TestAttack_StrangerMakesUsFetchPublicAddress(t *testing.T) {
	t.Parallel()
	e := &everyone{}
	endpoint := newEndpoint(t, func(d *wire.ServerDeps) {
		d.Keys = wire.NewKeys(e, now)
		d.Named = func(did string) bool { return did == "did:web:victim.example" }
	}).Handler(unlimited())
	send := func(did string, n int, mark func(context.Context) context.Context) int {
		who := wire.Identity{DID: did, Key: party("alice").Key}
		body := strings.Replace(note(who), requestID, requestID[:33]+strconv.Itoa(100+n), 1)
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(sign(t, who, []byte(body), form.SigDraft))))
		request.Header.Set("Content-Type", form.Media)
		got := httptest.NewRecorder()
		endpoint.ServeHTTP(got, request.WithContext(mark(request.Context())))
		return got.Code
	}
	certified := func(ctx context.Context) context.Context {
		return transport.WithCaller(ctx, identity.Caller{Peer: ect.Peer{ID: alice}}, "192.0.2.1")
	}
	for n := range 50 {
		for _, mark := range []func(context.Context) context.Context{stranger, certified} {
			if status := send("did:web:host"+strconv.Itoa(n)+".example", n, mark); status != http.StatusUnauthorized {
				t.Errorf("got %d", status)
			}
		}
	}
	if status := send("did:web:victim.example", 50, stranger); status != http.StatusUnauthorized { // an agent's DID, and no caller's
		t.Errorf("a stranger with a DID that stands for no caller: %d", status)
	}
	if e.requests != 0 {
		t.Errorf("%d requests were sent for strangers", e.requests)
	}
	if status := send("did:web:victim.example", 51, certified); status != http.StatusOK || e.requests != 1 {
		t.Errorf("a named DID: %d, %d requests", status, e.requests)
	}
}

// unread counts the bytes that are read of it.
type unread struct{ bytes int }

func (u *unread) Read(p []byte) (int, error) {
	u.bytes += len(p)
	return len(p), nil
}

// TestAttack_StrangerPostsLongMessages: up to a MiB of each message of a stranger
// was read and decoded, although none could be accepted. Now nothing is, where no
// caller is known by a DID.
func TestAttack_StrangerPostsLongMessages(t *testing.T) {
	t.Parallel()
	for known, want := range map[bool]int{true: http.StatusRequestEntityTooLarge, false: http.StatusUnauthorized} {
		body := &unread{}
		request := httptest.NewRequest(http.MethodPost, "/", body)
		request.Header.Set("Content-Type", form.Media)
		got := httptest.NewRecorder()
		endpoint := newEndpoint(t, func(d *wire.ServerDeps) { d.ByDID = func() bool { return known } })
		endpoint.Handler(unlimited()).ServeHTTP(got, request.WithContext(stranger(request.Context())))
		if got.Code != want || (body.bytes > 0) != known {
			t.Errorf("callers by DID %t: got %d after %d bytes, want %d", known, got.Code, body.bytes, want)
		}
	}
}

// TestAttack_StrangerKeepsAWebSocket is finding 6: a connection that never proves
// who is at its other end stayed open for as long as it answered pings. Now it
// ends after thirty seconds, whatever else it says.
func TestAttack_StrangerKeepsAWebSocket(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"silent": "", "with messages that prove nothing": note(party("alice"))} {
		synctest.Test(t, func(t *testing.T) {
			conn, began := throughPipeAs(t, unlimited(), stranger), time.Now()
			if text != "" {
				if got, err := says(t, conn, websocket.MessageText, text); err != nil || !strings.Contains(got, "INVALID_SIGNATURE") {
					t.Errorf("%s: %s, %v", name, got, err)
				}
			}
			if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
				t.Errorf("%s: it ends with %v", name, err)
			}
			if took := time.Since(began); took < 30*time.Second || took > 40*time.Second {
				t.Errorf("%s: it ends after %v", name, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		conn := throughPipeAs(t, unlimited(), stranger)
		if got, err := says(t, conn, websocket.MessageText, numbered(t, party("alice"), "1")); err != nil || !strings.Contains(got, `"status":"success"`) {
			t.Fatalf("a message that proves who calls: %s, %v", got, err)
		}
		ended := make(chan error, 1)
		go func() { _, _, err := conn.Read(t.Context()); ended <- err }() // answers pings
		<-time.After(2 * time.Minute)
		if len(ended) != 0 {
			t.Errorf("a connection that proved who calls ended: %v", <-ended)
		}
		_ = conn.CloseNow()
		if err := <-ended; err == nil {
			t.Error("the connection that was closed goes on")
		}
	})
}

// TestAttack_StrangerSendsLongMessages: before it has proved who it is, a caller
// has as much room for a message as an introduction takes.
func TestAttack_StrangerSendsLongMessages(t *testing.T) {
	t.Parallel()
	const long = 512 << 10
	endpoint := newEndpoint(t, nil)
	handler := endpoint.Handler(unlimited())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("agent", "chef")
		handler.ServeHTTP(w, r.WithContext(stranger(r.Context())))
	}))
	t.Cleanup(func() { endpoint.Close(); server.Close() })
	padded := func(n string) string {
		return string(sign(t, party("alice"), []byte(strings.Replace(strings.Replace(note(party("alice")), requestID, requestID[:35]+n, 1), `"hi"`, `"`+strings.Repeat("x", long)+`"`, 1)), form.SigDraft))
	}
	conn := dialEndpoint(t, "ws"+strings.TrimPrefix(server.URL, "http"))
	if got, err := says(t, conn, websocket.MessageText, padded("1")); err == nil {
		t.Errorf("a stranger's long message is read: %s", got[:min(len(got), 100)])
	}
	conn = dialEndpoint(t, "ws"+strings.TrimPrefix(server.URL, "http"))
	conn.SetReadLimit(2 * long)
	for n, text := range []string{numbered(t, party("alice"), "2"), padded("3")} {
		if got, err := says(t, conn, websocket.MessageText, text); err != nil || !strings.Contains(got, `"status":"success"`) {
			t.Errorf("message %d of a caller that has proved who it is: %s, %v", n, got[:min(len(got), 100)], err)
		}
	}
}

// slowHost answers when it is let, and counts what it is asked at once.
type slowHost struct {
	release       chan struct{}
	requests, now atomic.Int64
	most          atomic.Int64
}

func (s *slowHost) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	s.requests.Add(1)
	if n := s.now.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.now.Add(-1)
	select {
	case <-s.release:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	did := "did:web:" + r.URL.Host + strings.ReplaceAll(strings.TrimSuffix(r.URL.Path, "/did.json"), "/", ":")
	document := `{"id":"` + did + `","verificationMethod":[{"publicKeyMultibase":"` + strings.TrimPrefix(party("alice").DID, "did:key:") + `"}]}`
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(document))}, nil
}

// TestDIDDocument_LookupsAreBounded: one for each document at a time, eight for each host.
func TestDIDDocument_LookupsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowHost{release: make(chan struct{})}
		keys := wire.NewKeys(s, time.Now)
		var group sync.WaitGroup
		var found, refused atomic.Int64
		for n := range 60 {
			group.Go(func() {
				_, err := keys.Resolve(t.Context(), "did:web:a.example:"+strconv.Itoa(n%20))
				if _, full := errors.AsType[*quota.ExceededError](err); full {
					refused.Add(1)
				} else if err == nil {
					found.Add(1)
				}
			})
		}
		synctest.Wait()
		if s.requests.Load() != 8 || found.Load() != 0 {
			t.Errorf("%d requests to one host at once, want 8", s.requests.Load())
		}
		if _, err := keys.Resolve(t.Context(), "did:web:a.example:99"); err == nil {
			t.Error("a ninth is sent")
		}
		close(s.release)
		group.Wait()
		if found.Load()+refused.Load() != 60 || found.Load() < 8 {
			t.Errorf("%d found, %d refused", found.Load(), refused.Load())
		}
		if _, err := keys.Resolve(t.Context(), "did:web:a.example:99"); err != nil {
			t.Errorf("one that was refused, when there is room again: %v", err)
		}
	})
}

// TestAttack_CallerBreaksOffLookups: a caller that goes away in the middle of a
// lookup must not leave behind that there is no such document.
func TestAttack_CallerBreaksOffLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowHost{release: make(chan struct{})}
		keys := wire.NewKeys(s, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _, _ = keys.Resolve(ctx, "did:web:a.example:x") })
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(s.release)
		group.Wait()
		if got, err := keys.Resolve(t.Context(), "did:web:a.example:x"); err != nil || len(got) != 1 || s.requests.Load() != 1 {
			t.Errorf("afterwards: %x, %v, %d requests", got, err, s.requests.Load())
		}
	})
}

// TestLimit_OncePerMessage: a message takes one request of its connection's share, and one
// more of its sender's where the signature alone says who that is. A connection that stays
// open took one, too.
func TestLimit_OncePerMessage(t *testing.T) {
	t.Parallel()
	a, known := party("alice"), identity.Caller{Peer: ect.Peer{ID: alice}}
	inquiry := strings.Replace(note(a), "FreeformNote", "NOTIFICATION", 1)
	for name, tc := range map[string]struct {
		body   []byte
		caller identity.Caller
		limits int32
	}{
		"message, by certificate": {sign(t, a, []byte(note(a)), form.SigDraft), known, 1},
		"notice, by certificate":  {sign(t, a, []byte(inquiry), form.SigDraft), known, 1},
		"unreadable":              {[]byte("{"), known, 1},
		"message, by signature":   {sign(t, a, []byte(note(a)), form.SigDraft), nobody(), 2},
	} {
		var limits atomic.Int32
		r := &fakeHandler{exchange: echo, limit: func(transport.CallInfo) error { limits.Add(1); return nil }}
		if got := post(newEndpoint(t, nil).Handler(r), tc.body, tc.caller); got.Code >= http.StatusInternalServerError || limits.Load() != tc.limits {
			t.Errorf("%s: got %d %s, asked the limit %d times", name, got.Code, got.Body, limits.Load())
		}
	}
	var limits atomic.Int32
	r := &fakeHandler{exchange: echo, limit: func(transport.CallInfo) error { limits.Add(1); return nil }}
	conn := dialEndpoint(t, socketEndpoint(t, r, known, wire.SocketConfig{}))
	for n := range int32(2) {
		if got, err := says(t, conn, websocket.MessageText, numbered(t, a, strconv.Itoa(int(n)+1))); err != nil || limits.Load() != n+2 {
			t.Errorf("message %d: got %s, %v, asked the limit %d times", n, got, err, limits.Load())
		}
	}
}
