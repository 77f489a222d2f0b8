package main

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
)

// cause is one way for an agent to fail, and what is said of it: to its caller, to
// operators in the log, the metric and the answer, and in the error ECT.
type cause struct {
	name    string
	conduct conduct
	host    host
	at      string // where the agent is listed; empty: at a server with this conduct and host
	status  int
	code    string
	reason  string
	proof   string // reason in the error ECT of a caller who is not an operator
	retry   string // Retry-After
}

// network are the causes about which a caller learns only that the agent is away.
func network(name string, c conduct, h host, at, reason string) cause {
	return cause{name, c, h, at, http.StatusBadGateway, "upstream_unreachable", reason, "unreachable", ""}
}

func misanswering(name string, c conduct, reason string) cause {
	return cause{name, c, host{}, "", http.StatusBadGateway, "bad_upstream_reply", reason, reason, ""}
}

func (b *bed) causes(t *testing.T) []cause {
	t.Helper()
	soon := host{timeout: time.Second}
	certified := func(r identity.SVIDRequest) host { return host{tls: serving(issue(t, b.dev.Authority, "/fake", r))} }
	foreign := host{tls: serving(issue(t, authority(t, devTrustDomain, nil), "/fake", identity.SVIDRequest{}))}
	page := func(status int) conduct { return calling(status, "text/html", "<html>") }
	return []cause{
		network("no such name", nil, soon, "https://nothing.invalid/mcp", "dns"),
		network("refused", nil, host{}, unheard(t), "refused"),
		network("accepts and closes", nil, host{}, closes(t), "reset"),
		network("reset after the request", resets, host{}, "", "reset"),
		network("hangs up, HTTP/2", hangsUp, host{http2: true}, "", "reset"),
		network("half an answer", breaksOff, host{}, "", "reset"),
		network("a stream that breaks off", halfStream, host{}, "", "reset"),
		network("TLS 1.2", well, host{tls: tls12(b.svid(t, "/fake"))}, "", "tls_version"),
		network("plain HTTP", well, host{plain: true}, "", "tls_version"),
		network("unknown authority", well, foreign, "", "tls_ca"),
		network("unknown authority, SPIFFE id listed", well, host{tls: foreign.tls, id: "spiffe://aepb.dev/fake"}, "", "tls_ca"),
		network("expired certificate", well, host{tls: serving(expired(t, b, "/fake"))}, "", "tls_ca"),
		network("wrong host name", well, certified(identity.SVIDRequest{DNSNames: []string{"fake.example"}}), "", "tls_name"),
		network("wrong SPIFFE id", well, host{id: "spiffe://aepb.dev/another-agent"}, "", "spiffe_id"),
		misanswering("401", page(401), "http_status"),
		misanswering("403", page(403), "http_status"),
		misanswering("404", page(404), "http_status"),
		misanswering("500", page(500), "http_status"),
		misanswering("redirect", page(307), "http_status"),
		misanswering("not JSON", calling(200, "text/html", "<html>"), "bad_reply"),
		misanswering("JSON of another kind", calling(200, "application/json", `{"hello":1}`), "bad_reply"),
		misanswering("too large", tooLong, "too_large"),
		{"413", page(413), host{}, "", 413, "too_large", "http_status", "http_status", ""},
		{"429", comeLater(429), host{}, "", 429, "rate_limited", "http_status", "http_status", "7"},
		{"503", comeLater(503), host{}, "", 503, "upstream_unreachable", "http_status", "http_status", "7"},
		{"no answer", unanswered, soon, "", 504, "timeout", "timeout", "timeout", ""},
		{"header but no body", headed, soon, "", 504, "timeout", "timeout", "timeout", ""},
	}
}

// unheard is a port where no server listens, and none can come to: it is the near end of
// a connection that lasts as long as the test.
func unheard(t *testing.T) string {
	t.Helper()
	far := listen(t)
	near, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", far.Addr().String())
	must(t, err)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return "https://" + near.LocalAddr().String()
}

// closes is where each connection is closed as soon as it is there.
func closes(t *testing.T) string {
	t.Helper()
	l := listen(t)
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
func comeLater(status int) conduct {
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
	b := newBed(t, plan{serve: true, noToken: true})
	operator := b.svid(t, approverPath)
	for i, c := range b.causes(t) {
		name := "cause-" + strconv.Itoa(i)
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.at == "" {
				b.serve(t, name, "mcp-v1", &fake{conduct: c.conduct}, c.host)
			} else {
				b.list(t, name, "mcp-v1", c.at, c.host)
			}
			ordinary := b.said(t, name, b.client, b.me, c)
			if ordinary.Reason != "" {
				t.Errorf("an ordinary caller learns the reason %q", ordinary.Reason)
			}
			b.proves(t, ordinary, c.proof)
			told := b.said(t, name, b.caller(t, operator), b.party(t, operator), c)
			if told.Reason != c.reason || !strings.HasPrefix(told.Detail, ordinary.Detail) {
				t.Errorf("an operator is told %q, %q, want %q, %q", told.Reason, told.Detail, c.reason, ordinary.Detail)
			}
			b.proves(t, told, c.reason)
			b.logged(t, name, c.reason, 2)
			b.counts(t, `aepb_upstream_failures_total{agent="`+name+`",reason="`+c.reason+`"} 2`)
		})
	}
}

// TestUpstreamFailure_InDevelopment: every caller of a development gateway is told the
// reason, at native endpoints too.
func TestUpstreamFailure_InDevelopment(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.serve(t, "modern", "mcp-v1", &fake{conduct: hangsUp}, host{})
	b.serve(t, "talking", "a2a-v1", &fake{conduct: hangsUp}, host{})
	for _, l := range []letter{
		{at: "/agents/modern/a2a", body: addBody(b.number())},
		{at: "/agents/talking/mcp", body: callBody("fake", secret), header: mirror("tools/call", "fake")},
		b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=modern", body: addBody(b.number())}),
	} {
		if got := b.send(t, l); !strings.Contains(string(got.body), `"reason":"reset"`) {
			t.Errorf("%s: %d %s", l.at, got.status, got.body)
		} else if len(l.tokens) > 0 {
			sameAnswer(t, got, b.send(t, l)) // the reason too (R6)
		}
	}
}

// said is a problem document about a failed agent.
type said struct {
	Code, Detail, Reason string
	reply                reply
}

// said calls the agent and judges what does not depend on who calls.
func (b *bed) said(t *testing.T, agent string, via *http.Client, who *ecttest.Party, c cause) said {
	t.Helper()
	body := addBody(b.number())
	got := b.send(t, letter{
		via: via, at: "/aepb/translate?from=a2a-v1&dest=" + agent, body: body,
		tokens: []string{ecttest.Mint(t, who, b.recipe(body))},
	})
	out := said{reply: got}
	must(t, json.Unmarshal(got.body, &out))
	if got.status != c.status || out.Code != c.code || got.header.Get("Retry-After") != c.retry {
		t.Errorf("got %d %s, Retry-After %q, want %d %s %q: %s", got.status, out.Code, got.header.Get("Retry-After"), c.status, c.code, c.retry, out.Detail)
	}
	return out
}

// proves sees to the reason in the error ECT.
func (b *bed) proves(t *testing.T, s said, want string) {
	t.Helper()
	claims := b.proofs(t, s.reply)
	if len(claims) == 0 {
		t.Fatal("no error ECT")
	}
	if got, _ := claims[len(claims)-1].Ext.String("aepb.upstream_reason"); got != want {
		t.Errorf("aepb.upstream_reason %q, want %q", got, want)
	}
}

// logged counts the lines of failed exchanges with an agent that have this reason.
func (b *bed) logged(t *testing.T, agent, reason string, want int) {
	t.Helper()
	found := 0
	for line := range strings.Lines(b.logs.String()) {
		var said struct{ Msg, Agent, Reason string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "exchange" && said.Agent == agent && said.Reason == reason {
			found++
		}
	}
	if found != want {
		t.Errorf("%d log lines with reason %q, want %d:\n%s", found, reason, want, b.logs)
	}
}

// counts looks for a line among the metrics.
func (b *bed) counts(t *testing.T, line string) {
	t.Helper()
	got := b.send(t, letter{via: b.caller(t, b.svid(t, approverPath)), method: http.MethodGet, at: b.at.Admin + "/metrics"})
	if !strings.Contains(string(got.body), "\n"+line+"\n") {
		at := strings.Index(string(got.body), line[:strings.IndexByte(line, '{')+1])
		t.Errorf("no %q among the metrics: %s", line, short(got.body[max(at, 0):]))
	}
}
