package builtin_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// exchange is one A2A message that becomes an MCP call and its result a task.
type exchange struct {
	request, reply translators.Wire
	call, result   *canonical.Message
	tool, task     translators.Target
}

func newExchange(b *testing.B) *exchange {
	b.Helper()
	x := &exchange{
		request: translators.Wire{Binding: a2a.Binding, Version: "1.0", Media: a2a.Media, Body: []byte(
			`{"jsonrpc":"2.0","id":"5d0cd0ce-3f0f-4f47-8b4f-f1c8c5d8c6f4","method":"SendMessage","params":{"message":{"messageId":"5d0cd0ce-3f0f-4f47-8b4f-f1c8c5d8c6f4",` +
				`"role":"ROLE_USER","parts":[{"data":{"skill":"echo","input":{"message":"hello"}},"mediaType":"application/json"}]}}}`)},
		reply: translators.Wire{
			Binding: mcp.Binding, Version: mcp.Modern, Media: "application/json", Re: canonical.OpInvoke, Status: 200,
			Body: []byte(`{"jsonrpc":"2.0","id":"7f","result":{"content":[{"type":"text","text":"hello"}],"isError":false,"resultType":"complete"}}`),
		},
		tool: translators.Target{Version: mcp.Modern, Capability: &canonical.Capability{
			ID: "echo", InputSchema: []byte(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`),
		}},
		task: translators.Target{Version: "1.0"},
	}
	var err error
	if x.call, err = a2a.New(translators.Config{}).Decode(x.request); err != nil {
		b.Fatal(err)
	}
	if x.result, err = mcp.New(translators.Config{}).Decode(x.reply); err != nil {
		b.Fatal(err)
	}
	x.call.Correlation.WireID = canonical.TextID("7f")
	x.result.Correlation = canonical.Correlation{WireID: canonical.TextID("5d0c"), MessageID: "5d0c"}
	x.result.Conversation = canonical.Conversation{ContextID: "c-1", TaskID: "t-1"}
	return x
}

func BenchmarkExchange_FourCodecCalls(b *testing.B) {
	x := newExchange(b)
	fromA2A, toMCP := a2a.New(translators.Config{}), mcp.New(translators.Config{})
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"decode request", func() error { _, err := fromA2A.Decode(x.request); return err }},
		{"encode call", func() error { _, _, err := toMCP.Encode(x.call, x.tool); return err }},
		{"decode result", func() error { _, err := toMCP.Decode(x.reply); return err }},
		{"encode task", func() error { _, _, err := fromA2A.Encode(x.result, x.task); return err }},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := step.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
