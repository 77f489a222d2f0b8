package e2e

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// killRounds is how often a replica is killed at a random moment of an order: in the even
// rounds up to 50 ms after it was sent, in the odd ones while it is carried out.
const killRounds = 20

// TestLifecycle_ReplicaIsKilled: the replica that takes an order is killed, once when it has
// answered and then at random moments. The other one has the old state or the new one and goes
// on to the end. The killed one knows the same when it is back, from its first answer on.
func TestLifecycle_ReplicaIsKilled(t *testing.T) {
	t.Parallel()
	trust, err := devgateway.NewTrust("prod.example")
	must(t, err)
	worker := newWorker(t, trust)
	agents := map[string]string{slow: worker.server.URL()}
	for round := range killRounds {
		agents["slow-"+strconv.Itoa(round)] = worker.server.URL()
	}
	f := newFleet(t, trust, 2, agents)
	all := f.dialects(t)
	f.serves(t, all, slow, &book{})

	ordered, err := f.drain(t.Context(), f.replicas[0], slow)
	must(t, err)
	must(t, f.replicas[0].Kill())
	if now := f.stands(t, f.replicas[1], slow, "draining", func(s standing) bool { return s.Term > 0 }); now.Term != 1 || now.Token != ordered.Token {
		t.Errorf("%s says %+v, ordered was %+v", f.replicas[1].name, now, ordered)
	}
	f.proven(t, f.replicas[1], ordered.Token)
	f.stands(t, f.replicas[1], slow, "retired", func(s standing) bool { return s.Status == "retired" }) // without the one that is dead
	f.back(t, all, slow, 2)

	tokens := []string{ordered.Token}
	for round := range killRounds {
		agent := "slow-" + strconv.Itoa(round)
		within := []time.Duration{50 * time.Millisecond, 5 * time.Millisecond}[round%2]
		after := time.Duration(rand.Int64N(int64(within)))
		tokens = append(tokens, f.killedWhileOrdered(t, all, agent, after))
	}
	for agent := range agents {
		f.retired(t, all, agent)
	}
	for _, token := range tokens {
		f.proven(t, f.replicas[0], token)
		f.proven(t, f.replicas[1], token)
	}
}

// killedWhileOrdered kills the first replica that long after it was sent an order, and returns
// the token of the transition. An order that was lost is given again.
func (f *fleet) killedWhileOrdered(t *testing.T, all []dialect, agent string, after time.Duration) string {
	t.Helper()
	type outcome struct {
		standing
		err error
	}
	answered := make(chan outcome, 1)
	go func() {
		s, err := f.drain(t.Context(), f.replicas[0], agent)
		answered <- outcome{s, err}
	}()
	wait.Pause(t.Context(), after)
	must(t, f.replicas[0].Kill())
	got := <-answered
	// The one that lives has read the records again once it knows of an order that came later.
	later, err := f.listed(t.Context(), f.replicas[1], agent)
	must(t, err)
	if got.err == nil {
		later = f.stands(t, f.replicas[1], agent, "draining", func(s standing) bool { return s.Term > 0 })
		if later.Token != got.Token || later.Term != got.Term {
			t.Errorf("%s says %+v, answered was %+v", f.replicas[1].name, later, got.standing)
		}
	}
	known := f.back(t, all, agent, later.Term)
	t.Logf("killed after %v: answered %v, term %d, %s", after, got.err == nil, known.Term, known.Status)
	if known.Term > 0 {
		return known.Token
	}
	// It was lost as a whole: at the other replica, too, it can be given again.
	again, err := f.drain(t.Context(), f.replicas[1], agent)
	must(t, err)
	if again.Term != 1 {
		t.Errorf("given again it is %+v", again)
	}
	return again.Token
}

// back starts the first replica again. How an agent stands is known to it at once, and if it
// drains no call goes through. least is the term that the other one knows.
func (f *fleet) back(t *testing.T, all []dialect, agent string, least uint64) standing {
	t.Helper()
	f.start(t, f.replicas[0])
	got, err := all[0].call(t.Context(), f.replicas[0], agent, "at once")
	must(t, err)
	now, err := f.listed(t.Context(), f.replicas[0], agent)
	must(t, err)
	if now.Term < least {
		t.Errorf("%s, which has just started, says %+v: the term is %d at least", f.replicas[0].name, now, least)
	}
	served := strings.Contains(got.body, done("at once"))
	if served == (now.Term > 0) {
		t.Errorf("%s, which has just started, says %q and answers %d %q", f.replicas[0].name, now.Status, got.status, got.body)
	}
	return now
}
