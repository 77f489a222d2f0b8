package a2a

import (
	"encoding/json"
	"testing"

	old "github.com/a2aproject/a2a-go/a2a"
	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// TestSecurity_ReadByTheLibraries: what a card declares is what the published schemas allow, and what the official libraries read.
func TestSecurity_ReadByTheLibraries(t *testing.T) {
	t.Parallel()
	security := Security{Issuers: []TokenIssuer{{Name: "corp", URL: "https://login.example/", Scopes: []string{"read"}}}, KeyField: "X-API-Key"}
	const discovery = "https://login.example/.well-known/openid-configuration"
	schema0, c := schema03(t, "AgentCard"), schemas(t)
	for _, version := range []string{"", Version, Version03} {
		served := Served(readCard(t, "card").Body.(*canonical.Description), "https://gw.example/agents/w/a2a", version == "")
		wire, _, err := New(translators.Config{}).Encode(&canonical.Message{Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Body: served}, translators.Target{Version: version})
		if err != nil {
			t.Fatal(err)
		}
		if same := (Security{}).Declared(wire.Body, version); string(same) != string(wire.Body) {
			t.Errorf("nothing is declared: got %s", same)
		}
		card := security.Declared(wire.Body, version)
		o := rawjson.Parse(card, "")
		o.Take("skills") // the samples' have members of later versions
		whole := rawjson.NewBuilder().Merge(o.Rest()).Raw("skills", raw("[]")).Bytes()
		if version != Version {
			var read old.AgentCard
			if err := json.Unmarshal(card, &read); err != nil {
				t.Fatalf("%q: %v", version, err)
			}
			key, _ := read.SecuritySchemes["apiKey"].(old.APIKeySecurityScheme)
			oidc, _ := read.SecuritySchemes["oauth_corp"].(old.OpenIDConnectSecurityScheme)
			if key.Name != "X-API-Key" || key.In != "header" || oidc.OpenIDConnectURL != discovery || len(read.SecuritySchemes) != 4 || len(read.Security) != 4 || len(read.Security[2]["oauth_corp"]) != 1 {
				t.Errorf("%q for 0.3: %+v %+v", version, read.SecuritySchemes, read.Security)
			}
			if schema0 != nil {
				if err := valid(t, schema0, whole); err != nil {
					t.Errorf("%q for 0.3: %v", version, err)
				}
			}
		}
		if version != Version03 {
			var read sdk.AgentCard
			if err := json.Unmarshal(card, &read); err != nil {
				t.Fatalf("%q: %v", version, err)
			}
			key, _ := read.SecuritySchemes["apiKey"].(sdk.APIKeySecurityScheme)
			oidc, _ := read.SecuritySchemes["oauth_corp"].(sdk.OpenIDConnectSecurityScheme)
			if key.Name != "X-API-Key" || key.Location != "header" || oidc.OpenIDConnectURL != discovery || len(read.SecuritySchemes) != 4 {
				t.Errorf("%q for 1.0: %+v", version, read.SecuritySchemes)
			}
		}
		if version == Version && c != nil { // one of both versions has schemes with the members of both
			if err := valid(t, schema(t, c, "AgentCard"), whole); err != nil {
				t.Errorf("%q for 1.0: %v", version, err)
			}
		}
	}
}
