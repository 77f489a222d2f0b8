package transport

import "time"

// UnreachableError: no connection, or it broke before a reply.
type UnreachableError struct {
	Agent string
	Err   error // for logs; never shown to a caller
}

func (e *UnreachableError) Error() string { return "agent " + e.Agent + " cannot be reached" }

// Unwrap gives the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// TimeoutError: the agent did not answer in time.
type TimeoutError struct {
	Agent string
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return "agent " + e.Agent + " did not answer within " + e.After.String()
}

// BadReplyError: the agent answered with something that is no reply of its protocol.
type BadReplyError struct {
	Agent  string
	Reason string // what is wrong; never quotes the reply
}

func (e *BadReplyError) Error() string { return "agent " + e.Agent + " sent a bad reply: " + e.Reason }

// RefusedError: another gateway, on the way to the agent, did not carry the
// message on.
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
