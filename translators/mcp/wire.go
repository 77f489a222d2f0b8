package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The header fields of a modern request (2026-07-28, Streamable HTTP), by their
// names in an http.Header.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"

	annotation = "x-mcp-header" // in a tool's schema
)

// The _meta keys that the protocol itself defines.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaTraceparent  = "traceparent"
	metaTracestate   = "tracestate"
	metaBaggage      = "baggage"
)

const (
	sentinelOpen  = "=?base64?"
	sentinelClose = "?="
)

// EncodeHeaderValue makes any text safe for a header field: what is not plain
// visible ASCII goes into the base64 sentinel form.
func EncodeHeaderValue(text string) string {
	if !unsafeHeader(text) {
		return text
	}
	return sentinelOpen + base64.StdEncoding.EncodeToString([]byte(text)) + sentinelClose
}

func unsafeHeader(text string) bool {
	if strings.Trim(text, " \t") != text {
		return true
	}
	for i := range len(text) {
		if text[i] < 0x20 || text[i] > 0x7E {
			return true
		}
	}
	return strings.HasPrefix(text, sentinelOpen) && strings.HasSuffix(text, sentinelClose)
}

// DecodeHeaderValue is its inverse; ok is false for a sentinel without base64.
func DecodeHeaderValue(value string) (text string, ok bool) {
	inner, opened := strings.CutPrefix(value, sentinelOpen)
	inner, closed := strings.CutSuffix(inner, sentinelClose)
	if !opened || !closed {
		return value, true
	}
	data, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(data), err == nil
}

// checkMirror compares the headers that repeat the body. That they are there
// is for the door to demand: not every transport has headers.
func checkMirror(w translators.Wire, version, method string, r *reader) error {
	if version != Modern {
		return nil
	}
	if h := w.Header.Get(headerMethod); h != "" && h != method {
		return refuse(canonical.CodeHeaderMismatch, "the Mcp-Method header names another method")
	}
	h, member := w.Header.Get(headerName), nameMember(method)
	if h == "" || member == "" {
		return nil
	}
	name, _ := rawjson.Unquote(r.Peek(member))
	// Some clients send the name as it is even if it looks like a sentinel.
	if decoded, ok := DecodeHeaderValue(h); h != name && (!ok || decoded != name) {
		return refuse(canonical.CodeHeaderMismatch, "the Mcp-Name header names something else")
	}
	return nil
}

// header builds the fields that travel with a request.
func header(m *canonical.Message, version, method, name string) http.Header {
	h := http.Header{}
	if method != MethodInitialize && version != LegacyMarch {
		h.Set(headerVersion, version) // which came with 2025-06-18
	}
	if version == Modern {
		h.Set(headerMethod, method)
		if name != "" {
			h.Set(headerName, EncodeHeaderValue(name))
		}
	}
	for _, f := range []struct{ name, value string }{
		{metaTraceparent, m.Trace.Parent}, {metaTracestate, m.Trace.State}, {metaBaggage, m.Trace.Baggage},
	} {
		if f.value != "" && !unsafeHeader(f.value) {
			h.Set(f.name, f.value)
		}
	}
	return h
}

// paramHeaders mirrors those arguments whose property the tool's schema marks
// with x-mcp-header (2026-07-28, Streamable HTTP). Only strings, booleans and
// integers that every JSON reader holds exactly can be mirrored.
func paramHeaders(h http.Header, schema, args json.RawMessage) {
	if len(schema) == 0 || schema[0] != '{' || len(args) == 0 || args[0] != '{' || !annotated(schema) {
		return
	}
	properties := rawjson.Parse(schema, "").RawObject("properties")
	if properties == nil {
		return
	}
	values := rawjson.Parse(args, "")
	for _, property := range rawjson.Parse(properties, "").Members() {
		value := values.Peek(property.Name)
		if value == nil || property.Value[0] != '{' {
			continue
		}
		declared := rawjson.Parse(property.Value, "")
		if name, ok := declared.String(annotation); ok && isToken(name) {
			if text, ok := primitive(value); ok {
				h.Set(headerParam+name, EncodeHeaderValue(text))
			}
		}
		paramHeaders(h, property.Value, value)
	}
}

// annotated is the cheap answer for the many schemas that mark nothing. An
// escape may hide the name.
func annotated(schema json.RawMessage) bool {
	return bytes.Contains(schema, []byte(annotation)) || bytes.IndexByte(schema, '\\') >= 0
}

func primitive(value json.RawMessage) (string, bool) {
	if text, ok := rawjson.Unquote(value); ok {
		return text, true
	}
	const exact = 15 // decimal digits that a double always holds
	text := string(value)
	digits := strings.TrimPrefix(text, "-")
	integer := digits != "" && len(digits) <= exact && strings.Trim(digits, "0123456789") == ""
	return text, integer || text == "true" || text == "false"
}

func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}

var _ translators.Asker = (*Translator)(nil)

// Asks: elicitation came with 2025-06-18, as a request of the server; since
// 2026-07-28 it is a result.
func (t *Translator) Asks(version string) translators.Asking {
	switch version {
	case Modern, "":
		return translators.AskReply
	case LegacyMarch:
		return translators.AskNone
	default:
		return translators.AskStream
	}
}
