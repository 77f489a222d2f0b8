package a2a

import (
	"encoding/json"
	"testing"

	old "github.com/a2aproject/a2a-go/a2a"
	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/aepb/aepb-gateway/translators/a2a/security"
)

// TestCard_SecurityForTheLibraries: the official libraries of both versions read what a card declares of the gateway, also
// on a card of both.
func TestCard_SecurityForTheLibraries(t *testing.T) {
	t.Parallel()
	schemes := security.Schemes{Issuers: []security.Issuer{{Name: "corp", URL: "https://login.example/", Scopes: []string{"read"}}}, KeyField: "X-API-Key"}
	const discovery = "https://login.example/.well-known/openid-configuration"
	for _, words := range []security.Words{{V10: true, V03: true}, {V10: true}, {V03: true}} {
		card := schemes.On(json.RawMessage(`{"name":"n"}`), words)
		if words.V03 {
			var read old.AgentCard
			err := json.Unmarshal(card, &read)
			key, _ := read.SecuritySchemes["apiKey"].(old.APIKeySecurityScheme)
			oidc, _ := read.SecuritySchemes["oauth_corp"].(old.OpenIDConnectSecurityScheme)
			if err != nil || key.Name != "X-API-Key" || key.In != "header" || oidc.OpenIDConnectURL != discovery || len(read.SecuritySchemes) != 4 || len(read.Security) != 4 || len(read.Security[2]["oauth_corp"]) != 1 {
				t.Errorf("0.3: %+v %+v, %v", read.SecuritySchemes, read.Security, err)
			}
		}
		if words.V10 {
			var read sdk.AgentCard
			err := json.Unmarshal(card, &read)
			key, _ := read.SecuritySchemes["apiKey"].(sdk.APIKeySecurityScheme)
			oidc, _ := read.SecuritySchemes["oauth_corp"].(sdk.OpenIDConnectSecurityScheme)
			if err != nil || key.Name != "X-API-Key" || key.Location != "header" || oidc.OpenIDConnectURL != discovery || len(read.SecuritySchemes) != 4 {
				t.Errorf("1.0: %+v, %v", read.SecuritySchemes, err)
			}
		}
	}
}
