package credential

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// maxProofID bounds a proof's jti, bytes. 128 random bits take 22.
const maxProofID = 256

// proofs is where a replay cache keeps proofs: it is no workflow's name, so no
// execution context token is ever there.
const proofs = "wpt"

// prove judges a proof (wpt-01 section 2). Last of all the proof is used up.
func (w *WIMSE) prove(ctx context.Context, compact string, owner confirmed, r Request, now int64) error {
	j := judge{proofToken, now, w.skew}
	token, err := j.parse(compact, w.maxToken, "wpt+jwt")
	switch {
	case err != nil:
		return err
	case token.Algorithm != owner.alg:
		return j.refuse(identity.CredentialUnsupportedAlg, "alg")
	case !token.Verify(owner.peer.Key):
		return j.refuse(identity.CredentialInvalidSignature, "")
	}
	claims := token.Claims
	claims.Demand("aud", "exp", "jti", "wth")
	audience, jti, wth := claims.Texts("aud"), claims.Text("jti"), claims.Text("wth")
	if len(jti) > maxProofID {
		claims.Fail("jti")
	}
	if err := j.timely(claims); err != nil {
		return err
	}
	exp, iat := claims.Time("exp"), claims.Time("iat")
	switch {
	case exp > now+w.maxProof+w.skew:
		return j.refuse(identity.CredentialLifetimeTooLong, "exp")
	case !w.addressed(audience, r.Target):
		return j.refuse(identity.CredentialAudienceMismatch, "aud")
	case wth != jose.Hash([]byte(owner.token)):
		return j.refuse(identity.CredentialIdentityBinding, "wth")
	}
	if err := w.bindings(claims, r, j); err != nil {
		return err
	}
	iat = cmp.Or(iat, exp-w.maxProof-w.skew) // when no earlier one could have been taken
	return w.use(ctx, j, owner.peer.ID, jti, ect.ReplayUse{
		Token: jose.Hash([]byte(compact)), Issued: time.Unix(iat, 0), Until: time.Unix(exp+w.skew, 0),
	})
}

// use notes a proof. A proof is for one request, so there is no second time,
// not for the same bytes either. One that was made before the cache came to be
// may have been used before.
func (w *WIMSE) use(ctx context.Context, j judge, caller ect.Identity, jti string, use ect.ReplayUse) error {
	state, err := w.replay.Claim(ctx, ect.ReplayKey{Issuer: caller, Workflow: proofs, ID: ect.ID(jti)}, use)
	switch {
	case err != nil:
		return fmt.Errorf("credential: replay cache: %w", err)
	case state != ect.ReplayFresh:
		return j.refuse(identity.CredentialReplay, "jti")
	default:
		return nil
	}
}

// addressed says that a proof is for this request: its target URI, or a name
// that means us.
func (w *WIMSE) addressed(audience []string, target string) bool {
	here, _ := normal(target) // empty if it is none, which no audience is
	return slices.ContainsFunc(audience, func(aud string) bool {
		there, ok := normal(aud)
		return ok && there == here || slices.Contains(w.audience, aud)
	})
}

// normal is a target URI without what makes no difference: query, fragment,
// the case of scheme and host, the default port, an empty path (RFC 9110
// section 4.2.3). Nothing is decoded: %2F is no slash.
func normal(uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" || u.User != nil {
		return "", false
	}
	host := strings.ToLower(u.Host)
	switch u.Scheme { // url.Parse has made it lower case
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	default:
		return "", false
	}
	return u.Scheme + "://" + host + cmp.Or(u.EscapedPath(), "/"), true
}
