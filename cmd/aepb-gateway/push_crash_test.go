package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/translators/a2a"
)

// pushBackends keep the state of a gateway beyond its process.
func pushBackends(t *testing.T) map[string]config.State {
	t.Helper()
	return map[string]config.State{"file": {Path: filepath.Join(t.TempDir(), "state.db")}, "Redis": newRedis(t).state()}
}

// crashStage is a gateway in a process of its own, which can be killed, with agents
// and webhooks in this one.
type crashStage struct {
	*bed
	troupe *troupe
	hook   *pushReceiver
	state  config.State
	file   string    // the configuration of the process
	cmd    *exec.Cmd // the process
	errors *journal  // its log
}

// newCrashStage lists agents of the sides with a gateway in a process.
func newCrashStage(t *testing.T, state config.State, sides ...side) *crashStage {
	t.Helper()
	s := &crashStage{bed: newBed(t, plan{}), state: state, errors: &journal{}}
	s.troupe, s.hook = newTroupe(t, s.bed), newPushReceiver(t, s.bed)
	text := fmt.Sprintf("state: {path: %q}\n", state.Path)
	if state.Redis.Used() {
		text = fmt.Sprintf("state: {key: %q, redis: {addresses: [%q], plaintext: loopback}}\n", state.Key, state.Redis.Addresses[0])
	}
	agents := []string{text + "agents:\n"}
	for _, one := range sides {
		if !s.troupe.hires(t, one) {
			t.Fatalf("no agent of %s", one.name)
		}
		name := s.troupe.listed(one, player)
		agent, ok := s.directory.Find(name)
		if !ok {
			t.Fatalf("no agent %s", name)
		}
		at := agent.Endpoints[0]
		agents = append(agents, fmt.Sprintf("  %s: {id: %q, timeout: 60s, endpoints: [{binding: %s, version: %q, url: %q, form: %q}]}\n", name, agent.ID, at.Binding, at.Version, at.URL, at.Form))
	}
	s.stop() // it was there to list the agents
	s.file = filepath.Join(t.TempDir(), "gateway.yaml")
	must(t, os.WriteFile(s.file, []byte(strings.Join(agents, "")), 0o600))
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
	must(t, err)
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), program, "dev", "--dir", s.bed.dir,
		"--addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--config", s.file)
	s.cmd.Env, s.cmd.Stderr = append(os.Environ(), asGateway+"=1"), s.errors
	out, err := s.cmd.StdoutPipe()
	must(t, err)
	must(t, s.cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "ready public "); ok {
			s.at.Public = at
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

// pass lets the time pass after which the killed process counts as lost: its heartbeat
// is taken from the state, as if it had ended.
func (s *crashStage) pass(t *testing.T) {
	t.Helper()
	settings, err := devSettings(s.dev, config.Config{State: s.state}, s.at, "", s.errors)
	must(t, err)
	opened, err := openState(settings)
	must(t, err)
	defer func() { must(t, opened.close()) }()
	opened, _, err = opened.sealed(settings)
	must(t, err)
	tasks, err := opened.entries.List(t.Context(), store.KindFailover, "", "", 100)
	must(t, err)
	if len(tasks) == 0 {
		t.Error("the state has no task that another process would go on with")
	}
	for _, entry := range tasks {
		var looked struct{ By string }
		must(t, json.Unmarshal(entry.Value, &looked))
		must(t, opened.entries.Delete(t.Context(), store.EntryKey{Kind: store.KindReplica, Group: looked.By, ID: looked.By}))
	}
}

// states are those that the notifications of a path say, with all repetitions.
func (h *pushReceiver) states(path string) (states []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.taken[path] {
		if state := n.state(); state != "" {
			states = append(states, state)
		}
	}
	return states
}

// crashed is one task of TestPush_SixPairsAcrossACrash.
type crashed struct {
	form                    pushForm
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
	for name, state := range pushBackends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sides := pushSides()
			s := newCrashStage(t, state, sides["A2A 1.0"], sides["MCP"], sides["µACP"])
			tasks := s.begin(t)
			s.kill()
			for _, c := range tasks {
				if c.form.version == a2a.Version {
					s.troupe.agents.finish(c.job) // while there is no gateway
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
	for _, f := range jsonRPCForms() {
		for _, name := range []string{"A2A 1.0", "MCP", "µACP"} {
			agent := s.troupe.listed(pushSides()[name], player)
			job, toil := string(ect.NewID()), string(ect.NewID())
			work := &crashed{form: f, agent: agent, job: job, words: doWork + " " + job, path: pushPath("work", f.name, name), before: []string{"working"}, after: []string{"working", "completed"}}
			paused := &crashed{form: f, agent: agent, words: "ask name", path: pushPath("paused", f.name, name), before: []string{"input-required"}, after: []string{"input-required", "working", "completed"}}
			if name == "A2A 1.0" { // an agent of A2A says itself that it works again
				paused.after = []string{"input-required", "completed"}
			}
			tasks = append(tasks, work, paused)
			if name == "MCP" { // an agent without a task
				tasks = append(tasks, &crashed{form: f, agent: agent, job: toil, words: doToil + " " + toil, path: pushPath("toil", f.name, name), before: []string{"working"}, after: []string{"working", "failed"}})
			}
		}
	}
	for _, c := range tasks {
		c.task = c.form.taskIn(t, c.form.send(t, s.bed, sending{agent: c.agent, words: c.words, hook: s.hook.url + c.path, returns: true}))
	}
	for _, c := range tasks {
		if got := s.hook.until(t, c.path, c.before[len(c.before)-1]); !slices.Equal(got, c.before) {
			t.Errorf("%s: posted before the crash: %q, want %q", c.path, got, c.before)
		}
		if c.job != "" && !soon(t.Context(), func() bool { return s.troupe.agents.job(c.job) != nil }) {
			t.Errorf("%s: the agent has not begun", c.path)
		}
	}
	return tasks
}

// resume has agents end their work with the new process, and judges what was posted.
func (s *crashStage) resume(t *testing.T, tasks []*crashed) {
	t.Helper()
	for _, c := range tasks {
		if list := c.form.list(t, s.bed, c.agent, c.task); !strings.Contains(list, c.path) {
			t.Errorf("%s: after the crash the list of configurations is %s", c.path, list)
		}
		switch {
		case c.job == "":
			if answer := c.form.send(t, s.bed, sending{agent: c.agent, task: c.task, words: "Ada"}); !strings.Contains(strings.ToLower(answer), "completed") {
				t.Errorf("%s: the answer leads to %s", c.path, answer)
			}
		case c.after[len(c.after)-1] == "completed" && c.form.version != a2a.Version:
			within(t, patience, c.path+" is told again that the agent works", func() bool { return len(s.hook.states(c.path)) > len(c.before) })
			s.troupe.agents.finish(c.job)
		}
	}
	for _, c := range tasks {
		end := c.after[len(c.after)-1]
		if got := s.hook.until(t, c.path, end); !slices.Equal(got, c.after) {
			t.Errorf("%s: posted in this order: %q, want %q", c.path, got, c.after)
		}
		times := map[string]int{}
		for _, state := range s.hook.states(c.path) {
			times[state]++
		}
		once := maps.Clone(times)
		maps.DeleteFunc(once, func(state string, n int) bool { return n == 1 || n == 2 && state == c.before[len(c.before)-1] })
		if len(once) > 0 {
			t.Errorf("%s: posted so many times: %v", c.path, times)
		}
		s.hook.told(t, c.path, c.form)
	}
}
