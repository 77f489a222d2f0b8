package builtin_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/builtin"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// replyOps are the operations that agents answer.
var replyOps = [...]canonical.Op{
	canonical.OpInvoke, canonical.OpDescribe, canonical.OpCapabilities, canonical.OpTaskGet, canonical.OpTaskList, canonical.OpTaskCancel,
	canonical.OpTaskSubscribe, canonical.OpTaskAnswer, canonical.OpTaskResult, canonical.OpPush, canonical.OpNative, canonical.OpPing,
}

// FuzzReplies_InEveryProtocol: what an agent of A2A or MCP answers, as a reply or as an event, is read and
// written in every version of every protocol, or refused with an error of a known kind.
func FuzzReplies_InEveryProtocol(f *testing.F) {
	for op, results := range map[int][]string{
		0: {
			`{"resultType":"complete","content":[{"type":"text","text":"t"},{"type":"image","data":"AP8=","mimeType":"image/png"}],"structuredContent":{"n":1.50},"isError":true}`,
			`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{"x":{"type":"string"}}}}}},"requestState":"s"}`,
			`{"resultType":"task","taskId":"t","status":"working","createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:05Z","ttlMs":null}`,
			`{"task":{"taskId":"t","status":"input_required","createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:05Z","ttl":60000,"pollInterval":5}}`,
			`{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"data":{"x":1}},{"raw":"AP8="},{"url":"u"}]}]}}`,
			`{"kind":"task","id":"t","contextId":"c","status":{"state":"input-required","message":{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"?"}]}}}`,
			`{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"t"}],"metadata":{"k":null}}}`,
			`{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"x"}]},"append":true,"lastChunk":true}}`,
			`{"kind":"status-update","taskId":"t","contextId":"c","status":{"state":"completed"},"final":true}`,
		},
		1: {`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","instructions":null}`, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"n","version":"1"}}`},
		2: {`{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}},"annotations":null}],"nextCursor":""}`},
		3: {`{"taskId":"t","status":"failed","statusMessage":"m","createdAt":"2026-01-02T03:04:05Z","lastUpdatedAt":"2026-01-02T03:04:05Z","ttl":null,"error":{"code":-32002,"message":"m","data":[]}}`},
		4: {`{"tasks":[{"id":"t","status":{"state":"TASK_STATE_WORKING"}}],"nextPageToken":"","pageSize":1,"totalSize":1}`},
		9: {`{"taskId":"t","id":"p","url":"https://x.example/","token":"k","authentication":{"scheme":"Bearer","credentials":"c"}}`},
	} {
		for _, result := range results {
			for by := range byte(2) {
				f.Add(by, byte(op), byte(0), true, []byte(`{"jsonrpc":"2.0","id":1,"result":`+result+`}`))
				f.Add(by, byte(op), byte(1), false, []byte(`{"jsonrpc":"2.0","id":1,"result":`+result+`}`))
			}
		}
	}
	f.Add(byte(1), byte(0), byte(0), true, []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5,"total":1e9,"message":"m"}}`))
	f.Add(byte(1), byte(0), byte(1), true, []byte(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}}`))
	f.Add(byte(1), byte(0), byte(0), false, []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}}`))
	f.Add(byte(0), byte(0), byte(0), false, []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"m","data":[{"@type":"x","reason":"TASK_NOT_FOUND"}]}}`))
	all := builtin.Forms(translators.Config{BodyLimit: 1 << 16, Depth: 32})
	f.Fuzz(func(t *testing.T, by, op, version byte, event bool, body []byte) {
		from := all[int(by)%2]
		versions := from.Info().Versions
		wire := translators.Wire{Re: replyOps[int(op)%len(replyOps)], Version: versions[int(version)%len(versions)], Event: event, Body: body}
		m, err := from.Decode(wire)
		if err != nil {
			known(t, err)
			return
		}
		if m.Correlation.WireID == nil {
			m.Correlation.WireID = json.RawMessage(`1`)
		}
		for _, to := range all {
			for _, version := range to.Info().Versions {
				_, _, err := to.Encode(m, translators.Target{Version: version, Stream: event})
				known(t, err)
			}
		}
	})
}

// known holds an error against the kinds that callers and operators are told.
func known(t *testing.T, err error) {
	t.Helper()
	var refusal *canonical.Error
	if err != nil && !errors.Is(err, translators.ErrMalformed) && !errors.As(err, &refusal) {
		t.Errorf("an error of no known kind: %T %v", err, err)
	}
}
