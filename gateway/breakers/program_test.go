package breakers_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// TestAttack_OneCallerEndsItsProgram: a process belongs to one caller, who can end it by what it
// sends; the processes of others go on, and so do their calls.
func TestAttack_OneCallerEndsItsProgram(t *testing.T) {
	t.Parallel()
	ended := &stdio.EndedError{Err: errors.New("exit status 1")}
	for name, why := range map[string]error{
		"ended": ended,
		"waits": &stdio.WaitError{After: time.Minute, Err: ended.Err},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneCallerFails(t, &transport.UnreachableError{Agent: "calculator", Err: why})
		})
	}
}
