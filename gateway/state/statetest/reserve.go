package statetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// reserves are the rules of what other kinds leave to records.
var reserves = map[string]func(*testing.T, EntriesHarness){
	"two kinds of all leave space for records":         kindsLeaveReserve,
	"two kinds of an owner leave space for its record": ownerLeavesReserve,
	"bytes of two kinds leave space for records":       bytesLeaveReserve,
	"records of one owner refuse none of another":      recordsStayInShare,
	"ended work makes space in the reserve's bound":    endedMakesSpaceForBulk,
	"a record is not dropped before its end":           recordStays,
	"what is gone leaves the bound of other kinds":     goneLeavesBulk,
}

// reserved are bounds of 16 entries, of which 2 are for records.
func reserved(perOwner int) state.Config {
	return state.Config{MaxEntries: 16, MaxEntriesPerOwner: perOwner, RecordKinds: []string{"decision", "breaker"}}
}

func decision(owner, id string) state.EntryKey { return kinded("decision", owned(owner, id)) }

// fill puts entries of tasks and sessions in turn, each of its own owner or all of one, and expects that the one
// after the last is refused.
func fill(t *testing.T, e Entries, owner func(n int) string, count int, value string, own bool) {
	t.Helper()
	kinds := []string{"task", "session"}
	for n := range count {
		swap(t, e, kinded(kinds[n%2], owned(owner(n), fmt.Sprint(n))), 0, value)
	}
	for _, kind := range kinds {
		wantRefused(t, e, kinded(kind, owned(owner(count), "over")), value, own)
	}
}

func oneOwner(owner string) func(int) string { return func(int) string { return owner } }

func manyOwners(n int) string { return fmt.Sprint("owner ", n) }

func kindsLeaveReserve(t *testing.T, h EntriesHarness) {
	e := h.Open(t, reserved(16))
	fill(t, e, manyOwners, 14, "", false)
	first := swap(t, e, decision("a", "1"), 0, "")
	swap(t, e, kinded("breaker", owned("b", "1")), 0, "")
	swap(t, e, decision("a", "1"), first, "what is there may change")
	wantRefused(t, e, decision("c", "1"), "", false)
}

func ownerLeavesReserve(t *testing.T, h EntriesHarness) {
	e := h.Open(t, reserved(8))
	fill(t, e, oneOwner("a"), 7, "", true)
	swap(t, e, decision("a", "1"), 0, "")
	wantRefused(t, e, decision("a", "2"), "", true)
	swap(t, e, decision("b", "1"), 0, "")
}

func bytesLeaveReserve(t *testing.T, h EntriesHarness) {
	large := string(make([]byte, 8000))
	config := reserved(16)
	config.MaxEntriesBytes, config.MaxEntriesBytesPerOwner = 40_000, 40_000
	e := h.Open(t, config)
	fill(t, e, manyOwners, 4, large, false)
	swap(t, e, decision("a", "1"), 0, large[:4000])
	config.MaxEntriesBytes = 400_000
	e = h.Open(t, config)
	fill(t, e, oneOwner("a"), 4, large, true)
	swap(t, e, decision("a", "1"), 0, large[:4000])
}

func recordsStayInShare(t *testing.T, h EntriesHarness) {
	e := h.Open(t, reserved(4))
	fill(t, e, manyOwners, 14, "", false)
	swap(t, e, decision("a", "1"), 0, "")
	for _, owner := range []int{1, 2, 3} {
		if err := e.Delete(t.Context(), kinded([]string{"task", "session"}[owner%2], owned(manyOwners(owner), fmt.Sprint(owner)))); err != nil {
			t.Fatal(err)
		}
	}
	swap(t, e, decision("a", "2"), 0, "")
	swap(t, e, decision("a", "3"), 0, "")
	wantRefused(t, e, decision("a", "4"), "", true)
	swap(t, e, kinded("breaker", owned("a", "1")), 0, "")
	wantRefused(t, e, kinded("breaker", owned("a", "2")), "", true)
	swap(t, e, decision("b", "1"), 0, "")
}

func endedMakesSpaceForBulk(t *testing.T, h EntriesHarness) {
	e := h.Open(t, reserved(16))
	swap(t, e, kinded("mail", owned("a", "1")), 0, end(""))
	fill(t, e, manyOwners, 14, "", false)
	swap(t, e, decision("a", "1"), 0, "")
}

// recordStays: also where it says that it has ended.
func recordStays(t *testing.T, h EntriesHarness) {
	e := h.Open(t, reserved(8))
	key := decision("a", "1")
	revision := swap(t, e, key, 0, end(""))
	fill(t, e, oneOwner("a"), 7, "", true)
	wantEntry(t, e, key, revision, end(""))
	wantRefused(t, e, decision("a", "2"), end(""), true)
}

// goneLeavesBulk: what has expired, whose owners never come again, counts no more.
func goneLeavesBulk(t *testing.T, h EntriesHarness) {
	e := h.Open(t, reserved(16))
	for n := range 14 {
		key := kinded([]string{"task", "session"}[n%2], owned(manyOwners(n), "1"))
		if _, ok, err := e.Swap(t.Context(), key, 0, nil, time.Now().Add(300*time.Millisecond)); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	after(350 * time.Millisecond)
	fill(t, e, func(n int) string { return fmt.Sprint("later ", n) }, 14, "", false)
	swap(t, e, decision("a", "1"), 0, "")
}

func restartKeepsReserve(t *testing.T, h EntriesHarness) {
	e := h.Open(t, reserved(16))
	fill(t, e, manyOwners, 14, "", false)
	e = h.Reopen(t, e)
	wantRefused(t, e, owned("over", "1"), "", false)
	swap(t, e, decision("a", "1"), 0, "")
	e = h.Reopen(t, e)
	swap(t, e, decision("b", "1"), 0, "")
	wantRefused(t, e, kinded("push", owned("over", "1")), "", false)
}
