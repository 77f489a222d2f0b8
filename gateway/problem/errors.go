package problem

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// UnknownAgentError: the directory lists no such agent.
type UnknownAgentError struct {
	Agent      string
	Suggestion string // "; did you mean NAME?", of an agent that the caller may call; empty: none is close
}

func (e *UnknownAgentError) Error() string {
	return "no agent is listed under this name: " + e.Agent + e.Suggestion
}

// NoPathError says that neither this gateway nor a peer translates between these protocols or
// versions, or to this destination.
type NoPathError struct {
	From, To   string // as asked for
	Detail     string // what is missing ("unknown_agent", "unsupported_version"); empty: the pair itself
	Suggestion string // as of UnknownAgentError
}

func (e *NoPathError) Error() string {
	text := "from " + cmp.Or(e.From, "no protocol")
	if e.To != "" {
		text += " to " + e.To
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text + e.Suggestion
}

// NotFoundError says that there is no such thing, or that it belongs to another caller (R2).
type NotFoundError struct {
	What string
	Hint string // what to do; empty: nothing is known to help
}

func (e *NotFoundError) Error() string {
	if e.Hint != "" {
		return "no such " + e.What + ": " + e.Hint
	}
	return "no such " + e.What
}

// ConflictError: what is there does not go together with what was asked.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

// CanceledError: the caller has canceled its own request (MCP, notifications/cancelled).
type CanceledError struct{}

func (*CanceledError) Error() string { return "the caller canceled this request" }

// Is reports whether target is a CanceledError too.
func (*CanceledError) Is(target error) bool {
	_, canceled := target.(*CanceledError)
	return canceled
}

// QueryError: the request itself is wrong, before any message is looked at.
type QueryError struct{ Reason string }

func (e *QueryError) Error() string { return e.Reason }

// NotAcceptableError: there is no form of the answer that the client would take.
type NotAcceptableError struct{ Have string } // media types, comma separated

func (e *NotAcceptableError) Error() string { return "available as " + e.Have }

// MethodError: nothing here answers to this HTTP method.
type MethodError struct {
	Allow string // methods that would do, comma separated
	Hint  string // what to do; empty: use one of those
}

func (e *MethodError) Error() string {
	return cmp.Or(e.Hint, "use "+strings.ReplaceAll(e.Allow, ", ", " or "))
}

// MediaTypeError: the body has a media type that the protocol does not use.
type MediaTypeError struct{ Want []string }

func (e *MediaTypeError) Error() string { return "want " + strings.Join(e.Want, " or ") }

// AnswerTooLargeError: there is an answer, and it does not fit a message of the
// caller's protocol.
type AnswerTooLargeError struct {
	Err  error  // why not
	Task string // under which it is kept for this caller at every endpoint of the agent; empty: it is not
}

func (e *AnswerTooLargeError) Error() string {
	text := "the answer cannot be said: " + e.Err.Error()
	if e.Task != "" {
		text += "; it is kept as task " + e.Task + ", for the same caller at the agent's endpoints of other protocols"
	}
	return text
}

// Unwrap gives the cause.
func (e *AnswerTooLargeError) Unwrap() error { return e.Err }

// AncestorsTooLargeError: the tokens that came with a message do not fit beside ours in
// what the next gateway is sent, and it could not judge the message without them (R4).
type AncestorsTooLargeError struct{ Size, Limit int } // bytes

func (e *AncestorsTooLargeError) Error() string {
	return "the tokens of this message take " + strconv.Itoa(e.Size) + " bytes, and at most " + strconv.Itoa(e.Limit) +
		" go on to the next gateway: sign a smaller token, or send fewer with it"
}

// WaitingError: what this depends on is still being worked on (ATD, Topological Order; R26).
type WaitingError struct{ Reason string }

func (e *WaitingError) Error() string { return e.Reason }

// InProgressError: the same message is being worked on, or its answer was too
// large to be kept (R6).
type InProgressError struct {
	RetryAfter time.Duration // zero: one second
}

func (e *InProgressError) Error() string { return "the same message was received before" }

// ApprovalError: a call waits for the decision of a human, or was decided against (R23).
type ApprovalError struct {
	ID     string
	State  string // pending, granted, denied, expired, canceled or consumed
	URL    string // path of the approval; empty: that of its ID
	Until  time.Time
	Reason string // why it was denied or canceled; empty: not said
}

func (e *ApprovalError) Error() string {
	if e.waits() {
		return "a human decides about this call until " + e.Until.UTC().Format(time.RFC3339) + ": read " + e.url() + ", and once it is granted send the same message again"
	}
	text := "the approval " + e.ID + " of this call is " + e.State
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// waits reports whether the call may still be sent.
func (e *ApprovalError) waits() bool { return e.State == "pending" || e.State == "granted" }

func (e *ApprovalError) url() string {
	return cmp.Or(e.URL, "/hitl/approvals/"+url.PathEscape(e.ID))
}

// UnsentError: a call was approved, and can never be sent.
type UnsentError struct{ Reason string }

func (e *UnsentError) Error() string { return "the call was approved, and cannot be sent: " + e.Reason }

// LevelError: humans hold a workflow, so a message that begins work of it is not taken (R23).
type LevelError struct {
	Workflow string
	Stopped  bool   // it is refused; otherwise it can come again
	Reason   string // empty: not said
}

func (e *LevelError) Error() string {
	text := "send the message again once the workflow goes on"
	if e.Stopped {
		text = "no new message of this workflow is sent"
	}
	if e.Reason != "" {
		text += "; the reason is: " + e.Reason
	}
	return text
}

// RecordingError: evidence has to be on record before anything else happens,
// and cannot be recorded now (architecture section 7).
type RecordingError struct {
	Err        error // for logs; never shown
	RetryAfter time.Duration
}

func (e *RecordingError) Error() string { return "evidence cannot be recorded" }

// Unwrap gives the cause.
func (e *RecordingError) Unwrap() error { return e.Err }

// UnauthenticatedError: the caller must say who it is, and how.
type UnauthenticatedError struct {
	Scheme      string // of WWW-Authenticate; empty: Bearer
	TrustDomain string // of certificates that are taken; empty: not said
	Reason      string // why the credentials that were given are not taken, without a quote of them; empty: not said
}

func (e *UnauthenticatedError) Error() string {
	const text = "no acceptable credentials were given"
	switch {
	case e.Reason != "":
		return e.Reason
	case e.TrustDomain == "":
		return text
	}
	return text + ": show a client certificate of the trust domain " + e.TrustDomain
}

// ChallengedError is an error at an endpoint whose clients find out by its challenge where they get a
// token (RFC 9728 section 5.1).
type ChallengedError struct {
	Err      error
	Metadata string   // URL of the metadata of the endpoint
	Scopes   []string // to ask for
	Shown    bool     // a credential was shown, and refused
}

func (e *ChallengedError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *ChallengedError) Unwrap() error { return e.Err }

// IdentityError: credentials were given and are broken (a WIT or a WPT that fails).
type IdentityError struct{ Reason string } // never quotes a credential

func (e *IdentityError) Error() string { return e.Reason }

// DrainingError: no new work is taken (R16).
type DrainingError struct {
	RetryAfter time.Duration // zero: five seconds
	Location   string        // who takes it instead; empty: unknown
	Workflows  time.Time     // those with work here that is older go on (R16); zero: none does
}

func (e *DrainingError) Error() string { return "no new work is taken" }

// TaskStateError: as a task stands now it takes no such message, for example because it has ended.
type TaskStateError struct{ Reason string }

func (e *TaskStateError) Error() string { return e.Reason }

// Unwrap is the error in the words of a native endpoint.
func (e *TaskStateError) Unwrap() error {
	return &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: e.Reason}
}

// CircuitOpenError: too many calls of the agent have failed, and it is not called for a while
// (ATD, Circuit Breaker Pattern).
type CircuitOpenError struct {
	Agent      string
	RetryAfter time.Duration // when it is tried again, at least a second
	Own        bool          // the calls of this caller have failed, and it alone is refused
}

func (e *CircuitOpenError) Error() string {
	wait := max(e.RetryAfter, time.Second).Truncate(time.Second) // also in words: not every protocol has a place for it
	if e.Own {
		return "your own last calls to this agent have all failed, and only yours are refused: try again in " + wait.String()
	}
	return "too many calls to this agent have failed, and it is not called for " + wait.String() + ": try again then"
}

// StoppedError: the gateway was stopped while a request was under way, and the time for
// work under way was over (R16).
type StoppedError struct{}

func (*StoppedError) Error() string {
	return "the gateway was stopped before the agent had answered; whether the agent has finished is not known"
}

// RetiredError: the agent has ended for good.
type RetiredError struct{ Successor string } // URL of its successor; empty: none

func (e *RetiredError) Error() string { return "the agent has ended for good" }

// StoredError repeats a refusal as it was when the message first came (R6).
type StoredError struct{ Problem Problem }

func (e *StoredError) Error() string { return "refused before: " + e.Problem.Code }
