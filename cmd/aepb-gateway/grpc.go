package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"

	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	ta2a "github.com/aepb/aepb-gateway/gateway/transport/a2a"
	"github.com/aepb/aepb-gateway/translators"
)

// listenGRPC opens the listener of A2A over gRPC; nil: nobody wants one.
func listenGRPC(c config.Config) (net.Listener, error) {
	if c.Listen.GRPC == "" {
		return nil, nil //nolint:nilnil // it is off
	}
	return net.Listen("tcp", c.Listen.GRPC)
}

func closing(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

func announceGRPC(w io.Writer, l net.Listener) {
	if l != nil {
		fmt.Fprintf(w, "ready grpc %s\n", l.Addr())
	}
}

// publicGRPC is where callers reach it, as cards say it; empty: it is off.
func (s settings) publicGRPC() string {
	if s.grpc == nil {
		return ""
	}
	if s.config.PublicRPC != "" {
		return s.config.PublicRPC
	}
	_, port, err := net.SplitHostPort(s.grpc.Addr().String())
	public, bad := url.Parse(s.publicURL)
	if err != nil || bad != nil {
		return ""
	}
	return net.JoinHostPort(public.Hostname(), port)
}

// overGRPC makes the door of A2A over gRPC: the certificate and the callers are
// those of the public listener.
func (out *service) overGRPC(s settings, form translators.Translator, callers httpapi.Callers) error {
	if s.grpc == nil {
		return nil
	}
	at := s.publicGRPC()
	listener, err := ta2a.NewListener(ta2a.ListenerDeps{
		Form: form, Accept: s.grpc, TLS: out.tls, Logger: s.logger, GRPC: at, Grace: shutdownGrace,
		AgentURL: func(agent string) string { return s.publicURL + "/agents/" + agent },
		Identify: func(ctx context.Context, a ta2a.Arrival) context.Context {
			marked, _ := callers.Identify(ctx, a.TLS, a.Remote, credential.Request{Fields: a.Fields, Target: "https://" + at + a.Method})
			return marked
		},
	})
	if err != nil {
		return err
	}
	out.grpc = listener
	return nil
}
