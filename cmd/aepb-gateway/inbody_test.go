package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
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
		out["spiffe://"+devTrustDomain+"/"+name] = config.Peer{InBody: true}
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
	must(t, err)
	return w.Body, tokens
}

// beforeECT demands that one of the tokens is about these bytes, and says how
// they were hashed.
func (b *bed) beforeECT(t *testing.T, tokens []string, octets []byte) {
	t.Helper()
	for _, compact := range tokens {
		v, err := b.judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		must(t, err)
		if v.Claims().OutputHash == ect.Hash(octets) {
			if form, _ := v.Extension(ect.ExtHashForm); form != embedded.HashForm {
				t.Errorf("the hash form is %q", form)
			}
			return
		}
	}
	t.Errorf("none of %d tokens is about %s", len(tokens), short(octets))
}

// TestAgentsWithECTsInTheBody: what goes to them has its tokens as metadata or
// _meta too, and is hashed as it was before (R5). The agents are the official SDKs'.
func TestAgentsWithECTsInTheBody(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Peers: insiders("concierge", "calculator")}})
	b.works(t) // from both protocols to both
	b.right(t, b.send(t, letter{at: "/agents/concierge/a2a", body: textBody("as it came"), header: map[string]string{"A2A-Version": "1.0"}}), "You said: as it came")
	said := slices.DeleteFunc(b.talker.Received(), func(r peers.Received) bool { return r.Method == http.MethodGet }) // its card
	if len(said) < 2 {
		t.Fatalf("the agent heard %d messages", len(said))
	}
	for _, one := range said {
		octets, tokens := without(t, a2a.Binding, "", one.Body)
		if !slices.Equal(tokens, one.Evidence) || len(tokens) == 0 {
			t.Errorf("in the body are %d tokens, in the header %d", len(tokens), len(one.Evidence))
		}
		b.beforeECT(t, tokens, octets)
	}
	if octets, _ := without(t, a2a.Binding, "", said[len(said)-1].Body); string(octets) != textBody("as it came") {
		t.Errorf("what was relayed came as %s", octets)
	}
}

// TestCallersWithECTsInTheBody: they need no header, and what goes to them is found
// in the body; the same again is answered with the same bytes.
func TestCallersWithECTsInTheBody(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Peers: insiders("insider")}})
	svid := b.svid(t, "/insider")
	via, who := b.caller(t, svid), b.party(t, svid)
	body := addBody(40)
	inside := func(body, token string) string {
		return strings.Replace(body, `"params":{`, `"params":{"metadata":{"urn:aepb:translation:1/ect":["`+token+`"]},`, 1)
	}
	sent := letter{via: via, at: "/agents/strict/a2a", body: inside(body, ecttest.Mint(t, who, b.recipe(body))), header: map[string]string{"A2A-Version": "1.0"}}
	got := b.send(t, sent)
	b.right(t, got, `"sum":41`)
	octets, tokens := without(t, a2a.Binding, canonical.OpInvoke, got.body)
	if len(tokens) != 2 || !slices.Equal(tokens, got.header.Values(ect.HeaderName)) {
		t.Errorf("in the body are %d tokens, in the header %d", len(tokens), len(got.header.Values(ect.HeaderName)))
	}
	b.beforeECT(t, tokens, octets)
	if claims := b.proofs(t, got); claims[0].InputHash != ect.Hash([]byte(body)) {
		t.Error("the first token is not about the message before insertion")
	}
	if again := b.send(t, sent); string(again.body) != string(got.body) {
		t.Errorf("again: %s", again.body)
	}
	for name, l := range map[string]letter{
		"another token in the header": {body: inside(body, ecttest.Mint(t, who, b.recipe(body))), tokens: []string{ecttest.Mint(t, who, b.recipe(body))}},
		"about another message":       {body: inside(addBody(7), ecttest.Mint(t, who, b.recipe(body)))},
		"no token":                    {body: strings.Replace(inside(body, ""), `[""]`, `1`, 1)},
		"of somebody without that":    {via: b.client, body: inside(body, b.token(t, body))},
	} {
		l.at, l.header = sent.at, sent.header
		if l.via == nil {
			l.via = via
		}
		if got := b.send(t, l); !strings.Contains(string(got.body), `"error"`) {
			t.Errorf("%s: got %d %s", name, got.status, short(got.body))
		}
	}
	word := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"concierge","arguments":{"message":"hi"},` + modernMeta + `}}`
	token := ecttest.Mint(t, who, b.recipe(word))
	got = b.send(t, letter{via: via, at: doorMCP, header: mirror("tools/call", "concierge"), body: strings.Replace(word, `"_meta":{`, `"_meta":{"aepb.gateway/ect":["`+token+`"],`, 1)})
	b.right(t, got, "You said: hi")
	octets, tokens = without(t, mcp.Binding, canonical.OpInvoke, got.body)
	b.beforeECT(t, tokens, octets)
	for _, said := range b.talker.Received() {
		if strings.Contains(string(said.Body), "aepb.gateway/ect") || strings.Contains(string(said.Body), "translation:1/ect") {
			t.Errorf("the agent was told %s", said.Body)
		}
	}
	b.works(t)
}

// TestRepliesWithECTsInTheBody: an agent's tokens are taken from the body of its
// reply, and are held to what it said without them.
func TestRepliesWithECTsInTheBody(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Peers: insiders("inner")}})
	svid := b.svid(t, "/inner")
	who := b.party(t, svid)
	jtis, hash := make(chan ect.ID, 4), func(good []byte) string { return ect.Hash(good) }
	f := &fake{conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		asked, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		must(t, err)
		claims := ect.Claims{ID: ect.NewID(), Act: "answered", Audience: []string{b.self()}, Workflow: asked.Workflow, Parents: []ect.ID{asked.ID}, OutputHash: hash(good)}
		jtis <- claims.ID
		reply, ok := embedded.Insert(mcp.New(translators.Config{}), translators.Wire{Binding: mcp.Binding, Re: canonical.OpInvoke, Body: good}, []string{ecttest.Mint(t, who, ecttest.Recipe{Claims: claims})})
		if !ok {
			t.Error("no place for the token")
		}
		well(w, r, reply.Body)
	}}
	b.serve(t, "inner", mcp.Binding, f, host{tls: serving(svid), id: svid.ID})
	asks := letter{at: "/agents/inner/mcp", body: strings.Replace(callBody("echo", "hi"), `"message"`, `"x"`, 1), header: mirror("tools/call", "echo")}
	got := b.send(t, asks)
	claims := b.proofs(t, got)
	if id := <-jtis; got.status != http.StatusOK || len(claims) != 2 || !slices.Contains(claims[1].Parents, id) {
		t.Fatalf("got %d %s, and the agent's token is no parent of ours", got.status, short(got.body))
	}
	if strings.Contains(string(got.body), "aepb.gateway/ect") {
		t.Errorf("its token went on in %s", got.body)
	}
	hash = func([]byte) string { return ect.Hash([]byte("something else")) }
	if got := b.send(t, asks); !strings.Contains(string(got.body), `"error"`) {
		t.Errorf("a token about another reply: got %d %s", got.status, short(got.body))
	}
	b.works(t)
}
