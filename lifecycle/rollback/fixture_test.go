package rollback_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

const (
	gateway = ect.Identity("spiffe://example.com/gateway")
	agentA  = ect.Identity("spiffe://example.com/a")
	agentB  = ect.Identity("spiffe://example.com/b")
)

var noon = time.Unix(1_800_000_000, 0).UTC()

// steps are how many random cases the twins go: those of the environment variable AEPB_STEPS, as make chaos sets it, or
// enough for each test run.
func steps(t *testing.T) int {
	t.Helper()
	text := os.Getenv("AEPB_STEPS")
	if text == "" {
		return 50_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("AEPB_STEPS: %v, want a number of steps", err)
	}
	return n
}

// token is a token of workflow w.
func token(id ect.ID, act ect.Act, issuer ect.Identity, parents ...ect.ID) workflow.Token {
	return workflow.Token{
		Node:     dag.Node{ID: id, Workflow: "w", Issuer: issuer, Act: act, IssuedAt: 100, Parents: parents, Leg: dag.Request},
		Audience: []string{string(gateway), string(agentA), string(agentB)},
	}
}

func request(id ect.ID, parents ...ect.ID) workflow.Token {
	return token(id, ect.ActTranslate, gateway, parents...)
}

func reply(id ect.ID, parents ...ect.ID) workflow.Token {
	t := request(id, parents...)
	t.Node.Leg = dag.Reply
	return t
}

// exchange is a call through the gateway: task tN of agent A, request rN, task node wN of agent B, reply pN. Its parents
// are those of the task.
func exchange(n int, parents ...ect.ID) []workflow.Token {
	id := func(kind string) ect.ID { return ect.ID(fmt.Sprint(kind, n)) }
	return []workflow.Token{
		token(id("t"), "ask", agentA, parents...), request(id("r"), id("t")), token(id("w"), "work", agentB, id("r")), reply(id("p"), id("r"), id("w")),
	}
}

// checkpointOf is a checkpoint of agent b that lasts a day.
func checkpointOf(id ect.ID, parents ...ect.ID) rollback.Known {
	return rollback.Known{
		Checkpoint: checkpoint.Checkpoint{ID: id, Issuer: gateway, Workflow: "w", Parents: parents, TTL: 24 * time.Hour, At: noon, State: ect.Hash([]byte(id))},
		Agent:      "b", Acts: []ect.Identity{agentB}, How: rollback.ByCall,
	}
}

func byID(list ...rollback.Known) map[ect.ID]rollback.Known {
	all := map[ect.ID]rollback.Known{}
	for _, c := range list {
		all[c.ID] = c
	}
	return all
}

func runOf(tb testing.TB, tokens ...workflow.Token) workflow.Run {
	tb.Helper()
	run, err := workflow.New("w", tokens, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return run
}
