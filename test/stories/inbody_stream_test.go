package stories

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// codecOf is the protocol's, which has places for tokens.
func codecOf(binding canonical.Binding) translators.Translator {
	if binding == mcp.Binding {
		return mcp.New(translators.Config{})
	}
	return a2a.New(translators.Config{})
}

// eventsIn are the events of a stream without the tokens in them, and those tokens.
func eventsIn(t *testing.T, binding canonical.Binding, stream []byte) (events [][]byte, tokens [][]string) {
	t.Helper()
	for line := range strings.Lines(string(stream)) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		w, inside, err := embedded.Take(codecOf(binding), translators.Wire{Binding: binding, Re: canonical.OpInvoke, Event: true, Body: []byte(data)})
		gatewaytest.Must(t, err)
		events, tokens = append(events, w.Body), append(tokens, inside)
	}
	return events, tokens
}

// TestInBodyECT_StreamsToCallers: a caller that does not see the header finds what opens
// its stream in the first event, and in the last what closes it, which is about all of
// them as they were before insertion (R5).
func TestInBodyECT_StreamsToCallers(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Peers: insiders("insider")}})
	via := b.Caller(t, b.SVID(t, "/insider"))
	streaming := func(body string) string { return strings.Replace(body, "SendMessage", "SendStreamingMessage", 1) }
	progress := func(body string) string {
		return strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":"p",`, 1)
	}
	version := map[string]string{"A2A-Version": "1.0"}
	for name, c := range map[string]struct {
		binding canonical.Binding
		l       gatewaytest.HTTPRequest
		says    string
	}{
		"A2A of MCP":       {a2a.Binding, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: streaming(gatewaytest.AddBody(40)), Header: version}, `"sum":41`},
		"A2A relayed":      {a2a.Binding, gatewaytest.HTTPRequest{At: "/agents/concierge/a2a", Body: streaming(gatewaytest.TextBody("hi")), Header: version}, "You said: hi"},
		"A2A 0.3 of A2A 1": {a2a.Binding, gatewaytest.HTTPRequest{At: "/agents/concierge/a2a", Body: strings.NewReplacer("SendMessage", "message/stream", `"messageId"`, `"kind":"message","messageId"`, "ROLE_USER", "user", `{"text"`, `{"kind":"text","text"`).Replace(gatewaytest.TextBody("hi"))}, "You said: hi"},
		"MCP of A2A":       {mcp.Binding, gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: progress(gatewaytest.CallBody("concierge", "hi")), Header: gatewaytest.Mirror("tools/call", "concierge")}, "You said: hi"},
	} {
		c.l.Via = via
		got := b.Send(t, c.l)
		events, tokens := eventsIn(t, c.binding, got.Body)
		if len(events) == 0 || !strings.Contains(string(got.Body), c.says) {
			t.Errorf("%s: got %d %s", name, got.Status, got.Body)
			continue
		}
		header, last := got.Header.Values(ect.HeaderName), tokens[len(tokens)-1]
		if len(header) == 0 || !slices.Equal(tokens[0][:min(len(header), len(tokens[0]))], header) {
			t.Errorf("%s: the first event has %d tokens, the header %d", name, len(tokens[0]), len(header))
		}
		if len(last) == 0 {
			t.Errorf("%s: the last of %d events has no token: %s", name, len(events), got.Body)
			continue
		}
		var whole ect.StreamHash
		for _, event := range events {
			whole.Add(event)
		}
		v, err := b.Judge.Verify(t.Context(), last[len(last)-1], ect.Check{Purpose: ect.Parent})
		gatewaytest.Must(t, err)
		form, _ := v.Extension(ect.ExtHashForm)
		if state, _ := v.Extension(ect.ExtStream); state != "close" || v.Claims().OutputHash != whole.Sum() || form != embedded.HashForm {
			t.Errorf("%s: the last token %ss a stream, of %d events, %q, and is about it: %t", name, state, len(events), form, v.Claims().OutputHash == whole.Sum())
		}
	}
	b.Works(t)
}

// TestInBodyECT_StreamsOfAgents: the tokens in an agent's events become parents of
// ours, and the last is held to all that was said.
func TestInBodyECT_StreamsOfAgents(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Peers: insiders("inner")}})
	svid := b.SVID(t, "/inner")
	who := b.Party(t, svid)
	var mu sync.Mutex // an agent that is not believed is told to stop, later
	lie, minted := "", map[string][]ect.ID{}
	f := &gatewaytest.Fake{}
	f.Silly = gatewaytest.Saying(func(good []byte) []byte {
		return []byte(strings.Replace(string(good), `"capabilities":{}`, `"capabilities":{"streaming":true}`, 1))
	})
	f.Conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		request, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		gatewaytest.Must(t, err)
		head, _, _ := strings.Cut(string(good), `"result"`)
		w.Header().Set("Content-Type", "text/event-stream")
		var whole ect.StreamHash
		mu.Lock()
		defer mu.Unlock()
		for _, event := range []string{
			`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`,
			`{"artifactUpdate":{"taskId":"t","contextId":"c","lastChunk":true,"artifact":{"artifactId":"a","parts":[{"text":"done"}]}}}`,
			`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}`,
		} {
			body := []byte(head + `"result":` + event + `}`)
			whole.Add(body)
			claims := ect.Claims{ID: ect.NewID(), Act: "said", Audience: []string{b.Self()}, Workflow: request.Workflow, Parents: []ect.ID{request.ID}}
			if strings.Contains(event, "COMPLETED") {
				claims.OutputHash = whole.Sum()
				if lie != "" {
					claims.OutputHash = lie
				}
			}
			minted[request.Workflow] = append(minted[request.Workflow], claims.ID)
			with, ok := embedded.Insert(codecOf(a2a.Binding), translators.Wire{Binding: a2a.Binding, Re: canonical.OpInvoke, Event: true, Body: body}, []string{ecttest.Mint(t, who, ecttest.Recipe{Claims: claims})})
			if !ok {
				t.Errorf("no place in %s", body)
			}
			_, _ = io.WriteString(w, "data: "+string(with.Body)+"\n\n")
		}
	}
	b.Serve(t, "inner", a2a.Binding, f, gatewaytest.Host{TLS: gatewaytest.Serving(svid), ID: svid.ID})
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"relayed":    {At: "/agents/inner/a2a", Body: strings.Replace(gatewaytest.TextBody("hi"), "SendMessage", "SendStreamingMessage", 1), Header: map[string]string{"A2A-Version": "1.0"}},
		"translated": {At: "/agents/inner/mcp", Body: gatewaytest.CallBody("fake", "hi"), Header: gatewaytest.Mirror("tools/call", "fake")},
	} {
		got := b.Send(t, l)
		if !strings.Contains(string(got.Body), "done") || strings.Contains(string(got.Body), "translation:1/ect") {
			t.Errorf("%s: got %d %s", name, got.Status, got.Body)
		}
		opened := b.Proofs(t, got)[0]
		var named []ect.ID
		for _, c := range workflowFixture(t, b, b.Client, opened.Workflow) {
			if string(c.Issuer) == b.Self() {
				named = append(named, c.Parents...)
			}
		}
		mu.Lock()
		ids := minted[opened.Workflow]
		lie = ect.Hash([]byte("something else"))
		mu.Unlock()
		if len(ids) != 3 {
			t.Errorf("%s: the agent was asked for %d events", name, len(ids))
		}
		for i, id := range ids {
			if !slices.Contains(named, id) {
				t.Errorf("%s: the token in event %d is no parent of ours", name, i+1)
			}
		}
		if got := b.Send(t, l); !strings.Contains(string(got.Body), `"error"`) && !strings.Contains(string(got.Body), "FAILED") {
			t.Errorf("%s: a token about another stream: got %d %s", name, got.Status, got.Body)
		}
		mu.Lock()
		lie = ""
		mu.Unlock()
	}
	b.Works(t)
}

// TestInBodyECT_Errors: in errors they are among the details, or in the data,
// in both directions; whoever says the error.
func TestInBodyECT_Errors(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Peers: insiders("insider", "inner")}})
	via, svid := b.Caller(t, b.SVID(t, "/insider")), b.SVID(t, "/inner")
	who := b.Party(t, svid)
	jtis := make(chan ect.ID, 8)
	b.Serve(t, "inner", mcp.Binding, &gatewaytest.Fake{Conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		request, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		gatewaytest.Must(t, err)
		head, _, _ := strings.Cut(string(good), `"result"`)
		body := []byte(head + `"error":{"code":-32602,"message":"not like this","data":{"why":1}}}`)
		claims := ect.Claims{ID: ect.NewID(), Act: "refused", Audience: []string{b.Self()}, Workflow: request.Workflow, Parents: []ect.ID{request.ID}, OutputHash: ect.Hash(body)}
		jtis <- claims.ID
		with, ok := embedded.Insert(codecOf(mcp.Binding), translators.Wire{Binding: mcp.Binding, Re: canonical.OpInvoke, Body: body}, []string{ecttest.Mint(t, who, ecttest.Recipe{Claims: claims})})
		if !ok {
			t.Error("no place for the token")
		}
		gatewaytest.Well(w, r, with.Body)
	}}, gatewaytest.Host{TLS: gatewaytest.Serving(svid), ID: svid.ID})
	version := map[string]string{"A2A-Version": "1.0"}
	noTask := `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"none"}}`
	echo := strings.Replace(gatewaytest.CallBody("echo", "hi"), `"message"`, `"x"`, 1)
	for name, c := range map[string]struct {
		binding canonical.Binding
		l       gatewaytest.HTTPRequest
		agents  bool // the error is the agent's
	}{
		"ours, in A2A":               {a2a.Binding, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: noTask, Header: version}, false},
		"ours, in A2A over HTTP":     {a2a.Binding, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A + "/tasks/none", Method: http.MethodGet, Header: version}, false},
		"ours, in MCP":               {mcp.Binding, gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: gatewaytest.CallBody("nothing", "hi"), Header: gatewaytest.Mirror("tools/call", "nothing")}, false},
		"the agent's, in A2A":        {a2a.Binding, gatewaytest.HTTPRequest{At: "/agents/inner/a2a", Body: strings.Replace(gatewaytest.AddBody(1), `"add"`, `"echo"`, 1), Header: version}, true},
		"the agent's, as it was":     {mcp.Binding, gatewaytest.HTTPRequest{At: "/agents/inner/mcp", Body: echo, Header: gatewaytest.Mirror("tools/call", "echo")}, true},
		"the agent's, of our stream": {a2a.Binding, gatewaytest.HTTPRequest{At: "/agents/inner/a2a", Body: strings.NewReplacer(`"add"`, `"echo"`, "SendMessage", "SendStreamingMessage").Replace(gatewaytest.AddBody(1)), Header: version}, true},
	} {
		c.l.Via = via
		got := b.Send(t, c.l)
		body := []byte(strings.TrimPrefix(strings.TrimSpace(string(got.Body)), "data: "))
		form := ""
		if c.l.Method != "" {
			form = a2a.FormHTTP
		}
		w, tokens, err := embedded.Take(codecOf(c.binding), translators.Wire{Binding: c.binding, Form: form, Re: canonical.OpInvoke, Body: body})
		gatewaytest.Must(t, err)
		if header := got.Header.Values(ect.HeaderName); len(header) == 0 || !slices.Equal(tokens, header) || !strings.Contains(string(w.Body), `"error"`) {
			t.Errorf("%s: in the body are %d tokens, in the header %d: %s", name, len(tokens), len(header), got.Body)
			continue
		}
		if !c.agents {
			continue
		}
		id := <-jtis
		beforeECT(t, b, tokens, w.Body)
		if directions := b.Proofs(t, got); !slices.Contains(directions[len(directions)-1].Parents, id) {
			t.Errorf("%s: the agent's token is no parent of ours", name)
		}
		if strings.Contains(string(w.Body), "aepb.gateway/ect") {
			t.Errorf("%s: its token went on in %s", name, w.Body)
		}
	}
	b.Works(t)
}
