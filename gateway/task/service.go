package task

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// Service is what is known of the tasks of callers.
type Service struct {
	*store.Store
	*Failover
	Reader
	Questions
}

// Reader reads the messages that records hold.
type Reader struct {
	Registry *translators.Registry
	Read     func(codec translators.Translator, wire translators.Wire) (*canonical.Message, error) // as a message that travelled
}

// Present is the record's task as it stands. Its error is [store.ErrUnreadable].
func (r Reader) Present(rec *store.Record) (*canonical.Task, error) {
	if rec.Saved == nil {
		task := rec.Task
		return &task, nil
	}
	codec, ok := r.Registry.Translator(rec.Source)
	if !ok {
		return nil, store.ErrUnreadable
	}
	m, err := r.Read(codec, rec.Saved.Wire(rec.Source, rec.AnswersTo()))
	if err != nil {
		return nil, store.ErrUnreadable
	}
	result, ok := m.Body.(*canonical.Result)
	if !ok {
		return nil, store.ErrUnreadable
	}
	task := result.Task
	if task == nil {
		task = stream.TaskOf(rec.Task.ID, rec.Task.ContextID, result)
	}
	if len(rec.Task.History) > len(task.History) { // it was answered with less
		task.History = rec.Task.History
	}
	return task, nil
}

// First is the request that began the work. Its error is [store.ErrUnreadable].
func (r Reader) First(rec *store.Record) (*canonical.Message, *canonical.Invoke, error) {
	codec, ok := r.Registry.Translator(rec.Source)
	if !ok || rec.Call == nil {
		return nil, nil, store.ErrUnreadable
	}
	first, err := r.Read(codec, rec.Call.Wire(rec.Source, ""))
	if err != nil {
		return nil, nil, store.ErrUnreadable
	}
	invoke, ok := first.Body.(*canonical.Invoke)
	if !ok {
		return nil, nil, store.ErrUnreadable
	}
	return first, invoke, nil
}

// Questions keeps what callers are asked in their sessions. Its errors are
// *[problem.RecordingError], [store.ErrUnreadable] and those of [store.Store.Send].
type Questions struct {
	Tasks   *store.Store
	Entries store.Entries
	Now     func() time.Time
}

// openQuestion is what is kept of a question in a session.
type openQuestion struct {
	Box      store.EntryKey
	Key      string
	Round    int  `json:",omitempty"` // of the answer
	Answered bool `json:",omitempty"` // it is kept only to be known as ours
}

// QuestionKey names a question in a session.
func QuestionKey(session, id, owner string) store.EntryKey {
	return store.EntryKey{Kind: store.KindQuestion, Group: session, ID: id, Owner: owner}
}

// Ask keeps a question about a record's work, by the key of what is asked, until wait is over.
func (q Questions) Ask(ctx context.Context, question store.EntryKey, rec *store.Record, key string, wait time.Duration) error {
	return q.save(ctx, question, 0, openQuestion{Box: rec.ControlKey(), Key: key, Round: rec.Round + 1}, wait)
}

func (q Questions) save(ctx context.Context, key store.EntryKey, revision uint64, open openQuestion, wait time.Duration) error {
	value, err := json.Marshal(open)
	if err != nil {
		return store.ErrUnreadable
	}
	if _, _, err := q.Entries.Swap(ctx, key, revision, value, q.Now().Add(wait)); err != nil {
		return &problem.RecordingError{Err: err}
	}
	return nil
}

// Answer gives the answer of a session's client to the replica that asked; false: the
// question is none of this gateway.
func (q Questions) Answer(ctx context.Context, question store.EntryKey, reply *canonical.Reply, wait time.Duration) (bool, error) {
	entry, ok, err := q.Entries.Get(ctx, question)
	if err != nil {
		return false, &problem.RecordingError{Err: err}
	}
	if !ok {
		return false, nil
	}
	var open openQuestion
	if json.Unmarshal(entry.Value, &open) != nil {
		return false, store.ErrUnreadable
	}
	if open.Answered { // the second answer counts for nothing
		return true, nil
	}
	answer := store.AnswerForRound{Answer: reply.Answer, Round: open.Round, Failure: reply.Failure}
	answer.Key = open.Key
	// It is delivered before it is put away: what fails in between is done again.
	if err := q.Tasks.Send(ctx, open.Box, store.ControlMessage{Answers: []store.AnswerForRound{answer}, Questions: []string{question.ID}}); err != nil {
		return false, err
	}
	return true, q.save(ctx, question, entry.Revision, openQuestion{Answered: true}, wait)
}
