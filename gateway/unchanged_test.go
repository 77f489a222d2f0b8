package gateway_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const notChanged = "has not changed for 1m0s"

// atWork plays an MCP server whose task never ends.
func atWork(t *testing.T, test func(*stage)) {
	t.Helper()
	era(t, mcp.Modern, map[string][]scene{
		calling:     {{reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}},
		tasksGet:    {{reply: newStands("working", "")}},
		tasksCancel: {{reply: result(`{"resultType":"complete"}`)}},
	}, test)
}

// looks is how often the server was asked how its task stands.
func (s *stage) looks() int { return strings.Count(s.asker.was(), tasksGet) }

// stream is what a stream tells in ten minutes at most.
func (s *stage) stream(call transport.Call) []string {
	s.t.Helper()
	events := s.ask(s.t, s, call).Events()
	late := time.AfterFunc(10*time.Minute, func() { _ = events.Close() })
	defer late.Stop()
	bodies, _ := read(s.t, events)
	return bodies
}

// TestTaskUnchanged_EndsAStream: a caller who hears a stream is told in words that the
// task is not followed any more; the task has not failed, and is not canceled.
func TestTaskUnchanged_EndsAStream(t *testing.T) {
	t.Parallel()
	atWork(t, func(s *stage) {
		t := s.t
		s.Apply(gateway.Settings{TaskUnchanged: time.Minute})
		began := time.Now()
		bodies := s.stream(s.asks(streaming, called))
		if took := time.Since(began); took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("the stream ended after %v", took)
		}
		if last := bodies[len(bodies)-1]; !strings.Contains(last, `"error"`) || !strings.Contains(last, notChanged) {
			t.Errorf("the stream ended with %s", last)
		}
		id, _ := taskIn(t, []byte(bodies[0]))
		synctest.Wait()
		looks := s.looks()
		<-time.After(10 * time.Minute)
		if now := s.looks(); now != looks {
			t.Errorf("the agent was asked %d times more", now-looks)
		}
		if was := s.asker.was(); strings.Contains(was, tasksCancel) {
			t.Errorf("the agent was told to cancel: %s", was)
		}
		if got := s.says(s.asks(looking, `{"id":"`+id+`"}`)); !strings.Contains(got, "TASK_STATE_WORKING") {
			t.Errorf("asked again, the task is %s", got)
		}
	})
}

// TestTaskUnchanged_ReleasesATask: work that goes on without its caller is told as it
// was seen last, with words that say that it is not followed any more, also to a
// webhook, for whose sake no process takes it over. Who subscribes to it has it followed
// again, for as long.
func TestTaskUnchanged_ReleasesATask(t *testing.T) {
	t.Parallel()
	atWork(t, func(s *stage) {
		t := s.t
		s.Apply(gateway.Settings{TaskUnchanged: time.Minute})
		if err := s.TakeOver(); err != nil {
			t.Fatal(err)
		}
		const config = `{"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://hook.example/"}},"message"`
		id, _ := taskIn(t, s.ask(t, s, s.asks(invoking, strings.Replace(called, `{"message"`, config, 1))).Wire().Body)
		<-time.After(2 * time.Minute)
		looks := s.looks()
		<-time.After(10 * time.Minute)
		if now := s.looks(); now != looks {
			t.Errorf("the agent was asked %d times more", now-looks)
		}
		s.posts.mu.Lock()
		if all := s.posts.taken; len(all) == 0 || !strings.Contains(all[len(all)-1], notChanged) {
			t.Errorf("posted was %s", all)
		}
		s.posts.mu.Unlock()
		list := s.says(s.asks("ListTasks", `{}`))
		if !strings.Contains(list, id) || !strings.Contains(list, "TASK_STATE_WORKING") || !strings.Contains(list, notChanged) {
			t.Errorf("the list is %s", list)
		}
		for range 2 {
			began := time.Now()
			bodies := s.stream(s.asks(following, `{"id":"`+id+`"}`))
			if took := time.Since(began); took < time.Minute || took > time.Minute+2*time.Second {
				t.Errorf("the subscription ended after %v", took)
			}
			if last := bodies[len(bodies)-1]; !strings.Contains(last, `"error"`) || !strings.Contains(last, notChanged) {
				t.Errorf("the subscription told %s", bodies)
			}
			if slices.ContainsFunc(bodies, func(b string) bool { return strings.Contains(b, "TASK_STATE_FAILED") }) {
				t.Errorf("the task is said to have failed: %s", bodies)
			}
		}
	})
}

// TestTaskUnchanged_ChangesCount: what changes now and then is followed to its end.
func TestTaskUnchanged_ChangesCount(t *testing.T) {
	t.Parallel()
	var looks []scene
	for _, words := range []string{"one", "two", "three"} {
		for range 80 { // one each half second
			looks = append(looks, scene{reply: newStands("working", `,"statusMessage":"`+words+`"`)})
		}
	}
	looks = append(looks, scene{reply: newStands("completed", `,"result":`+complete)})
	era(t, mcp.Modern, map[string][]scene{
		calling: {{reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}}, tasksGet: looks,
	}, func(s *stage) {
		t := s.t
		s.Apply(gateway.Settings{TaskUnchanged: time.Minute})
		bodies := s.stream(s.asks(streaming, called))
		if last := bodies[len(bodies)-1]; !strings.Contains(last, "TASK_STATE_COMPLETED") {
			t.Errorf("the stream ended with %s", last)
		}
	})
}

// TestTaskUnchanged_OffByDefault: without the setting an agent is asked without end.
func TestTaskUnchanged_OffByDefault(t *testing.T) {
	t.Parallel()
	atWork(t, func(s *stage) {
		t := s.t
		events := s.ask(t, s, s.asks(streaming, called)).Events()
		received := make(chan []string, 1)
		go func() {
			bodies, _ := read(t, events)
			received <- bodies
		}()
		<-time.After(time.Hour)
		if s.looks() < 5000 {
			t.Errorf("in an hour the agent was asked %d times", s.looks())
		}
		s.asker.mu.Lock()
		s.asker.scenes[tasksGet] = []scene{{reply: newStands("cancelled", "")}}
		s.asker.mu.Unlock()
		if bodies := <-received; !strings.Contains(bodies[len(bodies)-1], "TASK_STATE_CANCELED") {
			t.Errorf("the task ended with %s", bodies)
		}
	})
}

// TestTaskUnchanged_KeepsItsPlaceOnLists: being asked about again and again changes
// nothing about a task, so a caller who reads a list page by page finds every task,
// however slowly it reads, and for as long as the work lasts.
func TestTaskUnchanged_KeepsItsPlaceOnLists(t *testing.T) {
	t.Parallel()
	atWork(t, func(s *stage) {
		t := s.t
		begin := func() string {
			const config = `{"configuration":{"returnImmediately":true},"message"`
			id, _ := taskIn(t, s.ask(t, s, s.asks(invoking, strings.Replace(called, `{"message"`, config, 1))).Wire().Body)
			<-time.After(time.Minute)
			return id
		}
		first, second := begin(), begin()
		for range 4 { // two hours: longer than a record lives after its last change
			page := s.says(s.asks("ListTasks", `{"pageSize":1}`))
			if !strings.Contains(page, second) {
				t.Errorf("the first page is %s, expected the task that was begun last, %s", page, second)
			}
			var list struct {
				Result struct{ NextPageToken string }
			}
			if err := json.Unmarshal([]byte(page), &list); err != nil || list.Result.NextPageToken == "" {
				t.Fatalf("the first page %s names no second one: %v", page, err)
			}
			<-time.After(30 * time.Minute)
			if page := s.says(s.asks("ListTasks", `{"pageSize":1,"pageToken":"`+list.Result.NextPageToken+`"}`)); !strings.Contains(page, first) {
				t.Errorf("the second page is %s, expected %s", page, first)
			}
		}
	})
}
