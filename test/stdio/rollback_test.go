package stdio

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// memoryProgram is the memory server with a file of its own.
func memoryProgram(t *testing.T, graph string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "memory.jsonl")
	if err := os.WriteFile(file, []byte(graph), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{"MEMORY_FILE_PATH=" + file}, absolute(t, script("server-memory"))...)
}

// filesProgram is the filesystem server of a folder.
func filesProgram(t *testing.T, dir string) []string {
	t.Helper()
	return append(absolute(t, script("server-filesystem")), dir)
}

// TestRollback_MemoryServer: entities and relations are created, a later step fails, and the graph is as it was before. An entity that
// was there before stays, although a call named it.
func TestRollback_MemoryServer(t *testing.T) {
	t.Parallel()
	b := newRuleGateway(t, map[string][]string{memoryCommand: memoryProgram(t, `{"type":"entity","name":"Ada","entityType":"person","observations":["counts"]}`)})
	before := b.reads(t, "memory", "read_graph", `{}`)
	f := b.begin(t)
	first := f.does(t, "memory", "create_entities", `{"entities": [{"name": "Ada", "entityType": "person", "observations": []}, {"name": "Grace", "entityType": "person", "observations": ["writes"]}]}`)
	f.does(t, "memory", "create_relations", `{"relations": [{"from": "Ada", "to": "Grace", "relationType": "knows"}]}`)
	if graph := b.reads(t, "memory", "read_graph", `{}`); !strings.Contains(graph, "Grace") || !strings.Contains(graph, "knows") {
		t.Fatalf("the calls changed nothing: %s", graph)
	}
	f.fails(t, "memory", "add_observations", `{"observations": [{"entityName": "Eve", "contents": ["listens"]}]}`)
	if status := f.rollsBack(t, first); status != "completed" {
		t.Errorf("the rollback is %s", status)
	}
	if after := b.reads(t, "memory", "read_graph", `{}`); after != before {
		t.Errorf("the graph is\n%s\nexpected\n%s", after, before)
	}
	expectUndone(t, f, 2)
}

// TestRollback_FilesystemServer: a file is overwritten, edited and moved, a later step fails, and the folder is as it was before.
func TestRollback_FilesystemServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"plan.txt": "Grüße, 世界\r\n\tbefore \"it\"\\\n", "other.txt": "stays"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return strconv.Quote(filepath.Join(dir, name)) }
	b := newRuleGateway(t, map[string][]string{filesCommand: filesProgram(t, dir)})
	before := folder(t, dir)
	f := b.begin(t)
	first := f.does(t, "files", "write_file", `{"path": `+in("plan.txt")+`, "content": "one\ntwo\n"}`)
	f.does(t, "files", "edit_file", `{"path": `+in("plan.txt")+`, "edits": [{"oldText": "two", "newText": "three"}]}`)
	f.does(t, "files", "move_file", `{"source": `+in("plan.txt")+`, "destination": `+in("moved.txt")+`}`)
	if got := folder(t, dir); got["moved.txt"] != "one\nthree\n" || len(got) != 2 {
		t.Fatalf("the folder has %q", got)
	}
	f.fails(t, "files", "move_file", `{"source": `+in("moved.txt")+`, "destination": `+in("other.txt")+`}`)
	if status := f.rollsBack(t, first); status != "completed" {
		t.Errorf("the rollback is %s", status)
	}
	if after := folder(t, dir); !maps.Equal(after, before) {
		t.Errorf("the folder has %q, expected %q", after, before)
	}
	expectUndone(t, f, 3)
}

// TestRollback_CannotUndo: the filesystem server has no tool that deletes, so a new file cannot be undone. The rollback is escalated,
// nothing is called, and the workflow takes no more calls.
func TestRollback_CannotUndo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newRuleGateway(t, map[string][]string{filesCommand: filesProgram(t, dir)})
	f := b.begin(t)
	input := `{"path": ` + strconv.Quote(filepath.Join(dir, "new.txt")) + `, "content": "new"}`
	expectEscalated(t, f, f.does(t, "files", "write_file", input), "files", "write_file", input)
	if got := folder(t, dir); !maps.Equal(got, map[string]string{"new.txt": "new"}) {
		t.Errorf("the folder has %q", got)
	}
}

// expectEscalated rolls back to a call that cannot be undone, and expects that the workflow takes the same call no more.
func expectEscalated(t *testing.T, f *undoFlow, to ect.ID, agent, tool, input string) {
	t.Helper()
	if status := f.rollsBack(t, to); status != "escalated" {
		t.Errorf("the rollback is %s", status)
	}
	if acts := f.verified(t); acts[ect.ActCheckpoint] != 1 || acts[ect.ActRollbackResult] != 1 || acts[ect.ActEscalate] == 0 {
		t.Errorf("the workflow has the tokens %v", acts)
	}
	message := `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "` + tool + `", "arguments": ` + input + `}}`
	code, body, _ := f.post(t, "/aepb/translate?from=mcp-v1&to=mcp-v1&dest="+agent, f.signs(t, devgateway.Claims{Parents: []string{string(f.last)}, OutputHash: devgateway.HashOf(message)}), message)
	if code != http.StatusConflict || !strings.Contains(string(body), "paused") {
		t.Errorf("a call after that: %d %s", code, body)
	}
}

// expectUndone verifies all tokens of a workflow: so many calls were undone, each with a request and a result beside those of the caller's rollback.
func expectUndone(t *testing.T, f *undoFlow, calls int) {
	t.Helper()
	acts := f.verified(t)
	if acts[ect.ActRollbackRequest] != calls+1 || acts[ect.ActRollbackResult] != calls+1 || acts[ect.ActCheckpoint] != calls+1 {
		t.Errorf("the workflow has the tokens %v, expected those of %d undone calls and of one that failed", acts, calls)
	}
}

// folder is what a folder has: the text of each file by its name.
func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		texts[e.Name()] = string(text)
	}
	return texts
}
