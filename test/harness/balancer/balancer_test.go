package balancer

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend answers a connection with its name and then ends it, properly or not.
func backend(t *testing.T, name string, abrupt bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, name)
			if _, _ = conn.Read(make([]byte, 1)); abrupt { // its name has arrived
				reset(conn)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func talk(t *testing.T, address string) (string, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	name := make([]byte, 1)
	if _, err := io.ReadFull(conn, name); err != nil {
		return "", err
	}
	_, _ = conn.Write([]byte("."))
	_, err = io.Copy(io.Discard, conn)
	return string(name), err
}

func TestBalancer_UsesLiveBackends(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := nobody.Addr().String()
	_ = nobody.Close()
	b, err := New(backend(t, "a", false), gone, backend(t, "b", false))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	seen := map[string]int{}
	for range 9 {
		name, err := talk(t, b.Address())
		if err != nil {
			t.Fatal(err)
		}
		seen[name]++
	}
	if seen["a"] < 3 || seen["b"] < 3 {
		t.Errorf("seen %v", seen)
	}
	if _, err := talk(t, serving(t, gone)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without backends: %v", err)
	}
	if _, err := talk(t, serving(t, backend(t, "c", true))); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a reset became %v", err)
	}
}

func serving(t *testing.T, backends ...string) string {
	t.Helper()
	b, err := New(backends...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.Address()
}
