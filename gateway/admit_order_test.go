package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// admitOrderFile holds what admitOrderHead describes. To write it anew:
// AEPB_UPDATE_ADMIT=1 go test -run TestAdmit_Order ./gateway.
const (
	admitOrderFile = "testdata/admit_order.golden"
	admitOrderEnv  = "AEPB_UPDATE_ADMIT"
)

const admitOrderHead = `# What a message is refused for if there are several reasons, and what that leaves behind.
#
# Made by TestAdmit_Order; AEPB_UPDATE_ADMIT=1 renews it. Each line is one message with
# one or two of the causes below, sent through Gateway.Exchange. "-" is nothing. Two
# causes that exclude each other have no line. Columns:
#
#   causes    what is wrong with the message
#   ways      in which ways it was sent: N, natively to the agent calculator; T, to the
#             agent calculator through the translate endpoint; P, likewise, where the
#             gateway knows another one to ask, which serves nothing; A, to the translate
#             endpoint alone, for no agent. Ways with different outcomes have a line each
#   names     whether the sender is told the name of the agent
#   issued    evidence that the sender gets, see "recorded"
#   recorded  evidence in the store afterwards, in the order of recording: source (any
#             token that came with the message), request and reply (translations), error
#             (a failed translation, in the workflow of the source), error/new (in a
#             workflow of its own); with /apart it is listed in no workflow
#   token     whether each source of the message can be used again: free or used; that of
#             the cause "replayed" was used before. A token that is no good is not listed
#   asked     who was asked on the way: document (the agent's capability document),
#             gateway (the other one), describe (the agent, what it can do), call (it)
#   charged   requests that were taken from the limits of the caller and of its address
#   sampled   the code under which it was counted as a refusal without evidence of its own
#   again     what the same message leads to once more: judged (the same refusal), kept
#             (the refusal as it was stored), or the code of another one
#   refused   in a line of one cause: code and text of the problem that its sender gets;
#             of two: which of them is told, as a comparison with their own lines shows.
#             "=" stands before it if both of those are this problem; if neither of them
#             is, code and text stand here
`

// A refusalCause is one thing that is wrong with a message.
type refusalCause struct {
	name  string
	is    string // what is wrong
	ways  string // in which it can be wrong, see admitOrderHead; empty: all
	slot  string // of two causes with the same slot a message has one; empty: any
	takes string // what the cause takes away: "agent" or "token"
	needs string // what it needs
	spoil func(*spoiledMessage)
}

// A spoiledMessage is a message with what stands around it, before it is sent.
type spoiledMessage struct {
	*admitWorld
	ctx       context.Context //nolint:containedctx // a cause can be in it
	call      transport.Call
	settings  gateway.Settings
	listed    directory.Agent
	document  string // lifecycle status in the agent's capability document; empty: it has none; "lost": it cannot be had
	tokens    []func(*spoiledMessage) []string
	untokened bool // it comes with no token, unless there are tokens
	foreign   bool // its protocol is not spoken here
	replayed  bool // its token was used before
	exhausted bool // its sender has no requests left
	draining  bool // the gateway takes no new work
}

const (
	toolsList = `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"C","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	noSuchSkill  = `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"subtract","input":{"a":1,"b":2}}}]}}}`
	documentURL  = "https://calculator.example/capability"
	requestLimit = 5
)

// refusalCauses lists the causes, roughly in the order of the pipeline (architecture
// section 5). That order decides nothing here.
func refusalCauses() []refusalCause {
	return slices.Concat(arrivalCauses(), evidenceCauses(), policyCauses(), workCauses())
}

// arrivalCauses are those that show before anything is verified.
func arrivalCauses() []refusalCause {
	return []refusalCause{
		{name: "no identity", is: "its sender showed no credentials", spoil: func(m *spoiledMessage) {
			m.ctx = transport.WithoutCaller(m.ctx, &problem.UnauthenticatedError{}, m.call.Address)
		}},
		{name: "rate limited", is: "its sender has no requests left", spoil: func(m *spoiledMessage) { m.exhausted = true }},
		{name: "source protocol", is: "it is in a protocol that is not spoken here", spoil: func(m *spoiledMessage) { m.foreign = true }},
		{name: "destination protocol", is: "it asks for a protocol that is not spoken here", ways: "TPA", spoil: func(m *spoiledMessage) {
			m.call.To = "telex-v1"
		}},
		{name: "unknown version", is: "it asks for a version that the protocol does not have", ways: "TPA", slot: "version", spoil: func(m *spoiledMessage) {
			m.call.ToVersion = "1999-01-01"
		}},
		{name: "version of others", is: "it asks for a version that the agent does not speak", ways: "TP", slot: "version", needs: "agent", spoil: func(m *spoiledMessage) {
			m.call.ToVersion = mcp.Legacy
		}},
		{name: "unknown agent", is: "no agent has this name", ways: "NTP", takes: "agent", spoil: func(m *spoiledMessage) { m.call.Agent = "abacus" }},
		{name: "document lost", is: "the agent's capability document cannot be had", ways: "NTP", slot: "document", needs: "agent", spoil: func(m *spoiledMessage) {
			m.document = "lost"
		}},
		{name: "agent draining", is: "its capability document says so", ways: "NTP", slot: "document", needs: "agent", spoil: func(m *spoiledMessage) {
			m.document = "draining"
		}},
		{name: "agent retired", is: "its capability document says so", ways: "NTP", slot: "document", needs: "agent", spoil: func(m *spoiledMessage) {
			m.document = "retired"
		}},
	}
}

// evidenceCauses are in the tokens that come with a message. Several of them are
// several tokens.
func evidenceCauses() []refusalCause {
	with := func(tokens func(*spoiledMessage) []string) func(*spoiledMessage) {
		return func(m *spoiledMessage) { m.tokens = append(m.tokens, tokens) }
	}
	return []refusalCause{
		{name: "token malformed", is: "its token cannot be read", needs: "token", spoil: with(func(*spoiledMessage) []string { return []string{"no token"} })},
		{name: "token forged", is: "another key signed its token", needs: "token", spoil: with(func(m *spoiledMessage) []string {
			return []string{ecttest.Mint(m.t, m.caller, ecttest.Recipe{Claims: m.claimed(), Sign: ecttest.SignES256(m.server.Key)})}
		})},
		{name: "too many tokens", is: "it comes with nine", needs: "token", spoil: with(func(m *spoiledMessage) []string {
			return slices.Repeat([]string{m.token}, 9)
		})},
		{name: "outsider", is: "its token names a workflow in which its sender has no part", needs: "token", spoil: with(func(m *spoiledMessage) []string {
			c := m.claimed()
			c.Workflow, c.Parents = m.others.Workflow, []ect.ID{m.others.ID}
			return []string{m.signed(m.caller, c)}
		})},
		{name: "approver's token", is: "the role of an approver lets its token in, and it is no decision", needs: "token", spoil: with(func(m *spoiledMessage) []string {
			c := m.claimed()
			c.Act, c.Workflow, c.Parents = ect.ActApprovalGranted, m.others.Workflow, []ect.ID{m.others.ID}
			return []string{m.signed(m.caller, c)}
		})},
		{name: "token of another", is: "its token was issued by another, who has a part in nothing here", needs: "token", spoil: with(func(m *spoiledMessage) []string {
			return []string{m.signed(m.server, m.claimed())}
		})},
		{name: "loop", is: "its token was made of one of this gateway's translations", needs: "token", spoil: with(func(m *spoiledMessage) []string {
			c := m.claimed()
			own := m.signed(m.self, ect.Claims{Audience: c.Audience, Workflow: c.Workflow, Act: ect.ActTranslate})
			c.Act, c.Parents = ect.ActTranslate, []ect.ID{claims(m.t, own).ID}
			return []string{own, m.signed(m.caller, c)}
		})},
		{name: "replayed", is: "its token was used up by the same message to another agent", needs: "token", spoil: func(m *spoiledMessage) {
			m.replayed = true
			m.tokens = append(m.tokens, func(m *spoiledMessage) []string { return []string{m.token} })
		}},
		{name: "unknown parent", is: "it comes with no token of its own and names one that is not on record", spoil: func(m *spoiledMessage) {
			m.untokened, m.call.Parent = true, string(ect.NewID())
		}},
		{name: "token required", is: "it comes with no token, and one is required", takes: "token", spoil: func(m *spoiledMessage) {
			m.untokened, m.settings.RequireECT = true, true
		}},
	}
}

// policyCauses are in what the operator or the agent allows.
func policyCauses() []refusalCause {
	return []refusalCause{
		{name: "caller not allowed", is: "the agent is for others", ways: "NTP", slot: "callers", needs: "agent", spoil: func(m *spoiledMessage) {
			m.listed.Rules = policy.Rules{Callers: []string{"spiffe://example.com/member"}}
		}},
		{name: "operation not allowed", is: "the agent lets its sender ask for tasks alone", ways: "NTP", slot: "callers", needs: "agent", spoil: func(m *spoiledMessage) {
			m.listed.Rules = policy.Rules{Callers: []string{string(m.caller.ID) + "#task.get"}}
		}},
		{name: "level of token", is: "tokens must be of level L3", needs: "token", spoil: func(m *spoiledMessage) {
			m.settings.Constraints.MinLevel = ect.L3
		}},
		{name: "level of agent", is: "the agent demands level L3", ways: "NTP", needs: "agent", spoil: func(m *spoiledMessage) {
			m.listed.AssuranceLevel = ect.L3
		}},
		{name: "protocol not allowed", is: "no destination protocol is allowed", spoil: func(m *spoiledMessage) {
			m.settings.Constraints.RestrictDest = true
		}},
		{name: "hops", is: "no translation is allowed", spoil: func(m *spoiledMessage) { m.settings.Constraints.MaxHops = -1 }},
		{name: "way not protected", is: "the agent is reached without TLS, and that is not allowed", ways: "NTP", needs: "agent", spoil: func(m *spoiledMessage) {
			m.settings.Constraints.MinSecurity = policy.SecurityTLS13
			m.listed.Endpoints[0].URL = "http://127.0.0.1:1/mcp"
		}},
	}
}

// workCauses are in what the message says, and in who does what it asks for.
func workCauses() []refusalCause {
	return []refusalCause{
		{name: "gateway draining", is: "the gateway takes no new work", spoil: func(m *spoiledMessage) { m.draining = true }},
		{name: "message malformed", is: "it is no JSON", slot: "body", spoil: func(m *spoiledMessage) { m.call.Wire.Body = []byte(`{"jsonrpc":`) }},
		{name: "discovery", is: "it asks for a list of tools, which no other protocol is asked for", slot: "body", spoil: func(m *spoiledMessage) {
			m.call.Wire.Binding, m.call.Wire.Body = mcp.Binding, []byte(toolsList)
		}},
		{name: "unknown skill", is: "the agent has no such skill", ways: "NTP", slot: "body", needs: "agent", spoil: func(m *spoiledMessage) {
			m.call.Wire.Body = []byte(noSuchSkill)
		}},
		{name: "agent silent", is: "the agent does not answer the call", ways: "NTP", needs: "agent", spoil: func(m *spoiledMessage) {
			m.agent.fail = &transport.UnreachableError{Agent: "calculator", Err: io.ErrUnexpectedEOF}
		}},
	}
}

// excludes reports whether no message has both causes.
func (c refusalCause) excludes(other refusalCause) bool {
	return c.slot != "" && c.slot == other.slot || c.takes != "" && c.takes == other.needs || other.takes != "" && other.takes == c.needs
}

// recordedEvidence is an evidence store that remembers what was put into it.
type recordedEvidence struct {
	ect.Store
	mu   sync.Mutex
	puts []ect.Record
}

func (r *recordedEvidence) Put(ctx context.Context, record ect.Record) error {
	err := r.Store.Put(ctx, record)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.puts = append(r.puts, record)
	}
	return err
}

// askedAgent is the agent, its capability document and another gateway that serves
// nothing. It counts who is asked for what.
type askedAgent struct {
	agent
	status string // of the document
	id     ect.Identity
	count  map[string]int
}

func (a *askedAgent) note(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count[what]++
}

func (a *askedAgent) Describe(ctx context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	a.note("describe " + e.Agent)
	return a.agent.Describe(ctx, e)
}

func (a *askedAgent) Dial(ctx context.Context, e transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	a.note("call " + e.Agent)
	return a.agent.Dial(ctx, e, sealed)
}

func (a *askedAgent) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	if r.URL.Host == "next.example" {
		a.note("gateway calculator")
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody}, nil
	}
	a.note("document calculator")
	if a.status == "lost" {
		return nil, errors.New("connection refused")
	}
	text := `{"aepb_version":"1.0","agent_id":"` + string(a.id) + `","protocols":[{"id":"mcp-v1","version":"2026-07-28","endpoint":"https://calculator.example/mcp"}],` +
		`"ect_assurance_level":"L2","lifecycle":{"status":"` + a.status + `","version":"1.0.0"}}`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// admitWorld is a gateway with an agent, and what it did.
type admitWorld struct {
	*fixture
	t      *testing.T
	agent  *askedAgent
	store  *recordedEvidence
	others ect.Record // the root of a workflow in which the caller has no part
	token  string     // a good one for the message
	body   string
}

func newAdmitWorld(t *testing.T) *admitWorld {
	t.Helper()
	w := &admitWorld{t: t, agent: &askedAgent{count: map[string]int{}}}
	w.fixture = newFixture(t, gateway.Settings{}, policy.Rules{Open: true}, func(d *gateway.Deps) {
		w.store = &recordedEvidence{Store: d.Evidence}
		recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: w.store})
		if err != nil {
			t.Fatal(err)
		}
		limiter, err := limit.New(limit.Config{Rate: 1e-3, Burst: requestLimit}, limit.Deps{Now: d.Now})
		if err != nil {
			t.Fatal(err)
		}
		list, err := directory.New(directory.Deps{
			Describers: map[canonical.Binding]transport.Describer{mcp.Binding: w.agent}, Egress: closed{}, PlainLoopback: true,
			Client: w.agent, Now: d.Now, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Evidence, d.Recorder, d.Limiter, d.Directory = w.store, recorder, limiter, list
		d.Network = &outbound.Network{Agents: map[canonical.Binding]transport.Dialer{mcp.Binding: w.agent}, Peers: w.agent}
		d.Operator = func(id ect.Identity) (policy.Operator, bool) {
			return policy.Operator{ID: id, Roles: []policy.Role{policy.RoleApprover}}, true
		}
	})
	w.agent.id = w.server.ID
	w.others = ect.Record{
		Compact: "h.p.s", ID: ect.NewID(), Workflow: string(ect.NewID()), Issuer: w.server.ID, Audience: []string{string(w.self.ID)}, Act: "send_task",
		Parents: []ect.ID{}, Until: w.now().Add(time.Hour), Members: []ect.Identity{w.server.ID},
	}
	if err := w.memory.Put(t.Context(), w.others); err != nil {
		t.Fatal(err)
	}
	return w
}

// claimed is what the token of the message says, if it is good.
func (w *admitWorld) claimed() ect.Claims {
	return ect.Claims{
		Audience: []string{string(w.self.ID)}, Workflow: string(ect.NewID()), Act: "send_task", OutputHash: ect.Hash([]byte(w.body)),
	}
}

func (w *admitWorld) signed(by *ecttest.Party, c ect.Claims) string {
	w.t.Helper()
	token, err := by.Signer(w.t, func() time.Time { return w.now() }).Sign(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return token.Compact()
}

// spoil makes a message that is sent in a way, with causes, and all that stands around it.
func spoil(t *testing.T, way string, causes ...refusalCause) *spoiledMessage {
	t.Helper()
	w := newAdmitWorld(t)
	m := &spoiledMessage{admitWorld: w, ctx: t.Context(), call: w.call(addBody)}
	m.listed = directory.Agent{
		Name: "calculator", ID: w.server.ID, Rules: policy.Rules{Open: true},
		Endpoints: []directory.Endpoint{{Binding: mcp.Binding, URL: "https://calculator.example/mcp"}},
	}
	other := m.listed
	other.Name, other.Endpoints = "other", slices.Clone(m.listed.Endpoints)
	if way != "N" {
		m.call.EntryPoint, m.call.To = transport.Translate, mcp.Binding
	}
	switch way {
	case "P":
		if err := w.Directory.UsePeers([]directory.Peer{{ID: "spiffe://example.com/next", URL: "https://next.example/aepb/translate", Rules: policy.Rules{Open: true}}}); err != nil {
			t.Fatal(err)
		}
	case "A":
		m.call.Agent = ""
	}
	good := m.call
	for _, c := range causes {
		c.spoil(m)
	}
	w.body = string(m.call.Wire.Body)
	w.token = m.signed(m.caller, m.claimed())
	if m.tokens == nil && !m.untokened {
		m.tokens = append(m.tokens, func(m *spoiledMessage) []string { return []string{m.token} })
	}
	for _, tokens := range m.tokens {
		m.call.Evidence = append(m.call.Evidence, tokens(m)...)
	}
	if m.document != "" {
		m.agent.status, m.listed.Capability, m.listed.Endpoints = m.document, documentURL, nil
	}
	for _, a := range []directory.Agent{other, m.listed} {
		if err := w.Directory.Put(a); err != nil {
			t.Fatal(err)
		}
	}
	if m.replayed {
		good.Pass, _ = transporttest.Pass(nil)
		good.Agent, good.Evidence, good.Wire = "other", []string{m.token}, m.call.Wire
		_, _ = w.Exchange(t.Context(), good) // also where it is refused for what it says
	}
	m.around()
	return m
}

// around brings about what is no part of the message.
func (m *spoiledMessage) around() {
	m.t.Helper()
	if m.foreign {
		m.call.Wire.Binding = "telegraph-v1"
	}
	m.Apply(m.settings)
	for _, key := range m.limits() {
		for m.exhausted && m.Limiter.Allow(key).OK {
		}
	}
	if m.draining {
		m.Drain(m.t.Context())
	}
}

// limits are the keys under which requests of the sender count.
func (m *spoiledMessage) limits() []string {
	return []string{limit.Identity(string(m.caller.ID)), limit.Address(m.call.Address)}
}

// An admitResult is what became of a message.
type admitResult struct {
	names, issued, recorded, token, queried, charged, sampled, again string

	refused string
}

// line is the result as the file has it.
func (r admitResult) line(causes, ways string) string {
	return fmt.Sprintf("%-44s %-4s %-5s %-13s %-27s %-9s %-22s %-7s %-12s %-7s %s",
		causes, ways, r.names, r.issued, r.recorded, r.token, r.queried, r.charged, r.sampled, r.again, r.refused)
}

// send sends the message and looks at what is left of it.
func (m *spoiledMessage) send() admitResult {
	m.t.Helper()
	before := len(m.store.puts)
	clear(m.agent.count)
	answer, err := m.Exchange(m.ctx, m.call)
	if err == nil {
		m.t.Errorf("a message with a cause for a refusal goes through: %s", answer.Wire().Body)
	}
	refusal := problem.From(err)
	r := admitResult{refused: refusalText(refusal), charged: m.charged(), queried: m.askedFor()}
	r.names = column(m.call.Agent != "" && strings.Contains(refusal.Detail, m.call.Agent), "yes")
	var issued []string
	for _, token := range answer.Evidence {
		issued = append(issued, m.kindOf(claims(m.t, token)))
	}
	r.issued = words(issued)
	if err := m.Flush(m.t.Context()); err != nil {
		m.t.Error(err)
	}
	var recorded, sampled []string
	for _, record := range m.store.puts[before:] {
		c := claims(m.t, record.Compact)
		if reason, counted := c.Ext.String(ect.ExtRefusal); counted {
			sampled = append(sampled, reason)
			continue
		}
		kind := m.kindOf(c)
		if record.Workflow == "" {
			kind += "/apart"
		}
		recorded = append(recorded, kind)
	}
	r.recorded, r.sampled = words(recorded), words(sampled)
	r.again = m.sendAgain(refusal)
	r.token = m.tokenState()
	return r
}

// kindOf says what a token is to the message.
func (m *spoiledMessage) kindOf(c ect.Claims) string {
	direction, translation := c.Ext.String(ect.ExtLeg)
	switch {
	case c.Issuer != m.self.ID || c.Act == ect.ActTranslate && !translation:
		return "source"
	case translation:
		return direction
	case c.Act != ect.ActTranslateError:
		return string(c.Act)
	case slices.ContainsFunc(m.call.Evidence, func(token string) bool {
		source, _, err := ect.ParseUnverified(token)
		return err == nil && source.Workflow == c.Workflow
	}):
		return "error"
	default:
		return "error/new"
	}
}

// charged is how many requests were taken, from the limits of which all was left.
func (m *spoiledMessage) charged() string {
	taken := 0
	for _, key := range m.limits() {
		left := 0
		for m.Limiter.Allow(key).OK {
			left++
		}
		if !m.exhausted {
			taken += requestLimit - left
		}
	}
	return column(taken > 0, strconv.Itoa(taken))
}

// askedFor is what was asked of the agent and its document.
func (m *spoiledMessage) askedFor() string {
	var list []string
	for _, what := range []string{"document", "gateway", "describe", "call"} {
		if m.agent.count[what+" calculator"] > 0 {
			list = append(list, what)
		}
	}
	return words(list)
}

// sendAgain sends the message once more, within the limits unless they are a cause.
func (m *spoiledMessage) sendAgain(first problem.Problem) string {
	call := m.call
	if !m.exhausted {
		call.Pass, _ = transporttest.Pass(transport.Refusal(m.ctx))
		call.Address = "127.0.0.2" // which has requests left
	}
	_, err := m.Exchange(m.ctx, call)
	_, stored := errors.AsType[*problem.StoredError](err)
	second := problem.From(err)
	switch {
	case err == nil:
		return "answered"
	case stored && second.Code == first.Code:
		return "kept"
	case !stored && second.Code == first.Code && second.Detail == first.Detail:
		return "judged"
	default:
		return second.Code
	}
}

// tokenState says of each source of the message that can be verified whether it can be
// used. It uses them up.
func (m *spoiledMessage) tokenState() string {
	verifier, err := ect.NewVerifier(ect.VerifierDeps{
		Keys: ecttest.KeysOf(m.caller, m.self, m.server), Replay: m.memory, Audience: []string{string(m.self.ID)}, Now: func() time.Time { return m.now() },
	})
	if err != nil {
		m.t.Fatal(err)
	}
	var states []string
	for _, token := range slices.Compact(slices.Clone(m.call.Evidence)) {
		check := ect.Check{Purpose: ect.Source, Peer: m.caller.Peer(), Body: ect.Hash([]byte(m.body)), Unclaimed: true}
		v, err := verifier.Verify(m.t.Context(), token, check)
		if err != nil || v.Issuer() == m.self.ID {
			continue
		}
		state := "free"
		if verifier.Claim(m.t.Context(), v, "another message") != nil {
			state = "used"
		}
		states = append(states, state)
	}
	return words(states)
}

func column(is bool, text string) string {
	if is {
		return text
	}
	return "-"
}

func words(list []string) string { return column(len(list) > 0, strings.Join(list, " ")) }

// admitWays sends one message in each way, and gives a line for each outcome.
func admitWays(t *testing.T, single map[string]admitResult, causes ...refusalCause) (lines []string) {
	t.Helper()
	names := causes[0].name
	if len(causes) > 1 {
		names += " + " + causes[1].name
	}
	var outcomes []admitResult
	ways := map[admitResult]string{}
	for _, way := range []string{"N", "T", "P", "A"} {
		if slices.ContainsFunc(causes, func(c refusalCause) bool { return c.ways != "" && !strings.Contains(c.ways, way) }) {
			continue
		}
		m := spoil(t, way, causes...)
		r := m.send()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		wantHarmless(t, names, way, r, causes)
		if len(causes) == 1 {
			single[way+names] = r
		} else {
			r.refused = whichOf(r.refused, causes, single[way+causes[0].name].refused, single[way+causes[1].name].refused)
		}
		if ways[r] == "" {
			outcomes = append(outcomes, r)
		}
		ways[r] += way
	}
	for _, r := range outcomes {
		lines = append(lines, r.line(names, ways[r]))
	}
	return lines
}

// whichOf names the one of two causes that is told, by what is told of each alone.
func whichOf(both string, causes []refusalCause, one, other string) string {
	switch {
	case both == one && both == other:
		return "= " + causes[0].name
	case both == one:
		return causes[0].name
	case both == other:
		return causes[1].name
	default:
		return both
	}
}

// wantHarmless judges what must hold whatever the file says.
func wantHarmless(t *testing.T, names, way string, r admitResult, causes []refusalCause) {
	t.Helper()
	has := func(list ...string) bool {
		return slices.ContainsFunc(causes, func(c refusalCause) bool { return slices.Contains(list, c.name) })
	}
	for says, broken := range map[string]bool{
		"a caller that the agent does not admit learns its name":                            has("caller not allowed") && r.names != "-",
		"the agent is asked for a caller that it does not admit":                            has("caller not allowed") && r.queried != "-",
		"what is refused before its tokens are proven leaves evidence":                      has("no identity", "rate limited", "token malformed", "token forged", "too many tokens") && (r.issued != "-" || r.recorded != "-"),
		"what policy refuses is recorded as a member's":                                     has("caller not allowed", "outsider", "hops", "loop") && slices.Contains(strings.Fields(r.recorded), "source"),
		"what policy refuses uses up its token":                                             has("caller not allowed", "outsider", "hops", "loop") && !has("replayed") && strings.Contains(r.token, "used"),
		"new work that a draining gateway refuses uses up its token, or is answered stored": has("gateway draining") && !has("discovery", "message malformed", "replayed") && (strings.Contains(r.token, "used") || r.again == "kept"),
		"the agent is called": !has("agent silent") && strings.Contains(r.queried, "call"),
	} {
		if broken {
			t.Errorf("%s (%s): %s: %+v", names, way, says, r)
		}
	}
}

// refusalText is a problem as the file has it.
func refusalText(p problem.Problem) string { return p.Code + ": " + p.Detail }

// TestAdmit_Order: of several reasons to refuse a message one is told, and what its
// sender learns, what is recorded and what is used up by then follows from that. All of
// it is in admitOrderFile, for messages with one reason and with each two of them.
func TestAdmit_Order(t *testing.T) {
	t.Parallel()
	causes, single := refusalCauses(), map[string]admitResult{}
	text := []string{admitOrderHead + "#\n# The causes; \"it\" is the message:\n#"}
	for _, c := range causes {
		text = append(text, fmt.Sprintf("#   %-22s %s", c.name, c.is))
	}
	columns := admitResult{"names", "issued", "recorded", "token", "asked", "charged", "sampled", "again", "refused"}
	text = append(text, "", "## One cause", "", columns.line("causes", "ways"))
	for _, c := range causes {
		text = append(text, admitWays(t, single, c)...)
	}
	pairs := make([][]string, len(causes))
	t.Run("pairs", func(t *testing.T) {
		for i, first := range causes {
			t.Run(first.name, func(t *testing.T) {
				t.Parallel()
				for _, second := range causes[i+1:] {
					if !first.excludes(second) {
						pairs[i] = append(pairs[i], admitWays(t, single, first, second)...)
					}
				}
			})
		}
	})
	text = append(text, "", "## Two causes", "", columns.line("causes", "ways"))
	text = append(text, slices.Concat(pairs...)...)
	got := strings.Join(text, "\n") + "\n"
	if os.Getenv(admitOrderEnv) != "" && !t.Failed() {
		if err := os.WriteFile(admitOrderFile, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(admitOrderFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := lineDiff(string(want), got); diff != "" {
		t.Errorf("%s says something else; if that is meant, run with %s=1. Lines of the file (-) and of now (+):\n%s", admitOrderFile, admitOrderEnv, diff)
	}
}

// lineDiff lists the lines that only one of two texts has, those of one pair of causes
// beside each other.
func lineDiff(want, got string) string {
	old, now := strings.Split(want, "\n"), strings.Split(got, "\n")
	var diff []string
	add := func(sign string, list, others []string) {
		for _, line := range list {
			if !slices.Contains(others, line) {
				diff = append(diff, sign+line)
			}
		}
	}
	add("-", old, now)
	add("+", now, old)
	slices.SortStableFunc(diff, func(a, b string) int {
		return strings.Compare(a[1:min(len(a), 46)], b[1:min(len(b), 46)])
	})
	return strings.Join(diff, "\n")
}
