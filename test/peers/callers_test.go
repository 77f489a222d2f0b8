package peers

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// caller is an unmodified client of one protocol in one version, as far as the wire shows it.
type caller struct {
	protocol, version string
	streams           bool
}

var callers = []caller{
	{"mcp", "2025-03-26", false},
	{"mcp", "2025-06-18", false},
	{"mcp", "2025-11-25", false},
	{"mcp", modern, false},
	{"a2a", "1.0", false},
	{"a2a", "1.0", true},
	{"a2a", "0.3", false},
	{"a2a", "0.3", true},
}

func (c caller) String() string {
	name := c.protocol + " " + c.version
	if c.streams {
		name += " in a stream"
	}
	return name
}

// is reports whether a want is about this caller.
func (c caller) is(name string) bool {
	return name == "all" || name == c.protocol || name == c.protocol+" "+c.version || name == c.String()
}

// use calls the agent as often as its file says, and gives the last reply. base is the agent's URL at
// the gateway.
func (c caller) use(t *testing.T, client *http.Client, base string, s *script) string {
	t.Helper()
	calls := 1
	if s.forgets != "" {
		calls = 3
	}
	session, last := "", ""
	if c.protocol == "mcp" && c.version != modern {
		params := s.texts["initialize with"]
		if params == "" {
			params = `{"protocolVersion":"VERSION","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`
		}
		var header http.Header
		last, header = post(t, client, base+"/mcp", nil, message("initialize", strings.ReplaceAll(params, "VERSION", c.version)))
		if session = header.Get("Mcp-Session-Id"); session == "" {
			return last
		}
		post(t, client, base+"/mcp", c.header(session, ""), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	for range calls {
		if c.protocol == "mcp" {
			last, _ = post(t, client, base+"/mcp", c.header(session, "tools/call"), message("tools/call", c.params(s)))
		} else {
			last, _ = post(t, client, base+"/a2a", c.header("", ""), c.turn(s))
		}
	}
	return last
}

// header has what the versions want there.
func (c caller) header(session, method string) http.Header {
	h := http.Header{}
	switch {
	case c.protocol == "a2a" && c.version == "1.0":
		h.Set("A2A-Version", "1.0")
	case c.protocol == "mcp":
		if h.Set("Mcp-Protocol-Version", c.version); session != "" {
			h.Set("Mcp-Session-Id", session)
		}
		if c.version == modern {
			h.Set("Mcp-Method", method)
			h.Set("Mcp-Name", "t")
			h.Set("Mcp-Param-Region", "eu") // which counts where a tool marks it
		}
	}
	return h
}

func message(method, params string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":` + params + `}`
}

// params are those of a call.
func (c caller) params(s *script) string {
	params := s.texts["call"]
	if params == "" {
		if params = `{"name":"t","arguments":{}}`; s.protocol == "a2a" {
			params = `{"name":"t","arguments":{"message":"hi"}}`
		}
	}
	if c.version == modern {
		meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
		if params = strings.Replace(params, `"_meta":null`, meta, 1); !strings.Contains(params, `"_meta"`) {
			params = strings.TrimSuffix(params, "}") + "," + meta + "}"
		}
	}
	return params
}

// turn is a message of A2A: the call of a tool, or words for an agent.
func (c caller) turn(s *script) string {
	part := `{"data":{"skill":"t","input":{}}}`
	if s.protocol == "a2a" {
		part = `{"text":"hi"}`
	}
	if c.version == "1.0" {
		method := map[bool]string{false: "SendMessage", true: "SendStreamingMessage"}[c.streams]
		return message(method, `{"message":{"messageId":"m","role":"ROLE_USER","parts":[`+part+`]}}`)
	}
	kind := map[bool]string{false: "data", true: "text"}[s.protocol == "a2a"]
	method := map[bool]string{false: "message/send", true: "message/stream"}[c.streams]
	return message(method, `{"message":{"kind":"message","messageId":"m","role":"user","parts":[`+strings.Replace(part, "{", `{"kind":"`+kind+`",`, 1)+`]}}`)
}

// post sends a message and gives what comes back: one message, or the data of each event, one a line.
func post(t *testing.T, client *http.Client, url string, header http.Header, body string) (string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return string(raw), response.Header
	}
	var events []string
	for block := range strings.SplitSeq(string(raw), "\n\n") {
		var data []string
		for line := range strings.SplitSeq(block, "\n") {
			if text, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(text, " "))
			}
		}
		if len(data) > 0 {
			events = append(events, compact([]byte(strings.Join(data, "\n"))))
		}
	}
	return strings.Join(events, "\n"), response.Header
}

// resultOf is the result of a reply as it was written.
func resultOf(reply string) string {
	var env struct {
		Result json.RawMessage `json:"result"`
	}
	if json.NewDecoder(bytes.NewReader([]byte(reply))).Decode(&env) != nil {
		return ""
	}
	return string(env.Result)
}
