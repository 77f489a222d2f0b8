package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/webhook"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	alice ect.Identity = "spiffe://example.com/alice"
	bob   ect.Identity = "spiffe://example.com/bob"
	hook               = "https://client.example/hook"
)

// entries are those of a memory, which can fail.
type entries struct {
	store.Entries
	get, swap, list, remove error
}

func (e *entries) Delete(ctx context.Context, key store.EntryKey) error {
	if e.remove != nil {
		return e.remove
	}
	return e.Entries.Delete(ctx, key)
}

func (e *entries) Get(ctx context.Context, key store.EntryKey) (store.Entry, bool, error) {
	if e.get != nil {
		return store.Entry{}, false, e.get
	}
	return e.Entries.Get(ctx, key)
}

func (e *entries) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if e.swap != nil {
		return 0, false, e.swap
	}
	return e.Entries.Swap(ctx, key, old, value, until)
}

func (e *entries) List(ctx context.Context, kind, group, after string, limit int) ([]store.Entry, error) {
	if e.list != nil {
		return nil, e.list
	}
	return e.Entries.List(ctx, kind, group, after, limit)
}

// poster is what decisions are posted by: hosts named closed are denied, and those named
// broken do not answer.
type poster struct {
	mu      sync.Mutex
	posts   []transport.Decision
	checked int
	block   chan struct{} // posts wait for it; nil: they do not
}

func (p *poster) Check(url string) error {
	p.checked++
	if strings.HasPrefix(url, "https://closed.") {
		return &egress.DeniedError{Host: "closed.example", Reason: egress.ReasonNotListed}
	}
	return nil
}

func (p *poster) Tell(ctx context.Context, caller ect.Identity, d transport.Decision) error {
	if caller == "" {
		return errors.New("for no caller: failures of its posts would count for others")
	}
	if p.block != nil {
		select {
		case <-p.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posts = append(p.posts, d)
	if strings.HasPrefix(d.URL, "https://broken.") {
		return errors.New("connection refused")
	}
	return nil
}

// env is callbacks with all that they are built from.
type env struct {
	*webhook.Callbacks

	t       testing.TB
	entries *entries
	network *outbound.Network
	poster  *poster
	workers *worker.Group
	log     *bytes.Buffer
}

func newEnv(t testing.TB, maxWork, perCaller int) *env {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, entries: &entries{Entries: memory.Entries()}, poster: &poster{}, log: &bytes.Buffer{}}
	e.network = &outbound.Network{Callbacks: e.poster}
	if e.workers, err = worker.NewGroup(maxWork, perCaller); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.workers.Close)
	if e.Callbacks, err = webhook.NewCallbacks(webhook.Deps{
		Entries: e.entries, Network: e.network, Sender: e.network, Workers: e.workers, Now: time.Now, Logger: slog.New(slog.NewTextHandler(e.log, nil)),
	}); err != nil {
		t.Fatal(err)
	}
	return e
}

// await registers a URL, which must succeed.
func (e *env) await(caller ect.Identity, workflow, url string) {
	e.t.Helper()
	if err := e.Await(e.t.Context(), caller, workflow, url); err != nil {
		e.t.Fatalf("%s is not registered: %v", url, err)
	}
}

// of are the callbacks of a workflow, in order.
func (e *env) of(workflow string) (list []string) {
	e.t.Helper()
	found, err := e.Of(e.t.Context(), workflow)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, c := range found {
		list = append(list, string(c.Caller)+" "+c.URL)
		if c.Since.IsZero() {
			e.t.Errorf("%s has no time", c.URL)
		}
	}
	slices.Sort(list)
	return list
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// TestAwait_OfAWorkflow: a callback belongs to its workflow and to the caller who named it;
// one that is named again is there once.
func TestAwait_OfAWorkflow(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 0, 0)
	for range 2 {
		e.await(alice, "w", hook)
		e.await(bob, "w", hook)
		e.await(alice, "w", hook+"2")
	}
	e.await(alice, "w2", hook)
	want := []string{string(alice) + " " + hook, string(alice) + " " + hook + "2", string(bob) + " " + hook}
	if diff := cmp.Diff(want, e.of("w")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], e.of("w2")); diff != "" {
		t.Errorf("of the other workflow, -want +got\n%s", diff)
	}
	if got := e.of("w3"); len(got) > 0 {
		t.Errorf("a workflow without callbacks has %q", got)
	}
}

// TestAwait_Refusals: what may not be registered, and that it leaves nothing.
func TestAwait_Refusals(t *testing.T) {
	t.Parallel()
	refused := func(code canonical.Code) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*canonical.Error](err)
			return ok && e.Code == code
		}
	}
	long := hook + strings.Repeat("x", 2048-len(hook))
	for name, c := range map[string]struct {
		workflow, url string
		edit          func(*env)
		is            func(error) bool
	}{
		"no callbacks":            {"w", hook, func(e *env) { e.network.Callbacks = nil }, refused(canonical.CodePushUnsupported)},
		"no workflow":             {"", hook, nil, refused(canonical.CodeBadParams)},
		"a URL that is too long":  {"w", long + "x", nil, refused(canonical.CodeBadParams)},
		"as long as may be":       {"w", long, nil, func(err error) bool { return err == nil }},
		"a host that is closed":   {"w", "https://closed.example/hook", nil, is[*egress.DeniedError]},
		"the store does not read": {"w", hook, func(e *env) { e.entries.list = &state.UnavailableError{} }, is[*problem.RecordingError]},
		"the store is full":       {"w", hook, func(e *env) { e.entries.swap = &state.FullError{} }, is[*problem.RecordingError]},
	} {
		e := newEnv(t, 0, 0)
		if c.edit != nil {
			c.edit(e)
		}
		err := e.Await(t.Context(), alice, c.workflow, c.url)
		if e.entries.list = nil; !c.is(err) || (err == nil) != (len(e.of(c.workflow)) == 1) {
			t.Errorf("%s: %v, %q", name, err, e.of(c.workflow))
		}
	}
}

// TestAwait_IsBounded: a workflow has 64 callbacks, and those are told again that they are
// registered.
func TestAwait_IsBounded(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 0, 0)
	for n := range 64 {
		e.await(alice+ect.Identity(strconv.Itoa(n/16)), "w", hook+strconv.Itoa(n))
	}
	err := e.Await(t.Context(), bob, "w", hook)
	if refused, ok := errors.AsType[*canonical.Error](err); !ok || refused.Code != canonical.CodeBadParams {
		t.Errorf("one more: %v", err)
	}
	e.await(alice+"0", "w", hook+"7")
	e.await(bob, "w2", hook)
	if n := len(e.of("w")); n != 64 {
		t.Errorf("there are %d, expected 64", n)
	}
}

// TestAttack_OneMemberTakesAllCallbacks: a member of a workflow registers as many callbacks as
// it may, and more. Another member registers its own all the same.
func TestAttack_OneMemberTakesAllCallbacks(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 0, 0)
	for n := range 100 {
		_ = e.Await(t.Context(), alice, "w", hook+strconv.Itoa(n))
	}
	e.await(bob, "w", hook)
	if n := len(e.of("w")); n != 17 {
		t.Errorf("there are %d, expected 16 of one and 1 of the other", n)
	}
}

// TestAwait_ForADay: then it is forgotten.
func TestAwait_ForADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, 0, 0)
		e.await(alice, "w", hook)
		time.Sleep(24*time.Hour - time.Second)
		if n := len(e.of("w")); n != 1 {
			t.Errorf("%d on the last second of the day", n)
		}
		time.Sleep(2 * time.Second)
		if n := len(e.of("w")); n != 0 {
			t.Errorf("%d a day later", n)
		}
	})
}

// TestOf_Unreadable: what another program wrote is an error, and no callback.
func TestOf_Unreadable(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 0, 0)
	e.await(alice, "w", hook)
	key := store.EntryKey{Kind: store.KindCallback, Group: "w", ID: "x", Owner: string(alice)}
	if _, _, err := e.entries.Swap(t.Context(), key, 0, []byte("{"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Of(t.Context(), "w"); !errors.Is(err, store.ErrUnreadable) || len(got) > 0 {
		t.Errorf("found %+v, %v", got, err)
	}
	if err := e.Await(t.Context(), bob, "w", hook); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("one more: %v", err)
	}
}

// granted is a decision about an approval.
func granted(approval, token string) *canonical.Signal {
	return &canonical.Signal{Approval: approval, Token: token}
}

// callbacks are those of these URLs.
func callbacks(caller ect.Identity, urls ...string) (list []webhook.Callback) {
	for _, url := range urls {
		list = append(list, webhook.Callback{URL: url, Caller: caller})
	}
	return list
}

// TestAnnounce_TellsAll: each callback gets the decision once, and one that does not take it
// costs the others nothing.
func TestAnnounce_TellsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, 0, 0)
		e.Announce(t.Context(), granted("a", "token"), append(callbacks(alice, hook, "https://broken.example/hook"), callbacks(bob, hook+"2")...))
		synctest.Wait()
		slices.SortFunc(e.poster.posts, func(a, b transport.Decision) int { return strings.Compare(a.URL, b.URL) })
		want := []transport.Decision{
			{URL: "https://broken.example/hook", Approval: "a", Token: "token"}, {URL: hook, Approval: "a", Token: "token"}, {URL: hook + "2", Approval: "a", Token: "token"},
		}
		if diff := cmp.Diff(want, e.poster.posts); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if log := e.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "approval=a") || strings.Contains(log, "token=") {
			t.Errorf("the log says %s, expected one line about the decision, without its token", log)
		}
	})
}

// TestAnnounce_InTheBackground: the caller does not wait for posts, each of which counts in
// the share of who named it; what has no place is logged.
func TestAnnounce_InTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, 4, 1)
		e.poster.block = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		e.Announce(ctx, granted("a", "token"), append(callbacks(alice, hook, hook+"2"), callbacks(bob, hook+"3")...))
		cancel() // the request has been answered
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		if log := e.log.String(); strings.Count(log, "a decision is not told") != 1 {
			t.Errorf("the log says %s, expected a line for the second of one caller", log)
		}
		close(e.poster.block)
		synctest.Wait()
		var urls []string
		for _, d := range e.poster.posts {
			urls = append(urls, d.URL)
		}
		if slices.Sort(urls); !slices.Equal(urls, []string{hook, hook + "3"}) {
			t.Errorf("posted to %q", urls)
		}
	})
}

// TestAnnounce_WithoutCallbacks: a gateway that posts no decisions starts no work for them.
func TestAnnounce_WithoutCallbacks(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 0, 0)
	e.network.Callbacks = nil
	e.Announce(t.Context(), granted("a", "token"), callbacks(alice, hook))
	if !e.workers.Drain(t.Context()) || len(e.poster.posts) > 0 || e.log.Len() > 0 {
		t.Errorf("posted %+v, logged %s", e.poster.posts, e.log)
	}
}

// tokens makes tokens of decisions, verified.
func tokens(t *testing.T, by *ecttest.Party, workflow string) ect.Verified {
	t.Helper()
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: ecttest.KeysOf(by), Replay: ecttest.NewReplay(), Audience: []string{"spiffe://example.com/gateway"}, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	token, err := by.Signer(t, time.Now).Sign(ect.Claims{Act: ect.ActApprovalGranted, Audience: []string{"spiffe://example.com/gateway"}, Workflow: workflow, Parents: []ect.ID{ect.NewID()}})
	if err != nil {
		t.Fatal(err)
	}
	verified, err := verifier.Verify(t.Context(), token.Compact(), ect.Check{Purpose: ect.Parent})
	if err != nil {
		t.Fatal(err)
	}
	return verified
}

// TestDecide_Once: the same decision again is no news, and another one about the same is
// refused (R23). Others, of other workflows too, are not touched by it.
func TestDecide_Once(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 0, 0)
	approver, second := ecttest.NewParty(t, alice), ecttest.NewParty(t, bob)
	w1, w2 := string(ect.NewID()), string(ect.NewID())
	for i, c := range []struct {
		decision *canonical.Signal
		by       *ecttest.Party
		workflow string
		fresh    bool
		conflict bool
	}{
		{granted("a", "yes"), approver, w1, true, false},
		{granted("a", "yes"), approver, w1, false, false},
		{granted("a", "no"), approver, w1, false, true},
		{granted("a", "no"), second, w1, false, true},
		{granted("a", "yes"), second, w1, false, false},
		{granted("b", "no"), approver, w1, true, false},
		{granted("a", "no"), approver, w2, true, false},
		{granted(strings.Repeat("a", store.MaxTaskID), "yes"), approver, w1, true, false},
	} {
		fresh, err := e.Decide(t.Context(), c.decision, tokens(t, c.by, c.workflow))
		if fresh != c.fresh || is[*problem.ConflictError](err) != c.conflict || err != nil && !c.conflict {
			t.Errorf("decision %d: news: %t, %v, expected %t, a conflict: %t", i, fresh, err, c.fresh, c.conflict)
		}
	}
}

// TestDecide_OfMany: of several at once about the same, one is taken.
func TestDecide_OfMany(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 0, 0)
	token := tokens(t, ecttest.NewParty(t, alice), string(ect.NewID()))
	var all sync.WaitGroup
	var mu sync.Mutex
	taken, conflicts := 0, 0
	for n := range 20 {
		all.Go(func() {
			fresh, err := e.Decide(t.Context(), granted("a", strconv.Itoa(n)), token)
			mu.Lock()
			defer mu.Unlock()
			if fresh {
				taken++
			}
			if is[*problem.ConflictError](err) {
				conflicts++
			}
		})
	}
	if all.Wait(); taken != 1 || conflicts != 19 {
		t.Errorf("%d are taken, %d refused, expected 1 and 19", taken, conflicts)
	}
}

// TestDecide_Refusals: what names nothing to decide about, and a store that is away.
func TestDecide_Refusals(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 0, 0)
	token := tokens(t, ecttest.NewParty(t, alice), string(ect.NewID()))
	for _, approval := range []string{"", strings.Repeat("a", store.MaxTaskID+1)} {
		fresh, err := e.Decide(t.Context(), granted(approval, "yes"), token)
		if refused, ok := errors.AsType[*canonical.Error](err); !ok || refused.Code != canonical.CodeBadParams || fresh {
			t.Errorf("about %d bytes: news: %t, %v", len(approval), fresh, err)
		}
	}
	e.entries.swap = &state.UnavailableError{}
	if fresh, err := e.Decide(t.Context(), granted("a", "yes"), token); fresh || !is[*problem.RecordingError](err) {
		t.Errorf("while nothing can be written: news: %t, %v", fresh, err)
	}
	e.entries.swap = nil
	if fresh, err := e.Decide(t.Context(), granted("a", "yes"), token); !fresh || err != nil {
		t.Errorf("afterwards: news: %t, %v", fresh, err)
	}
	e.entries.get = &state.UnavailableError{}
	if fresh, err := e.Decide(t.Context(), granted("a", "no"), token); fresh || !is[*problem.RecordingError](err) {
		t.Errorf("while nothing can be read: news: %t, %v", fresh, err)
	}
}
