package pairs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// The table of pairs stands in docs/protocols/tested.md between these marks. It is made by
// TestPairs_EveryProtocolToEveryOther, from what it saw.
const (
	pairsBegin = "<!-- pairs: made by test/pairs/twenty_test.go -->\n"
	pairsEnd   = "<!-- end of pairs -->\n"
)

// pairsEnv, when set, writes the table anew.
const pairsEnv = "AEPB_UPDATE_PAIRS"

// realPeers are the tests in which both ends of a pair are software that others
// made; the other pairs have an end that does not exist as software to run.
var realPeers = map[string][2]string{
	"a2a-v1 mcp-v1":  {"test/interop", "TestGateway_AllScenarios"},
	"mcp-v1 a2a-v1":  {"test/interop", "TestGateway_AllScenarios"},
	"a2a-v1 slim-v1": {"test/slim", "TestGateway_A2AClientToOfficialServer"},
	"mcp-v1 slim-v1": {"test/slim", "TestGateway_MCPClientToOfficialServer"},
	"slim-v1 mcp-v1": {"test/slim", "TestGateway_OfficialAppToMCPServer"},
	"slim-v1 a2a-v1": {"test/slim", "TestGateway_OfficialAppToA2AAgent"},
}

// fakesOf is who plays an end that no software does, and what holds it to the
// protocol.
var fakesOf = map[string]string{
	"uacp-v1": "µACP: a fake on the codec, which is tested with the reference implementation's known answers",
	"ainp-v1": "AINP: a fake on the codec and real signatures, tested with the reference implementation's known answers",
}

// asker is a way for callers of one protocol to reach an agent; it answers with
// what came back.
type asker func(t *testing.T, agent string, n int64) string

// adders are the agents of each protocol that add; the A2A agent only talks.
var adders = map[string]string{"a2a-v1": "concierge", "mcp-v1": "calculator", "slim-v1": "adder", "uacp-v1": "abacus", "ainp-v1": "scribe"}

// askers are callers at the native endpoints of the gateway, in each protocol.
func askers(t *testing.T, b *gatewaytest.Fixture) map[string]asker {
	t.Helper()
	caller := b.Slim.Join(t, "org/callers/alice", nil)
	alice := gatewaytest.Did("alice")
	talks := func(agent string) bool { return agent == "concierge" }
	return map[string]asker{
		"a2a-v1": func(t *testing.T, agent string, n int64) string {
			t.Helper()
			body := gatewaytest.AddBody(n)
			if talks(agent) {
				body = gatewaytest.TextBody(gatewaytest.Greeting)
			}
			return string(b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + agent + "/a2a", Body: body}).Body)
		},
		"mcp-v1": func(t *testing.T, agent string, n int64) string {
			t.Helper()
			body, tool := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":`+strconv.FormatInt(n, 10)+`,"b":1},`+gatewaytest.ModernMeta+`}}`, "add"
			if talks(agent) {
				body, tool = gatewaytest.CallBody(agent, gatewaytest.Greeting), agent
			}
			return string(b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + agent + "/mcp", Body: body, Header: gatewaytest.Mirror("tools/call", tool)}).Body)
		},
		"slim-v1": func(t *testing.T, agent string, n int64) string {
			t.Helper()
			b.Slim.Exposed(t, caller, agent)
			body := gatewaytest.AddBody(n)
			if talks(agent) {
				body = gatewaytest.TextBody(gatewaytest.Greeting)
			}
			f, err := gatewaytest.AskSLIM(t, caller, agent, "SendMessage", gatewaytest.InProtobuf(t, body), nil)
			if err != nil {
				return err.Error()
			}
			return gatewaytest.OutOfProtobuf(t, f.Body)
		},
		"uacp-v1": func(t *testing.T, agent string, n int64) string {
			t.Helper()
			invoke := gatewaytest.Addition(n)
			if talks(agent) {
				invoke = gatewaytest.TextInvoke(gatewaytest.Greeting)
			}
			return string(b.AskUACP(t, agent, gatewaytest.FrameOf(t, uacp.FormEnveloped, invoke)))
		},
		"ainp-v1": func(t *testing.T, agent string, n int64) string {
			t.Helper()
			invoke := gatewaytest.Addition(n)
			if talks(agent) {
				invoke = gatewaytest.TextInvoke(gatewaytest.Greeting)
			}
			return string(b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + agent + "/ainp", Body: string(gatewaytest.Signed(alice, gatewaytest.EnvelopeOf(t, alice, invoke), ""))}).Body)
		},
	}
}

// TestPairs_EveryProtocolToEveryOther: callers of every protocol reach agents of every other, by
// their own door, and docs/protocols/tested.md says against what each pair is tested.
func TestPairs_EveryProtocolToEveryOther(t *testing.T) {
	t.Parallel()
	b := gatewaytest.Five(t)
	askers := askers(t, b)
	var table strings.Builder
	table.WriteString("\n| from | to | tested against | by |\n|---|---|---|---|\n")
	for _, from := range protocolOrder() {
		for _, to := range protocolOrder() {
			if from == to {
				continue
			}
			agent, want := adders[to], "41"
			if agent == "concierge" {
				want = gatewaytest.Greeting
			}
			if got := askers[from](t, agent, 40); !strings.Contains(got, want) {
				t.Errorf("%s to %s: %s", from, to, gatewaytest.Short([]byte(got)))
			}
			table.WriteString(rowOf(t, from, to))
		}
	}
	table.WriteString("\n")
	for _, binding := range protocolOrder() {
		if fakesOf[binding] != "" {
			table.WriteString("* " + fakesOf[binding] + ".\n")
		}
	}
	table.WriteString("* SLIM, where its other end is a fake: our own stack, on a node that behaves as the real one of `test/slim`.\n")
	table.WriteString("* Every ordered pair of versions and forms, of one protocol or of two: our own stack at both ends, in `test/pairs` TestMatrix_EveryOperation; what came of it is in its `testdata/matrix.txt`.\n")
	checkPairsPage(t, table.String())
}

func protocolOrder() []string { return []string{"a2a-v1", "mcp-v1", "slim-v1", "uacp-v1", "ainp-v1"} }

// rowOf is a pair's line.
func rowOf(t *testing.T, from, to string) string {
	t.Helper()
	against, by := "real software at both ends", realPeers[from+" "+to]
	if by[0] == "" {
		var played []string
		for _, end := range []string{from, to} {
			if fakesOf[end] != "" {
				played = append(played, end)
			}
		}
		if len(played) == 0 {
			t.Errorf("%s to %s: no test with real software, and no reason", from, to)
		}
		against, by = "a contract-tested fake of "+strings.Join(played, " and of "), [2]string{"test/pairs", "TestPairs_EveryProtocolToEveryOther"}
	}
	if !declares(t, filepath.Join("..", "..", filepath.FromSlash(by[0])), by[1]) {
		t.Errorf("%s to %s: there is no %s in %s", from, to, by[1], by[0])
	}
	return fmt.Sprintf("| `%s` | `%s` | %s | `%s` %s |\n", from, to, against, by[0], by[1])
}

// declares: the package in a folder has a test of that name.
func declares(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	gatewaytest.Must(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		gatewaytest.Must(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == test {
				return true
			}
		}
	}
	return false
}

// checkPairsPage demands that docs/protocols/tested.md has the table, or writes it there.
func checkPairsPage(t *testing.T, table string) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", "protocols", "tested.md")
	page, err := os.ReadFile(file)
	gatewaytest.Must(t, err)
	before, rest, begins := strings.Cut(string(page), pairsBegin)
	_, after, ends := strings.Cut(rest, pairsEnd)
	if !begins || !ends {
		t.Fatal("docs/protocols/tested.md has no place for the table of pairs")
	}
	want := before + pairsBegin + table + pairsEnd + after
	switch {
	case os.Getenv(pairsEnv) != "" && !t.Failed():
		gatewaytest.Must(t, os.WriteFile(file, []byte(want), 0o600))
	case want != string(page):
		t.Errorf("the table of pairs in docs/protocols/tested.md is not what was seen here: %s=1 writes it", pairsEnv)
	}
}
