package slim

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/link"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

// Egress opens connections by the rules of egress; *egress.Guard is one.
type Egress interface {
	DialTLS(ctx context.Context, hostport string, expected ect.Identity, protocols ...string) (*tls.Conn, error)
	DialLoopback(ctx context.Context, hostport string) (net.Conn, error)
}

var _ Egress = (*egress.Guard)(nil)

// NodeConfig is a node as the operator describes it.
type NodeConfig struct {
	Address        string       // host:port
	Plain          bool         // no TLS; egress lets that reach loopback alone, in development
	ID             ect.Identity // the node's SPIFFE id; empty: its certificate names its host
	Org, Namespace string       // of every name that we have there
	Secret         []byte       // what all members know; credential.MinSecret bytes at least; empty: they show tokens of issuers
	Caller         ect.Identity // identity of all callers, who share one secret; empty: ListenerDeps.Anonymous, if set
	Issued         Issued       // without Secret
	Groups         int          // how many groups each agent may be in; 0: none
}

// Issued is how members know each other by tokens of issuers.
type Issued struct {
	Source credential.TokenSource            // of our own tokens
	Judge  credential.TokenJudge             // of the others'
	Caller func(subject string) ect.Identity // the identity of a token's subject; empty: ListenerDeps.Anonymous, if set
}

// caller is who calls, and by what its calls are counted.
func (n NodeConfig) caller(call rpc.Call) (who ect.Identity, address string) {
	if len(n.Secret) > 0 {
		return n.Caller, "slim:" + call.From.Base()
	}
	if n.Issued.Caller != nil {
		who = n.Issued.Caller(call.Subject)
	}
	return who, "slim:" + call.Subject
}

// NetworkDeps is what a Network needs.
type NetworkDeps struct {
	Nodes  []NodeConfig // in order of preference; none: nothing is connected
	Egress Egress
	Self   string         // the last part of the name that calls out have; empty: aepb-gateway
	Timing session.Timing // zero: the defaults
	Logger *slog.Logger   // nil: nothing is logged
}

// Network is our connections to nodes, one each, for all that goes out and
// comes in. Safe for concurrent use. It works while Run does.
type Network struct {
	deps  NetworkDeps
	nodes []*node
}

// node is one of them.
type node struct {
	NodeConfig
	link *link.Link
	peer *Peer // makes our calls out
	deps *NetworkDeps
}

const (
	defaultSelf = "aepb-gateway"
	upWithin    = 5 * time.Second // a call waits for a connection
	agentsEvery = time.Second     // between two looks at who is exposed
)

var errNetwork = errors.New("slim: incomplete NetworkDeps")

// NewNetwork checks its dependencies. Errors: *name.Error, *credential.Error.
func NewNetwork(deps NetworkDeps) (*Network, error) {
	if deps.Egress == nil && len(deps.Nodes) > 0 {
		return nil, errNetwork
	}
	deps.Self = cmp.Or(deps.Self, defaultSelf)
	deps.Logger = cmp.Or(deps.Logger, slog.New(slog.DiscardHandler))
	n := &Network{deps: deps}
	for _, config := range deps.Nodes {
		one := &node{NodeConfig: config, deps: &n.deps}
		var err error
		if one.link, err = link.New(link.Deps{Dial: one.dial, Node: config.Address, Logger: deps.Logger}); err != nil {
			return nil, err
		}
		if one.peer, err = one.as(deps.Self, nil, nil); err != nil {
			return nil, err
		}
		n.nodes = append(n.nodes, one)
	}
	return n, nil
}

// dial connects to the node. Nodes speak TLS 1.3 and agree on no protocol.
func (n *node) dial(ctx context.Context) (net.Conn, error) {
	if n.Plain {
		return n.deps.Egress.DialLoopback(ctx, n.Address)
	}
	conn, err := n.deps.Egress.DialTLS(ctx, n.Address, n.ID)
	if err != nil { // a nil *tls.Conn is no nil net.Conn
		return nil, err
	}
	return conn, nil
}

// at is where an agent is exposed.
func (n *node) at(agent string) Address {
	return Address{Node: n.Address, Name: name.Name{Org: n.Org, Namespace: n.Namespace, Service: agent}}
}

// as makes an application of ours of a name.
func (n *node) as(service string, handler rpc.Handler, groups Groups) (*Peer, error) {
	self, err := name.Parse(n.Org + "/" + n.Namespace + "/" + service)
	if err != nil {
		return nil, err
	}
	member, err := n.member(self)
	if err != nil {
		return nil, err
	}
	return NewPeer(PeerDeps{
		Node: n.link, Name: self, Provider: member, Verifier: member, Handler: handler, Groups: groups, Timing: n.deps.Timing, Logger: n.deps.Logger,
	})
}

// member is how one of our names shows who it is, and knows the others.
func (n *node) member(self name.Name) (interface {
	credential.Provider
	credential.Verifier
}, error,
) {
	if len(n.Secret) > 0 {
		return credential.NewSecret(credential.SecretDeps{ID: self.Base(), Secret: n.Secret})
	}
	if n.Issued.Source == nil || n.Issued.Judge == nil {
		return nil, errNetwork
	}
	return credential.NewIssued(credential.IssuedDeps{ID: self.Base(), Source: n.Issued.Source, Judge: n.Issued.Judge})
}

// scheme is how an address on this node is written once it is known how the
// way there is protected.
func (n *node) scheme() string {
	if n.Plain {
		return scheme
	}
	return secureScheme
}

const secureScheme = "slims://"

// find gives the node of an address; nil: it is none of ours. An address
// without one is on the first.
func (n *Network) find(at Address) *node {
	if at.Node == "" && len(n.nodes) > 0 {
		return n.nodes[0]
	}
	i := slices.IndexFunc(n.nodes, func(one *node) bool { return one.Address == at.Node })
	if i < 0 {
		return nil
	}
	return n.nodes[i]
}

// Run keeps the connections until ctx ends, and answers its cause then.
func (n *Network) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range n.nodes {
		group.Go(func() error { return one.link.Run(ctx) })
		group.Go(func() error {
			if err := one.peer.Run(ctx); ctx.Err() == nil {
				n.deps.Logger.ErrorContext(ctx, "client side of a SLIM node not started", slog.String("node", one.Address), slog.Any("error", err))
			}
			return nil
		})
	}
	return group.Wait()
}
