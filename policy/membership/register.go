package membership

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
)

// Store is what a Register asks of the evidence store.
type Store interface {
	// Get finds the records that each reference means, in their order.
	Get(ctx context.Context, refs ...ect.Ref) ([][]ect.Record, error)
	// Standing says what an identity is to a workflow.
	Standing(ctx context.Context, wid string, who ect.Identity) (ect.Standing, error)
}

// Deps is what a Register needs.
type Deps struct {
	Store Store        // required
	Self  ect.Identity // required: the gateway's own identity
	// AgentAt is the identity of the agent with a URL in the directory, since tokens
	// for an agent without an identity name its URL; false: there is none. Nil: no
	// URL counts.
	AgentAt func(url string) (ect.Identity, bool)
}

// Register answers who belongs to what. It is safe for concurrent use.
type Register struct{ deps Deps }

// New checks its dependencies.
func New(d Deps) (*Register, error) {
	if d.Store == nil || d.Self == "" {
		return nil, errors.New("membership: incomplete Deps: expected a store and the gateway's identity")
	}
	if d.AgentAt == nil {
		d.AgentAt = func(string) (ect.Identity, bool) { return "", false }
	}
	return &Register{deps: d}, nil
}

// Belongs reports whether an identity belongs to a workflow. An empty workflow
// has no members.
func (r *Register) Belongs(ctx context.Context, workflow string, who ect.Identity) (bool, error) {
	if workflow == "" || who == "" {
		return false, nil
	}
	standing, err := r.deps.Store.Standing(ctx, workflow, who)
	return standing.Member, err
}

// MayRead reports whether an identity may read a record: its issuer, those that it
// names, and the members of its workflow.
func (r *Register) MayRead(ctx context.Context, rec ect.Record, who ect.Identity) (bool, error) {
	if rec.Issuer == who || r.Names(rec, who) {
		return true, nil
	}
	return r.Belongs(ctx, rec.Workflow, who)
}

// Names reports whether a record names an identity: as audience, or as the caller
// on whose behalf this gateway signed it.
func (r *Register) Names(rec ect.Record, who ect.Identity) bool {
	if who == "" {
		return false
	}
	if slices.ContainsFunc(rec.Audience, func(text string) bool { return r.meaning(text) == who }) {
		return true
	}
	if rec.Issuer != r.deps.Self {
		return false
	}
	claims, _, err := ect.ParseUnverified(rec.Compact) // our own token
	return err == nil && callerOf(claims.Ext) == who
}

// Own is whom a token of this gateway makes members of its workflow: whom it is
// for, and the caller on whose behalf it was signed. An empty caller is left out.
func (r *Register) Own(audience []string, caller ect.Identity) []ect.Identity {
	out := make([]ect.Identity, 0, len(audience)+1)
	add := func(id ect.Identity) {
		if id != "" && id != r.deps.Self && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	for _, text := range audience {
		add(r.meaning(text))
	}
	add(caller)
	return out
}

// meaning is the identity that an entry of an audience means; empty: none.
func (r *Register) meaning(text string) ect.Identity {
	if strings.HasPrefix(text, "spiffe://") {
		return ect.Identity(text)
	}
	agent, _ := r.deps.AgentAt(text)
	return agent
}

// callerOf is the caller on whose behalf a gateway says that it signed.
func callerOf(ext ect.Ext) ect.Identity {
	caller, _ := ext.String(ect.ExtCaller)
	return ect.Identity(caller)
}
