package mcp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// oldPeer is a server of HTTP with SSE.
type oldPeer struct {
	*httptest.Server
	refusal  int    // what a POST to the stream's URL gets
	endpoint string // what the endpoint event says

	mu       sync.Mutex
	streams  []chan string // by session
	posts    []seen
	silent   bool // to tools/call
	answered string
}

func newOldPeer(t *testing.T) *oldPeer {
	t.Helper()
	p := &oldPeer{refusal: http.StatusMethodNotAllowed, endpoint: "/messages?n=%d", answered: mcp.LegacyFirst}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/messages":
			p.message(w, r)
		case r.Method == http.MethodGet:
			p.stream(w, r)
		default:
			w.WriteHeader(p.refusal)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *oldPeer) stream(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	n, says := len(p.streams), make(chan string, 16)
	p.streams = append(p.streams, says)
	p.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "event: endpoint\ndata: %s\n\n", strings.ReplaceAll(p.endpoint, "%d", fmt.Sprint(n)))
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case text, more := <-says:
			if !more {
				return
			}
			_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", text)
		case <-r.Context().Done():
			return
		}
	}
}

func (p *oldPeer) message(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	env, _ := mcp.Skim(body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posts = append(p.posts, seen{r.Method, env.Method, r.Header.Clone(), string(body)})
	var n int
	_, _ = fmt.Sscan(r.URL.Query().Get("n"), &n)
	w.WriteHeader(http.StatusAccepted)
	result := `{}`
	switch env.Method {
	case mcp.MethodInitialize:
		result = `{"protocolVersion":"` + p.answered + `","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}`
	case mcp.MethodList:
		result = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
	case mcp.MethodCall:
		result = content
		if p.silent {
			return
		}
	}
	if len(env.ID) > 0 {
		p.streams[n] <- `{"jsonrpc":"2.0","id":` + string(env.ID) + `,"result":` + result + `}`
	}
}

func (p *oldPeer) at(version string) transport.Endpoint {
	return transport.Endpoint{Agent: "old", ID: "spiffe://td/old", Binding: mcp.Binding, Version: version, URL: p.URL + "/sse", Caller: "spiffe://td/alice"}
}

// TestOldServers_FoundByGETAndCalled: a server that takes no POST is found by GET, whether its revision is named or
// not, and called on its stream, as the identity that is expected, with our evidence.
func TestOldServers_FoundByGETAndCalled(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed} {
		for _, version := range []string{"", mcp.LegacyFirst} {
			p := newOldPeer(t)
			p.refusal = status
			client := &direct{}
			d := newDialer(t, client, nil)
			description, ep, err := d.Describe(t.Context(), p.at(version))
			if err != nil || description.Name != "old" || len(description.Capabilities) != 1 || ep.Transport != wire.TransportSSE || ep.Version != mcp.LegacyFirst || ep.Sessionless || ep.Form != "" {
				t.Fatalf("%d %q: %+v %+v %v", status, version, description, ep, err)
			}
			reply, err := d.Dial(t.Context(), ep, seal(t, mcp.LegacyFirst, "1"))
			if err != nil || !strings.Contains(string(reply.Wire.Body), `"hi"`) {
				t.Fatalf("%d %q: %s %v", status, version, reply.Wire.Body, err)
			}
			last := p.posts[len(p.posts)-1]
			if last.method != mcp.MethodCall || len(last.header.Values(ect.HeaderName)) == 0 || last.header.Get("Mcp-Session-Id") != "" || last.header.Get("Content-Type") != "application/json" {
				t.Errorf("it got %+v", last)
			}
			if again, _, err := d.Describe(t.Context(), ep); err != nil || again.Name != "old" {
				t.Errorf("again: %v", err)
			}
			if len(p.streams) != 1 {
				t.Errorf("%d streams for one session", len(p.streams))
			}
			if slices.ContainsFunc(client.expected, func(id ect.Identity) bool { return id != "spiffe://td/old" }) {
				t.Errorf("expected %q", client.expected)
			}
		}
	}
}

// TestOldServers_AreNotLookedForEverywhere: a server that has said what is wrong, or that has no
// stream either, is not taken for an old one.
func TestOldServers_AreNotLookedForEverywhere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version string
		status  int
		gets    int
	}{
		"the modern revision alone":   {mcp.Modern, http.StatusNotFound, 0},
		"not admitted":                {"", http.StatusForbidden, 0},
		"it fails":                    {"", http.StatusInternalServerError, 0},
		"no stream":                   {"", http.StatusNotFound, 1},
		"it fails, pinned":            {mcp.LegacyFirst, http.StatusInternalServerError, 0},
		"no stream, pinned":           {mcp.LegacyFirst, http.StatusNotFound, 1},
		"another revision, no stream": {mcp.LegacyMarch, http.StatusNotFound, 1},
	} {
		gets := 0
		p := newPeer(t, func(w http.ResponseWriter, r *http.Request, _ incoming) {
			if r.Method == http.MethodGet {
				gets++
			}
			w.WriteHeader(tc.status)
		})
		_, _, err := newDialer(t, &direct{}, nil).Describe(t.Context(), endpoint(p, tc.version))
		var status *transport.StatusError
		if !errors.As(err, &status) || status.Status != tc.status || gets != tc.gets {
			t.Errorf("%s: %v, after %d GETs", name, err, gets)
		}
	}
}

// TestAttack_OldServerHasMessagesPostedElsewhere: where to post may not lead elsewhere.
func TestAttack_OldServerHasMessagesPostedElsewhere(t *testing.T) {
	t.Parallel()
	other := newOldPeer(t)
	p := newOldPeer(t)
	p.endpoint = other.URL + "/messages?n=%d"
	_, _, err := newDialer(t, &direct{}, nil).Describe(t.Context(), p.at(""))
	var bad *transport.BadReplyError
	if !errors.As(err, &bad) || !strings.Contains(bad.Reason, "another origin") || len(other.posts) != 0 {
		t.Errorf("got %v, and %d messages elsewhere", err, len(other.posts))
	}
}

// TestOldServers_StreamThatEnds: what is under way then fails, and is not sent again; the next
// call begins a new session.
func TestOldServers_StreamThatEnds(t *testing.T) {
	t.Parallel()
	p := newOldPeer(t)
	d := newDialer(t, &direct{}, nil)
	_, ep, err := d.Describe(t.Context(), p.at(""))
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.silent = true
	p.mu.Unlock()
	var calls sync.WaitGroup
	calls.Go(func() {
		_, err := d.Dial(t.Context(), ep, seal(t, mcp.LegacyFirst, "1"))
		if _, ok := errors.AsType[*transport.UnreachableError](err); !ok {
			t.Errorf("got %v", err)
		}
	})
	for taken := 0; taken == 0; {
		p.mu.Lock()
		for _, one := range p.posts {
			if one.method == mcp.MethodCall {
				taken++
			}
		}
		p.mu.Unlock()
	}
	close(p.streams[0])
	calls.Wait()
	p.mu.Lock()
	p.silent = false
	before := len(p.posts)
	p.mu.Unlock()
	reply, err := d.Dial(t.Context(), ep, seal(t, mcp.LegacyFirst, "2"))
	if err != nil || !strings.Contains(string(reply.Wire.Body), `"hi"`) || len(p.streams) != 2 {
		t.Errorf("got %s %v, with %d streams", reply.Wire.Body, err, len(p.streams))
	}
	var methods []string
	for _, one := range p.posts[before:] {
		methods = append(methods, one.method)
	}
	if got := strings.Join(methods, " "); got != "initialize notifications/initialized tools/call" {
		t.Errorf("it got %s", got)
	}
}
