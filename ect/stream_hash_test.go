package ect_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/ect"
)

func TestStreamHash_FramesMessages(t *testing.T) {
	var none, one, split, joined ect.StreamHash
	one.Add([]byte("abc"))
	split.Add([]byte("ab"))
	split.Add([]byte("c"))
	joined.Add([]byte("ab\x00\x00\x00\x00\x00\x00\x00\x01c"))
	// The framed bytes written out: eight of length, then the message.
	if want := ect.Hash([]byte("\x00\x00\x00\x00\x00\x00\x00\x03abc")); one.Sum() != want {
		t.Errorf("one message: %s, want %s", one.Sum(), want)
	}
	if want := ect.Hash([]byte("\x00\x00\x00\x00\x00\x00\x00\x02ab\x00\x00\x00\x00\x00\x00\x00\x01c")); split.Sum() != want {
		t.Errorf("two messages: %s, want %s", split.Sum(), want)
	}
	if one.Sum() == split.Sum() || split.Sum() == joined.Sum() {
		t.Error("where one message ends and the next begins is not in the hash")
	}
	if none.Sum() != ect.Hash(nil) || split.Count() != 2 || none.Count() != 0 {
		t.Error("an empty stream has the hash of nothing")
	}
	if before := split.Sum(); before != split.Sum() {
		t.Error("looking at the hash changes it")
	}
}
