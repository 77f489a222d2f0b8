package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/a2a"
)

// crashStage is a gateway in a process of its own, which can be killed, with agents
// and webhooks in this one.
type crashStage struct {
	*gatewaytest.Fixture
	simulator *gatewaytest.Simulator
	hook      *gatewaytest.PushReceiver
	state     config.State
	file      string               // the configuration of the process
	cmd       *exec.Cmd            // the process
	errors    *gatewaytest.Journal // its log
}

// newCrashStage lists agents of the sides with a gateway in a process.
func newCrashStage(t *testing.T, state config.State, sides ...gatewaytest.Side) *crashStage {
	t.Helper()
	s := &crashStage{Fixture: gatewaytest.NewFixture(t, gatewaytest.Plan{}), state: state, errors: &gatewaytest.Journal{}}
	s.simulator, s.hook = gatewaytest.NewSimulator(t, s.Fixture), gatewaytest.NewPushReceiver(t, s.Fixture)
	text := fmt.Sprintf("state: {path: %q}\n", state.Path)
	if state.Redis.Used() {
		text = fmt.Sprintf("state: {key: %q, redis: {addresses: [%q], plaintext: loopback}}\n", state.Key, state.Redis.Addresses[0])
	}
	agents := []string{text + "agents:\n"}
	for _, one := range sides {
		if !s.simulator.Hires(t, one) {
			t.Fatalf("no agent of %s", one.Name)
		}
		name := s.simulator.Listed(one, gatewaytest.Player)
		agent, ok := s.Directory().Find(name)
		if !ok {
			t.Fatalf("no agent %s", name)
		}
		at := agent.Endpoints[0]
		agents = append(agents, fmt.Sprintf("  %s: {id: %q, timeout: 60s, endpoints: [{binding: %s, version: %q, url: %q, form: %q}]}\n", name, agent.ID, at.Binding, at.Version, at.URL, at.Form))
	}
	s.Stop() // it was there to list the agents
	s.file = filepath.Join(t.TempDir(), "gateway.yaml")
	gatewaytest.Must(t, os.WriteFile(s.file, []byte(strings.Join(agents, "")), 0o600))
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Log(s.errors.String())
		}
	})
	s.run(t)
	return s
}

// run starts the process, and waits until it says where it listens.
func (s *crashStage) run(t *testing.T) {
	t.Helper()
	program, err := os.Executable()
	gatewaytest.Must(t, err)
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), program, "dev", "--dir", s.Fixture.Dir,
		"--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--config", s.file)
	s.cmd.Env, s.cmd.Stderr = append(os.Environ(), gatewaytest.AsGateway+"=1"), s.errors
	out, err := s.cmd.StdoutPipe()
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, s.cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "ready public "); ok {
			s.At.Public = at
			return
		}
	}
	t.Fatalf("the process ended: %v", s.cmd.Wait())
}

// kill ends the process with SIGKILL.
func (s *crashStage) kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()         // of being killed
}

// entries opens the state of the process, which has ended.
func (s *crashStage) entries(t *testing.T) (entries store.Entries, closing func()) {
	t.Helper()
	var text []byte
	var err error
	var sealed store.Entries
	if s.state.Redis.Used() {
		text, err = os.ReadFile(s.state.Key)
		gatewaytest.Must(t, err)
		opened, err := redis.Open(redis.Config{Addresses: s.state.Redis.Addresses}, redis.Deps{Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
		gatewaytest.Must(t, err)
		sealed, closing = opened.Entries(), func() { gatewaytest.Must(t, opened.Close()) }
	} else {
		text, err = os.ReadFile(s.state.Path + ".key")
		gatewaytest.Must(t, err)
		opened, err := bolt.Open(bolt.Config{Path: s.state.Path}, bolt.Deps{Now: time.Now})
		gatewaytest.Must(t, err)
		sealed, closing = opened.Entries(), func() { gatewaytest.Must(t, opened.Close()) }
	}
	keys, err := seal.ParseKeys(text)
	gatewaytest.Must(t, err)
	box, err := seal.NewBox(seal.Deps{Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, keys...)
	gatewaytest.Must(t, err)
	return seal.NewEntries(sealed, box), closing
}

// pass lets the time pass after which the killed process counts as lost: its heartbeat
// is taken from the state, as if it had ended.
func (s *crashStage) pass(t *testing.T) {
	t.Helper()
	entries, closing := s.entries(t)
	defer closing()
	tasks, err := entries.List(t.Context(), store.KindFailover, "", "", 100)
	gatewaytest.Must(t, err)
	if len(tasks) == 0 {
		t.Error("the state has no task that another process would go on with")
	}
	for _, entry := range tasks {
		var looked struct{ By string }
		gatewaytest.Must(t, json.Unmarshal(entry.Value, &looked))
		gatewaytest.Must(t, entries.Delete(t.Context(), store.EntryKey{Kind: store.KindReplica, Group: looked.By, ID: looked.By}))
	}
}

// crashed is one task of TestPush_SixPairsAcrossACrash.
type crashed struct {
	form                    gatewaytest.PushForm
	agent, path, words, job string
	task                    string
	before, after           []string // states, each once in a row
}

// TestPush_SixPairsAcrossACrash: callers of A2A 1.0 and 0.3, agents of A2A, MCP and
// µACP, and a gateway that is killed while agents work for it, and while others wait
// for an answer. A new process on the same state goes on with all of it: what the
// agents do is posted to its end, whether they end while there is no gateway or later,
// and the configurations are listed. What was posted last may be posted once more,
// because the new process cannot know of it; an end is posted once. Work whose agent
// cannot be asked about it fails, and that is posted.
func TestPush_SixPairsAcrossACrash(t *testing.T) {
	t.Parallel()
	for name, state := range gatewaytest.PushBackends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sides := gatewaytest.PushSides()
			s := newCrashStage(t, state, sides["A2A 1.0"], sides["MCP"], sides["µACP"])
			tasks := s.begin(t)
			s.kill()
			for _, c := range tasks {
				if c.form.Version == a2a.Version {
					s.simulator.Agents.Finish(c.job) // while there is no gateway
				}
			}
			s.pass(t)
			s.run(t)
			s.resume(t, tasks)
		})
	}
}

// begin has all agents begin, and waits until the webhooks have been told so.
func (s *crashStage) begin(t *testing.T) (tasks []*crashed) {
	t.Helper()
	for _, f := range gatewaytest.JSONRPCForms() {
		for _, name := range []string{"A2A 1.0", "MCP", "µACP"} {
			agent := s.simulator.Listed(gatewaytest.PushSides()[name], gatewaytest.Player)
			job, toil := string(ect.NewID()), string(ect.NewID())
			work := &crashed{form: f, agent: agent, job: job, words: gatewaytest.DoWork + " " + job, path: gatewaytest.PushPath("work", f.Name, name), before: []string{"working"}, after: []string{"working", "completed"}}
			paused := &crashed{form: f, agent: agent, words: "ask name", path: gatewaytest.PushPath("paused", f.Name, name), before: []string{"input-required"}, after: []string{"input-required", "working", "completed"}}
			if name == "A2A 1.0" { // an agent of A2A says itself that it works again
				paused.after = []string{"input-required", "completed"}
			}
			tasks = append(tasks, work, paused)
			if name == "MCP" { // an agent without a task
				tasks = append(tasks, &crashed{form: f, agent: agent, job: toil, words: gatewaytest.DoToil + " " + toil, path: gatewaytest.PushPath("toil", f.Name, name), before: []string{"working"}, after: []string{"working", "failed"}})
			}
		}
	}
	for _, c := range tasks {
		c.task = c.form.TaskIn(t, c.form.Send(t, s.Fixture, gatewaytest.Sending{Agent: c.agent, Words: c.words, Hook: s.hook.URL + c.path, Returns: true}))
	}
	for _, c := range tasks {
		if got := s.hook.Until(t, c.path, c.before[len(c.before)-1]); !slices.Equal(got, c.before) {
			t.Errorf("%s: posted before the crash: %q, want %q", c.path, got, c.before)
		}
		if c.job != "" && !gatewaytest.Soon(t.Context(), func() bool { return s.simulator.Agents.Job(c.job) != nil }) {
			t.Errorf("%s: the agent has not begun", c.path)
		}
	}
	return tasks
}

// resume has agents end their work with the new process, and judges what was posted.
func (s *crashStage) resume(t *testing.T, tasks []*crashed) {
	t.Helper()
	for _, c := range tasks {
		if list := c.form.List(t, s.Fixture, c.agent, c.task); !strings.Contains(list, c.path) {
			t.Errorf("%s: after the crash the list of configurations is %s", c.path, list)
		}
		switch {
		case c.job == "":
			if answer := c.form.Send(t, s.Fixture, gatewaytest.Sending{Agent: c.agent, Task: c.task, Words: "Ada"}); !strings.Contains(strings.ToLower(answer), "completed") {
				t.Errorf("%s: the answer leads to %s", c.path, answer)
			}
		case c.after[len(c.after)-1] == "completed" && c.form.Version != a2a.Version:
			gatewaytest.Within(t, gatewaytest.Patience, c.path+" is told again that the agent works", func() bool { return len(s.hook.States(c.path)) > len(c.before) })
			s.simulator.Agents.Finish(c.job)
		}
	}
	for _, c := range tasks {
		end := c.after[len(c.after)-1]
		if got := s.hook.Until(t, c.path, end); !slices.Equal(got, c.after) {
			t.Errorf("%s: posted in this order: %q, want %q", c.path, got, c.after)
		}
		times := map[string]int{}
		for _, state := range s.hook.States(c.path) {
			times[state]++
		}
		once := maps.Clone(times)
		maps.DeleteFunc(once, func(state string, n int) bool { return n == 1 || n == 2 && state == c.before[len(c.before)-1] })
		if len(once) > 0 {
			t.Errorf("%s: posted so many times: %v", c.path, times)
		}
		s.hook.Conforms(t, c.path, c.form)
	}
}
