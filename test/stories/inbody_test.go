package stories

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// insiders are peers with ect_in_body, by the last part of their ids.
func insiders(names ...string) map[string]config.Peer {
	out := map[string]config.Peer{}
	for _, name := range names {
		out["spiffe://"+gatewaytest.TrustDomain+"/"+name] = config.Peer{InBody: true}
	}
	return out
}

// without takes tokens out of a message, as its receiver does.
func without(t *testing.T, binding canonical.Binding, re canonical.Op, body []byte) ([]byte, []string) {
	t.Helper()
	var form translators.Translator = a2a.New(translators.Config{})
	if binding == mcp.Binding {
		form = mcp.New(translators.Config{})
	}
	w, tokens, err := embedded.Take(form, translators.Wire{Binding: binding, Re: re, Body: body})
	gatewaytest.Must(t, err)
	return w.Body, tokens
}

// beforeECT demands that one of the tokens is about these bytes, and says how
// they were hashed.
func beforeECT(t *testing.T, b *gatewaytest.Fixture, tokens []string, bytes []byte) {
	t.Helper()
	for _, compact := range tokens {
		v, err := b.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		gatewaytest.Must(t, err)
		if v.Claims().OutputHash == ect.Hash(bytes) {
			if form, _ := v.Extension(ect.ExtHashForm); form != embedded.HashForm {
				t.Errorf("the hash form is %q", form)
			}
			return
		}
	}
	t.Errorf("none of %d tokens is about %s", len(tokens), gatewaytest.Short(bytes))
}

// TestInBodyECT_Agents: what goes to them has its tokens as metadata or
// _meta too, and is hashed as it was before (R5). The agents are the official SDKs'.
func TestInBodyECT_Agents(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Peers: insiders("concierge", "calculator")}})
	b.Works(t) // from both protocols to both
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{At: "/agents/concierge/a2a", Body: gatewaytest.TextBody("as it came"), Header: map[string]string{"A2A-Version": "1.0"}}), "You said: as it came")
	answer := slices.DeleteFunc(b.Talker.Received(), func(r peers.Received) bool { return r.Method == http.MethodGet }) // its card
	if len(answer) < 2 {
		t.Fatalf("the agent heard %d messages", len(answer))
	}
	for _, one := range answer {
		bytes, tokens := without(t, a2a.Binding, "", one.Body)
		if !slices.Equal(tokens, one.Evidence) || len(tokens) == 0 {
			t.Errorf("in the body are %d tokens, in the header %d", len(tokens), len(one.Evidence))
		}
		beforeECT(t, b, tokens, bytes)
	}
	if bytes, _ := without(t, a2a.Binding, "", answer[len(answer)-1].Body); string(bytes) != gatewaytest.TextBody("as it came") {
		t.Errorf("what was relayed came as %s", bytes)
	}
}

// TestInBodyECT_Callers: they need no header, and what goes to them is found
// in the body; the same again is answered with the same bytes.
func TestInBodyECT_Callers(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Peers: insiders("insider")}})
	svid := b.SVID(t, "/insider")
	via, who := b.Caller(t, svid), b.Party(t, svid)
	body := gatewaytest.AddBody(40)
	inside := func(body, token string) string {
		return strings.Replace(body, `"params":{`, `"params":{"metadata":{"urn:aepb:translation:1/ect":["`+token+`"]},`, 1)
	}
	sent := gatewaytest.HTTPRequest{Via: via, At: "/agents/strict/a2a", Body: inside(body, ecttest.Mint(t, who, b.Recipe(body))), Header: map[string]string{"A2A-Version": "1.0"}}
	got := b.Send(t, sent)
	b.Right(t, got, `"sum":41`)
	bytes, tokens := without(t, a2a.Binding, canonical.OpInvoke, got.Body)
	if len(tokens) != 2 || !slices.Equal(tokens, got.Header.Values(ect.HeaderName)) {
		t.Errorf("in the body are %d tokens, in the header %d", len(tokens), len(got.Header.Values(ect.HeaderName)))
	}
	beforeECT(t, b, tokens, bytes)
	if claims := b.Proofs(t, got); claims[0].InputHash != ect.Hash([]byte(body)) {
		t.Error("the first token is not about the message before insertion")
	}
	if again := b.Send(t, sent); string(again.Body) != string(got.Body) {
		t.Errorf("again: %s", again.Body)
	}
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"another token in the header": {Body: inside(body, ecttest.Mint(t, who, b.Recipe(body))), Tokens: []string{ecttest.Mint(t, who, b.Recipe(body))}},
		"about another message":       {Body: inside(gatewaytest.AddBody(7), ecttest.Mint(t, who, b.Recipe(body)))},
		"no token":                    {Body: strings.Replace(inside(body, ""), `[""]`, `1`, 1)},
		"of somebody without that":    {Via: b.Client, Body: inside(body, b.Token(t, body))},
	} {
		l.At, l.Header = sent.At, sent.Header
		if l.Via == nil {
			l.Via = via
		}
		if got := b.Send(t, l); !strings.Contains(string(got.Body), `"error"`) {
			t.Errorf("%s: got %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
	}
	word := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"concierge","arguments":{"message":"hi"},` + gatewaytest.ModernMeta + `}}`
	token := ecttest.Mint(t, who, b.Recipe(word))
	got = b.Send(t, gatewaytest.HTTPRequest{Via: via, At: gatewaytest.EndpointMCP, Header: gatewaytest.Mirror("tools/call", "concierge"), Body: strings.Replace(word, `"_meta":{`, `"_meta":{"aepb.gateway/ect":["`+token+`"],`, 1)})
	b.Right(t, got, "You said: hi")
	bytes, tokens = without(t, mcp.Binding, canonical.OpInvoke, got.Body)
	beforeECT(t, b, tokens, bytes)
	for _, answer := range b.Talker.Received() {
		if strings.Contains(string(answer.Body), "aepb.gateway/ect") || strings.Contains(string(answer.Body), "translation:1/ect") {
			t.Errorf("the agent was told %s", answer.Body)
		}
	}
	b.Works(t)
}

// TestInBodyECT_RepliesOfAgents: an agent's tokens are taken from the body of its
// reply, and are held to what it said without them.
func TestInBodyECT_RepliesOfAgents(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Peers: insiders("inner")}})
	svid := b.SVID(t, "/inner")
	who := b.Party(t, svid)
	jtis, hash := make(chan ect.ID, 4), func(good []byte) string { return ect.Hash(good) }
	f := &gatewaytest.Fake{Conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		request, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		gatewaytest.Must(t, err)
		claims := ect.Claims{ID: ect.NewID(), Act: "answered", Audience: []string{b.Self()}, Workflow: request.Workflow, Parents: []ect.ID{request.ID}, OutputHash: hash(good)}
		jtis <- claims.ID
		reply, ok := embedded.Insert(mcp.New(translators.Config{}), translators.Wire{Binding: mcp.Binding, Re: canonical.OpInvoke, Body: good}, []string{ecttest.Mint(t, who, ecttest.Recipe{Claims: claims})})
		if !ok {
			t.Error("no place for the token")
		}
		gatewaytest.Well(w, r, reply.Body)
	}}
	b.Serve(t, "inner", mcp.Binding, f, gatewaytest.Host{TLS: gatewaytest.Serving(svid), ID: svid.ID})
	asks := gatewaytest.HTTPRequest{At: "/agents/inner/mcp", Body: strings.Replace(gatewaytest.CallBody("echo", "hi"), `"message"`, `"x"`, 1), Header: gatewaytest.Mirror("tools/call", "echo")}
	got := b.Send(t, asks)
	claims := b.Proofs(t, got)
	if id := <-jtis; got.Status != http.StatusOK || len(claims) != 2 || !slices.Contains(claims[1].Parents, id) {
		t.Fatalf("got %d %s, and the agent's token is no parent of ours", got.Status, gatewaytest.Short(got.Body))
	}
	if strings.Contains(string(got.Body), "aepb.gateway/ect") {
		t.Errorf("its token went on in %s", got.Body)
	}
	hash = func([]byte) string { return ect.Hash([]byte("something else")) }
	if got := b.Send(t, asks); !strings.Contains(string(got.Body), `"error"`) {
		t.Errorf("a token about another reply: got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	b.Works(t)
}
