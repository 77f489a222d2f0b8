package admission_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	addBody  = `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"1 + 2"}]}}}`
	goOnBody = `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","taskId":"begun","parts":[{"text":"3"}]}}}`
	getBody  = `{"jsonrpc":"2.0","id":8,"method":"GetTask","params":{"id":"begun"}}`
)

// codec is A2A, and counts what it reads.
type codec struct {
	*a2a.Translator

	decoded *atomic.Int32
}

func (c codec) Decode(w translators.Wire) (*canonical.Message, error) {
	c.decoded.Add(1)
	return c.Translator.Decode(w)
}

// store keeps evidence, and can fail.
type store struct {
	*ecttest.Store

	put, get, standing error

	puts []string // compact, in order

	getAfter, gets int // so many look-ups succeed before they fail; 0: all
}

func (s *store) Put(ctx context.Context, r ect.Record) error {
	if s.put != nil {
		return s.put
	}
	s.puts = append(s.puts, r.Compact)
	return s.Store.Put(ctx, r)
}

func (s *store) Get(ctx context.Context, refs ...ect.Ref) ([][]ect.Record, error) {
	if s.get != nil {
		return nil, s.get
	}
	if s.gets++; s.getAfter > 0 && s.gets > s.getAfter {
		return nil, errors.New("away")
	}
	return s.Store.Get(ctx, refs...)
}

func (s *store) Standing(ctx context.Context, workflow string, who ect.Identity) (ect.Standing, error) {
	if s.standing != nil {
		return ect.Standing{}, s.standing
	}
	return s.Store.Standing(ctx, workflow, who)
}

// replays note what tokens are used for, and can fail.
type replays struct {
	*state.Memory

	fail error
}

func (r *replays) Claim(ctx context.Context, key ect.ReplayKey, use ect.ReplayUse) (ect.ReplayState, error) {
	if r.fail != nil {
		return 0, r.fail
	}
	return r.Memory.Claim(ctx, key, use)
}

// counts is what was counted.
type counts struct {
	denied  []policy.Constraint
	results []string
}

func (c *counts) Denied(constraint policy.Constraint) { c.denied = append(c.denied, constraint) }
func (c *counts) FalseError()                         { c.results = append(c.results, "false_error") }

func (c *counts) Verified(_ ect.Level, result string) { c.results = append(c.results, result) }

// tasks are those that have begun, by owner, agent and id.
type tasks struct {
	begun map[string]bool
	fail  error
}

func (k *tasks) Knows(_ context.Context, owner, agent, task string) (bool, error) {
	return k.begun[owner+" "+agent+" "+task], k.fail
}

// workflows refuse what waits, and note what was brought.
type workflows struct {
	waiting  error
	parents  []ect.ID
	observed []ect.ID
}

func (w *workflows) Ready(_ context.Context, _ string, parents []ect.ID, _ ect.Identity) error {
	w.parents = append(w.parents, parents...)
	return w.waiting
}

func (w *workflows) Observe(_ context.Context, _ ect.Identity, tokens []ect.Verified) error {
	for _, v := range tokens {
		w.observed = append(w.observed, v.ID())
	}
	return nil
}

// documents are the capability documents that there are, by host.
type documents map[string]string

func (d documents) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	page, ok := d[r.URL.Host]
	if !ok {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(page))}, nil
}

func document(name string, status directory.Status, successor string) string {
	return `{"aepb_version":"1.0","agent_id":"spiffe://example.com/agents/` + name + `","protocols":[{"id":"mcp-v1","version":"1","endpoint":"https://` + name +
		`.example/agent"}],"ect_assurance_level":"L2","lifecycle":{"version":"1.0.0","status":"` + string(status) + `","successor":` + successor + `}}`
}

type allowAll struct{}

func (allowAll) Allow(string)    {}
func (allowAll) Disallow(string) {}

type describer struct{ transport.Describer }

// env is a service with all that it is built from.
type env struct {
	*admission.Service

	t         testing.TB
	deps      admission.Deps
	rules     admission.Rules
	store     *store
	memory    *replays
	counts    *counts
	tasks     *tasks
	workflows *workflows
	documents documents
	decoded   atomic.Int32
	draining  bool
	paused    bool // the workflow of every message
	open      bool // the circuit breaker of the agent
	decides   bool
	now       time.Time

	self, caller, agent, peer, outsider *ecttest.Party
}

// gate is shut as its env says.
type gate struct {
	*workflows

	e *env
}

func (g gate) Draining() error {
	if g.e.draining {
		return &problem.DrainingError{}
	}
	return nil
}

func (g gate) CircuitOpen(_ ect.Identity, to destination.Destination) error {
	if g.e.open && to.Agent.Name == "calculator" {
		return &problem.CircuitOpenError{Agent: to.Agent.Name, RetryAfter: 30 * time.Second}
	}
	return nil
}

func (g gate) Level(_ context.Context, wid, _ string, begins bool) error {
	if g.e.paused && begins {
		return &problem.LevelError{Workflow: wid}
	}
	return nil
}

func newEnv(t testing.TB) *env {
	t.Helper()
	e := &env{
		t: t, store: &store{Store: ecttest.NewStore()}, counts: &counts{}, tasks: &tasks{begun: map[string]bool{}}, workflows: &workflows{}, documents: documents{}, now: time.Now(),
		self:     ecttest.NewParty(t, "spiffe://example.com/gateway"),
		caller:   ecttest.NewParty(t, "spiffe://example.com/client"),
		agent:    ecttest.NewParty(t, "spiffe://example.com/agents/calculator"),
		peer:     ecttest.NewParty(t, "spiffe://example.org/gateway"),
		outsider: ecttest.NewParty(t, "spiffe://example.com/outsider"),
	}
	clock := func() time.Time { return e.now }
	memory, err := state.New(state.Config{}, state.Deps{Now: clock})
	e.must(err)
	e.memory = &replays{Memory: memory}
	e.deps = admission.Deps{
		Network: &outbound.Network{}, Evidence: e.store, Answers: memory, Tasks: e.tasks, Metrics: e.counts, Self: e.self.ID,
		Decides: func(ect.Identity) bool { return e.decides }, Gate: gate{e.workflows, e},
	}
	e.deps.Directory, err = directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{a2a.Binding: describer{}, mcp.Binding: describer{}},
		Egress:     allowAll{}, Client: e.documents, Now: clock, Logger: slog.New(slog.DiscardHandler),
	})
	e.must(err)
	e.deps.Registry, err = translators.NewRegistry(codec{a2a.New(translators.Config{}), &e.decoded}, mcp.New(translators.Config{}))
	e.must(err)
	e.deps.Destinations, err = destination.New(destination.Deps{
		Registry: e.deps.Registry, Directory: e.deps.Directory, Now: clock, Denied: e.counts.Denied,
	})
	e.must(err)
	e.deps.Verifier, err = ect.NewVerifier(ect.VerifierDeps{
		Keys: ecttest.KeysOf(e.self, e.caller, e.agent, e.peer, e.outsider), Replay: e.memory, Audience: []string{string(e.self.ID)}, Now: clock,
	})
	e.must(err)
	e.deps.Recorder, err = ect.NewRecorder(ect.RecorderDeps{Store: e.store, Now: clock})
	e.must(err)
	e.deps.Dialects, err = ect.NewDialects(ect.DialectsDeps{})
	e.must(err)
	e.deps.Members, err = membership.New(membership.Deps{Store: e.store, Self: e.self.ID, AgentAt: e.deps.Directory.AgentAt})
	e.must(err)
	metrics, err := telemetry.New(telemetry.Deps{Bindings: []canonical.Binding{a2a.Binding, mcp.Binding}})
	e.must(err)
	sampler, err := sample.New(sample.Config{}, sample.Deps{Now: clock})
	e.must(err)
	e.deps.Attest, err = attest.New(attest.Deps{
		Signer: e.self.Signer(t, clock), Dialects: e.deps.Dialects, Verifier: e.deps.Verifier, Recorder: e.deps.Recorder, Evidence: e.store,
		Members: e.deps.Members, Refusals: sampler, Metrics: metrics, Logger: slog.New(slog.DiscardHandler),
		NewID: func() string { return string(ect.NewID()) }, Version: func() string { return "1" },
	})
	e.must(err)
	e.Service, err = admission.New(e.deps)
	e.must(err)
	e.list("calculator", policy.Rules{Open: true})
	return e
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// list lists an agent under these rules.
func (e *env) list(name string, rules policy.Rules) {
	e.t.Helper()
	e.must(e.deps.Directory.Put(directory.Agent{
		Name: name, ID: e.agent.ID, Rules: rules, Endpoints: []directory.Endpoint{{Binding: mcp.Binding, URL: "https://calculator.example/mcp"}},
	}))
}

// claims are those of a good token for a message.
func (e *env) claims(body string) ect.Claims {
	return ect.Claims{
		Audience: []string{string(e.self.ID)}, Workflow: string(ect.NewID()), ID: ect.NewID(), Act: "send_task", OutputHash: ect.Hash([]byte(body)),
		IssuedAt: e.now.Unix(), Expires: e.now.Add(10 * time.Minute).Unix(),
	}
}

func (e *env) sign(by *ecttest.Party, c ect.Claims) string {
	e.t.Helper()
	return ecttest.Mint(e.t, by, ecttest.Recipe{Claims: c})
}

// call is a message to the agent, by its caller, with these tokens.
func (e *env) call(body string, tokens ...string) transport.Call {
	return transport.Call{
		Agent: "calculator", Caller: identity.Caller{Peer: e.caller.Peer()}, Address: "192.0.2.1", Evidence: tokens,
		Wire: translators.Wire{Binding: a2a.Binding, Media: "application/json", Body: []byte(body)},
	}
}

func (e *env) admit(call transport.Call) (admission.Result, error) {
	e.t.Helper()
	var err error
	if call.Pass, err = transporttest.Pass(nil); err != nil {
		e.t.Fatal(err)
	}
	return e.Admit(e.t.Context(), call, e.rules)
}

// workflowOf puts the root of a workflow on record, which has these members besides its issuer.
func (e *env) workflowOf(by *ecttest.Party, members ...ect.Identity) ect.Record {
	e.t.Helper()
	c := e.claims("begun")
	r := ect.Record{
		Compact: e.sign(by, c), ID: c.ID, Workflow: c.Workflow, Issuer: by.ID, Audience: c.Audience, Act: c.Act, Parents: []ect.ID{},
		Until: e.now.Add(time.Hour), Members: members,
	}
	e.must(e.store.Put(e.t.Context(), r))
	return r
}

// of is a token for a message in a workflow, after its root.
func (e *env) of(by *ecttest.Party, root ect.Record, body string) string {
	e.t.Helper()
	c := e.claims(body)
	c.Workflow, c.Parents = root.Workflow, []ect.ID{root.ID}
	return e.sign(by, c)
}

// recorded reports whether a token is on record.
func (e *env) recorded(compact string) bool {
	e.t.Helper()
	c, _, err := ect.ParseUnverified(compact)
	if err != nil {
		return false
	}
	found, err := ecttest.Find(e.t.Context(), e.store.Store, c.ID)
	e.must(err)
	for _, r := range found {
		if r.Compact == compact {
			return true
		}
	}
	return false
}

// usedUp reports whether a token of the caller was used up. It uses it up.
func (e *env) usedUp(compact string) bool {
	e.t.Helper()
	c, _, err := ect.ParseUnverified(compact)
	if err != nil {
		return false
	}
	check := ect.Check{Purpose: ect.Source, Body: c.OutputHash, Unclaimed: true}
	v, err := e.deps.Verifier.Verify(e.t.Context(), compact, check)
	return err == nil && e.deps.Verifier.Claim(e.t.Context(), v, "another message") != nil
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
