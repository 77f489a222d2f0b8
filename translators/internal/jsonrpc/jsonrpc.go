package jsonrpc

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The codes that JSON-RPC 2.0 defines.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeNoMethod       = -32601
	CodeBadParams      = -32602
	CodeInternal       = -32603
)

// Message is one envelope. Exactly one of Method, Result and Error is set.
type Message struct {
	ID     json.RawMessage // string, integer or null; nil: absent
	Method string
	Params json.RawMessage // object; nil: absent
	Result json.RawMessage
	Error  *Error
	Losses []canonical.Loss // of reading: nothing carries what JSON-RPC does not define
}

// Error is the error member of a reply.
type Error struct {
	Code    int64
	Message string
	Data    json.RawMessage // nil: absent
	Rest    json.RawMessage // members that JSON-RPC does not define, as an object; nil: none
}

// Parse checks the whole body and reads its envelope. Members that JSON-RPC does not
// define are ignored, and a null method, params or error is none, nor is a null result
// beside an error: both are among Lost. With a
// *translators.MalformedError comes the id, as far as it could be read: an error is
// answered under it (JSON-RPC 2.0, section 5).
func Parse(body []byte, cfg translators.Config) (Message, error) {
	if err := rawjson.Check(body, cfg.BodyLimit, cfg.Depth); err != nil {
		return Message{}, err
	}
	o := rawjson.Parse(body, "")
	var m Message
	m.ID = id(o)
	if o.Required("jsonrpc") != "2.0" {
		o.Fail("jsonrpc", "not 2.0")
	}
	if bytes.Contains(body, []byte("null")) && takeNulls(o) {
		m.Losses = append(m.Losses, canonical.Loss{Code: canonical.LossEmpty, Path: "/body", Fate: canonical.Dropped})
	}
	m.Method, _ = o.String("method")
	m.Params = o.RawObject("params")
	m.Result = o.Take("result")
	if e := o.Object("error"); e != nil {
		m.Error = readError(o, e)
	}
	if len(o.Members()) > 0 {
		m.Losses = append(m.Losses, canonical.Loss{Code: canonical.LossExtension, Path: "/extensions", Fate: canonical.Dropped})
	}
	if o.Err() == nil {
		shape(o, m)
	}
	return m, o.Err()
}

// takeNulls takes the members of an envelope that say nothing: peers that write every member they know
// write them as null. A result is null only where there is no error, and no method that asks for one.
func takeNulls(o *rawjson.Object) (some bool) {
	names := []string{"method", "params", "error"}
	if isSet(o.Peek("error")) || isSet(o.Peek("method")) {
		names = append(names, "result")
	}
	for _, name := range names {
		if string(o.Peek(name)) == "null" {
			o.Take(name)
			some = true
		}
	}
	return some
}

func isSet(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }

func shape(o *rawjson.Object, m Message) {
	n := 0
	for _, set := range []bool{m.Method != "", m.Result != nil, m.Error != nil} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		o.Fail("", "neither a request nor a result nor an error")
	case m.Method == "" && m.Params != nil:
		o.Fail("params", "not in a reply")
	case m.Result != nil && (m.ID == nil || string(m.ID) == "null"):
		o.Fail("id", "required")
	case m.Method != "" && string(m.ID) == "null":
		o.Fail("id", "null in a request")
	}
}

func id(o *rawjson.Object) json.RawMessage {
	raw := o.Take("id")
	if raw == nil || raw[0] == '"' || string(raw) == "null" {
		return raw
	}
	for i, c := range raw {
		if (c < '0' || c > '9') && (i > 0 || c != '-') {
			o.Fail("id", "neither a string nor an integer")
			return nil
		}
	}
	return raw
}

func readError(o, e *rawjson.Object) *Error {
	code, err := strconv.ParseInt(string(e.Take("code")), 10, 64)
	if err != nil {
		o.Fail("error/code", "not an integer")
	}
	out := Error{Code: code, Message: e.Required("message"), Data: e.Take("data")}
	out.Rest = e.Rest()
	if e.Err() != nil {
		o.Fail("error", "malformed")
	}
	return &out
}

// Envelope is the outermost level of a message, as a transport must see it. Only that it
// is an object is checked.
type Envelope struct {
	Version, Method           string
	ID, Params, Result, Error json.RawMessage // nil: absent
}

// Skim reads the envelope of a body; false: it is no object, or its version or
// method is no string. What is in the envelope may be anything: Parse judges
// that, and the members that are none of these. Of two of a name the first
// counts; Parse refuses both. Nulls that say nothing are absent, as Parse has it.
func Skim(body []byte) (Envelope, bool) {
	var e Envelope
	var version, method json.RawMessage
	whole := rawjson.Walk(body, func(name, value json.RawMessage) bool {
		if bytes.IndexByte(name, '\\') >= 0 { // a letter written in a roundabout way
			plain, _ := rawjson.Unquote(name)
			name = rawjson.Quote(plain)
		}
		var into *json.RawMessage
		switch string(name) {
		case `"jsonrpc"`:
			into = &version
		case `"method"`:
			into = &method
		case `"id"`:
			into = &e.ID
		case `"params"`:
			into = &e.Params
		case `"result"`:
			into = &e.Result
		case `"error"`:
			into = &e.Error
		}
		if into != nil && *into == nil {
			*into = value
		}
		return true
	})
	method = e.dropNulls(method)
	isVersion, isMethod := version == nil, method == nil
	if !isVersion {
		e.Version, isVersion = rawjson.Unquote(version)
	}
	if !isMethod {
		e.Method, isMethod = rawjson.Unquote(method)
	}
	return e, whole && isVersion && isMethod
}

// dropNulls makes the members absent that say nothing, the method among them.
func (e *Envelope) dropNulls(method json.RawMessage) json.RawMessage {
	if isSet(e.Error) || isSet(method) {
		e.Result = unlessNull(e.Result)
	}
	e.Params, e.Error = unlessNull(e.Params), unlessNull(e.Error)
	return unlessNull(method)
}

// unlessNull is a value that says something; nil: it does not.
func unlessNull(raw json.RawMessage) json.RawMessage {
	if isSet(raw) {
		return raw
	}
	return nil
}

// Request writes a request, or a notification when id is nil.
func Request(id json.RawMessage, method string, params json.RawMessage) []byte {
	return frame(len(id)+len(method)+len(params)).Raw("id", id).
		String("method", method).Raw("params", params).Bytes()
}

// Result writes a successful reply.
func Result(id, result json.RawMessage) []byte {
	return frame(len(id)+len(result)).Raw("id", rawjson.Or(id, "null")).
		Raw("result", result).Bytes()
}

// Failure writes an error reply; an unknown id is null.
func Failure(id json.RawMessage, e Error) []byte {
	inner := e.Object()
	return frame(len(id)+len(inner)).Raw("id", rawjson.Or(id, "null")).
		Raw("error", inner).Bytes()
}

// Object is the error member by itself.
func (e Error) Object() json.RawMessage {
	return rawjson.NewBuilder().Raw("code", json.RawMessage(strconv.FormatInt(e.Code, 10))).
		String("message", e.Message).Raw("data", e.Data).Merge(e.Rest).Bytes()
}

// frame begins a message with values of so many bytes.
func frame(size int) *rawjson.Builder {
	return rawjson.NewBuilderOf(size+len(`{"jsonrpc":"2.0","id":null,"method":"","params":}`)).String("jsonrpc", "2.0")
}
