package state

import (
	"errors"

	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
)

// Kind is one kind of state. Its number may be kept on disk and never changes.
type Kind uint8

// The kinds of state.
const (
	KindToken Kind = iota
	KindReplay
	KindAnswer
	KindConversation
	KindEntry
)

// Kinds lists all kinds.
func Kinds() [5]Kind {
	return [...]Kind{KindToken, KindReplay, KindAnswer, KindConversation, KindEntry}
}

// String is the kind's name for files, metrics and logs.
func (k Kind) String() string {
	switch k {
	case KindToken:
		return "tokens"
	case KindReplay:
		return "replays"
	case KindAnswer:
		return "answers"
	case KindConversation:
		return "conversations"
	case KindEntry:
		return "entries"
	default:
		return "unknown"
	}
}

// Journal is told of every change of a [Memory], each kind's in the order in
// which they were made. Note is called while the kind is locked: it returns at
// once, keeps the change for later and never calls the memory.
type Journal interface {
	Note(c Change)
}

// overhead is about what a change costs beside its content, in bytes.
const overhead = 64

// Change says that an entry came or left. Entries are not altered: one that
// replaces another comes first, and then the other leaves.
type Change struct {
	Kind   Kind
	Serial uint64 // names the entry within its kind; of two, the later has the larger one
	Size   int    // bytes of what came, about; 0: it left
	// What came: as it was written, or an entry, which is written when it is
	// asked for. Both nil: it left.
	content []byte
	entry   *entry
}

// Gone is true when the entry left the memory.
func (c Change) Gone() bool { return c.content == nil && c.entry == nil }

// AppendBinary appends what came, as [Memory.Restore] reads it. It may be
// called from any goroutine, at any time after Note. It fails for what is gone.
func (c Change) AppendBinary(b []byte) ([]byte, error) {
	switch {
	case c.content != nil:
		return append(b, c.content...), nil
	case c.entry != nil:
		return appendEntry(b, c.entry), nil
	default:
		return b, errors.New("state: what is gone has no content")
	}
}

// ErrUnreadable is returned for bytes that no change was ever written as.
var ErrUnreadable = errors.New("state: an entry cannot be read")

// Restore puts back an entry that a journal was told of, and does not tell it
// again. Entries of one kind are restored in the order of their serials, before
// anything else happens to the memory; it keeps no part of data. False: the
// entry has expired, or does not fit the bounds, and should be forgotten.
// [ErrUnreadable]: it is no entry. [FullError]: a use of a token would have to
// be forgotten, so that the memory does not know all uses since its epoch.
func (m *Memory) Restore(kind Kind, serial uint64, data []byte) (bool, error) {
	r := encoding.Reader{Data: string(data)}
	switch kind {
	case KindToken: // evidence has tables of its own
	case KindReplay:
		if e, use, holder := readReplay(&r); r.Done() {
			return m.Replays.restore(e, use, holder, serial)
		}
	case KindAnswer:
		if e := readAnswer(&r); r.Done() {
			return m.Answers.restore(e, serial), nil
		}
	case KindConversation:
		if e := readTurn(&r); r.Done() {
			return m.Conversations.restore(e, serial), nil
		}
	case KindEntry:
		if e := readEntry(&r, serial); r.Done() {
			return m.entries.restore(e), nil
		}
	}
	return false, ErrUnreadable
}
