package gateway_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// neighbours counts what other gateways are asked; none of them serves anything.
type neighbours struct{ requested atomic.Int32 }

func (n *neighbours) DoAs(*http.Request, ect.Identity) (*http.Response, error) {
	n.requested.Add(1)
	return nil, errors.New("nobody is there")
}

// newNeighbourhood is a bed with a peer, and an agent that only the bed's caller
// may call.
func newNeighbourhood(t *testing.T) (*signalFixture, *neighbours) {
	t.Helper()
	n := &neighbours{}
	b := newSignalFixture(t, func(d *directory.Deps) { d.Client = n })
	if err := b.Directory.UsePeers([]directory.Peer{{
		ID: "spiffe://next.example/gateway", URL: "https://next.example/aepb/translate", Rules: policy.Rules{Callers: []string{string(b.caller.ID)}},
	}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Directory.Put(directory.Agent{
		Name: "private", ID: "spiffe://example.com/agents/private", Rules: policy.Rules{Callers: []string{string(b.caller.ID)}},
		Endpoints: []directory.Endpoint{{Binding: uacp.Binding, URL: "uacps://private.example:8888"}},
	}); err != nil {
		t.Fatal(err)
	}
	b.Network.Peers = b.agent
	return b, n
}

// TestServes_OnlyForPermittedCallers: whether an agent is served here, or by a neighbour, is
// said to those who may call it, and neighbours are asked for nobody else.
func TestServes_OnlyForPermittedCallers(t *testing.T) {
	t.Parallel()
	const far = "spiffe://elsewhere.example/agent"
	for name, c := range map[string]struct {
		dest      string
		who       func(b *signalFixture) identity.Caller
		served    bool
		requested bool
	}{
		"to its caller":                    {"private", known(caller), true, false},
		"to somebody else":                 {"private", known(outsider), false, false},
		"of an open one":                   {"undoer", known(outsider), true, false},
		"of an open one, to the nameless":  {"undoer", nameless, false, false},
		"of an open one, to nobody":        {"undoer", nobodyAtAll, false, false},
		"of one that is not here":          {far, known(caller), false, true},
		"of one that is not here, to else": {far, known(outsider), false, false},
		"of one that is not here, to none": {far, nameless, false, false},
		"of a name too long":               {far + strings.Repeat("x", 2048), known(caller), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, n := newNeighbourhood(t)
			served, age := b.Parts().Router.Serves(t.Context(), transport.PairQuery{
				From: translators.Side{Binding: a2a.Binding}, To: translators.Side{Binding: uacp.Binding}, Dest: c.dest, Caller: c.who(b), Forwards: 3,
			})
			if served != c.served || age <= 0 {
				t.Errorf("served: %t, for %v", served, age)
			}
			if requested := n.requested.Load() > 0; requested != c.requested {
				t.Errorf("a neighbour is asked: %t", requested)
			}
		})
	}
}

// TestForward_PeerAskedOnlyForPermittedCalls: the way through a neighbour to an agent that
// nobody here knows is for attested messages to a translate endpoint, of
// callers whom the neighbour's rules admit.
func TestForward_PeerAskedOnlyForPermittedCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		who       func(b *signalFixture) *ecttest.Party
		edit      func(*transport.Call)
		requested bool
	}{
		"who may":              {who: caller, requested: true},
		"who may not":          {who: outsider},
		"at a native endpoint": {who: caller, edit: func(c *transport.Call) { c.EntryPoint = transport.Native }},
		"without evidence":     {who: caller, edit: func(c *transport.Call) { c.Evidence = nil }},
		"to no protocol":       {who: caller, edit: func(c *transport.Call) { c.To = "" }},
		"to a name too long":   {who: caller, edit: func(c *transport.Call) { c.Agent += strings.Repeat("x", 2048) }},
		"to an agent of ours":  {who: outsider, edit: func(c *transport.Call) { c.Agent = "private" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, n := newNeighbourhood(t)
			who := c.who(b)
			call := b.say(who, text("go"), b.mint(who, ect.Claims{Act: "send_task", Audience: []string{string(b.self.ID)}, Workflow: string(ect.NewID())}))
			call.Agent, call.EntryPoint, call.To = "spiffe://elsewhere.example/agent", transport.Translate, a2a.Binding
			if c.edit != nil {
				c.edit(&call)
			}
			if _, err := b.Exchange(t.Context(), call); err == nil || problem.From(err).Code == problem.CodeInternal {
				t.Errorf("got %v", err)
			}
			if requested := n.requested.Load() > 0; requested != c.requested {
				t.Errorf("a neighbour is asked: %t", requested)
			}
			if len(b.agent.received) != 0 {
				t.Error("it was sent on")
			}
		})
	}
}

func caller(b *signalFixture) *ecttest.Party   { return b.caller }
func outsider(b *signalFixture) *ecttest.Party { return b.outsider }

func known(who func(b *signalFixture) *ecttest.Party) func(b *signalFixture) identity.Caller {
	return func(b *signalFixture) identity.Caller { return identity.Caller{Peer: who(b).Peer()} }
}

func nameless(*signalFixture) identity.Caller {
	return identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/anonymous"}, Anonymous: true}
}

func nobodyAtAll(*signalFixture) identity.Caller { return identity.Caller{} }
