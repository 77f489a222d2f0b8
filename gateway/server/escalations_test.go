package server

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway/breakers"
)

// TestEscalations_Waiting: what adds an escalation does not wait for its receiver; of too many
// that wait, the latest are dropped.
func TestEscalations_Waiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &escalations{logger: slog.New(slog.DiscardHandler), queue: make(chan breakers.Event, maxEscalations)}
		for range 2 * maxEscalations {
			e.add(t.Context(), breakers.Event{Agent: "one"})
		}
		if len(e.queue) != maxEscalations {
			t.Errorf("%d wait", len(e.queue))
		}
	})
}
