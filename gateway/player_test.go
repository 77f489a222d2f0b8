package gateway_test

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	mcpserver "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	slimform "github.com/aepb/aepb-gateway/translators/slim"
)

// scene is what an agent says to one request. ID stands for the request's id.
type scene struct {
	reply  string                    // one reply
	media  string                    // of it; empty: JSON
	events []string                  // or a stream, if there are any
	end    error                     // of the stream; nil: it stays open
	fail   error                     // in place of everything
	after  time.Duration             // how long the agent thinks about its answer
	closes func(whole string) string // the token that closes a stream with this hash
}

var errBroken = &transport.UnreachableError{Agent: "writer"} // the connection breaks off

// player is an A2A agent that plays scenes: for each method the next one, and
// the last again and again.
type player struct {
	t         *testing.T
	mu        sync.Mutex
	scenes    map[string][]scene
	requested []string // the methods, in order
	bodies    []string
	headers   []http.Header

	evidence [][]string // the tokens that came with each request
	notified int        // how often it has described itself
	open     int        // streams that are open
	blind    bool

	sessionless bool // it keeps no sessions
	version     string
	eras        []string               // the revisions that it speaks, the newest first; nil: version alone
	names       []string               // those of them that it names; nil: all
	spoken      []string               // the revision of each request
	typed       string                 // schema of its only skill; empty: it takes messages
	offers      string                 // what an MCP server says that it can do; empty: nothing
	tasks       bool                   // it keeps tasks
	support     string                 // what its skill says of tasks, in 2025-11-25; empty: nothing
	skills      []canonical.Capability // more than the one that it has
	resume      chan struct{}          // an event without text waits for it
}

func (p *player) Describe(_ context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	speaks := []string{p.version}
	if p.eras != nil { // a server of several revisions, found in its newest one
		if speaks = p.eras; e.Version == "" {
			if e.Version = p.eras[0]; p.names != nil {
				speaks = p.names
			}
		} else {
			speaks = []string{e.Version}
		}
		e.Sessionless = p.sessionless
	} else if e.Version != "" && e.Version != p.version {
		return nil, e, &transport.BadReplyError{Agent: e.Agent, Reason: "it does not speak " + e.Version}
	} else {
		e.Version = p.version
	}
	p.mu.Lock()
	p.notified++
	p.mu.Unlock()
	if p.typed != "" {
		d := &canonical.Description{Name: "asker", Versions: speaks, Capabilities: []canonical.Capability{
			{ID: "ask", Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(p.typed)},
		}}
		d.Capabilities = append(d.Capabilities, p.skills...)
		if d.Tasks = p.tasks; p.support != "" {
			d.Capabilities[0].Extensions = canonical.Extensions{mcp.Binding: json.RawMessage(`{"execution":{"taskSupport":"` + p.support + `"}}`)}
		}
		if p.offers != "" {
			d.Extensions = canonical.Extensions{mcp.Binding: json.RawMessage(`{"capabilities":` + p.offers + `}`)}
		}
		return d, e, nil
	}
	return &canonical.Description{
		Name: "writer", Versions: []string{p.version}, Streams: !p.blind,
		Capabilities: append([]canonical.Capability{{ID: "write", Profile: canonical.ProfileMessage}}, p.skills...),
	}, e, nil
}

// direction is the claims of the newest request ECT that the agent was shown.
func (p *player) direction() ect.Claims {
	p.mu.Lock()
	defer p.mu.Unlock()
	return claims(p.t, p.evidence[len(p.evidence)-1][0])
}

func (p *player) Dial(ctx context.Context, _ transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, tokens, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	var request struct {
		ID     json.RawMessage
		Method string
	}
	if request.Method = wire.Verb; len(wire.Body) > 0 {
		if err := json.Unmarshal(wire.Body, &request); err != nil {
			return transport.Reply{}, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requested, p.bodies = append(p.requested, request.Method), append(p.bodies, string(wire.Body))
	p.evidence = append(p.evidence, tokens)
	p.headers, p.spoken = append(p.headers, wire.Header), append(p.spoken, wire.Version)
	list := p.scenes[request.Method]
	if len(list) == 0 {
		p.t.Errorf("nobody expected %s", wire.Body)
		return transport.Reply{}, errBroken
	}
	now := list[0]
	if len(list) > 1 {
		p.scenes[request.Method] = list[1:]
	}
	say := func(text string) translators.Wire {
		return translators.Wire{Media: "application/json", Body: []byte(strings.ReplaceAll(text, "ID", string(request.ID)))}
	}
	switch {
	case now.fail != nil:
		return transport.Reply{}, now.fail
	case now.events == nil:
		reply := say(now.reply)
		reply.Media = cmp.Or(now.media, reply.Media)
		return p.think(ctx, now.after, reply)
	}
	p.open++
	events := &played{dialed: ctx.Done(), player: p, end: now.end, after: now.after, closes: now.closes}
	for _, text := range now.events {
		events.queue = append(events.queue, transport.Event{Wire: say(text)})
	}
	return transport.Reply{Events: events}, nil
}

// think lets others ask meanwhile.
func (p *player) think(ctx context.Context, after time.Duration, wire translators.Wire) (transport.Reply, error) {
	if after > 0 {
		p.mu.Unlock()
		defer p.mu.Lock()
		select {
		case <-time.After(after):
		case <-ctx.Done():
			return transport.Reply{}, ctx.Err()
		}
	}
	return transport.Reply{Wire: wire}, nil
}

func (p *player) was() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.requested, " ")
}

// last is what it heard last.
func (p *player) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bodies[len(p.bodies)-1]
}

type played struct {
	dialed <-chan struct{} // the end of the request
	player *player
	queue  []transport.Event
	after  time.Duration
	end    error
	closed bool
	whole  ect.StreamHash
	closes func(string) string
}

func (e *played) Next(ctx context.Context) (transport.Event, error) {
	select {
	case <-e.dialed:
		return transport.Event{}, context.Canceled
	default:
	}
	if e.after > 0 {
		<-time.After(e.after)
		e.after = 0
	}
	if len(e.queue) > 0 {
		next := e.queue[0]
		e.queue = e.queue[1:]
		if len(next.Wire.Body) > 0 {
			e.whole.Add(next.Wire.Body)
			return next, nil
		}
		select {
		case <-e.player.resume:
			return e.Next(ctx)
		case <-ctx.Done():
			return transport.Event{}, ctx.Err()
		}
	}
	if closes := e.closes; closes != nil {
		e.closes = nil
		return transport.Event{Evidence: []string{closes(e.whole.Sum())}}, nil
	}
	if e.end == nil {
		<-ctx.Done()
		return transport.Event{}, ctx.Err()
	}
	return transport.Event{}, e.end
}

func (e *played) Close() error {
	e.player.mu.Lock()
	defer e.player.mu.Unlock()
	if !e.closed {
		e.closed = true
		e.player.open--
	}
	return nil
}

// mailman keeps what is posted to webhooks.
type mailman struct {
	mu     sync.Mutex
	taken  []string
	proofs [][]string  // of each, its ECTs
	deaf   atomic.Bool // nothing arrives
}

func (*mailman) Form(version string) (string, bool) {
	if version == a2a.Version03 {
		return a2a.FormPush, true
	}
	return a2a.FormHTTP, false
}

func (*mailman) Check(canonical.PushConfig) error { return nil }

func (m *mailman) Push(_ context.Context, _ ect.Identity, c canonical.PushConfig, sealed transport.Sealed) error {
	w, evidence, err := sealed.Open()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deaf.Load() {
		return errDeaf
	}
	m.taken, m.proofs = append(m.taken, c.URL+" "+string(w.Body)), append(m.proofs, evidence)
	return nil
}

// records keep no ECT while they are broken.
type records struct {
	ect.Store
	broken atomic.Bool
}

func (r *records) Put(ctx context.Context, record ect.Record) error {
	if r.broken.Load() {
		return &state.UnavailableError{}
	}
	return r.Store.Put(ctx, record)
}

// stage is a road with a playing agent and one caller.
type stage struct {
	limiting
	t       *testing.T // of the bubble
	agent   *player
	tools   *agent  // an MCP server beside it
	asker   *player // and one that plays scenes
	caller  *ecttest.Party
	self    *ecttest.Party
	writer  *ecttest.Party // the A2A agent
	memory  *state.Memory
	records records
	entries entries
	shared  idempotency.Store // in place of the memory's; nil: the memory's
	view    store.Entries     // of the next replica; nil: what all have
	pins    bool              // the next replica holds what the MCP server changes
	workers int               // of one caller at the next replica; zero: the default
	posts   *mailman
	ids     []string // of the replicas
}

// newStage builds one. A test closes it inside its bubble.
func newStage(t *testing.T, scenes map[string][]scene) *stage {
	t.Helper()
	s := &stage{
		t: t, asker: &player{t: t, scenes: scenes, version: mcp.Modern, typed: `{"type":"object"}`, resume: make(chan struct{})},
		agent: &player{t: t, scenes: scenes, version: a2a.Version, resume: make(chan struct{})}, posts: &mailman{}, tools: &agent{gate: make(chan struct{}), entered: make(chan struct{}, 64)},
		caller: ecttest.NewParty(t, "spiffe://example.com/client"), self: ecttest.NewParty(t, "spiffe://example.com/gateway"),
		writer: ecttest.NewParty(t, "spiffe://example.com/agents/writer"),
	}
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s.memory, s.records.Store, s.entries.Entries = memory, memory, memory.Entries()
	s.limiting = s.replica(t)
	return s
}

// servers are the two MCP servers.
type servers struct{ *stage }

func (servers) ByCapabilities()     {}
func (servers) Revisions() []string { return mcp.Revisions() }

func (servers) Revision(d *canonical.Description, own string, can []canonical.Mode) string {
	return (*mcpserver.Dialer)(nil).Revision(d, own, can)
}

func (s servers) Describe(ctx context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	if e.Agent == "asker" {
		return s.asker.Describe(ctx, e)
	}
	return s.tools.Describe(ctx, e)
}

func (s servers) Dial(ctx context.Context, e transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	if e.Agent == "asker" {
		return s.asker.Dial(ctx, e, sealed)
	}
	return s.tools.Dial(ctx, e, sealed)
}

// onGRPC and onSLIM are wires on which messages of A2A are not JSON.
type (
	onGRPC struct {
		transport.Dialer
		frame.Framer
	}
	onSLIM struct{ transport.Dialer }
)

func (onSLIM) Frame(w translators.Wire) (translators.Wire, []canonical.Loss, error) {
	return slim.Frame(w)
}

func (onSLIM) Unframe(w translators.Wire) (translators.Wire, error) { return slim.Unframe(w) }

// replica is one more gateway on the same state.
func (s *stage) replica(t *testing.T) limiting {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	logger := slog.New(slog.DiscardHandler)
	registry, err := translators.NewRegistry(a2a.New(translators.Config{}), mcp.New(translators.Config{}), slimform.New(translators.Config{}))
	must(err)
	list, err := directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{a2a.Binding: s.agent, mcp.Binding: servers{s}}, Egress: closed{}, PlainLoopback: true, Now: time.Now, Logger: logger,
	})
	must(err)
	must(list.Put(directory.Agent{
		Name: "writer", ID: "spiffe://example.com/agents/writer", Rules: policy.Rules{Open: true},
		Endpoints: []directory.Endpoint{{Binding: a2a.Binding, URL: "https://writer.example/a2a"}},
	}))
	must(list.Put(directory.Agent{
		Name: "asker", ID: "spiffe://example.com/agents/asker", Rules: policy.Rules{Open: true}, Pin: s.pins,
		Endpoints: []directory.Endpoint{{Binding: mcp.Binding, URL: "https://asker.example/mcp"}},
	}))
	must(list.Put(directory.Agent{
		Name: "calculator", ID: "spiffe://example.com/agents/calculator", Rules: policy.Rules{Open: true},
		Endpoints: []directory.Endpoint{{Binding: mcp.Binding, URL: "https://calculator.example/mcp"}},
	}))
	verifier, err := ect.NewVerifier(ect.VerifierDeps{
		Keys: ecttest.KeysOf(s.caller, s.self, s.writer), Replay: s.memory, Audience: []string{string(s.self.ID)}, Now: time.Now,
	})
	must(err)
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: &s.records})
	must(err)
	limiter, err := limit.New(limit.Config{Rate: 1000, Burst: 1000}, limit.Deps{Now: time.Now})
	must(err)
	metrics, err := telemetry.New(telemetry.Deps{Bindings: registry.Bindings()})
	must(err)
	dialects, err := ect.NewDialects(ect.DialectsDeps{})
	must(err)
	first := true
	var answers idempotency.Store = s.memory
	if s.shared != nil {
		answers = s.shared
	}
	var stored store.Entries = &s.entries
	if s.view != nil {
		stored = s.view
	}
	handler, err := gateway.New(gateway.Settings{}, chained(gateway.Deps{
		Registry: registry, Directory: list, Network: &outbound.Network{
			Agents:  map[canonical.Binding]transport.Dialer{a2a.Binding: onGRPC{Dialer: s.agent}, mcp.Binding: servers{s}, slimform.Binding: onSLIM{s.agent}},
			Pushers: map[canonical.Binding]transport.Pusher{a2a.Binding: s.posts},
		},
		Tokens: gateway.Tokens{Signer: s.self.Signer(t, time.Now), Dialects: dialects, Verifier: verifier, Recorder: recorder, Evidence: s.memory},
		Stores: gateway.Stores{Answers: answers, Conversations: s.memory, Entries: stored, Blobs: s.memory.Blobs(), Place: "https://gateway.example.com/.well-known/atd/rollback"}, Limiter: limiter, Metrics: metrics, Logger: logger, Now: time.Now, Shares: gateway.Shares{Workers: s.workers},
		NewID: func() string {
			id := string(ect.NewID())
			if first { // it names itself first
				first, s.ids = false, append(s.ids, id)
			}
			return id
		},
	}))
	must(err)
	handler.CheckExecutions(func(wrong string) { t.Error(wrong) })
	return limiting{handler}
}

func (s *stage) by(binding canonical.Binding, version, body string) transport.Call {
	return transport.Call{
		Agent: "writer", Caller: identity.Caller{Peer: s.caller.Peer()}, Address: "127.0.0.1", Detached: binding == a2a.Binding,
		Wire: translators.Wire{Binding: binding, Version: version, Media: "application/json", Body: []byte(body)},
	}
}

// a2a is a message of an A2A client.
func (s *stage) a2a(method, params string) transport.Call {
	return s.by(a2a.Binding, a2a.Version, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`)
}

// adds is a message of an A2A client to the MCP server.
func (s *stage) adds(method, params string) transport.Call {
	call := s.a2a(method, params)
	call.Agent = "calculator"
	return call
}

// tool is a call of an MCP client.
func (s *stage) tool(args string) transport.Call {
	return s.by(mcp.Binding, mcp.Modern, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":`+args+
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"C","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
}

func (s *stage) ask(t *testing.T, g transport.Handler, call transport.Call) transport.Answer {
	t.Helper()
	answer, err := g.Exchange(t.Context(), call)
	if err != nil {
		t.Fatalf("%s: %v", call.Wire.Body, err)
	}
	return answer
}

// structured is the structured content of an MCP answer.
func structured(t *testing.T, answer transport.Answer) (out struct {
	State, Text string
	TaskID      string `json:"task_id"`
},
) {
	t.Helper()
	var env struct {
		Result struct{ StructuredContent json.RawMessage }
	}
	if err := json.Unmarshal(answer.Wire().Body, &env); err != nil || json.Unmarshal(env.Result.StructuredContent, &out) != nil {
		t.Fatalf("%v: %s", err, answer.Wire().Body)
	}
	return out
}

// What the agent says, in A2A 1.0.
func result(inner string) string { return `{"jsonrpc":"2.0","id":ID,"result":` + inner + `}` }

func failure(code string) string {
	return `{"jsonrpc":"2.0","id":ID,"error":{"code":` + code + `,"message":"no"}}`
}

func taskOf(state, more string) string {
	return `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_` + state + `"}` + more + `}`
}

func wholeTask(state, more string) string { return result(`{"task":` + taskOf(state, more) + `}`) }

func status(state, text string) string {
	message := ""
	if text != "" {
		message = `,"message":{"messageId":"s1","role":"ROLE_AGENT","parts":[{"text":"` + text + `"}]}`
	}
	return result(`{"statusUpdate":{"taskId":"t1","contextId":"c1","status":{"state":"TASK_STATE_` + state + `"` + message + `}}}`)
}

func artifact(text string) string {
	return result(`{"artifactUpdate":{"taskId":"t1","contextId":"c1","lastChunk":true,"artifact":{"artifactId":"a1","parts":[{"text":"` + text + `"}]}}}`)
}

const (
	saying   = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]}}`
	askingHi = `{"message":"hi"}`
	oneArt   = `,"artifacts":[{"artifactId":"a1","parts":[{"text":"done it"}]}]`
)
