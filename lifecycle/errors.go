package lifecycle

import (
	"strings"
	"time"
)

// StatusError refuses text that is no state.
type StatusError struct{}

func (*StatusError) Error() string {
	return "no lifecycle status: it is active, deprecated, draining or retired"
}

// TransitionError refuses a transition that the table does not have. It lists those that it has.
type TransitionError struct {
	From, To Status

	because string
}

func (e *TransitionError) Error() string {
	from := e.From.orActive()
	var text string
	if from == e.To {
		text = "the agent is " + string(from) + " already"
	} else {
		text = "the agent is " + string(from) + " and cannot become " + string(e.To)
	}
	possible := transitions[from]
	if e.because != "" {
		return text + ": " + e.because
	}
	if len(possible) == 0 {
		return text + "; retired is final: list an agent that shall serve under another name (a development gateway, and only that, can forget it: aepbctl lifecycle forget)"
	}
	names := make([]string, 0, len(possible))
	for _, s := range possible {
		names = append(names, string(s))
	}
	return text + "; it can become " + strings.Join(names, " or ")
}

// ForgetError refuses to forget that an agent is retired.
type ForgetError struct{}

func (*ForgetError) Error() string {
	return "only a development gateway (aepb-gateway dev) forgets that an agent is retired, and here it is final: list the agent that shall serve under another name"
}

// TooSoonError refuses to drain before the callers had notice.
type TooSoonError struct {
	Until time.Time // from then on it is no longer too soon
}

func (e *TooSoonError) Error() string {
	return "an agent is deprecated for 24 hours before it drains: deprecate it if it is active, and drain it at " +
		e.Until.Format(time.RFC3339) + " or later, or force it"
}

// ReasonError refuses a reason.
type ReasonError struct{}

func (*ReasonError) Error() string {
	return "reason: say in 1 to 500 characters, without control characters, why the status changes"
}

// SuccessorError refuses a successor.
type SuccessorError struct {
	Problem string // of what stands there; empty: its form is wrong
}

func (e *SuccessorError) Error() string {
	if e.Problem != "" {
		return "successor: " + e.Problem + "; give the URI of the capability document of an agent that works, or none"
	}
	return "successor: give the https URI of a capability document, without user info and fragment, at most 2048 bytes"
}

// OrderError refuses something else of an order.
type OrderError struct {
	Problem string
}

func (e *OrderError) Error() string { return e.Problem }

// RecordError refuses a record. It never quotes it.
type RecordError struct {
	Problem string
}

func (e *RecordError) Error() string { return "lifecycle record: " + e.Problem }
