package rollback_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// chain is three exchanges one after the other, each with a checkpoint.
func chain() ([]workflow.Token, []rollback.Known) {
	tokens := slices.Concat(exchange(1), exchange(2, "p1"), exchange(3, "p2"))
	return tokens, []rollback.Known{checkpointOf("c1", "r1"), checkpointOf("c2", "r2"), checkpointOf("c3", "r3")}
}

// shown is a plan in one line: checkpoints, agents, checkpoints for humans, steps that used what is undone.
func shown(p rollback.Plan) string {
	var list []string
	for _, s := range p.Steps {
		list = append(list, string(s.Checkpoint)+":"+string(s.How))
	}
	return fmt.Sprint(list, p.Blast, p.Escalate, p.Stale)
}

func TestMake_Steps(t *testing.T) {
	t.Parallel()
	later := noon.Add(time.Hour)
	over := func(c rollback.Known) rollback.Known { c.TTL = time.Hour; return c }
	never := func(c rollback.Known) rollback.Known { c.How = rollback.Never; return c }
	undone := func(c rollback.Known) rollback.Known { c.Undone = true; return c }
	of := func(agent string, c rollback.Known) rollback.Known { c.Agent = agent; return c }
	linear, three := chain()
	c1, c2, c3 := three[0], three[1], three[2]
	siblings := slices.Concat(exchange(1), []workflow.Token{request("r2", "t1"), reply("p2", "r2")})
	two := slices.Concat(exchange(1), exchange(2, "p1"), exchange(4), exchange(5, "p4"), exchange(6, "p5")) // r6 is later than r2
	reader := slices.Concat(exchange(1), exchange(2, "p1"))
	for name, c := range map[string]struct {
		tokens  []workflow.Token
		list    []rollback.Known
		from    ect.ID
		cascade bool
		want    string
	}{
		"the last one":                    {linear, three, "c3", false, "[c3:compensation] [b] [] []"},
		"all, backwards":                  {linear, three, "c1", true, "[c3:compensation c2:compensation c1:compensation] [b] [] []"},
		"from the middle":                 {linear, three, "c2", true, "[c3:compensation c2:compensation] [b] [] []"},
		"agents, each once":               {linear, []rollback.Known{of("x", c1), of("a", c2), of("x", c3)}, "c1", true, "[c3:compensation c2:compensation c1:compensation] [a x] [] []"},
		"one was undone before":           {linear, []rollback.Known{c1, undone(c2), c3}, "c1", true, "[c3:compensation c1:compensation] [b] [] []"},
		"itself was undone before":        {linear, []rollback.Known{c1, c2, undone(c3)}, "c3", true, "[] [] [] []"},
		"the others were undone before":   {linear, []rollback.Known{c1, undone(c2), undone(c3)}, "c1", false, "[c1:compensation] [b] [] []"},
		"one has ended":                   {linear, []rollback.Known{c1, over(c2), c3}, "c1", true, "[c3:compensation c2:irreversible c1:compensation] [b] [c2] []"},
		"one cannot be undone":            {linear, []rollback.Known{c1, c2, never(c3)}, "c1", true, "[c3:irreversible c2:compensation c1:compensation] [b] [c3] []"},
		"itself cannot be undone":         {linear, []rollback.Known{never(c1), c2, c3}, "c1", true, "[c1:irreversible] [b] [c1] []"},
		"a sibling is not downstream":     {siblings, []rollback.Known{c1, c2}, "c1", true, "[c1:compensation] [b] [] []"},
		"a step without a checkpoint":     {reader, []rollback.Known{c1}, "c1", true, "[c1:compensation] [b] [] [t2 w2]"},
		"a group":                         {linear, []rollback.Known{c1, c2, c3, checkpointOf("g", "c2", "c3")}, "g", false, "[c3:compensation c2:compensation] [b] [] []"},
		"a group in a group":              {linear, []rollback.Known{c1, c2, c3, checkpointOf("g", "h", "c1"), checkpointOf("h", "c2", "c3")}, "g", false, "[c3:compensation c2:compensation c1:compensation] [b] [] []"},
		"a group of itself":               {linear, []rollback.Known{c3, checkpointOf("g", "h", "c3"), checkpointOf("h", "g")}, "g", false, "[c3:compensation] [b] [] []"},
		"a group that was undone before":  {linear, []rollback.Known{c1, undone(c2), undone(c3), checkpointOf("g", "c2", "c3")}, "g", true, "[] [] [] []"},
		"one of a group cannot be undone": {linear, []rollback.Known{c1, c2, never(c3), checkpointOf("g", "c2", "c3")}, "g", false, "[c3:irreversible c2:compensation] [b] [c3] []"},
		"of several actions":              {two, []rollback.Known{checkpointOf("c1", "r1", "r6"), c2}, "c1", true, "[c2:compensation c1:compensation] [b] [] []"},
		"that depend on each other":       {linear, []rollback.Known{checkpointOf("c1", "r1", "r3"), c2}, "c1", true, "[c1:compensation c2:compensation] [b] [] []"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := rollback.Make(runOf(t, c.tokens...), byID(c.list...), rollback.Request{From: c.from, Cascade: c.cascade, At: later})
			if err != nil {
				t.Fatal(err)
			}
			if shown(got) != c.want {
				t.Errorf("got  %s\nwant %s", shown(got), c.want)
			}
			if got.From != c.from || got.Cascade != c.cascade || !got.At.Equal(later) || !got.By.Equal(later.Add(12*time.Hour)) {
				t.Errorf("it is about %s (%t), from %s to %s", got.From, got.Cascade, got.At, got.By)
			}
		})
	}
}

func TestMake_Refusals(t *testing.T) {
	t.Parallel()
	linear, three := chain()
	underWay := slices.Concat(exchange(1), exchange(2, "p1")[:2]) // t2 runs
	running := append(slices.Clone(exchange(1)[:2]), token("x", ect.ActNegotiate, gateway, "t1"))
	made := func(tokens []workflow.Token, list []rollback.Known, from ect.ID, cascade bool, at time.Time) error {
		_, err := rollback.Make(runOf(t, tokens...), byID(list...), rollback.Request{From: from, Cascade: cascade, At: at})
		return err
	}
	many, names := exchange(1), []string{}
	for n := 2; n < 80; n++ {
		many = append(many, exchange(n, "p1")...)
		names = append(names, fmt.Sprint("t", n))
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"unknown": {
			made(linear, three, "c9", false, noon),
			"checkpoint c9 is unknown in this workflow, or is known no longer: name one of its checkpoints",
		},
		"ended": {
			made(linear, three, "c1", true, noon.Add(24*time.Hour)),
			"checkpoint c1 ended at 2027-01-16T08:00:00Z, and a rollback is possible until then: a human has to undo the work",
		},
		"others depend on it": {
			made(linear, three, "c2", false, noon),
			"steps depend on what would be undone: t3 of spiffe://example.com/a is done, w3 of spiffe://example.com/b is done: roll back with atd.cascade, or start at a later checkpoint",
		},
		"others that run depend on it": {
			made(underWay, []rollback.Known{checkpointOf("c1", "r1"), checkpointOf("c2", "r2")}, "c1", false, noon),
			"steps depend on what would be undone: t2 of spiffe://example.com/a is running: roll back with atd.cascade, or start at a later checkpoint",
		},
		"a task of another agent": {
			made(append(exchange(1), token("y", "work", agentA, "r1")), three[:1], "c1", false, noon),
			"steps depend on what would be undone: y of spiffe://example.com/a is running: roll back with atd.cascade, or start at a later checkpoint",
		},
		"what the agent did after its own task": {
			made(append(exchange(1), token("y", "work", agentB, "w1")), three[:1], "c1", false, noon),
			"steps depend on what would be undone: y of spiffe://example.com/b is running: roll back with atd.cascade, or start at a later checkpoint",
		},
		"it runs": {
			made(running, []rollback.Known{checkpointOf("c1", "r1")}, "c1", false, noon),
			"steps that would be undone still run: t1 of spiffe://example.com/a is running: roll back when they are done or failed, or cancel them",
		},
		"it runs, and is found through annotations": {
			made(running, []rollback.Known{checkpointOf("c1", "x")}, "c1", false, noon),
			"steps that would be undone still run: t1 of spiffe://example.com/a is running: roll back when they are done or failed, or cancel them",
		},
		"one downstream runs": {
			made(underWay, []rollback.Known{checkpointOf("c1", "r1"), checkpointOf("c2", "r2")}, "c1", true, noon),
			"steps that would be undone still run: t2 of spiffe://example.com/a is running: roll back when they are done or failed, or cancel them",
		},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("%s: got  %v\nwant %s", name, c.err, c.want)
		}
	}
	depends, ok := errors.AsType[*rollback.DependsError](made(many, []rollback.Known{checkpointOf("c1", "r1")}, "c1", false, noon))
	if !ok || len(depends.Steps) != 100 || depends.More != 2*len(names)-100 || !strings.Contains(depends.Error(), ", 151 more: roll back with") {
		t.Errorf("many: %v", depends)
	}
}

// TestMake_OwnTask: the agent's own token for an action is undone with it only if the agent may sign it and it names the
// action; another issuer's token of the same id is not.
func TestMake_OwnTask(t *testing.T) {
	t.Parallel()
	twice := append(exchange(1), token("w1", "work", agentA, "r1"))
	c := checkpointOf("c1", "r1")
	_, err := rollback.Make(runOf(t, twice...), byID(c), rollback.Request{From: "c1", At: noon})
	if depends, ok := errors.AsType[*rollback.DependsError](err); !ok || len(depends.Steps) != 1 || depends.Steps[0].Who != agentA {
		t.Errorf("a token of another issuer: %v", err)
	}
	c.Acts = nil
	_, err = rollback.Make(runOf(t, exchange(1)...), byID(c), rollback.Request{From: "c1", At: noon})
	if _, ok := errors.AsType[*rollback.DependsError](err); !ok {
		t.Errorf("no identity of the agent is known: %v", err)
	}
}

// TestMake_SharedTask: a task is not undone with one of its two requests if work of the other one stays.
func TestMake_SharedTask(t *testing.T) {
	t.Parallel()
	tokens := slices.Concat(exchange(1), exchange(2, "p1"), []workflow.Token{request("r4", "t2"), reply("p4", "r4")})
	group := []rollback.Known{checkpointOf("c1", "r1"), checkpointOf("c2", "r2"), checkpointOf("g", "c1", "c2")}
	plan, err := rollback.Make(runOf(t, tokens...), byID(group...), rollback.Request{From: "g", At: noon})
	if err != nil || len(plan.Steps) != 2 {
		t.Errorf("the other request changed nothing: %+v, %v", plan, err)
	}
	_, err = rollback.Make(runOf(t, tokens...), byID(append(group, checkpointOf("c4", "r4"))...), rollback.Request{From: "g", At: noon})
	if depends, ok := errors.AsType[*rollback.DependsError](err); !ok || !cmp.Equal(depends.Steps, []rollback.Dependant{{ID: "t2", Who: agentA, State: workflow.Done}}) {
		t.Errorf("work of the other request stays: %v", err)
	}
}

func TestMake_TooMany(t *testing.T) {
	t.Parallel()
	tokens, list := exchange(0), []rollback.Known{checkpointOf("c0", "r0")}
	for n := 1; n <= rollback.MaxSteps; n++ {
		id := ect.ID(fmt.Sprint("r", n))
		tokens = append(tokens, request(id, "p0"), reply("p"+id, id))
		list = append(list, checkpointOf("c"+id, id))
	}
	_, err := rollback.Make(runOf(t, tokens...), byID(list...), rollback.Request{From: "c0", Cascade: true, At: noon})
	if tooMany, ok := errors.AsType[*rollback.TooManyError](err); !ok || tooMany.Steps != 501 ||
		err.Error() != "the rollback has 501 steps, and at most 500 are allowed: roll back to a later checkpoint first" {
		t.Errorf("got %v", err)
	}
	plan, err := rollback.Make(runOf(t, tokens...), byID(list[:rollback.MaxSteps]...), rollback.Request{From: "c0", Cascade: true, At: noon})
	if err != nil || len(plan.Steps) != rollback.MaxSteps {
		t.Errorf("%d steps, %v", len(plan.Steps), err)
	}
}

// long is a run of 10,000 tokens with a checkpoint for each of its exchanges.
func long(tb testing.TB) (workflow.Run, map[ect.ID]rollback.Known) {
	tb.Helper()
	var tokens []workflow.Token
	all := map[ect.ID]rollback.Known{}
	for n := range dag.MaxNodes / 10 {
		last := ect.ID(fmt.Sprint("p", n-1))
		tokens = append(tokens, exchange(n, last)...)
		for i := range 6 { // and readers of its reply
			tokens = append(tokens, token(ect.ID(fmt.Sprint("x", n, "-", i)), "read", agentA, ect.ID(fmt.Sprint("p", n))))
		}
		id := ect.ID(fmt.Sprint("c", n))
		c := checkpointOf(id, ect.ID(fmt.Sprint("r", n)))
		c.Undone = n >= rollback.MaxSteps
		all[id] = c
	}
	return runOf(tb, tokens...), all
}

func BenchmarkMake_10000(b *testing.B) {
	run, all := long(b)
	b.ReportAllocs()
	for b.Loop() {
		plan, err := rollback.Make(run, all, rollback.Request{From: "c0", Cascade: true, At: noon})
		if err != nil || len(plan.Steps) != rollback.MaxSteps {
			b.Fatal(len(plan.Steps), err)
		}
	}
}

// BenchmarkMake_10000Dense has as many parents per token as fit, one circle, and checkpoints that share actions.
func BenchmarkMake_10000Dense(b *testing.B) {
	var tokens []workflow.Token
	all := map[ect.ID]rollback.Known{}
	for n := range dag.MaxNodes {
		t := token(ect.ID(fmt.Sprint("n", n)), ect.ActNegotiate, gateway)
		for i := range 50 {
			t.Node.Parents = append(t.Node.Parents, ect.ID(fmt.Sprint("n", (n+dag.MaxNodes-1-i*i)%dag.MaxNodes)))
		}
		tokens = append(tokens, t)
		c := checkpointOf(ect.ID(fmt.Sprint("c", n)), t.Node.Parents[:10]...)
		c.Undone = n >= rollback.MaxSteps
		all[c.ID] = c
	}
	run := runOf(b, tokens...)
	b.ReportAllocs()
	for b.Loop() {
		plan, err := rollback.Make(run, all, rollback.Request{From: "c0", Cascade: true, At: noon})
		if err != nil || len(plan.Steps) != rollback.MaxSteps {
			b.Fatal(len(plan.Steps), err)
		}
	}
}

// TestMake_Review: a cascade that reaches a critical step is looked at first; a rollback to that step itself is not.
func TestMake_Review(t *testing.T) {
	t.Parallel()
	run, err := workflow.New("w", append(exchange(1), exchange(2, "p1")...), []workflow.Planned{{ID: "first", Act: "ask"}, {ID: "second", Act: "ask"}})
	if err != nil {
		t.Fatal(err)
	}
	known := byID(checkpointOf("c1", "r1"), checkpointOf("c2", "r2"))
	for _, tc := range []struct {
		from    ect.ID
		cascade bool
		how     rollback.How
		node    string
		want    []ect.ID
	}{
		{"c1", true, rollback.ByCall, "second", []ect.ID{"c2"}},
		{"c1", true, rollback.ByCall, "first", nil},
		{"c2", true, rollback.ByCall, "second", nil},
		{"c1", true, rollback.Nothing, "second", nil}, // nothing is sent for it
	} {
		second := known["c2"]
		second.How = tc.how
		known["c2"] = second
		plan, err := rollback.Make(run, known, rollback.Request{From: tc.from, Cascade: tc.cascade, At: noon, Critical: func(node string) bool { return node == tc.node }})
		if err != nil || !slices.Equal(plan.Review, tc.want) {
			t.Errorf("%+v: %v, %v", tc, plan.Review, err)
		}
		j := rollback.Begin(plan, "w", agentA, "request", "runner")
		if first := j.Due(noon).Kind; (first == rollback.Hold) != (tc.want != nil) {
			t.Errorf("%+v: first %s", tc, first)
		}
	}
}
