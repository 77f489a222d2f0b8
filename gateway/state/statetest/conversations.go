package statetest

import (
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

var conversations = map[string]func(*testing.T, Harness){
	"conversations stand at their last turn": conversationsLast,
	"conversations make room":                conversationsMakeRoom,
	"conversations end":                      conversationsEnd,
}

// wantTurn compares where a conversation stands, as workflow/id; "": nowhere.
func wantTurn(t *testing.T, d Driver, key, want string) {
	t.Helper()
	got := ""
	if wid, id, ok := d.Last(t.Context(), key); ok {
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
