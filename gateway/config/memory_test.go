package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
)

func memoryBound(t *testing.T, text string) int64 {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c.MemoryBound()
}

// TestMemoryBound_FollowsEachBound: whatever an operator bounds to less makes the
// statement less, and by no less than what cannot be held any more.
func TestMemoryBound_FollowsEachBound(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		larger, smaller string
		least           int64
	}{
		{"state: {evidence_mib: 200}", "state: {evidence_mib: 100}", 200 * mib},
		{"", "state: {evidence_mib: 12}", 48 * mib},
		{"state: {answers_mib: 100}", "state: {answers_mib: 50}", 150 * mib},
		{"state: {records_mib: 100}", "state: {records_mib: 50}", 50 * mib},
		{"state: {evidence_mib: 200}", "state: {path: /x/y, evidence_mib: 200}", 400 * mib},
		{"state: {evidence_mib: 200}", `state: {redis: {addresses: ["127.0.0.1:1"], plaintext: loopback}, evidence_mib: 200}`, 400 * mib},
		{"limits: {in_flight_mib: 200}", "limits: {in_flight_mib: 100}", 500 * mib},
		{"", "limits: {requests: 100}", 412 * 112 << 10},
		{"", "limits: {streams: 100}", 412 * 112 << 10},
		{"limits: {background: 9000}", "limits: {background: 1000}", 8000 * 128 << 10},
		{"limits: {connections: 9000}", "limits: {connections: 1000}", 12000 * 48 << 10},
		{"listen: {uacp: ':8888'}", "listen: {uacp: ':8888', uacp_connections: {total: 4}}", 60 * 48 << 10},
		{"ainp: {key: k}", "ainp: {key: k, sockets: {unidentified: 4}}", 60 * 48 << 10},
		{"ainp: {key: k}", "", 128 * 48 << 10},
		{"limits: {memory_mib: 768}", "limits: {memory_mib: 300}", 400 * mib},
	} {
		large, small := memoryBound(t, tc.larger), memoryBound(t, tc.smaller)
		if large-small < tc.least || small <= 0 || large%mib != 0 {
			t.Errorf("%q: %d MiB, %q: %d MiB, want a difference of at least %d MiB", tc.larger, large/mib, tc.smaller, small/mib, tc.least/mib)
		}
	}
}

// TestMemoryBound_IsTheMemoryThatIsGiven: one key sizes a gateway, whatever it serves and
// wherever its state is. What the file does not say adds up to no more than it, and
// to most of it.
func TestMemoryBound_IsTheMemoryThatIsGiven(t *testing.T) {
	t.Parallel()
	for _, mib := range []int64{192, 256, 500, 768, 1000, 4096, 65536} {
		for _, rest := range []string{"", "\nlisten: {uacp: ':8888'}\nainp: {key: k}"} {
			got := memoryBound(t, fmt.Sprintf("limits: {memory_mib: %d}%s", mib, rest)) >> 20
			if got > mib || got < mib*9/10 {
				t.Errorf("with %d MiB%s the bounds add up to %d", mib, rest, got)
			}
		}
	}
	if got := memoryBound(t, "listen: {uacp: ':8888'}\nainp: {key: k}") >> 20; got > 768 {
		t.Errorf("by default the bounds add up to %d MiB: more than a container of 1 GiB has room for", got)
	}
}

// TestMemoryBound_IsRefusedAboveTheMemory: what the file says is refused if all together is
// more than it gives, with the sum and what is largest in it.
func TestMemoryBound_IsRefusedAboveTheMemory(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"limits: {in_flight_mib: 256}":                                 "limits.memory_mib: the bounds add up to 2012 MiB of memory, and it is 768: raise it to 2012, or lower limits.in_flight_mib (1440 MiB of the sum), ",
		"state: {evidence_mib: 128}":                                   "or lower state.evidence_mib (320 MiB of the sum), limits.in_flight_mib (",
		"limits: {memory_mib: 2012, in_flight_mib: 256}":               "it is 2012: raise it",
		"limits: {in_flight_mib: 24}":                                  "",
		"limits: {memory_mib: 4096, in_flight_mib: 256, streams: 256}": "",
	} {
		c, err := config.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		reason := ""
		for line := range strings.Lines(c.Serve().Error()) { // it lacks everything else, too
			if strings.Contains(line, "limits.") {
				reason = line
			}
		}
		if (reason == "") != (says == "") || !strings.Contains(reason, says) {
			t.Errorf("%s: %q, want it to say %q", text, reason, says)
		}
	}
}
