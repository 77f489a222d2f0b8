package breakers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// errLeft: the stream was closed before its end.
var errLeft = errors.New("breakers: the caller has left")

// outcomeOf is what an error says of a destination. own: a caller cannot have caused it.
func outcomeOf(err error) (outcome breaker.Outcome, own bool) {
	if err == nil {
		return breaker.Success, false
	}
	var unreachable *transport.UnreachableError
	var refused *transport.RefusedError
	var status *transport.StatusError
	var reply *canonical.Error
	var ended interface{ Innocent() bool }
	switch {
	case errors.Is(err, errLeft), errors.Is(err, context.Canceled):
		return breaker.Unknown, false
	case errors.As(err, &ended) && ended.Innocent(): // another caller's call ended a shared program, or we did
		return breaker.Unknown, false
	case errors.As(err, &refused):
		return outcomeOfStatus(refused.Status), false
	case errors.As(err, &status):
		return outcomeOfStatus(status.Status), false
	case errors.As(err, &unreachable):
		return breaker.Failure, apart(problem.ReasonOf(err))
	case errors.As(err, &reply):
		return outcomeOfCode(reply.Code), false
	case problem.ReasonOf(err) != "":
		return breaker.Failure, false
	default:
		return breaker.Unknown, false // a refusal of our own
	}
}

// apart reports whether a connection failed before the agent saw the caller's message: what
// breaks off later, the message may have caused, and so may the end of a program, of which
// each caller has its own.
func apart(why problem.Reason) bool {
	switch why {
	case problem.ReasonReset, problem.ReasonTimeout, problem.ReasonProgram, problem.ReasonOther, "":
		return false
	default:
		return true
	}
}

// answers reports whether an agent that did not say what it is has answered something.
func answers(err error) bool {
	var bad *transport.BadReplyError
	var status *transport.StatusError
	return errors.As(err, &bad) && !errors.As(err, &status)
}

// outcomeOfStatus: below 500 it is about the message.
func outcomeOfStatus(status int) breaker.Outcome {
	if status >= http.StatusInternalServerError {
		return breaker.Failure
	}
	return breaker.Unknown
}

// outcomeOfCode: an agent that refuses a message answers, and so does one that says that its own work
// failed: SDKs make an internal error of whatever goes wrong in one tool (R21).
func outcomeOfCode(code canonical.Code) breaker.Outcome {
	switch code {
	case canonical.CodeUnavailable, canonical.CodeTimeout, canonical.CodeBadUpstream:
		return breaker.Failure
	default:
		return breaker.Success
	}
}

// useful is how long an answer shows that an agent works for others than the caller who fails:
// longer than the window, since agents are not asked in each one.
const useful = time.Hour

// blame knows who has met failures and answers of late, so that one caller who causes
// failures does not open a breaker for others.
type blame struct{ failed, answered [2]meeting }

// meeting is the last one of a caller.
type meeting struct {
	caller ect.Identity
	at     time.Time
}

// note keeps the two callers of whom it is the latest.
func note(list *[2]meeting, caller ect.Identity, at time.Time) {
	if list[0].caller != caller {
		list[1] = list[0]
	}
	list[0] = meeting{caller, at}
}

// other reports whether another caller than this one is on the list since a time.
func other(list [2]meeting, caller ect.Identity, since time.Time) bool {
	return slices.ContainsFunc(list[:], func(m meeting) bool { return m.caller != caller && m.at.After(since) })
}

// take notes an outcome, and says what it counts as.
func (b *blame) take(o breaker.Outcome, own bool, caller ect.Identity, at time.Time, window time.Duration) breaker.Outcome {
	since := at.Add(-window)
	switch o {
	case breaker.Success:
		note(&b.answered, caller, at)
	case breaker.Failure:
		alone := !other(b.failed, caller, since) && other(b.answered, caller, at.Add(-useful))
		note(&b.failed, caller, at)
		if alone && !own {
			return breaker.Unknown
		}
	default:
	}
	return o
}
