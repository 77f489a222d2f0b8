package gateway_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestAttack_EvidenceNamesNoProgram: callers read the evidence, and the command of a program, its
// environment and the places of its secrets are its operator's.
func TestAttack_EvidenceNamesNoProgram(t *testing.T) {
	t.Parallel()
	rules := policy.Rules{Open: true}
	b := newFixture(t, gateway.Settings{}, rules)
	program := stdio.Program{Command: []string{"calculator", "--key=hunter2"}, Env: map[string]string{"KEY": "hunter2"}, EnvFiles: map[string]string{"TOKEN": "/etc/hunter2"}}
	if err := b.Directory.Put(directory.Agent{
		Name: "calculator", Rules: rules, Endpoints: []directory.Endpoint{{Binding: mcp.Binding, URL: program.URL()}},
	}); err != nil {
		t.Fatal(err)
	}
	answer := b.exchange(t, b.call(addBody))
	if len(answer.Evidence) == 0 {
		t.Fatal("there is no evidence")
	}
	for _, token := range answer.Evidence {
		claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(claims), "hunter2") {
			t.Errorf("a caller reads %s", claims)
		}
	}
}
