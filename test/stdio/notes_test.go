package stdio

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// notesServer is the argument that makes this program a server of notes.
const notesServer = "notes-server"

// serveNotes serves a tool that reads and one that destroys, as their hints say.
func serveNotes(ctx context.Context) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1.0.0"}, nil)
	destructive := true
	type noArguments struct{}
	type note struct {
		ID string `json:"id"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "delete_all", Annotations: &mcp.ToolAnnotations{DestructiveHint: &destructive}},
		func(context.Context, *mcp.CallToolRequest, noArguments) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "read_note", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(context.Context, *mcp.CallToolRequest, note) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	return server.Run(ctx, &mcp.StdioTransport{})
}

// TestDev_PrintsCallsOfHarmlessTools: the programs that dev prints call the tool that only reads, although
// the one that destroys takes no arguments.
func TestDev_PrintsCallsOfHarmlessTools(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, err := devgateway.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	g, err := devgateway.Start(t.Context(), devgateway.Deps{Binary: binary, Dir: filepath.Join(dir, ".aepb"), Args: []string{"--stdio", os.Args[0] + " " + notesServer}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	printed := ""
	for wait := time.NewTimer(time.Minute); !strings.Contains(printed, "Go: go get"); printed = g.Output() {
		select {
		case <-wait.C:
			t.Fatalf("printed %s", printed)
		case <-time.After(20 * time.Millisecond):
		}
	}
	_, programs, _ := strings.Cut(printed, "call it as")
	if strings.Count(programs, "read_note") < 4 || strings.Contains(programs, "delete_all") {
		t.Errorf("printed %s", printed)
	}
	t.Run("page", func(t *testing.T) { showsPage(t, g) })
}

// showsPage: a browser sees the agents at the root of the gateway, and other clients hear what serve says.
func showsPage(t *testing.T, g *devgateway.Process) {
	client := g.Client()
	defer client.CloseIdleConnections()
	for accept, want := range map[string]string{"text/html,*/*;q=0.8": g.Public + "/agents/", "application/json": `"code":"not_found"`} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.Public+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
		if err = errors.Join(err, answer.Body.Close()); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v", accept, text, err)
		}
	}
}
