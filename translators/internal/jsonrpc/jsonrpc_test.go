package jsonrpc_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
)

func limits() translators.Config { return translators.Config{BodyLimit: 1 << 12, Depth: 8} }

func raw(text string) json.RawMessage { return json.RawMessage(text) }

func losses(code canonical.LossCode, path string) []canonical.Loss {
	return []canonical.Loss{{Code: code, Path: path, Fate: canonical.Dropped}}
}

func TestParse_Messages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   string
		want jsonrpc.Message
	}{
		"request":             {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`, jsonrpc.Message{ID: raw(`1`), Method: "m", Params: raw(`{"a":1}`)}},
		"string id":           {`{"jsonrpc":"2.0","id":"1","method":"m"}`, jsonrpc.Message{ID: raw(`"1"`), Method: "m"}},
		"long id":             {`{"jsonrpc":"2.0","id":-90071992547409931234567,"method":"m"}`, jsonrpc.Message{ID: raw(`-90071992547409931234567`), Method: "m"}},
		"empty id":            {`{"jsonrpc":"2.0","id":"","method":"m"}`, jsonrpc.Message{ID: raw(`""`), Method: "m"}},
		"notification":        {`{"jsonrpc":"2.0","method":"m","params":{}}`, jsonrpc.Message{Method: "m", Params: raw(`{}`)}},
		"result":              {`{"jsonrpc":"2.0","id":1,"result":{}}`, jsonrpc.Message{ID: raw(`1`), Result: raw(`{}`)}},
		"null result":         {`{"jsonrpc":"2.0","id":1,"result":null}`, jsonrpc.Message{ID: raw(`1`), Result: raw(`null`)}},
		"error":               {`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"x","data":[1.50]}}`, jsonrpc.Message{ID: raw(`1`), Error: &jsonrpc.Error{Code: -32000, Message: "x", Data: raw(`[1.50]`)}}},
		"error with more":     {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","status":2.0}}`, jsonrpc.Message{ID: raw(`1`), Error: &jsonrpc.Error{Code: 1, Message: "x", Rest: raw(`{"status":2.0}`)}}},
		"error to nobody":     {`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}`, jsonrpc.Message{ID: raw(`null`), Error: &jsonrpc.Error{Code: -32700}}},
		"error without id":    {`{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}`, jsonrpc.Message{Error: &jsonrpc.Error{Code: -32700, Message: "x"}}},
		"escaped names":       {`{"\u006asonrpc":"2.0","id":1,"method":"m"}`, jsonrpc.Message{ID: raw(`1`), Method: "m"}},
		"unknown members":     {`{"jsonrpc":"2.0","id":1,"method":"m","extra":1,"more":2}`, jsonrpc.Message{ID: raw(`1`), Method: "m", Losses: losses(canonical.LossExtension, "/extensions")}},
		"nulls of a result":   {`{"jsonrpc":"2.0","id":1,"method":null,"params":null,"result":{},"error":null}`, jsonrpc.Message{ID: raw(`1`), Result: raw(`{}`), Losses: losses(canonical.LossEmpty, "/body")}},
		"nulls of an error":   {`{"jsonrpc":"2.0","id":1,"method":null,"result":null,"error":{"code":1,"message":"m"}}`, jsonrpc.Message{ID: raw(`1`), Error: &jsonrpc.Error{Code: 1, Message: "m"}, Losses: losses(canonical.LossEmpty, "/body")}},
		"nulls of a request":  {`{"jsonrpc":"2.0","id":1,"method":"m","result":null,"error":null}`, jsonrpc.Message{ID: raw(`1`), Method: "m", Losses: losses(canonical.LossEmpty, "/body")}},
		"params that is null": {`{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, jsonrpc.Message{ID: raw(`1`), Method: "m", Losses: losses(canonical.LossEmpty, "/body")}},
		"numbers stay exact":  {`{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":1.10e2}}`, jsonrpc.Message{ID: raw(`1`), Method: "m", Params: raw(`{"n":1.10e2}`)}},
	} {
		got, err := jsonrpc.Parse([]byte(tc.in), limits())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in     string
		path   string
		syntax bool
	}{
		"nothing":             {``, "", true},
		"no JSON":             {`{"jsonrpc":`, "", true},
		"two values":          {`{"jsonrpc":"2.0","id":1,"method":"m"}{}`, "", true},
		"duplicate id":        {`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, "", true},
		"batch":               {`[{"jsonrpc":"2.0","id":1,"method":"m"}]`, "", false},
		"null":                {`null`, "", false},
		"a number":            {`7`, "", false},
		"a string":            {`"m"`, "", false},
		"no version":          {`{"id":1,"method":"m"}`, "/jsonrpc", false},
		"version 1.0":         {`{"jsonrpc":"1.0","id":1,"method":"m"}`, "/jsonrpc", false},
		"version by number":   {`{"jsonrpc":2.0,"id":1,"method":"m"}`, "/jsonrpc", false},
		"other case":          {`{"JSONRPC":"2.0","id":1,"method":"m"}`, "/jsonrpc", false},
		"fractional id":       {`{"jsonrpc":"2.0","id":1.5,"method":"m"}`, "/id", false},
		"exponential id":      {`{"jsonrpc":"2.0","id":1e3,"method":"m"}`, "/id", false},
		"boolean id":          {`{"jsonrpc":"2.0","id":true,"method":"m"}`, "/id", false},
		"object id":           {`{"jsonrpc":"2.0","id":{},"method":"m"}`, "/id", false},
		"null id, request":    {`{"jsonrpc":"2.0","id":null,"method":"m"}`, "/id", false},
		"null id, result":     {`{"jsonrpc":"2.0","id":null,"result":{}}`, "/id", false},
		"no id, result":       {`{"jsonrpc":"2.0","result":{}}`, "/id", false},
		"neither":             {`{"jsonrpc":"2.0","id":1}`, "", false},
		"empty method":        {`{"jsonrpc":"2.0","id":1,"method":""}`, "", false},
		"both":                {`{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`, "", false},
		"result and error":    {`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, "", false},
		"params by position":  {`{"jsonrpc":"2.0","id":1,"method":"m","params":[]}`, "/params", false},
		"params in a reply":   {`{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`, "/params", false},
		"method is no string": {`{"jsonrpc":"2.0","id":1,"method":7}`, "/method", false},
		"method in two cases": {`{"jsonrpc":"2.0","id":1,"method":"m","Method":"n"}`, "/method", false},
		"params, other case":  {`{"jsonrpc":"2.0","id":1,"method":"m","PARAMS":{}}`, "/params", false},
		"error is no object":  {`{"jsonrpc":"2.0","id":1,"error":"x"}`, "/error", false},
		"fractional code":     {`{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}`, "/error/code", false},
		"code out of range":   {`{"jsonrpc":"2.0","id":1,"error":{"code":99999999999999999999,"message":"x"}}`, "/error/code", false},
		"no code":             {`{"jsonrpc":"2.0","id":1,"error":{"message":"x"}}`, "/error/code", false},
		"message no string":   {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":{}}}`, "/error", false},
	} {
		_, err := jsonrpc.Parse([]byte(tc.in), limits())
		var malformed *translators.MalformedError
		if !errors.As(err, &malformed) {
			t.Errorf("%s: got %v, want a *MalformedError", name, err)
			continue
		}
		if malformed.Path != tc.path || malformed.Syntax != tc.syntax {
			t.Errorf("%s: got %q syntax=%v, want %q syntax=%v", name, malformed.Path, malformed.Syntax, tc.path, tc.syntax)
		}
	}
}

// TestParse_IDOfAnError: an error is answered under the id of its request wherever
// that can be read (JSON-RPC 2.0, section 5).
func TestParse_IDOfAnError(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"jsonrpc":"1.0","id":4,"method":"m"}`:                `4`,
		`{"id":"a","method":"m"}`:                              `"a"`,
		`{"jsonrpc":"2.0","method":7,"id":4}`:                  `4`,
		`{"jsonrpc":"2.0","params":[],"id":4,"method":"m"}`:    `4`,
		`{"jsonrpc":"2.0","id":4,"method":"m","result":{}}`:    `4`,
		`{"jsonrpc":"2.0","id":1.5,"method":"m"}`:              ``,
		`{"jsonrpc":"2.0","id":4,"id":4,"method":"m"}`:         ``,
		`{"jsonrpc":"2.0","id":4,"ID":5,"method":"m"}`:         ``,
		`{"jsonrpc":"2.0","id":4,"method":"m","params":{"a"}}`: ``,
	} {
		m, err := jsonrpc.Parse([]byte(in), limits())
		if err == nil || string(m.ID) != want {
			t.Errorf("%s: id %q and error %v, want %q and an error", in, m.ID, err, want)
		}
	}
}

func TestParse_Limits(t *testing.T) {
	t.Parallel()
	nested := func(n int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}`
	}
	if _, err := jsonrpc.Parse([]byte(nested(6)), limits()); err != nil {
		t.Errorf("at the depth limit: %v", err)
	}
	if _, err := jsonrpc.Parse([]byte(nested(7)), limits()); !errors.Is(err, translators.ErrMalformed) {
		t.Errorf("beyond the depth limit: got %v", err)
	}
	if _, err := jsonrpc.Parse([]byte(nested(1)+strings.Repeat(" ", 1<<12)), limits()); !errors.Is(err, translators.ErrTooLarge) {
		t.Errorf("beyond the size limit: got %v", err)
	}
}

func TestWriters_EachMessage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		got  []byte
		want string
	}{
		"request":      {jsonrpc.Request(raw(`"1"`), "a/b", raw(`{"n":1.0}`)), `{"jsonrpc":"2.0","id":"1","method":"a/b","params":{"n":1.0}}`},
		"notification": {jsonrpc.Request(nil, "m", nil), `{"jsonrpc":"2.0","method":"m"}`},
		"result":       {jsonrpc.Result(raw(`1`), raw(`{}`)), `{"jsonrpc":"2.0","id":1,"result":{}}`},
		"failure":      {jsonrpc.Failure(raw(`1`), jsonrpc.Error{Code: -32603, Message: "a \"b\"", Data: raw(`[]`)}), `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"a \"b\"","data":[]}}`},
		"with more":    {jsonrpc.Failure(raw(`1`), jsonrpc.Error{Code: 1, Rest: raw(`{"status":2.0}`)}), `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","status":2.0}}`},
		"to nobody":    {jsonrpc.Failure(nil, jsonrpc.Error{Code: -32700}), `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}`},
	} {
		if string(tc.got) != tc.want {
			t.Errorf("%s: got %s, want %s", name, tc.got, tc.want)
		}
		if _, err := jsonrpc.Parse(tc.got, limits()); err != nil {
			t.Errorf("%s: Parse refuses it: %v", name, err)
		}
	}
}

// FuzzParse_Roundtrip: whatever comes in, Parse answers with one kind of error or with a
// message that, written again, reads the same.
func FuzzParse_Roundtrip(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1,{"b":null}]}}`,
		`{"jsonrpc":"2.0","method":"m"}`,
		`{"jsonrpc":"2.0","id":"x","result":[1.50]}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"\ud83d\ude00","data":{}}}`,
		`{"jsonrpc":"2.0","id":-0,"method":"\u0000"}`,
		`[]`, `{`, ` {"jsonrpc":"2.0","id":1,"id":1,"method":"m"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := jsonrpc.Parse(body, limits())
		if err != nil {
			if !errors.Is(err, translators.ErrMalformed) {
				t.Fatalf("got %T (%v), want ErrMalformed", err, err)
			}
			return
		}
		again, err := jsonrpc.Parse(write(m), translators.Config{BodyLimit: 1 << 16, Depth: 8})
		if err != nil {
			t.Fatalf("its own writing is refused: %v", err)
		}
		if len(m.ID) == 0 && m.Error != nil {
			m.ID = raw(`null`) // a reply to nobody is written with a null id
		}
		m.Losses = nil // what it names is not written
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("(-read +read again):\n%s", diff)
		}
	})
}

func write(m jsonrpc.Message) []byte {
	switch {
	case m.Method != "":
		return jsonrpc.Request(m.ID, m.Method, m.Params)
	case m.Error != nil:
		return jsonrpc.Failure(m.ID, *m.Error)
	default:
		return jsonrpc.Result(m.ID, m.Result)
	}
}

// Skim sees what Parse sees of an envelope, and gives up only on what Parse
// refuses.
func TestSkim_AgreesWithParse(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`: true, `{"\u006asonrpc":"2.0","\u0069d":"1","result":{}}`: true,
		` { "jsonrpc" : "2.0" , "error":{"code":1,"message":"x"} } `: true, `{"jsonrpc":"2.0","id":1,"result":{"a":tru}}`: true,
		`{}`: true, `{"id":1,"id":2,"result":1}`: true, `{"jsonrpc":2}`: false, `{"jsonrpc":"2.0","method":null}`: true, `{"jsonrpc":"2.0","method":7}`: false,
		`[]`: false, ``: false, `{"id":1`: false, `{"id":1} x`: false, `{"id"}`: false, `{id:1}`: false, `{"jsonrpc":"2.0","id":}`: false,
	} {
		got, ok := jsonrpc.Skim([]byte(in))
		if ok != want {
			t.Errorf("%s: %v", in, ok)
		}
		m, err := jsonrpc.Parse([]byte(in), limits())
		if err != nil {
			continue
		}
		if !ok || got.Version != "2.0" || got.Method != m.Method || string(got.ID) != string(m.ID) ||
			string(got.Result) != string(m.Result) || (got.Error != nil) != (m.Error != nil) {
			t.Errorf("%s: skimmed as %+v, parsed as %+v", in, got, m)
		}
	}
	if e, _ := jsonrpc.Skim([]byte(`{"id":1,"id":2}`)); string(e.ID) != "1" {
		t.Errorf("the first counts: %s", e.ID)
	}
}

func BenchmarkSkim_Response(b *testing.B) {
	body := []byte(`{"jsonrpc":"2.0","id":"6a2f41a3-c54c-4b21-8e2e-000000000000","result":{"content":[{"type":"text","text":"5"}],"isError":false}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := jsonrpc.Skim(body); !ok {
			b.Fatal("no envelope")
		}
	}
}
