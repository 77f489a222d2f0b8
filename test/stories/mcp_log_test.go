package stories

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// eventful answers with an event stream: these messages, then the good reply.
func eventful(before ...string) gatewaytest.Conduct {
	return func(w http.ResponseWriter, _ *http.Request, good []byte) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, message := range append(before, string(good)) {
			_, _ = io.WriteString(w, "data: "+message+"\n\n")
		}
	}
}

// warnings are what the tokens among values warn of.
func warnings(t *testing.T, b *gatewaytest.Fixture, tokens []string) []string {
	t.Helper()
	var all []string
	for _, claims := range b.Proofs(t, gatewaytest.Reply{Header: http.Header{ect.HeaderName: tokens}}) {
		list, _ := claims.Ext.Strings(ect.ExtWarnings)
		all = append(all, list...)
	}
	return all
}

// TestMCPLog_DeclaredAsLoss: an A2A caller gets no log messages of a tool
// (notifications/message of MCP), because A2A has none. That they are missing is in
// the ECT of the reply, in its header, or in the one that closes the stream, in its
// trailer (AEPB, Gateway Requirements, item 4; loss L12).
func TestMCPLog_DeclaredAsLoss(t *testing.T) {
	t.Parallel()
	const line, want = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"halfway"}}`, "L12 dropped /body/log"
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.Serve(t, "logger", "mcp-v1", &gatewaytest.Fake{Conduct: eventful(line, line, line)}, gatewaytest.Host{})
	b.Serve(t, "quiet", "mcp-v1", &gatewaytest.Fake{Conduct: eventful()}, gatewaytest.Host{})
	call := func(t *testing.T, agent, method string) (string, []string) {
		t.Helper()
		l := gatewaytest.HTTPRequest{At: "/agents/" + agent + "/a2a", Header: map[string]string{"A2A-Version": "1.0"}, Body: strings.Replace(gatewaytest.AddBody(5), "SendMessage", method, 1)}
		response, err := b.Client.Do(b.Request(t, l))
		gatewaytest.Must(t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		gatewaytest.Must(t, err)
		if response.StatusCode != http.StatusOK || !strings.Contains(string(body), "done") {
			t.Errorf("%d %s", response.StatusCode, body)
		}
		if method == "SendMessage" {
			return string(body), warnings(t, b, response.Header.Values(ect.HeaderName))
		}
		return string(body), warnings(t, b, response.Trailer.Values(ect.HeaderName))
	}
	for _, method := range []string{"SendMessage", "SendStreamingMessage"} {
		t.Run(method, func(t *testing.T) {
			if _, warnings := call(t, "logger", method); !slices.Contains(warnings, want) {
				t.Errorf("the ECTs warn of %q, want %q among it", warnings, want)
			}
			if _, warnings := call(t, "quiet", method); slices.Contains(warnings, want) {
				t.Errorf("nothing was logged, and the ECTs warn of %q", warnings)
			}
		})
	}
}
