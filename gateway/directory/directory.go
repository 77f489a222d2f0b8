package directory

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// How long a description is used, and how soon a failed fetch is tried again.
const (
	freshFor   = 5 * time.Minute
	retryAfter = 2 * time.Second
	renewAfter = 5 * time.Second // between two fetches for callers that name what is not known, at least
	renewShare = 20              // such a fetch takes one part of so many of the time until the next
	fetchLimit = 15 * time.Second
)

// Allower opens and closes egress to an endpoint that an operator listed.
type Allower interface {
	Allow(hostport string)
	Disallow(hostport string)
}

// Deps is what a Directory needs. PlainLoopback is for development gateways.
type Deps struct {
	Describers    map[canonical.Binding]transport.Describer
	Egress        Allower
	Client        transport.Client             // fetches capability documents; nil: no agent can have one
	Documents     transport.Client             // fetches those that callers name, without the grants of agents; nil: Client does
	Grants        Allower                      // opens Documents to the hosts of [Documents]; nil: nothing to open
	Ours          func(hostport string) bool   // reports whether this gateway listens there; nil: not known
	Pins          Pins                         // nil: in memory
	Changed       func(agent string)           // counts changed descriptions; nil: they are not counted
	CountQuery    func(result string)          // counts questions to other gateways: served, unserved, failed; nil: they are not counted
	Lives         func(agent string) Lifecycle // what operators have said of a listed agent's future; nil: nothing
	Beyond        transport.Describer          // asks peers about agents behind them; nil: no agent can be reached through one
	Programs      Programs                     // that run for agents; nil: there are none
	PlainLoopback bool
	Now           func() time.Time
	Logger        *slog.Logger
}

// Directory is safe for concurrent use.
type Directory struct {
	deps   Deps
	flight singleflight.Group

	mu        sync.RWMutex
	agents    map[string]Agent           // as their operators describe them
	known     map[string]knowledge       // by name, binding and version
	granted   map[string][]string        // what egress was opened to, by name
	documents map[string]fetchedDocument // by URL and expected id
	resolved  map[string]resolved        // by name: agents as their documents describe them
	visitors  map[string]Agent           // found by callers, by URL
	order     []string                   // of visitors, the oldest first
	policy    Documents
	peers     []Peer
	answers   map[string]Verdict   // of peers, by question
	renewed   map[string]time.Time // by name: from when on Renew may ask an agent again
}

// Viewer is for whom an agent describes itself.
type Viewer struct {
	Caller    ect.Identity
	CanAnswer []canonical.Mode // what the caller can be asked
	Version   string           // of the endpoint's protocol, which the caller uses itself; empty: it uses another protocol
	Listing   bool             // the caller wants to see all that there is now; else what is known will do
	Offer     policy.Offer     // what of it the caller sees
}

// knowledge is what one endpoint said about itself, or why it could not.
type knowledge struct {
	description *canonical.Description
	endpoint    transport.Endpoint
	err         error
	until       time.Time
	stale       time.Time       // from when on a listing asks again
	pending     map[string]bool // capabilities whose change waits for an operator (R9)
	offered     *offered        // of the description, to callers who do not see all of it; nil: there is none
}

// New makes an empty directory.
func New(deps Deps) (*Directory, error) {
	if deps.Describers == nil || deps.Egress == nil || deps.Now == nil || deps.Logger == nil {
		return nil, errors.New("directory: incomplete Deps: expected describers, an egress client, a clock and a logger")
	}
	deps.Pins = cmp.Or[Pins](deps.Pins, &memoryPins{pins: map[string]Pin{}})
	deps.Documents = cmp.Or(deps.Documents, deps.Client)
	deps.Programs = cmp.Or[Programs](deps.Programs, noPrograms{})
	if deps.Ours == nil {
		deps.Ours = func(string) bool { return false }
	}
	if deps.Changed == nil {
		deps.Changed = func(string) {}
	}
	if deps.CountQuery == nil {
		deps.CountQuery = func(string) {}
	}
	return &Directory{
		deps: deps, agents: map[string]Agent{}, known: map[string]knowledge{}, granted: map[string][]string{},
		documents: map[string]fetchedDocument{}, resolved: map[string]resolved{}, visitors: map[string]Agent{}, answers: map[string]Verdict{},
		renewed: map[string]time.Time{},
	}, nil
}

// Check says what Put would say of an agent itself.
func (d *Directory) Check(agent Agent) error {
	speaks := func(b canonical.Binding) bool { return d.deps.Describers[b] != nil }
	if agent.Capability != "" && d.deps.Client == nil {
		return &InvalidAgentError{Name: agent.Name, Reason: "this gateway fetches no capability documents"}
	}
	return agent.validate(speaks, d.deps.PlainLoopback)
}

// Put lists an agent or replaces the one of that name. Its error is an *InvalidAgentError.
func (d *Directory) Put(agent Agent) error {
	if err := d.Check(agent); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, replaces := d.agents[agent.Name]; !replaces && len(d.agents) >= MaxAgents {
		return &InvalidAgentError{Name: agent.Name, Reason: "the directory is full"}
	}
	d.drop(agent.Name)
	agent.Endpoints, agent.Expose, agent.Undo = slices.Clone(agent.Endpoints), slices.Clone(agent.Expose), agent.Undo.clone()
	agent.Rules = agent.Rules.Parsed()
	d.agents[agent.Name] = agent
	if agent.Capability != "" { // an operator who lists an agent again wants it asked again
		document := agent.Capability + " " + string(agent.ID)
		if old, ok := d.documents[document]; ok {
			old.until = time.Time{}
			d.documents[document] = old
		}
		d.grant(agent.Name, agent.Capability)
	}
	program := ""
	for _, e := range agent.Endpoints {
		switch {
		case e.IsProgram():
			program = e.URL
		case e.Through == "":
			d.grant(agent.Name, e.URL)
		}
		if e.GRPC != "" {
			d.grant(agent.Name, "https://"+e.GRPC)
		}
	}
	d.deps.Programs.Drop(agent.Name, program)
	return nil
}

// grant opens egress to a URL on behalf of an agent, until it is dropped.
func (d *Directory) grant(name, address string) {
	at := hostport(address)
	if !slices.Contains(d.granted[name], at) {
		d.granted[name] = append(d.granted[name], at)
		d.deps.Egress.Allow(at)
	}
}

// Remove takes an agent out; false: there was none of that name.
func (d *Directory) Remove(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.agents[name]
	d.drop(name)
	d.deps.Programs.Drop(name, "")
	return ok
}

func (d *Directory) drop(name string) {
	delete(d.agents, name)
	d.forget(name)
	for _, at := range d.granted[name] {
		d.deps.Egress.Disallow(at)
	}
	delete(d.granted, name)
}

// forget drops what the agent said, and keeps who it is.
func (d *Directory) forget(name string) {
	delete(d.resolved, name)
	delete(d.renewed, name)
	maps.DeleteFunc(d.known, func(k string, _ knowledge) bool { return strings.HasPrefix(k, name+" ") })
}

// Outdated forgets the description of an agent, which has said that it has changed. The next
// request that needs the description asks the agent again.
func (d *Directory) Outdated(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.known, func(k string, _ knowledge) bool { return strings.HasPrefix(k, name+" ") })
}

// List returns the agents in order of name.
func (d *Directory) List() []Agent {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.SortedFunc(maps.Values(d.agents), func(x, y Agent) int { return strings.Compare(x.Name, y.Name) })
}

// AgentAt is the identity of the listed agent with an endpoint at a URL; false:
// there is none, or its identity is not known.
func (d *Directory) AgentAt(url string) (ect.Identity, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for name, agent := range d.agents {
		id := agent.ID
		if r, ok := d.resolved[name]; ok && id == "" && r.err == nil {
			id = r.agent.ID
		}
		if id != "" && slices.ContainsFunc(agent.Endpoints, func(e Endpoint) bool { return e.URL == url }) {
			return id, true
		}
	}
	return "", false
}

// Find finds an agent by directory name or SPIFFE id.
func (d *Directory) Find(dest string) (Agent, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if agent, ok := d.agents[dest]; ok {
		return d.living(agent), true
	}
	if strings.Contains(dest, "://") {
		for _, agent := range d.agents {
			if agent.ID != "" && agent.ID == ect.Identity(dest) {
				return d.living(agent), true
			}
		}
		for name, r := range d.resolved {
			if agent, listed := d.agents[name]; listed && r.err == nil && r.agent.ID == ect.Identity(dest) {
				return d.living(agent), true
			}
		}
	}
	return Agent{}, false
}

// Describe is what an agent says about itself over one of its endpoints,
// cleaned, and the endpoint with its version negotiated; an endpoint that names
// a version is kept to it, though its operator leaves it open. The result is
// shared: it must not be changed.
func (d *Directory) Describe(ctx context.Context, agent Agent, e Endpoint, caller ect.Identity) (*canonical.Description, transport.Endpoint, error) {
	return d.DescribeFor(ctx, agent, e, Viewer{Caller: caller})
}

// DescribeAnew is Describe for an operator, who wants to know whether the agent answers now: it is
// asked, whatever is known of it.
func (d *Directory) DescribeAnew(ctx context.Context, agent Agent, e Endpoint) (*canonical.Description, transport.Endpoint, error) {
	k := d.learn(ctx, key(agent.Name, e), agent, e, Viewer{})
	return k.description, k.endpoint, k.err
}

// DescribeFor is Describe, as the agent shows itself to clients like the viewer.
// When a listing is due and the agent cannot be asked, what it said last is shown.
func (d *Directory) DescribeFor(ctx context.Context, agent Agent, e Endpoint, v Viewer) (*canonical.Description, transport.Endpoint, error) {
	v = d.narrow(e, v)
	k := d.look(ctx, agent, e, v)
	if revision := d.revision(e, v, k); revision != "" && revision != k.endpoint.Version {
		e.Version = revision
		k = d.revised(ctx, agent, e, v, k)
	}
	k.endpoint.Caller = v.Caller
	return k.seen(v.Offer), k.endpoint, k.err
}

// putOff leaves a version alone that an agent refused, once for each refusal.
func (d *Directory) putOff(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k, ok := d.known[name]; ok && k.err != nil && k.stale.IsZero() {
		k.stale = d.deps.Now()
		k.until = k.stale.Add(freshFor)
		d.known[name] = k
	}
}

// look is what is known of an endpoint in its version, asked for where that is due.
func (d *Directory) look(ctx context.Context, agent Agent, e Endpoint, v Viewer) knowledge {
	name := key(agent.Name, e) + viewOf(v.CanAnswer)
	d.mu.RLock()
	k, ok := d.known[name]
	d.mu.RUnlock()
	switch now := d.deps.Now(); {
	case !ok || !now.Before(k.until):
		k = d.learn(ctx, name, agent, e, v)
	case v.Listing && !now.Before(k.stale):
		if fresh := d.learn(ctx, name, agent, e, v); fresh.err == nil {
			k = fresh
		}
	}
	return k
}

// Renew asks an agent anew whose description lacks what a caller named; false: it was
// asked so within the last five seconds, or longer ago if that took long, or cannot be asked.
func (d *Directory) Renew(ctx context.Context, agent Agent, e Endpoint, v Viewer) (*canonical.Description, transport.Endpoint, bool) {
	v = d.narrow(e, v)
	d.mu.Lock()
	now := d.deps.Now()
	due := !now.Before(d.renewed[agent.Name])
	if due {
		d.renewed[agent.Name] = now.Add(renewAfter)
	}
	d.mu.Unlock()
	if !due {
		return nil, transport.Endpoint{}, false
	}
	k := d.learn(ctx, key(agent.Name, e)+viewOf(v.CanAnswer), agent, e, v)
	if revision := d.revision(e, v, k); revision != "" && revision != k.endpoint.Version {
		e.Version = revision
		if own := d.learn(ctx, key(agent.Name, e)+viewOf(v.CanAnswer), agent, e, v); own.err == nil && !own.endpoint.Sessionless {
			k = own
		}
	}
	k.endpoint.Caller = v.Caller
	return k.seen(v.Offer), k.endpoint, k.err == nil
}

// narrow leaves out what the agents of an endpoint's protocol do not look at.
func (d *Directory) narrow(e Endpoint, v Viewer) Viewer {
	if _, ok := d.deps.Describers[e.Binding].(transport.ByCapabilities); !ok || e.Through != "" {
		v.CanAnswer = nil
	}
	return v
}

// modes are what a client can be asked, in the order in which a view names them.
// Text is asked for by forms.
var modes = [...]canonical.Mode{canonical.ModeForm, canonical.ModeURL, canonical.ModeSampling, canonical.ModeRoots}

// viewOf names what an agent shows to clients that can be asked so, among the keys
// of one endpoint. There are sixteen at most; the one without a name is for clients
// that cannot be asked.
func viewOf(askable []canonical.Mode) string {
	var view strings.Builder
	for _, mode := range modes {
		if slices.Contains(askable, mode) || mode == canonical.ModeForm && slices.Contains(askable, canonical.ModeText) {
			view.WriteString("?" + string(mode))
		}
	}
	return view.String()
}

// keys are those of all views of an endpoint, in each version that it may be asked in.
func (d *Directory) keys(name string, e Endpoint) []string {
	list := viewsOf(key(name, e))
	if by, ok := d.deps.Describers[e.Binding].(transport.ByRevision); ok && e.Version == "" {
		for _, e.Version = range by.Revisions() {
			list = append(list, viewsOf(key(name, e))...)
		}
	}
	return list
}

func viewsOf(base string) []string {
	list := []string{base}
	for set := 1; set < 1<<len(modes); set++ {
		var askable []canonical.Mode
		for i, mode := range modes {
			if set&(1<<i) != 0 {
				askable = append(askable, mode)
			}
		}
		list = append(list, base+viewOf(askable))
	}
	return list
}

// patience is how long an agent may take to say who it is.
func patience(agent Agent) time.Duration {
	if agent.Timeout > 0 {
		return min(agent.Timeout, fetchLimit)
	}
	return fetchLimit
}

func (d *Directory) fetch(ctx context.Context, name string, agent Agent, e Endpoint, v Viewer) knowledge {
	target := transport.Endpoint{
		Agent: agent.Name, ID: agent.ID, Binding: e.Binding, Version: e.Version,
		URL: e.URL, GRPC: e.GRPC, Form: e.Form, Caller: v.Caller, Timeout: patience(agent),
		Expose: agent.Expose, AnswerModes: v.CanAnswer,
	}
	describer := d.deps.Describers[e.Binding]
	if e.Through != "" {
		peer, ok := d.Peer(e.Through)
		if !ok {
			return knowledge{err: &InvalidAgentError{Name: agent.Name, Reason: "no gateway among the peers is " + string(e.Through)}, until: d.deps.Now().Add(retryAfter)}
		}
		target.URL, target.ID, describer = peer.URL, peer.ID, d.deps.Beyond
	}
	description, target, err := describer.Describe(ctx, target)
	target.Timeout, target.Caller = agent.Timeout, v.Caller
	if err != nil {
		level := slog.LevelDebug // of a revision that was only tried
		if slices.ContainsFunc(agent.Endpoints, func(own Endpoint) bool { return own.Binding == e.Binding && own.Version == e.Version }) {
			level = slog.LevelWarn
		}
		d.deps.Logger.Log(ctx, level, "agent could not be described",
			slog.String("agent", agent.Name), slog.String("binding", string(e.Binding)), slog.Any("error", err), logCause(err))
		return knowledge{err: err, endpoint: target, until: d.deps.Now().Add(retryAfter)}
	}
	return d.pin(ctx, name, agent, e, target, description)
}

// pin cleans a description and compares it with the one that was seen before.
func (d *Directory) pin(ctx context.Context, name string, agent Agent, e Endpoint, target transport.Endpoint, description *canonical.Description) knowledge {
	clean, removed := Clean(*description)
	clean.Extended = clean.Extended && !agent.Pin // no operator has accepted what it would show
	if removed {
		d.deps.Logger.WarnContext(ctx, "hidden characters, excess length or unnamed capabilities removed from an agent's description",
			slog.String("agent", agent.Name), slog.String("loss", string(canonical.LossText)))
	}
	served, pending, err := d.compare(ctx, name, agent, e, clean)
	if err != nil {
		return knowledge{err: err, endpoint: target, until: d.deps.Now().Add(retryAfter)}
	}
	now, fresh := d.deps.Now(), freshFor
	if target.Fresh > 0 {
		fresh = min(target.Fresh, freshFor)
	}
	return knowledge{description: served, endpoint: target, until: now.Add(freshFor), stale: now.Add(fresh), pending: pending, offered: &offered{}}
}

// lists reports whether an endpoint is one of an agent's as they are now.
func lists(agent Agent, e Endpoint) bool {
	return slices.ContainsFunc(agent.Endpoints, func(listed Endpoint) bool {
		listed.Version = cmp.Or(listed.Version, e.Version)
		return listed == e
	})
}

func key(name string, e Endpoint) string { return name + " " + string(e.Binding) + " " + e.Version }

func logError(err error) slog.Attr { return slog.Any("error", err) }

func hostport(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "http" || u.Scheme == "ws" {
		return u.Host + ":80"
	}
	return u.Host + ":443"
}

// logCause is what the network said of an agent that cannot be reached.
func logCause(err error) slog.Attr {
	if cause := errors.Unwrap(err); cause != nil {
		return slog.Any("cause", cause)
	}
	return slog.Attr{}
}
