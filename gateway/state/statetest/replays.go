package statetest

import (
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

var replays = map[string]func(*testing.T, Harness){
	"replays are told apart":         replaysToldApart,
	"replays have whole keys":        replaysKeys,
	"replays refuse when full":       replaysFull,
	"replays before the epoch":       replaysBeforeTheEpoch,
	"replays are claimed once":       replaysRace,
	"replays of one key, at once":    replaysOneKey,
	"replays take room that is free": replaysRoomComesBack,
	"replays have shares":            replaysShares,
}

func replayKey(jti string) ect.ReplayKey {
	return ect.ReplayKey{Issuer: "i", Workflow: "w", ID: ect.ID(jti)}
}

func replayUse(token, body string, lives time.Duration) ect.ReplayUse {
	return ect.ReplayUse{Token: token, Body: body, Issued: time.Now(), Until: time.Now().Add(lives)}
}

func wantClaim(t *testing.T, d Driver, jti string, use ect.ReplayUse, want ect.ReplayState) {
	t.Helper()
	got, err := d.Claim(t.Context(), replayKey(jti), use)
	if err != nil || got != want {
		t.Errorf("claim of %s for %s, %s: got %d, %v, want %d", jti, use.Token, use.Body, got, err, want)
	}
}

// R6, first half.
func replaysToldApart(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	for _, tc := range []struct {
		jti, token, body string
		want             ect.ReplayState
	}{
		{"1", "t", "b", ect.ReplayFresh},
		{"1", "t", "b", ect.ReplaySame},
		{"1", "t", "other", ect.ReplayConflict},
		{"1", "other", "b", ect.ReplayConflict},
		{"1", "tb", "", ect.ReplayConflict},
		{"1", "t", "b", ect.ReplaySame},
		{"2", "t", "b", ect.ReplayFresh},
	} {
		wantClaim(t, d, tc.jti, replayUse(tc.token, tc.body, time.Minute), tc.want)
	}
	pass(time.Minute)
	wantClaim(t, d, "1", replayUse("t", "b", time.Minute), ect.ReplaySame) // its last instant
	pass(time.Nanosecond)
	wantClaim(t, d, "1", replayUse("t", "b", time.Minute), ect.ReplayFresh)
}

// Issuer, workflow and id are the key, and do not run into each other.
func replaysKeys(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	for _, k := range [][3]string{
		{"a", "b", "c"}, {"x", "b", "c"}, {"a", "x", "c"}, {"a", "b", "x"}, {"ab", "", "c"}, {"a", "bc", ""}, {"", "ab", "c"},
	} {
		key := ect.ReplayKey{Issuer: ect.Identity(k[0]), Workflow: k[1], ID: ect.ID(k[2])}
		if got, err := d.Claim(t.Context(), key, replayUse("t", "b", time.Hour)); got != ect.ReplayFresh || err != nil {
			t.Errorf("%v: %d, %v", key, got, err)
		}
	}
}

// A full cache refuses rather than forget: forgetting would let a token in twice.
func replaysFull(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxReplays: 2, MaxReplaysPerIssuer: 2})
	wantClaim(t, d, "1", replayUse("t", "b", time.Minute), ect.ReplayFresh)
	wantClaim(t, d, "2", replayUse("t", "b", time.Hour), ect.ReplayFresh)
	var full *state.UsesError
	if _, err := d.Claim(t.Context(), replayKey("3"), replayUse("t", "b", time.Hour)); !errors.As(err, &full) || full.RetryAfter != time.Minute {
		t.Fatalf("a full cache: %v", err)
	}
	wantClaim(t, d, "1", replayUse("t", "b", time.Minute), ect.ReplaySame)
	wantClaim(t, d, "2", replayUse("t", "x", time.Minute), ect.ReplayConflict)
}

// wantUses claims uses of tokens for an issuer until the first is refused.
func wantUses(t *testing.T, d Driver, issuer string, want int) {
	t.Helper()
	for n := 0; ; n++ {
		key := ect.ReplayKey{Issuer: ect.Identity(issuer), ID: ect.ID(rand.Text())}
		got, err := d.Claim(t.Context(), key, replayUse("t", "b", time.Minute))
		if err == nil && got == ect.ReplayFresh && n < want {
			continue
		}
		if full, ok := errors.AsType[*state.UsesError](err); !ok || !full.Own || full.RetryAfter <= 0 || n != want {
			t.Errorf("%s: use %d of %d: %v, %v", issuer, n, want, got, err)
		}
		return
	}
}

// replaysShares: an issuer has a quarter, and an eighth of that where three quarters are
// used; so it is after a restart, and what has run out counts for no issuer.
func replaysShares(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxReplays: 256})
	again := func() {
		if h.Reopen != nil {
			d = h.Reopen(t, d)
		}
	}
	wantUses(t, d, "mallory", 64)
	again()
	wantUses(t, d, "mallory", 0)
	wantUses(t, d, "oscar", 64)
	wantUses(t, d, "trudy", 64)
	again()
	wantUses(t, d, "honest", 8)
	wantUses(t, d, "honest too", 8)
	pass(time.Minute + time.Nanosecond)
	wantUses(t, d, "mallory", 64)
}

func replaysRoomComesBack(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxReplays: 1})
	wantClaim(t, d, "1", replayUse("t", "b", time.Minute), ect.ReplayFresh)
	pass(time.Minute + time.Nanosecond)
	wantClaim(t, d, "2", replayUse("t", "b", time.Minute), ect.ReplayFresh)
}

// R6, second half: what was issued before the epoch may have been used before.
func replaysBeforeTheEpoch(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	epoch := d.Epoch()
	if age := time.Since(epoch); age < 0 || age > time.Second {
		t.Fatalf("the epoch is %v away", age)
	}
	for name, tc := range map[string]struct {
		issued      time.Time
		first, then ect.ReplayState
	}{
		"before": {epoch.Add(-time.Second), ect.ReplayUnknown, ect.ReplayUnknown},
		"at":     {epoch, ect.ReplayFresh, ect.ReplaySame},
		"after":  {epoch.Add(time.Second), ect.ReplayFresh, ect.ReplaySame},
	} {
		use := ect.ReplayUse{Token: "t", Issued: tc.issued, Until: epoch.Add(time.Hour)}
		wantClaim(t, d, name, use, tc.first)
		wantClaim(t, d, name, use, tc.then)
	}
}

// Of many callers with one key exactly one is the first.
func replaysRace(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	var fresh atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for n := range 200 {
				got, err := d.Claim(t.Context(), replayKey(strconv.Itoa(n)), replayUse("t", "b", time.Hour))
				if err != nil {
					t.Error(err)
				}
				if got == ect.ReplayFresh {
					fresh.Add(1)
				}
			}
		})
	}
	group.Wait()
	if got := fresh.Load(); got != 200 {
		t.Errorf("%d firsts for 200 keys", got)
	}
}

// Of many uses of one key one is the first, and all others are conflicts.
func replaysOneKey(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	var counts [4]atomic.Int64
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			got, err := d.Claim(t.Context(), replayKey("1"), replayUse("t", strconv.Itoa(n), time.Hour))
			if err != nil {
				t.Error(err)
			}
			counts[got].Add(1)
		})
	}
	group.Wait()
	if fresh, conflicts := counts[ect.ReplayFresh].Load(), counts[ect.ReplayConflict].Load(); fresh != 1 || conflicts != 7 {
		t.Errorf("%d firsts and %d conflicts of 8", fresh, conflicts)
	}
}
