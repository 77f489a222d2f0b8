package negative

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// Who made the token: header, key, signature, chain.
func TestEvidence_Forged(t *testing.T) {
	t.Parallel()
	b := shared()
	other := b.Party(t, b.SVID(t, "/other"))
	usurper := gatewaytest.Authority(t, gatewaytest.TrustDomain, nil) // the right name, another key
	stranger := gatewaytest.Authority(t, "elsewhere.example", nil)
	header := func(name string, members ecttest.Raw, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Evidence(name, func(_ *gatewaytest.Fixture, r *ecttest.Recipe) { r.Header = members }, w)
	}
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		gatewaytest.Evidence("signed with another key", func(_ *gatewaytest.Fixture, r *ecttest.Recipe) { r.Sign = ecttest.SignES256(other.Key) }, gatewaytest.Invalid(ect.ReasonInvalidSignature, "")),
		gatewaytest.Evidence("alg none", func(_ *gatewaytest.Fixture, r *ecttest.Recipe) {
			r.Header, r.Sign = ecttest.Raw{"alg": `"none"`}, ecttest.SignNothing
		}, gatewaytest.Invalid(ect.ReasonUnsupportedAlg, "alg")),
		header("alg is a number", ecttest.Raw{"alg": "256"}, gatewaytest.Invalid(ect.ReasonUnsupportedAlg, "alg")),
		header("typ of an act token", ecttest.Raw{"typ": `"act+jwt"`}, gatewaytest.Invalid(ect.ReasonWrongType, "typ")),
		header("critical parameter", ecttest.Raw{"crit": `["b64"]`, "b64": "false"}, gatewaytest.Invalid(ect.ReasonUnsupportedCritical, "crit")),
		header("kid names another key", ecttest.Raw{"kid": strconv.Quote(other.KeyID)}, gatewaytest.Invalid(ect.ReasonUnknownKey, "kid")),
		header("neither a known kid nor a chain", ecttest.Raw{"kid": strconv.Quote(other.KeyID), "x5c": ""}, gatewaytest.Invalid(ect.ReasonUnknownKey, "kid")),
		header("somebody else's chain", ecttest.Raw{"kid": "", "x5c": chainOf(other)}, gatewaytest.Invalid(ect.ReasonInvalidSignature, "")),
		header("chain that is no certificate", ecttest.Raw{"kid": "", "x5c": `["aGVsbG8="]`}, gatewaytest.Invalid(ect.ReasonKeyNotTrusted, "x5c")),
		{
			Name: "chain of a foreign authority of the same name", Want: gatewaytest.Invalid(ect.ReasonKeyNotTrusted, "x5c"),
			Make: mintedBy(b.Party(t, gatewaytest.Issue(t, usurper, "/client", gatewaytest.NoNames()))),
		},
		{
			Name: "chain of a foreign trust domain", Want: gatewaytest.Invalid(ect.ReasonKeyNotTrusted, "x5c"),
			Make: mintedBy(b.Party(t, gatewaytest.Issue(t, stranger, "/client", gatewaytest.NoNames()))),
		},
		{
			Name: "self-signed chain", Want: gatewaytest.Invalid(ect.ReasonKeyNotTrusted, "x5c"),
			Make: mintedBy(ecttest.NewParty(t, b.Me.ID)),
		},
		{
			Name: "certificate that had run out when the token was issued", Want: gatewaytest.Invalid(ect.ReasonKeyNotTrusted, "x5c"),
			Make: mintedBy(b.Party(t, gatewaytest.Expired(t, b, "/client"))),
		},
		{
			Name: "unsigned", Want: gatewaytest.Invalid(ect.ReasonLevelTooLow, ""),
			Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
				t.Helper()
				body := gatewaytest.AddBody(b.Number())
				return gatewaytest.HTTPRequest{Body: body, Tokens: []string{ecttest.MintUnsigned(t, b.Me, b.Recipe(body))}}
			},
		},
		gatewaytest.Evidence("issuer is not the key's owner", func(_ *gatewaytest.Fixture, r *ecttest.Recipe) { r.Claims.Issuer = other.ID }, gatewaytest.Invalid(ect.ReasonIssuerMismatch, "iss")),
		{
			Name: "issuer is not the caller",
			Want: with(gatewaytest.Invalid(ect.ReasonIssuerMismatch, "iss"), "internal_error"),
			Make: mintedBy(other),
		},
	})
}

// mintedBy makes requests with another party's good token; the development
// client sends them.
func mintedBy(who *ecttest.Party) func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
	return func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
		t.Helper()
		body := gatewaytest.AddBody(b.Number())
		return gatewaytest.HTTPRequest{Body: body, Tokens: []string{ecttest.Mint(t, who, b.Recipe(body))}}
	}
}

// with is a refusal that leaves an error ECT.
func with(w gatewaytest.Want, proof string) gatewaytest.Want {
	w.Proof = proof
	return w
}

func chainOf(p *ecttest.Party) string {
	return `["` + base64.StdEncoding.EncodeToString(p.Chain[0].Raw) + `"]`
}

// What the token says.
func TestEvidence_UnacceptableClaims(t *testing.T) {
	t.Parallel()
	b := shared()
	started := b.Conf.Hooks.Epoch.Unix()
	claim := func(name string, members ecttest.Raw, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Evidence(name, func(_ *gatewaytest.Fixture, r *ecttest.Recipe) { r.Payload = members }, w)
	}
	// The times are those of the case, which may have to wait for its turn.
	times := func(name string, issued, expires int64, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Evidence(name, func(_ *gatewaytest.Fixture, r *ecttest.Recipe) {
			now := time.Now().Unix()
			r.Claims.IssuedAt, r.Claims.Expires = now+issued, now+expires
		}, w)
	}
	timed := func(name, member, before string, after int64, behind string, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Evidence(name, func(_ *gatewaytest.Fixture, r *ecttest.Recipe) {
			r.Payload = ecttest.Raw{member: before + strconv.FormatInt(time.Now().Unix()+after, 10) + behind}
		}, w)
	}
	bad := func(claim string) gatewaytest.Want { return gatewaytest.Invalid(ect.ReasonInvalidClaim, claim) }
	cases := []gatewaytest.Refusal{
		times("expired", -700, -100, gatewaytest.Invalid(ect.ReasonExpired, "exp")),
		times("issued in the future", 300, 600, gatewaytest.Invalid(ect.ReasonIssuedInFuture, "iat")),
		times("too old", -1000, 600, gatewaytest.Invalid(ect.ReasonTooOld, "iat")),
		gatewaytest.Evidence("older than the gateway's memory", func(_ *gatewaytest.Fixture, r *ecttest.Recipe) {
			r.Claims.IssuedAt, r.Claims.Expires = started-120, time.Now().Unix()+600
		}, gatewaytest.Invalid(ect.ReasonTooOld, "iat")),
		times("lifetime of a day and a second", 0, 86401, gatewaytest.Invalid(ect.ReasonLifetimeTooLong, "exp")),
		timed("not yet valid", "nbf", "", 300, "", gatewaytest.Invalid(ect.ReasonIssuedInFuture, "nbf")),
		claim("exp of another age", ecttest.Raw{"exp": "253402300800"}, bad("exp")),
		claim("exp below zero", ecttest.Raw{"exp": "-1"}, bad("exp")),
		claim("audience is somebody else", ecttest.Raw{"aud": `"spiffe://aepb.dev/concierge"`}, gatewaytest.Invalid(ect.ReasonAudienceMismatch, "aud")),
		claim("out_hash of another body", ecttest.Raw{"out_hash": strconv.Quote(ect.Hash([]byte("another")))}, gatewaytest.Invalid(ect.ReasonHashMismatch, "out_hash")),
		claim("jti is a number", ecttest.Raw{"jti": "17"}, bad("jti")),
		claim("par and pred differ", ecttest.Raw{"pred": strconv.Quote(string(ect.NewID()))}, gatewaytest.Invalid(ect.ReasonConflictingParents, "pred")),
		claim("ext and ect_ext differ", ecttest.Raw{"ext": `{"a":1}`, "ect_ext": `{"a":2}`}, gatewaytest.Invalid(ect.ReasonConflictingExt, "ect_ext")),
		claim("ect_ext alone, a list", ecttest.Raw{"ect_ext": `[1]`}, bad("ect_ext")),
	}
	for _, name := range []string{"iss", "aud", "iat", "exp", "jti", "exec_act", "par"} {
		cases = append(cases, claim("without "+name, ecttest.Raw{name: ""}, gatewaytest.Invalid(ect.ReasonMissingClaim, name)))
	}
	gatewaytest.Refusals(t, b, cases)
}

// What is no token, or more than one request may hold.
func TestEvidence_Malformed(t *testing.T) {
	t.Parallel()
	b := shared()
	raw := func(name string, w gatewaytest.Want, tokens ...string) gatewaytest.Refusal {
		return gatewaytest.Refusal{Name: name, Want: w, Make: func(*testing.T, *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(1), Tokens: tokens}
		}}
	}
	edited := func(name string, edit func(string) string, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Evidence(name, func(_ *gatewaytest.Fixture, r *ecttest.Recipe) { r.Edit = edit }, w)
	}
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		gatewaytest.Sent("none", gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(1)}, gatewaytest.Want{Status: 403, Code: "ect_required", Reason: "without one", Proof: "internal_error"}),
		raw("garbage", gatewaytest.Malformed("outside base64url"), "%%%"),
		raw("a word", gatewaytest.Malformed("payload is not"), "hello"),
		raw("nothing between the dots", gatewaytest.Malformed("header is not a JSON object"), ".."),
		raw("not UTF-8", gatewaytest.Malformed("header is not valid JSON"), ecttest.Encode("{\"alg\":\"\xff\"}")+".e30.e30"),
		edited("a line break in percent form", func(c string) string { return c[:20] + "%0d%0a" + c[20:] }, gatewaytest.Malformed("outside base64url")),
		gatewaytest.Evidence("8 KiB and more", func(_ *gatewaytest.Fixture, r *ecttest.Recipe) {
			r.Payload = ecttest.Raw{"padding": strconv.Quote(strings.Repeat("x", 8<<10))}
		}, gatewaytest.TooLarge("token")),
		raw("16 KiB and more in all", gatewaytest.TooLarge("header"), ballast(3, 6<<10)...),
		raw("33 tokens", gatewaytest.TooLarge("token count"), ballast(33, 8)...),
		{Name: "nine signatures", Want: gatewaytest.TooLarge("signatures to verify"), Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			l := gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(1)}
			for range 9 {
				l.Tokens = append(l.Tokens, b.Token(t, l.Body))
			}
			return l
		}},
		{Name: "a ring of parents", Want: gatewaytest.Malformed("name each other"), Make: ring},
		{Name: "a good one and a broken one", Want: gatewaytest.Malformed("outside base64url"), Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			l := b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())})
			l.Tokens = append(l.Tokens, "a=b")
			return l
		}},
		{Name: "a good one and a forged one", Want: gatewaytest.Invalid(ect.ReasonInvalidSignature, ""), Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			l := b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())})
			recipe := b.Recipe(l.Body)
			recipe.Sign = ecttest.SignNothing
			l.Tokens = append(l.Tokens, ecttest.Mint(t, b.Me, recipe))
			return l
		}},
	})
}

// ballast is so many different tokens of so many bytes, which only look like some.
func ballast(n, size int) []string {
	tokens := make([]string, n)
	for i := range tokens {
		tokens[i] = strings.Repeat("A", size-2) + string(rune('a'+i/16)) + string(rune('a'+i%16))
	}
	return tokens
}

// ring is two tokens that name each other as parents.
func ring(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
	t.Helper()
	l := gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(1)}
	ids := []ect.ID{ect.NewID(), ect.NewID()}
	for i := range ids {
		recipe := b.Recipe(l.Body)
		recipe.Claims.ID, recipe.Claims.Parents = ids[i], []ect.ID{ids[1-i]}
		l.Tokens = append(l.Tokens, ecttest.Mint(t, b.Me, recipe))
	}
	return l
}

// A token counts once (R6): the same with the same body gets the stored answer,
// everything else under its id is refused.
func TestEvidence_Replayed(t *testing.T) {
	t.Parallel()
	b := shared()
	counted := &gatewaytest.Fake{Conduct: gatewaytest.Well}
	b.Serve(t, "counted", "mcp-v1", counted, gatewaytest.Host{})
	const translate, endpoint = "/aepb/translate?from=a2a-v1&dest=counted", "/agents/counted/a2a"
	body := gatewaytest.AddBody(b.Number())
	first := b.Recipe(body)
	first.Claims.ID, first.Claims.OutputHash = ect.NewID(), ""
	token := ecttest.Mint(t, b.Me, first)
	answer := b.Send(t, gatewaytest.HTTPRequest{At: translate, Body: body, Tokens: []string{token}})
	b.Right(t, answer, "done")
	gatewaytest.RefusalsInTurn(t, b, []gatewaytest.Refusal{ // while the token lives
		{Name: "with another body", Want: gatewaytest.Invalid(ect.ReasonReplay, "jti"), Make: func(_ *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: translate, Body: gatewaytest.AddBody(b.Number()), Tokens: []string{token}}
		}},
		{Name: "with the same JSON in other bytes", Want: gatewaytest.Invalid(ect.ReasonReplay, "jti"), Make: func(*testing.T, *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: translate, Body: body + " ", Tokens: []string{token}}
		}},
		{Name: "the id in another token", Want: gatewaytest.Invalid(ect.ReasonReplay, "jti"), Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			again := first
			again.Claims.Act = "send_another_task"
			return gatewaytest.HTTPRequest{At: translate, Body: body, Tokens: []string{ecttest.Mint(t, b.Me, again)}}
		}},
		{Name: "the same claims signed again", Want: gatewaytest.Invalid(ect.ReasonReplay, "jti"), Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			return gatewaytest.HTTPRequest{At: translate, Body: body, Tokens: []string{ecttest.Mint(t, b.Me, first)}}
		}},
		{Name: "the id in another workflow", Want: gatewaytest.Want{Status: 403, Code: "ect_invalid", Reason: "has this id"}, Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			again := first
			again.Claims.Workflow = string(ect.NewID())
			return gatewaytest.HTTPRequest{At: translate, Body: body, Tokens: []string{ecttest.Mint(t, b.Me, again)}}
		}},
		{Name: "at a native endpoint", Want: gatewaytest.Want{Status: 403, Code: "ect_invalid", RPC: -31403, Reason: "replay"}, Make: func(_ *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: endpoint, Body: gatewaytest.AddBody(b.Number()), Tokens: []string{token}}
		}},
	})
	t.Run("the same with the same body gets the stored answer", func(t *testing.T) {
		again := b.Send(t, gatewaytest.HTTPRequest{At: translate, Body: body, Tokens: []string{token}})
		gatewaytest.SameAnswer(t, answer, again)
		if calls := counted.Calls.Load(); calls != 1 {
			t.Errorf("the agent was called %d times", calls)
		}
	})
	t.Run("a refusal is repeated as it was", func(t *testing.T) {
		l := b.Sealed(t, gatewaytest.HTTPRequest{At: translate, Body: strings.Replace(body, `"skill":"add"`, `"skill":"divide"`, 1)})
		refused, again := b.Send(t, l), b.Send(t, l)
		b.Refused(t, l, refused, gatewaytest.Want{Status: 404, Code: "not_found", Reason: "no such skill", Proof: "internal_error"})
		gatewaytest.SameAnswer(t, refused, again)
	})
}

// Where the message has been: hops, loops, ancestors that nobody knows (R1).
func TestEvidence_RefusedPaths(t *testing.T) {
	t.Parallel()
	b := shared()
	n := b.Number()
	body := gatewaytest.AddBody(n)
	ours := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{Body: body})).Header.Values(ect.HeaderName)
	if len(ours) != 2 {
		t.Fatalf("a good call got %d ECTs", len(ours))
	}
	request, _, err := ect.ParseUnverified(ours[0])
	gatewaytest.Must(t, err)
	// translation is a request whose token says that it is a translation of others.
	translation := func(parents []ect.ID, tokens ...string) func(*testing.T, *gatewaytest.Fixture) gatewaytest.HTTPRequest {
		return func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			l := gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())}
			recipe := b.Recipe(l.Body)
			recipe.Claims.Act, recipe.Claims.Parents, recipe.Claims.Workflow = ect.ActTranslate, parents, request.Workflow
			l.Tokens = append([]string{ecttest.Mint(t, b.Me, recipe)}, tokens...)
			return l
		}
	}
	denied := func(constraint string) gatewaytest.Want {
		return gatewaytest.Want{Status: 403, Code: "policy_violation", Reason: "refused by constraint " + constraint, Proof: "policy_violation"}
	}
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		{Name: "the gateway is on the way already", Want: denied("loop"), Make: translation([]ect.ID{request.ID}, ours[0])},
		{Name: "the gateway is on the way, by reference", Want: denied("loop"), Make: translation([]ect.ID{request.ID})},
		{Name: "an ancestor that nobody knows", Want: denied("lineage"), Make: translation([]ect.ID{ect.NewID()})},
		{Name: "an ancestor in another workflow", Want: denied("lineage"), Make: func(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
			t.Helper()
			body := gatewaytest.AddBody(b.Number())
			other := b.Recipe(body)
			other.Claims.ID = ect.NewID()
			return translation([]ect.ID{other.Claims.ID}, ecttest.Mint(t, b.Me, other))(t, b)
		}},
		{Name: "three translations before", Want: denied("aepb.max_translation_hops"), Make: threeHops},
	})
	t.Run("a key that is somewhere on the web is not fetched", func(t *testing.T) { fetchesNoKey(t, b) })
	t.Run("a token folded over two lines", func(t *testing.T) { refusesFolding(t, b) })
}

// threeHops is a message that three gateways have translated; the fourth is us.
func threeHops(t *testing.T, b *gatewaytest.Fixture) gatewaytest.HTTPRequest {
	t.Helper()
	l := gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())}
	var parents []ect.ID
	workflow := string(ect.NewID())
	for range 3 {
		recipe := b.Recipe(l.Body)
		recipe.Claims.ID, recipe.Claims.Act, recipe.Claims.Parents, recipe.Claims.Workflow = ect.NewID(), ect.ActTranslate, parents, workflow
		l.Tokens = append([]string{ecttest.Mint(t, b.Me, recipe)}, l.Tokens...)
		parents = []ect.ID{recipe.Claims.ID}
	}
	return l
}

// fetchesNoKey: a URL in a token is never followed.
func fetchesNoKey(t *testing.T, b *gatewaytest.Fixture) {
	var request atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { request.Add(1) }))
	defer server.Close()
	address := strconv.Quote(server.URL)
	stranger := ecttest.NewParty(t, b.Me.ID)
	l := gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())}
	recipe := b.Recipe(l.Body)
	recipe.Header = ecttest.Raw{"x5c": "", "jku": address, "x5u": address}
	recipe.Payload = ecttest.Raw{"jku": address}
	l.Tokens = []string{ecttest.Mint(t, stranger, recipe)}
	b.Refused(t, l, b.Send(t, l), gatewaytest.Invalid(ect.ReasonUnknownKey, "kid"))
	if request.Load() > 0 {
		t.Error("the gateway went to fetch a key")
	}
}

// refusesFolding: an HTTP/1.1 field may be folded, which makes a blank of the
// line break; no token has one.
func refusesFolding(t *testing.T, b *gatewaytest.Fixture) {
	body := gatewaytest.AddBody(b.Number())
	token := b.Token(t, body)
	got := raw(t, b, b.ClientTLS(t, b.Dev.Client), "POST "+gatewaytest.ToCalculator+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Connection: close\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\nExecution-Context: "+token[:100]+"\r\n "+token[100:]+"\r\n\r\n"+body)
	b.Refused(t, gatewaytest.HTTPRequest{Body: body}, got, gatewaytest.Malformed("outside base64url"))
}

// raw sends bytes as they are and reads the answer.
func raw(t *testing.T, b *gatewaytest.Fixture, conf *tls.Config, content string) gatewaytest.Reply {
	t.Helper()
	at, err := url.Parse(b.At.Public)
	gatewaytest.Must(t, err)
	conf = conf.Clone()
	conf.NextProtos = []string{"http/1.1"}
	dialer := tls.Dialer{Config: conf}
	conn, err := dialer.DialContext(t.Context(), "tcp", at.Host)
	gatewaytest.Must(t, err)
	defer func() { _ = conn.Close() }()
	gatewaytest.Must(t, conn.SetDeadline(time.Now().Add(gatewaytest.Patience)))
	_, err = io.WriteString(conn, content)
	gatewaytest.Must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	gatewaytest.Must(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	gatewaytest.Must(t, err)
	return gatewaytest.Reply{Status: response.StatusCode, Header: response.Header, Body: text}
}
