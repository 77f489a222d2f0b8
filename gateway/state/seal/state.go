package seal

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// EntryStore is a driver of entries, as [state.Entries] explains it.
type EntryStore interface { //nolint:interfacebloat // the operations of one store of entries
	Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error)
	Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error)
	Confirm(ctx context.Context, key state.EntryKey, revision uint64) (bool, error)
	Delete(ctx context.Context, key state.EntryKey) error
	List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error)
	Await(ctx context.Context, key state.EntryKey, after uint64) (state.Entry, bool, error)
}

// Entries is a driver of entries whose values are sealed. An entry that cannot be
// opened is a *state.UnavailableError around [ErrUnknownKey] or [ErrBroken], and is not
// in lists.
type Entries struct {
	EntryStore

	box *Box
}

// NewEntries seals what goes to a driver.
func NewEntries(driver EntryStore, box *Box) *Entries { return &Entries{driver, box} }

// Get finds an entry.
func (e *Entries) Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error) {
	entry, ok, err := e.EntryStore.Get(ctx, key)
	return e.opened(ctx, entry, ok, err)
}

// Swap writes a value if the entry is still at a revision.
func (e *Entries) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	return e.EntryStore.Swap(ctx, key, old, e.sealed(key, value), until)
}

// sealed is a value as the driver keeps it. That the work of an entry has ended
// stays readable, since drivers drop such entries first (state.EndedMark).
func (e *Entries) sealed(key state.EntryKey, value []byte) []byte {
	rest, ended := bytes.CutPrefix(value, []byte(state.EndedMark))
	if !ended {
		return e.box.seal(entryName(key), value)
	}
	return append([]byte(state.EndedMark), e.box.seal(endedName(key), rest)...)
}

// endedName is the name under which the value of an entry with the readable mark is
// sealed: a mark that another program adds or takes away does not open.
func endedName(key state.EntryKey) []byte { return append(entryName(key), state.EndedMark...) }

// List is a page of a group, without the entries that cannot be opened: what another
// program put there must not hide the others. They are counted and logged. Fewer than
// limit are the last.
func (e *Entries) List(ctx context.Context, kind, group, after string, limit int) (found []state.Entry, err error) {
	for len(found) < limit {
		wanted := limit - len(found)
		entries, err := e.EntryStore.List(ctx, kind, group, after, wanted)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			after = entry.Key.ID
			if entry, ok, _ := e.opened(ctx, entry, true, nil); ok {
				found = append(found, entry)
			}
		}
		if len(entries) < wanted {
			break
		}
	}
	return found, nil
}

// Await waits for a newer revision.
func (e *Entries) Await(ctx context.Context, key state.EntryKey, after uint64) (state.Entry, bool, error) {
	entry, ok, err := e.EntryStore.Await(ctx, key, after)
	return e.opened(ctx, entry, ok, err)
}

func (e *Entries) opened(ctx context.Context, entry state.Entry, ok bool, err error) (state.Entry, bool, error) {
	if err != nil || !ok {
		return entry, ok, err
	}
	if rest, ended := bytes.CutPrefix(entry.Value, []byte(state.EndedMark)); ended {
		rest, err = e.box.open(ctx, endedName(entry.Key), rest)
		entry.Value = append([]byte(state.EndedMark), rest...)
	} else {
		entry.Value, err = e.box.open(ctx, entryName(entry.Key), entry.Value)
	}
	if err != nil {
		return state.Entry{}, false, &state.UnavailableError{Err: err}
	}
	return entry, true, nil
}

// AnswerStore is a driver of answers, as [state.Answers] explains it.
type AnswerStore interface {
	Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time)
	Load(ctx context.Context, key ect.ReplayKey) ([]byte, bool)
}

// Answers is a driver of answers that are sealed. One that cannot be opened is
// not there.
type Answers struct {
	driver AnswerStore
	box    *Box
}

// NewAnswers seals what goes to a driver.
func NewAnswers(driver AnswerStore, box *Box) *Answers { return &Answers{driver, box} }

// Finish stores an answer.
func (a *Answers) Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) {
	a.driver.Finish(ctx, key, a.box.seal(answerName(key), answer), until)
}

// Load finds a stored answer.
func (a *Answers) Load(ctx context.Context, key ect.ReplayKey) ([]byte, bool) {
	sealed, ok := a.driver.Load(ctx, key)
	if !ok {
		return nil, false
	}
	answer, err := a.box.open(ctx, answerName(key), sealed)
	return answer, err == nil
}

// SharedStore is a driver of answers that others share.
type SharedStore interface {
	AnswerStore
	Confirm(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) error
}

// SharedAnswers are [Answers] of a driver that others share.
type SharedAnswers struct {
	*Answers

	shared SharedStore
}

// NewSharedAnswers seals what goes to a driver that others share.
func NewSharedAnswers(driver SharedStore, box *Box) *SharedAnswers {
	return &SharedAnswers{NewAnswers(driver, box), driver}
}

// Confirm stores an answer, and fails if it may be lost.
func (a *SharedAnswers) Confirm(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) error {
	return a.shared.Confirm(ctx, key, a.box.seal(answerName(key), answer), until)
}

func entryName(key state.EntryKey) []byte { return nameParts("entry", key.Kind, key.Group, key.ID) }

func answerName(key ect.ReplayKey) []byte {
	return nameParts("answer", string(key.Issuer), key.Workflow, string(key.ID))
}

// nameParts writes parts so that no other parts give the same bytes.
func nameParts(parts ...string) []byte {
	size := 0
	for _, part := range parts {
		size += binary.MaxVarintLen32 + len(part)
	}
	out := make([]byte, 0, size)
	for _, part := range parts {
		out = append(binary.AppendUvarint(out, uint64(len(part))), part...)
	}
	return out
}
