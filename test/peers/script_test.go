package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/txtar"
)

// script is one file of testdata/peers, and the agent that it describes.
type script struct {
	protocol, version string
	path, serves      string
	redirects         [2]string
	sse, strict       bool
	forgets           string
	texts             map[string]string
	wants             []want

	mu       sync.Mutex
	sessions map[string]int // calls in each
	begun    int
}

// want is what callers must get.
type want struct {
	caller string
	lines  []string
}

func parse(t *testing.T, archive *txtar.Archive) *script {
	t.Helper()
	s := &script{texts: map[string]string{}, sessions: map[string]int{}}
	for _, file := range archive.Files {
		text := strings.TrimSpace(string(file.Data))
		if caller, ok := strings.CutPrefix(file.Name, "want "); ok {
			s.wants = append(s.wants, want{caller, strings.Split(text, "\n")})
			continue
		}
		s.texts[file.Name] = text
	}
	settings := strings.Split(s.texts["agent"], "\n")
	if n, err := fmt.Sscan(settings[0], &s.protocol, &s.version); n != 2 {
		t.Fatalf("the text agent begins with %q: %v", settings[0], err)
	}
	s.path = map[string]string{"mcp": "/mcp", "a2a": "/"}[s.protocol]
	for _, setting := range settings[1:] {
		switch words := strings.Fields(setting); words[0] {
		case "path":
			s.path = words[1]
		case "serves":
			s.serves = words[1]
		case "redirects":
			s.redirects = [2]string{words[1], words[2]}
		case "sse":
			s.sse = true
		case "strict":
			s.strict = true
		case "forgets":
			s.forgets = words[1]
		default:
			t.Fatalf("no such setting: %q", setting)
		}
	}
	if s.serves == "" {
		s.serves = s.path
	}
	return s
}

// start runs the agent and returns its origin.
func (s *script) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}

// request is what an agent reads of a message.
type request struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Cursor          *string
		ProtocolVersion string
		Name            string
		Arguments       struct{ Region string }
	}
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == s.redirects[0]:
		http.Redirect(w, r, s.redirects[1], http.StatusTemporaryRedirect)
	case r.Method == http.MethodGet:
		s.document(w, r)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusOK)
	case r.URL.Path != s.serves:
		w.WriteHeader(http.StatusNotFound)
	default:
		s.answer(w, r)
	}
}

// document answers a GET: a card, or nothing.
func (s *script) document(w http.ResponseWriter, r *http.Request) {
	text, ok := s.texts["GET "+r.URL.Path]
	if !ok && s.protocol == "a2a" && r.URL.Path == "/.well-known/agent-card.json" && !s.hasCard() {
		text, ok = cards[s.version], true
	}
	if !ok {
		w.WriteHeader(map[string]int{"mcp": http.StatusMethodNotAllowed, "a2a": http.StatusNotFound}[s.protocol])
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(strings.ReplaceAll(text, "ORIGIN", "http://"+r.Host)))
}

func (s *script) hasCard() bool {
	for name := range s.texts {
		if strings.HasPrefix(name, "GET ") {
			return true
		}
	}
	return false
}

// cards are what an agent says of itself where its file does not.
var cards = map[string]string{
	"1.0": `{"name":"peer","description":"d","version":"1","capabilities":{"streaming":true},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],` +
		`"skills":[{"id":"t","name":"t","description":"d","tags":[]}],"supportedInterfaces":[{"url":"ORIGIN/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`,
	"0.3": `{"name":"peer","description":"d","version":"1","protocolVersion":"0.3.0","url":"ORIGIN/","preferredTransport":"JSONRPC","capabilities":{"streaming":true},` +
		`"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"t","name":"t","description":"d","tags":[]}]}`,
}

// usual are the results of methods that a file does not speak of.
var usual = map[string]string{
	"initialize":      `{"protocolVersion":"VERSION","capabilities":{"tools":{}},"serverInfo":{"name":"peer","version":"1"}}`,
	"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`,
	"tools/list":      `{COMPLETE"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`,
	"tools/call":      `{COMPLETE"content":[{"type":"text","text":"done"}]}`,
	"ping":            `{}`,
}

const modern = "2026-07-28"

func (s *script) answer(w http.ResponseWriter, r *http.Request) {
	var in request
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if text := s.mismatch(r.Header, in); text != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"Header mismatch: %s"}}`, in.ID, text)
		return
	}
	if in.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if s.protocol == "mcp" && (in.Method == "server/discover") != (s.version == modern) && (in.Method == "initialize" || in.Method == "server/discover") {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if s.forgets != "" && !s.known(w, r, in.Method) {
		return
	}
	text, ok := s.texts[in.Method]
	if in.Params.Cursor != nil {
		if page, there := s.texts[fmt.Sprintf("%s %q", in.Method, *in.Params.Cursor)]; there {
			text = page
		}
	}
	if !ok {
		complete := ""
		if s.version == modern {
			complete = `"resultType":"complete","ttlMs":0,"cacheScope":"private",`
		}
		text = strings.NewReplacer("VERSION", s.version, "COMPLETE", complete).Replace(usual[in.Method])
	}
	if text == "" {
		text = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no such method"}}`
	}
	s.write(w, in, text)
}

// mismatch names the header field of a request that a strict server of 2026-07-28 misses
// (Streamable HTTP, Standard MCP Request Headers and Custom Headers from Tool Parameters).
func (s *script) mismatch(h http.Header, in request) string {
	if !s.strict {
		return ""
	}
	for name, value := range map[string]string{
		"Mcp-Protocol-Version": s.version, "Mcp-Method": in.Method, "Mcp-Name": in.Params.Name, "Mcp-Param-Region": in.Params.Arguments.Region,
	} {
		if h.Get(name) != value {
			return name + " is " + h.Get(name) + ", expected " + value
		}
	}
	return ""
}

func (s *script) write(w http.ResponseWriter, in request, text string) {
	lines := []string{text}
	streams := in.Method == "message/stream" || in.Method == "SendStreamingMessage"
	if streams {
		lines = strings.Split(text, "\n")
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, `{"jsonrpc"`) {
			line = `{"jsonrpc":"2.0","id":ID,"result":` + line + `}`
		}
		lines[i] = strings.ReplaceAll(line, "ID", string(in.ID))
	}
	if !s.sse && !streams {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(lines[0]))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, line := range lines {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", strings.ReplaceAll(line, "\n", ""))
	}
}

// known begins a session or finds it; it lasts for one call.
func (s *script) known(w http.ResponseWriter, r *http.Request, method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.Header.Get("Mcp-Session-Id")
	if method == "initialize" {
		s.begun++
		id = fmt.Sprint("session-", s.begun)
		s.sessions[id] = 0
		w.Header().Set("Mcp-Session-Id", id)
		return true
	}
	calls, ok := s.sessions[id]
	if ok && calls == 0 {
		if method == "tools/call" {
			s.sessions[id]++
		}
		return true
	}
	status := 0
	_, _ = fmt.Sscan(s.forgets, &status)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`))
	return false
}

// compact is JSON, or other text, without the white space between its words.
func compact(text []byte) string {
	var out bytes.Buffer
	if json.Compact(&out, text) == nil {
		return out.String()
	}
	return string(text)
}
