package slim

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/a2aproto"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/slim"
)

// MediaProto is the media type of a message as SLIMRPC carries it.
const MediaProto = "application/protobuf"

// rpcID is the id that a message of SLIMRPC has in JSON-RPC: what pairs calls
// and their answers there is not part of the message.
const rpcID = `"slimrpc"`

// jsonEnvelope is a JSON-RPC message that is put together here.
type jsonEnvelope struct {
	Method         string
	Params, Result json.RawMessage
	Error          *jsonError
}

// Frame turns a message of SLIMRPC into the bytes that travel; others it
// leaves alone. A request's method is in Path then; a failure's code is in
// Status and its text in Body. Numbers are doubles there, and members that A2A
// does not define have no place: either is a loss, as over gRPC. Errors:
// *canonical.Error for what protobuf cannot say.
func Frame(w translators.Wire) (translators.Wire, []canonical.Loss, error) {
	if w.Form != form.FormRPC || w.Media == MediaProto {
		return w, nil, nil
	}
	e, ok := form.Skim(w.Body) // our own codec wrote it
	if !ok {
		return w, nil, unsayable(errNoEnvelope)
	}
	var losses []canonical.Loss
	var err error
	switch {
	case e.Error != nil:
		if w.Status, w.Body, err = statusOf(e.Error); err != nil {
			err = unsayable(err)
		}
	case e.Method == form.MethodRollback:
		w.Path = rollbackPath
		w.Body, err = tokenIn(e.Params)
	case w.Re == canonical.OpRollback || w.Path == rollbackPath:
		w.Body, err = tokenIn(e.Result)
	case e.Method != "":
		w.Path = "/" + ServiceA2A + "/" + e.Method
		w.Body, losses, err = pack(requestOf(e.Method), e.Params)
	case e.Version == "": // a card, which its own form has without an envelope
		w.Body, losses, err = pack(outputOf(methodCard), w.Body)
	default:
		w.Body, losses, err = pack(replyTo(w, e.Result), e.Result)
	}
	w.Media = MediaProto
	return w, losses, err
}

// Unframe is its inverse; what has no place in JSON is in Lost. Errors match translators.ErrMalformed.
func Unframe(w translators.Wire) (translators.Wire, error) {
	if w.Form != form.FormRPC || w.Media != MediaProto {
		return w, nil
	}
	var out jsonEnvelope
	var err error
	switch {
	case w.Status > 0 && w.Status <= lastStatus:
		out.Error = failureOf(w.Status, string(w.Body))
	case w.Path == rollbackPath && w.Re == "":
		out.Method = form.MethodRollback
		out.Params, err = tokenOf(w.Body)
	case w.Path == rollbackPath || w.Re == canonical.OpRollback:
		out.Result, err = tokenOf(w.Body)
	case w.Re == "":
		out.Method = methodIn(w.Path)
		out.Params, w.Losses, err = unpack(requestOf(out.Method), w.Body)
	default:
		out.Result, w.Losses, err = unpack(replyTo(w, nil), w.Body)
	}
	if err != nil {
		return w, err
	}
	w.Status, w.Path, w.Media = 0, "", form.Media
	if w.Re == canonical.OpDescribe && out.Error == nil { // a card has no envelope
		w.Body = out.Result
		return w, nil
	}
	w.Body, err = out.text()
	return w, err
}

// text is the envelope around what protobuf holds, whose members are JSON without
// blanks already.
func (e jsonEnvelope) text() ([]byte, error) {
	var b bytes.Buffer
	b.Grow(len(envelopeHead) + len(e.Method) + len(e.Params) + len(e.Result) + 32)
	b.WriteString(envelopeHead)
	var err error
	switch {
	case e.Error != nil:
		var list []byte
		list, err = json.Marshal(e.Error)
		b.WriteString(`,"error":`)
		b.Write(list)
	case e.Method != "":
		var called []byte
		called, err = json.Marshal(e.Method)
		b.WriteString(`,"method":`)
		b.Write(called)
		b.WriteString(`,"params":`)
		b.Write(e.Params)
	default:
		b.WriteString(`,"result":`)
		b.Write(e.Result)
	}
	b.WriteByte('}')
	return b.Bytes(), err
}

const envelopeHead = `{"jsonrpc":"2.0","id":` + rpcID

// ServiceRollback is the service of rollback requests: its one method takes a
// token and answers with one.
const (
	ServiceRollback = "aepb.v1.Rollback"
	methodRollback  = "Request"
	rollbackPath    = "/" + ServiceRollback + "/" + methodRollback
)

// signalToken is how JSON-RPC says a token.
type signalToken struct {
	Token string `json:"token"`
}

func tokenIn(raw json.RawMessage) ([]byte, error) {
	var t signalToken
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, unsayable(err)
	}
	return []byte(t.Token), nil
}

func tokenOf(data []byte) (json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, &translators.MalformedError{Reason: "not a token", Syntax: true}
	}
	return json.Marshal(signalToken{string(data)})
}

const methodCard = "GetExtendedAgentCard"

// method finds a method of A2A; nil: there is none.
func method(called string) protoreflect.MethodDescriptor {
	return a2aproto.File_a2aproto_proto.Services().ByName("A2AService").Methods().ByName(protoreflect.Name(called))
}

// methodIn is the last part of /service/method.
func methodIn(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// streams reports whether a method is answered with a stream.
func streams(called string) bool {
	m := method(called)
	return m != nil && m.IsStreamingServer()
}

func requestOf(called string) protoreflect.MessageDescriptor {
	if m := method(called); m != nil {
		return m.Input()
	}
	return nil
}

func outputOf(called string) protoreflect.MessageDescriptor {
	if m := method(called); m != nil {
		return m.Output()
	}
	return nil
}

// methodsOf are methods that are answered as an operation is.
var methodsOf = map[canonical.Op]string{
	canonical.OpInvoke: "SendMessage", canonical.OpTaskGet: "GetTask", canonical.OpTaskList: "ListTasks",
	canonical.OpTaskCancel: "CancelTask", canonical.OpTaskSubscribe: "SubscribeToTask",
	canonical.OpNative: methodCard, canonical.OpDescribe: methodCard,
}

// replyTo is the message that a reply is. Settings of push notifications are
// told apart by what they have, for an operation alone does not say it.
func replyTo(w translators.Wire, result json.RawMessage) protoreflect.MessageDescriptor {
	if w.Path != "" {
		return outputOf(methodIn(w.Path))
	}
	if w.Event {
		return outputOf("SubscribeToTask")
	}
	if w.Re != canonical.OpPush {
		return outputOf(methodsOf[w.Re])
	}
	var list struct {
		Configs json.RawMessage `json:"configs"`
		URL     *string         `json:"url"`
	}
	switch err := json.Unmarshal(result, &list); {
	case err == nil && list.Configs != nil:
		return outputOf("ListTaskPushNotificationConfigs")
	case err == nil && list.URL == nil:
		return outputOf("DeleteTaskPushNotificationConfig")
	default:
		return outputOf("CreateTaskPushNotificationConfig")
	}
}

// errNoEnvelope refuses a body that is neither a JSON-RPC message nor a card.
var errNoEnvelope = errors.New("slim: no message of A2A")

// errNoMessage refuses a method that A2A does not have, so its message type is unknown.
var errNoMessage = errors.New("slim: A2A has no such method")

func pack(of protoreflect.MessageDescriptor, text json.RawMessage) ([]byte, []canonical.Loss, error) {
	if of == nil {
		return nil, nil, unsayable(errNoMessage)
	}
	if len(text) == 0 {
		return []byte{}, nil, nil
	}
	body, losses, err := frame.Pack(of, text)
	if err != nil {
		return nil, nil, unsayable(err)
	}
	return body, losses, nil
}

// unsayable says why there is no such message in protobuf.
func unsayable(err error) error {
	if errors.Is(err, errNoMessage) {
		return &canonical.Error{Code: canonical.CodeNoMethod, Message: "A2A over SLIM has no such method"}
	}
	return &canonical.Error{Code: canonical.CodeBadParams, Message: "the message has no form in SLIMRPC"}
}

func unpack(of protoreflect.MessageDescriptor, data []byte) (json.RawMessage, []canonical.Loss, error) {
	if of == nil {
		return nil, nil, &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such method"}
	}
	return frame.Unpack(of, data, translators.DefaultDepth)
}
