package problem

import (
	"cmp"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/lifecycle"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
)

// Advice where an error has none of its own.
const (
	retrySoon  = time.Second
	retryDrain = 5 * time.Second
)

// table has one row per error type. The texts are those of the errors, which
// never quote a message.
var table = rows(
	// The gateway's own.
	say[*UnknownAgentError](CodeUnknownAgent),
	say[*NoPathError](CodeNoPath),
	say[*NotFoundError](CodeNotFound),
	say[*ConflictError](CodeConflict),
	as(func(e *TaskStateError) Problem {
		p := of(CodeConflict, e.Error())
		p.ECTError, p.Native = ECTSemanticLoss, canonical.CodeUnsupportedOp // a message without a counterpart (R7)
		return p
	}),
	as(func(e *CanceledError) Problem {
		p := status(of(CodeConflict, e.Error()), http.StatusConflict)
		// Of the words of the draft this is the one for work that was cut short.
		p.Title, p.ECTError, p.Native = "The request was canceled by its caller", ECTTimeout, canonical.CodeOther
		return p
	}),
	say[*QueryError](CodeMalformed),
	say[*lifecycle.StatusError](CodeMalformed),
	say[*lifecycle.TransitionError](CodeConflict),
	say[*lifecycle.TooSoonError](CodeConflict),
	say[*lifecycle.ForgetError](CodeConflict),
	say[*lifecycle.ReasonError](CodeMalformed),
	say[*lifecycle.SuccessorError](CodeMalformed),
	say[*lifecycle.OrderError](CodeMalformed),
	say[*lifecycle.VersionError](CodeConflict),
	say[*lifecycle.SemverError](CodeMalformed),
	as(func(*lifecycle.RecordError) Problem { return of(CodeInternal, "") }),
	say[*consent.MissingError](CodeMalformed),
	say[*consent.UncheckedError](CodeMalformed),
	say[*MediaTypeError](CodeMediaType),
	as(func(e *NotAcceptableError) Problem {
		p := status(of(CodeMediaType, e.Error()), http.StatusNotAcceptable)
		p.Title = "No form of the answer is acceptable"
		return p
	}),
	say[*IdentityError](CodeIdentityInvalid),
	as(func(e *identity.CredentialError) Problem { return of(CodeIdentityInvalid, string(e.Reason)) }),
	as(func(e *AnswerTooLargeError) Problem { return answerTooLarge(e) }),
	as(func(e *transport.OverBudgetError) Problem { return answerTooLarge(e) }),
	as(func(e *MethodError) Problem {
		p := of(CodeNotAllowed, e.Error())
		p.Allow = e.Allow
		return p
	}),
	as(func(e *state.UsesError) Problem {
		p := retry(of(CodeRateLimited, ""), e.RetryAfter, retrySoon)
		p.Detail = e.Error() + "; try again in " + retryAfter(p.RetryAfter) + " s"
		return p
	}),
	say[*workflow.TooLargeError](CodeConflict),
	say[*checkpoint.AlteredError](CodeConflict),
	say[*rollback.UnknownError](CodeNotFound),
	say[*rollback.ExpiredError](CodeConflict),
	say[*rollback.ForgottenError](CodeConflict),
	say[*rollback.TooManyError](CodeConflict),
	say[*rollback.DependsError](CodeConflict),
	say[*consensus.InvalidError](CodeMalformed),
	say[*consensus.StateError](CodeConflict),
	as(func(e *consensus.RefusedError) Problem {
		switch {
		case e.Again > 0:
			return retry(of(CodeConflict, e.Error()), e.Again, retrySoon)
		case e.Late || e.Doubled:
			return of(CodeConflict, e.Error())
		}
		return of(CodePolicyViolation, e.Error())
	}),
	as(func(e *rollback.RunningError) Problem { return retry(of(CodeInProgress, e.Error()), 0, retrySoon) }),
	say[*compensation.MissingError](CodeConflict),
	say[*compensation.ValueError](CodeConflict),
	say[*compensation.SizeError](CodeConflict),
	as(func(e *WaitingError) Problem { return retry(of(CodeInProgress, e.Error()), 0, retrySoon) }),
	as(func(e *InProgressError) Problem { return retry(of(CodeInProgress, e.Error()), e.RetryAfter, retrySoon) }),
	as(func(e *ApprovalError) Problem {
		p := of(CodeApprovalRefused, e.Error())
		if e.waits() {
			p = retry(of(CodeApprovalRequired, e.Error()), 0, retryDrain)
		}
		p.Where.Approval = Waiting{e.url(), e.State, e.Until}
		return p
	}),
	as(func(e *LevelError) Problem {
		if e.Stopped {
			return of(CodeStopped, e.Error())
		}
		return retry(of(CodePaused, e.Error()), 0, retryDrain)
	}),
	say[*hitl.StateError](CodeConflict),
	say[*hitl.RefusedError](CodeForbidden),
	say[*hitl.StandingError](CodeConflict),
	say[*hitl.RuleError](CodeMalformed),
	say[*UnsentError](CodeConflict),
	as(func(e *RecordingError) Problem {
		if full, ok := errors.AsType[*state.FullError](e.Err); ok {
			return noSpace(full)
		}
		if gone, ok := errors.AsType[*state.UnavailableError](e.Err); ok && gone.Lacks != "" {
			return away(gone)
		}
		return unavailable(e.Error(), e.RetryAfter)
	}),
	as(func(e *UnauthenticatedError) Problem {
		p := of(CodeUnauthenticated, e.Error())
		p.Challenge = challenge(e.Scheme)
		return p
	}),
	as(func(e *ChallengedError) Problem { return of(CodeUnauthenticated, e.Error()) }), // find looks inside
	as(func(e *oauth.TokenError) Problem {
		p := of(CodeUnauthenticated, e.Error())
		p.Challenge = bearer("invalid_token", p.Detail, "", nil)
		return p
	}),
	as(func(e *oauth.RequestError) Problem {
		p := of(CodeIdentityInvalid, e.Error())
		p.Challenge = bearer("invalid_request", p.Detail, "", nil)
		return p
	}),
	as(func(e *oauth.ScopeError) Problem {
		p := of(CodeForbidden, e.Error())
		p.Challenge = bearer("insufficient_scope", "", e.Metadata, e.Scopes)
		return p
	}),
	say[*oauth.IdentityError](CodeForbidden),
	as(func(e *oauth.UnavailableError) Problem {
		p := unavailable(e.Error(), max(e.RetryAfter, time.Second))
		p.Title = "Access tokens cannot be judged now"
		return p
	}),
	as(func(e *DrainingError) Problem {
		p := retry(of(CodeDraining, e.Error()), e.RetryAfter, retryDrain)
		p.Location = e.Location
		return p
	}),
	as(func(e *CircuitOpenError) Problem {
		return retry(of(CodeCircuitOpen, e.Error()), e.RetryAfter, retrySoon)
	}),
	as(func(e *StoppedError) Problem {
		return retry(of(CodeDraining, e.Error()), 0, retryDrain)
	}),
	as(func(e *RetiredError) Problem {
		p := of(CodeRetired, e.Error())
		p.Successor = e.Successor
		return p
	}),
	as(func(e *StoredError) Problem { return e.Problem }),

	// Evidence.
	say[*ect.InvalidError](CodeECTInvalid),
	say[*checkpoint.InvalidError](CodeECTInvalid),
	say[*ect.ConflictError](CodeECTInvalid),
	say[*ect.ForeignRootError](CodeECTInvalid),
	as(func(e *ect.MalformedError) Problem {
		return status(of(CodeECTInvalid, e.Error()), http.StatusBadRequest)
	}),
	as(func(e *ect.TooLargeError) Problem {
		return status(of(CodeECTInvalid, e.Error()), http.StatusRequestHeaderFieldsTooLarge)
	}),
	as(func(e *AncestorsTooLargeError) Problem {
		return status(of(CodeECTInvalid, e.Error()), http.StatusRequestHeaderFieldsTooLarge)
	}),
	as(func(e *ect.ReplayedError) Problem { return retry(of(CodeInProgress, e.Error()), 0, retrySoon) }),

	// Permission.
	say[*policy.Forbidden](CodeForbidden),
	say[*policy.Denied](CodePolicyViolation),
	say[*policy.LevelError](CodePolicyViolation),
	say[*policy.DocumentError](CodePolicyViolation),
	say[*breaker.RangeError](CodePolicyViolation),
	as(semanticLoss),
	as(func(e *limit.ExceededError) Problem {
		return retry(of(CodeRateLimited, "more requests than this caller may make"), e.RetryAfter, retrySoon)
	}),
	as(func(e *schedule.FullError) Problem { return retry(of(CodeRateLimited, e.Error()), 0, retrySoon) }),
	as(func(e *schedule.ExhaustedError) Problem {
		p := unavailable(e.Error(), retryDrain)
		p.Title = "The agent has no free place"
		return p
	}),
	as(func(e *quota.ExceededError) Problem { return retry(of(CodeRateLimited, e.Error()), 0, retrySoon) }),

	// Form.
	as(malformed),
	say[*translators.TooLongError](CodeTooLarge),
	as(native),
	as(func(e *http.MaxBytesError) Problem { return of(CodeTooLarge, e.Error()) }),

	// Transport, directory, state.
	as(func(e *transport.UnreachableError) Problem {
		p := fault(of(CodeUnreachable, e.Error()))
		p.Where = Where{Program: stdio.Cause(e.Err), Address: addressOf(e.Err)}
		return p
	}),
	as(func(e *transport.CredentialError) Problem {
		if e.Caller {
			return of(CodePolicyViolation, e.Error())
		}
		return retry(of(CodeUnreachable, e.Error()), 0, retrySoon)
	}),
	as(func(*stdio.EndedError) Problem { return fault(of(CodeUnreachable, "the agent's program ended")) }),
	as(func(e *stdio.WaitError) Problem {
		return retry(fault(of(CodeUnreachable, "the agent's program failed, and is started again later")), e.After, retrySoon)
	}),
	as(func(*stdio.StartError) Problem {
		return fault(of(CodeUnreachable, "the agent's program cannot be started"))
	}),
	say[*stdio.InvalidProgramError](CodeMalformed),
	as(func(e *transport.TimeoutError) Problem { return fault(of(CodeTimeout, e.Error())) }),
	as(badReply),
	as(badStatus),
	as(func(*translators.UnreadableNoticeError) Problem {
		return fault(of(CodeBadReply, "a notification that cannot be read"))
	}),
	as(refused),
	as(func(e *sse.LimitError) Problem { return fault(of(CodeBadReply, e.Error())) }),
	as(func(e *egress.DeniedError) Problem {
		const refused = "egress policy does not allow this destination"
		if e.Evident {
			return of(CodePolicyViolation, refused+": "+string(e.Reason)+"; name an https URL of a public host")
		}
		return of(CodePolicyViolation, refused)
	}),
	say[*directory.InvalidAgentError](CodeMalformed),
	say[*directory.ConfiguredError](CodeConflict),
	say[*directory.RaceError](CodeConflict),
	as(func(e *directory.DocumentError) Problem { return fault(of(CodeBadReply, e.Error())) }),
	as(func(*directory.PinError) Problem { return unavailable("descriptions cannot be compared now", 0) }),
	say[*directory.ChangedError](CodePolicyViolation),
	as(func(e *directory.EndedError) Problem {
		if e.Status == directory.Retired {
			p := of(CodeRetired, e.Error())
			p.Successor = e.Successor
			return p
		}
		p := retry(of(CodeDraining, e.Error()), 0, retryDrain)
		p.Location = e.Successor
		return p
	}),
	as(away),
	as(noSpace),
)

// answerTooLarge is of a request with which nothing is wrong.
func answerTooLarge(err error) Problem {
	p := status(of(CodeTooLarge, err.Error()), http.StatusBadGateway)
	p.Title, p.Native = "The answer is too large", canonical.CodeInternal
	return p
}

// row is what one error type means.
type row struct {
	of       reflect.Type
	describe func(error) Problem
}

func rows(list ...row) map[reflect.Type]func(error) Problem {
	out := make(map[reflect.Type]func(error) Problem, len(list))
	for _, r := range list {
		out[r.of] = r.describe
	}
	return out
}

// as makes a row of a function for one type.
func as[E error](describe func(E) Problem) row {
	return row{of: reflect.TypeFor[E](), describe: func(err error) Problem {
		e, ok := any(err).(E)
		if !ok {
			return of(CodeInternal, "")
		}
		return describe(e)
	}}
}

// say makes a row that shows the error's own text.
func say[E error](code string) row {
	return as(func(e E) Problem { return of(code, e.Error()) })
}

func retry(p Problem, after, otherwise time.Duration) Problem {
	p.RetryAfter = after
	if after <= 0 {
		p.RetryAfter = otherwise
	}
	return p
}

func status(p Problem, code int) Problem {
	p.Status = code
	return p
}

func fault(p Problem) Problem {
	p.UpstreamFault = true
	return p
}

func unavailable(detail string, after time.Duration) Problem {
	return retry(of(CodeUnavailable, detail), after, retrySoon)
}

// away says which guarantee cannot be kept while the store is away, and when to try
// again: not every protocol has a place of its own for that.
func away(e *state.UnavailableError) Problem {
	p := unavailable("", e.RetryAfter)
	p.Detail = cmp.Or(string(e.Lacks), "evidence cannot be kept now") + "; try again in " + retryAfter(p.RetryAfter) + " s"
	return p
}

// noSpace tells a caller that has used up its own share from a store that is full.
func noSpace(e *state.FullError) Problem {
	if e.Own {
		return retry(of(CodeRateLimited, "this caller keeps too much: wait until some of its work has ended"), e.RetryAfter, retrySoon)
	}
	return unavailable("there is no space for new records: try again later", e.RetryAfter)
}

func challenge(scheme string) string {
	return cmp.Or(scheme, "Bearer") + ` realm="aepb"`
}

// on is a problem with the challenge in place of its own, if it has one.
func (e *ChallengedError) on(p Problem) Problem {
	kind, detail := "", ""
	if e.Shown {
		kind, detail = "invalid_token", p.Detail
	}
	if p.Status == http.StatusUnauthorized {
		p.Challenge = bearer(kind, detail, e.Metadata, e.Scopes)
	}
	return p
}

// bearer is a challenge (RFC 6750 section 3, RFC 9728 section 5.1). Its texts are ours or the operator's; a
// quote or a backslash in them is left out, which neither a description nor a scope may have.
func bearer(kind, description, metadata string, scopes []string) string {
	var params []string
	for _, param := range []struct{ name, value string }{
		{"error", kind}, {"error_description", description}, {"resource_metadata", metadata}, {"scope", strings.Join(scopes, " ")},
	} {
		if param.value != "" {
			params = append(params, param.name+`="`+strings.NewReplacer(`"`, "", `\`, "").Replace(param.value)+`"`)
		}
	}
	return "Bearer " + strings.Join(params, ", ")
}

// semanticLoss tells an operation that the other side does not have from
// content that it cannot hold.
func semanticLoss(e *policy.SemanticLossError) Problem {
	p := of(CodeSemanticLoss, e.Error())
	if slices.Contains(e.Codes, string(canonical.LossOperation)) {
		p.Native = canonical.CodeUnsupportedOp
	}
	return p
}

// refused: what a next gateway refuses has no path to the caller, with the code of the next gateway beside it,
// unless the message can go there later (AEPB, Translation Failure Handling; R29). What that gateway's own
// trouble is, or that it does not let this one in, is between the two.
func refused(e *transport.RefusedError) Problem {
	switch e.Code {
	case CodeRateLimited, CodeDraining, CodeCircuitOpen:
		return retry(of(e.Code, e.Error()), e.RetryAfter, retryDrain)
	case CodeNoPath, CodeSemanticLoss, CodePolicyViolation, CodeTimeout, CodeTooLarge, CodeRetired:
		p := of(CodeNoPath, e.Error())
		p.NextGateway, p.ECTError = e.Code, ectError(e.Code)
		return p
	}
	p := of(CodeNoPath, "the next gateway toward "+e.Agent+" does not carry the message on")
	p.UpstreamFault = e.Status >= http.StatusInternalServerError
	return p
}

// badReply: the text tells what is wrong with the reply, unless a status says that
// the agent is busy or that the message does not suit it.
func badReply(e *transport.BadReplyError) Problem {
	p := fault(of(CodeBadReply, e.Error()))
	if response, ok := errors.AsType[*transport.StatusError](e.Err); ok {
		p = badStatus(response)
		if p.Code == CodeBadReply {
			p.Detail = e.Error()
		}
	}
	if p.Code == CodeBadReply {
		p.Where.Address = e.Place
	}
	return p
}

// badStatus keeps what a status of the agent means for the caller: a smaller message,
// or a later one, may do. Any other status tells a caller nothing.
func badStatus(e *transport.StatusError) Problem {
	switch e.Status {
	case http.StatusRequestEntityTooLarge:
		return of(CodeTooLarge, "agent "+e.Agent+" does not take a message of this size")
	case http.StatusTooManyRequests:
		return retry(of(CodeRateLimited, "agent "+e.Agent+" does not take more requests now"), e.RetryAfter, retrySoon)
	case http.StatusServiceUnavailable:
		p := fault(status(of(CodeUnreachable, "agent "+e.Agent+" cannot take the message now"), e.Status))
		p.Title, p.RetryAfter = "The agent is not available", e.RetryAfter
		return p
	default:
		return fault(of(CodeBadReply, e.Error()))
	}
}

func malformed(e *translators.MalformedError) Problem {
	switch {
	case e.Large:
		return of(CodeTooLarge, e.Reason)
	case e.Syntax:
		p := of(CodeMalformed, e.Reason)
		p.Native = canonical.CodeParse
		return p
	default:
		return of(CodeMalformed, "at "+pointer(e.Path)+": "+e.Reason)
	}
}

func pointer(path string) string {
	return cmp.Or(path, "the top")
}
