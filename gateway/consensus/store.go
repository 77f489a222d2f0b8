package consensus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
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

// put writes an entry unless it is there already, and returns what is there then, once that lasts: a write that was not confirmed
// can be found, and forgotten by a failover.
func (s *Service) put(ctx context.Context, key state.EntryKey, value []byte, until time.Time) ([]byte, error) {
	for range maxRaces {
		_, first, err := s.deps.Entries.Swap(ctx, key, 0, value, until)
		if err != nil || first {
			return value, recording(err)
		}
		entry, found, err := s.deps.Entries.Get(ctx, key)
		if err != nil {
			return nil, recording(err)
		}
		if !found {
			continue
		}
		same, err := s.deps.Entries.Confirm(ctx, key, entry.Revision)
		if err != nil || same {
			return entry.Value, recording(err)
		}
	}
	return nil, &problem.ConflictError{Reason: "this is being changed by others all the time: try again"}
}

// keep keeps a signed message in the first slot that is free, unless it is there already; there is false if no slot is free, first
// if it was there.
func (s *Service) keep(ctx context.Context, round string, m stored, who ect.Identity, slots int) (there, first bool, err error) {
	value, err := json.Marshal(m)
	if err != nil {
		return false, false, err
	}
	for slot := range slots {
		key := messageKey(round, m.Kind, who, slot)
		there, err := s.put(ctx, key, value, m.Received.Add(life))
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

// confirm returns when the messages with these hashes last.
func (s *Service) confirm(ctx context.Context, round string, hashes []string) error {
	return s.each(ctx, KindMessage, round, func(entry state.Entry) error {
		var m stored
		if err := json.Unmarshal(entry.Value, &m); err != nil {
			return err
		}
		if !slices.Contains(hashes, ect.Hash([]byte(m.Compact))) {
			return nil
		}
		same, err := s.deps.Entries.Confirm(ctx, entry.Key, entry.Revision)
		if err == nil && !same {
			err = errGone
		}
		return recording(err)
	})
}

var errGone = errors.New("consensus: a message that was received is gone: the round is looked at again")

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
