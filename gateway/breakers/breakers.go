package breakers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// Bounds of the breakers of destinations that callers name: of all callers, and of one.
const (
	maxNamed    = 4096
	maxNamedOne = 256
)

// Metrics counts and shows breakers.
type Metrics interface {
	BreakerChanged(agent, to string) // closed, half_open or open
	BreakerEscalated(reason string)
}

// Entries is what replicas share (R18).
type Entries = record.Entries

// Deps is what a Set is built from. Every field is required.
type Deps struct {
	Entries Entries
	// Sign leaves evidence of a change, which follows another token of the same breaker, and returns the token.
	Sign    func(ctx context.Context, after string, act ect.Act, ext ect.Ext) (compact string, err error)
	Metrics Metrics
	// Escalate tells operators that an agent needs a human, and does not wait for that.
	Escalate func(context.Context, Event)
	Replica  string // names this process among the replicas
	Now      func() time.Time
	Logger   *slog.Logger
}

// Set is all breakers of a gateway. It is safe for concurrent use.
type Set struct {
	deps    Deps
	circuit atomic.Pointer[breaker.Config]
	records *record.Machine[breaker.Shared]

	coordination coordination // openings of this gateway and of others, by agent

	mu       sync.RWMutex
	all      map[key]*destination
	last     map[string]string // by agent: the token that was signed last here
	openings breaker.Openings  // of agents and gateways that are listed
	watchers map[chan Event]*quota.Grant
	ended    bool        // watchers hear nothing more
	watching *quota.Pool // what each identity may watch
	named    *quota.Pool // breakers of destinations that callers name
}

// New makes an empty set.
func New(deps Deps) (*Set, error) {
	if deps.Entries == nil || deps.Sign == nil || deps.Metrics == nil || deps.Escalate == nil || deps.Replica == "" || deps.Now == nil || deps.Logger == nil {
		return nil, errors.New("breakers: incomplete Deps: every field is required")
	}
	watching, err := quota.New(quota.Config{Resource: "watches of circuit breakers", Total: maxWatchers, PerHolder: maxWatchesOne})
	if err != nil {
		return nil, err
	}
	named, err := quota.New(quota.Config{Resource: "circuit breakers", Total: maxNamed, PerHolder: maxNamedOne})
	if err != nil {
		return nil, err
	}
	s := &Set{deps: deps, all: map[key]*destination{}, last: map[string]string{}, watchers: map[chan Event]*quota.Grant{}, watching: watching, named: named}
	s.records, err = record.New(record.Kind[breaker.Shared]{
		Encode: func(shared breaker.Shared) ([]byte, error) { return json.Marshal(shared) }, Decode: decode, Life: sharedFor,
	}, record.Deps{Entries: deps.Entries, Now: deps.Now, Logger: deps.Logger})
	s.Configure(policy.Circuit{})
	return s, err
}

// Configure puts in force when breakers open from now on. A nil Set has nothing to do with it.
func (s *Set) Configure(circuit policy.Circuit) {
	if s == nil {
		return
	}
	c := breaker.Defaults()
	if circuit.Threshold > 0 {
		c.Threshold = circuit.Threshold
	}
	if circuit.Window > 0 {
		c.Window = circuit.Window
	}
	if circuit.Samples > 0 {
		c.MinSamples = circuit.Samples
	}
	s.circuit.Store(&c)
}

// sign leaves evidence of what happened to a breaker; empty: it could not be recorded.
func (s *Set) sign(ctx context.Context, agent string, act ect.Act, ext ect.Ext) string {
	s.mu.RLock()
	after := s.last[agent]
	s.mu.RUnlock()
	token, err := s.deps.Sign(ctx, after, act, ext)
	if err != nil {
		s.deps.Logger.ErrorContext(ctx, "a change of a circuit breaker could not be recorded", slog.String("agent", agent), slog.String("act", string(act)), slog.Any("error", err))
		return token
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.last) >= maxNamed {
		clear(s.last) // what follows begins a graph of its own
	}
	s.last[agent] = token
	return token
}

// Target is where a call goes.
type Target struct {
	Kind     outbound.Kind
	Endpoint transport.Endpoint
	Label    string // in metrics
	URL      string // of a webhook or a callback
}

func targetOf(call *outbound.Call) Target {
	t := Target{Kind: call.Kind, Endpoint: call.Endpoint, Label: call.Agent}
	switch call.Kind {
	case outbound.Webhook:
		t.URL, t.Label = call.Webhook.URL, "webhook"
	case outbound.Callback:
		t.URL, t.Label = call.Decision.URL, "callback"
	case outbound.Peer:
	default:
		if !t.listed() { // its name is a URL that a caller made
			t.Label = "document"
		}
	}
	return t
}

// key names a breaker. What a caller names has one for each caller, which replicas do not share: callers
// would fill the store.
type key struct {
	kind, name string
	caller     ect.Identity
}

// names are the key of a breaker, and how its destination is called in evidence.
func (t *Target) names() (k key, downstream string) {
	switch t.Kind {
	case outbound.Webhook, outbound.Callback:
		k = key{"host", "", t.Endpoint.Caller}
		if u, err := url.Parse(t.URL); err == nil {
			k.name = u.Host
		}
		return k, k.name
	case outbound.Peer:
		return key{"gateway", string(t.Endpoint.ID), ""}, string(t.Endpoint.ID)
	default:
		k = key{"agent", t.Endpoint.Agent, ""}
		if !t.listed() {
			k.caller = t.Endpoint.Caller
		}
		return k, cmp.Or(string(t.Endpoint.ID), t.Endpoint.Agent)
	}
}

// listed: an operator named it.
func (t *Target) listed() bool {
	return t.Kind != outbound.Webhook && t.Kind != outbound.Callback && !strings.Contains(t.Endpoint.Agent, "/")
}

// find is the breaker of a target; nil: it has none, since all there may be are in use.
func (s *Set) find(t *Target) *destination {
	k, downstream := t.names()
	if d := s.known(k); d != nil {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.all[k]; d != nil {
		return d
	}
	d := &destination{set: s, key: k, downstream: downstream, label: t.Label, listed: t.listed()}
	if !d.listed && !s.placed(d) {
		return nil
	}
	s.all[k] = d
	return d
}

func (s *Set) known(k key) *destination {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[k]
}

// placed takes a place for a breaker out of its caller's share, of whose closed ones one gives way.
func (s *Set) placed(d *destination) bool {
	for {
		place, err := s.named.Take(string(d.key.caller), 1)
		if d.place = place; err == nil {
			return true
		}
		if !s.makeSpace(d.key.caller) {
			return false
		}
	}
}

// makeSpace takes out a breaker that is closed, of a destination that this caller named.
func (s *Set) makeSpace(caller ect.Identity) bool {
	for k, d := range s.all {
		if !d.listed && k.caller == caller && d.idle() {
			delete(s.all, k)
			d.place.Release()
			return true
		}
	}
	return false
}

// Stage is the stage of the sender chain. Its own error is a *[problem.CircuitOpenError].
func (s *Set) Stage(next outbound.Sender) outbound.Sender {
	return outbound.SendFunc(func(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
		target := targetOf(call)
		d := s.find(&target)
		if d == nil {
			return next.Send(ctx, call)
		}
		describes := call.Kind == outbound.Description
		caller := call.Endpoint.Caller
		began := s.deps.Now()
		passed, err := d.ask(ctx, caller, describes)
		if err != nil {
			return outbound.Reply{}, err
		}
		report := func(ctx context.Context, err error, first bool) {
			e := endingOf(err, describes)
			e.probe, e.began = first && passed == asProbe, began
			d.report(ctx, caller, e)
		}
		reply, err := next.Send(ctx, call)
		switch {
		case err != nil && describes && answers(err):
			report(ctx, errLeft, true) // it may lack what it was asked about
		case err != nil:
			report(ctx, err, true)
		case describes: // who can say what it is may still fail at its work
			d.described(caller, passed == asProbe)
		case reply.Events != nil:
			reply.Events = &watched{Events: reply.Events, awaited: passed != free, report: func(err error, first bool) {
				report(context.WithoutCancel(ctx), err, first)
			}}
		case call.Kind > outbound.Peer || len(reply.Wire.Body) == 0: // there is nothing to read
			report(ctx, nil, true)
		}
		return reply, err
	})
}

// Refusal is why no call is prepared for a target: its breaker is open, a
// *[problem.CircuitOpenError]. nil: the stage decides. A nil Set refuses nothing.
func (s *Set) Refusal(t Target) error {
	if s == nil {
		return nil
	}
	k, _ := t.names()
	d := s.known(k)
	if d == nil {
		return nil
	}
	config, now := *s.circuit.Load(), s.deps.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refused(t.Endpoint.Caller, now); err != nil {
		return err
	}
	if d.breaker.State() != breaker.Open || d.passes(t.Endpoint.Caller, config, now) { // whether the probe of one that is half-open was lost, the stage finds out
		return nil
	}
	if _, verdict, _ := d.breaker.Ask(config, now); !verdict.Pass {
		return &problem.CircuitOpenError{Agent: d.downstream, RetryAfter: verdict.Wait}
	}
	return nil
}

// Report tells what a reply or an event turned out to be when it was read: why it is a
// failure, as an error; nil: it is an answer. An agent's refusal that it means is one. A nil
// Set hears nothing.
func (s *Set) Report(ctx context.Context, t Target, err error) {
	if s == nil {
		return
	}
	if d := s.find(&t); d != nil {
		d.count(ctx, t.Endpoint.Caller, endingOf(err, false))
	}
}

// watched is a stream that reports how it ends, and of a call that was let through alone also that it has begun.
type watched struct {
	transport.Events

	mu      sync.Mutex
	awaited bool // how it begins was not reported yet
	began   bool // an event has come
	over    bool
	report  func(err error, first bool)
}

// Next implements transport.Events.
func (w *watched) Next(ctx context.Context) (transport.Event, error) {
	event, err := w.Events.Next(ctx)
	switch {
	case err == nil:
		w.event()
	case ctx.Err() == nil:
		w.end(err)
	}
	return event, err
}

// Close implements transport.Events.
func (w *watched) Close() error {
	w.end(errLeft)
	return w.Events.Close()
}

func (w *watched) event() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began = true; w.awaited {
		w.awaited = false
		w.report(nil, true)
	}
}

// end reports the end. Who leaves after an event has had an answer.
func (w *watched) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	ended := errors.Is(err, io.EOF) && !errors.As(err, new(*transport.UnreachableError))
	if w.over = true; ended || w.began && errors.Is(err, errLeft) {
		err = nil
	}
	w.report(err, w.awaited)
}
