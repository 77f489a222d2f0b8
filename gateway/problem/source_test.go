package problem_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/problem"
)

const module = "github.com/aepb/aepb-gateway/"

// exempt are exported error types that never meet a caller, each with the reason.
var exempt = map[string]string{
	"github.com/aepb/aepb-gateway/gateway/config.Error":          "met at the start or a reload, by the operator",
	"github.com/aepb/aepb-gateway/gateway/state/bolt.OpenError":  "met at the start, by the operator",
	"github.com/aepb/aepb-gateway/gateway/state/redis.OpenError": "met at the start, by the operator",

	module + "ect/identity/apikey.FileError":                       "met at the start or a reload, by the operator",
	module + "ect/identity/apikey.KeyError":                        "met at the start or a reload, by the operator",
	module + "ect/identity.UnknownDomainError":                     "met in handshakes and at the start; of a token it is the reason key_not_trusted",
	module + "gateway/routing.UnnamedError":                        "it wraps a refusal in the words of every protocol, which has a row",
	module + "gateway/transport/slim/name.Error":                   "an operator's or a card's name: whoever reads those says where it stands",
	module + "gateway/transport/slim/credential.Error":             "a stranger's message is dropped; ours are met at the start",
	module + "gateway/transport/slim/internal/frame.Error":         "a stranger's message is dropped; of ours the dialer says that it cannot be sent",
	module + "gateway/transport/slim/internal/frame.TooLargeError": "the dialer says it in transport's words",
	module + "gateway/task/execution.ImpossibleError":              "a mistake of ours that changes nothing: tests see it",
	module + "gateway/transport/stdio.OutputError":                 "it is the cause of a missing credential, which has a row",
	module + "gateway/state.BlobTakenError":                        "package checkpoint says that another token has the id",
	module + "lifecycle/compensation.RuleError":                    "the operator gets it at the start",
	module + "lifecycle/descriptor.InvalidError":                   "package gateway/descriptor says it to the operator",
	module + "lifecycle/rollback.StateError":                       "met by what carries out rollbacks: another replica was first",
	module + "lifecycle/rollback.RecordError":                      "a record of another version in the store: an internal error, and the log has its text",
	module + "lifecycle/rollback.ResultError":                      "it is the reason of a bad reply",
	module + "lifecycle/workflow.NotReadyError":                    "what it is asked by puts it in words of its own",
	module + "policy/consensus/signed.EquivocationError":           "participants meet it; the coordinator only asks if two outcomes differ",
	module + "policy.NotOfferedError":                              "it is answered as what it wraps, like what does not exist",
	module + "policy/consensus.UnsoundError":                       "who checks an outcome meets it; the coordinator makes none that it refuses",
	module + "gateway/record.UnreadableError":                      "a record of another version in the store: an internal error, and the log has its text",
	module + "gateway/transport/slim/link.RefusedError":            "met by the link itself, and by the operator at the start",
	module + "gateway/transport/slim/session.BrokenError":          "the dialer says it in transport's words: unreachable, or no answer in time",
	module + "gateway/transport/slim/rpc.StatusError":              "an agent's failure is a reply, not an error of ours",
}

// Every exported error type of the project has a row in the table
// (architecture section 7): found in the source, so that a new type cannot be
// forgotten.
func TestFrom_CoversEveryErrorType(t *testing.T) {
	t.Parallel()
	declared := errorTypes(t, filepath.Join("..", ".."))
	if len(declared) < 20 {
		t.Fatalf("only %d error types found: the search is broken", len(declared))
	}
	rows := problem.Types()
	for _, name := range declared {
		if _, ok := exempt[name]; ok {
			continue
		}
		if !slices.Contains(rows, name) {
			t.Errorf("%s has no row in the table", name)
		}
	}
	for name := range exempt {
		if !slices.Contains(declared, name) {
			t.Errorf("%s is exempt and does not exist", name)
		}
	}
}

// errorTypes lists the exported types with a method Error() string in the
// packages that the pipeline runs through, as import path and name.
func errorTypes(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	for _, pillar := range []string{"gateway", "translators", "ect", "policy", "lifecycle"} {
		err := fs.WalkDir(os.DirFS(root), pillar, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case os.IsNotExist(err):
				return nil // a layer that is not built yet
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return fs.SkipDir
			case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, name := range errorReceivers(file) {
				found = append(found, module+filepath.ToSlash(filepath.Dir(path))+"."+name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func errorReceivers(file *ast.File) []string {
	var names []string
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Recv == nil || f.Name.Name != "Error" || f.Type.Params.NumFields() != 0 || f.Type.Results.NumFields() != 1 {
			continue
		}
		receiver := f.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if name, ok := receiver.(*ast.Ident); ok && name.IsExported() {
			names = append(names, name.Name)
		}
	}
	return names
}
