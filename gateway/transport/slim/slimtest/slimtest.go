// Package slimtest plays a SLIM node, for tests that need one and not the real
// software: it negotiates, accepts names, and routes messages by them, to one
// or to all. What it does was compared with a real node's doings; faults are
// what a test asks for.
//
// Alternatives considered: the real node, which is what test/slim runs, takes
// another process and a download; a node in memory would leave out the link.
package slimtest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/link"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
)

// queue is how many messages wait for one connection.
const queue = 1024

// Node is a node.
type Node struct {
	// Version is what it says that it speaks; set it before the first connection.
	Version string

	mu    sync.Mutex
	names map[name.Key][]*connection
}

// connection is that of one client.
type connection struct{ out chan *dataplane.Message }

// NewNode serves on a listener, which may speak TLS, until the test ends.
func NewNode(tb testing.TB, listener net.Listener) *Node {
	tb.Helper()
	n := &Node{Version: "2.2.0", names: map[name.Key][]*connection{}}
	// Real nodes let members ask as often as they like whether the node is there.
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "dataplane.proto.v1.DataPlaneService",
		Streams: []grpc.StreamDesc{{
			StreamName: "OpenChannel", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error { return n.serve(s) },
		}},
	}, nil)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	tb.Cleanup(func() { server.Stop(); serving.Wait() })
	return n
}

// serve is one connection's life.
func (n *Node) serve(s grpc.ServerStream) error {
	c := &connection{out: make(chan *dataplane.Message, queue)}
	var sending sync.WaitGroup
	sending.Go(func() {
		for m := range c.out {
			if s.SendMsg(m) != nil {
				return
			}
		}
	})
	defer sending.Wait()
	defer n.forget(c)
	for {
		m := new(dataplane.Message)
		if err := s.RecvMsg(m); err != nil {
			return err
		}
		n.take(c, m)
	}
}

// take does what a message asks for.
func (n *Node) take(c *connection, m *dataplane.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case m.GetLink() != nil:
		c.put(&dataplane.Message{MessageType: &dataplane.Message_Link{Link: &dataplane.Link{LinkType: &dataplane.Link_LinkNegotiation{
			LinkNegotiation: &dataplane.LinkNegotiationPayload{LinkId: m.GetLink().GetLinkNegotiation().GetLinkId(), SlimVersion: n.Version, IsReply: true},
		}}}})
	case m.GetSubscribe() != nil:
		key, err := name.DecodeKey(m.GetSubscribe().GetHeader().GetDestination())
		if err == nil {
			n.names[key] = append(n.names[key], c)
		}
		c.put(&dataplane.Message{MessageType: &dataplane.Message_SubscriptionAck{SubscriptionAck: &dataplane.SubscriptionAck{
			SubscriptionId: m.GetSubscribe().GetSubscriptionId(), Success: err == nil,
		}}})
	case m.GetUnsubscribe() != nil:
		if key, err := name.DecodeKey(m.GetUnsubscribe().GetHeader().GetDestination()); err == nil {
			n.drop(key, c)
		}
	case m.GetPublish() != nil:
		n.carry(c, m)
	}
}

// carry brings a message to whom it is for: one, or all but its sender.
func (n *Node) carry(from *connection, m *dataplane.Message) {
	to, err := name.DecodeKey(m.GetPublish().GetHeader().GetDestination())
	if err != nil {
		return
	}
	all := n.names[to]
	for key, some := range n.names {
		if len(all) == 0 && key.Any() == to {
			all = some
		}
	}
	for _, c := range all {
		switch {
		case m.GetPublish().GetHeader().GetFanout() <= 1:
			c.put(m)
			return
		case c != from:
			copied, _ := proto.Clone(m).(*dataplane.Message)
			c.put(copied)
		}
	}
}

// put drops a message if the queue is full, as nodes do.
func (c *connection) put(m *dataplane.Message) {
	select {
	case c.out <- m:
	default:
	}
}

func (n *Node) drop(key name.Key, c *connection) {
	kept := n.names[key][:0:0]
	for _, other := range n.names[key] {
		if other != c {
			kept = append(kept, other)
		}
	}
	if n.names[key] = kept; len(kept) == 0 {
		delete(n.names, key)
	}
}

func (n *Node) forget(c *connection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.names {
		n.drop(key, c)
	}
	close(c.out) // no message is routed to it any more
}

// Member is an application on a node that is not the gateway's.
type Member struct {
	Name    string // org/namespace/service
	Secret  string // what all members know
	Node    string // host:port
	Dial    link.Dial
	Handler rpc.Handler // nil: calls are refused
}

// Join runs a member until the test ends. It is connected then, and known.
func Join(tb testing.TB, m Member) *slim.Peer {
	tb.Helper()
	own, err := name.Parse(m.Name)
	if err != nil {
		tb.Fatal(err)
	}
	who, err := credential.NewSecret(credential.SecretDeps{ID: m.Name, Secret: []byte(m.Secret)})
	if err != nil {
		tb.Fatal(err)
	}
	way, err := link.New(link.Deps{Dial: m.Dial, Node: m.Node})
	if err != nil {
		tb.Fatal(err)
	}
	peer, err := slim.NewPeer(slim.PeerDeps{Node: way, Name: own, Provider: who, Verifier: who, Handler: m.Handler})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = way.Run(ctx) })
	running.Go(func() { _ = peer.Run(ctx) })
	tb.Cleanup(func() { cancel(); running.Wait() })
	if err := way.Up(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return peer
}
