package directory

import (
	"context"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// allowDocuments opens or closes egress to a host of [Documents], for the
// document itself and for the agent that it describes.
func (d *Directory) allowDocuments(change func(Allower, string), hostport string) {
	change(d.deps.Egress, hostport)
	if d.deps.Grants != nil {
		change(d.deps.Grants, hostport)
	}
}

// fetcher is the client that fetches an agent's document: what the operator has
// opened toward agents is not open to a URL that a caller names.
func (d *Directory) fetcher(agent Agent) transport.Client {
	if agent.Listed() {
		return d.deps.Client
	}
	return d.deps.Documents
}

// resolveFor is resolve. An agent that a caller named by its document gets
// Listings, and an error if the document makes use of what belongs to others.
// except is a listed agent that may be succeeded by such an agent; empty: none.
func (d *Directory) resolveFor(ctx context.Context, agent Agent, except string) (Agent, error) {
	resolved, err := d.resolve(ctx, agent)
	resolved = d.living(resolved)
	if err == nil && !agent.Listed() {
		resolved.Listings, err = d.listings(resolved, except)
	}
	return resolved, err
}

// listings are the names of the listed agents that a found agent is: same id,
// same endpoint. One that has the id of a listed agent and none of its
// endpoints, or an endpoint at the address of a listed agent, of a peer or of
// this gateway, is an *egress.DeniedError: it would not be held to their rules.
func (d *Directory) listings(found Agent, except string) (names []string, err error) {
	at := map[string]bool{}
	for _, e := range found.Endpoints {
		where := address(e.URL)
		at[where] = true
		if d.deps.Ours(where) {
			return nil, taken(found)
		}
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, p := range d.peers {
		if p.ID == found.ID || at[address(p.URL)] {
			return nil, taken(found)
		}
	}
	clash := false
	for name := range d.agents {
		listed := d.agents[name]
		if r, ok := d.resolved[name]; ok && r.err == nil {
			listed = r.agent
		}
		switch {
		case name == except:
		case same(listed, found):
			names = append(names, name)
		case listed.ID != "" && listed.ID == found.ID, d.uses(listed, at):
			clash = true
		}
	}
	if clash && len(names) == 0 {
		return nil, taken(found)
	}
	slices.Sort(names)
	return names, nil
}

// same reports whether a found agent is a listed one.
func same(listed, found Agent) bool {
	return (listed.ID == "" || listed.ID == found.ID) && slices.ContainsFunc(listed.Endpoints, func(e Endpoint) bool {
		return e.URL != "" && slices.ContainsFunc(found.Endpoints, func(f Endpoint) bool { return e.Binding == f.Binding && e.URL == f.URL })
	})
}

// uses reports whether egress is open on behalf of a listed agent to one of
// these addresses, other than for its capability document.
func (d *Directory) uses(listed Agent, at map[string]bool) bool {
	return slices.ContainsFunc(listed.Endpoints, func(e Endpoint) bool {
		return e.URL != "" && at[address(e.URL)] || e.GRPC != "" && at[address("https://"+e.GRPC)]
	})
}

func taken(found Agent) error {
	return &egress.DeniedError{Host: hostport(found.Capability), Reason: egress.ReasonTaken}
}

// address is the host and port of a URL in the form by which they are compared.
// A SLIM node is no agent's own: there the whole URL is the address.
func address(text string) string {
	if strings.HasPrefix(text, "slim://") {
		return text
	}
	name, _ := egress.Canonical(hostport(text))
	return name
}

// Taken reports whether a host and port, in the form of [egress.Canonical], is
// that of a listed agent or of a peer: what callers name may not go there.
func (d *Directory) Taken(hostport string) bool {
	at := map[string]bool{hostport: true}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for name, listed := range d.agents {
		if r, ok := d.resolved[name]; ok && r.err == nil {
			listed = r.agent
		}
		if d.uses(listed, at) {
			return true
		}
	}
	return slices.ContainsFunc(d.peers, func(p Peer) bool { return address(p.URL) == hostport })
}

// ConfiguredError: an agent of the configuration file is changed there alone.
type ConfiguredError struct{ Name string }

func (e *ConfiguredError) Error() string {
	return "agent " + e.Name + " is in the configuration file: change it there, or add one of another name"
}

// RaceError: the record of an agent is not as it was seen.
type RaceError struct{ Name string }

func (e *RaceError) Error() string {
	return "the record of agent " + e.Name + " was changed meanwhile or cannot be read: list the agents, then add it again, or remove it first"
}
