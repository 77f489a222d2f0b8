package task

import (
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
