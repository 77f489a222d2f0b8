package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestJSONRPC_ErrorsKeepTheID: an error is answered under the id of its request
// wherever the id can be read (JSON-RPC 2.0, section 5; MCP 2025-11-25 and 2026-07-28,
// Basic, Responses; A2A 1.0, 9.5).
func TestJSONRPC_ErrorsKeepTheID(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	legacy := map[string]string{"Mcp-Protocol-Version": "2025-11-25", "Accept": "application/json, text/event-stream"}
	for name, tc := range map[string]struct {
		at, body string
		header   map[string]string
	}{
		"MCP, params is an array":       {doorMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","params":[]}`, legacy},
		"MCP, params is a string":       {doorMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","params":"x"}`, legacy},
		"MCP, method is no string":      {doorMCP, `{"jsonrpc":"2.0","id":"k4","method":7}`, legacy},
		"MCP, no jsonrpc":               {doorMCP, `{"id":"k4","method":"tools/list"}`, legacy},
		"MCP, request and result":       {doorMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","result":{}}`, legacy},
		"MCP 2026-07-28, params array":  {doorMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","params":[]}`, mirror("tools/list", "")},
		"MCP 2026-07-28, params string": {doorMCP, `{"jsonrpc":"2.0","id":"k4","method":"tools/list","params":"x"}`, mirror("tools/list", "")},
		"A2A, jsonrpc 1.0":              {doorA2A, `{"jsonrpc":"1.0","id":"k4","method":"GetTask","params":{"id":"t"}}`, nil},
		"A2A, jsonrpc is a number":      {doorA2A, `{"jsonrpc":2.0,"id":"k4","method":"GetTask","params":{"id":"t"}}`, nil},
		"A2A, method is no string":      {doorA2A, `{"jsonrpc":"2.0","id":"k4","method":7}`, nil},
		"A2A, params is an array":       {doorA2A, `{"jsonrpc":"2.0","id":"k4","method":"GetTask","params":[]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.send(t, letter{at: tc.at, body: tc.body, header: tc.header})
			if !strings.Contains(string(got.body), `"id":"k4"`) || !strings.Contains(string(got.body), `"error":`) {
				t.Errorf("%d %s, want an error under the id k4", got.status, got.body)
			}
		})
	}
}

// TestJSONRPC_ToleratesWhatMeansNothing: params that are null are as good as none
// (the MCP SDK for Go answers such a request), and members that JSON-RPC does not
// define are ignored, as the SDKs of both protocols do.
func TestJSONRPC_ToleratesWhatMeansNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	legacy := map[string]string{"Mcp-Protocol-Version": "2025-11-25", "Accept": "application/json, text/event-stream"}
	n := b.number()
	for name, tc := range map[string]struct {
		l    letter
		want string
	}{
		"MCP, params null":  {letter{at: doorMCP, header: legacy, body: `{"jsonrpc":"2.0","id":4,"method":"tools/list","params":null}`}, `"concierge"`},
		"MCP, extra member": {letter{at: doorMCP, header: mirror("tools/call", "concierge"), body: strings.Replace(callBody("concierge", "hi"), `"id"`, `"trace":{"a":1},"id"`, 1)}, "You said: hi"},
		"A2A, params null":  {letter{at: doorA2A, header: map[string]string{"A2A-Version": "1.0"}, body: `{"jsonrpc":"2.0","id":4,"method":"ListTasks","params":null}`}, `"tasks":`},
		"A2A, extra member": {letter{at: doorA2A, body: strings.Replace(addBody(n), `"id"`, `"trace":{"a":1},"id"`, 1)}, `"sum":`},
		"A2A to A2A":        {letter{at: "/agents/concierge/a2a", header: map[string]string{"A2A-Version": "1.0"}, body: strings.Replace(textBody("hi"), `"id"`, `"trace":{"a":1},"id"`, 1)}, "You said: hi"},
		"MCP to MCP":        {letter{at: "/agents/calculator/mcp", header: mirror("tools/call", "echo"), body: strings.Replace(callBody("echo", "hi"), `"id"`, `"trace":{"a":1},"id"`, 1)}, "hi"},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.send(t, tc.l)
			if got.status != http.StatusOK || !strings.Contains(string(got.body), tc.want) {
				t.Errorf("%d %s, want %s", got.status, got.body, tc.want)
			}
		})
	}
	for name, l := range map[string]letter{
		"from A2A": {body: addBody(b.number())}, "from MCP": {at: toConcierge, body: callBody("concierge", "hi")},
	} {
		t.Run(name+" to another protocol the member is declared as loss", func(t *testing.T) {
			l.body = strings.Replace(l.body, `"id"`, `"trace":{"a":1},"id"`, 1)
			got := b.send(t, b.sealed(t, l))
			if w := b.warnings(t, got.header.Values("Execution-Context")); got.status != http.StatusOK || !slices.Contains(w, "L29 dropped /extensions") {
				t.Errorf("%d %s; the ECTs warn of %q", got.status, got.body, w)
			}
		})
	}
	t.Run("a member in another case is none to ignore", func(t *testing.T) {
		got := b.send(t, letter{at: doorA2A, body: strings.Replace(addBody(5), `"id"`, `"Method":"GetTask","id"`, 1)})
		if !strings.Contains(string(got.body), `"code":-32600`) || !strings.Contains(string(got.body), `"id":"5"`) {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}
