package mcpbridge_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/mcpbridge"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func newSessions(t *testing.T) (mcpbridge.Sessions, *entries) {
	t.Helper()
	tasks, memory := newStore(t)
	return mcpbridge.Sessions{Tasks: tasks, Entries: memory, Now: time.Now}, memory
}

func key() store.EntryKey { return mcpbridge.KeyOf("session", "painter", "alice") }

func more(uris ...string) translators.NotificationFilter {
	return translators.NotificationFilter{Verb: translators.FilterSubscribe, URIs: uris}
}

// TestChange_AddsAndTakesAway: a session has each resource once, in the order in which its
// client subscribed, and the last level.
func TestChange_AddsAndTakesAway(t *testing.T) {
	t.Parallel()
	sessions, _ := newSessions(t)
	for i, c := range []struct {
		change translators.NotificationFilter
		want   mcpbridge.Subscriptions
	}{
		{more("b", "a"), mcpbridge.Subscriptions{URIs: []string{"b", "a"}}},
		{more("a", "c"), mcpbridge.Subscriptions{URIs: []string{"b", "a", "c"}}},
		{translators.NotificationFilter{Verb: translators.FilterLevel, Level: "debug"}, mcpbridge.Subscriptions{URIs: []string{"b", "a", "c"}, Level: "debug"}},
		{translators.NotificationFilter{Verb: translators.FilterUnsubscribe, URIs: []string{"b", "x"}}, mcpbridge.Subscriptions{URIs: []string{"a", "c"}, Level: "debug"}},
		{translators.NotificationFilter{Verb: translators.FilterUnsubscribe, URIs: []string{"c", "a"}}, mcpbridge.Subscriptions{Level: "debug"}},
	} {
		if err := sessions.Change(t.Context(), key(), c.change); err != nil {
			t.Fatal(err)
		}
		got, err := sessions.Load(t.Context(), key())
		if got.URIs == nil {
			got.URIs = c.want.URIs
		}
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("change %d: %v, -want +got\n%s", i, err, diff)
		}
	}
	for name, other := range map[string]store.EntryKey{
		"another session": mcpbridge.KeyOf("session2", "painter", "alice"), "another agent": mcpbridge.KeyOf("session", "calculator", "alice"),
	} {
		if got, err := sessions.Load(t.Context(), other); err != nil || len(got.URIs) > 0 || got.Level != "" {
			t.Errorf("%s has %+v, %v", name, got, err)
		}
	}
}

// TestChange_IsBounded: a session that subscribes to too much is refused, and keeps what it
// has.
func TestChange_IsBounded(t *testing.T) {
	t.Parallel()
	sessions, _ := newSessions(t)
	var uris []string
	for n := range 1024 {
		uris = append(uris, strconv.Itoa(n))
	}
	if err := sessions.Change(t.Context(), key(), more(uris...)); err != nil {
		t.Fatal(err)
	}
	err := sessions.Change(t.Context(), key(), more("one more"))
	if refused, ok := errors.AsType[*canonical.Error](err); !ok || refused.Code != canonical.CodeRateLimited {
		t.Errorf("one more: %v", err)
	}
	if err := sessions.Change(t.Context(), key(), more("7")); err != nil {
		t.Errorf("one that it has: %v", err)
	}
	if got, err := sessions.Load(t.Context(), key()); err != nil || len(got.URIs) != 1024 {
		t.Errorf("it has %d, %v, expected 1024", len(got.URIs), err)
	}
}

// TestSessions_StoreAway: while the store is away nothing is changed, and its error is told.
func TestSessions_StoreAway(t *testing.T) {
	t.Parallel()
	sessions, memory := newSessions(t)
	memory.away(&state.UnavailableError{}, nil)
	if err := sessions.Change(t.Context(), key(), more("a")); !is[*problem.RecordingError](err) {
		t.Errorf("change: %v", err)
	}
	if _, err := sessions.Load(t.Context(), key()); !is[*problem.RecordingError](err) {
		t.Errorf("load: %v", err)
	}
}

// TestLoad_KeepsWhatIsUsed: subscriptions live as long as they are loaded now and then, and
// a Load that need not extend them writes nothing.
func TestLoad_KeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sessions, memory := newSessions(t)
		if _, err := sessions.Load(t.Context(), key()); err != nil || memory.writes() != 0 {
			t.Errorf("without subscriptions: %v, %d writes", err, memory.writes())
		}
		if err := sessions.Change(t.Context(), key(), more("a")); err != nil {
			t.Fatal(err)
		}
		load := func(uris, writes int) {
			t.Helper()
			before := memory.writes()
			if got, err := sessions.Load(t.Context(), key()); err != nil || len(got.URIs) != uris || memory.writes()-before != writes {
				t.Errorf("loaded %+v, %v, with %d writes, expected %d resources, %d writes", got, err, memory.writes()-before, uris, writes)
			}
		}
		for range 3 {
			time.Sleep(store.RecordLife/2 - time.Second)
			load(1, 0)
			time.Sleep(2 * time.Second)
			load(1, 1)
		}
		time.Sleep(store.RecordLife - time.Second)
		memory.away(nil, &state.UnavailableError{})
		if got, err := sessions.Load(t.Context(), key()); !is[*problem.RecordingError](err) || len(got.URIs) != 1 {
			t.Errorf("while nothing can be written: %+v, %v", got, err)
		}
		memory.away(nil, nil)
		load(1, 1)
		time.Sleep(store.RecordLife + time.Second)
		load(0, 0)
	})
}

// watch watches a session until the test ends.
func watch(t *testing.T, sessions mcpbridge.Sessions) (changes chan mcpbridge.Subscriptions, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes = make(chan mcpbridge.Subscriptions)
	over := make(chan struct{})
	go func() {
		defer close(over)
		sessions.Watch(ctx, key(), changes)
	}()
	return changes, func() {
		cancel()
		<-over
	}
}

// TestWatch_SendsChanges: what a session has at the start is sent, and each change by any
// replica, until the watch ends.
func TestWatch_SendsChanges(t *testing.T) {
	t.Parallel()
	for _, empty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sessions, _ := newSessions(t)
			var start []string
			if !empty {
				start = []string{"first"}
				if err := sessions.Change(t.Context(), key(), more(start...)); err != nil {
					t.Fatal(err)
				}
			}
			changes, stop := watch(t, sessions)
			next := func(want ...string) {
				t.Helper()
				if got := <-changes; !cmp.Equal(append([]string{}, got.URIs...), append([]string{}, want...)) {
					t.Errorf("sent is %+v, expected %q", got, want)
				}
			}
			next(start...)
			synctest.Wait()
			select {
			case got := <-changes:
				t.Errorf("sent is %+v, and nothing has changed", got)
			default:
			}
			if err := sessions.Change(t.Context(), key(), translators.NotificationFilter{Verb: translators.FilterUnsubscribe, URIs: []string{"first"}}); err != nil {
				t.Fatal(err)
			}
			next()
			if err := sessions.Change(t.Context(), key(), more("second")); err != nil {
				t.Fatal(err)
			}
			next("second")
			if err := sessions.Change(t.Context(), key(), more("third")); err != nil { // and is not received
				t.Fatal(err)
			}
			synctest.Wait()
			stop()
		})
	}
}

// TestWatch_KeepsItsSession: what is watched does not expire, and what is gone is watched
// again.
func TestWatch_KeepsItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sessions, memory := newSessions(t)
		if err := sessions.Change(t.Context(), key(), more("a")); err != nil {
			t.Fatal(err)
		}
		changes, stop := watch(t, sessions)
		if got := <-changes; len(got.URIs) != 1 {
			t.Errorf("sent is %+v", got)
		}
		quiet := time.After(3*store.RecordLife + time.Minute)
		for waiting := true; waiting; {
			select {
			case got := <-changes: // it was written to live longer
				if len(got.URIs) != 1 {
					t.Errorf("sent is %+v", got)
				}
			case <-quiet:
				waiting = false
			}
		}
		if _, ok, err := memory.Get(t.Context(), key()); !ok || err != nil {
			t.Errorf("it is there: %t, %v", ok, err)
		}
		if err := memory.Delete(t.Context(), key()); err != nil {
			t.Fatal(err)
		}
		if got := <-changes; len(got.URIs) != 0 {
			t.Errorf("after its end, sent is %+v", got)
		}
		stop()
	})
}

// TestWatch_StoreAway: while the store is away, the watch waits between its attempts, and
// goes on afterwards.
func TestWatch_StoreAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sessions, memory := newSessions(t)
		memory.away(nil, &state.UnavailableError{}) // so that it cannot make what it would wait for
		changes, stop := watch(t, sessions)
		time.Sleep(10*time.Second + time.Millisecond)
		if n := memory.writes(); n < 9 || n > 11 {
			t.Errorf("%d attempts in ten seconds", n)
		}
		synctest.Wait()
		memory.away(nil, nil)
		began := time.Now()
		if got := <-changes; len(got.URIs) != 0 || time.Since(began) > time.Second {
			t.Errorf("sent is %+v after %v", got, time.Since(began))
		}
		stop()
	})
}
