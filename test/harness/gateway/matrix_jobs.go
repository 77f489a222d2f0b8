package gatewaytest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Work is what an agent was told to do until it is told that it is done.
type Work struct {
	id       string
	question bool          // it is a question
	named    bool          // whoever asked is told of a task
	done     chan struct{} // closed when it has ended

	mu     sync.Mutex
	state  canonical.State
	answer string
}

// begin takes up work that the test calls by name.
func (p *part) begin(name string, state canonical.State, named bool) *Work {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	job := &Work{id: string(ect.NewID()), state: state, named: named, done: make(chan struct{})}
	p.jobs[job.id] = job
	if name != "" {
		p.jobs[name] = job
	}
	return job
}

func (c *fakeAgents) Job(id string) *Work {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.jobs[id]
}

// Finish ends work by the name that the test gave it.
func (c *fakeAgents) Finish(name string) {
	if job := c.Job(name); job != nil {
		job.end(canonical.StateCompleted)
	}
}

// release ends everything.
func (c *fakeAgents) release() {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	for _, job := range c.jobs {
		job.end(canonical.StateCompleted)
	}
}

func (w *Work) end(state canonical.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.state.Terminal() {
		w.state = state
		close(w.done)
	}
}

// knownTo: the gateway has heard of the task, if there is one to hear of.
func (w *Work) knownTo(l *ledger, taskID string) bool {
	return w != nil && (!w.named || w.id == taskID || l.knows(w.id))
}

func (w *Work) now() canonical.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

func (w *Work) wait(ctx context.Context) error {
	select {
	case <-w.done:
		return nil
	case <-ctx.Done(): // whoever asked went away
		w.end(canonical.StateCanceled)
		return ctx.Err()
	}
}

// snapshot is how the work stands.
func (p *part) snapshot(w *Work) *canonical.Task {
	state := w.now()
	task := &canonical.Task{ID: w.id, ContextID: p.context(), Status: canonical.Status{State: state}}
	if p.words == mcp.Binding {
		task.Poll = 100 * time.Millisecond
	}
	if state == canonical.StateCompleted {
		w.mu.Lock()
		text := w.answer
		w.mu.Unlock()
		if text == "" {
			text = "worked"
		}
		if p.words == mcp.Binding {
			task.Output = &canonical.Output{Parts: textPart(text)}
		} else {
			task.Artifacts = []canonical.Artifact{{ID: "a1", Parts: textPart(text)}}
		}
	}
	return task
}

func (p *part) finished(w *Work, text string) (transport.Answer, error) {
	w.mu.Lock()
	w.answer = text
	w.mu.Unlock()
	w.end(canonical.StateCompleted)
	r := p.result(text)
	if r.Task != nil {
		r.Task.ID = w.id
	}
	return p.reply(r)
}

// work answers with a task where the protocol has one, and otherwise when the work is done.
func (p *part) work(ctx context.Context, name string, toil bool) (transport.Answer, error) {
	streams := p.words == a2a.Binding && p.request.Preferences.Stream
	tasked := p.words == a2a.Binding && p.request.Preferences.NoWait || p.words == mcp.Binding && p.request.Preferences.TaskOK && !toil || p.words == uacp.Binding && p.call.Wire.Form != uacp.FormBare
	job := p.begin(name, canonical.StateWorking, streams || tasked)
	switch {
	case streams:
		return p.play(saying1(&canonical.Event{Task: p.snapshot(job)}), p.ends(job))
	case tasked:
		return p.reply(&canonical.Result{Task: p.snapshot(job)})
	}
	if err := job.wait(ctx); err != nil {
		return transport.Answer{}, err
	}
	return p.reply(p.result("worked"))
}

// ends tells that the work has ended.
func (p *part) ends(job *Work) line {
	return func(ctx context.Context) (canonical.Body, error) {
		select { // who does not listen any more has not canceled it
		case <-job.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		p.request.Conversation.TaskID = job.id
		return &canonical.Event{Task: p.snapshot(job)}, nil
	}
}

// queried is asked about work.
func (p *part) queried(ctx context.Context, q *canonical.TaskQuery) (transport.Answer, error) {
	job := p.Job(q.ID)
	if job == nil {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such work"}
	}
	switch p.request.Op {
	case canonical.OpTaskCancel:
		p.note("task canceled")
		job.end(canonical.StateCanceled)
		if p.words == mcp.Binding && strings.HasSuffix(p.request.Origin.Version, mcp.Modern) {
			return p.reply(&canonical.Done{})
		}
	case canonical.OpTaskSubscribe:
		if job.now().Terminal() && p.request.Origin.Version == a2a.Version { // of 1.0; agents of 0.3 tell such a task
			return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "the work has ended"}
		}
		return p.play(saying1(&canonical.Event{Task: p.snapshot(job)}), p.ends(job))
	case canonical.OpTaskResult:
		if err := job.wait(ctx); err != nil {
			return transport.Answer{}, err
		}
		if done := p.snapshot(job); done.Output != nil {
			return p.reply(&canonical.Result{Output: done.Output})
		}
	case canonical.OpTaskAnswer:
		p.note(answersSaid(&canonical.Invoke{Answers: q.Answers})...)
		return p.reply(&canonical.Done{})
	default:
	}
	return p.reply(&canonical.Result{Task: p.snapshot(job)})
}
