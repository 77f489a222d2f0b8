package ecttest

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Raw is a JSON object by member: a name and its value as JSON text. An empty
// value takes the member away.
type Raw map[string]string

// Recipe says how to make a token, right or wrong.
type Recipe struct {
	Claims  ect.Claims // iss, aud, iat, exp, jti and exec_act are filled where zero
	Header  Raw        // over {"alg":"ES256","typ":"exec+jwt","kid":…,"x5c":…}; EdDSA with an Ed25519 key
	Payload Raw        // over Claims

	RawHeader  string // the whole header, instead of the above
	RawPayload string // the whole payload

	Sign Sign                        // nil: properly, with the party's key
	Edit func(compact string) string // the last word; nil: none
}

// Sign makes a signature over the signing input.
type Sign func(tb testing.TB, input string) []byte

// SignES256 signs properly, with any key.
func SignES256(key *ecdsa.PrivateKey) Sign {
	return func(tb testing.TB, input string) []byte {
		tb.Helper()
		sum := sha256.Sum256([]byte(input))
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			tb.Fatal(err)
		}
		size := (key.Params().BitSize + 7) / 8
		sig := make([]byte, 2*size)
		r.FillBytes(sig[:size])
		s.FillBytes(sig[size:])
		return sig
	}
}

// SignEdDSA signs properly, with any key.
func SignEdDSA(key ed25519.PrivateKey) Sign {
	return func(_ testing.TB, input string) []byte { return ed25519.Sign(key, []byte(input)) }
}

// SignHS256 signs with a shared secret, as in the attack that takes a public
// key for one.
func SignHS256(secret []byte) Sign {
	return func(_ testing.TB, input string) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(input))
		return mac.Sum(nil)
	}
}

// SignNothing leaves the signature empty.
func SignNothing(testing.TB, string) []byte { return nil }

// Mint makes a token by a recipe.
func Mint(tb testing.TB, from *Party, r Recipe) string {
	tb.Helper()
	header, payload := r.RawHeader, r.RawPayload
	if header == "" {
		header = merge(tb, headerOf(from), r.Header)
	}
	if payload == "" {
		payload = merge(tb, payloadOf(tb, from, r.Claims), r.Payload)
	}
	if r.Sign == nil {
		r.Sign = SignES256(from.Key)
		if from.Edwards != nil {
			r.Sign = SignEdDSA(from.Edwards)
		}
	}
	input := Encode(header) + "." + Encode(payload)
	compact := input + "." + Encode(string(r.Sign(tb, input)))
	if r.Edit != nil {
		compact = r.Edit(compact)
	}
	return compact
}

// MintUnsigned makes the L1 form: the payload alone.
func MintUnsigned(tb testing.TB, from *Party, r Recipe) string {
	tb.Helper()
	payload := r.RawPayload
	if payload == "" {
		payload = merge(tb, payloadOf(tb, from, r.Claims), r.Payload)
	}
	return Encode(payload)
}

// Encode is unpadded base64url.
func Encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func headerOf(p *Party) Raw {
	chain := make([]string, len(p.Chain))
	for i, c := range p.Chain {
		chain[i] = base64.StdEncoding.EncodeToString(c.Raw)
	}
	alg := `"ES256"`
	if p.Edwards != nil {
		alg = `"EdDSA"`
	}
	return Raw{
		"alg": alg, "typ": `"exec+jwt"`, "kid": `"` + p.KeyID + `"`,
		"x5c": `["` + strings.Join(chain, `","`) + `"]`,
	}
}

func payloadOf(tb testing.TB, from *Party, c ect.Claims) Raw {
	tb.Helper()
	c = complete(from, c)
	raw := Raw{
		"iss": quote(tb, c.Issuer), "aud": quote(tb, c.Audience), "iat": quote(tb, c.IssuedAt), "exp": quote(tb, c.Expires),
		"jti": quote(tb, c.ID), "exec_act": quote(tb, c.Act), "par": quote(tb, c.Parents),
	}
	for name, value := range map[string]string{"wid": c.Workflow, "inp_hash": c.InputHash, "out_hash": c.OutputHash} {
		if value != "" {
			raw[name] = quote(tb, value)
		}
	}
	if c.Ext != nil {
		raw["ext"] = quote(tb, c.Ext)
	}
	return raw
}

func complete(from *Party, c ect.Claims) ect.Claims {
	if c.Issuer == "" {
		c.Issuer = from.ID
	}
	if c.Audience == nil {
		c.Audience = []string{"spiffe://example.org/nobody"}
	}
	if c.IssuedAt == 0 {
		c.IssuedAt = time.Now().Unix()
	}
	if c.Expires == 0 {
		c.Expires = c.IssuedAt + 600
	}
	if c.ID == "" {
		c.ID = ect.NewID()
	}
	if c.Act == "" {
		c.Act = "send_task"
	}
	if c.Parents == nil {
		c.Parents = []ect.ID{}
	}
	return c
}

func quote(tb testing.TB, value any) string {
	tb.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		tb.Fatal(err)
	}
	return string(raw)
}

// merge writes the members in order, so that a recipe makes the same text each time.
func merge(tb testing.TB, base, over Raw) string {
	tb.Helper()
	var members []string
	for name, value := range base {
		if _, replaced := over[name]; !replaced {
			members = append(members, quote(tb, name)+":"+value)
		}
	}
	for name, value := range over {
		if value != "" {
			members = append(members, quote(tb, name)+":"+value)
		}
	}
	slices.Sort(members)
	return "{" + strings.Join(members, ",") + "}"
}
