// Package pushread reads push notifications with the official libraries of A2A, for
// tests of what webhooks are sent. It is apart from package peers because the gateway
// binary, which contains that one, needs no library of 0.3.
package pushread

import (
	"encoding/json"
	"testing"

	a2a03 "github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/v2/a2a"
)

// Task reads the body of a push notification as the official libraries of A2A 1.0
// and 0.3 do. The test fails if it is about no task.
func Task(tb testing.TB, old bool, body []byte) {
	tb.Helper()
	var task string
	var err error
	if old {
		var whole a2a03.Task
		err = json.Unmarshal(body, &whole)
		task = string(whole.ID)
	} else {
		var event a2a.StreamResponse
		if err = json.Unmarshal(body, &event); err == nil && event.Event != nil {
			task = string(event.Event.TaskInfo().TaskID)
		}
	}
	if err != nil || task == "" {
		tb.Errorf("the push notification %s names no task: %v", body, err)
	}
}
