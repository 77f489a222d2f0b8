package server

import (
	"net"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// TestOpen_AddressInUse: who starts a second gateway reads which address is in use and what to give instead.
func TestOpen_AddressInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { must(t, taken.Close()) })
	at := taken.Addr().String()
	for flag, listen := range map[string]config.Listen{
		"--addr, or listen.public":      {Public: at},
		"--admin-addr, or listen.admin": {Public: "127.0.0.1:0", Admin: at},
		"listen.metrics":                {Metrics: at},
	} {
		_, err := Listen(listen)
		if err == nil || !strings.Contains(err.Error(), at+" is in use: give another address with "+flag+", or stop what listens there") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
