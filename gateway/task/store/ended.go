package store

import (
	"context"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// EndedLife is how long a task that was answered with its end can be asked for.
const EndedLife = 10 * time.Minute

// SaveEnded keeps a task that was answered with its end, like a reply, and puts it on the
// list. Its error is a *[problem.RecordingError].
func (s *Store) SaveEnded(ctx context.Context, rec *Record) error {
	key, reply, until := endedKey(rec.Key), rec.appendReply(nil), s.deps.Now().Add(EndedLife)
	if shared, ok := s.deps.Replies.(idempotency.ConfirmedStore); ok {
		if err := shared.Confirm(ctx, key, reply, until); err != nil {
			return &problem.RecordingError{Err: err}
		}
	} else {
		s.deps.Replies.Finish(ctx, key, reply, until)
	}
	s.addEnded(ctx, rec)
	return nil
}

// appendReply writes what LoadEnded reads.
func (r *Record) appendReply(b []byte) []byte {
	return idempotency.AppendTexts(slices.Grow(b, 384+len(r.Saved.Body)),
		string(r.Binding), string(r.Source), r.TaskID, r.Context, r.Task.ContextID, string(r.Task.Status.State), r.Workflow,
		string(r.Last), r.Saved.Version, r.Saved.Form, string(r.Saved.Body), r.Saved.Media)
}

// LoadEnded finds a task that was answered with its end; nil: there is none.
func (s *Store) LoadEnded(ctx context.Context, key EntryKey) *Record {
	blob, ok := s.deps.Replies.Load(ctx, endedKey(key))
	if !ok {
		return nil
	}
	return readEnded(key, blob)
}

func readEnded(key EntryKey, blob []byte) *Record {
	rec := &Record{Key: key, AsTold: AsTold{Form: RecordForm, Saved: &SavedMessage{}}}
	var binding, source, taskState, last, body string
	rest, whole := idempotency.ReadTexts(blob,
		&binding, &source, &rec.TaskID, &rec.Context, &rec.Task.ContextID, &taskState, &rec.Workflow,
		&last, &rec.Saved.Version, &rec.Saved.Form, &body,
	)
	if !whole {
		return nil
	}
	_, _ = idempotency.ReadTexts(rest, &rec.Saved.Media) // which earlier versions did not write
	rec.Binding, rec.Source, rec.Last = canonical.Binding(binding), canonical.Binding(source), ect.ID(last)
	rec.Task.ID, rec.Task.Status.State, rec.Saved.Body = key.ID, canonical.State(taskState), []byte(body)
	return rec
}
