package workflow

import (
	"errors"
	"slices"
)

// Severity is how grave an error is (ATD, Error Signaling). Severities are ordered; the zero
// value is none.
type Severity uint8

// The severities, in increasing order.
const (
	SeverityInfo Severity = iota + 1
	SeverityWarning
	SeverityError
	SeverityCritical
)

var severities = [...]string{"", "info", "warning", "error", "critical"}

var errSeverity = errors.New("workflow: not a severity: expected info, warning, error or critical")

func (s Severity) String() string {
	if int(s) < len(severities) {
		return severities[s]
	}
	return ""
}

// MarshalText writes a severity by its name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a severity by its name.
func (s *Severity) UnmarshalText(text []byte) error {
	at := slices.Index(severities[1:], string(text))
	if at < 0 {
		return errSeverity
	}
	*s = Severity(at + 1) //nolint:gosec // at most 4
	return nil
}

// Escalates reports whether an error of this severity is to be brought before a human (ATD, HITL
// Escalation on Error).
func (s Severity) Escalates() bool { return s == SeverityCritical }

// ErrorType is the kind of an error (ATD, Error Signaling).
type ErrorType string

// The six types of errors.
const (
	ErrorActionFailed        ErrorType = "action_failed"
	ErrorTimeout             ErrorType = "timeout"
	ErrorConstraintViolation ErrorType = "constraint_violation"
	ErrorResourceExhausted   ErrorType = "resource_exhausted"
	ErrorUpstreamCascade     ErrorType = "upstream_cascade"
	ErrorUnknown             ErrorType = "unknown"
)
