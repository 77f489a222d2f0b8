package a2a

import (
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a/security"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// TestSecurity_ValidUnderSchema: what a card declares of the gateway is what the published schemas allow.
func TestSecurity_ValidUnderSchema(t *testing.T) {
	t.Parallel()
	schemes := security.Schemes{Issuers: []security.Issuer{{Name: "corp", URL: "https://login.example/", Scopes: []string{"read"}}}, KeyField: "X-API-Key"}
	schema0, c := schema03(t, "AgentCard"), schemas(t)
	for _, version := range []string{"", Version, Version03} {
		served := Served(readCard(t, "card").Body.(*canonical.Description), "https://gw.example/agents/w/a2a", version == "")
		wire, _, err := New(translators.Config{}).Encode(&canonical.Message{Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Body: served}, translators.Target{Version: version})
		if err != nil {
			t.Fatal(err)
		}
		words := security.Words{V10: version != Version03, V03: version != Version}
		if same := (security.Schemes{}).On(wire.Body, words); string(same) != string(wire.Body) {
			t.Errorf("nothing is declared: got %s", same)
		}
		card := schemes.On(wire.Body, words)
		o := rawjson.Parse(card, "")
		o.Take("skills") // the samples' have members of later versions
		whole := rawjson.NewBuilder().Merge(o.Rest()).Raw("skills", raw("[]")).Bytes()
		if version != Version && schema0 != nil {
			if err := valid(t, schema0, whole); err != nil {
				t.Errorf("%q for 0.3: %v", version, err)
			}
		}
		if version == Version && c != nil { // a card of both versions has schemes with the members of both
			if err := valid(t, schema(t, c, "AgentCard"), whole); err != nil {
				t.Errorf("%q for 1.0: %v", version, err)
			}
		}
	}
}
