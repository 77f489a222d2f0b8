package a2a

import (
	"bytes"
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

// FormHTTP is the form of A2A without JSON-RPC around it (A2A 11), by the name
// that cards give it: the body is the request or the response itself, and an
// error is a google.rpc.Status. Pairing is the connection's; there is no id.
// In 0.3 the body has the words of its proto, and not those of JSON-RPC.
const FormHTTP = "HTTP+JSON"

// MediaHTTP is the media type that the HTTP form has of its own. What this
// package writes is application/json all the same: the official Go client
// reads an error in nothing else.
const MediaHTTP = "application/a2a+json"

// keyHTTP is the member of an error, toward JSON-RPC, that keeps what its HTTP
// form said otherwise than this package would; typeRPC is the detail, toward
// HTTP, that keeps the code and data of a JSON-RPC error which its HTTP form
// would not tell.
const (
	keyHTTP = profile.ExtensionURI + "#http"
	typeRPC = profile.ExtensionURI + "#JSONRPCError"
)

// httpRow is what a code is over HTTP (A2A 5.4 as of 1.0.1).
type httpRow struct {
	status int
	name   string // of google.rpc.Code
}

// httpStatuses are the statuses of google.rpc.Code.
var httpStatuses = map[string]int{
	"INVALID_ARGUMENT": http.StatusBadRequest, "NOT_FOUND": http.StatusNotFound, "FAILED_PRECONDITION": http.StatusBadRequest,
	"UNAUTHENTICATED": http.StatusUnauthorized, "PERMISSION_DENIED": http.StatusForbidden, "DEADLINE_EXCEEDED": http.StatusGatewayTimeout,
	"RESOURCE_EXHAUSTED": http.StatusTooManyRequests, "UNAVAILABLE": http.StatusServiceUnavailable, "INTERNAL": http.StatusInternalServerError,
}

// envelope reads the frame of a message in its form.
func (t *Translator) envelope(w translators.Wire) (jsonrpc.Message, error) {
	switch w.Form {
	case "", TransportJSONRPC:
		return jsonrpc.Parse(w.Body, t.cfg)
	case FormGRPC:
		return readGRPC(w, t.cfg)
	case FormHTTP, FormPush:
		if w.Form == FormPush && w.Re == "" {
			return jsonrpc.Message{}, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "a push notification, expected a request"}
		}
		if len(w.Body) > 0 || w.Re == "" && (w.Verb == "" || strings.Contains(w.Path, "/message:")) {
			if err := rawjson.Check(w.Body, t.cfg.BodyLimit, t.cfg.Depth); err != nil {
				return jsonrpc.Message{}, err
			}
		}
		return readHTTP(w)
	default:
		return jsonrpc.Message{}, unsupportedVersion()
	}
}

// readHTTP reads a body as what JSON-RPC would have around it.
func readHTTP(w translators.Wire) (jsonrpc.Message, error) {
	if w.Re == "" {
		return placed(w)
	}
	if len(w.Body) == 0 { // which says that it is done
		w.Body = []byte("{}")
	}
	o := rawjson.Parse(w.Body, "")
	switch {
	case o.Err() != nil:
		return jsonrpc.Message{}, o.Err()
	case !o.Has("error"):
		return jsonrpc.Message{Result: w.Body}, nil
	}
	status := o.Object("error")
	if o.Err() != nil {
		return jsonrpc.Message{}, o.Err()
	}
	row, failure := httpRow{status: statusOf(w)}, &jsonrpc.Error{}
	row.name = status.PeekText("status")
	failure.Message, _ = status.String("message")
	row.unwrap(failure, status.Take("details"))
	if rowOfHTTP(failure) == row && status.Has("code") {
		status.Take("code")
		status.Take("status")
	}
	if rest := status.Rest(); rest != nil {
		failure.Rest = rawjson.NewBuilder().Raw(keyHTTP, rest).Bytes()
	}
	return jsonrpc.Message{Error: failure}, status.Err()
}

// statusOf is the HTTP status of a reply; an error of the HTTP form says its own.
func statusOf(w translators.Wire) int {
	if !unpaired(w.Form) {
		return w.Status
	}
	status := rawjson.Parse(w.Body, "").Peek("error")
	code, err := strconv.Atoi(string(rawjson.Open(status).Peek("code")))
	if err != nil {
		return w.Status
	}
	return code
}

// number is the error's in JSON-RPC: by its reason, since an HTTP status stands
// for many errors; else by what is left to go by.
func (r httpRow) number(reason string) int64 {
	for _, row := range errorTable {
		if row.reason == reason {
			return row.number
		}
	}
	switch {
	case r.name == "INVALID_ARGUMENT":
		return jsonrpc.CodeBadParams
	case r.name == "UNIMPLEMENTED":
		return jsonrpc.CodeNoMethod
	case r.name == "FAILED_PRECONDITION":
		return rowOf(canonical.CodeUnsupportedOp).number
	case r.status == http.StatusUnauthorized:
		return rowOf(canonical.CodeUnauthenticated).number
	case r.status == http.StatusForbidden:
		return rowOf(canonical.CodeForbidden).number
	default:
		return jsonrpc.CodeInternal
	}
}

func rowOfHTTP(failure *jsonrpc.Error) httpRow {
	own, _ := readDetails(failure.Data)
	name := rowOf(codeOf(failure.Code, own.reason, 0)).rpc
	return httpRow{httpStatuses[name], name}
}

// unwrap reads details: those of the error, or what wrap kept.
func (r httpRow) unwrap(failure *jsonrpc.Error, details json.RawMessage) {
	failure.Data = details
	own, rest := readDetails(details)
	failure.Code = r.number(own.reason)
	if len(rest) != 1 || !rawjson.IsObject(rest[0]) {
		return
	}
	o := rawjson.Parse(rest[0], "")
	kind := o.PeekText("@type")
	if code, err := strconv.ParseInt(string(o.Peek("code")), 10, 64); kind == typeRPC && err == nil {
		failure.Code, failure.Data = code, o.Peek("data")
	}
}

// wrap gives details to an error whose data is no list, or whose code the HTTP
// form would not tell; nil: there is no need.
func (r httpRow) wrap(failure *jsonrpc.Error) json.RawMessage {
	own, _ := readDetails(failure.Data)
	if r.number(own.reason) == failure.Code && (failure.Data == nil || bytes.HasPrefix(failure.Data, []byte("["))) {
		return nil
	}
	row := rowOf(codeOf(failure.Code, own.reason, 0))
	info := rawjson.NewBuilder().String("@type", typeErrorInfo).String("reason", row.reason).String("domain", row.domain).Bytes()
	detail := rawjson.NewBuilder().String("@type", typeRPC).
		Raw("code", json.RawMessage(strconv.FormatInt(failure.Code, 10))).Raw("data", failure.Data).Bytes()
	return rawjson.ArrayOf([]json.RawMessage{info, detail})
}

// sayHTTP writes an error and names its status; wrapped: its code and data are carried.
func sayHTTP(failure jsonrpc.Error) (body []byte, status int, wrapped bool) {
	row := rowOfHTTP(&failure)
	rest := rawjson.Parse(rawjson.OrEmpty(failure.Rest), "")
	b, members := rawjson.NewBuilder(), rawjson.Open(rest.Take(keyHTTP))
	if !members.Has("code") && !members.Has("status") {
		b.Raw("code", json.RawMessage(strconv.Itoa(row.status))).String("status", row.name)
	} else {
		row.name = members.PeekText("status")
		if code, err := strconv.Atoi(string(members.Peek("code"))); err == nil && code >= 400 && code < 600 {
			row.status = code
		}
	}
	details := row.wrap(&failure)
	if wrapped = details != nil; !wrapped {
		details = failure.Data
	}
	b.String("message", failure.Message).Raw("details", details)
	for _, m := range members.Members() {
		if m.Name != "message" && m.Name != "details" {
			b.Raw(m.Name, m.Value)
		}
	}
	return rawjson.NewBuilder().Raw("error", b.Bytes()).Bytes(), row.status, wrapped
}

// sayFailure writes an error in a form.
func sayFailure(form string, id json.RawMessage, failure jsonrpc.Error) []byte {
	if unpaired(form) {
		body, _, _ := sayHTTP(failure)
		return body
	}
	return jsonrpc.Failure(id, failure)
}

// sayError frames an error reply; status is what goes with it in JSON-RPC.
func (e *encoder) sayError(id json.RawMessage, failure jsonrpc.Error, status int) translators.Wire {
	if !unpaired(e.target.Form) {
		return translators.Wire{Body: jsonrpc.Failure(id, failure), Re: e.m.Op, Status: status}
	}
	e.unpaired(id)
	body, status, wrapped := sayHTTP(failure)
	if wrapped {
		e.losses = append(e.losses, canonical.Loss{Code: canonical.LossErrorDetail, Path: "/body/native", Fate: canonical.Carried})
	}
	return translators.Wire{Body: body, Re: e.m.Op, Status: status}
}

// sayRequest frames a request.
func (e *encoder) sayRequest(o *operation, params json.RawMessage) (translators.Wire, error) {
	id := e.m.Correlation.WireID
	switch e.target.Form {
	case FormHTTP:
		e.unpaired(id)
		return place(o, e.target.Version, params)
	case FormGRPC:
		e.unpaired(id)
		return translators.Wire{Path: ServiceGRPC + o.name, Body: rawjson.OrEmpty(params)}, nil
	}
	method := o.nameIn(e.target.Version)
	if method == "" {
		return translators.Wire{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "A2A " + e.target.Version + " has no " + o.name}
	}
	return translators.Wire{Body: jsonrpc.Request(id, method, params)}, nil
}

// sayResult frames a reply, or one event of it.
func (e *encoder) sayResult(result json.RawMessage) translators.Wire {
	wire := translators.Wire{Re: e.m.Op, Event: e.m.Phase == canonical.PhaseEvent, Body: result}
	if unpaired(e.target.Form) {
		e.unpaired(e.m.Correlation.WireID)
	} else {
		wire.Body = jsonrpc.Result(e.m.Correlation.WireID, result)
	}
	return wire
}

// unpaired declares an id that a form without JSON-RPC has no place for.
func (e *encoder) unpaired(id json.RawMessage) {
	e.dropIf(id != nil, canonical.LossIDs, "/correlation/wireID")
}

// FormGRPC is the form of A2A 1.0 over gRPC (A2A 10), by the name that cards
// give it. The codec reads and writes the JSON of its messages. The transport of
// the connection turns that into protobuf (gateway/transport.Framer).
// A request's method is its Path, and an error is that of the HTTP form.
const FormGRPC = "GRPC"

// ServiceGRPC is what every method's path begins with.
const ServiceGRPC = "/lf.a2a.v1.A2AService/"

// unpaired reports whether a form has no ids, since the connection pairs
// request and reply.
func unpaired(form string) bool { return form == FormHTTP || form == FormGRPC || form == FormPush }

// FormPush is the form of a push notification of 0.3 (A2A 0.3, section 9.5): a
// task as its JSON-RPC form has it, with nothing around it. It only answers
// canonical.OpTaskGet. Notifications of 1.0 are events in FormHTTP.
const FormPush = "push"

// readGRPC reads a message as what JSON-RPC would have around it. A request
// that says no method is a message, as in the HTTP form.
func readGRPC(w translators.Wire, cfg translators.Config) (jsonrpc.Message, error) {
	if Spoken(w.Version) != Version && w.Version != "" {
		return jsonrpc.Message{}, unsupportedVersion()
	}
	if len(w.Body) > 0 || w.Re == "" {
		if err := rawjson.Check(w.Body, cfg.BodyLimit, cfg.Depth); err != nil {
			return jsonrpc.Message{}, err
		}
	}
	if w.Re != "" {
		return readHTTP(w)
	}
	method := methodSend
	if w.Path != "" {
		name, ok := strings.CutPrefix(w.Path, ServiceGRPC)
		if !ok || operationOf(name, Version) == nil {
			return jsonrpc.Message{}, &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such operation"}
		}
		method = name
	}
	return jsonrpc.Message{Method: method, Params: w.Body}, objectError(w.Body)
}
