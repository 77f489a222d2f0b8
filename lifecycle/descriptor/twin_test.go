package descriptor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/lifecycle/descriptor"
)

// graphs are how many random graphs the twin goes through: AEPB_STEPS, as make chaos sets it, or enough for each test run.
func graphs(t *testing.T) int {
	t.Helper()
	text := os.Getenv("AEPB_STEPS")
	if text == "" {
		return 50_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("AEPB_STEPS: %v, want a number of graphs", err)
	}
	return n
}

// twin is a graph of nodes 0 to n-1, as a list of edges.
type twin struct {
	n     int
	edges [][2]int
}

func randomTwin(r *rand.Rand) twin {
	w := twin{n: 1 + r.IntN(7)}
	for range r.IntN(2 * w.n) {
		edge := [2]int{r.IntN(w.n), r.IntN(w.n)}
		if r.IntN(4) > 0 && edge[0] > edge[1] { // rarely backwards: most graphs have no cycle
			edge[0], edge[1] = edge[1], edge[0]
		}
		if edge[0] != edge[1] && !slices.Contains(w.edges, edge) {
			w.edges = append(w.edges, edge)
		}
	}
	return w
}

func (w twin) text() []byte {
	var nodes, edges []string
	for i := range w.n {
		nodes = append(nodes, fmt.Sprintf(`{"id":"n%d","label":"x"}`, i))
	}
	for _, e := range w.edges {
		edges = append(edges, fmt.Sprintf(`{"from":"n%d","to":"n%d"}`, e[0], e[1]))
	}
	return fmt.Appendf(nil, `{"wf_id":"w","nodes":[%s],"edges":[%s]}`, strings.Join(nodes, ","), strings.Join(edges, ","))
}

// before reports whether a path leads from one node to another.
func (w twin) before(from, to, steps int) bool {
	return steps > 0 && slices.ContainsFunc(w.edges, func(e [2]int) bool { return e[0] == from && (e[1] == to || w.before(e[1], to, steps-1)) })
}

func (w twin) cyclic() bool {
	for i := range w.n {
		if w.before(i, i, w.n) {
			return true
		}
	}
	return false
}

// waves takes away again and again all nodes to which no edge leads from one that is left.
func (w twin) waves() (waves []string) {
	left := make([]int, w.n)
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		var wave []string
		rest := slices.DeleteFunc(slices.Clone(left), func(i int) bool {
			free := !slices.ContainsFunc(w.edges, func(e [2]int) bool { return e[1] == i && slices.Contains(left, e[0]) })
			if free {
				wave = append(wave, fmt.Sprint("n", i))
			}
			return free
		})
		waves, left = append(waves, strings.Join(wave, " ")), rest
	}
	return waves
}

// TestDescriptor_Twin: order, waves and cycles of random graphs are those of their definitions.
func TestDescriptor_Twin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 9))
	cycles := 0
	for range graphs(t) {
		w := randomTwin(r)
		d, err := descriptor.Parse(w.text())
		if w.cyclic() {
			cycles++
			w.checkCycle(t, err)
			continue
		}
		if err != nil {
			t.Fatalf("%v: %v", w, err)
		}
		var waves, order []string
		for _, wave := range d.Waves() {
			waves = append(waves, ids(wave))
		}
		order = append(order, ids(d.Order()))
		want := w.waves()
		if !slices.Equal(waves, want) || strings.Join(order, "") != strings.Join(want, " ") {
			t.Fatalf("%v: waves %q, order %q, want %q", w, waves, order, want)
		}
		for _, n := range d.Order() {
			for i := range w.n {
				led := slices.ContainsFunc(w.edges, func(e [2]int) bool { return e[0] == i && fmt.Sprint("n", e[1]) == n.ID })
				if led != slices.Contains(n.After, fmt.Sprint("n", i)) {
					t.Fatalf("%v: %s comes after %v", w, n.ID, n.After)
				}
			}
		}
	}
	if cycles < graphs(t)/100 {
		t.Errorf("only %d graphs have a cycle", cycles)
	}
}

// checkCycle: the error names a cycle that is there.
func (w twin) checkCycle(t *testing.T, err error) {
	t.Helper()
	invalid, ok := errors.AsType[*descriptor.InvalidError](err)
	if !ok {
		t.Fatalf("%v has a cycle: %v", w, err)
	}
	_, named, _ := strings.Cut(invalid.Reason, "expected none: ")
	path := strings.Split(named, " -> ")
	for i := range path[1:] {
		if !slices.ContainsFunc(w.edges, func(e [2]int) bool { return fmt.Sprint("n", e[0]) == path[i] && fmt.Sprint("n", e[1]) == path[i+1] }) {
			t.Fatalf("%v: %v names an edge that is not there", w, err)
		}
	}
	if len(path) < 3 || path[0] != path[len(path)-1] {
		t.Fatalf("%v: %v names no cycle", w, err)
	}
}

func ids(nodes []descriptor.Node) string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = n.ID
	}
	return strings.Join(list, " ")
}

// FuzzDescriptor_Parse: a plan that keeps its bounds and its order, or a mistake that can be shown.
func FuzzDescriptor_Parse(f *testing.F) {
	if draft, err := os.ReadFile("testdata/draft.json"); err == nil {
		f.Add(draft)
	}
	f.Add([]byte(`{"wf_id":"w","nodes":[{"id":"a","label":"x","act":"y","agent":"z","hitl_required":true,"required_role":"operator:a","severity":"info"}],"edges":[]}`))
	f.Add([]byte(`{"wf_id":"w","nodes":[{"id":"a","label":"x"},{"id":"b","label":"x"}],"edges":[{"from":"a","to":"b"},{"from":"b","to":"a"}]}`))
	f.Add([]byte(`{"wf_id":"w","nodes":[{"id":"a","id":"b"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := descriptor.Parse(raw)
		if err != nil {
			if _, ok := errors.AsType[*descriptor.InvalidError](err); !ok || d.Order() != nil {
				t.Fatalf("%T: %v beside %v", err, err, d)
			}
			if shown := err.Error(); !utf8.ValidString(shown) || strings.ContainsFunc(shown, func(c rune) bool { return !unicode.IsGraphic(c) }) || len(shown) > 4096 {
				t.Fatalf("an error that cannot be shown: %q", shown)
			}
			return
		}
		if !json.Valid(raw) || len(raw) > descriptor.MaxText || d.Name() == "" || len(d.Order()) == 0 || len(d.Planned(nil)) != len(d.Order()) {
			t.Fatalf("a plan of %q", raw)
		}
		done := map[string]bool{}
		for _, wave := range d.Waves() {
			for _, n := range wave {
				if slices.ContainsFunc(n.After, func(id string) bool { return !done[id] }) || (n.Role != "") != n.Gated {
					t.Fatalf("node %+v of %q", n, raw)
				}
			}
			for _, n := range wave {
				done[n.ID] = true
			}
		}
	})
}
