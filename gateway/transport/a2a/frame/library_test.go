package frame_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// kinds are all messages of A2A's schema, and those of protobuf that it uses, with
// some that it does not.
func kinds() []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	messages := a2apb.File_a2av1_proto.Messages()
	for i := range messages.Len() {
		all = append(all, messages.Get(i))
	}
	for _, m := range []proto.Message{
		&structpb.Struct{}, &structpb.Value{}, &structpb.ListValue{}, &timestamppb.Timestamp{}, &emptypb.Empty{},
		&durationpb.Duration{}, &wrapperspb.Int64Value{}, &wrapperspb.StringValue{},
	} {
		all = append(all, m.ProtoReflect().Descriptor())
	}
	return all
}

func instance(t testing.TB, kind protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	found, err := protoregistry.GlobalTypes.FindMessageByName(kind.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return found.New().Interface()
}

// bytesOf is what the library says, and whether it says anything.
func bytesOf(t testing.TB, kind protoreflect.MessageDescriptor, text []byte) ([]byte, bool) {
	t.Helper()
	m := instance(t, kind)
	if (protojson.UnmarshalOptions{RecursionLimit: deepest}).Unmarshal(text, m) != nil {
		return nil, false
	}
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return content, true
}

// textOf is what the library says, without its blanks.
func textOf(t testing.TB, kind protoreflect.MessageDescriptor, content []byte, depth int) (text []byte, strange, ok bool) {
	t.Helper()
	m := instance(t, kind)
	if (proto.UnmarshalOptions{RecursionLimit: depth}).Unmarshal(content, m) != nil {
		return nil, false, false
	}
	loose, err := protojson.Marshal(m)
	if err != nil {
		return nil, false, false
	}
	var out bytes.Buffer
	if err := json.Compact(&out, loose); err != nil {
		t.Fatal(err)
	}
	known := proto.Clone(m)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(content, known); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), !proto.Equal(m, known), true
}

const (
	depth   = 64
	deepest = 3*translators.DefaultDepth + 16 // of JSON
)

func strange(losses []canonical.Loss) bool {
	return slices.ContainsFunc(losses, func(l canonical.Loss) bool { return l.Code == canonical.LossExtension })
}

// sameBytes holds a text to the library: what it refuses is refused, or goes
// without members that the schema lacks.
func sameBytes(t testing.TB, kind protoreflect.MessageDescriptor, text []byte) (content []byte, reported bool) {
	t.Helper()
	want, reported := bytesOf(t, kind, text)
	got, losses, err := frame.Pack(kind, text)
	if reported != (err == nil && !strange(losses)) || reported && !bytes.Equal(got, want) {
		t.Errorf("%s of %q:\n got %q, %v, %v\nwant %q (%t)", kind.Name(), text, got, losses, err, want, reported)
	}
	return got, reported
}

// sameText holds bytes to the library. It says nothing of strange fields in what
// it does not keep.
func sameText(t testing.TB, kind protoreflect.MessageDescriptor, content []byte, depth int) {
	t.Helper()
	want, odd, reported := textOf(t, kind, content, depth)
	got, losses, err := frame.Unpack(kind, content, depth)
	if reported != (err == nil) || !bytes.Equal(got, want) || odd && !strange(losses) {
		t.Errorf("%s of %q:\n got %s, %v, %v\nwant %s (%t, %t)", kind.Name(), content, got, losses, err, want, odd, reported)
	}
	if err != nil && !errors.Is(err, translators.ErrMalformed) {
		t.Errorf("not typed: %v", err)
	}
}

// corpus is every value of the messages that the codec of A2A is tried on, of
// those that it is to refuse, too, with all values in them.
func corpus(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "translators", "a2a", "testdata", "*", "*.txtar"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var all []string
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range archive.Files {
			all = append(all, within(bytes.TrimSpace(part.Data))...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// within is a JSON value and all in it.
func within(value json.RawMessage) []string {
	var members map[string]json.RawMessage
	var elements []json.RawMessage
	switch {
	case !json.Valid(value):
		return nil
	case json.Unmarshal(value, &members) == nil:
		for _, member := range members {
			elements = append(elements, member)
		}
	default:
		_ = json.Unmarshal(value, &elements) // else it holds nothing
	}
	all := []string{string(value)}
	for _, element := range elements {
		all = append(all, within(element)...)
	}
	return all
}

// TestFrame_CorpusAgreesWithLibrary: every value there is is tried as every message there is.
func TestFrame_CorpusAgreesWithLibrary(t *testing.T) {
	t.Parallel()
	values := corpus(t)
	messages := 0
	for _, kind := range kinds() {
		for _, value := range values {
			content, reported := sameBytes(t, kind, []byte(value))
			if !reported {
				continue
			}
			messages++
			sameText(t, kind, content, depth)
			if _, losses, _ := frame.Unpack(kind, content, depth); len(losses) > 0 && strings.HasPrefix(string(kind.FullName()), "lf.a2a.") {
				t.Errorf("%s of %q: lost %v", kind.Name(), content, losses)
			}
		}
	}
	if messages < 1000 {
		t.Errorf("%d messages of %d values", messages, len(values))
	}
}

const everyday = `{"tenant":"t","message":{"messageId":"m-1","contextId":"c-1","taskId":"t-1","role":"ROLE_USER","parts":[` +
	`{"text":"What is the weather in \"Paris\"?\n\u00e9 ü \ud83d\ude00"},{"raw":"AAECAwQ=","filename":"a.bin","mediaType":"application/octet-stream"},` +
	`{"url":"https://example.com/x","mediaType":"image/png"},{"data":{"city":"Paris","days":[1,2.5,-3e-7,1e21],"exact":true,"none":null},"metadata":{"b":1,"a":{"c":[]}}}],` +
	`"metadata":{"trace":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","https://example.com/ext":{"n":1}},"extensions":["https://example.com/ext"],"referenceTaskIds":["r"]},` +
	`"configuration":{"acceptedOutputModes":["text/plain","application/json"],"historyLength":0,"returnImmediately":true},"metadata":{"k":"v"}}`

const everydayTask = `{"task":{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_COMPLETED","message":{"messageId":"m-2","role":"ROLE_AGENT","parts":[{"text":"done"}]},` +
	`"timestamp":"2026-05-01T12:30:00.120Z"},"artifacts":[{"artifactId":"a-1","name":"report","parts":[{"text":"It is sunny."},{"data":[{"t":21.5},{"t":22}]}],"metadata":{"score":0.93}}],` +
	`"history":[{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"What is the weather?"}]}],"metadata":{"z":1,"a":"x"}}}`

// everydays are what travels.
var everydays = []struct{ kind, text string }{
	{"SendMessageRequest", everyday},
	{"SendMessageResponse", everydayTask},
	{"StreamResponse", everydayTask},
	{"SendMessageResponse", `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":""},{"data":null},{"raw":""}]}}`},
	{"StreamResponse", `{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","timestamp":"2026-05-01T00:00:00Z"},"metadata":{}}}`},
	{"StreamResponse", `{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"x"}]},"append":true,"lastChunk":false}}`},
	{"GetTaskRequest", `{"id":"t","historyLength":-1}`},
	{"ListTasksRequest", `{"status":"TASK_STATE_WORKING","pageSize":5,"statusTimestampAfter":"1969-12-31T23:59:59.000000001+01:00","includeArtifacts":false}`},
	{"ListTasksResponse", `{"tasks":[{"id":"a"},{"id":"b"}],"nextPageToken":"n","pageSize":2,"totalSize":7}`},
	{"CancelTaskRequest", `{"id":"t"}`},
	{"TaskPushNotificationConfig", `{"taskId":"t","url":"https://x","authentication":{"scheme":"Bearer","credentials":"y"}}`},
	{"AgentCard", `{"name":"n","supported_interfaces":[{"url":"u"}],"capabilities":{"streaming":false,"extensions":[{"uri":"e","params":{}}]},"skills":[{"id":"s","tags":["b","a"]}],` +
		`"securitySchemes":{"z":{"oauth2SecurityScheme":{"flows":{"clientCredentials":{"tokenUrl":"t","scopes":{"w":"x","r":""}}}}},"a":{"apiKeySecurityScheme":{"name":"k"}}},` +
		`"securityRequirements":[{"schemes":{"z":{"list":["r"]},"a":{}}}],"iconUrl":""}`},
}

func named(t testing.TB, name string) protoreflect.MessageDescriptor {
	t.Helper()
	for _, kind := range kinds() {
		if string(kind.Name()) == name {
			return kind
		}
	}
	t.Fatalf("no %s", name)
	return nil
}

// TestFrame_HashedBytesAreStable: what is hashed stays, whatever version of the library
// writes it.
func TestFrame_HashedBytesAreStable(t *testing.T) {
	t.Parallel()
	var content, texts []byte
	for range 2 { // the library's maps differ from call to call
		content, texts = nil, nil
		for _, c := range everydays {
			kind := named(t, c.kind)
			packed, reported := sameBytes(t, kind, []byte(c.text))
			if !reported {
				t.Fatalf("%s: not said: %s", c.kind, c.text)
			}
			sameText(t, kind, packed, depth)
			text, losses, err := frame.Unpack(kind, packed, depth)
			if err != nil || len(losses) > 0 {
				t.Errorf("%s: %v, %v", c.kind, losses, err)
			}
			content, texts = append(content, packed...), append(texts, text...)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); got != "dde420d4271f1b43245e5f3e181a5242bee468b41fd910b10e96ffdd6037ea22" {
			t.Errorf("bytes are others: %s", got)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(texts)); got != "9babca5cfbbba9fde8b55357b66c1430663b883c9c959299719c9daeaa50a45d" {
			t.Errorf("texts are others: %s", got)
		}
	}
}

// TestFrame_NoBlanksInJSON: the library puts blanks into JSON, or does not, by the size of the
// program. So this program is tried at several.
func TestFrame_NoBlanksInJSON(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Skip("this program cannot be read: ", err)
	}
	larger := filepath.Join(t.TempDir(), "larger.test")
	for range 8 {
		program = append(program, 0)
		if err := os.WriteFile(larger, program, 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), larger, "-test.run=^TestFrame_HashedBytesAreStable$").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// oddTexts are corners of JSON and of its mapping, right and wrong.
var oddTexts = []struct{ kind, text string }{
	{"Part", `{"text":"a","url":"b"}`},
	{"Part", `{"text":null,"url":"b"}`},
	{"Part", `{"text":"a","text":"b"}`},
	{"Part", `{"text":null,"text":"b"}`},
	{"Part", `{"mediaType":"a","media_type":"b"}`},
	{"Part", `{"raw":"_-8"}`},
	{"Part", `{"raw":"-_8="}`},
	{"Part", `{"raw":"+/8="}`},
	{"Part", `{"raw":"+_8="}`},
	{"Part", `{"raw":"+/8"}`},
	{"Part", `{"raw":"a"}`},
	{"Part", `{"raw":"AA\n=="}`},
	{"Part", `{"data":null,"text":"a"}`},
	{"Part", `{"text":"a","data":null}`},
	{"Part", `{"data":nulls}`},
	{"Part", `{"data":1e400}`},
	{"Part", `{"data":01}`},
	{"Part", `{"data":1.}`},
	{"Part", `{"data":1e}`},
	{"Part", `{"data":-}`},
	{"Part", `{"data":[1,]}`},
	{"Part", `{"data":[,1]}`},
	{"Part", `{"data":{"a":1,}}`},
	{"Part", `{"data":[-0,0.0,1E+2,1e-7]}`},
	{"Part", `{"data":"NaN"}`},
	{"Part", `{"data":NaN}`},
	{"Part", `{"data":0x1p-2}`},
	{"Part", `{"data":1_0}`},
	{"Part", `{"metadata":{"a":1,"b":2,"a":3}}`},
	{"Part", `{"metadata":{"b":1,"":2,"\u0061":3,"a\u0000":4}}`},
	{"Part", `{"metadata":null}`},
	{"Part", `{"metadata":[]}`},
	{"Part", `{"text":"\ud800"}`},
	{"Part", `{"text":"\ud800\u0041"}`},
	{"Part", `{"text":"\udc00\ud800"}`},
	{"Part", `{"text":"\uD83D\uDE00\ufffd"}`},
	{"Part", `{"text":"\u12"}`},
	{"Part", `{"text":"\x"}`},
	{"Part", `{"text":"\`},
	{"Part", "{\"text\":\"a\nb\"}"},
	{"Part", "{\"text\":\"\xff\"}"},
	{"Part", "{\"text\":\"\\n\xc3\"}"},
	{"Part", "{\"t\xffext\":\"\"}"},
	{"Part", "\ufeff{}"},
	{"Part", "{}\x00"},
	{"Part", "{} {}"},
	{"Part", "{}]"},
	{"Part", ""},
	{"Part", "\x00"},
	{"Part", `{"text":1}`},
	{"Part", `{"text" : "a" , "filename":"\/b\b\f\n\r\t\\\""}`},
	{"Part", `{"text""a"}`},
	{"Part", `{"text":"a" "url":"b"}`},
	{"Part", `{"later":1}`},
	{"Part", `{"[ext]":1}`},
	{"Part", `{"@type":"x"}`},
	{"Part", `[]`},
	{"Part", `null`},
	{"Message", `{"role":2}`},
	{"Message", `{"role":0}`},
	{"Message", `{"role":99}`},
	{"Message", `{"role":-1}`},
	{"Message", `{"role":"ROLE_KING"}`},
	{"Message", `{"role":null}`},
	{"Message", `{"role":1.0}`},
	{"Message", `{"role":"1"}`},
	{"Message", `{"role":"ROLE\u005fUSER"}`},
	{"Message", `{"parts":null}`},
	{"Message", `{"parts":[null]}`},
	{"Message", `{"parts":{}}`},
	{"Message", `{"extensions":[null]}`},
	{"Message", `{"extensions":[""]}`},
	{"Message", `{"extensions":"a"}`},
	{"Message", `{"parts":[{}]}`},
	{"GetTaskRequest", `{"historyLength":"5"}`},
	{"GetTaskRequest", `{"historyLength":" 5"}`},
	{"GetTaskRequest", `{"historyLength":5.0}`},
	{"GetTaskRequest", `{"historyLength":5e0}`},
	{"GetTaskRequest", `{"historyLength":2147483648}`},
	{"GetTaskRequest", `{"historyLength":-2147483648}`},
	{"GetTaskRequest", `{"historyLength":null}`},
	{"GetTaskRequest", `{"historyLength":-0}`},
	{"GetTaskRequest", `{"historyLength":1e}`},
	{"TaskStatus", `{"timestamp":"2026-05-01T5:00:00.123456789Z"}`},
	{"TaskStatus", `{"timestamp":"2026-05-01T05:00:00,5Z"}`},
	{"TaskStatus", `{"timestamp":"2026-05-01T05:00:00.1234567891Z"}`},
	{"TaskStatus", `{"timestamp":"0000-01-01T00:00:00Z"}`},
	{"TaskStatus", `{"timestamp":"9999-12-31T23:59:59-01:00"}`},
	{"TaskStatus", `{"timestamp":"1970-01-01T00:00:00Z"}`},
	{"TaskStatus", `{"timestamp":null}`},
	{"TaskStatus", `{"timestamp":1}`},
	{"TaskStatus", `{"timestamp":"2026-05-01t05:00:00z"}`},
	{"SecurityRequirement", `{"schemes":{"a":null}}`},
	{"SecurityRequirement", `{"schemes":{"b":{},"a":{"list":["x"]},"":{}}}`},
	{"SecurityRequirement", `{"schemes":null}`},
	{"ClientCredentialsOAuthFlow", `{"scopes":{"b":"","a":null}}`},
	{"ClientCredentialsOAuthFlow", `{"scopes":{"b":"","a":"x","b":""}}`},
	{"AgentCapabilities", `{"streaming":"true"}`},
	{"AgentCapabilities", `{"streaming":trues}`},
	{"AgentCapabilities", `{"streaming":true,"pushNotifications":false}`},
	{"Empty", `{}`},
	{"Empty", `{"a":1}`},
	{"Duration", `"1.5s"`},
	{"Int64Value", `"5"`},
	{"StringValue", `"5"`},
	{"Value", ` [ null , {"a" : [ ] } ] `},
	{"ListValue", `[1]`},
	{"Struct", `{"a":1}`},
	{"Timestamp", `"2026-05-01T05:00:00Z"`},
}

// oddBytes are corners of protobuf's form.
var oddBytes = []struct{ kind, bytes string }{
	{"Part", "\x0a\x01a\x1a\x01b"},
	{"Part", "\x0a\x01a\x0a\x01b"},
	{"Part", "\x32\x01a\x32\x01b"},
	{"Part", "\x32\x01a\x32\x00"},
	{"Part", "\x0a\x02\xff\xfe"},
	{"Part", "\x0a\x08\x00\x1f\x7f\"\\\n\xc2\x80"},
	{"Part", "\x08\x01"},
	{"Part", "\x0a\x05a"},
	{"Part", "\x00\x00"},
	{"Part", "\x80\x80\x80\x80\x10\x00"},
	{"Part", "\xf8\xff\xff\xff\x0f\x00"},
	{"Part", "\xa2\x06\x01x"},
	{"Part", "\xa3\x06\xa4\x06"},
	{"Part", "\x0c"},
	{"Part", "\x0b\x0c"},
	{"Part", "\xfa\xff\xff\xff\x7f\x00"},
	{"Part", "\x2a\x00"},
	{"Part", "\x2a\x00\x2a\x00"},
	{"Part", "\x2a\x02\x0a\x00"},
	{"Part", "\x2a\x07\x0a\x05\x0a\x01a\x12\x00"},
	{"Part", "\x2a\x09\x0a\x07\x0a\x01a\x12\x02\x08\x00"},
	{"Part", "\x2a\x12\x0a\x07\x0a\x01b\x12\x02\x08\x00\x0a\x07\x0a\x01a\x12\x02\x20\x01"},
	{"Part", "\x2a\x12\x0a\x07\x0a\x01a\x12\x02\x08\x00\x0a\x07\x0a\x01a\x12\x02\x20\x01"},
	{"Part", "\x2a\x06\x0a\x04\x12\x02\x08\x05"},
	{"Part", "\x2a\x0b\x0a\x09\x0a\x01a\x12\x02\x08\x00\x18\x01"},
	{"Part", "\x2a\x0b\x0a\x09\x0a\x01a\x12\x04\x08\x00\x20\x01"},
	{"Part", "\x22\x00"},
	{"Part", "\x22\x09\x11\x00\x00\x00\x00\x00\x00\xf8\x7f"},
	{"Part", "\x22\x09\x11\x00\x00\x00\x00\x00\x00\x00\x80"},
	{"Part", "\x22\x09\x11\x01\x00\x00\x00\x00\x00\x00\x00"},
	{"Part", "\x22\x02\x32\x00"},
	{"Part", "\x22\x04\x32\x02\x0a\x00"},
	{"Part", "\x22\x02\x2a\x00"},
	{"Part", "\x22\x05\x08\x00\xa0\x06\x01"},
	{"Message", "\x20\x80\x00"},
	{"Message", "\x20\x80\x80\x80\x80\x10"},
	{"Message", "\x20\x63"},
	{"Message", "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
	{"Message", "\x20\x01\x20\x02"},
	{"Message", "\x20\x01\x20\x00"},
	{"Message", "\x2a\x00\x0a\x01m\x2a\x03\x0a\x01a\x3a\x00\x3a\x01b"},
	{"GetTaskRequest", "\x12\x01\xff\x12\x01a"},
	{"GetTaskRequest", "\x18\x00"},
	{"GetTaskRequest", "\x18\x01\x18\x02"},
	{"GetTaskRequest", "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"},
	{"GetTaskRequest", "\x18\xfe\xff\xff\xff\x0f"},
	{"GetTaskRequest", "\x1a\x01\x01"},
	{"AgentCapabilities", "\x08\x02"},
	{"AgentCapabilities", "\x08\x80\x80\x80\x80\x10"},
	{"AgentCapabilities", "\x08\x00"},
	{"TaskStatus", "\x1a\x02\x10\x01"},
	{"TaskStatus", "\x1a\x02\x08\x01\x1a\x02\x10\x01"},
	{"TaskStatus", "\x1a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
	{"TaskStatus", "\x1a\x06\x10\x80\x94\xeb\xdc\x03"},
	{"TaskStatus", "\x1a\x06\x10\x80\xda\xc4\x09"},
	{"TaskStatus", "\x1a\x04\x08\x01\x08\x02"},
	{"TaskStatus", "\x1a\x0b\x08\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01"},
	{"ClientCredentialsOAuthFlow", "\x1a\x08\x0a\x01\xff\x0a\x01b\x12\x00"},
	{"ClientCredentialsOAuthFlow", "\x1a\x08\x0a\x01a\x12\x01b\x12\x00"},
	{"SecurityRequirement", "\x0a\x03\x0a\x01a"},
	{"ClientCredentialsOAuthFlow", "\x1a\x00"},
	{"ClientCredentialsOAuthFlow", "\x1a\x02\x12\x00"},
	{"ClientCredentialsOAuthFlow", "\x1a\x03\x0a\x01a"},
	{"ClientCredentialsOAuthFlow", "\x1a\x04\x0a\x00\x0a\x00"},
	{"ClientCredentialsOAuthFlow", "\x1a\x04\x12\x02\xff\xfe"},
	{"ClientCredentialsOAuthFlow", "\x1a\x06\x0a\x02\xff\xfe\x12\x00"},
	{"Duration", "\x08\x01"},
	{"Int64Value", "\x08\x01"},
	{"Empty", "\x08\x01"},
	{"Empty", ""},
	{"ListValue", "\x0a\x02\x20\x01"},
	{"Value", "\x1a\x01x"},
}

func TestFrame_OddMessagesAgreeWithLibrary(t *testing.T) {
	t.Parallel()
	for _, c := range oddTexts {
		sameBytes(t, named(t, c.kind), []byte(c.text))
	}
	for _, c := range oddBytes {
		sameText(t, named(t, c.kind), []byte(c.bytes), depth)
	}
}

// TestFrame_DepthAgreesWithLibrary: not one level deeper than the library goes, and as deep as it.
func TestFrame_DepthAgreesWithLibrary(t *testing.T) {
	t.Parallel()
	kind := named(t, "Part")
	for n := range 60 {
		for _, around := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
			text := []byte(`{"data":` + strings.Repeat(around[0], n) + "1" + strings.Repeat(around[1], n) + "}")
			content, reported := sameBytes(t, kind, text)
			if !reported {
				t.Fatalf("%d levels are refused", n)
			}
			sameText(t, kind, content, depth)
		}
	}
	for _, n := range []int{1000, 1 << 17} {
		if _, _, err := frame.Pack(named(t, "Value"), []byte(strings.Repeat("[", n)+strings.Repeat("]", n))); err == nil {
			t.Errorf("%d levels", n)
		}
	}
}

// TestPack_ManyValues: a text of two bytes for each value would take forty times
// its room as a message; so would one whose members are left out.
func TestPack_ManyValues(t *testing.T) {
	t.Parallel()
	const most = 1 << 18
	for text, want := range map[string]bool{
		`{"data":[` + strings.Repeat("1,", most/2) + `1]}`:             true,
		`{"data":[` + strings.Repeat("1,", most) + `1]}`:               false,
		`{"data":[` + strings.Repeat("[],", most) + `1]}`:              false,
		`{"later":[` + strings.Repeat("1,", most) + `1]}`:              false,
		`{"metadata":{"a":[` + strings.Repeat("{},", most) + `1.50]}}`: false,
		`{"text":"` + strings.Repeat(`,[{\"`, most) + `"}`:             true,
	} {
		if _, _, err := frame.Pack(named(t, "Part"), []byte(text)); (err == nil) != want {
			t.Errorf("%.20s, %d bytes: %v", text, len(text), err)
		}
	}
}

// TestPack_LeavesOutAndNoMore: what is wrong beside a member that is left out is
// refused all the same.
func TestPack_LeavesOutAndNoMore(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"later":1,"metadata":{"a":1,"a":2}}`, `{"later":1,"later":2}`, "{\"later\":1,\"text\":\"\xff\"}",
		`{"later":1,"text":"\ud800"}`, `{"later":1} {}`, `{"later":1,"text":"a","url":"b"}`, `{"later":1,"text":7}`,
	} {
		if got, _, err := frame.Pack(named(t, "Part"), []byte(text)); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func FuzzPack_AgreesWithLibrary(f *testing.F) {
	all := kinds()
	for _, c := range slices.Concat(everydays, oddTexts) {
		f.Add(uint(slices.Index(all, named(f, c.kind))), []byte(c.text))
	}
	f.Fuzz(func(t *testing.T, which uint, text []byte) {
		sameBytes(t, all[which%uint(len(all))], text)
	})
}

func FuzzUnpack_AgreesWithLibrary(f *testing.F) {
	all := kinds()
	for _, c := range oddBytes {
		f.Add(uint(slices.Index(all, named(f, c.kind))), []byte(c.bytes), depth)
	}
	for _, c := range everydays {
		content, _ := bytesOf(f, named(f, c.kind), []byte(c.text))
		f.Add(uint(slices.Index(all, named(f, c.kind))), content, depth)
	}
	f.Fuzz(func(t *testing.T, which uint, content []byte, depth int) {
		sameText(t, all[which%uint(len(all))], content, 1+abs(depth)%depthMost)
	})
}

const depthMost = 128

func abs(n int) int { return max(n, -(n + 1)) }

func BenchmarkPack_TypicalMessages(b *testing.B) {
	for _, c := range everydays[:2] {
		kind, text := named(b, c.kind), []byte(c.text)
		b.Run(c.kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := frame.Pack(kind, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkUnpack_TypicalMessages(b *testing.B) {
	for _, c := range everydays[:2] {
		kind := named(b, c.kind)
		content, _ := bytesOf(b, kind, []byte(c.text))
		b.Run(c.kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := frame.Unpack(kind, content, depth); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
