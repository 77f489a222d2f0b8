package mcp_test

import (
	"fmt"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestAttack_SessionsAtServersWithoutEnd: a caller who begins more sessions than there is room for
// ends its own; what another caller began goes on, however long ago that was used.
func TestAttack_SessionsAtServersWithoutEnd(t *testing.T) {
	t.Parallel()
	server := newLegacy(mcp.Legacy)
	p := newPeer(t, server.serve)
	d := newDialer(t, &direct{}, nil)
	call := func(caller ect.Identity, session string) string {
		at := endpoint(p, mcp.Legacy)
		at.Caller, at.Session = caller, session
		if _, err := d.Dial(t.Context(), at, seal(t, mcp.Legacy, "1")); err != nil {
			t.Fatal(err)
		}
		return p.last().header.Get("Mcp-Session-Id")
	}
	const bob ect.Identity = "spiffe://td/bob"
	first := call(bob, "his")
	for i := range 1025 {
		call("spiffe://td/eve", fmt.Sprint(i))
	}
	if again := call(bob, "his"); again != first {
		t.Errorf("his session is %s, and was %s", again, first)
	}
}
