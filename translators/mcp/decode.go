package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Decode reads one message: a request, or with Wire.Re a reply. When the
// envelope could be read, a refusal comes with a message that holds the wire
// id, the version as far as it is known, and nothing else.
func (t *Translator) Decode(w translators.Wire) (*canonical.Message, error) {
	if w.Verb == http.MethodGet && len(w.Body) == 0 && w.Re == "" {
		return decodeListen(w)
	}
	if w.Media == translators.MediaText && w.Re != "" && !w.Event {
		return decodeRefusal(w)
	}
	env, err := jsonrpc.Parse(w.Body, t.cfg)
	if err != nil && (env.ID == nil || string(env.ID) == "null") {
		return nil, err
	}
	m := &canonical.Message{
		Correlation: canonical.Correlation{WireID: env.ID},
		Origin:      canonical.Origin{Binding: Binding, Raw: w.Body},
	}
	if err != nil {
		return m, err
	}
	env.Params, env.Result = withoutNulls(env.Params, w.Version), withoutNulls(env.Result, w.Version)
	switch {
	case w.Re == "" && env.Method == "":
		err = decodeReplyTo(w, env, m)
	case w.Re == "":
		err = decodeRequest(w, env, m)
	case w.Event && env.Method != "":
		err = decodeEvent(w, env, m)
	default:
		err = lenientReply(w, env, m, decodeReply(w, env, m))
	}
	if err != nil {
		return &canonical.Message{Correlation: canonical.Correlation{WireID: env.ID}, Origin: m.Origin}, err
	}
	m.Losses = append(m.Losses, env.Losses...)
	return m, nil
}

// maxText bounds, in bytes, how much is quoted of a text that refuses a request.
const maxText = 512

// textNoMethod begins the text with which servers of the SDK for Go refuse a method
// that they do not have, in revisions before 2026-07-28.
const textNoMethod = "JSON RPC not handled: "

// decodeRefusal reads the text with which a server has refused a request, in place of a
// message of the protocol.
func decodeRefusal(w translators.Wire) (*canonical.Message, error) {
	m := &canonical.Message{Op: w.Re, Phase: canonical.PhaseError, Origin: canonical.Origin{Binding: Binding, Version: replyVersion(w, nil), Raw: w.Body}}
	if !known(m.Origin.Version) {
		return m, unsupportedVersion(m.Origin.Version)
	}
	text := bytes.TrimSpace(w.Body)
	if len(text) > maxText {
		text = text[:maxText]
		m.Losses = []canonical.Loss{{Code: canonical.LossErrorDetail, Path: "/body/message", Fate: canonical.Dropped}}
	}
	code := canonical.CodeInvalidRequest
	if bytes.HasPrefix(text, []byte(textNoMethod)) {
		code = canonical.CodeNoMethod
	}
	m.Body = &canonical.Error{
		Code:    code,
		Message: "the agent refused the request with HTTP status " + strconv.Itoa(w.Status) + ": " + strconv.Quote(string(text)),
	}
	return m, nil
}

func decodeRequest(w translators.Wire, env jsonrpc.Message, m *canonical.Message) error {
	m.Phase = canonical.PhaseRequest
	r, err := read(env.Params, "/params")
	if err != nil {
		return err
	}
	notice := strings.HasPrefix(env.Method, "notifications/")
	if m.Origin.Version, err = requestVersion(w, env.Method, r, notice); err != nil {
		return err
	}
	switch {
	case notice && env.ID != nil:
		return refuse(canonical.CodeInvalidRequest, "a notification has no id")
	case env.Method == noticeCancelled:
		return decodeAbort(env, m, r)
	case notice:
		return decodeNotice(env, m)
	case env.ID == nil:
		return refuse(canonical.CodeInvalidRequest, "the id is missing")
	}
	if err := checkMirror(w, m.Origin.Version, env.Method, r); err != nil {
		return err
	}
	decodeTrace(w, m, r)
	if err := decodeRequestMeta(m, r); err != nil {
		return err
	}
	return decodeMethod(env, m, r)
}

func decodeMethod(env jsonrpc.Message, m *canonical.Message, r *reader) error {
	switch {
	case !serves(m.Origin.Version, env.Method):
		return refuse(canonical.CodeNoMethod, "this method is not served here"+hintFor(env.Method))
	case env.Method == MethodCall:
		return decodeCall(m, r)
	case env.Method == MethodList:
		m.Op = canonical.OpCapabilities
		page := &canonical.Page{}
		takeText(r.Object, "cursor", &page.Cursor)
		restoreAsker(m, r)
		page.Extensions = requestExtensions(env, r)
		m.Body = page
	case env.Method == MethodDiscover, env.Method == MethodInitialize:
		return decodeDescribe(env, m, r)
	case taskOp(env.Method) != "":
		return decodeTaskOp(env, m, r)
	case env.Method == MethodPing:
		m.Op = canonical.OpPing
		restoreAsker(m, r)
		m.Extensions = requestExtensions(env, r)
	default:
		m.Op = canonical.OpNative
		native, err := decodeNativeRequest(env, m.Origin.Version)
		if err != nil {
			return err
		}
		m.Body = native
		restoreAsker(m, r)
	}
	return r.err()
}

// hintFor tells a client of A2A where it is. It quotes no method that a caller wrote.
func hintFor(method string) string {
	switch method {
	case "SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask", "GetExtendedAgentCard",
		"message/send", "message/stream", "agent/getAuthenticatedExtendedCard", "tasks/resubscribe":
		return ": it is a method of A2A, which the agent's URL that ends in /a2a serves"
	default:
		return ""
	}
}

// restoreAsker gives a legacy request back what only a modern one says in _meta.
func restoreAsker(m *canonical.Message, r *reader) {
	if m.Origin.Version != Modern {
		profile.RestoreMessage(r.carried.Canon, m, legacyFields(m.Op)...)
	}
}

// requestExtensions keeps params: {} apart from no params at all.
func requestExtensions(env jsonrpc.Message, r *reader) canonical.Extensions {
	ext := r.extensions()
	if env.Params != nil && r.meta == nil && ext == nil {
		return canonical.Extensions{Binding: json.RawMessage("{}")}
	}
	return ext
}

// decodeNotice keeps a notification as it came: it has no answer and no counterpart in
// other protocols.
func decodeNotice(env jsonrpc.Message, m *canonical.Message) error {
	m.Op = canonical.OpNotice
	raw := rawjson.NewBuilder().String("method", env.Method).Raw("params", env.Params).Bytes()
	m.Extensions = canonical.Extensions{Binding: raw}
	return nil
}

// requestVersion finds the version of a request and demands that all who name
// one agree (2026-07-28, Streamable HTTP).
func requestVersion(w translators.Wire, method string, r *reader, notice bool) (string, error) {
	header := w.Header.Get(headerVersion)
	body := ""
	if r.meta != nil {
		body = r.meta.PeekText(metaVersion)
	}
	if method == MethodInitialize && IsLegacy(header) {
		header = "" // a client that begins a session has no version yet
	}
	version := assumed(w, method, r)
	for _, named := range []string{w.Version, header, body} {
		if named != "" {
			version = named
			break
		}
	}
	switch {
	case !known(version):
		return "", unsupportedVersion(version)
	case header != "" && header != version:
		return either(header, version), refuse(canonical.CodeHeaderMismatch, "the MCP-Protocol-Version header names another version")
	case body != "" && body != version:
		return either(body, version), refuse(canonical.CodeHeaderMismatch, "the version in _meta is another one")
	case version == Modern && body == "" && !notice && method != MethodInitialize:
		return version, refuse(canonical.CodeBadParams, "_meta lacks "+metaVersion)
	}
	return version, nil
}

// assumed is the version of a request that does not name one: initialize asks
// for it, and among requests that came with header fields only those of
// 2025-03-26 have none for it (2025-06-18, Streamable HTTP).
func assumed(w translators.Wire, method string, r *reader) string {
	if method == MethodInitialize {
		if version := r.PeekText("protocolVersion"); IsLegacy(version) {
			return version
		}
		return Legacy
	}
	if w.Header != nil {
		return LegacyMarch
	}
	return Legacy
}

// either is the version in which to say that two disagree: the modern one if it
// is one of them, because only it has words for that.
func either(a, b string) string {
	if a == Modern {
		return a
	}
	return b
}

// decodeRequestMeta takes out of _meta what has a canonical field.
func decodeRequestMeta(m *canonical.Message, r *reader) error {
	if r.meta == nil {
		return nil
	}
	if token := r.meta.Take("progressToken"); token != nil {
		if token[0] != '"' && token[0] != '-' && (token[0] < '0' || token[0] > '9') {
			r.meta.Fail("progressToken", "neither a string nor a number")
		}
		m.Correlation.Progress, m.Preferences.Stream = token, true
	}
	if m.Origin.Version != Modern {
		return r.meta.Err()
	}
	r.meta.Take(metaVersion)
	capabilities := r.meta.Peek(metaCapabilities)
	switch {
	case capabilities == nil:
		return refuse(canonical.CodeBadParams, "_meta lacks "+metaCapabilities)
	case capabilities[0] != '{':
		r.meta.Fail(metaCapabilities, "not an object")
	case rawjson.Equal(capabilities, []byte("{}")):
		r.meta.Take(metaCapabilities)
	default:
		m.Preferences.CanAnswer, m.Preferences.TaskOK = declared(capabilities, Modern)
	}
	r.takeMeta(metaLogLevel, &m.Preferences.LogLevel)
	switch info := r.meta.Peek(metaClientInfo); {
	case info == nil:
		r.meta.Put(metaClientInfo, absent())
	case rawjson.Equal(info, ourselves()):
		r.meta.Take(metaClientInfo)
	default:
		takeInfo(r, r.meta, metaClientInfo, &m.From)
	}
	return r.meta.Err()
}

// decodeTrace takes the trace from _meta, else from the header fields. The
// _meta keys stay as well: they show that it stood in the body.
func decodeTrace(w translators.Wire, m *canonical.Message, r *reader) {
	for _, f := range []struct {
		name string
		to   *string
	}{{metaTraceparent, &m.Trace.Parent}, {metaTracestate, &m.Trace.State}, {metaBaggage, &m.Trace.Baggage}} {
		if r.meta != nil {
			*f.to = r.meta.PeekText(f.name)
		}
		*f.to = cmp.Or(*f.to, w.Header.Get(f.name))
	}
}

// absent stands among leftovers for a member that an encoder would write by
// itself and that was not there. No peer can send it: null is refused in its place.
func absent() json.RawMessage { return json.RawMessage("null") }

// takeInfo takes name and version out of an Implementation; what is left of it
// stays under its name.
func takeInfo(r *reader, o *rawjson.Object, name string, to *canonical.Party) {
	takeParty(r, o, name, "name or version is not a string", partyFields(to), func(*rawjson.Object) bool { return to.Name == "" && to.Version == "" })
}

func decodeReply(w translators.Wire, env jsonrpc.Message, m *canonical.Message) error {
	if env.Method != "" {
		return refuse(canonical.CodeBadUpstream, "a request, expected a reply")
	}
	m.Op = w.Re
	if env.Error != nil {
		if m.Origin.Version = replyVersion(w, nil); !known(m.Origin.Version) {
			return unsupportedVersion(m.Origin.Version)
		}
		return decodeError(m, env.Error)
	}
	m.Phase = canonical.PhaseResponse
	if string(env.Result) == "null" { // an answer without content, as some servers give to a ping
		env.Result = json.RawMessage("{}")
	}
	if w.Re == canonical.OpNative {
		return decodeNative(w, env, m)
	}
	r, err := read(env.Result, "/result")
	if err != nil {
		return err
	}
	m.Origin.Version = replyVersion(w, r.Peek("resultType"))
	if !known(m.Origin.Version) {
		return unsupportedVersion(m.Origin.Version)
	}
	kind, err := decodeResultHead(m, r)
	if err != nil {
		return err
	}
	switch {
	case kind == resultAsks:
		return decodePending(m, r)
	case kind == resultTask, m.Op == canonical.OpInvoke && m.Origin.Version == Legacy && rawjson.IsObject(r.Peek("task")) && !r.Has("content"):
		return decodeCreated(m, r)
	case taskMethod(m.Op) != "":
		return decodeTaskReply(m, r)
	case w.Profile.Content() && m.Op == canonical.OpInvoke:
		return decodeContent(m, r, w.Profile)
	}
	switch w.Re {
	case canonical.OpInvoke:
		return decodeResult(m, r)
	case canonical.OpCapabilities:
		return decodeList(m, r)
	case canonical.OpDescribe:
		return decodeDescription(m, r)
	case canonical.OpPing:
		m.Extensions = r.extensions()
		return r.err()
	default:
		return refuse(canonical.CodeBadUpstream, "a reply without a request that it could answer")
	}
}

// decodeNative keeps the result of a method that only MCP has.
func decodeNative(w translators.Wire, env jsonrpc.Message, m *canonical.Message) error {
	if !rawjson.IsObject(env.Result) {
		return refuse(canonical.CodeBadUpstream, "the result is no object")
	}
	kind := rawjson.Parse(env.Result, "").Peek("resultType")
	m.Origin.Version = replyVersion(w, kind)
	if !known(m.Origin.Version) {
		return unsupportedVersion(m.Origin.Version)
	}
	if text, _ := rawjson.Unquote(kind); text == resultAsks {
		r, err := read(env.Result, "/result")
		if err != nil {
			return err
		}
		r.Take("resultType")
		return decodePending(m, r)
	}
	m.Body = &canonical.Native{Result: env.Result}
	return nil
}

// replyVersion returns the version of a reply, which does not name it. Only the modern version
// has a result type.
func replyVersion(w translators.Wire, resultType json.RawMessage) string {
	otherwise := Legacy
	if resultType != nil {
		otherwise = Modern
	}
	return cmp.Or(w.Version, w.Header.Get(headerVersion), otherwise)
}

// The result types of 2026-07-28 and its extension for tasks.
const (
	resultDone = "complete"
	resultAsks = "input_required"
	resultTask = "task"
)

// decodeResultHead reads the result type. An unknown one is invalid
// (2026-07-28, resultType), and so is one that does not answer to what was asked.
func decodeResultHead(m *canonical.Message, r *reader) (kind string, err error) {
	if m.Origin.Version != Modern {
		if m.Op != canonical.OpDescribe {
			profile.RestoreMessage(r.carried.Canon, m, profile.FieldFromName, profile.FieldFromVersion)
		}
		return resultDone, nil
	}
	raw := r.Take("resultType")
	switch kind, _ = rawjson.Unquote(raw); {
	case raw == nil:
		kind = resultDone
		r.Put("resultType", absent())
	case kind == resultDone, (kind == resultAsks || kind == resultTask) && m.Op == canonical.OpInvoke:
	default:
		return "", refuse(canonical.CodeBadUpstream, "the result type was not requested")
	}
	if r.meta != nil && m.Op != canonical.OpDescribe {
		takeInfo(r, r.meta, metaServerInfo, &m.From)
		return kind, r.meta.Err()
	}
	return kind, nil
}
