package hitl_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/policy/hitl"
)

// FuzzDocumentRules_Parse: rules or an error that can be shown, and the same rules each time.
func FuzzDocumentRules_Parse(f *testing.F) {
	f.Add(documentOf(onError))
	f.Add(documentOf(ruleOf("r", trigger("threshold", "gt", "1e3", "args/a~1b/0"), `,"action":"escalate","wait_s":60,"approvers":2`)))
	f.Add(documentOf(ruleOf("r", trigger("keyword_match", "matches", `"*?"`, "tool"), `,"action":"require_approval","unreachable_human":"escalate"`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := hitl.ParseDocumentRules(data)
		if err != nil {
			if _, ok := errors.AsType[*hitl.RuleError](err); !ok || !r.Empty() {
				t.Fatalf("%T: %v", err, err)
			}
			if text := err.Error(); !utf8.ValidString(text) || strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) || len(text) > 1024 {
				t.Fatalf("an error that cannot be shown: %q", text)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("rules of what is no JSON")
		}
		again, err := hitl.ParseDocumentRules(data)
		if err != nil {
			t.Fatal(err)
		}
		one, ok := r.Match(facts(`{"a":1}`))
		two, _ := again.Match(facts(`{"a":1}`))
		if one.Hash != two.Hash || ok && (len(one.Roles) == 0 || one.Approvers < 1 || one.Wait <= 0 || one.Unreachable == "") {
			t.Fatalf("%+v and %+v", one, two)
		}
	})
}

// tree is what JSON says, with names that stand twice.
type tree struct {
	names    []string
	children []tree // of names, or elements
	leaf     json.Token
	isArray  bool
}

func treeOf(in *json.Decoder) tree {
	token, err := in.Token()
	if err != nil {
		return tree{}
	}
	n := tree{leaf: token, isArray: token == json.Delim('[')}
	if _, ok := token.(json.Delim); ok {
		for in.More() {
			if !n.isArray {
				name, _ := in.Token()
				text, _ := name.(string)
				n.names = append(n.names, text)
			}
			n.children = append(n.children, treeOf(in))
		}
		_, _ = in.Token()
	}
	return n
}

// matches says by the tree whether /a/0 is the text "x".
func (n tree) matches(path ...string) bool {
	if len(path) == 0 {
		_, isContainer := n.leaf.(json.Delim)
		return isContainer || n.leaf == "x"
	}
	if n.isArray {
		return path[0] == "0" && len(n.children) > 0 && n.children[0].matches(path[1:]...)
	}
	var found []tree
	for i, name := range n.names {
		if name == path[0] {
			found = append(found, n.children[i])
		}
	}
	return len(found) > 1 || len(found) == 1 && found[0].matches(path[1:]...)
}

var surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F]`)

// FuzzArguments_AgreeWithATree holds the one pass over arguments against a tree of them.
func FuzzArguments_AgreeWithATree(f *testing.F) {
	for _, text := range []string{
		`{"a":["x"]}`, `{"a":{"0":"x"}}`, `{"a":1,"a":2}`, `{"a":["y","x"],"b":"\u0000"}`, `[{"a":"x"}]`, `{"a":"\ud83d\ude00"}`, `{"\u0061":["\u0078"]`,
	} {
		f.Add([]byte(text))
	}
	rules, err := hitl.ParseRules([]hitl.Config{{Argument: &hitl.Argument{Pointer: "/a/0", Op: "eq", Value: "x"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		_, got := rules.Match(hitl.Facts{Args: args})
		deep := bytes.Count(args, []byte("["))+bytes.Count(args, []byte("{")) > 100
		switch {
		case len(args) == 0:
			if got {
				t.Fatal("no arguments match")
			}
		case !json.Valid(args) || !utf8.Valid(args):
			if !got {
				t.Fatalf("%q cannot be read, and does not match", args)
			}
		case deep || surrogate.Match(args):
		default:
			in := json.NewDecoder(bytes.NewReader(args))
			in.UseNumber()
			if want := treeOf(in).matches("a", "0"); got != want {
				t.Fatalf("%q: %t, want %t", args, got, want)
			}
		}
	})
}

// globMatches is a pattern by its definition.
func globMatches(pattern, text []rune) bool {
	switch {
	case len(pattern) == 0:
		return len(text) == 0
	case pattern[0] == '*':
		return globMatches(pattern[1:], text) || len(text) > 0 && globMatches(pattern, text[1:])
	default:
		return len(text) > 0 && (pattern[0] == '?' || pattern[0] == text[0]) && globMatches(pattern[1:], text[1:])
	}
}

// FuzzGlob_AgreesWithItsDefinition holds patterns against their definition.
func FuzzGlob_AgreesWithItsDefinition(f *testing.F) {
	for _, c := range [][2]string{{"a*b?c", "axxbyc"}, {"*ab*ab*", "abab"}, {"ab*ba", "aba"}, {"?*é", "xé"}, {"**", ""}, {"a?*?b", "aééb"}, {"*?a?*a", "baba"}, {"*a?", "aé"}} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 12 || len(text) > 24 || !utf8.ValidString(text) || pattern == "" {
			return
		}
		rules, err := hitl.ParseRules([]hitl.Config{{Tool: pattern}})
		if err != nil {
			return
		}
		if _, got := rules.Match(hitl.Facts{Tool: text}); got != globMatches([]rune(pattern), []rune(text)) {
			t.Fatalf("%q on %q: %t", pattern, text, got)
		}
	})
}

// FuzzNumbers_AgreeWithFractions holds comparisons against those of exact fractions.
func FuzzNumbers_AgreeWithFractions(f *testing.F) {
	for _, c := range [][2]string{{"1", "1.0"}, {"-0", "0e5"}, {"10e-1", "1"}, {"0.1", "0.10000000000000000001"}, {"-12", "-1.2e1"}, {"1e3", "999.9"}} {
		f.Add(c[0], c[1])
	}
	small := regexp.MustCompile(`^-?[0-9.]{1,40}([eE][+-]?[0-9]{1,3})?$`)
	f.Fuzz(func(t *testing.T, number, value string) {
		if !json.Valid([]byte(number)) || !small.MatchString(number) || !small.MatchString(value) {
			return
		}
		a, okA := new(big.Rat).SetString(number)
		b, okB := new(big.Rat).SetString(value)
		if !okA || !okB {
			return
		}
		order := a.Cmp(b)
		for op, want := range map[string]bool{"eq": order == 0, "ne": order != 0, "lt": order < 0, "le": order <= 0, "gt": order > 0, "ge": order >= 0} {
			rules, err := hitl.ParseRules([]hitl.Config{{Argument: &hitl.Argument{Pointer: "/n", Op: op, Value: value}}})
			if err != nil {
				return // value is no number of JSON
			}
			if json.Valid([]byte(value)) {
				if _, got := rules.Match(hitl.Facts{Args: json.RawMessage(`{"n":` + number + `}`)}); got != want {
					t.Fatalf("%s %s %s: %t, want %t", number, op, value, got, want)
				}
			}
		}
	})
}
