package state_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// notes is a journal that keeps everything.
type notes struct {
	mu   sync.Mutex
	list []state.Change
}

func (n *notes) Note(c state.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, c)
}

// read is what was noted since the last call, in short.
func (n *notes) read() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, c := range n.list {
		sign := "+"
		if c.Gone() {
			sign = "-"
		}
		out = append(out, fmt.Sprintf("%s%s %d", sign, c.Kind, c.Serial))
	}
	n.list = nil
	return out
}

func (n *notes) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.read()); diff != "" {
		t.Error(diff)
	}
}

func journaled(tb testing.TB, config state.Config) (*state.Memory, *notes) {
	tb.Helper()
	journal := &notes{}
	m, err := state.New(config, state.Deps{Journal: journal})
	if err != nil {
		tb.Fatal(err)
	}
	return m, journal
}

func TestJournal_ReceivesEveryChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, key := t.Context(), ect.ReplayKey{ID: "1"}
		m, journal := journaled(t, state.Config{MaxAnswerBytes: 10})
		use := ect.ReplayUse{Token: "t", Until: time.Now().Add(time.Minute)}

		_, _ = m.Claim(ctx, key, use)
		_, _ = m.Claim(ctx, key, use) // nothing changes
		journal.want(t, "+replays 1")

		m.Finish(ctx, key, []byte("answer"), use.Until)
		m.Finish(ctx, key, []byte("later"), use.Until)
		m.Finish(ctx, key, make([]byte, 11), use.Until)
		journal.want(t, "+answers 1", "+answers 2", "-answers 1")
		m.Remember(ctx, "", "w", "1")
		m.Remember(ctx, "a", "w", "1")
		journal.want(t, "+conversations 1")

		time.Sleep(48 * time.Hour)
		m.Sweep(1)
		journal.want(t, "-replays 1", "-answers 2", "-conversations 1")
		m.Sweep(100)
		journal.want(t)
	})
}

// fill makes one entry of each kind that a journal is told of.
func fill(tb testing.TB, m *state.Memory, until time.Time) {
	tb.Helper()
	key := ect.ReplayKey{ID: "1"}
	if _, err := m.Claim(tb.Context(), key, ect.ReplayUse{Token: "t", Until: until}); err != nil {
		tb.Fatal(err)
	}
	m.Finish(tb.Context(), key, []byte("answer"), until)
	m.Remember(tb.Context(), "a", "w", "1")
}

func TestRestore_EveryKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Hour)
		source, journal := journaled(t, state.Config{})
		fill(t, source, until)
		m, silent := journaled(t, state.Config{})
		for _, c := range journal.list {
			data, err := c.AppendBinary([]byte("before"))
			if err != nil {
				t.Fatal(err)
			}
			data = slices.Clone(data[len("before"):])
			if stored, err := m.Restore(c.Kind, 7, data); !stored || err != nil {
				t.Errorf("%s: %v, %v", c.Kind, stored, err)
			}
			clear(data) // the memory keeps no part of it
			if diff := cmp.Diff(source.UsageOf(c.Kind), m.UsageOf(c.Kind)); diff != "" {
				t.Errorf("%s: %s", c.Kind, diff)
			}
		}
		silent.want(t)
		if blob, _ := m.Load(t.Context(), ect.ReplayKey{ID: "1"}); string(blob) != "answer" {
			t.Errorf("answer %q", blob)
		}
		if wid, id, _, _ := m.Last(t.Context(), "a"); wid != "w" || id != "1" {
			t.Errorf("turn %q %q", wid, id)
		}
		m.Remember(t.Context(), "b", "w", "1")
		silent.want(t, "+conversations 8") // serials go on where they were
	})
}

func TestRestore_ExpiredIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source, journal := journaled(t, state.Config{ConversationLifetime: time.Minute})
		fill(t, source, time.Now().Add(time.Minute))
		time.Sleep(time.Hour)
		m, notes := journaled(t, state.Config{})
		for _, c := range journal.list {
			data, _ := c.AppendBinary(nil)
			if stored, err := m.Restore(c.Kind, 9, data); stored || err != nil {
				t.Errorf("%s has expired: %v, %v", c.Kind, stored, err)
			}
		}
		m.Remember(t.Context(), "b", "w", "1")
		notes.want(t, "+conversations 10") // the serial of what is forgotten is not given again
	})
}

// Of two entries with one key the later one is the truth, and the journal is
// told that the earlier one left.
func TestRestore_LaterEntryReplaces(t *testing.T) {
	t.Parallel()
	source, journal := journaled(t, state.Config{})
	source.Remember(t.Context(), "a", "w", "1")
	source.Remember(t.Context(), "a", "w", "2")
	m, notes := journaled(t, state.Config{})
	for _, c := range journal.list {
		if data, err := c.AppendBinary(nil); err == nil {
			_, _ = m.Restore(c.Kind, c.Serial, data)
		} else if !c.Gone() {
			t.Error(err)
		}
	}
	if _, id, _, _ := m.Last(t.Context(), "a"); id != "2" {
		t.Errorf("last turn %q", id)
	}
	notes.want(t, "-conversations 1")
}

// Bounds that are smaller than before: uses of tokens must not be forgotten in silence.
func TestRestore_SmallerBounds(t *testing.T) {
	t.Parallel()
	source, journal := journaled(t, state.Config{})
	for n := range 3 {
		_, _ = source.Claim(t.Context(), ect.ReplayKey{ID: ect.ID(fmt.Sprint(n))}, ect.ReplayUse{Until: time.Now().Add(time.Hour)})
		source.Finish(t.Context(), ect.ReplayKey{ID: "1"}, make([]byte, 10*(n+1)), time.Now().Add(time.Hour))
	}
	m, notes := journaled(t, state.Config{MaxReplays: 2, MaxAnswerBytes: 20})
	var full *state.FullError
	refused := 0
	for _, c := range journal.list {
		data, err := c.AppendBinary(nil)
		if err != nil {
			continue
		}
		stored, err := m.Restore(c.Kind, c.Serial, data)
		switch {
		case errors.As(err, &full) && c.Kind == state.KindReplay && c.Serial == 3:
			refused++
		case err != nil, !stored && c.Kind != state.KindAnswer:
			t.Errorf("%s %d: %v, %v", c.Kind, c.Serial, stored, err)
		}
	}
	if refused != 1 {
		t.Error("a use of a token was forgotten")
	}
	notes.want(t, "-answers 1")
	if got, _ := m.Load(t.Context(), ect.ReplayKey{ID: "1"}); len(got) != 20 {
		t.Errorf("an answer of %d bytes", len(got))
	}
}

func TestRestore_RefusesUnreadable(t *testing.T) {
	t.Parallel()
	source, journal := journaled(t, state.Config{})
	fill(t, source, time.Now().Add(time.Hour))
	m, notes := journaled(t, state.Config{})
	for _, c := range journal.list {
		data, _ := c.AppendBinary(nil)
		for end := range data {
			if c.Kind == state.KindAnswer && end >= 28 {
				break // an answer may be any bytes, and none
			}
			if c.Kind == state.KindReplay && end == len(data)-8 {
				continue // as earlier versions wrote it, without its holder
			}
			if stored, err := m.Restore(c.Kind, 1, data[:end]); stored || !errors.Is(err, state.ErrUnreadable) {
				t.Errorf("%s cut off at %d: %v, %v", c.Kind, end, stored, err)
			}
		}
		if _, err := m.Restore(c.Kind, 1, append(data, 0)); c.Kind != state.KindAnswer && !errors.Is(err, state.ErrUnreadable) {
			t.Errorf("%s with a byte more: %v", c.Kind, err)
		}
		if _, err := m.Restore(state.Kind(99), 1, data); !errors.Is(err, state.ErrUnreadable) {
			t.Errorf("an unknown kind: %v", err)
		}
	}
	notes.want(t)
}

// FuzzMemory_Restore: whatever a file holds, reading it ends, and what is read can be
// written again.
func FuzzMemory_Restore(f *testing.F) {
	source, journal := journaled(f, state.Config{})
	fill(f, source, time.Unix(4_000_000_000, 0))
	for _, c := range journal.list {
		data, _ := c.AppendBinary(nil)
		f.Add(uint8(c.Kind), data)
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		m, _ := journaled(t, state.Config{})
		stored, err := m.Restore(state.Kind(kind), 1, data)
		if stored && err != nil {
			t.Error("kept and refused")
		}
		if u := m.UsageOf(state.Kind(kind)); (u.Entries == 1) != stored {
			t.Errorf("kept %v, usage %+v", stored, u)
		}
	})
}
