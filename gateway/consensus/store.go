package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy/consensus"
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
	maxTopic  = 64 // rounds about the same that are looked at, the latest ones
	maxSlots  = 2  // messages of one kind and one participant that are kept
	maxSeized = 30 * time.Second
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

// messageID names a message of a participant: of each kind the first and, as evidence, one that contradicts it.
func messageID(kind string, who ect.Identity, slot int) string {
	return kind + " " + ect.Hash([]byte(who)) + " " + string(rune('0'+slot))
}

// put writes an entry that is not there yet; false: it is.
func (s *Service) put(ctx context.Context, key state.EntryKey, value []byte, until time.Time) (bool, error) {
	_, first, err := s.deps.Entries.Swap(ctx, key, 0, value, until)
	if err != nil {
		return false, recording(err)
	}
	return first, nil
}

// keep keeps a signed message in the first slot that is free, unless it is there already; there is false if no slot is free, first
// if it was there.
func (s *Service) keep(ctx context.Context, round string, m stored, who ect.Identity, slots int) (there, first bool, err error) {
	value, err := json.Marshal(m)
	if err != nil {
		return false, false, err
	}
	for slot := range slots {
		key := state.EntryKey{Kind: KindMessage, Group: round, ID: messageID(m.Kind, who, slot), Owner: string(who)}
		first, err := s.put(ctx, key, value, m.Received.Add(life))
		if err != nil || first {
			return first, first, err
		}
		entry, found, err := s.deps.Entries.Get(ctx, key)
		var before stored
		if err == nil && found {
			err = json.Unmarshal(entry.Value, &before)
		}
		if err != nil {
			return false, false, recording(err)
		}
		if before.Compact == m.Compact {
			return true, false, nil
		}
	}
	return false, false, nil
}

// each reads all entries of a group.
func (s *Service) each(ctx context.Context, kind, group string, read func(state.Entry) error) error {
	for after := ""; ; {
		page, err := s.deps.Entries.List(ctx, kind, group, after, pageSize)
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
func (s *Service) messages(ctx context.Context, round string) (all []stored, err error) {
	err = s.each(ctx, KindMessage, round, func(entry state.Entry) error {
		var m stored
		if err := json.Unmarshal(entry.Value, &m); err != nil {
			return err
		}
		all = append(all, m)
		return nil
	})
	return all, err
}

// related are the rounds about the same, the latest ones.
func (s *Service) related(ctx context.Context, p consensus.Proposal) ([]consensus.Related, error) {
	type at struct {
		opened time.Time
		id     string
	}
	var known []at
	err := s.each(ctx, KindTopic, p.Topic(), func(entry state.Entry) error {
		var opened time.Time
		if err := opened.UnmarshalText(entry.Value); err != nil {
			return err
		}
		known = append(known, at{opened, entry.Key.ID})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(known, func(a, b at) int { return b.opened.Compare(a.opened) })
	var out []consensus.Related
	for _, one := range known[:min(len(known), maxTopic)] {
		if one.id == p.Round {
			continue
		}
		found, err := s.records.Read(ctx, roundKey(one.id, ""))
		if err != nil {
			return nil, recording(err)
		}
		if found.Revision != 0 {
			out = append(out, found.Value.Related())
		}
	}
	return out, nil
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
