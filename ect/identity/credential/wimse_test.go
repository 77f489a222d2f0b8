package credential_test

import (
	"crypto/elliptic"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

func TestWIMSE_Accepts(t *testing.T) {
	t.Parallel()
	now := noon.Unix()
	for name, change := range map[string]func(*scene){
		"plain": func(*scene) {},
		"an ECDSA key of the caller's": func(s *scene) {
			key := newEC(s.tb, elliptic.P256())
			s.own, s.proofHeader["alg"] = key, `"ES256"`
			s.tokenPayload["cnf"] = `{"jwk":` + jwk(s.tb, key.Public(), raw{"alg": `"ES256"`}).String() + `}`
		},
		"a larger curve of the issuer's": func(s *scene) {
			key := newEC(s.tb, elliptic.P256())
			s.issuer = key
			s.deps.Issuers["example.org"] = credential.Issuer{Keys: keySet(s.tb, jwk(s.tb, key.Public(), nil), jwk(s.tb, newEC(s.tb, elliptic.P384()).Public(), nil))}
			delete(s.tokenHeader, "kid")
		},
		"a wimse id":          func(s *scene) { s.tokenPayload["sub"] = `"wimse://example.org/agents/a"` },
		"typ as a media type": func(s *scene) { s.tokenHeader["typ"] = `"application/WIT+jwt"` },
		"no iat, no jti":      func(s *scene) { s.tokenPayload["iat"], s.tokenPayload["jti"] = "", "" },
		"kid by thumbprint":   func(s *scene) { s.tokenHeader["kid"] = quoted(thumbprint(s.tb, s.issuer.Public())) },
		"claims unknown":      func(s *scene) { s.tokenPayload["act"], s.proofPayload["iss"] = `{}`, `"x"` },
		"header URLs are ignored": func(s *scene) {
			s.tokenHeader["jku"], s.proofHeader["jwk"] = `"https://evil.example"`, `{}`
		},
		"in its last second": func(s *scene) { s.tokenPayload["exp"] = number(now - 29) },
		"a clock that is fast": func(s *scene) {
			s.tokenPayload["iat"], s.proofPayload["iat"] = number(now+30), number(now+30)
		},
		"a proof that lasts":    func(s *scene) { s.proofPayload["exp"] = number(now + 330) },
		"a list of audiences":   func(s *scene) { s.proofPayload["aud"] = `["x","` + target + `"]` },
		"a target with a query": func(s *scene) { s.target += "?a=b" },
		"an audience with one":  func(s *scene) { s.proofPayload["aud"] = `"` + target + `?a=b#c"` },
		"a port that says nothing": func(s *scene) {
			s.proofPayload["aud"] = `"HTTPS://GW.example.com:443/agents/b/mcp"`
		},
		"a target without a path": func(s *scene) {
			s.target, s.proofPayload["aud"] = "https://gw.example.com", `"https://gw.example.com/"`
		},
		"another name of ours": func(s *scene) { s.deps.Audience, s.proofPayload["aud"] = []string{self}, `"`+self+`"` },
		"an access token": func(s *scene) {
			s.fields["Authorization"], s.proofPayload["ath"] = []string{"bearer  abc "}, hashed("abc")
		},
		"a password, which is no token": func(s *scene) { s.fields["Authorization"] = []string{"Basic abc"} },
		"a transaction token": func(s *scene) {
			s.fields["Txn-Token"], s.proofPayload["tth"] = []string{"abc"}, hashed("abc")
		},
		"an execution context, bound": func(s *scene) {
			s.fields["Execution-Context"], s.proofPayload["oth"] = []string{" a.b.c "}, `{"execution-context":`+hashed("a.b.c")+`}`
		},
		"an execution context, not bound": func(s *scene) { s.fields["Execution-Context"] = []string{"a.b.c", "d.e.f"} },
		"nothing bound by oth":            func(s *scene) { s.proofPayload["oth"] = `{}` },
		"another field may be bound": func(s *scene) {
			s.deps.Bound = []string{"x-user"}
			s.fields["X-User"], s.proofPayload["oth"] = []string{"u"}, `{"x-user":`+hashed("u")+`}`
		},
		"no cnf.jwk.alg, leniently": func(s *scene) {
			s.deps.MissingAlg = true
			s.tokenPayload["cnf"] = `{"jwk":` + jwk(s.tb, s.own.Public(), nil).String() + `}`
		},
		"any issuer of the domain": func(s *scene) {
			is := s.deps.Issuers["example.org"]
			is.Name = ""
			s.deps.Issuers["example.org"], s.tokenPayload["iss"] = is, ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			change(s)
			who, found, err := s.wimse(t).Caller(t.Context(), s.request(t))
			if err != nil || !found || who.Anonymous {
				t.Fatalf("got %v, %v", found, err)
			}
			if want := ect.Identity(strings.Trim(s.tokenPayload["sub"], `"`)); who.ID != want {
				t.Errorf("got %s, want %s", who.ID, want)
			}
			if thumbprint(t, who.Key) != thumbprint(t, s.own.Public()) {
				t.Error("the key is not the caller's")
			}
		})
	}
}

func thumbprint(tb testing.TB, key any) string {
	tb.Helper()
	text, err := ect.Thumbprint(key)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// refusals of identity tokens: one thing is wrong with each.
func tokenRefusals() map[string]refusal {
	now := noon.Unix()
	header := func(name, value string) func(*scene) {
		return func(s *scene) { s.tokenHeader[name] = value }
	}
	claim := func(name, value string) func(*scene) {
		return func(s *scene) { s.tokenPayload[name] = value }
	}
	edit := func(f func(part []string) string) func(*scene) {
		return func(s *scene) {
			s.editToken = func(text string) string { return f(strings.Split(text, ".")) }
		}
	}
	whole := func(change func(string) string) func(*scene) {
		return func(s *scene) { s.editToken = change }
	}
	return map[string]refusal{
		"empty":                     {whole(func(string) string { return "" }), identity.CredentialMalformed},
		"two parts":                 {edit(func(p []string) string { return p[0] + "." + p[1] }), identity.CredentialMalformed},
		"four parts":                {whole(func(text string) string { return text + ".x" }), identity.CredentialMalformed},
		"two tokens in a line":      {whole(func(text string) string { return text + "," + text }), identity.CredentialMalformed},
		"too long":                  {whole(func(text string) string { return text + strings.Repeat("A", 8<<10) }), identity.CredentialTooLong},
		"padding":                   {whole(func(text string) string { return text + "==" }), identity.CredentialInvalidEncoding},
		"a line break":              {edit(func(p []string) string { return p[0] + "\r\n." + p[1] + "." + p[2] }), identity.CredentialInvalidEncoding},
		"the other alphabet":        {edit(func(p []string) string { return p[0] + "." + p[1] + ".+/" + p[2][2:] }), identity.CredentialInvalidEncoding},
		"header no object":          {edit(func(p []string) string { return encode([]byte(`[]`)) + "." + p[1] + "." + p[2] }), identity.CredentialInvalidEncoding},
		"payload no object":         {edit(func(p []string) string { return p[0] + "." + encode([]byte(`"x"`)) + "." + p[2] }), identity.CredentialInvalidEncoding},
		"kid a number":              {header("kid", `1`), identity.CredentialInvalidEncoding},
		"alg twice":                 {header("", `"alg":"none"`), identity.CredentialInvalidEncoding},
		"typ of a JWT":              {header("typ", `"JWT"`), identity.CredentialWrongType},
		"typ of a proof":            {header("typ", `"wpt+jwt"`), identity.CredentialWrongType},
		"typ of an ECT":             {header("typ", `"exec+jwt"`), identity.CredentialWrongType},
		"typ absent":                {header("typ", ``), identity.CredentialWrongType},
		"typ a list":                {header("typ", `["wit+jwt"]`), identity.CredentialInvalidEncoding},
		"crit":                      {header("crit", `["exp"]`), identity.CredentialUnsupportedCritical},
		"crit empty":                {header("crit", `[]`), identity.CredentialUnsupportedCritical},
		"alg none":                  {header("alg", `"none"`), identity.CredentialUnsupportedAlg},
		"alg absent":                {header("alg", ``), identity.CredentialUnsupportedAlg},
		"alg HS256":                 {header("alg", `"HS256"`), identity.CredentialUnsupportedAlg},
		"alg in small letters":      {header("alg", `"es256"`), identity.CredentialUnsupportedAlg},
		"alg of another kind":       {header("alg", `"EdDSA"`), identity.CredentialUnknownKey},
		"kid unknown":               {header("kid", `"issuer-2"`), identity.CredentialUnknownKey},
		"domain unknown":            {claim("sub", `"spiffe://nowhere.org/a"`), identity.CredentialUnknownKey},
		"domain of another issuer":  {claim("sub", `"spiffe://elsewhere.io/a"`), identity.CredentialUnknownKey},
		"signature of another":      {func(s *scene) { s.issuer = newEC(s.tb, elliptic.P256()) }, identity.CredentialInvalidSignature},
		"no signature":              {func(s *scene) { s.issuer = nil }, identity.CredentialInvalidSignature},
		"payload changed":           {edit(func(p []string) string { return p[0] + "." + encode([]byte(`{"sub":"`+caller+`"}`)) + "." + p[2] }), identity.CredentialInvalidSignature},
		"sub missing":               {claim("sub", ``), identity.CredentialMissingClaim},
		"sub null":                  {claim("sub", `null`), identity.CredentialInvalidClaim},
		"sub a list":                {claim("sub", `["`+caller+`"]`), identity.CredentialInvalidClaim},
		"sub of a trust domain":     {claim("sub", `"spiffe://example.org"`), identity.CredentialInvalidClaim},
		"sub with a slash too many": {claim("sub", `"spiffe://example.org/a/"`), identity.CredentialInvalidClaim},
		"sub with dots":             {claim("sub", `"spiffe://example.org/a/../b"`), identity.CredentialInvalidClaim},
		"sub with a query":          {claim("sub", `"spiffe://example.org/a?b"`), identity.CredentialInvalidClaim},
		"sub with a user":           {claim("sub", `"spiffe://u@example.org/a"`), identity.CredentialInvalidClaim},
		"sub with a port":           {claim("sub", `"wimse://example.org:1/a"`), identity.CredentialInvalidClaim},
		"sub of the web":            {claim("sub", `"https://example.org/a"`), identity.CredentialInvalidClaim},
		"sub without a scheme":      {claim("sub", `"example.org/a"`), identity.CredentialInvalidClaim},
		"sub nobody":                {claim("sub", `"spiffe://example.org/anonymous"`), identity.CredentialInvalidClaim},
		"sub nobody, in wimse":      {claim("sub", `"wimse://example.org/anonymous"`), identity.CredentialInvalidClaim},
		"sub very long":             {claim("sub", `"spiffe://example.org/`+strings.Repeat("a", 2048)+`"`), identity.CredentialInvalidClaim},
		"iss of another":            {claim("iss", `"https://issuer.example.org/"`), identity.CredentialIssuerMismatch},
		"iss missing":               {claim("iss", ``), identity.CredentialIssuerMismatch},
		"iss a number":              {claim("iss", `1`), identity.CredentialInvalidClaim},
		"exp missing":               {claim("exp", ``), identity.CredentialMissingClaim},
		"exp a text":                {claim("exp", `"`+number(now+60)+`"`), identity.CredentialInvalidClaim},
		"exp a fraction":            {claim("exp", number(now+60)+".5"), identity.CredentialInvalidClaim},
		"expired":                   {claim("exp", number(now-30)), identity.CredentialExpired},
		"issued in the future":      {claim("iat", number(now+31)), identity.CredentialIssuedInFuture},
		"not valid yet":             {claim("nbf", number(now+31)), identity.CredentialIssuedInFuture},
		"nbf null":                  {claim("nbf", `null`), identity.CredentialInvalidClaim},
		"sub twice":                 {claim("", `"sub":"spiffe://example.org/b"`), identity.CredentialInvalidEncoding},
		"sub twice, in disguise":    {claim("", `"\u0073ub":"spiffe://example.org/b"`), identity.CredentialInvalidEncoding},
		"sub in capitals":           {func(s *scene) { s.tokenPayload["Sub"], s.tokenPayload["sub"] = s.tokenPayload["sub"], "" }, identity.CredentialMissingClaim},
	}
}

type refusal struct {
	change func(*scene)
	want   identity.CredentialReason
}

// keyRefusals are identity tokens that confirm no key that could be used.
func keyRefusals() map[string]refusal {
	cnf := func(text string) func(*scene) {
		return func(s *scene) { s.tokenPayload["cnf"] = text }
	}
	key := func(more raw) func(*scene) {
		return func(s *scene) {
			s.tokenPayload["cnf"] = `{"jwk":` + jwk(s.tb, s.own.Public(), raw{"alg": `"EdDSA"`}.with(more)).String() + `}`
		}
	}
	const (
		invalid     = identity.CredentialInvalidKey
		forbidden   = identity.CredentialForbiddenConfirmation
		unsupported = identity.CredentialUnsupportedConfirmation
	)
	out := map[string]refusal{
		"no cnf":                  {cnf(``), identity.CredentialMissingClaim},
		"cnf a text":              {cnf(`"x"`), identity.CredentialInvalidClaim},
		"cnf null":                {cnf(`null`), identity.CredentialInvalidClaim},
		"cnf with jwk twice":      {cnf(`{"jwk":{},"jwk":{}}`), identity.CredentialInvalidEncoding},
		"cnf names a key":         {cnf(`{"kid":"x"}`), identity.CredentialMissingClaim},
		"cnf links to a key":      {cnf(`{"jku":"https://evil.example"}`), identity.CredentialMissingClaim},
		"jwk a text":              {cnf(`{"jwk":"x"}`), invalid},
		"jwk empty":               {cnf(`{"jwk":{}}`), identity.CredentialMissingConfirmation},
		"jwk without alg":         {key(raw{"alg": ``}), identity.CredentialMissingConfirmation},
		"alg a number":            {key(raw{"alg": `1`}), invalid},
		"alg an empty text":       {key(raw{"alg": `""`}), invalid},
		"alg of another curve":    {key(raw{"alg": `"ES256"`}), invalid},
		"a point that is none":    {key(raw{"x": `"AAAA"`}), invalid},
		"a weak point":            {key(raw{"x": `"AQ` + strings.Repeat("A", 41) + `"`}), invalid},
		"a point that is missing": {key(raw{"x": ``}), invalid},
		"another curve":           {key(raw{"crv": `"X25519"`}), invalid},
		"no curve":                {key(raw{"crv": ``}), invalid},
		"a private key":           {key(raw{"d": `"AAAA"`}), invalid},
		"a shared key":            {cnf(`{"jwk":{"alg":"EdDSA","kty":"oct","k":"AAAA"}}`), invalid},
		"a key to encrypt":        {key(raw{"use": `"enc"`}), invalid},
		"a key for other things":  {key(raw{"key_ops": `["deriveKey"]`}), invalid},
	}
	for alg, want := range map[string]identity.CredentialReason{
		"none": forbidden, "NONE": forbidden, "HS256": forbidden, "HS512": forbidden, "dir": forbidden, "RSA-OAEP-256": forbidden,
		"ECDH-ES": forbidden, "ECDH-ES+A128KW": forbidden, "A256GCM": forbidden, "PBES2-HS256+A128KW": forbidden, "RSA1_5": forbidden,
		"RS256": unsupported, "PS512": unsupported, "ES384": unsupported, "ES512": unsupported, "ES256K": unsupported, "Ed448": unsupported, "es256": unsupported,
	} {
		out["alg "+alg] = refusal{key(raw{"alg": `"` + alg + `"`}), want}
	}
	return out
}

// proofRefusals are proofs of something else, or of nothing.
func proofRefusals() map[string]refusal {
	now := noon.Unix()
	header := func(name, value string) func(*scene) {
		return func(s *scene) { s.proofHeader[name] = value }
	}
	claim := func(name, value string) func(*scene) {
		return func(s *scene) { s.proofPayload[name] = value }
	}
	edit := func(change func(string) string) func(*scene) {
		return func(s *scene) { s.editProof = change }
	}
	aud := func(uri string) func(*scene) { return claim("aud", `"`+uri+`"`) }
	return map[string]refusal{
		"empty":                {edit(func(string) string { return "" }), identity.CredentialMalformed},
		"one part":             {edit(func(string) string { return "abc" }), identity.CredentialMalformed},
		"too long":             {edit(func(text string) string { return text + strings.Repeat("A", 8<<10) }), identity.CredentialTooLong},
		"a line break":         {edit(func(text string) string { return text + "\n" }), identity.CredentialInvalidEncoding},
		"typ of a JWT":         {header("typ", `"jwt"`), identity.CredentialWrongType},
		"typ of an identity":   {header("typ", `"wit+jwt"`), identity.CredentialWrongType},
		"typ absent":           {header("typ", ``), identity.CredentialWrongType},
		"typ of DPoP":          {header("typ", `"dpop+jwt"`), identity.CredentialWrongType},
		"crit":                 {header("crit", `["b64"]`), identity.CredentialUnsupportedCritical},
		"alg not cnf.jwk.alg":  {header("alg", `"ES256"`), identity.CredentialUnsupportedAlg},
		"alg none":             {header("alg", `"none"`), identity.CredentialUnsupportedAlg},
		"alg in other letters": {header("alg", `"EDDSA"`), identity.CredentialUnsupportedAlg},
		"alg absent":           {header("alg", ``), identity.CredentialUnsupportedAlg},
		"signature of another": {func(s *scene) { s.own = edwards(8) }, identity.CredentialInvalidSignature},
		"signature of nobody":  {func(s *scene) { s.own = nil }, identity.CredentialInvalidSignature},
		"signed by the issuer": {func(s *scene) { s.own = s.issuer }, identity.CredentialInvalidSignature},
		"its own key in jwk": {func(s *scene) {
			s.own = edwards(8)
			s.proofHeader["jwk"] = jwk(s.tb, s.own.Public(), nil).String()
		}, identity.CredentialInvalidSignature},
		"aud missing":            {claim("aud", ``), identity.CredentialMissingClaim},
		"aud null":               {claim("aud", `null`), identity.CredentialInvalidClaim},
		"aud an empty list":      {claim("aud", `[]`), identity.CredentialInvalidClaim},
		"aud of numbers":         {claim("aud", `[1]`), identity.CredentialInvalidClaim},
		"another path":           {aud("https://gw.example.com/agents/c/mcp"), identity.CredentialAudienceMismatch},
		"a path in capitals":     {aud("https://gw.example.com/Agents/b/mcp"), identity.CredentialAudienceMismatch},
		"a path with an escape":  {aud("https://gw.example.com/agents%2Fb/mcp"), identity.CredentialAudienceMismatch},
		"a longer path":          {aud(target + "/"), identity.CredentialAudienceMismatch},
		"a shorter path":         {aud("https://gw.example.com/agents/b"), identity.CredentialAudienceMismatch},
		"another host":           {aud("https://gw.example.com.evil.example/agents/b/mcp"), identity.CredentialAudienceMismatch},
		"another port":           {aud("https://gw.example.com:8443/agents/b/mcp"), identity.CredentialAudienceMismatch},
		"another scheme":         {aud("http://gw.example.com/agents/b/mcp"), identity.CredentialAudienceMismatch},
		"a user before the host": {aud("https://gw.example.com@evil.example/agents/b/mcp"), identity.CredentialAudienceMismatch},
		"a user of our host":     {aud("https://x@gw.example.com/agents/b/mcp"), identity.CredentialAudienceMismatch},
		"the path alone":         {aud("/agents/b/mcp"), identity.CredentialAudienceMismatch},
		"our name, not allowed":  {aud(self), identity.CredentialAudienceMismatch},
		"no URI":                 {aud("://"), identity.CredentialAudienceMismatch},
		"target no URI":          {func(s *scene) { s.target, s.proofPayload["aud"] = "/x", `"/x"` }, identity.CredentialAudienceMismatch},
		"exp missing":            {claim("exp", ``), identity.CredentialMissingClaim},
		"exp zero":               {claim("exp", `0`), identity.CredentialInvalidClaim},
		"exp with an exponent":   {claim("exp", `1.772064060e9`), identity.CredentialInvalidClaim},
		"expired":                {claim("exp", number(now-30)), identity.CredentialExpired},
		"valid too long":         {claim("exp", number(now+331)), identity.CredentialLifetimeTooLong},
		"issued in the future":   {claim("iat", number(now+31)), identity.CredentialIssuedInFuture},
		"not valid yet":          {claim("nbf", number(now+31)), identity.CredentialIssuedInFuture},
		"jti missing":            {claim("jti", ``), identity.CredentialMissingClaim},
		"jti empty":              {claim("jti", `""`), identity.CredentialInvalidClaim},
		"jti a number":           {claim("jti", `7`), identity.CredentialInvalidClaim},
		"jti very long":          {claim("jti", `"`+strings.Repeat("x", 257)+`"`), identity.CredentialInvalidClaim},
		"wth missing":            {claim("wth", ``), identity.CredentialMissingClaim},
		"wth of another":         {claim("wth", hashed("x")), identity.CredentialIdentityBinding},
		"wth with padding":       {claim("wth", quoted(ect.Hash([]byte("x"))+"=")), identity.CredentialIdentityBinding},
		"wth a list":             {claim("wth", `[]`), identity.CredentialInvalidClaim},
		"a claim twice":          {claim("", `"jti":"x"`), identity.CredentialInvalidEncoding},
	}
}

// bindingRefusals have another token beside them than the proof says.
func bindingRefusals() map[string]refusal {
	with := func(claim, value, field string, lines ...string) func(*scene) {
		return func(s *scene) {
			s.proofPayload[claim] = value
			if field != "" {
				s.fields[field] = lines
			}
		}
	}
	const (
		access, repeated = identity.CredentialAccessBinding, identity.CredentialRepeated
		transaction      = identity.CredentialTransactionBinding
		other, unknown   = identity.CredentialOtherBinding, identity.CredentialUnknownBinding
		authorization    = "Authorization"
		context          = "Execution-Context"
	)
	oth := func(field, value string) string { return `{"` + field + `":` + hashed(value) + `}` }
	return map[string]refusal{
		"access token not bound":              {with("ath", ``, authorization, "Bearer abc"), access},
		"DPoP token not bound":                {with("ath", ``, authorization, "dpop abc"), access},
		"access token swapped":                {with("ath", hashed("abc"), authorization, "Bearer abd"), access},
		"access token with its scheme":        {with("ath", hashed("Bearer abc"), authorization, "Bearer abc"), access},
		"access token gone":                   {with("ath", hashed("abc"), ""), access},
		"access token turned to a password":   {with("ath", hashed("abc"), authorization, "Basic abc"), access},
		"access token bound to a list":        {with("ath", `["`+ect.Hash([]byte("abc"))+`"]`, authorization, "Bearer abc"), access},
		"two authorizations":                  {with("ath", hashed("abc"), authorization, "Bearer abc", "Bearer abc"), repeated},
		"transaction token not bound":         {with("tth", ``, "Txn-Token", "abc"), transaction},
		"transaction token swapped":           {with("tth", hashed("abc"), "Txn-Token", "abd"), transaction},
		"transaction token gone":              {with("tth", hashed("abc"), ""), transaction},
		"two transaction tokens":              {with("tth", hashed("abc"), "Txn-Token", "abc", "abd"), repeated},
		"oth a text":                          {with("oth", `"x"`, ""), identity.CredentialInvalidClaim},
		"oth null":                            {with("oth", `null`, ""), identity.CredentialInvalidClaim},
		"oth a list":                          {with("oth", `[]`, ""), identity.CredentialInvalidClaim},
		"oth with an unknown entry":           {with("oth", oth("x-user", "u"), "X-User", "u"), unknown},
		"oth with a name in capitals":         {with("oth", oth(context, "a.b.c"), context, "a.b.c"), unknown},
		"oth with one known, one unknown":     {with("oth", `{"execution-context":`+hashed("a.b.c")+`,"x":"y"}`, context, "a.b.c"), unknown},
		"execution context swapped":           {with("oth", oth("execution-context", "a.b.c"), context, "a.b.d"), other},
		"execution context gone":              {with("oth", oth("execution-context", "a.b.c"), ""), other},
		"execution context twice":             {with("oth", oth("execution-context", "a.b.c"), context, "a.b.c", "d.e.f"), other},
		"execution context bound to nothing":  {with("oth", `{"execution-context":null}`, context, "a.b.c"), other},
		"execution context bound to an empty": {with("oth", `{"execution-context":""}`, context, ""), other},
	}
}

func TestWIMSE_Refuses(t *testing.T) {
	t.Parallel()
	total := 0
	for part, cases := range map[string]map[string]refusal{
		"token": tokenRefusals(), "key": keyRefusals(), "proof": proofRefusals(), "binding": bindingRefusals(),
	} {
		total += len(cases)
		for name, tc := range cases {
			t.Run(part+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newScene(t)
				jti := s.proofPayload["jti"]
				tc.change(s)
				w := s.wimse(t)
				who, _, err := w.Caller(t.Context(), s.request(t))
				wantRefusal(t, who, err, tc.want)

				// What was refused has used up nothing.
				good := newScene(t)
				good.deps.Replay, good.proofPayload["jti"] = s.deps.Replay, jti
				if _, _, err := good.wimse(t).Caller(t.Context(), good.request(t)); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		}
	}
	if total < 100 {
		t.Errorf("only %d cases", total)
	}
}

func TestWIMSE_Fields(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	good := s.request(t)
	token, proof := good.Fields(credential.IdentityField), good.Fields(credential.ProofField)
	for name, tc := range map[string]struct {
		token, proof []string
		want         identity.CredentialReason // empty: nobody, and no error
	}{
		"neither":         {nil, nil, ""},
		"no proof":        {token, nil, identity.CredentialMissing},
		"no identity":     {nil, proof, identity.CredentialMissing},
		"two identities":  {append(token, token...), proof, identity.CredentialRepeated},
		"two proofs":      {token, append(proof, proof...), identity.CredentialRepeated},
		"two proofs only": {nil, append(proof, proof...), identity.CredentialRepeated},
		"swapped":         {proof, token, identity.CredentialWrongType},
		"twice the same":  {token, token, identity.CredentialWrongType},
	} {
		fields := http.Header{credential.IdentityField: tc.token, credential.ProofField: tc.proof}
		who, found, err := s.wimse(t).Caller(t.Context(), credential.Request{Fields: fields.Values, Target: target})
		switch {
		case found:
			t.Errorf("%s: found %s", name, who.ID)
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "":
			wantRefusal(t, who, err, tc.want)
		}
	}
}

func TestWIMSE_ProofIsGoodOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	w, r := s.wimse(t), s.request(t)
	if _, _, err := w.Caller(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	who, _, err := w.Caller(t.Context(), r)
	wantRefusal(t, who, err, identity.CredentialReplay)

	s.proofPayload["exp"] = number(noon.Unix() + 61)
	who, _, err = w.Caller(t.Context(), s.request(t))
	wantRefusal(t, who, err, identity.CredentialReplay)

	// The id of a proof is its caller's, and no token's of another kind.
	id := ect.ID(strings.Trim(s.proofPayload["jti"], `"`))
	state, err := s.deps.Replay.Claim(t.Context(), ect.ReplayKey{Issuer: caller, ID: id}, ect.ReplayUse{})
	if err != nil || state != ect.ReplayFresh {
		t.Errorf("an ECT of the same id: %v, %v", state, err)
	}
	s.tokenPayload["sub"] = `"spiffe://example.org/agents/b"`
	if _, _, err := w.Caller(t.Context(), s.request(t)); err != nil {
		t.Errorf("another caller's proof of the same id: %v", err)
	}
}

func TestWIMSE_ReplayErrorIsNoRefusal(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	trouble := errors.New("trouble")
	s.deps.Replay = brokenReplay{trouble}
	who, found, err := s.wimse(t).Caller(t.Context(), s.request(t))
	var refusal *identity.CredentialError
	if !errors.Is(err, trouble) || errors.As(err, &refusal) || found || who.ID != "" {
		t.Errorf("got %v, %v", found, err)
	}
}

// The caller's key signs its execution context tokens too, under the name that
// the identity token gives it or under its thumbprint.
func TestWIMSE_KeyOfTheCallerSignsItsECTs(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	who, _, err := s.wimse(t).Caller(t.Context(), s.request(t))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: "example.org", Now: s.deps.Now})
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := authority.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	ring, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: bundle})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: ring, Now: s.deps.Now})
	if err != nil {
		t.Fatal(err)
	}
	party := &ecttest.Party{ID: caller, Edwards: edwards(7), KeyID: thumbprint(t, who.Key)}
	for kid, ok := range map[string]bool{`"own-1"`: true, quoted(party.KeyID): true, `"own-2"`: false} {
		compact := ecttest.Mint(t, party, ecttest.Recipe{Header: ecttest.Raw{"kid": kid, "x5c": ``}})
		if _, err := verifier.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent, Peer: who.Peer}); (err == nil) != ok {
			t.Errorf("kid %s: %v", kid, err)
		}
	}
}

func TestNewWIMSE_Refuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*credential.WIMSEDeps){
		"no replay cache":      func(d *credential.WIMSEDeps) { d.Replay = nil },
		"no issuer":            func(d *credential.WIMSEDeps) { d.Issuers = nil },
		"an issuer's keys":     func(d *credential.WIMSEDeps) { d.Issuers["example.org"] = credential.Issuer{} },
		"a domain in capitals": func(d *credential.WIMSEDeps) { d.Issuers["Example.org"] = d.Issuers["example.org"] },
		"a domain with a path": func(d *credential.WIMSEDeps) { d.Issuers["example.org/a"] = d.Issuers["example.org"] },
		"an id as a domain":    func(d *credential.WIMSEDeps) { d.Issuers["spiffe://example.org"] = d.Issuers["example.org"] },
		"an empty audience":    func(d *credential.WIMSEDeps) { d.Audience = []string{""} },
		"a field in capitals":  func(d *credential.WIMSEDeps) { d.Bound = []string{"Execution-Context"} },
		"a field of no name":   func(d *credential.WIMSEDeps) { d.Bound = []string{""} },
		"negative skew":        func(d *credential.WIMSEDeps) { d.Skew = -time.Second },
		"proofs of no time":    func(d *credential.WIMSEDeps) { d.MaxProof = time.Millisecond },
		"negative size":        func(d *credential.WIMSEDeps) { d.MaxToken = -1 },
	} {
		d := newScene(t).deps
		change(&d)
		if _, err := credential.NewWIMSE(d); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCredentialError_QuotesNothing(t *testing.T) {
	t.Parallel()
	const secret = "pssst"
	for _, claim := range []string{"sub", "iss", "iat", "exp", "cnf"} {
		s := newScene(t)
		s.tokenPayload[claim] = `"` + secret + `"`
		_, _, err := s.wimse(t).Caller(t.Context(), s.request(t))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", claim, err)
		}
	}
	err := &identity.CredentialError{Credential: "workload proof token", Reason: identity.CredentialExpired, Claim: "exp"}
	if got := err.Error(); got != "workload proof token refused: expired (exp)" {
		t.Errorf("got %q", got)
	}
}
