package main

import (
	"net/http"

	"github.com/google/uuid"
)

// ectHeader carries ECTs.
const ectHeader = "Execution-Context"

// The revisions of MCP that are spoken: one without sessions, and one with.
const (
	modernMCP = "2026-07-28"
	legacyMCP = "2025-11-25"
)

func jsonHeader() http.Header { return http.Header{"Content-Type": {"application/json"}} }

func a2aHeader() http.Header {
	h := jsonHeader()
	h.Set("A2A-Version", "1.0")
	return h
}

// sessionHeader is that of a client which begins a session.
func sessionHeader() http.Header {
	h := jsonHeader()
	h.Set("Accept", "application/json, text/event-stream")
	return h
}

func modernHeader(tool string) http.Header {
	h := sessionHeader()
	h.Set("Mcp-Protocol-Version", modernMCP)
	h.Set("Mcp-Method", "tools/call")
	h.Set("Mcp-Name", tool)
	return h
}

// toolMessage asks the tool for something; more are members of the parameters.
func toolMessage(key, how, more string) string {
	return message(`{"data":{"skill":"work","input":{"key":"`+key+`","how":"`+how+`"}},"mediaType":"application/json"}`, more)
}

// textMessage is plain text, which does not say the arguments of a tool.
func textMessage(text, more string) string { return message(`{"text":"`+text+`"}`, more) }

func message(part, more string) string {
	return `{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":{"messageId":"` + uuid.NewString() +
		`","role":"ROLE_USER","parts":[` + part + `]}` + more + `}}`
}

// skillCall asks the A2A agent as an MCP client does.
func skillCall(key string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{"message":"` + key +
		`"},"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernMCP + `","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

func initialize() string {
	return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + legacyMCP +
		`","capabilities":{},"clientInfo":{"name":"abuse","version":"1"}}}`
}
