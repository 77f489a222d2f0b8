package breakers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/outbound"
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

// TestAttack_CallersEndASharedProgram: one caller after the other ends a program that all share.
// The calls of others that end with it are no failures of the agent, or of these others.
func TestAttack_CallersEndASharedProgram(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(func(context.Context, *outbound.Call) (outbound.Reply, error) {
			return outbound.Reply{}, &transport.UnreachableError{Agent: "calculator", Err: &stdio.EndedError{Err: errors.New("exit status 1"), Other: true}}
		})
		r := fleet(t, a, "one")[0]
		for n := range 100 {
			if err := r.call(t.Context(), ect.Identity(fmt.Sprint("spiffe://example.org/", n%7))); refused(err) != 0 {
				t.Fatalf("after %d calls: %v", n, err)
			}
		}
		a.is(good)
		if err := r.call(t.Context(), ann); err != nil {
			t.Errorf("the agent works again: %v", err)
		}
	})
}
