package gateway_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// TestDrain_WaitsForBackgroundWork: a task that was promised ends while the gateway
// drains, and its caller may ask for it meanwhile. New work is refused and uses up no
// token: the same message is refused for the same reason again, and not answered from
// what was stored.
func TestDrain_WaitsForBackgroundWork(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		id := s.begin(s.limiting)
		drained := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			s.Drain(ctx)
			drained <- time.Since(began)
		}()
		synctest.Wait()
		fresh := s.adds(invoking, addingLater)
		for range 2 {
			_, err := s.Exchange(t.Context(), fresh)
			if _, draining := errors.AsType[*problem.DrainingError](err); !draining {
				t.Errorf("new work while the gateway drains leads to %v", err)
			}
		}
		if got := s.state(s.limiting, id); got != "WORKING" {
			t.Errorf("meanwhile the task is %s", got)
		}
		<-time.After(7 * time.Second)
		close(s.tools.gate)
		if took := <-drained; took < 7*time.Second || took > 8*time.Second {
			t.Errorf("draining took %s, the work 7s", took)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		other := s.replica(t)
		defer func() { _ = other.Close() }()
		if got := s.state(other, id); got != "COMPLETED" {
			t.Errorf("afterwards it is %s", got)
		}
	})
}

// TestDrain_EndsWithItsContext: work that outlasts the grace fails on record when the
// gateway closes, and not before.
func TestDrain_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		id := s.begin(s.limiting)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		s.Drain(ctx)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it drained for %s", took)
		}
		if got := s.state(s.limiting, id); got != "WORKING" {
			t.Errorf("before the gateway closes the task is %s", got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		other := s.replica(t)
		defer func() { _ = other.Close() }()
		if got := s.state(other, id); got != "FAILED" {
			t.Errorf("afterwards it is %s", got)
		}
	})
}

// TestDrain_WaitingCallersAreTold: who waits for an answer when the gateway closes gets an
// error at once, with an ECT, whether or not its work ends with its connection.
func TestDrain_WaitingCallersAreTold(t *testing.T) {
	t.Parallel()
	for name, detached := range map[string]bool{"work that outlives its caller": true, "work of its caller alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := slow(t)
				call := b.a2aCall("SendMessage", adding)
				call.Detached = detached
				type end struct {
					answer transport.Answer
					err    error
				}
				ended := make(chan end, 1)
				go func() {
					answer, err := b.Exchange(t.Context(), call)
					ended <- end{answer, err}
				}()
				<-b.agent.entered
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				b.Drain(ctx)
				began := time.Now()
				if err := b.Close(); err != nil {
					t.Error(err)
				}
				got := <-ended
				if _, stopped := errors.AsType[*problem.StoppedError](got.err); !stopped || time.Since(began) != 0 {
					t.Errorf("after %s: %v", time.Since(began), got.err)
				}
				proof := claims(t, got.answer.Evidence[len(got.answer.Evidence)-1])
				if proof.Act != ect.ActTranslateError || !has(t, b, proof.ID) {
					t.Errorf("the last ECT is %s", proof.Act)
				}
			})
		})
	}
}
