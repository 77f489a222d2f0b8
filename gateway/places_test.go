package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/problem"
	waits "github.com/aepb/aepb-gateway/gateway/schedule"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// serviceTime is how long the agent takes for a call, in virtual time.
const serviceTime = 2 * time.Second

// queue is a gateway whose agent does so many calls at once.
type queue struct {
	*fixture

	mu      sync.Mutex
	order   []string // operands a of the calls, in the order in which they came to the agent
	running atomic.Int64
	most    atomic.Int64
	all     sync.WaitGroup
}

// classOf gives callers their classes by their names.
var classOf = []waits.Priority{
	{Callers: []ect.Identity{"spiffe://example.com/critical/*"}, Class: schedule.Critical},
	{Callers: []ect.Identity{"spiffe://example.com/high/*"}, Class: schedule.High},
	{Callers: []ect.Identity{"spiffe://example.com/low/*"}, Class: schedule.Low},
	{Callers: []ect.Identity{"spiffe://example.com/client"}, Class: schedule.High},
}

func places(n int) waits.Rules {
	return waits.Rules{Agents: map[string]schedule.Config{"calculator": {Places: n}}, Priorities: classOf}
}

// inQueue runs a test in virtual time.
func inQueue(t *testing.T, concurrency int, test func(t *testing.T, b *queue), edits ...func(*gateway.Deps)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &queue{}
		wide := func(d *gateway.Deps) {
			var err error
			if d.Limiter, err = limit.New(limit.Config{Rate: 1e6, Burst: 1e6}, limit.Deps{Now: time.Now}); err != nil {
				t.Fatal(err)
			}
		}
		b.fixture = newFixture(t, gateway.Settings{Schedule: places(concurrency)}, policy.Rules{Open: true}, append(edits, wide)...)
		b.clock = time.Now
		b.agent.called = func(_ string, args json.RawMessage) (string, error) {
			var sum struct{ A int }
			if err := json.Unmarshal(args, &sum); err != nil {
				return "", err
			}
			b.mu.Lock()
			b.order = append(b.order, fmt.Sprint(sum.A))
			b.mu.Unlock()
			if n := b.running.Add(1); n > b.most.Load() {
				b.most.Store(n)
			}
			<-time.After(serviceTime)
			b.running.Add(-1)
			return fmt.Sprintf(`{"resultType":"complete","content":[],"structuredContent":{"sum":%d}}`, sum.A+2), nil
		}
		defer func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, b)
		b.wait(t)
	})
}

// wait waits for all calls that were sent, but not for ever.
func (b *queue) wait(t *testing.T) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.all.Wait()
	}()
	select {
	case <-over:
	case <-time.After(24 * time.Hour):
		t.Fatal("a call still waits after a day")
	}
}

func summing(a int) string { return strings.Replace(addBody, `"a":1`, fmt.Sprintf(`"a":%d`, a), 1) }

// by is a call of another caller, without a token.
func (b *queue) by(caller string, a int) transport.Call {
	call := b.call(summing(a))
	call.Caller.Peer = ect.Peer{ID: ect.Identity("spiffe://example.com/" + caller)}
	return call
}

// send sends a call, and has done called with what came of it and how long it took.
func (b *queue) send(ctx context.Context, call transport.Call, done func(transport.Answer, error, time.Duration)) {
	began := time.Now()
	b.all.Go(func() {
		answer, err := b.Exchange(ctx, call)
		b.mu.Lock()
		defer b.mu.Unlock()
		done(answer, err, time.Since(began))
	})
	synctest.Wait() // so that calls come in the order in which they are sent
}

// fill takes all places of the agent.
func (b *queue) fill(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		b.send(t.Context(), b.by(fmt.Sprint("first/", i), 0), func(transport.Answer, error, time.Duration) {})
	}
}

// TestPlaces_OrderByClass: an agent of concurrency 4 for which a hundred calls wait gets never more than four calls at once, and
// gets them by class (ATD-62, ATD-66); no critical call takes longer than twice the service time.
func TestPlaces_OrderByClass(t *testing.T) {
	inQueue(t, 4, func(t *testing.T, b *queue) {
		t.Helper()
		b.Apply(gateway.Settings{Schedule: waits.Rules{Agents: map[string]schedule.Config{"calculator": {Places: 4, Longest: time.Hour}}, Priorities: classOf}})
		b.fill(t, 4)
		classes, slowest, refused := []string{"low", "normal", "high"}, time.Duration(0), 0
		for i := range 96 {
			class := classes[i/32]
			b.send(t.Context(), b.by(fmt.Sprintf("%s/%d", class, i%5), i/32+1), func(_ transport.Answer, err error, _ time.Duration) {
				if err != nil {
					refused++
				}
			})
		}
		for i := range 4 {
			b.send(t.Context(), b.by(fmt.Sprint("critical/", i), 9), func(_ transport.Answer, err error, took time.Duration) {
				if err != nil {
					t.Error(err)
				}
				slowest = max(slowest, took)
			})
		}
		b.wait(t)
		want := strings.Repeat("0", 4) + strings.Repeat("9", 4) + strings.Repeat("3", 32) + strings.Repeat("2", 32) + strings.Repeat("1", 32)
		if got := strings.Join(b.order, ""); got != want || refused != 0 || b.most.Load() != 4 {
			t.Errorf("the order is\n%s, want\n%s; %d refused, %d at once", got, want, refused, b.most.Load())
		}
		if slowest > 2*serviceTime {
			t.Errorf("a critical call took %s: expected at most twice %s", slowest, serviceTime)
		}
	})
}

// TestPlaces_ResultsDoNotDependOnHints: with hints in the tokens of callers, without them, and without a queue at all the
// same calls have the same results (ATD-65). An unknown hint changes nothing.
func TestPlaces_ResultsDoNotDependOnHints(t *testing.T) {
	inQueue(t, 2, func(t *testing.T, b *queue) {
		t.Helper()
		var results []string
		for _, hints := range [][]string{{""}, {"low", "high", "critical", "urgent", "normal"}, nil} {
			if hints == nil {
				b.Apply(gateway.Settings{Schedule: waits.Rules{}})
				hints = []string{"low"}
			}
			got := make([]string, 12)
			for i := range got {
				call := b.call(summing(i))
				call.Evidence = []string{b.hinting(t, summing(i), hints[i%len(hints)])}
				b.send(t.Context(), call, func(answer transport.Answer, err error, _ time.Duration) {
					got[i] = fmt.Sprint(strings.Contains(string(answer.Wire().Body), fmt.Sprintf(`"sum":%d`, i+2)), err)
				})
			}
			b.wait(t)
			results = append(results, strings.Join(got, " "))
		}
		want := strings.TrimSpace(strings.Repeat("true <nil> ", 12))
		if results[0] != want || results[1] != want || results[2] != want {
			t.Errorf("the results are %q", results)
		}
	})
}

// hinting signs a task of the caller with a hint.
func (b *queue) hinting(t *testing.T, body, hint string) string {
	t.Helper()
	c := ect.Claims{
		Audience: []string{string(b.self.ID)}, Workflow: string(ect.NewID()), Act: "send_task", OutputHash: ect.Hash([]byte(body)), Ext: ect.Ext{},
	}
	if hint != "" {
		c.Ext.SetString(ect.ExtPriority, hint)
	}
	token, err := b.caller.Signer(t, time.Now).Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return token.Compact()
}

// TestPlaces_CallersHintOnlyLowers: a caller may lower its class with atd.resource_priority, and not raise it above that
// of the operator.
func TestPlaces_CallersHintOnlyLowers(t *testing.T) {
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		b.fill(t, 1)
		nothing := func(_ transport.Answer, err error, _ time.Duration) {
			if err != nil {
				t.Error(err)
			}
		}
		for i, hint := range []string{"low", "critical", ""} { // the caller's class is high
			call := b.call(summing(i + 1))
			call.Evidence = []string{b.hinting(t, summing(i+1), hint)}
			b.send(t.Context(), call, nothing)
		}
		b.send(t.Context(), b.by("normal", 4), nothing)
		b.send(t.Context(), b.by("high/1", 5), nothing)
		b.send(t.Context(), b.by("critical/1", 6), nothing)
		b.wait(t)
		if got := strings.Join(b.order, ""); got != "0623541" {
			t.Errorf("the order is %s: expected critical of the operator first, then high by age, normal, and the lowered call last", got)
		}
	})
}

// TestAttack_QueueFilledByOneCaller: a caller that fills its share of the queue is refused with 429 and Retry-After, and a
// call of another caller waits and is done.
func TestAttack_QueueFilledByOneCaller(t *testing.T) {
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		b.fill(t, 1)
		refused := 0
		for range 100 {
			call := b.by("flood", 1)
			call.Detached = false
			b.send(ctx, call, func(_ transport.Answer, err error, _ time.Duration) {
				if full, ok := errors.AsType[*schedule.FullError](err); ok && full.Own {
					if p := problem.From(err); p.Status != 429 || p.RetryAfter == 0 {
						t.Errorf("refused with %+v", p)
					}
					refused++
				}
			})
		}
		if refused != 84 {
			t.Errorf("%d of 100 calls are refused: expected 84, since a caller has 16 of 64", refused)
		}
		b.send(t.Context(), b.by("other", 2), func(_ transport.Answer, err error, took time.Duration) {
			if err != nil || took > 3*serviceTime {
				t.Errorf("another caller: %v after %s", err, took)
			}
		})
		cancel() // the calls that wait leave the queue
		b.wait(t)
		if got := strings.Join(b.order, ""); got != "02" {
			t.Errorf("the agent got %s: calls whose callers have left are not sent", got)
		}
	})
}

// TestPlaces_ReloadHoldsAtOnce: more places hold at once for calls that wait, and no calls wait for an agent whose
// concurrency was taken out.
func TestPlaces_ReloadHoldsAtOnce(t *testing.T) {
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		b.fill(t, 1)
		for i := range 6 {
			b.send(t.Context(), b.by(fmt.Sprint("c", i), i), func(_ transport.Answer, err error, _ time.Duration) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		for _, step := range []struct {
			rules waits.Rules
			want  int64
		}{{places(1), 1}, {places(3), 3}, {waits.Rules{}, 7}} {
			b.Apply(gateway.Settings{Schedule: step.rules})
			synctest.Wait()
			if n := b.running.Load(); n != step.want {
				t.Errorf("%d calls run, want %d", n, step.want)
			}
		}
	})
}

// TestPlaces_ExhaustedInAWorkflow: critical work of a workflow that gets no place for 60 s leaves an atd:error of type
// resource_exhausted and severity critical, and is escalated (ATD-67); its caller gets 503 with Retry-After.
func TestPlaces_ExhaustedInAWorkflow(t *testing.T) {
	var escalated atomic.Int64
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		b.Apply(gateway.Settings{Schedule: waits.Rules{Agents: map[string]schedule.Config{"calculator": {Places: 1}}, Priorities: []waits.Priority{{Class: schedule.Critical}}}})
		wid, start := b.begin(t)
		b.agent.called = func(string, json.RawMessage) (string, error) {
			<-time.After(90 * time.Second)
			return `{"resultType":"complete","content":[]}`, nil
		}
		b.fill(t, 1)
		call := b.call(addBody)
		call.Parent = string(start.ID)
		b.send(t.Context(), call, func(_ transport.Answer, err error, took time.Duration) {
			if p := problem.From(err); p.Code != problem.CodeUnavailable || p.Status != 503 || p.RetryAfter == 0 || took != time.Minute {
				t.Errorf("after %s: %+v", took, p)
			}
		})
		b.wait(t)
		b.judgeError(t, wid, "critical", workflow.Escalated)
		if escalated.Load() != 1 {
			t.Errorf("operators got %d notices", escalated.Load())
		}
	}, func(d *gateway.Deps) { d.Escalate = func(context.Context, breakers.Event) { escalated.Add(1) } })
}

// judgeError demands one atd:error of a severity in a workflow, and the state of its step.
func (b *queue) judgeError(t *testing.T, wid, severity string, state workflow.State) {
	t.Helper()
	tokens := b.tokensOf(t, wid)
	at := slices.IndexFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActError })
	if at < 0 {
		t.Fatalf("no atd:error in %v", acts(tokens))
	}
	got, _ := tokens[at].Ext.String(ect.ExtSeverity)
	kind, _ := tokens[at].Ext.String(ect.ExtErrorType)
	text, _ := tokens[at].Ext.String(ect.ExtATDDescription)
	if r := b.report(t, wid); got != severity || kind != "resource_exhausted" || len(r.Steps) != 1 || r.Steps[0].State != state {
		t.Errorf("severity %s, type %s, %q, steps %+v", got, kind, text, r.Steps)
	}
}

// TestPlaces_DegradedInAWorkflow: work of a workflow that waits longer than a second leaves a warning, and the step is done
// nevertheless (ATD-68).
func TestPlaces_DegradedInAWorkflow(t *testing.T) {
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		wid, start := b.begin(t)
		b.fill(t, 1)
		call := b.call(addBody)
		call.Parent = string(start.ID)
		b.send(t.Context(), call, func(_ transport.Answer, err error, took time.Duration) {
			if err != nil || took != 2*serviceTime {
				t.Errorf("after %s: %v", took, err)
			}
		})
		b.wait(t)
		b.judgeError(t, wid, "warning", workflow.Done)
	})
}

// promised is a call that is answered with a task before the agent has done it.
func (b *queue) promised(a int) transport.Call {
	return b.a2aCall("SendMessage", fmt.Sprintf(`{"configuration":{"returnImmediately":true},"message":{"messageId":"m%[1]d","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":%[1]d,"b":2}}}]}}`, a))
}

// TestPlaces_WorkInTheBackground: a task that goes on after the answer has its place until it ends, or is canceled; to ask
// about it or to cancel it takes no place.
func TestPlaces_WorkInTheBackground(t *testing.T) {
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		b.agent.gate, b.agent.entered = make(chan struct{}), make(chan struct{}, 9)
		answer := b.exchange(t, b.promised(1))
		id, state := taskIn(t, answer.Wire().Body)
		if now := b.stateOf(t, id); state != "TASK_STATE_WORKING" || now != state {
			t.Errorf("the task is %s, and then %s", state, now)
		}
		waited := time.Duration(0)
		b.send(t.Context(), b.by("other", 2), func(_ transport.Answer, err error, took time.Duration) {
			if waited = took; err != nil {
				t.Error(err)
			}
		})
		<-time.After(10 * time.Second)
		if n := b.Parts().Places.Waiting()["calculator"]; n != 1 {
			t.Errorf("%v calls wait while the task goes on, want 1", n)
		}
		b.exchange(t, b.a2aCall("CancelTask", `{"id":"`+id+`"}`))
		synctest.Wait()
		close(b.agent.gate)
		b.wait(t)
		if waited != 10*time.Second+serviceTime {
			t.Errorf("the other call took %s: expected the place when the task was canceled", waited)
		}
	})
}

// TestPlaces_StreamOfACallerThatLeft: a stream has its place until its end, also when its caller has left and the work goes
// on.
func TestPlaces_StreamOfACallerThatLeft(t *testing.T) {
	inQueue(t, 1, func(t *testing.T, b *queue) {
		t.Helper()
		b.agent.gate, b.agent.entered = make(chan struct{}), make(chan struct{}, 9)
		answer := b.exchange(t, b.a2aCall("SendStreamingMessage", adding))
		if _, err := answer.Events().Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.send(t.Context(), b.by("other", 2), func(_ transport.Answer, err error, took time.Duration) {
			if err != nil || took != 20*time.Second+2*serviceTime {
				t.Errorf("the other call took %s (%v)", took, err)
			}
		})
		<-time.After(10 * time.Second)
		if err := answer.Events().Close(); err != nil {
			t.Error(err)
		}
		<-time.After(10 * time.Second)
		if n := b.Parts().Places.Waiting()["calculator"]; n != 1 {
			t.Errorf("%v calls wait while the work of the stream goes on, want 1", n)
		}
		close(b.agent.gate)
		b.wait(t)
	})
}

// TestPlaces_QuestionInTheBackground: a task in the background that waits for its caller has no place, so a caller that never
// answers blocks no other.
func TestPlaces_QuestionInTheBackground(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending), after: time.Second}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		s.Apply(gateway.Settings{Schedule: waits.Rules{Agents: map[string]schedule.Config{"asker": {Places: 1}}}})
		s.ask(t, s, s.asks(invoking, strings.Replace(called, `{"message"`, `{"configuration":{"returnImmediately":true},"message"`, 1)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Exchange(ctx, s.asks(invoking, strings.Replace(called, "m1", "m3", 1))); err != nil {
			t.Errorf("another call: %v", err)
		}
	})
}

// TestPlaces_AnswersToQuestions: a task that waits for its caller has no place, and the answer needs none, so that neither
// can wait for the other.
func TestPlaces_AnswersToQuestions(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete), after: time.Minute}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		s.Apply(gateway.Settings{Schedule: waits.Rules{Agents: map[string]schedule.Config{"asker": {Places: 1}}}})
		id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.ask(t, s, s.asks(invoking, strings.Replace(called, "m1", "m3", 1)))
		}()
		synctest.Wait()
		began := time.Now()
		done := s.ask(t, s, s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]}}`))
		if _, state := taskIn(t, done.Wire().Body); state != "TASK_STATE_COMPLETED" || time.Since(began) != 0 {
			t.Errorf("the answer leads to %s after %s", done.Wire().Body, time.Since(began))
		}
		<-over
	})
}
