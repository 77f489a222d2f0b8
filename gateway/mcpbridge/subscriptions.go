package mcpbridge

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	kindSubscriptions = "wishes" // of entries
	maxSubscriptions  = 1024     // resources, of one session and agent
	retryWait         = time.Second
)

// Subscriptions is what the client of a session wants to be told of: kept here for an
// agent in whose revision that is said anew whenever it listens, or calls.
type Subscriptions struct {
	URIs  []string `json:",omitempty"`
	Level string   `json:",omitempty"` // of the log; empty: none of it
}

// KeyOf names the subscriptions of a session to an agent.
func KeyOf(session, agent, owner string) store.EntryKey {
	return store.EntryKey{Kind: kindSubscriptions, Group: session, ID: agent, Owner: owner}
}

// Sessions keeps subscriptions. Its errors are *[problem.RecordingError],
// [store.ErrUnreadable] and *[canonical.Error] for a session that has too many.
type Sessions struct {
	Tasks   *store.Store
	Entries store.Entries
	Now     func() time.Time
}

// Change changes what a session wants.
func (s Sessions) Change(ctx context.Context, key store.EntryKey, wanted translators.NotificationFilter) error {
	_, err := s.Tasks.Update(ctx, key, func(entry store.Entry) ([]byte, time.Time, error) {
		w := read(entry)
		switch wanted.Verb {
		case translators.FilterLevel:
			w.Level = wanted.Level
		case translators.FilterUnsubscribe:
			w.URIs = slices.DeleteFunc(w.URIs, func(uri string) bool { return slices.Contains(wanted.URIs, uri) })
		default:
			for _, uri := range wanted.URIs {
				if !slices.Contains(w.URIs, uri) {
					w.URIs = append(w.URIs, uri)
				}
			}
		}
		if len(w.URIs) > maxSubscriptions {
			return nil, time.Time{}, &canonical.Error{Code: canonical.CodeRateLimited, Message: "the session subscribes to too many resources"}
		}
		value, err := store.EncodeJSON(w)
		return value, s.Now().Add(store.RecordLife), err
	})
	return err
}

func read(entry store.Entry) Subscriptions {
	var w Subscriptions
	_ = json.Unmarshal(entry.Value, &w) // an empty entry is no subscription
	return w
}

func (s Sessions) save(ctx context.Context, key store.EntryKey, revision uint64, w Subscriptions) error {
	value, err := store.EncodeJSON(w)
	if err != nil {
		return store.ErrUnreadable
	}
	if _, _, err = s.Entries.Swap(ctx, key, revision, value, s.Now().Add(store.RecordLife)); err != nil {
		return &problem.RecordingError{Err: err}
	}
	return nil
}

// Load is what a session wants. It is kept for as long as it is loaded now and then.
func (s Sessions) Load(ctx context.Context, key store.EntryKey) (Subscriptions, error) {
	entry, ok, err := s.Entries.Get(ctx, key)
	if err != nil {
		return Subscriptions{}, &problem.RecordingError{Err: err}
	}
	w := read(entry)
	if ok && entry.Until.Sub(s.Now()) < store.RecordLife/2 {
		err = s.save(ctx, key, entry.Revision, w) // if not, the next Load does it
	}
	return w, err
}

// Watch sends every change of what a session wants until ctx ends.
func (s Sessions) Watch(ctx context.Context, key store.EntryKey, changes chan<- Subscriptions) {
	for seen := uint64(0); ctx.Err() == nil; {
		within, cancel := context.WithTimeout(ctx, store.RecordLife/4)
		entry, ok, err := s.Entries.Await(within, key, seen)
		late := within.Err() != nil
		cancel()
		switch {
		case late:
			_, err = s.Load(ctx, key) // keeps it
		case err == nil && !ok: // something to wait for
			err = s.save(ctx, key, 0, Subscriptions{})
			seen = 0
		}
		if err != nil {
			worker.Pause(ctx, retryWait)
		}
		if err != nil || late || !ok {
			continue
		}
		seen = entry.Revision
		select {
		case changes <- read(entry):
		case <-ctx.Done():
		}
	}
}
