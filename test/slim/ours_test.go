package slim_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/link"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

// ours is our side: a link and an application on it.
type ours struct {
	link *link.Link
	app  *session.App
}

func parse(t *testing.T, text string) name.Name {
	t.Helper()
	n, err := name.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// testLog writes to the test's log.
func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func plaintext(at string) link.Dial {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", at) }
}

// join starts our side and stops it when the test ends.
func join(t *testing.T, at, as string, dial link.Dial) ours {
	t.Helper()
	l, err := link.New(link.Deps{Dial: dial, Node: at, Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := credential.NewSecret(credential.SecretDeps{ID: as, Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	app, err := session.NewApp(session.Deps{
		Node: l, Name: parse(t, as), Provider: credentials, Verifier: credentials, Logger: testLog(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.Run(ctx) })
	group.Go(func() error { return app.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = group.Wait()
	})
	if err := l.Up(limited(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	return ours{l, app}
}

func (o ours) client(t *testing.T) *rpc.Client {
	t.Helper()
	c, err := rpc.NewClient(o.app)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
