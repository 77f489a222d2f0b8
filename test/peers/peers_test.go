package peers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/tools/txtar"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds one message, and the end of the gateway.
const patience = 40 * time.Second

// TestPeers_EveryFileEveryCaller runs every file against every caller, through one gateway.
func TestPeers_EveryFileEveryCaller(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "peers", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	g := startGateway(t)
	t.Run("files", func(t *testing.T) {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".txtar")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				archive, err := txtar.ParseFile(file)
				if err != nil {
					t.Fatal(err)
				}
				g.play(t, strings.ReplaceAll(name, ".", "-"), parse(t, archive))
			})
		}
	})
}

type gateway struct{ *devgateway.Process }

func startGateway(t *testing.T) gateway {
	t.Helper()
	dir := t.TempDir()
	binary, err := devgateway.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(config, []byte("limits:\n  rate: 100000\n  burst: 100000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := devgateway.Start(t.Context(), devgateway.Deps{Binary: binary, Dir: filepath.Join(dir, ".aepb"), Args: []string{"--config", config}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Errorf("stop the gateway: %v", err)
		}
		if t.Failed() {
			t.Logf("gateway:\n%s", p.Output())
		}
	})
	return gateway{p}
}

// play runs one file.
func (g gateway) play(t *testing.T, name string, s *script) {
	t.Helper()
	binding, origin := map[string]string{"mcp": "mcp-v1", "a2a": "a2a-v1"}[s.protocol], s.start(t)
	for i, c := range callers {
		name := fmt.Sprint(name, "-", i) // an agent for each: what one meets, such as a breaker, is no other's
		if err := g.AddAgent(t.Context(), name, binding, origin+s.path); err != nil {
			t.Fatal(err)
		}
		client := g.Client(g.ClientSVID())
		client.Timeout = patience
		reply := c.use(t, client, g.Public+"/agents/"+name, s)
		client.CloseIdleConnections()
		s.judge(t, c, reply)
	}
	for _, w := range s.wants {
		if w.caller != "show" {
			continue
		}
		shown, err := g.Agent(t.Context(), name+"-0")
		if err != nil {
			t.Fatal(err)
		}
		contains(t, "agents show", compact(shown), w.lines)
	}
}

// judge holds the reply to a caller against what is wanted.
func (s *script) judge(t *testing.T, c caller, reply string) {
	t.Helper()
	text, failed := compact([]byte(reply)), true
	for _, w := range s.wants {
		switch {
		case w.caller == "error":
			failed = false
		case w.caller == "relay" && c.protocol == s.protocol && c.version == s.version:
			method := map[string]string{"mcp": "tools/call", "1.0": "SendMessage", "0.3": "message/send"}[map[bool]string{true: "mcp", false: s.version}[s.protocol == "mcp"]]
			if got := resultOf(reply); !c.streams && got != s.texts[method] {
				t.Errorf("%s: the result is %s, and came as %s", c, got, s.texts[method])
			}
		case c.is(w.caller):
			contains(t, c.String(), text, w.lines)
		}
	}
	if failed && (strings.Contains(text, `"error":{`) || !strings.Contains(text, `"result":`)) {
		t.Errorf("%s: told is %s", c, text)
	}
}

func contains(t *testing.T, who, text string, lines []string) {
	t.Helper()
	for _, line := range lines {
		line, not := strings.CutPrefix(line, "! ")
		if want := compact([]byte(line)); strings.Contains(text, want) == not {
			t.Errorf("%s: %s, wanted %s in it: %t", who, text, want, !not)
		}
	}
}
