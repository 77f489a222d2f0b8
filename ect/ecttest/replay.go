package ecttest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Replay is a fake ect.ReplayCache that forgets nothing.
type Replay struct {
	mu   sync.Mutex
	uses map[ect.ReplayKey]ect.ReplayUse
}

// NewReplay has seen nothing.
func NewReplay() *Replay { return &Replay{uses: map[ect.ReplayKey]ect.ReplayUse{}} }

var _ ect.ReplayCache = (*Replay)(nil)

// Claim notes a use.
func (r *Replay) Claim(_ context.Context, key ect.ReplayKey, use ect.ReplayUse) (ect.ReplayState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, ok := r.uses[key]
	switch {
	case !ok:
		r.uses[key] = use
		return ect.ReplayFresh, nil
	case old.Token == use.Token && old.Body == use.Body:
		return ect.ReplaySame, nil
	default:
		return ect.ReplayConflict, nil
	}
}

// ReplaySuite is the contract of ect.ReplayCache. open makes an empty cache for
// each case, which counts from then on.
func ReplaySuite(t *testing.T, open func() ect.ReplayCache) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, ect.ReplayCache){
		"tells same from conflict":   replayStates,
		"a conflict changes nothing": replayKeeps,
		"keys are whole":             replayKeys,
		"fresh is told once":         replayRace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open())
		})
	}
}

func replayKey() ect.ReplayKey {
	return ect.ReplayKey{Issuer: "spiffe://example.org/a", Workflow: string(ect.NewID()), ID: ect.NewID()}
}

// replayUse is issued a moment from now, so that no cache is younger than it; one that waits
// for the date of a token does not wait long.
func replayUse(token, body string) ect.ReplayUse {
	now := time.Now()
	return ect.ReplayUse{
		Token: ect.Hash([]byte(token)), Body: ect.Hash([]byte(body)),
		Issued: now.Add(time.Second), Until: now.Add(10 * time.Minute),
	}
}

func claim(t *testing.T, c ect.ReplayCache, key ect.ReplayKey, use ect.ReplayUse, want ect.ReplayState) {
	t.Helper()
	got, err := c.Claim(t.Context(), key, use)
	if err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func replayStates(t *testing.T, c ect.ReplayCache) {
	t.Helper()
	key := replayKey()
	claim(t, c, key, replayUse("token", "body"), ect.ReplayFresh)
	claim(t, c, key, replayUse("token", "body"), ect.ReplaySame)
	claim(t, c, key, replayUse("token", "other"), ect.ReplayConflict)
	claim(t, c, key, replayUse("other", "body"), ect.ReplayConflict)
	bodyless := replayUse("token", "")
	bodyless.Body = ""
	claim(t, c, key, bodyless, ect.ReplayConflict)
}

func replayKeeps(t *testing.T, c ect.ReplayCache) {
	t.Helper()
	key := replayKey()
	claim(t, c, key, replayUse("token", "body"), ect.ReplayFresh)
	claim(t, c, key, replayUse("token", "other"), ect.ReplayConflict)
	claim(t, c, key, replayUse("token", "other"), ect.ReplayConflict)
	claim(t, c, key, replayUse("token", "body"), ect.ReplaySame)
}

func replayKeys(t *testing.T, c ect.ReplayCache) {
	t.Helper()
	key := replayKey()
	claim(t, c, key, replayUse("token", "body"), ect.ReplayFresh)
	issuer, workflow, none, id, shifted := key, key, key, key, key
	issuer.Issuer = "spiffe://example.org/b"
	workflow.Workflow = string(ect.NewID())
	none.Workflow = ""
	id.ID = ect.NewID()
	shifted.Issuer, shifted.Workflow = key.Issuer+ect.Identity(key.Workflow[:1]), key.Workflow[1:]
	for _, other := range []ect.ReplayKey{issuer, workflow, none, id, shifted} {
		claim(t, c, other, replayUse("token", "body"), ect.ReplayFresh)
	}
}

func replayRace(t *testing.T, c ect.ReplayCache) {
	t.Helper()
	const callers = 16
	key := replayKey()
	use := replayUse("token", "body")
	states := make([]ect.ReplayState, callers)
	errs := make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() { states[i], errs[i] = c.Claim(t.Context(), key, use) })
	}
	group.Wait()
	fresh := 0
	for i := range callers {
		if errs[i] != nil {
			t.Error(errs[i])
		}
		switch states[i] {
		case ect.ReplayFresh:
			fresh++
		case ect.ReplaySame:
		default:
			t.Errorf("caller %d: got %v", i, states[i])
		}
	}
	if fresh != 1 {
		t.Errorf("%d callers were told fresh, want 1", fresh)
	}
}
