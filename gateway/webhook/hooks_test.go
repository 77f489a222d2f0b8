package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/webhook"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const protocol canonical.Binding = "a2a-v1"

// hooksEnv is hooks with all that they are built from, and what they did.
type hooksEnv struct {
	*env
	*webhook.Hooks

	mu    sync.Mutex
	lines []string      // what was made and posted
	fail  error         // of all that is made
	push  error         // of all that is posted
	block chan struct{} // what is made waits for it; nil: it does not
}

func newHooks(t testing.TB, perCaller int) *hooksEnv {
	t.Helper()
	h := &hooksEnv{env: newEnv(t, 0, perCaller)}
	h.network.Pushers = map[canonical.Binding]transport.Pusher{protocol: pusher{h}}
	h.Hooks = webhook.NewHooks(webhook.Deps{
		Entries: h.entries, Network: h.network, Sender: h.network, Workers: h.workers, Now: time.Now, Logger: slog.New(slog.NewTextHandler(h.log, nil)),
	}, h.seal)
	return h
}

func (h *hooksEnv) write(line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
}

// seal makes one message of each event.
func (h *hooksEnv) seal(ctx context.Context, who store.Principal, p *webhook.Posting, form string, whole bool) ([]transport.Sealed, error) {
	if h.block != nil {
		select {
		case <-h.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for _, event := range p.Events {
		h.write(fmt.Sprintf("%s of %s for %s in %s whole %t", event.Status.State, p.Record.Task.ID, who.Version, form, whole))
	}
	return make([]transport.Sealed, len(p.Events)), h.fail
}

// pusher writes down to which webhooks is posted.
type pusher struct{ env *hooksEnv }

func (pusher) Form(version string) (form string, whole bool) {
	return "form " + version, version == "0.3"
}

func (pusher) Check(canonical.PushConfig) error { return nil }

func (p pusher) Push(_ context.Context, caller ect.Identity, config canonical.PushConfig, _ transport.Sealed) error {
	if caller != alice { // else failures of its posts would count for others
		p.env.write("for the caller " + string(caller))
	}
	p.env.write("to " + config.ID)
	return p.env.push
}

func taskKey(id string) store.EntryKey { return store.TaskKey(string(alice), "painter", id) }

func hookOf(id, version string) webhook.Hook {
	return webhook.Hook{PushConfig: canonical.PushConfig{ID: id, URL: hook}, For: store.Principal{Caller: alice, Version: version}}
}

// put keeps webhooks of a task, in this version.
func (h *hooksEnv) put(task, version string, ids ...string) {
	h.t.Helper()
	for _, id := range ids {
		if err := h.Put(h.t.Context(), taskKey(task), hookOf(id, version)); err != nil {
			h.t.Fatal(err)
		}
	}
}

// names are the webhooks of a task.
func (h *hooksEnv) names(task string) (list []string) {
	h.t.Helper()
	found, err := h.Hooks.Of(h.t.Context(), taskKey(task))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, k := range found {
		list = append(list, k.ID+" "+k.URL+" "+k.For.Version)
	}
	return list
}

// post posts changes of a task, to states of these names.
func (h *hooksEnv) post(task string, states ...string) {
	h.t.Helper()
	rec := &store.Record{Key: taskKey(task), Pushes: true}
	rec.Task.ID, rec.Source = task, protocol
	var events []canonical.Event
	for _, state := range states {
		rec.Task.Status.State = canonical.State(state)
		events = append(events, canonical.Event{Status: &canonical.Status{State: canonical.State(state)}})
	}
	h.Post(h.t.Context(), rec, events)
	rec.Task.ID = "changed meanwhile"
}

// expect holds what was made and posted so far to these lines.
func (h *hooksEnv) expect(lines ...string) {
	h.t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if diff := cmp.Diff(lines, h.lines); diff != "" {
		h.t.Errorf("-want +got\n%s", diff)
	}
	h.lines = nil
}

// TestHooks_OfATask: each task has its own webhooks, by their ids.
func TestHooks_OfATask(t *testing.T) {
	t.Parallel()
	h := newHooks(t, 0)
	h.put("t", "1.0", "a", "b")
	h.put("t", "0.3", "a") // gives way
	h.put("t2", "1.0", "a")
	if diff := cmp.Diff([]string{"a " + hook + " 0.3", "b " + hook + " 1.0"}, h.names("t")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if err := h.Delete(t.Context(), taskKey("t"), "a"); err != nil {
		t.Error(err)
	}
	if len(h.names("t")) != 1 || len(h.names("t2")) != 1 || len(h.names("t3")) != 0 {
		t.Errorf("after one was deleted: %q, of the other task %q", h.names("t"), h.names("t2"))
	}
}

// TestHooks_Bounded: a task has sixteen webhooks, of which each can be changed.
func TestHooks_Bounded(t *testing.T) {
	t.Parallel()
	h := newHooks(t, 0)
	for n := range 16 {
		h.put("t", "1.0", strconv.Itoa(n))
	}
	err := h.Put(t.Context(), taskKey("t"), hookOf("one more", "1.0"))
	if refused, ok := errors.AsType[*canonical.Error](err); !ok || refused.Code != canonical.CodeBadParams {
		t.Errorf("one more: %v", err)
	}
	h.put("t", "0.3", "7")
	if n := len(h.names("t")); n != 16 {
		t.Errorf("it has %d", n)
	}
}

// TestHooks_StoreAway: while the store is away nothing is changed, and its error is told.
func TestHooks_StoreAway(t *testing.T) {
	t.Parallel()
	away := &state.UnavailableError{}
	for name, edit := range map[string]func(*entries){
		"list": func(e *entries) { e.list = away }, "get": func(e *entries) { e.get = away }, "swap": func(e *entries) { e.swap = away },
	} {
		h := newHooks(t, 0)
		edit(h.entries)
		if err := h.Put(t.Context(), taskKey("t"), hookOf("a", "1.0")); !is[*problem.RecordingError](err) {
			t.Errorf("put without %s: %v", name, err)
		}
		if h.entries.list != nil {
			if err := h.Extend(t.Context(), taskKey("t"), nil); !errors.Is(err, away) {
				t.Errorf("extend: %v", err)
			}
		}
	}
	h := newHooks(t, 0)
	h.entries.remove = away
	if err := h.Delete(t.Context(), taskKey("t"), "a"); !is[*problem.RecordingError](err) {
		t.Errorf("delete: %v", err)
	}
	key := store.EntryKey{Kind: store.KindPush, Group: taskKey("t").Group + "\x00" + "t", ID: "a"}
	if _, _, err := h.entries.Swap(t.Context(), key, 0, []byte("{"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Hooks.Of(t.Context(), taskKey("t")); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("unreadable: %v", err)
	}
	if err := h.Put(t.Context(), taskKey("t"), hookOf("b", "1.0")); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("beside an unreadable one: %v", err)
	}
}

// TestExtend_EachWebhook: all webhooks of the task are extended, until one cannot be.
func TestExtend_EachWebhook(t *testing.T) {
	t.Parallel()
	h := newHooks(t, 0)
	h.put("t", "1.0", "a", "b")
	h.put("t2", "1.0", "c")
	for _, c := range []struct {
		err  error
		want []string
	}{{nil, []string{"a", "b"}}, {errors.New("full"), []string{"a"}}} {
		var got []string
		err := h.Extend(t.Context(), taskKey("t"), func(_ context.Context, e store.Entry) (bool, error) {
			got = append(got, e.Key.ID)
			return true, c.err
		})
		if !errors.Is(err, c.err) || !cmp.Equal(got, c.want) {
			t.Errorf("extended %q, %v, expected %q", got, err, c.want)
		}
	}
}

// TestPost_InOrder: changes are posted one after the other, to each webhook in the form of its
// caller's version; what happens meanwhile waits for the one that is posted.
func TestPost_InOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHooks(t, 0)
		h.put("t", "1.0", "a", "c")
		h.put("t", "0.3", "b")
		h.post("t", "one", "two")
		h.expect("one of t for 1.0 in form 1.0 whole false", "two of t for 1.0 in form 1.0 whole false", "to a", "to c", "to a", "to c",
			"one of t for 0.3 in form 0.3 whole true", "two of t for 0.3 in form 0.3 whole true", "to b", "to b")
		if err := errors.Join(h.Delete(t.Context(), taskKey("t"), "b"), h.Delete(t.Context(), taskKey("t"), "c")); err != nil {
			t.Fatal(err)
		}
		h.block = make(chan struct{})
		h.post("t", "three")
		h.post("t", "four")
		h.post("t", "five")
		h.expect()
		close(h.block)
		h.expect("three of t for 1.0 in form 1.0 whole false", "to a", "four of t for 1.0 in form 1.0 whole false", "to a", "five of t for 1.0 in form 1.0 whole false", "to a")
	})
}

// TestPost_Nothing: what nothing is posted of.
func TestPost_Nothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHooks(t, 0)
		h.put("t", "1.0", "a")
		rec := &store.Record{Key: taskKey("t"), Pushes: true}
		rec.Source = protocol
		events := []canonical.Event{{Status: &canonical.Status{}}}
		silent, other := *rec, *rec
		silent.Pushes, other.Source = false, "far-v1"
		h.Post(t.Context(), rec, nil)
		h.Post(t.Context(), &silent, events)
		h.Post(t.Context(), &other, events)
		h.post("without webhooks", "one")
		h.expect()
	})
}

// TestPost_BoundOfWaiting: of more changes than may wait for one task the oldest are not
// posted; those of another task wait for themselves.
func TestPost_BoundOfWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHooks(t, 0)
		h.put("t", "1.0", "a")
		h.block = make(chan struct{})
		h.post("t", "first") // is being posted
		synctest.Wait()
		for n := range 64 + 3 {
			h.post("t", strconv.Itoa(n))
		}
		close(h.block)
		lines := []string{"first of t for 1.0 in form 1.0 whole false", "to a"}
		for n := 3; n < 64+3; n++ {
			lines = append(lines, strconv.Itoa(n)+" of t for 1.0 in form 1.0 whole false", "to a")
		}
		h.expect(lines...)
	})
}

// TestPost_WorkerRefused: a caller whose share of work is used up is told later changes, once
// there is room.
func TestPost_WorkerRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHooks(t, 1)
		h.put("t", "1.0", "a")
		done := make(chan struct{})
		if err := h.workers.GoFor(taskKey("t").OwnerOf(), 0, func(context.Context) { <-done }); err != nil {
			t.Fatal(err)
		}
		h.post("t", "one")
		h.expect()
		if !strings.Contains(h.log.String(), "changes of a task are not posted") {
			t.Error("it is not logged")
		}
		close(done)
		synctest.Wait()
		h.post("t", "two")
		h.expect("two of t for 1.0 in form 1.0 whole false", "to a")
	})
}

// TestPost_End: the entry that has other replicas follow a task goes once its end was posted,
// whether it was taken or not; while the store is away, or this process ends, it stays, so
// that the end is posted once more.
func TestPost_End(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state string
		edit  func(*hooksEnv)
		stays bool
	}{
		"posted":               {"completed", func(*hooksEnv) {}, false},
		"not over":             {"working", func(*hooksEnv) {}, true},
		"not taken":            {"completed", func(h *hooksEnv) { h.push = errors.New("refused") }, false},
		"cannot be made":       {"completed", func(h *hooksEnv) { h.fail = errors.New("not to be said") }, false},
		"store away":           {"completed", func(h *hooksEnv) { h.entries.list = &state.UnavailableError{} }, true},
		"made is not recorded": {"completed", func(h *hooksEnv) { h.fail = &problem.RecordingError{} }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHooks(t, 0)
			h.put("t", "1.0", "a")
			key := store.FailoverKey(taskKey("t"))
			if _, _, err := h.entries.Swap(t.Context(), key, 0, []byte("{}"), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			c.edit(h)
			h.post("t", c.state)
			synctest.Wait()
			if _, stays, err := h.entries.Get(t.Context(), key); stays != c.stays || err != nil {
				t.Errorf("%s: it stays: %t, %v", name, stays, err)
			}
			h.entries.list, h.fail = nil, nil
			h.lines = nil
			h.post("t", "later") // and what comes next is posted
			h.expect("later of t for 1.0 in form 1.0 whole false", "to a")
		})
	}
}
