package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// revised is a call at the translate endpoint from one protocol version to another.
func (b *fixture) revised(t *testing.T, agent string, from translators.Wire, to canonical.Binding, version string) transport.Call {
	t.Helper()
	c := b.call(string(from.Body), b.source(t, string(from.Body), nil))
	c.Agent, c.Wire, c.EntryPoint, c.To, c.ToVersion = agent, from, transport.Translate, to, version
	c.Wire.Media = "application/json"
	return c
}

// TestTranslateEndpoint_EveryMCPRevision: as the source, as the destination,
// and as both.
func TestTranslateEndpoint_EveryMCPRevision(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	call := func(version string) translators.Wire {
		params := `{"name":"add","arguments":{"a":1,"b":2}}`
		if version == mcp.Modern {
			params = `{"name":"add","arguments":{"a":1,"b":2},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`
		}
		return translators.Wire{Binding: mcp.Binding, Version: version, Body: []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}`)}
	}
	for _, version := range mcp.New(translators.Config{}).Info().Versions {
		answer, err := b.Exchange(t.Context(), b.revised(t, "", translators.Wire{Binding: a2a.Binding, Body: []byte(addBody)}, mcp.Binding, version))
		if err != nil || answer.Wire().Version != version || strings.Contains(string(answer.Wire().Body), "protocolVersion") != (version == mcp.Modern) {
			t.Errorf("to %s: %v %s", version, err, answer.Wire().Body)
		}
		answer, err = b.Exchange(t.Context(), b.revised(t, "", call(version), a2a.Binding, ""))
		if err != nil || !strings.Contains(string(answer.Wire().Body), `"skill":"add"`) {
			t.Errorf("from %s: %v %s", version, err, answer.Wire().Body)
		}
		answer, err = b.Exchange(t.Context(), b.revised(t, "calculator", call(version), mcp.Binding, ""))
		if err != nil {
			t.Errorf("from %s to an agent: %v", version, err)
			continue
		}
		checkSum(t, version, answer.Wire().Body)
	}
	batch := call(mcp.LegacyMarch)
	batch.Body = []byte("[" + string(batch.Body) + "]")
	if _, err := b.Exchange(t.Context(), b.revised(t, "calculator", batch, mcp.Binding, "")); err == nil {
		t.Error("a batch was taken at the translate endpoint")
	}
}

// checkSum expects what an agent of the newest revision said, in the words of
// the caller's own.
func checkSum(t *testing.T, version string, body []byte) {
	t.Helper()
	var got struct {
		Result struct {
			Type       string          `json:"resultType"`
			Structured json.RawMessage `json:"structuredContent"`
			Content    []struct{ Text string }
		}
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	r := got.Result
	if (r.Type != "") != (version == mcp.Modern) || (r.Structured != nil) != (version > mcp.LegacyMarch) ||
		len(r.Content) != 1 || r.Content[0].Text != `{"sum":3}` {
		t.Errorf("%s: got %s", version, body)
	}
}
