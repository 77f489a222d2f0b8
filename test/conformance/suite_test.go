package conformance

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

const suiteTimeout = 5 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSuite_RequiredScenarios runs every scenario that a revision requires.
func TestSuite_RequiredScenarios(t *testing.T) {
	t.Parallel()
	tools := prepare(t)
	for set, least := range map[string]int{"2025-11-25": 30, "2026-07-28": 37} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			tools.judge(t, set, "mcp "+set, least, tools.stage(t, set))
		})
	}
}

// judge runs one requirement set against a URL, and holds what passes against
// the exceptions of that name.
func (tools tools) judge(t *testing.T, set, listed string, least int, url string) {
	t.Helper()
	out := tools.suite(t, set, url)
	results := scored(out)
	if len(results) < least {
		t.Fatalf("only %d scenarios were scored:\n%s", len(results), out)
	}
	excepted := baseline(t, listed)
	passed := 0
	for name, ok := range results {
		if ok {
			passed++
		}
		switch reason, listed := excepted[name]; {
		case !ok && !listed:
			t.Errorf("%s does not pass", name)
		case ok && listed:
			t.Errorf("%s passes, although baseline.txt excepts it: %s", name, reason)
		}
	}
	t.Logf("%d of %d scored scenarios pass", passed, len(results))
	for name := range excepted {
		if _, ran := results[name]; !ran {
			t.Errorf("%s is in baseline.txt and is not scored", name)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

var (
	summaryLine = regexp.MustCompile(`^([✓✗]) ([a-z0-9-]+): \d+ passed, \d+ failed$`)
	unscored    = regexp.MustCompile(`^  [✓✗] ([a-z0-9-]+) \(`)
)

// scored reads which of the scored scenarios passed out of what the suite prints.
func scored(out []byte) map[string]bool {
	results := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		if m := summaryLine.FindStringSubmatch(lines.Text()); m != nil {
			results[m[2]] = m[1] == "✓"
		}
		if m := unscored.FindStringSubmatch(lines.Text()); m != nil {
			delete(results, m[1])
		}
	}
	return results
}

// baseline reads the exceptions of one set.
func baseline(t *testing.T, set string) map[string]string {
	t.Helper()
	data, err := os.ReadFile("baseline.txt")
	if err != nil {
		t.Fatal(err)
	}
	return exceptions(t, data, set)
}

func exceptions(t *testing.T, data []byte, set string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.SplitN(line, " ", 5)
		if len(fields) < 5 {
			t.Errorf("an exception without a loss and a reason: %s", line)
			continue
		}
		if _, known := canonical.Lookup(canonical.LossCode(fields[3])); !known {
			t.Errorf("%s is no loss: %s", fields[3], line)
		}
		if fields[0]+" "+fields[1] == set {
			out[fields[2]] = fields[3] + " " + fields[4]
		}
	}
	return out
}

// TestScored_ReadsTheSummary: what is read out of the suite's words.
func TestScored_ReadsTheSummary(t *testing.T) {
	t.Parallel()
	got := scored([]byte("=== SUMMARY ===\n✓ ping: 2 passed, 0 failed\n✗ tools-list: 1 passed, 1 failed\n✗ pending-one: 0 passed, 1 failed\n\nTotal: 3 passed, 2 failed\n\nNot scored for x: 1 scenario(s) run, 1 failing.\n  ✗ pending-one (pending)\n"))
	if len(got) != 2 || !got["ping"] || got["tools-list"] {
		t.Errorf("got %v", got)
	}
	excepted := exceptions(t, []byte("# x\n\nmcp a ping L01 why not\nmcp b tools-list L01 because\na2a a tools-list L01 because\n"), "mcp a")
	if len(excepted) != 1 || excepted["ping"] != "L01 why not" {
		t.Errorf("got %v", excepted)
	}
}

// suite runs what a set requires and gives what it prints. That scenarios fail
// is for the caller to judge; that it does not run at all is a failure.
func (tools tools) suite(t *testing.T, set, url string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	script := filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	cmd := exec.CommandContext(ctx, tools.node, script, "server", "--url", url, "-o", t.TempDir(), "--requirements", set)
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	if !bytes.Contains(out, []byte("=== SUMMARY ===")) {
		t.Fatalf("the suite did not run: %v\n%s", err, out)
	}
	return out
}

// environment is ours, without what changes how node runs.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NODE_OPTIONS=") })
}
