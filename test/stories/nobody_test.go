package stories

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
)

const intoAINP = "/aepb/translate?from=a2a-v1&to=ainp-v1"

// served is what a gateway says of a pair.
func served(t *testing.T, b *gatewaytest.Fixture, query string) int {
	t.Helper()
	return b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/.well-known/aepb/gateway?" + query, Media: "-"}).Status
}

// chained: each token of an answer is a translation made of the one before, the
// first of the source, by these gateways; the last covers the message.
func chained(t *testing.T, b *gatewaytest.Fixture, got gatewaytest.Reply, source ect.ID, by ...*gatewaytest.Fixture) {
	t.Helper()
	var claims []ect.Claims
	for _, compact := range got.Header.Values(ect.HeaderName) {
		v, err := b.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		gatewaytest.Must(t, err)
		claims = append(claims, v.Claims())
	}
	if len(claims) != len(by) {
		t.Fatalf("%d tokens, want %d", len(claims), len(by))
	}
	slices.SortFunc(claims, func(x, y ect.Claims) int { // oldest first
		if slices.Contains(y.Parents, x.ID) {
			return -1
		}
		return 1
	})
	for i, c := range claims {
		if c.Issuer != by[i].Dev.Gateway.ID || c.Act != ect.ActTranslate || len(c.Parents) != 1 || c.Parents[0] != source {
			t.Errorf("step %d is %s by %s, made of %v", i, c.Act, c.Issuer, c.Parents)
		}
		source = c.ID
	}
	bytes := translators.Wire{Body: got.Body, Hasher: ainp.New(translators.Config{})}.HashInput()
	if last := claims[len(claims)-1]; last.OutputHash != ect.Hash(bytes) {
		t.Error("the evidence is about another message")
	}
}

// TestTranslation_WithoutDelivery: a message is translated into a protocol that only
// another gateway speaks, and delivered to nobody: what is said of a pair holds
// for it, through one gateway and through two, and a repetition is answered alike.
func TestTranslation_WithoutDelivery(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{NoAINP: true})
	middle := first.Besides(t, "gateway-2", gatewaytest.Plan{NoAINP: true})
	last := first.Beside(t, "gateway-3", config.Config{})
	for way, peers := range map[string][]*gatewaytest.Fixture{"one": {last}, "two": {middle, last}} {
		first.Knows(t, peers[0])
		middle.Knows(t, first, last)
		if got := served(t, first, "from=a2a-v1&to=ainp-v1"); got != http.StatusOK {
			t.Errorf("%s: the pair is answered with %d", way, got)
		}
		body := gatewaytest.AddBody(first.Number())
		recipe := first.Recipe(body)
		l := gatewaytest.HTTPRequest{At: intoAINP, Body: body, Tokens: []string{ecttest.Mint(t, first.Me, recipe)}}
		source, _, err := ect.ParseUnverified(l.Tokens[0])
		gatewaytest.Must(t, err)
		got := first.Send(t, l)
		m, err := ainp.New(translators.Config{}).Decode(translators.Wire{Body: got.Body})
		if got.Status != http.StatusOK || err != nil || m.Body == nil || got.Header.Get("Content-Type") != ainp.Media {
			t.Fatalf("%s: %d %s: %v", way, got.Status, gatewaytest.Short(got.Body), err)
		}
		chained(t, first, got, source.ID, append([]*gatewaytest.Fixture{first}, peers...)...)
		again := first.Send(t, l)
		if again.Status != http.StatusOK || string(again.Body) != string(got.Body) {
			t.Errorf("%s, again: %d %s", way, again.Status, gatewaytest.Short(again.Body))
		}
		chained(t, first, again, source.ID, append([]*gatewaytest.Fixture{first}, peers...)...)
		records, err := ecttest.All(t.Context(), first.Gateway().Evidence, source.Workflow)
		gatewaytest.Must(t, err)
		if n := len(records); n < 2+len(peers) {
			t.Errorf("%s: %d tokens are on record", way, n)
		}
	}
}

// TestTranslation_WithoutDeliveryRefused: nobody can, nobody may, or too many had a hand
// in it; each is refused with the code of the draft, and leaves its ECT.
func TestTranslation_WithoutDeliveryRefused(t *testing.T) {
	t.Parallel()
	one := 1
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{NoAINP: true})
	deaf := first.Besides(t, "gateway-2", gatewaytest.Plan{NoAINP: true})
	strict := first.Beside(t, "gateway-3", config.Config{Policy: config.Policy{MaxHops: &one}})
	ask := func(b *gatewaytest.Fixture, at string) gatewaytest.Reply {
		body := gatewaytest.AddBody(1)
		return b.Send(t, gatewaytest.HTTPRequest{At: at, Body: body, Tokens: []string{b.Token(t, body)}})
	}
	refuse := func(what string, got gatewaytest.Reply, status int, code string, evidence bool) {
		t.Helper()
		if got.Status != status || gatewaytest.ProblemCode(t, got) != code {
			t.Errorf("%s: %d %s", what, got.Status, gatewaytest.Short(got.Body))
		}
		claims := first.Proofs(t, got)
		if failed := slices.ContainsFunc(claims, func(c ect.Claims) bool { return c.Act == ect.ActTranslateError }); failed != evidence {
			t.Errorf("%s: %d tokens", what, len(claims))
		}
	}
	refuse("without peers", ask(first, intoAINP), http.StatusNotFound, "no_translation_path", false)
	first.Knows(t, deaf)
	deaf.Knows(t, first)
	for _, query := range []string{"from=a2a-v1&to=ainp-v1", "from=a2a-v1&to=xyz-v1", "from=a2a-v1&to=mcp-v1@1999-01-01"} {
		refuse(query, ask(first, "/aepb/translate?"+query), http.StatusNotFound, "no_translation_path", true)
		if got := served(t, first, query); got != http.StatusNotFound {
			t.Errorf("%s: the pair is answered with %d", query, got)
		}
	}
	refuse("too long a name", ask(first, "/aepb/translate?from=a2a-v1&to="+strings.Repeat("x", 65)), http.StatusNotFound, "no_translation_path", true)
	refuse("the same protocol", ask(first, "/aepb/translate?from=uacp-v1&to=uacp-v1"), http.StatusNotFound, "no_translation_path", false)
	first.Knows(t, strict)
	got := ask(first, intoAINP)
	refuse("too many hops", got, http.StatusNotFound, "no_translation_path", true)
	if !strings.Contains(string(got.Body), "aepb.max_translation_hops") {
		t.Errorf("too many hops: %s", gatewaytest.Short(got.Body))
	}
	body := gatewaytest.AddBody(1)
	if got := first.Send(t, gatewaytest.HTTPRequest{At: intoAINP, Body: body}); got.Status != http.StatusForbidden || gatewaytest.ProblemCode(t, got) != "ect_required" {
		t.Errorf("without an ECT: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	if got := first.Send(t, gatewaytest.HTTPRequest{At: intoAINP, Body: body, Via: first.Anonymous, Tokens: []string{first.Token(t, body)}}); got.Status != http.StatusNotFound && got.Status != http.StatusUnauthorized {
		t.Errorf("without a name: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	first.Works(t)
}

// TestTranslation_PeerEvidenceMustMatch: what another gateway hands back is believed only
// if its ECT covers the message and was made of ours.
func TestTranslation_PeerEvidenceMustMatch(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{NoAINP: true})
	svid := first.SVID(t, "/gateway-2")
	who, other := first.Party(t, svid), first.Party(t, first.SVID(t, "/gateway-3"))
	message := `{"version":"0.1.0"}`
	var answer func(requested string) (media, body string, tokens []string)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil || r.Method == http.MethodGet {
			return // yes
		}
		media, body, tokens := answer(r.Header.Values("Execution-Context")[0])
		w.Header().Set("Content-Type", media)
		for _, token := range tokens {
			w.Header().Add("Execution-Context", token)
		}
		_, _ = io.WriteString(w, body)
	}))
	server.TLS = gatewaytest.Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	gatewaytest.Must(t, first.Directory().UsePeers([]directory.Peer{{ID: svid.ID, URL: server.URL + "/aepb/translate", Rules: policy.Rules{Open: true}}}))
	workflow := "" // of the request
	step := func(by *ecttest.Party, of ect.ID, about, to string) (string, ect.ID) {
		ext := ect.Ext{}
		ext.SetString(ect.ExtSourceProtocol, "a2a-v1")
		ext.SetString(ect.ExtDestProtocol, to)
		ext.SetString(ect.ExtLeg, "request")
		token := gatewaytest.Signing(t, by, ect.Claims{
			Act: ect.ActTranslate, Audience: []string{first.Self()}, Workflow: workflow, Parents: []ect.ID{of}, OutputHash: ect.Hash([]byte(about)), Ext: ext,
		})
		claims, _, err := ect.ParseUnverified(token)
		gatewaytest.Must(t, err)
		return token, claims.ID
	}
	const media = "application/json"
	for name, tc := range map[string]struct {
		good bool
		says func(ours ect.ID) (string, string, []string)
	}{
		"one step": {true, func(ours ect.ID) (string, string, []string) {
			token, _ := step(who, ours, message, "ainp-v1")
			return media, message, []string{token}
		}},
		"two steps": {true, func(ours ect.ID) (string, string, []string) {
			near, id := step(who, ours, "between", "a2a-v1")
			far, _ := step(other, id, message, "ainp-v1")
			return media, message, []string{near, far}
		}},
		"bytes": {true, func(ours ect.ID) (string, string, []string) {
			token, _ := step(who, ours, "\x00\xff", "ainp-v1")
			return "application/octet-stream", "\x00\xff", []string{token}
		}},
		"no ECT": {false, func(ect.ID) (string, string, []string) { return media, message, nil }},
		"another message": {false, func(ours ect.ID) (string, string, []string) {
			token, _ := step(who, ours, "x", "ainp-v1")
			return media, message, []string{token}
		}},
		"another protocol": {false, func(ours ect.ID) (string, string, []string) {
			token, _ := step(who, ours, message, "slim-v1")
			return media, message, []string{token}
		}},
		"of another request": {false, func(ect.ID) (string, string, []string) {
			token, _ := step(who, ect.NewID(), message, "ainp-v1")
			return media, message, []string{token}
		}},
		"a step is missing": {false, func(ours ect.ID) (string, string, []string) {
			_, id := step(who, ours, "between", "a2a-v1")
			far, _ := step(other, id, message, "ainp-v1")
			return media, message, []string{far}
		}},
		"a step too many": {false, func(ours ect.ID) (string, string, []string) {
			near, _ := step(who, ours, message, "ainp-v1")
			far, _ := step(other, ours, message, "ainp-v1")
			return media, message, []string{near, far}
		}},
		"another act": {false, func(ours ect.ID) (string, string, []string) {
			return media, message, []string{gatewaytest.Signing(t, who, ect.Claims{Act: ect.ActNegotiate, Audience: []string{first.Self()}, Parents: []ect.ID{ours}})}
		}},
		"of another workflow": {false, func(ours ect.ID) (string, string, []string) {
			workflow = string(ect.NewID())
			token, _ := step(who, ours, message, "ainp-v1")
			return media, message, []string{token}
		}},
		"a stranger's": {false, func(ours ect.ID) (string, string, []string) {
			token, _ := step(ecttest.NewParty(t, svid.ID), ours, message, "ainp-v1")
			return media, message, []string{token}
		}},
		"nothing": {false, func(ours ect.ID) (string, string, []string) {
			token, _ := step(who, ours, "", "ainp-v1")
			return media, "", []string{token}
		}},
		"no media": {false, func(ours ect.ID) (string, string, []string) {
			token, _ := step(who, ours, message, "ainp-v1")
			return "///", message, []string{token}
		}},
		"a stream": {false, func(ours ect.ID) (string, string, []string) {
			token, _ := step(who, ours, message, "ainp-v1")
			return "text/event-stream", "data: {}\n\n", []string{token}
		}},
		"a problem": {false, func(ours ect.ID) (string, string, []string) {
			token, _ := step(who, ours, message, "ainp-v1")
			return "application/problem+json", message, []string{token}
		}},
	} {
		answer = func(requested string) (string, string, []string) {
			ours, _, err := ect.ParseUnverified(requested)
			gatewaytest.Must(t, err)
			workflow = ours.Workflow
			return tc.says(ours.ID)
		}
		got := first.Send(t, first.Sealed(t, gatewaytest.HTTPRequest{At: intoAINP, Body: gatewaytest.AddBody(first.Number())}))
		if good := got.Status == http.StatusOK; good != tc.good {
			t.Errorf("%s: %d %s", name, got.Status, gatewaytest.Short(got.Body))
		} else if !good && (got.Status != http.StatusBadGateway || gatewaytest.ProblemCode(t, got) != "bad_upstream_reply") {
			t.Errorf("%s: %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
	}
	first.Works(t)
}
