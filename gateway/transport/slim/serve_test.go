package slim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	form "github.com/aepb/aepb-gateway/translators/slim"
)

// script is a road that does as it is told.
type script struct {
	refuse, limit error
	answer        transport.Answer
	calls         []transport.Call
	limits        int // how often Limit was asked
}

func (s *script) Limit(ctx context.Context, _ transport.CallInfo) (limit.Pass, error) {
	s.limits++
	return transporttest.Pass(cmp.Or(transport.Refusal(ctx), s.limit))
}

func (s *script) Admit(_ context.Context, q transport.CallInfo) error {
	if !q.Pass.Valid() {
		return limit.ErrNoPass
	}
	return s.refuse
}

func (s *script) Exchange(_ context.Context, call transport.Call) (transport.Answer, error) {
	s.calls = append(s.calls, call)
	if !call.Pass.Valid() {
		return transport.Answer{}, limit.ErrNoPass
	}
	return s.answer, s.refuse
}

func (s *script) Describe(_ context.Context, q transport.CallInfo) (*canonical.Description, error) {
	if !q.Pass.Valid() {
		return nil, limit.ErrNoPass
	}
	return &canonical.Description{Capabilities: []canonical.Capability{{ID: "add", Extensions: canonical.Extensions{"mcp-v1": json.RawMessage(`{"secret":1}`)}}}}, s.refuse
}

// notified keeps what a caller is told.
type notified struct{ frames []rpc.Frame }

func (o *notified) Send(_ context.Context, f rpc.Frame) error {
	o.frames = append(o.frames, f)
	return nil
}

// endpointFor is a door whose callers are who.
func endpointFor(road transport.Handler, who, anonymous ect.Identity) *exposedAgent {
	l := &Listener{deps: ListenerDeps{Form: form.New(translators.Config{}), Anonymous: anonymous, Version: "9"}}
	return &exposedAgent{l: l, node: &node{NodeConfig: NodeConfig{Address: "n:1", Org: "org", Namespace: "ns", Caller: who, Secret: []byte("s")}}, agent: "a", handler: road, revisions: map[talkKey]string{}}
}

func callOf(service, method, body string, metadata map[string]string) rpc.Call {
	return rpc.Call{
		Request: rpc.Request{Service: service, Method: method, Body: []byte(body), Metadata: metadata},
		From:    name.Name{Org: "org", Namespace: "ns", Service: "alice"},
	}
}

// TestListener_Refusals says how each call that is not served is answered, exactly.
func TestListener_Refusals(t *testing.T) {
	t.Parallel()
	const me = "spiffe://x/alice"
	evidence := func(value string) map[string]string { return map[string]string{keyEvidence: value} }
	for name, c := range map[string]struct {
		road            *script
		who             ect.Identity
		service, method string
		metadata        map[string]string
		code            rpc.Code
		text            string
		reached         bool // the pipeline
	}{
		"no such service":           {&script{}, me, "x.Service", "SendMessage", nil, rpc.Unimplemented, "no such service", false},
		"another version":           {&script{}, me, ServiceA2A, "SendMessage", map[string]string{keyVersion: "0.3"}, rpc.Unimplemented, "VersionNotSupportedError: over SLIM this agent speaks A2A 1.0", false},
		"another version, capital":  {&script{}, me, ServiceA2A, "SendMessage", map[string]string{"A2A-Version": "0.3"}, rpc.Unimplemented, "VersionNotSupportedError: over SLIM this agent speaks A2A 1.0", false},
		"nobody":                    {&script{}, "", ServiceA2A, "SendMessage", nil, 16, "UnauthenticatedError: ", false},
		"nobody asks for a card":    {&script{}, "", ServiceA2A, methodCard, nil, 16, "UnauthenticatedError: ", false},
		"too often":                 {&script{limit: &canonical.Error{Code: canonical.CodeRateLimited, Message: "slower"}}, me, ServiceA2A, "SendMessage", nil, rpc.ResourceExhausted, "RateLimitedError: slower", false},
		"evidence too long":         {&script{}, me, ServiceA2A, "SendMessage", evidence(strings.Repeat("x", 9<<10)), 7, "ForbiddenError: ", false},
		"the pipeline: unknown":     {&script{refuse: &problem.UnknownAgentError{Agent: "a"}}, me, ServiceA2A, "SendMessage", nil, rpc.NotFound, "", true},
		"the pipeline: unreachable": {&script{refuse: &transport.UnreachableError{Agent: "a"}}, me, ServiceA2A, "SendMessage", nil, rpc.Unavailable, "UnavailableError: ", true},
		"the pipeline: too slow":    {&script{refuse: &transport.TimeoutError{Agent: "a"}}, me, ServiceA2A, "SendMessage", nil, rpc.DeadlineExceeded, "TimeoutError: ", true},
		"the pipeline: bad reply":   {&script{refuse: &transport.BadReplyError{Agent: "a", Reason: "no"}}, me, ServiceA2A, "SendMessage", nil, rpc.Internal, "InvalidAgentResponseError: ", true},
		"the pipeline: no method":   {&script{refuse: &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such method"}}, me, ServiceA2A, "Nothing", nil, rpc.Unimplemented, "MethodNotFoundError: no such method", true},
		"the pipeline: bad params":  {&script{refuse: &canonical.Error{Code: canonical.CodeBadParams, Message: "x: y"}}, me, ServiceA2A, "SendMessage", nil, rpc.InvalidArgument, "InvalidParamsError: x: y", true},
		"the pipeline: malformed":   {&script{refuse: &translators.MalformedError{Reason: "no"}}, me, ServiceA2A, "SendMessage", nil, rpc.InvalidArgument, "InvalidRequestError: ", true},
		"the pipeline: too large":   {&script{refuse: &http.MaxBytesError{Limit: 1}}, me, ServiceA2A, "SendMessage", nil, rpc.InvalidArgument, "InvalidRequestError: ", true},
		"the pipeline: forbidden":   {&script{refuse: &canonical.Error{Code: canonical.CodeForbidden, Message: "no"}}, me, ServiceA2A, "SendMessage", nil, 7, "ForbiddenError: no", true},
		"the pipeline: secret":      {&script{refuse: errors.New("a secret")}, me, ServiceA2A, "SendMessage", nil, rpc.Internal, "InternalError: ", true},
		"the directory: no entry":   {&script{refuse: &problem.UnknownAgentError{Agent: "a"}}, me, ServiceA2A, methodCard, nil, rpc.NotFound, "", false},
		"the agent itself fails":    {&script{answer: transporttest.Answer(translators.Wire{Form: form.FormRPC, Status: 5, Body: []byte("TaskNotFoundError: gone")})}, me, ServiceA2AOld, "GetTask", nil, rpc.NotFound, "TaskNotFoundError: gone", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &notified{}
			err := endpointFor(c.road, c.who, "").Serve(t.Context(), callOf(c.service, c.method, "", c.metadata), out)
			status, ok := errors.AsType[*rpc.StatusError](err)
			if !ok || status.Code != c.code || !strings.HasPrefix(status.Message, c.text) || strings.Contains(status.Message, "secret") {
				t.Errorf("%v %+v, want %d %s", err, status, c.code, c.text)
			}
			if len(out.frames) != 0 || (len(c.road.calls) > 0) != c.reached {
				t.Errorf("%d frames, %d calls", len(out.frames), len(c.road.calls))
			}
		})
	}
}

// TestAttack_CallerAmongTokensOverSLIM: who has a token of SLIM with the id that an access token would give is not that caller.
func TestAttack_CallerAmongTokensOverSLIM(t *testing.T) {
	t.Parallel()
	for who, want := range map[ect.Identity]bool{"spiffe://x/oauth/corp/users/ann": false, "spiffe://x/oauth": true, "spiffe://y/oauth/corp/users/ann": true} {
		handler := &script{answer: transporttest.Answer(translators.Wire{Form: form.FormRPC, Body: []byte("answer")})}
		agent := endpointFor(handler, who, "spiffe://x/anonymous")
		agent.l.deps.Reserved = "spiffe://x/oauth/"
		err := agent.Serve(t.Context(), callOf(ServiceA2A, "SendMessage", "text", nil), &notified{})
		if (err == nil) != want || (len(handler.calls) == 1) != want {
			t.Errorf("%s: %v, %d calls", who, err, len(handler.calls))
		}
	}
}

// TestListener_PassesCallToPipeline what the pipeline needs to know, and the pipeline's answer.
func TestListener_PassesCallToPipeline(t *testing.T) {
	t.Parallel()
	handler := &script{answer: transporttest.Answer(translators.Wire{Form: form.FormRPC, Body: []byte("answer")}, "one", "two")}
	out := &notified{}
	err := endpointFor(handler, "", "spiffe://x/anonymous").Serve(t.Context(), callOf(ServiceA2AOld, "SendMessage", "asked", map[string]string{
		keyVersion: "1.0", "A2A-Extensions": "https://x.example/a,https://x.example/b", keyCallback: "https://x.example/told",
	}), out)
	if err != nil || len(out.frames) != 1 || string(out.frames[0].Body) != "answer" || out.frames[0].Metadata[keyEvidence] != "one,two" {
		t.Fatalf("%v %+v", err, out.frames)
	}
	call := handler.calls[0]
	if call.Caller.ID != "spiffe://x/anonymous" || !call.Caller.Anonymous || call.Address != "slim:org/ns/alice" || call.Agent != "a" || !call.Pass.Valid() || handler.limits != 1 || !call.Detached {
		t.Errorf("%+v", call)
	}
	if got := call.Wire.Header; got.Get("A2A-Extensions") != "https://x.example/a,https://x.example/b" || got.Get(form.FieldCallback) != "https://x.example/told" {
		t.Errorf("%v", got)
	}
	if w := call.Wire; w.Form != form.FormRPC || w.Media != MediaProto || w.Path != "/"+ServiceA2AOld+"/SendMessage" || string(w.Body) != "asked" {
		t.Errorf("%+v", w)
	}
}

// TestCard_NamesTheBindingAsReleasedClientsDo: the binding's document and slima2a 0.9.3
// want the agent's name alone.
func TestCard_NamesTheBindingAsReleasedClientsDo(t *testing.T) {
	t.Parallel()
	out := &notified{}
	if err := endpointFor(&script{}, "spiffe://x/alice", "").Serve(t.Context(), callOf(ServiceA2A, methodCard, "", nil), out); err != nil || len(out.frames) != 1 {
		t.Fatalf("%v %+v", err, out.frames)
	}
	wire, err := Unframe(translators.Wire{
		Binding: form.Binding, Version: form.VersionA2A, Form: form.FormRPC, Media: MediaProto,
		Path: "/" + ServiceA2A + "/" + methodCard, Body: out.frames[0].Body, Re: canonical.OpDescribe,
	})
	if err != nil {
		t.Fatal(err)
	}
	read, err := form.New(translators.Config{}).Decode(wire)
	if err != nil {
		t.Fatal(err)
	}
	shown, _ := read.Body.(*canonical.Description)
	want := []canonical.Interface{
		{URL: "org/ns/a", Transport: "https://a2a-protocol.org/bindings/experimental-slimrpc/v1", Version: "1.0"},
		{URL: "org/ns/a", Transport: "slimrpc", Version: "1.0"},
		{URL: "slim://n:1/org/ns/a", Transport: "https://a2a-protocol.org/bindings/experimental-slimrpc", Version: "1.0"},
	}
	if !slices.Equal(shown.Interfaces, want) {
		t.Errorf("%+v", shown.Interfaces)
	}
	for _, f := range shown.Interfaces { // as they are read from cards of others
		if at, err := ParseAddress(f.URL); err != nil || at.Name.Base() != "org/ns/a" {
			t.Errorf("%s: %+v %v", f.URL, at, err)
		}
	}
}

// events of a script.
type scripted struct {
	list   []transport.Event
	err    error
	closed bool
}

func (s *scripted) Next(context.Context) (transport.Event, error) {
	if len(s.list) == 0 {
		return transport.Event{}, s.err
	}
	event := s.list[0]
	s.list = s.list[1:]
	return event, nil
}

func (s *scripted) Close() error {
	s.closed = true
	return nil
}

// TestListener_StreamsWithClosingEvidence: each event is a response; the evidence that closes a stream
// comes last, for those who know evidence; a stream that breaks off says so.
func TestListener_StreamsWithClosingEvidence(t *testing.T) {
	t.Parallel()
	event := func(body string) transport.Event {
		return transport.Event{Wire: translators.Wire{Form: form.FormRPC, Body: []byte(body)}}
	}
	token := "eyJhbGciOiJFUzI1NiJ9.e30.AA"
	for name, c := range map[string]struct {
		metadata map[string]string
		err      error
		frames   int
		code     rpc.Code
	}{
		"to its end":             {nil, io.EOF, 2, rpc.OK},
		"with closing evidence":  {map[string]string{keyEvidence: token}, io.EOF, 3, rpc.OK},
		"broken off":             {nil, &transport.BadReplyError{Agent: "a", Reason: "it ended before its last event"}, 2, rpc.Internal},
		"broken off and unknown": {nil, io.ErrUnexpectedEOF, 2, rpc.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream := &scripted{list: []transport.Event{event("1"), event("2"), {Evidence: []string{"closing"}}}, err: c.err}
			out := &notified{}
			err := endpointFor(&script{answer: transporttest.Stream(stream, "opening")}, "spiffe://x/y", "").
				Serve(t.Context(), callOf(ServiceA2A, "SendStreamingMessage", "", c.metadata), out)
			status := &rpc.StatusError{}
			if errors.As(err, &status); status.Code != c.code || len(out.frames) != c.frames || !stream.closed {
				t.Fatalf("%v, %d frames", err, len(out.frames))
			}
			if out.frames[0].Metadata[keyEvidence] != "opening" || out.frames[1].Metadata[keyEvidence] != "" {
				t.Errorf("%+v", out.frames)
			}
			if c.frames == 3 && out.frames[2].Metadata[keyEvidence] != "closing" {
				t.Errorf("%+v", out.frames[2])
			}
		})
	}
}

// TestListener_PlainJSONRPC says how each JSON-RPC message is answered; "": not at all.
func TestListener_PlainJSONRPC(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		who        ect.Identity
		body, want string
		reached    bool
	}{
		"ping":              {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, false},
		"tools":             {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"name":"add"`, false},
		"initialize":        {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, `"protocolVersion":"2025-03-26"`, false},
		"notification":      {"spiffe://x/y", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", false},
		"call":              {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"}}`, "answer", true},
		"A2A":               {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}}`, "answer", true},
		"A2A stream":        {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}}`, `"code":-32004`, false},
		"A2A no method":     {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"Nothing","params":{}}`, `"code":-32601`, false},
		"A2A bad params":    {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{}}`, `"code":-32602`, false},
		"no name of a tool": {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, `"code":-32600`, false},
		"a method twice":    {"spiffe://x/y", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}`, "", false},
		"nobody":            {"", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"error"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := &script{answer: transporttest.Answer(translators.Wire{Body: []byte("answer")})}
			out := &notified{}
			if err := endpointFor(handler, c.who, "").Serve(t.Context(), callOf("", "", c.body, nil), out); err != nil {
				t.Fatal(err)
			}
			got := ""
			if len(out.frames) > 0 {
				got = string(out.frames[0].Body)
			}
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Contains(got, "secret") || (len(handler.calls) > 0) != c.reached {
				t.Errorf("%q, want %q; %d calls", got, c.want, len(handler.calls))
			}
		})
	}
}

// TestListener_CancelInItsSession: what MCP asks for can be stopped in the session that it
// came in. Its newest revision stops it by leaving; A2A does not stop requests.
func TestListener_CancelInItsSession(t *testing.T) {
	t.Parallel()
	const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	at := "slim " + callOf("", "", "", nil).From.String() + " 5"
	handler := &script{}
	d := endpointFor(handler, "spiffe://x/y", "")
	for i, c := range []struct {
		body     string
		session  string
		detached bool
		answers  int
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add"}}`, at, true, 1},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, at, true, 0},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"add",` + modern + `}}`, at, false, 1},
		{`{"jsonrpc":"2.0","id":8,"method":"prompts/list"}`, "", true, 1},
		{`{"jsonrpc":"2.0","id":9,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}}`, "", true, 1},
	} {
		call, out := callOf("", "", c.body, nil), &notified{}
		call.Session = 5
		if err := d.Serve(t.Context(), call, out); err != nil {
			t.Fatal(err)
		}
		if got := handler.calls[i]; got.Session != c.session || got.Detached != c.detached || len(out.frames) != c.answers {
			t.Errorf("%s: session %q, detached %t, %d answers", c.body, got.Session, got.Detached, len(out.frames))
		}
	}
}

// TestListener_RevisionOfASession: who agreed on a revision is answered in it.
func TestListener_RevisionOfASession(t *testing.T) {
	t.Parallel()
	d := endpointFor(&script{}, "spiffe://x/y", "")
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}`,
	} {
		if err := d.Serve(t.Context(), callOf("", "", body, nil), &notified{}); err != nil {
			t.Fatal(err)
		}
	}
	road, _ := d.handler.(*script)
	if got := road.calls[0].Wire.Version; got != form.VersionMCP(mcp.LegacyMarch) {
		t.Error(got)
	}
	if got := road.calls[1].Wire.Version; got != form.VersionA2A { // from the same place, for somebody else
		t.Error(got)
	}
}

// TestListener_RevisionsOfConcurrentSessions: in each session of one caller the revision is its own,
// and forgotten with it.
func TestListener_RevisionsOfConcurrentSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := &script{}
		d := endpointFor(handler, "spiffe://x/y", "")
		over := []context.CancelFunc{}
		revisions := []string{mcp.LegacyMarch, mcp.LegacyJune}
		for i, body := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"REVISION","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add"}}`,
		} {
			for j, revision := range revisions {
				call := callOf("", "", strings.Replace(body, "REVISION", revision, 1), nil)
				call.Session = uint32(j + 1)
				session, end := context.WithCancel(t.Context())
				if over = append(over, end); i > 0 {
					defer end()
				}
				if err := d.Serve(session, call, &notified{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for j, revision := range revisions {
			if got := handler.calls[j].Wire.Version; got != form.VersionMCP(revision) {
				t.Errorf("%s, not %s", got, revision)
			}
		}
		for _, end := range over {
			end()
		}
		synctest.Wait()
		if len(d.revisions) > 0 {
			t.Errorf("%d sessions are remembered", len(d.revisions))
		}
	})
}

// TestListener_Drain: what runs is waited for, and nothing new begins.
func TestListener_Drain(t *testing.T) {
	t.Parallel()
	d := endpointFor(&script{}, "spiffe://x/y", "")
	if !d.l.enter() {
		t.Fatal("closed from the start")
	}
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() { d.l.drain(cancel); close(drained) }()
	for d.l.enter() {
		d.l.calls.Done()
	}
	if ctx.Err() != nil {
		t.Error("a call was not waited for")
	}
	d.l.calls.Done()
	<-drained
	if ctx.Err() == nil {
		t.Error("the end was not told")
	}
	err := d.Serve(t.Context(), callOf(ServiceA2A, "SendMessage", "", nil), &notified{})
	if status, ok := errors.AsType[*rpc.StatusError](err); !ok || status.Code != rpc.Unavailable {
		t.Error(err)
	}
}
