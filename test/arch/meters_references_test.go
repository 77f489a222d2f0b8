package arch_test

import (
	"go/ast"
	"maps"
	"regexp"
	"strings"
)

// Where comments and documents refer to, and what they call it. The dash keeps
// names such as X-R16 apart.
const (
	rulingsFile      = "docs/rulings.md"
	architectureFile = "docs/architecture.md"
)

var (
	reference     = regexp.MustCompile(`(?i:(architecture|contract)(?:\.md)?,?\s+sections?\s+)(\d+)|(?:^|[^\w-])(R[1-9]\d?)\b`)
	rulingHead    = regexp.MustCompile(`(?m)^(?:\*\*|### )(R[1-9]\d?) `)
	architectHead = regexp.MustCompile(`(?m)^## (\d+)\. `)
)

// citable lists what the documents hold: R14, architecture section 5. The
// contract is no document of the repository, so nothing of it is there.
func citable(t tree) map[string]bool {
	found := map[string]bool{}
	for _, head := range rulingHead.FindAllStringSubmatch(t.files[rulingsFile], -1) {
		found[head[1]] = true
	}
	for _, head := range architectHead.FindAllStringSubmatch(t.files[architectureFile], -1) {
		found["architecture section "+head[1]] = true
	}
	return found
}

// references lists what a text cites, also over the end of a line.
func references(text string) []string {
	var list []string
	for _, found := range reference.FindAllStringSubmatch(text, -1) {
		if found[3] != "" {
			list = append(list, found[3])
		} else {
			list = append(list, strings.ToLower(found[1])+" section "+found[2])
		}
	}
	return list
}

// texts are what people wrote: the comments of Go files, and documents; not
// what is generated, and no test data.
func texts(t tree) map[string]string {
	found := map[string]string{}
	for _, s := range t.sources {
		if ast.IsGenerated(s.tree) {
			continue
		}
		for _, group := range s.tree.Comments {
			found[s.path] += group.Text() + "\n\n"
		}
	}
	maps.Copy(found, documents(t))
	return found
}

// documents are the pages of the repository.
func documents(t tree) map[string]string {
	found := map[string]string{}
	for name, text := range t.files {
		if strings.HasSuffix(name, ".md") && !strings.Contains("/"+name, "/testdata/") {
			found[name] = text
		}
	}
	return found
}

// unresolved counts the citations that lead nowhere, for each file and target.
func unresolved(t tree) reading {
	figures, known := map[string]int{}, citable(t)
	for name, text := range texts(t) {
		for _, ref := range references(text) {
			if !known[ref] {
				figures[name+" "+ref]++
			}
		}
	}
	return largestSum(figures)
}
