package ect

import (
	"errors"
	"strconv"
)

// Reason says, in one word for the wire and the logs, why a token was refused.
type Reason string

// The reasons, in the order in which verification meets them.
const (
	ReasonLevelTooLow         Reason = "level_too_low"
	ReasonWrongType           Reason = "wrong_type"
	ReasonUnsupportedAlg      Reason = "unsupported_alg"
	ReasonUnsupportedCritical Reason = "unsupported_critical"
	ReasonUnknownKey          Reason = "unknown_key"
	ReasonKeyNotTrusted       Reason = "key_not_trusted"
	ReasonInvalidSignature    Reason = "invalid_signature"
	ReasonMissingClaim        Reason = "missing_claim"
	ReasonConflictingParents  Reason = "conflicting_parents"
	ReasonConflictingExt      Reason = "conflicting_ext"
	ReasonInvalidClaim        Reason = "invalid_claim"
	ReasonIssuerMismatch      Reason = "issuer_mismatch"
	ReasonAudienceMismatch    Reason = "audience_mismatch"
	ReasonExpired             Reason = "expired"
	ReasonIssuedInFuture      Reason = "issued_in_future"
	ReasonTooOld              Reason = "too_old"
	ReasonLifetimeTooLong     Reason = "lifetime_too_long"
	ReasonHashMismatch        Reason = "hash_mismatch"
	ReasonReplay              Reason = "replay"
	ReasonUnknownParent       Reason = "unknown_parent" // a message names a token that is unknown, or not its sender's

	// ReasonGraphDuplicate and the next ones are the rules of a workflow's graph (ECT draft, "DAG Validation").
	ReasonGraphDuplicate Reason = "dag_duplicate"
	ReasonGraphParent    Reason = "dag_parent_missing"
	ReasonGraphTime      Reason = "dag_time"
	ReasonGraphWorkflow  Reason = "dag_workflow"
	ReasonGraphCycle     Reason = "dag_cycle"
	ReasonGraphLimit     Reason = "dag_limit"
)

var (
	// ErrRequired: a message came without an ECT where one is demanded (403 ect_required).
	ErrRequired = errors.New("an execution context token is required")
	// ErrUnsignable: the caller asked Sign for a token that no strict verifier would accept.
	ErrUnsignable = errors.New("claims that must not be signed")
	// ErrNoToken: a zero Token or Verified was handed over as if it were evidence.
	ErrNoToken = errors.New("no execution context token")
	// ErrTooManyIDs: more ids were looked up at once than MaxLookups.
	ErrTooManyIDs = errors.New("too many ids are looked up at once")
	// ErrCursor: a cursor of a workflow, or of a list of workflows, that no store returned.
	ErrCursor = errors.New("the cursor is not one that was returned: begin without one")
)

// InvalidError refuses a well-formed token (403 ect_invalid).
type InvalidError struct {
	Reason Reason
	ID     ID     // the token's jti, if it could be read as a UUID
	Claim  string // the claim or header parameter at fault, if one is
}

func (e *InvalidError) Error() string {
	text := "execution context token refused: " + string(e.Reason)
	if e.Claim != "" {
		text += " (" + e.Claim + ")"
	}
	return text
}

// MalformedError refuses what is no token at all (400 ect_invalid).
type MalformedError struct {
	Reason string // what is wrong; never quotes the input
}

func (e *MalformedError) Error() string { return "malformed execution context: " + e.Reason }

// ForeignRootError refuses a token without parents in a workflow that another
// issuer began (R14): it changes nothing on record.
type ForeignRootError struct {
	ID ID // the token's jti
}

func (e *ForeignRootError) Error() string {
	return "execution context token refused: its workflow was begun by another issuer: name a parent, or begin a workflow of your own"
}

// TooLargeError refuses a token or header beyond its bound (431).
type TooLargeError struct {
	What  string // "token", "header" or "token count"
	Limit int    // bytes, or tokens
}

func (e *TooLargeError) Error() string {
	return "execution context " + e.What + " exceeds " + strconv.Itoa(e.Limit)
}

// ReplayedError reports that this token was already used with this body. The
// pipeline then sends the reply of that time, or that the work still runs.
type ReplayedError struct{ Key ReplayKey }

func (e *ReplayedError) Error() string { return "execution context token already in use" }

// ConflictError reports that a token of other bytes has the id.
type ConflictError struct{ ID ID }

func (e *ConflictError) Error() string {
	return "another execution context token has this id: " + string(e.ID)
}
