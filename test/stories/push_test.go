package stories

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// pushStage is a gateway whose state outlives it, with agents of every protocol.
type pushStage struct {
	*gatewaytest.Fixture
	simulator *gatewaytest.Simulator
	hook      *gatewaytest.PushReceiver
	plan      gatewaytest.Plan
}

func newPushStage(t *testing.T) *pushStage {
	t.Helper()
	return newPushStageOn(t, config.State{Path: filepath.Join(t.TempDir(), "state.db")})
}

func newPushStageOn(t *testing.T, state config.State) *pushStage {
	t.Helper()
	s := &pushStage{plan: gatewaytest.Plan{Config: config.Config{State: state}}}
	net := gatewaytest.NewSLIMNet(t, &s.plan)
	s.plan.Config.SLIM.Nodes[0].Caller = "spiffe://" + gatewaytest.TrustDomain + "/troupe"
	s.Fixture = gatewaytest.NewFixture(t, s.plan)
	s.Fixture.Slim = net
	s.simulator = gatewaytest.NewSimulator(t, s.Fixture)
	s.hook = gatewaytest.NewPushReceiver(t, s.Fixture)
	s.hire(t)
	return s
}

func (s *pushStage) hire(t *testing.T) {
	t.Helper()
	for name, agent := range gatewaytest.PushSides() {
		if !s.simulator.Hires(t, agent) {
			t.Fatalf("no agent of %s", name)
		}
	}
}

// restart ends the gateway, and starts another one on the same state.
func (s *pushStage) restart(t *testing.T) {
	t.Helper()
	s.Stop()
	s.Start(t, s.plan)
	s.hire(t)
}

func (s *pushStage) agent(name string) string {
	return s.simulator.Listed(gatewaytest.PushSides()[name], gatewaytest.Player)
}

// TestPush_WaitingSendIsRegisteredAndDelivered: a send that waits for its answer has
// a push notification configuration in it (A2A 1.0, section 3.2.2,
// SendMessageConfiguration.task_push_notification_config; 0.3, section 7.1.2,
// MessageSendConfiguration.pushNotificationConfig). It is registered for the task
// that the send makes, listed, and the end of the task is posted.
func TestPush_WaitingSendIsRegisteredAndDelivered(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	for name := range gatewaytest.PushSides() {
		for _, f := range gatewaytest.PushForms() {
			for what, one := range map[string]gatewaytest.Sending{"waiting": {}, "stream": {Stream: true}, "at once": {Returns: true}} {
				t.Run(f.Name+" to "+name+" "+what, func(t *testing.T) {
					t.Parallel()
					path := gatewaytest.PushPath("end", f.Name, name, what)
					one.Agent, one.Words, one.Hook = s.agent(name), "say hello", s.hook.URL+path
					task := f.TaskIn(t, f.Send(t, s.Fixture, one))
					s.hook.Until(t, path, "completed")
					if list := f.List(t, s.Fixture, one.Agent, task); !strings.Contains(list, path) || !strings.Contains(list, "p1") {
						t.Errorf("the list of configurations is %s", list)
					}
					s.hook.Conforms(t, path, f)
				})
			}
		}
	}
}

// TestPush_SixPairsAcrossARestart: callers of A2A 1.0 and 0.3, agents of A2A, MCP
// and µACP. A waiting send with an inline configuration ends in input required; the
// gateway is restarted on its state; the answer leads to the end. Every state
// is posted, in order, with its ECT, and the configuration is listed all the time. That
// the task works again is said by the gateway, for agents whose protocol has no task that
// goes on with the answer; an agent of A2A says itself what it does, and this one does not.
func TestPush_SixPairsAcrossARestart(t *testing.T) {
	t.Parallel()
	for name, state := range gatewaytest.PushBackends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newPushStageOn(t, state).sixPairs(t)
		})
	}
}

func (s *pushStage) sixPairs(t *testing.T) {
	t.Helper()
	type pair struct {
		form              gatewaytest.PushForm
		agent, path, task string
		want              []string
	}
	var pairs []*pair
	for _, f := range gatewaytest.JSONRPCForms() {
		for _, name := range []string{"A2A 1.0", "MCP", "µACP"} {
			p := &pair{form: f, agent: s.agent(name), path: gatewaytest.PushPath("pair", f.Name, name), want: []string{"input-required", "working", "completed"}}
			if name == "A2A 1.0" {
				p.want = []string{"input-required", "completed"}
			}
			answer := f.Send(t, s.Fixture, gatewaytest.Sending{Agent: p.agent, Words: "ask name", Hook: s.hook.URL + p.path})
			p.task = f.TaskIn(t, answer)
			pairs = append(pairs, p)
		}
	}
	for _, p := range pairs {
		if got := s.hook.Until(t, p.path, "input-required"); !slices.Equal(got, []string{"input-required"}) {
			t.Errorf("%s: before the restart %q", p.path, got)
		}
	}
	s.restart(t)
	for _, p := range pairs {
		if list := p.form.List(t, s.Fixture, p.agent, p.task); !strings.Contains(list, p.path) {
			t.Errorf("%s: after the restart the list of configurations is %s", p.path, list)
		}
		if answer := p.form.Send(t, s.Fixture, gatewaytest.Sending{Agent: p.agent, Task: p.task, Words: "Ada"}); !strings.Contains(strings.ToLower(answer), "completed") {
			t.Errorf("%s: the answer leads to %s", p.path, answer)
		}
		if got := s.hook.Until(t, p.path, "completed"); !slices.Equal(got, p.want) {
			t.Errorf("%s: posted in this order: %q, want %q", p.path, got, p.want)
		}
		s.hook.Conforms(t, p.path, p.form)
	}
}

// TestPush_WorkingIsPosted: an agent of A2A says on the way that it works, and each
// state that it says is posted, in order.
func TestPush_WorkingIsPosted(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	for _, f := range gatewaytest.PushForms() {
		for _, name := range []string{"A2A 1.0", "A2A 0.3"} {
			t.Run(f.Name+" to "+name, func(t *testing.T) {
				t.Parallel()
				path := gatewaytest.PushPath("working", f.Name, name)
				f.Send(t, s.Fixture, gatewaytest.Sending{Agent: s.agent(name), Words: gatewaytest.DoTell, Hook: s.hook.URL + path, Stream: true})
				got := s.hook.Until(t, path, "completed")
				if !slices.Equal(got, []string{"submitted", "working", "completed"}) {
					t.Errorf("posted in this order: %q", got)
				}
				s.hook.Conforms(t, path, f)
			})
		}
	}
}

// TestPush_PausedTasksGoOn: the configuration of a task that pauses holds for what
// comes later, whichever way the message that began it waited, and so does one that
// comes with the answer.
func TestPush_PausedTasksGoOn(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	for _, name := range []string{"A2A 1.0", "A2A 0.3", "MCP", "MCP 2025", "µACP"} {
		for _, f := range gatewaytest.PushForms() {
			for what, one := range map[string]gatewaytest.Sending{"waiting": {}, "stream": {Stream: true}, "at once": {Returns: true}, "unnamed": {}} {
				t.Run(fmt.Sprintf("%s to %s %s", f.Name, name, what), func(t *testing.T) {
					t.Parallel()
					path, second := gatewaytest.PushPath("pause", f.Name, name, what), gatewaytest.PushPath("answer", f.Name, name, what)
					one.Agent, one.Words, one.Hook = s.agent(name), "ask name", s.hook.URL+path
					if what == "unnamed" { // only the answer has a configuration
						one.Hook = ""
					}
					task := f.TaskIn(t, f.Send(t, s.Fixture, one))
					if one.Hook != "" {
						s.hook.Until(t, path, "input-required")
					}
					f.Send(t, s.Fixture, gatewaytest.Sending{Agent: one.Agent, Task: task, Words: "Ada", Stream: one.Stream, Returns: one.Returns, Hook: s.hook.URL + second})
					got := s.hook.Until(t, second, "completed")
					if slices.Contains(got, "input-required") {
						t.Errorf("the second webhook is told of what was before it: %q", got)
					}
					s.hook.Conforms(t, second, f)
				})
			}
		}
	}
}

// TestPush_QuestionOfTheGateway: the gateway itself asks for the arguments of a tool.
// The configuration of the message that it asks about is that of the task.
func TestPush_QuestionOfTheGateway(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	for _, f := range gatewaytest.PushForms() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			path := gatewaytest.PushPath("arguments", f.Name)
			task := f.TaskIn(t, f.Send(t, s.Fixture, gatewaytest.Sending{Agent: "forecast", Words: "how is it?", Hook: s.hook.URL + path}))
			s.hook.Until(t, path, "input-required")
			if list := f.List(t, s.Fixture, "forecast", task); !strings.Contains(list, path) {
				t.Errorf("the list of configurations is %s", list)
			}
			s.hook.Conforms(t, path, f)
		})
	}
}

// TestPush_RefusedBeforeTheAgentIsAsked: a configuration that cannot be served is an
// error that says why, and the agent hears nothing of the message.
func TestPush_RefusedBeforeTheAgentIsAsked(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	const words = "count never"
	for name := range gatewaytest.PushSides() {
		for _, f := range gatewaytest.PushForms() {
			for what, hook := range map[string]string{"a listed agent": s.Talker.URL(), "this gateway": s.At.Public + "/x", "no URL": "hook", "no TLS": "http://hook.example/x"} {
				answer := f.Send(t, s.Fixture, gatewaytest.Sending{Agent: s.agent(name), Words: words, Hook: hook})
				if strings.Contains(answer, "said 1") || !strings.Contains(answer, "egress policy") {
					t.Errorf("%s to %s, %s: %s", f.Name, name, what, answer)
				}
			}
		}
	}
	s.simulator.Agents.Mu.Lock()
	defer s.simulator.Agents.Mu.Unlock()
	if len(s.simulator.Agents.Counted) != 0 {
		t.Errorf("agents were asked: %v", s.simulator.Agents.Counted)
	}
}
