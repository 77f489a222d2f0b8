package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// tardy is the state as a replica sees it whose writes of one kind take a while.
type tardy struct {
	store.Entries
	kind  string
	takes time.Duration
}

func (e *tardy) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if key.Kind == e.kind {
		<-time.After(e.takes)
	}
	return e.Entries.Swap(ctx, key, old, value, until)
}

// refusing takes no writes of one kind.
type refusing struct {
	store.Entries
	kind string
}

func (e *refusing) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if key.Kind == e.kind {
		return 0, false, &state.UnavailableError{}
	}
	return e.Entries.Swap(ctx, key, old, value, until)
}

// posted is everything that was.
func (s *stage) posted() string {
	s.posts.mu.Lock()
	defer s.posts.mu.Unlock()
	return strings.Join(s.posts.taken, "\n")
}

// hookedAndTold is hooked, when how the task stands then has been posted: it is what
// was posted.
func (s *stage) hookedAndTold() string {
	s.t.Helper()
	s.hooked()
	synctest.Wait()
	return s.posted()
}

// all is everything that it heard.
func (p *player) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.bodies, "\n")
}

// stands is how a task of the asker's stands for its A2A caller.
func (s *stage) stands(g transport.Handler, id string) string {
	s.t.Helper()
	_, state := taskIn(s.t, s.ask(s.t, g, s.asks(looking, `{"id":"`+id+`"}`)).Wire().Body)
	return strings.TrimPrefix(state, "TASK_STATE_")
}

// tells wants to be told of a task of the asker's.
func (s *stage) tells(id string) transport.Call {
	return s.asks("CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","url":"https://hook.example/"}`)
}

// answers is the answer of an A2A client to what the asker asks.
func (s *stage) answers(id, name string) transport.Call {
	return s.asks(invoking, `{"message":{"messageId":"m-`+name+`","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"name":"`+name+`"}}]}}`)
}

const (
	calledLater = `{"configuration":{"returnImmediately":true},"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"ask","input":{}}}]}}`
	asksInside  = `{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}`
)

// A caller who wants an asking task ended while it begins to ask: it is, although
// nobody works on it any more who could hear that.
func TestCancel_RacesWithQuestion(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending), after: 2 * time.Second}}, "notifications/cancelled": {{}}}, func(s *stage) {
		t := s.t
		s.view = &tardy{s.memory.Entries(), "mail", 3 * time.Second} // it asks before the wish arrives
		late := s.replica(t)
		defer func() { _ = late.Close() }()
		id, _ := taskIn(t, s.ask(t, s, s.asks(invoking, calledLater)).Wire().Body)
		if _, got := taskIn(t, s.ask(t, late, s.asks(canceling, `{"id":"`+id+`"}`)).Wire().Body); got != "TASK_STATE_CANCELED" {
			t.Errorf("canceling gives %s", got)
		}
		if got := s.stands(s, id); got != "CANCELED" {
			t.Errorf("then it is %s", got)
		}
	})
}

// Somebody else writes to a record while a caller wants its work ended.
func TestCancel_RacesWithAnotherWrite(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending)}}}, func(s *stage) {
		t := s.t
		id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
		s.view = &tardy{s.memory.Entries(), "task", time.Second}
		late := s.replica(t)
		defer func() { _ = late.Close() }()
		time.AfterFunc(time.Second/2, func() { s.ask(t, s, s.tells(id)) })
		if _, got := taskIn(t, s.ask(t, late, s.asks(canceling, `{"id":"`+id+`"}`)).Wire().Body); got != "TASK_STATE_CANCELED" {
			t.Errorf("canceling gives %s", got)
		}
		synctest.Wait()
		if got := s.posted(); strings.Count(got, "CANCELED") != 1 {
			t.Errorf("posted was %s", got)
		}
	})
}

// The agent's open stream waits for an answer when the work is canceled: whoever
// holds it lets go at once.
func TestCancel_WhileAgentAsksInItsStream(t *testing.T) {
	t.Parallel()
	scenes := func() map[string][]scene {
		return map[string][]scene{
			calling:     {{reply: result(`{"task":{"status":"working",` + oldTask + `}}`)}},
			tasksGet:    {{reply: oldStands("input_required")}},
			tasksResult: {{events: []string{asksInside}}},
			tasksCancel: {{reply: oldStands("cancelled")}},
		}
	}
	left := func(s *stage, began time.Time) {
		<-time.After(time.Second)
		s.asker.mu.Lock()
		defer s.asker.mu.Unlock()
		if took := time.Since(began); s.asker.open != 0 || took > 3*time.Second || strings.Count(strings.Join(s.asker.requested, " "), tasksCancel) != 1 {
			s.t.Errorf("after %v %d streams are open, and the agent was asked %s", took, s.asker.open, s.asker.requested)
		}
	}
	era(t, mcp.Legacy, scenes(), func(s *stage) {
		s.asker.support = "required"
		s.says(s.newer(calling, `"name":"ask","arguments":{}`))
		s.until(s.newer, `"status":"input_required"`)
		began := time.Now()
		s.says(s.newer(tasksCancel, `"taskId":"u1"`))
		if got := s.says(s.newer(tasksGet, `"taskId":"u1"`)); !strings.Contains(got, `"status":"cancelled"`) {
			s.t.Errorf("canceled it is %s", got)
		}
		left(s, began)
	})
	era(t, mcp.Legacy, scenes(), func(s *stage) {
		s.asker.support = "required"
		id := s.requested(s.t, s.ask(s.t, s, s.asks(invoking, called)))
		began := time.Now()
		if _, got := taskIn(s.t, s.ask(s.t, s, s.asks(canceling, `{"id":"`+id+`"}`)).Wire().Body); got != "TASK_STATE_CANCELED" {
			s.t.Errorf("canceled it is %s", got)
		}
		left(s, began)
	})
}

// A question of an agent's own task whose holder is gone is asked again, by whoever
// is asked about the task; its answer reaches the agent.
func TestQuestion_AskedAgainAfterReplicaLoss(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]bool{"its process ends": false, "its answer does not arrive": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			taken := []scene{{reply: "taken"}}
			if breaks {
				taken = []scene{{fail: errBroken}, {reply: "taken"}}
			}
			era(t, mcp.Legacy, map[string][]scene{
				calling:     {{reply: result(`{"task":{"status":"working",` + oldTask + `}}`)}},
				tasksGet:    {{reply: oldStands("input_required")}},
				tasksResult: {{events: []string{asksInside, "", result(oldHello)}}},
				"":          taken,
			}, func(s *stage) {
				t := s.t
				s.asker.support = "required"
				g := s.limiting
				about := func(method, more string) string {
					return string(s.ask(t, g, s.newer(method, `"taskId":"u1"`+more)).Wire().Body)
				}
				answer := func(want string) string {
					var env struct {
						Result struct{ InputRequests map[string]json.RawMessage }
					}
					for range 40 {
						got := about(tasksGet, "")
						if err := json.Unmarshal([]byte(got), &env); err != nil || len(env.Result.InputRequests) > 0 {
							break
						}
						<-time.After(250 * time.Millisecond)
					}
					for key := range env.Result.InputRequests {
						return about(tasksUpdate, `,"inputResponses":{"`+key+`":{"action":"accept","content":{"name":"`+want+`"}}}`)
					}
					t.Fatalf("nothing is asked: %s", about(tasksGet, ""))
					return ""
				}
				s.says(s.newer(calling, `"name":"ask","arguments":{}`))
				s.until(s.newer, `"status":"input_required"`)
				if breaks {
					answer("Ada")
					synctest.Wait()
				} else {
					g = s.replica(t)
					defer func() { _ = g.Close() }()
					_ = s.Close()
				}
				answer("Eve")
				synctest.Wait()
				if last := s.asker.last(); !strings.Contains(last, `"Eve"`) {
					t.Fatalf("the server heard %s", last)
				}
				s.asker.resume <- struct{}{}
				for range 20 {
					if strings.Contains(about(tasksGet, ""), "hello Ada") {
						return
					}
					<-time.After(250 * time.Millisecond)
				}
				t.Errorf("it ends as %s", about(tasksGet, ""))
			})
		})
	}
}

// The box of work that goes on for longer than a letter is kept: what is answered
// then arrives like what was answered first.
func TestQuestion_LateSecondAnswerIsDelivered(t *testing.T) {
	t.Parallel()
	asks := newStands("input_required", `,"inputRequests":{"k":`+wantsName+`}`)
	stands := []scene{{reply: asks}}
	for range 80 {
		stands = append(stands, scene{reply: newStands("working", ""), after: 50 * time.Second})
	}
	stands = append(stands, scene{reply: asks}, scene{reply: newStands("completed", `,"result":`+complete)})
	era(t, mcp.Modern, map[string][]scene{
		calling:     {{reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}},
		tasksGet:    stands,
		tasksUpdate: {{reply: result(`{"resultType":"complete"}`)}},
	}, func(s *stage) {
		t := s.t
		s.says(s.older(calling, wantsTask))
		s.until(s.older, `"status":"input_required"`)
		outcome := s.ask(t, s, s.older(tasksResult, `"taskId":"u1"`)).Events()
		for _, name := range []string{"Ada", "Eve"} {
			s.replies(heardNext(t, outcome), name)
			<-time.After(5 * time.Second)
			if got := s.asker.all(); !strings.Contains(got, `"name":"`+name+`"`) {
				t.Errorf("the server never heard of %s", name)
			}
		}
		if bodies, _ := read(t, outcome); len(bodies) != 1 || !strings.Contains(bodies[0], "hello Ada") {
			t.Errorf("the outcome is %s", bodies)
		}
	})
}

// replies answers what a client of 2025-11-25 is asked.
func (s *stage) replies(question, name string) {
	s.t.Helper()
	var request struct{ ID string }
	if err := json.Unmarshal([]byte(question), &request); err != nil || request.ID == "" {
		s.t.Fatalf("asked %s", question)
	}
	reply := s.older("", "")
	reply.Wire.Body = []byte(`{"jsonrpc":"2.0","id":"` + request.ID + `","result":{"action":"accept","content":{"name":"` + name + `"}}}`)
	s.ask(s.t, s, reply)
}

// A question that is asked on two streams is answered once: what the second answers
// is not taken for an answer to the next question, be it of the same name.
func TestQuestion_DuplicateAnswerIsNotForTheNext(t *testing.T) {
	t.Parallel()
	asks := newStands("input_required", `,"inputRequests":{"k":`+wantsName+`}`)
	era(t, mcp.Modern, map[string][]scene{
		calling: {{reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}},
		tasksGet: {
			{reply: asks}, {reply: newStands("working", "")}, {reply: asks}, {reply: newStands("completed", `,"result":`+complete)},
		},
		tasksUpdate: {{reply: result(`{"resultType":"complete"}`)}},
	}, func(s *stage) {
		t := s.t
		s.says(s.older(calling, wantsTask))
		s.until(s.older, `"status":"input_required"`)
		one, two := s.ask(t, s, s.older(tasksResult, `"taskId":"u1"`)).Events(), s.ask(t, s, s.older(tasksResult, `"taskId":"u1"`)).Events()
		first, second := heardNext(t, one), heardNext(t, two)
		s.replies(first, "Ada")
		s.replies(second, "Bob")
		s.replies(first, "Zoe") // nor is a second one to the same
		next := heardNext(t, one)
		<-time.After(5 * time.Second)
		s.replies(next, "Eve")
		if bodies, _ := read(t, one); len(bodies) != 1 || !strings.Contains(bodies[0], "hello Ada") {
			t.Errorf("the outcome is %s", bodies)
		}
		_ = two.Close()
		if all := s.asker.all(); !strings.Contains(all, `"Ada"`) || !strings.Contains(all, `"Eve"`) || strings.Contains(all, `"Bob"`) || strings.Contains(all, `"Zoe"`) {
			t.Errorf("the server heard %s", all)
		}
	})
}

// An end that its caller's question brought is on record before whoever follows the
// work has heard of it: those who are told of changes are told all the same, once.
func TestPush_PolledEndIsPostedOnce(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		invoking: {{reply: wholeTask("WORKING", "")}}, following: {{reply: failure("-32004")}},
		looking: {{reply: result(taskOf("WORKING", ""))}, {reply: result(taskOf("COMPLETED", oneArt))}},
	}, func(s *stage) {
		t := s.t
		s.ask(t, s, s.a2a(invoking, saying))
		s.ask(t, s, s.a2a("CreateTaskPushNotificationConfig", `{"taskId":"t1","url":"https://hook.example/"}`))
		for s.agent.was() != "SendMessage SubscribeToTask GetTask" {
			<-time.After(100 * time.Millisecond)
		}
		if _, got := taskIn(t, s.ask(t, s, s.a2a(looking, `{"id":"t1"}`)).Wire().Body); got != "TASK_STATE_COMPLETED" {
			t.Fatalf("it is %s", got)
		}
		<-time.After(5 * time.Second)
		if got := s.posted(); strings.Count(got, "COMPLETED") != 1 || strings.Count(got, "done it") != 1 {
			t.Errorf("posted was %s", got)
		}
	})
}

// Two who want to be told of a task at once: one follows it for both.
func TestTask_OneFollowerForConcurrentWebhooks(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		invoking:  {{reply: wholeTask("WORKING", "")}},
		following: {{events: []string{wholeTask("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, after: time.Minute / 2, end: io.EOF}},
	}, func(s *stage) {
		t := s.t
		s.view = &tardy{s.memory.Entries(), "runner", 10 * time.Millisecond} // all begin before one has begun
		replicas := []limiting{s.replica(t), s.replica(t)}
		s.ask(t, s, s.a2a(invoking, saying))
		for i := range 4 {
			go func() {
				if _, err := replicas[i%2].Exchange(t.Context(), s.a2a("CreateTaskPushNotificationConfig", `{"taskId":"t1","id":"one","url":"https://hook.example/"}`)); err != nil {
					t.Error(err)
				}
			}()
		}
		<-time.After(time.Minute)
		if got := s.agent.was(); strings.Count(got, following) != 1 {
			t.Errorf("the agent was asked %s", got)
		}
		if got := s.posted(); strings.Count(got, "COMPLETED") != 1 {
			t.Errorf("posted was %s", got)
		}
		for _, g := range replicas {
			_ = g.Close()
		}
	})
}

// Work that its caller has not waited for to the end is followed by nobody, and the
// record does not say that it is: whoever wants to be told of it is.
func TestTask_AbandonedIsFollowedForWebhook(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}}},
		following: {{events: []string{wholeTask("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: io.EOF}},
	}, func(s *stage) {
		t := s.t
		if got := structured(t, s.ask(t, s, s.tool(askingHi))); got.State != "working" || got.TaskID != "t1" {
			t.Fatalf("it stands as %+v", got)
		}
		s.ask(t, s, s.a2a("CreateTaskPushNotificationConfig", `{"taskId":"t1","url":"https://hook.example/"}`))
		<-time.After(5 * time.Second)
		if got := s.agent.was(); got != streaming+" "+following {
			t.Errorf("the agent was asked %s", got)
		}
	})
}

// Somebody else writes to a record between an answer and what comes of it: neither
// an end is lost, nor a question that was answered in vain.
func TestTaskRecord_WriteBetweenAnswerAndOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ reply, want string }{
		"an end": {result(complete), "COMPLETED"}, "in vain": {`{"jsonrpc":"2.0","id":ID}`, "INPUT_REQUIRED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{calling: {{reply: result(pending)}, {reply: c.reply, after: 2 * time.Second}}}, func(s *stage) {
				t := s.t
				id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
				time.AfterFunc(time.Second, func() { s.ask(t, s, s.tells(id)) })
				_, err := s.Exchange(t.Context(), s.answers(id, "Ada"))
				if (err == nil) != (c.want == "COMPLETED") {
					t.Errorf("the answer leads to %v", err)
				}
				if got := s.stands(s, id); got != c.want {
					t.Errorf("then it is %s", got)
				}
			})
		})
	}
}

// A question that cannot be kept at once is, as soon as something can: else the work
// would seem to go on for as long as this process lives.
func TestQuestion_FailedWriteIsRetried(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending), after: time.Second}, {reply: result(complete)}}}, func(s *stage) {
		t := s.t
		id, _ := taskIn(t, s.ask(t, s, s.asks(invoking, calledLater)).Wire().Body)
		s.entries.broken.Store(true)
		<-time.After(3 * time.Second)
		s.entries.broken.Store(false)
		<-time.After(10 * time.Second)
		if got := s.stands(s, id); got != "INPUT_REQUIRED" {
			t.Errorf("afterwards it is %s", got)
			return
		}
		if _, got := taskIn(t, s.ask(t, s, s.answers(id, "Ada")).Wire().Body); got != "TASK_STATE_COMPLETED" {
			t.Errorf("answered it is %s", got)
		}
	})
}

// A stream that is refused although its work was on record already: the record says
// that it ended.
func TestStream_RefusedEndsItsTaskRecord(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		s.view = &refusing{s.memory.Entries(), "push"}
		g := s.replica(t)
		defer func() { _ = g.Close() }()
		const config = `{"configuration":{"taskPushNotificationConfig":{"url":"https://hook.example/"}},"message"`
		if _, err := g.Exchange(t.Context(), s.adds(streaming, strings.Replace(adding, `{"message"`, config, 1))); err == nil {
			t.Fatal("nobody can be told of it, and it begins")
		}
		synctest.Wait()
		if ids, _, _ := s.list(g, `{"status":"TASK_STATE_WORKING"}`); len(ids) != 0 {
			t.Errorf("at work are %s", ids)
		}
	})
}

// What an agent calls its task is on record as soon as it has said so: from then on
// it is the agent that is asked.
func TestTask_AgentsIDIsRecordedAtOnce(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}, after: 160 * time.Millisecond}},
		looking:   {{reply: result(taskOf("WORKING", ""))}},
	}, func(s *stage) {
		t := s.t
		_, rest, _ := strings.Cut(string(s.ask(t, s, s.extended("tools/call", `"name":"write","arguments":`+askingHi)).Wire().Body), `"taskId":"`)
		id, _, _ := strings.Cut(rest, `"`)
		<-time.After(50 * time.Millisecond)
		s.ask(t, s, s.extended("tasks/get", `"taskId":"`+id+`"`))
		if got := s.agent.was(); got != streaming+" "+looking {
			t.Errorf("the agent was asked %s", got)
		}
	})
}

// lagging has ended, and whoever waits for that has not been told yet.
type lagging struct{ context.Context }

func (lagging) Done() <-chan struct{} { return nil }

// A caller whose own context ends its request hears that it does, and no error of ours,
// whichever of the two is noticed first.
func TestCall_CanceledContextReturnsItsError(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}}}, canceling: {{reply: result(taskOf("CANCELED", ""))}},
	}, func(s *stage) {
		t := s.t
		ctx, stop := context.WithCancel(t.Context())
		call := s.a2a(streaming, saying)
		call.Detached, call.Session = false, "session"
		answer, err := s.Exchange(ctx, call)
		if err != nil {
			t.Fatal(err)
		}
		heardNext(t, answer.Events())
		time.AfterFunc(time.Second, stop)
		if event, err := answer.Events().Next(lagging{ctx}); !errors.Is(err, context.Canceled) {
			t.Errorf("it hears %s, %v", event.Wire.Body, err)
		}
		_ = answer.Events().Close()
	})
}

// listLengths are the bytes of the longest list of ended tasks.
type listLengths struct {
	idempotency.Store
	longest atomic.Int64
}

func (l *listLengths) Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) {
	if strings.HasPrefix(string(key.Issuer), "ended\x00") {
		<-time.After(10 * time.Millisecond)
		l.longest.Store(max(l.longest.Load(), int64(len(answer))))
	}
	l.Store.Finish(ctx, key, answer, until)
}

// A list is as short as it has to be however many tasks end at once: one that grows
// would not be kept in the end.
func TestTaskList_StaysSmallUnderLoad(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		lengths := &listLengths{Store: s.memory}
		s.shared = lengths
		g := s.replica(t)
		defer func() { _ = g.Close() }()
		close(s.tools.gate)
		const tasks = 60
		for range tasks {
			go func() {
				if _, err := g.Exchange(t.Context(), s.adds(invoking, adding)); err != nil {
					t.Error(err)
				}
			}()
		}
		<-time.After(10 * time.Second)
		if got := lengths.longest.Load(); got > 1024 {
			t.Errorf("a list takes %d bytes", got)
		}
		if _, _, total := s.list(g, `{}`); total != tasks {
			t.Errorf("%d tasks are listed", total)
		}
	})
}

// What another gateway says of its refusal is taken note of while a caller that is a
// gateway too is answered with the task that was promised it.
func TestRefusal_OfNextGatewayDuringTaskReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		defer func() { _ = b.Close() }()
		later := strings.Replace(addingLater, `"m1"`, `"m2"`, 1)
		call := b.a2aCall("SendMessage", later)
		sign := func(who *ecttest.Party, audience ect.Identity, workflow string, parents []ect.ID, body []byte) string {
			ext := ect.Ext{}
			ext.SetString(ect.ExtLeg, "request")
			ext.SetString(ect.ExtSourceProtocol, "a2a-v1")
			ext.SetString(ect.ExtDestProtocol, "a2a-v1")
			ext.SetString(ect.ExtGatewayID, string(who.ID))
			token, err := who.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
				Audience: []string{string(audience)}, Workflow: workflow, Act: ect.ActTranslate, Parents: parents, OutputHash: ect.Hash(body), Ext: ext,
			})
			if err != nil {
				t.Fatal(err)
			}
			return token.Compact()
		}
		workflow := string(ect.NewID())
		call.Evidence = []string{sign(b.caller, b.self.ID, workflow, nil, call.Wire.Body)}
		b.agent.fail = &transport.RefusedError{Agent: "calculator", Status: 503, Code: "unavailable", Evidence: []string{
			sign(b.server, b.self.ID, workflow, nil, nil),
		}}
		time.AfterFunc(160*time.Millisecond, func() { close(b.agent.gate) }) // it is promised before
		answer := b.exchange(t, call)
		id, state := taskIn(t, answer.Wire().Body)
		if state != "TASK_STATE_WORKING" {
			t.Errorf("promised is %s", answer.Wire().Body)
		}
		<-time.After(time.Second)
		if got := b.stateOf(t, id); got != "TASK_STATE_FAILED" {
			t.Errorf("it ends as %s", got)
		}
	})
}

// Work that nobody follows any more is followed for whoever waits for it: else there
// would be nothing to wait for.
func TestSubscriber_UnfollowedTaskIsFollowed(t *testing.T) {
	t.Parallel()
	begins := scene{reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}
	ends := scene{reply: newStands("completed", `,"result":`+complete)}
	t.Run("at another replica", func(t *testing.T) {
		t.Parallel()
		era(t, mcp.Modern, map[string][]scene{calling: {begins}, tasksGet: {{reply: newStands("working", "")}, ends}}, func(s *stage) {
			t := s.t
			other := s.replica(t)
			defer func() { _ = other.Close() }()
			id, _ := taskIn(t, s.ask(t, s, s.asks(invoking, calledLater)).Wire().Body)
			_ = s.Close()
			events := s.ask(t, other, s.asks(following, `{"id":"`+id+`"}`)).Events()
			defer func() { _ = events.Close() }()
			within, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			for last := ""; !strings.Contains(last, "COMPLETED"); {
				event, err := events.Next(within)
				if err != nil {
					t.Fatalf("after %s: %v", last, err)
				}
				last = string(event.Wire.Body)
			}
		})
	})
	t.Run("while the agent is away", func(t *testing.T) {
		t.Parallel()
		away := scene{fail: errBroken}
		era(t, mcp.Modern, map[string][]scene{calling: {begins}, tasksGet: {away, away, away, away, away, ends}}, func(s *stage) {
			s.says(s.older(calling, wantsTask))
			if answer, err := s.Exchange(s.t.Context(), s.older(tasksResult, `"taskId":"u1"`)); err != nil || !strings.Contains(string(answer.Wire().Body), "hello Ada") {
				s.t.Errorf("it ends with %s, %v", answer.Wire().Body, err)
			}
		})
	})
}

// A caller whose connection is its request leaves its stream: its work is no longer
// said to go on.
func TestStream_ClosedByAttachedCallerRecordsCanceled(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		call := s.adds(streaming, adding)
		call.Detached = false
		events := s.ask(t, s, call).Events()
		heardNext(t, events)
		_ = events.Close()
		synctest.Wait()
		if ids, _, _ := s.list(s.limiting, `{"status":"TASK_STATE_CANCELED"}`); len(ids) != 1 {
			t.Errorf("canceled are %s", ids)
		}
	})
}

// hiccup is a state in which one write of a record fails.
type hiccup struct {
	store.Entries
	at    int64 // which one
	tasks atomic.Int64
}

func (h *hiccup) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if key.Kind == "task" && h.tasks.Add(1) == h.at {
		return 0, false, &state.UnavailableError{}
	}
	return h.Entries.Swap(ctx, key, old, value, until)
}

// A question that could not be kept, and then could, and was answered: what was to be
// kept later is not put over the answer.
func TestQuestion_RetriedWriteKeepsTheAnswer(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{calling: {{reply: result(pending), after: time.Second}, {reply: result(complete), after: 10 * time.Second}}}, func(s *stage) {
		t := s.t
		s.view = &hiccup{Entries: s.memory.Entries(), at: 2}
		g := s.replica(t)
		defer func() { _ = g.Close() }()
		id, _ := taskIn(t, s.ask(t, g, s.asks(invoking, calledLater)).Wire().Body)
		for s.stands(g, id) == "WORKING" {
			<-time.After(time.Millisecond)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := g.Exchange(t.Context(), s.answers(id, "Ada"))
			answered <- err
		}()
		<-time.After(5 * time.Second)
		if got := s.stands(g, id); got != "WORKING" {
			t.Errorf("the answer is on its way, and it is %s", got)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if got := s.stands(g, id); got != "COMPLETED" {
			t.Errorf("at the end it is %s", got)
		}
	})
}
