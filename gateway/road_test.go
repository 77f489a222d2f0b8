package gateway_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent plays an MCP server at the other end of a dialer: it answers each
// sealed call with a fixed result, and keeps what it got.
type agent struct {
	mu   sync.Mutex
	more []canonical.Capability // besides its tools
	sole bool                   // it has but one of these

	version     string                                                             // that it speaks; empty: the newest
	undescribed error                                                              // why it cannot be asked what it is; nil: it can
	result      string                                                             // of tools/call; empty: {"content":[…],"structuredContent":{"sum":3}}
	called      func(tool string, args json.RawMessage) (result string, err error) // in place of result
	stream      func(reply translators.Wire) transport.Events                      // what it sends in place of a single reply; nil: the reply
	evidence    func(request, reply []byte) []string
	fail        error
	gone        func() bool   // whether nothing gets through to it any more; nil: it can be reached
	gate        chan struct{} // if set, an answer waits for it
	entered     chan struct{}
	bodies      [][]byte
	tokens      [][]string
}

func (a *agent) Describe(_ context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	e.Version = cmp.Or(a.version, mcp.Modern)
	if a.undescribed != nil {
		return nil, e, a.undescribed
	}
	tools := []canonical.Capability{
		{ID: "add", Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`)},
		{ID: "echo", Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`)},
	}
	if a.sole {
		tools = tools[1:]
	}
	return &canonical.Description{Name: "calculator", Capabilities: append(tools, a.more...)}, e, nil
}

func (a *agent) Dial(ctx context.Context, _ transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, tokens, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	if a.gone != nil && a.gone() {
		return transport.Reply{}, errors.New("the process has ended")
	}
	a.mu.Lock()
	a.bodies, a.tokens = append(a.bodies, wire.Body), append(a.tokens, tokens)
	a.mu.Unlock()
	if a.gate != nil {
		a.entered <- struct{}{}
		select {
		case <-a.gate:
		case <-ctx.Done():
			return transport.Reply{}, ctx.Err()
		}
	}
	if a.fail != nil {
		return transport.Reply{}, a.fail
	}
	var request struct {
		ID     json.RawMessage
		Params struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	if err := json.Unmarshal(wire.Body, &request); err != nil {
		return transport.Reply{}, err
	}
	result := a.result
	if a.called != nil {
		if result, err = a.called(request.Params.Name, request.Params.Arguments); err != nil {
			return transport.Reply{}, err
		}
	}
	if result == "" {
		result = `{"resultType":"complete","content":[{"type":"text","text":"{\"sum\":3}"}],"structuredContent":{"sum":3}}`
	}
	reply := transport.Reply{Wire: translators.Wire{
		Media: "application/json", Body: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, result),
	}}
	if a.evidence != nil {
		reply.Evidence = a.evidence(wire.Body, reply.Wire.Body)
	}
	if a.stream != nil {
		reply.Wire, reply.Events = translators.Wire{}, a.stream(reply.Wire)
	}
	return reply, nil
}

// events is a stream of these messages, which ends with an error; nil: it stays open.
type events struct {
	left []transport.Event
	end  error
}

func (e *events) Next(ctx context.Context) (transport.Event, error) {
	switch {
	case len(e.left) > 0:
		next := e.left[0]
		e.left = e.left[1:]
		return next, nil
	case e.end == nil:
		<-ctx.Done()
		return transport.Event{}, ctx.Err()
	}
	return transport.Event{}, e.end
}

func (*events) Close() error { return nil }

type closed struct{}

func (closed) Allow(string)    {}
func (closed) Disallow(string) {}

// fixture is a road with one caller and one agent.
type fixture struct {
	limiting
	agent   *agent
	caller  *ecttest.Party
	self    *ecttest.Party
	server  *ecttest.Party
	memory  *state.Memory
	entries entries
	instant atomic.Pointer[time.Time] // of its clock
	clock   func() time.Time          // nil: it is always now
}

func (b *fixture) now() time.Time { return *b.instant.Load() }

func (b *fixture) setNow(instant time.Time) { b.instant.Store(&instant) }

func newFixture(t testing.TB, settings gateway.Settings, rules policy.Rules, edits ...func(*gateway.Deps)) *fixture {
	t.Helper()
	b := &fixture{
		agent:  &agent{},
		caller: ecttest.NewParty(t, "spiffe://example.com/client"),
		self:   ecttest.NewParty(t, "spiffe://example.com/gateway"),
		server: ecttest.NewParty(t, "spiffe://example.com/agents/calculator"),
	}
	b.setNow(time.Now())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	clock := func() time.Time {
		if b.clock != nil {
			return b.clock()
		}
		return b.now()
	}
	logger := slog.New(slog.DiscardHandler)
	memory, err := state.New(state.Config{}, state.Deps{Now: clock})
	must(err)
	b.memory, b.entries.Entries = memory, memory.Entries()
	registry, err := translators.NewRegistry(a2a.New(translators.Config{}), mcp.New(translators.Config{}))
	must(err)
	list, err := directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{mcp.Binding: b.agent}, Egress: closed{}, PlainLoopback: true, Now: clock, Logger: logger,
	})
	must(err)
	must(list.Put(directory.Agent{
		Name: "calculator", ID: b.server.ID, Rules: rules,
		Endpoints: []directory.Endpoint{{Binding: mcp.Binding, URL: "https://calculator.example/mcp"}},
	}))
	verifier, err := ect.NewVerifier(ect.VerifierDeps{
		Keys: ecttest.KeysOf(b.caller, b.self, b.server), Replay: memory, Audience: []string{string(b.self.ID)}, Now: clock,
	})
	must(err)
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: memory})
	must(err)
	limits := limit.Config{Rate: 100, Burst: 100}
	if _, measuring := t.(*testing.B); measuring {
		limits = limit.Config{Rate: 1e6, Burst: 1e6}
	}
	limiter, err := limit.New(limits, limit.Deps{Now: clock})
	must(err)
	metrics, err := telemetry.New(telemetry.Deps{Bindings: registry.Bindings()})
	must(err)
	dialects, err := ect.NewDialects(ect.DialectsDeps{Configured: map[ect.Identity]ect.Dialect{b.server.ID: ect.Dialect01}})
	must(err)
	deps := gateway.Deps{
		Registry: registry, Directory: list, Network: &outbound.Network{Agents: map[canonical.Binding]transport.Dialer{mcp.Binding: b.agent}},
		Tokens: gateway.Tokens{Signer: b.self.Signer(t, clock), Dialects: dialects, Verifier: verifier, Recorder: recorder, Evidence: memory},
		Stores: gateway.Stores{Answers: memory, Conversations: memory, Entries: &b.entries, Blobs: memory.Blobs(), Place: "https://gateway.example.com/.well-known/atd/rollback"}, Limiter: limiter, Metrics: metrics, Logger: logger, Now: clock,
		NewID: func() string { return string(ect.NewID()) },
	}
	for _, edit := range edits {
		edit(&deps)
	}
	b.Gateway, err = gateway.New(settings, chained(deps))
	must(err)
	b.CheckExecutions(func(wrong string) { t.Error(wrong) })
	return b
}

// advance makes the time of the bed one that moves on only when advance is called, which background work may read
// meanwhile. It is made before there is such work.
func (b *fixture) advance() (advance func(time.Duration)) {
	var ahead atomic.Int64
	start := b.now()
	b.clock = func() time.Time { return start.Add(time.Duration(ahead.Load())) }
	return func(by time.Duration) { ahead.Add(int64(by)) }
}

// chained are those with a chain to their network.
func chained(deps gateway.Deps) gateway.Deps {
	deps.Sender = outbound.NewChain(deps.Network, outbound.Metrics(deps.Metrics, deps.Now), outbound.Deadline)
	return deps
}

const addBody = `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":1,"b":2}}}]}}}`

func (b *fixture) call(body string, tokens ...string) transport.Call {
	return transport.Call{
		Agent: "calculator", Caller: identity.Caller{Peer: b.caller.Peer()}, Address: "127.0.0.1", Evidence: tokens,
		Wire: translators.Wire{Binding: a2a.Binding, Media: "application/json", Body: []byte(body)},
	}
}

// translate is the same call at the translate endpoint, with an ECT.
func (b *fixture) translate(t *testing.T, body string) transport.Call {
	t.Helper()
	c := b.call(body, b.source(t, body, nil))
	c.EntryPoint, c.To = transport.Translate, mcp.Binding
	return c
}

func (b *fixture) source(t *testing.T, body string, parents []ect.ID) string {
	t.Helper()
	token, err := b.caller.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
		Audience: []string{string(b.self.ID)}, Workflow: string(ect.NewID()), Act: "send_task",
		Parents: parents, OutputHash: ect.Hash([]byte(body)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return token.Compact()
}

func claims(t *testing.T, compact string) ect.Claims {
	t.Helper()
	c, _, err := ect.ParseUnverified(compact)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestExchange_EvidenceForRequestAndReply(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{Version: "1.2.3"}, policy.Rules{Open: true})
	call := b.translate(t, addBody)
	answer, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Evidence) != 2 || len(b.agent.bodies) != 1 {
		t.Fatalf("got %d ECTs and %d calls", len(answer.Evidence), len(b.agent.bodies))
	}
	source, request, reply := claims(t, call.Evidence[0]), claims(t, answer.Evidence[0]), claims(t, answer.Evidence[1])
	sent := b.agent.bodies[0]
	for name, ok := range map[string]bool{
		"par of leg 1 is the source":      len(request.Parents) == 1 && request.Parents[0] == source.ID,
		"par of leg 2 is leg 1":           len(reply.Parents) == 1 && reply.Parents[0] == request.ID,
		"wid is the source's":             request.Workflow == source.Workflow && reply.Workflow == source.Workflow,
		"inp_hash of leg 1":               request.InputHash == ect.Hash([]byte(addBody)),
		"out_hash of leg 1":               request.OutputHash == ect.Hash(sent),
		"out_hash of leg 2":               reply.OutputHash == ect.Hash(answer.Wire().Body),
		"audience of leg 1":               strings.Join(request.Audience, " ") == string(b.server.ID)+" "+string(b.self.ID),
		"audience of leg 2":               strings.Join(reply.Audience, " ") == string(b.caller.ID),
		"leg 1 travelled with the call":   b.agent.tokens[0][0] == answer.Evidence[0],
		"the reply answers id 7":          strings.Contains(string(answer.Wire().Body), `"id":7`),
		"the call became tools/call":      strings.Contains(string(sent), `"tools/call"`),
		"the sum came back":               strings.Contains(string(answer.Wire().Body), `"sum":3`),
		"the task is completed":           strings.Contains(string(answer.Wire().Body), "TASK_STATE_COMPLETED"),
		"leg 1 is in the evidence store":  has(t, b, request.ID),
		"leg 2 is in the evidence store":  has(t, b, reply.ID),
		"the source is in it too":         has(t, b, source.ID),
		"no mark of an unattested source": request.Ext[ect.ExtSourceUnattested] == nil,
	} {
		if !ok {
			t.Errorf("not so: %s", name)
		}
	}
	for key, want := range map[string]string{
		ect.ExtSourceProtocol: "a2a-v1", ect.ExtDestProtocol: "mcp-v1", ect.ExtGatewayID: string(b.self.ID),
		ect.ExtLeg: "request", ect.ExtCaller: string(b.caller.ID), ect.ExtAgentVersion: "1.2.3",
	} {
		if got, _ := request.Ext.String(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

func has(t *testing.T, b *fixture, id ect.ID) bool {
	t.Helper()
	found, err := ecttest.Find(t.Context(), b.memory, id)
	return err == nil && len(found) == 1
}

func TestExchange_RepetitionGetsStoredAnswer(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	call := b.translate(t, addBody)
	first, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	if string(first.Wire().Body) != string(second.Wire().Body) || strings.Join(first.Evidence, "") != strings.Join(second.Evidence, "") {
		t.Error("the repetition got another answer")
	}
	if len(b.agent.bodies) != 1 {
		t.Errorf("the agent was called %d times", len(b.agent.bodies))
	}
	other := call
	other.Wire.Body = []byte(strings.Replace(addBody, `"b":2`, `"b":3`, 1))
	var invalid *ect.InvalidError
	if _, err := b.Exchange(t.Context(), other); !errors.As(err, &invalid) {
		t.Errorf("another body with the same ECT: got %v", err)
	}
}
