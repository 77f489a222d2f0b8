package ect_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

const self = "spiffe://gw.example.com/aepb"

// scene is a sender, a receiver and the receiver's clock.
type scene struct {
	ecttest.Situation
	keys   *ecttest.Keys
	replay *ecttest.Replay
}

func newScene(tb testing.TB) *scene {
	tb.Helper()
	from, other := ecttest.NewParty(tb, "spiffe://example.com/agent/a"), ecttest.NewParty(tb, "spiffe://example.com/agent/b")
	return &scene{
		Situation: ecttest.Situation{
			From: from, Other: other, Stranger: ecttest.NewParty(tb, "spiffe://evil.example/agent"),
			Audience: self, Body: []byte(`{"text":"hello"}`), Now: time.Unix(1772064000, 0),
		},
		keys: ecttest.KeysOf(from, other), replay: ecttest.NewReplay(),
	}
}

func (s *scene) deps() ect.VerifierDeps {
	return ect.VerifierDeps{
		Keys: s.keys, Replay: s.replay, Audience: []string{"https://gw.example.com", self},
		Now: func() time.Time { return s.Now },
	}
}

func (s *scene) verifier(tb testing.TB) *ect.Verifier {
	tb.Helper()
	return verifierOf(tb, s.deps())
}

func verifierOf(tb testing.TB, d ect.VerifierDeps) *ect.Verifier {
	tb.Helper()
	v, err := ect.NewVerifier(d)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func (s *scene) source() ect.Check {
	return ect.Check{Purpose: ect.Source, Peer: s.From.Peer(), Body: ect.Hash(s.Body)}
}

func (s *scene) clock() time.Time { return s.Now }

// wantReason demands an *ect.InvalidError of exactly this reason.
func wantReason(tb testing.TB, err error, want ect.Reason) {
	tb.Helper()
	var invalid *ect.InvalidError
	if !errors.As(err, &invalid) || invalid.Reason != want {
		tb.Errorf("got %v, want %s", err, want)
	}
}

type brokenKeys struct{ err error }

func (k brokenKeys) Resolve(context.Context, ect.KeyRequest) (ect.Peer, error) {
	return ect.Peer{}, k.err
}

type fixedKeys struct{ ect.Peer }

func (k fixedKeys) Resolve(context.Context, ect.KeyRequest) (ect.Peer, error) { return k.Peer, nil }

type fixedReplay struct {
	state ect.ReplayState
	err   error
}

func (r fixedReplay) Claim(context.Context, ect.ReplayKey, ect.ReplayUse) (ect.ReplayState, error) {
	return r.state, r.err
}
