package audit_test

import (
	"bytes"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// TestDistrust_ChildOfForged: a good signature below a forged record proves nothing.
func TestDistrust_ChildOfForged(t *testing.T) {
	t.Parallel()
	token := func(id ect.ID, verified bool, parents ...ect.ID) audit.Record {
		r := audit.Record{Claims: ect.Claims{ID: id, Parents: parents}, Compact: string(id)}
		if !verified {
			r.Problem = "forged"
		}
		return r
	}
	for name, c := range map[string]struct {
		records []audit.Record
		want    string // of each: v for verified
	}{
		"forged root":           {[]audit.Record{token("a", false), token("b", true, "a"), token("c", true, "b")}, "---"},
		"child comes first":     {[]audit.Record{token("c", true, "b"), token("b", true, "a"), token("a", false)}, "---"},
		"another of that id":    {[]audit.Record{token("a", false), token("a", true), token("b", true, "a")}, "-vv"},
		"one of two parents":    {[]audit.Record{token("a", true), token("b", false), token("c", true, "a", "b")}, "v--"},
		"parent is not there":   {[]audit.Record{token("b", true, "a")}, "v"},
		"beside a forged child": {[]audit.Record{token("a", true), token("b", false, "a")}, "v-"},
		"a circle":              {[]audit.Record{token("a", true, "b"), token("b", false, "a")}, "--"},
	} {
		records := audit.Distrust(c.records)
		got := bytes.Repeat([]byte("-"), len(records))
		for i, r := range records {
			if r.Verified() {
				got[i] = 'v'
			}
		}
		if string(got) != c.want || len(audit.Ordered(records)) != len(records) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
