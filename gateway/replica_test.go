package gateway_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const addingLater = `{"configuration":{"returnImmediately":true},"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":1,"b":2}}}]}}`

// begin begins work that nobody waits for.
func (s *stage) begin(g limiting) (id string) {
	s.t.Helper()
	id, state := taskIn(s.t, s.ask(s.t, g, s.adds(invoking, addingLater)).Wire().Body)
	if state != "TASK_STATE_WORKING" {
		s.t.Fatalf("it begins as %s", state)
	}
	return id
}

func (s *stage) state(g limiting, id string) string {
	s.t.Helper()
	_, state := taskIn(s.t, s.ask(s.t, g, s.adds(looking, `{"id":"`+id+`"}`)).Wire().Body)
	return strings.TrimPrefix(state, "TASK_STATE_")
}

func TestReplica_ServesTasksOfOthers(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		other := s.replica(t)
		id := s.begin(s.limiting)
		if got := s.state(other, id); got != "WORKING" {
			t.Errorf("the other replica says %s", got)
		}
		received := make(chan string, 4)
		for _, g := range []limiting{s.limiting, other, s.limiting, other} {
			events := s.ask(t, g, s.adds(following, `{"id":"`+id+`"}`)).Events()
			go func() {
				bodies, _ := read(t, events)
				received <- strings.Join(bodies, "\n")
			}()
		}
		synctest.Wait()
		close(s.tools.gate)
		for range 4 {
			if got := <-received; !strings.Contains(got, `"sum":3`) || !strings.Contains(got, "COMPLETED") || strings.Count(got, "artifactUpdate") != 1 {
				t.Errorf("a subscriber heard %s", got)
			}
		}
		_ = other.Close()
	})
}

func TestReplica_CancelsTaskOfAnother(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		other := s.replica(t)
		id := s.begin(s.limiting)
		if _, state := taskIn(t, s.ask(t, other, s.adds(canceling, `{"id":"`+id+`"}`)).Wire().Body); state != "TASK_STATE_CANCELED" {
			t.Errorf("canceling it gives %s", state)
		}
		for _, g := range []limiting{s.limiting, other} {
			if got := s.state(g, id); got != "CANCELED" {
				t.Errorf("afterwards it is %s", got)
			}
		}
		_ = other.Close()
	})
}

func TestReplica_LossFailsItsTaskOnce(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		others := []limiting{s.replica(t), s.replica(t)}
		id := s.begin(s.limiting)
		s.ask(t, s, s.adds("CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","url":"https://hook.example/"}`))
		if err := s.memory.Entries().Delete(t.Context(), store.EntryKey{Kind: "runner", Group: s.ids[0], ID: s.ids[0]}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if got := s.state(others[i%2], id); got != "FAILED" {
					t.Errorf("a replica says %s", got)
				}
			})
		}
		all.Wait()
		close(s.tools.gate) // the lost one was only slow
		<-time.After(time.Second)
		if got := s.state(others[0], id); got != "FAILED" {
			t.Errorf("what was told is taken back: %s", got)
		}
		s.posts.mu.Lock()
		defer s.posts.mu.Unlock()
		if len(s.posts.taken) != 1 || !strings.Contains(s.posts.taken[0], "FAILED") {
			t.Errorf("posted was %s", s.posts.taken)
		}
		for _, g := range others {
			_ = g.Close()
		}
	})
}

// A question that one replica asks is answered at another, in both eras of MCP
// and by an A2A caller.
func TestReplica_TakesAnswersToQuestionsOfOthers(t *testing.T) {
	t.Parallel()
	t.Run("modern", func(t *testing.T) {
		t.Parallel()
		play(t, whatWriterAsks(), func(s *stage) {
			t := s.t
			other := s.replica(t)
			defer func() { _ = other.Close() }()
			request := s.ask(t, s, s.canAnswer(""))
			_, rest, _ := strings.Cut(string(request.Wire().Body), `"requestState":"`)
			state, _, _ := strings.Cut(rest, `"`)
			answering := s.canAnswer(`,"requestState":"` + state + `","inputResponses":{"reply":{"action":"accept","content":{"reply":"short"}}}`)
			if done := s.ask(t, other, answering); !strings.Contains(string(done.Wire().Body), "done it") || !strings.Contains(s.agent.last(), `"short"`) {
				t.Errorf("asked %s, the answer leads to %s", request.Wire().Body, done.Wire().Body)
			}
			if _, err := s.Exchange(t.Context(), answering); err == nil {
				t.Error("the first replica takes the answer again")
			}
		})
	})
	t.Run("legacy", func(t *testing.T) {
		t.Parallel()
		play(t, whatWriterAsks(), func(s *stage) {
			t := s.t
			other := s.replica(t)
			defer func() { _ = other.Close() }()
			answer := s.ask(t, s, s.legacy(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":`+askingHi+`}}`))
			event, err := answer.Events().Next(t.Context())
			_, rest, found := strings.Cut(string(event.Wire.Body), `"id":"`)
			id, _, _ := strings.Cut(rest, `"`)
			if err != nil || !found {
				t.Fatalf("the caller is asked %s, %v", event.Wire.Body, err)
			}
			s.ask(t, other, s.legacy(`{"jsonrpc":"2.0","id":"`+id+`","result":{"action":"accept","content":{"reply":"short"}}}`))
			bodies, _ := read(t, answer.Events())
			if last := bodies[len(bodies)-1]; !strings.Contains(last, "done it") || !strings.Contains(s.agent.last(), `"short"`) {
				t.Errorf("the answer leads to %s", last)
			}
		})
	})
	t.Run("of a server that asks in its stream", func(t *testing.T) {
		t.Parallel()
		play(t, map[string][]scene{
			calling: {{events: []string{`{"jsonrpc":"2.0","id":3,` + wantsName[1:], "", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"hello Ada"}]}}`}, end: errBroken}},
			"":      {{}},
		}, func(s *stage) {
			t := s.t
			s.asker.version = mcp.Legacy
			other := s.replica(t)
			defer func() { _ = other.Close() }()
			id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
			received := make(chan string, 1)
			go func() {
				received <- string(s.ask(t, other, s.asks(invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]}}`)).Wire().Body)
			}()
			synctest.Wait()
			close(s.asker.resume)
			if done := <-received; !strings.Contains(done, "hello Ada") || !strings.Contains(s.asker.last(), `"content":{"name":"Ada"}`) {
				t.Errorf("the answer leads to %s, and the agent heard %s", done, s.asker.last())
			}
		})
	})
}

// A replica that follows a task for somebody's webhook is lost: another goes on,
// and begins with how the task stands. Of two that could, one does.
func TestReplica_TakesOverPushNotifications(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}}},
		following: {
			{events: []string{wholeTask("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: io.EOF, after: time.Second},
		},
	}, func(s *stage) {
		t := s.t
		losses := &entries{Entries: s.memory.Entries()}
		s.view = losses
		first := s.replica(t)
		s.view = nil
		others := []limiting{s.replica(t), s.replica(t)}
		for _, g := range append(others, first) {
			if err := g.TakeOver(); err != nil {
				t.Fatal(err)
			}
		}
		const config = `{"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://hook.example/"}},"message"`
		s.ask(t, first, s.a2a(invoking, strings.Replace(saying, `{"message"`, config, 1)))
		<-time.After(time.Minute)
		if got := s.agent.was(); got != "SendStreamingMessage" {
			t.Errorf("while it lives the agent hears %s", got)
		}
		losses.broken.Store(true) // from now on it can say nothing to anybody
		_ = first.Close()
		<-time.After(time.Minute)
		s.posts.mu.Lock()
		all := strings.Join(s.posts.taken, "\n")
		begins, made, ended := strings.Index(all, "TASK_STATE_WORKING"), strings.Index(all, "done it"), strings.Index(all, "TASK_STATE_COMPLETED")
		if begins < 0 || made < begins || ended < made || strings.Count(all, "done it") != 1 {
			t.Errorf("posted was %s", all)
		}
		posted := len(s.posts.taken)
		s.posts.mu.Unlock()
		if got := s.agent.was(); strings.Count(got, following) != 1 {
			t.Errorf("the agent heard %s", got)
		}
		<-time.After(5 * time.Minute)
		s.posts.mu.Lock()
		if len(s.posts.taken) != posted {
			t.Errorf("posted was also %s", s.posts.taken[posted:])
		}
		s.posts.mu.Unlock()
		if left, err := s.memory.Entries().List(t.Context(), "watched", "", "", 9); err != nil || len(left) != 0 {
			t.Errorf("still looked after: %v, %v", left, err)
		}
		for _, g := range others {
			_ = g.Close()
		}
	})
}

// The replica that worked on a call is lost: that is posted by whoever is left,
// without being asked.
func TestReplica_LossIsPostedByAnother(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		losses := &entries{Entries: s.memory.Entries()}
		s.view = losses
		first := s.replica(t)
		s.view = nil
		if err := s.TakeOver(); err != nil {
			t.Fatal(err)
		}
		id := s.begin(first)
		s.ask(t, first, s.adds("CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","url":"https://hook.example/"}`))
		losses.broken.Store(true)
		<-time.After(time.Minute)
		s.posts.mu.Lock()
		if len(s.posts.taken) != 1 || !strings.Contains(s.posts.taken[0], "FAILED") {
			t.Errorf("posted was %s", s.posts.taken)
		}
		s.posts.mu.Unlock()
		_ = first.Close()
	})
}

func TestPush_OfAnMCPCall(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		id := s.begin(s.limiting)
		s.ask(t, s, s.adds("CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","url":"https://hook.example/"}`))
		close(s.tools.gate)
		synctest.Wait()
		s.posts.mu.Lock()
		defer s.posts.mu.Unlock()
		if all := strings.Join(s.posts.taken, "\n"); len(s.posts.taken) != 2 || !strings.Contains(s.posts.taken[0], `"sum":3`) || !strings.Contains(s.posts.taken[1], "COMPLETED") {
			t.Errorf("posted was %s", all)
		}
	})
}

// Settings that come with the message are kept before anything can change, and
// the agent never sees them.
func TestPush_ConfigurationInTheMessage(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		const config = `{"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://hook.example/","token":"secret"}},"message"`
		answer := s.ask(t, s, s.adds("SendMessage", strings.Replace(adding, `{"message"`, config, 1)))
		id, _ := taskIn(t, answer.Wire().Body)
		list := string(s.ask(t, s, s.adds("ListTaskPushNotificationConfigs", `{"taskId":"`+id+`"}`)).Wire().Body)
		if !strings.Contains(list, "https://hook.example/") {
			t.Errorf("the settings are %s", list)
		}
		close(s.tools.gate)
		synctest.Wait()
		s.posts.mu.Lock()
		defer s.posts.mu.Unlock()
		if len(s.posts.taken) != 3 || !strings.Contains(s.posts.taken[2], "COMPLETED") {
			t.Errorf("posted was %s", s.posts.taken)
		}
		for _, body := range s.tools.bodies {
			if strings.Contains(string(body), "secret") {
				t.Errorf("the agent was told %s", body)
			}
		}
	})
}

func TestTaskList_Paged(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		want := map[string]bool{}
		for range 5 {
			want[s.begin(s.limiting)] = true
		}
		cursor, pages := "", 0
		for pages < 9 {
			body := string(s.ask(t, s, s.adds("ListTasks", fmt.Sprintf(`{"pageSize":2,"pageToken":%q}`, cursor))).Wire().Body)
			pages++
			for id := range want {
				if strings.Contains(body, `"id":"`+id+`"`) {
					delete(want, id)
				}
			}
			_, rest, _ := strings.Cut(body, `"nextPageToken":"`)
			if cursor, _, _ = strings.Cut(rest, `"`); cursor == "" {
				break
			}
		}
		if len(want) != 0 || pages != 3 {
			t.Errorf("%d pages, without %v", pages, want)
		}
		if done := string(s.ask(t, s, s.adds("ListTasks", `{"status":"TASK_STATE_COMPLETED"}`)).Wire().Body); strings.Contains(done, `"id":"`+"t") || strings.Contains(done, "WORKING") {
			t.Errorf("of those that are done there are %s", done)
		}
	})
}

func TestHistory_LengthAsRequested(t *testing.T) {
	t.Parallel()
	history := `,"history":[{"messageId":"h1","role":"ROLE_USER","parts":[{"text":"one"}]},{"messageId":"h2","role":"ROLE_AGENT","parts":[{"text":"two"}]}]`
	for length, want := range map[string]int{"0": 0, "1": 1, "2": 2} {
		t.Run(length, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{invoking: {{reply: wholeTask("INPUT_REQUIRED", history)}}}, func(s *stage) {
				answer := s.ask(s.t, s, s.by("a2a-v1", "0.3", `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"configuration":{"historyLength":`+length+
					`,"blocking":true},"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"hi"}]}}}`))
				if got := strings.Count(string(answer.Wire().Body), `"messageId":"h`); got != want {
					s.t.Errorf("there are %d: %s", got, answer.Wire().Body)
				}
			})
		})
	}
}
