package config_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// TestDatagrams_OnlyInDevelopment: serve takes none and sends none, and dev those of
// its own machine.
func TestDatagrams_OnlyInDevelopment(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte("listen: {uacp_udp: \"127.0.0.1:8888\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Serve(); err == nil || !strings.Contains(err.Error(), "listen.uacp_udp") {
		t.Errorf("serve: %v", err)
	}
	if c, err = config.Parse([]byte("agents: {a: {endpoints: [{binding: uacp-v1, url: \"uacp://127.0.0.1:8888\"}]}}\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.Serve(); err == nil || !strings.Contains(err.Error(), `agents.'a': datagrams (uacp://address:port) have no protection: only dev sends them`) {
		t.Errorf("serve: %v", err)
	}
	for _, address := range []string{":8888", "0.0.0.0:8888", "192.0.2.1:8888", "example.com:8888"} {
		if _, err := config.Parse([]byte("listen: {uacp_udp: \"" + address + "\"}\n")); err == nil || !strings.Contains(err.Error(), "uacp_udp") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
