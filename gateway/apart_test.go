package gateway_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// What a server hears of its task, whatever its caller asks in, and what its caller
// hears of that: ids, states, and nothing twice.

// revisionPair is a caller's and a server's revision that know tasks in different ways.
type revisionPair struct {
	server   string // its revision
	begin    string // what it answers a call with,
	canceled string // and tasks/cancel
	stands   func(status string) string
	asks     func(s *stage) func(method, params string) transport.Call // its caller
}

func revisionPairs() map[string]revisionPair {
	return map[string]revisionPair{
		"2025-11-25 to 2026-07-28": {
			mcp.Modern, `{"resultType":"task","status":"working",` + newTask + `}`, result(`{"resultType":"complete"}`),
			func(status string) string { return newStands(status, "") },
			func(s *stage) func(string, string) transport.Call { return s.older },
		},
		"2026-07-28 to 2025-11-25": {
			mcp.Legacy, `{"task":{"status":"working",` + oldTask + `}}`, oldStands("cancelled"), oldStands,
			func(s *stage) func(string, string) transport.Call { return s.newer },
		},
	}
}

// acrossRevisions begins a task both ways. The server plays scenes, once it has answered the call.
func acrossRevisions(t *testing.T, scenes func(revisionPair) map[string][]scene, test func(*stage, revisionPair)) {
	t.Helper()
	t.Parallel()
	for name, pair := range revisionPairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := scenes(pair)
			all[calling] = []scene{{reply: result(pair.begin)}}
			era(t, pair.server, all, func(s *stage) {
				s.beginsTask(pair)
				test(s, pair)
			})
		})
	}
}

// beginsTask begins a task of the server's.
func (s *stage) beginsTask(pair revisionPair) {
	s.t.Helper()
	s.asker.support = "optional"
	params := wantsTask
	if pair.server == mcp.Legacy {
		params = `"name":"ask","arguments":{}`
	}
	if got := s.says(pair.asks(s)(calling, params)); !strings.Contains(got, `"taskId":"u1","status":"working"`) && !strings.Contains(got, `"status":"working","taskId":"u1"`) {
		s.t.Fatalf("begun as %s", got)
	}
}

// asksOfIt expects of what the server heard in a method that it is about its own
// task, in its own revision.
func (s *stage) asksOfIt(server, method string, times int) {
	s.t.Helper()
	bodies := s.asker.received(method)
	if times >= 0 && len(bodies) != times {
		s.t.Errorf("%s is asked %d times: %s", method, len(bodies), s.asker.was())
	}
	for _, body := range bodies {
		meta := strings.Contains(body, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)
		if !strings.Contains(body, `"params":{"taskId":"u1"`) || meta != (server == mcp.Modern) {
			s.t.Errorf("the server heard %s", body)
		}
	}
}

// isCanceled is a server whose task is canceled after it was asked about.
func isCanceled(pair revisionPair) map[string][]scene {
	return map[string][]scene{
		tasksGet: {{reply: pair.stands("working")}, {reply: pair.stands("cancelled")}}, tasksCancel: {{reply: pair.canceled}},
	}
}

func TestServerTask_StatusComesFromServer(t *testing.T) {
	acrossRevisions(t, isCanceled, func(s *stage, pair revisionPair) {
		s.until(pair.asks(s), `"status":"cancelled"`) // by somebody else
		s.asksOfIt(pair.server, tasksGet, 2)
		s.asksOfIt(pair.server, tasksCancel, 0)
		var none *canonical.Error
		if _, err := s.Exchange(s.t.Context(), pair.asks(s)(tasksGet, `"taskId":"u2"`)); !errors.As(err, &none) || none.Code != canonical.CodeTaskNotFound {
			s.t.Errorf("a task that nobody has: %v", err)
		}
	})
}

func TestServerTask_CanceledOnce(t *testing.T) {
	acrossRevisions(t, isCanceled, func(s *stage, pair revisionPair) {
		got := s.says(pair.asks(s)(tasksCancel, `"taskId":"u1"`))
		if whole := strings.Contains(got, `"taskId":"u1","status":"cancelled"`); whole != (pair.server == mcp.Modern) || strings.Contains(got, `"error"`) {
			s.t.Errorf("canceled as %s", got)
		}
		s.until(pair.asks(s), `"status":"cancelled"`)
		_, _ = s.Exchange(s.t.Context(), pair.asks(s)(tasksCancel, `"taskId":"u1"`)) // which its revision refuses, or acknowledges
		s.asksOfIt(pair.server, tasksCancel, 1)
		s.asksOfIt(pair.server, tasksGet, -1)
		if calls := s.asker.received(calling); len(calls) != 1 {
			s.t.Errorf("the server was asked %s", s.asker.was())
		}
	})
}

// A server that does not cancel a task any more: its caller hears that, and how the
// task stands in truth.
func TestServerTask_CancelRefusedByServer(t *testing.T) {
	acrossRevisions(t, func(pair revisionPair) map[string][]scene {
		return map[string][]scene{tasksGet: {{reply: pair.stands("working")}}, tasksCancel: {{reply: failure("-32602")}}}
	}, func(s *stage, pair revisionPair) {
		var refused *canonical.Error
		if _, err := s.Exchange(s.t.Context(), pair.asks(s)(tasksCancel, `"taskId":"u1"`)); !errors.As(err, &refused) || refused.Code != canonical.CodeBadParams {
			s.t.Errorf("canceling it: %v", err)
		}
		s.until(pair.asks(s), `"status":"working"`)
	})
}

// A caller of A2A cancels a task that an MCP server keeps: the server's own task is
// canceled, and how it stands then is the answer.
func TestServerTask_CanceledByA2ACaller(t *testing.T) {
	t.Parallel()
	for name, pair := range revisionPairs() {
		for state, ends := range map[string]string{"CANCELED": "cancelled", "WORKING": "working"} {
			t.Run(name+" "+state, func(t *testing.T) {
				t.Parallel()
				era(t, pair.server, map[string][]scene{
					calling:     {{reply: result(pair.begin)}},
					tasksGet:    {{reply: pair.stands(ends)}},
					tasksCancel: {{reply: strings.ReplaceAll(pair.canceled, `"cancelled"`, `"`+ends+`"`)}},
				}, func(s *stage) {
					s.asker.support = "optional"
					id, begun := taskIn(s.t, s.ask(s.t, s, s.asks(invoking, strings.Replace(called, `{"message"`, `{"configuration":{"returnImmediately":true},"message"`, 1))).Wire().Body)
					if begun != "TASK_STATE_WORKING" {
						s.t.Fatalf("begun as %s", begun)
					}
					if same, got := taskIn(s.t, s.ask(s.t, s, s.asks(canceling, `{"id":"`+id+`"}`)).Wire().Body); same != id || got != "TASK_STATE_"+state {
						s.t.Errorf("canceled it is %s, %s", same, got)
					}
					s.asksOfIt(pair.server, tasksCancel, 1)
					s.asksOfIt(pair.server, tasksGet, -1)
				})
			})
		}
	}
}

// A request that became a task at the server, of which its caller knows nothing: who
// stops the one, or leaves, has the other canceled.
func TestServerTask_CanceledWithItsRequest(t *testing.T) {
	t.Parallel()
	for name, pair := range revisionPairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenes := map[string][]scene{
				calling: {{reply: result(pair.begin)}}, tasksGet: {{reply: pair.stands("working")}}, tasksCancel: {{reply: pair.canceled}},
			}
			version := mcp.Modern
			if pair.server == mcp.Modern {
				version, scenes[calling] = mcp.LegacyJune, []scene{{reply: failure("-32021")}, {reply: result(pair.begin)}}
			}
			era(t, pair.server, scenes, func(s *stage) {
				s.asker.support = "required"
				ctx, leave := context.WithCancel(s.t.Context())
				call := s.asksFor(version, calling, `"name":"ask","arguments":{},`)
				call.Agent = "asker"
				if call.Session = "s1"; version == mcp.Modern {
					call.Session = ""
				}
				ended := make(chan error, 1)
				go func() {
					_, err := s.Exchange(ctx, call)
					ended <- err
				}()
				<-time.After(3 * time.Second)
				if version == mcp.Modern {
					leave()
				} else {
					stop := s.olderIn(version, "", "")
					stop.Wire.Body = []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
					s.ask(s.t, s, stop)
				}
				if err := <-ended; err == nil {
					s.t.Error("it was answered")
				}
				leave()
				synctest.Wait()
				s.asksOfIt(pair.server, tasksCancel, 1)
				looks := len(s.asker.received(tasksGet))
				<-time.After(10 * time.Second)
				if more := len(s.asker.received(tasksGet)); looks == 0 || more != looks {
					s.t.Errorf("the server was asked %s", s.asker.was())
				}
			})
		})
	}
}
