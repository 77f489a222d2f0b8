package directory_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const binding canonical.Binding = "toy-v1"

// agentSays is a describer that answers from memory and counts.
type agentSays struct {
	request atomic.Int32
	fails   atomic.Bool
	slow    time.Duration
	text    string
}

func (a *agentSays) Describe(ctx context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	a.request.Add(1)
	select {
	case <-time.After(a.slow):
	case <-ctx.Done():
		return nil, e, ctx.Err()
	}
	if a.fails.Load() {
		return nil, e, &transport.UnreachableError{Agent: e.Agent}
	}
	if e.Version == "" {
		e.Version = "1"
	}
	return &canonical.Description{Name: "toy", Description: a.text}, e, nil
}

type gate struct {
	mu   sync.Mutex
	open map[string]int // counted, as egress counts
}

func (g *gate) Allow(address string)    { g.add(address, 1) }
func (g *gate) Disallow(address string) { g.add(address, -1) }
func (g *gate) add(address string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = map[string]int{}
	}
	g.open[address] += n
}

func (g *gate) opened(address string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open[address]
}

func newDirectory(t *testing.T, says *agentSays, egress *gate, plain bool) *directory.Directory {
	t.Helper()
	d, err := directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{binding: says, "other-v1": says, "ainp-v1": says},
		Egress:     egress, PlainLoopback: plain, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func agent(name, url string) directory.Agent {
	return directory.Agent{Name: name, Endpoints: []directory.Endpoint{{Binding: binding, URL: url}}}
}

// ofAINP is an agent of the protocol that is also spoken over WebSocket.
func ofAINP(url string) directory.Agent {
	return directory.Agent{Name: "a", Endpoints: []directory.Endpoint{{Binding: "ainp-v1", URL: url}}}
}

func TestPut_Refuses(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, &agentSays{}, &gate{}, true)
	twice := agent("a", "https://a.example")
	twice.Endpoints = append(twice.Endpoints, twice.Endpoints[0])
	for name, bad := range map[string]directory.Agent{
		"no name":           agent("", "https://a.example"),
		"upper case":        agent("A", "https://a.example"),
		"leading dash":      agent("-a", "https://a.example"),
		"slash":             agent("a/b", "https://a.example"),
		"long name":         agent(strings.Repeat("a", 64), "https://a.example"),
		"dots":              agent("../a", "https://a.example"),
		"blank in the name": agent("a b", "https://a.example"),
		"foreign letter":    agent("ä", "https://a.example"),
		"no endpoint":       {Name: "a"},
		"unknown protocol":  {Name: "a", Endpoints: []directory.Endpoint{{Binding: "x-v1", URL: "https://a.example"}}},
		"two of a protocol": twice,
		"plain http":        agent("a", "http://a.example"),
		"private address":   agent("a", "http://10.0.0.1/mcp"),
		"begins like us":    agent("a", "http://localhost.example/mcp"),
		"ends otherwise":    agent("a", "http://127.0.0.1.example/mcp"),
		"another scheme":    agent("a", "ftp://a.example"),
		"no address":        agent("a", ""),
		"a line break":      agent("a", "https://a.example/\r\nX: y"),
		"credentials":       agent("a", "https://u:p@a.example"),
		"fragment":          agent("a", "https://a.example/#x"),
		"relative":          agent("a", "/a"),
		"file":              agent("a", "file:///etc/passwd"),
		"opaque":            agent("a", "https:a.example"),
		"plain WebSocket":   ofAINP("ws://a.example/ainp"),
		"wss not for AINP":  agent("a", "wss://a.example"),
		"wss with no host":  ofAINP("wss:///ainp"),
		"wss credentials":   ofAINP("wss://u:p@a.example/ainp"),
	} {
		var invalid *directory.InvalidAgentError
		if err := d.Put(bad); !errors.As(err, &invalid) {
			t.Errorf("%s: got %v, want an InvalidAgentError", name, err)
		}
	}
	if len(d.List()) != 0 {
		t.Error("a refused agent is listed")
	}
	if err := d.Put(agent("a", "http://127.0.0.1:1/x")); err != nil {
		t.Errorf("loopback in dev: %v", err)
	}
	strict := newDirectory(t, &agentSays{}, &gate{}, false)
	if err := strict.Put(agent("a", "http://127.0.0.1:1/x")); err == nil {
		t.Error("plain http to loopback is accepted outside dev")
	}
	if err := d.Put(ofAINP("ws://127.0.0.1:1/ainp")); err != nil {
		t.Errorf("a WebSocket to loopback in dev: %v", err)
	}
	if err := strict.Put(ofAINP("ws://127.0.0.1:1/ainp")); err == nil {
		t.Error("a plain WebSocket to loopback is accepted outside dev")
	}
	if err := strict.Put(ofAINP("wss://a.example/ainp")); err != nil {
		t.Errorf("a WebSocket with TLS: %v", err)
	}
}

func TestDirectory_FindAndRemove(t *testing.T) {
	t.Parallel()
	egress := &gate{}
	d := newDirectory(t, &agentSays{}, egress, false)
	a := agent("pricing", "https://pricing.example/mcp")
	a.ID = "spiffe://example.com/agent/pricing"
	for _, put := range []directory.Agent{a, agent("same-host", "https://pricing.example/other")} {
		if err := d.Put(put); err != nil {
			t.Fatal(err)
		}
	}
	for _, dest := range []string{"pricing", "spiffe://example.com/agent/pricing"} {
		if got, ok := d.Find(dest); !ok || got.Name != "pricing" {
			t.Errorf("Find(%q): got %v %v", dest, got.Name, ok)
		}
	}
	for _, dest := range []string{"", "x", "spiffe://example.com/agent/x", "https://pricing.example/mcp"} {
		if _, ok := d.Find(dest); ok {
			t.Errorf("Find(%q) found something", dest)
		}
	}
	if !d.Remove("pricing") || d.Remove("pricing") {
		t.Error("Remove must be true once")
	}
	if egress.opened("pricing.example:443") != 1 {
		t.Error("egress was closed although another agent lives there")
	}
	d.Remove("same-host")
	if egress.opened("pricing.example:443") != 0 {
		t.Error("egress stays open for a host that nobody lists")
	}
}

func TestEndpoint_ChosenByProtocolAndPriority(t *testing.T) {
	t.Parallel()
	a := directory.Agent{Endpoints: []directory.Endpoint{
		{Binding: "b-v1", Priority: 20}, {Binding: "c-v1"}, {Binding: "a-v1", Priority: 20},
	}}
	for from, want := range map[canonical.Binding]canonical.Binding{
		"c-v1": "c-v1", // its own, although the worst priority
		"x-v1": "a-v1", // lowest priority, tie by id
	} {
		if got := a.Endpoint(from).Binding; got != want {
			t.Errorf("from %s: got %s, want %s", from, got, want)
		}
	}
}

func TestDescribe_CachedAndShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		says := &agentSays{slow: time.Second}
		d := newDirectory(t, says, &gate{}, false)
		a := agent("a", "https://a.example")
		if err := d.Put(a); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				description, endpoint, err := d.Describe(t.Context(), a, a.Endpoints[0], "spiffe://x/c")
				if err != nil || description.Name != "toy" || endpoint.Version != "1" || endpoint.Caller != "spiffe://x/c" {
					t.Errorf("got %v %v %v", description, endpoint, err)
				}
			})
		}
		group.Wait()
		check := func(when string, want int32) {
			if _, _, err := d.Describe(t.Context(), a, a.Endpoints[0], "c"); err != nil {
				t.Error(err)
			}
			if got := says.request.Load(); got != want {
				t.Errorf("%s: asked %d times, want %d", when, got, want)
			}
		}
		check("fresh", 1)
		time.Sleep(5*time.Minute - 2*time.Second)
		check("just before it is stale", 1)
		time.Sleep(3 * time.Second)
		check("stale", 2)
		if err := d.Put(a); err != nil {
			t.Fatal(err)
		}
		check("replaced", 3)
	})
}

// TestDescribe_EachVersionIsCached: each version that is asked for is a question of its
// own, remembered by itself, and forgotten with the agent.
func TestDescribe_EachVersionIsCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		says := &agentSays{}
		d := newDirectory(t, says, &gate{}, false)
		a := agent("a", "https://a.example")
		if err := d.Put(a); err != nil {
			t.Fatal(err)
		}
		check := func(version string, want int32) {
			t.Helper()
			e := a.Endpoints[0]
			e.Version = version
			_, endpoint, err := d.Describe(t.Context(), a, e, "c")
			if got := says.request.Load(); err != nil || got != want || (version != "" && endpoint.Version != version) {
				t.Errorf("version %q: %v, in %s, asked %d times, want %d", version, err, endpoint.Version, got, want)
			}
		}
		check("", 1)
		check("0.3", 2)
		check("0.3", 2)
		check("", 2)
		if err := d.Put(a); err != nil {
			t.Fatal(err)
		}
		check("0.3", 3)
		a.Endpoints[0].Version = "1.0"
		if err := d.Put(a); err != nil {
			t.Fatal(err)
		}
		check("0.3", 4) // which the operator rules out: it is not kept
		check("0.3", 5)
	})
}

func TestDescribe_FailureIsCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		says := &agentSays{}
		says.fails.Store(true)
		d := newDirectory(t, says, &gate{}, false)
		a := agent("a", "https://a.example")
		if err := d.Put(a); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			var unreachable *transport.UnreachableError
			if _, _, err := d.Describe(t.Context(), a, a.Endpoints[0], ""); !errors.As(err, &unreachable) {
				t.Fatalf("got %v", err)
			}
		}
		if got := says.request.Load(); got != 1 {
			t.Errorf("a failing agent was asked %d times within two seconds", got)
		}
		says.fails.Store(false)
		time.Sleep(3 * time.Second)
		if _, _, err := d.Describe(t.Context(), a, a.Endpoints[0], ""); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
}

func TestDescribe_ContinuesAfterCallerTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		says := &agentSays{slow: 10 * time.Second}
		d := newDirectory(t, says, &gate{}, false)
		a := agent("a", "https://a.example")
		if err := d.Put(a); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := d.Describe(ctx, a, a.Endpoints[0], ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if _, _, err := d.Describe(t.Context(), a, a.Endpoints[0], ""); err != nil {
			t.Error(err)
		}
		if got := says.request.Load(); got != 1 {
			t.Errorf("asked %d times, want the first fetch to be used", got)
		}
	})
}

func TestClean_RemovesInvisibleCharacters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"plain":         {"Adds numbers.\n\tExactly.", "Adds numbers.\n\tExactly."},
		"emoji joiner":  {"👩\u200d🔬", "👩\u200d🔬"},
		"tags":          {"ok\U000E0049\U000E0067", "ok"},
		"bidi":          {"a\u202Eb\u2066c", "abc"},
		"zero width":    {"a\u200Bb\uFEFFc", "abc"},
		"control":       {"a\x00\x1b[31mb", "a[31mb"},
		"cut at a rune": {strings.Repeat("é", 3000), strings.Repeat("é", 2048)},
	} {
		got, removed := directory.Clean(canonical.Description{Description: tc.in})
		if got.Description != tc.want || removed != (tc.in != tc.want) {
			t.Errorf("%s: got %q removed=%v", name, got.Description, removed)
		}
	}
	original := canonical.Description{Capabilities: []canonical.Capability{{ID: "x", Description: "a\u202Eb", Tags: []string{"x\u202E"}}}}
	if got, _ := directory.Clean(original); got.Capabilities[0].Description != "ab" || original.Capabilities[0].Description == "ab" {
		t.Error("Clean must clean a copy")
	}
}

// TestClean_CapabilitiesWithoutNameOfTheirOwn: of several of one name, which no caller
// could tell apart, the first is left. One without a name is an agent's only one (AINP).
func TestClean_CapabilitiesWithoutNameOfTheirOwn(t *testing.T) {
	t.Parallel()
	got, removed := directory.Clean(canonical.Description{Capabilities: []canonical.Capability{
		{ID: "a", Title: "first"}, {Title: "without a name"}, {ID: "a b"}, {ID: "a", Title: "second"}, {Title: "nor this"},
	}})
	if !removed || len(got.Capabilities) != 3 || got.Capabilities[0].Title != "first" || got.Capabilities[2].ID != "a b" {
		t.Errorf("removed=%t, left %+v", removed, got.Capabilities)
	}
}
