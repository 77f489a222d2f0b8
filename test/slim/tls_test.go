package slim_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
)

// TestNode_TLS is reached by the guarded door, by SPIFFE id and by host
// name: the node answers TLS 1.3 and agrees on no protocol in it. One that is
// somebody else, or speaks only TLS 1.2, is not reached.
func TestNode_TLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made, err := identity.LoadOrCreate(dir, "example.org", nil)
	if err != nil {
		t.Fatal(err)
	}
	node, at := startPeer(t), freeAddress(t)
	node.do(t, job{"job": "node", "endpoint": at, "cert": read(t, dir, identity.GatewayFile), "key": read(t, dir, identity.GatewayKeyFile)}, nil)
	node.do(t, job{
		"job": "app", "endpoint": "https://" + at, "ca": read(t, dir, identity.AnchorFile),
		"name": "org/ns/rpcsrv", "secret": secret, "rpc": true,
	}, nil)
	guard := newGuard(t, made, at)

	for _, expected := range []ect.Identity{"spiffe://example.org/gateway", ""} {
		us := join(t, at, "org/ns/gogate", func(ctx context.Context) (net.Conn, error) { return guard.DialTLS(ctx, at, expected) })
		got, err := us.client(t).Unary(limited(t, 20*time.Second), parse(t, "org/ns/rpcsrv"), rpc.Request{Service: "test.Echo", Method: "Echo", Body: []byte("hello")})
		if err != nil || string(got.Body) != "hello" {
			t.Errorf("%q %v", got.Body, err)
		}
	}
	if _, err := guard.DialTLS(t.Context(), at, "spiffe://example.org/else"); !errors.Is(err, identity.ErrUnexpectedPeer) {
		t.Errorf("somebody else: %v", err)
	}
	old, err := tls.Dial("tcp", at, &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	if err == nil {
		_ = old.Close()
		t.Error("the node speaks TLS 1.2")
	}
	outdated, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{made.Gateway.Certificate()}, MaxVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = outdated.Close() })
	go func() {
		for conn, err := outdated.Accept(); err == nil; conn, err = outdated.Accept() {
			_, _ = conn.Read(make([]byte, 1)) // shakes hands, if it comes to that
			_ = conn.Close()
		}
	}()
	if conn, err := newGuard(t, made, outdated.Addr().String()).DialTLS(t.Context(), outdated.Addr().String(), ""); err == nil {
		_ = conn.Close()
		t.Error("a node of TLS 1.2 is reached")
	}
}

func newGuard(t *testing.T, made *identity.Development, at string) *egress.Guard {
	t.Helper()
	source, err := identity.NewSource(made.Client, made.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := egress.New(egress.Deps{TLS: source, Config: egress.Config{AllowPrivate: []string{at}}})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

func read(t *testing.T, dir, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
