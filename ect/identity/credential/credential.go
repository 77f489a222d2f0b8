package credential

import (
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Defaults of both kinds of verifier.
const (
	DefaultSkew     = 30 * time.Second
	DefaultMaxToken = 8 << 10 // bytes of one token
)

// Request is what of an HTTP request its credentials are in and about.
type Request struct {
	// Fields gives the values of a header field, one per line, whatever the case
	// of its name: http.Header.Values does.
	Fields func(name string) []string
	// Target is the absolute target URI (RFC 9110 section 7.1), with the host as
	// we know ourselves and not as the caller says. Query and fragment do not count.
	Target string
	// Query is the raw query of the target URI, in which no credential is taken. Empty: there is none.
	Query string
	// Source is the other end: the id that its certificate proves, or its address. What judging
	// its credentials costs counts for it.
	Source string
}

// single is a field's one value; false if there is none.
func (r Request) single(name, credential string) (string, bool, error) {
	values := r.Fields(name)
	if len(values) > 1 {
		return "", false, &identity.CredentialError{Credential: credential, Reason: identity.CredentialRepeated, Claim: name}
	}
	if len(values) == 0 {
		return "", false, nil
	}
	return strings.Trim(values[0], " \t"), true, nil
}

// judge says no in the name of one credential, at one instant.
type judge struct {
	credential string
	now, skew  int64
}

func (j judge) refuse(reason identity.CredentialReason, claim string) error {
	return &identity.CredentialError{Credential: j.credential, Reason: reason, Claim: claim}
}

// parse takes a token apart and looks at the header, as far as that can be
// judged without a key.
func (j judge) parse(compact string, limit int, types ...string) (*jose.JWT, error) {
	token, err := jose.ParseJWT(compact, limit)
	kind, _, broken := jose.Unreadable(err)
	switch {
	case broken:
		return nil, j.refuse(unreadable(kind), "")
	case err != nil:
		return nil, err
	case !slices.Contains(types, token.Type):
		return nil, j.refuse(identity.CredentialWrongType, "typ")
	case token.Critical:
		return nil, j.refuse(identity.CredentialUnsupportedCritical, "crit")
	}
	return token, nil
}

func unreadable(kind jose.Kind) identity.CredentialReason {
	switch kind {
	case jose.Shape:
		return identity.CredentialMalformed
	case jose.Size:
		return identity.CredentialTooLong
	default:
		return identity.CredentialInvalidEncoding
	}
}

// well refuses the first claim read so far that was missing or wrong.
func (j judge) well(claims *jose.Claims) error {
	fault := claims.Fault()
	switch {
	case fault == nil:
		return nil
	case fault.Missing:
		return j.refuse(identity.CredentialMissingClaim, fault.Claim)
	default:
		return j.refuse(identity.CredentialInvalidClaim, fault.Claim)
	}
}

// timely judges exp, which must be there, and iat and nbf, which may.
func (j judge) timely(claims *jose.Claims) error {
	claims.Demand("exp")
	exp, iat, nbf := claims.Time("exp"), claims.Time("iat"), claims.Time("nbf")
	if err := j.well(claims); err != nil {
		return err
	}
	switch {
	case j.now >= exp+j.skew:
		return j.refuse(identity.CredentialExpired, "exp")
	case iat > j.now+j.skew:
		return j.refuse(identity.CredentialIssuedInFuture, "iat")
	case nbf > j.now+j.skew:
		return j.refuse(identity.CredentialIssuedInFuture, "nbf")
	}
	return nil
}

// end is when a timely token is timely no more.
func (j judge) end(claims *jose.Claims) time.Time { return time.Unix(claims.Time("exp")+j.skew, 0) }

// workload reads the identity of one workload and its trust domain. A wimse id
// is held to the grammar of a SPIFFE id, which is part of its own. A trust
// domain is no workload, and the id of callers without credentials names none.
func workload(sub string) (ect.Identity, string, bool) {
	rest, isWIMSE := strings.CutPrefix(sub, "wimse:")
	text := sub
	if isWIMSE {
		text = "spiffe:" + rest
	}
	id, err := spiffeid.FromString(text)
	if err != nil || id.Path() == "" || len(sub) > maxID {
		return "", "", false
	}
	domain := id.TrustDomain().Name()
	if ect.Identity(text) == identity.Anonymous(domain).ID {
		return "", "", false
	}
	return ect.Identity(sub), domain, true
}

// maxID bounds an id (SPIFFE-ID section 2.3), bytes.
const maxID = 2048
