package store

import (
	"errors"
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestInputState_Next: a question is claimed, answered or expires once, and only one that was claimed is
// reopened.
func TestInputState_Next(t *testing.T) {
	t.Parallel()
	all := []InputState{InputOpen, InputClaimed, InputAnswered, InputReopened, InputExpired}
	follows := map[InputState][]InputState{InputOpen: {InputClaimed, InputAnswered, InputExpired}, InputClaimed: {InputReopened}}
	for _, from := range all {
		for _, next := range all {
			state, want := from, slices.Contains(follows[from], next)
			if got := state.to(next); got != want || want != (state == next && state != from) {
				t.Errorf("%d to %d: %v, and it stands as %d", from, next, got, state)
			}
		}
	}
}

// TestInput_Take: the first answer counts; a client's error and what does not fit leave the question open;
// what expires is canceled, and no answer to that counts.
func TestInput_Take(t *testing.T) {
	t.Parallel()
	answer := func(action canonical.Action) AnswerForRound {
		return AnswerForRound{Answer: canonical.Answer{Key: "k", Action: action}}
	}
	in := Input{Input: canonical.Input{Key: "k", Mode: canonical.ModeForm}}
	failed := answer(canonical.Accept)
	failed.Failure = &canonical.Error{Code: canonical.CodeInternal, Message: "no window"}
	if _, refused := errors.AsType[*canonical.Error](in.Take(failed)); !refused || in.State != InputOpen {
		t.Errorf("a client's error is an answer: %+v", in)
	}
	if err := in.Take(answer(canonical.Decline)); err != nil || in.State != InputAnswered || in.Answer.Action != canonical.Decline {
		t.Errorf("the first answer: %+v, %v", in, err)
	}
	if err := in.Take(answer(canonical.Cancel)); err != nil || in.Answer.Action != canonical.Decline {
		t.Errorf("the second answer counts: %+v, %v", in, err)
	}
	if in.Expire(); in.State != InputAnswered {
		t.Errorf("an answered question expires: %+v", in)
	}
	late := Input{Input: canonical.Input{Key: "k", Mode: canonical.ModeForm}}
	late.Expire()
	if err := late.Take(answer(canonical.Accept)); err != nil || late.State != InputExpired || late.Answer.Action != canonical.Cancel {
		t.Errorf("an answer that is late counts: %+v, %v", late, err)
	}
}

// TestClaim_OneAnswers: of two messages one claims the questions; only that one puts them back, once, and
// not after something has come of its answer.
func TestClaim_OneAnswers(t *testing.T) {
	t.Parallel()
	asks := Record{OpenInput: OpenInput{Resume: ResumeTask}}
	asks.Task.Status.State, asks.Task.Inputs = canonical.StateInputRequired, []canonical.Input{{Key: "k"}}
	s, _, rec := stored(t, asks)
	other := *rec
	first, second := NewClaim(rec), NewClaim(&other)
	if err := s.Claim(t.Context(), first, "answer"); err != nil || !first.Holds() {
		t.Fatalf("the first message: %v", err)
	}
	if _, conflict := errors.AsType[*problem.ConflictError](s.Claim(t.Context(), second, "answer")); !conflict || second.Holds() {
		t.Error("the second message answers too")
	}
	if ok, err := s.Reopen(t.Context(), second); ok || err != nil {
		t.Errorf("the second message reopens what is not its: %v", err)
	}
	for i := range 2 {
		if ok, err := s.Reopen(t.Context(), first); ok != (i == 0) || err != nil {
			t.Errorf("reopened %v at the %d. time: %v", ok, i+1, err)
		}
	}
	now, err := s.Load(t.Context(), rec.Key)
	if err != nil || now.Resume != ResumeTask || len(now.Inputs()) != 1 || now.Round != 0 {
		t.Errorf("on record is %+v: %v", now, err)
	}
}
