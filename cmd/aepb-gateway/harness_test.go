package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
)

// asGateway in the environment makes the test binary the gateway itself, so that tests
// can send signals to a process of its own.
const asGateway = "AEPB_TEST_AS_GATEWAY"

func TestMain(m *testing.M) {
	if os.Getenv(asGateway) != "" || len(os.Args) > 1 && os.Args[1] == superviseCommand {
		main()
		return
	}
	httpapi.Quiet()
	redis.Quiet()
	goleak.VerifyTestMain(m)
}

// secret stands in every message. Neither a refusal nor a log may repeat it.
const secret = "swordfish"

// shortGrace is how long what is under way may last when a test ends.
const shortGrace = 500 * time.Millisecond

// patience bounds what a test waits for.
const patience = 30 * time.Second

// bed is a running gateway on real TLS listeners, with two good agents behind
// it (an MCP server and an A2A agent, both made with the protocols' SDKs) and
// callers of every kind in front.
type bed struct {
	*service
	ledger     *ledger // of what the gateway stores
	dev        *identity.Development
	dir        string // of dev
	at         addresses
	rpc        string // where A2A is served over gRPC
	adminToken string
	logs       *journal
	end        context.CancelFunc // begins the stop of the service
	stop       func()             // ends the service and waits for that

	me        *ecttest.Party // the development client
	client    *http.Client   // shows its SVID
	anonymous *http.Client   // shows no certificate
	judge     *ect.Verifier  // verifies what the gateway signed

	tools   *peers.MCPServer // "calculator", and "forecast" with the one tool weather
	talker  *peers.A2AAgent  // "concierge"
	counter atomic.Int64

	slim *slimNet // nil: there is none
}

// plan says what is special about a gateway.
type plan struct {
	observe func(*stores) // sees what the gateway stores before the gateway does; nil: the ledger alone
	config  config.Config // agents besides the good ones, limits, policy
	serve   bool          // as serve would run it, not dev: no anonymous callers, no plain HTTP

	clock func() time.Time // of circuit breakers; nil: that of the machine

	noToken bool // operators show certificates
	noAINP  bool // AINP is not spoken

	also []protocolFactory // protocols beside the known
}

func newBed(t *testing.T, p plan) *bed {
	t.Helper()
	b := &bed{ledger: &ledger{heard: map[string]bool{}}, logs: &journal{}, adminToken: "the-operators-own-token-26-x", dir: t.TempDir()}
	var err error
	b.dev, err = identity.LoadOrCreate(b.dir, devTrustDomain, time.Now)
	must(t, err)
	b.goodAgents(t, &p.config)
	if p.config.Admin.Operators == nil {
		p.config.Admin.Operators = approvers()
	}
	if p.config.ShutdownDelay == nil && p.config.ShutdownGrace == 0 { // agents of tests may never end
		p.config.ShutdownDelay, p.config.ShutdownGrace = new(config.Duration), config.Duration(shortGrace)
	}
	b.start(t, p)
	b.me = b.party(t, b.dev.Client)
	b.client = b.caller(t, b.dev.Client)
	b.anonymous = b.caller(t, nil)
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: b.dev.Bundle})
	must(t, err)
	b.judge, err = ect.NewVerifier(ect.VerifierDeps{Keys: keys})
	must(t, err)
	return b
}

// approverPath is the path of the identity that decides what waits for a human.
const approverPath = "/people/approver"

// approvers are those who decide: a person, and the callers of the matrix.
func approvers() map[string]config.Operator {
	out := map[string]config.Operator{}
	for _, path := range []string{approverPath, "/troupe"} {
		out["approver "+path] = config.Operator{ID: "spiffe://" + devTrustDomain + path, Roles: []string{"approver"}}
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// goodAgents starts the agents that answer well and lists them.
func (b *bed) goodAgents(t *testing.T, c *config.Config) {
	t.Helper()
	calculator, concierge := b.svid(t, "/calculator"), b.svid(t, "/concierge")
	var err error
	b.tools, err = peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: peers.Deps{TLS: serving(calculator)}, Stateless: true})
	must(t, err)
	b.talker, err = peers.NewA2AAgent(t.Context(), peers.Deps{TLS: serving(concierge)})
	must(t, err)
	forecast, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{
		Deps: peers.Deps{TLS: serving(calculator)}, Stateless: true, Tools: []string{"weather"},
	})
	must(t, err)
	for _, stop := range []func(context.Context) error{b.tools.Stop, b.talker.Stop, forecast.Stop} {
		t.Cleanup(func() { stopWithin(t, stop) })
	}
	if c.Agents == nil {
		c.Agents = map[string]config.Agent{}
	}
	everybody := []string{"spiffe://" + devTrustDomain + "/*"}
	maps.Copy(c.Agents, map[string]config.Agent{
		"calculator": {ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: b.tools.URL()}}},
		"concierge":  {ID: string(concierge.ID), Endpoints: []config.Endpoint{{Binding: "a2a-v1", URL: b.talker.URL()}}},
		"forecast":   {ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: forecast.URL()}}},
		"members": {
			ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: b.tools.URL()}},
			Callers: everybody, // but not the nameless
		},
		"closed": {
			ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: b.tools.URL()}},
			Callers: []string{"spiffe://" + devTrustDomain + "/somebody-else"},
		},
		"strict": {
			ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: b.tools.URL()}},
			RequireECT: true,
		},
	})
}

func stopWithin(t *testing.T, stop func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// start runs the service until the test ends and expects a clean stop.
func (b *bed) start(t *testing.T, p plan) {
	t.Helper()
	public, admin, metrics := listen(t), listen(t), listen(t)
	b.at = addresses{Public: "https://" + public.Addr().String(), Admin: "https://" + admin.Addr().String(), Metrics: "http://" + metrics.Addr().String()}
	s, err := devSettings(b.dev, p.config, b.at, b.adminToken, b.logs)
	must(t, err)
	s.dev, s.metrics, s.clock = !p.serve, metrics, p.clock
	s.grpc = listen(t)
	b.rpc = s.grpc.Addr().String()
	s.ainp, err = developmentAINP(config.AINP{}, b.dir)
	must(t, err)
	if p.noAINP {
		s.ainp = tainp.Identity{}
	}
	s.uacp, s.also, s.observe, s.epoch = listen(t), p.also, func(k *stores) {
		if p.observe != nil {
			p.observe(k)
		}
		b.ledger.observe(k)
	}, time.Now().Truncate(time.Second)
	s.slim, err = readSLIM(p.config.SLIM)
	must(t, err)
	b.at.UACP = "uacps://" + s.uacp.Addr().String()
	if s.datagrams, err = (&ports{}).listenDatagrams(p.config, io.Discard); s.datagrams != nil {
		b.at.UACP = s.datagrams.LocalAddr().String()
	}
	must(t, err)
	if p.noToken {
		s.adminToken = ""
	}
	b.service, err = wire(s)
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b.end = cancel
	done := make(chan error, 1)
	go func() { done <- b.run(ctx, public, admin) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the service did not stop cleanly: %v", err)
		}
	})
	stop := b.stop
	t.Cleanup(func() {
		stop()
		b.logs.inspect(t)
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	return l
}

// svid issues a good certificate for this machine.
func (b *bed) svid(t *testing.T, path string) *identity.SVID {
	t.Helper()
	return issue(t, b.dev.Authority, path, identity.SVIDRequest{})
}

func issue(t *testing.T, a *identity.Authority, path string, r identity.SVIDRequest) *identity.SVID {
	t.Helper()
	if r.DNSNames == nil && r.IPs == nil {
		r.DNSNames, r.IPs = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	s, err := a.Issue(path, r)
	must(t, err)
	return s
}

// authority is a certificate authority that the gateway does not trust, or
// trusted when now was otherwise.
func authority(t *testing.T, domain string, now func() time.Time) *identity.Authority {
	t.Helper()
	a, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: domain, Now: now})
	must(t, err)
	return a
}

func serving(s *identity.SVID) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{s.Certificate()}, MinVersion: tls.VersionTLS13}
}

// party is an SVID as somebody who mints tokens.
func (b *bed) party(t *testing.T, s *identity.SVID) *ecttest.Party {
	t.Helper()
	key, ok := s.Key.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("not an ECDSA key")
	}
	kid, err := ect.Thumbprint(&key.PublicKey)
	must(t, err)
	return &ecttest.Party{ID: s.ID, Key: key, Chain: s.Chain, KeyID: kid}
}

// self is the gateway's identity.
func (b *bed) self() string { return string(b.dev.Gateway.ID) }

// caller is a client that shows an SVID, or none.
func (b *bed) caller(t *testing.T, s *identity.SVID) *http.Client {
	t.Helper()
	return b.dialing(t, b.clientTLS(t, s))
}

func (b *bed) clientTLS(t *testing.T, s *identity.SVID) *tls.Config {
	t.Helper()
	some := s
	if some == nil {
		some = b.dev.Client
	}
	source, err := identity.NewSource(some, b.dev.Bundle)
	must(t, err)
	conf := source.ClientConfig("")
	if s == nil {
		conf.GetClientCertificate = nil
	}
	return conf
}

// dialing is a client with exactly these TLS settings.
func (b *bed) dialing(t *testing.T, conf *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: len(conf.NextProtos) == 0}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// journal is the gateway's log.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// inspect: no request made a handler panic, and no log quotes a message or a
// token (a JOSE header or claims set in base64url begins with eyJ).
func (j *journal) inspect(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, never := range []string{"panic", secret, "eyJ"} {
		if at := strings.Index(j.text.String(), never); at >= 0 {
			line, _, _ := strings.Cut(j.text.String()[strings.LastIndexByte(j.text.String()[:at], '\n')+1:], "\n")
			t.Errorf("%q in the log: %s", never, line)
		}
	}
}

// letter is one request to the gateway. Zero fields make the good call: an A2A
// message for the calculator, over the client's own connection. Its tokens
// must be given.
type letter struct {
	via    *http.Client // nil: the development client
	method string       // "": POST
	at     string       // path and query; "": the translate endpoint, from A2A to the calculator; or a whole URL
	media  string       // "": application/json; "-": none
	body   string
	header map[string]string
	tokens []string
	host   string
}

// The ways in.
const (
	toCalculator = "/aepb/translate?from=a2a-v1&dest=calculator"
	toConcierge  = "/aepb/translate?from=mcp-v1&dest=concierge"
	toNobody     = "/aepb/translate?from=a2a-v1&to=mcp-v1"
	doorA2A      = "/agents/calculator/a2a"
	doorMCP      = "/agents/concierge/mcp"
)

// reply is an answer, read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (b *bed) send(t *testing.T, l letter) reply {
	t.Helper()
	got, err := b.try(t, l)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	return got
}

func (b *bed) try(t *testing.T, l letter) (reply, error) {
	t.Helper()
	if l.via == nil {
		l.via = b.client
	}
	return receive(l.via, b.request(t, l))
}

func receive(via *http.Client, request *http.Request) (reply, error) {
	response, err := via.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 32<<20))
	return reply{response.StatusCode, response.Header, body}, err
}

func (b *bed) request(t *testing.T, l letter) *http.Request {
	t.Helper()
	if l.method == "" {
		l.method = http.MethodPost
	}
	if l.at == "" {
		l.at = toCalculator
	}
	if !strings.HasPrefix(l.at, "https://") {
		l.at = b.at.Public + l.at
	}
	request, err := http.NewRequestWithContext(t.Context(), l.method, l.at, strings.NewReader(l.body))
	must(t, err)
	if l.media == "" {
		l.media = "application/json"
	}
	if l.media != "-" {
		request.Header.Set("Content-Type", l.media)
	}
	for name, value := range l.header {
		request.Header.Set(name, value)
	}
	for _, token := range l.tokens {
		request.Header.Add(ect.HeaderName, token)
	}
	request.Host = l.host
	return request
}

// recipe is a good token for a body.
func (b *bed) recipe(body string) ecttest.Recipe {
	return ecttest.Recipe{Claims: ect.Claims{
		Audience: []string{b.self()}, Workflow: string(ect.NewID()), OutputHash: ect.Hash([]byte(body)),
	}}
}

// token mints a good token of the development client.
func (b *bed) token(t *testing.T, body string) string {
	t.Helper()
	return ecttest.Mint(t, b.me, b.recipe(body))
}

// sealed is a letter with a good token for its body.
func (b *bed) sealed(t *testing.T, l letter) letter {
	t.Helper()
	l.tokens = append([]string{b.token(t, l.body)}, l.tokens...)
	return l
}

// number is one that no other call of this gateway has: big enough that a
// double would spoil it.
func (b *bed) number() int64 { return 9007199254740993 + b.counter.Add(2) }

// addBody asks the calculator for n + 1, in A2A.
func addBody(n int64) string {
	return `{"jsonrpc":"2.0","id":"` + strconv.FormatInt(n, 10) + `","method":"SendMessage","params":{"message":{` +
		`"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` + secret + `"},` +
		`{"data":{"skill":"add","input":{"a":` + strconv.FormatInt(n, 10) + `,"b":1}}}]}}}`
}

// textBody is a text, in A2A.
func textBody(text string) string {
	return `{"jsonrpc":"2.0","id":"t","method":"SendMessage","params":{"message":{` +
		`"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` + text + `"}]}}}`
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// callBody calls a tool with one argument, in MCP of 2026-07-28.
func callBody(tool, message string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool +
		`","arguments":{"message":"` + message + `"},` + modernMeta + `}}`
}

// mirror is the header that repeats an MCP message.
func mirror(method, tool string) map[string]string {
	h := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Accept": "application/json, text/event-stream"}
	if tool != "" {
		h["Mcp-Name"] = tool
	}
	return h
}

// works makes good calls through every kind of door: whatever happened before,
// the gateway still answers, and with the right value.
func (b *bed) works(t *testing.T) {
	t.Helper()
	b.worksFor(t, b.client, b.me)
}

func (b *bed) worksFor(t *testing.T, via *http.Client, who *ecttest.Party) {
	t.Helper()
	n := b.number()
	body, sum := addBody(n), `"sum":`+strconv.FormatInt(n+1, 10)
	got := b.send(t, letter{via: via, body: body, tokens: []string{ecttest.Mint(t, who, b.recipe(body))}})
	b.right(t, got, sum)
	if len(got.header.Values(ect.HeaderName)) != 2 {
		t.Errorf("a good call got %d ECTs, want one of each leg", len(got.header.Values(ect.HeaderName)))
	}
	n = b.number()
	b.right(t, b.send(t, letter{via: via, at: doorA2A, body: addBody(n), header: map[string]string{"A2A-Version": "1.0"}}), `"sum":`+strconv.FormatInt(n+1, 10))
	word := "word-" + strconv.FormatInt(n, 10)
	b.right(t, b.send(t, letter{via: via, at: doorMCP, body: callBody("concierge", word), header: mirror("tools/call", "concierge")}), "You said: "+word)
}

func (b *bed) right(t *testing.T, got reply, value string) {
	t.Helper()
	if got.status != http.StatusOK || !strings.Contains(string(got.body), value) {
		t.Errorf("a good call got %d without %s: %s", got.status, value, got.body)
	}
	b.proofs(t, got)
}

// proofs verifies every token of an answer.
func (b *bed) proofs(t *testing.T, got reply) []ect.Claims {
	t.Helper()
	var claims []ect.Claims
	for _, compact := range got.header.Values(ect.HeaderName) {
		v, err := b.judge.Verify(context.WithoutCancel(t.Context()), compact, ect.Check{Purpose: ect.Parent})
		if err != nil {
			t.Errorf("an ECT of the gateway does not verify: %v", err)
			continue
		}
		if v.Claims().Issuer != b.dev.Gateway.ID {
			t.Errorf("an ECT of %s", v.Claims().Issuer)
		}
		claims = append(claims, v.Claims())
	}
	return claims
}

// jsonIn reads a document whose members are all known.
func jsonIn(t *testing.T, text []byte, into any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("unreadable: %v: %s", err, text)
	}
}

// hugeBody is a good message of exactly so many bytes.
func hugeBody(size int) string {
	head, tail, _ := strings.Cut(addBody(1), secret)
	return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
}

// noNames is an SVID without host names, as a client has it.
func noNames() identity.SVIDRequest {
	return identity.SVIDRequest{DNSNames: []string{}, IPs: []net.IP{}}
}

// expired is an SVID of the gateway's own authority that ran out a day ago. The
// authority is opened again with a clock that is behind.
func expired(t *testing.T, b *bed, path string) *identity.SVID {
	t.Helper()
	past := func() time.Time { return time.Now().Add(-48 * time.Hour) }
	former, err := identity.LoadOrCreate(b.dir, devTrustDomain, past)
	must(t, err)
	return issue(t, former.Authority, path, identity.SVIDRequest{DNSNames: []string{}, IPs: []net.IP{}, TTL: 24 * time.Hour})
}
