package policy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy"
)

const reader = ect.Identity("spiffe://example.com/teams/a/reader")

func TestOfferOf_WhatCallersSee(t *testing.T) {
	t.Parallel()
	tools := []string{"read", "read_file", "write", "drop"}
	names := policy.NewNames(map[string]string{"write": "save", "drop": "read_file"})
	for name, c := range map[string]struct {
		rules policy.Rules
		want  []string // shown names
	}{
		"all":                  {policy.Rules{Callers: []string{string(reader)}}, tools},
		"open":                 {policy.Rules{Open: true}, tools},
		"one tool":             {policy.Rules{Callers: []string{string(reader) + "#invoke:read"}}, []string{"read"}},
		"a pattern":            {policy.Rules{Callers: []string{string(reader) + "#invoke:read*"}}, []string{"read", "read_file"}},
		"a group":              {policy.Rules{Callers: []string{"spiffe://example.com/teams/a/*#invoke:*file"}}, []string{"read_file"}},
		"two entries":          {policy.Rules{Callers: []string{string(reader) + "#invoke:read", "spiffe://example.com/teams/*#invoke:write"}}, []string{"read", "write"}},
		"an entry without":     {policy.Rules{Callers: []string{string(reader) + "#invoke:read", "spiffe://example.com/teams/*"}}, tools},
		"an entry of all":      {policy.Rules{Callers: []string{string(reader) + "#invoke:read", string(reader) + "#invoke"}}, tools},
		"an entry of others":   {policy.Rules{Callers: []string{string(reader) + "#invoke:read", "spiffe://example.com/other"}}, []string{"read"}},
		"other operations":     {policy.Rules{Callers: []string{string(reader) + "#task.get", "spiffe://example.com/other#invoke:read"}}, []string{}},
		"may describe":         {policy.Rules{Callers: []string{string(reader) + "#describe"}}, tools},
		"describe and a tool":  {policy.Rules{Callers: []string{string(reader) + "#describe", string(reader) + "#invoke:read"}}, []string{"read"}}, // who sees it may call it
		"describe and all":     {policy.Rules{Callers: []string{string(reader) + "#describe", string(reader) + "#invoke"}}, tools},
		"allowed to all":       {policy.Rules{Callers: []string{string(reader)}, Tools: []string{"read*"}}, []string{"read", "read_file"}},
		"both":                 {policy.Rules{Callers: []string{string(reader) + "#invoke:*e*"}, Tools: []string{"write", "drop"}}, []string{"write"}},
		"of another as well":   {policy.Rules{Open: true, Also: &policy.Rules{Callers: []string{string(reader) + "#invoke:write"}}}, []string{"write"}},
		"under other names":    {policy.Rules{Open: true, Names: names}, []string{"read", "read_file", "save"}}, // drop, not its namesake
		"a pattern is of own":  {policy.Rules{Open: true, Tools: []string{"write", "save"}, Names: names}, []string{"save"}},
		"open leaves out ours": {policy.Rules{Open: true, Callers: []string{string(reader) + "#invoke:read"}}, tools},
	} {
		offer, got := policy.OfferOf(reader, c.rules), []string{}
		for _, tool := range tools {
			if shown, ok := offer.Shown(tool); ok {
				got = append(got, shown)
				if own := offer.Own(shown); own != tool {
					t.Errorf("%s: %s is shown as %s, which is %s", name, tool, shown, own)
				}
			}
		}
		slices.Sort(got)
		want := slices.Sorted(slices.Values(c.want))
		if !slices.Equal(got, want) || offer.Whole() != (len(want) == len(tools)) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// TestOffer_PatternsAsExpressions compares patterns with regular expressions that mean the same.
func TestOffer_PatternsAsExpressions(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	text := func(of string, most int) string {
		b := make([]byte, random.IntN(most))
		for i := range b {
			b[i] = of[random.IntN(len(of))]
		}
		return string(b)
	}
	matched := 0
	for range 100_000 {
		pattern, name := "x"+text("ab*", 6), "x"+text("ab", 8)
		meaning := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "*", ".*") + "$")
		_, got := policy.OfferOf(reader, policy.Rules{Open: true, Tools: []string{pattern}}).Shown(name)
		if want := meaning.MatchString(name); got != want {
			t.Fatalf("%q and %q: got %v, want %v", pattern, name, got, want)
		}
		if got {
			matched++
		}
	}
	if matched < 1000 {
		t.Errorf("%d names matched", matched)
	}
}

func TestRules_RefusedTools(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for n := range policy.MaxTools + 1 {
		many[fmt.Sprint("tool", n)] = fmt.Sprint("other", n)
	}
	for name, c := range map[string]struct {
		rules policy.Rules
		want  string
	}{
		"no tool":            {policy.Rules{Callers: []string{string(reader) + "#invoke:"}}, "expected a name"},
		"another operation":  {policy.Rules{Callers: []string{string(reader) + "#task.get:read"}}, "behind #invoke: alone"},
		"many stars":         {policy.Rules{Callers: []string{string(reader) + "#invoke:" + strings.Repeat("*a", 9)}}, "at most 8"},
		"a long name":        {policy.Rules{Tools: []string{strings.Repeat("a", 257)}}, "up to 256 bytes"},
		"a control":          {policy.Rules{Tools: []string{"a\x00b"}}, "expected a name"},
		"two with one name":  {policy.Rules{Names: policy.NewNames(map[string]string{"a": "c", "b": "c"})}, `"a" and "b" would both be named "c"`},
		"a name with a dash": {policy.Rules{Names: policy.NewNames(map[string]string{"a": "two words"})}, "expected 1 to 128"},
		"no name":            {policy.Rules{Names: policy.NewNames(map[string]string{"a": ""})}, "expected 1 to 128"},
		"many patterns":      {policy.Rules{Tools: slices.Sorted(maps.Keys(many))}, "more than 256"},
		"many names":         {policy.Rules{Names: policy.NewNames(many)}, "more than 256"},
	} {
		if err := c.rules.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// TestRules_ParsedAndChanged: rules that were read and get other callers afterwards are those of the others.
func TestRules_ParsedAndChanged(t *testing.T) {
	t.Parallel()
	first := policy.Rules{Callers: []string{string(reader)}}.Parsed()
	changed := first
	changed.Callers = []string{"spiffe://example.com/other"}
	for name, c := range map[string]struct {
		rules policy.Rules
		want  bool
	}{"as read": {first, true}, "changed": {changed, false}, "changed and read": {changed.Parsed(), false}, "emptied": {func() policy.Rules { changed.Callers = nil; return changed }(), false}} {
		if err := policy.Admit(reader, c.rules); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkOfferOf_FiftyRules is what 50 rules cost a call.
func BenchmarkOfferOf_FiftyRules(b *testing.B) {
	rules := policy.Rules{}
	for n := range 50 {
		rules.Callers = append(rules.Callers, fmt.Sprintf("spiffe://example.com/teams/%d/*#invoke:read_%d*", n, n))
	}
	caller := ect.Identity("spiffe://example.com/teams/49/x")
	rules = rules.Parsed()
	b.ReportAllocs()
	for b.Loop() {
		if offer := policy.OfferOf(caller, rules); offer.Withheld("read_49_file") != "" || offer.Key() == "" {
			b.Fatal("it is withheld")
		}
	}
}
