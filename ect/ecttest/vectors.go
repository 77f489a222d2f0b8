package ecttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Situation is what the vectors are made for: who sends what to whom, when.
type Situation struct {
	From     *Party    // the sender, whose key the receiver knows
	Stranger *Party    // a party whose key the receiver does not know
	Other    *Party    // another party whose key the receiver knows
	Audience string    // the receiver
	Body     []byte    // the message
	Now      time.Time // the receiver's clock
}

// Vector is a token that must be refused.
type Vector struct {
	Name      string
	Compact   string
	Reason    ect.Reason // of the *ect.InvalidError
	Malformed bool       // *ect.MalformedError instead
	TooLarge  bool       // *ect.TooLargeError instead
	Content   bool       // only a check of the message itself finds it: an ancestor like this passes
	Early     bool       // refused before any key is looked up
}

// Claims are the claims of a token that is good in this situation.
func (s Situation) Claims() ect.Claims {
	return ect.Claims{
		Audience: []string{s.Audience}, IssuedAt: s.Now.Unix(), Act: "send_task",
		Workflow: "a0b1c2d3-e4f5-6789-abcd-ef0123456789", OutputHash: ect.Hash(s.Body),
	}
}

// Good makes a token that is good in this situation, a new one each time.
func (s Situation) Good(tb testing.TB) string {
	tb.Helper()
	return Mint(tb, s.From, Recipe{Claims: s.Claims()})
}

// Vectors are tokens with one thing wrong with each. Only a token used twice is
// not among them: it takes two deliveries to see that.
func Vectors(tb testing.TB, s Situation) []Vector {
	tb.Helper()
	var all []Vector
	for _, group := range [...]func(testing.TB, Situation) []Vector{
		formVectors, headerVectors, keyVectors, claimVectors, valueVectors, messageVectors, dialectVectors,
	} {
		all = append(all, group(tb, s)...)
	}
	return all
}

// formVectors are no tokens at all, or tokens in a spelling of their own.
func formVectors(tb testing.TB, s Situation) []Vector {
	tb.Helper()
	good := s.Good(tb)
	part := strings.Split(good, ".")
	header := `{"alg":"ES256","typ":"exec+jwt","kid":"` + s.From.KeyID + `"`
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	payload := func(raw string) string { return Mint(tb, s.From, Recipe{Claims: s.Claims(), RawPayload: raw}) }
	whole := merge(tb, payloadOf(tb, s.From, s.Claims()), nil)
	inside := strings.TrimSuffix(whole, "}")
	vectors := map[string]string{
		"empty":                      "",
		"one dot":                    part[0] + "." + part[1],
		"three dots":                 good + ".",
		"JSON serialisation":         `{"payload":"` + part[1] + `","signature":"` + part[2] + `"}`,
		"padding":                    good + "=",
		"CR LF in the signature":     part[0] + "." + part[1] + "." + part[2][:40] + "\r\n" + part[2][40:],
		"LF in the payload":          part[0] + "." + part[1][:8] + "\n" + part[1][8:] + "." + part[2],
		"a blank inside":             part[0] + "." + part[1] + ". " + part[2],
		"standard alphabet":          part[0] + "." + part[1] + ".+" + part[2][1:],
		"trailing bits, signature":   part[0] + "." + part[1] + "." + strayBits(part[2]),
		"trailing bits, payload":     part[0] + "." + strayBits(Encode(pad(whole))) + "." + part[2],
		"length no base64 has":       part[0] + "." + part[1] + "." + part[2][:85],
		"header is an array":         Mint(tb, s.From, Recipe{Claims: s.Claims(), RawHeader: `[]`}),
		"header is cut off":          Mint(tb, s.From, Recipe{Claims: s.Claims(), RawHeader: header}),
		"header has data after it":   Mint(tb, s.From, Recipe{Claims: s.Claims(), RawHeader: header + `}{}`}),
		"header has alg twice":       Mint(tb, s.From, Recipe{Claims: s.Claims(), RawHeader: header + `,"alg":"none"}`}),
		"header has an escaped twin": Mint(tb, s.From, Recipe{Claims: s.Claims(), RawHeader: header + `,"\u0061lg":"none"}`}),
		"kid is a number":            Mint(tb, s.From, Recipe{Claims: s.Claims(), Header: Raw{"kid": `1`}}),
		"x5c is a string":            Mint(tb, s.From, Recipe{Claims: s.Claims(), Header: Raw{"x5c": `"AAAA"`}}),
		"x5c is empty":               Mint(tb, s.From, Recipe{Claims: s.Claims(), Header: Raw{"x5c": `[]`}}),
		"x5c is base64url":           Mint(tb, s.From, Recipe{Claims: s.Claims(), Header: Raw{"x5c": `["-_-_"]`}}),
		"x5c has stray bits":         Mint(tb, s.From, Recipe{Claims: s.Claims(), Header: Raw{"x5c": `["AB=="]`}}),
		"x5c has a line break":       Mint(tb, s.From, Recipe{Claims: s.Claims(), Header: Raw{"x5c": `["AA\nAA"]`}}),
		"payload is a string":        payload(`"exec+jwt"`),
		"payload is null":            payload(`null`),
		"payload is no JSON":         payload(inside + `,}`),
		"payload has data after it":  payload(whole + ` 1`),
		"payload has jti twice":      payload(inside + `,"jti":"` + string(ect.NewID()) + `"}`),
		"payload has an exact twin":  payload(inside + `,"exec_act":"send_task"}`),
		"payload has a nested twin":  payload(inside + `,"x":{"a":1,"a":1}}`),
		"payload is too deep":        payload(inside + `,"x":` + deep + `}`),
		"payload is broken UTF-8":    payload(inside + `,"x":"` + "\xff" + `"}`),
		"payload has half a pair":    payload(inside + `,"x":"\ud83d"}`),
		"unsigned but not an object": Encode(`[1,2,3]`),
		"unsigned but not JSON":      Encode(`exec+jwt`),
	}
	out := []Vector{{
		Name: "too large", TooLarge: true, Early: true,
		Compact: Mint(tb, s.From, Recipe{Claims: s.Claims(), Payload: Raw{"x": `"` + strings.Repeat("x", 8<<10) + `"`}}),
	}}
	for name, compact := range vectors {
		out = append(out, Vector{Name: name, Compact: compact, Malformed: true, Early: true})
	}
	return out
}

// pad makes a text whose base64url has bits to spare.
func pad(text string) string {
	if len(text)%3 == 0 {
		return text + " "
	}
	return text
}

// strayBits sets a bit that decoding throws away: another spelling of the same bytes.
func strayBits(encoded string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(encoded) - 1
	return encoded[:last] + string(alphabet[strings.IndexByte(alphabet, encoded[last])^1])
}

// headerVectors are judged by their header alone.
func headerVectors(tb testing.TB, s Situation) []Vector {
	tb.Helper()
	public, err := x509.MarshalPKIXPublicKey(&s.From.Key.PublicKey)
	if err != nil {
		tb.Fatal(err)
	}
	point, err := s.From.Key.PublicKey.Bytes()
	if err != nil {
		tb.Fatal(err)
	}
	vector := func(name string, reason ect.Reason, header Raw, sign Sign) Vector {
		compact := Mint(tb, s.From, Recipe{Claims: s.Claims(), Header: header, Sign: sign})
		return Vector{Name: name, Compact: compact, Reason: reason, Early: true}
	}
	out := []Vector{
		vector("alg none", ect.ReasonUnsupportedAlg, Raw{"alg": `"none"`}, SignNothing),
		vector("alg none, still signed", ect.ReasonUnsupportedAlg, Raw{"alg": `"none"`}, nil),
		vector("alg nOnE", ect.ReasonUnsupportedAlg, Raw{"alg": `"nOnE"`}, SignNothing),
		vector("alg HS256 over the public key", ect.ReasonUnsupportedAlg, Raw{"alg": `"HS256"`}, SignHS256(public)),
		vector("alg HS256 over the curve point", ect.ReasonUnsupportedAlg, Raw{"alg": `"HS256"`}, SignHS256(point)),
		vector("alg es256", ect.ReasonUnsupportedAlg, Raw{"alg": `"es256"`}, nil),
		vector("alg absent", ect.ReasonUnsupportedAlg, Raw{"alg": ``}, nil),
		vector("alg null", ect.ReasonUnsupportedAlg, Raw{"alg": `null`}, nil),
		vector("alg under a capital name", ect.ReasonUnsupportedAlg, Raw{"alg": ``, "Alg": `"ES256"`}, nil),
		vector("crit exp", ect.ReasonUnsupportedCritical, Raw{"crit": `["exp"]`}, nil),
		vector("crit b64", ect.ReasonUnsupportedCritical, Raw{"crit": `["b64"]`, "b64": `false`}, nil),
		vector("crit empty", ect.ReasonUnsupportedCritical, Raw{"crit": `[]`}, nil),
		vector("crit null", ect.ReasonUnsupportedCritical, Raw{"crit": `null`}, nil),
		{
			Name: "unsigned", Reason: ect.ReasonLevelTooLow, Early: true,
			Compact: MintUnsigned(tb, s.From, Recipe{Claims: s.Claims()}),
		},
		{
			Name: "unsigned translation", Reason: ect.ReasonLevelTooLow, Early: true,
			Compact: MintUnsigned(tb, s.From, Recipe{Claims: s.Claims(), Payload: Raw{"exec_act": `"aepb:translate"`}}),
		},
	}
	for _, alg := range []string{"HS384", "HS512", "RS256", "PS256", "ES384", "ES512", "ES256K", "eddsa", "Ed25519", "Ed448"} {
		out = append(out, vector("alg "+alg, ect.ReasonUnsupportedAlg, Raw{"alg": `"` + alg + `"`}, nil))
	}
	for _, typ := range []string{`"JWT"`, `"act+jwt"`, `"wit+jwt"`, `"wpt+jwt"`, `"exec"`, `"x/exec+jwt"`, `"application/application/exec+jwt"`, `["exec+jwt"]`, `null`, ``} {
		out = append(out, vector("typ "+typ, ect.ReasonWrongType, Raw{"typ": typ}, nil))
	}
	return out
}

// keyVectors are signed by the wrong one, or not over these bytes.
func keyVectors(tb testing.TB, s Situation) []Vector {
	tb.Helper()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	cut := func(n int) func(string) string {
		return func(compact string) string {
			sig := strings.LastIndexByte(compact, '.') + 1
			return compact[:sig] + compact[sig:][:n]
		}
	}
	part, other := strings.Split(s.Good(tb), "."), strings.Split(s.Good(tb), ".")
	mint := func(from *Party, r Recipe) string {
		if r.Claims.Act == "" {
			r.Claims = s.Claims()
		}
		return Mint(tb, from, r)
	}
	asOther := s.Claims()
	asOther.Issuer = s.Other.ID
	zeros := func(testing.TB, string) []byte { return make([]byte, 64) }
	return []Vector{
		{Name: "a stranger's own", Compact: mint(s.Stranger, Recipe{}), Reason: ect.ReasonUnknownKey},
		{
			Name: "a stranger's, in the sender's name", Reason: ect.ReasonUnknownKey,
			Compact: mint(s.Stranger, Recipe{Payload: Raw{"iss": quote(tb, s.From.ID)}}),
		},
		{Name: "a stranger's, under the sender's kid", Compact: mint(s.From, Recipe{Sign: SignES256(s.Stranger.Key)}), Reason: ect.ReasonInvalidSignature},
		{Name: "EdDSA with an ECDSA key", Compact: mint(s.From, Recipe{Header: Raw{"alg": `"EdDSA"`}}), Reason: ect.ReasonUnsupportedAlg},
		{Name: "EdDSA with a stranger's key", Compact: mint(s.From, Recipe{Header: Raw{"alg": `"EdDSA"`}, Sign: SignEdDSA(NewEdwardsParty(tb, s.From.ID).Edwards)}), Reason: ect.ReasonUnsupportedAlg},
		{Name: "another curve", Compact: mint(s.From, Recipe{Sign: SignES256(p384)}), Reason: ect.ReasonInvalidSignature},
		{Name: "in the name of another party", Compact: mint(s.From, Recipe{Claims: asOther}), Reason: ect.ReasonIssuerMismatch},
		{Name: "in a name that begins like the sender's", Compact: mint(s.From, Recipe{Payload: Raw{"iss": quote(tb, s.From.ID+"/child")}}), Reason: ect.ReasonIssuerMismatch},
		{Name: "no signature", Compact: mint(s.From, Recipe{Sign: SignNothing}), Reason: ect.ReasonInvalidSignature},
		{Name: "a signature of zeros", Compact: mint(s.From, Recipe{Sign: zeros}), Reason: ect.ReasonInvalidSignature},
		{Name: "half a signature", Compact: mint(s.From, Recipe{Edit: cut(44)}), Reason: ect.ReasonInvalidSignature},
		{Name: "another payload", Compact: part[0] + "." + other[1] + "." + part[2], Reason: ect.ReasonInvalidSignature},
		{
			Name: "another header", Reason: ect.ReasonInvalidSignature,
			Compact: Encode(`{"alg":"ES256","typ":"exec+jwt","kid":"`+s.From.KeyID+`"}`) + "." + part[1] + "." + part[2],
		},
	}
}

// claimVectors lack a claim, or say two things at once.
func claimVectors(tb testing.TB, s Situation) []Vector {
	tb.Helper()
	a, b := string(ect.NewID()), string(ect.NewID())
	vector := func(name string, reason ect.Reason, payload Raw) Vector {
		return Vector{Name: name, Reason: reason, Compact: Mint(tb, s.From, Recipe{Claims: s.Claims(), Payload: payload})}
	}
	list := func(ids ...string) string { return `["` + strings.Join(ids, `","`) + `"]` }
	out := []Vector{
		vector("par under a capital name", ect.ReasonMissingClaim, Raw{"par": ``, "Par": `[]`}),
		vector("par and pred differ", ect.ReasonConflictingParents, Raw{"par": list(a), "pred": list(b)}),
		vector("par and pred in another order", ect.ReasonConflictingParents, Raw{"par": list(a, b), "pred": list(b, a)}),
		vector("pred hides a parent", ect.ReasonConflictingParents, Raw{"par": list(a), "pred": `[]`}),
		vector("pred is null", ect.ReasonConflictingParents, Raw{"par": `[]`, "pred": `null`}),
		vector("ext and ect_ext differ", ect.ReasonConflictingExt, Raw{"ext": `{"k":1}`, "ect_ext": `{"k":2}`}),
		vector("ect_ext has more", ect.ReasonConflictingExt, Raw{"ext": `{"k":1}`, "ect_ext": `{"k":1,"l":1}`}),
		vector("ext and ect_ext round alike", ect.ReasonConflictingExt, Raw{"ext": `{"k":9007199254740993}`, "ect_ext": `{"k":9007199254740992}`}),
	}
	for _, claim := range []string{"iss", "aud", "iat", "exp", "jti", "exec_act", "par"} {
		out = append(out, vector(claim+" is missing", ect.ReasonMissingClaim, Raw{claim: ``}),
			vector(claim+" is null", ect.ReasonInvalidClaim, Raw{claim: `null`}))
	}
	return out
}

// valueVectors have a claim whose value is none.
func valueVectors(tb testing.TB, s Situation) []Vector {
	tb.Helper()
	id, now := string(ect.NewID()), s.Now.Unix()
	many := make([]string, 101)
	for i := range many {
		many[i] = string(ect.NewID())
	}
	text := `"` + strings.Repeat("x", ect.MaxExtSize) + `"`
	sum := ect.Hash(s.Body)
	values := map[string][]string{
		"iss":      {`""`, `1`, `["` + string(s.From.ID) + `"]`},
		"aud":      {`""`, `[]`, `[""]`, `[1]`, `{"a":"` + s.Audience + `"}`, `["` + s.Audience + `",null]`},
		"iat":      {fmt.Sprintf("%d.5", now), fmt.Sprintf("%d.0", now), "1.772064e9", fmt.Sprintf("%q", integer(now)), `-1`, `0`, `99999999999999999999`},
		"exp":      {integer(now), integer(now - 1), fmt.Sprintf("%d.5", now+600), `9223372036854775807`},
		"nbf":      {`"soon"`, `1.5`, `0`, `-1`, `null`},
		"jti":      {`""`, `"1"`, `"` + id[:35] + `"`, `"` + id + `0"`, `"` + id[:35] + `g"`, `"{` + id + `}"`, `"urn:uuid:` + id + `"`, `"` + strings.ReplaceAll(id, "-", "") + `"`},
		"wid":      {`""`, `"bgp-failover-v2"`, `null`, `7`},
		"exec_act": {`""`, `{}`},
		"par":      {`"` + id + `"`, `{}`, `[null]`, `[1]`, `["` + id + `","` + id + `"]`, `["` + id + `","` + strings.ToUpper(id) + `"]`, `["parent"]`, `["` + strings.Join(many, `","`) + `"]`},
		"inp_hash": {`""`, `"sha-256:` + sum + `"`, `"` + sum + `="`, `"` + sum[:42] + `"`, `"` + strayBits(sum) + `"`, `"` + sum + sum + `"`, `null`},
		"out_hash": {`"sha-256:` + sum + `"`, `"` + strayBits(sum) + `"`, `"` + strings.Repeat("+", 43) + `"`},
		"ext":      {`[]`, `"{}"`, `null`, `{"k":` + text + `}`, `{"1":{"2":{"3":{"4":{"5":{}}}}}}`, `{"1":[[[[[]]]]]}`},
	}
	for _, at := range []int{0, 9, 14, 19, 24} { // in each group, and before it
		values["jti"] = append(values["jti"], `"`+id[:at]+"g"+id[at+1:]+`"`)
		if at > 0 {
			values["wid"] = append(values["wid"], `"`+id[:at-1]+"0"+id[at:]+`"`)
		}
	}
	var out []Vector
	for claim, list := range values {
		for i, value := range list {
			out = append(out, Vector{
				Name: fmt.Sprintf("%s %d", claim, i), Reason: ect.ReasonInvalidClaim,
				Compact: Mint(tb, s.From, Recipe{Claims: s.Claims(), Payload: Raw{claim: value}}),
			})
		}
	}
	own := s.Claims()
	own.ID = ect.ID(id)
	own.Parents = []ect.ID{own.ID}
	return append(out, Vector{Name: "its own parent", Reason: ect.ReasonInvalidClaim, Compact: Mint(tb, s.From, Recipe{Claims: own})})
}

func integer(seconds int64) string { return strconv.FormatInt(seconds, 10) }

// messageVectors are good tokens, but not here, not now or not of this message.
func messageVectors(tb testing.TB, s Situation) []Vector {
	tb.Helper()
	now := s.Now.Unix()
	vector := func(name string, reason ect.Reason, change func(*ect.Claims)) Vector {
		c := s.Claims()
		change(&c)
		return Vector{Name: name, Reason: reason, Content: true, Compact: Mint(tb, s.From, Recipe{Claims: c})}
	}
	times := func(iat, exp int64) func(*ect.Claims) {
		return func(c *ect.Claims) { c.IssuedAt, c.Expires = now+iat, now+exp }
	}
	longLived := vector("too long-lived", ect.ReasonLifetimeTooLong, times(0, 86401))
	longLived.Content = false // as a parent it is refused as well: it would be kept that long
	return []Vector{
		vector("for another audience", ect.ReasonAudienceMismatch, func(c *ect.Claims) { c.Audience = []string{string(s.Other.ID)} }),
		vector("for a name that begins like ours", ect.ReasonAudienceMismatch, func(c *ect.Claims) { c.Audience = []string{s.Audience + "/"} }),
		vector("for us in capitals", ect.ReasonAudienceMismatch, func(c *ect.Claims) { c.Audience = []string{strings.ToUpper(s.Audience)} }),
		vector("run out", ect.ReasonExpired, times(-600, -30)),
		vector("long run out", ect.ReasonExpired, times(-86400, -85800)),
		vector("from the future", ect.ReasonIssuedInFuture, times(31, 600)),
		vector("too old", ect.ReasonTooOld, times(-931, 600)),
		longLived,
		vector("of another message", ect.ReasonHashMismatch, func(c *ect.Claims) { c.OutputHash = ect.Hash(append([]byte("not "), s.Body...)) }),
		{
			Name: "not valid yet", Reason: ect.ReasonIssuedInFuture, Content: true,
			Compact: Mint(tb, s.From, Recipe{Claims: s.Claims(), Payload: Raw{"nbf": integer(now + 31)}}),
		},
	}
}
