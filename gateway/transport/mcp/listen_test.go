package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// unheard is a road whose agent says things until somebody leaves.
type unheard struct {
	handler
	says   chan string
	calls  chan transport.Call
	closed chan struct{}
}

func (r *unheard) Exchange(_ context.Context, c transport.Call) (transport.Answer, error) {
	r.calls <- c
	return transporttest.Stream(spoken{r}, "open.e.s"), nil
}

type spoken struct{ handler *unheard }

func (s spoken) Next(ctx context.Context) (transport.Event, error) {
	select {
	case text := <-s.handler.says:
		e := transport.Event{}
		e.Wire.Body, e.Wire.Event = []byte(text), true
		return e, nil
	case <-ctx.Done():
		return transport.Event{}, ctx.Err()
	}
}

func (s spoken) Close() error { s.handler.closed <- struct{}{}; return nil }

// listen opens the stream of a session.
func (h *building) listen(t *testing.T, session string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/agents/chef/mcp", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Mcp-Session-Id", session)
	request.Header.Set("Accept", "text/event-stream")
	response, err := h.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// TestServer_OneStreamPerSession: what is said on a session's stream, of which there is one, and
// how it ends.
func TestServer_OneStreamPerSession(t *testing.T) {
	t.Parallel()
	r := &unheard{handler: handler{description: chef()}, says: make(chan string), calls: make(chan transport.Call, 9), closed: make(chan struct{}, 9)}
	h := newBuilding(t, r)
	begin := func() string {
		first, _ := h.do(t, http.MethodPost, "", hello)
		return first.Header.Get("Mcp-Session-Id")
	}
	id := begin()
	old := h.listen(t, id)
	c := <-r.calls
	if c.Session != id || c.Wire.Verb != http.MethodGet || c.Wire.Version != mcp.Legacy || c.Detached || len(c.CanAnswer) != 1 {
		t.Errorf("the call: %+v", c)
	}
	if got := old.Header.Get("Execution-Context"); got != "open.e.s" {
		t.Errorf("evidence %q", got)
	}
	young := h.listen(t, id)
	if body, err := io.ReadAll(old.Body); err != nil || len(body) > 0 {
		t.Errorf("the first stream: %q, %v", body, err)
	}
	in := bufio.NewReader(young.Body)
	for _, text := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`} {
		r.says <- text // an answer to nothing is for nobody
	}
	line, err := in.ReadString(0x0a)
	data, _ := in.ReadString(0x0a)
	if err != nil || line != "event: message\n" || !strings.Contains(data, "list_changed") {
		t.Errorf("got %q %q, %v", line, data, err)
	}
	if got, _ := h.do(t, http.MethodDelete, id, ""); got.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %d", got.StatusCode)
	}
	if _, err := io.ReadAll(in); err != nil {
		t.Errorf("after the end of its session: %v", err)
	}
	last := h.listen(t, begin())
	h.server.Close()
	if body, err := io.ReadAll(last.Body); err != nil || len(body) > 0 {
		t.Errorf("got %q, %v", body, err)
	}
	for range 3 {
		select {
		case <-r.closed:
		case <-time.After(5 * time.Second):
			t.Fatal("a stream is still open")
		}
	}
}

// sealedGet is the wish to hear, sealed.
func sealedGet(t *testing.T) transport.Sealed {
	t.Helper()
	return sealed(t, mcp.Legacy, &canonical.Message{
		Op: canonical.OpNative, Phase: canonical.PhaseRequest, Origin: canonical.Origin{Binding: mcp.Binding, Version: mcp.Legacy},
		Body: &canonical.Native{Method: "GET"},
	})
}

// TestListen_ResumesAfterServerFaults: a server ends its streams, is busy, forgets the session; what it
// says is heard all the same.
func TestListen_ResumesAfterServerFaults(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	var request atomic.Int32
	pongs := make(chan struct{}, 1)
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
		if r.Method != http.MethodGet {
			if in.Method == "" {
				pongs <- struct{}{}
			}
			server.serve(w, r, in)
			return
		}
		switch request.Add(1) {
		case 1:
			stream(w, "id: 7\nretry: 1\n"+`data: {"jsonrpc":"2.0","id":"p","method":"ping"}`+"\n\n"+`data: {"jsonrpc":"2.0","id":9,"result":{}}`+"\n\n")
		case 2:
			if r.Header.Get("Last-Event-Id") != "7" || r.Header.Get("Mcp-Session-Id") != "s1" || r.Header.Get("Execution-Context") == "" {
				t.Errorf("taken up with %v", r.Header)
			}
			w.WriteHeader(http.StatusConflict)
		case 3:
			w.WriteHeader(http.StatusNotFound)
		case 4:
			if r.Header.Get("Last-Event-Id") != "" {
				t.Error("an event of a session that is gone is asked for")
			}
			stream(w, "retry: 1\n"+`data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n\n")
		default:
			w.WriteHeader(http.StatusMethodNotAllowed)
			enough()
		}
	})
	reply, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, mcp.Legacy), sealedGet(t))
	if err != nil {
		t.Fatal(err)
	}
	event, err := reply.Events.Next(t.Context())
	if err != nil || !event.Wire.Event || !strings.Contains(string(event.Wire.Body), "list_changed") {
		t.Errorf("got %s, %v", event.Wire.Body, err)
	}
	<-pongs
	if server.begun != 2 {
		t.Errorf("%d were begun", server.begun)
	}
	if event, err := reply.Events.Next(ctx); err == nil {
		t.Errorf("got %s", event.Wire.Body)
	}
	if err := reply.Events.Close(); err != nil {
		t.Error(err)
	}
	if n := request.Load(); n != 5 {
		t.Errorf("asked %d times", n)
	}
}

// alone is an endpoint with a session for one stream.
func alone(p *peer) transport.Endpoint {
	ep := endpoint(p, mcp.Legacy)
	ep.Session, ep.Alone = "one", true
	return ep
}

// TestListen_SessionOfOneStream: a session that is for one stream is begun with it, is not
// begun again behind its hearer's back, and ends with it.
func TestListen_SessionOfOneStream(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	var request atomic.Int32
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case r.Method != http.MethodGet:
			server.serve(w, r, in)
		case request.Add(1) == 1:
			stream(w, "retry: 1\n"+`data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n\n")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	d := newDialer(t, &direct{}, nil)
	reply, err := d.Dial(t.Context(), alone(p), sealedGet(t))
	if err != nil || reply.Events == nil || request.Load() != 1 {
		t.Fatalf("%+v, %v, asked %d times", reply, err, request.Load())
	}
	if event, err := reply.Events.Next(t.Context()); err != nil || !strings.Contains(string(event.Wire.Body), "list_changed") {
		t.Errorf("got %s, %v", event.Wire.Body, err)
	}
	var bad *transport.BadReplyError
	if event, err := reply.Events.Next(t.Context()); !errors.As(err, &bad) || server.begun != 1 {
		t.Errorf("got %s, %v, and %d sessions", event.Wire.Body, err, server.begun)
	}
	for range 2 {
		if err := reply.Events.Close(); err != nil {
			t.Error(err)
		}
	}
	d.Close()
	if last := p.last(); last.verb != http.MethodDelete || last.header.Get("Mcp-Session-Id") != "s1" || strings.Count(strings.Join(p.methods(), " "), "DELETE") != 1 {
		t.Errorf("at the end the server was asked %s", p.methods())
	}
}

// TestListen_ServerWithoutStream: whether a server has a stream is known at once.
func TestListen_ServerWithoutStream(t *testing.T) {
	t.Parallel()
	var bad *transport.BadReplyError
	var gone *transport.UnreachableError
	for status, want := range map[int]any{http.StatusMethodNotAllowed: nil, http.StatusConflict: &bad, 0: &gone} {
		server := newLegacy(mcp.Legacy)
		p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
			switch {
			case r.Method == http.MethodGet && status == 0:
				panic(http.ErrAbortHandler)
			case r.Method == http.MethodGet || r.Method == http.MethodDelete:
				w.WriteHeader(status)
			default:
				server.serve(w, r, in)
			}
		})
		reply, err := newDialer(t, &direct{}, nil).Dial(t.Context(), alone(p), sealedGet(t))
		if reply.Events != nil || (want == nil) != (err == nil) || want != nil && !errors.As(err, want) {
			t.Errorf("%d: %+v, %v", status, reply, err)
		}
	}
}
