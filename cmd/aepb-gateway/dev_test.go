package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestAttack_DevOnAPublicAddress: finding 18. A development gateway was started
// on an address that other machines reach, where it lets callers in without
// credentials. Before, it listened. Now it says that this wants --insecure-public.
func TestAttack_DevOnAPublicAddress(t *testing.T) {
	t.Parallel()
	const here = "127.0.0.1:0"
	grpc := filepath.Join(t.TempDir(), "grpc.yaml")
	gatewaytest.Must(t, os.WriteFile(grpc, []byte("listen: {grpc: ':0'}\n"), 0o600))
	metrics := filepath.Join(t.TempDir(), "metrics.yaml")
	gatewaytest.Must(t, os.WriteFile(metrics, []byte("listen: {metrics: '0.0.0.0:0'}\n"), 0o600))
	for name, tc := range map[string]struct {
		flags devFlags
		want  string // in the error; empty: it runs
	}{
		"this machine alone": {devFlags{addr: "localhost:0", adminAddr: "127.0.0.2:0", uacpAddr: here}, ""},
		"public":             {devFlags{addr: "0.0.0.0:0", adminAddr: here, uacpAddr: here}, "--addr"},
		"every address":      {devFlags{addr: ":0", adminAddr: here, uacpAddr: here}, "--addr"},
		"admin":              {devFlags{addr: here, adminAddr: "[::]:0", uacpAddr: here}, "--admin-addr"},
		"uacp":               {devFlags{addr: here, adminAddr: here, uacpAddr: "0.0.0.0:0"}, "--uacp-addr"},
		"grpc":               {devFlags{addr: here, adminAddr: here, uacpAddr: here, config: grpc}, "listen.grpc"},
		"metrics":            {devFlags{addr: here, adminAddr: here, uacpAddr: here, config: metrics}, "listen.metrics"},
		"on purpose":         {devFlags{addr: "0.0.0.0:0", adminAddr: here, uacpAddr: here, insecurePublic: true}, ""},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tc.flags.dir = t.TempDir()
		err := dev(ctx, tc.flags, io.Discard, io.Discard)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want+" is no loopback address")) {
			t.Errorf("%s: %v", name, err)
		}
		if made, err := os.ReadDir(tc.flags.dir); tc.want != "" && (err != nil || len(made) != 0) {
			t.Errorf("%s: it made %v, %v", name, made, err)
		}
	}
}
