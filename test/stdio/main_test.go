package stdio

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// TestMain is also the server that misbehaves, and one of notes.
func TestMain(m *testing.M) {
	servers := map[string]func(context.Context) error{wildServer: serveWild, notesServer: serveNotes}
	if serve := servers[os.Args[len(os.Args)-1]]; serve != nil {
		if err := serve(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// startGateway runs a gateway; the test's end stops it and looks that no process of a server
// is left.
func startGateway(t *testing.T, config string) *devgateway.Process {
	t.Helper()
	g := launch(t, config)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Stop(ctx); err != nil {
			t.Error(err)
		}
		if left := marked(filepath.Dir(g.Dir)); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	})
	return g
}

// launch builds the gateway and runs it, with a configuration.
func launch(t *testing.T, config string) *devgateway.Process {
	t.Helper()
	dir := t.TempDir()
	binary, err := devgateway.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := devgateway.Start(t.Context(), devgateway.Deps{Binary: binary, Dir: filepath.Join(dir, ".aepb"), Args: []string{"--config", file}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// mark is a variable in the environment of all programs of one test.
const mark = "AEPB_TEST_STDIO"

// marked lists the processes whose environment has the mark of a test.
func marked(value string) []int {
	var found []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if slices.Contains(strings.Split(string(text), "\x00"), mark+"="+value) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			found = append(found, pid)
		}
	}
	return found
}

// add lists a server; all that it starts has the mark of the gateway's folder.
func add(t *testing.T, g *devgateway.Process, name string, program stdio.Program) {
	t.Helper()
	program.Env = map[string]string{mark: filepath.Dir(g.Dir)}
	if err := g.AddAgent(t.Context(), name, "mcp-v1", program.URL()); err != nil {
		t.Fatal(err)
	}
}

// call calls a tool as an A2A client does.
func call(ctx context.Context, g *devgateway.Process, agent, tool, input string) (peers.A2AReply, error) {
	client := g.Client()
	defer client.CloseIdleConnections()
	part := a2a.NewDataPart(map[string]any{"skill": tool, "input": json.RawMessage(input)})
	part.MediaType = "application/json"
	return peers.A2ACall(ctx, client, g.Public+"/agents/"+agent+"/", a2a.NewMessage(a2a.MessageRoleUser, part))
}

// absolute has the path of a script of this folder.
func absolute(t *testing.T, command []string) []string {
	t.Helper()
	out := slices.Clone(command)
	for i, word := range out {
		if at, err := filepath.Abs(word); err == nil && strings.Contains(word, "/") && !filepath.IsAbs(word) {
			out[i] = at
		}
	}
	return out
}
