package seal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

func key(first byte) []byte { return append([]byte{first}, make([]byte, seal.KeySize-1)...) }

func box(tb testing.TB, keys ...[]byte) *seal.Box {
	tb.Helper()
	b, err := seal.NewBox(seal.Deps{}, keys...)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func memory(tb testing.TB, config state.Config) *state.Memory {
	tb.Helper()
	m, err := state.New(config, state.Deps{})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// Sealed entries are entries like any others.
func TestEntries_KeepTheContract(t *testing.T) {
	t.Parallel()
	statetest.RunEntries(t, statetest.EntriesHarness{
		Elsewhere: true, // what is sealed is larger, so bounds in bytes are not those of the values
		Open: func(t testing.TB, config state.Config) statetest.Entries {
			t.Helper()
			if config.MaxEntryBytes > 0 {
				config.MaxEntryBytes += seal.Overhead
			}
			return seal.NewEntries(memory(t, config).Entries(), box(t, key(1)))
		},
	})
}

// Nothing of a value reaches the driver, equal values do not look equal, and the
// new key seals while the old one opens.
func TestEntries_AreSealed(t *testing.T) {
	t.Parallel()
	driver := memory(t, state.Config{}).Entries()
	ctx, until := t.Context(), time.Now().Add(time.Hour)
	name := func(id string) state.EntryKey { return state.EntryKey{Kind: "push", Group: "g", ID: id} }
	put := func(to seal.EntryStore, id, value string) {
		if _, ok, err := to.Swap(ctx, name(id), 0, []byte(value), until); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	raw := func(id string) []byte { e, _, _ := driver.Get(ctx, name(id)); return e.Value }
	before := seal.NewEntries(driver, box(t, key(1)))
	put(before, "a", `{"Token":"hush"}`)
	put(before, "b", `{"Token":"hush"}`)
	if bytes.Contains(raw("a"), []byte("hush")) || bytes.Equal(raw("a")[14:], raw("b")[14:]) {
		t.Errorf("the driver sees %q", raw("a"))
	}
	rotated := seal.NewEntries(driver, box(t, key(2), key(1)))
	put(rotated, "c", `{"Token":"hush"}`)
	for id, reader := range map[string]*seal.Entries{"a": rotated, "b": before, "c": rotated} {
		for range 2 {
			if e, ok, err := reader.Get(ctx, name(id)); !ok || err != nil || string(e.Value) != `{"Token":"hush"}` {
				t.Errorf("%s: %q %v %v", id, e.Value, ok, err)
			}
		}
	}
	if list, err := rotated.List(ctx, "push", "g", "", 9); err != nil || len(list) != 3 || string(list[1].Value) != `{"Token":"hush"}` {
		t.Errorf("listed %v, %v", list, err)
	}
	if e, ok, err := rotated.Await(ctx, name("a"), 0); !ok || err != nil || string(e.Value) != `{"Token":"hush"}` {
		t.Errorf("awaited %q %v %v", e.Value, ok, err)
	}
	moved := bytes.Clone(raw("a"))
	put(driver, "moved", string(moved))
	moved[len(moved)-1] ^= 1
	put(driver, "changed", string(moved))
	put(driver, "cut", string(moved[:20]))
	for id, want := range map[string]error{"moved": seal.ErrBroken, "changed": seal.ErrBroken, "cut": seal.ErrBroken, "c": seal.ErrUnknownKey} {
		_, ok, err := before.Get(ctx, name(id))
		if gone := (*state.UnavailableError)(nil); ok || !errors.Is(err, want) || !errors.As(err, &gone) {
			t.Errorf("%s: %v, %v", id, ok, err)
		}
	}
	if list, err := before.List(ctx, "push", "g", "", 9); err != nil || len(list) != 2 {
		t.Errorf("a list with what does not open: %v, %v", list, err)
	}
}

// TestAttack_PlantedEntryHidesAGroup: a program without the key writes entries into a
// group. Before, a list of the group failed, so that no task of a lost process was taken
// over. Now it has the others, in full pages, and what does not open is counted.
func TestAttack_PlantedEntryHidesAGroup(t *testing.T) {
	t.Parallel()
	driver, b := memory(t, state.Config{}).Entries(), box(t, key(1))
	sealed, foreign := seal.NewEntries(driver, b), seal.NewEntries(driver, box(t, key(2)))
	for id, to := range map[string]seal.EntryStore{
		"a": driver, "b": sealed, "c": driver, "d": foreign, "e": driver, "f": sealed, "g": sealed, "h": driver,
	} {
		name := state.EntryKey{Kind: "watched", ID: id}
		if _, ok, err := to.Swap(t.Context(), name, 0, []byte("value "+id), time.Now().Add(time.Hour)); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	var ids []string
	for after, more := "", true; more; {
		page, err := sealed.List(t.Context(), "watched", "", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page {
			after = entry.Key.ID
			ids = append(ids, after)
			if string(entry.Value) != "value "+after {
				t.Errorf("%s: %q", after, entry.Value)
			}
		}
		more = len(page) == 2
	}
	if strings.Join(ids, "") != "bfg" || b.Refused() != 5 {
		t.Errorf("listed %v, and %d did not open; want bfg and 5", ids, b.Refused())
	}
}

// TestAttack_UnsealedStateIsBelieved is finding N4: a program without the key writes into
// the driver. Before, a value that was never sealed was taken as it was, of every kind.
// Now it is not used, counted, and logged once a minute.
func TestAttack_UnsealedStateIsBelieved(t *testing.T) {
	t.Parallel()
	driver, logs := memory(t, state.Config{}), &bytes.Buffer{}
	now := time.Now()
	b, err := seal.NewBox(seal.Deps{Now: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(logs, nil))}, key(1))
	must(t, err)
	sealed, ctx, until := seal.NewEntries(driver.Entries(), b), t.Context(), now.Add(time.Hour)
	forged := map[string]string{
		"JSON": `{"forged":true}`, "ended": state.EndedMark + `"forged":true}`, "empty": "", "short": "x", "the mark alone": "\xae\x01",
		"the mark, then zeros": "\xae\x01" + strings.Repeat("\x00", 60),
	}
	for _, kind := range []string{
		"task", "question", "push", "callback", "decided", "session", "mail", "halt", "undone", "wishes", "shelf", "ended", "runner", "watched", "pin",
	} {
		for what, value := range forged {
			name := state.EntryKey{Kind: kind, Group: "g", ID: what}
			_, _, err := driver.Entries().Swap(ctx, name, 0, []byte(value), until)
			must(t, err)
			e, ok, err := sealed.Get(ctx, name)
			if gone := (*state.UnavailableError)(nil); ok || len(e.Value) > 0 || !errors.As(err, &gone) || !errors.Is(err, seal.ErrBroken) && what != "the mark, then zeros" {
				t.Errorf("%s, %s: got %q, %v, %v", kind, what, e.Value, ok, err)
			}
			if e, ok, err := sealed.Await(ctx, name, 0); ok || len(e.Value) > 0 || err == nil {
				t.Errorf("%s, %s, awaited: got %q, %v, %v", kind, what, e.Value, ok, err)
			}
		}
		before := b.Refused()
		if list, err := sealed.List(ctx, kind, "g", "", 9); len(list) > 0 || err != nil || b.Refused()-before != uint64(len(forged)) {
			t.Errorf("%s, listed: got %v, %v, and %d counted", kind, list, err, b.Refused()-before)
		}
	}
	for what, value := range forged {
		name := ect.ReplayKey{Issuer: "victim", ID: ect.ID(what)}
		driver.Finish(ctx, name, []byte(value), until)
		if got, ok := seal.NewAnswers(driver, b).Load(ctx, name); ok {
			t.Errorf("an answer, %s: got %q", what, got)
		}
	}
	if lines := strings.Count(logs.String(), "does not open"); lines != 1 || b.Refused() < 200 {
		t.Errorf("%d refused, %d lines in the log: %s", b.Refused(), lines, logs)
	}
	now = now.Add(time.Hour / 2)
	_, _, _ = sealed.Get(ctx, state.EntryKey{Kind: "task", Group: "g", ID: "JSON"})
	if lines := strings.Count(logs.String(), "does not open"); lines != 2 {
		t.Errorf("half an hour later: %d lines in the log", lines)
	}
}

// A driver sees that the work of an entry has ended, and nothing else of it. A mark
// that was added or taken away by another program is noticed.
func TestEntries_EndedMarkIsReadableAndBound(t *testing.T) {
	t.Parallel()
	driver := memory(t, state.Config{}).Entries()
	ctx, until := t.Context(), time.Now().Add(time.Hour)
	name := func(id string) state.EntryKey { return state.EntryKey{Kind: "task", Group: "g", ID: id} }
	entries := seal.NewEntries(driver, box(t, key(1)))
	put := func(to seal.EntryStore, id string, value []byte) {
		if _, ok, err := to.Swap(ctx, name(id), 0, value, until); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	ended := []byte(state.EndedMark + `"Token":"hush"}`)
	put(entries, "ended", ended)
	put(entries, "running", []byte(`{"Token":"hush"}`))
	raw := func(id string) []byte { e, _, _ := driver.Get(ctx, name(id)); return e.Value }
	if !state.Ended(raw("ended")) || bytes.Contains(raw("ended"), []byte("hush")) || state.Ended(raw("running")) {
		t.Errorf("the driver sees %q and %q", raw("ended"), raw("running"))
	}
	if e, ok, err := entries.Get(ctx, name("ended")); !ok || err != nil || !bytes.Equal(e.Value, ended) {
		t.Errorf("got %q, %v, %v", e.Value, ok, err)
	}
	stripped, added := raw("ended")[len(state.EndedMark):], append([]byte(state.EndedMark), raw("running")...)
	for id, value := range map[string][]byte{"ended": stripped, "running": added} {
		must(t, driver.Delete(ctx, name(id)))
		put(driver, id, value)
		if _, ok, err := entries.Get(ctx, name(id)); ok || !errors.Is(err, seal.ErrBroken) {
			t.Errorf("%s with another mark: %v, %v, want ErrBroken", id, ok, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shared is a driver of answers that others share.
type shared struct{ *state.Memory }

func (s shared) Confirm(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) error {
	s.Finish(ctx, key, answer, until)
	return nil
}

func TestAnswers_AreSealed(t *testing.T) {
	t.Parallel()
	driver := memory(t, state.Config{})
	answers := seal.NewSharedAnswers(shared{driver}, box(t, key(1)))
	one, two := ect.ReplayKey{Issuer: "a", ID: "1"}, ect.ReplayKey{Issuer: "a", ID: "2"}
	answers.Finish(t.Context(), one, []byte("hush"), time.Now().Add(time.Hour))
	if err := answers.Confirm(t.Context(), two, []byte("hush"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, k := range []ect.ReplayKey{one, two} {
		raw, _ := driver.Load(t.Context(), k)
		if got, ok := answers.Load(t.Context(), k); !ok || string(got) != "hush" || bytes.Contains(raw, []byte("hush")) {
			t.Errorf("%q %v; the driver sees %q", got, ok, raw)
		}
	}
	raw, _ := driver.Load(t.Context(), one)
	driver.Finish(t.Context(), two, raw, time.Now().Add(time.Hour))
	if got, ok := answers.Load(t.Context(), two); ok {
		t.Errorf("the answer to another message opens: %q", got)
	}
	if _, ok := answers.Load(t.Context(), ect.ReplayKey{ID: "3"}); ok {
		t.Error("an answer that was never stored is found")
	}
}

func TestParseKeys_Formats(t *testing.T) {
	t.Parallel()
	hexed, based := hex.EncodeToString(key(1)), base64.StdEncoding.EncodeToString(key(2))
	keys, err := seal.ParseKeys([]byte(hexed + "\n\n  " + based + "\r\n"))
	if err != nil || len(keys) != 2 || !bytes.Equal(keys[0], key(1)) || !bytes.Equal(keys[1], key(2)) {
		t.Errorf("got %x, %v", keys, err)
	}
	if fresh, err := seal.ParseKeys(seal.NewKey()); err != nil || len(fresh) != 1 {
		t.Errorf("a new key: %v", err)
	}
	for name, text := range map[string]string{
		"nothing": "\n \n", "short": hexed[:62], "long": hexed + "00", "not a key": "correct horse battery staple",
		"too many": strings.Repeat(hexed+"\n", 17),
	} {
		if _, err := seal.ParseKeys([]byte(text)); !errors.Is(err, seal.ErrKeys) || strings.Contains(err.Error(), "horse") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := seal.NewBox(seal.Deps{}); err == nil {
		t.Error("a box without keys")
	}
	if _, err := seal.NewBox(seal.Deps{}, []byte("short")); err == nil {
		t.Error("a box with a short key")
	}
}

// BenchmarkSwap_SealedAndPlain is a record of a usual size, sealed and not.
func BenchmarkSwap_SealedAndPlain(b *testing.B) {
	value := bytes.Repeat([]byte("x"), 4<<10)
	name := state.EntryKey{Kind: "task", Group: "g", ID: "1"}
	until := time.Now().Add(time.Hour)
	plain := memory(b, state.Config{}).Entries()
	for what, store := range map[string]seal.EntryStore{"plain": plain, "sealed": seal.NewEntries(memory(b, state.Config{}).Entries(), box(b, key(1)))} {
		b.Run(what, func(b *testing.B) {
			var revision uint64
			for b.Loop() {
				next, ok, err := store.Swap(b.Context(), name, revision, value, until)
				if !ok || err != nil {
					b.Fatal(ok, err)
				}
				revision = next
				if _, _, err := store.Get(b.Context(), name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
