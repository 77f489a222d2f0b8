package state_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// TestAttack_NamesakesBlockAnID is finding 15 and the rest of N8: more identities than a
// lookup finds use an id before the gateway does, and before another. Before, the tokens of
// these with that id were refused until theirs had ended. Now both are kept and found, no
// lookup finds more than its bound.
func TestAttack_NamesakesBlockAnID(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{})
	named := func(issuer string, own bool) ect.Record {
		return ect.Record{
			Compact: "token of " + issuer, ID: "id", Workflow: "w-" + issuer, Issuer: ect.Identity(issuer), Own: own, Until: time.Now().Add(time.Hour),
		}
	}
	for n := range 1000 {
		if err := m.Put(t.Context(), named(fmt.Sprint("attacker", n), false)); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []ect.Record{named("owner", false), named("gateway", true)} {
		if err := m.Put(t.Context(), r); err != nil {
			t.Errorf("%s: %v", r.Issuer, err)
		}
		for _, ref := range []ect.Ref{{ID: "id", Workflow: r.Workflow}, {ID: "id", Issuer: r.Issuer}} {
			found, err := m.Get(t.Context(), ref)
			if err != nil || len(found[0]) > ect.MaxNamesakes+2 || !slices.ContainsFunc(found[0], func(one ect.Record) bool { return one.Compact == r.Compact }) {
				t.Errorf("%+v: got %d records, %v", ref, len(found[0]), err)
			}
		}
	}
}

// TestAttack_MembersWithoutRecords: a caller makes workflows with as many members as may
// be, and lets their records go but for one. Before members were counted for their holder
// these would have taken memory that no bound knew of.
func TestAttack_MembersWithoutRecords(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{MaxTokenBytes: 4 << 20})
	var members []ect.Identity
	for n := range ect.MaxMembers {
		members = append(members, ect.Identity(fmt.Sprint("m", n)))
	}
	standing := 0
	for n := range 500 {
		wid := fmt.Sprint("w", n)
		for i, r := range []ect.Record{{Members: members}, {}} {
			r.Compact, r.ID, r.Workflow, r.Until = "t", ect.ID(fmt.Sprint(n, "-", i)), wid, time.Now().Add(time.Hour)
			r.Issuer, r.Holder, r.Own = "spiffe://a.test/mallory", "mallory", i == 1
			if err := m.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range 500 {
		if got, err := m.Standing(t.Context(), fmt.Sprint("w", n), "m0"); err == nil && got.Member {
			standing++
		}
	}
	if most := (4 << 20) / (64 * ect.MaxMembers); standing == 0 || standing > most {
		t.Errorf("%d workflows have their members, at most %d fit the store", standing, most)
	}
}
