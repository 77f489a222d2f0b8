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

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// The table of what becomes of every operation on every way. It is made by
// TestMatrix, from what it saw.
const matrixFile = "testdata/matrix.txt"

// matrixEnv, when set, writes the table anew; the diff is then for a person to judge.
const matrixEnv = "AEPB_UPDATE_LOSSES"

const matrixHead = `# What becomes of every operation that callers of one side can say to agents of another: from, to,
# operation, outcome, and what was lost of the request (>) and of the reply (<), carried (+) or dropped (-).
# The test fails on a line or a code too many as on one too few. Of work that lasts, what is lost of its replies, and of questions about it, is left out. "says" lists what a side has words for.
`

// TestMatrix: every operation that a side's callers have words for, to agents of
// every other side, over real connections and the whole road.
func TestMatrix(t *testing.T) {
	t.Parallel()
	p := plan{also: []speaker{speakToy}}
	net := newSLIMNet(t, &p)
	p.config.SLIM.Nodes[0].Caller = "spiffe://" + devTrustDomain + "/troupe"
	b := newBed(t, p)
	b.slim = net
	tr := newTroupe(t, b, speakToy)
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
					r := tr.plays(t, from, to, play)
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
	may := map[string][]string{}
	for _, line := range declaredMatrix(t) {
		key, lost, _ := strings.Cut(line, `" `)
		may[key] = strings.Fields(lost)
	}
	var lines []string
	for _, r := range rows {
		r.tell(t, may)
		lines = append(lines, r.within(may).String())
	}
	slices.Sort(lines)
	holdMatrix(t, append(claimed(sides, says), lines...))
}

// plays goes one way with one play.
func (tr *troupe) plays(t *testing.T, from, to side, p play) row {
	t.Helper()
	began := time.Now()
	outcome, lost, words := tr.stages(t, from, to, p)
	if d := time.Since(began); d > 2*time.Second {
		t.Logf("%s to %s: %s took %s to come to %q", from.name, to.name, p.name, d.Round(time.Millisecond), outcome)
	}
	if p.lasts() { // whether an agent is asked how its work stands, what it says by then, and so what the words of either lose, is chance
		lost = slices.DeleteFunc(lost, func(mark string) bool {
			return strings.HasPrefix(mark, "<") || mark == ">"+string(canonical.LossExtension)+"-"
		})
	}
	return row{from.name, to.name, p.name, outcome, lost, words, p.lasts()}
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
	lost                    []string
	words                   []string // of what was lost, each behind its mark
	lasts                   bool
}

// within is the row as it is declared, where it is of work that lasts and has lost
// nothing else: how often an agent is asked meanwhile how it stands, and so what is
// lost of that, is chance. The table has all that can be.
func (r row) within(may map[string][]string) row {
	bare := row{from: r.from, to: r.to, play: r.play, outcome: r.outcome}
	known := may[strings.TrimSuffix(bare.String(), `"`)]
	undeclared := slices.DeleteFunc(slices.Clone(r.lost), func(mark string) bool { return slices.Contains(known, mark) })
	if r.lasts && (len(undeclared) == 0 || os.Getenv(matrixEnv) != "") {
		r.lost = slices.Compact(slices.Sorted(slices.Values(slices.Concat(known, r.lost))))
	}
	return r
}

// tell says of what the table does not have what it was.
func (r row) tell(t *testing.T, may map[string][]string) {
	t.Helper()
	key := row{from: r.from, to: r.to, play: r.play, outcome: r.outcome}.String()
	known, declared := may[strings.TrimSuffix(key, `"`)]
	for _, words := range r.words {
		if mark, _, _ := strings.Cut(words, " "); declared && slices.Contains(r.lost, mark) && !slices.Contains(known, mark) {
			t.Logf("%s: %s", key, words)
		}
	}
}

// String is the row as the table has it.
func (r row) String() string {
	return strings.TrimSpace(strings.Join([]string{r.from, r.to, r.play, strconv.Quote(r.outcome), strings.Join(r.lost, " ")}, " "))
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
