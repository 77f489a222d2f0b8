package arch_test

import (
	"go/ast"
	"slices"
	"testing"
)

// targets are the readers of what strangers and operators write that must have a
// fuzz target. `make fuzz` finds them, and all others, by itself.
var targets = []struct{ reader, dir, name string }{
	{"ECT", "ect", "FuzzParse"},
	{"Execution-Context header", "ect", "FuzzParseHeader"},
	{"JSON-RPC", "translators/internal/jsonrpc", "FuzzParse"},
	{"A2A message", "translators/a2a", "FuzzDecode"},
	{"A2A card", "translators/a2a", "FuzzCard"},
	{"A2A message in protobuf", "gateway/transport/a2a/transcode", "FuzzText"},
	{"A2A message for protobuf", "gateway/transport/a2a/transcode", "FuzzOctets"},
	{"MCP message", "translators/mcp", "FuzzDecode"},
	{"MCP description", "translators/mcp", "FuzzDescription"},
	{"answer of another gateway", "gateway/transport/hop", "FuzzAnswer"},
	{"configuration", "gateway/config", "FuzzParse"},
}

func TestEveryReaderIsFuzzed(t *testing.T) {
	t.Parallel()
	house := repository(t)
	for _, target := range targets {
		found := slices.ContainsFunc(house.sources, func(s *source) bool {
			return s.test && s.dir == target.dir && slices.ContainsFunc(s.tree.Decls, func(d ast.Decl) bool {
				fn, ok := d.(*ast.FuncDecl)
				return ok && fn.Recv == nil && fn.Name.Name == target.name
			})
		})
		if !found {
			t.Errorf("%s: no %s in %s", target.reader, target.name, target.dir)
		}
	}
}
