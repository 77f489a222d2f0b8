// Package evidencetest makes the evidence of an exchange, for tests of those who keep and judge it.
package evidencetest

import (
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// The messages of an exchange: what the caller sent and got, and what went to the agent and back.
const (
	SentBody   = `{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"a":9007199254740993}}`
	Inner      = `{"method":"tools/call"}`
	InnerReply = `{"result":{}}`
	GotBody    = `{"jsonrpc":"2.0","id":"1","result":{"sum":9007199254740995}}`
)

// Tokens are the three tokens of an exchange of a caller through a gateway.
func Tokens(t *testing.T, dev *identity.Development) []string {
	t.Helper()
	return SignedBy(t, dev, dev.Gateway)
}

// SignedBy is an exchange whose translations an identity signed, which may be no gateway.
func SignedBy(t *testing.T, dev *identity.Development, by *identity.SVID) []string {
	t.Helper()
	return Exchange(t, dev, by, string(ect.NewID()), "")
}

// Exchange is an exchange of a workflow, whose messages end with a text.
func Exchange(t *testing.T, dev *identity.Development, by *identity.SVID, wid, end string) []string {
	t.Helper()
	caller, gateway := SignerOf(t, dev.Client), SignerOf(t, by)
	sign := func(by *ect.Signer, c ect.Claims) (ect.ID, string) {
		c.Workflow = wid
		token, err := by.Sign(c)
		if err != nil {
			t.Fatal(err)
		}
		return token.ID(), token.Compact()
	}
	root, first := sign(caller, ect.Claims{Act: "send_task", Audience: []string{string(dev.Gateway.ID)}, OutputHash: ect.Hash([]byte(SentBody + end))})
	request, second := sign(gateway, ect.Claims{
		Act: ect.ActTranslate, Audience: []string{"https://agent.test"}, Parents: []ect.ID{root}, InputHash: ect.Hash([]byte(SentBody + end)), OutputHash: ect.Hash([]byte(Inner)),
		Ext: ect.Ext{ect.ExtLeg: []byte(`"request"`), ect.ExtSourceProtocol: []byte(`"a2a-v1"`), ect.ExtDestProtocol: []byte(`"mcp-v1"`)},
	})
	_, third := sign(gateway, ect.Claims{
		Act: ect.ActTranslate, Audience: []string{string(dev.Client.ID)}, Parents: []ect.ID{request}, InputHash: ect.Hash([]byte(InnerReply)), OutputHash: ect.Hash([]byte(GotBody + end)),
		Ext: ect.Ext{
			ect.ExtLeg: []byte(`"reply"`), ect.ExtSourceProtocol: []byte(`"mcp-v1"`), ect.ExtDestProtocol: []byte(`"a2a-v1"`), ect.ExtWarnings: []byte(`["L19 carried /from/name"]`),
			ect.ExtGatewayID: []byte(`"` + string(dev.Gateway.ID) + `"`),
		},
	})
	return []string{first, second, third}
}

// SignerOf signs as an identity.
func SignerOf(t *testing.T, svid *identity.SVID) *ect.Signer {
	t.Helper()
	signer, err := ect.NewSigner(ect.SignerDeps{Key: svid.Key, Chain: svid.Chain, Issuer: svid.ID, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return signer
}
