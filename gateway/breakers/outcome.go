package breakers

import (
	"context"
	"errors"
	"net/http"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// errLeft: the caller closed the stream before its end.
var errLeft = errors.New("breakers: the caller has left")

// endingOf is how a call ended. What the gateway itself asks an agent, no caller has worded, but a program
// may be the caller's own.
func endingOf(err error, describes bool) ending {
	outcome, own := outcomeOf(err)
	return ending{outcome: outcome, own: own || describes && problem.ReasonOf(err) != problem.ReasonProgram}
}

// outcomeOf is what an error says of a destination. own: a caller cannot have caused it. The table in
// README.md is checked against it.
func outcomeOf(err error) (outcome breaker.Outcome, own bool) {
	if err == nil {
		return breaker.Success, false
	}
	var refused *transport.RefusedError
	var status *transport.StatusError
	var late *transport.TimeoutError
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
	case errors.As(err, new(*transport.UnreachableError)):
		return breaker.Failure, beforeRequest(problem.ReasonOf(err))
	case errors.As(err, &reply):
		return outcomeOfCode(reply.Code), false
	case problem.ReasonOf(err) != "":
		return breaker.Failure, errors.As(err, &late) && late.Connecting
	default:
		return breaker.Unknown, false // a refusal of our own
	}
}

// beforeRequest reports whether a connection failed before the agent saw the caller's message: what
// breaks off later, the message may have caused, and so may the end of a program, of which
// each caller has its own, and a reply that no one can read.
func beforeRequest(why problem.Reason) bool {
	switch why {
	case problem.ReasonDNS, problem.ReasonRefused, problem.ReasonTLSVersion, problem.ReasonTLSCA, problem.ReasonTLSName, problem.ReasonSPIFFEID:
		return true
	default:
		return false
	}
}

// answers reports whether an agent that did not say what it is has answered something.
func answers(err error) bool {
	return errors.As(err, new(*transport.BadReplyError)) && !errors.As(err, new(*transport.StatusError))
}

// outcomeOfStatus: a status below 500 is about the message, not about the agent.
func outcomeOfStatus(status int) breaker.Outcome {
	if status >= http.StatusInternalServerError {
		return breaker.Failure
	}
	return breaker.Unknown
}

// outcomeOfCode: an agent that refuses a message, or reports that its work failed, is reachable.
// SDKs return an internal error for any failure of one tool (R21).
func outcomeOfCode(code canonical.Code) breaker.Outcome {
	switch code {
	case canonical.CodeUnavailable, canonical.CodeTimeout, canonical.CodeBadUpstream:
		return breaker.Failure
	default:
		return breaker.Success
	}
}
