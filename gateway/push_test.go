package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
)

// hooking is a call of the MCP server of which a webhook is told.
func (s *stage) hooking() transport.Call {
	const config = `{"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://hook.example/"}},"message"`
	return s.adds(invoking, strings.Replace(adding, `{"message"`, config, 1))
}

// hooked begins that.
func (s *stage) hooked() (id string) {
	s.t.Helper()
	id, _ = taskIn(s.t, s.ask(s.t, s, s.hooking()).Wire().Body)
	return id
}

// mails are what was posted: the bodies, and the ECT of each.
func (s *stage) mails() (bodies []string, proofs []ect.Claims) {
	s.t.Helper()
	s.posts.mu.Lock()
	defer s.posts.mu.Unlock()
	for i, taken := range s.posts.taken {
		_, body, _ := strings.Cut(taken, " ")
		if len(s.posts.proofs[i]) != 1 {
			s.t.Fatalf("with %s come %q", body, s.posts.proofs[i])
		}
		bodies, proofs = append(bodies, body), append(proofs, claims(s.t, s.posts.proofs[i][0]))
	}
	return bodies, proofs
}

// TestPush_EvidenceForEachPost: what a webhook is told is a translation like any other, and
// nothing is told without an ECT on record (AEPB, Gateway Requirements item 3).
func TestPush_EvidenceForEachPost(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		id := s.hooked()
		close(s.tools.gate)
		synctest.Wait()
		bodies, proofs := s.mails()
		if len(bodies) != 3 || !strings.Contains(bodies[0], "WORKING") || !strings.Contains(bodies[1], `"sum":3`) || !strings.Contains(bodies[2], "COMPLETED") {
			t.Fatalf("posted was %s", bodies)
		}
		request := claims(t, s.tools.tokens[0][0])
		for i, got := range proofs {
			if found, err := ecttest.Find(t.Context(), s.memory, got.ID); err != nil || len(found) != 1 {
				t.Errorf("on record: %v %v", found, err)
			}
			if got.OutputHash != ect.Hash([]byte(bodies[i])) || got.InputHash == "" || got.Act != ect.ActTranslate || got.Workflow != request.Workflow ||
				!slices.Equal(got.Audience, []string{string(s.caller.ID)}) || len(got.Parents) != 1 || !s.behind(got.Parents[0], request.ID) {
				t.Errorf("%+v behind %s", got, request.ID)
			}
			for key, want := range map[string]string{
				ect.ExtLeg: "reply", ect.ExtSourceProtocol: "mcp-v1", ect.ExtDestProtocol: "a2a-v1", ect.ExtCaller: string(s.caller.ID),
			} {
				if text, _ := got.Ext.String(key); text != want {
					t.Errorf("%s is %q, not %q", key, text, want)
				}
			}
			if unattested, _ := got.Ext.Bool(ect.ExtSourceUnattested); !unattested {
				t.Error("its source was attested by nobody")
			}
		}
		if notice := string(s.ask(t, s, s.adds(looking, `{"id":"`+id+`"}`)).Wire().Body); !strings.Contains(notice, "COMPLETED") {
			t.Errorf("it stands as %s", notice)
		}
	})
}

// behind: a token is another, or descends from it.
func (s *stage) behind(id, ancestor ect.ID) bool {
	s.t.Helper()
	if id == ancestor {
		return true
	}
	found, err := ecttest.Find(s.t.Context(), s.memory, id)
	if err != nil || len(found) != 1 {
		return false
	}
	return slices.ContainsFunc(found[0].Parents, func(p ect.ID) bool { return s.behind(p, ancestor) })
}

func TestPush_EvidenceOfAnAttestedCall(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		call := s.hooking()
		workflow := string(ect.NewID())
		token, err := s.caller.Signer(s.t, time.Now).Sign(ect.Claims{
			Audience: []string{string(s.self.ID)}, Workflow: workflow, Act: "send_task", OutputHash: ect.Hash(call.Wire.Body),
		})
		if err != nil {
			s.t.Fatal(err)
		}
		call.Evidence = []string{token.Compact()}
		s.ask(s.t, s, call)
		close(s.tools.gate)
		synctest.Wait()
		_, proofs := s.mails()
		if len(proofs) != 3 {
			s.t.Fatalf("%d posts", len(proofs))
		}
		for _, got := range proofs {
			if got.Ext[ect.ExtSourceUnattested] != nil || got.Workflow != workflow || !s.behind(got.Parents[0], token.ID()) {
				s.t.Errorf("%+v", got)
			}
		}
	})
}

// TestPush_TokensInBody: a caller with ect_in_body has them there too.
func TestPush_TokensInBody(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		s.Apply(gateway.Settings{ECTInBody: map[ect.Identity]bool{s.caller.ID: true}})
		s.hooked()
		close(s.tools.gate)
		synctest.Wait()
		bodies, proofs := s.mails()
		if len(bodies) != 3 {
			t.Fatalf("posted was %s", bodies)
		}
		for i, body := range bodies {
			wire, tokens, err := embedded.Take(a2a.New(translators.Config{}), translators.Wire{
				Binding: a2a.Binding, Form: a2a.FormHTTP, Media: a2a.MediaHTTP, Re: canonical.OpInvoke, Event: true, Body: []byte(body),
			})
			if err != nil || len(tokens) != 1 || claims(t, tokens[0]).ID != proofs[i].ID {
				t.Fatalf("inside are %q, %v: %s", tokens, err, body)
			}
			if form, _ := proofs[i].Ext.String(ect.ExtHashForm); form != embedded.HashForm || proofs[i].OutputHash != ect.Hash(wire.Body) {
				t.Errorf("hashed as %q: %s", form, wire.Body)
			}
		}
	})
}

// TestPush_DeniedByPolicy: who may not be answered any more is not told either.
func TestPush_DeniedByPolicy(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		before := s.hookedAndTold()
		s.Apply(gateway.Settings{Constraints: policy.Constraints{RestrictDest: true}})
		close(s.tools.gate)
		synctest.Wait()
		if got := s.posted(); got != before {
			s.t.Errorf("posted was %s", got)
		}
	})
}

// TestPush_WaitsForRecordedEvidence: while no ECT can be put on record nothing is posted;
// how it ended is, as soon as one can.
func TestPush_WaitsForRecordedEvidence(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		if err := s.TakeOver(); err != nil {
			s.t.Fatal(err)
		}
		before := s.hookedAndTold()
		s.records.broken.Store(true)
		close(s.tools.gate)
		<-time.After(10 * time.Second)
		if got := s.posted(); got != before {
			s.t.Errorf("posted was %s", got)
		}
		s.records.broken.Store(false)
		<-time.After(time.Minute)
		if got := s.posted(); strings.Count(got, "COMPLETED") != 1 || !strings.Contains(got, `"sum":3`) {
			s.t.Errorf("posted was %s", got)
		}
	})
}

// withHook is the parameters of a send with a push notification configuration.
func withHook(params, id, more string) string {
	config := `{"configuration":{` + more + `"taskPushNotificationConfig":{"id":"` + id + `","url":"https://hook.example/` + id + `"}},"message"`
	return strings.Replace(params, `{"message"`, config, 1)
}

// answerAda answers the question of a task.
func answerAda(task string) string {
	return `{"message":{"messageId":"m2","taskId":"` + task + `","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]}}`
}

// configs is what ListTaskPushNotificationConfigs answers.
func (s *stage) configs(call transport.Call) string {
	s.t.Helper()
	return string(s.ask(s.t, s, call).Wire().Body)
}

var postedState = regexp.MustCompile(`"state":"TASK_STATE_([A-Z_]+)"`)

// states are the states that were posted to one webhook, in order.
func (s *stage) states(id string) string {
	s.t.Helper()
	s.posts.mu.Lock()
	defer s.posts.mu.Unlock()
	var states []string
	for _, taken := range s.posts.taken {
		if found := postedState.FindStringSubmatch(taken); found != nil && strings.HasPrefix(taken, "https://hook.example/"+id+" ") {
			states = append(states, found[1])
		}
	}
	return strings.Join(states, " ")
}

// TestPush_AnswerThatDoesNotReachTheAgent: the configuration of an answer is
// registered before the agent is sent the answer. If the agent cannot be reached, the
// question is asked again, and both configurations are told that.
func TestPush_AnswerThatDoesNotReachTheAgent(t *testing.T) {
	t.Parallel()
	const since = "WORKING INPUT_REQUIRED WORKING COMPLETED"
	for name, first := range map[string]string{"the second configuration": withHook(called, "one", ""), "the first configuration": called} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			named := first != called
			play(t, map[string][]scene{calling: {{reply: result(pending)}, {fail: errBroken}, {reply: result(complete)}}}, func(s *stage) {
				s.answersTwice(first)
				if one, two := s.states("one"), s.states("two"); two != since || named && one != "INPUT_REQUIRED "+since || !named && one != "" {
					s.t.Errorf("posted was %s, and %s", one, two)
				}
			})
		})
	}
}

// answersTwice begins a task that asks, and answers it until the agent has heard that.
func (s *stage) answersTwice(first string) {
	t := s.t
	t.Helper()
	id := s.requested(t, s.ask(t, s, s.asks(invoking, first)))
	synctest.Wait() // else the first post may find the second configuration too
	if _, err := s.Exchange(t.Context(), s.asks(invoking, withHook(answerAda(id), "two", ""))); err == nil {
		t.Fatal("an answer that did not reach the agent is a success")
	}
	list := s.configs(s.asks("ListTaskPushNotificationConfigs", `{"taskId":"`+id+`"}`))
	if !strings.Contains(list, "/two") || strings.Contains(first, "/one") != strings.Contains(list, "/one") {
		t.Errorf("the list of configurations is %s", list)
	}
	if _, state := taskIn(t, s.ask(t, s, s.asks(invoking, answerAda(id))).Wire().Body); state != "TASK_STATE_COMPLETED" {
		t.Errorf("the second answer leads to %s", state)
	}
	synctest.Wait()
}

// TestPush_TwoQuestions: a task that asks twice is posted as asking twice, although
// its state is the same.
func TestPush_TwoQuestions(t *testing.T) {
	t.Parallel()
	ask := func(text string) string {
		return strings.Replace(wholeTask("INPUT_REQUIRED", ""), `"state":"TASK_STATE_INPUT_REQUIRED"`,
			`"state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"q","role":"ROLE_AGENT","parts":[{"text":"`+text+`"}]}`, 1)
	}
	play(t, map[string][]scene{
		streaming: {{reply: ask("first?")}}, invoking: {{reply: ask("second?")}, {reply: wholeTask("COMPLETED", oneArt)}},
	}, func(s *stage) {
		t := s.t
		s.ask(t, s, s.a2a(invoking, withHook(saying, "one", "")))
		for range 2 {
			s.ask(t, s, s.a2a(invoking, answerAda("t1")))
		}
		synctest.Wait()
		got := s.posted()
		if s.states("one") != "INPUT_REQUIRED INPUT_REQUIRED COMPLETED" || strings.Index(got, "first?") > strings.Index(got, "second?") || !strings.Contains(got, "done it") {
			t.Errorf("posted was %s", got)
		}
	})
}

// TestPush_AgentTaskGoesOnAfterTheAnswer: an agent answers a send with a task that is
// still at work, and later the answer to its question too. Its changes are followed.
func TestPush_AgentTaskGoesOnAfterTheAnswer(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{reply: wholeTask("INPUT_REQUIRED", "")}}, invoking: {{reply: wholeTask("WORKING", "")}},
		following: {{events: []string{wholeTask("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: io.EOF}},
	}, func(s *stage) {
		t := s.t
		s.ask(t, s, s.a2a(invoking, withHook(saying, "one", "")))
		s.ask(t, s, s.a2a(invoking, answerAda("t1")))
		<-time.After(time.Second)
		if got := s.states("one"); got != "INPUT_REQUIRED WORKING COMPLETED" {
			t.Errorf("posted was %s: %s", got, s.posted())
		}
	})
}

// TestPush_MessageInPlaceOfATask: where the agent answers with a message there is no
// task (A2A 1.0, section 3.1.1), so nothing is registered or posted.
func TestPush_MessageInPlaceOfATask(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{streaming: {{reply: result(`{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"hello"}]}}`)}}}, func(s *stage) {
		t := s.t
		if got := string(s.ask(t, s, s.a2a(invoking, withHook(saying, "one", ""))).Wire().Body); !strings.Contains(got, "hello") {
			t.Errorf("the answer is %s", got)
		}
		<-time.After(time.Minute)
		if got := s.posted(); got != "" {
			t.Errorf("posted was %s", got)
		}
	})
}

// TestPush_TooManyConfigurations: the configuration of a message to a task that has
// as many as it may have is refused before the agent is sent the message.
func TestPush_TooManyConfigurations(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		id := s.requested(t, s.ask(t, s, s.asks(invoking, withHook(called, "c0", ""))))
		for i := 1; i < 16; i++ {
			s.ask(t, s, s.asks("CreateTaskPushNotificationConfig", fmt.Sprintf(`{"taskId":"%s","id":"c%d","url":"https://hook.example/c%d"}`, id, i, i)))
		}
		var refused *canonical.Error
		if _, err := s.Exchange(t.Context(), s.asks(invoking, withHook(answerAda(id), "c16", ""))); !errors.As(err, &refused) || !strings.Contains(refused.Message, "too many push notification") {
			t.Errorf("one more: %v", err)
		}
		if n := len(s.asker.received(calling)); n != 1 {
			t.Errorf("the agent was called %d times", n)
		}
		if _, state := taskIn(t, s.ask(t, s, s.asks(invoking, withHook(answerAda(id), "c3", ""))).Wire().Body); state != "TASK_STATE_COMPLETED" {
			t.Errorf("one in place of another leads to %s", state)
		}
	})
}

// TestAttack_WebhookForAnothersTask: a message to the task of another caller carries a
// configuration. It is refused, and nothing is registered or posted.
func TestAttack_WebhookForAnothersTask(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
		theirs := []transport.Call{
			s.asks(invoking, withHook(answerAda(id), "theirs", "")),
			s.asks("CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","id":"c","url":"https://hook.example/theirs"}`),
		}
		for _, call := range theirs {
			call.Caller = identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/other"}}
			_, err := s.Exchange(t.Context(), call)
			if refused, ok := errors.AsType[*canonical.Error](err); !ok || refused.Code != canonical.CodeTaskNotFound {
				t.Errorf("%s: %v", call.Wire.Body, err)
			}
		}
		if list := s.configs(s.asks("ListTaskPushNotificationConfigs", `{"taskId":"`+id+`"}`)); strings.Contains(list, "theirs") {
			t.Errorf("registered are %s", list)
		}
		s.ask(t, s, s.asks(invoking, withHook(answerAda(id), "mine", "")))
		synctest.Wait()
		if posted := s.posted(); s.states("mine") == "" || strings.Contains(posted, "theirs") {
			t.Errorf("posted was %s", posted)
		}
	})
}

// TestPush_PausedTaskOfALostReplica: a replica records that a task waits for input,
// and is lost before it could post that. Another one posts how the task stands, once.
func TestPush_PausedTaskOfALostReplica(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		losses := &entries{Entries: s.memory.Entries()}
		s.view = losses
		dies := s.replica(t)
		s.view = nil
		others := []limiting{s.replica(t), s.replica(t)}
		for _, g := range append(others, dies) {
			if err := g.TakeOver(); err != nil {
				t.Fatal(err)
			}
		}
		s.posts.deaf.Store(true)
		id := s.requested(t, s.ask(t, dies, s.asks(invoking, withHook(called, "one", ""))))
		synctest.Wait()
		losses.broken.Store(true)
		_ = dies.Close()
		s.posts.deaf.Store(false)
		<-time.After(10 * time.Minute)
		if got := s.states("one"); got != "INPUT_REQUIRED" {
			t.Errorf("posted was %s", got)
		}
		s.ask(t, others[0], s.asks(invoking, answerAda(id)))
		<-time.After(time.Minute)
		if got := s.states("one"); got != "INPUT_REQUIRED WORKING COMPLETED" {
			t.Errorf("posted was %s", got)
		}
		for _, g := range others {
			_ = g.Close()
		}
	})
}

// crossing does something once, between what a replica reads of a task that it takes over
// and the moment that the replica has read it.
type crossing struct {
	store.Entries

	taken, done atomic.Bool
	do          func()
}

func (e *crossing) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	revision, ok, err := e.Entries.Swap(ctx, key, old, value, until)
	if key.Kind == store.KindFailover && old > 0 && ok {
		e.taken.Store(true)
	}
	return revision, ok, err
}

func (e *crossing) Get(ctx context.Context, key store.EntryKey) (store.Entry, bool, error) {
	entry, ok, err := e.Entries.Get(ctx, key)
	if key.Kind == store.KindTask && e.taken.Load() && e.done.CompareAndSwap(false, true) {
		e.do()
	}
	return entry, ok, err
}

// TestPush_AnswerWhileTheTaskIsTakenOver: a replica takes over a task that waits for input,
// and the caller answers while it does so. The webhook is not told after the end that the
// task waits.
func TestPush_AnswerWhileTheTaskIsTakenOver(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		view := &entries{Entries: s.memory.Entries()}
		s.view = view
		dies := s.replica(t)
		ids, during := make(chan string, 1), &crossing{Entries: s.memory.Entries()}
		s.view = during
		heir := s.replica(t)
		during.do = func() {
			s.ask(t, heir, s.asks(invoking, answerAda(<-ids)))
			<-time.After(time.Second) // all of that is posted
		}
		s.view = nil
		for _, g := range []limiting{dies, heir} {
			if err := g.TakeOver(); err != nil {
				t.Fatal(err)
			}
		}
		id, _ := taskIn(t, s.ask(t, dies, s.asks(invoking, withHook(called, "one", ""))).Wire().Body)
		ids <- id
		synctest.Wait()
		view.broken.Store(true)
		_ = dies.Close()
		<-time.After(10 * time.Minute)
		if got := s.states("one"); got != "INPUT_REQUIRED WORKING COMPLETED" || !during.done.Load() {
			t.Errorf("posted was %s, taken over: %v", got, during.done.Load())
		}
		_ = heir.Close()
	})
}

// TestPush_ConfigurationLivesAsLongAsItsTask: both are kept for an hour after the
// last change of the task.
func TestPush_ConfigurationLivesAsLongAsItsTask(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{reply: wholeTask("INPUT_REQUIRED", "")}}, invoking: {{reply: wholeTask("COMPLETED", "")}}, looking: {{reply: result(taskOf("INPUT_REQUIRED", ""))}},
	}, func(s *stage) {
		t := s.t
		if err := s.TakeOver(); err != nil {
			t.Fatal(err)
		}
		s.ask(t, s, s.a2a(invoking, withHook(saying, "one", "")))
		for range 4 {
			<-time.After(40 * time.Minute)
			s.ask(t, s, s.a2a(looking, `{"id":"t1"}`)) // which is written down
		}
		if list := s.configs(s.a2a("ListTaskPushNotificationConfigs", `{"taskId":"t1"}`)); !strings.Contains(list, "/one") {
			t.Errorf("the list of configurations is %s", list)
		}
		s.ask(t, s, s.a2a(invoking, answerAda("t1")))
		synctest.Wait()
		if got := s.states("one"); got != "INPUT_REQUIRED COMPLETED" {
			t.Errorf("posted was %s", got)
		}
	})
}

// TestPush_StreamIsPostedFromItsBeginning: every state that a stream tells its caller
// is posted too, the first one with the whole task.
func TestPush_StreamIsPostedFromItsBeginning(t *testing.T) {
	t.Parallel()
	events := []string{wholeTask("SUBMITTED", ""), status("WORKING", ""), artifact("done it"), status("COMPLETED", "")}
	play(t, map[string][]scene{streaming: {{events: events, end: io.EOF}}}, func(s *stage) {
		t := s.t
		_, _ = read(t, s.ask(t, s, s.a2a(streaming, withHook(saying, "agent", ""))).Events())
		tool := s.ask(t, s, s.adds(streaming, withHook(adding, "tool", ""))).Events()
		close(s.tools.gate)
		_, _ = read(t, tool)
		synctest.Wait()
		if agent, tool := s.states("agent"), s.states("tool"); agent != "SUBMITTED WORKING COMPLETED" || tool != "WORKING COMPLETED" {
			t.Errorf("posted was %s, and %s", agent, tool)
		}
		if got := s.posted(); !strings.HasPrefix(got, `https://hook.example/agent {"task":`) || strings.Count(got, "done it") != 1 {
			t.Errorf("posted was %s", got)
		}
	})
}

// interrupting does something else right before the first write of a kind.
type interrupting struct {
	store.Entries

	kind string
	once sync.Once
	do   func()
}

func (e *interrupting) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if key.Kind == e.kind {
		e.once.Do(e.do)
	}
	return e.Entries.Swap(ctx, key, old, value, until)
}

// TestPush_RegistrationOverwritesNoCancellation: a task is canceled while the
// configuration of an answer is registered. It stays canceled.
func TestPush_RegistrationOverwritesNoCancellation(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		crossing := &interrupting{Entries: s.memory.Entries(), kind: "push"}
		s.view = crossing
		other := s.replica(t)
		s.view = nil
		id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
		crossing.do = func() { s.ask(t, s, s.asks(canceling, `{"id":"`+id+`"}`)) }
		_, _ = other.Exchange(t.Context(), s.asks(invoking, withHook(answerAda(id), "two", "")))
		for _, g := range []limiting{s.limiting, other} {
			if _, state := taskIn(t, s.ask(t, g, s.asks(looking, `{"id":"`+id+`"}`)).Wire().Body); state != "TASK_STATE_CANCELED" {
				t.Errorf("the task is %s", state)
			}
		}
		_ = other.Close()
	})
}

// TestPush_GetByTaskAlone: A2A 0.3 need not say which configuration is meant (section
// 7.6: TaskIdParams or GetTaskPushNotificationConfigParams); the first one is answered.
func TestPush_GetByTaskAlone(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending)}}}, func(s *stage) {
		t := s.t
		id := s.requested(t, s.ask(t, s, s.asks(invoking, withHook(called, "c0", ""))))
		s.ask(t, s, s.asks("CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","id":"c1","url":"https://hook.example/c1"}`))
		for params, want := range map[string]string{
			`{"id":"` + id + `"}`: "hook.example/c0",
			`{"id":"` + id + `","pushNotificationConfigId":"c1"}`:    "hook.example/c1",
			`{"id":"` + id + `","pushNotificationConfigId":"other"}`: "",
		} {
			call := s.by(a2a.Binding, a2a.Version03, `{"jsonrpc":"2.0","id":7,"method":"tasks/pushNotificationConfig/get","params":`+params+`}`)
			call.Agent = "asker"
			answer, err := s.Exchange(t.Context(), call)
			if got := string(answer.Wire().Body); !strings.Contains(got, want) || (err != nil) != (want == "") {
				t.Errorf("%s: %s, %v, want %q", params, got, err, want)
			}
		}
	})
}
