package workflow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

const (
	gateway = ect.Identity("spiffe://example.com/gateway")
	agentA  = ect.Identity("spiffe://example.com/a")
	agentB  = ect.Identity("spiffe://example.com/b")
	agentC  = ect.Identity("spiffe://example.com/c")
)

// token is a token of workflow w, issued at second 100.
func token(id ect.ID, act ect.Act, issuer ect.Identity, parents ...ect.ID) workflow.Token {
	return workflow.Token{
		Node:     dag.Node{ID: id, Workflow: "w", Issuer: issuer, Act: act, IssuedAt: 100, Parents: parents, Leg: dag.Request},
		Audience: []string{string(gateway)},
	}
}

func task(id ect.ID, issuer ect.Identity, parents ...ect.ID) workflow.Token {
	return token(id, "work", issuer, parents...)
}

func request(id ect.ID, parents ...ect.ID) workflow.Token {
	return token(id, ect.ActTranslate, gateway, parents...)
}

func reply(id ect.ID, parents ...ect.ID) workflow.Token {
	t := request(id, parents...)
	t.Node.Leg = dag.Reply
	return t
}

func streamed(state string, t workflow.Token) workflow.Token { t.Stream = state; return t }

func at(second int64, t workflow.Token) workflow.Token { t.Node.IssuedAt = second; return t }

func to(agent ect.Identity, t workflow.Token) workflow.Token {
	t.Audience = append(t.Audience, string(agent))
	return t
}

func checkpoint(id ect.ID, reversible bool, parents ...ect.ID) workflow.Token {
	t := token(id, ect.ActCheckpoint, gateway, parents...)
	t.Reversible = reversible
	return t
}

func result(id ect.ID, status string, of ect.ID, parents ...ect.ID) workflow.Token {
	t := token(id, ect.ActRollbackResult, gateway, parents...)
	t.Status, t.Checkpoint = status, of
	return t
}

func failure(id ect.ID, parents ...ect.ID) workflow.Token {
	return token(id, ect.ActError, gateway, parents...)
}

type states map[ect.ID]workflow.State

// TestRun_States has a table for each rule of R26. Only steps have a state.
func TestRun_States(t *testing.T) {
	t.Parallel()
	const running, done, failed, rolledBack, escalated = workflow.Running, workflow.Done, workflow.Failed, workflow.RolledBack, workflow.Escalated
	type tokens = []workflow.Token
	for name, tc := range map[string]struct {
		tokens tokens
		want   states
	}{
		"nothing": {},
		// Kinds of steps.
		"a task":                                {tokens{task("t", agentA)}, states{"t": running}},
		"acts that annotate":                    {tokens{token("1", "aepb:negotiate", gateway), token("2", "cpat:x", gateway), token("3", ect.ActWorkflowStart, agentA), token("4", "hitl:x", agentA), token("5", "consensus_vote", agentA), reply("6")}, states{}},
		"an intent":                             {tokens{token("i", ect.ActIntent, gateway), request("q", "i")}, states{"i": running}},
		"an intent after a reply":               {tokens{token("i", ect.ActIntent, gateway, "r"), reply("r")}, states{"i": running}},
		"an intent of a task":                   {tokens{task("t", agentA), token("i", ect.ActIntent, gateway, "t"), request("q", "i"), reply("r", "q")}, states{"t": done}},
		"a request of a caller without a token": {tokens{request("q")}, states{"q": running}},
		"a request after a reply":               {tokens{request("q"), reply("r", "q"), request("q2", "r")}, states{"q": done, "q2": running}},
		"a request below a start":               {tokens{token("s", ect.ActWorkflowStart, agentA), request("q", "s")}, states{"q": running}},
		"a request whose parent is missing":     {tokens{request("q", "x")}, states{"q": running}},
		"a request of a further gateway":        {tokens{task("t", agentA), request("q", "t"), request("q2", "q"), reply("r2", "q2"), reply("r", "r2")}, states{"t": done}},
		"a request for a signal":                {tokens{token("b", ect.ActRollbackRequest, agentA), request("q", "b")}, states{}},
		// Done.
		"a request completes nothing":                     {tokens{task("t", agentA), request("q", "t")}, states{"t": running}},
		"a reply":                                         {tokens{task("t", agentA), request("q", "t"), reply("r", "q")}, states{"t": done}},
		"a reply to a caller without a token":             {tokens{request("q"), reply("r", "q")}, states{"q": done}},
		"a reply of a cpat endpoint":                      {tokens{task("t", agentA), reply("r", "t"), token("q", ect.ActCPATTranslate, gateway, "t")}, states{"t": done}},
		"a stream that is open":                           {tokens{task("t", agentA), request("q", "t"), streamed("open", reply("o", "q"))}, states{"t": running}},
		"a stream that is closed":                         {tokens{task("t", agentA), request("q", "t"), streamed("open", reply("o", "q")), streamed("close", reply("c", "q"))}, states{"t": done}},
		"a stream of an unknown state":                    {tokens{task("t", agentA), request("q", "t"), streamed("half", reply("o", "q"))}, states{"t": running}},
		"the work of the agent":                           {tokens{task("t", agentA), request("q", "t"), task("u", agentB, "q")}, states{"t": done, "u": running}},
		"the work of the agent and the reply":             {tokens{task("t", agentA), request("q", "t"), task("u", agentB, "q"), reply("r", "u")}, states{"t": done, "u": done}},
		"the work of an agent for a caller without token": {tokens{request("q"), task("u", agentB, "q"), reply("r", "u")}, states{"q": done, "u": done}},
		"a task of another issuer":                        {tokens{task("t", agentA), task("u", agentB, "t")}, states{"t": done, "u": running}},
		"a task of another issuer two steps below":        {tokens{task("t", agentA), request("q", "t"), task("u", agentA, "t"), task("v", agentB, "u")}, states{"t": running, "u": done, "v": running}},
		"a local task goes on":                            {tokens{task("t", agentA), task("u", agentA, "t")}, states{"t": done, "u": running}},
		"a task that was sent and goes on":                {tokens{task("t", agentA), request("q", "t"), task("u", agentA, "t")}, states{"t": running, "u": running}},
		"a task that waits with an intent and goes on":    {tokens{task("t", agentA), token("i", ect.ActIntent, gateway, "t"), task("u", agentA, "t")}, states{"t": running, "u": running}},
		"a task of its issuer below an annotation":        {tokens{task("t", agentA), token("n", ect.ActNegotiate, gateway, "t"), task("u", agentA, "n")}, states{"t": running, "u": running}},
		"checkpoints and negotiations complete nothing":   {tokens{task("t", agentA), request("q", "t"), checkpoint("c", true, "q"), token("n", ect.ActNegotiate, gateway, "t")}, states{"t": running}},
		"a reply to another step":                         {tokens{task("t", agentA), task("u", agentA, "t"), request("q", "t"), request("q2", "u"), reply("r", "q2")}, states{"t": running, "u": done}},
		// Completion of the workflow.
		"the workflow was completed":                     {tokens{token("s", ect.ActWorkflowStart, agentA), task("t", agentA, "s"), request("q", "t"), at(200, token("e", ect.ActWorkflowComplete, agentA, "s"))}, states{"t": done}},
		"a step after the completion":                    {tokens{token("s", ect.ActWorkflowStart, agentA), at(201, task("t", agentA, "s")), at(200, token("e", ect.ActWorkflowComplete, agentA, "s"))}, states{"t": running}},
		"a completion of another start":                  {tokens{token("s", ect.ActWorkflowStart, agentA), token("s2", ect.ActWorkflowStart, agentA), task("t", agentA, "s"), token("e", ect.ActWorkflowComplete, agentA, "s2")}, states{"t": running}},
		"a completion whose parent is no start":          {tokens{task("t", agentA), request("q", "t"), task("u", agentC, "x"), token("e", ect.ActWorkflowComplete, agentA, "x")}, states{"t": running, "u": running}},
		"a completion below a step":                      {tokens{task("t", agentA), request("q", "t"), token("e", ect.ActWorkflowComplete, agentA, "t")}, states{"t": done}},
		"a failed step in a workflow that was completed": {tokens{token("s", ect.ActWorkflowStart, agentA), task("t", agentA, "s"), failure("f", "t"), token("e", ect.ActWorkflowComplete, agentA, "s")}, states{"t": failed}},
		// Failed.
		"an error":                             {tokens{task("t", agentA), failure("f", "t")}, states{"t": failed}},
		"an error of a translation":            {tokens{task("t", agentA), token("f", ect.ActTranslateError, gateway, "t")}, states{"t": failed}},
		"an error of the request":              {tokens{task("t", agentA), request("q", "t"), token("f", ect.ActTranslateError, gateway, "q")}, states{"t": failed}},
		"an error and a reply":                 {tokens{task("t", agentA), request("q", "t"), failure("f", "q"), reply("r", "f")}, states{"t": failed}},
		"an error of the agent's work":         {tokens{task("t", agentA), request("q", "t"), task("u", agentB, "q"), failure("f", "u")}, states{"t": done, "u": failed}},
		"an error of two steps":                {tokens{task("t", agentA), task("u", agentB), failure("f", "t", "u")}, states{"t": failed, "u": failed}},
		"an error of a caller without a token": {tokens{request("q"), token("f", ect.ActTranslateError, gateway, "q")}, states{"q": failed}},
		// Escalated.
		"an escalation of an error":  {tokens{task("t", agentA), failure("f", "t"), token("e", ect.ActEscalate, gateway, "f")}, states{"t": escalated}},
		"an escalation of elsewhere": {tokens{task("t", agentA), failure("f", "t"), token("e", ect.ActEscalate, gateway)}, states{"t": failed}},
		// Rolled back.
		"a rollback":                           {tokens{task("t", agentA), request("q", "t"), checkpoint("c", true, "q"), failure("f", "q"), token("b", ect.ActRollbackRequest, agentA, "c"), result("x", "completed", "c", "b")}, states{"t": rolledBack}},
		"a rollback goes before an escalation": {tokens{task("t", agentA), checkpoint("c", true, "t"), token("e", ect.ActEscalate, gateway, "t"), result("x", "completed", "c", "c")}, states{"t": rolledBack}},
		"a rollback that failed":               {tokens{task("t", agentA), checkpoint("c", true, "t"), failure("f", "t"), token("b", ect.ActRollbackRequest, agentA, "c"), result("x", "failed", "c", "b")}, states{"t": failed}},
		"a rollback in part":                   {tokens{task("t", agentA), checkpoint("c", true, "t"), result("x", "partial", "c", "c")}, states{"t": running}},
		"a rollback of another checkpoint":     {tokens{task("t", agentA), checkpoint("c", true, "t"), task("u", agentB), checkpoint("d", true, "u"), result("x", "completed", "d", "c")}, states{"t": running, "u": rolledBack}},
		"a rollback of no checkpoint":          {tokens{task("t", agentA), request("q", "t"), result("x", "completed", "q", "q")}, states{"t": running}},
		"a group of checkpoints":               {tokens{task("t", agentA), task("u", agentB), checkpoint("c", true, "t"), checkpoint("d", true, "u"), checkpoint("g", true, "c", "d"), result("x", "completed", "g", "g")}, states{"t": rolledBack, "u": rolledBack}},
		"the reply to a rollback":              {tokens{task("t", agentA), request("q", "t"), checkpoint("c", true, "q"), token("b", ect.ActRollbackRequest, agentA, "c"), request("q2", "b"), result("x", "failed", "c", "b"), reply("r", "x", "q2")}, states{"t": running}},
		// Hostile graphs.
		"its own parent":                     {tokens{task("t", agentA, "t")}, states{"t": running}},
		"a cycle of tasks":                   {tokens{task("t", agentA, "u"), task("u", agentA, "t")}, states{"t": done, "u": done}},
		"a cycle of annotations with errors": {tokens{task("t", agentA), reply("1", "t", "3"), reply("2", "1"), failure("3", "2")}, states{"t": failed}},
		"a forged parent":                    {tokens{task("t", agentA), request("q", "t"), reply("r", "x"), failure("f", "y")}, states{"t": running}},
		"a token of another workflow":        {tokens{task("t", agentA), {Node: dag.Node{ID: "f", Workflow: "v", Act: ect.ActError, Parents: []ect.ID{"t"}}}}, states{"t": running}},
		"the id of a step again":             {tokens{task("t", agentA), request("q", "t"), at(101, token("t", ect.ActNegotiate, agentC, "q")), task("u", agentB, "q")}, states{"t": done, "u": running}},
		"an annotation with the id of a step leads only to its own parents": {tokens{task("p", agentC), request("q", "p"), task("t", agentC, "p"), at(101, token("t", ect.ActNegotiate, agentA)), failure("f", "t")}, states{"p": running, "t": failed}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, statesOf(t, tc.tokens), emptyIsNil); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

var emptyIsNil = cmp.Transformer("", func(s states) map[ect.ID]workflow.State {
	if len(s) == 0 {
		return nil
	}
	return s
})

func statesOf(t *testing.T, tokens []workflow.Token) states {
	t.Helper()
	got := states{}
	for _, s := range runOf(t, tokens).Steps() {
		got[s.ID] = s.State
	}
	return got
}

func runOf(t testing.TB, tokens []workflow.Token, planned ...workflow.Planned) workflow.Run {
	t.Helper()
	run, err := workflow.New("w", tokens, planned)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func TestRun_Steps(t *testing.T) {
	t.Parallel()
	run := runOf(t, []workflow.Token{
		task("t", agentA), request("q", "t"), checkpoint("c", true, "q"), task("u", agentB, "q"), checkpoint("d", false, "u"), request("x"),
	})
	want := []workflow.Step{
		{ID: "t", Issuer: agentA, Act: "work", Kind: workflow.KindTask, State: workflow.Done, Sent: true, Reversible: true},
		{ID: "x", Issuer: gateway, Act: ect.ActTranslate, Kind: workflow.KindRequest, State: workflow.Running, Last: true},
		{ID: "u", Issuer: agentB, Act: "work", Kind: workflow.KindTask, State: workflow.Running, Last: true},
	}
	ignore := cmpopts.IgnoreUnexported(workflow.Step{})
	if diff := cmp.Diff(want, run.Steps(), ignore); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[2:], run.StepsOf("u"), ignore); diff != "" || run.StepsOf("q") != nil {
		t.Errorf("StepsOf (-want +got):\n%s", diff)
	}
	run.Steps()[0].State = workflow.Failed
	if run.Steps()[0].State != workflow.Done || run.Graph().Workflow() != "w" {
		t.Error("the run was changed through its steps")
	}
}

// TestRun_Planned: nodes of a descriptor are pending until a step begins them.
func TestRun_Planned(t *testing.T) {
	t.Parallel()
	node := func(id string, act ect.Act, agent ect.Identity) workflow.Planned {
		p := workflow.Planned{ID: id, Act: act}
		if agent != "" {
			p.Agents = []string{string(agent)}
		}
		return p
	}
	wants := func(work, agent string) workflow.Token {
		i := token("i", ect.ActIntent, gateway)
		i.Work = workflow.Work{Name: work, Agent: agent}
		return i
	}
	then := func(p workflow.Planned, after ...string) workflow.Planned {
		p.After = after
		return p
	}
	type planned = []workflow.Planned
	for name, tc := range map[string]struct {
		planned planned
		tokens  []workflow.Token
		want    string // ids of pending nodes
	}{
		"nothing began":                     {planned{node("1", "work", agentA), node("2", "rest", agentB)}, nil, "1 2"},
		"by act and issuer":                 {planned{node("1", "work", agentA), node("2", "rest", agentB)}, []workflow.Token{task("t", agentA)}, "2"},
		"another act":                       {planned{node("1", "rest", agentA)}, []workflow.Token{task("t", agentA)}, "1"},
		"another agent":                     {planned{node("1", "work", agentB)}, []workflow.Token{task("t", agentA)}, "1"},
		"by the audience":                   {planned{node("1", "work", agentB)}, []workflow.Token{to(agentB, task("t", agentA))}, ""},
		"by the request for it":             {planned{node("1", "work", agentB)}, []workflow.Token{to(gateway, task("t", agentA)), to(agentB, request("q", "t"))}, ""},
		"by act alone":                      {planned{node("1", "work", "")}, []workflow.Token{task("t", agentA)}, ""},
		"by agent alone":                    {planned{node("1", "", agentA)}, []workflow.Token{task("t", agentA)}, ""},
		"two nodes need two steps":          {planned{node("1", "work", agentA), node("2", "work", agentA)}, []workflow.Token{task("t", agentA)}, "2"},
		"a request by its agent":            {planned{node("1", "work", agentB)}, []workflow.Token{to(agentB, request("q"))}, ""},
		"a request begins no node by act":   {planned{node("1", ect.ActTranslate, "")}, []workflow.Token{request("q")}, "1"},
		"an intent by its work":             {planned{node("1", "work", "")}, []workflow.Token{wants("work", "stdio:b")}, ""},
		"an intent to other work":           {planned{node("1", "work", agentB)}, []workflow.Token{wants("rest", string(agentB))}, "1"},
		"an intent by work and agent":       {planned{node("1", "work", agentA), node("2", "work", "stdio:b")}, []workflow.Token{wants("work", "stdio:b")}, "1"},
		"an intent of unknown work":         {planned{node("1", "work", agentB)}, []workflow.Token{wants("", string(agentB))}, ""},
		"an intent of nothing known":        {planned{node("1", "work", "")}, []workflow.Token{wants("", "")}, "1"},
		"another name of the agent":         {planned{{ID: "1", Act: "work", Agents: []string{"https://a", string(agentA)}}}, []workflow.Token{task("t", agentA)}, ""},
		"the one whose turn it is":          {planned{then(node("2", "work", ""), "1"), node("1", "work", "")}, []workflow.Token{task("t", agentA)}, "2"},
		"out of turn":                       {planned{then(node("2", "work", ""), "1"), node("1", "rest", "")}, []workflow.Token{task("t", agentA)}, "1"},
		"an annotation begins no node":      {planned{node("1", ect.ActError, agentB)}, []workflow.Token{failure("f")}, "1"},
		"a step that is in no descriptor":   {nil, []workflow.Token{task("t", agentA)}, ""},
		"a step of another, then the right": {planned{node("1", "work", agentB)}, []workflow.Token{task("t", agentA), task("u", agentB)}, ""},
	} {
		var got []string
		for _, s := range runOf(t, tc.tokens, tc.planned...).Steps() {
			if s.State == workflow.Pending {
				got = append(got, s.Planned)
			}
		}
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("%s: got %q, want %q", name, text, tc.want)
		}
	}
}

func TestRun_Terminal(t *testing.T) {
	t.Parallel()
	doneTask := func(id ect.ID, parents ...ect.ID) []workflow.Token {
		return []workflow.Token{task(id, agentA, parents...), reply("r"+id, id)}
	}
	failedTask := func(id ect.ID, reversible bool, parents ...ect.ID) []workflow.Token {
		return []workflow.Token{task(id, agentA, parents...), failure("f"+id, id), checkpoint("c"+id, reversible, id)}
	}
	undone := func(id ect.ID, parents ...ect.ID) []workflow.Token {
		return append(failedTask(id, true, parents...), result("x"+id, "completed", "c"+id, "c"+id))
	}
	escalated := func(id ect.ID, parents ...ect.ID) []workflow.Token {
		return []workflow.Token{task(id, agentA, parents...), token("e"+id, ect.ActEscalate, gateway, id)}
	}
	running := []workflow.Token{task("run", agentA), request("runq", "run")}
	next := []workflow.Planned{{ID: "next", Act: "other"}}
	for name, tc := range map[string]struct {
		tokens  []workflow.Token
		planned []workflow.Planned
		want    workflow.Status // empty: it goes on
	}{
		"no steps":                      {},
		"only a start":                  {tokens: []workflow.Token{token("s", ect.ActWorkflowStart, agentA)}},
		"a step runs":                   {tokens: running},
		"one runs, one is done":         {tokens: slices.Concat(running, doneTask("t"))},
		"all done":                      {tokens: slices.Concat(doneTask("t"), doneTask("u", "t")), want: workflow.StatusSuccess},
		"done, and one is pending":      {tokens: doneTask("t"), planned: next},
		"only a pending one":            {planned: next},
		"failed":                        {tokens: failedTask("t", false), want: workflow.StatusFailed},
		"failed, and could be undone":   {tokens: failedTask("t", true), want: workflow.StatusFailed},
		"failed beside a running one":   {tokens: slices.Concat(running, failedTask("t", false)), want: workflow.StatusFailed},
		"the same, and could be undone": {tokens: slices.Concat(running, failedTask("t", true))},
		"failed before a pending one":   {tokens: failedTask("t", true), planned: next, want: workflow.StatusFailed},
		"failed after a done one":       {tokens: slices.Concat(doneTask("t"), failedTask("u", false, "t")), want: workflow.StatusFailed},
		"failed beside a done one":      {tokens: slices.Concat(doneTask("t"), failedTask("u", false)), want: workflow.StatusPartial},
		"failed, and later ones done":   {tokens: slices.Concat(failedTask("t", false), doneTask("u", "t")), want: workflow.StatusSuccess},
		"failed and rolled back":        {tokens: slices.Concat(undone("t"), failedTask("u", false)), want: workflow.StatusFailed},
		"done and failed, one runs":     {tokens: slices.Concat(running, doneTask("t"), failedTask("u", false)), want: workflow.StatusPartial},
		"rolled back":                   {tokens: undone("t"), want: workflow.StatusRolledBack},
		"rolled back after a done one":  {tokens: slices.Concat(doneTask("t"), undone("u", "t")), want: workflow.StatusRolledBack},
		"rolled back beside a done one": {tokens: slices.Concat(doneTask("t"), undone("u")), want: workflow.StatusPartial},
		"rolled back before a pending":  {tokens: undone("t"), planned: next, want: workflow.StatusRolledBack},
		"rolled back, one runs":         {tokens: slices.Concat(running, undone("t"))},
		"a cycle of done steps":         {tokens: []workflow.Token{task("t", agentA, "u"), task("u", agentA, "t")}, want: workflow.StatusSuccess},
		"a cycle with a failed step":    {tokens: []workflow.Token{task("t", agentA, "u"), task("u", agentA, "t"), failure("f", "u")}, want: workflow.StatusFailed},
		"escalated":                     {tokens: escalated("t"), want: workflow.StatusEscalated},
		"escalated, all others done":    {tokens: slices.Concat(doneTask("t"), escalated("u")), want: workflow.StatusEscalated},
		"escalated, one runs":           {tokens: slices.Concat(running, escalated("t"))},
	} {
		got, ended := runOf(t, tc.tokens, tc.planned...).Terminal()
		if got != tc.want || ended != (tc.want != "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, ended, tc.want)
		}
	}
}

func TestRun_Ready(t *testing.T) {
	t.Parallel()
	run := runOf(t, []workflow.Token{
		token("start", ect.ActWorkflowStart, agentA),
		task("local", agentA, "start"),
		to(agentB, task("sent", agentA, "start")), request("q", "sent"),
		task("done", agentA, "start"), reply("r", "done"),
		task("failed", agentA, "start"), failure("f", "failed"),
		task("undone", agentA), checkpoint("c", true, "undone"), result("x", "completed", "c", "c"),
		task("escalated", agentA), token("e", ect.ActEscalate, gateway, "escalated"),
		task("twice", agentA), at(101, task("twice", agentC)),
		to(agentB, request("unattested")),
	})
	for name, tc := range map[string]struct {
		issuer  ect.Identity
		parents []ect.ID
		want    string // id is state, …
	}{
		"no parents":                        {agentA, nil, ""},
		"parents that annotate":             {agentC, []ect.ID{"start", "q", "r", "f", "c", "x", "e"}, ""},
		"a done parent":                     {agentC, []ect.ID{"done"}, ""},
		"a local parent":                    {agentA, []ect.ID{"local"}, ""},
		"a local parent of another":         {agentC, []ect.ID{"local"}, "local is running"},
		"a parent whose request is not yet": {agentA, []ect.ID{"sent"}, "sent is running"},
		"work that was given to the issuer": {agentB, []ect.ID{"sent"}, ""},
		"a request for the issuer":          {agentB, []ect.ID{"unattested"}, ""},
		"a request for another":             {agentC, []ect.ID{"unattested"}, "unattested is running"},
		"a failed parent":                   {agentA, []ect.ID{"failed"}, "failed is failed"},
		"an unknown parent":                 {agentA, []ect.ID{"nowhere"}, "nowhere is unknown"},
		"the others":                        {agentA, []ect.ID{"undone", "escalated"}, "undone is rolled_back, escalated is escalated"},
		"an id of two steps of others":      {agentB, []ect.ID{"twice"}, "twice is running"},
		"its own of two with one id":        {agentA, []ect.ID{"twice"}, ""},
		"some of several":                   {agentA, []ect.ID{"done", "sent", "failed", "sent"}, "sent is running, failed is failed"},
		"many":                              {agentA, []ect.ID{"1", "2", "3", "4", "5", "6", "7"}, "1 is unknown, 2 is unknown, 3 is unknown, 4 is unknown, 5 is unknown, 2 more"},
	} {
		err := run.Ready(tc.parents, tc.issuer)
		text := ""
		if refusal, ok := errors.AsType[*workflow.NotReadyError](err); ok {
			text = strings.TrimPrefix(refusal.Error(), "a task starts when its parents are done: ")
		} else if err != nil {
			t.Fatal(name, err)
		}
		if text != tc.want {
			t.Errorf("%s: got %q, want %q", name, text, tc.want)
		}
	}
}

// TestReport_Planned: which step began which node, what comes before it, and which steps are not planned.
func TestReport_Planned(t *testing.T) {
	t.Parallel()
	tokens := []workflow.Token{task("t", agentA), task("u", agentB)}
	planned := []workflow.Planned{{ID: "1", Act: "work"}, {ID: "2", Act: "rest", Agents: []string{"stdio:b"}, After: []string{"1"}}}
	report := runOf(t, tokens, planned...).Report(tokens, time.Unix(200, 0))
	last := report.Steps[len(report.Steps)-1]
	if report.Steps[0].Planned != "1" || !slices.Equal(report.Unplanned, []ect.ID{"u"}) || last.Planned != "2" ||
		!slices.Equal(last.AfterNodes, []string{"1"}) || !slices.Equal(last.Agents, []string{"stdio:b"}) || last.State != workflow.Pending {
		t.Errorf("%+v", report)
	}
	if report := runOf(t, tokens).Report(tokens, time.Unix(200, 0)); report.Unplanned != nil {
		t.Errorf("without a descriptor: %v", report.Unplanned)
	}
}

// TestReport_AgentsOfRollback: what a rollback sends to the agents of later steps does not make them agents of the step that it goes back to.
func TestReport_AgentsOfRollback(t *testing.T) {
	t.Parallel()
	rollback := token("back", ect.ActRollbackRequest, gateway, "saved")
	tokens := []workflow.Token{
		task("t", agentA), to(agentB, request("q", "t")), checkpoint("saved", true, "q"), reply("r", "q"),
		rollback, to(agentC, token("undo", ect.ActRollbackRequest, gateway, "other", "back")), to(agentC, request("sent", "undo")),
	}
	if agents := runOf(t, tokens).Report(tokens, time.Unix(200, 0)).Steps[0].Agents; !slices.Equal(agents, []string{string(agentB)}) {
		t.Errorf("the agents are %v", agents)
	}
}

func TestNew_Bounds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tokens, planned int
		want            string
	}{
		"at the bounds":          {dag.MaxNodes, workflow.MaxPlanned, ""},
		"too many tokens":        {dag.MaxNodes + 1, 0, "workflow: more than 10000 tokens: its states are not known, split the work into several workflows"},
		"too many planned nodes": {0, workflow.MaxPlanned + 1, "workflow: more than 256 planned nodes: its states are not known, split the work into several workflows"},
	} {
		tokens := make([]workflow.Token, tc.tokens)
		for i := range tokens {
			tokens[i] = task(ect.ID(fmt.Sprint(i)), agentA)
		}
		_, err := workflow.New("w", tokens, make([]workflow.Planned, tc.planned))
		if text := fmt.Sprint(err); text != tc.want && (err != nil || tc.want != "") {
			t.Errorf("%s: got %q, want %q", name, text, tc.want)
		}
	}
}

func TestSeverity_OrderAndEscalation(t *testing.T) {
	t.Parallel()
	for s, text := range map[workflow.Severity]string{
		workflow.SeverityInfo: "info", workflow.SeverityWarning: "warning", workflow.SeverityError: "error", workflow.SeverityCritical: "critical", 0: "", 9: "",
	} {
		if s.String() != text || s.Escalates() != (text == "critical") {
			t.Errorf("%d: got %q, escalates %t", s, s, s.Escalates())
		}
	}
	if workflow.SeverityInfo >= workflow.SeverityWarning || workflow.SeverityWarning >= workflow.SeverityError || workflow.SeverityError >= workflow.SeverityCritical {
		t.Error("the severities are not in their order")
	}
}

func TestTokenOf_Claims(t *testing.T) {
	t.Parallel()
	c := ect.Claims{
		Issuer: gateway, Audience: []string{"b"}, IssuedAt: 5, Expires: 9, ID: "t", Workflow: "w", Act: ect.ActTranslate, Parents: []ect.ID{"p"},
		Ext: ect.Ext{
			ect.ExtWorkflowID: []byte(`"w"`), ect.ExtCaller: []byte(`"a"`), ect.ExtStream: []byte(`"close"`), ect.ExtError: []byte(`"code"`),
			ect.ExtCPATWarnings: []byte(`["L05 dropped /x"]`), ect.ExtSeverity: []byte(`"critical"`), ect.ExtErrorType: []byte(`"timeout"`),
			ect.ExtCheckpointID: []byte(`"c"`), ect.ExtReversible: []byte(`true`), ect.ExtStatus: []byte(`"completed"`),
			ect.ExtTerminalStatus: []byte(`"success"`), ect.ExtLeg: []byte(`"reply"`), ect.ExtATDDescription: []byte(`"why"`), ect.ExtNodeCount: []byte(`3`),
			ect.ExtSourceProtocol: []byte(`"a2a-v1"`), ect.ExtCPATDestProtocol: []byte(`"mcp-v1"`),
		},
	}
	want := workflow.Token{
		Node:     dag.Node{ID: "t", Workflow: "w", Issuer: gateway, Act: ect.ActTranslate, IssuedAt: 5, Parents: []ect.ID{"p"}, Leg: dag.Reply},
		Audience: []string{"b"}, Caller: "a", Stream: "close", Error: "code", Losses: []string{"L05 dropped /x"},
		Severity: "critical", ErrorType: "timeout", Checkpoint: "c", Reversible: true, Status: "completed", TerminalStatus: "success",
		Description: "why", NodeCount: 3, Protocols: workflow.Protocols{From: "a2a-v1", To: "mcp-v1"},
	}
	if diff := cmp.Diff(want, workflow.TokenOf(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wrong := ect.Ext{}
	for key := range c.Ext {
		wrong[key] = []byte(`{"a":1}`)
	}
	c.Ext, want = wrong, workflow.Token{Node: want.Node, Audience: want.Audience}
	want.Node.Leg = dag.Request
	if diff := cmp.Diff(want, workflow.TokenOf(c)); diff != "" {
		t.Errorf("wrong types (-want +got):\n%s", diff)
	}
}

// TestNew_HostileGraphsEnd: at the bound the states of the worst graphs are found in time.
func TestNew_HostileGraphsEnd(t *testing.T) {
	t.Parallel()
	const width = 100
	id := func(i int) ect.ID { return ect.ID(fmt.Sprint("t", i)) }
	for name, shape := range map[string]func(i int) workflow.Token{
		"a chain of annotations": func(i int) workflow.Token { return failure(id(i), id(i-1)) },
		"a cycle of annotations": func(i int) workflow.Token { return failure(id(i), id((i+1)%dag.MaxNodes)) },
		"annotations with a hundred parents": func(i int) workflow.Token {
			n := failure(id(i))
			if i%2 == 0 {
				n = task(id(i), agentA)
			}
			for p := 1; p <= width; p++ {
				n.Node.Parents = append(n.Node.Parents, id((i-p+dag.MaxNodes)%dag.MaxNodes))
			}
			return n
		},
		"namesakes": func(i int) workflow.Token {
			n := token(id(i%width), []ect.Act{"work", ect.ActError}[i%2], ect.Identity(fmt.Sprint("i", i)))
			for p := range width {
				n.Node.Parents = append(n.Node.Parents, id(p))
			}
			return n
		},
	} {
		tokens := make([]workflow.Token, dag.MaxNodes)
		for i := range tokens {
			tokens[i] = shape(i)
		}
		began := time.Now()
		run := runOf(t, tokens)
		run.Terminal()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: took %s", name, took)
		} else {
			t.Logf("%s: %s", name, took)
		}
	}
}

// TestAttack_MemberSpoilsTheStepsOfOthers: a member that has no part in a step can say neither that it failed nor
// that it is over, was undone, or needs a human, nor that the workflow of others is complete; and a token with
// the id of another issuer's task holds back no task that its owner names as parent.
func TestAttack_MemberSpoilsTheStepsOfOthers(t *testing.T) {
	t.Parallel()
	const member = ect.Identity("spiffe://example.com/member")
	by := func(act ect.Act, parents ...ect.ID) workflow.Token { return token("m", act, member, parents...) }
	start, step := token("s", ect.ActWorkflowStart, agentA), task("t", agentA, "s")
	sent := to(agentB, request("q", "t"))
	undone := by(ect.ActRollbackResult, "c")
	undone.Status, undone.Checkpoint = "completed", "c"
	closed := by(ect.ActTranslate, "q")
	closed.Node.Leg = dag.Reply
	for name, forged := range map[string]workflow.Token{
		"an error": by(ect.ActError, "q"), "an error of a translation": by(ect.ActTranslateError, "t"), "an escalation": by(ect.ActEscalate, "q"),
		"a completion": by(ect.ActWorkflowComplete, "s"), "a rollback": undone, "a reply": closed,
	} {
		run := runOf(t, []workflow.Token{start, step, sent, checkpoint("c", true, "q"), forged})
		if got := run.StepsOf("t")[0].State; got != workflow.Running {
			t.Errorf("%s of a member: the step is %s, expected it to run", name, got)
		}
	}
	agents := failure("f", "q")
	agents.Node.Issuer = agentB
	if got := runOf(t, []workflow.Token{start, step, sent, agents}).StepsOf("t")[0].State; got != workflow.Failed {
		t.Errorf("an error of the agent that was asked: the step is %s", got)
	}
	namesake := token("t", "work", member)
	run := runOf(t, []workflow.Token{start, step, sent, reply("r", "q"), namesake, token("m2", ect.ActError, member, "t")})
	if err := run.Ready([]ect.ID{"t"}, agentA); err != nil {
		t.Errorf("a task after a done one whose id a member used: %v", err)
	}
}
