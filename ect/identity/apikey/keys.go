package apikey

import (
	"crypto/subtle"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

// Field is the header field for keys beside Authorization, which has them as bearer tokens.
const Field = "X-API-Key"

const (
	apiKey        = "API key"
	authorization = "Authorization"
)

// Keys finds out who shows an API key. It is safe for concurrent use.
type Keys struct {
	byID map[string]Key
	now  func() time.Time
}

// NewKeys knows these keys, whose ids differ. now may be nil: time.Now.
func NewKeys(keys []Key, now func() time.Time) *Keys {
	if now == nil {
		now = time.Now
	}
	byID := make(map[string]Key, len(keys))
	for _, k := range keys {
		byID[k.ID] = k
	}
	return &Keys{byID, now}
}

// Caller is who sent a request; false if it shows no API key: a bearer token of another form, or another value of
// X-API-Key, is the business of others. The caller has no key of its own: it proved to have a text. A request with
// two keys, or a key beside a workload identity token or another bearer token, or a key in its URL, is refused. Its error is
// *identity.CredentialError.
func (k *Keys) Caller(r credential.Request) (identity.Caller, bool, error) {
	if inQuery(r.Query) {
		return identity.Caller{}, false, refuse(identity.CredentialInURL, "")
	}
	text, shown, err := single(r)
	if err != nil || !shown {
		return identity.Caller{}, false, err
	}
	key, err := k.judge(text)
	if err != nil {
		return identity.Caller{}, false, err
	}
	return identity.Caller{Peer: ect.Peer{ID: key.Caller}, Until: key.Until}, true, nil
}

// judge is constant in time for what is not public: neither a hash nor whether the id exists changes its work.
func (k *Keys) judge(text string) (Key, error) {
	id, secret, fault := read(text)
	if fault != "" {
		return Key{}, refuse(fault, "")
	}
	key, known := k.byID[id] // if not, the zero key, which is not taken whatever its hash
	sum := hashOf(key.salt, secret)
	if same := subtle.ConstantTimeCompare(sum[:], key.hash[:]); same != 1 || !known {
		return Key{}, refuse(identity.CredentialUnknownKey, "")
	}
	if key.Ended(k.now()) {
		return Key{}, refuse(identity.CredentialExpired, "until")
	}
	return key, nil
}

// Known reports whether a request shows a text of a key that exists. It does not judge the secret, so who knows
// an id can make such a text.
func (k *Keys) Known(r credential.Request) bool {
	text, shown, err := single(r)
	if err != nil || !shown {
		return false
	}
	id, _, fault := read(text)
	_, known := k.byID[id]
	return fault == "" && known
}

// Shown are the keys in X-API-Key, also bad ones.
func Shown(r credential.Request) []string {
	var list []string
	for _, value := range r.Fields(Field) {
		if text := strings.Trim(value, " \t"); strings.HasPrefix(text, Prefix) {
			list = append(list, text)
		}
	}
	return list
}

func isBearer(value string) bool {
	scheme, _, _ := strings.Cut(strings.Trim(value, " \t"), " ")
	return strings.EqualFold(scheme, "Bearer")
}

// bearers are the keys in Authorization.
func bearers(values []string) []string {
	var list []string
	for _, value := range values {
		scheme, token, _ := strings.Cut(strings.Trim(value, " \t"), " ")
		if token = strings.TrimLeft(token, " "); strings.EqualFold(scheme, "Bearer") && strings.HasPrefix(token, Prefix) {
			list = append(list, token)
		}
	}
	return list
}

// single is the one key of a request; false if there is none.
func single(r credential.Request) (text string, shown bool, err error) {
	lines := r.Fields(authorization)
	inField, asBearer := Shown(r), bearers(lines)
	switch all := slices.Concat(asBearer, inField); {
	case len(all) == 0:
		return "", false, nil
	case len(all) > 1, len(inField) > 0 && len(r.Fields(Field)) > 1:
		return "", false, refuse(identity.CredentialRepeated, Field)
	case len(inField) > 0 && slices.ContainsFunc(lines, isBearer):
		return "", false, refuse(identity.CredentialRepeated, authorization) // both say who the caller is
	case len(asBearer) > 0 && len(lines) > 1:
		return "", false, refuse(identity.CredentialRepeated, authorization)
	case len(r.Fields(credential.IdentityField)) > 0:
		return "", false, refuse(identity.CredentialRepeated, credential.IdentityField)
	default:
		return all[0], true, nil
	}
}

// inQuery reports whether a query has the text of a key, as a name or a value.
func inQuery(query string) bool {
	if query == "" {
		return false
	}
	members, _ := url.ParseQuery(query) // what it cannot read is left out
	is := func(text string) bool {
		_, _, fault := read(text)
		return fault == ""
	}
	for name, values := range members {
		if is(name) {
			return true
		}
		if slices.ContainsFunc(values, is) {
			return true
		}
	}
	return false
}

func refuse(reason identity.CredentialReason, claim string) error {
	return &identity.CredentialError{Credential: apiKey, Reason: reason, Claim: claim}
}
