package main

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
		must(t, err)
		events, tokens = append(events, w.Body), append(tokens, inside)
	}
	return events, tokens
}

// TestStreamsWithECTsInTheBody: a caller that does not see the header finds what opens
// its stream in the first event, and in the last what closes it, which is about all of
// them as they were before insertion (R5).
func TestStreamsWithECTsInTheBody(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Peers: insiders("insider")}})
	via := b.caller(t, b.svid(t, "/insider"))
	streaming := func(body string) string { return strings.Replace(body, "SendMessage", "SendStreamingMessage", 1) }
	progress := func(body string) string {
		return strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":"p",`, 1)
	}
	version := map[string]string{"A2A-Version": "1.0"}
	for name, c := range map[string]struct {
		binding canonical.Binding
		l       letter
		says    string
	}{
		"A2A of MCP":       {a2a.Binding, letter{at: doorA2A, body: streaming(addBody(40)), header: version}, `"sum":41`},
		"A2A relayed":      {a2a.Binding, letter{at: "/agents/concierge/a2a", body: streaming(textBody("hi")), header: version}, "You said: hi"},
		"A2A 0.3 of A2A 1": {a2a.Binding, letter{at: "/agents/concierge/a2a", body: strings.NewReplacer("SendMessage", "message/stream", `"messageId"`, `"kind":"message","messageId"`, "ROLE_USER", "user", `{"text"`, `{"kind":"text","text"`).Replace(textBody("hi"))}, "You said: hi"},
		"MCP of A2A":       {mcp.Binding, letter{at: doorMCP, body: progress(callBody("concierge", "hi")), header: mirror("tools/call", "concierge")}, "You said: hi"},
	} {
		c.l.via = via
		got := b.send(t, c.l)
		events, tokens := eventsIn(t, c.binding, got.body)
		if len(events) == 0 || !strings.Contains(string(got.body), c.says) {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
			continue
		}
		header, last := got.header.Values(ect.HeaderName), tokens[len(tokens)-1]
		if len(header) == 0 || !slices.Equal(tokens[0][:min(len(header), len(tokens[0]))], header) {
			t.Errorf("%s: the first event has %d tokens, the header %d", name, len(tokens[0]), len(header))
		}
		if len(last) == 0 {
			t.Errorf("%s: the last of %d events has no token: %s", name, len(events), got.body)
			continue
		}
		var whole ect.StreamHash
		for _, event := range events {
			whole.Add(event)
		}
		v, err := b.judge.Verify(t.Context(), last[len(last)-1], ect.Check{Purpose: ect.Parent})
		must(t, err)
		form, _ := v.Extension(ect.ExtHashForm)
		if state, _ := v.Extension(ect.ExtStream); state != "close" || v.Claims().OutputHash != whole.Sum() || form != embedded.HashForm {
			t.Errorf("%s: the last token %ss a stream, of %d events, %q, and is about it: %t", name, state, len(events), form, v.Claims().OutputHash == whole.Sum())
		}
	}
	b.works(t)
}

// TestAgentStreamsWithECTsInTheBody: the tokens in an agent's events become parents of
// ours, and the last is held to all that was said.
func TestAgentStreamsWithECTsInTheBody(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Peers: insiders("inner")}})
	svid := b.svid(t, "/inner")
	who := b.party(t, svid)
	var mu sync.Mutex // an agent that is not believed is told to stop, later
	lie, minted := "", map[string][]ect.ID{}
	f := &fake{}
	f.silly = saying(func(good []byte) []byte {
		return []byte(strings.Replace(string(good), `"capabilities":{}`, `"capabilities":{"streaming":true}`, 1))
	})
	f.conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		asked, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		must(t, err)
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
			claims := ect.Claims{ID: ect.NewID(), Act: "said", Audience: []string{b.self()}, Workflow: asked.Workflow, Parents: []ect.ID{asked.ID}}
			if strings.Contains(event, "COMPLETED") {
				claims.OutputHash = whole.Sum()
				if lie != "" {
					claims.OutputHash = lie
				}
			}
			minted[asked.Workflow] = append(minted[asked.Workflow], claims.ID)
			with, ok := embedded.Insert(codecOf(a2a.Binding), translators.Wire{Binding: a2a.Binding, Re: canonical.OpInvoke, Event: true, Body: body}, []string{ecttest.Mint(t, who, ecttest.Recipe{Claims: claims})})
			if !ok {
				t.Errorf("no place in %s", body)
			}
			_, _ = io.WriteString(w, "data: "+string(with.Body)+"\n\n")
		}
	}
	b.serve(t, "inner", a2a.Binding, f, host{tls: serving(svid), id: svid.ID})
	for name, l := range map[string]letter{
		"relayed":    {at: "/agents/inner/a2a", body: strings.Replace(textBody("hi"), "SendMessage", "SendStreamingMessage", 1), header: map[string]string{"A2A-Version": "1.0"}},
		"translated": {at: "/agents/inner/mcp", body: callBody("fake", "hi"), header: mirror("tools/call", "fake")},
	} {
		got := b.send(t, l)
		if !strings.Contains(string(got.body), "done") || strings.Contains(string(got.body), "translation:1/ect") {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
		opened := b.proofs(t, got)[0]
		var named []ect.ID
		for _, c := range b.workflow(t, b.client, opened.Workflow) {
			if string(c.Issuer) == b.self() {
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
		if got := b.send(t, l); !strings.Contains(string(got.body), `"error"`) && !strings.Contains(string(got.body), "FAILED") {
			t.Errorf("%s: a token about another stream: got %d %s", name, got.status, got.body)
		}
		mu.Lock()
		lie = ""
		mu.Unlock()
	}
	b.works(t)
}

// TestErrorsWithECTsInTheBody: in errors they are among the details, or in the data,
// in both directions; whoever says the error.
func TestErrorsWithECTsInTheBody(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Peers: insiders("insider", "inner")}})
	via, svid := b.caller(t, b.svid(t, "/insider")), b.svid(t, "/inner")
	who := b.party(t, svid)
	jtis := make(chan ect.ID, 8)
	b.serve(t, "inner", mcp.Binding, &fake{conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		asked, _, err := ect.ParseUnverified(r.Header.Get(ect.HeaderName))
		must(t, err)
		head, _, _ := strings.Cut(string(good), `"result"`)
		body := []byte(head + `"error":{"code":-32602,"message":"not like this","data":{"why":1}}}`)
		claims := ect.Claims{ID: ect.NewID(), Act: "refused", Audience: []string{b.self()}, Workflow: asked.Workflow, Parents: []ect.ID{asked.ID}, OutputHash: ect.Hash(body)}
		jtis <- claims.ID
		with, ok := embedded.Insert(codecOf(mcp.Binding), translators.Wire{Binding: mcp.Binding, Re: canonical.OpInvoke, Body: body}, []string{ecttest.Mint(t, who, ecttest.Recipe{Claims: claims})})
		if !ok {
			t.Error("no place for the token")
		}
		well(w, r, with.Body)
	}}, host{tls: serving(svid), id: svid.ID})
	version := map[string]string{"A2A-Version": "1.0"}
	noTask := `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"none"}}`
	echo := strings.Replace(callBody("echo", "hi"), `"message"`, `"x"`, 1)
	for name, c := range map[string]struct {
		binding canonical.Binding
		l       letter
		agents  bool // the error is the agent's
	}{
		"ours, in A2A":               {a2a.Binding, letter{at: doorA2A, body: noTask, header: version}, false},
		"ours, in A2A over HTTP":     {a2a.Binding, letter{at: doorA2A + "/tasks/none", method: http.MethodGet, header: version}, false},
		"ours, in MCP":               {mcp.Binding, letter{at: doorMCP, body: callBody("nothing", "hi"), header: mirror("tools/call", "nothing")}, false},
		"the agent's, in A2A":        {a2a.Binding, letter{at: "/agents/inner/a2a", body: strings.Replace(addBody(1), `"add"`, `"echo"`, 1), header: version}, true},
		"the agent's, as it was":     {mcp.Binding, letter{at: "/agents/inner/mcp", body: echo, header: mirror("tools/call", "echo")}, true},
		"the agent's, of our stream": {a2a.Binding, letter{at: "/agents/inner/a2a", body: strings.NewReplacer(`"add"`, `"echo"`, "SendMessage", "SendStreamingMessage").Replace(addBody(1)), header: version}, true},
	} {
		c.l.via = via
		got := b.send(t, c.l)
		body := []byte(strings.TrimPrefix(strings.TrimSpace(string(got.body)), "data: "))
		form := ""
		if c.l.method != "" {
			form = a2a.FormHTTP
		}
		w, tokens, err := embedded.Take(codecOf(c.binding), translators.Wire{Binding: c.binding, Form: form, Re: canonical.OpInvoke, Body: body})
		must(t, err)
		if header := got.header.Values(ect.HeaderName); len(header) == 0 || !slices.Equal(tokens, header) || !strings.Contains(string(w.Body), `"error"`) {
			t.Errorf("%s: in the body are %d tokens, in the header %d: %s", name, len(tokens), len(header), got.body)
			continue
		}
		if !c.agents {
			continue
		}
		id := <-jtis
		b.beforeECT(t, tokens, w.Body)
		if legs := b.proofs(t, got); !slices.Contains(legs[len(legs)-1].Parents, id) {
			t.Errorf("%s: the agent's token is no parent of ours", name)
		}
		if strings.Contains(string(w.Body), "aepb.gateway/ect") {
			t.Errorf("%s: its token went on in %s", name, w.Body)
		}
	}
	b.works(t)
}
