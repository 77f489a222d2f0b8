package a2a

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/textproto"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// vector is one case of testdata: the rule in prose, a message, and what is wanted.
type vector struct {
	name, rule, want string
	wire             translators.Wire
}

func vectors(t testing.TB, folder string) []vector {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors in %s: %v", folder, err)
	}
	var list []vector
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v := vector{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), rule: string(archive.Comment)}
		v.wire = translators.Wire{Binding: Binding, Media: Media}
		for _, f := range archive.Files {
			switch text := strings.TrimSpace(string(f.Data)); f.Name {
			case "body.json":
				v.wire.Body = []byte(text)
			case "form":
				v.wire.Form = text
			case "version":
				v.wire.Version = text
			case "verb":
				v.wire.Verb = text
			case "path":
				v.wire.Path = text
			case "event":
				v.wire.Event = text == "true"
			case "re":
				v.wire.Re = canonical.Op(text)
			case "want":
				v.want = text
			case "header":
				v.wire.Header = header(t, f.Data)
			default:
				t.Fatalf("%s: what is %s?", file, f.Name)
			}
		}
		list = append(list, v)
	}
	return list
}

func header(t testing.TB, data []byte) http.Header {
	t.Helper()
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(data, '\n')))).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	return http.Header(h)
}

func TestIdentity_Vectors(t *testing.T) {
	t.Parallel()
	tr := New(translators.Config{})
	for _, v := range vectors(t, "identity") {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			home := roundTrip(t, tr, v.wire)
			for name, want := range v.wire.Header {
				if got := joined(home.Header, name); got != strings.Join(want, ", ") {
					t.Errorf("%s\n%s: %q, want %q", v.rule, name, got, want)
				}
			}
		})
	}
}

// roundTrip decodes and encodes; the JSON value must not change and nothing
// may be lost.
func roundTrip(t testing.TB, tr *Translator, wire translators.Wire) translators.Wire {
	t.Helper()
	m, err := tr.Decode(wire)
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	m.Origin.Raw = nil
	home, losses, err := tr.Encode(m, translators.Target{Version: m.Origin.Version, Form: wire.Form, Stream: wire.Event})
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	if all := append(m.Losses, losses...); len(all) > 0 {
		t.Errorf("losses: %v", all)
	}
	if wire.Verb != "" && (home.Verb != wire.Verb || home.Path != wire.Path) {
		t.Errorf("%s %s went to %s %s", wire.Verb, wire.Path, home.Verb, home.Path)
	}
	if home.Event != wire.Event && m.Phase == canonical.PhaseEvent {
		t.Error("an event came home as none")
	}
	if len(wire.Body) == 0 && len(home.Body) == 0 {
		return home
	}
	if !rawjson.Equal(wire.Body, home.Body) {
		t.Errorf("another value came home:\n%s", cmp.Diff(indent(wire.Body), indent(home.Body)))
	}
	return home
}

func indent(raw []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", " ") != nil {
		return string(raw)
	}
	return b.String()
}

func TestDecode_RefusedVectors(t *testing.T) {
	t.Parallel()
	tr := New(translators.Config{})
	for _, v := range vectors(t, "refused") {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			m, err := tr.Decode(v.wire)
			var answer *canonical.Error
			switch {
			case err == nil:
				t.Fatalf("accepted: %s", v.rule)
			case v.want == "malformed":
				if !errors.Is(err, translators.ErrMalformed) {
					t.Fatalf("%s\ngot %v", v.rule, err)
				}
			case !errors.As(err, &answer) || string(answer.Code) != v.want:
				t.Fatalf("%s\ngot %v, want %s", v.rule, err, v.want)
			case v.wire.Re == "" && v.name != "no-id" && v.wire.Form == "" && (m == nil || string(m.Correlation.WireID) != `"i"`):
				t.Fatal("the id of the request is not known to who must answer it")
			}
		})
	}
}

// TestDecode_RefusedMembers: the params of a message under another method, which says nothing
// of a task, and a message with one member that is wrong.
func TestDecode_RefusedMembers(t *testing.T) {
	t.Parallel()
	const good = `{"jsonrpc":"2.0","id":"i","method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}]}}}`
	const old = `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"a"}]}}`
	says := func(method string) string { return strings.Replace(good, "SendMessage", method, 1) }
	rpc := func(body string) translators.Wire { return translators.Wire{Binding: Binding, Body: []byte(body)} }
	newer := func(method string) translators.Wire {
		w := rpc(says(method))
		w.Header = http.Header{}
		w.Header.Set(HeaderVersion, "1.0")
		return w
	}
	http03 := func(before, after string) translators.Wire {
		return translators.Wire{Binding: Binding, Version: Version03, Form: FormHTTP, Body: []byte(strings.Replace(old, before, after, 1))}
	}
	edit := func(before, after string) translators.Wire { return rpc(strings.Replace(good, before, after, 1)) }
	cases := map[string]struct {
		wire translators.Wire
		want canonical.Code
	}{
		"sendMessage":           {rpc(says("sendMessage")), canonical.CodeNoMethod},
		"parts as a string":     {edit(`[{"text":"a"}]`, `"none"`), canonical.CodeBadParams},
		"a part as a number":    {edit(`{"text":"a"}`, `7`), canonical.CodeBadParams},
		"a part of nothing":     {edit(`{"text":"a"}`, `{}`), canonical.CodeBadParams},
		"a role of 0.3":         {edit(`ROLE_USER`, `user`), canonical.CodeBadParams},
		"a role of nobody":      {edit(`ROLE_USER`, `ROLE_KING`), canonical.CodeBadParams},
		"params as a string":    {edit(`"params":{`, `"params":"x","y":{`), canonical.CodeBadParams},
		"a role of nobody, 0.3": {http03(`ROLE_USER`, `ROLE_KING`), canonical.CodeBadParams},
		"content misspelt, 0.3": {http03(`"content"`, `"Content"`), canonical.CodeBadParams},
	}
	for _, method := range []string{
		"GetTask", "CancelTask", "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig",
		"tasks/get", "tasks/cancel", "tasks/pushNotificationConfig/set",
	} {
		cases[method] = struct {
			wire translators.Wire
			want canonical.Code
		}{rpc(says(method)), canonical.CodeBadParams}
	}
	for _, method := range []string{"tasks/get", "tasks/pushNotificationConfig/set", "agent/getAuthenticatedExtendedCard"} {
		cases[method+" in 1.0"] = struct {
			wire translators.Wire
			want canonical.Code
		}{newer(method), canonical.CodeUnsupportedVersion}
	}
	for name, c := range cases {
		_, err := New(translators.Config{}).Decode(c.wire)
		var answer *canonical.Error
		if !errors.As(err, &answer) || answer.Code != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// TestVersion_OfARequest: header and carrier say it; else the method's name does.
func TestVersion_OfARequest(t *testing.T) {
	t.Parallel()
	const (
		message   = `"params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}]}}}`
		message03 = `"params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"a"}]}}}`
		send      = `{"jsonrpc":"2.0","id":1,"method":"SendMessage",` + message
		send03    = `{"jsonrpc":"2.0","id":1,"method":"message/send",` + message03
	)
	for _, tc := range []struct{ header, carrier, body, want string }{
		{"", "", send, Version},
		{"1.0", "", send, Version},
		{"1.1", "", send, Version},
		{"1", "", send, Version},
		{"", "1.0", send, Version},
		{"", "", send03, Version03},
		{"0.3", "", send03, Version03},
		{"0.3.0", "", send03, Version03},
		{"", "0.3", send03, Version03},
		{"0.3", "0.3", send03, Version03},
		{"0.3", "", send, string(canonical.CodeUnsupportedVersion)},
		{"", "0.3", send, string(canonical.CodeUnsupportedVersion)},
		{"1.0", "", send03, string(canonical.CodeUnsupportedVersion)},
		{"", "1.0", send03, string(canonical.CodeUnsupportedVersion)},
		{"1.0", "0.3", send03, string(canonical.CodeHeaderMismatch)},
		{"0.3", "1.0", send, string(canonical.CodeHeaderMismatch)},
		{"2.0", "", send, string(canonical.CodeUnsupportedVersion)},
		{"10.0", "", send, string(canonical.CodeUnsupportedVersion)},
		{"0.2", "", send03, string(canonical.CodeUnsupportedVersion)},
		{"0.30", "", send03, string(canonical.CodeUnsupportedVersion)},
		{"x", "", send, string(canonical.CodeUnsupportedVersion)},
		{"", "2.0", send, string(canonical.CodeUnsupportedVersion)},
	} {
		wire := translators.Wire{Body: []byte(tc.body), Header: http.Header{}, Version: tc.carrier}
		if tc.header != "" {
			wire.Header.Set(HeaderVersion, tc.header)
		}
		m, err := New(translators.Config{}).Decode(wire)
		got := m.Origin.Version
		if answer, ok := errors.AsType[*canonical.Error](err); ok {
			got = string(answer.Code)
		}
		if got != tc.want {
			t.Errorf("header %q, carrier %q, %.60s: got %s (%v), want %s", tc.header, tc.carrier, tc.body, got, err, tc.want)
		}
	}
}

func TestDecode_SnakeCaseLeavesInCamelCase(t *testing.T) {
	t.Parallel()
	body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"message_id":"m","role":"ROLE_USER","context_id":"c","reference_task_ids":["r"],"parts":[{"text":"a","media_type":"text/plain"}]}}}`
	tr := New(translators.Config{})
	m, err := tr.Decode(translators.Wire{Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	if m.Conversation.ContextID != "c" || m.Correlation.MessageID != "m" || len(m.Losses) == 0 || m.Losses[0].Code != canonical.LossBytes {
		t.Fatalf("read as %+v with %v", m.Conversation, m.Losses)
	}
	home, _, err := tr.Encode(m, translators.Target{})
	if err != nil || strings.Contains(string(home.Body), "_") && !strings.Contains(string(home.Body), "ROLE_USER") || strings.Contains(string(home.Body), "media_type") {
		t.Fatalf("%v: %s", err, home.Body)
	}
}

func TestDecode_Limits(t *testing.T) {
	t.Parallel()
	tr := New(translators.Config{BodyLimit: 200, Depth: 8})
	deep := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":[[[[[1]]]]]}]}}}`
	if _, err := tr.Decode(translators.Wire{Body: []byte(deep)}); !errors.Is(err, translators.ErrMalformed) {
		t.Errorf("too deep: %v", err)
	}
	for _, re := range []canonical.Op{"", canonical.OpDescribe} {
		if _, err := tr.Decode(translators.Wire{Re: re, Body: []byte(strings.Repeat(" ", 201))}); !errors.Is(err, translators.ErrTooLarge) {
			t.Errorf("too large: %v", err)
		}
	}
}
