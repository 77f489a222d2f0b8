package schedule

import "fmt"

// FullError refuses a call that may not even wait for its agent.
type FullError struct {
	Agent string
	Own   bool // the caller has its share of the queue; else all of the queue is full
}

func (e *FullError) Error() string {
	if e.Own {
		return fmt.Sprintf("agent %s has no free place, and as many calls of this caller wait for one as may: wait until some of them have ended", e.Agent)
	}
	return fmt.Sprintf("agent %s has no free place, and as many calls wait for one as may: try again later", e.Agent)
}

// ExhaustedError ends a critical call that got no place in time (ATD, Unsatisfiable Resource Hints).
type ExhaustedError struct{ Agent string }

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("agent %s had no free place for this critical call within %s: try again later", e.Agent, GiveUp)
}
