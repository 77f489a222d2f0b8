package config_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// TestConnections_DefaultsAndShares: what is left out follows from the rest, and a share is no
// larger than the whole.
func TestConnections_DefaultsAndShares(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.ConnectionBounds{
		"{}":                                 {Total: 64, PerCaller: 32, Unidentified: 64, PerAddress: 16},
		"{total: 8}":                         {Total: 8, PerCaller: 4, Unidentified: 64, PerAddress: 16},
		"{total: 8, per_caller: 8}":          {Total: 8, PerCaller: 8, Unidentified: 64, PerAddress: 16},
		"{unidentified: 2}":                  {Total: 64, PerCaller: 32, Unidentified: 2, PerAddress: 1},
		"{unidentified: 12, per_address: 5}": {Total: 64, PerCaller: 32, Unidentified: 12, PerAddress: 5},
	} {
		c, err := config.Parse([]byte("listen: {uacp_connections: " + text + "}\nainp: {sockets: " + text + "}\n"))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := c.Sockets(c.Listen.UACPConnections); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
		if got := c.Sockets(c.AINP.Sockets); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
	for text, says := range map[string]string{
		"listen: {uacp_connections: {total: -1}}\n":          "[1:36] listen.uacp_connections.total: must be between",
		"listen: {uacp_connections: {total: 2000000}}\n":     "listen.uacp_connections.total: must be between",
		"ainp: {sockets: {total: 4, per_caller: 5}}\n":       "ainp.sockets.per_caller: more than total",
		"ainp: {sockets: {per_caller: 65}}\n":                "ainp.sockets.per_caller: more than total",
		"ainp: {sockets: {unidentified: 4, per_address: 5}}": "ainp.sockets.per_address: more than unidentified",
	} {
		if _, err := config.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want it to say %q", text, err, says)
		}
	}
}
