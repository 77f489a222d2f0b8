package admission

import (
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
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

// MaxAncestors bounds, in bytes, what travels along behind our own token, which
// takes up to 2 KiB of the 8 KiB (R4).
const MaxAncestors = 8<<10 - 2<<10

// Ancestors travel along behind our own token, newest first, as many as fit: the
// sources, which a next gateway must resolve to see where the translation path begins
// (R1), and the path's translate ECTs with what they were made of: the path ends where
// that is no translation, and who cannot see that must refuse. size is that of all.
func (e Evidence) Ancestors() (along []string, size int) {
	kept := 0
	add := func(compact string) {
		size += len(compact)
		if kept+len(compact) <= MaxAncestors {
			kept += len(compact)
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

// workflow is that of the newest source which the caller issued: a token of others
// that came along does not put the message into their workflow. Only a gateway
// comes with tokens of others alone.
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

// Origins are the tokens that a message came of, as far as it says so: of those that
// came with it the ones in its workflow, where alone a next gateway looks for them, else
// the one that it names; and their workflow. Without any it says nothing.
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
