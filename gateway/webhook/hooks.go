package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	maxHooks    = 16 // of one task
	maxPostings = 64 // that wait for one task. Of what is too much, the oldest is not posted: the task itself can be asked for
)

// Hook is where changes of a task are posted to, and for whom.
type Hook struct {
	canonical.PushConfig

	For store.Principal
}

// Posting is what happened to a task, and is still to be posted.
type Posting struct {
	Record   store.Record
	Events   []canonical.Event
	Snapshot bool // the events are the task as it stood: one that has changed since is not posted
}

// Seal makes the messages that post something to a caller: in a wire form, and whole as the
// task as it stands. An error says why some, or all, cannot be made.
type Seal func(ctx context.Context, who store.Principal, p *Posting, form string, whole bool) ([]transport.Sealed, error)

// Hooks keeps the webhooks of tasks and posts changes to them. It is safe for concurrent use.
type Hooks struct {
	deps Deps
	seal Seal

	mu      sync.Mutex
	waiting map[store.EntryKey][]Posting // with an entry, if empty, while a worker posts
}

// NewHooks makes them.
func NewHooks(deps Deps, seal Seal) *Hooks {
	return &Hooks{deps: deps, seal: seal, waiting: map[store.EntryKey][]Posting{}}
}

func groupOf(task store.EntryKey) string { return task.Group + "\x00" + task.ID }

func keyOf(task store.EntryKey, id string) store.EntryKey {
	return store.EntryKey{Kind: store.KindPush, Group: groupOf(task), ID: id}
}

// Of are the webhooks of a task. Its errors are *[problem.RecordingError] and
// [store.ErrUnreadable].
func (h *Hooks) Of(ctx context.Context, task store.EntryKey) ([]Hook, error) {
	entries, err := h.deps.Entries.List(ctx, store.KindPush, groupOf(task), "", maxHooks)
	if err != nil {
		return nil, &problem.RecordingError{Err: err}
	}
	hooks := make([]Hook, len(entries))
	for i, entry := range entries {
		if json.Unmarshal(entry.Value, &hooks[i]) != nil {
			return nil, store.ErrUnreadable
		}
	}
	return hooks, nil
}

// Put keeps a webhook of a task: one with the same id gives way. Its errors are those of Of,
// and a *[canonical.Error] for a task that has too many.
func (h *Hooks) Put(ctx context.Context, task store.EntryKey, hook Hook) error {
	hooks, err := h.Of(ctx, task)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(hooks, func(k Hook) bool { return k.ID == hook.ID })
	if len(hooks) >= maxHooks && !known {
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "the task has too many push notification settings"}
	}
	value, err := json.Marshal(hook)
	if err != nil {
		return store.ErrUnreadable
	}
	old, _, err := h.deps.Entries.Get(ctx, keyOf(task, hook.ID))
	if err == nil {
		_, _, err = h.deps.Entries.Swap(ctx, keyOf(task, hook.ID), old.Revision, value, h.deps.Now().Add(store.RecordLife))
	}
	if err != nil {
		return &problem.RecordingError{Err: err}
	}
	return nil
}

// Delete takes a webhook from a task. Its error is a *[problem.RecordingError].
func (h *Hooks) Delete(ctx context.Context, task store.EntryKey, id string) error {
	if err := h.deps.Entries.Delete(ctx, keyOf(task, id)); err != nil {
		return &problem.RecordingError{Err: err}
	}
	return nil
}

// Extend lets the webhooks of a task live as long as its record.
func (h *Hooks) Extend(ctx context.Context, task store.EntryKey, extend func(context.Context, store.Entry) (bool, error)) error {
	entries, err := h.deps.Entries.List(ctx, store.KindPush, groupOf(task), "", maxHooks)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if _, err := extend(ctx, entry); err != nil {
			return err
		}
	}
	return nil
}

// Post posts in the background what happened to a task, one thing after the other, to the
// webhooks that it has then.
func (h *Hooks) Post(ctx context.Context, rec *store.Record, events []canonical.Event) {
	h.post(ctx, Posting{Record: *rec, Events: events})
}

// PostSnapshot posts in the background how a task stands, unless it has changed by then:
// the replica that changed it posts that, and an older state must not come after it.
func (h *Hooks) PostSnapshot(ctx context.Context, rec *store.Record, task *canonical.Task) {
	h.post(ctx, Posting{Record: *rec, Events: []canonical.Event{{Task: task}}, Snapshot: true})
}

func (h *Hooks) post(ctx context.Context, p Posting) {
	key := p.Record.Key
	if !p.Record.Pushes || len(p.Events) == 0 || h.deps.Network.Pushers[p.Record.Source] == nil || !h.add(key, p) {
		return // the worker that posts comes to it
	}
	if err := h.deps.Workers.GoFor(key.OwnerOf(), 0, func(ctx context.Context) { h.deliver(ctx, key) }); err != nil {
		h.mu.Lock()
		delete(h.waiting, key)
		h.mu.Unlock()
		h.deps.Logger.WarnContext(ctx, "changes of a task are not posted", slog.String("task", p.Record.Task.ID), slog.Any("error", err))
	}
}

// deliver posts what there is about one task.
func (h *Hooks) deliver(ctx context.Context, key store.EntryKey) {
	for {
		next, ok := h.next(key)
		if !ok {
			return
		}
		if err := h.postAll(ctx, &next); err != nil {
			h.deps.Logger.WarnContext(ctx, "changes of a task are not posted", slog.String("task", key.ID), slog.Any("error", err))
			if store.CanRetry(err) {
				continue
			}
		}
		if ctx.Err() == nil && next.Record.Task.Status.State.Terminal() {
			_ = h.deps.Entries.Delete(ctx, store.FailoverKey(key)) // else the end is posted once more
		}
	}
}

// postAll posts some events to all webhooks. A task has one caller, who may have spoken
// several versions. An error says why an event cannot be posted at all; a webhook that does
// not take it is none.
func (h *Hooks) postAll(ctx context.Context, p *Posting) error {
	hooks, err := h.Of(ctx, p.Record.Key)
	if err != nil {
		return err
	}
	var errs []error
	for len(hooks) > 0 {
		version := hooks[0].For.Version
		others := slices.DeleteFunc(slices.Clone(hooks), func(k Hook) bool { return k.For.Version == version })
		errs = append(errs, h.postTo(ctx, p, slices.DeleteFunc(hooks, func(k Hook) bool { return k.For.Version != version })))
		hooks = others
	}
	return errors.Join(errs...)
}

// postTo posts some events to webhooks of one version.
func (h *Hooks) postTo(ctx context.Context, p *Posting, hooks []Hook) error {
	form, whole := h.deps.Network.Pushers[p.Record.Source].Form(hooks[0].For.Version)
	messages, err := h.seal(ctx, hooks[0].For, p, form, whole)
	for _, sealed := range messages {
		for i := range hooks {
			call := &outbound.Call{Kind: outbound.Webhook, Endpoint: transport.Endpoint{Binding: p.Record.Source, Caller: hooks[i].For.Caller}, Sealed: sealed, Webhook: hooks[i].PushConfig}
			if _, err := h.deps.Sender.Send(ctx, call); err != nil {
				h.deps.Logger.WarnContext(ctx, "a push notification was not taken", slog.String("task", p.Record.Task.ID), slog.Any("error", err))
			}
		}
	}
	return err
}

// add reports whether a worker has to begin to post.
func (h *Hooks) add(key store.EntryKey, p Posting) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	list, busy := h.waiting[key]
	if list = append(list, p); len(list) > maxPostings {
		list = list[1:]
	}
	h.waiting[key] = list
	return !busy
}

// next is the oldest; false: there is none, and the worker has finished.
func (h *Hooks) next(key store.EntryKey) (Posting, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.waiting[key]
	if len(list) == 0 {
		delete(h.waiting, key)
		return Posting{}, false
	}
	h.waiting[key] = list[1:]
	return list[0], true
}
