package stories

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestMCPCall_ArgumentsThatDoNotFit: arguments that do not fit the schema of a tool are
// told in a result with isError, so that the model reads what to mend (SEP-1303; MCP
// 2025-11-25, Tools, Error Handling; the MCP SDK for Go does so in each revision). A
// tool that does not exist stays the error -32602.
func TestMCPCall_ArgumentsThatDoNotFit(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	cases := map[string]struct{ arguments, says string }{
		"a required member is missing": {`{}`, `arguments of concierge: missing \"message\"`},
		"a member of another type":     {`{"message":7}`, "/message: not a string"},
		"a member that it lacks":       {`{"message":"x","colour":"blue"}`, `arguments of concierge: unknown \"colour\"`},
		"a broken file":                {`{"message":"x","files":[{"name":"a"}]}`, "a file needs"},
	}
	calls := map[string]func(tool, arguments string) gatewaytest.HTTPRequest{
		"2026-07-28": func(tool, arguments string) gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: gatewaytest.ModernCall(tool, arguments), Header: gatewaytest.Mirror("tools/call", tool)}
		},
	}
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"} {
		calls[version] = func(tool, arguments string) gatewaytest.HTTPRequest {
			return gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: gatewaytest.LegacyCall(tool, arguments), Header: gatewaytest.MCPHeader(version)}
		}
	}
	for version, call := range calls {
		for name, tc := range cases {
			t.Run(version+" "+name, func(t *testing.T) {
				got := b.Send(t, call("concierge", tc.arguments))
				body := string(got.Body)
				if got.Status != http.StatusOK || !strings.Contains(body, `"result":{`) || !strings.Contains(body, `"isError":true`) || !strings.Contains(body, tc.says) {
					t.Errorf("%d %s, want a result with isError that says %q", got.Status, body, tc.says)
				}
				if len(b.Proofs(t, got)) == 0 {
					t.Error("the answer has no ECT")
				}
			})
		}
		t.Run(version+" unknown tool", func(t *testing.T) {
			got := b.Send(t, call("absent", `{"message":"x"}`))
			if !strings.Contains(string(got.Body), `"code":-32602`) {
				t.Errorf("%d %s", got.Status, got.Body)
			}
		})
	}
}

// TestMCPCallOverSLIM_ArgumentsThatDoNotFit: MCP carried over SLIM is told so in the same
// way. A2A carried there has its error -32602.
func TestMCPCallOverSLIM_ArgumentsThatDoNotFit(t *testing.T) {
	t.Parallel()
	p := gatewaytest.Plan{}
	net := gatewaytest.NewSLIMNet(t, &p)
	gatewaytest.NewFixture(t, p)
	caller := net.Join(t, "org/callers/alice", nil)
	net.Exposed(t, caller, "concierge")
	ask := func(body string) string {
		t.Helper()
		f, err := gatewaytest.AskSLIMService(t, caller, "concierge", "", "", []byte(body), nil)
		gatewaytest.Must(t, err)
		return string(f.Body)
	}
	for name, c := range map[string]struct{ arguments, says string }{
		"missing": {`{}`, `missing \"message\"`}, "of another type": {`{"message":7}`, "/message: not a string"},
	} {
		got := ask(gatewaytest.ModernCall("concierge", c.arguments))
		if !strings.Contains(got, `"isError":true`) || !strings.Contains(got, c.says) || !strings.Contains(got, `"result":{`) {
			t.Errorf("a member that is %s: %s", name, got)
		}
	}
	if got := ask(gatewaytest.ModernCall("absent", `{"message":"x"}`)); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("a tool that does not exist: %s", got)
	}
	if got := ask(gatewaytest.ModernCall("concierge", `{"message":"x"}`)); strings.Contains(got, `"isError"`) || !strings.Contains(got, `"result":{`) {
		t.Errorf("arguments that fit: %s", got)
	}
}

// refusing is an A2A agent that answers each message with an error.
func refusing(code int, reason string) gatewaytest.Conduct {
	return gatewaytest.Saying(func(good []byte) []byte {
		head, _, _ := strings.Cut(string(good), `"result"`)
		data := ""
		if reason != "" {
			data = `,"data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` + reason + `","domain":"a2a-protocol.org"}]`
		}
		return fmt.Appendf(nil, `%s"error":{"code":%d,"message":"the agent said no"%s}}`, head, code, data)
	})
}

// TestMCPCall_ErrorsOfTheAgent: what an A2A agent refuses is its error and not the MCP
// caller's. It does not become a missing method (-32601), nor an invitation to negotiate
// a version (-32022) or a capability (-32021), which the caller has with the gateway
// alone (MCP 2026-07-28, Lifecycle; A2A 1.0, 5.4).
func TestMCPCall_ErrorsOfTheAgent(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	for _, tc := range []struct {
		code   int
		reason string
	}{
		{-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
		{-32004, "UNSUPPORTED_OPERATION"},
		{-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"},
		{-32008, "EXTENSION_SUPPORT_REQUIRED"},
		{-32009, "VERSION_NOT_SUPPORTED"},
		{-32601, ""},
		{-32600, ""},
		{-32700, ""},
	} {
		for _, reason := range []string{"", tc.reason} {
			name := fmt.Sprintf("refusing%d%t", -tc.code, reason != "")
			b.Serve(t, name, "a2a-v1", &gatewaytest.Fake{Conduct: refusing(tc.code, reason)}, gatewaytest.Host{})
			for version, l := range map[string]gatewaytest.HTTPRequest{
				"2026-07-28": {Body: gatewaytest.ModernCall("fake", `{"message":"x"}`), Header: gatewaytest.Mirror("tools/call", "fake")},
				"2025-11-25": {Body: gatewaytest.LegacyCall("fake", `{"message":"x"}`), Header: gatewaytest.MCPHeader("2025-11-25")},
			} {
				l.At = "/agents/" + name + "/mcp"
				got := b.Send(t, l)
				if got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"code":-32603,"message":"the agent said no"`) {
					t.Errorf("%d of the agent with reason %q in %s: %d %s", tc.code, reason, version, got.Status, got.Body)
				}
				for _, never := range []string{`"supported"`, `"requiredCapabilities"`} {
					if strings.Contains(string(got.Body), never) {
						t.Errorf("%d of the agent in %s: %s in %s", tc.code, version, never, got.Body)
					}
				}
				if reason == "" && !strings.Contains(string(got.Body), fmt.Sprintf(`"code":%d`, tc.code)) {
					t.Errorf("%d of the agent in %s is not quoted: %s", tc.code, version, got.Body)
				}
			}
		}
	}
}
