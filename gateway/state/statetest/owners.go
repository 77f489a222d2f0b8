package statetest

import (
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// shares are the rules of what one owner, and one kind, may take of a store.
var shares = map[string]func(*testing.T, EntriesHarness){
	"an owner has a share":                   ownerShare,
	"an owner has a share of bytes":          ownerShareOfBytes,
	"ended work of the owner makes space":    endedMakesSpace,
	"the end of work is always kept":         endIsKept,
	"one kind leaves space for the others":   kindLeavesSpace,
	"the owner is no part of the name":       ownerNotInName,
	"what is deleted or expired counts none": goneCountsNone,
}

// wholeOwners are the cases in which an owner has entries of several kinds.
var wholeOwners = map[string]bool{
	"an owner has a share": true, "an owner has a share of bytes": true, "a restart keeps shares": true,
}

// owned is the key of an entry of an owner.
func owned(owner, id string) state.EntryKey {
	return state.EntryKey{Kind: "task", Group: owner + "\x00x", ID: id}
}

// kinded is such a key of another kind.
func kinded(kind string, key state.EntryKey) state.EntryKey {
	key.Kind = kind
	return key
}

func end(value string) string { return state.EndedMark + value }

// wantRefused expects a refusal, because of the owner's own share or of the total.
func wantRefused(t *testing.T, e Entries, key state.EntryKey, value string, own bool) {
	t.Helper()
	_, ok, err := e.Swap(t.Context(), key, 0, []byte(value), soon())
	full, is := errors.AsType[*state.FullError](err)
	if ok || !is || full.Own != own || full.RetryAfter <= 0 {
		t.Errorf("%+v of %d bytes: got %v, %v, want a FullError with Own %v and a time to try again", key, len(value), ok, err, own)
	}
}

func ownerShare(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntriesPerOwner: 4})
	swap(t, e, owned("a", "1"), 0, "")
	swap(t, e, owned("a", "2"), 0, "")
	swap(t, e, kinded("mail", owned("a", "3")), 0, "")
	last := swap(t, e, kinded("push", owned("a", "4")), 0, "")
	wantRefused(t, e, kinded("push", owned("a", "5")), "", true)
	swap(t, e, kinded("push", owned("a", "4")), last, "what is there may change")
	swap(t, e, owned("b", "1"), 0, "others notice nothing")
	if err := e.Delete(t.Context(), owned("a", "1")); err != nil {
		t.Fatal(err)
	}
	swap(t, e, kinded("push", owned("a", "5")), 0, "")
}

func ownerShareOfBytes(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntriesBytesPerOwner: 20_000})
	large := string(make([]byte, 8000))
	first := swap(t, e, kinded("push", owned("a", "1")), 0, "")
	swap(t, e, kinded("mail", owned("a", "1")), 0, large)
	swap(t, e, kinded("push", owned("a", "1")), first, large)
	wantRefused(t, e, owned("a", "1"), large, true)
	swap(t, e, owned("b", "1"), 0, large)
	wantRefused(t, e, state.EntryKey{Kind: "task", Group: "g", ID: "1", Owner: "c"}, string(make([]byte, 19_900)), true)
}

func endedMakesSpace(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntriesPerOwner: 4})
	for _, id := range []string{"c", "a", "b"} {
		revision := swap(t, e, owned("a", id), 0, "goes on")
		swap(t, e, owned("a", id), revision, end(id))
	}
	swap(t, e, owned("b", "c"), 0, end("others keep theirs"))
	swap(t, e, owned("a", "d"), 0, "goes on")
	wantTasks(t, e, owned("a", ""), "a", "b", "d")
	swap(t, e, owned("a", "e"), 0, "goes on")
	wantTasks(t, e, owned("a", ""), "b", "d", "e")
	swap(t, e, owned("a", "f"), 0, "goes on")
	wantRefused(t, e, owned("a", "g"), "goes on", true)
	wantTasks(t, e, owned("a", ""), "d", "e", "f")
	wantTasks(t, e, owned("b", ""), "c")
}

func endIsKept(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntriesBytesPerOwner: 6000})
	first := swap(t, e, owned("a", "1"), 0, "goes on")
	second := swap(t, e, owned("a", "2"), 0, string(make([]byte, 3000)))
	swap(t, e, owned("a", "1"), first, end(string(make([]byte, 4000))))
	wantTasks(t, e, owned("a", ""), "1", "2")
	swap(t, e, owned("a", "2"), second, end(""))
	wantTasks(t, e, owned("a", ""), "2")
}

func kindLeavesSpace(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntriesPerOwner: 8})
	for _, id := range []string{"1", "2", "3", "4", "5", "6"} {
		swap(t, e, owned("a", id), 0, "")
	}
	wantRefused(t, e, owned("a", "7"), "", true)
	swap(t, e, kinded("session", owned("a", "7")), 0, "")
	swap(t, e, kinded("question", owned("a", "7")), 0, "")
}

func ownerNotInName(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntriesPerOwner: 1})
	key := state.EntryKey{Kind: "callback", Group: "a workflow", ID: "1", Owner: "a"}
	first := swap(t, e, key, 0, "one")
	wantLost(t, e, key, 0)
	key.Owner = ""
	wantLost(t, e, key, 0)
	if got, ok, err := e.Get(t.Context(), key); !ok || err != nil || got.Revision != first {
		t.Errorf("without its owner: %+v, %v, %v", got, ok, err)
	}
	key.ID, key.Owner = "2", "a"
	wantRefused(t, e, key, "", true)
	key.Owner = "b"
	swap(t, e, key, 0, "another owner in the same group")
	if found, err := e.List(t.Context(), "callback", "a workflow", "", 10); err != nil || len(found) != 2 {
		t.Errorf("listed %+v, %v", found, err)
	}
}

func goneCountsNone(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntriesPerOwner: 4})
	short := func(id string) {
		t.Helper()
		if _, ok, err := e.Swap(t.Context(), owned("a", id), 0, nil, time.Now().Add(300*time.Millisecond)); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	for range 3 {
		for _, id := range []string{"1", "2", "3"} {
			short(id)
		}
		wantRefused(t, e, owned("a", "4"), "", true)
		after(350 * time.Millisecond)
	}
	for range 5 {
		swap(t, e, owned("a", "5"), 0, end(""))
		if err := e.Delete(t.Context(), owned("a", "5")); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"1", "2", "3"} {
		short(id)
	}
}

// wantTasks compares the ids of the tasks of a group.
func wantTasks(t *testing.T, e Entries, of state.EntryKey, want ...string) {
	t.Helper()
	found, err := e.List(t.Context(), of.Kind, of.Group, "", 100)
	if err != nil || len(found) != len(want) {
		t.Errorf("%q: got %d entries, %v, want %q", of.Group, len(found), err, want)
		return
	}
	for i, id := range want {
		if found[i].Key.ID != id {
			t.Errorf("%q: place %d is %q, want %q", of.Group, i, found[i].Key.ID, id)
		}
	}
}

// totals are the rules of the bound of all owners.
var totals = map[string]func(*testing.T, EntriesHarness){
	"the largest owner's ended work makes space": largestMakesSpace,
	"tasks of all leave space for other kinds":   tasksLeaveSpace,
	"what is gone counts none for all":           goneLeavesSpace,
	"another owner may take over a name":         nameTakenOver,
}

func largestMakesSpace(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntries: 8, MaxEntriesPerOwner: 8})
	swap(t, e, owned("small", "1"), 0, end(""))
	for _, id := range []string{"1", "2", "3", "4"} {
		swap(t, e, owned("large", id), 0, end(""))
	}
	swap(t, e, owned("small", "2"), 0, "")
	swap(t, e, owned("new", "1"), 0, "")
	wantTasks(t, e, owned("large", ""), "2", "3", "4")
	swap(t, e, owned("new", "2"), 0, "")
	wantTasks(t, e, owned("large", ""), "3", "4")
	wantTasks(t, e, owned("small", ""), "1", "2")
	for _, id := range []string{"3", "4", "5"} {
		swap(t, e, owned("new", id), 0, "")
	}
	wantRefused(t, e, owned("newer", "1"), "", false)
}

func tasksLeaveSpace(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntries: 8, MaxEntriesPerOwner: 8})
	for _, owner := range []string{"a", "b", "c", "d", "e", "f"} {
		swap(t, e, owned(owner, "1"), 0, "")
	}
	wantRefused(t, e, owned("g", "1"), "", false)
	swap(t, e, kinded("session", owned("g", "1")), 0, "")
	swap(t, e, kinded("question", owned("g", "1")), 0, "")
	wantRefused(t, e, kinded("push", owned("g", "1")), "", false)
}

// goneLeavesSpace: also where its owner never comes again.
func goneLeavesSpace(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntries: 4, MaxEntriesPerOwner: 4})
	for range 2 {
		for _, id := range []string{"1", "2"} {
			if _, ok, err := e.Swap(t.Context(), owned("large", id), 0, []byte(end("")), time.Now().Add(300*time.Millisecond)); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
		after(350 * time.Millisecond)
		for _, owner := range []string{"a", "b", "c"} {
			swap(t, e, owned(owner, "1"), 0, "")
		}
		swap(t, e, kinded("session", owned("a", "1")), 0, "")
		wantRefused(t, e, kinded("session", owned("b", "1")), "", false)
		for _, key := range []state.EntryKey{owned("a", "1"), owned("b", "1"), owned("c", "1"), kinded("session", owned("a", "1"))} {
			if err := e.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// nameTakenOver: the account of who had an entry of that name before has no part in it.
func nameTakenOver(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntries: 4, MaxEntriesPerOwner: 4})
	key := state.EntryKey{Kind: "callback", Group: "w", ID: "1", Owner: "a"}
	if _, ok, err := e.Swap(t.Context(), key, 0, []byte(end("")), time.Now().Add(300*time.Millisecond)); err != nil || !ok {
		t.Fatal(ok, err)
	}
	after(350 * time.Millisecond)
	key.Owner = "b"
	first := swap(t, e, key, 0, "")
	for _, id := range []string{"1", "2", "3"} {
		swap(t, e, owned("c", id), 0, "")
	}
	wantRefused(t, e, owned("d", "1"), "", false)
	wantEntry(t, e, key, first, "")
	key.Owner = "c" // alive, it goes over to another owner
	swap(t, e, key, first, end(""))
	swap(t, e, kinded("session", owned("d", "1")), 0, "")
	wantEntry(t, e, key, 0, "")
}

// restartKeepsShares: what a driver brings back counts as before.
func restartKeepsShares(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntriesPerOwner: 4})
	swap(t, e, owned("a", "2"), 0, end("ended first"))
	swap(t, e, owned("a", "1"), 0, end("ended last"))
	swap(t, e, state.EntryKey{Kind: "callback", Group: "w", ID: "1", Owner: "a"}, 0, "")
	swap(t, e, kinded("mail", owned("a", "1")), 0, "")
	e = h.Reopen(t, e)
	swap(t, e, kinded("push", owned("a", "1")), 0, "")
	wantTasks(t, e, owned("a", ""), "1")
	swap(t, e, kinded("push", owned("a", "2")), 0, "")
	wantTasks(t, e, owned("a", ""))
	wantRefused(t, e, kinded("push", owned("a", "3")), "", true)
}
