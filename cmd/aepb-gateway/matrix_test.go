package main

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
)

// The table of what becomes of every operation on every way. It is made by
// TestMatrix, from what it saw.
const matrixFile = "testdata/matrix.txt"

// matrixEnv, when set, writes the table anew; the diff is then for a person to judge.
const matrixEnv = "AEPB_UPDATE_LOSSES"

const matrixHead = `# What becomes of every operation that callers of one side can say to agents of another: from, to,
# operation, outcome, and what was lost of the request (>), of the reply (<) and of what the gateway asked the agent
# by itself (~), carried (+) or dropped (-). The test fails on a line or a code too many as on one too few, but for those
# in brackets, where chance decides (matrix_chance_test.go says why). "says" lists what a side has words for.
`

// TestMatrix: every operation that a side's callers have words for, to agents of
// every other side, over real connections and the whole road.
func TestMatrix(t *testing.T) {
	t.Parallel()
	tr := everybody(t)
	sides := tr.sides()
	var rows []row
	var agents []side
	says := map[string]map[string]bool{}
	natures := map[string]*nature{}
	for _, s := range sides {
		natures[s.name] = natureOf(s, tr.list[s.binding].form)
		says[s.name] = tr.claims(t, s)
		if tr.hires(t, s) {
			agents = append(agents, s)
		}
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(atOnce)
	known := declaredRows(t)
	began := time.Now()
	for _, to := range agents {
		for _, from := range sides {
			if from == to {
				continue
			}
			group.Go(func() error {
				for _, play := range plays() {
					if !says[from.name][play.name] {
						continue
					}
					r := tr.plays(t, natures[from.name], natures[to.name], play, known)
					mu.Lock()
					rows = append(rows, r)
					mu.Unlock()
				}
				return nil
			})
		}
	}
	must(t, group.Wait())
	t.Logf("%d plays took %s", len(rows), time.Since(began).Round(time.Second))
	explained(t, rows, natures)
	var lines []string
	for _, r := range rows {
		r.tell(t, known)
		lines = append(lines, r.String())
	}
	slices.Sort(lines)
	holdMatrix(t, append(claimed(sides, says), lines...))
	foreseen(t, natures)
}

// attempts bounds how often a play is played where the agent was not heard in time.
const attempts = 5

// background is how long is waited for what the gateway does when its caller has
// been answered.
const background = 5 * time.Second

// plays goes one way with one play. Under load the gateway may have promised its
// caller a task before it heard of the agent's: that is another play, and this one
// is played again.
func (tr *troupe) plays(t *testing.T, from, to *nature, p play, known map[string][]string) row {
	t.Helper()
	for attempt := 1; ; attempt++ {
		began := time.Now()
		c, outcome := tr.stages(t, from.side, to.side, p)
		if d := time.Since(began); d > 2*time.Second {
			t.Logf("%s to %s: %s took %s to come to %q", from.name, to.name, p.name, d.Round(time.Millisecond), outcome)
		}
		r := row{from: from.name, to: to.name, play: p.name, outcome: outcome}
		want, declared := known[r.key()]
		read := func() bool {
			r.lost, r.words = c.lost(t.Context())
			r.weigh(from, to, want)
			return declared && slices.Equal(r.lost, want)
		}
		as := read() || r.short(known) && soonIn(t.Context(), background, read)
		if os.Getenv(matrixEnv) != "" && p.lasts() && !as { // nobody knows yet what there is to wait for
			soonIn(t.Context(), background/10, func() bool { return false })
			as = read() || declared
		}
		if as || attempt == attempts || !c.notes.wasLate() {
			return r
		}
	}
}

// explained demands that every play comes to its end, or that it is said why
// not; and that every reason is one.
func explained(t *testing.T, rows []row, natures map[string]*nature) {
	t.Helper()
	done := map[string]string{}
	for _, p := range plays() {
		done[p.name] = p.done
	}
	used := make([]bool, len(shortfalls))
	for _, r := range rows {
		if r.outcome == done[r.play] {
			continue
		}
		known := false
		for i, s := range shortfalls {
			if s.covers(r, natures[r.from], natures[r.to]) {
				used[i], known = true, true
			}
		}
		if !known {
			t.Errorf("%s to %s: %s comes to %q, and not to %q, for no reason that is known", r.from, r.to, r.play, r.outcome, done[r.play])
		}
	}
	for i, s := range shortfalls {
		if !used[i] {
			t.Errorf("nothing falls short because %s (%s)", s.because, s.play)
		}
	}
}

// atOnce is how many ways are tried at once: most of the time they wait.
const atOnce = 8

// row is one line of the table.
type row struct {
	from, to, play, outcome string
	lost                    []string // what chance decides is in brackets
	words                   []string // of what was lost, each behind its mark
}

// weigh puts what chance decides in brackets; if nothing else of that happened
// than the table has, there is all that the table has.
func (r *row) weigh(from, to *nature, known []string) {
	var sure, may []string
	for _, mark := range r.lost {
		if chance(r.play, mark, from, to) {
			may = append(may, "("+mark+")")
		} else {
			sure = append(sure, mark)
		}
	}
	for _, mark := range known {
		if bare := strings.Trim(mark, "()"); bare != mark && chance(r.play, bare, from, to) {
			may = append(may, mark)
		}
	}
	slices.Sort(may)
	r.lost = append(sure, slices.Compact(may)...)
}

// short: nothing has happened that the table does not have, but not all of that yet.
func (r *row) short(known map[string][]string) bool {
	want, declared := known[r.key()]
	return declared && !slices.ContainsFunc(r.lost, func(mark string) bool { return !slices.Contains(want, mark) })
}

// key is what a row is found by.
func (r *row) key() string {
	return strings.Join([]string{r.from, r.to, r.play, strconv.Quote(r.outcome)}, " ")
}

// tell says of what the table does not have what it was.
func (r *row) tell(t *testing.T, known map[string][]string) {
	t.Helper()
	want, declared := known[r.key()]
	for _, words := range r.words {
		mark, _, _ := strings.Cut(words, " ")
		if declared && slices.Contains(r.lost, mark) && !slices.Contains(want, mark) {
			t.Logf("%s: %s", r.key(), words)
		}
	}
}

// String is the row as the table has it.
func (r *row) String() string { return strings.TrimSpace(r.key() + " " + strings.Join(r.lost, " ")) }

// declaredRows is what the table says is lost, by the keys of rows.
func declaredRows(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, line := range declaredMatrix(t) {
		if key, lost, ok := strings.Cut(line, `" `); ok {
			out[key+`"`] = strings.Fields(lost)
		} else {
			out[line] = nil
		}
	}
	return out
}

// claimed are the lines that say what each side's callers have words for.
func claimed(sides []side, says map[string]map[string]bool) []string {
	var out []string
	for _, s := range sides {
		out = append(out, s.name+" says "+strings.Join(slices.Sorted(maps.Keys(says[s.name])), " "))
	}
	return out
}

// holdMatrix demands that the table is what was seen, or writes it.
func holdMatrix(t *testing.T, lines []string) {
	t.Helper()
	if os.Getenv(matrixEnv) != "" {
		must(t, os.WriteFile(matrixFile, []byte(matrixHead+strings.Join(lines, "\n")+"\n"), 0o600))
	}
	if diff := cmp.Diff(declaredMatrix(t), lines); diff != "" {
		t.Errorf("what was seen is not what %s says (-declared +happened):\n%s", matrixFile, diff)
	}
}

func declaredMatrix(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(matrixFile)
	must(t, err)
	var want []string
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		if line := in.Text(); line != "" && !strings.HasPrefix(line, "#") {
			want = append(want, line)
		}
	}
	return want
}
