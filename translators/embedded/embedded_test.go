package embedded_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

func codec(of canonical.Binding) translators.Translator {
	switch of {
	case mcp.Binding:
		return mcp.New(translators.Config{})
	case uacp.Binding:
		return uacp.New(translators.Config{})
	default:
		return a2a.New(translators.Config{})
	}
}

const (
	ours   = `"urn:aepb:translation:1/ect":["a.b.c","d.e.f"]`
	detail = `{"@type":"urn:aepb:translation:1/ect","tokens":["a.b.c","d.e.f"]}`
	ours2  = `"aepb.gateway/ect":["a.b.c","d.e.f"]`
)

// TestEvidence_RoundtripInEachProtocol: tokens go where the protocol has a place for them, nothing
// else changes, and without them the bytes are what they were.
func TestEvidence_RoundtripInEachProtocol(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wire translators.Wire
		body string
		want string // empty: there is no place
	}{
		"a message":                   {body: `{"id":1,"params":{"message":{"a":1}}}`, want: `{"id":1,"params":{"metadata":{` + ours + `},"message":{"a":1}}}`},
		"with metadata":               {body: `{"params": {"message":{}, "metadata" : { "k" : "v" } } }`, want: `{"params": {"message":{}, "metadata" : {` + ours + `, "k" : "v" } } }`},
		"with empty metadata":         {body: `{"params":{"message":{},"metadata":{}}}`},
		"with none of it":             {body: `{"params":{"message":{},"metadata":null}}`},
		"another request":             {body: `{"params":{"id":"t"}}`},
		"a task":                      {wire: translators.Wire{Re: canonical.OpInvoke}, body: `{"result":{"task":{"id":"t"}}}`, want: `{"result":{"task":{"metadata":{` + ours + `},"id":"t"}}}`},
		"a message that answers":      {wire: translators.Wire{Re: canonical.OpInvoke}, body: `{"result":{"message":{"messageId":"m"}}}`, want: `{"result":{"message":{"metadata":{` + ours + `},"messageId":"m"}}}`},
		"a task of 0.3":               {wire: translators.Wire{Re: canonical.OpInvoke}, body: `{"result":{"status":{}}}`, want: `{"result":{"metadata":{` + ours + `},"status":{}}}`},
		"an empty task":               {wire: translators.Wire{Re: canonical.OpInvoke}, body: `{"result":{"task":{}}}`, want: `{"result":{"task":{"metadata":{` + ours + `}}}}`},
		"an error":                    {wire: translators.Wire{Re: canonical.OpInvoke}, body: `{"error":{"code":1,"message":""}}`, want: `{"error":{"data":[` + detail + `],"code":1,"message":""}}`},
		"an error with details":       {wire: translators.Wire{Re: canonical.OpInvoke}, body: `{"error":{"message":"","data" : [ {"@type":"x"}, 1 ]}}`, want: `{"error":{"message":"","data" : [` + detail + `, {"@type":"x"}, 1 ]}}`},
		"an error with none":          {wire: translators.Wire{Re: canonical.OpInvoke}, body: `{"error":{"message":"","data":[]}}`},
		"an error of somebody":        {wire: translators.Wire{Re: canonical.OpInvoke}, body: `{"error":{"message":"","data":"x"}}`},
		"no error":                    {wire: translators.Wire{Re: canonical.OpInvoke}, body: `{"error":{}}`},
		"an error over HTTP":          {wire: translators.Wire{Form: a2a.FormHTTP, Re: canonical.OpInvoke}, body: `{"error":{"message":"","details":[{}]}}`, want: `{"error":{"message":"","details":[` + detail + `,{}]}}`},
		"a change":                    {wire: translators.Wire{Re: canonical.OpInvoke, Event: true}, body: `{"result":{"statusUpdate":{"taskId":"t"}}}`, want: `{"result":{"statusUpdate":{"metadata":{` + ours + `},"taskId":"t"}}}`},
		"a change of 0.3":             {wire: translators.Wire{Re: canonical.OpInvoke, Event: true}, body: `{"result":{"artifact":{}}}`, want: `{"result":{"metadata":{` + ours + `},"artifact":{}}}`},
		"a piece over HTTP":           {wire: translators.Wire{Form: a2a.FormHTTP, Re: canonical.OpInvoke, Event: true}, body: `{"artifactUpdate":{"metadata":{"k":1}}}`, want: `{"artifactUpdate":{"metadata":{` + ours + `,"k":1}}}`},
		"an error of MCP":             {wire: translators.Wire{Binding: mcp.Binding, Re: canonical.OpInvoke}, body: `{"error":{"code":1,"message":"","data":{"x":1}}}`, want: `{"error":{"code":1,"message":"","data":{` + ours2 + `,"x":1}}}`},
		"an error of MCP in words":    {wire: translators.Wire{Binding: mcp.Binding, Re: canonical.OpInvoke}, body: `{"error":{"code":1,"message":"","data":"x"}}`},
		"progress of MCP":             {wire: translators.Wire{Binding: mcp.Binding, Re: canonical.OpInvoke, Event: true}, body: `{"method":"n","params":{"progress":1}}`, want: `{"method":"n","params":{"_meta":{` + ours2 + `},"progress":1}}`},
		"a list":                      {wire: translators.Wire{Re: canonical.OpTaskList}, body: `{"result":{"tasks":[]}}`},
		"an event":                    {wire: translators.Wire{Re: canonical.OpInvoke, Event: true}, body: `{"result":{"task":{"id":"t"}}}`, want: `{"result":{"task":{"metadata":{` + ours + `},"id":"t"}}}`},
		"HTTP":                        {wire: translators.Wire{Form: a2a.FormHTTP}, body: `{"message":{}}`, want: `{"metadata":{` + ours + `},"message":{}}`},
		"a task over HTTP":            {wire: translators.Wire{Form: a2a.FormHTTP, Re: canonical.OpInvoke}, body: `{"task":{"id":1}}`, want: `{"task":{"metadata":{` + ours + `},"id":1}}`},
		"gRPC":                        {wire: translators.Wire{Form: a2a.FormGRPC}, body: `{"message":{}}`},
		"no JSON":                     {body: `{"params":{"message":`},
		"no object":                   {body: `[]`},
		"twice the same name":         {body: `{"params":{"message":{},"message":{}}}`},
		"a call of MCP":               {wire: translators.Wire{Binding: mcp.Binding}, body: `{"params":{"_meta":{"x":1},"name":"n"}}`, want: `{"params":{"_meta":{` + ours2 + `,"x":1},"name":"n"}}`},
		"a result of MCP":             {wire: translators.Wire{Binding: mcp.Binding, Re: canonical.OpInvoke}, body: `{"result":{}}`, want: `{"result":{"_meta":{` + ours2 + `}}}`},
		"MCP without anything to say": {wire: translators.Wire{Binding: mcp.Binding}, body: `{"method":"ping"}`},
		"another protocol":            {wire: translators.Wire{Binding: uacp.Binding}, body: `{"params":{"message":{}}}`},
	} {
		w, form := c.wire, codec(c.wire.Binding)
		w.Body = []byte(c.body)
		with, ok := embedded.Insert(form, w, []string{"a.b.c", "d.e.f"})
		if c.want == "" {
			if ok || string(with.Body) != c.body {
				t.Errorf("%s: got %s", name, with.Body)
			}
			continue
		}
		if !ok || string(with.Body) != c.want {
			t.Errorf("%s: got %s\nwant %s", name, with.Body, c.want)
		}
		if got := string(with.HashInput()); got != c.body {
			t.Errorf("%s: hashed is %s", name, got)
		}
		back, tokens, err := embedded.Take(form, with)
		if err != nil || string(back.Body) != c.body || !slices.Equal(tokens, []string{"a.b.c", "d.e.f"}) {
			t.Errorf("%s: back came %s with %v, %v", name, back.Body, tokens, err)
		}
		if again, ok := embedded.Insert(form, with, []string{"x"}); ok || string(again.Body) != c.want {
			t.Errorf("%s: twice", name)
		}
	}
}

// TestTake_PositionsAndMalformed: others put the member elsewhere in its object, and what is no array
// of texts is malformed.
func TestTake_PositionsAndMalformed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want string }{
		"the last":       {`{"params":{"_meta":{"x":1 , ` + ours2 + `}}}`, `{"params":{"_meta":{"x":1}}}`},
		"among blanks":   {`{"params":{"_meta":{"x":1 , ` + ours2 + ` , "y":2}}}`, `{"params":{"_meta":{"x":1 , "y":2}}}`},
		"in the middle":  {`{"params":{"_meta":{"x":1,` + ours2 + `,"y":2}}}`, `{"params":{"_meta":{"x":1,"y":2}}}`},
		"the first":      {`{"params":{"_meta":{ ` + ours2 + ` , "y":2}}}`, `{"params":{"_meta":{ "y":2}}}`},
		"all that it is": {`{"params":{"name":"n", "_meta" : {` + ours2 + `}}}`, `{"params":{"name":"n"}}`},
		"none":           {`{"params":{"_meta":{"x":1}}}`, `{"params":{"_meta":{"x":1}}}`},
		"a number":       {`{"params":{"_meta":{"aepb.gateway/ect":1}}}`, ""},
		"of numbers":     {`{"params":{"_meta":{"aepb.gateway/ect":[1]}}}`, ""},
	} {
		w := translators.Wire{Binding: mcp.Binding, Body: []byte(c.body)}
		got, _, err := embedded.Take(codec(mcp.Binding), w)
		if c.want == "" && !errors.Is(err, translators.ErrMalformed) || c.want != "" && (err != nil || string(got.Body) != c.want) {
			t.Errorf("%s: got %s, %v", name, got.Body, err)
		}
	}
}

// FuzzEvidence_Roundtrip: whatever a message is, it comes back byte by byte.
func FuzzEvidence_Roundtrip(f *testing.F) {
	f.Add([]byte(`{"params":{"message":{},"metadata":{"k":1}}}`), byte(0))
	f.Add([]byte(`{"result":{"task":{"id":1}}}`), byte(1))
	f.Add([]byte(`{"params":{"_meta":{"k":1}}}`), byte(2))
	f.Add([]byte(`{ "message" : { } }`), byte(3))
	f.Add([]byte(`{"error":{"message":"","data":[ {"@type":"urn:aepb:translation:1/ect"} , 1]}}`), byte(1))
	f.Add([]byte(`{"result":{"statusUpdate":{"metadata":{"k":[]}}}}`), byte(4))
	f.Fuzz(func(t *testing.T, body []byte, which byte) {
		w := []translators.Wire{
			{Binding: a2a.Binding},
			{Binding: a2a.Binding, Re: canonical.OpInvoke},
			{Binding: mcp.Binding},
			{Binding: a2a.Binding, Form: a2a.FormHTTP},
			{Binding: a2a.Binding, Re: canonical.OpInvoke, Event: true},
		}[which%5]
		w.Body = body
		form := codec(w.Binding)
		with, ok := embedded.Insert(form, w, []string{"a.b.c"})
		if !ok {
			return
		}
		back, tokens, err := embedded.Take(form, with)
		if err != nil || len(tokens) != 1 || string(back.Body) != string(body) {
			t.Fatalf("%q became %q and then %q: %v", body, with.Body, back.Body, err)
		}
		if strings.Count(string(with.Body), "a.b.c") < 1 {
			t.Fatal("no token")
		}
	})
}
