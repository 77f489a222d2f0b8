package inflight_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
	"github.com/aepb/aepb-gateway/policy/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small are bounds that a test reaches.
func small() inflight.Config {
	return inflight.Config{
		Requests: 32, RequestsPerCaller: 4, Streams: 16, StreamsPerCaller: 2,
		Bytes: 8 << 20, BytesPerCaller: 1 << 20, BodyWait: 300 * time.Millisecond, WriteWait: 300 * time.Millisecond,
	}
}

func newLimits(t *testing.T, c inflight.Config) *inflight.Limits {
	t.Helper()
	l, err := inflight.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func begin(t *testing.T, l *inflight.Limits, holder string, known bool) *inflight.Request {
	t.Helper()
	r, err := l.Begin(holder, known)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.End)
	return r
}

func wantExceeded(t *testing.T, what string, err error) {
	t.Helper()
	if _, ok := errors.AsType[*quota.ExceededError](err); !ok {
		t.Errorf("%s: %v, want an ExceededError", what, err)
	}
}

func TestLimits_CallerAtItsLimitIsRefusedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	l := newLimits(t, small())
	first := begin(t, l, "a", true)
	for range 3 {
		begin(t, l, "a", true)
	}
	_, err := l.Begin("a", true)
	wantExceeded(t, "a fifth request", err)
	begin(t, l, "b", true)
	for range 4 {
		begin(t, l, "a", false) // of callers without an identity, who have their own
	}
	first.End()
	first.End()
	begin(t, l, "a", true)
	_, err = l.Begin("a", true)
	wantExceeded(t, "after a request that ended twice", err)
}

// A quarter of all is for callers without an identity.
func TestLimits_CallersWithoutIdentityShareAQuarter(t *testing.T) {
	t.Parallel()
	l := newLimits(t, small())
	for i := range 8 {
		begin(t, l, string(rune('a'+i)), false)
	}
	_, err := l.Begin("z", false)
	wantExceeded(t, "a ninth request", err)
	begin(t, l, "a", true)
	r := begin(t, newLimits(t, small()), "a", false)
	wantExceeded(t, "more bytes than the quarter", r.Hold(2<<20+1))
}

func TestRequest_HoldsTheLargerOfBodyAndAnswer(t *testing.T) {
	t.Parallel()
	l := newLimits(t, small())
	r, other := begin(t, l, "a", true), begin(t, l, "a", true)
	for _, n := range []int64{600 << 10, 500 << 10, 800 << 10} {
		if err := r.Hold(n); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if got := r.Reserved(); got != 800<<10 {
		t.Errorf("%d bytes are held", got)
	}
	wantExceeded(t, "more than the share", r.Hold(1<<20+1))
	wantExceeded(t, "another request", other.Hold(300<<10))
	r.Shrink(100 << 10)
	if err := other.Hold(900 << 10); err != nil {
		t.Errorf("after less is held: %v", err)
	}
	r.End()
	if err := other.Hold(1 << 20); err != nil {
		t.Errorf("after the other has ended: %v", err)
	}
	if err := r.Hold(1 << 20); err != nil {
		t.Errorf("a request that has ended takes: %v", err)
	}
	r.Shrink(0)
}

// TestRequest_StreamsHaveTheirOwnShare: a stream does not count as a request, and one too
// many is refused, so that streams leave the places of plain calls alone.
func TestRequest_StreamsHaveTheirOwnShare(t *testing.T) {
	t.Parallel()
	l := newLimits(t, small())
	var streams []*inflight.Request
	for range 2 {
		r := begin(t, l, "a", true)
		if err := r.Stream(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, r)
	}
	third := begin(t, l, "a", true)
	wantExceeded(t, "a third stream", third.Stream())
	third.End()
	for range 4 {
		begin(t, l, "a", true)
	}
	_, err := l.Begin("a", true)
	wantExceeded(t, "a fifth plain call", err)
	streams[0].End()
	if err := streams[0].Stream(); err != nil {
		t.Errorf("a stream that has ended: %v", err)
	}
}

func TestLimits_NewBoundsHoldFromNowOn(t *testing.T) {
	t.Parallel()
	l := newLimits(t, small())
	r := begin(t, l, "a", true)
	next := small()
	next.RequestsPerCaller, next.BytesPerCaller = 1, 2<<20
	if err := l.Reconfigure(next); err != nil {
		t.Fatal(err)
	}
	_, err := l.Begin("a", true)
	wantExceeded(t, "a second request", err)
	if err := r.Hold(2 << 20); err != nil {
		t.Error(err)
	}
	if err := l.Reconfigure(inflight.Config{}); err == nil {
		t.Error("bounds that bound nothing are taken")
	}
}

func TestConfig_BoundsThatBoundNothingAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*inflight.Config){
		"no time for bodies":       func(c *inflight.Config) { c.BodyWait = 0 },
		"no time for readers":      func(c *inflight.Config) { c.WriteWait = -1 },
		"a negative share":         func(c *inflight.Config) { c.RequestsPerCaller = -1 },
		"a negative share, bytes":  func(c *inflight.Config) { c.BytesPerCaller = -1 },
		"a negative share, stream": func(c *inflight.Config) { c.StreamsPerCaller = -1 },
	} {
		c := small()
		change(&c)
		if _, err := inflight.New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestRequest_Crowded: no agent is asked for a caller of whom many answers wait, and again when they do not.
func TestRequest_Crowded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(t, small())
		holder := begin(t, l, "a", true)
		if err := holder.Hold(1 << 20); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for n := range 16 {
			if err := holder.Crowded(); err != nil {
				t.Errorf("while %d answers wait: %v", n, err)
			}
			go func() { _ = l.Aside("a", true).Answer(ctx, "large", 100<<10, true) }()
			synctest.Wait()
		}
		wantExceeded(t, "while 16 answers wait", holder.Crowded())
		if err := l.Aside("b", true).Crowded(); err != nil {
			t.Errorf("another caller: %v", err)
		}
		cancel()
		synctest.Wait()
		if err := holder.Crowded(); err != nil {
			t.Errorf("when no answer waits any more: %v", err)
		}
	})
}

// TestAttack_LargeRequestsOfLongStreams: a caller opens streams whose requests are large, one after the other.
// What a request sent is kept as long as it is under way, so it counts as long: neither an answer nor a large
// event that is sent to its caller gives it back.
func TestAttack_LargeRequestsOfLongStreams(t *testing.T) {
	t.Parallel()
	l := newLimits(t, small())
	r, next := begin(t, l, "mallory", true), begin(t, l, "mallory", true)
	if err := r.Hold(800 << 10); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{10, 100 << 10, 0} {
		if err := errors.Join(r.Answer(t.Context(), "agent", n, true), r.Send(t.Context(), 200<<10)); err != nil {
			t.Fatal(err)
		}
		r.Sent()
		if err := next.Hold(300 << 10); err == nil || r.Reserved() != 800<<10 {
			t.Fatalf("after an answer of %d bytes it holds %d, and the next request is let in: %v", n, r.Reserved(), err)
		}
	}
}

// TestAttack_TwoCallersHoldTheBytes: two callers hold as much as they get, with bodies and with answers that
// they do not read. A third one brings a body and has an answer of 3 MB nevertheless.
func TestAttack_TwoCallersHoldTheBytes(t *testing.T) {
	t.Parallel()
	c := small()
	c.Bytes, c.BytesPerCaller = 32<<20, 17<<20 // the defaults
	l := newLimits(t, c)
	for _, caller := range []string{"mallory", "eve"} {
		for size := int64(16 << 20); size >= 100<<10; size /= 2 {
			for range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				r := l.Aside(caller, true)
				_ = r.Hold(size)
				_ = r.Answer(ctx, "agent", size+size/4, true)
				cancel()
			}
		}
	}
	_, _, used := l.Usage()
	victim := begin(t, l, "victim", true)
	if err := victim.Hold(3_000_000); err != nil {
		t.Errorf("a body of 3 MB beside %d bytes of two callers: %v", used[0].Used, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := victim.Answer(ctx, "agent", 3_000_000, true); err != nil {
		t.Errorf("an answer of 3 MB: %v", err)
	}
}
