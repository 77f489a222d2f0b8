package stories

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestWebhooks_CredentialsGoToNoAgent: the credentials that a caller gives for its webhook
// stay here, although everything else goes on as it came.
func TestWebhooks_CredentialsGoToNoAgent(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	var received string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"name":"T","description":"d","version":"1","capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],`+
				`"supportedInterfaces":[{"url":"https://`+r.Host+`/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"skills":[{"id":"s","name":"S","description":"d","tags":["x"]}]}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		received = string(body)
		_, id, _ := strings.Cut(received, `"id":`)
		id, _, _ = strings.Cut(id, ",")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"done"}]}}}`)
	}))
	server.TLS = gatewaytest.Serving(b.SVID(t, "/hooked"))
	server.StartTLS()
	defer server.Close()
	gatewaytest.Must(t, b.Directory().Put(directory.Agent{
		Name: "hooked", Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: "a2a-v1", URL: server.URL}},
	}))
	body := `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]},` +
		`"configuration":{"taskPushNotificationConfig":{"url":"https://hook.example","token":"mine","authentication":{"scheme":"Bearer","credentials":"secret"}}}}}`
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/hooked/a2a", Body: body, Header: map[string]string{"A2A-Version": "1.0"}})
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), "done") || !strings.Contains(received, `"hi"`) ||
		strings.Contains(received, "secret") || strings.Contains(received, "mine") || strings.Contains(received, "hook.example") {
		t.Errorf("%d %s; the agent got %s", got.Status, got.Body, received)
	}
}

// TestWebhooks_NoPublicAddressIsRefusedAtOnce: under serve the caller of each way to register
// a webhook learns at once, and why, that nothing will be posted to a name of this machine.
func TestWebhooks_NoPublicAddressIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	version := map[string]string{"A2A-Version": "1.0"}
	begun := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/members/a2a", Body: gatewaytest.Streamed(gatewaytest.AddBody(b.Number())), Header: version})
	id, wid := gatewaytest.TasksIn(t, begun)[0].ID, b.Proofs(t, begun)[0].Workflow
	for _, host := range []string{"localhost:9", "2130706433", "127.1", "0x7f.1", "127.0.0.1", "[::1]"} {
		url := "https://" + host + "/x"
		set := `{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig","params":{"taskId":"` + id + `","url":"` + url + `"}}`
		for way, got := range map[string]gatewaytest.Reply{
			"with a message": b.Hooked(t, "members", url, ""),
			"for a task":     b.Send(t, gatewaytest.HTTPRequest{At: "/agents/members/a2a", Header: version, Body: set}),
			"for a decision": b.Send(t, gatewaytest.HTTPRequest{At: "/hitl/callbacks", Body: `{"wid":"` + wid + `","uri":"` + url + `"}`}),
		} {
			if text := string(got.Body); !strings.Contains(text, "loopback address") || strings.Contains(text, `"sum"`) || strings.Contains(text, `"result"`) {
				t.Errorf("%s, %s: %d %s", url, way, got.Status, gatewaytest.Short(got.Body))
			}
		}
	}
	for _, hook := range []string{"https://hooks.example/x", "https://127.1.example/x"} {
		if got := b.Send(t, gatewaytest.HTTPRequest{At: "/hitl/callbacks", Body: `{"wid":"` + wid + `","uri":"` + hook + `"}`}); got.Status != http.StatusCreated {
			t.Errorf("%s: %d %s", hook, got.Status, gatewaytest.Short(got.Body))
		}
	}
}
