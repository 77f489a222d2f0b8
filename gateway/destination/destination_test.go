package destination_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	callerID   = "spiffe://example.com/client"
	peerID     = "spiffe://next.example/gateway"
	peerURL    = "https://next.example/aepb/translate"
	unlistedID = "spiffe://elsewhere.example/agent" // of an agent that only the peer knows
	heirURL    = "https://heir.example/doc"
	visitedURL = "https://visited.example/doc"

	far canonical.Binding = "far-v1" // is not spoken here
)

func caller() identity.Caller {
	return identity.Caller{Peer: ect.Peer{ID: callerID}}
}

func outsider() identity.Caller {
	return identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/outsider"}}
}

func only(id ...string) policy.Rules { return policy.Rules{Callers: id} }

// network answers from memory, and writes down what is asked of whom. A question that has
// no page gets 404 from a gateway, and no connection to another host.
type network struct {
	mu       sync.Mutex
	pages    map[string]string // by the line that is written down
	requests []string
	forwards []string // Max-Forwards of the questions
}

func (n *network) DoAs(r *http.Request, expected ect.Identity) (*http.Response, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	query := r.URL.Query()
	question := strings.HasSuffix(r.URL.Path, "/gateway")
	line := r.URL.Host
	if question {
		line = string(expected) + " " + query.Get("from") + ">" + query.Get("to")
		if query.Has("dest") {
			line += " for " + query.Get("dest")
		}
		n.forwards = append(n.forwards, r.Header.Get("Max-Forwards"))
	}
	n.requests = append(n.requests, line)
	page, ok := n.pages[line]
	switch {
	case ok:
		return response(http.StatusOK, page), nil
	case question:
		return response(http.StatusNotFound, "{}"), nil
	default:
		return nil, errors.New("connection refused")
	}
}

func response(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
}

// allowAll is egress that is open to everything.
type allowAll struct{}

func (allowAll) Allow(string)    {}
func (allowAll) Disallow(string) {}

// describer is that of protocols whose agents are not asked here.
type describer struct{ transport.Describer }

// env is a resolver with all that it is built from.
type env struct {
	*destination.Resolver

	t         testing.TB
	directory *directory.Directory
	registry  *translators.Registry
	network   *network
	denied    []policy.Constraint
}

func newEnv(t testing.TB, agents ...directory.Agent) *env {
	t.Helper()
	e := &env{t: t, network: &network{pages: map[string]string{}}}
	var err error
	e.directory, err = directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{a2a.Binding: describer{}, mcp.Binding: describer{}},
		Egress:     allowAll{}, Client: e.network, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	e.must(err)
	e.registry, err = translators.NewRegistry(a2a.New(translators.Config{}), mcp.New(translators.Config{}))
	e.must(err)
	e.Resolver, err = destination.New(destination.Deps{
		Registry: e.registry, Directory: e.directory, Now: time.Now, Denied: func(c policy.Constraint) { e.denied = append(e.denied, c) },
	})
	e.must(err)
	e.must(e.directory.AllowDocuments(directory.Documents{Hosts: []string{"visited.example", "heir.example"}, Rules: only(callerID)}))
	for _, agent := range agents {
		e.must(e.directory.Put(agent))
	}
	return e
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// peers lists other gateways.
func (e *env) peers(list ...directory.Peer) {
	e.t.Helper()
	e.must(e.directory.UsePeers(list))
}

func peer() directory.Peer { return directory.Peer{ID: peerID, URL: peerURL, Rules: only(callerID)} }

// document is the capability document of an agent.
func document(name string, status directory.Status, successor string, protocols ...canonical.Binding) string {
	var list []string
	for _, p := range protocols {
		list = append(list, `{"id":"`+string(p)+`","version":"1","endpoint":"https://`+name+`.example/agent"}`)
	}
	if successor != "null" {
		successor = `"` + successor + `"`
	}
	return `{"aepb_version":"1.0","agent_id":"spiffe://example.com/agents/` + name + `","protocols":[` + strings.Join(list, ",") +
		`],"ect_assurance_level":"L2","lifecycle":{"version":"1.0.0","status":"` + string(status) + `","successor":` + successor + `}}`
}

// described is an agent that describes itself, for callers whom rules admit.
func described(name string, rules policy.Rules) directory.Agent {
	return directory.Agent{Name: name, Capability: "https://" + name + ".example/doc", Rules: rules}
}

// direct is an agent at an endpoint of one protocol.
func direct(name string, rules policy.Rules, binding canonical.Binding) directory.Agent {
	return directory.Agent{Name: name, Rules: rules, Endpoints: []directory.Endpoint{{Binding: binding, URL: "https://" + name + ".example/agent"}}}
}

// behind is an agent behind a gateway.
func behind(name string, rules policy.Rules, binding canonical.Binding) directory.Agent {
	return directory.Agent{Name: name, Rules: rules, Endpoints: []directory.Endpoint{{Binding: binding, Through: peerID}}}
}

// summary is a destination in a line: the agent, the protocol there, the way, and why not.
func summary(d destination.Destination) string {
	words := []string{d.Agent.Name}
	if d.Agent.Name == "" {
		words[0] = "-"
	}
	if d.Codec == nil {
		words = append(words, "-")
	} else {
		words = append(words, string(d.Codec.Info().Binding))
	}
	if v := d.Via; v != nil {
		words = append(words, "via "+string(v.Peer.ID)+" "+string(v.From)+">"+string(v.To)+" for "+v.Agent)
		if v.Unlisted {
			words = append(words, "unlisted")
		}
	}
	if d.Draining {
		words = append(words, "draining")
	}
	if d.Unreachable != nil {
		words = append(words, kind(d.Unreachable))
	}
	return strings.Join(words, " ")
}

// kind names the type of an error.
func kind(err error) string {
	if noPath, ok := errors.AsType[*problem.NoPathError](err); ok {
		return strings.TrimSpace("no path " + noPath.Detail)
	}
	for name, is := range map[string]bool{
		"ended": is[*directory.EndedError](err), "unreachable": is[*transport.UnreachableError](err), "no egress": is[*egress.DeniedError](err),
		"bad document": is[*directory.DocumentError](err), "loop": is[*policy.Denied](err),
	} {
		if is {
			return name
		}
	}
	return err.Error()
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// reach finds where a message goes, and who was asked for that, each in a line.
func (e *env) reach(q destination.Query) (lines []string) {
	e.t.Helper()
	d, err := e.Find(q)
	e.must(err)
	if len(e.network.requests) > 0 {
		e.t.Errorf("Find has asked %q", e.network.requests)
	}
	d = e.Reach(e.t.Context(), q, d)
	binding := canonical.Binding("")
	if d.Codec != nil {
		binding = d.Codec.Info().Binding
	}
	if d.Features != e.registry.Features(binding) {
		e.t.Errorf("%s: its features are not those of %q", summary(d), binding)
	}
	return append([]string{summary(d)}, e.network.requests...)
}

// world is an environment with an agent of each sort, all for one caller alone.
func world(t testing.TB) *env {
	t.Helper()
	rules := only(callerID)
	e := newEnv(t, direct("tools", rules, mcp.Binding), behind("behind", rules, far))
	for _, name := range []string{"live", "draining", "passing", "ended", "finished", "lost", "foreign"} {
		e.must(e.directory.Put(described(name, rules)))
	}
	e.network.pages = map[string]string{
		"live.example":                              document("live", directory.Active, "null", mcp.Binding),
		"draining.example":                          document("draining", directory.Draining, "null", mcp.Binding),
		"passing.example":                           document("passing", directory.Draining, heirURL, mcp.Binding),
		"ended.example":                             document("ended", directory.Retired, heirURL, mcp.Binding),
		"finished.example":                          document("finished", directory.Retired, "null", mcp.Binding),
		"foreign.example":                           document("foreign", directory.Active, "null", far),
		"heir.example":                              document("heir", directory.Active, "null", mcp.Binding),
		"visited.example":                           document("visited", directory.Active, "null", mcp.Binding),
		peerID + " a2a-v1>far-v1 for behind":        "{}",
		peerID + " a2a-v1>far-v1 for " + unlistedID: "{}",
		peerID + " a2a-v1>far-v1 for spiffe://example.com/agents/foreign": "{}",
	}
	e.peers(peer())
	return e
}

// TestReach_WhoLearnsWhat: where a message goes, and who is asked for that, by who sends
// it to which agent and how. Nothing is asked for those who may not call.
func TestReach_WhoLearnsWhat(t *testing.T) {
	t.Parallel()
	type lines = []string
	const foreignID = "spiffe://example.com/agents/foreign"
	same := func(l ...string) [3]lines { return [3]lines{l, l, l} }
	for name, row := range map[string]struct {
		agent string
		to    canonical.Binding // at the translate endpoint
		may   [3]lines          // of who may call: at a native endpoint, to be translated with evidence, and without
		other [3]lines          // of who may not
	}{
		"listed":   {"tools", mcp.Binding, same("tools mcp-v1"), same("tools mcp-v1")},
		"document": {"live", mcp.Binding, same("live mcp-v1", "live.example"), [3]lines{{"live -"}, {"live mcp-v1"}, {"live mcp-v1"}}},
		"draining": {
			"draining", mcp.Binding, same("draining mcp-v1 draining", "draining.example"),
			[3]lines{{"draining -"}, {"draining mcp-v1"}, {"draining mcp-v1"}},
		},
		"draining, with a successor": {
			"passing", mcp.Binding, same("passing mcp-v1 draining", "passing.example"),
			[3]lines{{"passing -"}, {"passing mcp-v1"}, {"passing mcp-v1"}},
		},
		"ended, with a successor": {
			"ended", mcp.Binding, same(heirURL+" mcp-v1", "ended.example", "heir.example"),
			[3]lines{{"ended -"}, {"ended mcp-v1"}, {"ended mcp-v1"}},
		},
		"ended": {
			"finished", mcp.Binding,
			[3]lines{
				{"finished - ended", "finished.example"}, {"finished mcp-v1 ended", "finished.example"}, {"finished mcp-v1 ended", "finished.example"},
			},
			[3]lines{{"finished -"}, {"finished mcp-v1"}, {"finished mcp-v1"}},
		},
		"lost": {
			"lost", mcp.Binding,
			[3]lines{
				{"lost - unreachable", "lost.example"}, {"lost mcp-v1 unreachable", "lost.example"}, {"lost mcp-v1 unreachable", "lost.example"},
			},
			[3]lines{{"lost -"}, {"lost mcp-v1"}, {"lost mcp-v1"}},
		},
		"behind a peer": {
			"behind", far, same("behind a2a-v1 via "+peerID+" a2a-v1>far-v1 for behind", peerID+" a2a-v1>far-v1 for behind"),
			same("behind - no path"),
		},
		"of a protocol that a peer speaks": {
			"foreign", far, same("foreign a2a-v1 via "+peerID+" a2a-v1>far-v1 for "+foreignID, "foreign.example", peerID+" a2a-v1>far-v1 for "+foreignID),
			[3]lines{{"foreign -"}, {"foreign - no path"}, {"foreign - no path"}},
		},
		"only a peer knows it": {
			unlistedID, far,
			[3]lines{
				{"- -"},
				{unlistedID + " a2a-v1 via " + peerID + " a2a-v1>far-v1 for " + unlistedID + " unlisted", peerID + " a2a-v1>far-v1 for " + unlistedID},
				{"- - no path"},
			},
			[3]lines{{"- -"}, {"- - no path"}, {"- - no path"}},
		},
		"unknown": {
			"stranger", far,
			[3]lines{
				{"- -"},
				{"- - no path unknown_agent", peerID + " a2a-v1>far-v1 for stranger", peerID + " mcp-v1>far-v1 for stranger"},
				{"- - no path"},
			},
			[3]lines{{"- -"}, {"- - no path"}, {"- - no path"}},
		},
		"its document is named": {
			visitedURL, mcp.Binding,
			[3]lines{{"- -"}, {visitedURL + " mcp-v1", "visited.example"}, {"- mcp-v1"}},
			[3]lines{{"- -"}, {visitedURL + " mcp-v1"}, {"- mcp-v1"}},
		},
		"a document that may not be named": {
			"https://closed.example/doc", mcp.Binding,
			[3]lines{{"- -"}, {"- mcp-v1 no egress"}, {"- mcp-v1"}},
			[3]lines{{"- -"}, {"- mcp-v1 no egress"}, {"- mcp-v1"}},
		},
	} {
		for who, sender := range map[string]identity.Caller{
			"who may call": caller(), "who may not": outsider(), "anonymous": identity.Anonymous("example.com"), "the zero caller": {},
		} {
			want := row.other
			if sender.ID == callerID {
				want = row.may
			}
			for i, entrance := range []string{"native", "translate", "translate without evidence"} {
				t.Run(name+"/"+who+"/"+entrance, func(t *testing.T) {
					t.Parallel()
					q := destination.Query{Caller: sender, Native: i == 0, From: a2a.Binding, Agent: row.agent, Attested: i == 1}
					if i > 0 {
						q.To = row.to
					}
					if diff := cmp.Diff(want[i], world(t).reach(q)); diff != "" {
						t.Errorf("-want +got\n%s", diff)
					}
				})
			}
		}
	}
}

func TestNew_IncompleteDeps(t *testing.T) {
	t.Parallel()
	if r, err := destination.New(destination.Deps{}); r != nil || err == nil {
		t.Errorf("made %v: %v, expected an error", r, err)
	}
}

// TestFind_NoPath: what no other gateway can know either is said at once, and else kept
// until one was asked.
func TestFind_NoPath(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		query destination.Query
		codec canonical.Binding
		err   string
	}{
		"translation alone":   {destination.Query{To: mcp.Binding}, mcp.Binding, ""},
		"a version":           {destination.Query{To: mcp.Binding, Version: mcp.Modern}, mcp.Binding, ""},
		"another version":     {destination.Query{To: mcp.Binding, Version: "1999-01-01"}, mcp.Binding, "no path unsupported_version"},
		"an unknown protocol": {destination.Query{To: far}, "", "no path"},
		"no protocol":         {destination.Query{}, "", "no path"},
		"of an agent":         {destination.Query{Agent: "tools", To: far}, "", "no path"},
		"its own protocol":    {destination.Query{Agent: "tools"}, mcp.Binding, ""},
		"an unknown agent":    {destination.Query{Agent: "stranger"}, "", ""},
	} {
		c.query.From, c.query.Caller = a2a.Binding, outsider()
		e := newEnv(t, direct("tools", only(callerID), mcp.Binding))
		d, err := e.Find(c.query)
		e.peers(peer())
		later, laterErr := e.Find(c.query)
		switch {
		case c.err == "" && (err != nil || later.Unreachable != nil):
			t.Errorf("%s: %v, with peers %v", name, err, later.Unreachable)
		case c.err != "" && (err == nil || kind(err) != c.err || d.Unreachable != nil || later.Unreachable == nil || kind(later.Unreachable) != c.err):
			t.Errorf("%s: %v, with peers %v, expected %s", name, err, later.Unreachable, c.err)
		}
		if laterErr != nil || (d.Codec != nil) != (c.codec != "") || d.Codec != nil && d.Codec.Info().Binding != c.codec {
			t.Errorf("%s: the protocol is %v, expected %q; with peers %v", name, d.Codec, c.codec, laterErr)
		}
		if len(e.network.requests) > 0 {
			t.Errorf("%s: asked %q", name, e.network.requests)
		}
	}
}

// TestPeerRoute_URL: a message for an agent says for whom it is, and one for translation
// alone does not.
func TestPeerRoute_URL(t *testing.T) {
	t.Parallel()
	route := destination.PeerRoute{Peer: peer(), From: a2a.Binding, To: "far-v1@2"}
	if got, want := route.URL(), peerURL+"?from=a2a-v1&to=far-v1%402"; got != want {
		t.Errorf("for translation alone: %s, expected %s", got, want)
	}
	route.Agent = "spiffe://a/b&c"
	if got, want := route.URL(), peerURL+"?dest=spiffe%3A%2F%2Fa%2Fb%26c&from=a2a-v1&to=far-v1%402"; got != want {
		t.Errorf("for an agent: %s, expected %s", got, want)
	}
}

func TestMayCall_AnonymousNeedsOpenRules(t *testing.T) {
	t.Parallel()
	anonymous := identity.Anonymous("example.com")
	for name, c := range map[string]struct {
		caller identity.Caller
		rules  policy.Rules
		may    bool
	}{
		"listed":                          {caller(), only(callerID), true},
		"not listed":                      {outsider(), only(callerID), false},
		"by a prefix":                     {outsider(), only("spiffe://example.com/*"), true},
		"anonymous, by a prefix":          {anonymous, only("spiffe://example.com/*"), false},
		"anonymous, by its own id":        {anonymous, only(string(anonymous.ID)), false},
		"anonymous, to an open one":       {anonymous, policy.Rules{Open: true}, true},
		"without id, to an open one":      {identity.Caller{}, policy.Rules{Open: true}, false},
		"open, and rules that must, too":  {outsider(), policy.Rules{Open: true, Also: &policy.Rules{Callers: []string{callerID}}}, false},
		"listed by both":                  {caller(), policy.Rules{Open: true, Also: &policy.Rules{Callers: []string{callerID}}}, true},
		"of one operation, to find out":   {caller(), only(callerID + "#invoke"), true},
		"no rules":                        {caller(), policy.Rules{}, false},
		"open for whom has no credential": {anonymous, policy.Rules{Open: true, Also: &policy.Rules{}}, false},
	} {
		if err := destination.MayCall(c.caller, c.rules); (err == nil) != c.may || err != nil && !is[*policy.Forbidden](err) {
			t.Errorf("%s: %v, may call: %t", name, err, c.may)
		}
	}
}
