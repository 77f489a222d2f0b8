package reply

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestSend_ExitsByOutcome: a script takes no failure for success: not an error, a failed call or a task that
// has not completed. A task that is at work or asks is none.
func TestSend_ExitsByOutcome(t *testing.T) {
	t.Parallel()
	task := func(state string) string {
		return `{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_` + state + `"}}}}`
	}
	for name, c := range map[string]struct{ from, reply, want string }{
		"a message":       {"a2a-v1", `{"jsonrpc":"2.0","id":1,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}}`, ""},
		"completed":       {"a2a-v1", task("COMPLETED"), ""},
		"at work":         {"a2a-v1", task("WORKING"), ""},
		"it asks":         {"a2a-v1", task("INPUT_REQUIRED"), ""},
		"failed":          {"a2a-v1", task("FAILED"), "failed"},
		"rejected":        {"a2a-v1", task("REJECTED"), "rejected"},
		"canceled":        {"a2a-v1", task("CANCELED"), "canceled"},
		"an error":        {"a2a-v1", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such skill"}}`, "no such skill"},
		"a result":        {"mcp-v1", `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"3"}]}}`, ""},
		"a failed call":   {"mcp-v1", `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","isError":true,"content":[{"type":"text","text":"no"}]}}`, "the call failed"},
		"not of the form": {"mcp-v1", `{"hello":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			form, version, err := Protocol(c.from)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := outcome(form, translators.Wire{
				Binding: form.Info().Binding, Version: version, Media: form.Info().Media[0], Body: []byte(c.reply), Re: canonical.OpInvoke,
			}); err != nil {
				got = err.Error()
			}
			if got == "" != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("the command fails with %q, want %q", got, c.want)
			}
		})
	}
}

// outcome is why the agent did not do what it was asked for; nil: it did, or is at work, or asks, or its
// reply cannot be read here.
func outcome(form translators.Translator, wire translators.Wire) error { return read(form, wire).Err }
