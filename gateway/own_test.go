package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// An id names one request of a session: while that runs, a second one is refused
// and changes nothing; then it is free. Of callers without a session, and of
// other sessions, everybody has ids of his own.
func TestRequestID_InUseIsRefused(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		adds := func(session string) transport.Call {
			call := s.legacy(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`)
			call.Agent, call.Session = "calculator", session
			return call
		}
		received := make(chan string, 4)
		for _, session := range []string{"one", "another", "", ""} {
			go func() {
				answer, err := s.Exchange(t.Context(), adds(session))
				text := string(answer.Wire().Body)
				if answer.Events() != nil {
					bodies, _ := read(t, answer.Events())
					text = strings.Join(bodies, "")
				}
				if err != nil {
					text = err.Error()
				}
				received <- text
			}()
		}
		synctest.Wait()
		var refused *canonical.Error
		if _, err := s.Exchange(t.Context(), adds("one")); !errors.As(err, &refused) || refused.Code != canonical.CodeInvalidRequest {
			t.Errorf("the second: %v", err)
		}
		if n := len(s.tools.bodies); n != 4 {
			t.Errorf("the agent heard %d calls", n)
		}
		close(s.tools.gate)
		for range 4 {
			if got := <-received; !strings.Contains(got, `"sum":3`) {
				t.Errorf("one was told %s", got)
			}
		}
		if _, err := s.Exchange(t.Context(), adds("one")); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// What a stranger's message names is not found, like what never was: neither
// his agent nor its owner notices (R2).
func TestTaskID_OfAnotherCallerIsNotFound(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{invoking: {{reply: wholeTask("COMPLETED", oneArt)}}, streaming: {{events: []string{wholeTask("WORKING", ""), status("COMPLETED", "")}, end: io.EOF}}}, func(s *stage) {
		t := s.t
		stranger := identity.Caller{Peer: ecttest.NewParty(t, "spiffe://example.com/stranger").Peer()}
		saying := func(more string) string {
			return `{"message":{"messageId":"m2",` + more + `"role":"ROLE_USER","parts":[{"text":"hi"}]}}`
		}
		s.ask(t, s, s.a2a(invoking, saying("")))
		for name, c := range map[string]struct {
			more    string
			unknown string // the same, with a name that was never given
			want    canonical.Code
		}{
			"a task":      {`"taskId":"t1",`, `"taskId":"t9",`, canonical.CodeTaskNotFound},
			"a reference": {`"referenceTaskIds":["t1"],`, `"referenceTaskIds":["t9"],`, canonical.CodeTaskNotFound},
		} {
			before := s.agent.was()
			var notified [2]string
			for i, more := range []string{c.more, c.unknown} {
				if more == "" {
					continue
				}
				call := s.a2a(invoking, saying(more))
				call.Caller = stranger
				answer, err := s.Exchange(t.Context(), call)
				var refused *canonical.Error
				if !errors.As(err, &refused) || refused.Code != c.want {
					t.Errorf("%s: %s, %v", name, answer.Wire().Body, err)
				}
				notified[i] = strings.ReplaceAll(err.Error(), "t9", "t1")
			}
			if c.unknown != "" && notified[0] != notified[1] {
				t.Errorf("%s: %q tells from %q that it is there", name, notified[0], notified[1])
			}
			if s.agent.was() != before {
				t.Errorf("%s: the agent was asked", name)
			}
		}
		for _, more := range []string{`"referenceTaskIds":["t1"],`, `"contextId":"mine",`, `"contextId":"c1",`} {
			s.ask(t, s, s.a2a(invoking, saying(more)))
		}
		if !strings.Contains(s.agent.last(), `"contextId":"c1"`) {
			t.Errorf("the owner's dialogue does not go on: %s", s.agent.last())
		}
		call := s.a2a(invoking, saying(`"contextId":"c1",`))
		call.Caller = stranger
		s.ask(t, s, call)
		if received := s.agent.last(); strings.Contains(received, `"c1"`) || !strings.Contains(received, `"contextId":"ctx-`) {
			t.Errorf("a stranger's message is in another's dialogue: %s", received)
		}
		read(t, s.ask(t, s, s.a2a(streaming, saying(`"contextId":"c1",`))).Events())
		many := strings.Repeat(`"t1",`, 40)
		if _, err := s.Exchange(t.Context(), s.a2a(invoking, saying(`"referenceTaskIds":[`+many[:len(many)-1]+`],`))); err == nil {
			t.Error("forty references are taken")
		}
	})
}

// A dialogue is its caller's from the moment that its work is on record, long
// before the answer ends.
func TestContextID_OwnedWhileStreamIsOpen(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{streaming: {{events: []string{wholeTask("WORKING", "")}}}}, func(s *stage) {
		t := s.t
		answer := s.ask(t, s, s.a2a(streaming, saying))
		if _, err := answer.Events().Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		call := s.a2a(streaming, strings.Replace(saying, `"messageId"`, `"contextId":"c1","messageId"`, 1))
		call.Caller = identity.Caller{Peer: ecttest.NewParty(t, "spiffe://example.com/stranger").Peer()}
		theirs := s.ask(t, s, call)
		if received := s.agent.last(); strings.Contains(received, `"c1"`) {
			t.Errorf("a stranger is let in: %s", received)
		}
		call = s.a2a(streaming, strings.Replace(saying, `"messageId"`, `"contextId":"c1","messageId"`, 1))
		own := s.ask(t, s, call)
		if received := s.agent.last(); !strings.Contains(received, `"c1"`) {
			t.Errorf("the owner is not let in: %s", received)
		}
		for _, answer := range []transport.Answer{answer, theirs, own} {
			_ = answer.Events().Close()
		}
	})
}

// unsure are answers that others share, and that cannot be confirmed now.
type unsure struct {
	idempotency.Store
	fails bool
}

func (u *unsure) Confirm(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) error {
	if u.fails {
		return &state.UnavailableError{RetryAfter: 3 * time.Second}
	}
	u.Finish(ctx, key, answer, until)
	return nil
}

// R18: how a task ended is told its caller only once that is kept for good.
func TestTaskEnd_ConfirmedBeforeReply(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		answers := &unsure{Store: s.memory, fails: true}
		s.shared = answers
		close(s.tools.gate)
		handler := s.replica(t)
		defer func() { _ = handler.Close() }()
		_, err := handler.Exchange(t.Context(), s.adds(invoking, adding))
		if p := problem.From(err); p.Status != 503 || p.RetryAfter == 0 {
			t.Errorf("an end that is not confirmed: %v", err)
		}
		answers.fails = false
		id, _ := taskIn(t, s.ask(t, handler, s.adds(invoking, adding)).Wire().Body)
		if got := s.state(handler, id); got != "COMPLETED" {
			t.Errorf("it is %s", got)
		}
	})
}

// ids are the tasks of a list, in order, and what it says about itself.
func (s *stage) list(g limiting, filter string) (ids []string, next string, total int) {
	s.t.Helper()
	var env struct {
		Result struct {
			Tasks         []struct{ ID string }
			NextPageToken string
			TotalSize     int
		}
	}
	body := s.ask(s.t, g, s.adds("ListTasks", filter)).Wire().Body
	if err := json.Unmarshal(body, &env); err != nil {
		s.t.Fatalf("%v: %s", err, body)
	}
	for _, task := range env.Result.Tasks {
		ids = append(ids, task.ID)
	}
	return ids, env.Result.NextPageToken, env.Result.TotalSize
}

// A list has all of its caller's tasks, those that ended with their first answer
// included, what changed last first, whichever replica is asked, and in pages
// (A2A 1.0, ListTasks).
func TestTaskList_IncludesImmediatelyEndedTasks(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		t := s.t
		other := s.replica(t)
		defer func() { _ = other.Close() }()
		working := s.begin(s.limiting)
		<-time.After(time.Second)
		close(s.tools.gate)
		synctest.Wait()
		want := []string{working}
		for n := range 60 {
			g := s.limiting
			if n%3 == 0 {
				g = other
			}
			<-time.After(time.Second)
			id, state := taskIn(t, s.ask(t, g, s.adds(invoking, strings.Replace(adding, `"messageId"`, `"contextId":"c`+strconv.Itoa(n%2)+`","messageId"`, 1))).Wire().Body)
			if state != "TASK_STATE_COMPLETED" {
				t.Fatalf("it is %s", state)
			}
			want = append(want, id)
		}
		slices.Reverse(want)
		for _, g := range []limiting{s.limiting, other} {
			var got []string
			cursor, pages := "", 0
			for pages < 10 {
				ids, next, total := s.list(g, `{"pageSize":25,"pageToken":"`+cursor+`"}`)
				if got, cursor, pages = append(got, ids...), next, pages+1; total != len(want) {
					t.Errorf("it says that there are %d", total)
				}
				if cursor == "" {
					break
				}
			}
			if pages != 3 || !slices.Equal(got, want) {
				t.Errorf("%d pages: %d tasks, not %d, or in another order", pages, len(got), len(want))
			}
		}
		if ids, _, total := s.list(other, `{"contextId":"c1","status":"TASK_STATE_COMPLETED"}`); len(ids) != 30 || total != 30 {
			t.Errorf("of a dialogue there are %d, %d", len(ids), total)
		}
		if ids, _, _ := s.list(other, `{}`); len(ids) != 50 {
			t.Errorf("a page of the usual size has %d", len(ids))
		}
		if ids, _, _ := s.list(other, `{"statusTimestampAfter":"`+time.Now().Add(-9500*time.Millisecond).UTC().Format(time.RFC3339Nano)+`"}`); len(ids) != 10 {
			t.Errorf("of the last seconds there are %d", len(ids))
		}
		if ids, _, _ := s.list(other, `{"status":"TASK_STATE_WORKING"}`); len(ids) != 0 {
			t.Errorf("at work are %v", ids)
		}
		stranger := s.adds("ListTasks", `{}`)
		stranger.Caller = identity.Caller{Peer: ecttest.NewParty(t, "spiffe://example.com/stranger").Peer()}
		if answer, err := s.Exchange(t.Context(), stranger); err != nil || !strings.Contains(string(answer.Wire().Body), `"totalSize":0`) {
			t.Errorf("a stranger is told %s, %v", answer.Wire().Body, err)
		}
		var refused *canonical.Error
		if _, err := s.Exchange(t.Context(), s.adds("ListTasks", `{"pageToken":"x"}`)); !errors.As(err, &refused) || refused.Code != canonical.CodeBadParams {
			t.Errorf("a page that nobody named: %v", err)
		}
		<-time.After(time.Hour)
		if ids, _, total := s.list(other, `{}`); len(ids) != 0 || total != 0 {
			t.Errorf("an hour later there are %v", ids)
		}
	})
}

// Many at once take turns in writing, and none is missing.
func TestTaskList_ConcurrentWritesLoseNothing(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		close(s.tools.gate)
		go func() {
			for range s.tools.entered { // its calls are not counted here
				continue
			}
		}()
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { s.ask(s.t, s, s.adds(invoking, adding)) })
		}
		all.Wait()
		close(s.tools.entered)
		if _, _, total := s.list(s.limiting, `{}`); total != 64 {
			s.t.Errorf("there are %d", total)
		}
	})
}
