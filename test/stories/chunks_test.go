package stories

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestChunks_AreOneText: text that an A2A agent appends to an artifact (A2A,
// TaskArtifactUpdateEvent.append) is one text for an MCP client, in its content and in
// its structured content; texts that came together stay apart. That the boundaries of
// the chunks are lost is declared.
func TestChunks_AreOneText(t *testing.T) {
	t.Parallel()
	tr := gatewaytest.Everybody(t)
	for _, to := range tr.Hired(t, []string{"a2a@1.0", "a2a@1.0+grpc", "a2a@0.3", "slim@a2a-1.0+slimrpc"}) {
		for name, meta := range map[string]string{"waits": "", "hears progress": `"progressToken":"p",`} {
			t.Run("MCP "+name+", "+to.Name, func(t *testing.T) {
				body := strings.Replace(gatewaytest.CallBody("play", gatewaytest.DoSpell), `"_meta":{`, `"_meta":{`+meta, 1)
				got := tr.Stage.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + tr.Listed(to, gatewaytest.Player) + "/mcp", Body: body, Header: gatewaytest.Mirror("tools/call", "play")})
				last := got.Body
				if i := strings.LastIndex(string(last), "data: "); i >= 0 {
					last = last[i+len("data: "):]
				}
				var reply struct {
					Result struct {
						Content           []struct{ Text string }
						StructuredContent struct{ Text string }
					}
				}
				gatewaytest.Must(t, json.Unmarshal(last, &reply))
				var texts []string
				for _, block := range reply.Result.Content {
					texts = append(texts, block.Text)
				}
				if want := []string{"Hello world", "one", "two"}; !slices.Equal(texts, want) {
					t.Errorf("the content is %q, want %q", texts, want)
				}
				if want := "Hello world\n\none\n\ntwo"; reply.Result.StructuredContent.Text != want {
					t.Errorf("the structured text is %q, want %q", reply.Result.StructuredContent.Text, want)
				}
				if name != "waits" { // the token that closes a stream says so in a trailer
					return
				}
				if !strings.Contains(warningsOf(t, got.Header.Values(ect.HeaderName)), "L04 dropped /body/artifact") {
					t.Errorf("the reply's ECTs do not say that chunk boundaries are lost: %s", warningsOf(t, got.Header.Values(ect.HeaderName)))
				}
			})
		}
		for _, words := range []string{"uacp", "ainp", "mcp@2025-11-25"} {
			t.Run(words+", "+to.Name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.PatienceOfPlays)
				defer cancel()
				from := tr.Sides()[slices.IndexFunc(tr.Sides(), func(s gatewaytest.Side) bool { return s.Name == words })]
				c := tr.Caller(t, from, to, gatewaytest.Player)
				m := c.Request(canonical.OpInvoke, c.Invoke(gatewaytest.DoSpell))
				m.Preferences.TaskOK = words == "mcp@2025-11-25" // what came of it is then asked for apart
				h := c.Ask(ctx, m, false, nil)
				if m.Preferences.TaskOK && h.Task() != nil {
					h = c.About(ctx, canonical.OpTaskResult, h.Task().ID)
					if !strings.Contains(warningsOf(t, h.Evidence), "L04 dropped /body/artifact") {
						t.Errorf("the ECTs do not say that chunk boundaries are lost: %s", warningsOf(t, h.Evidence))
					}
				}
				if !strings.Contains(h.Text(), "Hello world") {
					t.Errorf("heard %q, want one text", h.Text())
				}
			})
		}
	}
}

// warningsOf are the losses that tokens tell of.
func warningsOf(t *testing.T, tokens []string) string {
	t.Helper()
	var out []string
	for _, token := range tokens {
		claims, _, err := ect.ParseUnverified(token)
		gatewaytest.Must(t, err)
		texts, _ := claims.Ext.Strings(ect.ExtWarnings)
		out = append(out, texts...)
	}
	return strings.Join(out, ", ")
}
