// Package security writes on A2A cards how callers of a gateway may prove who they are, in the words of A2A 1.0 and 0.3.
//
// Alternative considered: the SDK's types. They write one version each, and a served card is one of both.
package security

import (
	"encoding/json"
	"strings"

	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Schemes are how callers of a gateway may prove who they are, as its cards declare it beside client
// certificates and JWT-SVIDs. The zero value declares nothing.
type Schemes struct {
	Issuers  []Issuer // of access tokens
	KeyField string   // header field of API keys; empty: none are taken
}

// Issuer is an authorization server whose access tokens are accepted.
type Issuer struct {
	Name   string   // in the name of its scheme
	URL    string   // of the issuer
	Scopes []string // that a client should ask for first
}

// scheme is a SecurityScheme: in 0.3 as OpenAPI 3 has it, in 1.0 in a member of its own.
type scheme struct {
	name         string
	kind, kind03 string // the member of 1.0, the type of 0.3
	members      json.RawMessage
	members03    json.RawMessage // nil: those of 1.0
	scopes       []string
}

// Words are the versions of A2A that a card is one of.
type Words struct{ V10, V03 bool }

// On is a card with the schemes of a gateway. Each of them will do.
//
// A2A 1.0 has securityRequirements for that, which are left out: a2a-go v2.4.0 reads no card whose requirements
// have the form of the published schema. In 0.3 they are security.
func (s Schemes) On(card json.RawMessage, words Words) json.RawMessage {
	if len(s.Issuers) == 0 && s.KeyField == "" {
		return card
	}
	schemes, b := rawjson.NewBuilder(), rawjson.NewBuilder().Merge(card)
	var requirements []json.RawMessage
	for _, one := range s.schemes() {
		schemes.Raw(one.name, one.in(words))
		requirements = append(requirements, rawjson.NewBuilder().Strings(one.name, one.scopes, true).Bytes())
	}
	b.Raw("securitySchemes", schemes.Bytes())
	if words.V03 {
		b.Array("security", requirements)
	}
	return b.Bytes()
}

// schemes are those of a gateway, client certificates first.
func (s Schemes) schemes() []scheme {
	list := []scheme{
		{name: "mutualTLS", kind: "mtlsSecurityScheme", kind03: "mutualTLS", members: describing("X.509-SVID").Bytes()},
		{name: "bearer", kind: "httpAuthSecurityScheme", kind03: "http", members: describing("JWT-SVID for the SPIFFE ID of the gateway").String("scheme", "Bearer").String("bearerFormat", "JWT").Bytes()},
	}
	for _, issuer := range s.Issuers {
		at := strings.TrimSuffix(issuer.URL, "/") + "/.well-known/openid-configuration"
		list = append(list, scheme{
			name: "oauth_" + issuer.Name, kind: "openIdConnectSecurityScheme", kind03: "openIdConnect", scopes: issuer.Scopes,
			members: describing("Access token for the URL of this endpoint (RFC 8707)").String("openIdConnectUrl", at).Bytes(),
		})
	}
	if s.KeyField != "" {
		list = append(list, scheme{
			name: "apiKey", kind: "apiKeySecurityScheme", kind03: "apiKey",
			members:   rawjson.NewBuilder().String("location", "header").String("name", s.KeyField).Bytes(),
			members03: rawjson.NewBuilder().String("in", "header").String("name", s.KeyField).Bytes(),
		})
	}
	return list
}

func describing(text string) *rawjson.Builder {
	return rawjson.NewBuilder().String("description", text)
}

// in is a scheme in the words of versions.
func (s scheme) in(words Words) json.RawMessage {
	b := rawjson.NewBuilder()
	if words.V10 {
		b.Raw(s.kind, s.members)
	}
	if words.V03 {
		old := s.members03
		if old == nil {
			old = s.members
		}
		b.String("type", s.kind03).Merge(old)
	}
	return b.Bytes()
}
