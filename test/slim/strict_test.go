package slim_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	a2apb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

// plainNode is what a service configuration says of TLS where there is none.
const plainNode = "{insecure: true}"

// nodeConfig is a service configuration of a node, as a file. Such nodes demand keys
// of links and MACs of headers. more is what it says of its dataplane besides.
func nodeConfig(t *testing.T, at, tls, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.yaml")
	config := fmt.Sprintf(`
tracing: {log_level: warn}
runtime: {n_cores: 1}
services:
  slim/0:
    dataplane:
      servers: [{endpoint: %q, tls: %s}]
      clients: []
%s`, at, tls, more)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestNode_RequiresLinkKeysAndHeaderMACs demands a key of each link and a MAC in each header, as nodes do
// that are started from a service configuration.
func TestNode_RequiresLinkKeysAndHeaderMACs(t *testing.T) {
	t.Parallel()
	at := freeAddress(t)
	startPeer(t).do(t, job{"job": "node", "config": nodeConfig(t, at, plainNode, "")}, nil)
	theirs := startApp(t, at, "org/ns/alice", false)
	us := join(t, at, "org/ns/gogate", plaintext(at))
	id, s := open(t, theirs, "org/ns/alice", us, nil)
	ctx := limited(t, 30*time.Second)
	theirs.do(t, job{"job": "publish", "session": id, "body": "hi"}, nil)
	if m, err := s.Receive(ctx); err != nil || string(m.Blob) != "hi" {
		t.Fatalf("%q %v", m.Blob, err)
	}
	if err := errors.Join(s.Send(ctx, session.Message{Type: "msg", Blob: []byte("ho")}), s.Delivered(ctx)); err != nil {
		t.Fatal(err)
	}
	var got received
	if theirs.do(t, job{"job": "receive", "session": id}, &got); got.Body != "ho" {
		t.Errorf("%+v", got)
	}
}

// TestCard_OfA2A03 is read where the agent shows none to clients of 1.0, as SLIM's
// own library for Python does: its skills keep their names.
func TestCard_OfA2A03(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	card, err := base64.StdEncoding.DecodeString(bytesOf(t, &a2apb.AgentCard{}, `{"name":"helper","description":"helps","version":"1","capabilities":{"streaming":false},`+
		`"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"help","name":"Help me","description":"helps","tags":["x"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for number, text := range map[protowire.Number]string{3: "org/agents/old", 14: "slimrpc", 16: "0.3.0"} { // url, transport, version of A2A
		card = protowire.AppendString(protowire.AppendTag(card, number, protowire.BytesType), text)
	}
	methods := job{
		"GetExtendedAgentCard": job{"code": 12, "message": "UnsupportedOperationError: The agent does not support authenticated extended cards"},
		"GetAgentCard":         job{"service": "a2a.v1.A2AService", "body": base64.StdEncoding.EncodeToString(card)},
		"SendMessage":          job{"body": bytesOf(t, &a2apb.SendMessageResponse{}, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"here"}]}}`)},
	}
	w.app(t, "org/agents/old", job{"a2a": job{"service": "lf.a2a.v1.A2AService", "methods": methods}})
	g := w.gateway(t, "first", w.on("first", "")+"\nagents:\n  old: "+w.far("org/agents/old", id("old"), ""))
	got, err := peers.A2ACall(t.Context(), w.client(t), g.public+"/agents/old", message("please"))
	if err != nil || got.Text() != "here" {
		t.Errorf("%q %v", got.Text(), err)
	}
	if text := cardAt(t, w.client(t), g.public+"/agents/old/.well-known/agent-card.json"); !strings.Contains(text, `"Help me"`) {
		t.Errorf("its skill has lost its name: %s", text)
	}
}

func cardAt(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%d %s %v", response.StatusCode, text, err)
	}
	return string(text)
}
