package attacks

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestAttack_RedisWriterInventsATask is finding N4: a second gateway of another owner, with
// a CA of its own and without the key, writes to the same Redis. Its caller has the name of
// a caller of the first, for whom it makes a task. Before, the first gateway told the
// victim of that task, under evidence of its own. Now it is not believed, which is logged
// and counted; what the replicas wrote is found as before.
func TestAttack_RedisWriterInventsATask(t *testing.T) {
	t.Parallel()
	server := gatewaytest.NewRedis(t)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{State: server.State()}})
	without := server.State()
	without.Key, without.Unverified = "", true
	mallory := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{State: without}})
	if mallory.Me.ID != b.Me.ID {
		t.Fatal("the callers have different names")
	}
	begin := func(at *gatewaytest.Fixture) string {
		var id string
		gatewaytest.Within(t, gatewaytest.Patience, "a task", func() bool { // the first second of Redis takes nothing
			got := at.Send(t, gatewaytest.A2ATo(at.Client, "calculator", gatewaytest.Streamed(gatewaytest.AddBody(1))))
			if got.Status == http.StatusOK {
				id = gatewaytest.TasksIn(t, got)[0].ID
			}
			return id != ""
		})
		return id
	}
	ask := func(at *gatewaytest.Fixture, id string) gatewaytest.Reply {
		return at.Send(t, gatewaytest.A2ATo(at.Client, "calculator", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+id+`"}}`))
	}
	own, forged := begin(b), begin(mallory)
	if got := ask(mallory, forged); got.Status != http.StatusOK || !strings.Contains(string(got.Body), forged) {
		t.Fatalf("the forged task is not there at all: %d %s", got.Status, got.Body)
	}
	if got := ask(b, forged); got.Status != http.StatusServiceUnavailable || strings.Contains(string(got.Body), "TASK_STATE") {
		t.Errorf("the victim is told of a task that was invented: %d %s", got.Status, got.Body)
	}
	if !strings.Contains(b.Logs.String(), "does not open") {
		t.Error("nothing is logged")
	}
	metrics := b.Send(t, gatewaytest.HTTPRequest{At: b.At.Admin + "/metrics", Method: http.MethodGet})
	if !strings.Contains(string(metrics.Body), `aepb_state_ignored_total{backend="redis"} `) || strings.Contains(string(metrics.Body), `aepb_state_ignored_total{backend="redis"} 0`) {
		t.Error("nothing is counted")
	}
	if got := ask(b, own); got.Status != http.StatusOK || !strings.Contains(string(got.Body), own) {
		t.Errorf("its own task: %d %s", got.Status, got.Body)
	}
}
