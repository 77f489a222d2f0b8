package task

import (
	"context"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// Deps is what a Service needs. Every field is required.
type Deps struct {
	Executions *execution.Service
	Webhooks   Webhooks
	Workers    *worker.Group // ends the streams of records
	Now        func() time.Time
	NewID      func() string
	Logger     *slog.Logger
	Replica    string // names this process among the replicas
	// Unwanted is told of an approval whose task was canceled.
	Unwanted func(ctx context.Context, approval string)
}

// Service answers for the tasks of callers. It is safe for concurrent use.
type Service struct {
	*store.Store
	*Failover
	Reader
	Deps Deps
}

// PostWhole posts a task as it stands. Its error is [store.ErrUnreadable].
func (s *Service) PostWhole(ctx context.Context, rec *store.Record) error {
	task, err := s.Present(rec)
	if err == nil {
		task.Output = nil
		s.Deps.Webhooks.Post(ctx, rec, []canonical.Event{{Task: task}})
	}
	return err
}

// PostChange posts what is different in a task between two of its records, if the task has
// webhooks.
func (s *Service) PostChange(ctx context.Context, before, after *store.Record) {
	if !after.Pushes {
		return
	}
	known, err := s.Present(before)
	var task *canonical.Task
	if err == nil {
		task, err = s.Present(after)
	}
	if err != nil {
		s.Deps.Logger.WarnContext(ctx, "a change of a task is not posted", slog.String("task", after.Task.ID), slog.Any("error", err))
		return
	}
	s.Deps.Webhooks.Post(ctx, after, stream.Diff(known, task))
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
