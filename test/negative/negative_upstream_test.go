package negative

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// outcome is what the gateway makes of an agent's conduct: the problem at the
// translate endpoint, and the JSON-RPC errors at the endpoints.
type outcome struct {
	status         int
	code           string
	endpointStatus int
	rpcA2A, rpcMCP int64
	proof          string
}

var (
	late        = outcome{504, "timeout", 504, -32603, -32603, "timeout"}
	unreachable = outcome{502, "upstream_unreachable", 200, -32603, -32603, "internal_error"}
	nonsense    = outcome{502, "bad_upstream_reply", 200, -32006, -32603, "internal_error"}
)

// misconduct is one way for an agent to go wrong.
type misconduct struct {
	name    string
	conduct func(*gatewaytest.Fake) gatewaytest.Conduct
	host    func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.Host
	is      outcome
}

// huge are the misconducts that are as long as an answer may be.
var huge = []string{"never stops talking", "says too much"}

// always is a conduct that needs to know nothing of its fake.
func always(c gatewaytest.Conduct) func(*gatewaytest.Fake) gatewaytest.Conduct {
	return func(*gatewaytest.Fake) gatewaytest.Conduct { return c }
}

// behaving is a host whose certificate or address is wrong; its agent is fine.
func behaving(*gatewaytest.Fake) gatewaytest.Conduct { return gatewaytest.Well }

func misconducts(t *testing.T, b *gatewaytest.Fixture) []misconduct {
	t.Helper()
	soon := func(*testing.T, *gatewaytest.Fixture) gatewaytest.Host { return gatewaytest.Host{Timeout: time.Second} }
	with := func(h func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.Host, is outcome, name string) misconduct {
		return misconduct{name: name, conduct: behaving, host: h, is: is}
	}
	certified := func(name string, r identity.SVIDRequest) misconduct {
		return with(func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.Host {
			t.Helper()
			return gatewaytest.Host{TLS: gatewaytest.Serving(gatewaytest.Issue(t, b.Dev.Authority, "/fake", r))}
		}, unreachable, name)
	}
	return []misconduct{
		{"says nothing", func(f *gatewaytest.Fake) gatewaytest.Conduct { return f.Silent }, soon, late},
		{"says half and then nothing", func(f *gatewaytest.Fake) gatewaytest.Conduct { return f.Beginning }, soon, late},
		{"never stops talking", always(gatewaytest.Endless), nil, nonsense},
		{"says too much", always(gatewaytest.TooLong), nil, nonsense},
		{"hangs up", always(gatewaytest.HangsUp), nil, unreachable},
		{"hangs up, HTTP/2", always(gatewaytest.HangsUp), func(*testing.T, *gatewaytest.Fixture) gatewaytest.Host { return gatewaytest.Host{HTTP2: true} }, unreachable},
		{"breaks off", always(gatewaytest.BreaksOff), nil, unreachable},
		{"says blanks", always(gatewaytest.Calling(200, "application/json", " \n ")), nil, nonsense},
		{"another media type", always(func(w http.ResponseWriter, _ *http.Request, good []byte) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write(good)
		}), nil, nonsense},
		{"fails with a page", always(gatewaytest.Calling(500, "text/html", "<html>swordfish</html>")), nil, nonsense},
		{"fails with JSON that is no reply", always(gatewaytest.Calling(500, "application/json", `{"error":"swordfish"}`)), nil, nonsense},
		{"is not there", always(gatewaytest.Calling(404, "text/plain", "404 page not found")), nil, nonsense},
		{"wants credentials", always(gatewaytest.Calling(401, "text/plain", "who are you")), nil, nonsense},
		{"compresses", always(gatewaytest.Marked("Content-Encoding", "gzip")), nil, nonsense},
		{"answers another request", always(gatewaytest.Replacing(`"id":"`, `"id":"x`)), nil, nonsense},
		{"truncates", always(gatewaytest.Saying(func(good []byte) []byte { return good[:len(good)-5] })), nil, nonsense},
		{"asks instead of answering", always(gatewaytest.Replacing(`"result":{`, `"method":"x","params":{`)), nil, nonsense},
		{"result of another shape", always(gatewaytest.Replacing(`"result":{`, `"result":[7],"x":{`)), nil, nonsense},
		{"129 levels", always(gatewaytest.Replacing(`"result":{`, `"result":{"x":`+strings.Repeat("[", 127)+strings.Repeat("]", 127)+`,`)), nil, nonsense},
		{"a broken token", always(gatewaytest.Marked(ect.HeaderName, "a=b")), nil, nonsense},
		{"a token of nobody", always(gatewaytest.Marked(ect.HeaderName, ecttest.MintUnsigned(t, b.Me, b.Recipe("done")))), nil, nonsense},
		{"a token over another answer", always(gatewaytest.Marked(ect.HeaderName, ecttest.Mint(t, b.Me, b.Recipe("done")))), nil, nonsense},
		{"64 KiB of header", always(gatewaytest.Marked("X-Padding", strings.Repeat("x", 64<<10))), nil, unreachable},
		certified("certificate of another address", identity.SVIDRequest{IPs: []net.IP{net.IPv4(127, 0, 0, 2)}}),
		certified("certificate of another name", identity.SVIDRequest{DNSNames: []string{"fake.example"}}),
		with(func(t *testing.T, _ *gatewaytest.Fixture) gatewaytest.Host {
			t.Helper()
			return gatewaytest.Host{TLS: gatewaytest.Serving(gatewaytest.Issue(t, gatewaytest.Authority(t, gatewaytest.TrustDomain, nil), "/fake", identity.SVIDRequest{}))}
		}, unreachable, "certificate of a foreign authority"),
		with(func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.Host {
			t.Helper()
			return gatewaytest.Host{TLS: gatewaytest.Serving(gatewaytest.Expired(t, b, "/fake"))}
		}, unreachable, "certificate that has run out"),
		with(func(*testing.T, *gatewaytest.Fixture) gatewaytest.Host {
			return gatewaytest.Host{ID: "spiffe://aepb.dev/somebody-else"}
		}, unreachable, "another identity than is listed"),
		with(func(*testing.T, *gatewaytest.Fixture) gatewaytest.Host {
			return gatewaytest.Host{ID: "spiffe://elsewhere.example/fake"}
		}, unreachable, "an identity of another trust domain is listed"),
		with(func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.Host {
			t.Helper()
			return gatewaytest.Host{TLS: gatewaytest.TLS12(b.SVID(t, "/fake"))}
		}, unreachable, "TLS 1.2"),
		with(func(*testing.T, *gatewaytest.Fixture) gatewaytest.Host { return gatewaytest.Host{Plain: true} }, unreachable, "plain HTTP where TLS was listed"),
	}
}

// streams are misconducts of MCP servers that answer with events.
func streams() []misconduct {
	events := func(name, text string) misconduct {
		return misconduct{name, always(gatewaytest.Calling(200, "text/event-stream", text)), nil, nonsense}
	}
	return []misconduct{
		events("no events", ""),
		events("an event cut off", `data: {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`),
		events("5000 notifications", strings.Repeat(`data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}`+"\n\n", 5000)),
		{"an event and then silence", func(f *gatewaytest.Fake) gatewaytest.Conduct {
			return func(w http.ResponseWriter, r *http.Request, _ []byte) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, ": hello\n\n")
				_ = http.NewResponseController(w).Flush()
				f.Wait(r)
			}
		}, func(*testing.T, *gatewaytest.Fixture) gatewaytest.Host { return gatewaytest.Host{Timeout: time.Second} }, late},
	}
}

// Agents that introduce themselves well, as far as TLS lets them, and then fail
// at the call: behind the translate endpoint and behind both endpoints.
func TestAgents_FailAtTheCall(t *testing.T) {
	t.Parallel()
	for _, binding := range []canonical.Binding{"mcp-v1", "a2a-v1"} {
		t.Run(string(binding), func(t *testing.T) {
			t.Parallel()
			b := shared()
			t.Run("refused", func(t *testing.T) {
				list := misconducts(t, b)
				if binding == "mcp-v1" {
					list = append(list, streams()...)
				}
				for i, m := range list {
					t.Run(m.name, func(t *testing.T) {
						if !slices.Contains(huge, m.name) { // of those one alone has its share of the bytes in flight
							t.Parallel()
						}
						misbehaves(t, b, "fails-"+string(binding)+"-"+strconv.Itoa(i), binding, m)
					})
				}
			})
			t.Run("good calls afterwards", b.Works)
		})
	}
}

func misbehaves(t *testing.T, b *gatewaytest.Fixture, name string, binding canonical.Binding, m misconduct) {
	t.Helper()
	f, h := &gatewaytest.Fake{}, gatewaytest.Host{}
	if m.host != nil {
		h = m.host(t, b)
	}
	f.Conduct = m.conduct(f)
	b.Serve(t, name, binding, f, h)
	translate := b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + name, Body: gatewaytest.AddBody(b.Number())})
	endpoint := gatewaytest.HTTPRequest{At: "/agents/" + name + "/a2a", Body: gatewaytest.AddBody(b.Number())}
	rpc := m.is.rpcA2A
	if binding == "a2a-v1" {
		translate = b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=mcp-v1&dest=" + name, Body: gatewaytest.CallBody("fake", gatewaytest.Secret)})
		endpoint = gatewaytest.HTTPRequest{At: "/agents/" + name + "/mcp", Body: gatewaytest.CallBody("fake", gatewaytest.Secret), Header: gatewaytest.Mirror("tools/call", "fake")}
		rpc = m.is.rpcMCP
	}
	first := b.Sending(t, translate)
	b.Refused(t, endpoint, b.Send(t, endpoint), gatewaytest.Want{Status: m.is.endpointStatus, Code: m.is.code, RPC: rpc, Reason: name, Proof: m.is.proof})
	if got, ok := <-first; ok {
		b.Refused(t, translate, got, gatewaytest.Want{Status: m.is.status, Code: m.is.code, Reason: name, Proof: m.is.proof})
	}
	if calls := f.Calls.Load(); calls > 2 {
		t.Errorf("the agent was called %d times for two messages", calls)
	}
}

// Agents that already fail to say who they are.
func TestAgents_FailToDescribeThemselves(t *testing.T) {
	t.Parallel()
	for _, binding := range []canonical.Binding{"mcp-v1", "a2a-v1"} {
		t.Run(string(binding), func(t *testing.T) {
			t.Parallel()
			b := shared()
			t.Run("refused", func(t *testing.T) {
				for i, m := range []misconduct{
					{"says nothing", func(f *gatewaytest.Fake) gatewaytest.Conduct { return f.Silent }, func(*testing.T, *gatewaytest.Fixture) gatewaytest.Host { return gatewaytest.Host{Timeout: time.Second} }, late},
					{"never stops talking", always(gatewaytest.Endless), nil, nonsense},
					{"hangs up", always(gatewaytest.HangsUp), nil, unreachable},
					{"breaks off", always(gatewaytest.BreaksOff), nil, unreachable},
					{"says nothing at all", always(gatewaytest.Calling(200, "application/json", "")), nil, nonsense},
					{"another media type", always(gatewaytest.Calling(200, "text/html", "<html>")), nil, nonsense},
					{"redirects", always(gatewaytest.Calling(302, "text/html", "")), nil, nonsense},
					{"fails with a page", always(gatewaytest.Calling(500, "text/html", "<html>")), nil, nonsense},
					{"truncates", always(gatewaytest.Saying(func(good []byte) []byte { return good[:len(good)-5] })), nil, nonsense},
					{"duplicate members", always(gatewaytest.Saying(func(good []byte) []byte { return []byte(`{"name":"x",` + `"name":"y",` + string(good[1:])) })), nil, nonsense},
					{"129 levels", always(gatewaytest.Calling(200, "application/json", strings.Repeat("[", 129)+strings.Repeat("]", 129))), nil, nonsense},
				} {
					t.Run(m.name, func(t *testing.T) {
						t.Parallel()
						introducesBadly(t, b, "unknown-"+string(binding)+"-"+strconv.Itoa(i), binding, m)
					})
				}
			})
			t.Run("good calls afterwards", b.Works)
		})
	}
}

func introducesBadly(t *testing.T, b *gatewaytest.Fixture, name string, binding canonical.Binding, m misconduct) {
	t.Helper()
	f, h := &gatewaytest.Fake{Conduct: gatewaytest.Well}, gatewaytest.Host{}
	if m.host != nil {
		h = m.host(t, b)
	}
	f.Silly = m.conduct(f)
	b.Serve(t, name, binding, f, h)
	w := gatewaytest.Want{Status: m.is.status, Code: m.is.code, Reason: name}
	card := gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/agents/" + name + "/.well-known/agent-card.json"}
	began := time.Now()
	b.Refused(t, card, b.Send(t, card), w)
	if took := time.Since(began); h.Timeout > 0 && took > h.Timeout+5*time.Second {
		t.Errorf("a caller waited %s for an agent that may take %s", took, h.Timeout)
	}
	w.Proof = m.is.proof
	translate := b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + name, Body: gatewaytest.AddBody(b.Number())})
	if binding == "a2a-v1" {
		translate = b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=mcp-v1&dest=" + name, Body: gatewaytest.CallBody("fake", gatewaytest.Secret)})
	}
	b.Refused(t, translate, b.Send(t, translate), w)
	if f.Calls.Load() > 0 {
		t.Error("a message went to an agent that nobody knows")
	}
}

// Where a message may not go although the agent is listed.
func TestRouting_Refused(t *testing.T) {
	t.Parallel()
	b := shared()
	t.Run("nobody listens", func(t *testing.T) {
		l := gatewaytest.Listen(t)
		at := "https://" + l.Addr().String()
		gatewaytest.Must(t, l.Close())
		b.List(t, "away", "mcp-v1", at, gatewaytest.Host{})
		toAgent(t, b, "away", gatewaytest.Want{Status: 502, Code: "upstream_unreachable", Proof: "internal_error"})
	})
	t.Run("a name that does not resolve", func(t *testing.T) {
		b.List(t, "nameless", "mcp-v1", "https://nothing.invalid/mcp", gatewaytest.Host{Timeout: 5 * time.Second})
		toAgent(t, b, "nameless", gatewaytest.Want{Status: 502, Code: "upstream_unreachable", Proof: "internal_error"})
	})
	t.Run("a redirect is not followed", func(t *testing.T) { followsNothing(t, b) })
	t.Run("a card that sends elsewhere", func(t *testing.T) { followsNoCard(t, b) })
	t.Run("a removed agent", func(t *testing.T) {
		b.Serve(t, "gone", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Well}, gatewaytest.Host{})
		b.Directory().Remove("gone")
		toAgent(t, b, "gone", gatewaytest.Want{Status: 404, Code: "no_translation_path", Reason: "unknown_agent", Proof: "internal_error"})
	})
	t.Run("an older revision that the agent does not speak", func(t *testing.T) {
		b.Serve(t, "modern", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Well}, gatewaytest.Host{})
		l := b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&to=mcp-v1@2025-11-25&dest=modern", Body: gatewaytest.AddBody(b.Number())})
		b.Refused(t, l, b.Send(t, l), gatewaytest.Want{Status: 404, Code: "no_translation_path", Reason: "unsupported_version", Proof: "internal_error"})
	})
	t.Run("an older revision that the agent speaks", func(t *testing.T) { speaksOlder(t, b) })
	t.Run("good calls afterwards", b.Works)
}

func toAgent(t *testing.T, b *gatewaytest.Fixture, name string, w gatewaytest.Want) {
	t.Helper()
	l := b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + name, Body: gatewaytest.AddBody(b.Number())})
	b.Refused(t, l, b.Send(t, l), w)
}

// followsNothing: neither a message nor a discovery goes where a redirect points.
func followsNothing(t *testing.T, b *gatewaytest.Fixture) {
	var visits atomic.Int32
	trap := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	trap.TLS = gatewaytest.Serving(b.SVID(t, "/trap"))
	trap.StartTLS()
	defer trap.Close()
	away := func(w http.ResponseWriter, r *http.Request, _ []byte) {
		http.Redirect(w, r, trap.URL, http.StatusPermanentRedirect)
	}
	w := gatewaytest.Want{Status: 502, Code: "bad_upstream_reply", Proof: "internal_error"}
	b.Serve(t, "redirects", "mcp-v1", &gatewaytest.Fake{Conduct: away}, gatewaytest.Host{})
	toAgent(t, b, "redirects", w)
	b.Serve(t, "moved", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Well, Silly: away}, gatewaytest.Host{})
	toAgent(t, b, "moved", w)
	if visits.Load() > 0 {
		t.Error("the gateway followed a redirect")
	}
}

// followsNoCard: a card may not send messages to another origin. They go to the listed one.
func followsNoCard(t *testing.T, b *gatewaytest.Fixture) {
	var visits atomic.Int32
	trap := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	trap.TLS = gatewaytest.Serving(b.SVID(t, "/trap"))
	trap.StartTLS()
	defer trap.Close()
	elsewhere := func(w http.ResponseWriter, r *http.Request, good []byte) {
		gatewaytest.Replacing("https://"+r.Host+"/", trap.URL)(w, r, good)
	}
	b.Serve(t, "poser", "a2a-v1", &gatewaytest.Fake{Conduct: gatewaytest.Well, Silly: elsewhere}, gatewaytest.Host{Path: "/.well-known/agent-card.json"})
	l := b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=mcp-v1&dest=poser", Body: gatewaytest.CallBody("fake", gatewaytest.Secret)})
	b.Right(t, b.Send(t, l), "done")
	if visits.Load() > 0 {
		t.Error("the gateway followed a card to another origin")
	}
}

// speaksOlder: the version that a caller asks for is the one on the wire,
// whatever was negotiated before.
func speaksOlder(t *testing.T, b *gatewaytest.Fixture) {
	b.Works(t)
	n := b.Number()
	b.Right(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&to=mcp-v1@2025-11-25&dest=calculator", Body: gatewaytest.AddBody(n)})), `"sum":`+strconv.FormatInt(n+1, 10))
	calls := 0
	for _, received := range b.Tools.Received() {
		body := string(received.Body)
		if !strings.Contains(body, `"tools/call"`) || !strings.Contains(body, strconv.FormatInt(n, 10)) {
			continue
		}
		if calls++; strings.Contains(body, "io.modelcontextprotocol/protocolVersion") {
			t.Errorf("the agent was called with %s", body)
		}
	}
	if calls != 1 {
		t.Errorf("the agent was called %d times", calls)
	}
}
