package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	wire "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// direct is a client without a guard, as egress is one with.
type direct struct {
	mu       sync.Mutex
	expected []ect.Identity
	err      error
}

func (d *direct) DoAs(r *http.Request, expected ect.Identity) (*http.Response, error) {
	d.mu.Lock()
	d.expected = append(d.expected, expected)
	err := d.err
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r.Close = true // other tests' servers close idle connections when they end
	return http.DefaultTransport.RoundTrip(r)
}

// peer is an MCP server that does as each test says.
type peer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []seen
}

type seen struct {
	verb, method string
	header       http.Header
	body         string
}

type incoming struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Cursor          string `json:"cursor"`
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"params"`
}

func newPeer(t testing.TB, serve func(w http.ResponseWriter, r *http.Request, in incoming)) *peer {
	t.Helper()
	p := &peer{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var in incoming
		_ = json.Unmarshal(body, &in)
		p.mu.Lock()
		p.requests = append(p.requests, seen{r.Method, in.Method, r.Header.Clone(), string(body)})
		p.mu.Unlock()
		serve(w, r, in)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *peer) methods() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, r := range p.requests {
		if r.method == "" {
			out = append(out, r.verb)
		} else {
			out = append(out, r.method)
		}
	}
	return out
}

func (p *peer) last() seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[len(p.requests)-1]
}

func result(w http.ResponseWriter, in incoming, inner string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, inner)
}

func failure(w http.ResponseWriter, status int, id, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0",%s"error":{"code":%s,"message":"m"}}`, id, code)
}

const content = `{"content":[{"type":"text","text":"hi"}]}`

func newDialer(t testing.TB, client transport.Client, now func() time.Time) *wire.Dialer {
	t.Helper()
	d, err := wire.NewDialer(wire.DialerDeps{Client: client, Form: mcp.New(translators.Config{BodyLimit: 1 << 14}), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// seal makes a recorded message of a call, as the pipeline does.
func seal(t testing.TB, version, id string) transport.Sealed {
	t.Helper()
	return sealed(t, version, &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + id + `"`)},
		Body: &canonical.Invoke{Call: &canonical.Call{Name: "echo", Args: json.RawMessage(`{}`)}},
	})
}

// sealed makes a recorded message of any kind.
func sealed(t testing.TB, version string, m *canonical.Message) transport.Sealed {
	t.Helper()
	w, _, err := mcp.New(translators.Config{}).Encode(m, translators.Target{Version: version})
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: ecttest.NewStore(), Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	token, err := ecttest.NewParty(t, "spiffe://td/gw").Signer(t, time.Now).Sign(ect.Claims{
		Act:      ect.ActTranslate,
		Audience: []string{"x"}, Workflow: "6f1f8f3c-9a37-4b6e-9c55-0a4a0b7b7f10", OutputHash: ect.Hash(w.Body),
	})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := recorder.Record(t.Context(), token, ect.Filing{})
	if err != nil {
		t.Fatal(err)
	}
	attested, err := transport.Attest(receipt, w)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := attested.Seal("an.cest.or")
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func endpoint(p *peer, version string) transport.Endpoint {
	return transport.Endpoint{Agent: "echo", ID: "spiffe://td/echo", Binding: mcp.Binding, Version: version, URL: p.URL, Caller: "spiffe://td/alice", Timeout: time.Second}
}

func TestDial_Modern(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, in incoming) {
		w.Header().Set("Execution-Context", "re.ply.token")
		result(w, in, `{"resultType":"complete","content":[]}`)
	})
	client := &direct{}
	reply, err := newDialer(t, client, nil).Dial(t.Context(), endpoint(p, mcp.Modern), seal(t, mcp.Modern, "id-1"))
	if err != nil {
		t.Fatal(err)
	}
	got := p.last()
	for name, want := range map[string]string{
		"Mcp-Protocol-Version": mcp.Modern, "Mcp-Method": "tools/call", "Mcp-Name": "echo",
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": "",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: got %q, want %q", name, got.header.Get(name), want)
		}
	}
	if sent := got.header.Values("Execution-Context"); len(sent) != 2 || sent[1] != "an.cest.or" {
		t.Errorf("evidence sent: %q", sent)
	}
	if diff := cmp.Diff([]string{"re.ply.token"}, reply.Evidence); diff != "" {
		t.Error(diff)
	}
	if reply.Wire.Re != canonical.OpInvoke || reply.Wire.Version != mcp.Modern || !strings.Contains(string(reply.Wire.Body), `"id-1"`) {
		t.Errorf("got %+v", reply.Wire)
	}
	if diff := cmp.Diff([]ect.Identity{"spiffe://td/echo"}, client.expected); diff != "" {
		t.Error(diff)
	}
	if _, err := newDialer(t, client, nil).Dial(t.Context(), endpoint(p, mcp.Modern), transport.Sealed{}); !errors.Is(err, transport.ErrUnsealed) {
		t.Errorf("unsealed: got %v", err)
	}
}

// TestDial_ValidAndInvalidReplies: which answers are replies, and what is wrong with the others.
func TestDial_ValidAndInvalidReplies(t *testing.T) {
	t.Parallel()
	events := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}
	reply := `{"jsonrpc":"2.0","id":"id-1","result":` + content + `}`
	for name, tc := range map[string]struct {
		serve func(http.ResponseWriter, incoming)
		want  string // in the reply; empty: a bad reply
		bad   string
	}{
		"JSON":   {func(w http.ResponseWriter, in incoming) { result(w, in, content) }, `"text":"hi"`, ""},
		"events": {func(w http.ResponseWriter, _ incoming) { events(w, "data: "+reply+"\n\n") }, `"text":"hi"`, ""},
		"events, primed": {func(w http.ResponseWriter, _ incoming) {
			events(w, "id: 1\ndata:\n\nevent: message\ndata: "+reply+"\n\n")
		}, `"text":"hi"`, ""},
		"events, talking": {func(w http.ResponseWriter, _ incoming) {
			events(w, `data: {"jsonrpc":"2.0","method":"notifications/progress"}`+"\n\n"+`data: {"jsonrpc":"2.0","id":"id-1","method":"roots/list"}`+"\n\n"+"data: "+reply+"\n\n")
		}, `"text":"hi"`, ""},
		"events, another id": {func(w http.ResponseWriter, _ incoming) {
			events(w, `data: {"jsonrpc":"2.0","id":"other","result":{}}`+"\n\ndata: "+reply+"\n\n")
		}, "", "not the reply"},
		"error":          {func(w http.ResponseWriter, _ incoming) { failure(w, 200, `"id":"id-1",`, "-32602") }, `-32602`, ""},
		"error at 400":   {func(w http.ResponseWriter, _ incoming) { failure(w, 400, `"id":"id-1",`, "-32020") }, `-32020`, ""},
		"error, no id":   {func(w http.ResponseWriter, _ incoming) { failure(w, 404, ``, "-32601") }, `-32601`, ""},
		"error, null id": {func(w http.ResponseWriter, _ incoming) { failure(w, 400, `"id":null,`, "-32700") }, `-32700`, ""},

		"redirect": {func(w http.ResponseWriter, _ incoming) {
			w.Header().Set("Location", "/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "", "redirect"},
		"accepted":   {func(w http.ResponseWriter, _ incoming) { w.WriteHeader(http.StatusAccepted) }, "", "no reply"},
		"nothing":    {func(http.ResponseWriter, incoming) {}, "", "no reply"},
		"empty JSON": {func(w http.ResponseWriter, _ incoming) { w.Header().Set("Content-Type", "application/json") }, "", "empty"},
		"a page":     {func(w http.ResponseWriter, _ incoming) { _, _ = io.WriteString(w, "<html>") }, "", "neither JSON"},
		"500":        {func(w http.ResponseWriter, _ incoming) { http.Error(w, "oops", http.StatusInternalServerError) }, "", "HTTP status 500"},
		"problem document": {func(w http.ResponseWriter, _ incoming) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, `{"title":"x"}`)
		}, "", "HTTP status 502"},
		"a result at 500": {func(w http.ResponseWriter, in incoming) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			result(w, in, content)
		}, "", "without an error"},
		"another id": {func(w http.ResponseWriter, _ incoming) { result(w, incoming{ID: json.RawMessage(`"id-2"`)}, content) }, "", "not the reply"},
		"no id":      {func(w http.ResponseWriter, _ incoming) { result(w, incoming{ID: json.RawMessage(`null`)}, content) }, "", "not the reply"},
		"a batch": {func(w http.ResponseWriter, _ incoming) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "["+reply+"]")
		}, "", "not a JSON-RPC"},
		"endless JSON": {func(w http.ResponseWriter, _ incoming) {
			w.Header().Set("Content-Type", "application/json")
			endless(w, "          ")
		}, "", "larger than"},
		"endless event": {func(w http.ResponseWriter, _ incoming) {
			w.Header().Set("Content-Type", "text/event-stream")
			endless(w, "data: x")
		}, "", "event stream is too large"},
		"endless heartbeats": {func(w http.ResponseWriter, _ incoming) {
			w.Header().Set("Content-Type", "text/event-stream")
			endless(w, ": ping\n\n")
		}, "", "event stream is too large"},
		"silent stream": {func(w http.ResponseWriter, _ incoming) { events(w, ": bye\n\n") }, "", "without a reply"},
		"odd event":     {func(w http.ResponseWriter, _ incoming) { events(w, "data: hello\n\n") }, "", "no JSON-RPC message"},
		"events at 400": {func(w http.ResponseWriter, _ incoming) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusBadRequest)
		}, "", "HTTP status 400"},
		"broken evidence": {func(w http.ResponseWriter, in incoming) {
			w.Header().Set("Execution-Context", "no token")
			result(w, in, content)
		}, "", "Execution-Context"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, in incoming) { tc.serve(w, in) })
			reply, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, mcp.Modern), seal(t, mcp.Modern, "id-1"))
			if tc.want != "" {
				if reply.Events != nil {
					answer, failed := drain(t, reply.Events)
					if reply.Wire.Body, err = answer[len(answer)-1].Body, failed; len(answer) < 2 {
						t.Errorf("a stream of %d", len(answer))
					}
				}
				if err != nil || !strings.Contains(string(reply.Wire.Body), tc.want) {
					t.Errorf("got %s, %v", reply.Wire.Body, err)
				}
				return
			}
			var bad *transport.BadReplyError
			if !errors.As(err, &bad) || !strings.Contains(bad.Reason, tc.bad) || bad.Agent != "echo" {
				t.Errorf("got %v, want %q", err, tc.bad)
			}
		})
	}
}

// drain reads a stream to its end.
func drain(t *testing.T, stream transport.Events) ([]translators.Wire, error) {
	t.Helper()
	defer func() { _ = stream.Close() }()
	var answer []translators.Wire
	for {
		event, err := stream.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return answer, nil
		}
		if err != nil {
			return answer, err
		}
		answer = append(answer, event.Wire)
	}
}

func endless(w io.Writer, piece string) {
	for {
		if _, err := io.WriteString(w, piece); err != nil {
			return
		}
	}
}

func TestDial_NoReply(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(_ http.ResponseWriter, r *http.Request, _ incoming) { <-r.Context().Done() })
	ep := endpoint(p, mcp.Modern)
	sealed := seal(t, mcp.Modern, "id-1")

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var timeout *transport.TimeoutError
	if _, err := newDialer(t, &direct{}, nil).Dial(ctx, ep, sealed); !errors.As(err, &timeout) || timeout.After != time.Second {
		t.Errorf("silence: got %v", err)
	}
	canceled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	if _, err := newDialer(t, &direct{}, nil).Dial(canceled, ep, sealed); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller went away: got %v", err)
	}
	refused := &egress.DeniedError{Host: "h", Reason: "r"}
	var denied *egress.DeniedError
	if _, err := newDialer(t, &direct{err: fmt.Errorf("wrapped: %w", refused)}, nil).Dial(t.Context(), ep, sealed); !errors.As(err, &denied) {
		t.Errorf("denied: got %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ep.URL = "http://" + listener.Addr().String()
	_ = listener.Close()
	var unreachable *transport.UnreachableError
	if _, err := newDialer(t, &direct{}, nil).Dial(t.Context(), ep, sealed); !errors.As(err, &unreachable) {
		t.Errorf("nobody there: got %v", err)
	}
}

// legacy is a server with sessions.
type legacy struct {
	mu      sync.Mutex
	begun   int
	valid   map[string]bool
	version string // the only one that it speaks; empty: whatever it is asked for
	noID    bool   // it keeps no session
}

func (l *legacy) serve(w http.ResponseWriter, r *http.Request, in incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := r.Header.Get("Mcp-Session-Id")
	switch {
	case r.Method == http.MethodDelete:
		delete(l.valid, id)
		w.WriteHeader(http.StatusNoContent)
	case in.Method == "initialize":
		l.begun++
		if !l.noID {
			id = fmt.Sprintf("s%d", l.begun)
			l.valid[id] = true
			w.Header().Set("Mcp-Session-Id", id)
		}
		agreed := l.version
		if agreed == "" {
			agreed = in.Params.ProtocolVersion
		}
		result(w, in, `{"protocolVersion":"`+agreed+`","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}`)
	case in.Method == "server/discover":
		failure(w, http.StatusBadRequest, "", "-32000")
	case !l.noID && !l.valid[id]:
		failure(w, http.StatusNotFound, "", "-32001")
	case strings.HasPrefix(in.Method, "notifications/"):
		w.WriteHeader(http.StatusAccepted)
	case in.Method == "tools/list":
		result(w, in, `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
	default:
		result(w, in, content)
	}
}

func newLegacy(version string) *legacy { return &legacy{valid: map[string]bool{}, version: version} }

func TestSession_LegacyPerCaller(t *testing.T) {
	t.Parallel()
	server := newLegacy("2025-06-18")
	p := newPeer(t, server.serve)
	now := time.Now()
	d := newDialer(t, &direct{}, func() time.Time { return now })
	description, ep, err := d.Describe(t.Context(), endpoint(p, ""))
	if err != nil || ep.Version != mcp.LegacyJune || description.Name != "old" || len(description.Capabilities) != 1 {
		t.Fatalf("got %+v %+v %v", description, ep, err)
	}
	call := func(caller ect.Identity, id string) seen {
		t.Helper()
		at := ep
		at.Caller = caller
		if _, err := d.Dial(t.Context(), at, seal(t, mcp.LegacyJune, id)); err != nil {
			t.Fatal(err)
		}
		return p.last()
	}
	if got := call("spiffe://td/alice", "1"); got.header.Get("Mcp-Session-Id") != "s1" || got.header.Get("Mcp-Protocol-Version") != "2025-06-18" {
		t.Errorf("alice: %v", got.header)
	}
	if got := call("spiffe://td/bob", "2"); got.header.Get("Mcp-Session-Id") != "s2" {
		t.Errorf("bob rides in alice's session: %v", got.header)
	}
	server.mu.Lock()
	delete(server.valid, "s1")
	server.mu.Unlock()
	if got := call("spiffe://td/alice", "3"); got.header.Get("Mcp-Session-Id") != "s3" {
		t.Errorf("after the server forgot: %v", got.header)
	}
	now = now.Add(time.Hour)
	if got := call("spiffe://td/alice", "4"); got.header.Get("Mcp-Session-Id") != "s4" {
		t.Errorf("after an idle hour: %v", got.header)
	}
	want := []string{
		"server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call",
		"initialize", "notifications/initialized", "tools/call",
		"tools/call", "initialize", "notifications/initialized", "tools/call",
		"initialize", "notifications/initialized", "tools/call",
	}
	if diff := cmp.Diff(want, p.methods()); diff != "" {
		t.Error(diff)
	}
	d.Close()
	if got := p.last(); got.verb != http.MethodDelete {
		t.Errorf("the sessions were not ended: %+v", got)
	}
	if n := len(p.methods()); n != len(want)+2 {
		t.Errorf("%d requests to end two sessions", n-len(want))
	}
}

func TestSession_LegacyWithoutID(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	server.noID = true
	p := newPeer(t, server.serve)
	d := newDialer(t, &direct{}, nil)
	for i := range 2 {
		if _, err := d.Dial(t.Context(), endpoint(p, mcp.Legacy), seal(t, mcp.Legacy, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"initialize", "notifications/initialized", "tools/call", "tools/call"}, p.methods()); diff != "" {
		t.Error(diff)
	}
}

// TestLostSession_AskedTwiceOnly: a server that forgets faster than we can ask is asked
// twice and no more.
func TestLostSession_AskedTwiceOnly(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, in incoming) {
		if in.Method == "tools/call" {
			failure(w, http.StatusNotFound, "", "-32001")
			return
		}
		server.serve(w, r, in)
	})
	var bad *transport.BadReplyError
	if _, err := newDialer(t, &direct{}, nil).Dial(t.Context(), endpoint(p, mcp.Legacy), seal(t, mcp.Legacy, "1")); !errors.As(err, &bad) {
		t.Errorf("got %v", err)
	}
	calls := slices.DeleteFunc(p.methods(), func(m string) bool { return m != "tools/call" })
	if len(calls) != 2 {
		t.Errorf("%d calls", len(calls))
	}
}

func TestSession_OneForEachConcurrentCaller(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	p := newPeer(t, server.serve)
	d := newDialer(t, &direct{}, nil)
	var wg sync.WaitGroup
	for i := range 12 {
		sealed := seal(t, mcp.Legacy, fmt.Sprint(i))
		wg.Go(func() {
			ep := endpoint(p, mcp.Legacy)
			ep.Caller = ect.Identity(fmt.Sprint("spiffe://td/", i%3))
			if _, err := d.Dial(t.Context(), ep, sealed); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if server.begun != 3 {
		t.Errorf("%d sessions for 3 callers", server.begun)
	}
}

const discovered = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"2"}}}`

func page(tools []string, next string) string {
	list := make([]string, len(tools))
	for i, name := range tools {
		list[i] = `{"name":"` + name + `","inputSchema":{"type":"object"}}`
	}
	if next != "" {
		next = `,"nextCursor":"` + next + `"`
	}
	return `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[` + strings.Join(list, ",") + `]` + next + `}`
}

func TestDescribe_Modern(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, in incoming) {
		switch {
		case in.Method == "server/discover":
			result(w, in, discovered)
		case in.Params.Cursor == "":
			result(w, in, page([]string{"a", "b"}, "two"))
		default:
			result(w, in, page([]string{"c"}, ""))
		}
	})
	description, ep, err := newDialer(t, &direct{}, nil).Describe(t.Context(), endpoint(p, ""))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range description.Capabilities {
		names = append(names, c.ID)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names); diff != "" || ep.Version != mcp.Modern || description.Name != "new" {
		t.Errorf("%s %+v %+v", diff, ep, description)
	}
	if diff := cmp.Diff([]string{"server/discover", "tools/list", "tools/list"}, p.methods()); diff != "" {
		t.Error(diff)
	}
}

// endlessList lists so many new tools on each page, which has a new cursor.
func endlessList(tools int) func(http.ResponseWriter, incoming) {
	return func(w http.ResponseWriter, in incoming) {
		if in.Method == "server/discover" {
			result(w, in, discovered)
			return
		}
		names := make([]string, tools)
		for i := range names {
			names[i] = fmt.Sprint("a", len(in.Params.Cursor), "-", i)
		}
		result(w, in, page(names, in.Params.Cursor+"x"))
	}
}

func TestDescribe_Failures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		version string
		serve   func(http.ResponseWriter, incoming)
		want    string
	}{
		"a list without end":  {"", endlessList(1), "without end"},
		"too many tools":      {"", endlessList(150), "more than 10000"},
		"modern was demanded": {mcp.Modern, func(w http.ResponseWriter, _ incoming) { failure(w, 400, "", "-32601") }, "refuses to say who it is"},
		"neither":             {"", func(w http.ResponseWriter, _ incoming) { failure(w, 400, "", "-32601") }, "refuses to say who it is"},
		"too old": {mcp.Legacy, func(w http.ResponseWriter, in incoming) {
			result(w, in, `{"protocolVersion":"2024-10-07","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
		}, "no revision"},
		"no handshake": {mcp.Legacy, func(w http.ResponseWriter, in incoming) {
			if in.ID == nil {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			result(w, in, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
		}, "handshake"},
		"not a list": {mcp.Modern, func(w http.ResponseWriter, in incoming) {
			if in.Method == "server/discover" {
				result(w, in, discovered)
			} else {
				result(w, in, `{"resultType":"complete"}`)
			}
		}, "not a valid answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, in incoming) { tc.serve(w, in) })
			_, _, err := newDialer(t, &direct{}, nil).Describe(t.Context(), endpoint(p, tc.version))
			var bad *transport.BadReplyError
			if !errors.As(err, &bad) || !strings.Contains(bad.Reason, tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// What a server has beside tools is described if its operator exposes it and the
// server has it.
func TestDescribe_PromptsAndResources(t *testing.T) {
	t.Parallel()
	const everything = `{"tools":{},"prompts":{},"resources":{}}`
	prompts := map[string]string{
		"":    `{"resultType":"complete","prompts":[{"name":"greet","title":"G","description":"d","arguments":[{"name":"who","description":"w","required":true},{"name":"how"}]}],"nextCursor":"two"}`,
		"two": `{"resultType":"complete","prompts":[{"name":"part"}]}`,
	}
	for name, tc := range map[string]struct {
		expose       []string
		capabilities string
		prompts      map[string]string // by cursor; nil: there is no such method
		want         []string
		fails        bool
	}{
		"nothing is exposed": {nil, everything, prompts, []string{"a"}, false},
		"tools are":          {[]string{"tools"}, everything, prompts, []string{"a"}, false},
		"all is":             {[]string{"resources", "prompts"}, everything, prompts, []string{"a", "prompt.greet", "prompt.part", "resource.read", "resource.list"}, false},
		"it has no prompts":  {[]string{"resources", "prompts"}, `{"tools":{},"resources":{}}`, prompts, []string{"a", "resource.read", "resource.list"}, false},
		"it says it has":     {[]string{"prompts"}, everything, nil, []string{"a"}, false},
		"a name is taken":    {[]string{"prompts"}, everything, map[string]string{"": `{"resultType":"complete","prompts":[{"name":"x"},{"name":"x"}]}`}, []string{"a", "prompt.x"}, false},
		"a page twice":       {[]string{"prompts"}, everything, map[string]string{"": prompts[""], "two": prompts[""]}, []string{"a", "prompt.greet"}, false},
		"no list":            {[]string{"prompts"}, everything, map[string]string{"": `{"resultType":"complete"}`}, nil, true},
		"no name":            {[]string{"prompts"}, everything, map[string]string{"": `{"resultType":"complete","prompts":[{"name":""}]}`}, nil, true},
		"twice an argument":  {[]string{"prompts"}, everything, map[string]string{"": `{"resultType":"complete","prompts":[{"name":"x","arguments":[{"name":"a"},{"name":"a"}]}]}`}, nil, true},
		"arguments of text":  {[]string{"prompts"}, everything, map[string]string{"": `{"resultType":"complete","prompts":[{"name":"x","arguments":"a"}]}`}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, in incoming) {
				text, ok := tc.prompts[in.Params.Cursor]
				switch {
				case in.Method == "server/discover":
					result(w, in, strings.Replace(discovered, `"capabilities":{"tools":{}}`, `"capabilities":`+tc.capabilities, 1))
				case in.Method == "tools/list":
					result(w, in, page([]string{"a"}, ""))
				case in.Method == "prompts/list" && ok:
					result(w, in, text)
				default:
					failure(w, http.StatusNotFound, `"id":`+string(in.ID)+`,`, "-32601")
				}
			})
			ep := endpoint(p, "")
			ep.Expose = tc.expose
			description, _, err := newDialer(t, &direct{}, nil).Describe(t.Context(), ep)
			var bad *transport.BadReplyError
			if tc.fails != errors.As(err, &bad) || !tc.fails && err != nil {
				t.Fatal(err)
			}
			if tc.fails {
				return
			}
			var names []string
			for _, c := range description.Capabilities {
				names = append(names, c.ID)
			}
			if diff := cmp.Diff(tc.want, names); diff != "" {
				t.Error(diff)
			}
			if name != "all is" {
				return
			}
			got := description.Capabilities[1]
			const schema = `{"type":"object","properties":{"who":{"type":"string","description":"w"},"how":{"type":"string"}},"required":["who"],"additionalProperties":false}`
			if got.Title != "G" || got.Description != "d" || string(got.InputSchema) != schema || got.Profile != canonical.ProfilePrompt {
				t.Errorf("%+v %s", got, got.InputSchema)
			}
		})
	}
}

func TestDescribe_ServerWithoutTools(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, in incoming) {
		if in.Method == "server/discover" {
			result(w, in, discovered)
			return
		}
		failure(w, http.StatusNotFound, `"id":`+string(in.ID)+`,`, "-32601")
	})
	description, _, err := newDialer(t, &direct{}, nil).Describe(t.Context(), endpoint(p, ""))
	if err != nil || len(description.Capabilities) != 0 {
		t.Errorf("got %+v %v", description, err)
	}
}

// TestDescribe_Freshness: a server says how long its words can be shown (2026-07-28,
// caching), or that its list changes; the shortest time holds, within bounds.
func TestDescribe_Freshness(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		discover, list string // values of ttlMs
		changes        string
		want           time.Duration
	}{
		"the list's":   {"300000", "60000", "false", time.Minute},
		"the server's": {"60000", "300000", "true", time.Minute},
		"none left":    {"0", "0", "false", time.Second},
		"for a year":   {"31536000000", "31536000000", "false", 5 * time.Minute},
		"nonsense":     {`"x"`, "-1", "true", 5 * time.Second},
		"nothing":      {`"x"`, "1.5", "false", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, in incoming) {
				text := `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":` + tc.changes + `}},"cacheScope":"private","ttlMs":` + tc.discover + `}`
				if in.Method == "tools/list" {
					text = `{"resultType":"complete","tools":[],"cacheScope":"private","ttlMs":` + tc.list + `}`
				}
				result(w, in, text)
			})
			_, ep, err := newDialer(t, &direct{}, nil).Describe(t.Context(), endpoint(p, ""))
			if err != nil || ep.Fresh != tc.want {
				t.Errorf("fresh for %s, want %s: %v", ep.Fresh, tc.want, err)
			}
		})
	}
}
