package credential_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

// fuzzScene is a scene whose keys, and so its tokens, are the same each time.
func fuzzScene(tb testing.TB) *scene {
	tb.Helper()
	s := newScene(tb)
	s.issuer = edwards(3)
	s.tokenHeader["alg"] = `"EdDSA"`
	s.deps.Issuers = map[string]credential.Issuer{"example.org": {Keys: keySet(tb, jwk(tb, s.issuer.Public(), raw{"kid": `"issuer-1"`}))}}
	s.proofPayload["jti"] = `"x"`
	return s
}

// wantOwn demands that an error is a refusal. found demands somebody of our domain.
func wantOwn(t *testing.T, who identity.Caller, found bool, err error) bool {
	t.Helper()
	var refusal *identity.CredentialError
	switch {
	case err != nil && (!errors.As(err, &refusal) || found || who.ID != ""):
		t.Errorf("got %T, and %q", err, who.ID)
	case found && (!strings.Contains(string(who.ID), "://example.org/") || who.Key == nil):
		t.Errorf("found %q", who.ID)
	}
	return found
}

// oracle reads a payload as anybody would and demands what must be there.
func oracle(t *testing.T, payload string, claims ...string) map[string]json.RawMessage {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(payload), &members); err != nil {
		t.Fatalf("what is no JSON was accepted: %v", err)
	}
	for _, claim := range claims {
		if members[claim] == nil {
			t.Errorf("accepted without %s", claim)
		}
	}
	return members
}

// FuzzIdentityToken_AnyClaims has an issuer sign anything at all.
func FuzzIdentityToken_AnyClaims(f *testing.F) {
	s := fuzzScene(f)
	f.Add(s.tokenHeader.String(), s.tokenPayload.String())
	f.Add(`{"typ":"application/WIT+jwt","alg":"EdDSA"}`, s.tokenPayload.with(raw{"sub": `"wimse://example.org/a"`}).String())
	f.Add(s.tokenHeader.String(), s.tokenPayload.with(raw{"cnf": `{"jwk":{"kty":"OKP","crv":"Ed25519","alg":"none","x":""}}`}).String())
	f.Add(s.tokenHeader.with(raw{"crit": `["exp"]`}).String(), s.tokenPayload.String())
	f.Add(s.tokenHeader.String(), s.tokenPayload.with(raw{"": `"\u0073ub":"x"`}).String())
	f.Fuzz(func(t *testing.T, header, payload string) {
		s := fuzzScene(t)
		token := mint(t, s.issuer, header, payload)
		proof := mint(t, s.own, s.proofHeader.String(), s.proofPayload.with(raw{"wth": hashed(token)}).String())
		fields := http.Header{credential.IdentityField: {token}, credential.ProofField: {proof}}
		who, found, err := s.wimse(t).Caller(t.Context(), credential.Request{Fields: fields.Values, Target: target})
		if !wantOwn(t, who, found, err) {
			return
		}
		members := oracle(t, payload, "sub", "exp", "cnf")
		var sub string
		if json.Unmarshal(members["sub"], &sub) != nil || sub != string(who.ID) {
			t.Errorf("sub is %q, the caller %q", sub, who.ID)
		}
	})
}

// FuzzProof_AnyClaims has a caller sign anything at all.
func FuzzProof_AnyClaims(f *testing.F) {
	s := fuzzScene(f)
	token := mint(f, s.issuer, s.tokenHeader.String(), s.tokenPayload.String())
	good := s.proofPayload.with(raw{"wth": hashed(token)})
	f.Add(s.proofHeader.String(), good.String())
	f.Add(`{"typ":"WPT+JWT","alg":"EdDSA"}`, good.with(raw{"aud": `["x","` + target + `?q#f"]`}).String())
	f.Add(s.proofHeader.String(), good.with(raw{"ath": `""`, "tth": `null`}).String())
	f.Add(s.proofHeader.String(), good.with(raw{"oth": `{"execution-context":"` + ect.Hash([]byte("a.b.c")) + `"}`}).String())
	f.Add(s.proofHeader.String(), good.with(raw{"oth": `{"x":{}}`}).String())
	f.Fuzz(func(t *testing.T, header, payload string) {
		proof := mint(t, s.own, header, payload)
		s := fuzzScene(t)
		fields := http.Header{credential.IdentityField: {token}, credential.ProofField: {proof}, "Execution-Context": {"a.b.c"}}
		who, found, err := s.wimse(t).Caller(t.Context(), credential.Request{Fields: fields.Values, Target: target})
		if !wantOwn(t, who, found, err) {
			return
		}
		members := oracle(t, payload, "aud", "exp", "jti", "wth")
		for _, claim := range []string{"ath", "tth"} {
			if members[claim] != nil {
				t.Errorf("%s is bound to nothing", claim)
			}
		}
		var oth map[string]string
		if raw := members["oth"]; raw != nil && json.Unmarshal(raw, &oth) != nil || len(oth) > 1 {
			t.Errorf("oth is %d entries", len(oth))
		}
	})
}

// FuzzFields_AnyText has anybody write anything in the fields: nobody is found but by
// the two tokens that were made properly.
func FuzzFields_AnyText(f *testing.F) {
	s := fuzzScene(f)
	r := s.request(f)
	token, proof := r.Fields(credential.IdentityField)[0], r.Fields(credential.ProofField)[0]
	f.Add(token, proof)
	f.Add(proof, token)
	f.Add(token+"="+"", proof+".")
	f.Add("", "a.b.c")
	f.Fuzz(func(t *testing.T, identityToken, proofToken string) {
		s := fuzzScene(t)
		fields := http.Header{credential.IdentityField: {identityToken}, credential.ProofField: {proofToken}}
		who, found, err := s.wimse(t).Caller(t.Context(), credential.Request{Fields: fields.Values, Target: target})
		same := strings.Trim(identityToken, " \t") == token && strings.Trim(proofToken, " \t") == proof
		if wantOwn(t, who, found, err) != same {
			t.Errorf("found %v, want %v", found, same)
		}
	})
}
