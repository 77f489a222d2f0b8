package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
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
// is for the endpoint to demand: not every transport has headers.
func checkMirror(w translators.Wire, version, method string, r *reader) error {
	if version != Modern {
		return nil
	}
	for _, name := range []string{headerVersion, headerMethod, headerName} {
		if len(w.Header.Values(name)) > 1 {
			return refuse(canonical.CodeHeaderMismatch, "the "+name+" header is there twice: send it once")
		}
	}
	if h := w.Header.Get(headerMethod); h != "" && h != method {
		return refuse(canonical.CodeHeaderMismatch, "the Mcp-Method header names another method")
	}
	h, member := w.Header.Get(headerName), nameMember(method)
	if h == "" || member == "" {
		return nil
	}
	name := r.PeekText(member)
	// Some clients send the name as it is even if it looks like a sentinel.
	if decoded, ok := DecodeHeaderValue(h); h != name && (!ok || decoded != name) {
		return refuse(canonical.CodeHeaderMismatch, "the Mcp-Name header names something else")
	}
	return nil
}

// header builds the fields that travel with a request.
func header(m *canonical.Message, version, method, name string) http.Header {
	h := http.Header{}
	if method != MethodInitialize && version > LegacyMarch {
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

var _ translators.HeaderMirror = (*Translator)(nil)

// Mirror judges the fields of a request's header that repeat arguments of its
// call, Mcp-Param-*, by what the tool's schema marks (2026-07-28, Streamable
// HTTP, custom headers from tool parameters). What comes back is the header with
// these fields and none else that would pass for one.
func (t *Translator) Mirror(h http.Header, m *canonical.Message, tool *canonical.Capability) (http.Header, error) {
	invoke, calls := m.Body.(*canonical.Invoke)
	marked := tool != nil && calls && invoke.Call != nil && annotated(tool.InputSchema)
	if m.Origin.Version != Modern || !marked && !repeats(h) {
		return h, nil
	}
	fields := http.Header{}
	for name, values := range h {
		if !strings.HasPrefix(name, headerParam) {
			fields[name] = values
		}
	}
	if !marked {
		return fields, nil
	}
	p := params{h: h, into: fields}
	p.walk(tool.InputSchema, invoke.Call.Args)
	return fields, p.err
}

// repeats reports whether a header has a field that repeats an argument.
func repeats(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, headerParam) {
			return true
		}
	}
	return false
}

// paramHeaders writes the fields that repeat arguments.
func paramHeaders(h http.Header, schema, args json.RawMessage) {
	if annotated(schema) {
		(&params{into: h}).walk(schema, args)
	}
}

// annotated is the cheap answer for the many schemas that mark nothing. An
// escape may hide the name.
func annotated(schema json.RawMessage) bool {
	return rawjson.IsObject(schema) && (bytes.Contains(schema, []byte(annotation)) || bytes.IndexByte(schema, '\\') >= 0)
}

// params follows a schema through its properties, which is the only way to a
// mark that counts.
type params struct {
	h    http.Header // as it came; nil: nothing is judged
	into http.Header // as it is to be
	err  error       // the first field that contradicts the body
}

func (p *params) walk(schema, args json.RawMessage) {
	properties := rawjson.Parse(schema, "").Peek("properties")
	if !rawjson.IsObject(properties) {
		return
	}
	values := rawjson.Empty()
	if rawjson.IsObject(args) {
		values = rawjson.Parse(args, "")
	}
	for _, property := range rawjson.Parse(properties, "").Members() {
		if !rawjson.IsObject(property.Value) {
			continue
		}
		value := values.Peek(property.Name)
		if name, ok := rawjson.Unquote(rawjson.Parse(property.Value, "").Peek(annotation)); ok && isToken(name) {
			p.field(headerParam+name, value)
		}
		p.walk(property.Value, value)
	}
}

// field compares one field with its argument, and writes it.
func (p *params) field(name string, value json.RawMessage) {
	text, written := primitive(value)
	if p.h != nil && p.err == nil {
		p.err = judge(name, p.h.Values(name), value, written)
	}
	if written {
		p.into.Set(name, EncodeHeaderValue(text))
	}
}

// judge checks a header against the argument that it mirrors. It must repeat an argument that
// is there, and be absent otherwise. One that cannot be encoded may stand as it is written.
func judge(name string, values []string, value json.RawMessage, written bool) error {
	there := len(value) > 0 && string(value) != "null"
	switch {
	case len(values) == 0 && (!there || !written || string(value) == `""`):
		return nil
	case len(values) == 0:
		return refuse(canonical.CodeHeaderMismatch, "the "+name+" header is missing")
	case len(values) > 1:
		return refuse(canonical.CodeHeaderMismatch, "the "+name+" header is there twice: send it once")
	}
	if text, ok := DecodeHeaderValue(values[0]); !ok || !there || !same(text, value) {
		return refuse(canonical.CodeHeaderMismatch, "the "+name+" header says something else than the body")
	}
	return nil
}

// same compares a header with an argument: a text as such, a number by its value.
func same(name string, value json.RawMessage) bool {
	if text, ok := rawjson.Unquote(value); ok {
		return name == text
	}
	if name == string(value) {
		return true
	}
	a, okA := decimalOf(name)
	b, okB := decimalOf(string(value))
	return okA && okB && a == b
}

// primitive is a value as a field repeats it: texts, booleans, and integers that
// every JSON reader holds exactly, in digits.
func primitive(value json.RawMessage) (string, bool) {
	if text, ok := rawjson.Unquote(value); ok {
		return text, true
	}
	if text := string(value); text == "true" || text == "false" {
		return text, true
	}
	d, ok := decimalOf(string(value))
	if !ok || d.exponent < 0 || len(d.digits)+d.exponent > exactDigits {
		return "", false
	}
	n, err := strconv.ParseInt(d.sign+d.digits+strings.Repeat("0", d.exponent), 10, 64)
	const most = 1<<53 - 1
	return strconv.FormatInt(n, 10), err == nil && -most <= n && n <= most
}

// exactDigits is how many the largest integer has that a double holds with all
// that are smaller.
const exactDigits = 16

// decimal is a number: digits times a power of ten. The digits neither begin nor
// end with a zero, unless they are one; so equal numbers are equal values.
type decimal struct {
	sign, digits string
	exponent     int
}

// decimalOf reads a JSON number; false: it is none, or beyond all reason.
func decimalOf(text string) (decimal, bool) {
	const longest, furthest = 64, 1000
	if len(text) > longest || !rawjson.IsNumber([]byte(text)) || !json.Valid([]byte(text)) {
		return decimal{}, false
	}
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil || exponent > furthest || exponent < -furthest {
			return decimal{}, false
		}
	}
	rest, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(rest, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return decimal{digits: "0"}, true
	}
	d := decimal{digits: short, exponent: exponent - len(fraction) + len(digits) - len(short)}
	if negative {
		d.sign = "-"
	}
	return d, true
}

var _ translators.InputStyler = (*Translator)(nil)

// Asks reports how a server asks: since 2025-06-18 by a request, since 2026-07-28 by a
// result.
func (t *Translator) Asks(version, _ string) translators.Asking {
	switch {
	case version == Modern, version == "":
		return translators.AskReply
	case version <= LegacyMarch:
		return translators.AskNone
	default:
		return translators.AskStream
	}
}
