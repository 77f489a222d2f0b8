package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

// showsAgent reports whether the admin API of a gateway shows an agent.
func (b *bed) showsAgent(t *testing.T, name string) bool {
	t.Helper()
	got := b.send(t, b.operator("GET", "/api/agents", "", nil))
	return got.status == http.StatusOK && strings.Contains(string(got.body), `"name":"`+name+`"`)
}

// adds adds the calculator under another name, and says where it is from.
func (b *bed) adds(t *testing.T, name string) string {
	t.Helper()
	var from string
	within(t, patience, "it is added", func() bool {
		got := b.send(t, b.operator("POST", "/api/agents", agentJSON(name, "mcp-v1", b.tools.URL()), nil))
		if got.status == http.StatusCreated {
			_, from, _ = strings.Cut(string(got.body), `"from":"`)
		}
		return from != ""
	})
	from, _, _ = strings.Cut(from, `"`)
	return from
}

// An agent that is added to one replica is known to all, also to one that starts later,
// and so is that it was removed. One that is configured is changed in its file alone.
func TestAgentsAdd_AllReplicasKnow(t *testing.T) {
	t.Parallel()
	server := newRedis(t)
	p := plan{config: config.Config{State: server.state()}}
	one, two := newBed(t, p), newBed(t, plan{config: config.Config{State: server.state()}})
	if from := one.adds(t, "extra"); from != "state" {
		t.Errorf("from %q", from)
	}
	within(t, patience, "it can be called", func() bool {
		return one.send(t, one.sealed(t, a2aTo(one.client, "extra", addBody(1)))).status == http.StatusOK
	})
	within(t, patience, "the other replica knows", func() bool { return two.showsAgent(t, "extra") })
	if late := newBed(t, plan{config: config.Config{State: server.state()}}); !late.showsAgent(t, "extra") {
		t.Error("a replica that starts later does not know")
	}
	for _, l := range []letter{
		two.operator("POST", "/api/agents", agentJSON("calculator", "mcp-v1", "https://elsewhere.example/mcp"), nil),
		two.operator("DELETE", "/api/agents/calculator", "", nil),
	} {
		if got := two.send(t, l); got.status != http.StatusConflict || !strings.Contains(string(got.body), "configuration file") {
			t.Errorf("%s of a configured one: %d %s", l.method, got.status, got.body)
		}
	}
	if got := two.send(t, two.operator("DELETE", "/api/agents/extra", "", nil)); got.status != http.StatusNoContent {
		t.Errorf("removal: %d %s", got.status, got.body)
	}
	within(t, patience, "it is removed everywhere", func() bool { return !one.showsAgent(t, "extra") && !two.showsAgent(t, "extra") })
}

// What is added outlives the process where state does. Else the answer says so.
func TestAgentsAdd_OutlivesTheProcess(t *testing.T) {
	t.Parallel()
	for from, path := range map[string]string{"state": filepath.Join(t.TempDir(), "state.db"), "process": ""} {
		p := plan{config: config.Config{State: config.State{Path: path}}}
		b := newBed(t, p)
		if got := b.adds(t, "extra"); got != from {
			t.Errorf("from %q, want %q", got, from)
		}
		b.stop()
		p.config.Agents = map[string]config.Agent{}
		b.start(t, p)
		if stays := b.showsAgent(t, "extra"); stays != (from == "state") {
			t.Errorf("%s: after a restart it is listed: %t", from, stays)
		}
	}
}

// TestAttack_RedisWriterListsAnAgent: a program without the key writes records of agents
// to the Redis of the replicas: an agent of its own, to which egress would open, and one in
// place of an added agent. Neither is listed, and both are logged. An operator can
// remove the record and add the agent again. A gateway with state.unverified reads no
// agents there at all.
func TestAttack_RedisWriterListsAnAgent(t *testing.T) {
	t.Parallel()
	server := newRedis(t)
	b := newBed(t, plan{config: config.Config{State: server.state()}})
	plain := server.state()
	plain.Key, plain.Unverified = "", true
	trusting := newBed(t, plan{config: config.Config{State: plain}})
	b.adds(t, "extra")
	store, err := redis.Open(redis.Config{Addresses: []string{server.address}}, redis.Deps{Now: time.Now})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	for _, name := range []string{"forged", "extra"} {
		key := state.EntryKey{Kind: "agent", Group: "agent", ID: name, Owner: "agent " + name}
		old, _, err := store.Entries().Get(t.Context(), key)
		must(t, err)
		_, ok, err := store.Entries().Swap(t.Context(), key, old.Revision, []byte(agentJSON(name, "mcp-v1", "https://127.0.0.1:1/mcp")), time.Now().Add(time.Hour))
		if must(t, err); !ok {
			t.Fatal("nothing was written")
		}
	}
	within(t, patience, "it is logged", func() bool { return strings.Contains(b.logs.String(), "does not open") })
	must(t, b.agents.Look(t.Context()))
	must(t, trusting.agents.Look(t.Context()))
	for _, at := range []*bed{b, trusting} {
		if at.showsAgent(t, "forged") {
			t.Error("the forged agent is listed")
		}
	}
	if b.showsAgent(t, "extra") {
		t.Error("the agent of the replaced record is listed")
	}
	if got := b.send(t, b.operator("POST", "/api/agents", agentJSON("extra", "mcp-v1", b.tools.URL()), nil)); got.status != http.StatusConflict || !strings.Contains(string(got.body), "remove it first") {
		t.Errorf("over a record that cannot be read: %d %s", got.status, got.body)
	}
	if got := b.send(t, b.operator("DELETE", "/api/agents/extra", "", nil)); got.status != http.StatusNoContent {
		t.Errorf("removal: %d %s", got.status, got.body)
	}
	if b.adds(t, "extra"); !b.showsAgent(t, "extra") {
		t.Error("it cannot be added again")
	}
	if from := trusting.adds(t, "there"); from != "process" || b.showsAgent(t, "there") {
		t.Errorf("with state.unverified it is kept: %s", from)
	}
}
