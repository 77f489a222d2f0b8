package stories

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/toolstest"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

const ruledTools = 1000

// listRuled lists a server with 1,000 tools, and rules about them.
func listRuled(t *testing.T, b *gatewaytest.Fixture, name string, rules policy.Rules) {
	t.Helper()
	server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{
		Deps: peers.Deps{TLS: gatewaytest.Serving(b.SVID(t, "/"+name))}, Stateless: true, Tools: []string{"fail"}, Also: toolstest.Many(t, ruledTools-1, "Does one thing of many."),
	})
	gatewaytest.Must(t, err)
	t.Cleanup(func() { gatewaytest.StopWithin(t, server.Stop) })
	gatewaytest.Must(t, b.Directory().Put(directory.Agent{Name: name, Rules: rules, Endpoints: []directory.Endpoint{{Binding: "mcp-v1", URL: server.URL()}}}))
}

// TestToolRules_ListIsCall: in each protocol and revision, what a caller may call is what it is shown, and what it may not
// call is refused like what does not exist.
func TestToolRules_ListIsCall(t *testing.T) {
	t.Parallel()
	alice := gatewaytest.Did("alice")
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{AINP: config.AINP{Callers: map[string]string{alice.DID: "spiffe://aepb.dev/client"}}}})
	random := rand.New(rand.NewPCG(5, 6))
	allowed, rules := map[string]bool{}, policy.Rules{Tools: []string{"tool-*"}}
	for n := range 50 { // of which every other is about this caller
		tool, caller := fmt.Sprintf("tool-%d", 1+random.IntN(ruledTools-2)), string(b.Me.ID)
		if n%2 == 0 {
			allowed[tool] = true
		} else {
			caller = "spiffe://aepb.dev/other/*"
		}
		rules.Callers = append(rules.Callers, caller+"#invoke:"+tool)
	}
	rules.Callers = append(rules.Callers, string(b.Me.ID)+"#invoke:tool-99*", string(b.Me.ID)+"#invoke:fail") // which is not for all
	for _, n := range append([]int{99}, 990, 991, 992, 993, 994, 995, 996, 997, 998) {
		allowed[fmt.Sprintf("tool-%d", n)] = true
	}
	listRuled(t, b, "ruled", rules)
	var calls []string
	for n := 0; n < ruledTools; n += 83 {
		calls = append(calls, fmt.Sprintf("tool-%d", n))
	}
	calls = append(calls, "tool-99", "tool-998", "fail", "tool-0999999", "nonesuch")
	for tool := range allowed {
		if len(calls) < 25 {
			calls = append(calls, tool)
		}
	}
	for _, way := range append(waysToTools(t, b, "ruled"), toolWay{"µACP", nil, func(t *testing.T, tool string) string {
		t.Helper()
		return strings.ReplaceAll(string(b.AskUACP(t, "ruled", gatewaytest.FrameOf(t, uacp.FormEnveloped, callTool(tool)))), tool, "TOOL")
	}}, toolWay{"AINP", nil, func(t *testing.T, tool string) string {
		t.Helper()
		body := string(gatewaytest.Signed(alice, gatewaytest.EnvelopeOf(t, alice, callTool(tool)), ainp.SigDraft))
		return strings.ReplaceAll(string(b.Send(t, gatewaytest.HTTPRequest{At: "/agents/ruled/ainp", Body: body}).Body), tool, "TOOL")
	}}) {
		shown, list := map[string]bool{}, []string{}
		if way.list != nil {
			list = way.list(t)
		}
		for _, tool := range list {
			shown[tool] = true
			if !allowed[tool] {
				t.Errorf("%s: %s is listed", way.name, tool)
			}
		}
		for tool := range allowed {
			if way.list != nil && !shown[tool] && toolExists(tool) {
				t.Errorf("%s: %s is not listed", way.name, tool)
			}
		}
		refusals := map[string]bool{}
		for _, tool := range calls {
			answer := way.call(t, tool)
			if did := strings.Contains(answer, "this is "+tool) || strings.Contains(answer, "this is TOOL"); did != (allowed[tool] && toolExists(tool)) {
				t.Errorf("%s: %s: %.400s", way.name, tool, answer)
			} else if !did {
				text, _, _ := strings.Cut(answer, "; did you mean")
				if _, rest, found := strings.Cut(text, "no such skill"); found {
					text = rest
				}
				text, _, _ = strings.Cut(text, "…")
				refusals[text] = true
			}
		}
		if len(refusals) != 1 {
			t.Errorf("%s: what is not offered differs from what does not exist: %v", way.name, refusals)
		}
	}
}

func callTool(tool string) *canonical.Invoke {
	return &canonical.Invoke{Call: &canonical.Call{Name: tool, Args: json.RawMessage(`{}`)}}
}

// toolExists: the server has fail, and tool-0 to tool-998.
func toolExists(tool string) bool {
	var n int
	_, err := fmt.Sscanf(tool, "tool-%d", &n)
	return err == nil && n < ruledTools-1 && tool == fmt.Sprintf("tool-%d", n)
}

// toolWay is a protocol in one of its revisions.
type toolWay struct {
	name string
	list func(t *testing.T) []string
	call func(t *testing.T, tool string) string // what is answered, without the name and ids
}

func waysToTools(t *testing.T, b *gatewaytest.Fixture, agent string) (ways []toolWay) {
	t.Helper()
	for _, revision := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		session := ""
		if revision != "2026-07-28" {
			session = asksMCP(t, b, agent, revision, "", "initialize", `"protocolVersion":"`+revision+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}`).Header.Get("Mcp-Session-Id")
		}
		ways = append(ways, toolWay{"MCP " + revision, func(t *testing.T) (names []string) {
			t.Helper()
			var page struct {
				Result struct{ Tools []struct{ Name string } }
			}
			gatewaytest.Must(t, json.Unmarshal(asksMCP(t, b, agent, revision, session, "tools/list", "").Body, &page))
			for _, tool := range page.Result.Tools {
				names = append(names, tool.Name)
			}
			return names
		}, func(t *testing.T, tool string) string {
			t.Helper()
			return textOf(asksMCP(t, b, agent, revision, session, "tools/call", `"name":"`+tool+`","arguments":{}`).Body, tool)
		}})
	}
	return append(ways, toolWay{"A2A", func(t *testing.T) (names []string) {
		t.Helper()
		for _, skill := range skillsOf(t, b, agent).Skills {
			names = append(names, skill.ID)
		}
		return names
	}, func(t *testing.T, tool string) string {
		t.Helper()
		return textOf(b.Send(t, sendSkill(b, agent, tool)).Body, tool)
	}})
}

func sendSkill(b *gatewaytest.Fixture, agent, tool string) gatewaytest.HTTPRequest {
	return gatewaytest.A2ATo(b.Client, agent, `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"`+tool+`","input":{}}}]}}}`)
}

// textOf is the text of a result, or the message of an error, in which the name of the tool is the same for all.
func textOf(body []byte, tool string) string {
	var reply struct {
		Error *struct{ Message string }
	}
	if err := json.Unmarshal(body, &reply); err == nil && reply.Error != nil {
		return strings.ReplaceAll(reply.Error.Message, tool, "TOOL")
	}
	return string(body)
}

// TestToolRules_EvidenceNamesTheRule: an auditor sees which rule refused a call; of a tool that does not exist none did.
func TestToolRules_EvidenceNamesTheRule(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	listRuled(t, b, "ruled", policy.Rules{Tools: []string{"tool-*"}, Callers: []string{string(b.Me.ID) + "#invoke:tool-1*", string(b.Me.ID) + "#invoke:fail"}})
	for tool, want := range map[string]string{"fail": "agents.ruled.tools", "tool-2": "agents.ruled.callers", "tool-1999": ""} {
		got := b.Send(t, sendSkill(b, "ruled", tool))
		tokens := strings.Split(got.Header.Get("Execution-Context"), ",")
		_, payload, _ := strings.Cut(tokens[len(tokens)-1], ".")
		payload, _, _ = strings.Cut(payload, ".")
		claims, err := base64.RawURLEncoding.DecodeString(payload)
		gatewaytest.Must(t, err)
		var token struct {
			Ext map[string]any
		}
		gatewaytest.Must(t, json.Unmarshal(claims, &token))
		if rule, _ := token.Ext["aepb.rule"].(string); rule != want || token.Ext["aepb.error"] == nil {
			t.Errorf("%s: got %s, want the rule %q", tool, claims, want)
		}
	}
}

// TestToolRules_OtherNames: tools are shown and called under the names that an operator gives them, and no longer under their own.
func TestToolRules_OtherNames(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	listRuled(t, b, "renamed", policy.Rules{
		Open: true, Tools: []string{"tool-1", "tool-2", "tool-3"}, Names: policy.NewNames(map[string]string{"tool-1": "one", "tool-2": "tool-3"}),
	})
	for _, way := range waysToTools(t, b, "renamed") {
		if list := slices.Sorted(slices.Values(way.list(t))); !slices.Equal(list, []string{"one", "tool-3"}) {
			t.Errorf("%s: lists %v", way.name, list)
		}
		for name, own := range map[string]string{"one": "tool-1", "tool-3": "tool-2", "tool-1": "", "tool-2": "", "tool-4": ""} {
			answer := way.call(t, name)
			if did := own != "" && strings.Contains(answer, "this is "+own); did != (own != "") || own == "" && !strings.Contains(answer, "no such") {
				t.Errorf("%s: %s: %.400s", way.name, name, answer)
			}
		}
	}
}

// TestAttack_ToolsOfOthers: a caller who may call one tool learns of no other, by messages that name none, by the only skill, by
// questions, and by lists of a session.
func TestAttack_ToolsOfOthers(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	listRuled(t, b, "ruled", policy.Rules{Callers: []string{string(b.Me.ID) + "#invoke:tool-7"}})
	for name, message := range map[string]string{
		"words alone":        `{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"use tool-8"}]}`,
		"arguments":          `{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"name":"tool-8","arguments":{}}}]}`,
		"a name nearly":      `{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"tool-88","input":{}}}]}`,
		"a name with spaces": `{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":" tool-8","input":{}}}]}`,
		"another case":       `{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"Tool-8","input":{}}}]}`,
	} {
		got := b.Send(t, gatewaytest.A2ATo(b.Client, "ruled", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":`+message+`}}`))
		if strings.Contains(string(got.Body), "this is tool-8") || strings.Count(string(got.Body), "tool-") > strings.Count(string(got.Body), "tool-7")+strings.Count(message, "tool-") {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/ruled/mcp", Header: gatewaytest.Mirror("tools/call", "tool-8"), Body: gatewaytest.CallBody("tool-8", "x")}); got.Status == http.StatusOK && strings.Contains(string(got.Body), "this is tool-8") {
		t.Errorf("MCP: %s", got.Body)
	}
}
