package stories

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// showsAgent reports whether the admin API of a gateway shows an agent.
func showsAgent(t *testing.T, b *gatewaytest.Fixture, name string) bool {
	t.Helper()
	got := b.Send(t, b.Operator("GET", "/api/agents", "", nil))
	return got.Status == http.StatusOK && strings.Contains(string(got.Body), `"name":"`+name+`"`)
}

// adds adds the calculator under another name, and says where it is from.
func adds(t *testing.T, b *gatewaytest.Fixture, name string) string {
	t.Helper()
	var from string
	gatewaytest.Within(t, gatewaytest.Patience, "it is added", func() bool {
		got := b.Send(t, b.Operator("POST", "/api/agents", gatewaytest.AgentJSON(name, "mcp-v1", b.Tools.URL()), nil))
		if got.Status == http.StatusCreated {
			_, from, _ = strings.Cut(string(got.Body), `"from":"`)
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
	server := gatewaytest.NewRedis(t)
	p := gatewaytest.Plan{Config: config.Config{State: server.State()}}
	one, two := gatewaytest.NewFixture(t, p), gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{State: server.State()}})
	if from := adds(t, one, "extra"); from != "state" {
		t.Errorf("from %q", from)
	}
	gatewaytest.Within(t, gatewaytest.Patience, "it can be called", func() bool {
		return one.Send(t, one.Sealed(t, gatewaytest.A2ATo(one.Client, "extra", gatewaytest.AddBody(1)))).Status == http.StatusOK
	})
	gatewaytest.Within(t, gatewaytest.Patience, "the other replica knows", func() bool { return showsAgent(t, two, "extra") })
	if late := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{State: server.State()}}); !showsAgent(t, late, "extra") {
		t.Error("a replica that starts later does not know")
	}
	for _, l := range []gatewaytest.HTTPRequest{
		two.Operator("POST", "/api/agents", gatewaytest.AgentJSON("calculator", "mcp-v1", "https://elsewhere.example/mcp"), nil),
		two.Operator("DELETE", "/api/agents/calculator", "", nil),
	} {
		if got := two.Send(t, l); got.Status != http.StatusConflict || !strings.Contains(string(got.Body), "configuration file") {
			t.Errorf("%s of a configured one: %d %s", l.Method, got.Status, got.Body)
		}
	}
	if got := two.Send(t, two.Operator("DELETE", "/api/agents/extra", "", nil)); got.Status != http.StatusNoContent {
		t.Errorf("removal: %d %s", got.Status, got.Body)
	}
	gatewaytest.Within(t, gatewaytest.Patience, "it is removed everywhere", func() bool { return !showsAgent(t, one, "extra") && !showsAgent(t, two, "extra") })
}

// What is added outlives the process where state does. Else the answer says so.
func TestAgentsAdd_OutlivesTheProcess(t *testing.T) {
	t.Parallel()
	for from, path := range map[string]string{"state": filepath.Join(t.TempDir(), "state.db"), "process": ""} {
		p := gatewaytest.Plan{Config: config.Config{State: config.State{Path: path}}}
		b := gatewaytest.NewFixture(t, p)
		if got := adds(t, b, "extra"); got != from {
			t.Errorf("from %q, want %q", got, from)
		}
		b.Stop()
		p.Config.Agents = map[string]config.Agent{}
		b.Start(t, p)
		if stays := showsAgent(t, b, "extra"); stays != (from == "state") {
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
	server := gatewaytest.NewRedis(t)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{State: server.State()}})
	plain := server.State()
	plain.Key, plain.Unverified = "", true
	trusting := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{State: plain}})
	adds(t, b, "extra")
	store, err := redis.Open(redis.Config{Addresses: []string{server.Address}}, redis.Deps{Now: time.Now})
	gatewaytest.Must(t, err)
	t.Cleanup(func() { gatewaytest.Must(t, store.Close()) })
	for _, name := range []string{"forged", "extra"} {
		key := state.EntryKey{Kind: "agent", Group: "agent", ID: name, Owner: "agent " + name}
		old, _, err := store.Entries().Get(t.Context(), key)
		gatewaytest.Must(t, err)
		_, ok, err := store.Entries().Swap(t.Context(), key, old.Revision, []byte(gatewaytest.AgentJSON(name, "mcp-v1", "https://127.0.0.1:1/mcp")), time.Now().Add(time.Hour))
		if gatewaytest.Must(t, err); !ok {
			t.Fatal("nothing was written")
		}
	}
	gatewaytest.Within(t, gatewaytest.Patience, "it is logged", func() bool { return strings.Contains(b.Logs.String(), "does not open") })
	gatewaytest.Must(t, b.Agents().Look(t.Context()))
	gatewaytest.Must(t, trusting.Agents().Look(t.Context()))
	for _, at := range []*gatewaytest.Fixture{b, trusting} {
		if showsAgent(t, at, "forged") {
			t.Error("the forged agent is listed")
		}
	}
	if showsAgent(t, b, "extra") {
		t.Error("the agent of the replaced record is listed")
	}
	if got := b.Send(t, b.Operator("POST", "/api/agents", gatewaytest.AgentJSON("extra", "mcp-v1", b.Tools.URL()), nil)); got.Status != http.StatusConflict || !strings.Contains(string(got.Body), "remove it first") {
		t.Errorf("over a record that cannot be read: %d %s", got.Status, got.Body)
	}
	if got := b.Send(t, b.Operator("DELETE", "/api/agents/extra", "", nil)); got.Status != http.StatusNoContent {
		t.Errorf("removal: %d %s", got.Status, got.Body)
	}
	if adds(t, b, "extra"); !showsAgent(t, b, "extra") {
		t.Error("it cannot be added again")
	}
	if from := adds(t, trusting, "there"); from != "process" || showsAgent(t, b, "there") {
		t.Errorf("with state.unverified it is kept: %s", from)
	}
}
