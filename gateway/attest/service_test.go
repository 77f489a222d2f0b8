package attest_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const version = "1.2.3"

// store keeps what is put into it, in order, and can fail; it puts nothing for
// a context that has ended.
type store struct {
	*ecttest.Store
	mu      sync.Mutex
	fail    error
	records []ect.Record // in the order in which they came
}

func (s *store) Put(ctx context.Context, r ect.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(s.fail, ctx.Err()); err != nil {
		return err
	}
	err := s.Store.Put(ctx, r)
	if err == nil {
		s.records = append(s.records, r)
	}
	return err
}

// counts is what was counted of tokens, a line each; losses are in the metrics.
type counts struct {
	*telemetry.Metrics
	mu               sync.Mutex
	issued, verified []string
}

// losses are the lines of the metrics about them, without their name.
func (c *counts) losses(t testing.TB) (out []string) {
	t.Helper()
	scraped := httptest.NewRecorder()
	c.Handler().ServeHTTP(scraped, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(scraped.Body.String()) {
		if labels, ok := strings.CutPrefix(line, "aepb_translation_losses_total"); ok {
			out = append(out, strings.TrimSpace(labels))
		}
	}
	return out
}

func (c *counts) Issued(act string, level ect.Level) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.issued = append(c.issued, fmt.Sprintf("%s L%d", act, level))
}

func (c *counts) Verified(level ect.Level, result string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified = append(c.verified, fmt.Sprintf("L%d %s", level, result))
}

// env is a service with all that it is built from.
type env struct {
	*attest.Service
	t        testing.TB
	deps     attest.Deps
	store    *store
	counts   *counts
	log      *bytes.Buffer
	now      time.Time
	keys     *ecttest.Keys
	workflow string

	self, caller, agent, peer, next, outsider, unknown *ecttest.Party // no key of unknown is known
}

func newEnv(t testing.TB) *env {
	t.Helper()
	b := &env{
		t: t, store: &store{Store: ecttest.NewStore()}, log: &bytes.Buffer{}, now: time.Now(), workflow: string(ect.NewID()),
		self:     ecttest.NewParty(t, "spiffe://example.com/gateway"),
		caller:   ecttest.NewParty(t, "spiffe://example.com/client"),
		agent:    ecttest.NewParty(t, "spiffe://example.com/agents/calculator"),
		peer:     ecttest.NewParty(t, "spiffe://example.org/gateway"),
		next:     ecttest.NewParty(t, "spiffe://example.net/gateway"),
		outsider: ecttest.NewParty(t, "spiffe://example.com/outsider"),
		unknown:  ecttest.NewParty(t, "spiffe://example.com/unknown"),
	}
	b.keys = ecttest.KeysOf(b.self, b.caller, b.agent, b.peer, b.next, b.outsider)
	metrics, err := telemetry.New(telemetry.Deps{Bindings: []canonical.Binding{"a2a-v1", "mcp-v1"}})
	b.must(err)
	b.counts = &counts{Metrics: metrics}
	clock := func() time.Time { return b.now }
	dialects, err := ect.NewDialects(ect.DialectsDeps{})
	b.must(err)
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: b.store})
	b.must(err)
	members, err := membership.New(membership.Deps{Store: b.store, Self: b.self.ID})
	b.must(err)
	sampler, err := sample.New(sample.Config{}, sample.Deps{Now: clock})
	b.must(err)
	b.deps = attest.Deps{
		Signer: b.self.Signer(t, clock), Dialects: dialects, Verifier: b.verifier(b.self.ID), Recorder: recorder, Evidence: b.store,
		Members: members, Refusals: sampler, Metrics: b.counts, Logger: slog.New(slog.NewTextHandler(b.log, nil)),
		NewID: func() string { return string(ect.NewID()) }, Version: func() string { return version },
	}
	b.Service, err = attest.New(b.deps)
	b.must(err)
	return b
}

func (b *env) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// verifier is that of an identity, which has seen nothing yet.
func (b *env) verifier(id ect.Identity) *ect.Verifier {
	b.t.Helper()
	v, err := ect.NewVerifier(ect.VerifierDeps{
		Keys: b.keys, Replay: ecttest.NewReplay(), Audience: []string{string(id)}, Now: func() time.Time { return b.now },
	})
	b.must(err)
	return v
}

// read verifies a token as its reader does who got this message with it.
func (b *env) read(reader *ecttest.Party, compact string, body []byte) ect.Verified {
	b.t.Helper()
	v, err := b.verifier(reader.ID).Verify(b.t.Context(), compact, ect.Check{Purpose: ect.Source, Body: ect.Hash(body)})
	if err != nil {
		b.t.Fatalf("the reader refuses the token: %v", err)
	}
	return v
}

// signed is a party's token for the gateway.
func (b *env) signed(by *ecttest.Party, c ect.Claims) string {
	b.t.Helper()
	if c.Audience == nil {
		c.Audience = []string{string(b.self.ID)}
	}
	if c.Act == "" {
		c.Act = "task_done"
	}
	token, err := by.Signer(b.t, func() time.Time { return b.now }).Sign(c)
	b.must(err)
	return token.Compact()
}

// permit is a valid one, for agents that declare this level.
func (b *env) permit(level ect.Level, allow ...string) policy.Permit {
	b.t.Helper()
	permit, err := policy.Evaluate(policy.Request{
		Caller: b.caller.ID, Native: true, Agent: "calculator", Operation: "invoke", Rules: policy.Rules{Open: true}, Source: "a2a-v1", Dest: "mcp-v1",
		DestLevel: level, Self: b.self.ID, Constraints: policy.Constraints{AllowLosses: allow},
	})
	b.must(err)
	return permit
}

func (b *env) subject() attest.Subject {
	return attest.Subject{
		Caller: identity.Caller{Peer: b.caller.Peer()}, Holder: limit.Identity(string(b.caller.ID)),
		EntryPoint: transport.Translate, Version: version, Permit: b.permit(0),
	}
}

// codec writes what it is told to.
type codec struct {
	body   string
	losses []canonical.Loss
	fail   error
}

func (codec) Info() translators.Info { return translators.Info{Binding: "mcp-v1"} }

func (codec) Decode(translators.Wire) (*canonical.Message, error) { return nil, errors.ErrUnsupported }

func (c codec) Encode(*canonical.Message, translators.Target) (translators.Wire, []canonical.Loss, error) {
	return translators.Wire{Binding: "mcp-v1", Body: []byte(c.body)}, c.losses, c.fail
}

// framer puts a message into brackets.
type framer struct {
	losses []canonical.Loss
	fail   error
}

func (f framer) Frame(w translators.Wire) (translators.Wire, []canonical.Loss, error) {
	w.Body = fmt.Appendf(nil, "[%s]", w.Body)
	return w, f.losses, f.fail
}

func (framer) Unframe(w translators.Wire) (translators.Wire, error) { return w, nil }

// request is a translation to the agent.
func (b *env) request() attest.Translation {
	return attest.Translation{
		Subject: b.subject(), Lineage: attest.Lineage{Workflow: b.workflow, Parents: []ect.ID{ect.NewID()}}, Direction: attest.Request, ID: ect.NewID(),
		Message: &canonical.Message{}, Input: ect.Hash([]byte("asked")), Codec: codec{body: "asked of the agent"},
		Pair: attest.Pair{From: "a2a-v1", To: "mcp-v1"}, Audience: []string{string(b.agent.ID), string(b.self.ID)}, Reader: b.agent.ID,
	}
}

// reply is a translation back to the caller, of what came after these.
func (b *env) reply(parents ...ect.ID) attest.Translation {
	tr := b.request()
	tr.Direction, tr.Lineage.Parents, tr.Input, tr.Codec = attest.Reply, parents, ect.Hash([]byte("said")), codec{body: "said to the caller"}
	tr.Pair, tr.Audience, tr.Reader = attest.Pair{From: "mcp-v1", To: "a2a-v1"}, []string{string(b.caller.ID)}, b.caller.ID
	return tr
}

// translated makes a translation that succeeds, and returns its token's id.
func (b *env) translated(trail *attest.Trail, tr attest.Translation) ect.ID {
	b.t.Helper()
	if _, err := b.Translate(b.t.Context(), trail, tr); err != nil {
		b.t.Fatal(err)
	}
	return tr.ID
}

// ids makes n of them.
func ids(n int) []ect.ID {
	out := make([]ect.ID, n)
	for i := range out {
		out[i] = ect.NewID()
	}
	return out
}

// record is the only one with an id.
func (b *env) record(id ect.ID) ect.Record {
	b.t.Helper()
	found, err := ecttest.Find(b.t.Context(), b.store, id)
	if err != nil || len(found) != 1 {
		b.t.Fatalf("got %d records of %s, %v, want one", len(found), id, err)
	}
	return found[0]
}

// claims is what a token says.
func (b *env) claims(compact string) ect.Claims {
	b.t.Helper()
	c, _, err := ect.ParseUnverified(compact)
	b.must(err)
	return c
}

// says holds a token's extension to these members, as JSON text; an empty one is absent.
func says(t testing.TB, ext ect.Ext, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got := string(ext[key]); got != value {
			t.Errorf("%s: got %s, want %s", key, got, value)
		}
	}
}

func TestNew_Incomplete(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	for i := range reflect.TypeFor[attest.Deps]().NumField() {
		deps := b.deps
		reflect.ValueOf(&deps).Elem().Field(i).SetZero()
		if s, err := attest.New(deps); err == nil || s != nil {
			t.Errorf("made a service without %s", reflect.TypeFor[attest.Deps]().Field(i).Name)
		}
	}
}

func TestRecording_Errors(t *testing.T) {
	t.Parallel()
	kind := func(err error) string { return reflect.TypeOf(err).String() }
	for name, tc := range map[string]struct {
		err  error
		want error
	}{
		"the id is taken":            {&ect.ConflictError{}, &ect.ConflictError{}},
		"a root of another":          {&ect.ForeignRootError{}, &ect.ForeignRootError{}},
		"the caller's share is full": {&state.FullError{Own: true}, &state.FullError{}},
		"the store is full":          {&state.FullError{}, &problem.RecordingError{}},
		"the store is gone":          {errors.New("gone"), &problem.RecordingError{}},
		"the time is over":           {context.DeadlineExceeded, &problem.RecordingError{}},
	} {
		wrapped := fmt.Errorf("ect: record: %w", tc.err)
		if got := attest.Recording(wrapped); kind(got) != kind(tc.want) {
			t.Errorf("%s: got %T, want %T", name, got, tc.want)
		}
	}
}

// A token makes those members whom it is for and its caller (R14); neither callers that a
// role let in nor anonymous ones, whose identity many share.
func TestTranslate_Members(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	for name, tc := range map[string]struct {
		change func(*attest.Subject)
		reply  bool
		want   []ect.Identity
	}{
		"request":              {change: func(*attest.Subject) {}, want: []ect.Identity{b.agent.ID, b.caller.ID}},
		"reply":                {change: func(*attest.Subject) {}, reply: true, want: []ect.Identity{b.caller.ID}},
		"request by a role":    {change: func(s *attest.Subject) { s.ByRole = true }, want: []ect.Identity{b.agent.ID}},
		"reply by a role":      {change: func(s *attest.Subject) { s.ByRole = true }, reply: true},
		"request of anonymous": {change: func(s *attest.Subject) { s.Caller.Anonymous = true }, want: []ect.Identity{b.agent.ID}},
		"reply to anonymous":   {change: func(s *attest.Subject) { s.Caller.Anonymous = true }, reply: true},
	} {
		tr := b.request()
		if tc.reply {
			tr = b.reply(ect.NewID())
		}
		tc.change(&tr.Subject)
		got := b.record(b.translated(attest.Begin(), tr))
		if !slices.Equal(got.Members, tc.want) || got.Holder != limit.Identity(string(b.caller.ID)) || !got.Own || got.Workflow != b.workflow {
			t.Errorf("%s: members %v, holder %q, own %v; want members %v in the caller's share", name, got.Members, got.Holder, got.Own, tc.want)
		}
	}
}

func TestTranslate_Unattested(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	for _, unattested := range []bool{true, false} {
		trail, tr := attest.Begin(), b.request()
		tr.Subject.Unattested = unattested
		b.translated(trail, tr)
		if got, _ := b.claims(trail.Tokens()[0]).Ext.Bool(ect.ExtSourceUnattested); got != unattested {
			t.Errorf("got %v, want %v", got, unattested)
		}
	}
}

// TestStatements_Complete: a statement whose recording may have ended half way is put again with the bytes that are there, and
// an id that is not on record in this workflow is not taken for it.
func TestStatements_Complete(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	st := attest.Statement{Act: ect.ActConsensusVote, ID: ect.NewID(), Lineage: attest.Lineage{Workflow: b.workflow, Parents: []ect.ID{ect.NewID()}}}
	compact, err := b.Statements().State(t.Context(), st)
	b.must(err)
	b.now = b.now.Add(time.Second)
	if _, err := b.Statements().State(t.Context(), st); !errors.As(err, new(*ect.ConflictError)) {
		t.Errorf("the same statement signed anew: %v, expected a conflict", err)
	}
	b.must(b.Statements().Complete(t.Context(), b.workflow, st.ID))
	if puts := b.store.records; len(puts) != 2 || puts[1].Compact != compact || puts[1].Workflow != b.workflow {
		t.Errorf("%d records were put, expected two of the same bytes", len(puts))
	}
	for _, other := range []struct {
		workflow string
		id       ect.ID
	}{{b.workflow, ect.NewID()}, {string(ect.NewID()), st.ID}} {
		if err := b.Statements().Complete(t.Context(), other.workflow, other.id); !errors.As(err, new(*ect.ConflictError)) {
			t.Errorf("workflow %s, id %s: %v, expected a conflict", other.workflow, other.id, err)
		}
	}
}
