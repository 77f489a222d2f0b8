package main

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// refusalLine is a line of the log about refused requests or handshakes.
type refusalLine struct {
	Msg, Level, Listener, Reason, Caller, Path, Result, Address string
	Status, Count                                               int
}

func (b *bed) refusalLines(msg string) []refusalLine {
	var out []refusalLine
	for text := range strings.Lines(b.logs.String()) {
		var line refusalLine
		if json.Unmarshal([]byte(text), &line) == nil && line.Msg == msg {
			out = append(out, line)
		}
	}
	return out
}

func (b *bed) initialization() letter {
	return letter{header: map[string]string{"Accept": "application/json, text/event-stream"}, body: `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`}
}

// TestRefused_AtTheDoor: requests and handshakes that a listener refuses are counted by
// reason, and logged with their true status.
func TestRefused_AtTheDoor(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, noToken: true})
	stranger := b.initialization()
	stranger.via, stranger.at = b.anonymous, "/agents/calculator/mcp"
	unlisted := b.initialization()
	unlisted.at = "/agents/closed/mcp"
	visitor := letter{method: http.MethodGet, at: b.at.Admin + "/api/agents"}
	for _, c := range []struct {
		letter letter
		status int
	}{{stranger, 401}, {unlisted, 403}, {visitor, 403}} {
		if got := b.send(t, c.letter); got.status != c.status {
			t.Errorf("%s: %d %s", c.letter.at, got.status, got.body)
		}
	}
	old := b.clientTLS(t, nil)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	foreign := b.clientTLS(t, issue(t, authority(t, devTrustDomain, nil), "/foreign", identity.SVIDRequest{}))
	for _, conf := range []*tls.Config{old, foreign} {
		if got, err := b.try(t, letter{via: b.dialing(t, conf), at: "/aepb/translate"}); err == nil {
			t.Errorf("answered with %d", got.status)
		}
	}
	b.plainWords(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	b.plainWords(t, "")
	within(t, patience, "the connection that was closed at once is counted", func() bool { // it may be accepted later
		return strings.Contains(b.counters(), `aepb_refused_total{listener="public",reason="tls_closed"} 1`)
	})
	b.stop()

	counters := b.counters()
	lines := b.refusalLines("refused at the listener")
	for _, want := range []refusalLine{
		{Listener: "public", Reason: "unauthenticated", Status: 401, Path: "/agents/calculator/mcp"},
		{Listener: "public", Reason: "forbidden", Status: 403, Path: "/agents/closed/mcp", Caller: string(b.dev.Client.ID)},
		{Listener: "admin", Reason: "forbidden", Status: 403, Path: "/api/agents"},
		{Listener: "public", Reason: "tls_version"},
		{Listener: "public", Reason: "tls_certificate"},
		{Listener: "public", Reason: "tls_plain"},
		{Listener: "public", Reason: "tls_closed"},
	} {
		if line := `aepb_refused_total{listener="` + want.Listener + `",reason="` + want.Reason + `"} 1`; !strings.Contains(counters, "\n"+line+"\n") {
			t.Errorf("no %q among the metrics", line)
		}
		want.Msg, want.Level, want.Count, want.Address = "refused at the listener", "INFO", 1, "127.0.0.1"
		if strings.HasPrefix(want.Reason, "tls_") {
			continue // more in a second than are logged
		}
		if !slices.Contains(lines, want) {
			t.Errorf("no line %+v among %+v", want, lines)
		}
	}
	if !slices.ContainsFunc(lines, func(l refusalLine) bool { return strings.HasPrefix(l.Reason, "tls_") }) {
		t.Errorf("no line about a handshake: %+v", lines)
	}
	if got := b.refusalLines("operator"); len(got) != 1 || got[0].Status != http.StatusForbidden || got[0].Result != "refused" {
		t.Errorf("the refused operator is logged as %+v", got)
	}
}

// TestRefused_OverOtherProtocols: what is refused over gRPC, µACP and a WebSocket of AINP is
// counted and logged with its caller, like what is refused over HTTP.
func TestRefused_OverOtherProtocols(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, noToken: true})
	if got := b.remote(t, b.clientTLS(t, b.dev.Client)).Call(t.Context(), "SendMessage", [][]byte{request(t, "SendMessage", messageTo("closed", "hello"))}); got.Code != "PERMISSION_DENIED" {
		t.Errorf("over gRPC: %+v", got)
	}
	b.askUACP(t, "closed", good(uacp.FormEnveloped)(t, b))
	conn, response, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(b.at.Public, "https")+"/agents/closed/ainp", &websocket.DialOptions{HTTPClient: b.client})
	if err != nil {
		t.Fatalf("no WebSocket: %v %v", err, response)
	}
	must(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"id":"1"}`)))
	_, answer, err := conn.Read(t.Context())
	must(t, err)
	if !strings.Contains(string(answer), "UNAUTHORIZED") {
		t.Errorf("over a WebSocket: %s", answer)
	}
	_ = conn.CloseNow()
	b.stop()

	counters := b.counters()
	lines := b.refusalLines("refused at the listener")
	for _, want := range []refusalLine{
		{Listener: "grpc", Reason: "forbidden", Status: 403, Caller: string(b.dev.Client.ID)},
		{Listener: "uacp-v1", Reason: "forbidden", Status: 403, Caller: string(b.dev.Client.ID)},
		{Listener: "ainp-v1", Reason: "forbidden", Status: 403, Caller: string(b.dev.Client.ID)},
	} {
		if line := `aepb_refused_total{listener="` + want.Listener + `",reason="` + want.Reason + `"} 1`; !strings.Contains(counters, "\n"+line+"\n") {
			t.Errorf("no %q among the metrics", line)
		}
		want.Msg, want.Level, want.Count, want.Address = "refused at the listener", "INFO", 1, "127.0.0.1"
		if !slices.Contains(lines, want) {
			t.Errorf("no line %+v among %+v", want, lines)
		}
	}
}

// TestRefused_HandshakesOfOtherProtocols: a client that speaks no TLS, and one without a
// certificate, are counted and logged at the listeners of gRPC and µACP, like at those for
// HTTP. AINP is served by the public one. gRPC lets callers with tokens in, so that one
// without any is refused when it asks.
func TestRefused_HandshakesOfOtherProtocols(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, noToken: true})
	uacpAt := strings.TrimPrefix(b.at.UACP, "uacps://")
	plain := "GET /agents/calculator/ainp HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, at := range []string{strings.TrimPrefix(b.at.Public, "https://"), b.rpc, uacpAt} {
		b.plainWordsTo(t, at, plain)
	}
	if got := b.remote(t, b.clientTLS(t, nil)).Call(t.Context(), "SendMessage", [][]byte{request(t, "SendMessage", messageTo("calculator", "hello"))}); got.Code != "UNAUTHENTICATED" {
		t.Errorf("over gRPC: %+v", got)
	}
	nameless := b.clientTLS(t, nil)
	nameless.NextProtos = []string{"uacp-stream/1"}
	conn, err := (&tls.Dialer{Config: nameless}).DialContext(t.Context(), "tcp", uacpAt)
	must(t, err) // a client learns of it when it reads
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("over µACP %d bytes", n)
	}
	_ = conn.Close()
	if got := b.send(t, letter{via: b.caller(t, nil), at: "/agents/calculator/ainp", body: "{}"}); got.status != http.StatusUnauthorized {
		t.Errorf("over AINP: %d %s", got.status, got.body)
	}
	b.stop()

	counters := b.counters()
	lines := b.refusalLines("refused at the listener")
	for _, want := range []refusalLine{
		{Listener: "public", Reason: "tls_plain"},
		{Listener: "public", Reason: "unauthenticated"},
		{Listener: "grpc", Reason: "tls_plain"},
		{Listener: "grpc", Reason: "unauthenticated"},
		{Listener: "uacp-v1", Reason: "tls_plain"},
		{Listener: "uacp-v1", Reason: "tls_certificate"},
	} {
		if line := `aepb_refused_total{listener="` + want.Listener + `",reason="` + want.Reason + `"} 1`; !strings.Contains(counters, "\n"+line+"\n") {
			t.Errorf("no %q among the metrics", line)
		}
		if !slices.ContainsFunc(lines, func(l refusalLine) bool {
			return l.Listener == want.Listener && l.Reason == want.Reason && l.Count == 1 && l.Address == "127.0.0.1"
		}) {
			t.Errorf("no line like %+v among %+v", want, lines)
		}
	}
}

// TestRefused_TooManyConnections: what a caller has too much of is counted and logged with
// its name at the listener of µACP.
func TestRefused_TooManyConnections(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, noToken: true, config: config.Config{Listen: config.Listen{UACPConnections: config.ConnectionBounds{PerCaller: 1}}}})
	entered, release := make(chan struct{}), make(chan struct{})
	b.serve(t, "slow", "mcp-v1", &fake{conduct: held(entered, release)}, host{})
	defer close(release)
	must(t, writeFrameTo(b.dialUACP(t, "slow", b.dev.Client), good(uacp.FormEnveloped)(t, b))) // else it would give way to the next
	<-entered
	second := b.dialUACP(t, "calculator", b.dev.Client)
	must(t, writeFrameTo(second, good(uacp.FormEnveloped)(t, b)))
	_, _ = readFrameOf(second)
	b.counts(t, `aepb_refused_total{listener="uacp-v1",reason="rate_limited"} 1`)
	want := refusalLine{Msg: "refused at the listener", Level: "INFO", Listener: "uacp-v1", Reason: "rate_limited", Caller: string(b.dev.Client.ID), Address: "127.0.0.1", Count: 1}
	if lines := b.refusalLines(want.Msg); !slices.Contains(lines, want) {
		t.Errorf("no line %+v among %+v", want, lines)
	}
}

// counters are the metrics as they are scraped.
func (b *bed) counters() string {
	w := httptest.NewRecorder()
	b.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// plainWords says something that is no TLS, and waits until the connection is closed.
func (b *bed) plainWords(t *testing.T, words string) {
	t.Helper()
	b.plainWordsTo(t, strings.TrimPrefix(b.at.Public, "https://"), words)
}

func (b *bed) plainWordsTo(t *testing.T, at, words string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at)
	must(t, err)
	_, _ = conn.Write([]byte(words))
	if words != "" {
		_, _ = conn.Read(make([]byte, 512))
	}
	must(t, conn.Close())
}

// TestRefused_Flood: many refusals are few lines, which say how many there were.
func TestRefused_Flood(t *testing.T) {
	t.Parallel()
	const all = 80
	b := newBed(t, plan{serve: true, noToken: true})
	for range all {
		b.send(t, letter{via: b.anonymous, at: doorA2A, body: addBody(b.number())})
	}
	b.counts(t, `aepb_refused_total{listener="public",reason="unauthenticated"} 80`)
	lines, told := b.refusalLines("refused at the listener"), 0
	for _, line := range lines {
		told += line.Count
	}
	if len(lines) == 0 || len(lines) > all/10 || told > all {
		t.Errorf("%d lines about %d refusals", len(lines), told)
	}
}

// TestRequestID_OfAnswerAndLog: one id names a request in the answer and in the log,
// whatever the answer is, and each request has another.
func TestRequestID_OfAnswerAndLog(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, noToken: true})
	b.serve(t, "away", "mcp-v1", &fake{conduct: hangsUp}, host{})
	seen := map[string]bool{}
	for name, c := range map[string]struct {
		letter letter
		msg    string // of its line; empty: there is none
	}{
		"good":              {letter{at: doorA2A, body: addBody(b.number())}, ""},
		"failed":            {b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=away", body: addBody(b.number())}), "exchange"},
		"failed at a door":  {letter{at: "/agents/away/a2a", body: addBody(b.number())}, "exchange"},
		"unauthenticated":   {letter{via: b.anonymous, at: doorA2A, body: addBody(b.number())}, "refused at the listener"},
		"refused operator":  {letter{method: http.MethodGet, at: b.at.Admin + "/api/agents"}, "operator"},
		"no such resource":  {letter{method: http.MethodGet, at: "/nowhere"}, ""},
		"the caller's own":  {letter{method: http.MethodGet, at: "/nowhere", header: map[string]string{"X-Request-Id": "chosen"}}, ""},
		"probe of liveness": {letter{method: http.MethodGet, at: b.at.Admin + "/healthz"}, ""},
	} {
		got := b.send(t, c.letter)
		id := got.header.Get("X-Request-Id")
		if id == "" || id == "chosen" || seen[id] {
			t.Errorf("%s: X-Request-Id %q", name, id)
		}
		seen[id] = true
		var document struct {
			Request string `json:"request_id"`
		}
		if got.header.Get("Content-Type") == "application/problem+json" && (json.Unmarshal(got.body, &document) != nil || document.Request != id) {
			t.Errorf("%s: %s, want request_id %s", name, got.body, id)
		}
		if line := `"msg":"` + c.msg + `"`; c.msg != "" && !slices.ContainsFunc(slices.Collect(strings.Lines(b.logs.String())), func(text string) bool {
			return strings.Contains(text, line) && strings.Contains(text, `"request_id":"`+id+`"`)
		}) {
			t.Errorf("%s: no line %s with the id %s in the log", name, line, id)
		}
	}
}
