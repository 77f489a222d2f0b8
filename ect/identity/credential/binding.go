package credential

import (
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Header fields of tokens that a proof binds by claims of their own.
const (
	authorizationField = "Authorization"
	transactionField   = "Txn-Token"
)

// bindings compares the tokens that a proof names with those that came along,
// both ways: none may be swapped, added or taken away under a proof.
func (w *WIMSE) bindings(claims *jose.Claims, r Request, j judge) error {
	access, err := accessToken(r.Fields(authorizationField), j)
	if err != nil {
		return err
	}
	if !bound(claims, "ath", access) {
		return j.refuse(identity.CredentialAccessBinding, "ath")
	}
	transaction := r.Fields(transactionField)
	if len(transaction) > 1 {
		return j.refuse(identity.CredentialRepeated, transactionField)
	}
	if !bound(claims, "tth", transaction) {
		return j.refuse(identity.CredentialTransactionBinding, "tth")
	}
	return w.others(claims, r, j)
}

// bound says that a claim is the hash of the one token there is, or that there
// is neither.
func bound(claims *jose.Claims, claim string, token []string) bool {
	if len(token) == 0 {
		return !claims.Has(claim)
	}
	return claims.Text(claim) == hashOf(token[0])
}

func hashOf(value string) string { return jose.Hash([]byte(strings.Trim(value, " \t"))) }

// accessToken finds an OAuth access token (RFC 6750, RFC 9449); other schemes
// carry none.
func accessToken(values []string, j judge) ([]string, error) {
	if len(values) > 1 {
		return nil, j.refuse(identity.CredentialRepeated, authorizationField)
	}
	for _, value := range values {
		scheme, token, _ := strings.Cut(strings.Trim(value, " \t"), " ")
		if strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "DPoP") {
			return []string{token}, nil
		}
	}
	return nil, nil
}

// others judges oth: each entry names a header field that is there once and has
// this hash. An entry that we do not understand spoils the proof.
func (w *WIMSE) others(claims *jose.Claims, r Request, j judge) error {
	oth := claims.Object("oth")
	if err := j.well(claims); err != nil || oth == nil {
		return err
	}
	names := oth.Names()
	if slices.ContainsFunc(names, func(field string) bool { return !slices.Contains(w.bound, field) }) {
		return j.refuse(identity.CredentialUnknownBinding, "oth")
	}
	for _, field := range names {
		values := r.Fields(field)
		if len(values) != 1 || oth.Text(field) != hashOf(values[0]) {
			return j.refuse(identity.CredentialOtherBinding, "oth")
		}
	}
	return nil
}
