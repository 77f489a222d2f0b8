package client

import (
	"encoding/json"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
)

// TestAttack_RefusalForgesTerminalLines: finding 16, for what a gateway says of a refusal.
func TestAttack_RefusalForgesTerminalLines(t *testing.T) {
	t.Parallel()
	body, err := json.Marshal(map[string]string{"code": terminaltest.Hostile, "detail": terminaltest.Hostile})
	if err != nil {
		t.Fatal(err)
	}
	terminaltest.Harmless(t, "a refusal", Answer{Status: 403, Body: body}.Refusal().Error(), 0)
}
