package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Every pair that the gateway lists is one that it translates, between versions
// of one protocol too (AEPB, Gateway Requirements item 1; R8).
func TestListedPairsAreServed(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	var doc struct {
		Version   string `json:"aepb_version"`
		Gateway   string `json:"gateway_id"`
		Translate string `json:"translate_endpoint"`
		Pairs     []struct{ From, To string }
	}
	jsonIn(t, b.send(t, letter{method: http.MethodGet, at: "/.well-known/aepb/gateway"}).body, &doc)
	if len(doc.Pairs) < 12+2+12 {
		t.Fatalf("%d pairs", len(doc.Pairs))
	}
	const old = `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hello"}]}}}`
	const legacy = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"message","arguments":{"message":"hello"}}}`
	for _, pair := range doc.Pairs {
		l := letter{at: "/aepb/translate?from=" + pair.From + "&to=" + pair.To}
		binding, version, _ := strings.Cut(pair.From, "@")
		version = strings.TrimPrefix(version, "mcp-") // of SLIM
		var hash translators.Hasher
		switch {
		case binding == "uacp-v1":
			l.media, l.body, hash = uacp.Media, string(frameOf(t, uacp.FormEnveloped, telling("hello"))), uacp.New(translators.Config{})
		case binding == "ainp-v1":
			l.body, hash = string(envelopeOf(t, did("alice"), telling("hello"))), ainp.New(translators.Config{})
		case pair.From == "a2a-v1@0.3":
			l.body = old
		case binding == "a2a-v1", version == "a2a-1.0":
			l.body = textBody("hello")
		case version == "" || version == "2026-07-28":
			l.body, l.header = callBody("message", "hello"), mirror("tools/call", "message")
		default:
			l.body, l.header = legacy, map[string]string{"Mcp-Protocol-Version": version}
		}
		recipe := b.recipe(l.body)
		recipe.Claims.OutputHash = ect.Hash(translators.Wire{Body: []byte(l.body), Hasher: hash}.Octets())
		l.tokens = []string{ecttest.Mint(t, b.me, recipe)}
		if got := b.send(t, l); got.status != http.StatusOK || !strings.Contains(string(got.body), "hello") {
			t.Errorf("%s to %s: got %d %s", pair.From, pair.To, got.status, short(got.body))
		}
	}
}
