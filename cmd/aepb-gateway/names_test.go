package main

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// oddNames are names of tools, prompts and skills that are not what MCP wants of a
// tool's name, with such as they could be taken for.
func oddNames() []string {
	return []string{
		"fs/read file", "fs_read_file", "fs.read.file", "a b", "a_b", "a/b", "a\tb", "a\nb", "a\x00b", " a b", "A B", "a_b_c8687a",
		`say "hi"`, `back\slash`, "`tick`", "1st", ".", "..", "-", "ü", "ö", "日本語", "😀", "a\u202eb", "a\u200bb", "%2F", "a%20b", "<b>", "{name}",
		"=?base64?YQ==?=", "message", "skill", "prompt.x", "resource.read",
		strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("x", 130), strings.Repeat("é", 100),
	}
}

// drawnNames are n more, the same for the same seed: words over few characters, so that
// many of them look alike, and the names under which others are listed.
func drawnNames(seed uint64, n int) []string {
	r := rand.New(rand.NewPCG(seed, 28)) //nolint:gosec // a test's choice, to be made again
	pieces := []string{"a", "b", "_", " ", "/", ".", "-", "é", "\"", "\\", "0", "\u2066", "\n", "😀"}
	var out []string
	for len(out) < n {
		var word strings.Builder
		for range 1 + r.IntN(4) {
			word.WriteString(pieces[r.IntN(len(pieces))])
		}
		name := word.String()
		if r.IntN(5) == 0 {
			name = mcp.New(translators.Config{}).CapabilityNames([]canonical.Capability{{ID: name}})[0]
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// namesake is a list of capabilities that are told apart by their place in it, which
// each has in its description and answers when it is called.
type namesake []string

func (n namesake) capabilities() []canonical.Capability {
	list := make([]canonical.Capability, len(n))
	for i, name := range n {
		list[i] = canonical.Capability{
			ID: name, Title: "One of many", Description: place(i), Tags: []string{"x"},
			Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"type":"object"}`),
		}
	}
	return list
}

func place(i int) string { return "number " + strconv.Itoa(i) + "." }

// called is what the capability of that name answers; without one the name.
func (n namesake) called(name string) string {
	if i := slices.Index(n, name); i >= 0 {
		return "this is " + place(i)
	}
	return "nothing here is called " + strconv.Quote(name)
}

// does is what an agent with these capabilities does with a message.
func (n namesake) does(m *canonical.Message) canonical.Body {
	switch body := m.Body.(type) {
	case *canonical.DescribeRequest:
		return &canonical.Description{Name: "many", Description: "Has many.", Version: "1", Capabilities: n.capabilities()}
	case *canonical.Page:
		return &canonical.CapabilityList{Capabilities: n.capabilities()}
	case *canonical.Invoke:
		name := m.To.Skill
		if body.Call != nil {
			name = body.Call.Name
		}
		return &canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{{Kind: canonical.KindText, Text: n.called(name)}}}}
	default:
		return &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such thing"}
	}
}

// mcpNames is an MCP server with tools, prompts and resources of these names, in
// 2026-07-28 or in 2025-11-25, without sessions.
type mcpNames struct {
	names  namesake
	modern bool
	told   chan string // resources that somebody wants to hear of; nil: they are not told
}

func (s *mcpNames) list(member, key string, more func(name string) string) string {
	items := make([]string, len(s.names))
	for i, name := range s.names {
		items[i] = `{"` + key + `":` + string(mustMarshal(name)) + `,"description":"` + place(i) + `"` + more(name) + `}`
	}
	return `"` + member + `":[` + strings.Join(items, ",") + `]`
}

// address is the URI of a resource of that name.
func address(name string) string { return "mem://r/" + name }

func (s *mcpNames) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name, URI     string
			Ref           struct{ Name, URI string }
			Notifications struct{ ResourceSubscriptions []string }
		}
	}
	body, err := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || err != nil || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if len(m.ID) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if name, ok := mcp.DecodeHeaderValue(r.Header.Get("Mcp-Name")); s.modern && (!ok || name != m.Params.Name+m.Params.URI) {
		well(w, r, []byte(`{"jsonrpc":"2.0","id":`+string(m.ID)+`,"error":{"code":-32020,"message":"the header names something else"}}`))
		return
	}
	if m.Method == map[bool]string{true: "initialize", false: "server/discover"}[s.modern] {
		well(w, r, []byte(`{"jsonrpc":"2.0","id":`+string(m.ID)+`,"error":{"code":-32601,"message":"no such method"}}`))
		return
	}
	if m.Method == "subscriptions/listen" {
		s.listen(w, r, m.ID, m.Params.Notifications.ResourceSubscriptions)
		return
	}
	result := s.result(m.Method, m.Params.Name, m.Params.URI, m.Params.Ref.Name+m.Params.Ref.URI)
	if s.modern {
		result = `"resultType":"complete","ttlMs":300000,"cacheScope":"private",` + result
	}
	well(w, r, []byte(`{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{`+result+`}}`))
}

func (s *mcpNames) result(method, name, uri, ref string) string {
	const can = `"capabilities":{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{}}`
	text := func(of string) string {
		return `{"type":"text","text":` + string(mustMarshal(s.names.called(of))) + `}`
	}
	plain := func(string) string { return "" }
	named := func(name string) string { return `,"name":` + string(mustMarshal(name)) }
	switch method {
	case "server/discover":
		return `"supportedVersions":["2026-07-28"],` + can
	case "initialize":
		return `"protocolVersion":"2025-11-25","serverInfo":{"name":"names","version":"1"},` + can
	case "tools/list":
		return s.list("tools", "name", func(string) string { return `,"inputSchema":{"type":"object"}` })
	case "prompts/list":
		return s.list("prompts", "name", plain)
	case "resources/list":
		return (&mcpNames{names: inURIs(s.names)}).list("resources", "uri", named)
	case "resources/templates/list":
		return (&mcpNames{names: inURIs(s.names)}).list("resourceTemplates", "uriTemplate", named)
	case "tools/call":
		return `"content":[` + text(name) + `]`
	case "prompts/get":
		return `"messages":[{"role":"user","content":` + text(name) + `}]`
	case "resources/read":
		return `"contents":[{"uri":` + string(mustMarshal(uri)) + `,"text":` + string(mustMarshal(s.names.called(strings.TrimPrefix(uri, address(""))))) + `}]`
	case "completion/complete":
		return `"completion":{"values":[` + string(mustMarshal(s.names.called(strings.TrimPrefix(ref, address(""))))) + `]}`
	case "resources/subscribe":
		s.told <- uri
	}
	return `"_meta":{}`
}

func inURIs(names namesake) namesake {
	out := make(namesake, len(names))
	for i, name := range names {
		out[i] = address(name)
	}
	return out
}

// listen tells of every resource that is asked for, once, and ends.
func (s *mcpNames) listen(w http.ResponseWriter, _ *http.Request, id json.RawMessage, uris []string) {
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(method, params string) {
		_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","method":"`+method+`","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":`+string(id)+`},`+params+"}}\n\n")
	}
	say("notifications/subscriptions/acknowledged", `"notifications":{"resourceSubscriptions":`+string(mustMarshal(uris))+`}`)
	for _, uri := range uris {
		s.told <- uri
		say("notifications/resources/updated", `"uri":`+string(mustMarshal(uri)))
	}
	_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":`+string(id)+`,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+string(id)+"}}}\n\n")
}

// namesServer starts such a server and lists it.
func (b *bed) namesServer(t *testing.T, agent string, s *mcpNames) {
	t.Helper()
	server := httptest.NewUnstartedServer(s)
	server.TLS = serving(b.svid(t, "/"+agent))
	server.StartTLS()
	t.Cleanup(server.Close)
	b.list(t, agent, mcp.Binding, server.URL+"/mcp", host{})
}

// askMCP is what an agent answers to a request of MCP.
func (b *bed) askMCP(t *testing.T, agent string, modern bool, method string, params map[string]any) []byte {
	t.Helper()
	l := letter{at: "/agents/" + agent + "/mcp", header: map[string]string{
		"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-11-25",
	}}
	if modern {
		name, _ := params["name"].(string)
		if uri, ok := params["uri"].(string); ok {
			name = uri
		}
		l.header = mirror(method, mcp.EncodeHeaderValue(name))
	}
	if method == "resources/subscribe" { // which only a session can
		l.body = askedMCP(false, "initialize", map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "c", "version": "1"},
		})
		l.header["Mcp-Session-Id"] = b.send(t, l).header.Get("Mcp-Session-Id")
	}
	l.body = askedMCP(modern, method, params)
	return b.send(t, l).body
}

func askedMCP(modern bool, method string, params map[string]any) string {
	said := map[string]any{}
	for name, value := range params {
		said[name] = value
	}
	if modern {
		said["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
	}
	return string(mustMarshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": said}))
}

// shown is one thing on a list, by the name that its caller knows it by.
type shown struct{ name, description string }

// shownIn reads a list of MCP.
func shownIn(t *testing.T, body []byte, member, key string) []shown {
	t.Helper()
	var said struct{ Result map[string]json.RawMessage }
	var items []map[string]any
	if json.Unmarshal(body, &said) != nil || json.Unmarshal(said.Result[member], &items) != nil {
		t.Fatalf("no %s in %s", member, short(body))
	}
	list := make([]shown, len(items))
	for i, item := range items {
		list[i].name, _ = item[key].(string)
		list[i].description, _ = item["description"].(string)
	}
	return list
}

// reaches demands that all of a list of n is called by the names on it, each its own.
func reaches(t *testing.T, what string, list []shown, n int, call func(name string) string) {
	t.Helper()
	if len(list) != n {
		t.Errorf("%s: %d are listed, want %d", what, len(list), n)
	}
	seen := map[string]bool{}
	for _, one := range list {
		if got := call(one.name); seen[one.name] || !strings.Contains(got, "this is "+one.description) {
			t.Errorf("%s: %q, which is %s stands there twice: %t; called it answers %s", what, one.name, one.description, seen[one.name], short([]byte(got)))
		}
		seen[one.name] = true
	}
}

// TestNames_MCPServers: what an MCP server lists can be called by the name under which
// it is listed, with one revision at both ends and with two.
func TestNames_MCPServers(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	names := namesake(oddNames())
	for agent, modern := range map[string]bool{"modern": true, "legacy": false} {
		server := &mcpNames{names: names, modern: modern, told: make(chan string, len(names))}
		b.namesServer(t, agent, server)
		for _, inModern := range []bool{true, false} {
			what := "server " + agent + ", client modern=" + strconv.FormatBool(inModern) + ", "
			ask := func(method string, params map[string]any) []byte { return b.askMCP(t, agent, inModern, method, params) }
			by := func(method, member string) func(string) string {
				return func(name string) string { return string(ask(method, map[string]any{member: name})) }
			}
			refers := func(kind, member string) func(string) string {
				return func(name string) string {
					return string(ask("completion/complete", map[string]any{
						"ref": map[string]any{"type": kind, member: name}, "argument": map[string]any{"name": "a", "value": ""},
					}))
				}
			}
			tools := shownIn(t, ask("tools/list", nil), "tools", "name")
			reaches(t, what+"tools", tools, len(names), by("tools/call", "name"))
			for i, tool := range tools { // and by its own name, for those who know it
				if got := by("tools/call", "name")(names[i]); !strings.Contains(got, tool.description) {
					t.Errorf("%sthe tool %q, called by its own name, answers %s", what, names[i], short([]byte(got)))
				}
			}
			prompts := shownIn(t, ask("prompts/list", nil), "prompts", "name")
			reaches(t, what+"prompts", prompts, len(names), by("prompts/get", "name"))
			reaches(t, what+"completions of prompts", prompts, len(names), refers("ref/prompt", "name"))
			reaches(t, what+"resources", shownIn(t, ask("resources/list", nil), "resources", "uri"), len(names), by("resources/read", "uri"))
			templates := shownIn(t, ask("resources/templates/list", nil), "resourceTemplates", "uriTemplate")
			reaches(t, what+"completions of resources", templates, len(names), refers("ref/resource", "uri"))
			if modern == inModern {
				subscribed(t, b, agent, server)
			}
		}
	}
}

// subscribed: a server hears of the resources that are subscribed to by the URIs that it
// has listed, and its client of their changes.
func subscribed(t *testing.T, b *bed, agent string, s *mcpNames) {
	t.Helper()
	for _, resource := range shownIn(t, b.askMCP(t, agent, s.modern, "resources/list", nil), "resources", "uri") {
		method, params := "resources/subscribe", map[string]any{"uri": resource.name}
		if s.modern {
			method, params = "subscriptions/listen", map[string]any{"notifications": map[string]any{"resourceSubscriptions": []string{resource.name}}}
		}
		got := string(b.askMCP(t, agent, s.modern, method, params))
		select {
		case uri := <-s.told:
			if uri != resource.name || s.modern && !strings.Contains(got, `"uri":`+string(mustMarshal(uri))) {
				t.Errorf("%s: %q was subscribed to, the server was asked for %q, and the client got %s", agent, resource.name, uri, short([]byte(got)))
			}
		default:
			t.Errorf("%s: the server was not asked for %q: %s", agent, resource.name, short([]byte(got)))
		}
	}
}
