package pairs

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// The table of what becomes of every operation on every way. It is made by
// TestMatrix_EveryOperation, from what it saw.
const matrixFile = "testdata/matrix.txt"

const matrixHead = `# What becomes of every operation that callers of one side can say to agents of another: from, to,
# operation, outcome, and what was lost of the request (>), of the reply (<) and of what the gateway asked the agent
# by itself (~), carried (+) or dropped (-). The test fails on a line or a code too many as on one too few, but for those
# in brackets, where chance decides (matrix_chance_test.go says why). "says" lists what a side has words for.
`

// TestMatrix_EveryOperation: every operation that a side's callers have words for, to agents of
// every other side, over real connections and the whole road.
func TestMatrix_EveryOperation(t *testing.T) {
	t.Parallel()
	tr := gatewaytest.Everybody(t)
	sides := tr.Sides()
	var rows []gatewaytest.Row
	var agents []gatewaytest.Side
	says := map[string]map[string]bool{}
	natures := map[string]*gatewaytest.Traits{}
	for _, s := range sides {
		natures[s.Name] = gatewaytest.TraitsOf(s, tr.List[s.Binding].Codec)
		says[s.Name] = tr.Claims(t, s)
		if tr.Hires(t, s) {
			agents = append(agents, s)
		}
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(gatewaytest.AtOnce)
	known := declaredRows(t)
	began := time.Now()
	for _, to := range agents {
		for _, from := range sides {
			if from == to {
				continue
			}
			group.Go(func() error {
				for _, play := range gatewaytest.Plays() {
					if !says[from.Name][play.Name] {
						continue
					}
					r := tr.Plays(t, natures[from.Name], natures[to.Name], play, known)
					mu.Lock()
					rows = append(rows, r)
					mu.Unlock()
				}
				return nil
			})
		}
	}
	gatewaytest.Must(t, group.Wait())
	t.Logf("%d plays took %s", len(rows), time.Since(began).Round(time.Second))
	explained(t, rows, natures)
	var lines []string
	for _, r := range rows {
		r.Tell(t, known)
		lines = append(lines, r.String())
	}
	slices.Sort(lines)
	holdMatrix(t, append(claimed(sides, says), lines...))
	foreseen(t, natures)
}

// explained demands that every play comes to its end, or that it is said why
// not; and that every reason is one.
func explained(t *testing.T, rows []gatewaytest.Row, natures map[string]*gatewaytest.Traits) {
	t.Helper()
	done := map[string]string{}
	for _, p := range gatewaytest.Plays() {
		done[p.Name] = p.Done
	}
	used := make([]bool, len(shortfalls))
	for _, r := range rows {
		if r.Outcome == done[r.Play] {
			continue
		}
		known := false
		for i, s := range shortfalls {
			if s.covers(r, natures[r.From], natures[r.To]) {
				used[i], known = true, true
			}
		}
		if !known {
			t.Errorf("%s to %s: %s comes to %q, and not to %q, for no reason that is known", r.From, r.To, r.Play, r.Outcome, done[r.Play])
		}
	}
	for i, s := range shortfalls {
		if !used[i] {
			t.Errorf("nothing falls short because %s (%s)", s.because, s.play)
		}
	}
}

// declaredRows is what the table says is lost, by the keys of rows.
func declaredRows(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, line := range declaredMatrix(t) {
		if key, missing, ok := strings.Cut(line, `" `); ok {
			out[key+`"`] = strings.Fields(missing)
		} else {
			out[line] = nil
		}
	}
	return out
}

// claimed are the lines that say what each side's callers have words for.
func claimed(sides []gatewaytest.Side, says map[string]map[string]bool) []string {
	var out []string
	for _, s := range sides {
		out = append(out, s.Name+" says "+strings.Join(slices.Sorted(maps.Keys(says[s.Name])), " "))
	}
	return out
}

// holdMatrix demands that the table is what was seen, or writes it.
func holdMatrix(t *testing.T, lines []string) {
	t.Helper()
	if os.Getenv(gatewaytest.MatrixEnv) != "" {
		gatewaytest.Must(t, os.WriteFile(matrixFile, []byte(matrixHead+strings.Join(lines, "\n")+"\n"), 0o600))
	}
	if diff := cmp.Diff(declaredMatrix(t), lines); diff != "" {
		t.Errorf("what was seen is not what %s says (-declared +happened):\n%s", matrixFile, diff)
	}
}

func declaredMatrix(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(matrixFile)
	gatewaytest.Must(t, err)
	var want []string
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		if line := in.Text(); line != "" && !strings.HasPrefix(line, "#") {
			want = append(want, line)
		}
	}
	return want
}
