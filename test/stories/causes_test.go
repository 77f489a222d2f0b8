package stories

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// cause is one way for an agent to fail, and what is said of it: to its caller, to
// operators in the log, the metric and the answer, and in the error ECT.
type cause struct {
	name    string
	conduct gatewaytest.Conduct
	host    gatewaytest.Host
	at      string // where the agent is listed; empty: at a server with this conduct and host
	status  int
	code    string
	reason  string
	proof   string // reason in the error ECT of a caller who is not an operator
	retry   string // Retry-After
}

// network are the causes about which a caller learns only that the agent is away.
func network(name string, c gatewaytest.Conduct, h gatewaytest.Host, at, reason string) cause {
	return cause{name, c, h, at, http.StatusBadGateway, "upstream_unreachable", reason, "unreachable", ""}
}

func misanswering(name string, c gatewaytest.Conduct, reason string) cause {
	return cause{name, c, gatewaytest.Host{}, "", http.StatusBadGateway, "bad_upstream_reply", reason, reason, ""}
}

func causes(t *testing.T, b *gatewaytest.Fixture) []cause {
	t.Helper()
	soon := gatewaytest.Host{Timeout: time.Second}
	certified := func(r identity.SVIDRequest) gatewaytest.Host {
		return gatewaytest.Host{TLS: gatewaytest.Serving(gatewaytest.Issue(t, b.Dev.Authority, "/fake", r))}
	}
	foreign := gatewaytest.Host{TLS: gatewaytest.Serving(gatewaytest.Issue(t, gatewaytest.Authority(t, gatewaytest.TrustDomain, nil), "/fake", identity.SVIDRequest{}))}
	page := func(status int) gatewaytest.Conduct { return gatewaytest.Calling(status, "text/html", "<html>") }
	return []cause{
		network("no such name", nil, soon, "https://nothing.invalid/mcp", "dns"),
		network("refused", nil, gatewaytest.Host{}, unheard(t), "refused"),
		network("accepts and closes", nil, gatewaytest.Host{}, closes(t), "reset"),
		network("reset after the request", resets, gatewaytest.Host{}, "", "reset"),
		network("hangs up, HTTP/2", gatewaytest.HangsUp, gatewaytest.Host{HTTP2: true}, "", "reset"),
		network("half an answer", gatewaytest.BreaksOff, gatewaytest.Host{}, "", "reset"),
		network("a stream that breaks off", halfStream, gatewaytest.Host{}, "", "reset"),
		network("TLS 1.2", gatewaytest.Well, gatewaytest.Host{TLS: gatewaytest.TLS12(b.SVID(t, "/fake"))}, "", "tls_version"),
		network("plain HTTP", gatewaytest.Well, gatewaytest.Host{Plain: true}, "", "tls_version"),
		network("unknown authority", gatewaytest.Well, foreign, "", "tls_ca"),
		network("unknown authority, SPIFFE id listed", gatewaytest.Well, gatewaytest.Host{TLS: foreign.TLS, ID: "spiffe://aepb.dev/fake"}, "", "tls_ca"),
		network("expired certificate", gatewaytest.Well, gatewaytest.Host{TLS: gatewaytest.Serving(gatewaytest.Expired(t, b, "/fake"))}, "", "tls_ca"),
		network("wrong host name", gatewaytest.Well, certified(identity.SVIDRequest{DNSNames: []string{"fake.example"}}), "", "tls_name"),
		network("wrong SPIFFE id", gatewaytest.Well, gatewaytest.Host{ID: "spiffe://aepb.dev/another-agent"}, "", "spiffe_id"),
		misanswering("401", page(401), "http_status"),
		misanswering("403", page(403), "http_status"),
		misanswering("404", page(404), "http_status"),
		misanswering("500", page(500), "http_status"),
		misanswering("redirect", page(307), "http_status"),
		misanswering("not JSON", gatewaytest.Calling(200, "text/html", "<html>"), "bad_reply"),
		misanswering("JSON of another kind", gatewaytest.Calling(200, "application/json", `{"hello":1}`), "bad_reply"),
		misanswering("too large", gatewaytest.TooLong, "too_large"),
		{"413", page(413), gatewaytest.Host{}, "", 413, "too_large", "http_status", "http_status", ""},
		{"429", comeLater(429), gatewaytest.Host{}, "", 429, "rate_limited", "http_status", "http_status", "7"},
		{"503", comeLater(503), gatewaytest.Host{}, "", 503, "upstream_unreachable", "http_status", "http_status", "7"},
		{"no answer", unanswered, soon, "", 504, "timeout", "timeout", "timeout", ""},
		{"header but no body", headed, soon, "", 504, "timeout", "timeout", "timeout", ""},
	}
}

// unheard is a port where no server listens, and none can come to: it is the near end of
// a connection that lasts as long as the test.
func unheard(t *testing.T) string {
	t.Helper()
	far := gatewaytest.Listen(t)
	near, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", far.Addr().String())
	gatewaytest.Must(t, err)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return "https://" + near.LocalAddr().String()
}

// closes is where each connection is closed as soon as it is there.
func closes(t *testing.T) string {
	t.Helper()
	l := gatewaytest.Listen(t)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); group.Wait() })
	return "https://" + l.Addr().String()
}

// resets ends the connection with RST.
func resets(w http.ResponseWriter, _ *http.Request, _ []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// halfStream breaks off between two events.
func halfStream(w http.ResponseWriter, _ *http.Request, _ []byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: "+`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`+"\n\ndata: ")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// unanswered says nothing until its caller is gone.
func unanswered(_ http.ResponseWriter, r *http.Request, _ []byte) { <-r.Context().Done() }

// headed sends a header and then nothing.
func headed(w http.ResponseWriter, r *http.Request, _ []byte) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// comeLater is a status with advice when to come again.
func comeLater(status int) gatewaytest.Conduct {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
	}
}

// TestUpstreamFailure_Causes: each way for an agent to fail has one reason, in the log,
// the metric, the error ECT and to operators; a caller learns what it did before, and
// what a 413, 429 or 503 of the agent means for it.
func TestUpstreamFailure_Causes(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, NoToken: true})
	operator := b.SVID(t, gatewaytest.ApproverPath)
	for i, c := range causes(t, b) {
		name := "cause-" + strconv.Itoa(i)
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.at == "" {
				b.Serve(t, name, "mcp-v1", &gatewaytest.Fake{Conduct: c.conduct}, c.host)
			} else {
				b.List(t, name, "mcp-v1", c.at, c.host)
			}
			ordinary := saidFixture(t, b, name, b.Client, b.Me, c)
			if ordinary.Reason != "" {
				t.Errorf("an ordinary caller learns the reason %q", ordinary.Reason)
			}
			proves(t, b, ordinary, c.proof)
			notified := saidFixture(t, b, name, b.Caller(t, operator), b.Party(t, operator), c)
			if notified.Reason != c.reason || !strings.HasPrefix(notified.Detail, ordinary.Detail) {
				t.Errorf("an operator is told %q, %q, want %q, %q", notified.Reason, notified.Detail, c.reason, ordinary.Detail)
			}
			proves(t, b, notified, c.reason)
			logged(t, b, name, c.reason, 2)
			b.Counts(t, `aepb_upstream_failures_total{agent="`+name+`",reason="`+c.reason+`"} 2`)
		})
	}
}

// TestUpstreamFailure_InDevelopment: every caller of a development gateway is told the
// reason, at native endpoints too.
func TestUpstreamFailure_InDevelopment(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.Serve(t, "modern", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.HangsUp}, gatewaytest.Host{})
	b.Serve(t, "talking", "a2a-v1", &gatewaytest.Fake{Conduct: gatewaytest.HangsUp}, gatewaytest.Host{})
	for _, l := range []gatewaytest.HTTPRequest{
		{At: "/agents/modern/a2a", Body: gatewaytest.AddBody(b.Number())},
		{At: "/agents/talking/mcp", Body: gatewaytest.CallBody("fake", gatewaytest.Secret), Header: gatewaytest.Mirror("tools/call", "fake")},
		b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=modern", Body: gatewaytest.AddBody(b.Number())}),
	} {
		if got := b.Send(t, l); !strings.Contains(string(got.Body), `"reason":"reset"`) {
			t.Errorf("%s: %d %s", l.At, got.Status, got.Body)
		} else if len(l.Tokens) > 0 {
			gatewaytest.SameAnswer(t, got, b.Send(t, l)) // the reason too (R6)
		}
	}
}

// said is a problem document about a failed agent.
type said struct {
	Code, Detail, Reason string
	reply                gatewaytest.Reply
}

// saidFixture calls the agent and judges what does not depend on who calls.
func saidFixture(t *testing.T, b *gatewaytest.Fixture, agent string, via *http.Client, who *ecttest.Party, c cause) said {
	t.Helper()
	body := gatewaytest.AddBody(b.Number())
	got := b.Send(t, gatewaytest.HTTPRequest{
		Via: via, At: "/aepb/translate?from=a2a-v1&dest=" + agent, Body: body,
		Tokens: []string{ecttest.Mint(t, who, b.Recipe(body))},
	})
	out := said{reply: got}
	gatewaytest.Must(t, json.Unmarshal(got.Body, &out))
	if got.Status != c.status || out.Code != c.code || got.Header.Get("Retry-After") != c.retry {
		t.Errorf("got %d %s, Retry-After %q, want %d %s %q: %s", got.Status, out.Code, got.Header.Get("Retry-After"), c.status, c.code, c.retry, out.Detail)
	}
	return out
}

// proves sees to the reason in the error ECT.
func proves(t *testing.T, b *gatewaytest.Fixture, s said, want string) {
	t.Helper()
	claims := b.Proofs(t, s.reply)
	if len(claims) == 0 {
		t.Fatal("no error ECT")
	}
	if got, _ := claims[len(claims)-1].Ext.String("aepb.upstream_reason"); got != want {
		t.Errorf("aepb.upstream_reason %q, want %q", got, want)
	}
}

// logged counts the lines of failed exchanges with an agent that have this reason.
func logged(t *testing.T, b *gatewaytest.Fixture, agent, reason string, want int) {
	t.Helper()
	found := 0
	for line := range strings.Lines(b.Logs.String()) {
		var answer struct{ Msg, Agent, Reason string }
		if json.Unmarshal([]byte(line), &answer) == nil && answer.Msg == "exchange" && answer.Agent == agent && answer.Reason == reason {
			found++
		}
	}
	if found != want {
		t.Errorf("%d log lines with reason %q, want %d:\n%s", found, reason, want, b.Logs)
	}
}
