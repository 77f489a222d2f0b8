package faults

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// The documented errors (README, errors).
const (
	timeout     = "timeout"
	unreachable = "upstream_unreachable"
	badReply    = "bad_upstream_reply"
)

// atOnce is how many trials run together: they wait more than they work.
const atOnce = 6

// trial is a fault and what must come of it.
type trial struct {
	name      string
	fault     fault
	code      string // empty: the call succeeds
	calls     int64  // that may reach the agent's door; default 1
	requested outcome
}

// outcome is what comes instead where an A2A agent's task was heard of, and the
// gateway asks how it stands: whoever calls a tool is not to know of tasks.
type outcome string

const (
	same   outcome = ""
	answer outcome = "the agent's answer after all"
)

func trials() []trial {
	return []trial{
		{name: "slow", fault: slow, code: timeout},
		{name: "half-open", fault: halfOpen, code: timeout},
		{name: "reset in the middle", fault: resets, code: unreachable, requested: answer},
		{name: "hangs up", fault: hangsUp, code: unreachable},
		{name: "empty", fault: empty, code: badReply},
		{name: "HTML", fault: html, code: badReply},
		{name: "redirect", fault: redirect, code: badReply},
		{name: "wrong id", fault: otherID, code: badReply},
		{name: "truncated", fault: truncated, code: badReply, requested: answer},
		{name: "a stream without its answer", fault: noAnswer, code: badReply},
		{name: "gzip bomb", fault: bomb, code: badReply},
	}
}

// client is an SDK client that makes one call through the gateway.
type client struct {
	name string
	call func(t *testing.T, l *listener, at, skill string) (string, error)
}

func clients() []client {
	legacy := func(old bool) func(t *testing.T, l *listener, at, skill string) (string, error) {
		return func(t *testing.T, l *listener, at, skill string) (string, error) {
			t.Helper()
			got, err := peers.MCPCall(t.Context(), l.Client, at+"/mcp", old, skill, json.RawMessage(`{"message":"hello"}`))
			if err == nil && got.Result.IsError {
				err = errors.New(got.Text())
			}
			return got.Text(), err
		}
	}
	return []client{
		{"A2A", func(t *testing.T, l *listener, at, skill string) (string, error) {
			t.Helper()
			part := a2a.NewTextPart("hello")
			if skill == "echo" {
				part = a2a.NewDataPart(map[string]any{"skill": skill, "input": map[string]any{"message": "hello"}})
			}
			got, err := peers.A2ACall(t.Context(), l.Client, at, a2a.NewMessage(a2a.MessageRoleUser, part))
			if err == nil && got.State() != "" && got.State() != a2a.TaskStateCompleted {
				err = errors.New(string(got.State()))
			}
			return got.Text(), err
		}},
		{"MCP", legacy(false)},
		{"MCP with sessions", legacy(true)},
	}
}

// upstream is a kind of agent, and what goes wrong with no other.
type upstream struct {
	name, binding, url, path, skill string
	own                             []trial
}

func (b *fixture) upstreams() []upstream {
	return []upstream{
		{name: "A2A agent", binding: "a2a-v1", url: b.worker.URL(), skill: peers.ConciergeSkill},
		{name: "MCP server", binding: "mcp-v1", url: base(b.modern.URL()), path: "/mcp", skill: "echo"},
		{name: "MCP server with sessions", binding: "mcp-v1", url: base(b.classic.URL()), path: "/mcp", skill: "echo", own: []trial{
			{name: "gone session", fault: noSession, code: badReply, calls: 2},
			{name: "wrong session", fault: wrongSession, code: badReply, calls: 2},
			{name: "stale session", calls: 2},
		}},
	}
}

// TestUnary_EveryFault: every fault, behind every kind of agent, before every kind of client.
func TestUnary_EveryFault(t *testing.T) {
	t.Parallel()
	packed() // takes longer than an agent has
	b := newFixture(t)
	t.Run("faults", func(t *testing.T) {
		var group errgroup.Group
		group.SetLimit(atOnce)
		for i, u := range b.upstreams() {
			for j, c := range clients() {
				for k, tr := range append(trials(), u.own...) {
					if tr.fault == nil {
						tr.fault = staleSession()
					}
					name := strings.Join([]string{"agent", strconv.Itoa(i), strconv.Itoa(j), strconv.Itoa(k)}, "-")
					group.Go(func() error {
						t.Run(u.name+"/"+c.name+"/"+tr.name, func(t *testing.T) { b.try(t, name, u, c, tr) })
						return nil
					})
				}
			}
		}
		_ = group.Wait()
	})
	t.Run("and good calls afterwards", func(t *testing.T) {
		for i, u := range b.upstreams() {
			b.try(t, "good-"+strconv.Itoa(i), u, clients()[0], trial{fault: func(x *spoiled) { x.pass(x.ask(x.r.Context())) }})
		}
	})
}

func (b *fixture) try(t *testing.T, name string, u upstream, c client, tr trial) {
	t.Helper()
	p := newProxy(t, b, u.url, tr.fault)
	must(t, b.AddAgent(t.Context(), name, u.binding, p.URL+u.path))
	l := b.listener(t)
	began := time.Now()
	text, err := c.call(t, l, b.Public+"/agents/"+name, u.skill)
	if took := time.Since(began); took > agentTimeout+patience {
		t.Errorf("the caller waited for %v", took)
	}
	if calls := p.calls.Load(); calls > max(tr.calls, 1) || calls == 0 {
		t.Errorf("the agent was called %d times", calls)
	}
	code := tr.code
	if u.binding == "a2a-v1" && !strings.HasPrefix(c.name, "A2A") && tr.requested != same {
		code = ""
	}
	switch {
	case code == "" && (err != nil || !strings.Contains(text, "hello")):
		t.Errorf("got %q, %v", text, err)
	case code != "" && err == nil:
		t.Fatalf("a false success: %q", text)
	case code != "" && !strings.Contains(l.answer(), `"code":"`+code+`"`):
		t.Errorf("got %v (%s), want %s", err, l.answer(), code)
	}
}
