package dag_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

const (
	gateway = ect.Identity("spiffe://gw.example.com/aepb")
	maxHops = 3 // aepb.max_translation_hops, the draft's default
)

// graph is the tokens that somebody has.
type graph map[ect.ID]dag.Node

// add puts a node in; who is a gateway's name for a translation, else an agent's.
func (g graph) add(id ect.ID, act ect.Act, direction dag.Leg, who ect.Identity, parents ...ect.ID) dag.Node {
	n := dag.Node{ID: id, Issuer: who, Act: act, Leg: direction, Parents: parents}
	g[id] = n
	return n
}

func (g graph) request(id ect.ID, who ect.Identity, parents ...ect.ID) dag.Node {
	return g.add(id, ect.ActTranslate, dag.Request, who, parents...)
}

func (g graph) reply(id ect.ID, who ect.Identity, parents ...ect.ID) dag.Node {
	return g.add(id, ect.ActTranslate, dag.Reply, who, parents...)
}

func (g graph) work(id ect.ID, parents ...ect.ID) dag.Node {
	return g.add(id, "send_task", dag.Request, "spiffe://example.com/agent", parents...)
}

func (g graph) find(_ context.Context, refs []ect.Ref) ([][]dag.Node, error) {
	found := make([][]dag.Node, len(refs))
	for i, id := range refs {
		if n, ok := g[id.ID]; ok {
			found[i] = []dag.Node{n}
		}
	}
	return found, nil
}

// passes is the judgement of R1: the hop about to be made counts, too.
func passes(p dag.Path) bool {
	return !p.Incomplete && p.Hops()+1 <= maxHops && !p.Visits(gateway)
}

func path(t *testing.T, g graph, start ...dag.Node) dag.Path {
	t.Helper()
	p, err := dag.TranslationPath(t.Context(), start, g.find, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ids(p dag.Path) []ect.ID {
	var list []ect.ID
	for _, n := range p.Nodes {
		list = append(list, n.ID)
	}
	return list
}

func TestTranslationPath_Lengths(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		build  func(graph) []dag.Node // the nodes that came with the message
		want   []ect.ID
		passes bool
		partly bool
	}{
		"no token":       {build: func(graph) []dag.Node { return nil }, passes: true},
		"an agent's own": {build: func(g graph) []dag.Node { return []dag.Node{g.work("a")} }, passes: true},
		"an agent's own, of an unknown parent": {
			build: func(g graph) []dag.Node { return []dag.Node{g.work("a", "unknown")} }, passes: true,
		},
		"one gateway before": {
			build: func(g graph) []dag.Node { g.work("a"); return []dag.Node{g.request("1", "gw1", "a")} },
			want:  []ect.ID{"1"}, passes: true,
		},
		"two gateways before": {
			build: func(g graph) []dag.Node {
				g.work("a")
				g.request("1", "gw1", "a")
				return []dag.Node{g.request("2", "gw2", "1")}
			},
			want: []ect.ID{"2", "1"}, passes: true,
		},
		"a chain of four gateways": {
			build: func(g graph) []dag.Node {
				g.work("a")
				g.request("1", "gw1", "a")
				g.request("2", "gw2", "1")
				return []dag.Node{g.request("3", "gw3", "2")}
			},
			want: []ect.ID{"3", "2", "1"},
		},
		"a cpat gateway counts": {
			build: func(g graph) []dag.Node {
				g.work("a")
				g.add("1", ect.ActCPATTranslate, dag.Request, "gw1", "a")
				g.request("2", "gw2", "1")
				return []dag.Node{g.add("3", ect.ActCPATTranslate, dag.Request, "gw3", "2")}
			},
			want: []ect.ID{"3", "2", "1"},
		},
		"a loop of two gateways": {
			build: func(g graph) []dag.Node {
				g.work("a")
				g.request("1", gateway, "a")
				return []dag.Node{g.request("2", "gw2", "1")}
			},
			want: []ect.ID{"2", "1"},
		},
		"straight back to us": {
			build: func(g graph) []dag.Node { g.work("a"); return []dag.Node{g.request("1", gateway, "a")} },
			want:  []ect.ID{"1"},
		},
		"A, gateway, B, gateway, C": {
			build: func(g graph) []dag.Node {
				g.work("a")
				g.request("1", gateway, "a")
				return []dag.Node{g.work("b", "1")}
			},
			passes: true,
		},
		"the way back through another gateway": {
			build: func(g graph) []dag.Node {
				g.work("a")
				g.request("1", gateway, "a")
				g.request("2", "gw2", "1")
				g.work("b", "2")
				return []dag.Node{g.reply("3", "gw2", "b")}
			},
			want: []ect.ID{"3"}, passes: true,
		},
		"the way back from an agent without tokens": {
			build: func(g graph) []dag.Node {
				g.work("a")
				g.request("1", gateway, "a")
				g.request("2", "gw2", "1")
				return []dag.Node{g.reply("3", "gw2", "2")}
			},
			want: []ect.ID{"3"}, passes: true,
		},
		"a translation error is no hop": {
			build: func(g graph) []dag.Node {
				return []dag.Node{g.add("e", ect.ActTranslateError, dag.Request, gateway, "x")}
			},
			passes: true,
		},
		"incomplete ancestry": {
			build: func(g graph) []dag.Node { return []dag.Node{g.request("1", "gw1", "gone")} },
			want:  []ect.ID{"1"}, partly: true,
		},
		"one of two parents is gone": {
			build: func(g graph) []dag.Node { g.work("a"); return []dag.Node{g.request("1", "gw1", "gone", "a")} },
			want:  []ect.ID{"1"}, partly: true,
		},
		"fan-in": {
			build: func(g graph) []dag.Node {
				g.work("a")
				return []dag.Node{g.request("1", "gw1", "a"), g.request("2", "gw2", "a"), g.work("b")}
			},
			want: []ect.ID{"1", "2"}, passes: true,
		},
		"one node by two ways counts once": {
			build: func(g graph) []dag.Node {
				g.work("a")
				g.request("1", "gw1", "a")
				return []dag.Node{g.request("2", "gw2", "1"), g.request("3", "gw3", "1"), g["2"]}
			},
			want: []ect.ID{"2", "3", "1"},
		},
		"a source of the other leg hides nothing": {
			build: func(g graph) []dag.Node {
				g.work("a")
				g.request("1", gateway, "a")
				return []dag.Node{g.reply("x", "gw9", "1"), g.request("2", "gw2", "1")}
			},
			want: []ect.ID{"x", "2", "1"},
		},
		"a cycle": {
			build: func(g graph) []dag.Node { g.request("1", "gw1", "2"); return []dag.Node{g.request("2", "gw2", "1")} },
			want:  []ect.ID{"2", "1"}, passes: true, // it ends; that no node may be younger than its child is verification's to say
		},
		"its own parent": {
			build: func(g graph) []dag.Node { return []dag.Node{g.request("1", "gw1", "1")} },
			want:  []ect.ID{"1"}, passes: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := graph{}
			p := path(t, g, tc.build(g)...)
			if diff := cmp.Diff(tc.want, ids(p)); diff != "" {
				t.Errorf("path (-want +got):\n%s", diff)
			}
			if p.Incomplete != tc.partly || passes(p) != tc.passes {
				t.Errorf("got incomplete %v, passes %v", p.Incomplete, passes(p))
			}
		})
	}
}

// TestTranslationPath_ParentsOfItsWorkflow: a parent is a token of its child's workflow.
// A namesake in another one neither ends the path nor makes it whole, and of namesakes
// in the same one each is walked.
func TestTranslationPath_ParentsOfItsWorkflow(t *testing.T) {
	t.Parallel()
	in := func(workflow string, n dag.Node) dag.Node { n.Workflow = workflow; return n }
	g := graph{}
	start := in("w", g.request("2", "gw2", "1"))
	ours := in("w", g.request("1", gateway, "a"))
	source, planted, elsewhere := in("w", g.work("a")), in("w", g.work("1")), in("v", g.work("1"))
	for name, tc := range map[string]struct {
		known  []dag.Node // under the id 1
		want   []ect.ID
		partly bool
	}{
		"its own":                         {known: []dag.Node{ours}, want: []ect.ID{"2", "1"}},
		"its own and a namesake":          {known: []dag.Node{elsewhere, ours}, want: []ect.ID{"2", "1"}},
		"a namesake alone":                {known: []dag.Node{elsewhere}, want: []ect.ID{"2"}, partly: true},
		"two of its workflow":             {known: []dag.Node{planted, ours}, want: []ect.ID{"2", "1"}},
		"a namesake without any workflow": {known: []dag.Node{in("", planted)}, want: []ect.ID{"2"}, partly: true},
	} {
		find := func(_ context.Context, refs []ect.Ref) ([][]dag.Node, error) {
			found := make([][]dag.Node, len(refs))
			for i, id := range refs {
				if id.Workflow != "w" {
					t.Errorf("%s: %s is looked up in workflow %q", name, id.ID, id.Workflow)
				}
				if found[i] = tc.known; id.ID == source.ID {
					found[i] = []dag.Node{source}
				}
			}
			return found, nil
		}
		p, err := dag.TranslationPath(t.Context(), []dag.Node{start}, find, 0)
		if err != nil || p.Incomplete != tc.partly || !slices.Equal(ids(p), tc.want) {
			t.Errorf("%s: got %v, incomplete %v, %v; want %v, incomplete %v", name, ids(p), p.Incomplete, err, tc.want, tc.partly)
		}
	}
}

// Each question of the conversation follows from the last answer. Every message
// passes on both legs, while the count by the letter fails from the second turn on.
func TestTranslationPath_TenTurnConversation(t *testing.T) {
	t.Parallel()
	g := graph{}
	var last []ect.ID
	for turn := range 10 {
		id := func(kind string) ect.ID { return ect.ID(fmt.Sprintf("%s%d", kind, turn)) }
		question := g.work(id("question"), last...)
		if p := path(t, g, question); !passes(p) || p.Hops() != 0 {
			t.Fatalf("turn %d, request: got %+v", turn, p)
		}
		g.request(id("request"), gateway, question.ID)
		answer := g.work(id("answer"), id("request"))
		if p := path(t, g, answer); !passes(p) || p.Hops() != 0 {
			t.Fatalf("turn %d, reply: got %+v", turn, p)
		}
		reply := g.reply(id("reply"), gateway, answer.ID)
		last = []ect.ID{reply.ID}
		whole, err := dag.Ancestry(t.Context(), []dag.Node{reply}, g.find, 0)
		if err != nil || whole.Incomplete || whole.Hops() != 2*(turn+1) {
			t.Fatalf("turn %d: ancestry has %d hops, %v", turn, whole.Hops(), err)
		}
	}
}

// Without tokens of the agents, the gateway's own are all there is: a request
// follows from the last reply, a reply from its request.
func TestPath_RequestsAndRepliesWithoutAgentTokens(t *testing.T) {
	t.Parallel()
	g := graph{}
	request := g.request("1", gateway)
	reply := g.reply("2", gateway, "1")
	for name, tc := range map[string]struct {
		direction dag.Leg
		start     dag.Node
		want      []ect.ID
	}{
		"a request after a reply":   {dag.Request, reply, nil},
		"a reply after a request":   {dag.Reply, request, nil},
		"a request after a request": {dag.Request, request, []ect.ID{"1"}},
		"a reply after a reply":     {dag.Reply, reply, []ect.ID{"2"}},
	} {
		p, err := dag.LegPath(t.Context(), tc.direction, []dag.Node{tc.start}, g.find, 0)
		if err != nil || p.Incomplete || !cmp.Equal(tc.want, ids(p)) {
			t.Errorf("%s: got %v, %v", name, ids(p), err)
		}
	}
}

func TestTranslationPath_LimitIsIncomplete(t *testing.T) {
	t.Parallel()
	g := graph{}
	g.work("a")
	g.request("1", "gw", "a")
	g.request("2", "gw", "1")
	start := g.request("3", "gw", "2")
	for limit, incomplete := range map[int]bool{1: true, 2: true, 3: false, 4: false, 0: false} {
		p, err := dag.TranslationPath(t.Context(), []dag.Node{start}, g.find, limit)
		if err != nil || p.Incomplete != incomplete {
			t.Errorf("limit %d: got incomplete %v, %v", limit, p.Incomplete, err)
		}
	}
}

// Hostile graphs without an end, in which every node has many parents, all new: one walk
// looks up no more ids than are allowed, each once, and a whole level at a time.
func TestTranslationPath_HostileGraphsEnd(t *testing.T) {
	t.Parallel()
	for _, width := range []int{1, 2, 100} {
		walkEnds(t, width)
	}
}

func walkEnds(t *testing.T, width int) {
	t.Helper()
	lookups, rounds := 0, 0
	request := map[ect.ID]bool{}
	endless := func(_ context.Context, refs []ect.Ref) (found [][]dag.Node, _ error) {
		rounds++
		lookups += len(refs)
		for _, ref := range refs {
			id := ref.ID
			if request[id] {
				t.Errorf("%s was looked up twice", id)
			}
			request[id] = true
			n := dag.Node{ID: id, Act: ect.ActTranslate, Leg: dag.Request}
			for i := range width {
				n.Parents = append(n.Parents, ect.ID(fmt.Sprintf("%s.%d", id, i)))
			}
			found = append(found, []dag.Node{n})
		}
		return found, nil
	}
	first, _ := endless(t.Context(), []ect.Ref{{ID: "0"}})
	start := first[0]
	for name, walk := range map[string]func(context.Context, []dag.Node, dag.Lookup, int) (dag.Path, error){
		"path": dag.TranslationPath, "ancestry": dag.Ancestry,
	} {
		for _, limit := range []int{0, 4} {
			lookups, rounds, request = 0, 0, map[ect.ID]bool{}
			p, err := walk(t.Context(), start, endless, limit)
			if err != nil || !p.Incomplete || lookups > dag.MaxLookups || limit > 0 && rounds > limit {
				t.Errorf("%s, limit %d: got incomplete %v after %d look-ups in %d rounds, %v", name, limit, p.Incomplete, lookups, rounds, err)
			}
		}
	}
}

// Two issuers used one id, and who names it as parent does not say whose: the
// path goes over both, whether they are looked up or came with the message.
func TestTranslationPath_ReusedIDDoesNotShorten(t *testing.T) {
	t.Parallel()
	g := graph{}
	g.work("w")
	hop := dag.Node{ID: "1", Issuer: gateway, Act: ect.ActTranslate, Leg: dag.Request, Parents: []ect.ID{"w"}}
	cover := dag.Node{ID: "1", Issuer: "spiffe://evil.example/e", Act: "send_task", Leg: dag.Request}
	find := func(ctx context.Context, refs []ect.Ref) ([][]dag.Node, error) {
		found, err := g.find(ctx, refs)
		for i, id := range refs {
			if id.ID == "1" {
				found[i] = []dag.Node{cover, hop}
			}
		}
		return found, err
	}
	last := dag.Node{ID: "2", Issuer: "spiffe://b.example/gw", Act: ect.ActTranslate, Leg: dag.Request, Parents: []ect.ID{"1"}}
	for name, start := range map[string][]dag.Node{"looked up": {last}, "came along": {cover, hop}} {
		p, err := dag.TranslationPath(t.Context(), start, find, 0)
		if err != nil || p.Incomplete || !p.Visits(gateway) || p.Hops() != len(start)%2+1 {
			t.Errorf("%s: got %+v, %v", name, p, err)
		}
	}
}

func TestTranslationPath_LookupErrorIsReturned(t *testing.T) {
	t.Parallel()
	trouble := errors.New("trouble")
	find := func(context.Context, []ect.Ref) ([][]dag.Node, error) { return nil, trouble }
	start := []dag.Node{{ID: "1", Act: ect.ActTranslate, Leg: dag.Request, Parents: []ect.ID{"2"}}}
	p, err := dag.TranslationPath(t.Context(), start, find, 0)
	if !errors.Is(err, trouble) || !p.Incomplete {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestNodeOf_TokensAndRecords(t *testing.T) {
	t.Parallel()
	now := time.Unix(1772064000, 0)
	clock := func() time.Time { return now }
	party := ecttest.NewParty(t, gateway)
	signer := party.Signer(t, clock)
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: ecttest.KeysOf(party), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	store := ecttest.NewStore()
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	for direction, want := range map[string]dag.Leg{``: dag.Request, `"request"`: dag.Request, `"reply"`: dag.Reply, `"sideways"`: dag.Request, `7`: dag.Request} {
		c := ect.Claims{Audience: []string{"b"}, Act: ect.ActTranslate, Parents: []ect.ID{ect.NewID()}}
		if direction != "" {
			c.Ext = ect.Ext{ect.ExtLeg: []byte(direction)}
		}
		token, err := signer.Sign(c)
		if err != nil {
			t.Fatal(err)
		}
		verified, err := verifier.Verify(t.Context(), token.Compact(), ect.Check{Purpose: ect.Parent})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := recorder.Record(t.Context(), token, ect.Filing{}); err != nil {
			t.Fatal(err)
		}
		found, err := ecttest.Find(t.Context(), store, token.ID())
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		wanted := dag.Node{ID: token.ID(), Issuer: gateway, Act: c.Act, IssuedAt: now.Unix(), Parents: c.Parents, Leg: want}
		for name, got := range map[string]dag.Node{
			"verified": dag.NodeOf(verified), "record": dag.NodeOfRecord(found[0]),
		} {
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("leg %s of a %s (-want +got):\n%s", direction, name, diff)
			}
		}
	}
	if got := dag.NodeOfRecord(ect.Record{}); got.ID != "" {
		t.Errorf("the node of nothing: %+v", got)
	}
}
