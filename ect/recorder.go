package ect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// MaxLifetime is how long a token of another is kept at most before its retention
// begins, however far away the exp is that its issuer chose.
const MaxLifetime = 24 * time.Hour

// DefaultRetention is how long a record outlives its token's exp.
const DefaultRetention = 24 * time.Hour

// MaxHold is how much longer than usual a record of ours may be held (Filing.HoldUntil): as long as the record
// of a closed round is kept (R18), so that what was decided can be proved while the decision stands. A longer
// hold would be an archive, which a bounded store is not.
const MaxHold = 30 * 24 * time.Hour

// ErrHold: a record was to be held that must not be. Only tokens that we signed may be held, and none more than
// MaxHold beyond its usual end.
var ErrHold = errors.New("ect: record: only our own tokens may be held, at most 30 days beyond exp and retention")

// Record is a token in the evidence store: its bytes, and what it is found by.
type Record struct {
	Compact  string
	ID       ID
	Workflow string // empty: belongs to none
	Issuer   Identity
	Audience []string
	Act      Act
	Parents  []ID
	Until    time.Time // may be forgotten after this instant

	Own     bool       // we signed it: evicted only after the tokens of others
	OnHold  bool       // it is held until Until: see Filing.HoldUntil; only with Own
	Holder  string     // whose share of the store it takes, a key of policy/limit; empty: the gateway's own
	Members []Identity // whom it makes members of its workflow (R14), decided when it was recorded
	Begins  bool       // it is kept only if its workflow has no record, or began without a root; not read back

	ByIssuer bool // its issuer brought it: see Filing; not read back
}

// Filing says how a token is put on record.
type Filing struct {
	Holder  string     // in whose share of the store the record counts, a key of policy/limit; empty: the gateway's own
	Members []Identity // whom the record makes members of its workflow (R14)
	// Unlisted keeps the token for those who know its id, and out of the workflow that
	// it names: it does not belong there.
	Unlisted bool
	// Begins is true for a token with parents whose issuer had no part in its workflow,
	// and was admitted because the workflow was not on record: see Record.
	Begins bool
	// ByIssuer is true for a token that its issuer brought. From then on its record counts in
	// Holder's share and stands in the workflow that it names, whichever identity brought it first: an
	// agent that shows a caller's token before the caller does can neither evict the record
	// with its own nor keep it out of the workflow.
	ByIssuer bool
	// HoldUntil: the record is kept until the later of this instant and its usual end, and is evicted only when
	// no record is left that is not held. Zero: it is kept as usual. A hold is for a token of ours alone, and at
	// most MaxHold beyond its usual end: else ErrHold. A hold is never taken back.
	//
	// A caller that has much held takes space from others for weeks. So what is held of one Holder takes at most
	// half of the largest share of a holder, an eighth of the store, and what is held of all at most half. A
	// record beyond that is refused by the store with an error that says whether the share of the holder is used
	// up; it is then not kept at all. With four holders at their bounds no more can be held for others, but all
	// evidence that is not held still has half of the store.
	HoldUntil time.Time
}

// LogValue prints the id; the bytes of a token are never logged.
func (r Record) LogValue() slog.Value { return slog.StringValue(string(r.ID)) }

// MaxNamesakes bounds how many records of one id are found by the id alone, and how many more by the id and a workflow. An
// id is random, so more than one issuer of it is an attempt to be taken for another; it must not cost that other anything.
//
// No record is refused, and none gives way, because others have its id: the bound is of lookups. Who came first is found by
// the id alone, and ours always is; every further record is found by its workflow, in which only members record, and by its
// issuer. So identities that know an id before its first use can neither refuse nor hide the record of its owner, and those
// that learn it later cannot have that record forgotten.
const MaxNamesakes = 16

// Ref says which records are looked for: those with an id and, where more than MaxNamesakes issuers used the id, which of
// the further ones.
type Ref struct {
	ID       ID
	Workflow string   // those in this workflow; empty: of no workflow
	Issuer   Identity // that of this issuer; empty: of no issuer
}

// Bounds of a store.
const (
	MaxLookups = 256 // references of one Get
	MaxMembers = 256 // members of one workflow; further ones are none
)

// Store keeps the tokens that were signed or verified here. What it returns is
// the caller's to change.
type Store interface {
	// Put keeps a copy of a record, and changes nothing in it. The same issuer's id with the same bytes is no error; with
	// other bytes it is a *ConflictError and changes nothing. That other issuers have the id is no error. A record that is put
	// again is one with what is kept, as Record.Merge says.
	//
	// A record without parents (a root) in a workflow that has any record is accepted only if the first record of that
	// workflow was a root by the same issuer; else it is a *ForeignRootError and changes nothing. So is a record with Begins
	// in a workflow whose first record was a root. Of two roots by different
	// issuers that come at once into a new workflow exactly one is kept. The issuer of the first root is the workflow's root
	// issuer until the last Until of its records, also where they leave before, and those whom a record names in Members are
	// its members for as long as any record of the workflow is kept.
	Put(context.Context, Record) error
	// Get finds the records that each reference means, at most one of each issuer: one list for each of the references, in
	// their order. In it are records of MaxNamesakes issuers and of ours, and if there are more, up to MaxNamesakes further
	// ones in the workflow of the reference, and that of its issuer. It may hold others than the workflow and the issuer
	// ask for. More than MaxLookups references are ErrTooManyIDs.
	Get(ctx context.Context, refs ...Ref) ([][]Record, error)
	// Workflow returns up to limit (at least 1) records of a workflow in the order in which they came: those after the
	// cursor, or from the first if it is empty. next is the cursor behind the last of them; empty: there are no more. What
	// leaves the store between two pages is no error. A cursor that the store did not return is ErrCursor.
	Workflow(ctx context.Context, wid, after string, limit int) (records []Record, next string, err error)
	// Standing says what an identity is to a workflow.
	Standing(ctx context.Context, wid string, who Identity) (Standing, error)
}

// MaxListed bounds the workflows of one page of a Lister.
const MaxListed = 100

// Lister lists the workflows of a Store.
type Lister interface {
	// Workflows returns up to limit (from 1 to MaxListed) workflows that have a record and got one at or after since: behind
	// the cursor, or from the first if it is empty. next is the cursor behind them; empty: there are no more. A page looks at
	// a bounded number of records, so it may have fewer workflows than limit, or none, where next is not empty.
	//
	// When a record came is, as the store knows it, the second in which its token was issued (iat), or the time of its arrival.
	// A workflow that gets a record while it is listed may come twice. What leaves the store between two pages is no
	// error. A cursor that the store did not return is ErrCursor.
	Workflows(ctx context.Context, since time.Time, after string, limit int) (wids []string, next string, err error)
}

// Standing is what an identity is to a workflow.
type Standing struct {
	Known  bool // the workflow has a record, or had one whose Until is not over
	Root   bool // the identity issued its first root
	Member bool // the identity issued its first root, or a record that is or was kept while the workflow is made it a member
}

// Merge makes a record that is put again one with what is kept of it. Neither its life nor
// its members become less, and a hold stays. It stays in its holder's share, unless its issuer brings it. A
// record that was kept apart enters its workflow, and none leaves it. What we signed stays
// as it is when others bring it. False: there is nothing new.
func (r *Record) Merge(stored Record) (changed bool) {
	if stored.Own && !r.Own {
		*r = stored
		return false
	}
	longer := r.Until.After(stored.Until)
	if !longer {
		r.Until = stored.Until
	}
	members := slices.Clone(stored.Members)
	for _, who := range r.Members {
		if !slices.Contains(members, who) {
			members = append(members, who)
		}
	}
	moves := r.ByIssuer && !stored.Own && r.Holder != stored.Holder
	if !moves {
		r.Holder = stored.Holder
	}
	enters := stored.Workflow == "" && r.Workflow != ""
	if !enters {
		r.Workflow = stored.Workflow
	}
	more := len(members) > len(stored.Members) || r.Own && !stored.Own || r.OnHold && !stored.OnHold
	r.Members, r.OnHold = members, r.OnHold || stored.OnHold
	return longer || more || moves || enters
}

// IsRoot reports whether a record begins a workflow: it is in one, and has no parents.
func (r Record) IsRoot() bool { return r.Workflow != "" && len(r.Parents) == 0 }

// RecorderDeps is what a Recorder needs.
type RecorderDeps struct {
	Store     Store            // required
	Retention time.Duration    // how long a record outlives exp; 0: DefaultRetention
	Now       func() time.Time // nil: time.Now
}

// Recorder puts evidence on record. Only it issues a Receipt, and only a
// Receipt opens the way out for a message.
type Recorder struct {
	store     Store
	retention time.Duration
	now       func() time.Time
}

// NewRecorder checks its dependencies.
func NewRecorder(d RecorderDeps) (*Recorder, error) {
	if d.Store == nil {
		return nil, errors.New("ect: a recorder needs a store")
	}
	if d.Retention < 0 {
		return nil, errors.New("ect: retention is negative")
	}
	d.Retention = cmp.Or(d.Retention, DefaultRetention)
	if d.Now == nil {
		d.Now = time.Now
	}
	return &Recorder{store: d.Store, retention: d.Retention, now: d.Now}, nil
}

// Record keeps a token of ours. When it returns without error the store has it.
func (r *Recorder) Record(ctx context.Context, t Token, f Filing) (Receipt, error) {
	if t.compact == "" {
		return Receipt{}, ErrNoToken
	}
	if err := r.put(ctx, t.compact, &t.claims, f, true); err != nil {
		return Receipt{}, err
	}
	return Receipt{id: t.claims.ID, output: t.claims.OutputHash, compact: t.compact}, nil
}

// Find is the receipt of a token of ours that was recorded before; false: there is no such token, or none any more.
func (r *Recorder) Find(ctx context.Context, ref Ref) (Receipt, bool, error) {
	found, err := r.store.Get(ctx, ref)
	if err != nil {
		return Receipt{}, false, fmt.Errorf("ect: record: %w", err)
	}
	for _, one := range found[0] {
		if !one.Own || one.Issuer != ref.Issuer || one.Workflow != ref.Workflow {
			continue
		}
		claims, err := ParseRecorded(one.Compact)
		if err != nil {
			return Receipt{}, false, err
		}
		return Receipt{id: one.ID, output: claims.OutputHash, compact: one.Compact}, true, nil
	}
	return Receipt{}, false, nil
}

// Complete puts a token of ours once more that Find has found, byte for byte. In a cluster the process that recorded it may have ended
// before the store had noted it in its workflow.
func (r *Recorder) Complete(ctx context.Context, found Receipt, f Filing) error {
	if found.compact == "" {
		return ErrNoToken
	}
	claims, err := ParseRecorded(found.compact)
	if err != nil {
		return err
	}
	return r.put(ctx, found.compact, &claims, f, true)
}

// Keep stores a verified token of another issuer, so that it can be found as an
// ancestor. It issues no receipt: that token covers no message of this gateway.
func (r *Recorder) Keep(ctx context.Context, v Verified, f Filing) error {
	if v.compact == "" {
		return ErrNoToken
	}
	return r.put(ctx, v.compact, &v.claims, f, false)
}

func (r *Recorder) put(ctx context.Context, compact string, c *Claims, f Filing, own bool) error {
	workflow, members := c.Workflow, f.Members
	if f.Unlisted {
		workflow, members = "", nil
	}
	end := time.Unix(c.Expires, 0)
	if most := r.now().Add(MaxLifetime); !own && end.After(most) {
		end = most
	}
	until := end.Add(r.retention)
	if f.HoldUntil.After(until.Add(MaxHold)) || !own && !f.HoldUntil.IsZero() {
		return ErrHold
	}
	if f.HoldUntil.After(until) {
		until = f.HoldUntil
	}
	err := r.store.Put(ctx, Record{
		Compact: compact, ID: c.ID, Workflow: workflow, Issuer: c.Issuer,
		Audience: c.Audience, Act: c.Act, Parents: c.Parents,
		Until: until, OnHold: !f.HoldUntil.IsZero(),
		Own: own, Holder: f.Holder, Members: members, Begins: f.Begins && workflow != "", ByIssuer: f.ByIssuer,
	})
	if err != nil {
		return fmt.Errorf("ect: record: %w", err)
	}
	return nil
}

// Receipt proves that a token of ours is on record. The zero Receipt covers nothing.
type Receipt struct {
	id      ID
	output  string
	compact string
}

// ID is the token's jti; empty for the zero Receipt.
func (r Receipt) ID() ID { return r.id }

// OutputHash is the token's out_hash: the only body that the receipt covers.
func (r Receipt) OutputHash() string { return r.output }

// Compact is the token's bytes, to travel along.
func (r Receipt) Compact() string { return r.compact }

// LogValue prints the id.
func (r Receipt) LogValue() slog.Value { return slog.StringValue(string(r.id)) }

// String prints the id, so that no format verb prints the token.
func (r Receipt) String() string { return string(r.id) }

// GoString does the same for %#v.
func (r Receipt) GoString() string { return "ect.Receipt(" + string(r.id) + ")" }
