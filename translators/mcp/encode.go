package mcp

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// encoder writes one message.
type encoder struct {
	m          *canonical.Message
	version    string
	modern     bool
	native     bool // the message came from this very protocol and version: nothing is added
	capability *canonical.Capability
	answerable []canonical.Mode // as the session began with
	losses     []canonical.Loss
}

// Encode writes one message for target; without a version in the newest one.
func (t *Translator) Encode(m *canonical.Message, target translators.Target) (translators.Wire, []canonical.Loss, error) {
	version, err := choose(target)
	if err != nil {
		return translators.Wire{}, nil, err
	}
	e := &encoder{
		m: m, version: version, modern: version == Modern, capability: target.Capability, answerable: target.Answers,
		native: m.Origin.Binding == Binding && m.Origin.Version == version,
	}
	wire, err := e.encode()
	if err != nil {
		return translators.Wire{}, nil, err
	}
	wire.Binding, wire.Version, wire.Media = Binding, version, "application/json"
	if m.Phase != canonical.PhaseRequest {
		wire.Re = m.Op
	}
	return wire, e.newLosses(), nil
}

// newLosses returns the losses of this encoding. What a message of MCP itself carries was
// carried when it came, and is no new loss.
func (e *encoder) newLosses() []canonical.Loss {
	if !e.native {
		return e.losses
	}
	return slices.DeleteFunc(e.losses, func(l canonical.Loss) bool { return l.Fate == canonical.Carried })
}

func (e *encoder) encode() (translators.Wire, error) {
	switch e.m.Phase {
	case canonical.PhaseRequest:
		return e.request()
	case canonical.PhaseEvent:
		wire, err := e.event()
		wire.Event = true
		return wire, err
	case canonical.PhaseResponse:
		return e.response()
	case canonical.PhaseError:
		return e.failure()
	default:
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "MCP has no such phase")
	}
}

func (e *encoder) lose(code canonical.LossCode, fate canonical.Fate, path string) {
	e.losses = append(e.losses, canonical.Loss{Code: code, Path: path, Fate: fate})
}

// dropIf declares what is there and has no place.
func (e *encoder) dropIf(there bool, code canonical.LossCode, path string) {
	if there {
		e.lose(code, canonical.Dropped, path)
	}
}

func (e *encoder) request() (translators.Wire, error) {
	switch body := e.m.Body.(type) {
	case *canonical.Reply:
		return e.replyTo(body)
	case *canonical.Abort:
		return e.abort(body), nil
	}
	if e.m.Op == canonical.OpNotice {
		return e.notice()
	}
	if body, ok := e.m.Body.(*canonical.Native); ok && body.Method == methodListen {
		return e.listen()
	}
	if e.m.Correlation.WireID == nil {
		return translators.Wire{}, refuse(canonical.CodeInternal, "the request has no id yet")
	}
	var (
		method, name string
		params       json.RawMessage
		err          error
		h            http.Header
	)
	switch body := e.m.Body.(type) {
	case *canonical.Invoke:
		var call *canonical.Call
		call, params, err = e.call(body)
		if err != nil {
			return translators.Wire{}, err
		}
		method, name = e.method(call)
		h = header(e.m, e.version, method, name)
		if e.modern && e.capability != nil && method == MethodCall {
			paramHeaders(h, e.capability.InputSchema, call.Args)
		}
	case *canonical.Page:
		method, params = MethodList, e.page(body)
	case *canonical.DescribeRequest:
		method, params = e.describe(body)
	case *canonical.TaskQuery:
		name = body.ID
		method, params, err = e.taskQuery(body)
	case *canonical.TaskFilter:
		method, params, err = e.taskFilter(body)
	case *canonical.Native:
		method = body.Method
		name, params, err = e.nativeRequest(body)
	default:
		if e.m.Op != canonical.OpPing || e.modern {
			return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "MCP "+e.version+" has no such request")
		}
		w := write(e.m.Extensions)
		e.requestMeta(w)
		method, params = MethodPing, e.params(w, e.m.Extensions)
	}
	if err != nil {
		return translators.Wire{}, err
	}
	if h == nil {
		h = header(e.m, e.version, method, name)
	}
	return translators.Wire{Header: h, Body: jsonrpc.Request(e.m.Correlation.WireID, method, params)}, nil
}

// tasking reports whether a request is about a task: it then declares the capability.
func tasking(op canonical.Op) bool {
	return op == canonical.OpTaskGet || op == canonical.OpTaskCancel || op == canonical.OpTaskAnswer
}

// params closes a level that may be absent altogether.
func (e *encoder) params(w *writer, ext canonical.Extensions) json.RawMessage {
	if ext[Binding] != nil {
		return w.bytes()
	}
	return w.object()
}

func (e *encoder) notice() (translators.Wire, error) {
	raw := e.m.Extensions[Binding]
	if raw == nil {
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "MCP has no such notification")
	}
	o := rawjson.Parse(raw, "")
	method, _ := o.String("method")
	if o.Err() != nil || method == "" {
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "MCP has no such notification")
	}
	return translators.Wire{
		Header: header(e.m, e.version, method, ""),
		Body:   jsonrpc.Request(nil, method, o.RawObject("params")),
	}, nil
}

// requestMeta writes what every request says about itself.
func (e *encoder) requestMeta(w *writer) {
	w.metaRaw("progressToken", e.m.Correlation.Progress)
	for _, f := range []struct{ name, value string }{
		{metaTraceparent, e.m.Trace.Parent}, {metaTracestate, e.m.Trace.State}, {metaBaggage, e.m.Trace.Baggage},
	} {
		if f.value != "" && (!e.native || w.metaLeft(f.name) != nil) {
			w.metaRaw(f.name, rawjson.Quote(f.value))
		}
	}
	if !e.modern {
		e.legacyMeta(w)
		return
	}
	w.metaRaw(metaVersion, rawjson.Quote(e.version))
	if left := w.metaLeft(metaCapabilities); left == nil || !e.native {
		raw := declaring(e.m.Preferences.CanAnswer, e.m.Preferences.TaskOK || tasking(e.m.Op) && !e.native, e.version)
		if left != nil && !rawjson.Equal(left, raw) {
			e.lose(canonical.LossPeerInfo, canonical.Dropped, e.metaPath())
		}
		w.metaRaw(metaCapabilities, raw)
	}
	if e.m.Preferences.LogLevel != "" {
		w.metaRaw(metaLogLevel, rawjson.Quote(e.m.Preferences.LogLevel))
	}
	e.clientInfo(w)
}

// metaPath is where a request's _meta stands in the canonical message.
func (e *encoder) metaPath() string {
	if e.m.Op == canonical.OpNative {
		return "/body/params/_meta"
	}
	return "/body/extensions/mcp-v1/_meta"
}

// clientInfo writes the name of the caller, or of this gateway if the caller is unknown. A
// message of MCP that came without one leaves without one.
func (e *encoder) clientInfo(w *writer) {
	left := w.metaLeft(metaClientInfo)
	nobody := e.m.From.Name == "" && e.m.From.Version == ""
	switch {
	case nobody && string(left) == "null" && e.native:
		w.left.Take(metaClientInfo)
	case nobody && (left == nil || string(left) == "null"):
		w.metaRaw(metaClientInfo, ourselves())
	default:
		w.metaRaw(metaClientInfo, e.info(w, metaClientInfo, left, e.m.From))
	}
}

func ourselves() json.RawMessage {
	return json.RawMessage(`{"name":"` + gatewayName + `","version":""}`)
}

// legacyMeta carries what a legacy request has no place for, and drops what
// only makes sense in a modern one.
func (e *encoder) legacyMeta(w *writer) {
	for _, name := range []string{metaVersion, metaCapabilities, metaClientInfo} {
		if !e.native && w.metaLeft(name) != nil {
			w.left.Take(name)
			e.lose(canonical.LossPeerInfo, canonical.Dropped, e.metaPath())
		}
	}
	e.losses = append(e.losses, profile.CarryMessage(&w.canon, e.m, legacyFields(e.m.Op)...)...)
	known := func(modes []canonical.Mode) []canonical.Mode { // in this revision: a server asks for nothing else
		modes, _ = declared(declaring(modes, false, e.version), e.version)
		return modes
	}
	session := e.answerable != nil && slices.Equal(known(e.answerable), known(e.m.Preferences.CanAnswer))
	if e.m.Preferences.CanAnswer != nil && !session && e.m.Op != canonical.OpDescribe {
		e.lose(canonical.LossPeerInfo, canonical.Dropped, "/preferences/canAnswer")
	}
}

func legacyFields(op canonical.Op) []profile.Field {
	if op == canonical.OpDescribe {
		return []profile.Field{profile.FieldLogLevel}
	}
	return []profile.Field{profile.FieldLogLevel, profile.FieldFromName, profile.FieldFromVersion}
}

// info writes the Implementation of a client over what was left of one.
func (e *encoder) info(level *writer, name string, left json.RawMessage, who canonical.Party) json.RawMessage {
	return e.party(level, name, left, partyFields(&who), gatewayName, "")
}

// gatewayName is who asks when the message does not say.
const gatewayName = "aepb-gateway"

func (e *encoder) response() (translators.Wire, error) {
	var (
		result json.RawMessage
		err    error
	)
	switch body := e.m.Body.(type) {
	case *canonical.Result:
		if body.Task != nil && (e.m.Op == canonical.OpTaskGet || e.m.Op == canonical.OpTaskCancel) {
			result, err = e.taskReply(body)
		} else {
			result, err = e.result(body)
		}
	case *canonical.TaskList:
		result, err = e.taskList(body)
	case *canonical.Done:
		result, err = e.done(body)
	case *canonical.CapabilityList:
		result = e.list(body)
	case *canonical.Description:
		result = e.description(body)
	case *canonical.Native:
		return e.nativeResponse(body)
	default:
		if e.m.Op != canonical.OpPing {
			return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "MCP has no such reply")
		}
		w := write(e.m.Extensions)
		e.head(w, resultDone)
		result = w.bytes()
	}
	if err != nil {
		return translators.Wire{}, err
	}
	return translators.Wire{Body: jsonrpc.Result(e.m.Correlation.WireID, result)}, nil
}

// head writes what every modern result says about itself.
func (e *encoder) head(w *writer, kind string) {
	e.resultKind(w, kind)
	if !e.modern {
		e.losses = append(e.losses, profile.CarryMessage(&w.canon, e.m, profile.FieldFromName, profile.FieldFromVersion)...)
		return
	}
	if left := w.metaLeft(metaServerInfo); left != nil || e.m.From.Name != "" {
		w.metaRaw(metaServerInfo, e.info(w, metaServerInfo, left, e.m.From))
	}
}

func (e *encoder) resultKind(w *writer, kind string) {
	const name = "resultType"
	left := string(w.own.Peek(name))
	if left == "null" && (e.native || !e.modern) {
		w.forget(name)
	}
	e.forget(w, canonical.LossExtension, name)
	switch {
	case !e.modern:
		e.forget(w, canonical.LossCaching, "ttlMs", "cacheScope")
	case left != "null" || !e.native:
		w.need(name, kind)
	}
}

// forget drops leftovers that only their own revision may say.
func (e *encoder) forget(w *writer, code canonical.LossCode, names ...string) {
	for _, name := range names {
		if left := w.own.Peek(name); left != nil && !e.native {
			w.forget(name)
			e.lose(code, canonical.Dropped, "/body/extensions/"+string(Binding)+"/"+name)
		}
	}
}

// caching adds how long a listing may be kept. Ours are private: what an agent
// offers may depend on who asks.
func (e *encoder) caching(w *writer) {
	if e.native || !e.modern {
		return
	}
	if !w.own.Has("ttlMs") {
		w.raw("ttlMs", json.RawMessage("300000"))
	}
	if !w.own.Has("cacheScope") {
		w.need("cacheScope", "private")
	}
}
