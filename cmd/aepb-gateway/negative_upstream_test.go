package main

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
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// outcome is what the gateway makes of an agent's conduct: the problem at the
// translate endpoint, and the JSON-RPC errors at the doors.
type outcome struct {
	status         int
	code           string
	doorStatus     int
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
	conduct func(*fake) conduct
	host    func(t *testing.T, b *bed) host
	is      outcome
}

// huge are the misconducts that are as long as an answer may be.
var huge = []string{"never stops talking", "says too much"}

// always is a conduct that needs to know nothing of its fake.
func always(c conduct) func(*fake) conduct { return func(*fake) conduct { return c } }

// behaving is a host whose certificate or address is wrong; its agent is fine.
func behaving(*fake) conduct { return well }

func (b *bed) misconducts(t *testing.T) []misconduct {
	t.Helper()
	soon := func(*testing.T, *bed) host { return host{timeout: time.Second} }
	with := func(h func(t *testing.T, b *bed) host, is outcome, name string) misconduct {
		return misconduct{name: name, conduct: behaving, host: h, is: is}
	}
	certified := func(name string, r identity.SVIDRequest) misconduct {
		return with(func(t *testing.T, b *bed) host {
			t.Helper()
			return host{tls: serving(issue(t, b.dev.Authority, "/fake", r))}
		}, unreachable, name)
	}
	return []misconduct{
		{"says nothing", func(f *fake) conduct { return f.silent }, soon, late},
		{"says half and then nothing", func(f *fake) conduct { return f.beginning }, soon, late},
		{"never stops talking", always(endless), nil, nonsense},
		{"says too much", always(tooLong), nil, nonsense},
		{"hangs up", always(hangsUp), nil, unreachable},
		{"hangs up, HTTP/2", always(hangsUp), func(*testing.T, *bed) host { return host{http2: true} }, unreachable},
		{"breaks off", always(breaksOff), nil, unreachable},
		{"says nothing at all", always(calling(200, "application/json", "")), nil, nonsense},
		{"no content", always(calling(204, "", "")), nil, nonsense},
		{"says blanks", always(calling(200, "application/json", " \n ")), nil, nonsense},
		{"another media type", always(func(w http.ResponseWriter, _ *http.Request, good []byte) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write(good)
		}), nil, nonsense},
		{"no media type", always(func(w http.ResponseWriter, _ *http.Request, good []byte) {
			w.Header()["Content-Type"] = nil
			_, _ = w.Write(good)
		}), nil, nonsense},
		{"redirects", always(calling(307, "application/json", "{}")), nil, nonsense},
		{"fails with a page", always(calling(500, "text/html", "<html>swordfish</html>")), nil, nonsense},
		{"fails with JSON that is no reply", always(calling(500, "application/json", `{"error":"swordfish"}`)), nil, nonsense},
		{"is not there", always(calling(404, "text/plain", "404 page not found")), nil, nonsense},
		{"wants credentials", always(calling(401, "text/plain", "who are you")), nil, nonsense},
		{"compresses", always(marked("Content-Encoding", "gzip")), nil, nonsense},
		{"answers another request", always(replacing(`"id":"`, `"id":"x`)), nil, nonsense},
		{"answers nobody", always(saying(func(good []byte) []byte {
			_, rest, _ := strings.Cut(string(good), `"result"`)
			return []byte(`{"jsonrpc":"2.0","id":null,"result"` + rest)
		})), nil, nonsense},
		{"truncates", always(saying(func(good []byte) []byte { return good[:len(good)-5] })), nil, nonsense},
		{"says it twice", always(saying(func(good []byte) []byte { return append(good, good...) })), nil, nonsense},
		{"answers with a batch", always(saying(func(good []byte) []byte { return []byte("[" + string(good) + "]") })), nil, nonsense},
		{"asks instead of answering", always(replacing(`"result":{`, `"method":"x","params":{`)), nil, nonsense},
		{"another JSON-RPC", always(replacing(`"2.0"`, `"1.0"`)), nil, nonsense},
		{"result and error", always(replacing(`"result"`, `"error":{"code":1,"message":"x"},"result"`)), nil, nonsense},
		{"no result", always(replacing(`"result"`, `"outcome"`)), nil, nonsense},
		{"result of another shape", always(replacing(`"result":{`, `"result":[7],"x":{`)), nil, nonsense},
		{"duplicate members", always(replacing(`"result"`, `"result":{},"result"`)), nil, nonsense},
		{"a lone surrogate", always(replacing("done", `\ud800`)), nil, nonsense},
		{"invalid UTF-8", always(replacing("done", "\xff")), nil, nonsense},
		{"129 levels", always(replacing(`"result":{`, `"result":{"x":`+strings.Repeat("[", 127)+strings.Repeat("]", 127)+`,`)), nil, nonsense},
		{"a broken token", always(marked(ect.HeaderName, "a=b")), nil, nonsense},
		{"too many tokens", always(marked(ect.HeaderName, strings.Join(ballast(33, 8), ","))), nil, nonsense},
		{"a token of nobody", always(marked(ect.HeaderName, ecttest.MintUnsigned(t, b.me, b.recipe("done")))), nil, nonsense},
		{"a token over another answer", always(marked(ect.HeaderName, ecttest.Mint(t, b.me, b.recipe("done")))), nil, nonsense},
		{"64 KiB of header", always(marked("X-Padding", strings.Repeat("x", 64<<10))), nil, unreachable},
		certified("certificate of another address", identity.SVIDRequest{IPs: []net.IP{net.IPv4(127, 0, 0, 2)}}),
		certified("certificate of another name", identity.SVIDRequest{DNSNames: []string{"fake.example"}}),
		with(func(t *testing.T, _ *bed) host {
			t.Helper()
			return host{tls: serving(issue(t, authority(t, devTrustDomain, nil), "/fake", identity.SVIDRequest{}))}
		}, unreachable, "certificate of a foreign authority"),
		with(func(t *testing.T, b *bed) host {
			t.Helper()
			return host{tls: serving(expired(t, b, "/fake"))}
		}, unreachable, "certificate that has run out"),
		with(func(*testing.T, *bed) host { return host{id: "spiffe://aepb.dev/somebody-else"} }, unreachable, "another identity than is listed"),
		with(func(*testing.T, *bed) host { return host{id: "spiffe://elsewhere.example/fake"} }, unreachable, "an identity of another trust domain is listed"),
		with(func(t *testing.T, b *bed) host {
			t.Helper()
			return host{tls: tls12(b.svid(t, "/fake"))}
		}, unreachable, "TLS 1.2"),
		with(func(*testing.T, *bed) host { return host{plain: true} }, unreachable, "plain HTTP where TLS was listed"),
	}
}

// streams are misconducts of MCP servers that answer with events.
func streams() []misconduct {
	events := func(name, text string) misconduct {
		return misconduct{name, always(calling(200, "text/event-stream", text)), nil, nonsense}
	}
	return []misconduct{
		events("no events", ""),
		events("comments alone", ": hello\n\n: hello\n\n"),
		events("an event cut off", `data: {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`),
		events("an event that is no JSON", "data: swordfish\n\n"),
		events("the answer to another request", `data: {"jsonrpc":"2.0","id":"other","result":{"resultType":"complete","content":[]}}`+"\n\n"),
		events("notifications and no answer", strings.Repeat(`data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}`+"\n\n", 100)),
		events("5000 notifications", strings.Repeat(`data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}`+"\n\n", 5000)),
		{"events without end", always(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				if _, err := io.WriteString(w, "data: "+strings.Repeat("x", 64<<10)); err != nil {
					return
				}
			}
		}), nil, nonsense},
		{"an event and then silence", func(f *fake) conduct {
			return func(w http.ResponseWriter, r *http.Request, _ []byte) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, ": hello\n\n")
				_ = http.NewResponseController(w).Flush()
				f.wait(r)
			}
		}, func(*testing.T, *bed) host { return host{timeout: time.Second} }, late},
		{"asks back", always(replacing(`"resultType":"complete"`, `"resultType":"input_required"`)), nil, nonsense},
		{"becomes a task", always(replacing(`"resultType":"complete"`, `"resultType":"task","taskId":"1"`)), nil, nonsense},
	}
}

// Agents that introduce themselves well, as far as TLS lets them, and then fail
// at the call: behind the translate endpoint and behind both doors.
func TestMisbehavingAgents(t *testing.T) {
	t.Parallel()
	for _, binding := range []canonical.Binding{"mcp-v1", "a2a-v1"} {
		t.Run(string(binding), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, plan{})
			t.Run("refused", func(t *testing.T) {
				list := b.misconducts(t)
				if binding == "mcp-v1" {
					list = append(list, streams()...)
				}
				for i, m := range list {
					t.Run(m.name, func(t *testing.T) {
						if !slices.Contains(huge, m.name) { // of those one alone has its share of the bytes in flight
							t.Parallel()
						}
						b.misbehaves(t, "fake-"+strconv.Itoa(i), binding, m)
					})
				}
			})
			t.Run("good calls afterwards", b.works)
		})
	}
}

func (b *bed) misbehaves(t *testing.T, name string, binding canonical.Binding, m misconduct) {
	t.Helper()
	f, h := &fake{}, host{}
	if m.host != nil {
		h = m.host(t, b)
	}
	f.conduct = m.conduct(f)
	b.serve(t, name, binding, f, h)
	translate := b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=" + name, body: addBody(b.number())})
	door := letter{at: "/agents/" + name + "/a2a", body: addBody(b.number())}
	rpc := m.is.rpcA2A
	if binding == "a2a-v1" {
		translate = b.sealed(t, letter{at: "/aepb/translate?from=mcp-v1&dest=" + name, body: callBody("fake", secret)})
		door = letter{at: "/agents/" + name + "/mcp", body: callBody("fake", secret), header: mirror("tools/call", "fake")}
		rpc = m.is.rpcMCP
	}
	b.refused(t, translate, b.send(t, translate), want{status: m.is.status, code: m.is.code, reason: name, proof: m.is.proof})
	b.refused(t, door, b.send(t, door), want{status: m.is.doorStatus, code: m.is.code, rpc: rpc, reason: name, proof: m.is.proof})
	if calls := f.calls.Load(); calls > 2 {
		t.Errorf("the agent was called %d times for two messages", calls)
	}
}

// Agents that already fail to say who they are.
func TestAgentsWithoutIntroduction(t *testing.T) {
	t.Parallel()
	for _, binding := range []canonical.Binding{"mcp-v1", "a2a-v1"} {
		t.Run(string(binding), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, plan{})
			t.Run("refused", func(t *testing.T) {
				for i, m := range []misconduct{
					{"says nothing", func(f *fake) conduct { return f.silent }, func(*testing.T, *bed) host { return host{timeout: time.Second} }, late},
					{"never stops talking", always(endless), nil, nonsense},
					{"hangs up", always(hangsUp), nil, unreachable},
					{"breaks off", always(breaksOff), nil, unreachable},
					{"says nothing at all", always(calling(200, "application/json", "")), nil, nonsense},
					{"another media type", always(calling(200, "text/html", "<html>")), nil, nonsense},
					{"redirects", always(calling(302, "text/html", "")), nil, nonsense},
					{"fails with a page", always(calling(500, "text/html", "<html>")), nil, nonsense},
					{"truncates", always(saying(func(good []byte) []byte { return good[:len(good)-5] })), nil, nonsense},
					{"duplicate members", always(saying(func(good []byte) []byte { return []byte(`{"name":"x",` + `"name":"y",` + string(good[1:])) })), nil, nonsense},
					{"129 levels", always(calling(200, "application/json", strings.Repeat("[", 129)+strings.Repeat("]", 129))), nil, nonsense},
				} {
					t.Run(m.name, func(t *testing.T) {
						t.Parallel()
						b.introducesBadly(t, "fake-"+strconv.Itoa(i), binding, m)
					})
				}
			})
			t.Run("good calls afterwards", b.works)
		})
	}
}

func (b *bed) introducesBadly(t *testing.T, name string, binding canonical.Binding, m misconduct) {
	t.Helper()
	f, h := &fake{conduct: well}, host{}
	if m.host != nil {
		h = m.host(t, b)
	}
	f.silly = m.conduct(f)
	b.serve(t, name, binding, f, h)
	w := want{status: m.is.status, code: m.is.code, reason: name}
	card := letter{method: http.MethodGet, at: "/agents/" + name + "/.well-known/agent-card.json"}
	began := time.Now()
	b.refused(t, card, b.send(t, card), w)
	if took := time.Since(began); h.timeout > 0 && took > h.timeout+5*time.Second {
		t.Errorf("a caller waited %s for an agent that may take %s", took, h.timeout)
	}
	w.proof = m.is.proof
	translate := b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=" + name, body: addBody(b.number())})
	if binding == "a2a-v1" {
		translate = b.sealed(t, letter{at: "/aepb/translate?from=mcp-v1&dest=" + name, body: callBody("fake", secret)})
	}
	b.refused(t, translate, b.send(t, translate), w)
	if f.calls.Load() > 0 {
		t.Error("a message went to an agent that nobody knows")
	}
}

// Where a message may not go although the agent is listed.
func TestRefusedRoads(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	t.Run("nobody listens", func(t *testing.T) {
		l := listen(t)
		at := "https://" + l.Addr().String()
		must(t, l.Close())
		b.list(t, "away", "mcp-v1", at, host{})
		b.toAgent(t, "away", want{status: 502, code: "upstream_unreachable", proof: "internal_error"})
	})
	t.Run("a name that does not resolve", func(t *testing.T) {
		b.list(t, "nameless", "mcp-v1", "https://nothing.invalid/mcp", host{timeout: 5 * time.Second})
		b.toAgent(t, "nameless", want{status: 502, code: "upstream_unreachable", proof: "internal_error"})
	})
	t.Run("a redirect is not followed", b.followsNothing)
	t.Run("a card that sends elsewhere", b.followsNoCard)
	t.Run("a removed agent", func(t *testing.T) {
		b.serve(t, "gone", "mcp-v1", &fake{conduct: well}, host{})
		b.directory.Remove("gone")
		b.toAgent(t, "gone", want{status: 404, code: "no_translation_path", reason: "unknown_agent", proof: "internal_error"})
	})
	t.Run("an older revision that the agent does not speak", func(t *testing.T) {
		b.serve(t, "modern", "mcp-v1", &fake{conduct: well}, host{})
		l := b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&to=mcp-v1@2025-11-25&dest=modern", body: addBody(b.number())})
		b.refused(t, l, b.send(t, l), want{status: 404, code: "no_translation_path", reason: "unsupported_version", proof: "internal_error"})
	})
	t.Run("an older revision that the agent speaks", b.speaksOlder)
	t.Run("good calls afterwards", b.works)
}

func (b *bed) toAgent(t *testing.T, name string, w want) {
	t.Helper()
	l := b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=" + name, body: addBody(b.number())})
	b.refused(t, l, b.send(t, l), w)
}

// followsNothing: neither a message nor a discovery goes where a redirect points.
func (b *bed) followsNothing(t *testing.T) {
	var visits atomic.Int32
	trap := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	trap.TLS = serving(b.svid(t, "/trap"))
	trap.StartTLS()
	defer trap.Close()
	away := func(w http.ResponseWriter, r *http.Request, _ []byte) {
		http.Redirect(w, r, trap.URL, http.StatusPermanentRedirect)
	}
	w := want{status: 502, code: "bad_upstream_reply", proof: "internal_error"}
	b.serve(t, "redirects", "mcp-v1", &fake{conduct: away}, host{})
	b.toAgent(t, "redirects", w)
	b.serve(t, "moved", "mcp-v1", &fake{conduct: well, silly: away}, host{})
	b.toAgent(t, "moved", w)
	if visits.Load() > 0 {
		t.Error("the gateway followed a redirect")
	}
}

// followsNoCard: a card may not send messages to another origin. They go to the listed one.
func (b *bed) followsNoCard(t *testing.T) {
	var visits atomic.Int32
	trap := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	trap.TLS = serving(b.svid(t, "/trap"))
	trap.StartTLS()
	defer trap.Close()
	elsewhere := func(w http.ResponseWriter, r *http.Request, good []byte) {
		replacing("https://"+r.Host+"/", trap.URL)(w, r, good)
	}
	b.serve(t, "poser", "a2a-v1", &fake{conduct: well, silly: elsewhere}, host{path: "/.well-known/agent-card.json"})
	l := b.sealed(t, letter{at: "/aepb/translate?from=mcp-v1&dest=poser", body: callBody("fake", secret)})
	b.right(t, b.send(t, l), "done")
	if visits.Load() > 0 {
		t.Error("the gateway followed a card to another origin")
	}
}

// speaksOlder: the version that a caller asks for is the one on the wire,
// whatever was negotiated before.
func (b *bed) speaksOlder(t *testing.T) {
	b.works(t)
	n := b.number()
	b.right(t, b.send(t, b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&to=mcp-v1@2025-11-25&dest=calculator", body: addBody(n)})), `"sum":`+strconv.FormatInt(n+1, 10))
	received := b.tools.Received()
	last := received[len(received)-1]
	if body := string(last.Body); !strings.Contains(body, `"tools/call"`) || strings.Contains(body, "io.modelcontextprotocol/protocolVersion") {
		t.Errorf("the agent was called with %s", body)
	}
}
