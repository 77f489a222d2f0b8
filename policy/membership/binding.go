package membership

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// Reply is the verified tokens that came with an agent's reply.
type Reply struct {
	Workflow string
	Requests []ect.ID // request legs of the execution that the reply belongs to
	// Agent is whom the gateway asked; empty: an agent without an identity, whose
	// connection is all that is known of it.
	Agent   ect.Identity
	Gateway func(ect.Identity) bool // gateways that the operator listed
	Tokens  []ect.Verified
}

// Bind tells the tokens that testify to this reply from the others (ruling R4): a
// token is bound if its workflow is the reply's and it is a request leg of the
// execution, descends from one, or is an ancestor that a bound token names: the
// issuer of that one vouches for it, and what joins the two may have been too large
// to travel along. The other tokens are no evidence for anything here. A bound
// token makes members if its issuer is the agent, a gateway, or named by a bound
// parent. Errors are trouble of the store.
func (r *Register) Bind(ctx context.Context, reply Reply) (bound []Filed, unbound []ect.Verified, err error) {
	b := binding{Register: r, reply: reply, parents: map[ect.ID][]ect.ID{}}
	for _, t := range reply.Tokens {
		if t.Workflow() == reply.Workflow {
			b.parents[t.ID()] = t.Parents()
		}
	}
	tokens := inOrder(reply.Tokens)
	holds := make([]bool, len(tokens))
	for i, t := range tokens {
		if t.Workflow() == reply.Workflow {
			if holds[i], err = b.descends(ctx, t); err != nil {
				return nil, nil, err
			}
		}
	}
	b.vouch(tokens, holds)
	for i, t := range tokens {
		if !holds[i] {
			unbound = append(unbound, t)
			continue
		}
		bound = append(bound, b.file(t, bound))
	}
	return bound, unbound, nil
}

// vouch binds the ancestors that bound tokens name, generation by generation.
func (b *binding) vouch(tokens []ect.Verified, holds []bool) {
	for again := true; again; {
		again = false
		for i, t := range tokens {
			if holds[i] || t.Workflow() != b.reply.Workflow {
				continue
			}
			for j := range tokens {
				if holds[j] && slices.Contains(tokens[j].Parents(), t.ID()) {
					holds[i], again = true, true
				}
			}
		}
	}
}

// Testifies reports whether a bound token may stand as parent of the reply: its
// issuer is the agent that was asked, or a listed gateway.
func (reply Reply) Testifies(issuer ect.Identity) bool {
	return reply.Agent == "" || issuer == reply.Agent || reply.Gateway(issuer)
}

// binding is one judgement under way.
type binding struct {
	*Register
	reply   Reply
	parents map[ect.ID][]ect.ID // of the reply's tokens, and of what was looked up
	lookups int
}

// descends follows the parents of a token until a request leg of the execution.
func (b *binding) descends(ctx context.Context, t ect.Verified) (bool, error) {
	if slices.Contains(b.reply.Requests, t.ID()) {
		return true, nil
	}
	seen := map[ect.ID]bool{}
	for generation := t.Parents(); len(generation) > 0; {
		var next, unknown []ect.ID
		for _, id := range generation {
			switch parents, known := b.parents[id]; {
			case slices.Contains(b.reply.Requests, id):
				return true, nil
			case seen[id]:
			case known:
				next = append(next, parents...)
			default:
				unknown = append(unknown, id)
			}
			seen[id] = true
		}
		found, err := b.lookUp(ctx, unknown)
		if err != nil {
			return false, err
		}
		generation = append(next, found...)
	}
	return false, nil
}

// lookUp finds the parents of tokens on record in the workflow.
func (b *binding) lookUp(ctx context.Context, ids []ect.ID) (parents []ect.ID, err error) {
	if len(ids) == 0 || b.lookups+len(ids) > ect.MaxLookups {
		return nil, nil
	}
	b.lookups += len(ids)
	found, err := b.deps.Store.Get(ctx, refsIn(b.reply.Workflow, ids)...)
	if err != nil {
		return nil, err
	}
	for i, records := range found {
		if rec, ok := b.matching(records, Signal{Workflow: b.reply.Workflow, Agent: b.reply.Agent}); ok {
			b.parents[ids[i]] = rec.Parents
			parents = append(parents, rec.Parents...)
		} else {
			b.parents[ids[i]] = nil
		}
	}
	return parents, nil
}

// file says whom a bound token makes members.
func (b *binding) file(t ect.Verified, bound []Filed) Filed {
	named := slices.ContainsFunc(bound, func(f Filed) bool {
		return slices.Contains(t.Parents(), f.Token.ID()) && slices.Contains(f.Members, t.Issuer())
	})
	gateway := b.reply.Gateway(t.Issuer())
	if !named && !gateway && t.Issuer() != b.reply.Agent {
		return Filed{Token: t}
	}
	var user ect.Identity
	if text, present := t.Extension(ect.ExtCaller); present && gateway && b.shows(t, bound, ect.Identity(text)) {
		user = ect.Identity(text)
	}
	return Filed{Token: t, Members: b.Own(t.Audience(), user)}
}

// shows reports whether a bound parent of a token shows the part of an identity: it
// names it, or was signed by it as one whose word counts. That a gateway names an
// identity makes no member.
func (b *binding) shows(t ect.Verified, bound []Filed, user ect.Identity) bool {
	counts := user == b.reply.Agent || b.reply.Gateway(user)
	return slices.ContainsFunc(bound, func(f Filed) bool {
		return slices.Contains(t.Parents(), f.Token.ID()) && (counts && f.Token.Issuer() == user || slices.Contains(f.Members, user))
	})
}
