package breakers_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// evidence notes what is signed, and metrics what is counted.
type evidence struct {
	mu     sync.Mutex
	tokens []string
}

func (e *evidence) note(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tokens = append(e.tokens, text)
}

func (e *evidence) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	tokens := e.tokens
	e.tokens = nil
	return tokens
}

func (e *evidence) sign(_ context.Context, _ string, act ect.Act, ext ect.Ext) (string, error) {
	words := []string{string(act)}
	for _, key := range []string{"atd.downstream_agent", "atd.error_rate", "atd.window_s", "atd.cooldown_s", "atd.escalation"} {
		if value, ok := ext[key]; ok {
			words = append(words, string(value))
		}
	}
	e.note(strings.Join(words, " "))
	return "token", nil
}

type metrics struct{ evidence }

func (m *metrics) BreakerChanged(agent, to string) { m.note(agent + " " + to) }
func (m *metrics) BreakerEscalated(reason string)  { m.note("escalated " + reason) }

// replica is one process with its breakers, and what it sends to.
type replica struct {
	*breakers.Set
	evidence
	metrics
	sender  outbound.Sender
	entries *state.Entries
	calls   *atomic.Int64 // how often the agent was
}

// escalated notes what operators are told.
func (r *replica) escalated(_ context.Context, e breakers.Event) {
	r.metrics.note("told " + e.Agent + " " + e.State + " " + e.Reason + " " + e.Token)
}

// agent is what all replicas send to.
type agent struct {
	calls  atomic.Int64
	answer atomic.Pointer[func(context.Context, *outbound.Call) (outbound.Reply, error)]
}

func (a *agent) is(answer func(context.Context, *outbound.Call) (outbound.Reply, error)) {
	a.answer.Store(&answer)
}

// Send implements outbound.Sender.
func (a *agent) Send(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
	a.calls.Add(1)
	return (*a.answer.Load())(ctx, call)
}

// good answers, and down cannot be reached.
func good(context.Context, *outbound.Call) (outbound.Reply, error) {
	return outbound.Reply{Reply: transport.Reply{Wire: translators.Wire{Body: []byte("{}")}}}, nil
}

func down(context.Context, *outbound.Call) (outbound.Reply, error) {
	return outbound.Reply{}, &transport.UnreachableError{Agent: "calculator", Err: syscall.ECONNREFUSED}
}

// slow is a store that many have read before one of them writes.
type slow struct {
	*state.Entries

	delay time.Duration
}

func (s slow) Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error) {
	entry, ok, err := s.Entries.Get(ctx, key)
	time.Sleep(s.delay)
	return entry, ok, err
}

// fleet makes replicas over one store.
func fleet(t *testing.T, a *agent, names ...string) []*replica {
	t.Helper()
	return fleetOver(t, a, 0, names...)
}

func fleetOver(t *testing.T, a *agent, delay time.Duration, names ...string) []*replica {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*replica, len(names))
	for i, name := range names {
		r := &replica{calls: &a.calls, entries: memory.Entries()}
		if r.Set, err = breakers.New(breakers.Deps{
			Entries: slow{memory.Entries(), delay}, Sign: r.evidence.sign, Metrics: &r.metrics, Escalate: r.escalated, Replica: name, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		}); err != nil {
			t.Fatal(err)
		}
		r.sender = outbound.NewChain(a, r.Stage)
		all[i] = r
	}
	return all
}

var calculator = transport.Endpoint{Agent: "calculator", ID: "spiffe://example.org/calculator", Caller: "spiffe://example.org/ann"}

// call sends one message and says what its reply was, as a pipeline does.
func (r *replica) call(ctx context.Context, as ect.Identity) error {
	call := &outbound.Call{Kind: outbound.Message, Endpoint: calculator, Agent: "calculator"}
	call.Endpoint.Caller = as
	reply, err := r.sender.Send(ctx, call)
	if err == nil && reply.Events == nil && len(reply.Wire.Body) > 0 {
		r.Report(ctx, breakers.Target{Kind: call.Kind, Endpoint: call.Endpoint, Label: call.Agent}, nil)
	}
	return err
}

const ann = ect.Identity("spiffe://example.org/ann")

func (r *replica) times(t *testing.T, n int) {
	t.Helper()
	for range n {
		_ = r.call(t.Context(), ann)
	}
}

// refused is how long an open breaker keeps a call back; 0: it lets the call through.
func refused(err error) time.Duration {
	if open, ok := errors.AsType[*problem.CircuitOpenError](err); ok {
		return open.RetryAfter
	}
	return 0
}

// TestStage_OpensProbesAndCloses: an agent that fails is left alone, is tried once after the
// cool-down, which doubles, and is asked again when it has answered; each change has a token.
func TestStage_OpensProbesAndCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(down)
		r := fleet(t, a, "one")[0]
		r.times(t, 4)
		if err := r.call(t.Context(), ann); refused(err) != 0 {
			t.Fatalf("the fifth call was refused: %v", err)
		}
		if err := r.call(t.Context(), ann); refused(err) != 30*time.Second || a.calls.Load() != 5 {
			t.Fatalf("after five failures: %v, asked %d times", err, a.calls.Load())
		}
		for _, seconds := range []int{30, 60, 120, 240, 300, 300} {
			cooldown := time.Duration(seconds) * time.Second
			time.Sleep(cooldown - time.Second)
			before := a.calls.Load()
			if err := r.call(t.Context(), ann); refused(err) != time.Second || a.calls.Load() != before {
				t.Errorf("a second before %v: %v", cooldown, err)
			}
			time.Sleep(time.Second)
			if r.times(t, 10); a.calls.Load() != before+1 {
				t.Errorf("after %v it was asked %d times, want once", cooldown, a.calls.Load()-before)
			}
		}
		a.is(good)
		time.Sleep(5 * time.Minute)
		r.times(t, 3)
		if err := r.call(t.Context(), ann); err != nil {
			t.Errorf("it answers, and is not asked: %v", err)
		}
		tokens := r.evidence.take()
		opened := `atd:circuit_open "spiffe://example.org/calculator" 1 60`
		if len(tokens) != 9 || tokens[0] != opened || tokens[4] != `atd:escalate "spiffe://example.org/calculator" "probes"` || tokens[8] != `atd:circuit_close "spiffe://example.org/calculator" 300` {
			t.Errorf("signed were %q", tokens)
		}
		if counted := r.metrics.take(); !slices.Contains(counted, "escalated probes") || !slices.Contains(counted, "told spiffe://example.org/calculator escalated probes token") || counted[len(counted)-1] != "calculator closed" {
			t.Errorf("counted were %q", counted)
		}
		if list := r.List(); len(list) != 1 || list[0].State != "closed" || list[0].Agent != string(calculator.ID) {
			t.Errorf("listed are %+v", list)
		}
	})
}

// TestAttack_CallsOperatorsAboutOwnHosts: hosts and documents that a caller names call no human, however
// often they fail.
func TestAttack_CallsOperatorsAboutOwnHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		a.is(down)
		r := fleet(t, a, "one")[0]
		send := func() {
			_, _ = r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Webhook, Webhook: canonical.PushConfig{URL: "https://eve.example/"}})
			_, _ = r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: "https://eve.example/document"}})
		}
		for range 5 {
			send()
		}
		for _, wait := range []int{30, 60, 120, 240} {
			time.Sleep(time.Duration(wait) * time.Second)
			send()
		}
		for _, counted := range r.metrics.take() {
			if strings.HasPrefix(counted, "told ") || strings.HasPrefix(counted, "escalated ") {
				t.Errorf("operators were %s", counted)
			}
		}
	})
}

// TestStage_OneProbeOfAllReplicas: a hundred callers at three replicas make one probe, and
// what it comes to holds for all of them.
func TestStage_OneProbeOfAllReplicas(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"answers": true, "fails": false} {
		synctest.Test(t, func(t *testing.T) {
			a := &agent{}
			a.is(down)
			all := fleetOver(t, a, 10*time.Millisecond, "one", "two", "three")
			for _, r := range all {
				r.times(t, 5)
			}
			time.Sleep(30 * time.Second)
			before := a.calls.Load()
			a.is(func(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
				time.Sleep(2 * time.Second)
				if answers {
					return good(ctx, call)
				}
				return down(ctx, call)
			})
			var group sync.WaitGroup
			for i := range 100 {
				group.Go(func() { _ = all[i%3].call(t.Context(), ann) })
			}
			group.Wait()
			if n := a.calls.Load() - before; n != 1 {
				t.Errorf("%s: the agent was asked %d times, want one probe", name, n)
			}
			time.Sleep(2 * time.Second)
			before = a.calls.Load()
			for _, r := range all {
				if err := r.call(t.Context(), ann); (err == nil) != answers {
					t.Errorf("%s: afterwards %v", name, err)
				}
			}
			if n := a.calls.Load() - before; n != map[bool]int64{true: 3, false: 0}[answers] {
				t.Errorf("%s: afterwards it was asked %d times", name, n)
			}
		})
	}
}

// TestAttack_OneCallerOpensABreaker: a caller whose messages make an agent time out, or end the
// connection, keeps no other caller out, also where the others are quiet for longer than the
// window; several callers who meet that do open it.
func TestAttack_OneCallerOpensABreaker(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]error{
		"times out":            &transport.TimeoutError{Agent: "calculator", After: time.Second},
		"hangs up":             &transport.UnreachableError{Agent: "calculator", Err: io.EOF},
		"resets":               &transport.UnreachableError{Agent: "calculator", Err: syscall.ECONNRESET},
		"answers with nothing": &transport.BadReplyError{Agent: "calculator", Reason: "not a reply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneCallerFails(t, late)
		})
	}
}

func oneCallerFails(t *testing.T, late error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		eve, bob := ect.Identity("spiffe://example.org/eve"), ect.Identity("spiffe://example.org/bob")
		bad := map[ect.Identity]bool{eve: true}
		a.is(func(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
			if bad[call.Endpoint.Caller] {
				return outbound.Reply{}, late
			}
			return good(ctx, call)
		})
		r := fleet(t, a, "one")[0]
		r.times(t, 1)
		for _, quiet := range []time.Duration{0, 10 * time.Minute} {
			time.Sleep(quiet)
			for range 50 {
				_ = r.call(t.Context(), eve)
			}
		}
		if err := r.call(t.Context(), ann); err != nil {
			t.Errorf("one caller has opened it for others: %v", err)
		}
		bad[bob], bad[ann] = true, true
		for range 10 {
			_, _, _ = r.call(t.Context(), bob), r.call(t.Context(), ann), r.call(t.Context(), eve)
		}
		if err := r.call(t.Context(), ann); refused(err) == 0 {
			t.Errorf("the agent fails for all, and is asked: %v", err)
		}
	})
}

// TestStage_UnreachableForOne: that an agent cannot be reached is no caller's doing, so one caller who
// meets it opens the breaker, also where others had answers before.
func TestStage_UnreachableForOne(t *testing.T) {
	t.Parallel()
	a := &agent{}
	a.is(good)
	r := fleet(t, a, "one")[0]
	_ = r.call(t.Context(), "spiffe://example.org/bob")
	a.is(down)
	r.times(t, 5)
	if err := r.call(t.Context(), ann); refused(err) == 0 {
		t.Errorf("after five failures of six calls: %v", err)
	}
}

// TestReport_Outcomes: a refusal that an agent means is an answer, and so is an error of one of its tools.
func TestReport_Outcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		opens bool
	}{
		"bad parameters":                     {&canonical.Error{Code: canonical.CodeBadParams}, false},
		"no such task":                       {&canonical.Error{Code: canonical.CodeTaskNotFound}, false},
		"rate limited":                       {&canonical.Error{Code: canonical.CodeRateLimited}, false},
		"its own error":                      {&canonical.Error{Code: canonical.CodeInternal}, false},
		"not available":                      {&canonical.Error{Code: canonical.CodeUnavailable}, true},
		"unreadable":                         {&transport.BadReplyError{Agent: "calculator", Reason: "not a reply"}, true},
		"status 404":                         {transport.BadStatus(transport.Endpoint{Agent: "calculator"}, "status", 404, nil), false},
		"status 502":                         {transport.BadStatus(transport.Endpoint{Agent: "calculator"}, "status", 502, nil), true},
		"a gateway that refuses the message": {&transport.RefusedError{Status: 403}, false},
		"a gateway that fails":               {&transport.RefusedError{Status: 500}, true},
		"the caller left":                    {context.Canceled, false},
		"our own refusal":                    {&policy.Denied{}, false},
		"an answer":                          {nil, false},
	} {
		a := &agent{}
		a.is(good)
		r := fleet(t, a, "one")[0]
		target := breakers.Target{Kind: outbound.Message, Endpoint: calculator, Label: "calculator"}
		for range 10 {
			r.Report(t.Context(), target, c.err)
		}
		if err := r.call(t.Context(), ann); (refused(err) > 0) != c.opens {
			t.Errorf("%s: %v, want open: %v", name, err, c.opens)
		}
	}
}

// stream gives so many events and then an error.
type stream struct {
	events int
	end    error
}

func (s *stream) Next(context.Context) (transport.Event, error) {
	if s.events--; s.events < 0 {
		return transport.Event{}, s.end
	}
	return transport.Event{Wire: translators.Wire{Body: []byte("{}")}}, nil
}

func (s *stream) Close() error { return nil }

// TestStage_Streams: a stream that breaks after its first event is a failure; one that ends, or
// that its reader leaves, is an answer; the first event of a probe closes the breaker.
func TestStage_Streams(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, r *replica, leaves bool) error {
		t.Helper()
		reply, err := r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Message, Endpoint: calculator, Agent: "calculator"})
		if err != nil {
			return err
		}
		for err == nil && !leaves {
			_, err = reply.Events.Next(t.Context())
		}
		_ = reply.Events.Close()
		return nil
	}
	for name, c := range map[string]struct {
		end    error
		leaves bool
		opens  bool
	}{
		"breaks": {&transport.UnreachableError{Agent: "calculator", Err: io.EOF}, false, true},
		"ends":   {io.EOF, false, false},
		"left":   {io.EOF, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &agent{}
			a.is(func(context.Context, *outbound.Call) (outbound.Reply, error) {
				return outbound.Reply{Reply: transport.Reply{Events: &stream{2, c.end}}}, nil
			})
			r := fleet(t, a, "one")[0]
			for range 6 {
				_ = read(t, r, c.leaves)
			}
			if err := read(t, r, c.leaves); (refused(err) > 0) != c.opens {
				t.Errorf("%s: %v, want open: %v", name, err, c.opens)
			}
			if !c.opens {
				return
			}
			time.Sleep(30 * time.Second)
			a.is(func(context.Context, *outbound.Call) (outbound.Reply, error) {
				return outbound.Reply{Reply: transport.Reply{Events: &stream{1, io.EOF}}}, nil
			})
			if err := errors.Join(read(t, r, false), read(t, r, false)); err != nil {
				t.Errorf("%s: the probe has answered, and the next is refused: %v", name, err)
			}
		})
	}
}

// TestStage_Descriptions: an agent that says what it is and fails at its work is left alone;
// after the cool-down it may be asked what it is, and the message behind that is the probe.
func TestStage_Descriptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{}
		work, describes := down, func() error { return nil }
		a.is(func(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
			if call.Kind == outbound.Description {
				return outbound.Reply{}, describes()
			}
			return work(ctx, call)
		})
		r := fleet(t, a, "one")[0]
		ask := func() error {
			_, described := r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Description, Endpoint: calculator, Agent: "calculator"})
			if described != nil {
				return described
			}
			return r.call(t.Context(), ann)
		}
		for range 5 {
			_ = ask()
		}
		before := a.calls.Load()
		if err := ask(); refused(err) != 30*time.Second || a.calls.Load() != before {
			t.Fatalf("after five failures: %v", err)
		}
		time.Sleep(30 * time.Second)
		if err := ask(); refused(err) != 0 || a.calls.Load() != before+2 {
			t.Errorf("after the cool-down: %v, asked %d times, want the question and the probe", err, a.calls.Load()-before)
		}
		if err := ask(); refused(err) != time.Minute {
			t.Errorf("after a failed probe: %v", err)
		}
		describes = func() error { return &transport.BadReplyError{Agent: "calculator", Reason: "it refuses describe"} }
		other := fleet(t, a, "another")[0]
		for range 10 {
			_, _ = other.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Description, Endpoint: calculator, Agent: "calculator"})
		}
		if err := other.call(t.Context(), ann); refused(err) > 0 {
			t.Errorf("an agent that refuses a part of its description is not asked: %v", err)
		}
		describes = func() error { return nil }
		work = good
		time.Sleep(time.Minute)
		if err := errors.Join(ask(), ask()); err != nil {
			t.Errorf("it works again: %v", err)
		}
	})
}

// TestStage_ApartByDestination: an agent's breaker keeps no other agent, gateway or webhook back.
func TestStage_ApartByDestination(t *testing.T) {
	t.Parallel()
	a := &agent{}
	a.is(down)
	r := fleet(t, a, "one")[0]
	r.times(t, 6)
	other := calculator
	other.Agent = "other"
	for name, call := range map[string]*outbound.Call{
		"another agent": {Kind: outbound.Message, Endpoint: other},
		"a gateway":     {Kind: outbound.Peer, Endpoint: calculator},
		"a webhook":     {Kind: outbound.Webhook, Webhook: canonical.PushConfig{URL: "https://calculator/hook"}},
		"a callback":    {Kind: outbound.Callback, Decision: transport.Decision{URL: "https://waits/x"}},
	} {
		if _, err := r.sender.Send(t.Context(), call); refused(err) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Description, Endpoint: calculator}); refused(err) == 0 {
		t.Errorf("who the agent is, is asked: %v", err)
	}
}

// TestAttack_EndlessDestinations: hosts that a caller names without end take no more than so many breakers,
// an open one is not forgotten for them, a listed agent has one in any case, and replicas share none of them.
func TestAttack_EndlessDestinations(t *testing.T) {
	t.Parallel()
	a := &agent{}
	a.is(down)
	r := fleet(t, a, "one")[0]
	r.times(t, 5)
	for i := range 10_000 {
		host := strings.Repeat("x", i%50) + "." + time.Duration(i).String()
		_, _ = r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Webhook, Webhook: canonical.PushConfig{URL: "https://" + host + "/"}})
	}
	if err := r.call(t.Context(), ann); refused(err) == 0 {
		t.Errorf("the open breaker is gone: %v", err)
	}
	for i := range 5 * 4096 {
		_, _ = r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Webhook, Webhook: canonical.PushConfig{URL: "https://down" + strconv.Itoa(i/5) + "/"}})
	}
	if n := r.Count(); n > 4096 {
		t.Errorf("there are %d breakers", n)
	}
	if shared, err := r.entries.List(t.Context(), breakers.KindBreaker, "host down1", "", 10); err != nil || len(shared) > 0 {
		t.Errorf("the store holds %v of a host that a caller named, %v", shared, err)
	}
	if seen := r.metrics.take(); !slices.Contains(seen, "webhook open") || slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, "down1") }) {
		t.Errorf("the labels are %.200v", seen)
	}
	late := calculator
	late.Agent = "late"
	for range 5 {
		_, _ = r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Message, Endpoint: late})
	}
	if _, err := r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Message, Endpoint: late}); refused(err) == 0 {
		t.Errorf("a listed agent has no breaker any more: %v", err)
	}
}

// TestAttack_LabelThatACallerMade: the URL of a document that a caller names is no label of a metric.
func TestAttack_LabelThatACallerMade(t *testing.T) {
	t.Parallel()
	a := &agent{}
	a.is(down)
	r := fleet(t, a, "one")[0]
	const document = "https://eve.example/agent"
	for range 5 {
		_, _ = r.sender.Send(t.Context(), &outbound.Call{Kind: outbound.Description, Endpoint: transport.Endpoint{Agent: document}, Agent: document})
	}
	if seen := r.metrics.take(); !slices.Equal(seen, []string{"document open"}) {
		t.Errorf("the labels are %q", seen)
	}
}

// TestSet_Configured: what the operator demands holds from then on.
func TestSet_Configured(t *testing.T) {
	t.Parallel()
	a := &agent{}
	a.is(down)
	r := fleet(t, a, "one")[0]
	r.Configure(policy.Circuit{Samples: 2})
	r.times(t, 2)
	if err := r.call(t.Context(), ann); refused(err) == 0 {
		t.Errorf("after two failures of two: %v", err)
	}
}

// TestSet_ConfiguredByDocument: threshold and window of a policy document open breakers (ATD, Circuit
// Breaker Policy Configuration).
func TestSet_ConfiguredByDocument(t *testing.T) {
	t.Parallel()
	for document, opens := range map[string]bool{
		`{"constraints":{"atd.circuit_threshold":0.9,"atd.circuit_window_s":60}}`: false, // two of four
		`{"constraints":{"atd.circuit_threshold":0.4,"atd.circuit_window_s":60}}`: true,
		`{"constraints":{"atd.circuit_threshold":0.4,"atd.circuit_window_s":1}}`:  false, // the failures are too old
	} {
		t.Run(document, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				read, err := policy.ParseDocument([]byte(document))
				if err != nil {
					t.Fatal(err)
				}
				a := &agent{}
				r := fleet(t, a, "one")[0]
				circuit := read.Narrow(policy.Constraints{}, "spiffe://example.org/gateway").Circuit
				circuit.Samples = 4
				r.Configure(circuit)
				a.is(good)
				r.times(t, 2)
				a.is(down)
				r.times(t, 1)
				time.Sleep(2 * time.Second)
				r.times(t, 1)
				if got := refused(r.call(t.Context(), ann)) != 0; got != opens {
					t.Errorf("refused: %v, want %v", got, opens)
				}
			})
		})
	}
}

// TestWatch_Changes: who watches hears each change with its token, and one who does not read loses its stream.
func TestWatch_Changes(t *testing.T) {
	t.Parallel()
	a := &agent{}
	a.is(down)
	r := fleet(t, a, "one")[0]
	changes, end, err := r.Watch(ann)
	if err != nil {
		t.Fatal(err)
	}
	r.times(t, 5)
	if e := <-changes; e.State != "open" || e.Token != "token" || e.Agent != string(calculator.ID) || e.Replica != "one" {
		t.Errorf("heard %+v", e)
	}
	end()
	if _, open := <-changes; open {
		t.Error("the channel is open after its end")
	}
	end()
}

// TestAttack_WatchesWithoutEnd: one identity that watches without end leaves the others their watches, and
// has its own again when it has ended some.
func TestAttack_WatchesWithoutEnd(t *testing.T) {
	t.Parallel()
	r := fleet(t, &agent{}, "one")[0]
	var ends []func()
	for range 100 {
		if _, end, err := r.Watch("spiffe://example.org/eve"); err == nil {
			ends = append(ends, end)
		} else if exceeded, ok := errors.AsType[*quota.ExceededError](err); !ok || !exceeded.Own {
			t.Fatalf("refused with %v", err)
		}
	}
	if len(ends) != 4 {
		t.Errorf("one identity has %d watches", len(ends))
	}
	for i := range 40 {
		if _, _, err := r.Watch(ect.Identity("spiffe://example.org/" + strconv.Itoa(i))); err != nil {
			t.Fatalf("watcher %d: %v", i, err)
		}
	}
	ends[0]()
	if _, _, err := r.Watch("spiffe://example.org/eve"); err != nil {
		t.Errorf("after it has ended one: %v", err)
	}
	r.EndWatches()
	if changes, _, err := r.Watch(ann); err != nil {
		t.Error(err)
	} else if _, open := <-changes; open {
		t.Error("a gateway that ends goes on")
	}
}

// TestSet_ManyAgents: three listed agents whose breakers open within a minute call a human; hosts that a
// caller names do not.
func TestSet_ManyAgents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call func(i int) *outbound.Call
		due  bool
	}{
		"agents": {func(i int) *outbound.Call {
			return &outbound.Call{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: "agent" + strconv.Itoa(i)}}
		}, true},
		"documents": {func(i int) *outbound.Call {
			return &outbound.Call{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: "https://host/" + strconv.Itoa(i)}}
		}, false},
		"webhooks": {func(i int) *outbound.Call {
			return &outbound.Call{Kind: outbound.Webhook, Webhook: canonical.PushConfig{URL: "https://host" + strconv.Itoa(i) + "/"}}
		}, false},
	} {
		a := &agent{}
		a.is(down)
		r := fleet(t, a, "one")[0]
		for i := range 3 {
			for range 5 {
				_, _ = r.sender.Send(t.Context(), c.call(i))
			}
		}
		if got := slices.Contains(r.metrics.take(), "escalated many_agents"); got != c.due {
			t.Errorf("%s: escalated %v", name, got)
		}
	}
}

// TestNew_IncompleteDeps: every dependency is required.
func TestNew_IncompleteDeps(t *testing.T) {
	t.Parallel()
	if _, err := breakers.New(breakers.Deps{}); err == nil {
		t.Error("a set without anything was made")
	}
	var nothing *breakers.Set
	nothing.Report(t.Context(), breakers.Target{}, nil)
	nothing.Configure(policy.Circuit{})
}
