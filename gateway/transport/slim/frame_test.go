package slim

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/slim"
)

func rpcWire(re canonical.Op, body string) translators.Wire {
	return translators.Wire{Binding: form.Binding, Version: form.VersionA2A, Form: form.FormRPC, Media: form.Media, Re: re, Body: []byte(body)}
}

// TestFrame_Roundtrip: what is framed reads the same again, whatever it is.
func TestFrame_Roundtrip(t *testing.T) {
	t.Parallel()
	request := func(method, params string) translators.Wire {
		return rpcWire("", `{"jsonrpc":"2.0","id":"slimrpc","method":"`+method+`","params":`+params+`}`)
	}
	reply := func(re canonical.Op, result string) translators.Wire {
		return rpcWire(re, `{"jsonrpc":"2.0","id":"slimrpc","result":`+result+`}`)
	}
	event := reply(canonical.OpInvoke, `{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`)
	event.Event = true
	task := `{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-05-01T00:00:00Z"},"metadata":{"k":[1,null]}}`
	for name, w := range map[string]translators.Wire{
		"send":        request("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"},{"raw":"AAE=","mediaType":"a/b"},{"data":{"a":1.5}},{"url":"https://x"}]},"configuration":{"historyLength":0}}`),
		"get":         request("GetTask", `{"id":"t"}`),
		"list":        request("ListTasks", `{"pageSize":5,"status":"TASK_STATE_WORKING"}`),
		"nothing":     request("ListTasks", `{}`),
		"push":        request("CreateTaskPushNotificationConfig", `{"taskId":"t","url":"https://x","authentication":{"scheme":"Bearer","credentials":"y"}}`),
		"message":     reply(canonical.OpInvoke, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"ü"}]}}`),
		"task":        reply(canonical.OpTaskGet, task),
		"tasks":       reply(canonical.OpTaskList, `{"tasks":[`+task+`],"pageSize":1,"totalSize":1}`),
		"event":       event,
		"config":      reply(canonical.OpPush, `{"taskId":"t","id":"p","url":"https://x"}`),
		"card":        rpcWire(canonical.OpDescribe, `{"name":"n","skills":[{"id":"s","name":"S"}]}`),
		"failure":     rpcWire(canonical.OpTaskGet, `{"jsonrpc":"2.0","id":"slimrpc","error":{"code":-32001,"message":"gone","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"a2a-protocol.org","reason":"TASK_NOT_FOUND"}]}}`),
		"rate limits": rpcWire(canonical.OpTaskGet, `{"jsonrpc":"2.0","id":"slimrpc","error":{"code":-32603,"message":"later","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"urn:aepb:translation:1","reason":"RATE_LIMITED"}]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			framed, _, err := Frame(w)
			if err != nil {
				t.Fatal(err)
			}
			if framed.Media != MediaProto || bytes.HasPrefix(framed.Body, []byte("{")) {
				t.Errorf("not framed: %+v", framed)
			}
			back, err := Unframe(framed)
			if err != nil {
				t.Fatal(err)
			}
			if same(t, w.Body) != same(t, back.Body) || back.Media != form.Media || back.Status != 0 {
				t.Errorf("%s\n%s", w.Body, back.Body)
			}
		})
	}
}

// same is a JSON value in one way of writing it.
func same(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestFrame_RoundedNumberIsALoss: a number that is no double is rounded, and that is said.
func TestFrame_RoundedNumberIsALoss(t *testing.T) {
	t.Parallel()
	for number, missing := range map[string]bool{"9007199254740993": true, "0.12345678901234567890": true, "1.5": false, "1.50": true, "1.0": true, "9007199254740992": false} {
		w := rpcWire("", `{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"SendMessage","params":{"metadata":{"n":`+number+`}}}`)
		_, losses, err := Frame(w)
		if err != nil || (len(losses) == 1) != missing {
			t.Errorf("%s: %v %v", number, losses, err)
		}
	}
}

// TestFrame_PlainMessagesUnchanged by both.
func TestFrame_PlainMessagesUnchanged(t *testing.T) {
	t.Parallel()
	w := translators.Wire{Binding: form.Binding, Media: form.Media, Body: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)}
	framed, _, err := Frame(w)
	if err != nil || !bytes.Equal(framed.Body, w.Body) || framed.Path != "" {
		t.Errorf("%+v %v", framed, err)
	}
	if back, err := Unframe(w); err != nil || !bytes.Equal(back.Body, w.Body) {
		t.Errorf("%+v %v", back, err)
	}
}

// TestFrame_UnknownMembersAreLosses: what A2A does not define is left out, and that is said.
func TestFrame_UnknownMembersAreLosses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want, missing string }{
		"below": {
			`"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x","later":1.50}],"later":1}}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`, "L16 dropped /body,L29 dropped /body",
		},
		"above":    {`"method":"GetTask","params":{"id":"t","later":1}`, `{"id":"t"}`, "L29 dropped /body"},
		"nowhere":  {`"method":"GetTask","params":{"id":"t"}`, `{"id":"t"}`, ""},
		"in a map": {`"method":"SendMessage","params":{"metadata":{"later":1}}`, `{"metadata":{"later":1}}`, ""},
	} {
		framed, losses, err := Frame(rpcWire("", `{"jsonrpc":"2.0","id":1,`+c.body+`}`))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var missing []string
		for _, loss := range losses {
			missing = append(missing, loss.String())
		}
		back, err := Unframe(framed)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Params json.RawMessage }
		if err := json.Unmarshal(back.Body, &answer); err != nil || same(t, answer.Params) != same(t, []byte(c.want)) || strings.Join(missing, ",") != c.missing {
			t.Errorf("%s: %s, lost %v", name, answer.Params, missing)
		}
	}
}

// TestFrame_RefusesWhatProtobufCannotExpress what protobuf cannot say, in place of saying something else.
func TestFrame_RefusesWhatProtobufCannotExpress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		w    translators.Wire
		want canonical.Code
	}{
		"enum of nobody":         {rpcWire("", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"role":"ROLE_KING"}}}`), canonical.CodeBadParams},
		"number beyond doubles":  {rpcWire("", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"metadata":{"n":1e400}}}`), canonical.CodeBadParams},
		"bytes that are none":    {rpcWire("", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"parts":[{"raw":"!"}]}}}`), canonical.CodeBadParams},
		"time that is none":      {rpcWire(canonical.OpTaskGet, `{"jsonrpc":"2.0","id":1,"result":{"status":{"timestamp":"soon"}}}`), canonical.CodeBadParams},
		"method of nobody":       {rpcWire("", `{"jsonrpc":"2.0","id":1,"method":"Nothing","params":{}}`), canonical.CodeNoMethod},
		"reply to nobody":        {rpcWire(canonical.OpPing, `{"jsonrpc":"2.0","id":1,"result":{}}`), canonical.CodeNoMethod},
		"a card that is a list":  {rpcWire(canonical.OpDescribe, `{"skills":[1]}`), canonical.CodeBadParams},
		"reply that is no reply": {rpcWire(canonical.OpTaskGet, `{"jsonrpc":"2.0","id":1,"result":[1]}`), canonical.CodeBadParams},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Frame(c.w)
			refused, ok := errors.AsType[*canonical.Error](err)
			if !ok || refused.Code != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestUnframe_RefusesInvalidAndTooLarge what is no message, and what holds more than we know of.
func TestUnframe_RefusesInvalidAndTooLarge(t *testing.T) {
	t.Parallel()
	deep := []byte{}
	for range 400 { // a value in a list in a value…
		deep = append([]byte{0x32}, lengthened(append([]byte{0x0a}, lengthened(deep)...))...)
	}
	for name, c := range map[string]struct {
		path, body string
		re         canonical.Op
		want       string
	}{
		"cut off":           {"/x/SendMessage", "\x0a\x05ab", "", "no message of this method"},
		"no tag":            {"/x/SendMessage", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "", "no message of this method"},
		"field zero":        {"/x/GetTask", "\x00\x01", "", "no message of this method"},
		"another wire type": {"/x/GetTask", "\x12\x05\x01", "", "no message of this method"},
		"text that is none": {"/x/GetTask", "\x12\x02\xff\xfe", "", "no message of this method"},
		"a group":           {"/x/GetTask", "\x13", "", "no message of this method"},
		"no method":         {"/x/Nothing", "", "", "no such method"},
		"no path":           {"", "", "", "no such method"},
		"reply cut off":     {"/x/GetTask", "\x0a\x05ab", canonical.OpTaskGet, "no message of this method"},
		"time out of range": {"/x/GetTask", "\x1a\x0e\x1a\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x00", canonical.OpTaskGet, "no message of this method"},
		"too deep":          {"/x/SendMessage", "\x12" + string(lengthened(append([]byte{0x2a}, lengthened(append([]byte{0x22}, lengthened(deep)...))...))), "", "too deep"},
		"too many":          {"/x/SendMessage", "\x12" + string(lengthened(bytes.Repeat([]byte{0x2a, 0}, 1<<18))), "", "too many"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rpcWire(c.re, c.body)
			w.Media, w.Path = MediaProto, c.path
			_, err := Unframe(w)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestUnframe_UnknownFieldsAreLosses: fields that A2A does not define are left out, and that is said.
func TestUnframe_UnknownFieldsAreLosses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, bytes string
		re          canonical.Op
		missing     int
	}{
		"above":       {"/x/GetTask", "\x12\x01t\xa2\x06\x01x", "", 1},
		"below":       {"/x/SendMessage", "\x12\x04\xa2\x06\x01x", "", 1},
		"in a reply":  {"/x/GetTask", "\x0a\x01t\xa2\x06\x01x", canonical.OpTaskGet, 1},
		"in none":     {"/x/GetTask", "\x12\x01t", "", 0},
		"in no reply": {"/x/GetTask", "\x0a\x01t", canonical.OpTaskGet, 0},
	} {
		w := rpcWire(c.re, c.bytes)
		w.Media, w.Path = MediaProto, c.path
		got, err := Unframe(w)
		if err != nil || len(got.Losses) != c.missing || c.missing > 0 && got.Losses[0].String() != "L29 dropped /body" {
			t.Errorf("%s: lost %v, %v", name, got.Losses, err)
		}
	}
}

func lengthened(content []byte) []byte {
	var out []byte
	n := len(content)
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(append(out, byte(n)), content...)
}

// TestUnframe_ForeignStatusBecomesA2AError: a code and a text of somebody else's are an error
// of A2A's in any case.
func TestUnframe_ForeignStatusBecomesA2AError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		text   string
		number int64
		output string
	}{
		"named":               {5, "TaskNotFoundError: gone", -32001, "gone"},
		"a name for another":  {3, "TaskNotFoundError: gone", -32602, "TaskNotFoundError: gone"},
		"no name":             {12, "nothing", -32601, "nothing"},
		"no text":             {14, "", -32603, ""},
		"unknown":             {2, "x", -32603, "x"},
		"of no meaning to us": {15, "x: y", -32603, "x: y"},
		"no UTF-8":            {13, "\xff", -32603, "the agent failed"},
	} {
		got := failureOf(c.status, c.text)
		if got.Code != c.number || got.Message != c.output || !json.Valid(got.Data) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// FuzzUnframe_Roundtrip: whatever comes, it is read or refused, and what is read can be
// framed again to the same value.
func FuzzUnframe_Roundtrip(f *testing.F) {
	for _, name := range []string{"SendMessage", "GetTask", "ListTasks", "GetExtendedAgentCard"} {
		f.Add("/x/"+name, []byte("\x0a\x01x"), true)
		f.Add("/x/"+name, []byte{}, false)
	}
	f.Fuzz(func(t *testing.T, path string, body []byte, requested bool) {
		w := rpcWire("", "")
		w.Media, w.Path, w.Body = MediaProto, path, body
		if !requested {
			w.Re = canonical.OpInvoke
		}
		got, err := Unframe(w)
		if err != nil {
			return
		}
		if !json.Valid(got.Body) {
			t.Fatalf("%q", got.Body)
		}
		if !requested {
			return
		}
		again, _, err := Frame(got)
		if err != nil {
			t.Fatalf("%v: %s", err, got.Body)
		}
		a, b := instanceOf(t, path), instanceOf(t, path)
		if proto.Unmarshal(body, a) != nil || proto.Unmarshal(again.Body, b) != nil {
			t.Fatal("unreadable")
		}
	})
}

func instanceOf(t *testing.T, path string) proto.Message {
	t.Helper()
	return instance(t, requestOf(methodIn(path)))
}
