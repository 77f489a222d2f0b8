package ect_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

func newRecorder(t *testing.T, store ect.Store) *ect.Recorder {
	t.Helper()
	r, err := ect.NewRecorder(ect.RecorderDeps{Store: store, Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecorder_Record(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	store := ecttest.NewStore()
	c := s.Claims()
	c.Parents = []ect.ID{ect.NewID()}
	token, err := s.From.Signer(t, s.clock).Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	recorder := newRecorder(t, store)
	for range 2 { // a repetition gets its receipt again
		receipt, err := recorder.Record(t.Context(), token, ect.Filing{Holder: "id:holder", Members: []ect.Identity{"spiffe://member.test/a"}})
		if err != nil {
			t.Fatal(err)
		}
		if receipt.ID() != token.ID() || receipt.Compact() != token.Compact() || receipt.OutputHash() != ect.Hash(s.Body) {
			t.Errorf("got receipt for %s", receipt.ID())
		}
	}
	got, err := ecttest.Find(t.Context(), store, token.ID())
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	want := ect.Record{
		Compact: token.Compact(), ID: token.ID(), Workflow: c.Workflow, Issuer: s.From.ID, Audience: c.Audience,
		Act: c.Act, Parents: c.Parents, Until: s.Now.Add(600*time.Second + time.Hour),
		Own: true, Holder: "id:holder", Members: []ect.Identity{"spiffe://member.test/a"},
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecorder_KeepOtherBytesConflict(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	store := ecttest.NewStore()
	recorder := newRecorder(t, store)
	c := s.Claims()
	c.ID = ect.NewID()
	for i, want := range []bool{true, false} { // the second has other bytes
		v, err := s.verifier(t).Verify(t.Context(), ecttest.Mint(t, s.From, ecttest.Recipe{Claims: c}), ect.Check{Purpose: ect.Parent})
		if err != nil {
			t.Fatal(err)
		}
		err = recorder.Keep(t.Context(), v, ect.Filing{})
		var conflict *ect.ConflictError
		if want != (err == nil) || !want && (!errors.As(err, &conflict) || conflict.ID != c.ID) {
			t.Errorf("%d: got %v", i, err)
		}
	}
}

// However far away the exp is that another chose, his token is kept for a day and the retention; ours as we said.
func TestRecorder_KeepsForeignTokensADayAtMost(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	store, now := ecttest.NewStore(), s.Now.Add(30*time.Hour)
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: store, Retention: time.Hour, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: s.keys, Audience: []string{"anyone"}, Replay: ecttest.NewReplay(), MaxLifetime: 1 << 62, Now: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ expires, until time.Time }{
		"in a hundred years": {s.Now.AddDate(100, 0, 0), now.Add(ect.MaxLifetime + time.Hour)},
		"before now":         {s.Now.Add(time.Minute), s.Now.Add(time.Minute + time.Hour)},
		"within a day":       {now.Add(time.Hour), now.Add(2 * time.Hour)},
		"after two days":     {now.Add(48 * time.Hour), now.Add(ect.MaxLifetime + time.Hour)},
	} {
		claims := s.Claims()
		claims.ID, claims.Expires = ect.NewID(), c.expires.Unix()
		v, err := verifier.Verify(t.Context(), ecttest.Mint(t, s.From, ecttest.Recipe{Claims: claims}), ect.Check{Purpose: ect.Parent})
		if err != nil {
			t.Fatal(name, err)
		}
		if err := recorder.Keep(t.Context(), v, ect.Filing{}); err != nil {
			t.Fatal(name, err)
		}
		found, err := ecttest.Find(t.Context(), store, claims.ID)
		if err != nil || len(found) != 1 || !found[0].Until.Equal(c.until) {
			t.Errorf("%s: kept %+v, %v, want until %v", name, found, err, c.until)
		}
	}
}

// A parent may have expired, and may not live longer than any token.
func TestParent_LifetimeIsBounded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for lifetime, want := range map[time.Duration]bool{time.Second: true, 24 * time.Hour: true, 24*time.Hour + time.Second: false, 70_000 * time.Hour: false} {
		claims := s.Claims()
		claims.ID, claims.IssuedAt = ect.NewID(), s.Now.Add(-1000*time.Hour).Unix()
		claims.Expires = claims.IssuedAt + int64(lifetime/time.Second)
		_, err := s.verifier(t).Verify(t.Context(), ecttest.Mint(t, s.From, ecttest.Recipe{Claims: claims}), ect.Check{Purpose: ect.Parent})
		if want && err != nil {
			t.Errorf("%v: %v", lifetime, err)
		}
		if !want {
			wantReason(t, err, ect.ReasonLifetimeTooLong)
		}
	}
}

type brokenStore struct {
	ect.Store
	err error
}

func (s brokenStore) Put(context.Context, ect.Record) error { return s.err }

func TestRecorder_NoReceiptWithoutARecord(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	token, err := s.From.Signer(t, s.clock).Sign(s.Claims())
	if err != nil {
		t.Fatal(err)
	}
	trouble := errors.New("trouble")
	receipt, err := newRecorder(t, brokenStore{err: trouble}).Record(t.Context(), token, ect.Filing{})
	if !errors.Is(err, trouble) || receipt != (ect.Receipt{}) {
		t.Errorf("a broken store: got %v, %v", receipt, err)
	}
	recorder := newRecorder(t, ecttest.NewStore())
	if receipt, err := recorder.Record(t.Context(), ect.Token{}, ect.Filing{}); !errors.Is(err, ect.ErrNoToken) || receipt != (ect.Receipt{}) {
		t.Errorf("a zero token: got %v, %v", receipt, err)
	}
	if err := recorder.Keep(t.Context(), ect.Verified{}, ect.Filing{}); !errors.Is(err, ect.ErrNoToken) {
		t.Errorf("a zero Verified: got %v", err)
	}
}

func TestNewRecorder_Refuses(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]ect.RecorderDeps{
		"no store":             {},
		"a negative retention": {Store: ecttest.NewStore(), Retention: -1},
	} {
		if _, err := ect.NewRecorder(d); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
