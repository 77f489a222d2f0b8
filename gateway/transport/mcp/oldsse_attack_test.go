package mcp_test

import (
	"net/http"
	"testing"
	"time"
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
	for end := time.Now().Add(10 * time.Second); ; { // until the reply to initialize has given its share back
		status, _ := busy.as("ada", busy.post, oldCall("wait"))
		if status == http.StatusTooManyRequests {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the share is never taken: %d", status)
		}
	}
	if status, body := c.as("ada", c.post, oldHello); status != http.StatusTooManyRequests {
		t.Fatalf("%d %s", status, body)
	}
	close(r.waits)
	busy.next()
	for end := time.Now().Add(10 * time.Second); ; {
		status, body := c.as("ada", c.post, oldHello)
		if status == http.StatusAccepted {
			break
		}
		if status != http.StatusTooManyRequests || time.Now().After(end) {
			t.Fatalf("again: %d %s", status, body)
		}
	}
	c.next()
}
