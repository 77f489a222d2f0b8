package mcp

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The codes of 2026-07-28 that JSON-RPC does not have, and the legacy one.
const (
	codeHeaderMismatch     = -32020
	codeCapabilityRequired = -32021
	codeUnsupportedVersion = -32022
	codeResourceNotFound   = -32002 // legacy only; modern gives the number no meaning
)

func refuse(code canonical.Code, message string) error {
	return &canonical.Error{Code: code, Message: message}
}

func unsupportedVersion(requested string) error {
	data := rawjson.NewBuilder().Strings("supported", Revisions(), true).String("requested", requested).Bytes()
	return &canonical.Error{
		Code: canonical.CodeUnsupportedVersion, Message: "Unsupported protocol version",
		Native: &canonical.NativeError{Binding: Binding, Code: codeUnsupportedVersion, Data: data},
	}
}

// nativeCode says a code in MCP's numbers.
func nativeCode(code canonical.Code, version string) int64 {
	switch code {
	case canonical.CodeParse:
		return jsonrpc.CodeParse
	case canonical.CodeInvalidRequest, canonical.CodeUnauthenticated, canonical.CodeForbidden:
		return jsonrpc.CodeInvalidRequest
	case canonical.CodeNoMethod, canonical.CodeUnsupportedOp, canonical.CodePushUnsupported, canonical.CodeCardUnavailable:
		return jsonrpc.CodeNoMethod
	case canonical.CodeBadParams, canonical.CodeTaskNotFound, canonical.CodeSkillNotFound,
		canonical.CodeNotCancelable, canonical.CodeUnsupportedMedia:
		return jsonrpc.CodeBadParams
	case canonical.CodeResourceNotFound:
		return byEra(version, jsonrpc.CodeBadParams, codeResourceNotFound)
	case canonical.CodeHeaderMismatch:
		return byEra(version, codeHeaderMismatch, jsonrpc.CodeInvalidRequest)
	case canonical.CodeCapabilityRequired:
		return byEra(version, codeCapabilityRequired, jsonrpc.CodeBadParams)
	case canonical.CodeUnsupportedVersion:
		return byEra(version, codeUnsupportedVersion, jsonrpc.CodeInvalidRequest)
	default:
		return jsonrpc.CodeInternal
	}
}

func byEra(version string, modern, legacy int64) int64 {
	if version == Modern {
		return modern
	}
	return legacy
}

// agentCode says an error of an agent of another protocol. What that one does not do or
// does not understand says nothing about MCP between its client and this server: in
// MCP's own numbers the client would take it for a method that is missing here, or for a
// version or a capability to be negotiated (2026-07-28, Lifecycle, Error Handling).
func agentCode(code canonical.Code, version string) int64 {
	if slices.Contains([]canonical.Code{
		canonical.CodeParse, canonical.CodeInvalidRequest, canonical.CodeNoMethod, canonical.CodeHeaderMismatch, canonical.CodeUnsupportedOp,
		canonical.CodePushUnsupported, canonical.CodeCardUnavailable, canonical.CodeCapabilityRequired, canonical.CodeUnsupportedVersion,
	}, code) {
		return jsonrpc.CodeInternal
	}
	return nativeCode(code, version)
}

// codes are MCP's numbers of every revision, modernCodes those of 2026-07-28.
var (
	codes = map[int64]canonical.Code{
		jsonrpc.CodeParse: canonical.CodeParse, jsonrpc.CodeInvalidRequest: canonical.CodeInvalidRequest, jsonrpc.CodeNoMethod: canonical.CodeNoMethod,
		jsonrpc.CodeBadParams: canonical.CodeBadParams, jsonrpc.CodeInternal: canonical.CodeInternal,
	}
	modernCodes = map[int64]canonical.Code{
		codeHeaderMismatch: canonical.CodeHeaderMismatch, codeCapabilityRequired: canonical.CodeCapabilityRequired,
		codeUnsupportedVersion: canonical.CodeUnsupportedVersion,
	}
)

// codeOf reads MCP's numbers.
func codeOf(native int64, version string) canonical.Code {
	code := codes[native]
	switch {
	case code != "":
	case version == Modern:
		code = modernCodes[native]
	case native == codeResourceNotFound:
		code = canonical.CodeResourceNotFound
	}
	return cmp.Or(code, canonical.CodeOther)
}

// The carried members of an error, in the canon of its data.
const (
	canonCode       = "code"
	canonNative     = "native"
	canonDetails    = "details"
	canonRetryAfter = "retryAfterMs"
)

func decodeError(m *canonical.Message, in *jsonrpc.Error) error {
	m.Phase, m.Body = canonical.PhaseError, errorBody(in, m.Origin.Version)
	return nil
}

func errorBody(in *jsonrpc.Error, version string) *canonical.Error {
	e := &canonical.Error{
		Code: codeOf(in.Code, version), Message: in.Message,
		Native: &canonical.NativeError{Binding: Binding, Code: in.Code, Data: in.Data},
	}
	if in.Rest != nil {
		e.Extensions = canonical.Extensions{Binding: in.Rest}
		return e // no gateway writes an error like that
	}
	if !rawjson.IsObject(in.Data) {
		return e
	}
	data := rawjson.Parse(in.Data, "/error/data")
	if raw := data.Peek("schema"); len(raw) > 0 && raw[0] == '{' && e.Code == canonical.CodeBadParams {
		e.Schema = raw
	}
	carried := data.Peek(profile.ExtKey)
	if carried == nil {
		return e
	}
	c, err := profile.Unwrap(carried, "/error/data", Binding)
	if err != nil {
		return e // any server may set data; without a carriage of a gateway it is plain data
	}
	restored := *e
	restoreError(&restored, c)
	// Kept, not believed: only what we would say in these very words.
	for _, number := range []func(canonical.Code, string) int64{nativeCode, agentCode} {
		again := (&encoder{version: version, modern: version == Modern}).numbered(&restored, number(restored.Code, version))
		if again.Code == in.Code && rawjson.Equal(again.Data, in.Data) {
			return &restored
		}
	}
	return e
}

// restoreError restores a carried error. The native view is
// then what it was at home, if it had one there.
func restoreError(e *canonical.Error, c profile.Carried) {
	if code, ok := rawjson.Unquote(c.Canon.Take(canonCode)); ok {
		e.Code = canonical.Code(code)
	}
	if details, ok := c.Canon.Array(canonDetails); ok {
		e.Details = details
	}
	if ms, err := strconv.ParseInt(string(c.Canon.Take(canonRetryAfter)), 10, 64); err == nil && ms > 0 {
		e.RetryAfter = time.Duration(ms) * time.Millisecond
	}
	e.Extensions, e.Native = c.Ext, nil
	if native := c.Canon.Object(canonNative); native != nil {
		binding, _ := native.String("binding")
		code, err := strconv.ParseInt(string(native.Take("code")), 10, 64)
		if err == nil && native.Err() == nil && binding != "" && binding != string(Binding) {
			e.Native = &canonical.NativeError{Binding: canonical.Binding(binding), Code: code, Data: native.Take("data")}
		}
	}
}

// failure writes an error reply.
func (e *encoder) failure() (translators.Wire, error) {
	body, ok := e.m.Body.(*canonical.Error)
	if !ok {
		return translators.Wire{}, refuse(canonical.CodeInternal, "an error response without an error")
	}
	failure := e.errorOf(body)
	// an unknown id is left out: MCP has no null ids
	w := translators.Wire{Body: rawjson.NewBuilder().String("jsonrpc", "2.0").Raw("id", e.m.Correlation.WireID).Raw("error", failure.Object()).Bytes()}
	if failure.Code != jsonrpc.CodeInternal {
		w.Status = e.status(body.Code)
	}
	return w, nil
}

// errorOf gives an error its number: the gateway's own errors, which no agent has made,
// have MCP's.
func (e *encoder) errorOf(body *canonical.Error) jsonrpc.Error {
	number := nativeCode
	if by := e.m.Origin.Binding; by != "" && by != Binding {
		number = agentCode
	}
	failure := e.numbered(body, number(body.Code, e.version))
	if n := body.Native; n != nil && n.Binding == Binding {
		failure.Rest = body.Extensions[Binding]
	}
	return failure
}

func (e *encoder) numbered(body *canonical.Error, code int64) jsonrpc.Error {
	out := jsonrpc.Error{Code: code, Message: body.Message}
	n := body.Native
	switch {
	case n == nil || n.Binding != Binding:
		out.Data = e.errorData(body, out.Code)
	case codeOf(n.Code, e.version) == body.Code:
		out.Code, out.Data = n.Code, n.Data
	case codeOf(code, e.version) == body.Code: // MCP's own, from a revision with other numbers
		out.Data = n.Data
	default: // and this revision has none for it: what was said stays the agent's
		e.lose(canonical.LossErrorCode, canonical.Carried, "/body/code")
		if n.Data != nil && !rawjson.IsObject(n.Data) {
			out.Code, out.Data = n.Code, n.Data
			break
		}
		canon := rawjson.NewBuilder().String(canonCode, string(body.Code)).Object()
		out.Data = rawjson.NewBuilder().Merge(n.Data).Raw(profile.ExtKey, profile.Wrap(canon, nil, Binding)).Bytes()
	}
	return out
}

// errorData carries what a number and a sentence cannot say.
func (e *encoder) errorData(body *canonical.Error, native int64) json.RawMessage {
	canon := rawjson.NewBuilder()
	if codeOf(native, e.version) != body.Code && body.Code != "" {
		canon.String(canonCode, string(body.Code))
		e.lose(canonical.LossErrorCode, canonical.Carried, "/body/code")
	}
	if n := body.Native; n != nil {
		canon.Raw(canonNative, rawjson.NewBuilder().String("binding", string(n.Binding)).
			Raw("code", json.RawMessage(strconv.FormatInt(n.Code, 10))).Raw("data", n.Data).Bytes())
		e.lose(canonical.LossErrorDetail, canonical.Carried, "/body/native")
	}
	if len(body.Details) > 0 {
		canon.Raw(canonDetails, rawjson.ArrayOf(body.Details))
		e.lose(canonical.LossErrorDetail, canonical.Carried, "/body/details")
	}
	if ms := body.RetryAfter.Milliseconds(); ms > 0 {
		canon.Raw(canonRetryAfter, json.RawMessage(strconv.FormatInt(ms, 10)))
		e.lose(canonical.LossErrorDetail, canonical.Carried, "/body/retryAfter")
	}
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	b := rawjson.NewBuilder()
	if native == codeUnsupportedVersion && e.modern {
		b.Strings("supported", Revisions(), true).String("requested", "")
	}
	if native == codeCapabilityRequired && e.modern {
		b.Raw("requiredCapabilities", json.RawMessage("{}"))
	}
	return b.Raw("schema", body.Schema).Raw(profile.ExtKey, profile.Wrap(canon.Object(), body.Extensions, Binding)).Object()
}

// status is the HTTP status that the protocol wants (2026-07-28, Streamable
// HTTP); legacy answers errors with 200 like any reply.
func (e *encoder) status(code canonical.Code) int {
	if !e.modern {
		return 0
	}
	switch code {
	case canonical.CodeParse, canonical.CodeInvalidRequest, canonical.CodeHeaderMismatch,
		canonical.CodeUnsupportedVersion, canonical.CodeCapabilityRequired:
		return http.StatusBadRequest
	case canonical.CodeNoMethod:
		return http.StatusNotFound
	default:
		return 0
	}
}

// Misfit is the answer to a call whose arguments do not fit the tool's schema: a result
// with isError, which a model reads and mends (SEP-1303; MCP 2025-11-25, Tools, Error
// Handling). The SDKs answer so in the older revisions too. nil: it is another error, or
// a call whose answer has to be a task (2025-11-25, Tasks), and stays an error.
func Misfit(revision string, request *canonical.Message, failure *canonical.Error) *canonical.Result {
	tasked := revision == Legacy && request.Preferences.TaskOK
	if request.Op != canonical.OpInvoke || failure.Code != canonical.CodeBadParams || failure.Schema == nil || tasked {
		return nil
	}
	if invoke, ok := request.Body.(*canonical.Invoke); ok && invoke.State != "" {
		return nil // the answer to a question does not fit: the call has not ended
	}
	return &canonical.Result{Output: &canonical.Output{
		Failed: true, Parts: []canonical.Part{{Kind: canonical.KindText, Text: failure.Message}},
	}}
}
