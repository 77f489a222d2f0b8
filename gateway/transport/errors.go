package transport

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// UnreachableError reports that there was no connection, or that it broke before a reply.
type UnreachableError struct {
	Agent string
	Err   error // for logs; never shown to a caller
}

func (e *UnreachableError) Error() string { return "agent " + e.Agent + " cannot be reached" }

// Unwrap gives the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// TimeoutError reports that the agent did not answer in time.
type TimeoutError struct {
	Agent      string
	After      time.Duration
	Connecting bool // there was no connection yet: the agent has not seen the message
}

func (e *TimeoutError) Error() string {
	return "agent " + e.Agent + " did not answer within " + e.After.String()
}

// CredentialError reports that a message was not sent because the gateway has no credential that the agent wants. It
// holds no secret.
type CredentialError struct {
	Agent  string
	Reason string // for operators and callers: it names no host and quotes nothing
	Caller bool   // the caller has shown no token that could be exchanged, or one that was refused
	Err    error  // for logs; never shown to a caller; nil: there is none
}

func (e *CredentialError) Error() string {
	return "agent credentials cannot be had for " + e.Agent + ": " + e.Reason
}

// Unwrap gives the cause.
func (e *CredentialError) Unwrap() error { return e.Err }

// OverBudgetError reports that the agent has done the work, and that its answer is not
// delivered, because the caller has too many large answers under way.
type OverBudgetError struct {
	Agent string // empty: the gateway itself
	Size  int64  // bytes, of the answer as far as is known
}

func (e *OverBudgetError) Error() string {
	agent := "the gateway"
	if e.Agent != "" {
		agent = "agent " + e.Agent
	}
	return agent + " has worked on this, and the answer of " + strconv.FormatInt(e.Size, 10) +
		" bytes cannot be told, because this caller has too many large answers under way: do not repeat it, and ask for less at once"
}

// BadReplyError reports that the agent answered with no valid reply of its protocol.
type BadReplyError struct {
	Agent  string
	Reason string // what is wrong; never quotes the reply
	Place  string // where it is, in URLs; for operators, never shown to a caller; empty: not known
	Err    error  // of which kind that is: *StatusError, ErrTooLong, *sse.LimitError; nil: something else
}

func (e *BadReplyError) Error() string { return "agent " + e.Agent + " sent a bad reply: " + e.Reason }

// Unwrap gives the kind.
func (e *BadReplyError) Unwrap() error { return e.Err }

// ErrTooLong refuses a reply that is longer than the limit.
var ErrTooLong = errors.New("longer than a reply may be")

// StatusError reports that the agent's HTTP server answered with this status, and with
// no reply of its protocol.
type StatusError struct {
	Agent      string
	Status     int
	RetryAfter time.Duration // zero: no advice
	Location   *url.URL      // where a redirect leads; nil: it does not say, or is none
}

func (e *StatusError) Error() string {
	return "agent " + e.Agent + " answered with HTTP status " + strconv.Itoa(e.Status)
}

// BadStatus is a *BadReplyError. A status from 300 on is what is wrong with it.
func BadStatus(e Endpoint, reason string, status int, header http.Header) error {
	bad := &BadReplyError{Agent: e.Agent, Reason: reason}
	at, err := url.Parse(e.URL)
	if err == nil && at.Host != "" {
		bad.Place = "at " + Shown(at)
	}
	if status >= http.StatusMultipleChoices {
		refused := &StatusError{Agent: e.Agent, Status: status, RetryAfter: RetryAfter(header)}
		if to := header.Get("Location"); bad.Place != "" && to != "" && status < http.StatusBadRequest {
			if refused.Location, err = at.Parse(to); err == nil {
				bad.Place += ", to " + Shown(refused.Location)
			}
		}
		bad.Err = refused
	}
	return bad
}

// Shown is a URL as operators read it: without a query or a password, which may be secrets.
func Shown(u *url.URL) string {
	plain := *u
	plain.RawQuery, plain.Fragment = "", ""
	return plain.Redacted()
}

// maxRetry bounds the advice of an agent.
const maxRetry = time.Hour

// RetryAfter reads delta-seconds, up to an hour; a date is taken for no advice.
func RetryAfter(header http.Header) time.Duration {
	n, err := strconv.ParseUint(header.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxRetry)
}

// RefusedError reports that a peer gateway on the route to the agent refused the
// message.
type RefusedError struct {
	Agent      string
	Status     int           // HTTP status; zero: it said so in a stream
	Code       string        // what it called the refusal: policy_violation and the like
	Detail     string        // in its words; it quotes no message
	RetryAfter time.Duration // zero: no advice
	Evidence   []string      // its ECTs, compact, unverified
}

func (e *RefusedError) Error() string {
	return "the next gateway toward " + e.Agent + " refused: " + e.Detail
}
