package mcp_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

func hasCode(err error, code canonical.Code) bool {
	var answer *canonical.Error
	return errors.As(err, &answer) && answer.Code == code
}

// TestDecode_Refusals: what a stranger must not get through, and that the answer can
// still name the request wherever its id could be read.
func TestDecode_Refusals(t *testing.T) {
	t.Parallel()
	request := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	result := func(inner string) string { return `{"jsonrpc":"2.0","id":1,"result":` + inner + `}` }
	for name, tc := range map[string]struct {
		version string
		re      canonical.Op
		header  http.Header
		body    string
		code    canonical.Code // empty: malformed
		noID    bool
	}{
		"not JSON":                 {body: `{`, noID: true},
		"duplicate member":         {body: `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, noID: true},
		"batch":                    {body: `[]`, noID: true},
		"unknown version":          {body: request(`{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}`), code: canonical.CodeUnsupportedVersion},
		"unknown version header":   {header: http.Header{"Mcp-Protocol-Version": {"2024-01-01"}}, body: request(`{"name":"t"}`), code: canonical.CodeUnsupportedVersion},
		"header against body":      {header: http.Header{"Mcp-Protocol-Version": {mcp.Legacy}}, body: request(`{"name":"t",` + modernMeta + `}}`), code: canonical.CodeHeaderMismatch},
		"method header":            {header: http.Header{"Mcp-Method": {"tools/list"}}, body: request(`{"name":"t",` + modernMeta + `}}`), code: canonical.CodeHeaderMismatch},
		"name header":              {header: http.Header{"Mcp-Name": {"=?base64?%%?="}}, body: request(`{"name":"t",` + modernMeta + `}}`), code: canonical.CodeHeaderMismatch},
		"modern without version":   {version: mcp.Modern, body: request(`{"name":"t"}`), code: canonical.CodeBadParams},
		"modern, no capabilities":  {body: request(`{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`), code: canonical.CodeBadParams},
		"modern ping":              {version: mcp.Modern, body: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modernMeta + `}}}`, code: canonical.CodeNoMethod},
		"modern initialize":        {version: mcp.Modern, body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + modernMeta + `}}}`, code: canonical.CodeNoMethod},
		"legacy discover":          {version: mcp.Legacy, body: `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, code: canonical.CodeNoMethod},
		"modern subscribe":         {version: mcp.Modern, body: `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x",` + modernMeta + `}}}`, code: canonical.CodeNoMethod},
		"legacy listen":            {version: mcp.Legacy, body: `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`, code: canonical.CodeNoMethod},
		"a server's method":        {version: mcp.Legacy, body: `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, code: canonical.CodeNoMethod},
		"tasks in June":            {version: mcp.LegacyJune, body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"x"}}`, code: canonical.CodeNoMethod},
		"tasks, not declared":      {version: mcp.Modern, body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"x",` + modernMeta + `}}}`, code: canonical.CodeCapabilityRequired},
		"answers are a list":       {version: mcp.Modern, body: request(`{"name":"t","inputResponses":[],` + modernMeta + `}}`)},
		"an answer is a number":    {version: mcp.Modern, body: request(`{"name":"t","inputResponses":{"k":1},` + modernMeta + `}}`)},
		"an answer without a key":  {version: mcp.Modern, body: request(`{"name":"t","inputResponses":{"":{"action":"accept"}},` + modernMeta + `}}`)},
		"call without id":          {body: `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t"}}`, code: canonical.CodeInvalidRequest, noID: true},
		"notification with id":     {body: `{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}`, code: canonical.CodeInvalidRequest},
		"a reply as request":       {version: mcp.Modern, body: result(`{}`), code: canonical.CodeInvalidRequest},
		"an answer that is a list": {version: mcp.Legacy, body: result(`[]`), code: canonical.CodeInvalidRequest},
		"asks for nothing":         {version: mcp.Modern, re: canonical.OpInvoke, body: result(`{"resultType":"input_required"}`), code: canonical.CodeBadUpstream},
		"asks without a method":    {version: mcp.Modern, re: canonical.OpInvoke, body: result(`{"resultType":"input_required","inputRequests":{"k":{}}}`)},
		"asks for a form, no form": {version: mcp.Modern, re: canonical.OpInvoke, body: result(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m"}}}}`)},
		"asks in a list":           {version: mcp.Modern, re: canonical.OpCapabilities, body: result(`{"resultType":"input_required","requestState":"x"}`), code: canonical.CodeBadUpstream},
		"a request as reply":       {re: canonical.OpInvoke, body: request(`{"name":"t"}`), code: canonical.CodeBadUpstream},
		"no name":                  {body: request(`{"arguments":{}}`)},
		"empty name":               {body: request(`{"name":""}`), code: canonical.CodeBadParams},
		"arguments are a list":     {body: request(`{"name":"t","arguments":[]}`)},
		"carriage is a list":       {body: request(`{"name":"t","_meta":{"aepb.gateway/ext":[]}}`)},
		"carriage for ourselves":   {body: request(`{"name":"t","_meta":{"aepb.gateway/ext":{"mcp-v1":{"a":1}}}}`)},
		"progress token":           {body: request(`{"name":"t","_meta":{"progressToken":{}}}`)},
		"initialize, no version":   {body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},"clientInfo":{}}}`},
		"task":                     {version: mcp.Modern, re: canonical.OpInvoke, body: result(`{"resultType":"task","taskId":"x"}`)},
		"unheard-of result type":   {version: mcp.Modern, re: canonical.OpCapabilities, body: result(`{"resultType":"x","tools":[]}`), code: canonical.CodeBadUpstream},
		"tools are missing":        {re: canonical.OpCapabilities, body: result(`{}`)},
		"error without a message":  {re: canonical.OpInvoke, body: `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, noID: true},
		"reply to nothing":         {re: canonical.OpNotice, body: result(`{}`), code: canonical.CodeBadUpstream},
		"unknown reply version":    {version: "2020-01-01", re: canonical.OpInvoke, body: result(`{"content":[]}`), code: canonical.CodeUnsupportedVersion},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := mcp.New(translators.Config{}).Decode(translators.Wire{Version: tc.version, Re: tc.re, Header: tc.header, Body: []byte(tc.body)})
			switch {
			case tc.code == "" && !errors.Is(err, translators.ErrMalformed):
				t.Errorf("got %v, want malformed", err)
			case tc.code != "" && !hasCode(err, tc.code):
				t.Errorf("got %v, want code %s", err, tc.code)
			}
			if !tc.noID && (m == nil || string(m.Correlation.WireID) != "1") {
				t.Errorf("the id is lost: %+v", m)
			}
			if strings.Contains(err.Error(), "1900") {
				t.Errorf("the error quotes the message: %v", err)
			}
		})
	}
}

func TestDecode_UnsupportedVersionListsSupported(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	m, err := tr.Decode(translators.Wire{Version: "1900-01-01", Body: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)})
	var answer *canonical.Error
	if !errors.As(err, &answer) {
		t.Fatal(err)
	}
	m.Phase, m.Op, m.Body = canonical.PhaseError, canonical.OpCapabilities, answer
	w, _, err := tr.Encode(m, translators.Target{Version: mcp.Modern})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"1900-01-01"}}}`
	if string(w.Body) != want || w.Status != http.StatusBadRequest {
		t.Errorf("got %d %s", w.Status, w.Body)
	}
}

func FuzzDecode_Roundtrip(f *testing.F) {
	for _, s := range samples() {
		f.Add(s.version, string(s.re), []byte(s.body))
	}
	tr := mcp.New(translators.Config{BodyLimit: 1 << 16})
	f.Fuzz(func(t *testing.T, version, re string, body []byte) {
		w := translators.Wire{Version: version, Re: canonical.Op(re), Body: body}
		m, err := tr.Decode(w)
		var answer *canonical.Error
		if err != nil {
			if !errors.Is(err, translators.ErrMalformed) && !errors.As(err, &answer) {
				t.Errorf("an error of no known kind: %v", err)
			}
			return
		}
		if len(m.Losses) == 0 && whole(m) { // else something was not read, and said to be lost
			home(t, tr, w)
		}
		for _, other := range tr.Info().Versions {
			if _, _, err := tr.Encode(m, translators.Target{Version: other}); err != nil && !errors.Is(err, translators.ErrMalformed) && !errors.As(err, &answer) {
				t.Errorf("%s: an error of no known kind: %v", other, err)
			}
		}
	})
}

// whole: no tool was left out of a list because it cannot be used.
func whole(m *canonical.Message) bool {
	list, ok := m.Body.(*canonical.CapabilityList)
	return !ok || len(list.Omitted) == 0
}

// FuzzDescription_Roundtrip: what a server says about itself and its tools, in every
// revision. What is understood comes home, and is read again in the others.
func FuzzDescription_Roundtrip(f *testing.F) {
	for _, s := range samples() {
		if s.re == canonical.OpDescribe || s.re == canonical.OpCapabilities {
			f.Add(s.version, s.re == canonical.OpDescribe, []byte(s.body))
		}
	}
	tr := mcp.New(translators.Config{BodyLimit: 1 << 16, Depth: 32})
	f.Fuzz(func(t *testing.T, version string, who bool, body []byte) {
		w := translators.Wire{Version: version, Re: canonical.OpCapabilities, Body: body}
		if who {
			w.Re = canonical.OpDescribe
		}
		m, err := tr.Decode(w)
		if err != nil {
			return
		}
		if len(m.Losses) == 0 && whole(m) { // else something was not read, and said to be lost
			home(t, tr, w)
		}
		for _, other := range tr.Info().Versions {
			out, _, err := tr.Encode(m, translators.Target{Version: other})
			if err != nil {
				continue
			}
			if _, err := tr.Decode(translators.Wire{Version: other, Re: w.Re, Body: out.Body}); err != nil {
				t.Errorf("%s: not read again: %v\n%s", other, err, out.Body)
			}
		}
	})
}

// TestAgentError_ComesHome: an error of an agent of another protocol is -32603 in MCP,
// and its own code again when it goes home.
func TestAgentError_ComesHome(t *testing.T) {
	t.Parallel()
	tr := mcp.New(translators.Config{})
	for _, code := range []canonical.Code{
		canonical.CodeParse, canonical.CodeInvalidRequest, canonical.CodeNoMethod, canonical.CodeHeaderMismatch, canonical.CodeUnsupportedOp,
		canonical.CodePushUnsupported, canonical.CodeCardUnavailable, canonical.CodeCapabilityRequired, canonical.CodeUnsupportedVersion,
	} {
		for _, version := range []string{mcp.Modern, mcp.Legacy} {
			m := &canonical.Message{
				Op: canonical.OpInvoke, Phase: canonical.PhaseError, Correlation: canonical.Correlation{WireID: []byte(`1`)},
				Origin: canonical.Origin{Binding: "a2a-v1", Version: "1.0"}, Body: &canonical.Error{Code: code, Message: "no"},
			}
			wire, losses, err := tr.Encode(m, translators.Target{Version: version})
			if err != nil || !strings.Contains(string(wire.Body), `"code":-32603`) || wire.Status != 0 || len(losses) == 0 {
				t.Errorf("%s in %s: %s, status %d, losses %v, error %v", code, version, wire.Body, wire.Status, losses, err)
				continue
			}
			back, err := tr.Decode(wire)
			if err != nil {
				t.Errorf("%s in %s: %v", code, version, err)
				continue
			}
			if answer, ok := back.Body.(*canonical.Error); !ok || answer.Code != code {
				t.Errorf("%s in %s came back as %+v", code, version, back.Body)
			}
		}
	}
}
