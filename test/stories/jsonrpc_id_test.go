package stories

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestJSONRPC_ErrorsKeepTheID: an error is answered under the id of its request
// wherever the id can be read (JSON-RPC 2.0, section 5; MCP 2025-11-25 and 2026-07-28,
// Basic, Responses; A2A 1.0, 9.5).
func TestJSONRPC_ErrorsKeepTheID(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	legacy := map[string]string{"Mcp-Protocol-Version": "2025-11-25", "Accept": "application/json, text/event-stream"}
	for name, tc := range map[string]struct {
		at, body string
		header   map[string]string
	}{
		"MCP, params is an array":       {gatewaytest.EndpointMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","params":[]}`, legacy},
		"MCP, params is a string":       {gatewaytest.EndpointMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","params":"x"}`, legacy},
		"MCP, method is no string":      {gatewaytest.EndpointMCP, `{"jsonrpc":"2.0","id":"k4","method":7}`, legacy},
		"MCP, no jsonrpc":               {gatewaytest.EndpointMCP, `{"id":"k4","method":"tools/list"}`, legacy},
		"MCP, request and result":       {gatewaytest.EndpointMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","result":{}}`, legacy},
		"MCP 2026-07-28, params array":  {gatewaytest.EndpointMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","params":[]}`, gatewaytest.Mirror("tools/list", "")},
		"MCP 2026-07-28, params string": {gatewaytest.EndpointMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","params":"x"}`, gatewaytest.Mirror("tools/list", "")},
		"A2A, jsonrpc 1.0":              {gatewaytest.EndpointA2A, `{"jsonrpc":"1.0","id":"k4","method":"GetTask","params":{"id":"t"}}`, nil},
		"A2A, jsonrpc is a number":      {gatewaytest.EndpointA2A, `{"jsonrpc":2.0,"id":"k4","method":"GetTask","params":{"id":"t"}}`, nil},
		"A2A, method is no string":      {gatewaytest.EndpointA2A, `{"jsonrpc":"2.0","id":"k4","method":7}`, nil},
		"A2A, params is an array":       {gatewaytest.EndpointA2A, `{"jsonrpc":"2.0","id":"k4","method":"GetTask","params":[]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.Send(t, gatewaytest.HTTPRequest{At: tc.at, Body: tc.body, Header: tc.header})
			if !strings.Contains(string(got.Body), `"id":"k4"`) || !strings.Contains(string(got.Body), `"error":`) {
				t.Errorf("%d %s, want an error under the id k4", got.Status, got.Body)
			}
		})
	}
}

// TestJSONRPC_ToleratesWhatMeansNothing: params that are null are as good as none
// (the MCP SDK for Go answers such a request), and members that JSON-RPC does not
// define are ignored, as the SDKs of both protocols do.
func TestJSONRPC_ToleratesWhatMeansNothing(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	legacy := map[string]string{"Mcp-Protocol-Version": "2025-11-25", "Accept": "application/json, text/event-stream"}
	n := b.Number()
	for name, tc := range map[string]struct {
		l    gatewaytest.HTTPRequest
		want string
	}{
		"MCP, params null":  {gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Header: legacy, Body: `{"jsonrpc":"2.0","id":4,"method":"tools/list","params":null}`}, `"concierge"`},
		"MCP, extra member": {gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Header: gatewaytest.Mirror("tools/call", "concierge"), Body: strings.Replace(gatewaytest.CallBody("concierge", "hi"), `"id"`, `"trace":{"a":1},"id"`, 1)}, "You said: hi"},
		"A2A, params null":  {gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Header: map[string]string{"A2A-Version": "1.0"}, Body: `{"jsonrpc":"2.0","id":4,"method":"ListTasks","params":null}`}, `"tasks":`},
		"A2A, extra member": {gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: strings.Replace(gatewaytest.AddBody(n), `"id"`, `"trace":{"a":1},"id"`, 1)}, `"sum":`},
		"A2A to A2A":        {gatewaytest.HTTPRequest{At: "/agents/concierge/a2a", Header: map[string]string{"A2A-Version": "1.0"}, Body: strings.Replace(gatewaytest.TextBody("hi"), `"id"`, `"trace":{"a":1},"id"`, 1)}, "You said: hi"},
		"MCP to MCP":        {gatewaytest.HTTPRequest{At: "/agents/calculator/mcp", Header: gatewaytest.Mirror("tools/call", "echo"), Body: strings.Replace(gatewaytest.CallBody("echo", "hi"), `"id"`, `"trace":{"a":1},"id"`, 1)}, "hi"},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.Send(t, tc.l)
			if got.Status != http.StatusOK || !strings.Contains(string(got.Body), tc.want) {
				t.Errorf("%d %s, want %s", got.Status, got.Body, tc.want)
			}
		})
	}
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"from A2A": {Body: gatewaytest.AddBody(b.Number())}, "from MCP": {At: gatewaytest.ToConcierge, Body: gatewaytest.CallBody("concierge", "hi")},
	} {
		t.Run(name+" to another protocol the member is declared as loss", func(t *testing.T) {
			l.Body = strings.Replace(l.Body, `"id"`, `"trace":{"a":1},"id"`, 1)
			got := b.Send(t, b.Sealed(t, l))
			if w := warnings(t, b, got.Header.Values("Execution-Context")); got.Status != http.StatusOK || !slices.Contains(w, "L29 dropped /extensions") {
				t.Errorf("%d %s; the ECTs warn of %q", got.Status, got.Body, w)
			}
		})
	}
	t.Run("a member in another case is none to ignore", func(t *testing.T) {
		got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: strings.Replace(gatewaytest.AddBody(5), `"id"`, `"Method":"GetTask","id"`, 1)})
		if !strings.Contains(string(got.Body), `"code":-32600`) || !strings.Contains(string(got.Body), `"id":"5"`) {
			t.Errorf("%d %s", got.Status, got.Body)
		}
	})
}
