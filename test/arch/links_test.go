package arch_test

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
)

var (
	fenced     = regexp.MustCompile("(?ms)^ *```.*?^ *```[^\n]*$")
	inlineCode = regexp.MustCompile("`+[^`\n]*`+")
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^()\s>]*(?:\([^()\s]*\)[^()\s>]*)?)>?(?:\s+["'][^)]*)?\s*\)`)
	linkTarget = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)`)
	heading    = regexp.MustCompile(`(?m)^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$`)
	anchorTag  = regexp.MustCompile(`<[^>]+\b(?:id|name)="([^"]+)"`)
	linkInHead = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	scheme     = regexp.MustCompile(`^(?i:[a-z][a-z0-9+.-]*:|//)`)
)

// linksLaw: each relative link of a page leads to a file or a folder, and its
// anchor to a heading there.
func linksLaw(t tree) []string {
	var failures []string
	for page, text := range documents(t) {
		text = fenced.ReplaceAllString(text, "")
		plain := inlineCode.ReplaceAllString(text, "code")
		for _, link := range append(inlineLink.FindAllStringSubmatch(plain, -1), linkTarget.FindAllStringSubmatch(plain, -1)...) {
			if failure := brokenLink(t, page, link[1]); failure != "" {
				failures = append(failures, fmt.Sprintf("%s: the link to %q: %s", page, link[1], failure))
			}
		}
	}
	return failures
}

// brokenLink says what is wrong with the target of a link, or nothing.
func brokenLink(t tree, page, link string) string {
	target, err := url.Parse(link)
	if err != nil {
		return "it is no URL"
	}
	if scheme.MatchString(link) {
		return ""
	}
	name := page
	if target.Path != "" {
		name = path.Join(path.Dir(page), target.Path)
	}
	if strings.HasPrefix(target.Path, "/") || !t.holds(name) {
		return "there is no " + name + ": link to a file of the repository, relative to the page"
	}
	if target.Fragment != "" && strings.HasSuffix(name, ".md") && !anchors(t.files[name])[target.Fragment] {
		return name + " has no heading of that anchor: expected lower case, spaces as hyphens, no other punctuation"
	}
	return ""
}

// holds reports whether there is such a file or folder.
func (t tree) holds(name string) bool {
	if _, ok := t.files[name]; ok || name == "." {
		return true
	}
	for file := range t.files {
		if strings.HasPrefix(file, name+"/") {
			return true
		}
	}
	return false
}

// anchors are those that GitHub gives the headings of a page, and those that
// the page gives itself in HTML.
func anchors(text string) map[string]bool {
	text = fenced.ReplaceAllString(text, "")
	found := map[string]bool{}
	for _, tag := range anchorTag.FindAllStringSubmatch(text, -1) {
		found[tag[1]] = true
	}
	times := map[string]int{}
	for _, head := range heading.FindAllStringSubmatch(text, -1) {
		name := anchorOf(head[1])
		times[name]++
		if n := times[name] - 1; n > 0 {
			name = fmt.Sprintf("%s-%d", name, n)
		}
		found[name] = true
	}
	return found
}

// anchorOf keeps letters, digits, hyphens and underscores of a heading, in
// lower case, and turns each space into a hyphen.
func anchorOf(head string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}, linkInHead.ReplaceAllString(head, "$1"))
}
