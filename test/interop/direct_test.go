package interop

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// The JavaScript clients and the Go peers agree without us; the Go clients are
// tested with the peers in their own package.

// lent is a certificate for the loopback interface and a file that trusts it.
func lent(t *testing.T) (*tls.Config, string) {
	t.Helper()
	lender := httptest.NewUnstartedServer(http.NotFoundHandler())
	lender.StartTLS()
	defer lender.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lender.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: lender.TLS.Certificates}, file
}

func TestJavaScript_A2AClientDirect(t *testing.T) {
	t.Parallel()
	conf, ca := lent(t)
	agent, err := peers.NewA2AAgent(t.Context(), peers.Deps{TLS: conf})
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, "agent", agent.Stop)
	var got jsA2AReport
	newJavascript(t).run(t, ca, "a2a-client.mjs", jsA2AJob{Base: agent.URL() + "/", Messages: [][]jsPart{
		jsText("hello"), jsText("fail: no"), jsText("message: hi"), jsData(`{"guests":2}`),
	}}, &got)
	if got.Card.Name != "Concierge" || !slices.Equal(got.Card.Skills, []string{"concierge"}) {
		t.Errorf("card %+v", got.Card)
	}
	var seen [][3]string
	for _, r := range got.Results {
		seen = append(seen, [3]string{r.Kind, r.State, r.Text})
	}
	want := [][3]string{
		{"task", "TASK_STATE_COMPLETED", "You said: hello"},
		{"task", "TASK_STATE_FAILED", "no"},
		{"message", "", "hi"},
		{"task", "TASK_STATE_COMPLETED", ""},
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
	if len(got.Exchanges) != len(want) || got.Exchanges[0].Status != http.StatusOK {
		t.Errorf("%d exchanges recorded", len(got.Exchanges))
	}
}

func TestJavaScript_MCPClientDirect(t *testing.T) {
	t.Parallel()
	js := newJavascript(t)
	for _, tt := range []struct {
		name, mode, version string
		stateless           bool
	}{
		{"modern", "auto", "2026-07-28", true},
		{"legacy client, stateless server", "legacy", peers.LegacyMCP, true},
		{"modern client, stateful server", "auto", peers.LegacyMCP, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			conf, ca := lent(t)
			server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: peers.Deps{TLS: conf}, Stateless: tt.stateless})
			if err != nil {
				t.Fatal(err)
			}
			stopLater(t, "server", server.Stop)
			var got jsMCPReport
			js.run(t, ca, "mcp-client.mjs", jsMCPJob{Endpoint: server.URL(), Mode: tt.mode, Calls: []jsCall{
				{Name: "add", Arguments: json.RawMessage(`{"a":1,"b":2}`)}, {Name: "fail", Arguments: json.RawMessage(`{}`)},
			}}, &got)
			if got.Version != tt.version || len(got.Tools) != 4 {
				t.Fatalf("version %s, %d tools", got.Version, len(got.Tools))
			}
			if sum := got.Results[0]; sum.IsError || string(sum.Structured) != `{"sum":3}` {
				t.Errorf("add: %+v", sum)
			}
			if failed := got.Results[1]; !failed.IsError || failed.Text != "this tool always fails" {
				t.Errorf("fail: %+v", failed)
			}
		})
	}
}
