package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// agent is a running demo agent.
type agent interface{ Stop(context.Context) error }

// startAgent starts a demo agent of a folder that setup wrote.
func startAgent(ctx context.Context, dir, name, address string) (agent, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name, "cert.pem"), filepath.Join(dir, name, "key.pem"))
	if err != nil {
		return nil, err
	}
	deps := peers.Deps{Address: address, TLS: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}}
	switch name {
	case concierge:
		return peers.NewA2AAgent(ctx, deps)
	case calculator:
		return peers.NewMCPServer(ctx, peers.MCPDeps{Deps: deps, Stateless: true})
	}
	return nil, fmt.Errorf("there is no demo agent %q: they are %s and %s", name, concierge, calculator)
}
