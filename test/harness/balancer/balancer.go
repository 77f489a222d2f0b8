// Package balancer is a TCP load balancer in front of several gateways in tests. It
// knows no protocol above TCP.
package balancer

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Balancer hands connections to the next backend that takes one. It knows nothing
// but TCP, and passes on how a connection ends: properly or by a reset.
type Balancer struct {
	listener net.Listener
	backends []string
	next     atomic.Uint64
	work     sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// New listens on a free port of 127.0.0.1 for backends, each host:port. Close ends it.
func New(backends ...string) (*Balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Balancer{listener: l, backends: backends, open: map[net.Conn]struct{}{}}
	b.work.Go(b.accept)
	return b, nil
}

// Address is host:port where it listens.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

func (b *Balancer) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.work.Go(func() { b.serve(conn) })
	}
}

func (b *Balancer) serve(client net.Conn) {
	defer b.hold(client)()
	backend := b.dial()
	if backend == nil {
		reset(client)
		return
	}
	defer b.hold(backend)()
	var both sync.WaitGroup
	both.Go(func() { carry(client, backend) })
	both.Go(func() { carry(backend, client) })
	both.Wait()
}

// dial finds a backend that takes a connection; nil: none does.
func (b *Balancer) dial() net.Conn {
	first := b.next.Add(1)
	for i := range uint64(len(b.backends)) {
		conn, err := net.Dial("tcp", b.backends[(first+i)%uint64(len(b.backends))])
		if err == nil {
			return conn
		}
	}
	return nil
}

// carry copies until the source ends, and ends the target in the same way.
func carry(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if err != nil {
		reset(to)
		reset(from)
		return
	}
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// hold keeps a connection so that Close can end it.
func (b *Balancer) hold(c net.Conn) func() {
	b.mu.Lock()
	b.open[c] = struct{}{}
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		delete(b.open, c)
		b.mu.Unlock()
		_ = c.Close()
	}
}

// Close ends everything and waits.
func (b *Balancer) Close() error {
	err := b.listener.Close()
	b.mu.Lock()
	for c := range b.open {
		reset(c)
	}
	b.mu.Unlock()
	b.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
