package builtin_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// TestExplicitDefaults_AreNoLoss: a reply that says a default explicitly, as SDKs write it, is told without
// a loss, and what another value says is one.
func TestExplicitDefaults_AreNoLoss(t *testing.T) {
	t.Parallel()
	fromMCP, fromA2A := mcp.New(translators.Config{}), a2a.New(translators.Config{})
	result := func(members string) translators.Wire {
		return translators.Wire{
			Binding: mcp.Binding, Version: mcp.Legacy, Media: "application/json", Re: canonical.OpInvoke,
			Body: []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"` + members + `}}`),
		}
	}
	message := func(part, members string) translators.Wire {
		return translators.Wire{
			Binding: a2a.Binding, Version: "1.0", Media: "application/json", Re: canonical.OpInvoke,
			Body: []byte(`{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"text":"x"` + part + `}]}]` + members + `}}}`),
		}
	}
	for name, c := range map[string]struct {
		wire translators.Wire
		want canonical.LossCode // empty: no loss of members or metadata
	}{
		"MCP: no error":        {result(`}],"isError":false`), ""},
		"MCP: empty metadata":  {result(`,"_meta":{}}],"_meta":{}`), ""},
		"MCP: nulls":           {result(`,"_meta":null,"annotations":null}],"_meta":null`), ""},
		"MCP: metadata":        {result(`}],"_meta":{"a":1}`), canonical.LossMetadata},
		"MCP: another member":  {result(`}],"later":false`), canonical.LossExtension},
		"A2A: empty members":   {message(`,"filename":"","mediaType":"","metadata":{}`, `,"history":[],"metadata":{ }`), ""},
		"A2A: nulls":           {message(`,"filename":null,"metadata":null`, `,"history":null,"metadata":null`), ""},
		"A2A: metadata":        {message("", `,"metadata":{"a":null}`), canonical.LossMetadata},
		"A2A: another member":  {message(`,"later":""`, ""), canonical.LossExtension},
		"A2A: a list of other": {message("", `,"later":[]`), canonical.LossExtension},
	} {
		from, to := translators.Translator(fromMCP), translators.Translator(fromA2A)
		if c.wire.Binding == a2a.Binding {
			from, to = to, from
		}
		m, err := from.Decode(c.wire)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m.Conversation = canonical.Conversation{TaskID: "t", ContextID: "c"}
		_, losses, err := to.Encode(m, translators.Target{})
		var got canonical.LossCode
		for _, loss := range losses {
			if loss.Code == canonical.LossMetadata || loss.Code == canonical.LossExtension {
				got = loss.Code
			}
		}
		if err != nil || got != c.want {
			t.Errorf("%s: loses %v, want %q (%v)", name, losses, c.want, err)
		}
	}
}
