package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

// Who made the token: header, key, signature, chain.
func TestForgedEvidence(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	other := b.party(t, b.svid(t, "/other"))
	usurper := authority(t, devTrustDomain, nil) // the right name, another key
	stranger := authority(t, "elsewhere.example", nil)
	header := func(name string, members ecttest.Raw, w want) refusal {
		return evidence(name, func(_ *bed, r *ecttest.Recipe) { r.Header = members }, w)
	}
	refusals(t, b, []refusal{
		evidence("signed with another key", func(_ *bed, r *ecttest.Recipe) { r.Sign = ecttest.SignES256(other.Key) }, invalid(ect.ReasonInvalidSignature, "")),
		evidence("changed after signing", func(_ *bed, r *ecttest.Recipe) { r.Edit = otherPayload }, invalid(ect.ReasonInvalidSignature, "")),
		evidence("no signature", func(_ *bed, r *ecttest.Recipe) { r.Sign = ecttest.SignNothing }, invalid(ect.ReasonInvalidSignature, "")),
		evidence("signature cut in half", func(_ *bed, r *ecttest.Recipe) {
			r.Edit = func(compact string) string { return compact[:len(compact)-22] }
		}, invalid(ect.ReasonInvalidSignature, "")),
		evidence("alg none", func(_ *bed, r *ecttest.Recipe) {
			r.Header, r.Sign = ecttest.Raw{"alg": `"none"`}, ecttest.SignNothing
		}, invalid(ect.ReasonUnsupportedAlg, "alg")),
		evidence("alg NONE", func(_ *bed, r *ecttest.Recipe) {
			r.Header, r.Sign = ecttest.Raw{"alg": `"NONE"`}, ecttest.SignNothing
		}, invalid(ect.ReasonUnsupportedAlg, "alg")),
		evidence("HS256 with the public key", func(b *bed, r *ecttest.Recipe) {
			r.Header, r.Sign = ecttest.Raw{"alg": `"HS256"`}, ecttest.SignHS256(publicPEM(t, b.me))
		}, invalid(ect.ReasonUnsupportedAlg, "alg")),
		header("alg es256 in lower case", ecttest.Raw{"alg": `"es256"`}, invalid(ect.ReasonUnsupportedAlg, "alg")),
		header("alg ES384", ecttest.Raw{"alg": `"ES384"`}, invalid(ect.ReasonUnsupportedAlg, "alg")),
		header("no alg", ecttest.Raw{"alg": ""}, invalid(ect.ReasonUnsupportedAlg, "alg")),
		header("alg is a number", ecttest.Raw{"alg": "256"}, invalid(ect.ReasonUnsupportedAlg, "alg")),
		header("typ of an act token", ecttest.Raw{"typ": `"act+jwt"`}, invalid(ect.ReasonWrongType, "typ")),
		header("typ JWT", ecttest.Raw{"typ": `"JWT"`}, invalid(ect.ReasonWrongType, "typ")),
		header("typ of a workload identity token", ecttest.Raw{"typ": `"wit+jwt"`}, invalid(ect.ReasonWrongType, "typ")),
		header("no typ", ecttest.Raw{"typ": ""}, invalid(ect.ReasonWrongType, "typ")),
		header("critical parameter", ecttest.Raw{"crit": `["b64"]`, "b64": "false"}, invalid(ect.ReasonUnsupportedCritical, "crit")),
		header("kid names another key", ecttest.Raw{"kid": strconv.Quote(other.KeyID)}, invalid(ect.ReasonUnknownKey, "kid")),
		header("neither a known kid nor a chain", ecttest.Raw{"kid": strconv.Quote(other.KeyID), "x5c": ""}, invalid(ect.ReasonUnknownKey, "kid")),
		header("somebody else's chain", ecttest.Raw{"kid": "", "x5c": chainOf(other)}, invalid(ect.ReasonInvalidSignature, "")),
		header("chain in base64url", ecttest.Raw{"x5c": urlSafe(chainOf(b.me))}, malformed("x5c is not base64")),
		header("chain with a line break", ecttest.Raw{"x5c": strings.Replace(chainOf(b.me), "MII", `MI\nI`, 1)}, malformed("x5c is not base64")),
		header("chain that is no certificate", ecttest.Raw{"kid": "", "x5c": `["aGVsbG8="]`}, invalid(ect.ReasonKeyNotTrusted, "x5c")),
		header("empty chain", ecttest.Raw{"x5c": "[]"}, malformed("x5c is not an array of certificates")),
		{
			name: "chain of a foreign authority of the same name", want: invalid(ect.ReasonKeyNotTrusted, "x5c"),
			make: b.mintedBy(b.party(t, issue(t, usurper, "/client", noNames()))),
		},
		{
			name: "chain of a foreign trust domain", want: invalid(ect.ReasonKeyNotTrusted, "x5c"),
			make: b.mintedBy(b.party(t, issue(t, stranger, "/client", noNames()))),
		},
		{
			name: "self-signed chain", want: invalid(ect.ReasonKeyNotTrusted, "x5c"),
			make: b.mintedBy(ecttest.NewParty(t, b.me.ID)),
		},
		{
			name: "certificate that had run out when the token was issued", want: invalid(ect.ReasonKeyNotTrusted, "x5c"),
			make: b.mintedBy(b.party(t, expired(t, b, "/client"))),
		},
		{
			name: "unsigned", want: invalid(ect.ReasonLevelTooLow, ""),
			make: func(t *testing.T, b *bed) letter {
				t.Helper()
				body := addBody(b.number())
				return letter{body: body, tokens: []string{ecttest.MintUnsigned(t, b.me, b.recipe(body))}}
			},
		},
		{
			name: "unsigned translation", want: invalid(ect.ReasonLevelTooLow, ""),
			make: func(t *testing.T, b *bed) letter {
				t.Helper()
				body := addBody(b.number())
				recipe := b.recipe(body)
				recipe.Claims.Act = ect.ActTranslate
				return letter{body: body, tokens: []string{ecttest.MintUnsigned(t, b.me, recipe)}}
			},
		},
		evidence("issuer is not the key's owner", func(_ *bed, r *ecttest.Recipe) { r.Claims.Issuer = other.ID }, invalid(ect.ReasonIssuerMismatch, "iss")),
		{
			name: "issuer is not the caller",
			want: with(invalid(ect.ReasonIssuerMismatch, "iss"), "internal_error"),
			make: b.mintedBy(other),
		},
	})
}

// mintedBy makes letters with another party's good token; the development
// client sends them.
func (b *bed) mintedBy(who *ecttest.Party) func(t *testing.T, b *bed) letter {
	return func(t *testing.T, b *bed) letter {
		t.Helper()
		body := addBody(b.number())
		return letter{body: body, tokens: []string{ecttest.Mint(t, who, b.recipe(body))}}
	}
}

// with is a refusal that leaves an error ECT.
func with(w want, proof string) want {
	w.proof = proof
	return w
}

func otherPayload(compact string) string {
	parts := strings.Split(compact, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return compact
	}
	parts[1] = ecttest.Encode(strings.Replace(string(text), "send_task", "send_tusk", 1))
	return strings.Join(parts, ".")
}

func publicPEM(t *testing.T, p *ecttest.Party) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&p.Key.PublicKey)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func chainOf(p *ecttest.Party) string {
	return `["` + base64.StdEncoding.EncodeToString(p.Chain[0].Raw) + `"]`
}

func urlSafe(text string) string {
	return strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(text), "=")
}

// What the token says.
func TestUnacceptableClaims(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	started := time.Now().Unix()
	claim := func(name string, members ecttest.Raw, w want) refusal {
		return evidence(name, func(_ *bed, r *ecttest.Recipe) { r.Payload = members }, w)
	}
	// The times are those of the case, which may have to wait for its turn.
	times := func(name string, issued, expires int64, w want) refusal {
		return evidence(name, func(_ *bed, r *ecttest.Recipe) {
			now := time.Now().Unix()
			r.Claims.IssuedAt, r.Claims.Expires = now+issued, now+expires
		}, w)
	}
	timed := func(name, member, before string, after int64, behind string, w want) refusal {
		return evidence(name, func(_ *bed, r *ecttest.Recipe) {
			r.Payload = ecttest.Raw{member: before + strconv.FormatInt(time.Now().Unix()+after, 10) + behind}
		}, w)
	}
	bad := func(claim string) want { return invalid(ect.ReasonInvalidClaim, claim) }
	cases := []refusal{
		times("expired", -700, -100, invalid(ect.ReasonExpired, "exp")),
		times("issued in the future", 300, 600, invalid(ect.ReasonIssuedInFuture, "iat")),
		times("too old", -1000, 600, invalid(ect.ReasonTooOld, "iat")),
		evidence("older than the gateway's memory", func(_ *bed, r *ecttest.Recipe) {
			r.Claims.IssuedAt, r.Claims.Expires = started-120, time.Now().Unix()+600
		}, invalid(ect.ReasonTooOld, "iat")),
		times("lifetime of a day and a second", 0, 86401, invalid(ect.ReasonLifetimeTooLong, "exp")),
		times("ends before it begins", 0, -1, bad("exp")),
		timed("not yet valid", "nbf", "", 300, "", invalid(ect.ReasonIssuedInFuture, "nbf")),
		timed("iat with a fraction", "iat", "", 0, ".5", bad("iat")),
		timed("iat as a string", "iat", `"`, 0, `"`, bad("iat")),
		claim("exp of another age", ecttest.Raw{"exp": "253402300800"}, bad("exp")),
		claim("exp below zero", ecttest.Raw{"exp": "-1"}, bad("exp")),
		claim("audience is somebody else", ecttest.Raw{"aud": `"spiffe://aepb.dev/concierge"`}, invalid(ect.ReasonAudienceMismatch, "aud")),
		claim("audience has the gateway's id as a prefix", ecttest.Raw{"aud": strconv.Quote(b.self() + "/x")}, invalid(ect.ReasonAudienceMismatch, "aud")),
		claim("empty audience", ecttest.Raw{"aud": "[]"}, bad("aud")),
		claim("audience is an object", ecttest.Raw{"aud": "{}"}, bad("aud")),
		claim("out_hash of another body", ecttest.Raw{"out_hash": strconv.Quote(ect.Hash([]byte("another")))}, invalid(ect.ReasonHashMismatch, "out_hash")),
		claim("out_hash is no hash", ecttest.Raw{"out_hash": `"abc"`}, bad("out_hash")),
		claim("inp_hash in hexadecimal", ecttest.Raw{"inp_hash": strconv.Quote(strings.Repeat("ab", 32))}, bad("inp_hash")),
		claim("jti is no UUID", ecttest.Raw{"jti": `"task-17"`}, bad("jti")),
		claim("jti is empty", ecttest.Raw{"jti": `""`}, bad("jti")),
		claim("jti is a number", ecttest.Raw{"jti": "17"}, bad("jti")),
		claim("wid is no UUID", ecttest.Raw{"wid": `"workflow"`}, bad("wid")),
		claim("iss is empty", ecttest.Raw{"iss": `""`}, bad("iss")),
		claim("exec_act is empty", ecttest.Raw{"exec_act": `""`}, bad("exec_act")),
		claim("par is a string", ecttest.Raw{"par": strconv.Quote(string(ect.NewID()))}, bad("par")),
		claim("a parent is no UUID", ecttest.Raw{"par": `["first"]`}, bad("par")),
		claim("its own parent", ecttest.Raw{"jti": `"0198f1e0-0000-7000-8000-000000000001"`, "par": `["0198F1E0-0000-7000-8000-000000000001"]`}, bad("par")),
		claim("a parent twice", ecttest.Raw{"par": `["0198f1e0-0000-7000-8000-000000000002","0198f1e0-0000-7000-8000-000000000002"]`}, bad("par")),
		claim("101 parents", ecttest.Raw{"par": manyParents(101)}, bad("par")),
		claim("par and pred differ", ecttest.Raw{"pred": strconv.Quote(string(ect.NewID()))}, invalid(ect.ReasonConflictingParents, "pred")),
		claim("ext and ect_ext differ", ecttest.Raw{"ext": `{"a":1}`, "ect_ext": `{"a":2}`}, invalid(ect.ReasonConflictingExt, "ect_ext")),
		claim("ect_ext alone, a list", ecttest.Raw{"ect_ext": `[1]`}, bad("ect_ext")),
		claim("ext of 4097 bytes", ecttest.Raw{"ext": `{"a":"` + strings.Repeat("x", 4097-len(`{"a":""}`)) + `"}`}, bad("ext")),
		claim("ext six levels deep", ecttest.Raw{"ext": `{"a":{"a":{"a":{"a":{"a":{}}}}}}`}, bad("ext")),
		claim("ext is a list", ecttest.Raw{"ext": `[1]`}, bad("ext")),
	}
	for _, name := range []string{"iss", "aud", "iat", "exp", "jti", "exec_act", "par"} {
		cases = append(cases, claim("without "+name, ecttest.Raw{name: ""}, invalid(ect.ReasonMissingClaim, name)))
	}
	refusals(t, b, cases)
}

func manyParents(n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Quote(string(ect.NewID()))
	}
	return "[" + strings.Join(ids, ",") + "]"
}

// What is no token, or more than one request may hold.
func TestMalformedEvidence(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	raw := func(name string, w want, tokens ...string) refusal {
		return refusal{name: name, want: w, make: func(*testing.T, *bed) letter {
			return letter{body: addBody(1), tokens: tokens}
		}}
	}
	edited := func(name string, edit func(string) string, w want) refusal {
		return evidence(name, func(_ *bed, r *ecttest.Recipe) { r.Edit = edit }, w)
	}
	refusals(t, b, []refusal{
		sent("none", letter{body: addBody(1)}, want{status: 403, code: "ect_required", reason: "without one", proof: "internal_error"}),
		raw("garbage", malformed("outside base64url"), "%%%"),
		raw("a word", malformed("payload is not"), "hello"),
		raw("two parts", malformed("neither a signed nor an unsigned token"), "e30.e30"),
		raw("four parts", malformed("neither a signed nor an unsigned token"), "e30.e30.e30.e30"),
		raw("nothing between the dots", malformed("header is not a JSON object"), ".."),
		raw("header is a list", malformed("header is not a JSON object"), ecttest.Encode("[]")+".e30.e30"),
		raw("header is cut off", malformed("header is not valid JSON"), ecttest.Encode(`{"alg":"ES256"`)+".e30.e30"),
		raw("not UTF-8", malformed("header is not valid JSON"), ecttest.Encode("{\"alg\":\"\xff\"}")+".e30.e30"),
		evidence("payload is a string", func(_ *bed, r *ecttest.Recipe) { r.RawPayload = `"claims"` }, malformed("payload is not a JSON object")),
		evidence("something after the payload", func(_ *bed, r *ecttest.Recipe) { r.RawPayload = `{} {}` }, malformed("payload has data after its object")),
		evidence("payload nested too deep", func(_ *bed, r *ecttest.Recipe) {
			r.Payload = ecttest.Raw{"deep": strings.Repeat("[", 128) + strings.Repeat("]", 128)}
		}, malformed("payload is nested too deep")),
		evidence("lone surrogate in the payload", func(_ *bed, r *ecttest.Recipe) {
			r.Payload = ecttest.Raw{"note": `"\ud800"`}
		}, malformed("payload is not valid JSON")),
		evidence("alg twice in the header", func(_ *bed, r *ecttest.Recipe) {
			r.RawHeader = `{"alg":"ES256","typ":"exec+jwt","alg":"ES256"}`
		}, malformed("header has a member twice")),
		evidence("iss twice in the payload", func(b *bed, r *ecttest.Recipe) {
			r.RawPayload = `{"iss":"` + string(b.me.ID) + `","iss":"` + string(b.me.ID) + `"}`
		}, malformed("payload has a member twice")),
		evidence("iss twice, once in disguise", func(b *bed, r *ecttest.Recipe) {
			r.RawPayload = `{"iss":"` + string(b.me.ID) + `","\u0069ss":"spiffe://aepb.dev/other"}`
		}, malformed("payload has a member twice")),
		evidence("a member of ext twice", func(_ *bed, r *ecttest.Recipe) {
			r.Payload = ecttest.Raw{"ext": `{"a":1,"a":2}`}
		}, malformed("payload has a member twice")),
		edited("base64 with padding", func(c string) string { return c + "==" }, malformed("outside base64url")),
		edited("standard base64", func(c string) string { return "+" + c[1:] }, malformed("outside base64url")),
		edited("a line break in percent form", func(c string) string { return c[:20] + "%0d%0a" + c[20:] }, malformed("outside base64url")),
		edited("a blank within", func(c string) string { return c[:20] + " " + c[20:] }, malformed("outside base64url")),
		edited("trailing bits set", looseBits, malformed("signature is not base64url")),
		edited("impossible length", func(c string) string { return c[:len(c)-1] }, malformed("signature is not base64url")),
		edited("in quotes", func(c string) string { return `"` + c + `"` }, malformed("outside base64url")),
		edited("a semicolon behind", func(c string) string { return c + ";v=1" }, malformed("outside base64url")),
		evidence("8 KiB and more", func(_ *bed, r *ecttest.Recipe) {
			r.Payload = ecttest.Raw{"padding": strconv.Quote(strings.Repeat("x", 8<<10))}
		}, tooLarge("token")),
		raw("16 KiB and more in all", tooLarge("header"), ballast(3, 6<<10)...),
		raw("33 tokens", tooLarge("token count"), ballast(33, 8)...),
		raw("33 tokens in one line", tooLarge("token count"), strings.Join(ballast(33, 8), ", ")),
		{name: "nine signatures", want: tooLarge("signatures to verify"), make: func(t *testing.T, b *bed) letter {
			t.Helper()
			l := letter{body: addBody(1)}
			for range 9 {
				l.tokens = append(l.tokens, b.token(t, l.body))
			}
			return l
		}},
		{name: "a ring of parents", want: malformed("name each other"), make: ring},
		{name: "a good one and a broken one", want: malformed("outside base64url"), make: func(t *testing.T, b *bed) letter {
			t.Helper()
			l := b.sealed(t, letter{body: addBody(b.number())})
			l.tokens = append(l.tokens, "a=b")
			return l
		}},
		{name: "a good one and a forged one", want: invalid(ect.ReasonInvalidSignature, ""), make: func(t *testing.T, b *bed) letter {
			t.Helper()
			l := b.sealed(t, letter{body: addBody(b.number())})
			recipe := b.recipe(l.body)
			recipe.Sign = ecttest.SignNothing
			l.tokens = append(l.tokens, ecttest.Mint(t, b.me, recipe))
			return l
		}},
	})
}

// looseBits sets a bit of the signature's last digit that stands for nothing.
func looseBits(compact string) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(digits, compact[len(compact)-1])
	return compact[:len(compact)-1] + string(digits[last|1])
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
func ring(t *testing.T, b *bed) letter {
	t.Helper()
	l := letter{body: addBody(1)}
	ids := []ect.ID{ect.NewID(), ect.NewID()}
	for i := range ids {
		recipe := b.recipe(l.body)
		recipe.Claims.ID, recipe.Claims.Parents = ids[i], []ect.ID{ids[1-i]}
		l.tokens = append(l.tokens, ecttest.Mint(t, b.me, recipe))
	}
	return l
}

// A token counts once (R6): the same with the same body gets the stored answer,
// everything else under its id is refused.
func TestReplayedEvidence(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	n := b.number()
	body := addBody(n)
	first := b.recipe(body)
	first.Claims.ID, first.Claims.OutputHash = ect.NewID(), ""
	token := ecttest.Mint(t, b.me, first)
	answer := b.send(t, letter{body: body, tokens: []string{token}})
	b.right(t, answer, `"sum":`+strconv.FormatInt(n+1, 10))
	called := func() (n int) { // it may be asked in between what it is
		for _, said := range b.tools.Received() {
			if !bytes.Contains(said.Body, []byte(`"server/discover"`)) && !bytes.Contains(said.Body, []byte(`"tools/list"`)) {
				n++
			}
		}
		return n
	}
	calls := called()
	refusalsInTurn(t, b, []refusal{ // while the token lives
		{name: "with another body", want: invalid(ect.ReasonReplay, "jti"), make: func(_ *testing.T, b *bed) letter {
			return letter{body: addBody(b.number()), tokens: []string{token}}
		}},
		{name: "with the same JSON in other bytes", want: invalid(ect.ReasonReplay, "jti"), make: func(*testing.T, *bed) letter {
			return letter{body: body + " ", tokens: []string{token}}
		}},
		{name: "the id in another token", want: invalid(ect.ReasonReplay, "jti"), make: func(t *testing.T, b *bed) letter {
			t.Helper()
			again := first
			again.Claims.Act = "send_another_task"
			return letter{body: body, tokens: []string{ecttest.Mint(t, b.me, again)}}
		}},
		{name: "the same claims signed again", want: invalid(ect.ReasonReplay, "jti"), make: func(t *testing.T, b *bed) letter {
			t.Helper()
			return letter{body: body, tokens: []string{ecttest.Mint(t, b.me, first)}}
		}},
		{name: "the id in another workflow", want: want{status: 403, code: "ect_invalid", reason: "has this id"}, make: func(t *testing.T, b *bed) letter {
			t.Helper()
			again := first
			again.Claims.Workflow = string(ect.NewID())
			return letter{body: body, tokens: []string{ecttest.Mint(t, b.me, again)}}
		}},
		{name: "at a native endpoint", want: want{status: 403, code: "ect_invalid", rpc: -31403, reason: "replay"}, make: func(_ *testing.T, b *bed) letter {
			return letter{at: doorA2A, body: addBody(b.number()), tokens: []string{token}}
		}},
	})
	t.Run("the same with the same body gets the stored answer", func(t *testing.T) {
		again := b.send(t, letter{body: body, tokens: []string{token}})
		sameAnswer(t, answer, again)
		if now := called(); now-calls != 2 { // the two good calls of the theme
			t.Errorf("the agent was called %d times more than it should", now-calls-2)
		}
	})
	t.Run("a refusal is repeated as it was", func(t *testing.T) {
		l := b.sealed(t, letter{body: strings.Replace(body, `"skill":"add"`, `"skill":"divide"`, 1)})
		refused, again := b.send(t, l), b.send(t, l)
		b.refused(t, l, refused, want{status: 404, code: "not_found", reason: "no such skill", proof: "internal_error"})
		sameAnswer(t, refused, again)
	})
}

func sameAnswer(t *testing.T, first, again reply) {
	t.Helper()
	if first.status != again.status || string(first.body) != string(again.body) {
		t.Errorf("got %d %s, then %d %s", first.status, short(first.body), again.status, short(again.body))
	}
	if a, b := first.header.Values(ect.HeaderName), again.header.Values(ect.HeaderName); len(a) == 0 || !slices.Equal(a, b) {
		t.Errorf("%d ECTs, then %d others", len(a), len(b))
	}
	if a, b := first.header.Get("Content-Type"), again.header.Get("Content-Type"); a != b {
		t.Errorf("media type %q, then %q", a, b)
	}
}

// Where the message has been: hops, loops, ancestors that nobody knows (R1).
func TestRefusedPaths(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	n := b.number()
	body := addBody(n)
	ours := b.send(t, b.sealed(t, letter{body: body})).header.Values(ect.HeaderName)
	if len(ours) != 2 {
		t.Fatalf("a good call got %d ECTs", len(ours))
	}
	request, _, err := ect.ParseUnverified(ours[0])
	must(t, err)
	// translation is a letter whose token says that it is a translation of others.
	translation := func(parents []ect.ID, tokens ...string) func(*testing.T, *bed) letter {
		return func(t *testing.T, b *bed) letter {
			t.Helper()
			l := letter{body: addBody(b.number())}
			recipe := b.recipe(l.body)
			recipe.Claims.Act, recipe.Claims.Parents, recipe.Claims.Workflow = ect.ActTranslate, parents, request.Workflow
			l.tokens = append([]string{ecttest.Mint(t, b.me, recipe)}, tokens...)
			return l
		}
	}
	denied := func(constraint string) want {
		return want{status: 403, code: "policy_violation", reason: "refused by constraint " + constraint, proof: "policy_violation"}
	}
	refusals(t, b, []refusal{
		{name: "the gateway is on the way already", want: denied("loop"), make: translation([]ect.ID{request.ID}, ours[0])},
		{name: "the gateway is on the way, by reference", want: denied("loop"), make: translation([]ect.ID{request.ID})},
		{name: "an ancestor that nobody knows", want: denied("lineage"), make: translation([]ect.ID{ect.NewID()})},
		{name: "an ancestor in another workflow", want: denied("lineage"), make: func(t *testing.T, b *bed) letter {
			t.Helper()
			body := addBody(b.number())
			other := b.recipe(body)
			other.Claims.ID = ect.NewID()
			return translation([]ect.ID{other.Claims.ID}, ecttest.Mint(t, b.me, other))(t, b)
		}},
		{name: "three translations before", want: denied("aepb.max_translation_hops"), make: threeHops},
	})
	t.Run("a key that is somewhere on the web is not fetched", b.fetchesNoKey)
	t.Run("a token folded over two lines", b.refusesFolding)
}

// threeHops is a message that three gateways have translated; the fourth is us.
func threeHops(t *testing.T, b *bed) letter {
	t.Helper()
	l := letter{body: addBody(b.number())}
	var parents []ect.ID
	workflow := string(ect.NewID())
	for range 3 {
		recipe := b.recipe(l.body)
		recipe.Claims.ID, recipe.Claims.Act, recipe.Claims.Parents, recipe.Claims.Workflow = ect.NewID(), ect.ActTranslate, parents, workflow
		l.tokens = append([]string{ecttest.Mint(t, b.me, recipe)}, l.tokens...)
		parents = []ect.ID{recipe.Claims.ID}
	}
	return l
}

// fetchesNoKey: a URL in a token is never followed.
func (b *bed) fetchesNoKey(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	address := strconv.Quote(server.URL)
	stranger := ecttest.NewParty(t, b.me.ID)
	l := letter{body: addBody(b.number())}
	recipe := b.recipe(l.body)
	recipe.Header = ecttest.Raw{"x5c": "", "jku": address, "x5u": address}
	recipe.Payload = ecttest.Raw{"jku": address}
	l.tokens = []string{ecttest.Mint(t, stranger, recipe)}
	b.refused(t, l, b.send(t, l), invalid(ect.ReasonUnknownKey, "kid"))
	if asked.Load() > 0 {
		t.Error("the gateway went to fetch a key")
	}
}

// refusesFolding: an HTTP/1.1 field may be folded, which makes a blank of the
// line break; no token has one.
func (b *bed) refusesFolding(t *testing.T) {
	body := addBody(b.number())
	token := b.token(t, body)
	got := b.raw(t, b.clientTLS(t, b.dev.Client), "POST "+toCalculator+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Connection: close\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\nExecution-Context: "+token[:100]+"\r\n "+token[100:]+"\r\n\r\n"+body)
	b.refused(t, letter{body: body}, got, malformed("outside base64url"))
}

// raw sends bytes as they are and reads the answer.
func (b *bed) raw(t *testing.T, conf *tls.Config, octets string) reply {
	t.Helper()
	at, err := url.Parse(b.at.Public)
	must(t, err)
	conf = conf.Clone()
	conf.NextProtos = []string{"http/1.1"}
	dialer := tls.Dialer{Config: conf}
	conn, err := dialer.DialContext(t.Context(), "tcp", at.Host)
	must(t, err)
	defer func() { _ = conn.Close() }()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, octets)
	must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return reply{response.StatusCode, response.Header, text}
}
