package gateway_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// dying is the state as a replica sees it that is killed while it takes an answer:
// from a certain step on it does nothing any more.
type dying struct {
	store.Entries
	before string // "mail": the answer is not on its way yet; "put away": it is
}

func (d *dying) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	if key.Kind == "mail" && d.before == "mail" || key.Kind == "question" && old > 0 && d.before == "put away" {
		return 0, false, &state.UnavailableError{}
	}
	return d.Entries.Swap(ctx, key, old, value, until)
}

// askedAt begins a call of a client of a session at this replica, up to its question.
func (s *stage) askedAt(t *testing.T) (events transport.Events, reply transport.Call) {
	t.Helper()
	answer := s.ask(t, s, s.legacy(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":`+askingHi+`}}`))
	_, rest, found := strings.Cut(heardNext(t, answer.Events()), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !found {
		t.Fatal("nothing is asked")
	}
	return answer.Events(), s.legacy(`{"jsonrpc":"2.0","id":"` + id + `","result":{"action":"accept","content":{"reply":"short"}}}`)
}

// A replica is killed while it takes the answer to a question of another's: whether
// the answer was on its way or not, the client that says it again is heard, once.
func TestReplica_RepeatedAnswerAfterCrashDeliveredOnce(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"it was lost": "mail", "it was on its way": "put away", "it had arrived": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, whatWriterAsks(), func(s *stage) {
				t := s.t
				s.view = &dying{s.memory.Entries(), before}
				killed := s.replica(t)
				s.view = nil
				third := s.replica(t)
				events, reply := s.askedAt(t)
				if _, err := killed.Exchange(t.Context(), reply); (err != nil) != (before != "") {
					t.Errorf("the client is told %v", err)
				}
				if before == "" { // the answer to the answer was lost
					<-time.After(time.Second)
				}
				if _, err := third.Exchange(t.Context(), reply); err != nil {
					t.Errorf("said again it is refused: %v", err)
				}
				bodies, _ := read(t, events)
				if last := bodies[len(bodies)-1]; !strings.Contains(last, "done it") || strings.Count(strings.Join(s.agent.bodies, ""), `"short"`) != 1 {
					t.Errorf("the answer leads to %s, and the agent heard %s", last, s.agent.bodies)
				}
				_, _ = killed.Close(), third.Close()
			})
		})
	}
}

// And one that does not say it again: after the time for answers the call ends with
// an error, and the agent's task is canceled. The agent hears no word that the user did
// not say.
func TestAnswer_LostOnTheWay(t *testing.T) {
	t.Parallel()
	scenes := whatWriterAsks()
	scenes[canceling] = []scene{{reply: result(taskOf("CANCELED", ""))}}
	play(t, scenes, func(s *stage) {
		t := s.t
		s.view = &dying{s.memory.Entries(), "mail"}
		killed := s.replica(t)
		s.view = nil
		events, reply := s.askedAt(t)
		if _, err := killed.Exchange(t.Context(), reply); err == nil {
			t.Error("the client is told that it was taken")
		}
		_ = killed.Close()
		began := time.Now()
		done := make(chan []string, 1)
		go func() {
			bodies, _ := read(t, events)
			done <- bodies
		}()
		select {
		case bodies := <-done:
			last := bodies[len(bodies)-1]
			synctest.Wait() // the agent is told in the background
			if took := time.Since(began); took != 10*time.Minute || !strings.Contains(s.agent.last(), canceling) ||
				!strings.Contains(last, `"id":7`) || !strings.Contains(last, "not answered within 10m") || strings.Contains(strings.Join(s.agent.bodies, ""), "cancelled") {
				t.Errorf("after %v it ends with %s; the agent heard %s", took, last, s.agent.last())
			}
		case <-time.After(20 * time.Minute):
			t.Error("it goes on for ever")
			_ = events.Close()
		}
	})
}

// What was recorded of a task and not posted when its process died is in the first
// thing that its successor posts, the whole task; what happens from then on follows.
func TestReplica_UnpostedStateIsPostedAfterCrash(t *testing.T) {
	t.Parallel()
	const first, half = `,"artifacts":[{"artifactId":"a0","parts":[{"text":"first part"}]}]`, "half way"
	part := strings.Replace(artifact("first part"), `"artifactId":"a1"`, `"artifactId":"a0"`, 1)
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", ""), "", part, status("WORKING", half)}}},
		following: {
			{events: []string{strings.Replace(wholeTask("WORKING", first), `"state":"TASK_STATE_WORKING"`, `"state":"TASK_STATE_WORKING","message":{"messageId":"s1","role":"ROLE_AGENT","parts":[{"text":"`+half+`"}]}`, 1), artifact("second part"), status("COMPLETED", "")}, end: io.EOF, after: time.Second},
		},
	}, func(s *stage) {
		t := s.t
		losses := &entries{Entries: s.memory.Entries()}
		s.view = losses
		dies := s.replica(t)
		s.view = nil
		successor := s.replica(t)
		for _, g := range []limiting{dies, successor} {
			if err := g.TakeOver(); err != nil {
				t.Fatal(err)
			}
		}
		const config = `{"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://hook.example/"}},"message"`
		s.ask(t, dies, s.a2a(invoking, strings.Replace(saying, `{"message"`, config, 1)))
		<-time.After(time.Second)
		s.posts.deaf.Store(true) // what it records from now on it does not get to post
		s.agent.resume <- struct{}{}
		<-time.After(time.Second)
		losses.broken.Store(true)
		_ = dies.Close()
		s.posts.deaf.Store(false)
		<-time.After(2 * time.Minute)
		s.posts.mu.Lock()
		defer s.posts.mu.Unlock()
		all := strings.Join(s.posts.taken, "\n")
		if len(s.posts.taken) != 4 {
			t.Fatalf("posted was %s", all)
		}
		for i, want := range [][]string{{`"task"`, "WORKING"}, {`"task"`, "WORKING", "first part", half}, {`"artifactUpdate"`, "second part"}, {`"statusUpdate"`, "COMPLETED"}} {
			for _, text := range want {
				if !strings.Contains(s.posts.taken[i], text) {
					t.Errorf("post %d lacks %s: %s", i, text, s.posts.taken[i])
				}
			}
		}
		if strings.Count(all, "first part") != 1 {
			t.Errorf("posted was %s", all)
		}
		_ = successor.Close()
	})
}

var errDeaf = errors.New("nobody is there")
