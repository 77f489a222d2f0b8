package pairs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// aside are the operations that no road carries, and the tests of their doors.
var aside = map[string][2]string{
	"OpCapabilities": {"test/pairs", "TestMatrix_EveryOperation"}, // with describe
	"OpNotice":       {"gateway/transport/mcp", "TestServer_AcceptsNotifications"},
}

// TestMatrix_IncludesEveryCodecOperation: every operation that a codec may decode is played,
// or there is a reason and a test.
func TestMatrix_IncludesEveryCodecOperation(t *testing.T) {
	t.Parallel()
	played := map[string]bool{}
	for _, p := range gatewaytest.Plays() {
		played[string(p.Op)] = true
	}
	found := 0
	for name, value := range operations(t) {
		found++
		where, apart := aside[name]
		switch {
		case played[value] == apart:
			t.Errorf("%s: played %t, and set aside %t", name, played[value], apart)
		case apart && !declares(t, filepath.Join("..", "..", filepath.FromSlash(where[0])), where[1]):
			t.Errorf("%s: there is no %s in %s", name, where[1], where[0])
		}
	}
	if found < 17 {
		t.Errorf("only %d operations were found", found)
	}
}

// operations are the constants of type canonical.Op, and their values.
func operations(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join("..", "..", "translators", "canonical", "*.go"))
	gatewaytest.Must(t, err)
	for _, file := range slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") }) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		gatewaytest.Must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			kind, ok := spec.Type.(*ast.Ident)
			value, lit := spec.Values[0].(*ast.BasicLit)
			if ok && lit && kind.Name == "Op" {
				text, err := strconv.Unquote(value.Value)
				gatewaytest.Must(t, err)
				out[spec.Names[0].Name] = text
			}
			return true
		})
	}
	return out
}
