package arch_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// forbiddenProse may be no word of a comment or of a string. Words of
// forbiddenWords with an ordinary meaning in a technical sentence are left out,
// since a meter cannot tell that meaning from the image: hearing, telling,
// keeping, holding, passage, ear, bed (test bed), news, wish, letter (of the
// alphabet), mailbox, caption, speaker (BGP speaker), cast (of a type), nature,
// hazard, and leg (the claim aepb.leg). Room and house are in the list, though
// "no room" is ordinary: "space" says the same, and the image is the more
// frequent use.
var forbiddenProse = tableOf(`octet road door roof pillar room house herald
	crew spine octets roads doors roofs pillars rooms houses heralds crews spines
	shelf shelves tidings nobody whoever somebody
	kin papers heed heeds heeded hearken hearkens moot moots wonder wonders
	greet greets farewell farewells commend commends dress dresses troupe troupes`)

// wireNames are words that others chose, and stand in any text.
var wireNames = regexp.MustCompile(`application/octet-stream`)

// proseOf lists the forbidden words of a file with their places: in its
// comments, and in its strings but for tags, imports and strings without a
// space, which are names (of a key, a path, a stored kind) and no sentence.
func proseOf(s *source) []string {
	var found []string
	add := func(pos token.Pos, text string) {
		for _, word := range strings.FieldsFunc(wireNames.ReplaceAllString(text, ""), func(c rune) bool { return !unicode.IsLetter(c) }) {
			if word = strings.ToLower(word); slices.Contains(forbiddenProse, word) {
				found = append(found, s.path+":"+strconv.Itoa(s.line(pos))+" "+word)
			}
		}
	}
	for _, group := range s.tree.Comments {
		for _, comment := range group.List {
			add(comment.Pos(), comment.Text)
		}
	}
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = true
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); !tags[n] && n.Kind == token.STRING && err == nil && strings.ContainsFunc(text, unicode.IsSpace) {
				add(n.Pos(), text)
			}
		}
		return true
	})
	return found
}

func proseInProduction(t tree) reading {
	figures := map[string]int{}
	for _, s := range t.production() {
		if n := len(proseOf(s)); n > 0 {
			figures[s.dir] += n
		}
	}
	return largestSum(figures)
}
