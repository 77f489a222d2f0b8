package statetest

import (
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

var answers = map[string]func(*testing.T, Harness){
	"answers are kept":    answersKept,
	"answers are bounded": answersBounded,
	"answers expire":      answersExpire,
}

// wantAnswer compares a stored answer; "": there should be none.
func wantAnswer(t *testing.T, d Driver, jti, want string) {
	t.Helper()
	if got, ok := d.Load(t.Context(), replayKey(jti)); string(got) != want || ok != (want != "") {
		t.Errorf("answer %s: got %.20q, %v, want %.20q", jti, got, ok, want)
	}
}

func answersKept(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	until := time.Now().Add(time.Minute)
	blob := []byte("answer")
	d.Finish(t.Context(), replayKey("1"), blob, until)
	blob[0] = 'x'
	got, _ := d.Load(t.Context(), replayKey("1"))
	if string(got) != "answer" {
		t.Fatalf("got %q: the giver changed it", got)
	}
	got[0] = 'y'
	wantAnswer(t, d, "1", "answer")
	wantAnswer(t, d, "2", "")
	d.Finish(t.Context(), replayKey("1"), []byte("later"), until)
	wantAnswer(t, d, "1", "later")
}

func answersBounded(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxAnswerBytes: 100, MaxAnswersBytes: 1000})
	soon, late := time.Now().Add(time.Minute), time.Now().Add(time.Hour)
	largest := make([]byte, 100)
	d.Finish(t.Context(), replayKey("1"), []byte("soon"), soon)
	d.Finish(t.Context(), replayKey("2"), make([]byte, 101), late)
	wantAnswer(t, d, "2", "") // larger than any answer may be
	d.Finish(t.Context(), replayKey("3"), largest, late)
	d.Finish(t.Context(), replayKey("4"), largest, late) // now there is no room for all three
	wantAnswer(t, d, "1", "")
	wantAnswer(t, d, "3", string(largest))
	wantAnswer(t, d, "4", string(largest))
	if u := d.UsageOf(state.KindAnswer); u.Entries != 2 || u.Bytes > 1000 || u.Evicted != 1 {
		t.Errorf("usage %+v", u)
	}
}

func answersExpire(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	d.Finish(t.Context(), replayKey("1"), []byte("answer"), time.Now().Add(time.Hour))
	pass(time.Hour)
	wantAnswer(t, d, "1", "answer")
	pass(time.Nanosecond)
	wantAnswer(t, d, "1", "")
}
