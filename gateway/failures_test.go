package gateway_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// saysOf compares members of a token's ext claim with what they must be. Their names
// are those of the drafts, written out: a wrong constant shows here.
func saysOf(t *testing.T, c ect.Claims, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got, ok := c.Ext.String(key); got != value || !ok || value == "" {
			t.Errorf("%s: got %q, want %q", key, got, value)
		}
	}
}

// Every failure after step 5 leaves an error ECT whose parent is the source's,
// whose aepb.error is one of the four values of the draft, and which says between
// which protocols the translation failed and why.
func TestFailure_LeavesEvidence(t *testing.T) {
	t.Parallel()
	const text = `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`
	for name, tc := range map[string]struct {
		body     string
		to       canonical.Binding
		dest     string
		agent    func(*agent)
		settings gateway.Settings
		code     string
		value    string // aepb.error
		called   bool
	}{
		"agent too slow":        {body: addBody, agent: func(a *agent) { a.fail = &transport.TimeoutError{} }, code: "timeout", value: "timeout", called: true},
		"agent away":            {body: addBody, agent: func(a *agent) { a.fail = &transport.UnreachableError{} }, code: "upstream_unreachable", value: "internal_error", called: true},
		"agent talks nonsense":  {body: addBody, agent: func(a *agent) { a.result = `7` }, code: "bad_upstream_reply", value: "internal_error", called: true},
		"agent asks back":       {body: addBody, agent: func(a *agent) { a.result = `{"resultType":"input_required","inputRequests":{}}` }, code: "bad_upstream_reply", value: "internal_error", called: true},
		"not JSON":              {body: `{`, code: "malformed_message", value: "internal_error"},
		"nobody's task":         {body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}`, code: "not_found", value: "internal_error"},
		"unknown agent":         {body: addBody, dest: "nobody", code: "no_translation_path", value: "internal_error"},
		"source not allowed":    {body: addBody, settings: gateway.Settings{Constraints: policy.Constraints{RestrictSource: true}}, code: "policy_violation", value: "policy_violation"},
		"no hops left":          {body: addBody, settings: gateway.Settings{Constraints: policy.Constraints{MaxHops: -1}}, code: "policy_violation", value: "policy_violation"},
		"text without a choice": {body: text, code: "", value: "internal_error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, tc.settings, policy.Rules{Open: true})
			if tc.agent != nil {
				tc.agent(b.agent)
			}
			call := b.translate(t, tc.body)
			if tc.dest != "" {
				call.Agent = tc.dest
			}
			answer, err := b.Exchange(t.Context(), call)
			if err == nil {
				t.Fatal("no error")
			}
			if got := problem.From(err).Code; tc.code != "" && got != tc.code {
				t.Errorf("code: got %s, want %s (%v)", got, tc.code, err)
			}
			if (len(b.agent.bodies) > 0) != tc.called {
				t.Errorf("the agent was called %d times", len(b.agent.bodies))
			}
			if len(answer.Evidence) == 0 {
				t.Fatal("no evidence")
			}
			last := claims(t, answer.Evidence[len(answer.Evidence)-1])
			if last.Act != ect.ActTranslateError {
				t.Errorf("got act %s", last.Act)
			}
			saysOf(t, last, map[string]string{
				"aepb.source_protocol": "a2a-v1", "aepb.dest_protocol": "mcp-v1", "aepb.error": tc.value, "aepb.description": problem.From(err).Detail,
			})
			if source := claims(t, call.Evidence[0]); len(last.Parents) != 1 || last.Parents[0] != source.ID || last.Workflow != source.Workflow {
				t.Errorf("parents %v", last.Parents)
			}
			if !has(t, b, last.ID) {
				t.Error("the error ECT is not on record")
			}
			if _, again := b.Exchange(t.Context(), call); again == nil || problem.From(again).Code != problem.From(err).Code {
				t.Errorf("the repetition got %v, the first got %v", again, err)
			}
		})
	}
}

// TestFailure_LogNamesItsWorkflow: the line about a failed exchange says under which workflow its
// evidence is found.
func TestFailure_LogNamesItsWorkflow(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*fixture, *transport.Call){
		"agent away":  func(b *fixture, _ *transport.Call) { b.agent.fail = &transport.UnreachableError{} },
		"not a call":  func(_ *fixture, c *transport.Call) { c.Wire.Body = []byte(`{`) },
		"no evidence": func(b *fixture, c *transport.Call) { b.agent.fail, c.Evidence = &transport.UnreachableError{}, nil },
	} {
		var log bytes.Buffer
		b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true}, func(d *gateway.Deps) { d.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		call := b.call(addBody)
		edit(b, &call)
		answer, err := b.Exchange(t.Context(), call)
		if err == nil || len(answer.Evidence) == 0 {
			t.Fatalf("%s: %v with %d tokens", name, err, len(answer.Evidence))
		}
		if want := "wid=" + claims(t, answer.Evidence[len(answer.Evidence)-1]).Workflow; !strings.Contains(log.String(), want) {
			t.Errorf("%s: logged is %s, without %s", name, log.String(), want)
		}
	}
}

// Refusals before step 5 cost little and leave no ECT.
func TestRefusal_ForbiddenAndRateLimitedBySource(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Callers: []string{"spiffe://example.com/somebody-else"}})
	stranger := b.call(addBody)
	_, err := b.Exchange(t.Context(), stranger)
	var forbidden *policy.Forbidden
	if !errors.As(err, &forbidden) {
		t.Errorf("a caller who is not on the list: got %v", err)
	}
	for range 200 {
		if _, err = b.Exchange(t.Context(), stranger); !errors.As(err, &forbidden) {
			break
		}
	}
	var exceeded *limit.ExceededError
	if !errors.As(err, &exceeded) {
		t.Errorf("a flood: got %v", err)
	}
	other := stranger
	other.Caller = identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/other"}}
	if _, err := b.Exchange(t.Context(), other); errors.As(err, &exceeded) {
		t.Error("another source is limited by the flood of the first")
	}
}

func TestECT_RequiredButMissing(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{RequireECT: true}, policy.Rules{Open: true})
	if _, err := b.Exchange(t.Context(), b.call(addBody)); !errors.Is(err, ect.ErrRequired) {
		t.Errorf("native endpoint: got %v", err)
	}
	b = newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	call := b.call(addBody)
	call.EntryPoint, call.To = transport.Translate, mcp.Binding
	if _, err := b.Exchange(t.Context(), call); !errors.Is(err, ect.ErrRequired) {
		t.Errorf("translate endpoint: got %v", err)
	}
}

func TestConversation_UnattestedTurnsShareALineage(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	turn := strings.Replace(addBody, `"messageId":"m1"`, `"messageId":"m1","contextId":"c1"`, 1)
	var last ect.Claims
	for i := range 10 {
		answer, err := b.Exchange(t.Context(), b.call(turn))
		if err != nil {
			t.Fatalf("turn %d: %v", i+1, err)
		}
		request := claims(t, answer.Evidence[0])
		if i == 0 && len(request.Parents) != 0 {
			t.Error("the first turn is no root")
		}
		if i > 0 && (len(request.Parents) != 1 || request.Parents[0] != last.ID || request.Workflow != last.Workflow) {
			t.Errorf("turn %d does not descend from the one before", i+1)
		}
		if unattested, _ := request.Ext.Bool(ect.ExtSourceUnattested); !unattested {
			t.Error("an unattested source is not marked")
		}
		last = claims(t, answer.Evidence[1])
	}
}

// A dialogue belongs to its caller: another caller that names its context id
// begins a dialogue of its own (R2).
func TestConversation_NotSharedBetweenCallers(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	turn := strings.Replace(addBody, `"messageId":"m1"`, `"messageId":"m1","contextId":"c1"`, 1)
	workflow := ""
	for i, id := range []ect.Identity{"spiffe://example.com/one", "spiffe://example.com/two"} {
		call := b.call(turn)
		call.Caller = identity.Caller{Peer: ect.Peer{ID: id}}
		answer, err := b.Exchange(t.Context(), call)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		request := claims(t, answer.Evidence[0])
		if len(request.Parents) != 0 || i > 0 && request.Workflow == workflow {
			t.Errorf("%s goes on with another's dialogue", id)
		}
		workflow = request.Workflow
	}
}

// A jti of ours, used again by a caller, hides nothing: in our token's workflow it
// is refused, in another his own message passes, and a message that names that id
// as parent has us on its path.
func TestECT_ForeignTokenWithGatewaysJTI(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	answer, err := b.Exchange(t.Context(), b.translate(t, addBody))
	if err != nil {
		t.Fatal(err)
	}
	ours := claims(t, answer.Evidence[0])
	send := func(body, workflow string, c ect.Claims) error {
		c.Audience, c.Workflow, c.OutputHash = []string{string(b.self.ID)}, workflow, ect.Hash([]byte(body))
		token, err := b.caller.Signer(t, func() time.Time { return b.now() }).Sign(c)
		if err != nil {
			t.Fatal(err)
		}
		call := b.translate(t, body)
		call.Evidence = []string{token.Compact()}
		_, err = b.Exchange(t.Context(), call)
		return err
	}
	namesake := ect.Claims{ID: ours.ID, Act: "send_task", Parents: []ect.ID{}}
	if conflict := (*ect.ConflictError)(nil); !errors.As(send(strings.Replace(addBody, `"b":2`, `"b":3`, 1), ours.Workflow, namesake), &conflict) {
		t.Error("a token with our jti in the workflow of ours is taken")
	}
	if err := send(strings.Replace(addBody, `"b":2`, `"b":3`, 1), string(ect.NewID()), namesake); err != nil {
		t.Errorf("a token with our jti: %v", err)
	}
	if found, err := ecttest.Find(t.Context(), b.memory, ours.ID); err != nil || len(found) != 2 {
		t.Errorf("kept %v, %v", found, err)
	}
	err = send(strings.Replace(addBody, `"b":2`, `"b":4`, 1), ours.Workflow, ect.Claims{Act: ect.ActTranslate, Parents: []ect.ID{ours.ID}})
	if denied := (*policy.Denied)(nil); !errors.As(err, &denied) || denied.Constraint != policy.ConstraintLoop {
		t.Errorf("a loop through us: %v", err)
	}
}

// A source's lineage that already went through us is a loop; three foreign
// translations on the way are one too many with ours.
func TestLineage_HopsAndLoops(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		self bool
		hops int
		want policy.Constraint
	}{
		"two hops before us":    {hops: 2},
		"three hops before us":  {hops: 3, want: policy.ConstraintHops},
		"we are on the way":     {hops: 1, self: true, want: policy.ConstraintLoop},
		"an unknown ancestor":   {hops: -1, want: policy.ConstraintLineage},
		"no translation at all": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
			// The caller is a gateway: its ECT is a translation itself.
			signer := b.caller
			if tc.self {
				signer = b.self
			}
			var tokens []string
			var parents []ect.ID
			if tc.hops < 0 {
				parents, tc.hops = []ect.ID{ect.NewID()}, 1
			}
			workflow := string(ect.NewID())
			for i := range tc.hops {
				out := ""
				if i == tc.hops-1 {
					signer, out = b.caller, ect.Hash([]byte(addBody))
				}
				if tc.self && i == tc.hops-1 {
					own, err := b.self.Signer(t, nil).Sign(ect.Claims{Audience: []string{string(b.self.ID)}, Workflow: workflow, Act: ect.ActTranslate})
					if err != nil {
						t.Fatal(err)
					}
					parents, tokens = []ect.ID{own.ID()}, append(tokens, own.Compact())
				}
				token, err := signer.Signer(t, nil).Sign(ect.Claims{
					Audience: []string{string(b.self.ID)}, Workflow: workflow, Act: ect.ActTranslate, Parents: parents, OutputHash: out,
				})
				if err != nil {
					t.Fatal(err)
				}
				parents, tokens = []ect.ID{token.ID()}, append(tokens, token.Compact())
			}
			call := b.call(addBody, tokens...)
			_, err := b.Exchange(t.Context(), call)
			var denied *policy.Denied
			if tc.want == "" && err != nil || tc.want != "" && (!errors.As(err, &denied) || denied.Constraint != tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestExchange_DuplicateInProgressIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
		b.agent.gate, b.agent.entered = make(chan struct{}), make(chan struct{}, 1)
		call := b.translate(t, addBody)
		done := make(chan error)
		go func() {
			_, err := b.Exchange(t.Context(), call)
			done <- err
		}()
		<-b.agent.entered
		var busy *problem.InProgressError
		if _, err := b.Exchange(t.Context(), call); !errors.As(err, &busy) {
			t.Errorf("got %v, want in_progress", err)
		}
		close(b.agent.gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestExchange_AgentTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, gateway.Settings{Timeout: time.Second}, policy.Rules{Open: true})
		b.agent.gate, b.agent.entered = make(chan struct{}), make(chan struct{}, 1)
		began := time.Now()
		_, err := b.Exchange(t.Context(), b.translate(t, addBody))
		var timeout *transport.TimeoutError
		if !errors.As(err, &timeout) || time.Since(began) != time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

func TestExchange_TranslationWithoutAgent(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{})
	const body = `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`
	call := b.translate(t, body)
	call.Agent = ""
	answer, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	token := claims(t, answer.Evidence[0])
	if len(answer.Evidence) != 1 || token.OutputHash != ect.Hash(answer.Wire().Body) || answer.Wire().Binding != mcp.Binding {
		t.Errorf("got %d ECTs for %s", len(answer.Evidence), answer.Wire().Binding)
	}
	if got := string(answer.Wire().Body); !strings.Contains(got, `"tools/call"`) || !strings.Contains(got, `"message":"hello"`) {
		t.Errorf("got %s", got)
	}
}

// The destination's own ECT becomes the parent of the reply's; a broken one
// makes its answer untrustworthy.
func TestEvidence_AgentTokenIsParentOfReply(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	var own ect.Token
	b.agent.evidence = func(_, reply []byte) []string {
		var err error
		direction := claims(t, b.agent.tokens[len(b.agent.tokens)-1][0])
		own, err = b.server.Signer(t, nil).Sign(ect.Claims{
			Audience: []string{string(b.self.ID)}, Act: "receive_task", OutputHash: ect.Hash(reply), Workflow: direction.Workflow, Parents: []ect.ID{direction.ID},
		})
		if err != nil {
			t.Error(err)
		}
		return []string{own.Compact()}
	}
	answer, err := b.Exchange(t.Context(), b.translate(t, addBody))
	if err != nil {
		t.Fatal(err)
	}
	want := []ect.ID{own.ID(), claims(t, answer.Evidence[0]).ID}
	if reply := claims(t, answer.Evidence[1]); !slices.Equal(reply.Parents, want) {
		t.Errorf("parents of leg 2: %v, want the agent's token and leg 1: %v", reply.Parents, want)
	}
	outsider := ecttest.NewParty(t, b.server.ID)
	b.agent.evidence = func(_, reply []byte) []string {
		return []string{ecttest.Mint(t, outsider, ecttest.Recipe{Claims: ect.Claims{
			Audience: []string{string(b.self.ID)}, OutputHash: ect.Hash(reply),
		}})}
	}
	var bad *transport.BadReplyError
	if _, err := b.Exchange(t.Context(), b.translate(t, addBody)); !errors.As(err, &bad) {
		t.Errorf("a forged ECT of the destination: got %v", err)
	}
}

// TestAttack_AgentFillsAnothersShare is a point of finding N8: an agent that holds tokens
// which a caller signed, and which this gateway has not seen, sends them with its replies,
// bound to the request or not, so that they fill that caller's share of the store. They
// count as the agent's.
func TestAttack_AgentFillsAnothersShare(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	var sent []ect.ID
	b.agent.evidence = func(_, reply []byte) (tokens []string) {
		direction := claims(t, b.agent.tokens[len(b.agent.tokens)-1][0])
		for _, c := range []ect.Claims{
			{Workflow: direction.Workflow, Parents: []ect.ID{direction.ID}}, {Workflow: string(ect.NewID())}, {},
		} {
			c.Audience, c.Act, c.OutputHash = []string{string(b.self.ID)}, "receive_task", ect.Hash(reply)
			token, err := b.caller.Signer(t, nil).Sign(c)
			if err != nil {
				t.Error(err)
			}
			sent, tokens = append(sent, token.ID()), append(tokens, token.Compact())
		}
		return tokens
	}
	if _, err := b.Exchange(t.Context(), b.translate(t, addBody)); err != nil {
		t.Fatal(err)
	}
	for _, id := range sent {
		records, err := ecttest.Find(t.Context(), b.memory, id)
		if err != nil || len(records) != 1 {
			t.Fatalf("%s: %d records, %v", id, len(records), err)
		}
		if got, want := records[0].Holder, limit.Identity(string(b.server.ID)); got != want {
			t.Errorf("a token of %s counts as that of %s, want %s", records[0].Issuer, got, want)
		}
	}
}

// TestAttack_AgentEvictsWhatItShowedFirst: an agent holds a caller's token and sends it
// with a reply before the caller sends it here. Before, the record stayed in the agent's
// share, where the agent's own tokens evict it, and outside of its workflow. Now it is the
// caller's as soon as the caller brings it, and stays so.
func TestAttack_AgentEvictsWhatItShowedFirst(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	body := strings.Replace(addBody, `"b":2`, `"b":3`, 1)
	token := b.source(t, body, nil)
	c := claims(t, token)
	b.agent.evidence = func(_, reply []byte) []string {
		own, err := b.server.Signer(t, nil).Sign(ect.Claims{
			Workflow: c.Workflow, Parents: []ect.ID{c.ID}, Audience: []string{string(b.self.ID)}, Act: "receive_task", OutputHash: ect.Hash(reply),
		})
		if err != nil {
			t.Error(err)
		}
		return []string{own.Compact(), token}
	}
	shown := func(holder ect.Identity, workflow string) {
		t.Helper()
		if _, err := b.Exchange(t.Context(), b.translate(t, addBody)); err != nil {
			t.Fatal(err)
		}
		records, err := ecttest.Find(t.Context(), b.memory, c.ID)
		if err != nil || len(records) != 1 || records[0].Holder != limit.Identity(string(holder)) || records[0].Workflow != workflow {
			t.Errorf("got %+v, %v; want it with %s, in workflow %q", records, err, holder, workflow)
		}
	}
	shown(b.server.ID, "")
	call := b.translate(t, body)
	call.Evidence = []string{token}
	if _, err := b.Exchange(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	shown(b.caller.ID, c.Workflow)
}

// lossyMCP and lossyA2A say of every message that they encode that something of it was
// losses, beside what really was.
type (
	lossyMCP struct {
		*mcp.Translator
		loss canonical.Loss
	}
	lossyA2A struct {
		*a2a.Translator
		loss canonical.Loss
	}
)

func (l lossyMCP) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	wire, losses, err := l.Translator.Encode(m, target)
	return wire, append(slices.Clone(losses), l.loss), err
}

func (l lossyA2A) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	wire, losses, err := l.Translator.Encode(m, target)
	return wire, append(slices.Clone(losses), l.loss), err
}

// A message from a translator that drops content never leaves (R7): a request does not
// reach its agent, a reply does not reach its caller, and the evidence says so. What
// weighs less is a warning in the evidence, and the message leaves.
func TestSemanticLoss_StopsTheMessage(t *testing.T) {
	t.Parallel()
	content := canonical.Loss{Code: canonical.LossContent, Path: "/body", Fate: canonical.Dropped}
	ids := canonical.Loss{Code: canonical.LossIDs, Path: "/ids", Fate: canonical.Dropped}
	toAgent := func(loss canonical.Loss) []translators.Translator {
		return []translators.Translator{a2a.New(translators.Config{}), lossyMCP{mcp.New(translators.Config{}), loss}}
	}
	toCaller := func(loss canonical.Loss) []translators.Translator {
		return []translators.Translator{lossyA2A{a2a.New(translators.Config{}), loss}, mcp.New(translators.Config{})}
	}
	for name, tc := range map[string]struct {
		forms  []translators.Translator
		loss   canonical.Loss
		lossy  int // which leg's token says so, where it is a warning
		stops  bool
		called int
		issued []ect.Act
	}{
		"content of the request":  {forms: toAgent(content), loss: content, stops: true, called: 0, issued: []ect.Act{"aepb:translate_error"}},
		"content of the reply":    {forms: toCaller(content), loss: content, stops: true, called: 1, issued: []ect.Act{"aepb:translate", "aepb:translate_error"}},
		"metadata of the request": {forms: toAgent(ids), loss: ids, lossy: 0, called: 1, issued: []ect.Act{"aepb:translate", "aepb:translate"}},
		"metadata of the reply":   {forms: toCaller(ids), loss: ids, lossy: 1, called: 1, issued: []ect.Act{"aepb:translate", "aepb:translate"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry, err := translators.NewRegistry(tc.forms...)
			if err != nil {
				t.Fatal(err)
			}
			b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true}, func(d *gateway.Deps) { d.Registry = registry })
			answer, err := b.Exchange(t.Context(), b.translate(t, addBody))
			var losses *policy.SemanticLossError
			if stopped := errors.As(err, &losses); stopped != tc.stops || stopped && !slices.Equal(losses.Codes, []string{"L33"}) || !stopped && err != nil {
				t.Fatalf("got %v", err)
			}
			if len(b.agent.bodies) != tc.called {
				t.Errorf("the agent was called %d times", len(b.agent.bodies))
			}
			if stopped := len(answer.Wire().Body) == 0; stopped != tc.stops {
				t.Errorf("the caller got %s", answer.Wire().Body)
			}
			var issued []ect.Act
			for _, token := range answer.Evidence {
				issued = append(issued, claims(t, token).Act)
			}
			if !slices.Equal(issued, tc.issued) {
				t.Fatalf("the evidence is %s", issued)
			}
			if last := claims(t, answer.Evidence[len(answer.Evidence)-1]); tc.stops {
				saysOf(t, last, map[string]string{"aepb.error": "semantic_loss"})
			}
			if warnings, _ := claims(t, answer.Evidence[tc.lossy]).Ext.Strings("aepb.translation_warnings"); !tc.stops && !slices.Contains(warnings, tc.loss.String()) {
				t.Errorf("warnings: %q", warnings)
			}
		})
	}
}

// Without the receipt of a recorded token nothing is sealed, and nothing but sealed
// messages can be sent.
func TestSeal_RequiresReceipt(t *testing.T) {
	t.Parallel()
	if _, err := transport.Attest(ect.Receipt{}, translators.Wire{Body: []byte("{}")}); !errors.Is(err, transport.ErrUnsealed) {
		t.Errorf("attested without a receipt: %v", err)
	}
	if _, err := (transport.Attested{}).Seal(); !errors.Is(err, transport.ErrUnsealed) {
		t.Errorf("sealed without a receipt: %v", err)
	}
}

// Two tokens that name each other would leave nobody to answer for the message.
func TestECT_CyclicParentsRefused(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	one, two := ect.NewID(), ect.NewID()
	mint := func(id, parent ect.ID) string {
		return ecttest.Mint(t, b.caller, ecttest.Recipe{Claims: ect.Claims{
			ID: id, Parents: []ect.ID{parent}, Audience: []string{string(b.self.ID)}, OutputHash: ect.Hash([]byte(addBody)),
		}})
	}
	call := b.translate(t, addBody)
	call.Evidence = []string{mint(one, two), mint(two, one)}
	var malformed *ect.MalformedError
	if _, err := b.Exchange(t.Context(), call); !errors.As(err, &malformed) {
		t.Errorf("got %v", err)
	}
}
