package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// The MCP server that every case calls in the end: revision 2026-07-28, one tool
// that says its message back, as little code as an answer takes. Clients that initialize get
// the revision before, without a session.

// modernMCP is the revision that the server speaks.
const modernMCP = "2026-07-28"

// The answers that never change, without their envelope.
const (
	discoverResult = `{"resultType":"complete","supportedVersions":["` + modernMCP + `"],` +
		`"capabilities":{"tools":{}},"ttlMs":3600000,"cacheScope":"public",` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1.0.0"}}}`
	initializeResult = `{"protocolVersion":"` + sessionMCP + `","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1.0.0"}}`
	listResult       = `{"resultType":"complete","ttlMs":3600000,"cacheScope":"public","tools":[{"name":"echo",` +
		`"description":"Says the message back.","inputSchema":{"type":"object",` +
		`"properties":{"message":{"type":"string"}},"required":["message"],"additionalProperties":false}}]}`
)

// toolCall is as much of a request as the server reads.
type toolCall struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Arguments struct {
			Message json.RawMessage `json:"message"`
		} `json:"arguments"`
	} `json:"params"`
}

// serveTool answers one request.
func serveTool(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var call toolCall
	err = json.Unmarshal(body, &call)
	if call.ID == nil && call.Method == "notifications/initialized" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if err != nil || call.ID == nil {
		http.Error(w, "a JSON-RPC request was expected", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch call.Method {
	case "tools/call":
		answer(w, call.ID, "result", `{"resultType":"complete","content":[{"type":"text","text":`+
			string(call.Params.Arguments.Message)+`}],"isError":false}`)
	case "tools/list":
		answer(w, call.ID, "result", listResult)
	case "initialize":
		answer(w, call.ID, "result", initializeResult)
	case "server/discover":
		answer(w, call.ID, "result", discoverResult)
	default:
		w.WriteHeader(http.StatusNotFound)
		answer(w, call.ID, "error", `{"code":-32601,"message":"method not found"}`)
	}
}

func answer(w io.Writer, id json.RawMessage, member, value string) {
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(id)+`,"`+member+`":`+value+`}`)
}

// newProxy is the standard library's reverse proxy in front of the MCP server.
func newProxy(s script) (http.Handler, error) {
	upstream, err := url.Parse(s.Upstream)
	if err != nil {
		return nil, err
	}
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport: client.Transport,
	}, nil
}
