package slim_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	a2apb "github.com/a2aproject/a2a-go/v2/a2apb/v1"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// TestGateway_DevelopmentWithoutTLS uses a node without TLS on loopback, and aepbctl lists
// an agent on it.
func TestGateway_DevelopmentWithoutTLS(t *testing.T) {
	t.Parallel()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	_, at := startNode(t)
	methods := job{
		"GetExtendedAgentCard": job{"body": bytesOf(t, &a2apb.AgentCard{}, strings.Replace(helperCard, `"streaming":true`, `"streaming":false`, 1))},
		"SendMessage":          job{"body": bytesOf(t, &a2apb.SendMessageResponse{}, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"here"}]}}`)},
	}
	startPeer(t).do(t, job{
		"job": "app", "endpoint": "http://" + at, "name": "org/agents/helper", "secret": secret,
		"a2a": job{"service": "a2a.v1.A2AService", "methods": methods},
	}, nil)
	dir := t.TempDir()
	file := filepath.Join(dir, "extra.yaml")
	for name, text := range map[string]string{
		"secret":     secret,
		"extra.yaml": fmt.Sprintf("slim: {nodes: [{url: %q, organization: org, namespace: dev, shared_secret_file: %q}]}\n", "http://"+at, filepath.Join(dir, "secret")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := devgateway.Start(t.Context(), devgateway.Deps{
		Binary: filepath.Join(programs, "aepb-gateway"), Dir: filepath.Join(dir, ".aepb"), Args: []string{"--config", file},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	ctl := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(programs, "aepbctl"), append([]string{"--dir", g.Dir}, args...)...).CombinedOutput()
		return string(out), err
	}
	for _, wrong := range []string{"org/agents/helper", "org/helper@" + at, "org/agents/helper@", "org/agents/helper@" + at + "/x"} {
		if out, err := ctl("agents", "add", "helper", "--slim", wrong); err == nil || !strings.Contains(out, "ORG/NS/SVC@HOST:PORT") {
			t.Errorf("%s: %s", wrong, out)
		}
	}
	if out, err := ctl("agents", "add", "helper", "--slim", "org/agents/helper@"+at); err != nil {
		t.Fatal(out)
	}
	client := g.Client()
	t.Cleanup(client.CloseIdleConnections)
	got, err := peers.A2ACall(t.Context(), client, g.Public+"/agents/helper", message("please"))
	if err != nil || got.Text() != "here" {
		t.Errorf("%q %v\n%s", got.Text(), err, g.Output())
	}
	// A node that the gateway is not configured with is not reached.
	if out, err := ctl("agents", "add", "elsewhere", "--slim", "org/agents/helper@127.0.0.1:9"); err == nil || !strings.Contains(out, "egress policy does not allow this destination") {
		t.Error(out)
	}
	if _, err := peers.A2ACall(t.Context(), client, g.Public+"/agents/elsewhere", message("please")); err == nil || !strings.HasSuffix(err.Error(), "403 Forbidden") {
		t.Error(err)
	}
}
