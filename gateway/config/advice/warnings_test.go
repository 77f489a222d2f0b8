package advice_test

import (
	"crypto/x509"
	"io/fs"
	"net"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config/advice"
)

// TestWarnings_OfEachFact: what is said of a configuration; nothing: all is as it should be.
func TestWarnings_OfEachFact(t *testing.T) {
	t.Parallel()
	leaf := &x509.Certificate{DNSNames: []string{"gw.test", "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	open := func(string) advice.Readers { return advice.Readers{Mode: 0o644, Group: true, Others: true} }
	group := func(string) advice.Readers { return advice.Readers{Mode: 0o640, Group: true} }
	const secretIn = ": all users of this machine can read the secret in /s (mode 0644) -> chmod 600 /s"
	for _, tc := range []struct {
		text    string
		readers func(string) advice.Readers
		leaf    *x509.Certificate
		want    string
	}{
		{text: ""},
		{text: "identity: {certificate: /c, key: /s}", readers: open, want: "identity.key" + secretIn},
		{text: "identity: {certificate: /c, key: /s}", readers: group, want: "identity.key: the group of the file can read"},
		{text: "identity: {certificate: /c, bundle: /b}", readers: open},
		{text: "tls: {certificate: /c, key: /s}", readers: open, want: "tls.key" + secretIn},
		{text: "ainp: {key: /s}", readers: open, want: "ainp.key" + secretIn},
		{text: "state: {key: /s}", readers: open, want: "state.key" + secretIn},
		{text: "state: {path: /state.db}", readers: open, want: "state.path: all users of this machine can read the secret in /state.db.key"},
		{text: "state: {unverified: true, redis: {addresses: [\"a:1\"], password_file: /s}}", readers: open, want: "state.redis.password_file" + secretIn},
		{text: "state: {unverified: true, redis: {addresses: [\"a:1\"], sentinel_password_file: /s, master: m}}", readers: open, want: "state.redis.sentinel_password_file" + secretIn},
		{text: "state: {unverified: true, redis: {addresses: [\"a:1\"], tls: {certificate: /c, key: /s}}}", readers: open, want: "state.redis.tls.key" + secretIn},
		{text: "slim: {nodes: [{url: \"https://n:1\", organization: o, namespace: n, shared_secret_file: /s}]}", readers: open, want: "slim.nodes[0].shared_secret_file" + secretIn},
		{
			text:    "slim: {nodes: [{url: \"https://n:1\", organization: o, namespace: n, jwt: {key: /s, keys: /k, issuer: i}}]}",
			readers: open, want: "slim.nodes[0].jwt.key" + secretIn,
		},
		{
			text:    "agents: {a: {callers: [\"spiffe://a/b\"], endpoints: [{binding: mcp-v1, program: {command: [sh], env_files: {TOKEN: /s}}}]}}",
			readers: open, want: "agents.'a'.endpoints[0].program.env_files.TOKEN" + secretIn,
		},
		{text: "public_url: https://gw.test:8443", leaf: leaf},
		{text: "public_url: https://127.0.0.1:8443", leaf: leaf},
		{text: "public_url: https://other.test", leaf: nil},
		{text: "public_url: https://other.test", leaf: leaf, want: "public_url: callers are sent to other.test, and the certificate is for gw.test, localhost, 127.0.0.1: they will refuse it -> "},
		{text: "listen: {admin: \"127.0.0.1:9443\"}"},
		{text: "listen: {admin: \"10.1.2.3:9443\"}"},
		{text: "listen: {admin: \"0.0.0.0:9443\"}", want: "listen.admin: the API of operators listens on all addresses of this machine (0.0.0.0:9443) -> name one address"},
		{text: "listen: {admin: \"[::]:9443\"}", want: "listen.admin: the API of operators listens on all addresses"},
		{text: "listen: {admin: \":9443\"}", want: "listen.admin: the API of operators listens on all addresses"},
		{text: "agents: {a: {endpoints: [{binding: mcp-v1, url: \"https://a\"}]}}", want: "agents.'a' has no callers, so every call is refused -> name callers"},
	} {
		facts := advice.Facts{Readers: func(string) advice.Readers { return advice.Readers{} }, Certificate: tc.leaf}
		if tc.readers != nil {
			facts.Readers = tc.readers
		}
		found := advice.Warnings(parsed(t, tc.text), facts)
		switch {
		case tc.want == "" && len(found) > 0:
			t.Errorf("%s: got %v", tc.text, found)
		case tc.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0].String(), tc.want)):
			t.Errorf("%s: got %v, want %s", tc.text, found, tc.want)
		}
	}
}

// TestReaders_OfModes: the group of a file counts where the file is this user's own.
func TestReaders_OfModes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode          fs.FileMode
		own           bool
		group, others bool
	}{
		{0o600, true, false, false},
		{0o640, true, true, false},
		{0o644, true, true, true},
		{0o604, true, false, true},
		{0o440, false, false, false},
		{0o444, false, false, true},
		{0o620, true, false, false},
	} {
		if got := advice.ReadersOfMode(tc.mode, tc.own); got.Group != tc.group || got.Others != tc.others || got.Mode != tc.mode {
			t.Errorf("mode %o, own %t: got %+v", tc.mode, tc.own, got)
		}
	}
}
