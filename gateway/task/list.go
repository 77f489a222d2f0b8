package task

import (
	"context"
	"errors"

	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// list answers from the record, because the agent takes all callers of the gateway for one
// caller: it would show one of them the work of another.
func (s *Service) list(ctx context.Context, x Exchange, f *canonical.TaskFilter) (transport.Answer, error) {
	page, err := s.List(ctx, x.TaskKey("").Group, x.Dialogue(f.ContextID), f)
	if err != nil {
		return transport.Answer{}, err
	}
	return s.tellPage(ctx, x, f, page)
}

// tellPage answers with a page, or with as much of it as a message of the caller's
// protocol holds (µACP: 64 KiB).
func (s *Service) tellPage(ctx context.Context, x Exchange, f *canonical.TaskFilter, page store.Page) (transport.Answer, error) {
	tasks := make([]*canonical.Task, len(page.Items))
	for i := range tasks {
		tasks[i] = s.listed(ctx, x, page.Items[i], f)
	}
	for {
		list := &canonical.TaskList{Size: page.Size, Total: page.Total, Tasks: []canonical.Task{}}
		if n := len(tasks); n > 0 && (page.More || n < len(page.Items)) {
			list.Next = page.Items[n-1].Cursor()
		}
		for _, task := range tasks {
			if task != nil {
				list.Tasks = append(list.Tasks, *task)
			}
		}
		m := &canonical.Message{Op: x.Work().Message.Op, Phase: canonical.PhaseResponse, Body: list, Correlation: canonical.Correlation{WireID: x.Work().WireID}}
		answer, err := x.Tell(ctx, m, execution.Proof{Parents: x.ParentsOf(nil)})
		if refusal, ok := errors.AsType[*canonical.Error](err); !ok || refusal.Code != canonical.CodeBadParams || len(tasks) < 2 {
			return answer, err
		}
		tasks = tasks[:len(tasks)/2]
	}
}

// listed is a task as a list shows it; nil: it is gone.
func (s *Service) listed(ctx context.Context, x Exchange, one store.Item, f *canonical.TaskFilter) *canonical.Task {
	rec := s.LoadItem(ctx, x.TaskKey("").Group, one)
	if rec == nil {
		return nil
	}
	task, err := s.Present(rec)
	if err != nil {
		return nil
	}
	if task.Output = nil; f.IncludeArtifacts == nil || !*f.IncludeArtifacts {
		task.Artifacts = nil
	}
	return task
}
