package canonical

// FailureOf says how an answer reports that the work failed; empty: it does not. It quotes nothing of the
// message. A canceled task did not fail: its caller wanted that.
func FailureOf(m *Message) string {
	switch body := m.Body.(type) {
	case *Error:
		return "the agent answers with an error: " + string(body.Code)
	case *Result:
		if body.Output != nil && body.Output.Failed {
			return "the tool reports a failure"
		}
		return failureOf(body.Task)
	case *Event:
		if body.Status != nil && failed(body.Status.State) {
			return "the task ended as " + string(body.Status.State)
		}
		return failureOf(body.Task)
	}
	return ""
}

func failureOf(t *Task) string {
	switch {
	case t == nil:
		return ""
	case failed(t.Status.State):
		return "the task ended as " + string(t.Status.State)
	case t.Output != nil && t.Output.Failed:
		return "the tool reports a failure"
	}
	return ""
}

func failed(s State) bool { return s == StateFailed || s == StateRejected }
