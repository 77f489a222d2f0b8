package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// calls is a gRPC server that owns its one goroutine.
type calls struct {
	at      string // host:port
	server  *grpc.Server
	serving sync.WaitGroup
}

// NewA2AGRPCAgent starts the agent without JSON-RPC: only gRPC is served, on a
// port of its own, and the card names nothing else. The card is read over HTTP.
func NewA2AGRPCAgent(ctx context.Context, d Deps, options ...grpc.ServerOption) (*A2AAgent, error) {
	if d.TLS == nil {
		return nil, ErrNoTLS
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("peers: listen: %w", err)
	}
	conf := d.TLS.Clone()
	conf.MinVersion = tls.VersionTLS13
	c := &calls{at: ln.Addr().String(), server: grpc.NewServer(append(options, grpc.Creds(credentials.NewTLS(conf)))...)}
	a := &A2AAgent{calls: c}
	a2agrpc.NewHandler(a2asrv.NewHandler(concierge{}, a2asrv.WithLogger(d.logger()))).RegisterWith(c.server)
	err = a.server.listen(ctx, d, func(string) http.Handler {
		mux := http.NewServeMux()
		mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(conciergeCard(c.at, a2a.TransportProtocolGRPC)))
		return mux
	})
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	c.serving.Go(func() { _ = c.server.Serve(ln) }) // it ends when it is stopped
	return a, nil
}

func (c *calls) stop() {
	c.server.GracefulStop()
	c.serving.Wait()
}

// GRPC is host:port of the agent over gRPC; empty: it does not speak that.
func (a *A2AAgent) GRPC() string {
	if a.calls == nil {
		return ""
	}
	return a.calls.at
}

// WithGRPC is a transport of the A2A SDK's client.
func WithGRPC(conf *tls.Config) a2aclient.FactoryOption {
	return a2agrpc.WithGRPCTransport(grpc.WithTransportCredentials(credentials.NewTLS(conf)))
}
