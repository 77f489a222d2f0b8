package a2a

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The types of the objects in an error's data (A2A 9.5, google.rpc).
const (
	typeErrorInfo  = "type.googleapis.com/google.rpc.ErrorInfo"
	typeRetryInfo  = "type.googleapis.com/google.rpc.RetryInfo"
	typeBadRequest = "type.googleapis.com/google.rpc.BadRequest"
	typeCarried    = profile.ExtensionURI + "#Carried"
)

// The domains of an ErrorInfo's reason: the protocol's own, and ours.
const (
	domainA2A  = "a2a-protocol.org"
	domainOurs = profile.ExtensionURI
)

// errorRow is one canonical code in the protocol (A2A 5.4, 9.5). The first row
// of a number is what the number alone means.
type errorRow struct {
	code   canonical.Code
	number int64
	reason string
	domain string
	status int    // HTTP status that goes with it; 0: 200
	rpc    string // its name in google.rpc.Code, for the HTTP form (A2A 5.4 as of 1.0.1)
}

var errorTable = [...]errorRow{
	{canonical.CodeParse, jsonrpc.CodeParse, "PARSE", domainOurs, 0, "INVALID_ARGUMENT"},
	{canonical.CodeInvalidRequest, jsonrpc.CodeInvalidRequest, "INVALID_REQUEST", domainOurs, 0, "INVALID_ARGUMENT"},
	{canonical.CodeHeaderMismatch, jsonrpc.CodeInvalidRequest, "HEADER_MISMATCH", domainOurs, 0, "INVALID_ARGUMENT"},
	{canonical.CodeNoMethod, jsonrpc.CodeNoMethod, "METHOD_NOT_FOUND", domainOurs, 0, "NOT_FOUND"},
	{canonical.CodeBadParams, jsonrpc.CodeBadParams, "INVALID_PARAMS", domainA2A, 0, "INVALID_ARGUMENT"},
	{canonical.CodeSkillNotFound, jsonrpc.CodeBadParams, "SKILL_NOT_FOUND", domainOurs, 0, "INVALID_ARGUMENT"},
	{canonical.CodeResourceNotFound, jsonrpc.CodeBadParams, "RESOURCE_NOT_FOUND", domainOurs, 0, "NOT_FOUND"},
	{canonical.CodeInternal, jsonrpc.CodeInternal, "INTERNAL", domainOurs, 0, "INTERNAL"},
	{canonical.CodeTimeout, jsonrpc.CodeInternal, "TIMEOUT", domainOurs, http.StatusGatewayTimeout, "DEADLINE_EXCEEDED"},
	{canonical.CodeRateLimited, jsonrpc.CodeInternal, "RATE_LIMITED", domainOurs, http.StatusTooManyRequests, "RESOURCE_EXHAUSTED"},
	{canonical.CodeUnavailable, jsonrpc.CodeInternal, "UNAVAILABLE", domainOurs, http.StatusServiceUnavailable, "UNAVAILABLE"},
	{canonical.CodeOther, jsonrpc.CodeInternal, "OTHER", domainOurs, 0, "INTERNAL"},
	{canonical.CodeTaskNotFound, -32001, "TASK_NOT_FOUND", domainA2A, 0, "NOT_FOUND"},
	{canonical.CodeNotCancelable, -32002, "TASK_NOT_CANCELABLE", domainA2A, 0, "FAILED_PRECONDITION"},
	{canonical.CodePushUnsupported, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", domainA2A, 0, "FAILED_PRECONDITION"},
	{canonical.CodeUnsupportedOp, -32004, "UNSUPPORTED_OPERATION", domainA2A, 0, "FAILED_PRECONDITION"},
	{canonical.CodeUnsupportedMedia, -32005, "CONTENT_TYPE_NOT_SUPPORTED", domainA2A, 0, "INVALID_ARGUMENT"},
	{canonical.CodeBadUpstream, -32006, "INVALID_AGENT_RESPONSE", domainA2A, 0, "INTERNAL"},
	{canonical.CodeCardUnavailable, -32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", domainA2A, 0, "FAILED_PRECONDITION"},
	{canonical.CodeCapabilityRequired, -32008, "EXTENSION_SUPPORT_REQUIRED", domainA2A, 0, "FAILED_PRECONDITION"},
	{canonical.CodeUnsupportedVersion, -32009, "VERSION_NOT_SUPPORTED", domainA2A, 0, "FAILED_PRECONDITION"},
	{canonical.CodeUnauthenticated, -31401, "UNAUTHENTICATED", domainOurs, http.StatusUnauthorized, "UNAUTHENTICATED"},
	{canonical.CodeForbidden, -31403, "FORBIDDEN", domainOurs, http.StatusForbidden, "PERMISSION_DENIED"},
}

func rowOf(code canonical.Code) errorRow {
	if i := slices.IndexFunc(errorTable[:], func(row errorRow) bool { return row.code == code }); i >= 0 {
		return errorTable[i]
	}
	return rowOf(canonical.CodeOther)
}

// coarse reports whether a number stands for several codes and this is not the
// one that a peer takes it for.
func (row errorRow) coarse() bool { return codeOf(row.number, "", 0) != row.code }

// codeOf finds the code of a native error: by reason, else by HTTP status where
// the number says no more than "internal", else by number.
func codeOf(number int64, reason string, status int) canonical.Code {
	code := canonical.CodeOther
	for _, row := range errorTable {
		if row.number != number {
			continue
		}
		if row.reason == reason || (reason == "" && status != 0 && row.status == status) {
			return row.code
		}
		if code == canonical.CodeOther {
			code = row.code
		}
	}
	return code
}

// decodeError reads a native error. Details that this package wrote itself
// become canonical members again, if writing those gives the same error; else
// the error is kept as it came, in Native.
func decodeError(m *canonical.Message, native *jsonrpc.Error, status int) {
	own, rest := readDetails(native.Data)
	e := &canonical.Error{
		Code: codeOf(native.Code, own.reason, status), Message: native.Message,
		RetryAfter: own.retry, Schema: own.schema, Details: rest, Native: own.upstream,
	}
	again := *m
	again.Body = e
	if own.carried != nil {
		c, err := profile.Unwrap(own.carried, "", Binding)
		if err == nil {
			profile.RestoreMessage(c.Canon, &again, carriedError...)
			e.Extensions = c.Extensions(Binding, nil)
		}
	}
	written, _ := (&encoder{m: &again, home: true}).failure(e)
	if native.Rest == nil && written.Code == native.Code && rawjson.Equal(written.Data, native.Data) {
		*m = again
		return
	}
	elements, _ := rawjson.Elements(native.Data)
	m.Body = &canonical.Error{
		Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter, Schema: e.Schema, Details: elements,
		Native:     &canonical.NativeError{Binding: Binding, Code: native.Code, Data: native.Data},
		Extensions: result(nil, native.Rest),
	}
}

// carriedError are the canonical members of an error reply that A2A has no place for.
var carriedError = append([]profile.Field{profile.FieldContextID, profile.FieldTaskID}, carriedTask...)

// details are the objects in an error's data that have a canonical place.
type details struct {
	reason   string
	retry    time.Duration
	schema   json.RawMessage
	upstream *canonical.NativeError
	carried  json.RawMessage
}

// readDetails sorts the elements of data; rest is what has no canonical place.
func readDetails(data json.RawMessage) (d details, rest []json.RawMessage) {
	elements, _ := rawjson.Elements(data)
	for _, element := range elements {
		if len(element) == 0 || element[0] != '{' || !d.read(rawjson.Parse(element, "")) {
			rest = append(rest, element)
		}
	}
	return d, rest
}

func (d *details) read(o *rawjson.Object) bool {
	kind, _ := rawjson.Unquote(o.Take("@type"))
	switch {
	case kind == typeErrorInfo && d.reason == "":
		d.reason = o.PeekText("reason")
		if domain := o.PeekText("domain"); domain != domainA2A && domain != domainOurs {
			d.reason = ""
		}
		return d.reason != ""
	case kind == typeRetryInfo && d.retry == 0:
		text := o.PeekText("retryDelay")
		delay, err := time.ParseDuration(text)
		if err != nil || delay < 0 || !strings.HasSuffix(text, "s") {
			return false
		}
		d.retry = delay
	case kind == profile.TypeInputSchema && d.schema == nil:
		d.schema = o.Peek("schema")
	case kind == profile.TypeUpstreamError && d.upstream == nil:
		d.upstream = upstream(o)
		return d.upstream != nil
	case kind == typeCarried && d.carried == nil:
		d.carried = o.Rest()
	default:
		return false
	}
	return true
}

func upstream(o *rawjson.Object) *canonical.NativeError {
	binding := o.PeekText("binding")
	code, err := strconv.ParseInt(string(o.Peek("code")), 10, 64)
	if err != nil || binding == "" {
		return nil
	}
	return &canonical.NativeError{Binding: canonical.Binding(binding), Code: code, Data: o.Peek("data")}
}

// failure writes an error and names the HTTP status that goes with it.
func (e *encoder) failure(body *canonical.Error) (jsonrpc.Error, int) {
	row := rowOf(body.Code)
	if n := body.Native; n != nil && n.Binding == Binding {
		if n.Code == row.number || codeOf(n.Code, "", 0) == body.Code {
			rest := newWriter(body.Extensions[Binding], errorMembers).bytes()
			return jsonrpc.Error{Code: n.Code, Message: body.Message, Data: n.Data, Rest: rest}, row.status
		}
	}
	e.loseIf(row.coarse(), canonical.LossErrorCode, "/body/code")
	return jsonrpc.Error{Code: row.number, Message: body.Message, Data: e.details(body, row)}, row.status
}

// details writes an error's data: first the reason (A2A 9.5 demands it), then
// what else is known.
func (e *encoder) details(body *canonical.Error, row errorRow) json.RawMessage {
	typed := func(kind string) *rawjson.Builder { return rawjson.NewBuilder().String("@type", kind) }
	list := []json.RawMessage{typed(typeErrorInfo).String("reason", row.reason).String("domain", row.domain).Bytes()}
	if body.RetryAfter > 0 {
		list = append(list, typed(typeRetryInfo).String("retryDelay", delay(body.RetryAfter)).Bytes())
	}
	if body.Schema != nil {
		list = append(list, typed(profile.TypeInputSchema).Raw("schema", body.Schema).Bytes())
		e.lose(canonical.LossErrorDetail, "/body/schema")
	}
	if n := body.Native; n != nil && n.Binding != Binding {
		list = append(list, typed(profile.TypeUpstreamError).String("binding", string(n.Binding)).
			Raw("code", json.RawMessage(strconv.FormatInt(n.Code, 10))).Raw("data", n.Data).Bytes())
		e.lose(canonical.LossErrorDetail, "/body/native")
	} else if n != nil {
		e.drop(canonical.LossErrorDetail, "/body/native")
	}
	canon := rawjson.NewBuilder()
	e.carry(canon, carriedError)
	if ours := e.wrap(canon, body.Extensions, "/body"); ours != nil {
		list = append(list, typed(typeCarried).Merge(ours).Bytes())
	}
	return rawjson.ArrayOf(slices.Concat(list, body.Details))
}

// delay is a duration in protobuf's JSON form.
func delay(d time.Duration) string {
	text := strconv.FormatInt(int64(d/time.Second), 10)
	if nanos := int64(d % time.Second); nanos != 0 {
		text += "." + strings.TrimRight(strconv.FormatInt(int64(time.Second)+nanos, 10)[1:], "0")
	}
	return text + "s"
}
