package stdio

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// served is a server that others wrote, one of its tools, and what that answers.
type served struct {
	command     []string
	tool, input string
	tools       int // at least so many
	want        string
}

// script is a server of a package of npm.
func script(name string, arguments ...string) []string {
	return append([]string{"node", filepath.Join("js", "node_modules", "@modelcontextprotocol", name, "dist", "index.js")}, arguments...)
}

// TestServers_AsA2AAgents: tools are listed as skills, and one is called.
func TestServers_AsA2AAgents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "greeting.txt"), []byte("Grüße, 世界"), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "")
	for name, one := range map[string]served{
		"everything":          {script("server-everything", "stdio"), "get-sum", `{"a": 2, "b": 40}`, 8, "42"},
		"filesystem":          {script("server-filesystem", dir), "read_text_file", `{"path": "` + filepath.Join(dir, "greeting.txt") + `"}`, 10, "Grüße, 世界"},
		"memory":              {script("server-memory"), "create_entities", `{"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]}`, 5, "Ada"},
		"sequential-thinking": {script("server-sequential-thinking"), "sequentialthinking", `{"thought": "one", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}`, 1, "thoughtHistoryLength"},
		"wild":                {[]string{os.Args[0], wildServer}, "echo", `{"text": "hello"}`, 5, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := stdio.Program{Command: one.command, Dir: here}
			if name == "memory" {
				program.Command = append([]string{"env", "MEMORY_FILE_PATH=" + filepath.Join(dir, "memory.jsonl")}, one.command...)
			}
			try(t, g, name, program, one)
		})
	}
}

// try lists a server, and calls its tool as an A2A client.
func try(t *testing.T, g *devgateway.Process, name string, program stdio.Program, one served) {
	t.Helper()
	add(t, g, name, program)
	reply, err := call(t.Context(), g, name, one.tool, one.input)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(reply.Task)
	if err != nil {
		t.Fatal(err)
	}
	if reply.State() != a2a.TaskStateCompleted || !strings.Contains(string(answer), one.want) {
		t.Errorf("%s: %s", reply.State(), answer)
	}
	if n := len(reply.Card.Skills); n < one.tools || !slices.ContainsFunc(reply.Card.Skills, func(s a2a.AgentSkill) bool { return s.ID == one.tool }) {
		t.Errorf("%d skills", n)
	}
}
