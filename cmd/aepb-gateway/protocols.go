package main

import (
	"github.com/aepb/aepb-gateway/gateway/transport"
	ta2a "github.com/aepb/aepb-gateway/gateway/transport/a2a"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// protocol is all that the gateway needs of one protocol: its form and the two
// faces of its wire. This file is the explicit list; a protocol that is not
// here does not exist.
type protocol struct {
	form   translators.Translator
	dialer interface {
		transport.Dialer
		transport.Describer
	}
	close func() error
}

func protocols(guard *egress.Guard, sessions tmcp.Keeper) ([]protocol, error) {
	a2aForm, mcpForm := a2a.New(translators.Config{}), mcp.New(translators.Config{})
	a2aDialer, err := ta2a.NewDialer(ta2a.DialerDeps{Client: guard, Form: a2aForm})
	if err != nil {
		return nil, err
	}
	mcpDialer, err := tmcp.NewDialer(tmcp.DialerDeps{Client: guard, Form: mcpForm, Keeper: sessions})
	if err != nil {
		return nil, err
	}
	return []protocol{
		{form: a2aForm, dialer: a2aDialer, close: func() error { return nil }},
		{form: mcpForm, dialer: mcpDialer, close: func() error { mcpDialer.Close(); return nil }},
	}, nil
}
