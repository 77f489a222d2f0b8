package stdio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// wildServer is the argument that makes this program a server that misbehaves.
const wildServer = "wild-server"

type text struct {
	Text string `json:"text,omitempty"`
}

// serveWild serves over standard input and output.
func serveWild(ctx context.Context) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "wild", Version: "1.0.0"}, nil)
	tool := func(name string, do func(context.Context, string) (string, error)) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
			out, err := do(ctx, in.Text)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: out}}}, nil, err
		})
	}
	tool("echo", func(_ context.Context, in string) (string, error) { return in, nil })
	tool("flood", func(context.Context, string) (string, error) {
		for i := range 200_000 {
			fmt.Fprintln(os.Stderr, "line", i, strings.Repeat("x", 100))
		}
		return "flooded", nil
	})
	tool("fork", func(context.Context, string) (string, error) {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return "forked", cmd.Start()
	})
	tool("hang", func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	tool("die", func(context.Context, string) (string, error) {
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(7)
		return "", nil
	})
	tool("grow", func(context.Context, string) (string, error) {
		tool("grown", func(_ context.Context, in string) (string, error) { return in, nil })
		return "grown", nil
	})
	tool("ask", func(context.Context, string) (string, error) { return "", errors.New("asks nothing") })
	return server.Run(ctx, &mcp.StdioTransport{})
}

// TestWildServer_HarmsItsOwnCallAlone: while one process floods its log, forks, hangs and
// dies, calls at the same and at other servers are answered.
func TestWildServer_HarmsItsOwnCallAlone(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "timeout: 5s\n")
	add(t, g, "wild", stdio.Program{Command: []string{os.Args[0], wildServer}})
	add(t, g, "mild", stdio.Program{Command: []string{os.Args[0], wildServer}})
	var harmed sync.WaitGroup
	for _, tool := range []string{"flood", "fork", "hang"} {
		harmed.Go(func() {
			reply, err := call(t.Context(), g, "wild", tool, `{}`)
			if fails := tool == "hang"; fails != (err != nil || reply.State() == a2a.TaskStateFailed) {
				t.Errorf("%s: %s %s %v", tool, reply.State(), reply.Text(), err)
			}
		})
	}
	for range 20 {
		reply, err := call(t.Context(), g, "mild", "echo", `{"text": "fine"}`)
		if err != nil || reply.Text() != "fine" {
			t.Errorf("%s %v", reply.Text(), err)
		}
	}
	harmed.Wait()
	reply, err := call(t.Context(), g, "wild", "die", `{}`)
	if err == nil && reply.State() != a2a.TaskStateFailed {
		t.Errorf("die: %s %s", reply.State(), reply.Text())
	}
	// A process that has died is started again.
	if reply, err = call(t.Context(), g, "wild", "echo", `{"text": "back"}`); err != nil || reply.Text() != "back" {
		t.Errorf("after its end: %s %v", reply.Text(), err)
	}
}

// TestPrograms_CallerHasItsShare: sessions beyond the share of a caller are refused while
// the others are in use, and other callers do not notice.
func TestPrograms_CallerHasItsShare(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "limits: {programs: 8, share: 4}\ntimeout: 8s\n")
	add(t, g, "wild", stdio.Program{Command: []string{os.Args[0], wildServer}})
	// Each MCP session of a caller has a process of its own.
	var busy sync.WaitGroup
	refused := make(chan error, 8)
	client := g.Client()
	defer client.CloseIdleConnections()
	for range 5 {
		busy.Go(func() {
			_, err := peers.MCPCall(t.Context(), client, g.Public+"/agents/wild/mcp", true, "hang", []byte(`{}`))
			refused <- err
		})
	}
	busy.Wait()
	close(refused)
	over := 0
	var errs []error
	for err := range refused {
		errs = append(errs, err)
		if err != nil && strings.Contains(err.Error(), "Too Many Requests") {
			over++
		}
	}
	if over == 0 {
		t.Errorf("no session was refused: %v", errs)
	}
	if reply, err := call(t.Context(), g, "wild", "echo", `{"text": "fine"}`); err != nil || reply.Text() != "fine" {
		t.Errorf("afterwards: %s %v", reply.Text(), err)
	}
}

// TestGateway_Killed: nothing of a server is left when the gateway is killed.
func TestGateway_Killed(t *testing.T) {
	t.Parallel()
	g := launch(t, "")
	add(t, g, "wild", stdio.Program{Command: []string{os.Args[0], wildServer}})
	if reply, err := call(t.Context(), g, "wild", "fork", `{}`); err != nil || reply.Text() != "forked" {
		t.Fatalf("%s %v", reply.Text(), err)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); len(marked(filepath.Dir(g.Dir))) > 0; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("processes are left: %v", marked(filepath.Dir(g.Dir)))
		}
	}
}

// TestPrograms_ListsOfASession: a session lists what its own program has, once it has one, and
// what that adds is shown in no other session.
func TestPrograms_ListsOfASession(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "timeout: 5s\n")
	add(t, g, "wild", stdio.Program{Command: []string{os.Args[0], wildServer}})
	for name, options := range map[string]*mcp.ClientOptions{
		"plain": nil,
		"asked": {ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := g.Client()
			defer client.CloseIdleConnections()
			connect := func() *mcp.ClientSession {
				session, err := mcp.NewClient(&mcp.Implementation{Name: "lister", Version: "1"}, options).Connect(t.Context(),
					&mcp.StreamableClientTransport{Endpoint: g.Public + "/agents/wild/mcp", HTTPClient: client}, &mcp.ClientSessionOptions{ProtocolVersion: peers.LegacyMCP})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = session.Close() })
				return session
			}
			lists := func(session *mcp.ClientSession) bool {
				list, err := session.ListTools(t.Context(), nil)
				if err != nil || len(list.Tools) < 7 {
					t.Fatalf("%+v %v", list, err)
				}
				return slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == "grown" })
			}
			mine, other := connect(), connect()
			if lists(mine) || lists(other) {
				t.Error("listed before it was added")
			}
			if _, err := mine.CallTool(t.Context(), &mcp.CallToolParams{Name: "grow", Arguments: map[string]any{}}); err != nil {
				t.Fatal(err)
			}
			if !lists(mine) {
				t.Error("not listed in the session of which the program has it")
			}
			if lists(other) || lists(connect()) {
				t.Error("listed in a session of which the program lacks it")
			}
		})
	}
}
