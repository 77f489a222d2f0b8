package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// unchangedError ends the asking about an agent's task that has not changed for as long
// as the operator allows (Settings.TaskUnchanged). It does not say that the task
// has failed: nobody knows.
type unchangedError struct{ after time.Duration }

// Error says what was seen, and what the caller can do.
func (e *unchangedError) Error() string {
	return fmt.Sprintf("the agent's task has not changed for %v, and the agent is not asked about it any more; "+
		"whether it will finish is not known: ask about the task again, or cancel it", e.after)
}

// Unwrap is the error in the words of a native door.
func (e *unchangedError) Unwrap() error {
	return &canonical.Error{Code: canonical.CodeTimeout, Message: e.Error()}
}

func isUnchanged(err error) bool {
	_, yes := errors.AsType[*unchangedError](err)
	return yes
}

// unchanged judges the agent's answer to a question how its task stands: an
// *unchangedError if nothing has changed for too long. Anything else that the
// agent says is a change.
func (r *run) unchanged(before *canonical.Task) error {
	after, now := r.fold.Task(), r.g.Now()
	asks := r.op == canonical.OpTaskGet && r.op != r.x.message.Op
	if !asks || before == nil || after == nil || r.owed || r.complete() || !sameWork(before, after) {
		r.changed = now
		return nil
	}
	if limit := r.x.settings.TaskUnchanged; limit > 0 && now.Sub(r.changed) >= limit {
		return &unchangedError{limit}
	}
	return nil
}

// sameWork: nothing has changed but when the agent said so, and under which id.
func sameWork(before, after *canonical.Task) bool {
	then := *before
	then.Status.At = after.Status.At
	if then.Status.Message != nil && after.Status.Message != nil {
		said := *then.Status.Message
		said.ID = after.Status.Message.ID
		then.Status.Message = &said
	}
	return len(stream.Diff(&then, after)) == 0
}

// release writes that the work is not followed any more, because it has not changed for
// too long. Its state stays what the agent said last; the words say the rest. Whoever
// asks about it has it followed again.
func (r *run) release(ctx context.Context, why *unchangedError) {
	rec := r.x.record
	if rec == nil {
		return
	}
	rec.leave()
	rec.Log, rec.Released = r.log, why.after
	rec.Task.Status.At = r.g.Now()
	rec.Task.Status.Message = stream.Failed(r.own, &canonical.Error{Message: why.Error()}).Status.Message
	if err := r.g.put(ctx, rec); err != nil {
		r.unkept(ctx, err)
		return
	}
	r.tellOthers(ctx)
}

// released is why the record's work is not followed any more; nil: it is, or has ended.
func (r *record) released() error {
	if r.Released == 0 {
		return nil
	}
	return &unchangedError{r.Released}
}
