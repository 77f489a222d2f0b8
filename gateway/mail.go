package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// letter is what others want of whoever works on a task: all that they ever
// wanted, so that no two of them overwrite each other.
type letter struct {
	Cancel    bool     `json:",omitempty"`
	Answers   []given  `json:",omitempty"`
	Questions []string `json:",omitempty"` // of a session, to which there is an answer: a second one is none
}

// given is an answer to a question of one round. An agent may ask again under the
// same name: what comes too late for the first question does not answer the second.
type given struct {
	canonical.Answer
	Round   int                `json:",omitempty"` // counted from 1; 0: of any
	Failure *canonical.Error   `json:",omitempty"` // of the client, in place of an answer
	Turn    *canonical.Content `json:",omitempty"` // the message with the answer, for the task's history; nil: it has none
}

// given are answers to what the record asks now.
func (r *record) given(answers []canonical.Answer) []given {
	list := make([]given, len(answers))
	for i, answer := range answers {
		list[i] = given{Answer: answer, Round: r.Round + 1}
	}
	return list
}

// maxAnswers bounds the answers that one run is ever given.
const maxAnswers = 256

// mailbox is where one run reads what others want of it. Each run has its own,
// named in the record, so that nothing that was meant for another is read.
type mailbox struct {
	canceled context.Context //nolint:containedctx // a signal, not a lifetime
	lost     context.Context //nolint:containedctx // a signal: letters may have been lost
	letters  chan []given
	end      context.CancelFunc
	lose     context.CancelFunc
}

// mailbox begins to read letters, until it is closed. [quota.ExceededError], ErrBusy:
// no message could tell the work to stop, so it must not begin.
func (g *Gateway) mailbox(key EntryKey) (*mailbox, error) {
	box := &mailbox{letters: make(chan []given)}
	var cancel context.CancelFunc
	box.canceled, cancel = context.WithCancel(context.Background())
	box.lost, box.lose = context.WithCancel(context.Background())
	life, end := context.WithCancel(context.Background())
	box.end = end
	started := g.boxes.runFor(key.OwnerOf(), func(ctx context.Context) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(life, stop)()
		defer func() { _ = g.Entries.Delete(context.WithoutCancel(ctx), key) }()
		box.read(ctx, g, key, cancel)
	})
	if started != nil {
		cancel()
		end()
		return nil, started
	}
	return box, nil
}

func (b *mailbox) read(ctx context.Context, g *Gateway, key EntryKey, cancel context.CancelFunc) {
	taken, away := 0, time.Time{} // since when the state is
	for seen := uint64(0); ctx.Err() == nil; {
		l, next, err := g.collect(ctx, key, seen)
		seen = next
		switch {
		case err != nil:
			if away.IsZero() {
				away = time.Now()
			}
			if time.Since(away) >= transport.Insistence {
				b.lose()
			}
			pause(ctx, collectAgain)
			if _, _, err := g.Entries.Get(ctx, key); err == nil {
				away = time.Time{}
			}
			continue
		case l.Cancel:
			cancel()
			return
		}
		taken = min(taken, len(l.Answers)) // the box may have ended, and be a new one
		if away = (time.Time{}); len(l.Answers) == taken {
			continue
		}
		select {
		case b.letters <- l.Answers[taken:]:
			taken = len(l.Answers)
		case <-ctx.Done():
		}
	}
}

// close ends the reading. Nobody may be there to close.
func (b *mailbox) close() {
	if b != nil {
		b.end()
	}
}

// collectAgain is the pace of looking for letters while the state is away.
const collectAgain = time.Second

// collect waits for the next letter. An empty one says to go on waiting.
func (g *Gateway) collect(ctx context.Context, key EntryKey, seen uint64) (letter, uint64, error) {
	entry, ok, err := g.Entries.Await(ctx, key, seen)
	if err == nil && !ok { // a box, so that there is something to wait for
		seen, ok, err = g.Entries.Swap(ctx, key, 0, []byte("{}"), g.Now().Add(recordLife))
		if err == nil && ok {
			return letter{}, seen, nil
		}
		seen = 0 // somebody has written meanwhile
	}
	if err != nil {
		return letter{}, seen, err
	}
	var l letter
	if json.Unmarshal(entry.Value, &l) != nil {
		l = letter{}
	}
	return l, max(entry.Revision, seen), nil
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

// post leaves a letter for whoever works on a task, beside those that are there.
func (g *Gateway) post(ctx context.Context, key EntryKey, l letter) error {
	for range 8 {
		entry, _, err := g.Entries.Get(ctx, key)
		if err != nil {
			return &problem.RecordingError{Err: err}
		}
		var all letter
		_ = json.Unmarshal(entry.Value, &all) // an empty box is one
		if slices.ContainsFunc(l.Questions, func(id string) bool { return slices.Contains(all.Questions, id) }) {
			return nil
		}
		all.Cancel, all.Answers, all.Questions = all.Cancel || l.Cancel, append(all.Answers, l.Answers...), append(all.Questions, l.Questions...)
		if len(all.Answers) > maxAnswers {
			break
		}
		value, err := json.Marshal(all)
		if err != nil {
			return errRecord
		}
		_, ok, err := g.Entries.Swap(ctx, key, entry.Revision, value, g.Now().Add(recordLife))
		if err != nil {
			return &problem.RecordingError{Err: err}
		}
		if ok {
			return nil
		}
	}
	return &problem.ConflictError{Reason: "too many want something of this task at once"}
}
