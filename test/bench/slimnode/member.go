package slimnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/link"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
)

// Member is a process on the node: one connection, and any number of names.
type Member struct {
	way    *link.Link
	ctx    context.Context //nolint:containedctx // its life, ended by Leave
	cancel context.CancelFunc
	life   *errgroup.Group
}

// Enter connects.
func Enter(ctx context.Context, at string, roots *x509.CertPool) (*Member, error) {
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
	way, err := link.New(link.Deps{Node: at, Dial: func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", at) }})
	if err != nil {
		return nil, err
	}
	m := &Member{way: way, life: new(errgroup.Group)}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.life.Go(func() error { return way.Run(m.ctx) })
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := way.Up(ctx); err != nil {
		m.Leave()
		return nil, fmt.Errorf("bench: no connection to the SLIM node: %w", err)
	}
	return m, nil
}

// As takes a name; without a handler it is for calls out.
func (m *Member) As(text string, handler rpc.Handler) (*slim.Peer, error) {
	own, err := name.Parse(text)
	if err != nil {
		return nil, err
	}
	who, err := credential.NewSecret(credential.SecretDeps{ID: text, Secret: []byte(Secret)})
	if err != nil {
		return nil, err
	}
	peer, err := slim.NewPeer(slim.PeerDeps{Node: m.way, Name: own, Provider: who, Verifier: who, Handler: handler})
	if err == nil {
		m.life.Go(func() error { return peer.Run(m.ctx) })
	}
	return peer, err
}

// Leave ends all of it.
func (m *Member) Leave() {
	m.cancel()
	_ = m.life.Wait() // it ends as it was told to
}
