package frame_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const send = a2a.ServiceGRPC + "SendMessage"

const text = `{"tenant":"t","message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"},{"raw":"AAH/","mediaType":"x/y"},{"data":{"a":[1,null,true]}},{"data":null}],"metadata":{"k":"v"}}}`

func there(t *testing.T, w translators.Wire) (translators.Wire, []canonical.Loss) {
	t.Helper()
	w.Form = a2a.FormGRPC
	framed, losses, err := frame.Framer{}.Frame(w)
	if err != nil {
		t.Fatal(err)
	}
	return framed, losses
}

func back(t *testing.T, w translators.Wire) string {
	t.Helper()
	w, err := frame.Framer{}.Unframe(w)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.Body)
}

// same compares JSON values.
func same(t *testing.T, got, want string) {
	t.Helper()
	var x, y any
	if json.Unmarshal([]byte(got), &x) != nil || json.Unmarshal([]byte(want), &y) != nil {
		t.Fatalf("no JSON: %s", got)
	}
	a, _ := json.Marshal(x)
	b, _ := json.Marshal(y)
	if string(a) != string(b) {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

func TestFrame_Roundtrip(t *testing.T) {
	t.Parallel()
	const task = `{"id":"x","contextId":"c","status":{"state":"TASK_STATE_WORKING","timestamp":"2026-01-01T00:00:00Z"}}`
	cases := map[string]struct {
		wire translators.Wire
		want string // empty: what went there
	}{
		"a request":             {translators.Wire{Path: send, Body: []byte(text)}, ""},
		"one kept":              {translators.Wire{Body: []byte(text)}, ""},
		"a question":            {translators.Wire{Path: a2a.ServiceGRPC + "GetTask", Body: []byte(`{"id":"x","historyLength":0}`)}, ""},
		"nothing is asked":      {translators.Wire{Path: a2a.ServiceGRPC + "ListTasks", Body: []byte(`{}`)}, ""},
		"a reply":               {translators.Wire{Re: canonical.OpInvoke, Body: []byte(`{"task":` + task + `}`)}, ""},
		"an event":              {translators.Wire{Re: canonical.OpInvoke, Event: true, Body: []byte(`{"statusUpdate":{"taskId":"x","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`)}, ""},
		"a task":                {translators.Wire{Re: canonical.OpTaskGet, Body: []byte(task)}, ""},
		"an empty page":         {translators.Wire{Re: canonical.OpTaskList, Body: []byte(`{"tasks":[]}`)}, `{"tasks":[],"nextPageToken":"","pageSize":0,"totalSize":0}`},
		"a page":                {translators.Wire{Re: canonical.OpTaskList, Body: []byte(`{"tasks":[` + task + `],"pageSize":1}`)}, `{"tasks":[` + task + `],"nextPageToken":"","pageSize":1,"totalSize":0}`},
		"no settings":           {translators.Wire{Re: canonical.OpPush, Body: []byte(`{}`)}, `{"configs":[]}`},
		"settings elsewhere":    {translators.Wire{Re: canonical.OpPush, Body: []byte(`{"nextPageToken":"n"}`)}, `{"configs":[],"nextPageToken":"n"}`},
		"settings":              {translators.Wire{Re: canonical.OpPush, Body: []byte(`{"configs":[{"id":"c","taskId":"x","url":"https://a.example"}]}`)}, ""},
		"a setting":             {translators.Wire{Re: canonical.OpPush, Path: a2a.ServiceGRPC + "GetTaskPushNotificationConfig", Body: []byte(`{"id":"c","taskId":"x","url":"https://a.example"}`)}, ""},
		"what is done":          {translators.Wire{Re: canonical.OpPush, Path: a2a.ServiceGRPC + "DeleteTaskPushNotificationConfig", Body: []byte(`{}`)}, ""},
		"a failure":             {translators.Wire{Re: canonical.OpInvoke, Status: 404, Body: []byte(`{"error":{"code":404,"status":"NOT_FOUND","message":"no","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"},{"@type":"urn:x","code":"y","deep":[1]}]}}`)}, ""},
		"a failure in a stream": {translators.Wire{Re: canonical.OpInvoke, Event: true, Status: 503, Body: []byte(`{"error":{"code":503,"status":"UNAVAILABLE","message":"no"}}`)}, ""},
		"no such method":        {translators.Wire{Re: canonical.OpInvoke, Status: 404, Body: []byte(`{"error":{"code":404,"status":"NOT_FOUND","message":"no","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"METHOD_NOT_FOUND"}]}}`)}, `{"error":{"code":501,"status":"UNIMPLEMENTED","message":"no","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"METHOD_NOT_FOUND"}]}}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			framed, losses := there(t, c.wire)
			if len(losses) > 0 {
				t.Errorf("lost %v", losses)
			}
			if c.want == "" {
				c.want = string(c.wire.Body)
			}
			same(t, back(t, framed), c.want)
		})
	}
	other := translators.Wire{Form: a2a.FormHTTP, Body: []byte("x")}
	if w, _, err := (frame.Framer{}).Frame(other); err != nil || string(w.Body) != "x" {
		t.Errorf("another form: %v %v", w, err)
	}
	if w, err := (frame.Framer{}).Unframe(other); err != nil || string(w.Body) != "x" {
		t.Errorf("another form: %v %v", w, err)
	}
}

func TestFrame_LossesInProtobuf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, want string
		losses     []string
	}{
		"a number": {
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":9007199254740993}]}}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":9007199254740992}]}}`,
			[]string{"L16 dropped /body"},
		},
		"members of tomorrow, everywhere": {
			`{"later":[1],"message":{"message_id":"m","role":"ROLE_USER","parts":[{"text":"x","later":{}},{"data":{"later":1}}],"metadata":{"later":2},"Later":null}}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"},{"data":{"later":1}}],"metadata":{"later":2}}}`,
			[]string{"L29 dropped /body"},
		},
		"a member of tomorrow": {
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"later":1}}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`,
			[]string{"L29 dropped /body"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			framed, losses := there(t, translators.Wire{Path: send, Body: []byte(c.body)})
			same(t, back(t, framed), c.want)
			var texts []string
			for _, loss := range losses {
				texts = append(texts, loss.String())
			}
			if strings.Join(texts, ",") != strings.Join(c.losses, ",") {
				t.Errorf("lost %v, want %v", texts, c.losses)
			}
		})
	}
	for _, body := range []string{
		`{"message":7}`, `[]`, `{"later":1,"message":{"parts":7}}`, `{"later":1,"message":{"parts":[7]}}`,
		`{"message":{"messageId":"m","role":"ROLE_KING"}}`, `{"later":1,"message":{"messageId":"m","role":"ROLE_KING"}}`,
	} {
		var refused *canonical.Error
		if _, _, err := (frame.Framer{}).Frame(translators.Wire{Form: a2a.FormGRPC, Path: send, Body: []byte(body)}); !errors.As(err, &refused) || refused.Code != canonical.CodeBadParams {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestUnframe_Refuses(t *testing.T) {
	t.Parallel()
	nest := func(depth int) []byte { // a list in a list in a list, as data of a part
		value := []byte{0x08, 0x00}
		for range depth {
			list := protowire.AppendBytes([]byte{0x0a}, value)
			value = protowire.AppendBytes([]byte{0x32}, list)
		}
		part := protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), value)
		message := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), part)
		return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), message)
	}
	many := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte(strings.Repeat("\x2a\x00", 1<<18)))
	strs := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte(strings.Repeat("\x42\x00", 1<<18)))
	for name, c := range map[string]struct {
		body   []byte
		status int
	}{
		"no protobuf":  {body: []byte("{}")},
		"cut off":      {body: []byte{0x0a, 0x05, 'a'}},
		"no UTF-8":     {body: []byte{0x0a, 0x01, 0xff}},
		"too deep":     {body: nest(1000)},
		"too many":     {body: many},
		"too many too": {body: strs},
		"no status":    {body: []byte{0xff}, status: 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := translators.Wire{Form: a2a.FormGRPC, Path: send, Body: c.body, Status: c.status}
			if c.status != 0 {
				w.Re = canonical.OpInvoke
			}
			if _, err := (frame.Framer{}).Unframe(w); !errors.Is(err, translators.ErrMalformed) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := (frame.Framer{}).Unframe(translators.Wire{Form: a2a.FormGRPC, Path: send, Body: nest(100)}); err != nil {
		t.Errorf("a deep one that is none too deep: %v", err)
	}
}

func TestTenant_OfEachMethod(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		method string
		m      proto.Message
	}{
		{"SendMessage", &a2apb.SendMessageRequest{Tenant: "x"}},
		{"ListTasks", &a2apb.ListTasksRequest{Tenant: "x", ContextId: "y"}},
		{"CreateTaskPushNotificationConfig", &a2apb.TaskPushNotificationConfig{Tenant: "x", Id: "y"}},
		{"GetExtendedAgentCard", &a2apb.GetExtendedAgentCardRequest{Tenant: "x"}},
	} {
		body, err := proto.Marshal(m.m)
		if err != nil {
			t.Fatal(err)
		}
		if got := frame.Tenant(frame.Method(a2a.ServiceGRPC+m.method), body); got != "x" {
			t.Errorf("%s: %q", m.method, got)
		}
	}
	if frame.Method("/x/SendMessage") != nil || frame.Method(a2a.ServiceGRPC+"Sing") != nil {
		t.Error("a method that there is not")
	}
	twice := []byte{0x0a, 1, 'a', 0x0a, 1, 'b'}
	if got := frame.Tenant(frame.Method(send), twice); got != "b" {
		t.Errorf("said twice: %q", got)
	}
	if got := frame.Tenant(frame.Method(send), []byte{0x0a, 9}); got != "" {
		t.Errorf("cut off: %q", got)
	}
}

func TestStatus_BecomesHTTPError(t *testing.T) {
	t.Parallel()
	w := translators.Wire{Form: a2a.FormGRPC, Re: canonical.OpInvoke, Status: frame.HTTPStatus(codes.ResourceExhausted), Body: frame.Status(codes.ResourceExhausted, "slow down")}
	same(t, back(t, w), `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"slow down"}}`)
	if frame.HTTPStatus(99) != http.StatusInternalServerError {
		t.Error("a code of tomorrow")
	}
	w.Body = frame.Status(99, "?")
	same(t, back(t, w), `{"error":{"code":500,"status":"UNKNOWN","message":"?"}}`)
}

// FuzzUnframe_Roundtrip: whatever a peer sends is read or refused, and what was read can
// be said again with the same meaning.
func FuzzUnframe_Roundtrip(f *testing.F) {
	framed, _, err := frame.Framer{}.Frame(translators.Wire{Form: a2a.FormGRPC, Path: send, Body: []byte(text)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(framed.Body, byte(0))
	f.Add(frame.Status(codes.NotFound, "x"), byte(1))
	f.Add([]byte{}, byte(2))
	kinds := []translators.Wire{
		{Path: send},
		{Re: canonical.OpInvoke, Status: 500},
		{Re: canonical.OpTaskList},
		{Re: canonical.OpInvoke, Event: true},
		{Path: a2a.ServiceGRPC + "ListTasks"},
		{Re: canonical.OpPush},
		{Re: canonical.OpTaskGet},
		{Re: canonical.OpNative},
	}
	f.Fuzz(func(t *testing.T, body []byte, which byte) {
		w := kinds[int(which)%len(kinds)]
		w.Form, w.Body = a2a.FormGRPC, body
		read, err := frame.Framer{}.Unframe(w)
		if err != nil {
			if !errors.Is(err, translators.ErrMalformed) {
				t.Fatalf("not typed: %v", err)
			}
			return
		}
		if !json.Valid(read.Body) {
			t.Fatalf("no JSON: %s", read.Body)
		}
		answer, _, err := frame.Framer{}.Frame(read)
		if err != nil {
			return // an unknown enumeration, a time out of range
		}
		again, err := frame.Framer{}.Unframe(answer)
		if err != nil {
			t.Fatal(err)
		}
		if w.Status == 0 { // a detail that says it is another type becomes that
			same(t, string(again.Body), string(read.Body))
		}
	})
}

// TestUnframe_UnknownFieldsAreLosses: fields that the schema lacks, at any depth, and details
// beyond those that are read are losses; what has none loses nothing.
func TestUnframe_UnknownFieldsAreLosses(t *testing.T) {
	t.Parallel()
	const later = "\xc2\x0c\x01x" // field 200
	message := func(content string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), content)
	}
	details := &spb.Status{Code: 5}
	for range 65 {
		details.Details = append(details.Details, &anypb.Any{TypeUrl: "type.googleapis.com/x", Value: []byte("x")})
	}
	many, err := proto.Marshal(details)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		wire translators.Wire
		want string
	}{
		"in a request":       {translators.Wire{Path: send, Body: []byte(later)}, "L29 dropped /body"},
		"in its message":     {translators.Wire{Path: send, Body: message(later)}, "L29 dropped /body"},
		"in a part of it":    {translators.Wire{Path: send, Body: message("\x2a\x04" + later)}, "L29 dropped /body"},
		"in an answer":       {translators.Wire{Re: canonical.OpTaskGet, Body: []byte("\x0a\x01t" + later)}, "L29 dropped /body"},
		"in an error":        {translators.Wire{Re: canonical.OpTaskGet, Status: 404, Body: append(frame.Status(codes.NotFound, "x"), later...)}, "L29 dropped /body"},
		"too many details":   {translators.Wire{Re: canonical.OpTaskGet, Status: 404, Body: many}, "L31 dropped /body/details"},
		"in none":            {translators.Wire{Path: send, Body: message("\x2a\x03\x0a\x01x")}, ""},
		"in an entry":        {translators.Wire{Path: send, Body: message("\x32\x0c\x0a\x0a\x0a\x00\x12\x02\x08\x00" + later)}, "L29 dropped /body"},
		"a number for text":  {translators.Wire{Path: send, Body: []byte("\x08\x01")}, "L29 dropped /body"},
		"an error like many": {translators.Wire{Re: canonical.OpTaskGet, Status: 404, Body: frame.Status(codes.NotFound, "x")}, ""},
	} {
		c.wire.Form = a2a.FormGRPC
		got, err := frame.Framer{}.Unframe(c.wire)
		var missing []string
		for _, loss := range got.Losses {
			missing = append(missing, loss.String())
		}
		if err != nil || strings.Join(missing, ",") != c.want {
			t.Errorf("%s: lost %v, %v", name, missing, err)
		}
	}
}

func TestDoubles_ExactNumbersOnly(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		`{"a":[1,-2,1.5,null,true]}`: true, `1e+21`: true, `-0`: true, `9007199254740992`: true, `{"1.50":"2.50"}`: true, `"\"1.50"`: true, `"\\",1`: true,
		`{"a":1.50}`: false, `[9007199254740993]`: false, `{"a":{"b":1e2}}`: false, `1e999`: false, `"\\" ,1.0`: false,
		``: true, `"1.50`: true, `"\`: true, `{`: true,
	} {
		if got, few := frame.Doubles([]byte(body)); got != want || !few {
			t.Errorf("%s: %t", body, !want)
		}
	}
}

// FuzzDoubles_AgreesWithJSONReader holds the scan to what a reader of JSON says.
func FuzzDoubles_AgreesWithJSONReader(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2,1.5]}`, `{"a":1.50}`, `"\"1.50"`, `[1e999,"\\",1]`, `"`, `-`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, few := frame.Doubles(body)
		if !json.Valid(body) || !few {
			return
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		want := true
		for token, err := d.Token(); err == nil; token, err = d.Token() {
			number, ok := token.(json.Number)
			if !ok {
				continue
			}
			value, err := number.Float64()
			text, unsaid := json.Marshal(value)
			want = want && err == nil && unsaid == nil && string(text) == number.String()
		}
		if got != want {
			t.Errorf("%s: %t", body, got)
		}
	})
}
