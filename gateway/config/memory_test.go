package config_test

import (
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
	file := "state: {path: /x/y, evidence_mib: 200}" // evidence is in the file, the rest in memory too
	for _, tc := range []struct {
		larger, smaller string
		least           int64
	}{
		{"state: {evidence_mib: 200}", "state: {evidence_mib: 100}", 200 * mib},
		{"", "state: {evidence_mib: 64}", 128 * mib},
		{"state: {answers_mib: 100}", "state: {answers_mib: 50}", 150 * mib},
		{"state: {records_mib: 100}", "state: {records_mib: 50}", 50 * mib},
		{file, "state: {evidence_mib: 20}", 200 * mib},
		{"state: {evidence_mib: 2000}", "state: {path: /x/y, evidence_mib: 2000}", 2000 * mib},
		{"state: {evidence_mib: 200}", `state: {redis: {addresses: ["127.0.0.1:1"], plaintext: loopback}, evidence_mib: 200}`, 400 * mib},
		{"limits: {in_flight_mib: 200}", "limits: {in_flight_mib: 100}", 500 * mib},
		{"", "limits: {in_flight_mib: 64, requests: 100, streams: 100}", 960 * mib},
		{"", "limits: {background: 1000}", 9000 * 128 << 10},
		{"limits: {connections: 9000}", "limits: {connections: 1000}", 12000 * 64 << 10},
		{"", "listen: {uacp_connections: {total: 32}}", 992 * 64 << 10},
		{"", "ainp: {sockets: {unidentified: 32}}", 224 * 64 << 10},
	} {
		large, small := memoryBound(t, tc.larger), memoryBound(t, tc.smaller)
		if large-small < tc.least || small <= 0 || large%mib != 0 {
			t.Errorf("%q: %d MiB, %q: %d MiB, want a difference of at least %d MiB", tc.larger, large/mib, tc.smaller, small/mib, tc.least/mib)
		}
	}
}
