package statetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

var conversations = map[string]func(*testing.T, Harness){
	"conversations stand at their last turn": conversationsLast,
	"conversations make room":                conversationsMakeRoom,
	"conversations end":                      conversationsEnd,
	"conversations have a share":             conversationsShare,
}

// wantTurn compares where a conversation stands, as workflow/id; "": nowhere.
func wantTurn(t *testing.T, d Driver, key, want string) {
	t.Helper()
	got := ""
	wid, id, ok, err := d.Last(t.Context(), key)
	if err != nil {
		t.Error(err)
	}
	if ok {
		got = wid + "/" + string(id)
	}
	if got != want {
		t.Errorf("conversation %q: got %q, want %q", key, got, want)
	}
}

func conversationsLast(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	d.Remember(t.Context(), "", "w", "1")
	wantTurn(t, d, "", "")
	wantTurn(t, d, "a", "")
	d.Remember(t.Context(), "a", "w", "1")
	d.Remember(t.Context(), "a", "w", "2")
	d.Remember(t.Context(), "b", "v", "1")
	wantTurn(t, d, "a", "w/2")
	wantTurn(t, d, "b", "v/1")
}

func conversationsMakeRoom(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxConversations: 2, ConversationLifetime: time.Hour})
	d.Remember(t.Context(), "a", "w", "1")
	pass(time.Minute)
	d.Remember(t.Context(), "b", "v", "1")
	pass(time.Minute)
	d.Remember(t.Context(), "a", "w", "2") // now b has rested longest
	d.Remember(t.Context(), "c", "u", "1")
	wantTurn(t, d, "a", "w/2")
	wantTurn(t, d, "b", "")
	wantTurn(t, d, "c", "u/1")
	if u := d.UsageOf(state.KindConversation); u.Entries != 2 || u.Evicted != 1 {
		t.Errorf("usage %+v", u)
	}
}

func conversationsEnd(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{ConversationLifetime: time.Hour})
	d.Remember(t.Context(), "a", "w", "1")
	pass(time.Hour)
	wantTurn(t, d, "a", "w/1")
	d.Remember(t.Context(), "a", "w", "2") // a turn prolongs it
	pass(time.Hour)
	wantTurn(t, d, "a", "w/2")
	pass(time.Nanosecond)
	wantTurn(t, d, "a", "")
}

// conversationsShare: an owner that begins more conversations than its share
// loses its own oldest, and no other owner's.
func conversationsShare(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxConversations: 4 * state.ConversationShares, ConversationLifetime: time.Hour})
	d.Remember(t.Context(), "victim\x00agent\x00c", "w", "1")
	name := func(n int) string { return "flooder\x00agent\x00" + strconv.Itoa(n) }
	for n := range 100 {
		pass(time.Millisecond)
		d.Remember(t.Context(), name(n), "f", ect.ID(strconv.Itoa(n)))
		d.Remember(t.Context(), name(n), "f", ect.ID(strconv.Itoa(n)))
	}
	wantTurn(t, d, "victim\x00agent\x00c", "w/1")
	for n := range 100 {
		want := ""
		if n >= 96 {
			want = "f/" + strconv.Itoa(n)
		}
		wantTurn(t, d, name(n), want)
	}
	pass(30 * time.Minute)
	d.Remember(t.Context(), name(96), "f", "again") // now 97 has rested longest
	d.Remember(t.Context(), name(200), "f", "200")
	wantTurn(t, d, name(96), "f/again")
	wantTurn(t, d, name(97), "")
	pass(2 * time.Hour) // all end, and there is room again
	for n := range 4 {
		d.Remember(t.Context(), name(n), "f", "new")
	}
	wantTurn(t, d, name(0), "f/new")
	wantTurn(t, d, "victim\x00agent\x00c", "")
}
