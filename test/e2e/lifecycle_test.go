package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

const slow = "slow"

// refusedWithin is how soon every replica refuses new work for an agent that drains.
const refusedWithin = 2 * time.Second

// TestLifecycle_TwoReplicas: an operator drains an agent at one replica while calls of every
// protocol are under way at the other. Those get their answers, new ones are refused at both,
// the agent is retired by itself, and both replicas say the same of it.
func TestLifecycle_TwoReplicas(t *testing.T) {
	t.Parallel()
	trust, err := devgateway.NewTrust("prod.example")
	must(t, err)
	agent := newWorker(t, trust)
	f := newFleet(t, trust, 2, map[string]string{slow: agent.server.URL()})
	all := f.dialects(t)
	letGo := sync.OnceFunc(func() { close(agent.letGo) })
	defer letGo()

	var accepted book
	f.serves(t, all, slow, &accepted)
	before := len(agent.came())
	var calls sync.WaitGroup
	for _, s := range all {
		calls.Go(func() {
			message := "hold " + s.protocol
			accepted.add(message)
			got, err := s.call(t.Context(), f.replicas[0], slow, message)
			if err != nil || !strings.Contains(got.body, done(message)) {
				t.Errorf("the call under way in %s: %v, %d %s", s.protocol, err, got.status, got.body)
			}
		})
	}
	must(t, wait.Until(t.Context(), "all calls are under way", func() bool { return len(agent.came()) >= before+len(all) }))

	drained, err := f.drain(t.Context(), f.replicas[1], slow)
	must(t, err)
	ordered := time.Now()
	var callers sync.WaitGroup
	for _, r := range f.replicas {
		for _, s := range all {
			callers.Go(func() { f.refusedSoon(t, r, s, slow, ordered, &accepted) })
		}
	}
	callers.Wait()
	for _, r := range f.replicas {
		if now := f.stands(t, r, slow, "draining", func(s standing) bool { return s.Step == "refusing" }); now.Token != drained.Token || now.Term != drained.Term {
			t.Errorf("%s says %+v, ordered was %+v", r.name, now, drained)
		}
	}
	// Nothing is to happen while work is under way: only time tells.
	for time.Since(ordered) < 8*time.Second && wait.Pause(t.Context(), 200*time.Millisecond) {
		for _, r := range f.replicas {
			if now, err := f.listed(t.Context(), r, slow); err != nil || now.Status != "draining" || now.Step != "refusing" {
				t.Fatalf("%s, while work is under way: %v, %+v", r.name, err, now)
			}
		}
	}
	letGo()
	calls.Wait()
	if came := agent.came(); !slices.Equal(came, accepted.sorted()) {
		t.Errorf("the agent was asked for %q, callers know of %q", came, accepted.sorted())
	}
	f.retired(t, all, slow)
}

// book is messages that were accepted.
type book struct {
	mu       sync.Mutex
	messages []string
}

func (b *book) add(message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages = append(b.messages, message)
}

func (b *book) sorted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.messages)
	return slices.Clone(b.messages)
}

// serves waits until both replicas answer every kind of call: a store that has just begun
// cannot exclude yet that it has seen a token.
func (f *fleet) serves(t *testing.T, all []dialect, agent string, accepted *book) {
	t.Helper()
	for _, r := range f.replicas {
		for _, s := range all {
			var got answer
			message := "first " + r.name + " " + s.protocol
			err := wait.Until(t.Context(), s.protocol+" is answered at "+r.name, func() bool {
				var err error
				got, err = s.call(t.Context(), r, agent, message)
				return err == nil && strings.Contains(got.body, done(message))
			})
			if err != nil {
				t.Fatalf("%v: %d %q", err, got.status, got.body)
			}
			accepted.add(message)
		}
	}
}

// refusedSoon calls until new work is refused, which must be in time; what is accepted until
// then must be answered, and what is refused must say so in the protocol's own words.
func (f *fleet) refusedSoon(t *testing.T, r *replica, s dialect, agent string, ordered time.Time, accepted *book) {
	t.Helper()
	for n := 0; ; n++ {
		message := fmt.Sprintf("new %s %s %d", r.name, s.protocol, n)
		begun := time.Since(ordered)
		got, err := s.call(t.Context(), r, agent, message)
		if err != nil {
			t.Errorf("%s at %s: %v", s.protocol, r.name, err)
			return
		}
		if strings.Contains(got.body, done(message)) {
			accepted.add(message)
			if begun > refusedWithin {
				t.Errorf("%s at %s takes new work %v after the order", s.protocol, r.name, begun)
				return
			}
			continue
		}
		for _, want := range s.draining {
			if !strings.Contains(got.body, want) {
				t.Errorf("%s at %s: no %s in %d %q", s.protocol, r.name, want, got.status, got.body)
			}
		}
		if got.status != http.StatusServiceUnavailable {
			t.Errorf("%s at %s: %d %q", s.protocol, r.name, got.status, got.body)
		}
		if s.http && (got.header.Get("Retry-After") == "" || got.header.Get("Location") != f.successor) {
			t.Errorf("%s at %s: Retry-After %q, Location %q", s.protocol, r.name, got.header.Get("Retry-After"), got.header.Get("Location"))
		}
		return
	}
}

// retired waits until the agent is retired at all replicas, and holds what they say of it
// against each other.
func (f *fleet) retired(t *testing.T, all []dialect, agent string) {
	t.Helper()
	var first standing
	for i, r := range f.replicas {
		now := f.stands(t, r, agent, "retired", func(s standing) bool { return s.Status == "retired" && s.Token != "" })
		if i == 0 {
			first = now
		}
		if now != first || now.Term != 2 || now.Successor != f.successor {
			t.Errorf("%s says %+v, %s %+v", r.name, now, f.replicas[0].name, first)
		}
		for _, s := range all {
			got, err := s.call(t.Context(), r, agent, "after the end")
			for _, want := range s.retired {
				if err != nil || !strings.Contains(got.body, want) {
					t.Errorf("%s at %s of a retired agent: %v, %d %q", s.protocol, r.name, err, got.status, got.body)
				}
			}
			if got.status != s.gone {
				t.Errorf("%s at %s of a retired agent: %d, want %d", s.protocol, r.name, got.status, s.gone)
			}
			if s.http && !strings.Contains(got.header.Get("Link"), "<"+f.successor+`>; rel="successor-version"`) {
				t.Errorf("%s at %s: Link %q", s.protocol, r.name, got.header.Get("Link"))
			}
		}
		card, err := ask(t.Context(), f.caller, http.MethodGet, r.Process.Public+"/agents/"+agent+"/a2a/.well-known/agent-card.json", "", nil)
		if err != nil || card.status != http.StatusGone || !strings.Contains(card.header.Get("Link"), f.successor) {
			t.Errorf("the card at %s: %v, %d %q", r.name, err, card.status, card.header.Get("Link"))
		}
		f.proven(t, r, now.Token)
	}
}

// proven holds that a token stands on its own, and that a replica has it on record.
func (f *fleet) proven(t *testing.T, r *replica, token string) {
	t.Helper()
	claims, err := audit(f.trust.Roots(), token)
	must(t, err)
	var got answer
	err = wait.Until(t.Context(), "the token is on record at "+r.name, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), refusedWithin)
		defer cancel()
		var err error
		got, err = ask(ctx, f.operator, http.MethodGet, r.Admin+"/api/ects/"+claims.ID, "", nil)
		return err == nil && got.status == http.StatusOK
	})
	if err != nil || !strings.Contains(got.body, token) {
		t.Errorf("%v: %d %s", err, got.status, got.body)
	}
}
