package stories

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// refusalLine is a line of the log about refused requests or handshakes.
type refusalLine struct {
	Msg, Level, Listener, Reason, Caller, Path, Result, Address string
	Status, Count                                               int
}

func refusalLines(b *gatewaytest.Fixture, msg string) []refusalLine {
	var out []refusalLine
	for text := range strings.Lines(b.Logs.String()) {
		var line refusalLine
		if json.Unmarshal([]byte(text), &line) == nil && line.Msg == msg {
			out = append(out, line)
		}
	}
	return out
}

func initialization() gatewaytest.HTTPRequest {
	return gatewaytest.HTTPRequest{Header: map[string]string{"Accept": "application/json, text/event-stream"}, Body: `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`}
}

// TestRefused_AtTheDoor: requests and handshakes that a listener refuses are counted by
// reason, and logged with their true status.
func TestRefused_AtTheDoor(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, NoToken: true})
	stranger := initialization()
	stranger.Via, stranger.At = b.Anonymous, "/agents/calculator/mcp"
	unlisted := initialization()
	unlisted.At = "/agents/closed/mcp"
	visitor := gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + "/api/agents"}
	for _, c := range []struct {
		message gatewaytest.HTTPRequest
		status  int
	}{{stranger, 401}, {unlisted, 403}, {visitor, 403}} {
		if got := b.Send(t, c.message); got.Status != c.status {
			t.Errorf("%s: %d %s", c.message.At, got.Status, got.Body)
		}
	}
	old := b.ClientTLS(t, nil)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	foreign := b.ClientTLS(t, gatewaytest.Issue(t, gatewaytest.Authority(t, gatewaytest.TrustDomain, nil), "/foreign", identity.SVIDRequest{}))
	for _, conf := range []*tls.Config{old, foreign} {
		if got, err := b.Try(t, gatewaytest.HTTPRequest{Via: b.Dialing(t, conf), At: "/aepb/translate"}); err == nil {
			t.Errorf("answered with %d", got.Status)
		}
	}
	plainWords(t, b, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	plainWords(t, b, "")
	gatewaytest.Within(t, gatewaytest.Patience, "the connection that was closed at once is counted", func() bool { // it may be accepted later
		return strings.Contains(b.Counters(), `aepb_refused_total{listener="public",reason="tls_closed"} 1`)
	})
	b.Stop()

	counters := b.Counters()
	lines := refusalLines(b, "refused at the listener")
	for _, want := range []refusalLine{
		{Listener: "public", Reason: "unauthenticated", Status: 401, Path: "/agents/calculator/mcp"},
		{Listener: "public", Reason: "forbidden", Status: 403, Path: "/agents/closed/mcp", Caller: string(b.Dev.Client.ID)},
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
	if got := refusalLines(b, "operator"); len(got) != 1 || got[0].Status != http.StatusForbidden || got[0].Result != "refused" {
		t.Errorf("the refused operator is logged as %+v", got)
	}
}

// TestRefused_OverOtherProtocols: what is refused over gRPC, µACP and a WebSocket of AINP is
// counted and logged with its caller, like what is refused over HTTP.
func TestRefused_OverOtherProtocols(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, NoToken: true})
	if got := b.Remote(t, b.ClientTLS(t, b.Dev.Client)).Call(t.Context(), "SendMessage", [][]byte{gatewaytest.Request(t, "SendMessage", gatewaytest.MessageTo("closed", "hello"))}); got.Code != "PERMISSION_DENIED" {
		t.Errorf("over gRPC: %+v", got)
	}
	b.AskUACP(t, "closed", gatewaytest.Good(uacp.FormEnveloped)(t, b))
	conn, response, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(b.At.Public, "https")+"/agents/closed/ainp", &websocket.DialOptions{HTTPClient: b.Client})
	if err != nil {
		t.Fatalf("no WebSocket: %v %v", err, response)
	}
	gatewaytest.Must(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"id":"1"}`)))
	_, answer, err := conn.Read(t.Context())
	gatewaytest.Must(t, err)
	if !strings.Contains(string(answer), "UNAUTHORIZED") {
		t.Errorf("over a WebSocket: %s", answer)
	}
	_ = conn.CloseNow()
	b.Stop()

	counters := b.Counters()
	lines := refusalLines(b, "refused at the listener")
	for _, want := range []refusalLine{
		{Listener: "grpc", Reason: "forbidden", Status: 403, Caller: string(b.Dev.Client.ID)},
		{Listener: "uacp-v1", Reason: "forbidden", Status: 403, Caller: string(b.Dev.Client.ID)},
		{Listener: "ainp-v1", Reason: "forbidden", Status: 403, Caller: string(b.Dev.Client.ID)},
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
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, NoToken: true})
	uacpAt := strings.TrimPrefix(b.At.UACP, "uacps://")
	plain := "GET /agents/calculator/ainp HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, at := range []string{strings.TrimPrefix(b.At.Public, "https://"), b.RPC, uacpAt} {
		plainWordsTo(t, at, plain)
	}
	if got := b.Remote(t, b.ClientTLS(t, nil)).Call(t.Context(), "SendMessage", [][]byte{gatewaytest.Request(t, "SendMessage", gatewaytest.MessageTo("calculator", "hello"))}); got.Code != "UNAUTHENTICATED" {
		t.Errorf("over gRPC: %+v", got)
	}
	nameless := b.ClientTLS(t, nil)
	nameless.NextProtos = []string{"uacp-stream/1"}
	conn, err := (&tls.Dialer{Config: nameless}).DialContext(t.Context(), "tcp", uacpAt)
	gatewaytest.Must(t, err) // a client learns of it when it reads
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("over µACP %d bytes", n)
	}
	_ = conn.Close()
	if got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Caller(t, nil), At: "/agents/calculator/ainp", Body: "{}"}); got.Status != http.StatusUnauthorized {
		t.Errorf("over AINP: %d %s", got.Status, got.Body)
	}
	b.Stop()

	counters := b.Counters()
	lines := refusalLines(b, "refused at the listener")
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
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, NoToken: true, Config: config.Config{Listen: config.Listen{UACPConnections: config.ConnectionBounds{PerCaller: 1}}}})
	entered, release := make(chan struct{}), make(chan struct{})
	b.Serve(t, "slow", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Delayed(entered, release)}, gatewaytest.Host{})
	defer close(release)
	gatewaytest.Must(t, gatewaytest.WriteFrameTo(b.DialUACP(t, "slow", b.Dev.Client), gatewaytest.Good(uacp.FormEnveloped)(t, b))) // else it would give way to the next
	<-entered
	second := b.DialUACP(t, "calculator", b.Dev.Client)
	gatewaytest.Must(t, gatewaytest.WriteFrameTo(second, gatewaytest.Good(uacp.FormEnveloped)(t, b)))
	_, _ = gatewaytest.ReadFrameOf(second)
	b.Counts(t, `aepb_refused_total{listener="uacp-v1",reason="rate_limited"} 1`)
	want := refusalLine{Msg: "refused at the listener", Level: "INFO", Listener: "uacp-v1", Reason: "rate_limited", Caller: string(b.Dev.Client.ID), Address: "127.0.0.1", Count: 1}
	if lines := refusalLines(b, want.Msg); !slices.Contains(lines, want) {
		t.Errorf("no line %+v among %+v", want, lines)
	}
}

// plainWords says something that is no TLS, and waits until the connection is closed.
func plainWords(t *testing.T, b *gatewaytest.Fixture, words string) {
	t.Helper()
	plainWordsTo(t, strings.TrimPrefix(b.At.Public, "https://"), words)
}

func plainWordsTo(t *testing.T, at, words string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at)
	gatewaytest.Must(t, err)
	_, _ = conn.Write([]byte(words))
	if words != "" {
		_, _ = conn.Read(make([]byte, 512))
	}
	gatewaytest.Must(t, conn.Close())
}

// TestRefused_Flood: many refusals are few lines, which say how many there were.
func TestRefused_Flood(t *testing.T) {
	t.Parallel()
	const all = 80
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, NoToken: true})
	for range all {
		b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number())})
	}
	b.Counts(t, `aepb_refused_total{listener="public",reason="unauthenticated"} 80`)
	lines, notified := refusalLines(b, "refused at the listener"), 0
	for _, line := range lines {
		notified += line.Count
	}
	if len(lines) == 0 || len(lines) > all/10 || notified > all {
		t.Errorf("%d lines about %d refusals", len(lines), notified)
	}
}

// TestRequestID_OfAnswerAndLog: one id names a request in the answer and in the log,
// whatever the answer is, and each request has another.
func TestRequestID_OfAnswerAndLog(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, NoToken: true})
	b.Serve(t, "away", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.HangsUp}, gatewaytest.Host{})
	seen := map[string]bool{}
	for name, c := range map[string]struct {
		message gatewaytest.HTTPRequest
		msg     string // of its line; empty: there is none
	}{
		"good":              {gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number())}, ""},
		"failed":            {b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=away", Body: gatewaytest.AddBody(b.Number())}), "exchange"},
		"failed at a door":  {gatewaytest.HTTPRequest{At: "/agents/away/a2a", Body: gatewaytest.AddBody(b.Number())}, "exchange"},
		"unauthenticated":   {gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number())}, "refused at the listener"},
		"refused operator":  {gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + "/api/agents"}, "operator"},
		"no such resource":  {gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/nowhere"}, ""},
		"the caller's own":  {gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/nowhere", Header: map[string]string{"X-Request-Id": "chosen"}}, ""},
		"probe of liveness": {gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + "/healthz"}, ""},
	} {
		got := b.Send(t, c.message)
		id := got.Header.Get("X-Request-Id")
		if id == "" || id == "chosen" || seen[id] {
			t.Errorf("%s: X-Request-Id %q", name, id)
		}
		seen[id] = true
		var document struct {
			Request string `json:"request_id"`
		}
		if got.Header.Get("Content-Type") == "application/problem+json" && (json.Unmarshal(got.Body, &document) != nil || document.Request != id) {
			t.Errorf("%s: %s, want request_id %s", name, got.Body, id)
		}
		if line := `"msg":"` + c.msg + `"`; c.msg != "" && !slices.ContainsFunc(slices.Collect(strings.Lines(b.Logs.String())), func(text string) bool {
			return strings.Contains(text, line) && strings.Contains(text, `"request_id":"`+id+`"`)
		}) {
			t.Errorf("%s: no line %s with the id %s in the log", name, line, id)
		}
	}
}
