package frame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Media is the content type of gRPC with messages in protobuf's own form.
const Media = "application/grpc+proto"

// Bounds of a message in protobuf's form: a few bytes there may be a large
// value here. JSON of depth n is up to three messages deep for each level.
const (
	maxNested   = 3*translators.DefaultDepth + 16
	maxMessages = 1 << 18
)

// Framer turns the JSON that the codec reads and writes into the bytes that
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

// Pack writes the message that JSON says in protobuf's form, fields and entries of
// maps in their order, and says what that loses, as Frame does.
func Pack(kind protoreflect.MessageDescriptor, body []byte) ([]byte, []canonical.Loss, error) {
	exact, few := Doubles(body)
	if !few {
		return nil, nil, errMany
	}
	var losses []canonical.Loss
	if !exact {
		losses = append(losses, canonical.Loss{Code: canonical.LossNumbers, Path: "/body", Fate: canonical.Dropped})
	}
	data, err := packed(kind, body)
	if err == nil {
		return data, losses, nil
	}
	data, err = packed(kind, defined(kind, body))
	return data, append(losses, beyond(true)...), err
}

// errMany bounds memory: the protobuf library needs many times the size of the JSON that it reads.
var errMany = fmt.Errorf("frame: message has too many values, at most %d: send fewer", maxMessages)

// read reads JSON, no deeper than bytes are.
func read(body []byte, message proto.Message) error {
	return protojson.UnmarshalOptions{RecursionLimit: maxNested}.Unmarshal(body, message)
}

func packed(kind protoreflect.MessageDescriptor, body []byte) ([]byte, error) {
	message, err := blank(kind)
	if err == nil {
		err = read(body, message)
	}
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(message)
}

// defined is JSON without the members that the schema lacks. A value that the
// schema lacks, such as a state, stays, and is refused by protobuf's library,
// whose own way to leave members out would lose it: it is what the message says,
// and not beside it.
func defined(kind protoreflect.MessageDescriptor, body []byte) []byte {
	whole := &structpb.Value{} // its reader is as strict as that of the message
	if read(body, whole) != nil {
		return body
	}
	value := whole.AsInterface()
	prune(kind, value)
	if out, err := json.Marshal(value); err == nil {
		return out
	}
	return body
}

func prune(kind protoreflect.MessageDescriptor, value any) {
	if kind.FullName().Parent() == "google.protobuf" {
		return
	}
	elements, _ := value.([]any)
	for _, element := range elements {
		prune(kind, element)
	}
	members, _ := value.(map[string]any)
	for name, value := range members {
		field := kind.Fields().ByJSONName(name)
		if field == nil {
			field = kind.Fields().ByTextName(name)
		}
		switch {
		case field == nil:
			delete(members, name)
		case field.IsMap() && field.MapValue().Message() != nil:
			entries, _ := value.(map[string]any)
			for _, entry := range entries {
				prune(field.MapValue().Message(), entry)
			}
		case !field.IsMap() && field.Message() != nil:
			prune(field.Message(), value)
		}
	}
}

// Doubles reports whether every number is written as a double is: others, 1.50
// and 2^53+1, come back as other digits; and whether there are no more values than
// a message may have, before anything is made of them. What is no JSON is for its
// reader to refuse.
func Doubles(body []byte) (exact, few bool) {
	exact = true
	values := 1
	for at := 0; at < len(body) && values <= maxMessages; {
		switch c := body[at]; {
		case c == '"':
			at = afterString(body, at)
		case c == '-' || c >= '0' && c <= '9':
			from := at
			for at < len(body) && strings.IndexByte(numerals, body[at]) >= 0 {
				at++
			}
			exact = exact && double(string(body[from:at]))
		default:
			if c == ',' || c == '[' || c == '{' {
				values++
			}
			at++
		}
	}
	return exact, values <= maxMessages
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
	if err != nil {
		return false
	}
	text, err := json.Marshal(value)
	return err == nil && string(text) == number
}

// Unframe gives a message the JSON that the codec reads. What has no place there
// is in Lost. Its error is a *translators.MalformedError.
func (Framer) Unframe(wire translators.Wire) (translators.Wire, error) {
	if wire.Form != form.FormGRPC {
		return wire, nil
	}
	wire.Media = form.Media
	var err error
	if wire.Re != "" && wire.Status >= 400 {
		wire.Body, wire.Losses, err = unframeStatus(wire.Body)
		return wire, err
	}
	kind := kindOf(wire)
	text, losses, err := Unpack(kind, wire.Body, maxNested)
	if err != nil {
		return wire, err
	}
	wire.Body, wire.Losses = whole(kind.Name(), text), losses
	return wire, nil
}

// Unpack is the JSON of a message in protobuf's form, of at most depth messages in
// each other, without blanks, and what of it has no place there. Bytes that are no
// such message are a *translators.MalformedError.
func Unpack(kind protoreflect.MessageDescriptor, data []byte, depth int) ([]byte, []canonical.Loss, error) {
	message, err := blank(kind)
	if err != nil {
		return nil, nil, err
	}
	losses, err := decode(data, message, depth)
	if err != nil {
		return nil, nil, err
	}
	text, err := protojson.Marshal(message)
	var compact bytes.Buffer // protobuf's writer puts blanks in at will
	if err != nil || json.Compact(&compact, text) != nil {
		return nil, nil, unreadableProto()
	}
	return compact.Bytes(), losses, nil
}

// beyond is the loss of fields that the published schema lacks, those of a later
// version, say, if there are any: a message may have them, as its JSON may have
// such members, but they have no names by which they could go on (L29).
func beyond(found bool) []canonical.Loss {
	if !found {
		return nil
	}
	return []canonical.Loss{{Code: canonical.LossExtension, Path: "/body", Fate: canonical.Dropped}}
}

// least are the members that a reply must have in JSON, and that protobuf does not
// say where they are empty.
var least = map[protoreflect.Name]string{
	"ListTasksResponse":                       `{"tasks":[],"nextPageToken":"","pageSize":0,"totalSize":0}`,
	"ListTaskPushNotificationConfigsResponse": `{"configs":[]}`,
}

// whole adds the members that body lacks.
func whole(kind protoreflect.Name, body []byte) []byte {
	var all map[string]json.RawMessage
	if least[kind] == "" || json.Unmarshal([]byte(least[kind]), &all) != nil || json.Unmarshal(body, &all) != nil {
		return body
	}
	out, err := json.Marshal(all)
	if err != nil {
		return body
	}
	return out
}

func isFailure(body []byte) bool {
	var response struct {
		Error json.RawMessage `json:"error"`
	}
	return bytes.Contains(body, []byte(`"error"`)) && json.Unmarshal(body, &response) == nil && len(response.Error) > 0 && response.Error[0] == '{'
}

func unreadableProto() error {
	return &translators.MalformedError{Syntax: true, Reason: "no message of this method in protobuf's form"}
}

// decode reads bytes of a peer within bounds, and says what has no name in JSON.
func decode(data []byte, message proto.Message, depth int) ([]canonical.Loss, error) {
	c := count{left: maxMessages}
	if !c.message(message.ProtoReflect().Descriptor(), data, depth) {
		return nil, &translators.MalformedError{Syntax: true, Reason: "nested too deep, or too many values"}
	}
	if (proto.UnmarshalOptions{RecursionLimit: depth, DiscardUnknown: true}).Unmarshal(data, message) != nil {
		return nil, unreadableProto()
	}
	return beyond(c.strange), nil
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
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) == nil && len(members) > 0 && members["configs"] == nil && members["nextPageToken"] == nil {
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
