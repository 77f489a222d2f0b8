package workflow_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// twin finds states by their definitions: it asks of each step which of all tokens belong to it.
type twin []workflow.Token

func isWork(act ect.Act) bool {
	text := string(act)
	return !strings.HasPrefix(text, "aepb:") && !strings.HasPrefix(text, "cpat:") && !strings.HasPrefix(text, "atd:") &&
		!strings.HasPrefix(text, "hitl:") && !strings.HasPrefix(text, "consensus_")
}

func isAboutWork(act ect.Act) bool {
	return slices.Contains([]ect.Act{ect.ActRollbackRequest, ect.ActRollbackResult, ect.ActApprovalGranted, ect.ActApprovalDenied}, act)
}

func translates(t workflow.Token, direction dag.Leg) bool {
	return (t.Node.Act == ect.ActTranslate || t.Node.Act == ect.ActCPATTranslate) && t.Node.Leg == direction
}

// parentIs reports whether a parent of a token is a token of which something holds.
func (w twin) parentIs(t workflow.Token, holds func(workflow.Token) bool) bool {
	return slices.ContainsFunc(w, func(p workflow.Token) bool { return slices.Contains(t.Node.Parents, p.Node.ID) && holds(p) })
}

func (w twin) isStep(t workflow.Token) bool {
	work := func(p workflow.Token) bool { return isWork(p.Node.Act) }
	brought := func(p workflow.Token) bool {
		return work(p) || p.Node.Act == ect.ActIntent || translates(p, dag.Request) || isAboutWork(p.Node.Act)
	}
	return work(t) || t.Node.Act == ect.ActIntent && !w.parentIs(t, work) || translates(t, dag.Request) && !w.parentIs(t, brought)
}

// belonging finds the annotations that belong to an id; direct: not those behind signals.
func (w twin) belonging(id ect.ID, direct bool) []workflow.Token {
	found, in := []workflow.Token{}, make([]bool, len(w))
	for range len(w) {
		for i, t := range w {
			through := func(p workflow.Token) bool { return !direct || !isAboutWork(p.Node.Act) }
			names := slices.Contains(t.Node.Parents, id) || slices.ContainsFunc(found, func(p workflow.Token) bool {
				return slices.Contains(t.Node.Parents, p.Node.ID) && through(p)
			})
			if !in[i] && !w.isStep(t) && names {
				in[i] = true
				found = append(found, t)
			}
		}
	}
	return found
}

// concerning finds the annotations that belong to a step along parents that each time concern the issuer of the
// token below; direct: not those behind signals.
func (w twin) concerning(s workflow.Token, direct bool) (found []workflow.Token) {
	in := make([]bool, len(w))
	below := func(t, p workflow.Token) bool {
		return slices.Contains(t.Node.Parents, p.Node.ID) && (p.Node.Issuer == t.Node.Issuer || slices.Contains(p.Audience, string(t.Node.Issuer)))
	}
	for range len(w) {
		for i, t := range w {
			if in[i] || w.isStep(t) {
				continue
			}
			if below(t, s) || slices.ContainsFunc(found, func(p workflow.Token) bool { return below(t, p) && (!direct || !isAboutWork(p.Node.Act)) }) {
				in[i] = true
				found = append(found, t)
			}
		}
	}
	return found
}

// concerns reports whether a parent of a token is of its issuer, or for it.
func (w twin) concerns(t workflow.Token) bool {
	return w.parentIs(t, func(p workflow.Token) bool {
		return p.Node.Issuer == t.Node.Issuer || slices.Contains(p.Audience, string(t.Node.Issuer))
	})
}

func (w twin) state(s workflow.Token) workflow.State {
	all, direct := w.belonging(s.Node.ID, false), w.belonging(s.Node.ID, true)
	own, ownDirect := w.concerning(s, false), w.concerning(s, true)
	has := func(list []workflow.Token, holds func(workflow.Token) bool) bool {
		return slices.ContainsFunc(list, holds)
	}
	act := func(acts ...ect.Act) func(workflow.Token) bool {
		return func(t workflow.Token) bool { return slices.Contains(acts, t.Node.Act) }
	}
	switch {
	case has(own, func(t workflow.Token) bool {
		return t.Node.Act == ect.ActCheckpoint && has(w, func(r workflow.Token) bool {
			return r.Node.Act == ect.ActRollbackResult && r.Status == "completed" && r.Checkpoint == t.Node.ID && w.concerns(r)
		})
	}):
		return workflow.RolledBack
	case has(own, act(ect.ActEscalate)):
		return workflow.Escalated
	case has(own, act(ect.ActTranslateError)), has(own, func(t workflow.Token) bool {
		return t.Node.Act == ect.ActError && !slices.Contains([]string{"info", "warning"}, t.Severity)
	}):
		return workflow.Failed
	case has(ownDirect, act(ect.ActWorkflowComplete)),
		has(ownDirect, func(t workflow.Token) bool { return translates(t, dag.Reply) && t.Stream != "open" }),
		has(w, func(t workflow.Token) bool { // a task node of another issuer
			return isWork(t.Node.Act) && t.Node.Issuer != s.Node.Issuer && (slices.Contains(t.Node.Parents, s.Node.ID) ||
				slices.ContainsFunc(all, func(a workflow.Token) bool { return slices.Contains(t.Node.Parents, a.Node.ID) }))
		}),
		w.completed(s),
		isWork(s.Node.Act) && !has(direct, func(t workflow.Token) bool { return translates(t, dag.Request) || t.Node.Act == ect.ActIntent }) &&
			has(w, func(t workflow.Token) bool {
				return isWork(t.Node.Act) && t.Node.Issuer == s.Node.Issuer && t.Node.ID != s.Node.ID && slices.Contains(t.Node.Parents, s.Node.ID)
			}):
		return workflow.Done
	default:
		return workflow.Running
	}
}

// completed reports whether a step is below a start that was completed, and not younger than the last completion.
func (w twin) completed(s workflow.Token) bool {
	above := map[ect.ID]bool{s.Node.ID: true}
	for range len(w) {
		for _, t := range w {
			if above[t.Node.ID] {
				for _, id := range t.Node.Parents {
					above[id] = true
				}
			}
		}
	}
	ended, latest := false, int64(0)
	for _, t := range w {
		for _, start := range w {
			if t.Node.Act == ect.ActWorkflowComplete && w.concerns(t) && start.Node.Act == ect.ActWorkflowStart && slices.Contains(t.Node.Parents, start.Node.ID) {
				ended, latest = ended || above[start.Node.ID], max(latest, t.Node.IssuedAt)
			}
		}
	}
	return ended && s.Node.IssuedAt <= latest
}

func randomTokens(r *rand.Rand) []workflow.Token {
	acts := []ect.Act{
		"work", "work", "work", ect.ActTranslate, ect.ActTranslate, ect.ActTranslate, ect.ActCPATTranslate, ect.ActIntent, ect.ActCheckpoint, ect.ActCheckpoint, ect.ActRollbackResult,
		ect.ActRollbackRequest, ect.ActRollbackResult, ect.ActError, ect.ActEscalate, ect.ActWorkflowStart, ect.ActWorkflowComplete, ect.ActNegotiate, ect.ActApprovalGranted,
	}
	ids := 3 + r.IntN(12)
	id := func() ect.ID { return ect.ID(fmt.Sprint("t", r.IntN(ids))) }
	var tokens []workflow.Token
	for range r.IntN(14) {
		t := at(100+int64(r.IntN(3)), token(id(), acts[r.IntN(len(acts))], []ect.Identity{gateway, agentA, agentB}[r.IntN(3)]))
		if slices.ContainsFunc(tokens, func(o workflow.Token) bool { return o.Node.ID == t.Node.ID && o.Node.Issuer == t.Node.Issuer }) {
			continue // an issuer uses an id once
		}
		t.Audience = nil
		for _, who := range []ect.Identity{gateway, agentA, agentB} {
			if r.IntN(2) == 0 {
				t.Audience = append(t.Audience, string(who))
			}
		}
		t.Node.Leg = []dag.Leg{dag.Request, dag.Reply}[r.IntN(2)]
		t.Stream = []string{"", "", "open", "close"}[r.IntN(4)]
		t.Status, t.Checkpoint = []string{"completed", "failed"}[r.IntN(2)], id()
		t.Reversible = r.IntN(2) == 0
		t.Severity = []string{"", "info", "warning", "error", "critical", "mild"}[r.IntN(6)]
		for range r.IntN(3) {
			t.Node.Parents = append(t.Node.Parents, id())
		}
		tokens = append(tokens, t)
	}
	return tokens
}

func TestRun_Twin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 9))
	seen := map[workflow.State]int{}
	for range 20_000 {
		tokens := randomTokens(r)
		w, got := twin(tokens), runOf(t, tokens)
		steps := 0
		for _, token := range tokens {
			if !w.isStep(token) {
				continue
			}
			steps++
			want, state := w.state(token), workflow.State("")
			for _, s := range got.StepsOf(token.Node.ID) {
				if s.Issuer == token.Node.Issuer {
					state = s.State
				}
			}
			seen[want]++
			if state != want {
				t.Fatalf("%s of %s is %q, want %q, in\n%+v", token.Node.ID, token.Node.Issuer, state, want, tokens)
			}
		}
		if len(got.Steps()) != steps {
			t.Fatalf("got %d steps, want %d", len(got.Steps()), steps)
		}
	}
	for _, state := range []workflow.State{workflow.Running, workflow.Done, workflow.Failed, workflow.Escalated, workflow.RolledBack} {
		if seen[state] < 50 {
			t.Errorf("only %d steps are %s", seen[state], state)
		}
	}
}

// begins reports whether a step can begin a node, by the definition.
func (w twin) begins(t workflow.Token, p workflow.Planned) bool {
	names := append([]string{t.Work.Agent}, t.Audience...)
	if isWork(t.Node.Act) {
		names = append(names, string(t.Node.Issuer))
		for _, o := range w {
			if slices.Contains(o.Node.Parents, t.Node.ID) && o.Node.Act.Translation() && o.Node.Leg == dag.Request && slices.Contains(t.Audience, string(o.Node.Issuer)) {
				names = append(names, o.Audience...)
			}
		}
	}
	agent := len(p.Agents) == 0
	for _, name := range names {
		agent = agent || slices.Contains(p.Agents, name)
	}
	switch {
	case isWork(t.Node.Act):
		return agent && string(t.Node.Act) == string(p.Act)
	case t.Work.Name == "":
		return agent && len(p.Agents) > 0
	}
	return agent && t.Work.Name == string(p.Act)
}

// TestRun_PlannedTwin: nodes begin by the definition, step after step: the first that fits and whose turn it is, else the
// first that fits.
func TestRun_PlannedTwin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 9))
	var inTurn, outOfTurn int
	for range 20_000 {
		tokens := randomTokens(r)
		for i := range tokens {
			tokens[i].Work = workflow.Work{Name: []string{"", "work", "rest"}[r.IntN(3)], Agent: []string{"", string(agentA), "stdio:b"}[r.IntN(3)]}
		}
		planned := make([]workflow.Planned, r.IntN(6))
		for i := range planned {
			planned[i] = workflow.Planned{ID: fmt.Sprint(i), Act: []ect.Act{"work", "rest"}[r.IntN(2)], Agents: [][]string{nil, {string(agentA)}, {"https://b", "stdio:b"}}[r.IntN(3)]}
			for before := range i {
				if r.IntN(3) == 0 {
					planned[i].After = append(planned[i].After, fmt.Sprint(before))
				}
			}
		}
		r.Shuffle(len(planned), func(i, j int) { planned[i], planned[j] = planned[j], planned[i] })
		w, begun := twin(tokens), map[string]bool{}
		for _, s := range runOf(t, tokens, planned...).Steps() {
			if s.Kind == workflow.KindPlanned {
				if begun[s.Planned] {
					t.Fatalf("node %s is pending and has begun, in\n%+v\n%+v", s.Planned, planned, tokens)
				}
				continue
			}
			at := slices.IndexFunc(tokens, func(o workflow.Token) bool { return o.Node.ID == s.ID && o.Node.Issuer == s.Issuer })
			want, turn := "", false
			for _, p := range planned {
				if begun[p.ID] || !w.begins(tokens[at], p) {
					continue
				}
				now := true
				for _, id := range p.After {
					now = now && begun[id]
				}
				if want == "" || now && !turn {
					want, turn = p.ID, now
				}
			}
			if s.Planned != want {
				t.Fatalf("%s begins %q, want %q, in\n%+v\n%+v", s.ID, s.Planned, want, planned, tokens)
			}
			begun[want] = true
			if turn {
				inTurn++
			} else if want != "" {
				outOfTurn++
			}
		}
	}
	if inTurn < 1000 || outOfTurn < 100 {
		t.Errorf("%d nodes in turn, %d out of turn", inTurn, outOfTurn)
	}
}

const run = "0b5e3a8e-8f0c-4b1c-9d1e-2f3a4b5c6d7e"

// exchanges are the tokens of exchanges one after the other: task, request, work of the agent, reply.
func exchanges(n int) []ect.Claims {
	last := []ect.ID{}
	claims := make([]ect.Claims, n)
	for i := range claims {
		c := ect.Claims{
			Issuer: gateway, Audience: []string{string(agentA), string(agentB)}, IssuedAt: int64(1000 + i), Expires: int64(2000 + i),
			ID: ect.NewID(), Workflow: run, Act: ect.ActTranslate, Parents: last, InputHash: ect.Hash(nil), OutputHash: ect.Hash(nil), Ext: ect.Ext{},
		}
		switch i % 4 {
		case 0, 2:
			c.Act, c.Issuer = "send_task", []ect.Identity{agentA, agentB}[i%4/2]
		default:
			c.Ext.SetString(ect.ExtSourceProtocol, "a2a-v1")
			c.Ext.SetString(ect.ExtDestProtocol, "mcp-v1")
			c.Ext.SetString(ect.ExtGatewayID, string(gateway))
			c.Ext.SetString(ect.ExtCaller, string(agentA))
			c.Ext.SetString(ect.ExtLeg, []string{"request", "reply"}[i%4/2])
			c.Ext.SetWarnings(nil)
		}
		claims[i], last = c, []ect.ID{c.ID}
	}
	return claims
}

func BenchmarkNew_MaxNodes(b *testing.B) {
	var tokens []workflow.Token
	for _, c := range exchanges(dag.MaxNodes) {
		tokens = append(tokens, workflow.TokenOf(c))
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := workflow.New(run, tokens, nil)
		if status, ended := r.Terminal(); err != nil || !ended || status != workflow.StatusSuccess || len(r.Steps()) != dag.MaxNodes/2 {
			b.Fatal(status, ended, err)
		}
	}
}

// BenchmarkNew_RecordedTokens reads recorded tokens as well.
func BenchmarkNew_RecordedTokens(b *testing.B) {
	party := ecttest.NewParty(b, gateway)
	var recorded []string
	for _, c := range exchanges(dag.MaxNodes) {
		recorded = append(recorded, ecttest.Mint(b, party, ecttest.Recipe{Claims: c}))
	}
	b.ReportAllocs()
	for b.Loop() {
		tokens, parser := make([]workflow.Token, len(recorded)), ect.RecordParser{}
		for i, compact := range recorded {
			c, err := parser.Parse(compact)
			if err != nil {
				b.Fatal(err)
			}
			tokens[i] = workflow.TokenOf(c)
		}
		if r, err := workflow.New(run, tokens, nil); err != nil || len(r.Steps()) != dag.MaxNodes/2 {
			b.Fatal(err)
		}
	}
}
