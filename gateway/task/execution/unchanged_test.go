package execution

import (
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestUnchanged_OtherTimeAndIDAreNoChange: an agent that only says anew, at another time and under another id, that
// it works has changed nothing.
func TestUnchanged_OtherTimeAndIDAreNoChange(t *testing.T) {
	t.Parallel()
	task := func(change func(*canonical.Task)) *canonical.Task {
		out := &canonical.Task{ID: "t", Status: canonical.Status{
			State: canonical.StateWorking, At: time.Unix(1, 0),
			Message: &canonical.Content{ID: "m", Parts: []canonical.Part{{Kind: canonical.KindText, Text: "reading"}}},
		}}
		change(out)
		return out
	}
	before := task(func(*canonical.Task) {})
	for name, c := range map[string]struct {
		change func(*canonical.Task)
		same   bool
	}{
		"nothing":        {func(*canonical.Task) {}, true},
		"the time":       {func(t *canonical.Task) { t.Status.At = time.Unix(2, 0) }, true},
		"a message's id": {func(t *canonical.Task) { t.Status.Message.ID = "n" }, true},
		"its words":      {func(t *canonical.Task) { t.Status.Message.Parts[0].Text = "writing" }, false},
		"no message":     {func(t *canonical.Task) { t.Status.Message = nil }, false},
		"the state":      {func(t *canonical.Task) { t.Status.State = canonical.StateSubmitted }, false},
		"an artifact":    {func(t *canonical.Task) { t.Artifacts = []canonical.Artifact{{ID: "a"}} }, false},
		"a question":     {func(t *canonical.Task) { t.Inputs = []canonical.Input{{Key: "k"}} }, false},
	} {
		if got := sameWork(before, task(c.change)); got != c.same {
			t.Errorf("%s: same %v, want %v", name, got, c.same)
		}
	}
	if before.Status.Message.ID != "m" || before.Status.At != time.Unix(1, 0) {
		t.Errorf("the task that was compared has changed: %+v", before.Status)
	}
}
