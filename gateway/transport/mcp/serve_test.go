package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// handler is a Handler that gives a fixed answer and keeps the call that it got.
type handler struct {
	answer      transport.Answer
	description canonical.Description
	err         error
	calls       []transport.Call
	inquiries   []transport.CallInfo
	full        error                // what Limit says
	stranger    error                // what Admit says
	limits      []transport.CallInfo // what Limit was asked
	admissions  []transport.CallInfo // what Admit was asked
}

func (r *handler) Limit(_ context.Context, i transport.CallInfo) (limit.Pass, error) {
	r.limits = append(r.limits, i)
	return transporttest.Pass(r.full)
}

func (r *handler) Admit(_ context.Context, i transport.CallInfo) error {
	r.admissions = append(r.admissions, i)
	if !i.Pass.Valid() {
		return limit.ErrNoPass
	}
	return r.stranger
}

func (r *handler) Exchange(_ context.Context, c transport.Call) (transport.Answer, error) {
	r.calls = append(r.calls, c)
	if !c.Pass.Valid() {
		return transport.Answer{}, limit.ErrNoPass
	}
	return r.answer, r.err
}

func (r *handler) Describe(_ context.Context, i transport.CallInfo) (*canonical.Description, error) {
	r.inquiries = append(r.inquiries, i)
	if !i.Pass.Valid() {
		return nil, limit.ErrNoPass
	}
	return &r.description, r.err
}

const (
	meta     = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	callBody = `{"jsonrpc":"2.0","id":"c1","method":"tools/call","params":{"name":"echo","arguments":{"x":1},` + meta + `}}`
)

func modernHeader(method, name string) http.Header {
	h := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {mcp.Modern}, "Mcp-Method": {method},
	}
	if name != "" {
		h.Set("Mcp-Name", name)
	}
	return h
}

func legacyHeader() http.Header {
	return http.Header{"Content-Type": {"application/json; charset=utf-8"}}
}

func with(h http.Header, name, value string) http.Header {
	h.Set(name, value)
	return h
}

func without(h http.Header, name string) http.Header {
	h.Del(name)
	return h
}

func newEndpoint(t testing.TB, r transport.Handler) http.Handler {
	t.Helper()
	endpoint, err := wire.NewServer(wire.ServerDeps{Form: mcp.New(translators.Config{BodyLimit: 1 << 12}), Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	return endpoint.Handler(r)
}

func knock(t testing.TB, r transport.Handler, method string, h http.Header, body string) *httptest.ResponseRecorder {
	t.Helper()
	return answerTo(t, r, newKnock(t.Context(), method, h, body))
}

func newKnock(ctx context.Context, method string, h http.Header, body string) *http.Request {
	caller := identity.Caller{Peer: ect.Peer{ID: "spiffe://td/caller"}}
	ctx = transport.WithCaller(ctx, caller, "192.0.2.1")
	request := httptest.NewRequestWithContext(ctx, method, "https://gw.example/agents/chef/mcp", strings.NewReader(body))
	request.SetPathValue("agent", "chef")
	request.Header = h
	return request
}

func answerTo(t testing.TB, r transport.Handler, request *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	newEndpoint(t, r).ServeHTTP(recorder, request)
	answer := recorder.Header()
	if size := strconv.Itoa(recorder.Body.Len()); answer.Get("Content-Type") == "application/json" && answer.Get("Content-Length") != size {
		t.Errorf("an answer of %s bytes does not say so, and cannot leave in one piece", size)
	}
	return recorder
}

func TestServer_PassesCallToPipeline(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		header  http.Header
		body    string
		version string
	}{
		"modern":             {modernHeader("tools/call", "echo"), callBody, mcp.Modern},
		"no version":         {legacyHeader(), `{"jsonrpc":"2.0","id":"c1","method":"tools/call","params":{"name":"echo"}}`, mcp.LegacyMarch},
		"2025-11-25":         {with(legacyHeader(), "Mcp-Protocol-Version", mcp.Legacy), `{"jsonrpc":"2.0","id":"c1","method":"tools/call","params":{"name":"echo"}}`, mcp.Legacy},
		"2025-06-18":         {with(legacyHeader(), "Mcp-Protocol-Version", mcp.LegacyJune), `{"jsonrpc":"2.0","id":"c1","method":"tools/call","params":{"name":"echo"}}`, mcp.LegacyJune},
		"2025-03-26, saying": {with(legacyHeader(), "Mcp-Protocol-Version", mcp.LegacyMarch), `{"jsonrpc":"2.0","id":"c1","method":"tools/call","params":{"name":"echo"}}`, mcp.LegacyMarch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply := `{"jsonrpc":"2.0","id":"c1","result":{"content":[]}}`
			r := &handler{answer: transporttest.Answer(translators.Wire{Body: []byte(reply)}, "a.b.c", "d.e.f")}
			h := tc.header
			h.Add("Execution-Context", "x.y.z, u.v.w")
			h.Add("Execution-Context", "q.r.s")
			h.Set("Authorization", "Bearer secret")
			got := knock(t, r, http.MethodPost, h, tc.body)
			if got.Code != http.StatusOK || got.Body.String() != reply || got.Header().Get("Content-Type") != "application/json" {
				t.Errorf("got %d %s", got.Code, got.Body)
			}
			if diff := cmp.Diff([]string{"a.b.c", "d.e.f"}, got.Header().Values("Execution-Context")); diff != "" {
				t.Error(diff)
			}
			c := r.calls[0]
			if c.Agent != "chef" || c.EntryPoint != transport.Native || c.Caller.ID != "spiffe://td/caller" || c.Address != "192.0.2.1" {
				t.Errorf("the call: %+v", c)
			}
			if diff := cmp.Diff([]string{"x.y.z", "u.v.w", "q.r.s"}, c.Evidence); diff != "" {
				t.Error(diff)
			}
			if string(c.Wire.Body) != tc.body || c.Wire.Version != tc.version || c.Wire.Header.Get("Authorization") != "" {
				t.Errorf("the wire: %+v", c.Wire)
			}
		})
	}
}

func chef() canonical.Description {
	return canonical.Description{
		Name: "Chef", Version: "9", Description: "cooks", Versions: []string{"1.0"},
		Capabilities: []canonical.Capability{
			{ID: "cook a meal", Title: "Cook", Description: "d", Profile: canonical.ProfileMessage, Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"security":["inner"]}`)}},
		},
		Extensions: canonical.Extensions{"a2a-v1": json.RawMessage(`{"securitySchemes":{"inner":{}}}`)},
	}
}

// TestServer_AnswersFromTheDirectory: what is no delegation leaves no trace in the pipeline.
func TestServer_AnswersFromTheDirectory(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		header http.Header
		body   string
		want   []string
	}{
		"discover": {
			modernHeader("server/discover", ""), `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`,
			[]string{`"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`, `"name":"Chef"`, `"capabilities":{"tools":{},"resources":{}}`, `"resultType":"complete"`, `"instructions":"cooks"`},
		},
		"initialize": {
			legacyHeader(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			[]string{`"protocolVersion":"2025-11-25"`, `"serverInfo":{"name":"Chef","version":"9"`},
		},
		"initialize, older": {
			legacyHeader(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			[]string{`"protocolVersion":"2025-03-26"`, `"serverInfo":{"name":"Chef","version":"9"}`},
		},
		"initialize, June": {
			legacyHeader(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			[]string{`"protocolVersion":"2025-06-18"`},
		},
		"initialize, too old": {
			legacyHeader(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-10-07","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			[]string{`"protocolVersion":"2025-11-25"`},
		},
		"initialize, too new": {
			legacyHeader(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			[]string{`"protocolVersion":"2025-11-25"`},
		},
		"June list":  {with(legacyHeader(), "Mcp-Protocol-Version", mcp.LegacyJune), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{`"title":"Cook"`, `"outputSchema":`}},
		"March list": {legacyHeader(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{`"tools":[{"name":"cook_a_meal","description":"d","inputSchema":`}},
		"modern list": {
			modernHeader("tools/list", ""), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`,
			[]string{`"name":"cook_a_meal"`, `"ttlMs":`, `"cacheScope":"private"`, `"required":["message"]`},
		},
		"legacy list": {legacyHeader(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{`"name":"cook_a_meal"`}},
		"ping":        {legacyHeader(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, []string{`"result":{}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &handler{description: chef()}
			got := knock(t, r, http.MethodPost, tc.header, tc.body)
			for _, want := range append(tc.want, `"id":1`) {
				if !strings.Contains(got.Body.String(), want) {
					t.Errorf("%s is not in %s", want, got.Body)
				}
			}
			if strings.Contains(got.Body.String(), "inner") || got.Header().Get("Mcp-Session-Id") != "" || len(r.calls) > 0 {
				t.Errorf("too much was said or done: %s %v", got.Body, got.Header())
			}
			if name != "ping" && (len(r.inquiries) != 1 || r.inquiries[0].Agent != "chef" || r.inquiries[0].Binding != mcp.Binding) {
				t.Errorf("inquiries: %+v", r.inquiries)
			}
		})
	}
}

func TestServer_AcceptsNotifications(t *testing.T) {
	t.Parallel()
	r := &handler{}
	got := knock(t, r, http.MethodPost, legacyHeader(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if got.Code != http.StatusAccepted || got.Body.Len() > 0 || len(r.calls)+len(r.inquiries) > 0 {
		t.Errorf("got %d %q", got.Code, got.Body)
	}
}

func TestToolsList_UnknownCursor(t *testing.T) {
	t.Parallel()
	got := knock(t, &handler{}, http.MethodPost, legacyHeader(), `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"x"}}`)
	if got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "-32602") {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
}

// TestServer_Refusals: the status, the code and the id of every refusal.
func TestServer_Refusals(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		method string
		header http.Header
		body   string
		status int
		code   int    // 0: no body
		id     string // as it must be echoed
	}{
		"GET":                     {method: http.MethodGet, status: 405},
		"DELETE":                  {method: http.MethodDelete, status: 405},
		"foreign origin":          {header: with(modernHeader("tools/call", "echo"), "Origin", "https://evil.example"), body: callBody, status: 403, code: -32600},
		"opaque origin":           {header: with(modernHeader("tools/call", "echo"), "Origin", "null"), body: callBody, status: 403, code: -32600},
		"form":                    {header: http.Header{"Content-Type": {"text/plain"}}, body: callBody, status: 415, code: -32602},
		"no media type":           {header: http.Header{}, body: callBody, status: 415, code: -32602},
		"accepts events only":     {header: with(modernHeader("tools/call", "echo"), "Accept", "text/event-stream"), body: callBody, status: 406, code: -32600},
		"accepts pictures":        {header: with(modernHeader("tools/call", "echo"), "Accept", "image/*"), body: callBody, status: 406, code: -32600},
		"compressed":              {header: with(modernHeader("tools/call", "echo"), "Content-Encoding", "gzip"), body: callBody, status: 415, code: -32602},
		"refuses JSON":            {header: with(modernHeader("tools/call", "echo"), "Accept", "application/json;q=0"), body: callBody, status: 406, code: -32600},
		"too large":               {header: legacyHeader(), body: `{"a":"` + strings.Repeat("x", 1<<12) + `"}`, status: 413},
		"not JSON":                {header: legacyHeader(), body: `{`, status: 400, code: -32700},
		"batch":                   {header: legacyHeader(), body: `[]`, status: 400, code: -32600},
		"broken token":            {header: with(modernHeader("tools/call", "echo"), "Execution-Context", "no token"), body: callBody, status: 400},
		"token too large":         {header: with(modernHeader("tools/call", "echo"), "Execution-Context", strings.Repeat("x", 20<<10)), body: callBody, status: 431},
		"no version header":       {header: without(modernHeader("tools/call", "echo"), "Mcp-Protocol-Version"), body: callBody, status: 400, code: -32020, id: `"c1"`},
		"no method header":        {header: without(modernHeader("tools/call", "echo"), "Mcp-Method"), body: callBody, status: 400, code: -32020, id: `"c1"`},
		"no name header":          {header: modernHeader("tools/call", ""), body: callBody, status: 400, code: -32020, id: `"c1"`},
		"another method header":   {header: modernHeader("tools/list", "echo"), body: callBody, status: 400, code: -32020, id: `"c1"`},
		"another name header":     {header: modernHeader("tools/call", "ECHO"), body: callBody, status: 400, code: -32020, id: `"c1"`},
		"another version header":  {header: with(modernHeader("tools/call", "echo"), "Mcp-Protocol-Version", mcp.Legacy), body: callBody, status: 400, code: -32020, id: `"c1"`},
		"unknown version":         {header: with(modernHeader("tools/call", "echo"), "Mcp-Protocol-Version", "1900-01-01"), body: callBody, status: 400, code: -32022, id: `"c1"`},
		"unknown version, legacy": {header: with(legacyHeader(), "Mcp-Protocol-Version", "2024-10-07"), body: `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, status: 400, code: -32022, id: "7"},
		"unknown version, notice": {header: with(legacyHeader(), "Mcp-Protocol-Version", "x"), body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`, status: 400, code: -32022},
		"unknown modern method":   {header: modernHeader("ping", ""), body: `{"jsonrpc":"2.0","id":7,"method":"ping","params":{` + meta + `}}`, status: 404, code: -32601, id: "7"},
		"unknown legacy method":   {header: legacyHeader(), body: `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen"}`, status: 200, code: -32601, id: "7"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.method == "" {
				tc.method = http.MethodPost
			}
			r := &handler{}
			got := knock(t, r, tc.method, tc.header, tc.body)
			if got.Code != tc.status || len(r.calls)+len(r.inquiries) > 0 {
				t.Errorf("got %d %s", got.Code, got.Body)
			}
			if tc.status == http.StatusMethodNotAllowed {
				if got.Header().Get("Allow") != "POST" || !strings.Contains(got.Body.String(), "POST a JSON-RPC message here") {
					t.Error("it does not say what is allowed")
				}
				return
			}
			checkFailure(t, got, tc.code, tc.id)
		})
	}
}

func checkFailure(t *testing.T, got *httptest.ResponseRecorder, code int, id string) {
	t.Helper()
	var env struct {
		ID    json.RawMessage
		Error struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(got.Body.Bytes(), &env); err != nil {
		t.Fatalf("%v: %s", err, got.Body)
	}
	if (code != 0 && env.Error.Code != code) || env.Error.Message == "" || string(env.ID) != id {
		t.Errorf("want code %d and id %s, got %s", code, id, got.Body)
	}
}

// TestServer_PipelineFailures: what HTTP clients act on keeps its status, and
// evidence of a failure goes back with it.
func TestServer_PipelineFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err    error
		status int
		header [2]string
	}{
		"unknown agent":   {&problem.UnknownAgentError{Agent: "chef"}, 404, [2]string{}},
		"unknown tool":    {&canonical.Error{Code: canonical.CodeSkillNotFound, Message: "no such tool"}, 200, [2]string{}},
		"unauthenticated": {&problem.UnauthenticatedError{}, 401, [2]string{"Www-Authenticate", ""}},
		"no evidence":     {ect.ErrRequired, 403, [2]string{}},
		"limited":         {&limit.ExceededError{RetryAfter: 1500 * time.Millisecond}, 429, [2]string{"Retry-After", "2"}},
		"draining":        {&problem.DrainingError{}, 503, [2]string{"Retry-After", ""}},
		"timeout":         {&transport.TimeoutError{Agent: "chef", After: time.Second}, 504, [2]string{}},
		"unreachable":     {&transport.UnreachableError{Agent: "chef", Err: errors.New("secret detail")}, 200, [2]string{}},
		"to be approved":  {&problem.ApprovalError{ID: "1", State: "pending"}, 200, [2]string{"Retry-After", ""}},
		"denied":          {&problem.ApprovalError{ID: "1", State: "denied"}, 200, [2]string{}},
		"anything else":   {errors.New("secret detail"), 200, [2]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &handler{err: tc.err, answer: transport.Answer{Evidence: []string{"e.r.r"}}}
			got := knock(t, r, http.MethodPost, modernHeader("tools/call", "echo"), callBody)
			if got.Code != tc.status {
				t.Errorf("got %d, want %d: %s", got.Code, tc.status, got.Body)
			}
			checkFailure(t, got, 0, `"c1"`)
			if value := got.Header().Get(tc.header[0]); tc.header[0] != "" && (value == "" || tc.header[1] != "" && value != tc.header[1]) {
				t.Errorf("%s: got %q", tc.header[0], value)
			}
			if got.Header().Get("Execution-Context") != "e.r.r" || bytes.Contains(got.Body.Bytes(), []byte("secret")) {
				t.Errorf("evidence lost or too much said: %v %s", got.Header(), got.Body)
			}
		})
	}
}

func TestServer_AllowedOrigins(t *testing.T) {
	t.Parallel()
	for _, origin := range []string{"https://gw.example", "http://localhost:3000", "http://127.0.0.1", "http://[::1]:8080"} {
		got := knock(t, &handler{}, http.MethodPost, with(legacyHeader(), "Origin", origin), `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		if got.Code != http.StatusOK {
			t.Errorf("%s: got %d", origin, got.Code)
		}
	}
}

func TestNew_IncompleteDeps(t *testing.T) {
	t.Parallel()
	if _, err := wire.NewServer(wire.ServerDeps{}); err == nil {
		t.Error("a door without a codec")
	}
	if _, err := wire.NewDialer(wire.DialerDeps{}); err == nil {
		t.Error("a dialer without a client")
	}
}

// TestServer_ResponseThatIsNotTaken: a response that cannot be taken is answered with an
// HTTP error (MCP 2025-11-25, Streamable HTTP, Sending Messages to the Server, item 4).
func TestServer_ResponseThatIsNotTaken(t *testing.T) {
	t.Parallel()
	unknown := &handler{err: &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "nothing was asked under this id"}}
	for name, tc := range map[string]struct {
		exchanger *handler
		body      string
	}{
		"no jsonrpc":       {&handler{}, `{"id":"s1","result":{"action":"accept"}}`},
		"result and error": {&handler{}, `{"jsonrpc":"2.0","id":"s1","result":{},"error":{"code":1,"message":"x"}}`},
		"neither":          {&handler{}, `{"jsonrpc":"2.0","id":"s1"}`},
		"no id":            {&handler{}, `{"jsonrpc":"2.0","result":{}}`},
		"not an object":    {&handler{}, `{"jsonrpc":"2.0","id":"s1","error":"x"}`},
		"no object":        {&handler{}, `{"jsonrpc":"2.0","id":"s1","result":7}`},
		"unknown":          {unknown, `{"jsonrpc":"2.0","id":"s1","result":{"action":"accept"}}`},
	} {
		got := knock(t, tc.exchanger, http.MethodPost, with(legacyHeader(), "Mcp-Protocol-Version", mcp.Legacy), tc.body)
		if got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), `"error":{"code":-32`) {
			t.Errorf("%s: %d %s, want 400 and an error", name, got.Code, got.Body)
		}
	}
}
