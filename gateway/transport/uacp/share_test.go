package uacp_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"testing"
	"time"

	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// closedWithin reads until the other end closes a connection.
func closedWithin(t *testing.T, conn net.Conn, limit time.Duration) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
		t.Errorf("it is still open after %v", limit)
	}
}

// TestAttack_StrangersNeverFinishTheHandshake is finding 6: connections that said
// nothing at all were counted like those of callers. Now they are closed soon, or
// when the next one comes, and connections of callers are counted by themselves.
func TestAttack_StrangersNeverFinishTheHandshake(t *testing.T) {
	t.Parallel()
	address := open(t, &handler{exchange: echo}, wire.Config{Connections: 4, PerCaller: 4, Unidentified: 8, PerAddress: 2, Handshake: 300 * time.Millisecond})
	from := func(ip string) net.Conn {
		t.Helper()
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var silent []net.Conn
	for range 20 {
		silent = append(silent, from("127.0.0.2"))
	}
	for _, ip := range []string{"127.0.0.1", "127.0.0.2"} {
		conn := tls.Client(from(ip), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{wire.Protocol}})
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Errorf("a caller from %s: %v", ip, err)
			continue
		}
		victim := line{t, conn}
		victim.send(content(t, form.Frame{ID: 5}))
		if _, err := victim.receive(); err != nil {
			t.Errorf("a caller from %s is not served: %v", ip, err)
		}
	}
	for _, conn := range silent {
		closedWithin(t, conn, 5*time.Second)
	}
}

// TestAttack_HandshakesPushEachOtherOut: N8. The oldest handshake of all gave way to the
// next, so a flood from many addresses ended each slow one. Now it is one of the address
// with most.
func TestAttack_HandshakesPushEachOtherOut(t *testing.T) {
	t.Parallel()
	address := open(t, &handler{exchange: echo}, wire.Config{Connections: 4, Unidentified: 32, PerAddress: 16})
	from := func(i int) net.Conn {
		t.Helper()
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 4, byte(i))}}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	slow := from(100)
	for i := range 400 {
		from(i%20 + 1)
	}
	conn := tls.Client(slow, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{wire.Protocol}})
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatalf("a slow handshake, during a flood from twenty addresses: %v", err)
	}
	victim := line{t, conn}
	victim.send(content(t, form.Frame{ID: 5}))
	if _, err := victim.receive(); err != nil {
		t.Errorf("its caller is not served: %v", err)
	}
}

// TestAttack_CallerStopsInTheMiddleOfAFrame: a caller that had an observation, and
// then sent the beginning of a frame, was waited for without end. Now the rest has
// to follow soon.
func TestAttack_CallerStopsInTheMiddleOfAFrame(t *testing.T) {
	t.Parallel()
	h := &happenings{end: context.Canceled}
	l := connect(t, open(t, watched(h), wire.Config{Write: 200 * time.Millisecond}))
	l.send(observing(form.FormBare).Body)
	if f, err := l.receive(); err != nil || f.Verb != form.Observe {
		t.Fatalf("got %+v, %v", f, err)
	}
	if _, err := l.conn.Write([]byte{0xff, 0xff, 0x40}); err != nil {
		t.Fatal(err)
	}
	closedWithin(t, l.conn, 4*time.Second)
}
