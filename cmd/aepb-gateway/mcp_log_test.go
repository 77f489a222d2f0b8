package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
)

// eventful answers with an event stream: these messages, then the good reply.
func eventful(before ...string) conduct {
	return func(w http.ResponseWriter, _ *http.Request, good []byte) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, message := range append(before, string(good)) {
			_, _ = io.WriteString(w, "data: "+message+"\n\n")
		}
	}
}

// warnings are what the tokens among values warn of.
func (b *bed) warnings(t *testing.T, tokens []string) []string {
	t.Helper()
	var all []string
	for _, claims := range b.proofs(t, reply{header: http.Header{ect.HeaderName: tokens}}) {
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
	b := newBed(t, plan{})
	b.serve(t, "logger", "mcp-v1", &fake{conduct: eventful(line, line, line)}, host{})
	b.serve(t, "quiet", "mcp-v1", &fake{conduct: eventful()}, host{})
	call := func(t *testing.T, agent, method string) (string, []string) {
		t.Helper()
		l := letter{at: "/agents/" + agent + "/a2a", header: map[string]string{"A2A-Version": "1.0"}, body: strings.Replace(addBody(5), "SendMessage", method, 1)}
		response, err := b.client.Do(b.request(t, l))
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		must(t, err)
		if response.StatusCode != http.StatusOK || !strings.Contains(string(body), "done") {
			t.Errorf("%d %s", response.StatusCode, body)
		}
		if method == "SendMessage" {
			return string(body), b.warnings(t, response.Header.Values(ect.HeaderName))
		}
		return string(body), b.warnings(t, response.Trailer.Values(ect.HeaderName))
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
