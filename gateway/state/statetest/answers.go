package statetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

var answers = map[string]func(*testing.T, Harness){
	"answers are kept":    answersKept,
	"answers are bounded": answersBounded,
	"answers expire":      answersExpire,
	"answers come and go": answersComeAndGo,

	"the largest owner's answers make space": answersOfTheLargest,
	"an owner has a share of the answers":    answersOfAnOwner,
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

// ownedAnswer is the key of an answer to a token of an owner.
func ownedAnswer(owner, jti string) ect.ReplayKey {
	return ect.ReplayKey{Issuer: ect.Identity(owner), ID: ect.ID(jti)}
}

func wantOwned(t *testing.T, d Driver, owner, jti string, want bool) {
	t.Helper()
	if _, ok := d.Load(t.Context(), ownedAnswer(owner, jti)); ok != want {
		t.Errorf("answer %s of %q is there: %v, want %v", jti, owner, ok, want)
	}
}

// answersOfTheLargest: when there is no space, the owner that has most loses its
// oldest answers, however long theirs and others' have left.
func answersOfTheLargest(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxAnswers: 6})
	soon, late := time.Now().Add(time.Minute), time.Now().Add(time.Hour)
	finish := func(owner, jti string, until time.Time) {
		d.Finish(t.Context(), ownedAnswer(owner, jti), []byte("answer"), until)
	}
	finish("victim", "1", soon)
	for _, jti := range []string{"3", "2", "1", "4", "5", "6", "7"} {
		finish("greedy", jti, late)
	}
	wantOwned(t, d, "victim", "1", true)
	finish("victim", "2", soon)
	finish("task\x00late\x00agent", "1", soon)
	wantOwned(t, d, "victim", "1", true)
	wantOwned(t, d, "victim", "2", true)
	wantOwned(t, d, "task\x00late\x00agent", "1", true)
	for jti, want := range map[string]bool{"3": false, "2": false, "1": false, "4": false, "5": true, "6": true, "7": true} {
		wantOwned(t, d, "greedy", jti, want)
	}
}

// answersOfAnOwner: an owner with more than its share loses its own oldest, also while
// there is space.
func answersOfAnOwner(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxAnswersBytesPerOwner: 3000})
	until := time.Now().Add(time.Hour)
	for _, jti := range []string{"1", "2", "3"} {
		d.Finish(t.Context(), ownedAnswer("greedy", jti), make([]byte, 1000), until)
		d.Finish(t.Context(), ownedAnswer("other", jti), []byte("answer"), until)
	}
	wantOwned(t, d, "greedy", "1", false)
	wantOwned(t, d, "greedy", "2", true)
	d.Finish(t.Context(), ownedAnswer("greedy", "2"), make([]byte, 1100), until) // in its own place
	wantOwned(t, d, "greedy", "3", true)
	d.Finish(t.Context(), ownedAnswer("greedy", "4"), make([]byte, 3000), until) // more than a share
	wantOwned(t, d, "greedy", "4", false)
	for _, jti := range []string{"1", "2", "3"} {
		wantOwned(t, d, "other", jti, true)
	}
	pass(time.Hour + time.Second)
	d.Finish(t.Context(), ownedAnswer("greedy", "5"), make([]byte, 1000), time.Now().Add(time.Hour))
	wantOwned(t, d, "greedy", "5", true)
}

// answersComeAndGo: what has expired counts no more.
func answersComeAndGo(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxAnswers: 50})
	for n := range 500 {
		jti, owner := strconv.Itoa(n), strconv.Itoa(n%3)
		d.Finish(t.Context(), ownedAnswer(owner, jti), []byte(jti), time.Now().Add(time.Second))
		if n%40 == 39 {
			pass(3 * time.Second)
		}
		wantOwned(t, d, owner, jti, n%40 != 39)
	}
	if u := d.UsageOf(state.KindAnswer); u.Entries > 50 || u.Evicted != 0 {
		t.Errorf("usage %+v", u)
	}
}
