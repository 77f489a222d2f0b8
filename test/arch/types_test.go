package arch_test

import (
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
)

// typedPackage is one of our packages with types resolved. Other modules are
// unknown in it, and so is the standard library but for resolvedStandard: their
// packages are empty, so that little is loaded and nothing has to build.
type typedPackage struct {
	*types.Package
	types.Info
	set *token.FileSet
}

// resolvedStandard are packages that hand out values of our own types, such as
// atomic.Pointer: without them a method of such a value would be unknown. They
// are read from the source of the toolchain.
var resolvedStandard = tableOf("cmp iter maps slices sync sync/atomic")

// typeCheck checks our packages, each after those that it imports. Errors are
// left to the compiler: what does not resolve is not counted.
func typeCheck(set *token.FileSet, dirs map[string][]*source) map[string]*typedPackage {
	c := typeChecker{standard: importer.ForCompiler(set, "source", nil), set: set, dirs: dirs, done: map[string]*typedPackage{}}
	for dir := range dirs {
		c.check(dir)
	}
	return c.done
}

type typeChecker struct {
	standard types.Importer
	set      *token.FileSet
	dirs     map[string][]*source
	done     map[string]*typedPackage
}

// Import implements types.Importer.
func (c *typeChecker) Import(target string) (*types.Package, error) {
	if dir, ok := strings.CutPrefix(target, module+"/"); ok && c.dirs[dir] != nil {
		return c.check(dir).Package, nil
	}
	if slices.Contains(resolvedStandard, target) {
		return c.standard.Import(target)
	}
	return emptyPackage(target, importedAs(target)), nil
}

func emptyPackage(target, name string) *types.Package {
	p := types.NewPackage(target, name)
	p.MarkComplete()
	return p
}

// check is idempotent. A package that imports itself by way of others finds
// itself empty.
func (c *typeChecker) check(dir string) *typedPackage {
	if p := c.done[dir]; p != nil {
		return p
	}
	sources := c.dirs[dir]
	p := &typedPackage{
		Package: emptyPackage(module+"/"+dir, path.Base(dir)), set: c.set,
		Info: types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}},
	}
	c.done[dir] = p
	var parsed []*ast.File
	for _, s := range sources {
		parsed = append(parsed, s.tree)
	}
	config := types.Config{Importer: c, Error: func(error) {}, DisableUnusedImportCheck: true}
	p.Package, _ = config.Check(p.Path(), c.set, parsed, &p.Info)
	return p
}

// fileOf is the path of the file that declares something.
func (p *typedPackage) fileOf(obj types.Object) string { return p.set.Position(obj.Pos()).Filename }

// typesOf lists the types that files declare, in functions too, as dir.Name.
func (t tree) typesOf(sources []*source) map[string]*types.Named {
	found := map[string]*types.Named{}
	dirs := map[string]bool{}
	files := map[string]bool{}
	for _, s := range sources {
		dirs[s.dir], files[s.path] = true, true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		p := t.typed()[dir]
		for _, obj := range p.Defs {
			name, ok := obj.(*types.TypeName)
			if !ok || name.IsAlias() || !files[p.fileOf(name)] {
				continue
			}
			if named, isNamed := name.Type().(*types.Named); isNamed {
				found[dir+"."+name.Name()] = named
			}
		}
	}
	return found
}
