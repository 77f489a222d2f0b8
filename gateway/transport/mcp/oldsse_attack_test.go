package mcp_test

import (
	"net/http"
	"testing"
)

// TestOverSSE_InitializeRefusedForNow: one that is refused for now can be sent again.
func TestOverSSE_InitializeRefusedForNow(t *testing.T) {
	t.Parallel()
	r := &lane{waits: make(chan struct{}), ended: make(chan struct{}, 256)}
	h := newOldPlace(t, r)
	busy, c := h.open(t, "ada"), h.open(t, "ada")
	busy.begin()
	for range 31 {
		busy.send(oldCall("wait"))
	}
	for { // until the reply to initialize has given its share back
		status, _ := busy.as("ada", busy.post, oldCall("wait"))
		if status == http.StatusTooManyRequests {
			break
		}
	}
	if status, body := c.as("ada", c.post, oldHello); status != http.StatusTooManyRequests {
		t.Fatalf("%d %s", status, body)
	}
	close(r.waits)
	busy.next()
	for {
		status, body := c.as("ada", c.post, oldHello)
		if status == http.StatusAccepted {
			break
		}
		if status != http.StatusTooManyRequests {
			t.Fatalf("again: %d %s", status, body)
		}
	}
	c.next()
}
