package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// module is our own import path.
const module = "github.com/aepb/aepb-gateway"

// source is one Go file.
type source struct {
	path string // from the root, with slashes
	dir  string
	test bool // a _test.go file
	text string
	tree *ast.File
	set  *token.FileSet
}

// in reports whether the file lies in one of the folders or below.
func (s *source) in(folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return under(s.dir, folder) })
}

// at is the place of a node, for a failure.
func (s *source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.line(n.Pos()))
}

func (s *source) line(pos token.Pos) int { return s.set.Position(pos).Line }

// imports maps the name that a file uses to the path that it imports.
func (s *source) imports() map[string]string {
	names := map[string]string{}
	for _, spec := range s.tree.Imports {
		target := importPath(spec)
		name := importedAs(target)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = target
	}
	return names
}

// importedAs is the name that a package most likely has.
func importedAs(target string) string {
	name := path.Base(target)
	if strings.HasPrefix(name, "v") && len(name) == 2 {
		name = path.Base(path.Dir(target))
	}
	return name
}

// uses calls visit with every mention of an exported name of another package.
func (s *source) uses(visit func(n ast.Node, pkg, name string)) {
	names := s.imports()
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, isIdent := sel.X.(*ast.Ident); isIdent && names[id.Name] != "" {
				visit(n, names[id.Name], sel.Sel.Name)
			}
		}
		return true
	})
}

func importPath(spec *ast.ImportSpec) string {
	target, _ := strconv.Unquote(spec.Path.Value)
	return target
}

func under(dir, folder string) bool {
	return dir == folder || strings.HasPrefix(dir, folder+"/")
}

// tree is a repository: its Go files, and the text of all the others.
type tree struct {
	sources []*source
	files   map[string]string // path to text; binary files have none
	typed   func() map[string]*typedPackage
}

// packages groups the sources by folder, without test files.
func (t tree) packages() map[string][]*source {
	dirs := map[string][]*source{}
	for _, s := range t.sources {
		if !s.test {
			dirs[s.dir] = append(dirs[s.dir], s)
		}
	}
	return dirs
}

// plant builds a tree in memory.
func plant(t *testing.T, files map[string]string) tree {
	t.Helper()
	out := tree{files: files}
	set := token.NewFileSet()
	for name, text := range files {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		parsed, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out.sources = append(out.sources, &source{
			path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			text: text, tree: parsed, set: set,
		})
	}
	slices.SortFunc(out.sources, func(a, b *source) int { return strings.Compare(a.path, b.path) })
	out.typed = sync.OnceValue(func() map[string]*typedPackage { return typeCheck(set, out.packages()) })
	return out
}

// repository reads the tree this test stands in. What version control ignores
// is not read.
func repository(t *testing.T) tree {
	t.Helper()
	root := filepath.Join("..", "..")
	files := map[string]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			if ignoredDir(rel, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !ignoredFile(entry.Name()) {
			files[rel], err = text(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files["go.mod"] == "" {
		t.Fatal("there is no go.mod two folders up: not the repository")
	}
	return plant(t, files)
}

func ignoredDir(rel, name string) bool {
	return slices.Contains([]string{".git", ".tmp", ".aepb", "bin"}, rel) || name == "node_modules" || name == ".aepb"
}

func ignoredFile(name string) bool {
	return name == "coverage.out" || strings.HasSuffix(name, ".test") || strings.HasSuffix(name, ".prof")
}

// text is the content of a file, or nothing if it is binary.
func text(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil || !utf8.Valid(data) || strings.ContainsRune(string(data), 0) {
		return "", err
	}
	return string(data), nil
}
