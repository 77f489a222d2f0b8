package ect_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

// TestRecorder_HoldUntil: the later of the usual end and the hold counts, and no hold is longer than MaxHold beyond
// the usual end.
func TestRecorder_HoldUntil(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	usual := s.Now.Add(600*time.Second + time.Hour)
	for name, c := range map[string]struct {
		hold, until time.Time
		onHold      bool
		err         error
	}{
		"none":                 {until: usual},
		"before the usual end": {hold: s.Now, until: usual, onHold: true},
		"after the usual end":  {hold: usual.Add(time.Minute), until: usual.Add(time.Minute), onHold: true},
		"as long as may be":    {hold: usual.Add(ect.MaxHold), until: usual.Add(ect.MaxHold), onHold: true},
		"too long":             {hold: usual.Add(ect.MaxHold + 1), err: ect.ErrHold},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claims := s.Claims()
			claims.ID = ect.NewID()
			token, err := s.From.Signer(t, s.clock).Sign(claims)
			if err != nil {
				t.Fatal(err)
			}
			store := ecttest.NewStore()
			receipt, err := newRecorder(t, store).Record(t.Context(), token, ect.Filing{HoldUntil: c.hold})
			found, findErr := ecttest.Find(t.Context(), store, token.ID())
			if findErr != nil {
				t.Fatal(findErr)
			}
			if c.err != nil {
				if !errors.Is(err, c.err) || receipt.ID() != "" || len(found) != 0 {
					t.Errorf("got %v, %q and %d records, want %v and none", err, receipt.ID(), len(found), c.err)
				}
				return
			}
			if err != nil || len(found) != 1 || !found[0].Until.Equal(c.until) || found[0].OnHold != c.onHold {
				t.Errorf("got %+v, %v, want it until %v, on hold %v", found, err, c.until, c.onHold)
			}
		})
	}
}

// TestRecorder_HoldsOwnTokensOnly: the token of another cannot be held, for whatever time.
func TestRecorder_HoldsOwnTokensOnly(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	store := ecttest.NewStore()
	verified, err := s.verifier(t).Verify(t.Context(), ecttest.Mint(t, s.From, ecttest.Recipe{Claims: s.Claims()}), ect.Check{Purpose: ect.Parent})
	if err != nil {
		t.Fatal(err)
	}
	for _, hold := range []time.Time{s.Now, s.Now.Add(240 * time.Hour)} {
		if err := newRecorder(t, store).Keep(t.Context(), verified, ect.Filing{HoldUntil: hold}); !errors.Is(err, ect.ErrHold) {
			t.Errorf("until %v: got %v, want ErrHold", hold, err)
		}
	}
}
