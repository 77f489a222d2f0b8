package directory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/policy"
)

// Bounds of what callers can make the gateway remember and do.
const (
	maxVisitors   = 256
	maxDocuments  = MaxAgents + maxVisitors
	maxSuccession = 3 // successors that are followed
)

// resolved is an agent as its capability document describes it.
type resolved struct {
	agent Agent
	err   error
	until time.Time
}

// Documents says which capability documents callers may name as destinations (R8), and which
// callers may (R2). The zero Documents allows no document to any caller.
type Documents struct {
	Hosts []string // host, host:port or *.domain. Only an exact one may have private addresses
	Rules policy.Rules
}

// ValidateDocuments judges them. Its error is an *InvalidAgentError.
func ValidateDocuments(p Documents) error {
	for _, entry := range p.Hosts {
		name := strings.TrimPrefix(entry, "*.")
		if u, err := url.Parse("https://" + name); err != nil || u.Host != name || u.Hostname() == "" || strings.ContainsAny(name, "*@ ") || u.User != nil {
			return &InvalidAgentError{Name: "documents", Reason: "a host is host, host:port or *.domain"}
		}
	}
	if err := p.Rules.Validate(); err != nil {
		return &InvalidAgentError{Name: "documents", Reason: err.Error()}
	}
	return nil
}

// AllowDocuments puts new rules in force. Agents that were found by the old rules are forgotten.
func (d *Directory) AllowDocuments(p Documents) error {
	if err := ValidateDocuments(p); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.order {
		delete(d.visitors, name)
		d.drop(name)
	}
	d.order = nil
	for _, entry := range d.policy.Hosts {
		if !strings.HasPrefix(entry, "*.") {
			d.allowDocuments(Allower.Disallow, entry)
		}
	}
	for _, entry := range p.Hosts {
		if !strings.HasPrefix(entry, "*.") {
			d.allowDocuments(Allower.Allow, entry)
		}
	}
	d.policy = Documents{Hosts: slices.Clone(p.Hosts), Rules: p.Rules}
	return nil
}

// Visitor is the agent behind a capability document that a caller named, if
// these may be named: it is listed under that URL, or the operator allows the
// host. A dest that is no URL: false. Its error is an *egress.DeniedError.
func (d *Directory) Visitor(dest string) (Agent, bool, error) {
	if !strings.HasPrefix(dest, "https://") && !strings.HasPrefix(dest, "http://") {
		return Agent{}, false, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, agent := range d.agents {
		if agent.Capability == dest {
			return agent, true, nil
		}
	}
	if d.deps.Client == nil || !documentURL(dest, d.deps.PlainLoopback) || !d.policy.allows(dest) {
		return Agent{}, false, &egress.DeniedError{Host: hostport(dest), Reason: egress.ReasonNotListed}
	}
	if agent, ok := d.visitors[dest]; ok {
		return agent, true, nil
	}
	if len(d.order) >= maxVisitors {
		delete(d.visitors, d.order[0])
		d.drop(d.order[0])
		d.order = d.order[1:]
	}
	agent := Agent{Name: dest, Capability: dest, Rules: d.policy.Rules}
	d.visitors[dest], d.order = agent, append(d.order, dest)
	return agent, true, nil
}

func (p Documents) allows(address string) bool {
	at := hostport(strings.ToLower(address))
	name := host(address)
	return slices.ContainsFunc(p.Hosts, func(entry string) bool {
		entry = strings.ToLower(entry)
		domain, wild := strings.CutPrefix(entry, "*")
		return entry == name || entry == at || (wild && strings.HasSuffix(name, domain))
	})
}

// EndedError: the agent takes no new work, or none any more (AEPB, Lifecycle States).
type EndedError struct {
	Agent     string
	Status    Status // Draining or Retired
	Successor string // URL of its successor's capability document; empty: none
}

func (e *EndedError) Error() string {
	text := "the agent " + e.Agent + " is " + string(e.Status)
	if e.Successor != "" { // also in words: not every protocol has a place for it
		text += "; its successor is " + e.Successor
	}
	return text
}

// Reach is an agent as it can be called: described by its capability document
// if it has one, and its successor in its place if it has ended and one can be
// trusted (AEPB, Successor Discovery). Errors: *EndedError, *DocumentError,
// *egress.DeniedError, *transport.UnreachableError, *transport.TimeoutError.
func (d *Directory) Reach(ctx context.Context, agent Agent) (Agent, error) {
	first, err := d.resolveFor(ctx, agent, "")
	if err != nil || !first.Ended() {
		return first, err
	}
	refusal := &EndedError{Agent: first.Name, Status: first.Lifecycle.Status, Successor: first.Lifecycle.Successor}
	seen := map[string]bool{first.Capability: true}
	for at := first; len(seen) <= maxSuccession; {
		next := at.Lifecycle.Successor
		if next == "" || seen[next] {
			return first, refusal
		}
		seen[next] = true
		heir, ok, err := d.Visitor(next)
		if err != nil || !ok {
			return first, refusal
		}
		resolved, err := d.resolveFor(ctx, heir, agent.Name)
		if err != nil || (resolved.Lifecycle.Status != Retired && resolved.AssuranceLevel < floor(at)) {
			return first, refusal
		}
		if !resolved.Ended() {
			return resolved, nil
		}
		resolved.AssuranceLevel = max(resolved.AssuranceLevel, at.AssuranceLevel) // a chain never goes down
		at = resolved
	}
	return first, refusal
}

// floor is what a successor must demand at least; where the predecessor's
// document is gone before it was ever read, what we always demand.
func floor(a Agent) ect.Level {
	if a.AssuranceLevel == 0 {
		return ect.L2
	}
	return a.AssuranceLevel
}

// Resolve puts in what an agent's capability document says; an agent without one comes
// back as it is. One that a caller named by its document gets Listings, as in [Directory.Reach].
func (d *Directory) Resolve(ctx context.Context, agent Agent) (Agent, error) {
	return d.resolveFor(ctx, agent, "")
}

// resolve is Resolve without Listings.
func (d *Directory) resolve(ctx context.Context, agent Agent) (Agent, error) {
	if agent.Capability == "" {
		return agent, nil
	}
	d.mu.RLock()
	r, ok := d.resolved[agent.Name]
	d.mu.RUnlock()
	if ok && d.deps.Now().Before(r.until) {
		return r.agent, r.err
	}
	if agent.Listed() {
		ctx = egress.WithPurpose(ctx, egress.Purpose{Agent: agent.Name, Own: true})
	}
	fetched := d.document(ctx, agent.Capability, agent.ID, d.fetcher(agent))
	merged, err := d.merge(agent, fetched)
	d.keep(agent, merged, err, fetched.until)
	return merged, err
}

// Known returns the lifecycle of an agent: that in its capability document as it was last read, however
// long ago, or what its operators have said, whichever is nearer to its end. It asks no agent.
func (d *Directory) Known(agent Agent) Lifecycle {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if r, ok := d.resolved[agent.Name]; ok && agent.Capability != "" && r.err == nil {
		return d.living(r.agent).Lifecycle
	}
	return d.living(agent).Lifecycle
}

// living is an agent with what its operators have said of its future, where that is nearer to its
// end than what it says itself.
func (d *Directory) living(agent Agent) Agent {
	if d.deps.Lives == nil || !agent.Listed() {
		return agent
	}
	own := d.deps.Lives(agent.Name)
	stages := []Status{"", Active, Deprecated, Draining, Retired}
	if slices.Index(stages, own.Status) > max(slices.Index(stages, agent.Lifecycle.Status), 1) {
		own.Version = agent.Lifecycle.Version
		agent.Lifecycle = own
	}
	return agent
}

// Ended reports whether an agent takes no new work, or none any more.
func (a Agent) Ended() bool { return a.Lifecycle.Status == Draining || a.Lifecycle.Status == Retired }

// document fetches once for all who wait. As with descriptions, the fetch
// outlives a caller who goes away, bounded by documentLimit.
func (d *Directory) document(ctx context.Context, address string, expected ect.Identity, by transport.Client) fetchedDocument {
	name := address + " " + string(expected)
	result := d.flight.DoChan("document "+name, func() (any, error) {
		d.mu.RLock()
		old := d.documents[name]
		d.mu.RUnlock()
		if d.deps.Now().Before(old.until) {
			return old, nil
		}
		fetched := d.fetchDocument(context.WithoutCancel(ctx), by, address, expected, old)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.evict()
		d.documents[name] = fetched
		return fetched, nil
	})
	select {
	case <-ctx.Done():
		return fetchedDocument{err: ctx.Err()}
	case r := <-result:
		fetched, _ := r.Val.(fetchedDocument)
		return fetched
	}
}

// evict forgets documents of agents that are not listed before there are too many.
func (d *Directory) evict() {
	if len(d.documents) < maxDocuments {
		return
	}
	used := map[string]bool{}
	for _, list := range []map[string]Agent{d.agents, d.visitors} {
		for _, agent := range list {
			used[agent.Capability+" "+string(agent.ID)] = true
		}
	}
	maps.DeleteFunc(d.documents, func(name string, _ fetchedDocument) bool { return !used[name] })
}

// merge is the agent as its document describes it. The versions of a document
// are not kept to: the newest mutual one is found with the agent itself (R8).
func (d *Directory) merge(agent Agent, fetched fetchedDocument) (Agent, error) {
	document := fetched.document
	switch {
	case fetched.err != nil:
		return agent, fetched.err
	case fetched.gone:
		agent.Lifecycle, agent.AssuranceLevel = document.Lifecycle, max(agent.AssuranceLevel, document.Level)
		return agent, nil
	case agent.ID != "" && agent.ID != document.AgentID:
		return agent, invalid("agent_id is not the one that the operator expects")
	}
	agent.ID, agent.AssuranceLevel = document.AgentID, max(agent.AssuranceLevel, document.Level)
	agent.Lifecycle, agent.Gateways, agent.Namespaces = document.Lifecycle, document.Gateways, document.Namespaces
	agent.Endpoints, agent.Beyond = nil, nil
	beyond := slices.Clone(document.Protocols)
	slices.SortStableFunc(beyond, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Rank(), b.Rank()), strings.Compare(string(a.Binding), string(b.Binding)))
	})
	for _, e := range beyond {
		if d.deps.Describers[e.Binding] == nil {
			agent.Beyond = append(agent.Beyond, e.Binding)
		}
	}
	for _, e := range document.Protocols {
		if d.deps.Describers[e.Binding] != nil {
			e.Version = ""
			agent.Endpoints = append(agent.Endpoints, e)
		}
	}
	return agent, nil
}

// keep remembers a resolved agent, unless its operator has changed it meanwhile.
// Endpoints on the document's own host, which the operator named, may have
// private addresses as that may; others may not.
func (d *Directory) keep(agent, merged Agent, err error, until time.Time) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return // the caller's own end says nothing of the agent
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	listed, ok := d.agents[agent.Name]
	if !ok {
		listed, ok = d.visitors[agent.Name]
	}
	if !ok || listed.Capability != agent.Capability || listed.ID != agent.ID {
		return
	}
	if old, known := d.resolved[agent.Name]; known && (old.agent.ID != merged.ID || !slices.Equal(old.agent.Endpoints, merged.Endpoints)) {
		d.forget(agent.Name)
	}
	d.resolved[agent.Name] = resolved{merged, err, until}
	if _, visits := d.visitors[agent.Name]; visits {
		return // callers named it, not an operator
	}
	for _, e := range merged.Endpoints {
		if host(e.URL) == host(agent.Capability) {
			d.grant(agent.Name, e.URL)
		}
	}
}

// current is an agent as it is known now, with its document's endpoints.
func (d *Directory) current(name string) (Agent, bool) {
	if r, ok := d.resolved[name]; ok {
		return r.agent, r.err == nil
	}
	agent, ok := d.agents[name]
	return agent, ok
}

// revised is what is known of an endpoint in a version that suits a viewer better than the
// one in which it was found. It stays as found where it does not speak that version, which
// is not tried again for a while, and where it keeps no session on which it could ask.
func (d *Directory) revised(ctx context.Context, agent Agent, e Endpoint, v Viewer, found knowledge) knowledge {
	k := d.look(ctx, agent, e, v)
	if _, refused := errors.AsType[*transport.BadReplyError](k.err); refused {
		d.putOff(key(agent.Name, e) + viewOf(v.CanAnswer))
	}
	if k.err != nil || k.endpoint.Sessionless {
		return found
	}
	return k
}

// revision is the version that suits a viewer; empty: the one in which it was found. Where an
// agent keeps no session of each caller it is not tried: all would share one that began in it.
func (d *Directory) revision(e Endpoint, v Viewer, k knowledge) string {
	by, ok := d.deps.Describers[e.Binding].(transport.ByRevision)
	if !ok || e.Through != "" || e.Version != "" || k.err != nil || k.description == nil || k.endpoint.Sessionless {
		return ""
	}
	return by.Revision(k.description, v.Version, v.CanAnswer)
}

// NamesOf are what tokens call an agent, its identity first; false: there is no such agent.
func (d *Directory) NamesOf(ctx context.Context, name string) (names []string, known bool) {
	agent, known := d.Find(name)
	if !known {
		return nil, false
	}
	if agent.ID == "" && len(agent.Endpoints) == 0 { // its document says them
		if resolved, err := d.Resolve(ctx, agent); err == nil {
			agent = resolved
		}
	}
	if agent.ID != "" {
		names = append(names, string(agent.ID))
	}
	for _, e := range agent.Endpoints {
		names = append(names, e.Audience(agent.Name))
	}
	return names, true
}
