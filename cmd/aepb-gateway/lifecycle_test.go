package main

import (
	"io"
	"os"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestCheckConfig_Before: a configuration that takes something from callers needs a higher major
// version than the one before it.
func TestCheckConfig_Before(t *testing.T) {
	t.Parallel()
	configured := func(version, listen string) string {
		_, file := gatewaytest.Operated(t, "version: "+version+"\n")
		text, err := os.ReadFile(file)
		gatewaytest.Must(t, err)
		gatewaytest.Must(t, os.WriteFile(file, []byte(strings.Replace(string(text), "listen: {", "listen: {"+listen, 1)), 0o600))
		return file
	}
	const uacp, grpc = `uacp: ":0", `, `grpc: ":0", `
	before := configured("1.4.0", uacp+grpc)
	for name, c := range map[string]struct{ version, listen, says string }{
		"the same":        {"1.4.0", uacp + grpc, ""},
		"without µACP":    {"1.5.0", grpc, `protocol "uacp-v1" is taken out`},
		"without gRPC":    {"1.5.0", uacp, `protocol "a2a-v1 over gRPC" is taken out`},
		"a major version": {"2.0.0", "", ""},
	} {
		cmd := checkConfigCommand()
		cmd.SetArgs([]string{configured(c.version, c.listen), "--before", before})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
