package frame

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/aepb/aepb-gateway/gateway/transport/a2a/transcode"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Media is the content type of gRPC with messages in protobuf's own form.
const Media = "application/grpc+proto"

// Bounds of a message in protobuf's form: a few octets there may be a large
// value here. JSON of depth n is up to three messages deep for each level.
const (
	maxNested   = 3*translators.DefaultDepth + 16
	maxMessages = 1 << 18
)

// Framer turns the JSON that the codec reads and writes into the octets that
// travel over gRPC, and back. Wires of other forms pass as they are.
type Framer struct{}

// Frame serialises a message. What protobuf cannot hold is a loss: numbers that
// a double rounds (L16), members that the published schema lacks (L29).
func (Framer) Frame(wire translators.Wire) (translators.Wire, []canonical.Loss, error) {
	if wire.Form != form.FormGRPC {
		return wire, nil, nil
	}
	wire.Media = Media
	if wire.Re != "" && isFailure(wire.Body) {
		body, losses, err := frameStatus(wire.Body)
		wire.Body = body
		return wire, losses, err
	}
	body, losses, err := Pack(kindOf(wire), wire.Body)
	if err != nil {
		return wire, nil, &canonical.Error{Code: canonical.CodeBadParams, Message: "this cannot be said over gRPC"}
	}
	wire.Body = body
	return wire, losses, nil
}

// Pack writes the message that JSON says in protobuf's form, and says what that
// loses, as Frame does.
func Pack(kind protoreflect.MessageDescriptor, body []byte) ([]byte, []canonical.Loss, error) {
	var losses []canonical.Loss
	if !Doubles(body) {
		losses = append(losses, canonical.Loss{Code: canonical.LossNumbers, Path: "/body", Fate: canonical.Dropped})
	}
	octets, err := packed(kind, body)
	if err == nil {
		return octets, losses, nil
	}
	octets, err = packed(kind, defined(kind, body))
	return octets, append(losses, Beyond(true)...), err
}

func packed(kind protoreflect.MessageDescriptor, body []byte) ([]byte, error) {
	if octets, ok := transcode.Octets(kind, body); ok {
		return octets, nil
	}
	message, err := blank(kind)
	if err == nil {
		err = protojson.Unmarshal(body, message)
	}
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(message)
}

// defined is JSON without the members that the schema lacks. A value that the
// schema lacks, such as a state, stays, and is refused by whoever reads it: it is
// what the message says, and not beside it.
func defined(kind protoreflect.MessageDescriptor, body json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if kind.FullName().Parent() == "google.protobuf" || json.Unmarshal(body, &members) != nil {
		return body
	}
	for name, value := range members {
		field := kind.Fields().ByJSONName(name)
		if field == nil {
			field = kind.Fields().ByTextName(name)
		}
		switch {
		case field == nil:
			delete(members, name)
		case field.Message() == nil:
		case field.IsMap() && field.MapValue().Message() != nil:
			members[name] = each(field.MapValue().Message(), value, map[string]json.RawMessage{})
		case field.IsList():
			members[name] = each(field.Message(), value, []json.RawMessage{})
		case !field.IsMap():
			members[name] = defined(field.Message(), value)
		}
	}
	return written(members, body)
}

// each is a list, or a map, of defined values.
func each[T []json.RawMessage | map[string]json.RawMessage](kind protoreflect.MessageDescriptor, body json.RawMessage, values T) json.RawMessage {
	if json.Unmarshal(body, &values) != nil {
		return body
	}
	switch values := any(values).(type) {
	case []json.RawMessage:
		for i := range values {
			values[i] = defined(kind, values[i])
		}
	case map[string]json.RawMessage:
		for name := range values {
			values[name] = defined(kind, values[name])
		}
	}
	return written(values, body)
}

func written(value any, otherwise json.RawMessage) json.RawMessage {
	if out, err := json.Marshal(value); err == nil {
		return out
	}
	return otherwise
}

// Doubles reports whether every number is written as a double is: others, 1.50
// and 2^53+1, come back as other digits. What is no JSON is for its reader to
// refuse.
func Doubles(body []byte) bool {
	for at := 0; at < len(body); {
		switch c := body[at]; {
		case c == '"':
			at = afterString(body, at)
		case c == '-' || c >= '0' && c <= '9':
			from := at
			for at < len(body) && strings.IndexByte(numerals, body[at]) >= 0 {
				at++
			}
			if !double(string(body[from:at])) {
				return false
			}
		default:
			at++
		}
	}
	return true
}

// numerals are what numbers are made of.
const numerals = "0123456789.-+eE"

// afterString is where the text goes on after a string.
func afterString(body []byte, at int) int {
	for at++; at < len(body) && body[at] != '"'; at++ {
		if body[at] == '\\' {
			at++
		}
	}
	return at + 1
}

func double(number string) bool {
	value, err := strconv.ParseFloat(number, 64)
	var room [32]byte
	return err == nil && string(transcode.AppendNumber(room[:0], value)) == number
}

// Unframe gives a message the JSON that the codec reads. What has no place there
// is in Lost. Its error is a *translators.MalformedError.
func (Framer) Unframe(wire translators.Wire) (translators.Wire, error) {
	if wire.Form != form.FormGRPC {
		return wire, nil
	}
	wire.Media = form.Media
	if wire.Re != "" && wire.Status >= 400 {
		var err error
		wire.Body, wire.Lost, err = unframeStatus(wire.Body)
		return wire, err
	}
	kind := kindOf(wire)
	text, odd, ok := transcode.Text(kind, wire.Body, maxNested)
	lost := Beyond(odd)
	if !ok {
		var err error
		if text, lost, err = unpacked(kind, wire.Body); err != nil {
			return wire, err
		}
	}
	wire.Body, wire.Lost = whole(kind.Name(), text), lost
	return wire, nil
}

func unpacked(kind protoreflect.MessageDescriptor, body []byte) ([]byte, []canonical.Loss, error) {
	message, err := blank(kind)
	if err != nil {
		return nil, nil, err
	}
	if err := decode(body, message); err != nil {
		return nil, nil, err
	}
	text, err := protojson.Marshal(message)
	var compact bytes.Buffer // protobuf's writer puts blanks in at will
	if err != nil || json.Compact(&compact, text) != nil {
		return nil, nil, unreadableProto()
	}
	return compact.Bytes(), Unknown(message), nil
}

// Unknown is the loss of a message's fields that the published schema lacks.
func Unknown(message proto.Message) []canonical.Loss { return Beyond(strange(message.ProtoReflect())) }

// Beyond is the loss of fields that the published schema lacks, those of a later
// version, say, if there are any: a message may have them, as its JSON may have
// such members, but they have no names by which they could go on (L29).
func Beyond(found bool) []canonical.Loss {
	if !found {
		return nil
	}
	return []canonical.Loss{{Code: canonical.LossExtension, Path: "/body", Fate: canonical.Dropped}}
}

func strange(m protoreflect.Message) bool {
	found := len(m.GetUnknown()) > 0
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				found = found || strange(v.Message())
				return !found
			})
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				found = found || strange(v.List().Get(i).Message())
			}
		case !f.IsMap() && !f.IsList() && f.Message() != nil:
			found = found || strange(v.Message())
		}
		return !found
	})
	return found
}

// whole adds the members that a reply must have in JSON, and that protobuf does
// not say where they are empty.
func whole(kind protoreflect.Name, body []byte) []byte {
	switch kind {
	case "ListTasksResponse":
		return joined([]byte(`{"tasks":[],"nextPageToken":"","pageSize":0,"totalSize":0}`), body)
	case "ListTaskPushNotificationConfigsResponse":
		if string(body) == "{}" {
			return []byte(`{"configs":[]}`)
		}
	}
	return body
}

// joined are the members of both objects; the second one's stand.
func joined(first, second []byte) []byte {
	var all map[string]json.RawMessage
	if json.Unmarshal(first, &all) != nil || json.Unmarshal(second, &all) != nil {
		return second
	}
	out, err := json.Marshal(all)
	if err != nil {
		return second
	}
	return out
}

func isFailure(body []byte) bool {
	var said struct {
		Error json.RawMessage `json:"error"`
	}
	return bytes.Contains(body, []byte(`"error"`)) && json.Unmarshal(body, &said) == nil && len(said.Error) > 0 && said.Error[0] == '{'
}

func unreadableProto() error {
	return &translators.MalformedError{Syntax: true, Reason: "no message of this method in protobuf's form"}
}

// decode reads octets of a peer within bounds.
func decode(body []byte, message proto.Message) error {
	left := maxMessages
	if !countable(message.ProtoReflect().Descriptor(), body, maxNested, &left) {
		return &translators.MalformedError{Syntax: true, Reason: "nested too deep, or too many values"}
	}
	if (proto.UnmarshalOptions{RecursionLimit: maxNested}).Unmarshal(body, message) != nil {
		return unreadableProto()
	}
	return nil
}

// kindOf is a wire's message: a request's by its method, a
// reply's by its method where that is known, else by what it answers.
func kindOf(wire translators.Wire) protoreflect.MessageDescriptor {
	method := Method(wire.Path)
	switch {
	case wire.Re == "" && method != nil:
		return method.Input()
	case wire.Re == "":
		return message("SendMessageRequest")
	case wire.Event:
		return message("StreamResponse")
	case method != nil:
		return method.Output()
	default:
		return message(answerKind(wire))
	}
}

func answerKind(wire translators.Wire) protoreflect.Name {
	switch wire.Re {
	case canonical.OpTaskGet, canonical.OpTaskCancel, canonical.OpTaskResult:
		return "Task"
	case canonical.OpTaskList:
		return "ListTasksResponse"
	case canonical.OpNative:
		return "AgentCard"
	case canonical.OpPush:
		return pushKind(wire.Body)
	default:
		return "SendMessageResponse"
	}
}

// pushKind tells the answers about push notification settings apart.
func pushKind(body []byte) protoreflect.Name {
	var said map[string]json.RawMessage
	if json.Unmarshal(body, &said) == nil && len(said) > 0 && said["configs"] == nil && said["nextPageToken"] == nil {
		return "TaskPushNotificationConfig"
	}
	return "ListTaskPushNotificationConfigsResponse" // an empty one is any empty message
}

func message(name protoreflect.Name) protoreflect.MessageDescriptor {
	return a2apb.File_a2av1_proto.Messages().ByName(name)
}

// Method finds a method by its path; nil: there is none.
func Method(path string) protoreflect.MethodDescriptor {
	name, ok := strings.CutPrefix(path, form.ServiceGRPC)
	if !ok {
		return nil
	}
	service := a2apb.File_a2av1_proto.Services().ByName("A2AService")
	return service.Methods().ByName(protoreflect.Name(name))
}

func blank(kind protoreflect.MessageDescriptor) (proto.Message, error) {
	found, err := protoregistry.GlobalTypes.FindMessageByName(kind.FullName())
	if err != nil {
		return nil, err
	}
	return found.New().Interface(), nil
}
