package a2a03

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Words are what is said differently in the versions.
type Words int

// What is said.
const (
	Sending   Words = iota // a message
	TaskQuery              // a question about tasks
	Setting                // settings to keep
	Finding                // which settings
	Sent                   // the reply to a message
	Streamed               // an event
	Tasked                 // a task that stands alone
	Listed                 // a page of tasks
	Pushed                 // what was answered about settings
)

// bridges turn words between the versions; each way has its own for the HTTP form
// of 0.3.
var bridges = [...]struct {
	up       func(*raiser, json.RawMessage, string) json.RawMessage
	upHTTP   func(*fromHTTP, json.RawMessage, string) json.RawMessage
	down     func(*lowerer, json.RawMessage) json.RawMessage
	downHTTP func(*toHTTP, json.RawMessage) json.RawMessage
}{
	Sending:   {(*raiser).request, (*fromHTTP).request, (*lowerer).request, (*toHTTP).request},
	TaskQuery: {(*raiser).query, (*fromHTTP).query, (*lowerer).query, (*toHTTP).query},
	Setting:   {(*raiser).push, (*fromHTTP).push, (*lowerer).push, (*toHTTP).push},
	Finding:   {(*raiser).pushQuery, (*fromHTTP).pushQuery, (*lowerer).pushQuery, (*toHTTP).pushQuery},
	Sent:      {(*raiser).result, (*fromHTTP).result, (*lowerer).result, (*toHTTP).result},
	Streamed:  {(*raiser).event, (*fromHTTP).event, (*lowerer).event, (*toHTTP).event},
	Tasked:    {(*raiser).task, (*fromHTTP).raised, (*lowerer).alone, (*toHTTP).alone},
	Listed:    {(*raiser).tasks, (*fromHTTP).tasks, (*lowerer).tasks, (*toHTTP).tasks},
	Pushed:    {(*raiser).pushResult, (*fromHTTP).pushResult, (*lowerer).pushResult, (*toHTTP).pushResult},
}

// Raise turns words of 0.3, which may be those of its HTTP form, into those of 1.0.
// path is their place, for errors: *translators.MalformedError.
func Raise(words Words, http bool, raw json.RawMessage, path string) (out json.RawMessage, losses []canonical.Loss, err error) {
	f := &fromHTTP{raiser{reply: words >= Sent}}
	if http {
		out = bridges[words].upHTTP(f, raw, path)
	} else {
		out = bridges[words].up(&f.raiser, raw, path)
	}
	return out, f.losses, f.err
}

// Lower turns words of 1.0 into those of 0.3.
func Lower(words Words, http bool, raw json.RawMessage) (out json.RawMessage, losses []canonical.Loss) {
	h := &toHTTP{}
	if http {
		out = bridges[words].downHTTP(h, raw)
	} else {
		out = bridges[words].down(&h.lowerer, raw)
	}
	return out, h.losses
}
