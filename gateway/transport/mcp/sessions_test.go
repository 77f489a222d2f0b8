package mcp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestAttack_SessionsAtServersWithoutEnd: a caller who begins more sessions than there is room for
// ends its own; what another caller began goes on, however long ago that was used.
func TestAttack_SessionsAtServersWithoutEnd(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	p := newPeer(t, server.serve)
	d := newDialer(t, &direct{}, nil)
	call := func(caller ect.Identity, session string) string {
		at := endpoint(p, mcp.Legacy)
		at.Caller, at.Session = caller, session
		if _, err := d.Dial(t.Context(), at, seal(t, mcp.Legacy, "1")); err != nil {
			t.Fatal(err)
		}
		return p.last().header.Get("Mcp-Session-Id")
	}
	const bob ect.Identity = "spiffe://td/bob"
	first := call(bob, "his")
	for i := range 1025 {
		call("spiffe://td/eve", fmt.Sprint(i))
	}
	if again := call(bob, "his"); again != first {
		t.Errorf("his session is %s, and was %s", again, first)
	}
}

// forgetful is a server that loses its sessions, and refuses them then in its own way.
type forgetful struct {
	*legacy
	refuse func(w http.ResponseWriter)
	called int // tools
}

func (f *forgetful) serve(w http.ResponseWriter, r *http.Request, in incoming) {
	f.mu.Lock()
	forgotten := in.Method != "initialize" && in.Method != "server/discover" && !f.valid[r.Header.Get("Mcp-Session-Id")]
	if !forgotten && in.Method == "tools/call" {
		f.called++
	}
	f.mu.Unlock()
	if forgotten {
		f.refuse(w)
		return
	}
	f.legacy.serve(w, r, in)
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.valid)
}

func (f *forgetful) counts() (begun, called int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun, f.called
}

func status(code int, media, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if media != "" {
			w.Header().Set("Content-Type", media)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

const noSession = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`

// refusals are the ways in which servers refuse a session that they lost.
func refusals() map[string]func(http.ResponseWriter) {
	return map[string]func(http.ResponseWriter){
		"400 of the TypeScript SDK": status(400, "application/json", noSession),
		"400 with an id of its own": status(400, "application/json", strings.Replace(noSession, "null", `"server-error"`, 1)),
		"400 with a text":           status(400, "text/plain; charset=utf-8", "Bad Request: No valid session ID provided"),
		"400 without a body":        status(400, "", ""),
		"401":                       status(401, "application/json", `{"error":"unauthorized"}`),
		"404":                       status(404, "application/json", noSession),
		"410":                       status(410, "", ""),
		"503":                       status(503, "text/html", "<html>"),
	}
}

// TestLostSession_BeginsAnewOnce: whatever a server says of a session that it lost, the call is
// done, once, in a new one.
func TestLostSession_BeginsAnewOnce(t *testing.T) {
	t.Parallel()
	for name, refuse := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, beside := range []bool{false, true} {
				server := &forgetful{legacy: newLegacy(mcp.Legacy), refuse: refuse}
				p := newPeer(t, server.serve)
				d := newDialer(t, &direct{}, nil)
				ep := endpoint(p, mcp.Legacy)
				ep.Beside = beside
				for i := range 3 {
					reply, err := d.Dial(t.Context(), ep, seal(t, mcp.Legacy, fmt.Sprint(i)))
					if err != nil || !strings.Contains(string(reply.Wire.Body), `"text":"hi"`) {
						t.Fatalf("call %d, beside %v: got %s, %v", i, beside, reply.Wire.Body, err)
					}
					if reply.Events != nil {
						_ = reply.Events.Close()
					}
					if i == 0 {
						server.forget()
					}
				}
				if begun, called := server.counts(); begun != 2 || called != 3 {
					t.Errorf("beside %v: %d sessions, %d calls done", beside, begun, called)
				}
			}
		})
	}
}

// TestLostSession_OfTheDirectory: the list of tools is read in a new session.
func TestLostSession_OfTheDirectory(t *testing.T) {
	t.Parallel()
	for name, refuse := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &forgetful{legacy: newLegacy(mcp.Legacy), refuse: refuse}
			p := newPeer(t, server.serve)
			d := newDialer(t, &direct{}, nil)
			for range 2 {
				description, _, err := d.Describe(t.Context(), endpoint(p, mcp.Legacy))
				if err != nil || len(description.Capabilities) != 1 {
					t.Fatalf("got %+v, %v", description, err)
				}
				server.forget()
			}
			if begun, _ := server.counts(); begun != 2 {
				t.Errorf("%d sessions", begun)
			}
		})
	}
}

// TestLostSession_Notification: it goes into the new session. An answer does not: what it
// answers was asked in the lost one.
func TestLostSession_Notification(t *testing.T) {
	t.Parallel()
	for name, refuse := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &forgetful{legacy: newLegacy(mcp.Legacy), refuse: refuse}
			p := newPeer(t, server.serve)
			d := newDialer(t, &direct{}, nil)
			ep := endpoint(p, mcp.Legacy)
			notice := sealed(t, mcp.Legacy, &canonical.Message{
				Op: canonical.OpAbort, Phase: canonical.PhaseRequest, Body: &canonical.Abort{Request: json.RawMessage(`1`)},
			})
			answer := sealed(t, mcp.Legacy, &canonical.Message{
				Op: canonical.OpAnswer, Phase: canonical.PhaseRequest, Body: &canonical.Reply{ID: json.RawMessage(`"q"`), Answer: canonical.Answer{Action: canonical.Accept}},
			})
			for range 2 {
				if _, err := d.Dial(t.Context(), ep, notice); err != nil {
					t.Fatal(err)
				}
				server.forget()
			}
			if begun, _ := server.counts(); begun != 2 || p.last().header.Get("Mcp-Session-Id") != "s2" {
				t.Errorf("%d sessions, the last message in %s", begun, p.last().header.Get("Mcp-Session-Id"))
			}
			if _, err := d.Dial(t.Context(), ep, answer); err == nil || p.last().header.Get("Mcp-Session-Id") != "s2" {
				t.Errorf("an answer: %v, in session %s", err, p.last().header.Get("Mcp-Session-Id"))
			}
		})
	}
}

// TestLostSession_ManyCalls: calls that miss the session at the same time begin one.
func TestLostSession_ManyCalls(t *testing.T) {
	t.Parallel()
	for name, refuse := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &forgetful{legacy: newLegacy(mcp.Legacy), refuse: refuse}
			p := newPeer(t, server.serve)
			d := newDialer(t, &direct{}, nil)
			if _, err := d.Dial(t.Context(), endpoint(p, mcp.Legacy), seal(t, mcp.Legacy, "first")); err != nil {
				t.Fatal(err)
			}
			server.forget()
			var calls sync.WaitGroup
			for i := range 8 {
				sealed := seal(t, mcp.Legacy, fmt.Sprint(i))
				calls.Go(func() {
					if _, err := d.Dial(t.Context(), endpoint(p, mcp.Legacy), sealed); err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
			if begun, called := server.counts(); begun != 2 || called != 9 {
				t.Errorf("%d sessions, %d calls done", begun, called)
			}
		})
	}
}

// TestLostSession_OfReplicas: the session that one replica begins anew is used by the others.
func TestLostSession_OfReplicas(t *testing.T) {
	t.Parallel()
	server := &forgetful{legacy: newLegacy(mcp.Legacy), refuse: status(400, "application/json", noSession)}
	p := newPeer(t, server.serve)
	sessions := newKept(t, time.Now)
	var replicas []*wire.Dialer
	for range 2 {
		d, err := wire.NewDialer(wire.DialerDeps{Client: &direct{}, Form: mcp.New(translators.Config{}), Keeper: sessions})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		replicas = append(replicas, d)
	}
	ep := endpoint(p, mcp.Legacy)
	ep.Session = "mine"
	for round := range 3 {
		for i, d := range replicas {
			if _, err := d.Dial(t.Context(), ep, seal(t, mcp.Legacy, fmt.Sprint(round, i))); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprint("s", round+1); p.last().header.Get("Mcp-Session-Id") != want {
				t.Errorf("round %d, replica %d: in %s, want %s", round, i, p.last().header.Get("Mcp-Session-Id"), want)
			}
		}
		server.forget()
	}
}

// TestLiveSession_IsKept: a server that refuses one message and still knows the session keeps
// it, and what it said is told.
func TestLiveSession_IsKept(t *testing.T) {
	t.Parallel()
	for name, refuse := range refusals() {
		if name == "404" { // means that the session is gone (2025-11-25, Session Management)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newLegacy(mcp.Legacy)
			p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
				if in.Method == "tools/call" {
					refuse(w)
					return
				}
				server.serve(w, r, in)
			})
			d := newDialer(t, &direct{}, nil)
			for i := range 2 {
				reply, err := d.Dial(t.Context(), endpoint(p, mcp.Legacy), seal(t, mcp.Legacy, fmt.Sprint(i)))
				_, bad := errors.AsType[*transport.BadReplyError](err)
				if !bad && !strings.Contains(string(reply.Wire.Body), "No valid session ID provided") {
					t.Errorf("got %s, %v", reply.Wire.Body, err)
				}
			}
			want := []string{"initialize", "notifications/initialized", "tools/call", "ping", "tools/call", "ping"}
			if diff := cmp.Diff(want, p.methods()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLostSession_RefusedAnew: a server that refuses each session is asked twice, and what it
// said is told.
func TestLostSession_RefusedAnew(t *testing.T) {
	t.Parallel()
	for name, refuse := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newLegacy(mcp.Legacy)
			p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
				if in.Method == "tools/call" || in.Method == "ping" {
					refuse(w)
					return
				}
				server.serve(w, r, in)
			})
			reply, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, mcp.Legacy), seal(t, mcp.Legacy, "1"))
			_, bad := errors.AsType[*transport.BadReplyError](err)
			if !bad && !strings.Contains(string(reply.Wire.Body), "No valid session ID provided") {
				t.Errorf("got %s, %v", reply.Wire.Body, err)
			}
			calls := slices.DeleteFunc(p.methods(), func(m string) bool { return m != "tools/call" })
			if len(calls) != 2 || server.begun != 2 {
				t.Errorf("%d calls, %d sessions", len(calls), server.begun)
			}
		})
	}
}

// TestOverloadedServer_KeepsTheSession: where no new session can be begun, the first refusal is
// told with its advice, and the session is there when the server is.
func TestOverloadedServer_KeepsTheSession(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	var away atomic.Bool
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
		switch {
		case away.Load() && in.Method == "tools/call":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		case away.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			server.serve(w, r, in)
		}
	})
	d := newDialer(t, &direct{}, nil)
	for i := range 3 {
		away.Store(i == 1)
		_, err := d.Dial(t.Context(), endpoint(p, mcp.Legacy), seal(t, mcp.Legacy, fmt.Sprint(i)))
		if refused, ok := errors.AsType[*transport.StatusError](err); ok != (i == 1) || ok && (refused.Status != 503 || refused.RetryAfter != 7*time.Second) {
			t.Errorf("call %d: got %v", i, err)
		}
	}
	if got := p.last().header.Get("Mcp-Session-Id"); got != "s1" {
		t.Errorf("the last call in session %s", got)
	}
}

// TestTakenRequest_IsNotSentAgain: a server that may have done what it was asked is not asked
// once more.
func TestTakenRequest_IsNotSentAgain(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(http.ResponseWriter){
		"500":                          status(500, "", ""),
		"502":                          status(502, "", ""),
		"504":                          status(504, "", ""),
		"200 with the error of a lost": status(200, "application/json", noSession),
		"202":                          status(202, "", ""),
		"a stream that ends":           status(200, "text/event-stream", ": bye\n\n"),
		"a connection that breaks":     func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newLegacy(mcp.Legacy)
			p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
				if in.Method == "tools/call" {
					serve(w)
					return
				}
				server.serve(w, r, in)
			})
			reply, _ := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, mcp.Legacy), seal(t, mcp.Legacy, "1"))
			if reply.Events != nil {
				_, _ = drain(t, reply.Events)
			}
			if diff := cmp.Diff([]string{"initialize", "notifications/initialized", "tools/call"}, p.methods()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLostSession_Stream: what a server says without being asked is heard in a new session.
func TestLostSession_Stream(t *testing.T) {
	t.Parallel()
	for name, refuse := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &forgetful{legacy: newLegacy(mcp.Legacy), refuse: refuse}
			p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
				if r.Method != http.MethodGet {
					server.serve(w, r, in)
					return
				}
				if r.Header.Get("Mcp-Session-Id") == "s2" {
					stream(w, "retry: 1\n"+`data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n\n")
					return
				}
				server.forget()
				refuse(w)
			})
			reply, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, mcp.Legacy), sealedGet(t))
			if err != nil {
				t.Fatal(err)
			}
			event, err := reply.Events.Next(t.Context())
			if err != nil || !strings.Contains(string(event.Wire.Body), "list_changed") {
				t.Errorf("got %s, %v", event.Wire.Body, err)
			}
			_ = reply.Events.Close()
			if begun, _ := server.counts(); begun != 2 {
				t.Errorf("%d sessions", begun)
			}
		})
	}
}
