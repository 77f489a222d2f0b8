package admission

import (
	"context"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/membership"
)

// Evidence is the ECTs that came with a message, verified.
type Evidence struct {
	Sources []ect.Verified // those that no other submitted one names as parent (R4)
	Parents []ect.Verified
	Caller  ect.Identity // who brought them
	Named   *ect.Record  // without any: the one that the message names; nil: it names none

	Path     dag.Path // the way that this message took (R1)
	Ancestry dag.Path // by the draft's letter; only where the operator counts so
}

// MaxAncestors bounds the bytes of ancestors beside our own token: it takes 2 KiB of the 8 KiB
// (R4).
const MaxAncestors = 8<<10 - 2<<10

// Ancestors are sent behind our own token, newest first, as many as fit: the sources, from which a
// next gateway sees where the translation path begins (R1), and the path's translate ECTs with
// their parents: a gateway that cannot see where the path ends must refuse. size is that of all.
func (e Evidence) Ancestors() (along []string, size int) {
	used := 0
	add := func(compact string) {
		size += len(compact)
		if used+len(compact) <= MaxAncestors {
			used += len(compact)
			along = append(along, compact)
		}
	}
	for _, v := range e.Sources {
		add(v.Compact())
	}
	for _, v := range e.Parents {
		if slices.ContainsFunc(e.Path.Nodes, func(n dag.Node) bool { return n.ID == v.ID() || slices.Contains(n.Parents, v.ID()) }) {
			add(v.Compact())
		}
	}
	return along, size
}

// workflow is that of the newest source which the caller issued: a token of others that came along
// does not put the message into their workflow. Only a gateway comes with tokens of others alone.
func (e Evidence) workflow() string {
	newest := e.Sources[0]
	for _, v := range e.Sources {
		own, best := v.Issuer() == e.Caller, newest.Issuer() == e.Caller
		if own && (!best || v.IssuedAt() > newest.IssuedAt()) {
			newest = v
		}
	}
	return newest.Workflow()
}

// Origins returns the parents of a message and their workflow: the sources in its workflow, where
// alone a next gateway looks for them, else the token that it names. It may have no parents.
func (e Evidence) Origins() (workflow string, ids []ect.ID) {
	if len(e.Sources) > 0 {
		workflow = e.workflow()
	}
	for _, v := range e.Sources {
		if v.Workflow() == workflow {
			ids = append(ids, v.ID())
		}
	}
	switch {
	case len(ids) > 0:
		return workflow, ids
	case e.Named != nil:
		return e.Named.Workflow, []ect.ID{e.Named.ID}
	default:
		return "", nil
	}
}

// verify is step 4a: it verifies the tokens of the message and whether their issuers belong to the
// workflows that they name (R14). It records no token and uses none up: policy judges first.
func (m *admitting) verify(ctx context.Context) error {
	if len(m.Call.Evidence) == 0 {
		return m.findParent(ctx)
	}
	submitted, err := attest.Split(m.Call.Evidence)
	if err != nil {
		return err
	}
	m.Evidence.Caller = m.Call.Caller.ID
	m.Call.Wire = m.Call.Wire.Hashed()
	m.Input = ect.Hash(m.Call.Wire.HashInput())
	for _, s := range submitted {
		check := ect.Check{Purpose: ect.Parent, Peer: m.Call.Caller.Peer}
		if s.Source {
			check.Purpose, check.Body, check.Unclaimed = ect.Source, m.Input, true
		}
		v, err := m.Attest.Verify(ctx, s.Compact, check)
		if err != nil {
			return err
		}
		if s.Source {
			m.Evidence.Sources = append(m.Evidence.Sources, v)
		} else {
			m.Evidence.Parents = append(m.Evidence.Parents, v)
		}
	}
	if err := m.checkParent(); err != nil {
		return err
	}
	return m.judgeMembers(ctx)
}

// judgeMembers judges whether the issuers of a message's tokens have a part in the workflows that
// they name, and walks the translation path (R1). An outsider's message leaves nothing but a count.
func (m *admitting) judgeMembers(ctx context.Context) error {
	tokens := slices.Concat(m.Evidence.Sources, m.Evidence.Parents)
	admission, err := m.Members.Admit(ctx, membership.Submission{
		Caller: m.Call.Caller.ID, Gateway: m.rules.IsGateway, Decides: m.Decides(m.Call.Caller.ID), Tokens: tokens,
	})
	if _, forbidden := errors.AsType[*policy.Forbidden](err); forbidden || attest.Outside(err) {
		m.Attest.Refusal(ctx, m.Holder, err)
		return err
	}
	if err != nil {
		return attest.Recording(err)
	}
	m.filed, m.ByRole, m.Membership = admission.Filed, admission.ByRole, admission.Member
	nodes := make([]dag.Node, len(tokens))
	for i, v := range tokens {
		nodes[i] = dag.NodeOf(v)
	}
	return m.walk(ctx, nodes[:len(m.Evidence.Sources)], nodes)
}

// A message can name its parent ECT by the jti alone (AEPB, Task Invocation with Parent Reference):
// its sender signs no ECTs, or the frame has no space for one. Beside an ECT the name must be the
// jti of that token, of an ancestor that came along, or of one of their parents: a message that is
// relayed byte by byte keeps its name.

// claimParameter is what a refusal names.
const claimParameter = "parent_jti"

// errReference: what is no UUID names no token.
var errReference = &ect.MalformedError{Reason: "the parent reference is no UUID"}

// findParent finds the token that a message without an ECT names. It becomes the parent of our
// token, and the message belongs to its workflow (R3, R4). It must be on record here, the caller
// must belong to its workflow, and one of these holds: the caller issued it, it was issued for the
// caller, or it is about a message of the caller that brought no ECT. That is narrower than R14.
// Any other token is not found, whether it exists or not (R1, R2). A caller without an identity
// finds no token.
func (m *admitting) findParent(ctx context.Context) error {
	id, who := ect.ID(m.Call.Parent), m.Call.Caller
	if id == "" {
		return nil
	}
	if !id.Valid() {
		return errReference
	}
	records, err := m.Attest.Named(ctx, ect.Ref{ID: id, Issuer: who.ID})
	if err != nil {
		return attest.Recording(err)
	}
	records = slices.DeleteFunc(records, func(r ect.Record) bool {
		return who.Anonymous || r.Issuer != who.ID && !m.Members.Names(r, who.ID)
	})
	if len(records) != 1 {
		return &ect.InvalidError{Reason: ect.ReasonUnknownParent, Claim: claimParameter}
	}
	if wid := records[0].Workflow; wid != "" {
		belongs, err := m.Members.Belongs(ctx, wid, who.ID)
		switch {
		case err != nil:
			return attest.Recording(err)
		case !belongs:
			return &ect.InvalidError{Reason: ect.ReasonUnknownParent, Claim: claimParameter}
		}
	}
	m.Evidence.Named = &records[0]
	return m.walk(ctx, []dag.Node{dag.NodeOfRecord(records[0])}, nil)
}

// checkParent compares the name beside an ECT with what that says, in verified tokens alone.
func (m *admitting) checkParent() error {
	id := ect.ID(m.Call.Parent)
	means := func(v ect.Verified) bool { return v.ID() == id || slices.Contains(v.Parents(), id) }
	switch {
	case id == "", slices.ContainsFunc(m.Evidence.Sources, means), slices.ContainsFunc(m.Evidence.Parents, means):
		return nil
	case !id.Valid():
		return errReference
	default:
		return &ect.InvalidError{Reason: ect.ReasonConflictingParents, Claim: claimParameter}
	}
}

// walk follows the translation path (R1) from the tokens of a message; nodes need no look-up. A
// token that the message only names begins the path if the sender or a listed gateway issued it;
// otherwise the message has no path, since what the sender did in between is not a translation.
func (m *admitting) walk(ctx context.Context, start, nodes []dag.Node) error {
	find := func(ctx context.Context, refs []ect.Ref) ([][]dag.Node, error) { return m.nodes(ctx, refs, nodes) }
	limit := m.rules.Constraints.WalkLimit()
	var err error
	if n := m.Evidence.Named; n == nil || n.Issuer == m.Call.Caller.ID || m.rules.IsGateway(m.Call.Caller.ID) {
		if m.Evidence.Path, err = dag.LegPath(ctx, dag.Request, start, find, limit); err != nil {
			return err
		}
	}
	if m.rules.Constraints.HopScope == policy.ScopeAncestry {
		m.Evidence.Ancestry, err = dag.Ancestry(ctx, start, find, limit)
	}
	return err
}

// nodes finds what each id may mean: the tokens that came along, or else those on
// record, of several issuers. The walk takes those of the workflow that it is in.
func (m *admitting) nodes(ctx context.Context, refs []ect.Ref, along []dag.Node) ([][]dag.Node, error) {
	found := make([][]dag.Node, len(refs))
	var missing []ect.Ref
	var at []int
	for i, ref := range refs {
		for n := range along { // attest.MaxSignatures at most
			if along[n].ID == ref.ID {
				found[i] = append(found[i], along[n])
			}
		}
		if found[i] == nil {
			missing, at = append(missing, ref), append(at, i)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	records, err := m.Service.Evidence.Get(ctx, missing...)
	if err != nil {
		return nil, err
	}
	for n, i := range at {
		for _, record := range records[n] {
			found[i] = append(found[i], dag.NodeOfRecord(record))
		}
	}
	return found, nil
}
