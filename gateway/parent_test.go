package gateway_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
)

// translated mints tokens of somebody who translates for others, each made of the
// one before, the newest first.
func (b *fixture) translated(t *testing.T, who *ecttest.Party, body string, n int) (tokens []string, ids []ect.ID) {
	t.Helper()
	workflow, parents := string(ect.NewID()), []ect.ID(nil)
	for range n {
		token, err := who.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
			Audience: []string{string(b.self.ID)}, Workflow: workflow, Act: ect.ActTranslate, Parents: parents, OutputHash: ect.Hash([]byte(body)),
			Ext: ect.Ext{ect.ExtSourceProtocol: []byte(`"a2a-v1"`), ect.ExtDestProtocol: []byte(`"mcp-v1"`), ect.ExtGatewayID: []byte(strconv.Quote(string(who.ID)))},
		})
		if err != nil {
			t.Fatal(err)
		}
		tokens, ids, parents = slices.Insert(tokens, 0, token.Compact()), slices.Insert(ids, 0, token.ID()), []ect.ID{token.ID()}
	}
	return tokens, ids
}

// TestNamedParent_HopsOfItsPathCount: a message that only names its token has the way behind
// it that this token has, where its sender made that of the message itself (R1). To
// name what was made for one's own work is no way round: what lies between is an
// agent's act and no translation.
func TestNamedParent_HopsOfItsPathCount(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	tokens, ids := b.translated(t, b.caller, addBody, 3)
	_, err := b.Exchange(t.Context(), b.call(addBody, tokens...))
	if denied, ok := errors.AsType[*policy.Denied](err); !ok || denied.Constraint != policy.ConstraintHops {
		t.Fatalf("with tokens: %v", err)
	}
	// What was refused is not on record. The same with room for more hops is.
	b.Apply(gateway.Settings{Constraints: policy.Constraints{MaxHops: 9}})
	if _, err := b.Exchange(t.Context(), b.call(addBody, tokens...)); err != nil {
		t.Fatal(err)
	}
	b.Apply(gateway.Settings{})
	naming := func(id ect.ID) (transport.Answer, error) {
		call := b.call(addBody)
		call.Parent = string(id)
		return b.Exchange(t.Context(), call)
	}
	answer, err := naming(ids[0])
	if denied, ok := errors.AsType[*policy.Denied](err); !ok || denied.Constraint != policy.ConstraintHops {
		t.Errorf("the third translation: %v", err)
	}
	if len(answer.Evidence) != 1 {
		t.Fatalf("%d tokens about the refusal", len(answer.Evidence))
	}
	if failed := claims(t, answer.Evidence[0]); !slices.Equal(failed.Parents, ids[:1]) || failed.Act != ect.ActTranslateError || failed.Workflow != claims(t, tokens[0]).Workflow {
		t.Errorf("the refusal has the parents %v in %s", failed.Parents, failed.Workflow)
	}
	answer, err = naming(ids[1])
	if err != nil {
		t.Fatalf("the second translation: %v", err)
	}
	ours := claims(t, answer.Evidence[0])
	if !slices.Equal(ours.Parents, ids[1:2]) || ours.Workflow != claims(t, tokens[1]).Workflow {
		t.Errorf("our parents are %v", ours.Parents)
	}
	for range 4 { // each names our reply's, as a client does that goes on
		if answer, err = naming(claims(t, answer.Evidence[len(answer.Evidence)-1]).ID); err != nil {
			t.Fatalf("what was made for him: %v", err)
		}
	}
}

// TestNamedParent_AmbiguousIDIsRefused: of several tokens with one id that concern its sender, none is meant.
func TestNamedParent_AmbiguousIDIsRefused(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	id, workflow, until := ect.NewID(), string(ect.NewID()), b.now().Add(time.Hour)
	put := func(issuer ect.Identity, audience ...string) {
		t.Helper()
		record := ect.Record{Compact: "h.p." + string(issuer[len(issuer)-1:]), ID: id, Workflow: workflow, Issuer: issuer, Audience: audience, Act: "act", Parents: []ect.ID{ect.NewID()}, Until: until}
		if issuer == b.caller.ID {
			record.Members = []ect.Identity{issuer} // without that his own token is not enough
		}
		if err := b.memory.Put(t.Context(), record); err != nil {
			t.Fatal(err)
		}
	}
	call := b.call(addBody)
	call.Parent = string(id)
	put(b.server.ID)
	if _, err := b.Exchange(t.Context(), call); !refused(err) {
		t.Errorf("of another: %v", err)
	}
	put(b.caller.ID)
	if answer, err := b.Exchange(t.Context(), call); err != nil || claims(t, answer.Evidence[0]).Workflow != workflow {
		t.Errorf("his own, beside another's: %v", err)
	}
	put("spiffe://example.com/x", string(b.caller.ID))
	if _, err := b.Exchange(t.Context(), call); !refused(err) {
		t.Errorf("two of his: %v", err)
	}
}

func refused(err error) bool {
	invalid, ok := errors.AsType[*ect.InvalidError](err)
	return ok && invalid.Reason == ect.ReasonUnknownParent
}

// TestAttack_HopsBehindAListedPrefix: gateways that are listed by a prefix name the
// token that their message came of, and show none. Before, the way behind that token
// was walked only for gateways listed by their whole id, so that messages went round
// between the others without end.
func TestAttack_HopsBehindAListedPrefix(t *testing.T) {
	t.Parallel()
	for name, listed := range map[string]ect.Identity{"an id": "", "a prefix": "spiffe://example.com/*"} {
		b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
		if listed == "" {
			listed = b.caller.ID
		}
		b.Apply(gateway.Settings{Gateways: []ect.Identity{listed}})
		tokens, ids := b.translated(t, b.server, addBody, 3)
		for _, token := range slices.Backward(tokens) {
			c := claims(t, token)
			record := ect.Record{
				Compact: token, ID: c.ID, Workflow: c.Workflow, Issuer: c.Issuer, Audience: []string{string(b.caller.ID)}, Act: c.Act,
				Parents: c.Parents, Until: b.now().Add(time.Hour), Members: []ect.Identity{b.caller.ID},
			}
			if err := b.memory.Put(t.Context(), record); err != nil {
				t.Fatal(err)
			}
		}
		call := b.call(addBody)
		call.Parent = string(ids[0])
		_, err := b.Exchange(t.Context(), call)
		if denied, ok := errors.AsType[*policy.Denied](err); !ok || denied.Constraint != policy.ConstraintHops {
			t.Errorf("listed by %s: %v, want a refusal for its hops", name, err)
		}
	}
}

// TestParents_OfItsWorkflow: our token names as parents the sources of its own workflow
// alone, since in another one no gateway would look for them.
func TestParents_OfItsWorkflow(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	tokens := []string{b.source(t, addBody, nil), b.source(t, addBody, nil)}
	answer, err := b.Exchange(t.Context(), b.call(addBody, tokens...))
	if err != nil {
		t.Fatal(err)
	}
	direction := claims(t, answer.Evidence[0])
	at := slices.IndexFunc(tokens, func(token string) bool { return claims(t, token).Workflow == direction.Workflow })
	if at < 0 || !slices.Equal(direction.Parents, []ect.ID{claims(t, tokens[at]).ID}) {
		t.Errorf("a token in %s has the parents %v, want the source of that workflow alone", direction.Workflow, direction.Parents)
	}
	if sent := b.agent.tokens[0]; len(sent) != 3 {
		t.Errorf("%d tokens are sent on, want ours and both sources", len(sent))
	}
}

// TestAncestors_TooLargeForTheNextGateway: another gateway judges a message by the
// tokens that come with ours. Where they do not fit, it is not asked: it would not find
// the source, or another token under that id. An agent that is no gateway gets what fits.
func TestAncestors_TooLargeForTheNextGateway(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		gateway  bool
		audience int
		refused  bool
	}{
		"a gateway, a large source": {gateway: true, audience: 100, refused: true},
		"a gateway, a small source": {gateway: true, audience: 1},
		"an agent, a large source":  {audience: 100},
	} {
		b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
		if tc.gateway {
			b.Apply(gateway.Settings{Gateways: []ect.Identity{b.server.ID}})
		}
		audience := []string{string(b.self.ID)}
		for n := range tc.audience {
			audience = append(audience, "spiffe://example.com/agents/one-of-many/"+strconv.Itoa(n))
		}
		token, err := b.caller.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
			Audience: audience, Workflow: string(ect.NewID()), Act: "send_task", OutputHash: ect.Hash([]byte(addBody)),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Exchange(t.Context(), b.call(addBody, token.Compact()))
		large, refused := errors.AsType[*problem.AncestorsTooLargeError](err)
		if refused != tc.refused || !refused && err != nil {
			t.Errorf("%s, %d bytes: got %v, want refused %v", name, len(token.Compact()), err, tc.refused)
		}
		if refused && (large.Size != len(token.Compact()) || problem.From(err).Status != 431) {
			t.Errorf("%s: %v with status %d", name, err, problem.From(err).Status)
		}
		if requested := len(b.agent.bodies) > 0; requested == tc.refused {
			t.Errorf("%s: it was asked %v", name, requested)
		}
	}
}
