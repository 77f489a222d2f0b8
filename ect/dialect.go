package ect

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Dialect is a spelling of tokens. The revisions of the ECT draft have different
// names for the same claims. A verifier accepts all of them. A signer must choose
// one that the receiver knows.
type Dialect string

// The dialects. Empty counts as DialectSeed.
const (
	// DialectSeed: typ exec+jwt, par, ext. The first text of revision -01, which
	// AEPB, CPAT and ATD speak.
	DialectSeed Dialect = "seed"
	// Dialect00: typ wimse-exec+jwt, par, ext. Revision -00.
	Dialect00 Dialect = "00"
	// Dialect01: typ exec+jwt, pred, ect_ext. Revision -01 as it became, and -02.
	Dialect01 Dialect = "01"
	// DialectDual: typ wimse-exec+jwt, and everything under both of its names.
	// Every reader finds what it looks for; the extension travels twice.
	DialectDual Dialect = "dual"
)

// MaxDualExt bounds what DialectDual carries as extension, in bytes: it is
// written twice, and the token has to stay one that fits a header.
const MaxDualExt = 1536

var errDialect = errors.New("ect: a dialect is seed, 00, 01 or dual")

// ParseDialect reads a dialect as an operator writes it; empty is DialectSeed.
func ParseDialect(text string) (Dialect, error) {
	if text == "" {
		return DialectSeed, nil
	}
	if _, ok := Dialect(text).spelling(); !ok {
		return "", errDialect
	}
	return Dialect(text), nil
}

// MaxExt returns how large the extensions of a token of this dialect may be, in bytes as
// serialised. Sign refuses more, so code that fills a list checks it first.
func (d Dialect) MaxExt() int {
	if d == DialectDual {
		return MaxDualExt
	}
	return MaxExtSize
}

// The two values of typ (ECT drafts -00 and -01, "JOSE Header").
const (
	typeExec = iota
	typeWIMSE
	types // how many
)

// spelling is what a dialect writes: members with their separators, the second
// empty if there is but one name.
type spelling struct {
	typ     int
	parents [2]string
	ext     [2]string
}

func (d Dialect) spelling() (spelling, bool) {
	const par, pred, ext, ectExt = `,"par":`, `,"pred":`, `,"ext":`, `,"ect_ext":`
	switch d {
	case DialectSeed, "":
		return spelling{typeExec, [2]string{par}, [2]string{ext}}, true
	case Dialect00:
		return spelling{typeWIMSE, [2]string{par}, [2]string{ext}}, true
	case Dialect01:
		return spelling{typeExec, [2]string{pred}, [2]string{ectExt}}, true
	case DialectDual:
		return spelling{typeWIMSE, [2]string{par, pred}, [2]string{ext, ectExt}}, true
	default:
		return spelling{}, false
	}
}

// dialectOf says which dialect a token is in, and with that in which one its
// issuer can be answered. A mixture, as migrating stacks write it, does not tell
// what its issuer reads: that is DialectDual, which every reader understands.
func dialectOf(oldType bool, m *members) Dialect {
	earlier, later := m.par != nil || m.ext != nil, m.pred != nil || m.ectExt != nil
	switch {
	case later && (earlier || oldType):
		return DialectDual
	case later:
		return Dialect01
	case oldType:
		return Dialect00
	default:
		return DialectSeed
	}
}

// Lenient lists what a verifier may overlook. All of it is off by default: the
// text of every revision and the current reference code are stricter.
type Lenient struct {
	// HashPrefix: a hash may begin with "sha-256:", as reference code wrote it
	// until April 2026. It is read as the hash without.
	HashPrefix bool
	// NoParents: a token with neither par nor pred is a root, as one reference
	// implementation reads it.
	NoParents bool
}

// DefaultDialects is how many peers a Dialects remembers.
const DefaultDialects = 1024

// DialectsDeps is what a Dialects needs.
type DialectsDeps struct {
	Configured map[Identity]Dialect // what the operator says about peers
	Limit      int                  // peers remembered beside those; 0: DefaultDialects
}

// Dialects chooses the dialect to write to a peer: the configured one, else
// that of its newest verified token, else DialectSeed. It remembers the peers
// heard last and is safe for concurrent use.
type Dialects struct {
	configured atomic.Pointer[map[Identity]Dialect]
	limit      int

	mu    sync.Mutex
	order *list.List // of *heard, last heard first
	peers map[Identity]*list.Element
}

type received struct {
	peer    Identity
	dialect Dialect
	issued  int64
}

// NewDialects checks what is configured.
func NewDialects(d DialectsDeps) (*Dialects, error) {
	if d.Limit < 0 {
		return nil, errors.New("ect: a limit is not negative")
	}
	out := &Dialects{
		limit: cmp.Or(d.Limit, DefaultDialects), order: list.New(), peers: make(map[Identity]*list.Element),
	}
	if err := out.Configure(d.Configured); err != nil {
		return nil, err
	}
	return out, nil
}

// Configure puts other dialects in place of all that were configured. What was
// heard of other peers stays; on an error nothing changes.
func (d *Dialects) Configure(by map[Identity]Dialect) error {
	configured := make(map[Identity]Dialect, len(by))
	for peer, dialect := range by {
		known, err := ParseDialect(string(dialect))
		if err != nil || peer == "" {
			return fmt.Errorf("%w; for %q", errDialect, peer)
		}
		configured[peer] = known
	}
	d.configured.Store(&configured)
	return nil
}

// For is the dialect to write to a peer.
func (d *Dialects) For(peer Identity) Dialect {
	if dialect, ok := (*d.configured.Load())[peer]; ok {
		return dialect
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.peers[peer]; ok {
		return known.Value.(*received).dialect
	}
	return DialectSeed
}

// Learn stores the dialect of a verified token for its issuer. Only signed tokens
// count, and none that is older than the last one learned: a party that presents an
// old ancestor does not change the dialect of tokens to its issuer.
func (d *Dialects) Learn(v Verified) {
	if v.level < L2 || v.claims.Issuer == "" {
		return
	}
	if _, fixed := (*d.configured.Load())[v.claims.Issuer]; fixed {
		return
	}
	next := received{peer: v.claims.Issuer, dialect: v.dialect, issued: v.claims.IssuedAt}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.peers[next.peer]; ok {
		if next.issued >= known.Value.(*received).issued {
			*known.Value.(*received) = next
		}
		d.order.MoveToFront(known)
		return
	}
	d.peers[next.peer] = d.order.PushFront(new(next))
	for d.order.Len() > d.limit {
		last := d.order.Remove(d.order.Back()).(*received)
		delete(d.peers, last.peer)
	}
}
