package consensus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// The kinds of entries. Stored data names them, so they never change.
const (
	KindRound    = "round"    // a round
	KindOpen     = "rounddue" // a round with which something is left to do
	KindTopic    = "roundof"  // the rounds about the same
	KindProposal = "proposal" // whose proposal has an id
	KindMessage  = "ballot"   // a signed vote or acknowledgement
	KindAgreed   = "agreed"   // that an agreed action was sent to a participant
	KindKnown    = "voterage" // since when an identity is known
)

// Kinds lists them: they decide something once, so the store has a reserve for them.
func Kinds() []string {
	return []string{KindRound, KindOpen, KindTopic, KindProposal, KindMessage, KindAgreed, KindKnown}
}

const (
	life      = 31 * 24 * time.Hour // that a round is kept after its last change: a closed one is a tombstone (R18)
	knownFor  = 10 * 365 * 24 * time.Hour
	pageSize  = 100
	maxTopic  = 64 // decided rounds about the same that are looked at, the latest ones
	maxSlots  = 2  // messages of one kind and one participant that are kept
	maxSeized = 30 * time.Second
	maxRaces  = 5
)

// Entries keeps what replicas share.
type Entries interface {
	record.Entries
	Delete(ctx context.Context, key state.EntryKey) error
}

func roundKey(id string, owner ect.Identity) state.EntryKey {
	return state.EntryKey{Kind: KindRound, ID: id, Owner: string(owner)}
}

func openKey(id string, owner ect.Identity) state.EntryKey {
	return state.EntryKey{Kind: KindOpen, ID: id, Owner: string(owner)}
}

func knownKey(id ect.Identity) state.EntryKey {
	return state.EntryKey{Kind: KindKnown, ID: ect.Hash([]byte(id))}
}

// open is a round with which something is left to do, as the index has it.
type open struct {
	Due      time.Time
	Proposer ect.Identity
	Runner   string    `json:",omitempty"` // the replica that does what follows from the outcome
	Until    time.Time `json:",omitzero"`  // the runner has it until then
}

// stored is a signed message as it is kept.
type stored struct {
	Kind     string    `json:"kind"` // vote, else the kind of acknowledgement
	Compact  string    `json:"compact"`
	Received time.Time `json:"received"`
}

const kindVote = "vote"

// messageKey names a message of a participant: of each kind the first and, as evidence, one that contradicts it.
func messageKey(round, kind string, who ect.Identity, slot int) state.EntryKey {
	return state.EntryKey{Kind: KindMessage, Group: round, ID: kind + " " + ect.Hash([]byte(who)) + " " + strconv.Itoa(slot), Owner: string(who)}
}

var errGone = errors.New("consensus: a message that was received is gone: the round is looked at again")

// archive keeps rounds and their messages in the store.
type archive struct {
	deps    Deps
	records *record.Machine[consensus.Round]
	decoded decodedRounds
}

// put writes an entry unless it is there already, and returns what is there then, once that lasts: a write that was not confirmed
// can be found, and forgotten by a failover.
func (a *archive) put(ctx context.Context, key state.EntryKey, value []byte, until time.Time) ([]byte, error) {
	for range maxRaces {
		_, first, err := a.deps.Entries.Swap(ctx, key, 0, value, until)
		if err != nil || first {
			return value, recording(err)
		}
		entry, found, err := a.deps.Entries.Get(ctx, key)
		if err != nil {
			return nil, recording(err)
		}
		if !found {
			continue
		}
		same, err := a.deps.Entries.Confirm(ctx, key, entry.Revision)
		if err != nil || same {
			return entry.Value, recording(err)
		}
	}
	return nil, &problem.ConflictError{Reason: "this is being changed by others all the time: try again"}
}

// keep keeps a signed message in the first slot that is free, unless it is there already; there is false if no slot is free, first
// if it was there.
func (a *archive) keep(ctx context.Context, round string, m stored, who ect.Identity, slots int) (there, first bool, err error) {
	value, err := json.Marshal(m)
	if err != nil {
		return false, false, err
	}
	for slot := range slots {
		key := messageKey(round, m.Kind, who, slot)
		there, err := a.put(ctx, key, value, m.Received.Add(life))
		if err != nil {
			return false, false, err
		}
		var before stored
		if err := json.Unmarshal(there, &before); err != nil {
			return false, false, err
		}
		if before.Compact == m.Compact {
			return true, bytes.Equal(there, value), nil
		}
	}
	return false, false, nil
}

// keepVote keeps a signed vote; doubled: a different one of the same voter is on record.
func (a *archive) keepVote(ctx context.Context, round string, m stored, who ect.Identity) (doubled bool, err error) {
	there, _, err := a.keep(ctx, round, m, who, maxSlots)
	if err != nil || !there {
		return !there, err
	}
	_, doubled, err = a.deps.Entries.Get(ctx, messageKey(round, kindVote, who, maxSlots-1))
	return doubled, recording(err)
}

// each reads all entries of a group.
func (a *archive) each(ctx context.Context, kind, group string, read func(state.Entry) error) error {
	for after := ""; ; {
		page, err := a.deps.Entries.List(ctx, kind, group, after, pageSize)
		if err != nil {
			return recording(err)
		}
		for _, entry := range page {
			after = entry.Key.ID
			if err := read(entry); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
	}
}

// messages are all signed messages of a round.
func (a *archive) messages(ctx context.Context, round string) (all []stored, err error) {
	err = a.each(ctx, KindMessage, round, func(entry state.Entry) error {
		var m stored
		if err := json.Unmarshal(entry.Value, &m); err != nil {
			return err
		}
		all = append(all, m)
		return nil
	})
	return all, err
}

// confirm returns when the messages with these hashes last. Its error is errGone if one of them is not there any more.
func (a *archive) confirm(ctx context.Context, round string, hashes []string) error {
	lasting := map[string]bool{}
	err := a.each(ctx, KindMessage, round, func(entry state.Entry) error {
		var m stored
		if err := json.Unmarshal(entry.Value, &m); err != nil {
			return err
		}
		hash := ect.Hash([]byte(m.Compact))
		if !slices.Contains(hashes, hash) {
			return nil
		}
		lasting[hash] = true
		same, err := a.deps.Entries.Confirm(ctx, entry.Key, entry.Revision)
		if err == nil && !same {
			err = errGone
		}
		return recording(err)
	})
	if err == nil && len(lasting) < len(hashes) {
		err = recording(errGone)
	}
	return err
}

// related are the rounds about the same: all that are not over, all of the same proposal, and the latest of the others.
func (a *archive) related(ctx context.Context, p consensus.Proposal) ([]consensus.Related, error) {
	type at struct {
		opened       time.Time
		id, proposal string
	}
	var known []at
	err := a.each(ctx, KindTopic, p.Topic(), func(entry state.Entry) error {
		moment, proposal, _ := strings.Cut(string(entry.Value), " ")
		opened, err := time.Parse(time.RFC3339Nano, moment)
		known = append(known, at{opened, entry.Key.ID, proposal})
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(known, func(a, b at) int { return b.opened.Compare(a.opened) })
	var out []consensus.Related
	undecided := map[string]bool{}
	err = a.each(ctx, KindOpen, "", func(entry state.Entry) error {
		undecided[entry.Key.ID] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, one := range known {
		late := i >= maxTopic && one.proposal != p.ID && !undecided[one.id]
		if one.id == p.Round || late {
			continue
		}
		found, err := a.records.Read(ctx, roundKey(one.id, ""))
		if err != nil {
			return nil, recording(err)
		}
		if found.Revision != 0 {
			out = append(out, found.Value.Related())
		}
	}
	return out, nil
}

// box is all that was received for a round. The signatures were verified when they came.
func (a *archive) box(ctx context.Context, round string) (b consensus.Box, err error) {
	all, err := a.messages(ctx, round)
	if err != nil {
		return b, err
	}
	for _, m := range all {
		if m.Kind == kindVote {
			v, err := signed.Take[consensus.Vote](m.Compact)
			if err != nil {
				return b, err
			}
			b.Ballots = append(b.Ballots, consensus.Ballot{Vote: v.Content, Hash: v.Hash, Received: m.Received})
			continue
		}
		a, err := signed.Take[consensus.Ack](m.Compact)
		if err != nil {
			return b, err
		}
		b.Receipts = append(b.Receipts, consensus.Receipt{Ack: a.Content, Hash: a.Hash, Received: m.Received})
	}
	return b, nil
}

// read is a round as the store has it. *[problem.NotFoundError]: there is none. A round that has not changed since is not decoded again: in
// a large group each of the votes would.
func (a *archive) read(ctx context.Context, id string) (consensus.Round, error) {
	if len(id) != uuidSize {
		return consensus.Round{}, &problem.NotFoundError{What: "round"}
	}
	entry, found, err := a.deps.Entries.Get(ctx, roundKey(id, ""))
	switch {
	case err != nil:
		return consensus.Round{}, recording(err)
	case !found:
		return consensus.Round{}, &problem.NotFoundError{What: "round"}
	}
	if r, there := a.decoded.find(id, entry.Revision); there {
		return r, nil
	}
	r, err := consensus.DecodeRound(entry.Value)
	if err != nil {
		return r, &record.UnreadableError{Err: err}
	}
	a.decoded.add(id, entry.Revision, r)
	return r, nil
}

const (
	uuidSize   = 36
	maxDecoded = 64
)

// decodedRounds are the rounds that were decoded here last. It is safe for concurrent use.
type decodedRounds struct {
	mu     sync.Mutex
	rounds map[string]decodedRound
}

type decodedRound struct {
	revision uint64
	round    consensus.Round
	lasting  bool // no failover takes it back, and its evidence is on record
}

func (d *decodedRounds) find(id string, revision uint64) (consensus.Round, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one, there := d.rounds[id]
	return one.round, there && one.revision == revision
}

// lasts reports whether a round was confirmed here as it is.
func (d *decodedRounds) lasts(r consensus.Round) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.rounds[r.Proposal.Round]
	return one.lasting && one.same(r)
}

// confirmed notes that a round lasts.
func (d *decodedRounds) confirmed(r consensus.Round) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.rounds[r.Proposal.Round]
	if !one.same(r) {
		one = decodedRound{round: r}
	}
	one.lasting = true
	d.put(r.Proposal.Round, one)
}

func (o decodedRound) same(r consensus.Round) bool {
	return o.round.Term == r.Term && o.round.Token == r.Token
}

func (d *decodedRounds) add(id string, revision uint64, r consensus.Round) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.rounds[id]
	d.put(id, decodedRound{revision, r, before.lasting && before.same(r)})
}

// put forgets all others once there are too many.
func (d *decodedRounds) put(id string, one decodedRound) {
	if d.rounds == nil || len(d.rounds) >= maxDecoded {
		d.rounds = map[string]decodedRound{}
	}
	d.rounds[id] = one
}

// index changes the entry of a round in the index; false: it is not there, or change did not want to, or another replica was first.
func (a *archive) index(ctx context.Context, r consensus.Round, change func(open) (open, bool)) (bool, error) {
	key := openKey(r.Proposal.Round, r.Proposal.Proposer)
	entry, found, err := a.deps.Entries.Get(ctx, key)
	if err != nil || !found {
		return false, recording(err)
	}
	var o open
	if err := json.Unmarshal(entry.Value, &o); err != nil {
		return false, err
	}
	next, wanted := change(o)
	if !wanted {
		return false, nil
	}
	value, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	_, first, err := a.deps.Entries.Swap(ctx, key, entry.Revision, value, r.Deadline().Add(life))
	return first, recording(err)
}

// lookAgain has each replica look at a round after a pause.
func (a *archive) lookAgain(ctx context.Context, r consensus.Round, pause time.Duration) error {
	now, err := a.deps.Clock(ctx)
	if err != nil {
		return recording(err)
	}
	_, err = a.index(ctx, r, func(o open) (open, bool) {
		o.Due = now.Add(pause)
		return o, true
	})
	return err
}

// abandon takes a round out of the index that was never written.
func (a *archive) abandon(ctx context.Context, id string) error {
	entry, found, err := a.deps.Entries.Get(ctx, openKey(id, ""))
	if err != nil || !found {
		return recording(err)
	}
	var o open
	if err := json.Unmarshal(entry.Value, &o); err != nil {
		return err
	}
	now, err := a.deps.Clock(ctx)
	if err != nil || now.Before(o.Due.Add(unwritten)) {
		return recording(err)
	}
	return recording(a.deps.Entries.Delete(ctx, openKey(id, o.Proposer)))
}

// own notes whose an id of a proposal is.
func (a *archive) own(ctx context.Context, p consensus.Proposal, until time.Time) error {
	key := state.EntryKey{Kind: KindProposal, ID: p.ID, Owner: string(p.Proposer)}
	value, err := json.Marshal([]string{string(p.Proposer), p.Topic()})
	if err != nil {
		return err
	}
	there, err := a.put(ctx, key, value, until)
	if err != nil {
		return err
	}
	if string(there) != string(value) {
		return &problem.ConflictError{Reason: "proposal_id is that of a proposal of another proposer, or about something else: choose a fresh UUID"}
	}
	return nil
}

// book takes a round into the index of rounds with which something is left to do. Of rounds that are opened at once, those that are
// too many are taken out a minute later.
func (a *archive) book(ctx context.Context, r consensus.Round) error {
	if err := a.enter(ctx, r); err != nil {
		return err
	}
	if err := a.withinShare(ctx, r.Proposal.Proposer, 0); err != nil { // another request may write this round: it is looked at, and not deleted here
		_, failed := a.index(ctx, r, func(o open) (open, bool) { o.Due = r.Opened; return o, true })
		return errors.Join(err, failed)
	}
	return nil
}

// enter writes the entry of a round in the index, unless it is there.
func (a *archive) enter(ctx context.Context, r consensus.Round) error {
	value, err := json.Marshal(open{Due: r.Due(), Proposer: r.Proposal.Proposer})
	if err == nil {
		_, err = a.put(ctx, openKey(r.Proposal.Round, r.Proposal.Proposer), value, r.Deadline().Add(life))
	}
	return err
}

// withinShare reports an error if so many more rounds of a proposer would be too many.
func (a *archive) withinShare(ctx context.Context, proposer ect.Identity, more int) error {
	all, own := more, more
	err := a.each(ctx, KindOpen, "", func(entry state.Entry) error {
		var o open
		if err := json.Unmarshal(entry.Value, &o); err != nil {
			return err
		}
		if all++; o.Proposer == proposer {
			own++
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case own > OfOneProposer || all > OfAll:
		return &quota.ExceededError{Resource: "consensus rounds that are not over", Own: own > OfOneProposer}
	}
	return nil
}

// recording is an error of the store or the evidence as callers are told it; refusals stay as they are.
func recording(err error) error {
	if err == nil {
		return nil
	}
	_, refused := errors.AsType[*consensus.RefusedError](err)
	_, invalid := errors.AsType[*consensus.InvalidError](err)
	_, missing := errors.AsType[*problem.NotFoundError](err)
	_, conflict := errors.AsType[*problem.ConflictError](err)
	if refused || invalid || missing || conflict {
		return err
	}
	return attest.Recording(err)
}
