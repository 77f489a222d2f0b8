package link

import (
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"
)

// TestPrompted_AcknowledgesAtOnce: what comes in is acknowledged at once, also when the system has
// seen for a while that an answer goes out soon.
func TestPrompted_AcknowledgesAtOnce(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	var echo errgroup.Group
	echo.Go(func() error {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = io.Copy(conn, conn)
		return err
	})
	bare, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, ok := prompted(bare).(*prompt)
	if !ok {
		t.Fatal("a socket is not prompt")
	}
	for round := range 64 {
		body := make([]byte, 1)
		if _, err := conn.Write(body); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(body); err != nil {
			t.Fatal(err)
		}
		var now int
		err := conn.raw.Control(func(socket uintptr) {
			now, err = syscall.GetsockoptInt(int(socket), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK)
		})
		if err != nil || now != 1 {
			t.Fatalf("round %d: %d, %v", round, now, err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := echo.Wait(); err != nil {
		t.Error(err)
	}
	one, other := net.Pipe()
	defer func() { _, _ = one.Close(), other.Close() }()
	if prompted(one) != one {
		t.Error("what is no socket is wrapped")
	}
}
