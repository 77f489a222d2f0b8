package stories

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// listServer is an MCP server that shows some tools only to clients that can be
// asked, and whose tools may become more. "plain" is there for all, "ask" for clients
// with elicitation, "look" for those with roots. It speaks 2026-07-28, or 2025-11-25
// in sessions.
type listServer struct {
	modern  bool
	changes bool   // it says that its list changes
	ttl     string // of what it says, in milliseconds; modern alone

	lists atomic.Int32 // requests for the list
	looks atomic.Int32 // calls of "look"
	hold  func()       // called by every call of "plain"; nil: it waits for nothing

	mu       sync.Mutex
	more     []string
	sessions map[string]*listSession
}

// listSession is what such a server knows of one session.
type listSession struct {
	can     map[string]json.RawMessage
	unasked chan string // what is said on its stand-alone stream
	answers sync.Map    // of the client: by id, channels of rpcEnvelope
}

type rpcEnvelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params struct {
		Name         string                     `json:"name"`
		Capabilities map[string]json.RawMessage `json:"capabilities"`
		Meta         struct {
			Capabilities map[string]json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	} `json:"params"`
}

// add gives the server one more tool, of which nothing is said.
func (s *listServer) add(tool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = append(s.more, tool)
}

func (s *listServer) tools(can map[string]json.RawMessage) string {
	names := []string{"plain"}
	var modes map[string]json.RawMessage
	elicits := json.Unmarshal(can["elicitation"], &modes) == nil && can["elicitation"] != nil
	if elicits && (modes["form"] != nil || len(modes) == 0) {
		names = append(names, "ask")
	}
	if modes["url"] != nil {
		names = append(names, "visit")
	}
	if can["sampling"] != nil {
		names = append(names, "think")
	}
	if can["roots"] != nil {
		names = append(names, "look")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, name := range append(names, s.more...) {
		list = append(list, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
	}
	return `"tools":[` + strings.Join(list, ",") + `]`
}

func (s *listServer) capabilities() string {
	return `"capabilities":{"tools":{"listChanged":` + strconv.FormatBool(s.changes) + `}}`
}

func (s *listServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	session := s.session(r.Header.Get("Mcp-Session-Id"))
	if r.Method == http.MethodGet && session != nil && !s.modern {
		s.stream(w, r, session)
		return
	}
	var m rpcEnvelope
	body, err := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || err != nil || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	answer := func(result string) {
		if s.modern {
			result = `"resultType":"complete",` + result
		}
		gatewaytest.Well(w, r, []byte(`{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{`+result+`}}`))
	}
	caching := ""
	can := m.Params.Meta.Capabilities
	if s.modern {
		caching = `"cacheScope":"private","ttlMs":` + s.ttl + `,`
	}
	if session != nil {
		can = session.can
	}
	switch {
	case m.Method == "" && session != nil:
		session.answer(string(m.ID)) <- m
		w.WriteHeader(http.StatusAccepted)
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "server/discover" && s.modern:
		answer(caching + `"supportedVersions":["2026-07-28"],` + s.capabilities())
	case m.Method == "initialize" && !s.modern:
		w.Header().Set("Mcp-Session-Id", s.begin(m.Params.Capabilities))
		answer(`"protocolVersion":"2025-11-25","serverInfo":{"name":"lists","version":"1"},` + s.capabilities())
	case m.Method == "tools/list":
		s.lists.Add(1)
		answer(caching + s.tools(can))
	case m.Method == "tools/call" && m.Params.Name == "ask" && session != nil:
		s.ask(w, r, session, m.ID)
	case m.Method == "tools/call" && m.Params.Name == "look" && session != nil:
		s.look(w, r, session, m.ID)
	case m.Method == "tools/call":
		if s.hold != nil {
			s.hold()
		}
		answer(`"content":[{"type":"text","text":"did ` + m.Params.Name + `"}]`)
	default:
		w.WriteHeader(http.StatusNotFound)
		gatewaytest.Well(w, r, []byte(`{"jsonrpc":"2.0","id":`+string(m.ID)+`,"error":{"code":-32601,"message":"no such method"}}`))
	}
}

func (s *listServer) session(id string) *listSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

func (s *listServer) begin(can map[string]json.RawMessage) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		s.sessions = map[string]*listSession{}
	}
	id := "s" + strconv.Itoa(len(s.sessions))
	s.sessions[id] = &listSession{can: can, unasked: make(chan string)}
	return id
}

// answer is where the client's answer to a request goes.
func (s *listSession) answer(id string) chan rpcEnvelope {
	at, _ := s.answers.LoadOrStore(id, make(chan rpcEnvelope, 1))
	return at.(chan rpcEnvelope) //nolint:forcetypeassert // nothing else is stored
}

// stream is the stand-alone stream of a session.
func (s *listServer) stream(w http.ResponseWriter, r *http.Request, session *listSession) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	for {
		select {
		case text := <-session.unasked:
			_, _ = io.WriteString(w, "data: "+text+"\n\n")
			_ = flush.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// ask asks in the stream that answers the call.
func (s *listServer) ask(w http.ResponseWriter, r *http.Request, session *listSession, id json.RawMessage) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"which?","requestedSchema":{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}}}`+"\n\n")
	_ = http.NewResponseController(w).Flush()
	s.conclude(w, r, session.answer(`"q"`), id)
}

// look asks on the stand-alone stream. A server whose client has none open waits.
func (s *listServer) look(w http.ResponseWriter, r *http.Request, session *listSession, id json.RawMessage) {
	w.Header().Set("Content-Type", "text/event-stream")
	q := `"q` + strconv.Itoa(int(s.looks.Add(1))) + `"`
	select {
	case session.unasked <- `{"jsonrpc":"2.0","id":` + q + `,"method":"roots/list"}`:
		s.conclude(w, r, session.answer(q), id)
	case <-r.Context().Done():
	}
}

// conclude waits for what the client answers, and ends the call with that.
func (s *listServer) conclude(w http.ResponseWriter, r *http.Request, answers <-chan rpcEnvelope, id json.RawMessage) {
	select {
	case got := <-answers:
		text, err := json.Marshal("heard " + string(got.Result) + string(got.Error))
		if err == nil {
			_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":`+string(id)+`,"result":{"content":[{"type":"text","text":`+string(text)+`}]}}`+"\n\n")
		}
	case <-r.Context().Done():
	}
}

// lists starts such a server and lists it.
func lists(t *testing.T, b *gatewaytest.Fixture, name string, s *listServer) {
	t.Helper()
	if s.ttl == "" {
		s.ttl = "300000"
	}
	server := httptest.NewUnstartedServer(s)
	server.TLS = gatewaytest.Serving(b.SVID(t, "/"+name))
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	b.List(t, name, "mcp-v1", server.URL+"/mcp", gatewaytest.Host{})
}

// toolsOf lists the tools of an agent over MCP, in 2026-07-28 or in a session of
// 2025-11-25 that it begins, for a client with these capabilities.
func toolsOf(t *testing.T, b *gatewaytest.Fixture, agent, capabilities string, modern bool) []string {
	t.Helper()
	l := gatewaytest.HTTPRequest{At: "/agents/" + agent + "/mcp", Header: map[string]string{"Accept": "application/json, text/event-stream"}}
	l.Body = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if modern {
		l.Header = gatewaytest.Mirror("tools/list", "")
		l.Body = `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + strings.Replace(gatewaytest.ModernMeta, `Capabilities":{}`, `Capabilities":`+capabilities, 1) + `}}`
	} else {
		first := l
		first.Body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"clientInfo":{"name":"c","version":"1"}}}`
		begun := b.Send(t, first)
		l.Header["Mcp-Session-Id"], l.Header["Mcp-Protocol-Version"] = begun.Header.Get("Mcp-Session-Id"), "2025-11-25"
		if begun.Status != http.StatusOK || l.Header["Mcp-Session-Id"] == "" {
			t.Fatalf("no session: %d %s", begun.Status, begun.Body)
		}
	}
	got := b.Send(t, l)
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if json.Unmarshal(got.Body, &list) != nil || got.Status != http.StatusOK {
		t.Fatalf("no list: %d %s", got.Status, got.Body)
	}
	var names []string
	for _, tool := range list.Result.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// TestToolsList_ByCapabilities: a client sees the tools that the server shows to
// clients with its capabilities (MCP, lifecycle, capability negotiation), and none that
// asks what it cannot be asked.
func TestToolsList_ByCapabilities(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	for _, modern := range []bool{true, false} {
		name := map[bool]string{true: "modern", false: "legacy"}[modern]
		lists(t, b, name, &listServer{modern: modern})
		for capabilities, want := range map[string][]string{
			`{}`:                                    {"plain"},
			`{"elicitation":{}}`:                    {"plain", "ask"},
			`{"roots":{}}`:                          {"plain", "look"},
			`{"sampling":{}}`:                       {"plain", "think"},
			`{"experimental":{}}`:                   {"plain"},
			`{"elicitation":{"url":{}}}`:            {"plain", "visit"},
			`{"elicitation":{"form":{}}}`:           {"plain", "ask"},
			`{"elicitation":{"url":{}},"roots":{}}`: {"plain", "visit", "look"},
			`{"sampling":{"tools":{}},"roots":{}}`:  {"plain", "think", "look"},
			`{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`: {"plain", "ask", "visit", "think", "look"},
		} {
			for _, inModern := range []bool{true, false} {
				if got := toolsOf(t, b, name, capabilities, inModern); !slices.Equal(got, want) {
					t.Errorf("server %s, client modern=%t with %s: %v, want %v", name, inModern, capabilities, got, want)
				}
			}
		}
	}
}

// TestToolsList_ForOtherProtocols: callers of A2A can be asked for input, and sent to a
// URL, so they reach the tools that a server shows to clients with elicitation. For a
// model's words and for roots they cannot be asked.
func TestToolsList_ForOtherProtocols(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	lists(t, b, "legacy", &listServer{})
	skills := string(b.CardOf(t, "legacy", nil)["skills"])
	for skill, want := range map[string]bool{"ask": true, "visit": true, "think": false, "look": false} {
		if got := strings.Contains(skills, `"id":"`+skill+`"`); got != want {
			t.Errorf("the card has the skill %s: %t, want %t", skill, got, want)
		}
	}
	request := taskOfFixture(t, b, "legacy", `"parts":[{"data":{"skill":"ask","input":{}}}]`)
	if request.Status.State != "TASK_STATE_INPUT_REQUIRED" {
		t.Fatalf("the tool that asks: %+v", request)
	}
	done := taskOfFixture(t, b, "legacy", `"taskId":"`+request.ID+`","contextId":"`+request.ContextID+`","parts":[{"data":{"color":"red"}}]`)
	if done.Status.State != "TASK_STATE_COMPLETED" || !strings.Contains(string(done.Artifacts), "red") {
		t.Errorf("its answer came to %s %s", done.Status.State, done.Artifacts)
	}
}

// a2aTask is a task as an A2A caller gets it.
type a2aTask struct {
	ID, ContextID string
	Status        struct{ State string }
	Artifacts     json.RawMessage
}

// taskOfFixture is the task that comes of a message with these members.
func taskOfFixture(t *testing.T, b *gatewaytest.Fixture, agent, members string) a2aTask {
	t.Helper()
	got := b.Send(t, gatewaytest.HTTPRequest{
		At: "/agents/" + agent + "/a2a", Header: map[string]string{"A2A-Version": "1.0"},
		Body: `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER",` + members + `}}}`,
	})
	var answer struct{ Result struct{ Task a2aTask } }
	if json.Unmarshal(got.Body, &answer) != nil || answer.Result.Task.ID == "" {
		t.Fatalf("no task: %d %s", got.Status, got.Body)
	}
	return answer.Result.Task
}

// TestToolsAdded_AreFound: a tool that a server has added can be called at once, by
// its name, and is listed as soon as what the server said of its list is over. Names
// that it does not have cost it one request in five seconds.
func TestToolsAdded_AreFound(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*listServer{
		"legacy": {}, "modern": {modern: true, ttl: "300000"}, "changing": {changes: true}, "short": {modern: true, ttl: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
			lists(t, b, "agent", s)
			if card := b.CardOf(t, "agent", nil); !strings.Contains(string(card["skills"]), `"id":"plain"`) {
				t.Fatalf("the card has the skills %s", card["skills"])
			}
			s.add("later")
			done := taskOfFixture(t, b, "agent", `"parts":[{"data":{"skill":"later","input":{}}}]`)
			if !strings.Contains(string(done.Artifacts), "did later") {
				t.Errorf("the new tool: %+v", done)
			}
			if card := b.CardOf(t, "agent", nil); !strings.Contains(string(card["skills"]), `"id":"later"`) {
				t.Errorf("once it was called, the card has the skills %s", card["skills"])
			}
			before := s.lists.Load()
			for range 3 {
				got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/agent/a2a", Header: map[string]string{"A2A-Version": "1.0"}, Body: strings.Replace(gatewaytest.AddBody(1), `"add"`, `"never"`, 1)})
				if !strings.Contains(string(got.Body), "no such skill") {
					t.Errorf("an unknown tool: %s", got.Body)
				}
			}
			if requests := s.lists.Load() - before; requests > 1 {
				t.Errorf("three unknown names made %d requests", requests)
			}
		})
	}
}

// TestStandaloneRequest_IsAnswered: a server of 2025-11-25 may ask what it needs for a
// call on the stand-alone stream of the session (Streamable HTTP, listening for messages
// from the server). A client of 2026-07-28 that has said that it has roots is asked in its
// own way (MRTR), and the server has the answer.
func TestStandaloneRequest_IsAnswered(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	server := &listServer{}
	lists(t, b, "legacy", server)
	meta := strings.Replace(gatewaytest.ModernMeta, `Capabilities":{}`, `Capabilities":{"roots":{}}`, 1)
	call := func(tool, id, more string) string {
		got, err := b.Try(t, gatewaytest.HTTPRequest{
			At: "/agents/legacy/mcp", Header: gatewaytest.Mirror("tools/call", tool),
			Body: `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{},` + more + meta + `}}`,
		})
		if err != nil {
			t.Errorf("no answer to a call of %s: %v", tool, err)
		}
		text := string(got.Body)
		if _, data, events := strings.Cut(text, "data: "); events {
			text = data
		}
		return text
	}
	// ends answers what the client is asked until the call has ended.
	ends := func(id string) (text string, requests int) {
		for text = call("look", id, ""); ; requests++ {
			var got struct {
				Result struct {
					InputRequests map[string]struct{ Method string }
					RequestState  string
				}
			}
			if json.Unmarshal([]byte(text), &got) != nil || len(got.Result.InputRequests) == 0 {
				return text, requests
			}
			for key, q := range got.Result.InputRequests {
				if q.Method != "roots/list" {
					t.Errorf("the client is asked for %s", q.Method)
				}
				text = call("look", id, `"requestState":"`+got.Result.RequestState+`","inputResponses":{"`+key+`":{"roots":[{"uri":"file:///home/ada"}]}},`)
			}
		}
	}
	if text, requests := ends("1"); requests != 1 || !strings.Contains(text, "file:///home/ada") {
		t.Errorf("the client was asked %d times, and the server made of it %s", requests, text)
	}
	// While another call of the session is under way, the server does not say for which it asks.
	entered, release := make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	server.hold = func() { close(entered); <-release }
	var group sync.WaitGroup
	defer group.Wait()
	defer free()
	group.Go(func() {
		if text := call("plain", "2", ""); !strings.Contains(text, "did plain") {
			t.Errorf("the other call got %s", text)
		}
	})
	<-entered
	if text, requests := ends("3"); requests != 0 || !strings.Contains(text, "several calls are under way") {
		t.Errorf("the client was asked %d times, and the server made of it %s", requests, text)
	}
}
