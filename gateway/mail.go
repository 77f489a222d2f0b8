package gateway

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// letter is what somebody wants of whoever works on a task.
type letter struct {
	Cancel  bool               `json:",omitempty"`
	Answers []canonical.Answer `json:",omitempty"`
}

// mailbox is where a runner reads its letters.
type mailbox struct {
	canceled context.Context //nolint:containedctx // a signal, not a lifetime
	letters  chan letter
}

// mailbox begins to read letters; it ends with ctx.
func (g *Gateway) mailbox(ctx context.Context, task EntryKey) *mailbox {
	canceled, cancel := context.WithCancel(context.WithoutCancel(ctx))
	box := &mailbox{canceled: canceled, letters: make(chan letter)}
	started := g.crew.run(func(context.Context) {
		defer func() { _ = g.Entries.Delete(context.WithoutCancel(ctx), mailKey(task)) }()
		for seen := uint64(0); ctx.Err() == nil; {
			var l letter
			if l, seen = g.collect(ctx, mailKey(task), seen); l.Cancel {
				cancel()
				return
			}
			if l.Answers == nil {
				continue
			}
			select {
			case box.letters <- l:
			case <-ctx.Done():
			}
		}
	})
	if started != nil {
		cancel() // nobody could tell it to stop, so it does not begin
	}
	return box
}

// collect waits for the next letter. An empty one says to go on waiting.
func (g *Gateway) collect(ctx context.Context, key EntryKey, seen uint64) (letter, uint64) {
	entry, ok, err := g.Entries.Await(ctx, key, seen)
	if err == nil && !ok { // a box, so that there is something to wait for
		seen, _, err = g.Entries.Swap(ctx, key, 0, []byte("{}"), g.Now().Add(recordLife))
		if err == nil {
			return letter{}, seen
		}
	}
	if err != nil {
		pause(ctx, runnerBeats)
		return letter{}, seen
	}
	var l letter
	if json.Unmarshal(entry.Value, &l) != nil {
		l = letter{}
	}
	return l, entry.Revision
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// post leaves a letter for whoever works on a task, over any that was not read.
func (g *Gateway) post(ctx context.Context, task EntryKey, l letter) error {
	value, err := json.Marshal(l)
	if err != nil {
		return errRecord
	}
	key := mailKey(task)
	for range 8 {
		entry, _, err := g.Entries.Get(ctx, key)
		if err != nil {
			return &problem.RecordingError{Err: err}
		}
		_, ok, err := g.Entries.Swap(ctx, key, entry.Revision, value, g.Now().Add(answerLimit))
		if err != nil {
			return &problem.RecordingError{Err: err}
		}
		if ok {
			return nil
		}
	}
	return &problem.ConflictError{Reason: "too many want something of this task at once"}
}

// answered waits for the answer to what the open stream asks, and gives it to
// the agent. False: the work has ended.
func (r *run) answered(ctx context.Context, mail *mailbox) bool {
	timer := time.NewTimer(answerLimit)
	defer timer.Stop()
	answers := []canonical.Answer{{Key: r.ask.Input.Key, Action: canonical.Cancel}}
	select {
	case l := <-mail.letters:
		answers = l.Answers
	case <-timer.C:
	case <-mail.canceled.Done():
		r.ended(ctx, errCanceled)
		return false
	case <-ctx.Done():
		r.ended(ctx, ctx.Err())
		return false
	}
	if err := r.give(ctx, answers); err != nil {
		r.ended(ctx, err)
		return false
	}
	r.note(ctx, step{events: []canonical.Event{{Status: &canonical.Status{State: canonical.StateWorking}}}})
	return true
}
