package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	domain                = "example.org"
	publicIP              = "93.184.215.14"
	agentID  ect.Identity = "spiffe://example.org/agents/a"
)

// book is a resolver whose answers to a name are given one after another; the
// last one stays.
type book struct {
	mu      sync.Mutex
	answers map[string][][]string
	queries int
}

func names(host string, answers ...[]string) *book {
	return &book{answers: map[string][][]string{host: answers}}
}

func (b *book) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queries++
	answers, ok := b.answers[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		b.answers[host] = answers[1:]
	}
	var out []netip.Addr
	for _, text := range answers[0] {
		out = append(out, netip.MustParseAddr(text))
	}
	return out, nil
}

// world is an authority, ourselves, and an agent's server that counts requests.
type world struct {
	authority *identity.Authority
	source    *identity.Source
	server    *httptest.Server
	requests  atomic.Int64
	conns     atomic.Int64
}

func newWorld(t *testing.T, handler http.HandlerFunc) *world {
	t.Helper()
	w := &world{}
	var err error
	if w.authority, err = identity.NewAuthority(identity.AuthorityDeps{TrustDomain: domain}); err != nil {
		t.Fatal(err)
	}
	w.source = w.party(t, "/gateway")
	w.server = w.serve(t, w.party(t, "/agents/a").ServerConfig(), handler)
	return w
}

func (w *world) party(t *testing.T, path string) *identity.Source {
	t.Helper()
	svid, err := w.authority.Issue(path, identity.SVIDRequest{
		DNSNames: []string{"localhost", "agent.test"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := w.authority.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	source, err := identity.NewSource(svid, bundle)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func (w *world) serve(t *testing.T, config *tls.Config, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.requests.Add(1)
		if handler != nil {
			handler(rw, r)
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			w.conns.Add(1)
		}
	}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.EnableHTTP2 = true
	if config != nil {
		server.TLS = config
		server.StartTLS()
		server.TLS.Certificates = nil // httptest adds its own
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

// guard makes a Guard whose every connection ends up at the world's server,
// whatever address was dialed; the addresses are in the list.
func (w *world) guard(t *testing.T, deps Deps) (*Guard, func() []string) {
	t.Helper()
	if deps.TLS == nil {
		deps.TLS = w.source
	}
	g, err := New(deps)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var dialed []string
	there := w.server.Listener.Addr().String()
	g.network = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		dialed = append(dialed, address)
		mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, network, there)
	}
	t.Cleanup(g.CloseIdle)
	return g, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(dialed)
	}
}

func get(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, response *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// call does a request, drains the answer and gives the error.
func call(t *testing.T, g *Guard, url string, expected ect.Identity) error {
	t.Helper()
	response, err := g.DoAs(get(t, url), expected)
	if err == nil {
		read(t, response)
	}
	return err
}

func reasonOf(err error) Reason {
	if denied, ok := errors.AsType[*DeniedError](err); ok {
		return denied.Reason
	}
	return ""
}

func TestGuard_Destinations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	type grants = Config
	tests := []struct {
		name   string
		url    string
		answer []string
		config Config
		want   Reason // empty: let through
	}{
		{"public", "https://agent.test/", []string{publicIP}, grants{}, ""},
		{"public, mapped by the resolver", "https://agent.test/", []string{"::ffff:" + publicIP}, grants{}, ""},
		{"public, other case and final dot", "https://AGENT.test./", []string{publicIP}, grants{}, ""},
		{"plain http", "http://agent.test/", []string{publicIP}, grants{}, ReasonScheme},
		{"plain http in development", "http://agent.test/", []string{publicIP}, grants{AllowLoopbackHTTP: true}, ReasonScheme},
		{"plain http, name on loopback", "http://agent.test/", []string{"127.0.0.1"}, grants{AllowLoopbackHTTP: true, AllowPrivate: []string{"agent.test"}}, ReasonScheme},
		{"plain http to loopback, not in development", "http://127.0.0.1/", nil, grants{AllowPrivate: []string{"127.0.0.1"}}, ReasonScheme},
		{"plain http to loopback, not granted", "http://127.0.0.1/", nil, grants{AllowLoopbackHTTP: true}, ReasonLoopback},
		{"plain http to a localhost that is none", "http://localhost/", []string{publicIP}, grants{AllowLoopbackHTTP: true}, ReasonScheme},
		{"websocket", "wss://agent.test/", []string{publicIP}, grants{}, ReasonScheme},
		{"file", "file://agent.test/etc/passwd", []string{publicIP}, grants{}, ReasonScheme},
		{"user in URL", "https://user:pw@agent.test/", []string{publicIP}, grants{}, ReasonCredentials},
		{"other script", "https://agént.test/", []string{publicIP}, grants{}, ReasonURL},
		{"no host", "https:///x", nil, grants{}, ReasonURL},
		{"opaque", "https:agent.test", nil, grants{}, ReasonURL},
		{"no address", "https://agent.test/", []string{}, grants{}, ReasonNoAddress},

		{"loopback", "https://127.0.0.1/", nil, grants{}, ReasonLoopback},
		{"loopback, far end", "https://127.8.9.10/", nil, grants{}, ReasonLoopback},
		{"loopback IPv6", "https://[::1]/", nil, grants{}, ReasonLoopback},
		{"loopback by name", "https://agent.test/", []string{"127.0.0.1"}, grants{}, ReasonLoopback},
		{"mapped loopback", "https://[::ffff:127.0.0.1]/", nil, grants{}, ReasonMapped},
		{"mapped loopback by name", "https://agent.test/", []string{"::ffff:127.0.0.1"}, grants{}, ReasonLoopback},
		{"private 10", "https://agent.test/", []string{"10.1.2.3"}, grants{}, ReasonPrivate},
		{"private 172", "https://agent.test/", []string{"172.31.255.255"}, grants{}, ReasonPrivate},
		{"private 192", "https://agent.test/", []string{"192.168.0.1"}, grants{}, ReasonPrivate},
		{"just beside private", "https://agent.test/", []string{"172.32.0.1"}, grants{}, ""},
		{"unique local", "https://agent.test/", []string{"fd12::1"}, grants{}, ReasonPrivate},
		{"link-local", "https://agent.test/", []string{"169.254.1.1"}, grants{}, ReasonLinkLocal},
		{"link-local IPv6", "https://agent.test/", []string{"fe80::1"}, grants{}, ReasonLinkLocal},
		{"link-local with zone", "https://[fe80::1%25lo]/", nil, grants{}, ReasonLinkLocal},
		{"metadata", "https://169.254.169.254/", nil, grants{}, ReasonMetadata},
		{"metadata by name", "https://agent.test/", []string{"169.254.169.254"}, grants{}, ReasonMetadata},
		{"metadata IPv6", "https://agent.test/", []string{"fd00:ec2::254"}, grants{}, ReasonMetadata},
		{"metadata, Azure", "https://agent.test/", []string{"168.63.129.16"}, grants{}, ReasonMetadata},
		{"carrier NAT", "https://agent.test/", []string{"100.64.0.1"}, grants{}, ReasonShared},
		{"multicast", "https://agent.test/", []string{"224.0.0.1"}, grants{}, ReasonMulticast},
		{"multicast IPv6", "https://agent.test/", []string{"ff02::1"}, grants{}, ReasonMulticast},
		{"broadcast", "https://agent.test/", []string{"255.255.255.255"}, grants{}, ReasonMulticast},
		{"unspecified", "https://0.0.0.0/", nil, grants{}, ReasonUnspecified},
		{"unspecified IPv6", "https://[::]/", nil, grants{}, ReasonUnspecified},
		{"documentation", "https://agent.test/", []string{"192.0.2.1"}, grants{}, ReasonDocumentation},
		{"documentation IPv6", "https://agent.test/", []string{"2001:db8::1"}, grants{}, ReasonDocumentation},
		{"NAT64 of loopback", "https://agent.test/", []string{"64:ff9b::7f00:1"}, grants{}, ReasonTranslated},
		{"6to4 of private", "https://agent.test/", []string{"2002:a00:1::1"}, grants{}, ReasonTranslated},
		{"IPv4-compatible", "https://agent.test/", []string{"::7f00:1"}, grants{}, ReasonTranslated},
		{"no part of the internet yet", "https://agent.test/", []string{"4000::1"}, grants{}, ReasonReserved},
		{"class E", "https://agent.test/", []string{"240.0.0.1"}, grants{}, ReasonReserved},
		{"one bad address of two", "https://agent.test/", []string{publicIP, "10.0.0.1"}, grants{}, ReasonPrivate},

		{"granted by name", "https://agent.test/", []string{"10.0.0.1"}, grants{AllowPrivate: []string{"Agent.Test"}}, ""},
		{"granted by name and port", "https://agent.test/", []string{"10.0.0.1"}, grants{AllowPrivate: []string{"agent.test:443"}}, ""},
		{"granted another port", "https://agent.test:8443/", []string{"10.0.0.1"}, grants{AllowPrivate: []string{"agent.test:443"}}, ReasonPrivate},
		{"granted another name", "https://agent.test/", []string{"10.0.0.1"}, grants{AllowPrivate: []string{"other.test"}}, ReasonPrivate},
		{"granted by network", "https://agent.test/", []string{"10.0.0.1"}, grants{AllowPrivate: []string{"10.0.0.0/24"}}, ""},
		{"granted another network", "https://agent.test/", []string{"10.0.1.1"}, grants{AllowPrivate: []string{"10.0.0.0/24"}}, ReasonPrivate},
		{"granted by address", "https://127.0.0.1:8443/", nil, grants{AllowPrivate: []string{"127.0.0.1:8443"}}, ""},
		{"a granted name cannot become metadata", "https://agent.test/", []string{"169.254.169.254"}, grants{AllowPrivate: []string{"agent.test"}}, ReasonMetadata},
		{"a granted name cannot become metadata IPv6", "https://agent.test/", []string{"fd00:ec2::254"}, grants{AllowPrivate: []string{"agent.test"}}, ReasonMetadata},
		{"metadata granted by address", "https://169.254.169.254/", nil, grants{AllowPrivate: []string{"169.254.169.254"}}, "handshake"},
		{"mapped is never granted", "https://[::ffff:127.0.0.1]/", nil, grants{AllowPrivate: []string{"::ffff:127.0.0.1", "127.0.0.0/8"}}, ReasonMapped},
		{"unspecified is never granted", "https://0.0.0.0/", nil, grants{AllowPrivate: []string{"0.0.0.0", "0.0.0.0/0"}}, ReasonUnspecified},

		{"listed", "https://agent.test/", []string{publicIP}, grants{AllowHosts: []string{"agent.test"}}, ""},
		{"listed below", "https://agent.test/", []string{publicIP}, grants{AllowHosts: []string{"*.test"}}, ""},
		{"listed with port", "https://agent.test/", []string{publicIP}, grants{AllowHosts: []string{"agent.test:443"}}, ""},
		{"listed with another port", "https://agent.test/", []string{publicIP}, grants{AllowHosts: []string{"agent.test:444"}}, ReasonNotListed},
		{"not listed", "https://agent.test/", []string{publicIP}, grants{AllowHosts: []string{"other.test"}}, ReasonNotListed},
		{"ends like a listed one", "https://agent.test/", []string{publicIP}, grants{AllowHosts: []string{"*.gent.test", "gent.test"}}, ReasonNotListed},
		{"listed but private", "https://agent.test/", []string{"10.0.0.1"}, grants{AllowHosts: []string{"agent.test"}}, ReasonPrivate},
		{"granted is listed", "https://agent.test/", []string{"10.0.0.1"}, grants{AllowHosts: []string{"other.test"}, AllowPrivate: []string{"agent.test"}}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g, dialed := w.guard(t, Deps{Config: test.config, Resolver: names("agent.test", test.answer)})
			g.resolver.(*book).answers["localhost"] = [][]string{{publicIP}}
			request := get(t, "https://placeholder.test/")
			if err := parseInto(request, test.url); err != nil {
				t.Fatal(err)
			}
			// The id, not the name, is proved here: some of these names are in no certificate.
			expected := agentID
			if strings.HasPrefix(test.url, "http:") {
				expected = ""
			}
			response, err := g.DoAs(request, expected)
			if err == nil {
				read(t, response)
			}
			want := test.want
			if want == "handshake" { // let through; the address is in no name check
				want = ""
			}
			if got := reasonOf(err); got != want {
				t.Fatalf("got %v, want %q", err, want)
			}
			if want == "" && err != nil {
				t.Fatal(err)
			}
			if reached := len(dialed()) > 0; reached != (want == "") {
				t.Errorf("dialed %v", dialed())
			}
		})
	}
}

func TestGuard_DNSRebinding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	t.Run("one lookup, and its answer is dialed", func(t *testing.T) {
		t.Parallel()
		resolver := names("agent.test", []string{publicIP}, []string{"169.254.169.254"})
		g, dialed := w.guard(t, Deps{Resolver: resolver})
		if err := call(t, g, "https://agent.test/", ""); err != nil {
			t.Fatal(err)
		}
		if resolver.queries != 1 || !slices.Equal(dialed(), []string{publicIP + ":443"}) {
			t.Errorf("%d lookups, dialed %v", resolver.queries, dialed())
		}
		g.CloseIdle() // the next connection asks again, and is told something else
		if got := reasonOf(call(t, g, "https://agent.test/", "")); got != ReasonMetadata {
			t.Errorf("got %q", got)
		}
		if len(dialed()) != 1 {
			t.Errorf("dialed %v", dialed())
		}
	})
	t.Run("the next address after a dead one is of the same answer", func(t *testing.T) {
		t.Parallel()
		resolver := names("agent.test", []string{"93.184.215.1", publicIP}, []string{"127.0.0.1"})
		g, dialed := w.guard(t, Deps{Resolver: resolver})
		there := g.network
		g.network = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := there(ctx, network, address)
			if err == nil && strings.HasPrefix(address, "93.184.215.1:") {
				return nil, errors.Join(errors.New("refused"), conn.Close())
			}
			return conn, err
		}
		if err := call(t, g, "https://agent.test/", ""); err != nil {
			t.Fatal(err)
		}
		if resolver.queries != 1 || !slices.Equal(dialed(), []string{"93.184.215.1:443", publicIP + ":443"}) {
			t.Errorf("%d lookups, dialed %v", resolver.queries, dialed())
		}
	})
}

func TestAllow_AtRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g, dialed := w.guard(t, Deps{Resolver: names("agent.test", []string{"10.0.0.1"})})
	step := func(name string, want Reason, connections int) {
		t.Helper()
		if err := call(t, g, "https://agent.test/", ""); reasonOf(err) != want || (err == nil) != (want == "") {
			t.Fatalf("%s: %v", name, err)
		}
		if len(dialed()) != connections {
			t.Fatalf("%s: dialed %v", name, dialed())
		}
	}
	step("at first", ReasonPrivate, 0)
	g.Allow("agent.test:443")
	step("allowed", "", 1)
	g.Allow("agent.test:443")
	g.Disallow("agent.test:443")
	step("two agents, one gone", "", 1)
	g.Disallow("agent.test:443")
	step("both gone, in spite of the pooled connection", ReasonPrivate, 1)
	g.Disallow("agent.test:443")
	g.Allow("agent.test")
	step("one Disallow too many is no debt", "", 2)
	g.Disallow("agent.test")
	for _, nonsense := range []string{"", "://", "a b", "agent.test:https", "0.0.0.0/0"} {
		g.Allow(nonsense)
		g.Disallow(nonsense)
		g.Allow(nonsense)
	}
	step("nonsense allows nothing", ReasonPrivate, 2)
}

// What may be called is asked per request, not only per connection.
func TestPool_GrantIsCheckedPerRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g, _ := w.guard(t, Deps{Config: Config{AllowHosts: []string{"other.test"}}, Resolver: names("agent.test", []string{publicIP})})
	g.Allow("agent.test")
	if err := call(t, g, "https://agent.test/", ""); err != nil {
		t.Fatal(err)
	}
	g.grants.remove("agent.test") // as it is for an instant within Disallow
	if got := reasonOf(call(t, g, "https://agent.test/", "")); got != ReasonNotListed {
		t.Errorf("got %q", got)
	}
}

func TestNew_RefusesConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, config := range map[string]Config{
		"private URL":      {AllowPrivate: []string{"https://agent.test"}},
		"private empty":    {AllowPrivate: []string{""}},
		"private bad CIDR": {AllowPrivate: []string{"10.0.0.0/33"}},
		"host URL":         {AllowHosts: []string{"https://agent.test"}},
		"host wildcard":    {AllowHosts: []string{"*"}},
		"host bad port":    {AllowHosts: []string{"agent.test:https"}},
	} {
		if _, err := New(Deps{TLS: w.source, Config: config}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New(Deps{}); err == nil {
		t.Error("accepted a guard without TLS")
	}
}

func parseInto(request *http.Request, text string) error {
	parsed, err := request.URL.Parse(text)
	if err != nil {
		return err
	}
	if strings.HasPrefix(text, "https:///") { // URL.Parse would fill in the host
		parsed.Host = ""
	}
	request.URL = parsed
	return nil
}

func TestGuard_ConnectTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	svid := w.source
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Deps{TLS: svid, Config: Config{ConnectTimeout: 8 * time.Second}, Resolver: names("agent.test", []string{publicIP, "93.184.215.15"})})
		if err != nil {
			t.Fatal(err)
		}
		var waits []time.Duration
		g.network = func(ctx context.Context, _, _ string) (net.Conn, error) {
			start := time.Now()
			<-ctx.Done()
			waits = append(waits, time.Since(start))
			return nil, ctx.Err()
		}
		_, err = g.DialTLS(t.Context(), "agent.test:443", "")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if !slices.Equal(waits, []time.Duration{4 * time.Second, 4 * time.Second}) {
			t.Errorf("waited %v", waits)
		}
	})
}
