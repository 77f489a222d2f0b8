package ect_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

func TestParseHeader_Accepts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in   []string
		want []string
	}{
		"none":                 {nil, nil},
		"one":                  {[]string{"a.b.c"}, []string{"a.b.c"}},
		"lines":                {[]string{"a.b.c", "d.e.f"}, []string{"a.b.c", "d.e.f"}},
		"commas":               {[]string{"a.b.c,d.e.f"}, []string{"a.b.c", "d.e.f"}},
		"blanks and tabs":      {[]string{" a.b.c\t, \td.e.f "}, []string{"a.b.c", "d.e.f"}},
		"empty members":        {[]string{"", " , ,a.b.c,,"}, []string{"a.b.c"}},
		"a repetition":         {[]string{"a.b.c,d.e.f", "a.b.c"}, []string{"a.b.c", "d.e.f"}},
		"unsigned":             {[]string{"eyJ9"}, []string{"eyJ9"}},
		"no signature":         {[]string{"a.b."}, []string{"a.b."}},
		"the whole alphabet":   {[]string{"AZaz09-_.A.A"}, []string{"AZaz09-_.A.A"}},
		"as large as one is":   {[]string{strings.Repeat("a", 8<<10)}, []string{strings.Repeat("a", 8<<10)}},
		"as many as there are": {[]string{strings.Join(tokens(32), ",")}, tokens(32)},
	} {
		got, err := ect.ParseHeader(tc.in, ect.Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func tokens(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strings.Repeat("a", i+1) + ".b.c"
	}
	return list
}

func TestParseHeader_Refuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in     []string
		limits ect.Limits
		large  string // the What of a TooLargeError; empty: malformed
	}{
		"a token too large":       {[]string{strings.Repeat("a", 8<<10+1)}, ect.Limits{}, "token"},
		"all too large":           {[]string{strings.Repeat(",", 16<<10), "a"}, ect.Limits{}, "header"},
		"too many":                {[]string{strings.Join(tokens(33), ",")}, ect.Limits{}, "token count"},
		"a smaller token limit":   {[]string{"a.b.cc"}, ect.Limits{Token: 5}, "token"},
		"a smaller total":         {[]string{"a.b.c", "d.e.f"}, ect.Limits{Total: 9}, "header"},
		"a smaller count":         {[]string{"a.b.c", "d.e.f"}, ect.Limits{Count: 1}, "token count"},
		"one dot":                 {[]string{"a.b"}, ect.Limits{}, ""},
		"three dots":              {[]string{"a.b.c.d"}, ect.Limits{}, ""},
		"a blank inside":          {[]string{"a.b c.d"}, ect.Limits{}, ""},
		"padding":                 {[]string{"a.b.c="}, ect.Limits{}, ""},
		"quotes":                  {[]string{`"a.b.c"`}, ect.Limits{}, ""},
		"semicolons":              {[]string{"a.b.c;d.e.f"}, ect.Limits{}, ""},
		"a line break":            {[]string{"a.b.c\r\n"}, ect.Limits{}, ""},
		"a zero byte":             {[]string{"a.b.c\x00"}, ect.Limits{}, ""},
		"one good, one bad":       {[]string{"a.b.c", "a.b.ü"}, ect.Limits{}, ""},
		"a scheme, as in a token": {[]string{"Bearer a.b.c"}, ect.Limits{}, ""},
	} {
		got, err := ect.ParseHeader(tc.in, tc.limits)
		var large *ect.TooLargeError
		var malformed *ect.MalformedError
		switch {
		case got != nil:
			t.Errorf("%s: got tokens", name)
		case tc.large == "" && !errors.As(err, &malformed):
			t.Errorf("%s: got %v, want malformed", name, err)
		case tc.large != "" && (!errors.As(err, &large) || large.What != tc.large):
			t.Errorf("%s: got %v, want %s too large", name, err, tc.large)
		}
	}
}

func TestHeads_AndAncestors(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	named := func(id ect.ID, parents ...ect.ID) string {
		c := s.Claims()
		c.ID, c.Parents = id, parents
		return ecttest.Mint(t, s.From, ecttest.Recipe{Claims: c})
	}
	one, two, three, gone := ect.NewID(), ect.NewID(), ect.NewID(), ect.NewID()
	a, b, c := named(one, gone), named(two, one), named(three, two, one)
	lone := named(gone)
	for name, tc := range map[string]struct{ in, heads, ancestors []string }{
		"none":         {nil, nil, nil},
		"one":          {[]string{a}, []string{a}, nil},
		"a chain":      {[]string{a, c, b}, []string{c}, []string{a, b}},
		"two sources":  {[]string{b, a, named(ect.NewID(), one)}, nil, []string{a}},
		"a far parent": {[]string{lone, b}, []string{lone, b}, nil},
	} {
		heads, ancestors, err := ect.Heads(tc.in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if tc.heads != nil && !slices.Equal(heads, tc.heads) || !slices.Equal(ancestors, tc.ancestors) || len(heads)+len(ancestors) != len(tc.in) {
			t.Errorf("%s: got %d heads and %d ancestors", name, len(heads), len(ancestors))
		}
	}
	ring := []string{named(one, two), named(two, one)}
	var malformed *ect.MalformedError
	if _, _, err := ect.Heads(ring); !errors.As(err, &malformed) {
		t.Errorf("a ring: got %v, want malformed", err)
	}
	if _, _, err := ect.Heads([]string{a, "x"}); !errors.As(err, &malformed) {
		t.Errorf("a token that is none: got %v, want malformed", err)
	}
}
