package pairs

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/release"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Every pair that the gateway lists is one that it translates, between versions
// of one protocol too (AEPB, Gateway Requirements item 1; R8).
func TestPairs_ListedAreServed(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	var doc struct {
		Version   string `json:"aepb_version"`
		Gateway   string `json:"gateway_id"`
		Translate string `json:"translate_endpoint"`
		Pairs     []struct{ From, To string }
	}
	gatewaytest.JSONIn(t, b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/.well-known/aepb/gateway"}).Body, &doc)
	if len(doc.Pairs) < 12+2+12 {
		t.Fatalf("%d pairs", len(doc.Pairs))
	}
	const old = `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hello"}]}}}`
	const legacy = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"message","arguments":{"message":"hello"}}}`
	for _, pair := range doc.Pairs {
		l := gatewaytest.HTTPRequest{At: "/aepb/translate?from=" + pair.From + "&to=" + pair.To}
		binding, version, _ := strings.Cut(pair.From, "@")
		version = strings.TrimPrefix(version, "mcp-") // of SLIM
		var hash translators.Hasher
		switch {
		case binding == "uacp-v1":
			l.Media, l.Body, hash = uacp.Media, string(gatewaytest.FrameOf(t, uacp.FormEnveloped, gatewaytest.TextInvoke("hello"))), uacp.New(translators.Config{})
		case binding == "ainp-v1":
			l.Body, hash = string(gatewaytest.EnvelopeOf(t, gatewaytest.Did("alice"), gatewaytest.TextInvoke("hello"))), ainp.New(translators.Config{})
		case pair.From == "a2a-v1@0.3":
			l.Body = old
		case binding == "a2a-v1", version == "a2a-1.0":
			l.Body = gatewaytest.TextBody("hello")
		case version == "" || version == "2026-07-28":
			l.Body, l.Header = gatewaytest.CallBody("message", "hello"), gatewaytest.Mirror("tools/call", "message")
		default:
			l.Body, l.Header = legacy, map[string]string{"Mcp-Protocol-Version": version}
		}
		recipe := b.Recipe(l.Body)
		recipe.Claims.OutputHash = ect.Hash(translators.Wire{Body: []byte(l.Body), Hasher: hash}.HashInput())
		l.Tokens = []string{ecttest.Mint(t, b.Me, recipe)}
		if got := b.Send(t, l); got.Status != http.StatusOK || !strings.Contains(string(got.Body), "hello") {
			t.Errorf("%s to %s: got %d %s", pair.From, pair.To, got.Status, gatewaytest.Short(got.Body))
		}
	}
}

// TestGatewayDocument_MembersOfTheDraft: what the gateway says of itself (AEPB, Capability Document Format).
// The names of the members are written out: that they are the draft's shows here.
func TestGatewayDocument_MembersOfTheDraft(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/.well-known/aepb"})
	var doc map[string]json.RawMessage
	gatewaytest.JSONIn(t, got.Body, &doc)
	var protocols []struct {
		ID       string `json:"id"`
		Version  string `json:"version"`
		Endpoint string `json:"endpoint"`
		Priority int    `json:"priority"`
	}
	gatewaytest.JSONIn(t, doc["protocols"], &protocols)
	var ids []string
	for i, p := range protocols {
		if ids = append(ids, p.ID); p.Version == "" || p.Endpoint != b.At.Public+"/aepb/translate?from="+p.ID || p.Priority != 10*(i+1) {
			t.Errorf("%s: version %q at %s, priority %d", p.ID, p.Version, p.Endpoint, p.Priority)
		}
	}
	for _, id := range []string{"a2a-v1", "ainp-v1", "mcp-v1", "uacp-v1"} {
		if !slices.Contains(ids, id) {
			t.Errorf("%s is missing among %s", id, ids)
		}
	}
	delete(doc, "protocols")
	want := map[string]string{
		"aepb_version": `"1.0"`, "agent_id": `"spiffe://aepb.dev/gateway"`, "translation_gateways": `["` + b.At.Public + `/aepb/translate"]`,
		"ect_assurance_level": `"L2"`, "ect_namespaces": `["aepb","atd","consensus","cpat","hitl"]`,
		"lifecycle": `{"status":"active","version":"` + release.Current().Version + `","deprecated_at":null,"sunset_at":null,"successor":null}`,
	}
	for name, value := range want {
		if string(doc[name]) != value {
			t.Errorf("%s: got %s, want %s", name, doc[name], value)
		}
	}
	if got.Status != http.StatusOK || len(doc) != len(want) {
		t.Errorf("got %d with %s", got.Status, gatewaytest.Short(got.Body))
	}
}

// TestCPAT_TokensOfATranslation: at CPAT's endpoint both tokens are CPAT's, with its four keys and
// none of AEPB's in their place (CPAT, Translation ECT Claims).
func TestCPAT_TokensOfATranslation(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/cpat/translate?from=a2a-v1&dest=calculator", Body: gatewaytest.AddBody(5)}))
	b.Right(t, got, `"sum":6`)
	directions := b.Proofs(t, got)
	if len(directions) != 2 {
		t.Fatalf("%d tokens", len(directions))
	}
	for i, want := range []map[string]string{
		{"cpat.source_protocol": "a2a-v1", "cpat.dest_protocol": "mcp-v1", "cpat.gateway_id": b.Self()},
		{"cpat.source_protocol": "mcp-v1", "cpat.dest_protocol": "a2a-v1", "cpat.gateway_id": b.Self()},
	} {
		for key, value := range want {
			if text, _ := directions[i].Ext.String(key); text != value {
				t.Errorf("token %d: %s is %q, want %q", i+1, key, text, value)
			}
			if directions[i].Ext["aepb"+strings.TrimPrefix(key, "cpat")] != nil {
				t.Errorf("token %d: AEPB's word for %s stands there too", i+1, key)
			}
		}
		if _, ok := directions[i].Ext.Strings("cpat.translation_warnings"); !ok || directions[i].Act != "cpat:translate" {
			t.Errorf("token %d: act %s, warnings %s", i+1, directions[i].Act, directions[i].Ext["cpat.translation_warnings"])
		}
	}
}
