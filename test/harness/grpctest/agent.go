package grpctest

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// Agent is the agent of package peers that is served over gRPC alone, on a port of its own.
// Its card is read over HTTP.
type Agent struct {
	*peers.A2AAgent
	at string
}

// NewAgent starts it; its gRPC server ends with the test, and Stop ends the rest.
func NewAgent(tb testing.TB, d peers.Deps) Agent {
	tb.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	conf := d.TLS.Clone()
	conf.MinVersion = tls.VersionTLS13
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)))
	a2agrpc.NewHandler(peers.Concierge(d)).RegisterWith(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) }) // it ends when it is stopped
	tb.Cleanup(func() {
		server.GracefulStop()
		serving.Wait()
	})
	agent, err := peers.NewA2AAgentOver(tb.Context(), d, a2a.TransportProtocolGRPC, ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	return Agent{agent, ln.Addr().String()}
}

// GRPC is host:port of the agent over gRPC.
func (a Agent) GRPC() string { return a.at }

// WithGRPC is a transport of the A2A SDK's client.
func WithGRPC(conf *tls.Config) a2aclient.FactoryOption {
	return a2agrpc.WithGRPCTransport(grpc.WithTransportCredentials(credentials.NewTLS(conf)))
}
