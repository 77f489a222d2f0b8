package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
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

// TestDial_ServerRequestInAStream: a question in a stream, its answer in the same session, and a
// connection that breaks off in between and is taken up again.
func TestDial_ServerRequestInAStream(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	answered := make(chan struct{})
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
		switch {
		case in.Method == "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, "id: 1\nretry: 1\ndata:\n\n"+`data: {"jsonrpc":"2.0","id":"alive","method":"ping"}`+"\n\nid: 2\n"+
				`data: {"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`+"\n\n")
		case r.Method == http.MethodGet:
			if r.Header.Get("Last-Event-Id") != "2" || r.Header.Get("Mcp-Session-Id") != "s1" {
				t.Errorf("taken up with %v", r.Header)
			}
			<-answered
			stream(w, `data: {"jsonrpc":"2.0","id":"id-1","result":`+content+"}\n\n")
		case in.Method == "" && string(in.ID) == `"q"`:
			if r.Header.Get("Mcp-Session-Id") != "s1" {
				t.Errorf("answered in session %q", r.Header.Get("Mcp-Session-Id"))
			}
			w.WriteHeader(http.StatusAccepted)
			close(answered)
		case in.Method == "" && in.ID != nil, in.Method == "notifications/cancelled":
			w.WriteHeader(http.StatusAccepted)
		default:
			server.serve(w, r, in)
		}
	})
	d := newDialer(t, &direct{}, nil)
	ep := endpoint(p, mcp.Legacy)
	ep.AnswerModes = []canonical.Mode{canonical.ModeForm}
	ctx, cancel := context.WithCancel(t.Context())
	reply, err := d.Dial(ctx, ep, seal(t, mcp.Legacy, "id-1"))
	if err != nil {
		t.Fatal(err)
	}
	cancel() // the stream outlives the dialling
	defer func() { _ = reply.Events.Close() }()
	first, err := reply.Events.Next(t.Context())
	if err != nil || !first.Wire.Event || !strings.Contains(string(first.Wire.Body), "elicitation/create") {
		t.Fatalf("got %s, %v", first.Wire.Body, err)
	}
	for _, m := range []*canonical.Message{
		{Op: canonical.OpAnswer, Phase: canonical.PhaseRequest, Body: &canonical.Reply{ID: json.RawMessage(`"q"`), Answer: canonical.Answer{Action: canonical.Accept}}},
		{Op: canonical.OpAbort, Phase: canonical.PhaseRequest, Body: &canonical.Abort{Request: json.RawMessage(`"other"`)}},
	} {
		got, err := d.Dial(t.Context(), ep, sealed(t, mcp.Legacy, m))
		if err != nil || got.Events != nil || got.Wire.Body != nil {
			t.Errorf("%s: got %+v, %v", m.Op, got, err)
		}
	}
	rest, err := drain(t, reply.Events)
	if err != nil || len(rest) != 1 || !strings.Contains(string(rest[0].Body), `"text":"hi"`) {
		t.Errorf("got %v, %v", rest, err)
	}
	begun := p.requests[slices.IndexFunc(p.requests, func(r seen) bool { return r.method == "initialize" })]
	if !strings.Contains(begun.body, `"elicitation":{"form":{}}`) {
		t.Errorf("declared: %s", begun.body)
	}
}

// TestDial_TrailerThatClosesAStream: a server that announces a trailer is heard to
// the end of it, and no longer than that takes; others not at all.
func TestDial_TrailerThatClosesAStream(t *testing.T) {
	t.Parallel()
	const events = `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}` + "\n\n" +
		`data: {"jsonrpc":"2.0","id":"id-1","result":` + content + "}\n\n"
	for name, tc := range map[string]struct {
		announced, open bool
		token           string
		want            int
	}{
		"announced":        {announced: true, token: "a.b.c", want: 1},
		"nothing came":     {announced: true},
		"kept open":        {announced: true, open: true, token: "a.b.c"},
		"not announced":    {open: true},
		"no token at all ": {announced: true, token: "a b", want: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			defer close(release)
			p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, _ incoming) {
				if tc.announced {
					w.Header().Set("Trailer", ect.HeaderName)
				}
				stream(w, events)
				_ = http.NewResponseController(w).Flush()
				if tc.token != "" {
					w.Header().Set(ect.HeaderName, tc.token)
				}
				if tc.open {
					<-release
				}
			})
			reply, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, mcp.Modern), seal(t, mcp.Modern, "id-1"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reply.Events.Close() }()
			tokens, began := 0, time.Now()
			for {
				event, err := reply.Events.Next(t.Context())
				if bad := (*transport.BadReplyError)(nil); errors.As(err, &bad) {
					tokens = -1
				}
				if err != nil {
					break
				}
				tokens += len(event.Evidence)
			}
			if took := time.Since(began); tokens != tc.want || took > 10*time.Second {
				t.Errorf("%d tokens after %v", tokens, took)
			}
		})
	}
}

// TestDial_IncompleteStreamIsNoReply: what never passes for an answer.
func TestDial_IncompleteStreamIsNoReply(t *testing.T) {
	t.Parallel()
	notice := `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}` + "\n\n"
	for name, tc := range map[string]struct{ version, text string }{
		"modern":            {mcp.Modern, notice},
		"modern with an id": {mcp.Modern, "id: 1\n" + notice},
		"legacy, no id":     {mcp.Legacy, notice},
		"legacy, for ever":  {mcp.Legacy, "id: 1\nretry: 0\n" + notice},
		"another id":        {mcp.Legacy, notice + `data: {"jsonrpc":"2.0","id":"other","result":{}}` + "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newLegacy(mcp.Legacy)
			p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
				switch {
				case in.Method == "tools/call":
					stream(w, tc.text)
				case r.Method == http.MethodGet:
					stream(w, ": nothing\n\n")
				default:
					server.serve(w, r, in)
				}
			})
			reply, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, tc.version), seal(t, tc.version, "id-1"))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := drain(t, reply.Events)
			var bad *transport.BadReplyError
			if !errors.As(err, &bad) || len(answer) != 1 {
				t.Errorf("got %v after %d", err, len(answer))
			}
		})
	}
}

// TestStreamedReplies_UseOneConnection: a server that answers calls with streams over
// HTTP/1.1, as those of the official SDKs do, is not dialed for each call.
func TestStreamedReplies_UseOneConnection(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]string{
		"the reply alone": "", "after progress": `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}` + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addresses, received := map[string]bool{}, make(chan struct{})
			p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
				addresses[r.RemoteAddr] = true
				stream(w, notice+`data: {"jsonrpc":"2.0","id":`+string(in.ID)+`,"result":`+content+"}\n\n")
				_ = http.NewResponseController(w).Flush() // the end comes apart from the reply
				<-received
			})
			ends := &ending{ended: make(chan struct{}, 1)}
			defer ends.transport.CloseIdleConnections()
			d := newDialer(t, ends, nil)
			for _, id := range []string{"id-1", "id-2", "id-3"} {
				reply, err := d.Dial(t.Context(), endpoint(p, mcp.Modern), seal(t, mcp.Modern, id))
				if err != nil {
					t.Fatal(err)
				}
				if reply.Events != nil {
					if _, err := drain(t, reply.Events); err != nil {
						t.Error(err)
					}
					_ = reply.Events.Close()
				}
				received <- struct{}{}
				<-ends.ended
			}
			if len(addresses) != 1 {
				t.Errorf("%d connections", len(addresses))
			}
		})
	}
}

// TestStreamedReplies_ServerThatGoesOn: a server that does not end its stream after the
// reply delays no caller, and is left soon.
func TestStreamedReplies_ServerThatGoesOn(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
		stream(w, `data: {"jsonrpc":"2.0","id":`+string(in.ID)+`,"result":`+content+"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	})
	if reply, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, mcp.Modern), seal(t, mcp.Modern, "id-1")); err != nil || !strings.Contains(string(reply.Wire.Body), `"text":"hi"`) {
		t.Errorf("got %s, %v", reply.Wire.Body, err)
	}
	<-left
}

// ending tells when an answer was read to its end.
type ending struct {
	transport http.Transport
	ended     chan struct{}
}

func (e *ending) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	response, err := e.transport.RoundTrip(r)
	if err == nil {
		response.Body = &endingBody{response.Body, e.ended}
	}
	return response, err
}

type endingBody struct {
	io.ReadCloser
	ended chan struct{}
}

func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended <- struct{}{}
	}
	return n, err
}

// TestSession_SharedByReplicas: a session that mirrors a caller's own is one for all.
func TestSession_SharedByReplicas(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	p := newPeer(t, server.serve)
	sessions := newKept(t, time.Now)
	ids := map[string]bool{}
	for range 2 {
		d, err := wire.NewDialer(wire.DialerDeps{Client: &direct{}, Form: mcp.New(translators.Config{}), Keeper: sessions})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		ep := endpoint(p, mcp.Legacy)
		ep.Session = "mine"
		if _, err := d.Dial(t.Context(), ep, seal(t, mcp.Legacy, "id-1")); err != nil {
			t.Fatal(err)
		}
		ids[p.last().header.Get("Mcp-Session-Id")] = true
	}
	if diff := cmp.Diff(map[string]bool{"s1": true}, ids); diff != "" || server.begun != 1 {
		t.Errorf("%d begun: %s", server.begun, diff)
	}
}

func stream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, text)
}
