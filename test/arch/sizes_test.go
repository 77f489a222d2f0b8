package arch_test

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

const (
	longestFunction = 80
	longestFile     = 500
	longestTestFile = 800
	mostMethods     = 5
	mostFiles       = 12
	medianFunction  = 12
)

// raised lists what may be larger than the rest, each with its reason: the path
// of a file, path.function, path.interface, or a folder.
var raised = map[string]struct {
	to      int
	because string
}{
	"gateway/config":                             {13, "each section with checks of its own has a file: all of them say mistakes at their places in one file"},
	"gateway/server":                             {20, "the composition root: a file for each thing that it puts together, and for each protocol that needs more than a carrier"},
	"gateway":                                    {14, "the pipeline is steps over one unexported request: a package for some of them would export the request"},
	"translators/mcp":                            {20, "one reading of one protocol in four revisions: requests, events, tasks and questions share its decoder and encoder, which a package for each would export"},
	"translators/ainp":                           {15, "one reading of one protocol: intents, events, questions and tasks share its decoder and encoder, which a package for each would export"},
	"translators/uacp":                           {13, "one reading of one protocol: what is asked, observed, signalled and asked about tasks shares its decoder and encoder"},
	"translators/translatortest":                 {13, "each law has a file, and so have the messages that all of them are tried on"},
	"test/bench":                                 {17, "the pairs use the processes, the signer and the load of the exchange: a package for them would export all three"},
	"test/harness/gateway":                       {36, "one harness of one gateway: its agents, callers, judges and protocols each have files, and all of them use the fixture: a package for each would export what they share of it"},
	"gateway/transport/mcp":                      {15, "door and dialer share one session keeper and the checks of one transport, and sessions have streams of their own on both sides"},
	"gateway/state":                              {15, "the journal and the memory see every kind of state, and its shares: a package for each kind would export what they share"},
	"gateway/state/redis":                        {15, "one store: each kind of state has a file, and evidence four, for its records, their list, its shares and who vouches for it"},
	"gateway/state/statetest":                    {14, "one contract for every driver: each kind of state has a file, and shares and durability have files of their own"},
	"gateway/httpapi":                            {15, "one public surface of several endpoints: each has a file, and all share who the caller is and how refusals are written"},
	"gateway/state/seal/state.go.EntryStore":     {6, "the operations of one store of entries: a driver has them all"},
	"gateway/state/statetest/entries.go.Entries": {6, "the operations of one store of entries: a driver has them all"},
	"gateway/task/store/entry.go.Entries":        {6, "the operations of one store of entries: what takes it hands it on to what decides records"},
	"translators/a2a":                            {19, "one reading of one protocol: requests, events, tasks, questions and settings share its decoder and encoder, which a package for each would export"},
}

// sizes: what does not fit on a screen is not read as a whole.
func sizes(t tree) []string {
	var failures []string
	judge := func(what string, got, limit int) {
		if raise, ok := raised[what]; ok {
			limit = raise.to
		}
		if got > limit {
			failures = append(failures, fmt.Sprintf("%s: %d, at most %d: split it by subject, or raise it in the table with a reason", what, got, limit))
		}
	}
	for _, s := range t.sources {
		if ast.IsGenerated(s.tree) {
			continue
		}
		limit := longestFile
		if s.test {
			limit = longestTestFile
		}
		judge(s.path, strings.Count(s.text, "\n"), limit)
		if !s.test {
			for name, length := range functions(s) {
				judge(s.path+"."+name, length, longestFunction)
			}
		}
		for name, methods := range interfaces(s) {
			judge(s.path+"."+name, methods, mostMethods)
		}
	}
	for dir, sources := range t.packages() {
		judge(dir, len(sources), mostFiles)
	}
	return failures
}

// functions maps each function of a file to its length in lines.
func functions(s *source) map[string]int {
	lengths := map[string]int{}
	for _, decl := range s.tree.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			lengths[receiver(fn)+fn.Name.Name] = s.line(fn.End()) - s.line(fn.Pos()) + 1
		}
	}
	return lengths
}

func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	if id := root(baseType(fn.Recv.List[0].Type)); id != nil {
		return id.Name + "."
	}
	return ""
}

func baseType(e ast.Expr) ast.Expr {
	if list, ok := e.(*ast.IndexListExpr); ok {
		return list.X
	}
	return e
}

func interfaces(s *source) map[string]int {
	methods := map[string]int{}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if face, isFace := spec.Type.(*ast.InterfaceType); isFace {
				methods[spec.Name.Name] = face.Methods.NumFields()
			}
		}
		return true
	})
	return methods
}

// shortFunctions: half of all functions are shorter than a dozen lines, over
// the tree and not in each file.
func shortFunctions(t tree) []string {
	var lengths []int
	for _, s := range t.sources {
		if !s.test && !s.in("test") && !ast.IsGenerated(s.tree) {
			lengths = slices.AppendSeq(lengths, maps.Values(functions(s)))
		}
	}
	slices.Sort(lengths)
	if len(lengths) > 0 && lengths[len(lengths)/2] >= medianFunction {
		return []string{fmt.Sprintf("the median of %d functions is %d lines, want less than %d: name the steps", len(lengths), lengths[len(lengths)/2], medianFunction)}
	}
	return nil
}
