package tasked

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	version    = "2026-07-28"
	extension  = "io.modelcontextprotocol/tasks"
	capability = "io.modelcontextprotocol/clientCapabilities"

	maxBody = 1 << 20
)

// The codes of the JSON-RPC errors that the server answers with.
const (
	codeNoMethod   = -32601
	codeBadParams  = -32602
	codeInternal   = -32603
	codeHeader     = -32020
	codeCapability = -32021
)

// Server is the server; the zero value is ready. It is safe for concurrent use.
type Server struct {
	mu    sync.Mutex
	tasks map[string]*task
	calls []string // the methods that were asked for, in order
}

var _ http.Handler = (*Server)(nil)

// Calls are the methods that were asked for so far, in order.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.calls...)
}

// rpcError is what a request fails with.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

// request is what a client asks.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string                     `json:"name"`
		TaskID    string                     `json:"taskId"`
		Arguments arguments                  `json:"arguments"`
		Responses map[string]json.RawMessage `json:"inputResponses"`
		State     string                     `json:"requestState"`
		Meta      map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

type arguments struct {
	Name     string      `json:"name"`
	Seconds  json.Number `json:"seconds"`
	Label    string      `json:"label"`
	Filename string      `json:"filename"`
}

// tasked: whoever asks has said that it understands tasks.
func (r *request) tasked() bool {
	var caps struct {
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	if json.Unmarshal(r.Params.Meta[capability], &caps) != nil {
		return false
	}
	_, ok := caps.Extensions[extension]
	return ok
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var req request
	if err != nil || json.Unmarshal(body, &req) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if len(req.ID) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result, err := s.answer(r, &req)
	write(w, req.ID, result, err)
}

func write(w http.ResponseWriter, id json.RawMessage, result any, err error) {
	reply := struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result,omitempty"`
		Error   *rpcError       `json:"error,omitempty"`
	}{Version: "2.0", ID: id, Result: result}
	status := http.StatusOK
	if err != nil {
		failed, ok := err.(*rpcError) //nolint:errorlint // this package wraps none
		if !ok {
			failed = &rpcError{Code: codeInternal, Message: err.Error()}
		}
		reply.Result, reply.Error = nil, failed
		switch failed.Code {
		case codeNoMethod:
			status = http.StatusNotFound
		case codeHeader, codeCapability:
			status = http.StatusBadRequest
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(reply) // a client that has left needs no answer
}

// headers checks that the header repeats what the body says (Streamable HTTP,
// standard headers; the extension's routing headers).
func headers(h http.Header, req *request) error {
	name := ""
	switch req.Method {
	case "tools/call":
		name = req.Params.Name
	case "tasks/get", "tasks/update", "tasks/cancel":
		name = req.Params.TaskID
	}
	for field, want := range map[string]string{"Mcp-Method": req.Method, "Mcp-Name": name} {
		if got := strings.TrimSpace(h.Get(field)); got != want {
			return &rpcError{Code: codeHeader, Message: fmt.Sprintf("Header mismatch: %s is %q, the body says %q", field, got, want)}
		}
	}
	return nil
}

func (s *Server) answer(r *http.Request, req *request) (any, error) {
	s.mu.Lock()
	s.calls = append(s.calls, req.Method)
	s.mu.Unlock()
	switch req.Method {
	case "server/discover", "tools/list", "tools/call", "tasks/get", "tasks/update", "tasks/cancel":
	default:
		return nil, &rpcError{Code: codeNoMethod, Message: "Method not found"}
	}
	if err := headers(r.Header, req); err != nil {
		return nil, err
	}
	switch req.Method {
	case "server/discover":
		return json.RawMessage(`{"resultType":"complete","supportedVersions":["` + version + `"],"capabilities":{"tools":{},"extensions":{"` +
			extension + `":{}}},"ttlMs":0,"cacheScope":"private"}`), nil
	case "tools/list":
		return json.RawMessage(`{"resultType":"complete","tools":` + tools + `,"ttlMs":0,"cacheScope":"private"}`), nil
	case "tools/call":
		return s.call(r.Context(), req)
	default:
		return s.about(req)
	}
}

// about answers what is asked about a task.
func (s *Server) about(req *request) (any, error) {
	if !req.tasked() {
		return nil, missing()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[req.Params.TaskID]
	if !ok {
		return nil, &rpcError{Code: codeBadParams, Message: "there is no such task"}
	}
	t.advance(time.Now())
	switch req.Method {
	case "tasks/get":
		return t.detailed(), nil
	case "tasks/update":
		t.take(time.Now(), req.Params.Responses)
	default:
		t.cancel(time.Now())
	}
	return json.RawMessage(`{"resultType":"complete"}`), nil
}

// missing: what is asked for cannot be had without tasks.
func missing() error {
	return &rpcError{
		Code: codeCapability, Message: "Missing required client capability",
		Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + extension + `":{}}}}`),
	}
}
