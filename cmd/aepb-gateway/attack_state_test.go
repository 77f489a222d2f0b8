package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// TestAttack_RedisWriterInventsATask is finding N4: a second gateway of another owner, with
// a CA of its own and without the key, writes to the same Redis. Its caller has the name of
// a caller of the first, for whom it makes a task. Before, the first gateway told the
// victim of that task, under evidence of its own. Now it is not believed, which is logged
// and counted; what the replicas wrote is found as before.
func TestAttack_RedisWriterInventsATask(t *testing.T) {
	t.Parallel()
	server := newRedis(t)
	b := newBed(t, plan{config: config.Config{State: server.state()}})
	without := server.state()
	without.Key, without.Unverified = "", true
	mallory := newBed(t, plan{config: config.Config{State: without}})
	if mallory.me.ID != b.me.ID {
		t.Fatal("the callers have different names")
	}
	begin := func(at *bed) string {
		var id string
		within(t, patience, "a task", func() bool { // the first second of Redis takes nothing
			got := at.send(t, a2aTo(at.client, "calculator", streamed(addBody(1))))
			if got.status == http.StatusOK {
				id = tasksIn(t, got)[0].ID
			}
			return id != ""
		})
		return id
	}
	ask := func(at *bed, id string) reply {
		return at.send(t, a2aTo(at.client, "calculator", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+id+`"}}`))
	}
	own, forged := begin(b), begin(mallory)
	if got := ask(mallory, forged); got.status != http.StatusOK || !strings.Contains(string(got.body), forged) {
		t.Fatalf("the forged task is not there at all: %d %s", got.status, got.body)
	}
	if got := ask(b, forged); got.status != http.StatusServiceUnavailable || strings.Contains(string(got.body), "TASK_STATE") {
		t.Errorf("the victim is told of a task that was invented: %d %s", got.status, got.body)
	}
	if !strings.Contains(b.logs.String(), "does not open") {
		t.Error("nothing is logged")
	}
	metrics := b.send(t, letter{at: b.at.Admin + "/metrics", method: http.MethodGet})
	if !strings.Contains(string(metrics.body), `aepb_state_ignored_total{backend="redis"} `) || strings.Contains(string(metrics.body), `aepb_state_ignored_total{backend="redis"} 0`) {
		t.Error("nothing is counted")
	}
	if got := ask(b, own); got.status != http.StatusOK || !strings.Contains(string(got.body), own) {
		t.Errorf("its own task: %d %s", got.status, got.body)
	}
}
