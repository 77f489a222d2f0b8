// Package nodetest is a node in memory, for tests of what lies above the link:
// it routes by names as real ones do, and loses, doubles and delays messages as
// it is told. What it does was compared with a real node's doings, which the
// tests of the whole stack run against.
package nodetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/link"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// Fate is what becomes of a message.
type Fate struct {
	Drop   bool
	Copies int // more of them
	Delay  time.Duration
}

// Node is a node. Make one in the bubble of testing/synctest whose time it is to
// use.
type Node struct {
	fate  func(m *dataplane.Message) Fate
	ways  sync.WaitGroup
	mu    sync.Mutex
	names map[name.Key]link.Subscriber
	down  bool
}

// New makes a node; without a fate every message arrives at once. The test ends
// when nothing is under way anymore.
func New(t testing.TB, fate func(m *dataplane.Message) Fate) *Node {
	t.Helper()
	if fate == nil {
		fate = func(*dataplane.Message) Fate { return Fate{} }
	}
	n := &Node{fate: fate, names: map[name.Key]link.Subscriber{}}
	t.Cleanup(n.ways.Wait)
	return n
}

// Cut takes the connection of all away, or gives it back.
func (n *Node) Cut(down bool) {
	n.mu.Lock()
	n.down = down
	all := make([]link.Subscriber, 0, len(n.names))
	for _, to := range n.names {
		all = append(all, to)
	}
	n.mu.Unlock()
	for _, to := range all {
		to.Connected(!down)
	}
}

// Send takes a message as the link does.
func (n *Node) Send(m *dataplane.Message) error {
	if _, err := frame.Fits(m); err != nil {
		return err
	}
	data, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return link.ErrDown
	}
	fate := n.fate(m)
	if fate.Drop {
		return nil
	}
	for range fate.Copies + 1 {
		n.ways.Go(func() { n.carry(data, fate.Delay) })
	}
	return nil
}

func (n *Node) carry(data []byte, delay time.Duration) {
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		<-timer.C
	}
	m := new(dataplane.Message)
	if proto.Unmarshal(data, m) != nil {
		return
	}
	for _, to := range n.targets(m) {
		to.Receive(m)
	}
}

// targets are those with the name, or one of them; a group's are all but the sender.
func (n *Node) targets(m *dataplane.Message) []link.Subscriber {
	header := m.GetPublish().GetHeader()
	key, err := name.DecodeKey(header.GetDestination())
	if err != nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if to, ok := n.names[key]; ok {
		return []link.Subscriber{to}
	}
	for other, to := range n.names {
		if other.Any() == key {
			return []link.Subscriber{to}
		}
	}
	return nil
}

// Subscribe gives a name a place.
func (n *Node) Subscribe(_ context.Context, who name.Name, to link.Subscriber) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[who.Key()] = to
	return nil
}

// Unsubscribe takes it back.
func (n *Node) Unsubscribe(_ context.Context, who name.Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.names, who.Key())
}

// Up is always so.
func (n *Node) Up(context.Context) error { return nil }
