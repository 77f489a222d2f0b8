package gateway_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
)

// At CPAT's endpoint the evidence speaks CPAT: its act, its keys, the wid of
// the source and no other, absent where it is absent (CPAT, Translation ECT Claims).
func TestCPAT_EvidenceClaims(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	for name, workflow := range map[string]string{"with a wid": string(ect.NewID()), "without": ""} {
		token, err := b.caller.Signer(t, nil).Sign(ect.Claims{
			Audience: []string{string(b.self.ID)}, Workflow: workflow, Act: "send_task", OutputHash: ect.Hash([]byte(addBody)),
		})
		if err != nil {
			t.Fatal(err)
		}
		call := b.call(addBody, token.Compact())
		call.EntryPoint, call.To = transport.TranslateCPAT, "mcp-v1"
		answer, err := b.Exchange(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		for i, compact := range answer.Evidence {
			c := claims(t, compact)
			if c.Act != "cpat:translate" || c.Workflow != workflow {
				t.Errorf("%s, leg %d: got %s wid %q", name, i+1, c.Act, c.Workflow)
			}
			from, to := "a2a-v1", "mcp-v1"
			if i == 1 {
				from, to = to, from // the reply
			}
			saysOf(t, c, map[string]string{"cpat.source_protocol": from, "cpat.dest_protocol": to, "cpat.gateway_id": "spiffe://example.com/gateway"})
			if warnings, ok := c.Ext.Strings("cpat.translation_warnings"); !ok {
				t.Errorf("%s, leg %d: warnings %q", name, i+1, warnings)
			}
			for _, key := range []string{"aepb.source_protocol", "aepb.dest_protocol", "aepb.gateway_id", "aepb.translation_warnings"} {
				if c.Ext[key] != nil {
					t.Errorf("%s, leg %d: %s of AEPB stands there too", name, i+1, key)
				}
			}
		}
	}
	call := b.translate(t, `{`)
	call.EntryPoint = transport.TranslateCPAT
	answer, err := b.Exchange(t.Context(), call)
	if err == nil {
		t.Fatal("malformed input was translated")
	}
	last := claims(t, answer.Evidence[0])
	if last.Act != "aepb:translate_error" { // CPAT registers no act for it (R10)
		t.Errorf("failure: got %s", last.Act)
	}
	saysOf(t, last, map[string]string{"aepb.source_protocol": "a2a-v1", "aepb.dest_protocol": "mcp-v1", "aepb.error": "internal_error", "aepb.description": problem.From(err).Detail})
}

// Each leg is written in the dialect of who reads it: the configured one, else
// the reader's own.
func TestDialect_ChosenByReader(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true}) // the agent is configured to read 01
	own, err := b.caller.Signer(t, nil).SignAs(ect.Dialect00, ect.Claims{
		Audience: []string{string(b.self.ID)}, Act: "send_task", OutputHash: ect.Hash([]byte(addBody)),
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.Exchange(t.Context(), b.call(addBody, own.Compact()))
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: ecttest.KeysOf(b.self)})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []ect.Dialect{ect.Dialect01, ect.Dialect00} {
		v, err := verifier.Verify(t.Context(), answer.Evidence[i], ect.Check{Purpose: ect.Parent})
		if err != nil || v.Dialect() != want {
			t.Errorf("leg %d: got dialect %s (%v), want %s", i+1, v.Dialect(), err, want)
		}
	}
}
