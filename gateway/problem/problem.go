package problem

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxDetail bounds the text of a problem, in bytes (R11).
const maxDetail = 512

// Problem is an error as others may see it. Its fields survive JSON, so that a
// refusal can be repeated as it was (R6).
type Problem struct {
	Status     int
	Code       string // one of Codes
	Title      string
	Detail     string         // never quotes a message, a token or a key
	RetryAfter time.Duration  // zero: no advice
	ECTError   string         // aepb.error: semantic_loss, timeout, policy_violation or internal_error
	Native     canonical.Code // what a native endpoint says

	// UpstreamFault: the agent failed, not the caller or the gateway. Only this
	// counts for the agent's circuit breaker.
	UpstreamFault bool

	Reason  Reason `json:",omitempty"` // why the agent failed, for those who may know it
	Request string `json:",omitempty"` // id of the request that was refused first; empty: of this one

	Where Where `json:",omitzero"`

	NextGateway string `json:",omitempty"` // code of the next gateway that refused the message; empty: it did not

	Challenge string `json:",omitempty"` // WWW-Authenticate
	Allow     string `json:",omitempty"` // methods that would be allowed
	Location  string `json:",omitempty"` // who takes the work instead
	Successor string `json:",omitempty"` // Link, rel="successor-version"
}

// Waiting is an approval as the caller of the call sees it.
type Waiting struct {
	URL   string    `json:"approval,omitempty"`       // its path at the gateway
	State string    `json:"approval_state,omitempty"` // one of those of policy/hitl
	Until time.Time `json:"until,omitzero"`           // when it expires
}

// Where is where a message stands: where the agent was not reached or failed, for those who may know it, or the
// approval that it depends on.
type Where struct {
	Program  string  `json:"-"`         // what became of the program that the agent is; empty: it is none
	Address  string  `json:"-"`         // host and port, or URLs
	Approval Waiting `json:",omitzero"` // zero: it depends on none
}

// OnRecord is the detail of an error for records, which others than the caller read: without the
// caller's id.
func OnRecord(err error) string {
	if refused, ok := errors.AsType[*policy.Forbidden](err); ok && refused.Caller != "" {
		unnamed := *refused
		unnamed.Caller = ""
		err = &unnamed
	}
	return From(err).Detail
}

// of makes a problem of a code. Without a detail the title has to do.
func of(code, detail string) Problem {
	k := kinds[code]
	detail = cmp.Or(detail, k.title)
	return Problem{
		Status: k.status, Code: code, Title: k.title, Detail: detail, ECTError: ectError(code), Native: k.native,
	}
}

// From finds out what an error is to others. nil and everything unknown is
// internal_error, without its text.
func From(err error) Problem {
	p, ok := find(err)
	if !ok {
		p = fallback(err)
	}
	if why := ReasonOf(err); why != "" {
		p.Reason = why
	}
	p.Detail = clean(p.Detail)
	return p
}

// find walks from the outermost error inward to the first that has a row.
func find(err error) (Problem, bool) {
	if err == nil {
		return Problem{}, false
	}
	if challenged, ok := err.(*ChallengedError); ok { //nolint:errorlint // this is the walk that errors.As would do
		p, known := find(challenged.Err)
		return challenged.on(p), known
	}
	if describe, ok := table[reflect.TypeOf(err)]; ok {
		return describe(err), true
	}
	switch wrapper := err.(type) { //nolint:errorlint // this is the walk that errors.As would do
	case interface{ Unwrap() error }:
		return find(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range wrapper.Unwrap() {
			if p, ok := find(inner); ok {
				return p, true
			}
		}
	}
	return Problem{}, false
}

// fallback knows the sentinels. A caller that went away gets nothing anyway;
// timeout is the word of the draft for work that was cut short.
func fallback(err error) Problem {
	var timeout net.Error
	switch {
	case errors.Is(err, ect.ErrRequired):
		return of(CodeECTRequired, "the message came without one")
	case errors.Is(err, translators.ErrTooLarge):
		return of(CodeTooLarge, "")
	case errors.Is(err, translators.ErrMalformed):
		return of(CodeMalformed, "")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return of(CodeTimeout, "")
	case errors.Is(err, context.Canceled):
		return of(CodeTimeout, "the caller went away")
	default:
		return of(CodeInternal, "")
	}
}

// Reading says what it means that a request body could not be read. nil stays nil.
func Reading(err error) error {
	var tooLarge *http.MaxBytesError
	var exceeded *quota.ExceededError
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return tooLarge
	case errors.As(err, &exceeded):
		return exceeded
	case errors.As(err, &timeout) && timeout.Timeout():
		return context.DeadlineExceeded
	default:
		return &QueryError{Reason: "the body could not be read to its end"}
	}
}

// clean keeps a text on one line and short, cut at a character.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	if len(text) <= maxDetail {
		return text
	}
	cut := maxDetail
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
