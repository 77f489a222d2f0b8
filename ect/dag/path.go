package dag

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// DefaultLimit bounds the translations of one walk (ECT draft, "DAG Validation"), and
// MaxLookups the ids that it looks up: it is a caller that asks, and each of its ids
// may cost a store a read. A walk that reaches either is incomplete, never finished.
const (
	DefaultLimit = 10_000
	MaxLookups   = ect.MaxLookups
)

// Leg is the direction of a translation within its exchange.
type Leg string

// The legs, as aepb.leg has them.
const (
	Request Leg = "request"
	Reply   Leg = "reply"
)

// Node is what the graph knows of a token.
type Node struct {
	ID       ect.ID
	Workflow string       // its parents are looked for there; empty: among tokens of none
	Issuer   ect.Identity // verified
	Act      ect.Act
	IssuedAt int64 // iat: seconds since 1970
	Parents  []ect.ID
	Leg      Leg
}

// NodeOf makes the node of a verified token.
func NodeOf(v ect.Verified) Node {
	direction, _ := v.Extension(ect.ExtLeg)
	return Node{
		ID: v.ID(), Workflow: v.Workflow(), Issuer: v.Issuer(), Act: v.Act(), IssuedAt: v.IssuedAt(), Parents: v.Parents(),
		Leg: directionOf(direction),
	}
}

// NodeOfRecord makes the node of a token in the evidence store. A store holds
// what was signed or verified here, so the token is read and not judged again. Of one
// that cannot be read the time is 0.
func NodeOfRecord(r ect.Record) Node {
	n := Node{ID: r.ID, Workflow: r.Workflow, Issuer: r.Issuer, Act: r.Act, Parents: r.Parents, Leg: Request}
	if c, err := ect.ParseRecorded(r.Compact); err == nil {
		read := NodeOfClaims(c)
		n.IssuedAt, n.Leg = read.IssuedAt, read.Leg
	}
	return n
}

// NodeOfClaims makes the node of claims that were verified.
func NodeOfClaims(c ect.Claims) Node {
	direction, _ := c.Ext.String(ect.ExtLeg)
	return Node{
		ID: c.ID, Workflow: c.Workflow, Issuer: c.Issuer, Act: c.Act, IssuedAt: c.IssuedAt, Parents: c.Parents,
		Leg: directionOf(direction),
	}
}

// directionOf takes every value that is not a reply for a request, so that a token with an
// unknown value cannot shorten the path of a request.
func directionOf(direction string) Leg {
	if Leg(direction) == Reply {
		return Reply
	}
	return Request
}

// Lookup finds the verified nodes that each id may mean in a workflow, one list for each
// in their order, at most MaxLookups at once; an empty one: it is not known here. A
// walk takes only those in the workflow of the token that names them (ECT draft, "DAG
// Validation"). More than one there (of several issuers, and the token does not say
// whose) are walked all: another's id, used again, shortens no path.
type Lookup func(ctx context.Context, refs []ect.Ref) ([][]Node, error)

// Path is the translations found by a walk.
type Path struct {
	Nodes      []Node // newest first
	Incomplete bool   // a parent was not found, or a bound was reached
}

// Hops counts the translations.
func (p Path) Hops() int { return len(p.Nodes) }

// Visits reports whether one of the translations was made by this identity.
func (p Path) Visits(id ect.Identity) bool {
	return slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Issuer == id })
}

// LegPath follows the way a message took on a leg: from each of the tokens that came with
// it, along par, while the nodes are translations of that leg. Start with the tokens that
// came with the message and nothing else: a token of an earlier turn, taken as parent for
// want of a better one, is no part of the way. More than limit translations (0:
// DefaultLimit) stop the walk. An error is the lookup's own. Start nodes of the
// other leg are not on the path. A request whose parent is the last reply of
// its conversation so has a path of length zero.
func LegPath(ctx context.Context, direction Leg, start []Node, find Lookup, limit int) (Path, error) {
	w := walker{find: find, limit: limit, direction: func(Node) Leg { return direction }}
	return w.walk(ctx, start)
}

// Ancestry finds every translation among the start nodes and all their
// ancestors, on either leg: the count by the draft's letter.
func Ancestry(ctx context.Context, start []Node, find Lookup, limit int) (Path, error) {
	w := walker{find: find, limit: limit, through: true, direction: func(Node) Leg { return "" }}
	return w.walk(ctx, start)
}
