package credential

import (
	"crypto"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// confirmed is what an identity token vouches for.
type confirmed struct {
	peer  ect.Peer
	alg   string // the only one that proofs may use
	token string // the identity token, as it was shown
	until time.Time
}

// identity judges an identity token (workload-creds section 3.1). No claim is
// acted on before the signature holds, except sub to find the issuer.
func (w *WIMSE) identity(compact string, now int64) (confirmed, error) {
	j := judge{identityToken, now, w.skew}
	token, err := j.parse(compact, w.maxToken, "wit+jwt")
	if err != nil {
		return confirmed{}, err
	}
	if !jose.Supported(token.Algorithm) {
		return confirmed{}, j.refuse(identity.CredentialUnsupportedAlg, "alg")
	}
	claims := token.Claims
	claims.Demand("sub")
	id, domain, ok := workload(claims.Text("sub"))
	if !ok {
		claims.Fail("sub")
		return confirmed{}, j.well(claims)
	}
	issuer, key, err := w.key(token, domain, j)
	if err != nil {
		return confirmed{}, err
	}
	if !token.Verify(key) {
		return confirmed{}, j.refuse(identity.CredentialInvalidSignature, "")
	}
	iss := claims.Text("iss")
	if err := j.well(claims); err != nil {
		return confirmed{}, err
	}
	if issuer.Name != "" && iss != issuer.Name {
		return confirmed{}, j.refuse(identity.CredentialIssuerMismatch, "iss")
	}
	if err := j.timely(claims); err != nil {
		return confirmed{}, err
	}
	own, err := w.confirmation(claims, j)
	return confirmed{
		peer: ect.Peer{ID: id, Key: own.Public, KeyID: own.ID}, alg: jose.AlgorithmOf(own.Public), token: compact,
		until: j.end(claims),
	}, err
}

// key is the one that an identity token names, and whose it is.
func (w *WIMSE) key(token *jose.JWT, domain string, j judge) (Issuer, crypto.PublicKey, error) {
	issuer, known := w.issuers[domain]
	if !known {
		return issuer, nil, j.refuse(identity.CredentialUnknownKey, "sub")
	}
	key, known := issuer.Keys.Find(token.Algorithm, token.KeyID)
	if !known {
		return issuer, nil, j.refuse(identity.CredentialUnknownKey, "kid")
	}
	return issuer, key, nil
}

// Known reports whether a request shows an identity token that names one of the keys
// by which it could be judged. It checks no signature, so anyone can make such a token.
func (w *WIMSE) Known(r Request) bool {
	compact, shown, err := r.single(IdentityField, identityToken)
	if err != nil || !shown {
		return false
	}
	j := judge{credential: identityToken}
	token, err := j.parse(compact, w.maxToken, "wit+jwt")
	if err != nil || !jose.Supported(token.Algorithm) {
		return false
	}
	_, domain, ok := workload(token.Claims.Text("sub"))
	if ok {
		_, _, err = w.key(token, domain, j)
	}
	return ok && err == nil
}

// confirmation reads the caller's key out of cnf.
func (w *WIMSE) confirmation(claims *jose.Claims, j judge) (jose.Key, error) {
	claims.Demand("cnf")
	cnf := claims.Object("cnf")
	if err := j.well(claims); err != nil {
		return jose.Key{}, err
	}
	cnf.Demand("jwk")
	jwk := cnf.Object("jwk")
	if fault := cnf.Fault(); fault != nil {
		if fault.Missing {
			return jose.Key{}, j.refuse(identity.CredentialMissingClaim, "cnf.jwk")
		}
		return jose.Key{}, j.refuse(identity.CredentialInvalidKey, "cnf.jwk")
	}
	if reason := w.confirmationAlg(jwk); reason != "" {
		return jose.Key{}, j.refuse(reason, "cnf.jwk.alg")
	}
	key, err := cnf.Key("jwk")
	if err != nil || !key.Fits(jose.AlgorithmOf(key.Public)) || key.Use != "" && key.Use != "sig" {
		return jose.Key{}, j.refuse(identity.CredentialInvalidKey, "cnf.jwk")
	}
	return key, nil
}

// confirmationAlg judges cnf.jwk.alg; empty: it is well. The draft forbids some
// for all; of the others we use those of execution context tokens,
// because the key is theirs too.
func (w *WIMSE) confirmationAlg(jwk *jose.Claims) identity.CredentialReason {
	alg := jwk.Text("alg")
	switch {
	case jwk.Fault() != nil:
		return identity.CredentialInvalidKey
	case alg == "" && w.missingAlg:
		return ""
	case alg == "":
		return identity.CredentialMissingConfirmation
	case alg == jose.ES256 || alg == jose.EdDSA:
		return ""
	case forbidden(alg):
		return identity.CredentialForbiddenConfirmation
	default:
		return identity.CredentialUnsupportedConfirmation
	}
}

// encryption begins the names of algorithms that encrypt (RFC 7518 sections 4.1 and 5.1).
var encryption = []string{"RSA1_5", "RSA-OAEP", "ECDH-", "PBES2-", "A128", "A192", "A256", "dir"}

// forbidden knows algorithms without a signature that only its maker could make.
func forbidden(alg string) bool {
	return strings.EqualFold(alg, "none") || strings.HasPrefix(alg, "HS") ||
		slices.ContainsFunc(encryption, func(name string) bool { return strings.HasPrefix(alg, name) })
}
