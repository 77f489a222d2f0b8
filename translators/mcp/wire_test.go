package mcp_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestMirror_ArgumentsInHeaders: what a header may say of the arguments that a schema marks.
func TestMirror_ArgumentsInHeaders(t *testing.T) {
	t.Parallel()
	tool := &canonical.Capability{InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},
		"in":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}},
		"list":{"type":"array","items":{"properties":{"no":{"x-mcp-header":"No"}}}},"bad":{"type":"string","x-mcp-header":"a b"}}}`)}
	for name, tc := range map[string]struct {
		args  string
		h     http.Header
		wrong bool
		want  http.Header
	}{
		"all of it":     {`{"region":"eu","in":{"n":5,"b":true}}`, http.Header{"Mcp-Param-Region": {"eu"}, "Mcp-Param-N": {"5"}, "Mcp-Param-B": {"true"}}, false, nil},
		"no arguments":  {``, http.Header{}, false, nil},
		"null":          {`{"region":null}`, http.Header{}, false, nil},
		"sentinel":      {`{"region":"é"}`, http.Header{"Mcp-Param-Region": {"=?base64?w6k=?="}}, false, nil},
		"by value":      {`{"in":{"n":50e-1}}`, http.Header{"Mcp-Param-N": {"5.0"}}, false, http.Header{"Mcp-Param-N": {"5"}}},
		"largest":       {`{"in":{"n":9007199254740991}}`, http.Header{"Mcp-Param-N": {"9007199254740991"}}, false, nil},
		"no integer":    {`{"in":{"n":0.5}}`, http.Header{}, false, nil},
		"too large":     {`{"in":{"n":9007199254740993}}`, http.Header{"Mcp-Param-N": {"9007199254740993"}}, false, http.Header{}},
		"nothing":       {`{"region":""}`, http.Header{}, false, http.Header{"Mcp-Param-Region": {""}}},
		"others":        {`{"list":[{"no":"x"}],"bad":"y"}`, http.Header{"Mcp-Param-Other": {"z"}, "Mcp-Method": {"tools/call"}}, false, http.Header{"Mcp-Method": {"tools/call"}}},
		"missing":       {`{"region":"eu"}`, http.Header{}, true, nil},
		"another":       {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"us"}}, true, nil},
		"twice":         {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"eu", "us"}}, true, nil},
		"not asked for": {`{}`, http.Header{"Mcp-Param-Region": {"eu"}}, true, nil},
		"for null":      {`{"region":null}`, http.Header{"Mcp-Param-Region": {"null"}}, true, nil},
		"no base64":     {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"=?base64?!?="}}, true, nil},
		"one too many":  {`{"in":{"n":9007199254740993}}`, http.Header{"Mcp-Param-N": {"9007199254740992"}}, true, nil},
		"far away":      {`{"in":{"n":1e999999999}}`, http.Header{"Mcp-Param-N": {"1e99"}}, true, nil},
		"an object":     {`{"region":{}}`, http.Header{"Mcp-Param-Region": {"eu"}}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &canonical.Message{
				Origin: canonical.Origin{Binding: mcp.Binding, Version: mcp.Modern},
				Body:   &canonical.Invoke{Call: &canonical.Call{Name: "t", Args: json.RawMessage(tc.args)}},
			}
			if tc.args == "" {
				m.Body.(*canonical.Invoke).Call.Args = nil
			}
			got, err := mcp.New(translators.Config{}).Mirror(tc.h, m, tool)
			if tc.wrong != hasCode(err, canonical.CodeHeaderMismatch) || !tc.wrong && err != nil {
				t.Fatalf("got %v", err)
			}
			if tc.want == nil {
				tc.want = tc.h
			}
			if diff := cmp.Diff(tc.want, got); !tc.wrong && diff != "" {
				t.Error(diff)
			}
			m.Origin.Version = mcp.Legacy
			if _, err := mcp.New(translators.Config{}).Mirror(tc.h, m, tool); err != nil {
				t.Errorf("in a revision without them: %v", err)
			}
		})
	}
}

// TestHeaders_DuplicatesAreRefused: whoever reads the last of two reads another message.
func TestHeaders_DuplicatesAreRefused(t *testing.T) {
	t.Parallel()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	for name, text := range map[string]string{"Mcp-Method": "tools/call", "Mcp-Name": "t", "Mcp-Protocol-Version": mcp.Modern} {
		_, err := mcp.New(translators.Config{}).Decode(translators.Wire{Header: http.Header{name: {text, text}}, Body: []byte(body)})
		if !hasCode(err, canonical.CodeHeaderMismatch) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
