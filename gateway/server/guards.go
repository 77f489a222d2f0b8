package server

import (
	"errors"

	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// Guards judge what leaves, each for its own kind of calls.
type Guards struct {
	Agents *egress.Guard // what goes to listed agents and peers
	// Webhooks is the guard of what is posted to URLs that callers name. What the operator opens toward agents is not
	// open to them, no client certificate is shown, and nothing is posted to listed agents, peers or this gateway
	// itself: they would take a post for the gateway's own word.
	Webhooks *egress.Guard
	Programs *stdio.Host // runs the programs of agents

	issuers   *egress.Guard // fetches the keys of issuers of access tokens, and asks about opaque ones
	documents *egress.Guard // fetches capability documents that callers name, to which nothing of what is open toward agents is open
}

// newGuards makes them. taken reports whether a listed agent or a peer is at a host and port.
func newGuards(s Config, taken func(at string) bool) (*Guards, error) {
	conf, g := egress.Config{AllowLoopbackHTTP: s.Development}, &Guards{}
	var errs [5]error
	g.Agents, errs[0] = egress.New(egress.Deps{TLS: s.Identity.Source, Config: conf})
	g.documents, errs[1] = egress.New(egress.Deps{TLS: s.Identity.Source, Config: conf, Refuses: s.listensAt})
	g.issuers, errs[4] = egress.New(egress.Deps{TLS: s.Identity.Source, Config: conf, Refuses: s.listensAt, Anonymous: true})
	if s.Development {
		conf.AllowPrivate = []string{"127.0.0.0/8", "::1/128"}
	}
	g.Webhooks, errs[2] = egress.New(egress.Deps{
		TLS: s.Identity.Source, Config: conf, Anonymous: true,
		Refuses: func(at string) bool { return s.listensAt(at) || g.Agents.Reached(at) || taken(at) },
	})
	g.Programs, errs[3] = stdio.NewHost(stdio.Deps{Limits: s.Settings.Limits.Processes(), Supervisor: s.Program.Supervisor, Logger: s.Logger})
	return g, errors.Join(errs[:]...)
}

// close ends the programs, and the connections on which nothing is said.
func (g *Guards) close() error {
	for _, guard := range []*egress.Guard{g.Agents, g.documents, g.issuers, g.Webhooks} {
		guard.CloseIdle()
	}
	return g.Programs.Close()
}

// renew has the next connections show the renewed certificate.
func (g *Guards) renew() {
	for _, guard := range []*egress.Guard{g.Agents, g.documents, g.issuers, g.Webhooks} {
		guard.Renew()
	}
}
