package config_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// mistakes is what Parse says against a text; empty: nothing.
func mistakes(t *testing.T, text string) string {
	t.Helper()
	_, err := config.Parse([]byte(text))
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestListen_AddressesThatCannotBeParsedAreRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"public", "grpc", "admin", "metrics", "uacp", "uacp_udp"} {
		for _, bad := range []string{"9464", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:", "http://127.0.0.1:9464", "127.0.0.1:9464/metrics", "10.0.0.0/8:9464", "*:9464", "::1:9464", "10.0.0:1"} {
			got := mistakes(t, "listen:\n  "+key+": \""+bad+"\"\n")
			if !strings.Contains(got, "config: [2:") || !strings.Contains(got, "listen."+key+": not an address to listen on") {
				t.Errorf("%s %q: got %q", key, bad, got)
			}
		}
	}
	for _, good := range []string{":9464", "0.0.0.0:9464", "[::]:9464", "[::1]:9464", "10.1.2.3:9464", "localhost:9464", "gw.example.com:0", "[fe80::1%eth0]:9464"} {
		if got := mistakes(t, "listen: {metrics: \""+good+"\"}\n"); got != "" {
			t.Errorf("%q: got %q", good, got)
		}
	}
}

func TestListen_TwoListenersOnTheSameAddressAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		public, metrics string
		same            bool
	}{
		{"127.0.0.1:9464", "127.0.0.1:9464", true},
		{"127.0.0.1:9464", "localhost:9464", true},
		{"127.0.0.1:9464", "[::ffff:127.0.0.1]:9464", true},
		{":9464", "127.0.0.1:9464", true},
		{"10.1.2.3:9464", "0.0.0.0:9464", true},
		{"[::1]:9464", "[::]:9464", true},
		{"gw.example.com:9464", "GW.example.com:09464", true},
		{"127.0.0.1:9464", "127.0.0.1:9465", false},
		{"127.0.0.1:9464", "127.0.0.2:9464", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{":0", ":0", false},
	} {
		got := mistakes(t, "listen:\n  public: \""+tc.public+"\"\n  metrics: \""+tc.metrics+"\"\n")
		if reported := strings.Contains(got, "config: [3:12] listen.metrics: the same address as listen.public"); reported != tc.same {
			t.Errorf("%s and %s: got %q", tc.public, tc.metrics, got)
		}
	}
	if got := mistakes(t, "listen: {uacp: \"127.0.0.1:8888\", uacp_udp: \"127.0.0.1:8888\"}"); got != "" {
		t.Errorf("TCP and UDP share no ports: got %q", got)
	}
}

// An address that only serve has, by default, counts in serve and not in dev.
func TestListen_DefaultsClashInServe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"listen: {metrics: \"127.0.0.1:9443\"}":                     "listen.admin (127.0.0.1:9443)",
		"listen: {metrics: \":8443\"}":                              "listen.public (:8443)",
		"listen: {metrics: \"127.0.0.1:8443\", public: \":443\"}":   "",
		"listen: {metrics: \":9464\", admin: \"0.0.0.0:9443\"}":     "",
		"listen: {public: \"127.0.0.1:9443\", metrics: \":9464\"}":  "listen.public (127.0.0.1:9443)",
		"listen: {grpc: \"127.0.0.1:9464\", admin: \"[::1]:9443\"}": "",
	} {
		c, err := config.Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		err = c.Serve()
		if err == nil {
			t.Fatal("without an identity serve refuses anyway")
		}
		if reported := strings.Contains(err.Error(), "the same address as"); reported != (want != "") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestAdminHosts_PatternsThatAllowNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"*", "*.gw.svc", "10.0.0.0/8", "https://gw.example.com", "//gw.example.com", "gw.example.com/api", "gw.example.com:9443", "10.1.2.3:9443",
		"[::1]", "[::1]:9443", "gw example.com", "", "gw..svc", ".gw.svc", "gw.svc.", "-gw.svc", "10.0.0", "10.0.0.256", "fe80::1%eth0", "gw.exämple.com", "user@gw.svc",
		strings.Repeat("a", 64) + ".svc", strings.Repeat("a.", 130) + "svc",
	} {
		got := mistakes(t, "admin:\n  hosts: [gw.svc, \""+bad+"\"]\n")
		if !strings.Contains(got, "config: [2:19] admin.hosts[1]: ") || !strings.Contains(got, "expected an exact host name or IP address, without scheme, port") {
			t.Errorf("%q: got %q", bad, got)
		}
	}
	if got := mistakes(t, "admin: {hosts: [gw, gw.monitoring.svc, GW.example.com, 10.1.2.3, \"fd00::1\", \"2001:db8::1\", my_gateway, 10-1-2-3.pod, xn--exmple-cua.com]}"); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestCORS_Origins(t *testing.T) {
	t.Parallel()
	for origin, want := range map[string]bool{
		"https://app.example.com": true, "'https://app.example.com:8443'": true, "'http://localhost:3000'": true, "http://127.0.0.1": true, "'http://[::1]:3000'": true,
		"http://app.example.com": false, "'*'": false, "https://*.example.com": false, "'null'": false, "''": false, "https://app.example.com/": false,
		"https://app.example.com/x": false, "https://App.example.com": false, "https://u@app.example.com": false, "app.example.com": false,
		"https://app.example.com?x": false, "https://app.example.com, https://app.example.com": false,
	} {
		_, err := config.Parse([]byte("cors: {origins: [" + origin + "]}"))
		if got := err == nil || !strings.Contains(err.Error(), "origin") && !strings.Contains(err.Error(), "stands twice"); got != want {
			t.Errorf("%s: %v", origin, err)
		}
	}
}
