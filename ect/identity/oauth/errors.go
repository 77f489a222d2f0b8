package oauth

import (
	"strings"
	"time"
)

// Reason says in one word why a token was refused.
type Reason string

// The reasons.
const (
	Malformed      Reason = "malformed_token"
	TooLong        Reason = "token_too_long"
	WrongType      Reason = "wrong_type"
	UnsupportedAlg Reason = "unsupported_alg"
	Critical       Reason = "unsupported_critical"
	UnknownKey     Reason = "unknown_key"
	BadSignature   Reason = "invalid_signature"
	WrongIssuer    Reason = "issuer_mismatch"
	MissingClaim   Reason = "missing_claim"
	InvalidClaim   Reason = "invalid_claim"
	WrongAudience  Reason = "audience_mismatch"
	Expired        Reason = "expired"
	NotYet         Reason = "not_yet_valid"
	Inactive       Reason = "not_active"         // of introspection: revoked, ended or never issued
	Bound          Reason = "sender_constrained" // RFC 8705, RFC 9449: no bearer token
)

// TokenError refuses an access token (RFC 6750 section 3.1, invalid_token).
type TokenError struct {
	Issuer string // its name in the configuration
	Reason Reason
	Claim  string // the claim or header parameter at fault; empty: none is. Never foreign text
}

func (e *TokenError) Error() string {
	text := "access token of " + e.Issuer + " refused: " + string(e.Reason)
	if e.Claim != "" {
		text += " (" + e.Claim + ")"
	}
	return text
}

// RequestError refuses how a token is shown (RFC 6750 section 3.1, invalid_request).
type RequestError struct{ Reason string }

func (e *RequestError) Error() string { return e.Reason }

// IdentityError: the claims of a good token give no id, or more than one.
type IdentityError struct {
	Issuer string // its name in the configuration
	Reason string // never foreign text
}

func (e *IdentityError) Error() string {
	return "access token of " + e.Issuer + " gives no caller: " + e.Reason
}

// ScopeError: no scope of the token permits this (RFC 6750 section 3.1, insufficient_scope).
type ScopeError struct {
	Scopes   []string // each of which would do; none: no scope permits it
	Metadata string   // URL of the metadata of the endpoint (RFC 9728); empty: it has none
}

func (e *ScopeError) Error() string {
	if len(e.Scopes) == 0 {
		return "no scope permits this"
	}
	return "the access token lacks a scope: expected one of " + strings.Join(e.Scopes, ", ")
}

// UnavailableError: whether a token is good cannot be found out now.
type UnavailableError struct {
	Issuer     string        // its name in the configuration
	RetryAfter time.Duration // at least a second
	Err        error         // for logs; never shown, and without a token
}

func (e *UnavailableError) Error() string {
	return "access tokens of " + e.Issuer + " cannot be judged now: its server did not answer as expected"
}

// Unwrap gives the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }
