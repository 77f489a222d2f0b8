package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// knowers may name a protocol: where its own form and wires are, where the list
// of all stands, and the few places that exist for one protocol alone, which a new
// protocol does not need.
var knowers = []struct{ path, because string }{
	{"translators", "a protocol's form"},
	{"gateway/transport/a2a", "a protocol's wire"},
	{"gateway/transport/mcp", "a protocol's wire"},
	{"gateway/transport/slim", "a protocol's wire"},
	{"gateway/transport/uacp", "a protocol's wire"},
	{"gateway/transport/ainp", "a protocol's wire"},
	{"gateway/server/protocol.go", "what carries each protocol; gateways show each other agents by A2A's cards"},
	{"gateway/server/carry.go", "how each protocol is carried"},
	{"gateway/server/ainp.go", "how AINP is carried"},
	{"gateway/server/slim.go", "how SLIM is carried"},
	{"gateway/server/build.go", "two protocols have connections that last, and metrics of them"},
	{"gateway/server/surfaces.go", "agents are called over gRPC by A2A's cards"},
	{"cmd/aepb-gateway/dev.go", "a flag for each protocol in which it adds an agent"},
	{"cmd/aepb-gateway/serve.go", "what a configuration takes from callers"},
	{"cmd/aepb-gateway/demo", "its agents speak three protocols"},
	{"cmd/aepbctl", "a flag for each, and one for any other; what stands in the registry of bindings"},
	{"gateway/transport/peer/dial.go", "gateways show each other agents by A2A's cards"},
	{"gateway/destination/peers.go", "gateways talk to each other in what has one message per HTTP body"},
	{"gateway/directory/agent.go", "what an operator can say of an endpoint of one protocol alone"},
	{"gateway/directory/document.go", "endpoints in documents that need not be URLs"},
	{"test", "tests look everywhere"},
}

// protocolsLaw: what everybody has to know of a protocol, its translator says;
// whoever lists protocols anew forgets the next one.
func protocolsLaw(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if s.test || slices.ContainsFunc(knowers, func(k struct{ path, because string }) bool { return s.path == k.path || s.in(k.path) }) {
			continue
		}
		fail := func(n ast.Node, what string) {
			failures = append(failures, fmt.Sprintf("%s: %s: ask the registry of translators, or say in knowers why not", s.at(n), what))
		}
		s.uses(func(n ast.Node, pkg, name string) {
			if name == "Binding" && strings.HasPrefix(pkg, module+"/translators/") && !strings.HasSuffix(pkg, "/canonical") {
				fail(n, pkg+".Binding")
			}
		})
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && isBinding(text) {
					fail(n, strconv.Quote(text))
				}
			}
			return true
		})
	}
	return failures
}

func isBinding(text string) bool {
	return slices.Contains([]string{"a2a-v1", "mcp-v1", "slim-v1", "uacp-v1", "ainp-v1"}, text)
}
