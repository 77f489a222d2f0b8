package mcp

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

func indexed(at string, i int) string { return at + "/" + strconv.Itoa(i) }

// decodeEvent reads what a server says before it replies: a notification, or,
// in a legacy revision, a request of its own.
func decodeEvent(w translators.Wire, env jsonrpc.Message, m *canonical.Message) error {
	m.Op, m.Phase = w.Re, canonical.PhaseEvent
	m.Correlation.WireID = nil // an event answers nothing by itself
	if m.Origin.Version = replyVersion(w, nil); !known(m.Origin.Version) {
		return unsupportedVersion(m.Origin.Version)
	}
	event := &canonical.Event{}
	m.Body = event
	notice := strings.HasPrefix(env.Method, "notifications/")
	switch {
	case env.ID != nil && notice:
		return refuse(canonical.CodeBadUpstream, "a notification has no id")
	case env.ID != nil:
		return decodeAsk(env, m, event)
	case !notice:
		return refuse(canonical.CodeBadUpstream, "a request without an id")
	case env.Method == noticeProgress:
		return unreadable(decodeProgress(env, m.Origin.Version, event), "/body/progress")
	case env.Method == noticeMessage:
		return unreadable(decodeLog(env, event), "/body/log")
	default:
		event.Native = &canonical.Native{Method: env.Method, Params: env.Params}
		return nil
	}
}

// unreadable returns the error of a malformed notification, which ends no request: it has
// no reply (JSON-RPC 2.0, section 4.1). nil stays nil.
func unreadable(err error, place string) error {
	if err == nil {
		return nil
	}
	return &translators.UnreadableNoticeError{Err: err, Loss: canonical.Loss{Code: canonical.LossProgress, Path: place, Fate: canonical.Dropped}}
}

func decodeAsk(env jsonrpc.Message, m *canonical.Message, event *canonical.Event) error {
	if m.Origin.Version == Modern {
		return refuse(canonical.CodeBadUpstream, "a server of "+Modern+" makes no requests")
	}
	in, err := decodeInput(askKey, env.Method, env.Params, nil, "")
	event.Ask = &canonical.Ask{ID: env.ID, Input: in}
	return err
}

func decodeProgress(env jsonrpc.Message, version string, event *canonical.Event) error {
	r, err := readIn(env.Params, "/params", version, levelProgress, nil)
	if err != nil {
		return err
	}
	p := &canonical.Progress{Token: r.Take("progressToken"), Value: r.Take("progress"), Total: r.Take("total")}
	if !isTokenValue(p.Token) {
		r.Fail("progressToken", "neither a string nor a number")
	}
	if !rawjson.IsNumber(p.Value) {
		r.Fail("progress", "not a number")
	}
	if p.Total != nil && !rawjson.IsNumber(p.Total) {
		r.Fail("total", "not a number")
	}
	takeText(r.Object, "message", &p.Message)
	event.Progress, event.Extensions = p, r.extensions()
	return r.err()
}

func isTokenValue(raw json.RawMessage) bool {
	return len(raw) > 0 && raw[0] == '"' || rawjson.IsNumber(raw)
}

func decodeLog(env jsonrpc.Message, event *canonical.Event) error {
	r, err := read(env.Params, "/params")
	if err != nil {
		return err
	}
	l := &canonical.Log{Level: r.Required("level"), Data: r.Take("data")}
	if l.Data == nil {
		r.Fail("data", "required")
	}
	takeText(r.Object, "logger", &l.Logger)
	event.Log, event.Extensions = l, r.extensions()
	return r.err()
}

// event writes one message of a stream.
func (e *encoder) event() (translators.Wire, error) {
	body, ok := e.m.Body.(*canonical.Event)
	if !ok {
		return translators.Wire{}, refuse(canonical.CodeInternal, "the event is empty")
	}
	w := write(body.Extensions)
	var method string
	switch {
	case body.Progress != nil:
		w = e.write(body.Extensions, levelProgress)
		p := body.Progress
		if !isTokenValue(p.Token) {
			return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "the caller asked for no progress: expected a progress token in its request")
		}
		method = noticeProgress
		w.raw("progressToken", p.Token)
		w.raw("progress", rawjson.Or(p.Value, "0"))
		w.raw("total", p.Total)
		w.text("message", p.Message)
	case body.Log != nil && !e.listens(body.Log.Level):
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "the caller asked for no log of this level: expected a lower level in its request")
	case body.Log != nil:
		method = noticeMessage
		w.need("level", body.Log.Level)
		w.text("logger", body.Log.Logger)
		w.raw("data", rawjson.Or(body.Log.Data, "null"))
	case body.Ask != nil:
		return e.ask(body.Ask)
	case body.Native != nil:
		return e.noticeOf(body.Native)
	default:
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "MCP has no such event")
	}
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	params := w.bytes()
	e.declare(w, canonical.LossAnnotations, "/body", "", map[string]string{"message": "progress/message"})
	return translators.Wire{Body: jsonrpc.Request(nil, method, params)}, nil
}

// listens reports whether the client takes a log of this level. Since 2026-07-28 every request
// names the lowest level that it takes; without one it takes none. A server of that
// revision has checked that itself.
func (e *encoder) listens(level string) bool {
	if !e.modern || e.native {
		return true
	}
	from, at := slices.Index(levels[:], e.m.Preferences.LogLevel), slices.Index(levels[:], level)
	return from >= 0 && (at < 0 || at >= from)
}

// ask writes a request of the server's.
func (e *encoder) ask(a *canonical.Ask) (translators.Wire, error) {
	if e.modern {
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "a server of "+Modern+" makes no requests")
	}
	if a.ID == nil {
		return translators.Wire{}, refuse(canonical.CodeInternal, "the question has no id yet")
	}
	id, ok := rawjson.Unquote(a.ID)
	if !ok {
		id = string(a.ID)
	}
	request, err := e.input(&a.Input, id, "/body/ask/input")
	if task := e.m.Conversation.TaskID; task != "" && e.m.Op == canonical.OpTaskResult && !e.native && err == nil {
		request.params = related(request.params, task)
	}
	return translators.Wire{Body: jsonrpc.Request(a.ID, request.method, request.params)}, err
}

// takeMeta takes the _meta of an object; what is no object stays there.
func takeMeta(o *rawjson.Object) *rawjson.Object {
	if !rawjson.IsObject(o.Peek("_meta")) {
		return rawjson.Empty()
	}
	return rawjson.Parse(o.Take("_meta"), "")
}

// related says which task a request belongs to (2025-11-25).
func related(params json.RawMessage, task string) json.RawMessage {
	o := rawjson.Parse(rawjson.OrEmpty(params), "")
	meta := takeMeta(o)
	meta.Take(metaRelated)
	of := rawjson.NewBuilder().String("taskId", task).Bytes()
	about := rawjson.NewBuilder().Rest(meta).Raw(metaRelated, of).Bytes()
	return rawjson.NewBuilder().Rest(o).Raw("_meta", about).Bytes()
}

// noticeOf writes a notification that only MCP has.
func (e *encoder) noticeOf(n *canonical.Native) (translators.Wire, error) {
	if e.m.Origin.Binding != Binding || !notifies(e.version, n.Method) || !strings.HasPrefix(n.Method, "notifications/") {
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "MCP "+e.version+" has no such notification")
	}
	return translators.Wire{Body: jsonrpc.Request(nil, n.Method, n.Params)}, nil
}

// decodeReplyTo reads a client's response to a request of the server's.
func decodeReplyTo(w translators.Wire, env jsonrpc.Message, m *canonical.Message) error {
	version, err := requestVersion(w, "", &reader{Object: rawjson.Empty()}, true)
	if m.Origin.Version = version; err != nil {
		return err
	}
	if version == Modern {
		return refuse(canonical.CodeInvalidRequest, "a reply, expected a request")
	}
	if env.ID == nil || string(env.ID) == "null" {
		return refuse(canonical.CodeInvalidRequest, "a reply without an id")
	}
	m.Op, m.Phase, m.Correlation.WireID = canonical.OpAnswer, canonical.PhaseRequest, nil
	reply := &canonical.Reply{ID: env.ID}
	m.Body = reply
	if env.Error != nil {
		reply.Failure = errorBody(env.Error, version)
		return nil
	}
	if !rawjson.IsObject(env.Result) {
		return refuse(canonical.CodeInvalidRequest, "the result is no object")
	}
	reply.Answer = decodeAnswer(env.Result)
	return nil
}

// replyTo writes a client's response.
func (e *encoder) replyTo(body *canonical.Reply) (translators.Wire, error) {
	if e.modern {
		return translators.Wire{}, refuse(canonical.CodeUnsupportedOp, "a server of "+Modern+" makes no requests")
	}
	if body.ID == nil {
		return translators.Wire{}, refuse(canonical.CodeInternal, "the answer names no request")
	}
	w := translators.Wire{Header: header(e.m, e.version, "", "")}
	if why := body.Failure; why != nil {
		w.Body = jsonrpc.Failure(body.ID, e.errorOf(why))
		return w, nil
	}
	result, err := e.answer(&body.Answer, "/body/answer")
	if err != nil {
		return translators.Wire{}, err
	}
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	w.Body = jsonrpc.Result(body.ID, result)
	return w, nil
}

// decodeAbort reads the wish that a request be stopped.
func decodeAbort(env jsonrpc.Message, m *canonical.Message, r *reader) error {
	m.Op = canonical.OpAbort
	body := &canonical.Abort{Request: r.Take("requestId")}
	if body.Request != nil && body.Request[0] != '"' && !rawjson.IsNumber(body.Request) {
		r.Fail("requestId", "neither a string nor an integer")
	}
	takeText(r.Object, "reason", &body.Reason)
	if body.Request != nil || body.Reason != "" {
		body.Extensions = r.extensions()
	} else {
		body.Extensions = requestExtensions(env, r)
	}
	m.Body = body
	return r.err()
}

func (e *encoder) abort(body *canonical.Abort) translators.Wire {
	w := write(body.Extensions)
	w.raw("requestId", body.Request)
	w.text("reason", body.Reason)
	e.losses = append(e.losses, foreign(body.Extensions, "/body")...)
	return translators.Wire{
		Header: header(e.m, e.version, noticeCancelled, ""),
		Body:   jsonrpc.Request(nil, noticeCancelled, e.params(w, body.Extensions)),
	}
}
