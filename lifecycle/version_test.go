package lifecycle_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/lifecycle"
)

func TestCheckVersion_Breaks(t *testing.T) {
	t.Parallel()
	both, one := []string{"a2a-v1 1.0", "mcp-v1 2025-11-25"}, []string{"a2a-v1 1.0"}
	for name, tc := range map[string]struct {
		before, after lifecycle.Description
		breaks        []string
	}{
		"nothing changes":               {lifecycle.Description{"1.0.0", both, 1}, lifecycle.Description{"1.0.0", both, 1}, nil},
		"one more, a lower level":       {lifecycle.Description{"1.0.0", one, 3}, lifecycle.Description{"1.0.0", both, 2}, nil},
		"another order":                 {lifecycle.Description{"1.0.0", both, 1}, lifecycle.Description{"1.0.0", []string{both[1], both[0]}, 1}, nil},
		"one taken out":                 {lifecycle.Description{"1.0.0", both, 1}, lifecycle.Description{"1.9.9", one, 1}, []string{`protocol "mcp-v1 2025-11-25" is taken out`}},
		"one taken out, major":          {lifecycle.Description{"1.9.0", both, 1}, lifecycle.Description{"2.0.0", one, 1}, nil},
		"one in another version":        {lifecycle.Description{"1.0.0", one, 1}, lifecycle.Description{"1.1.0", []string{"a2a-v1 2.0"}, 1}, []string{`protocol "a2a-v1 1.0" is taken out`}},
		"a higher level":                {lifecycle.Description{"1.0.0", one, 1}, lifecycle.Description{"1.0.1", one, 2}, []string{"ect_assurance_level rises from L1 to L2"}},
		"a higher level, major":         {lifecycle.Description{"9.0.0", one, 1}, lifecycle.Description{"10.0.0", one, 2}, nil},
		"a higher level, major lower":   {lifecycle.Description{"10.0.0", one, 1}, lifecycle.Description{"9.0.0", one, 2}, []string{"ect_assurance_level rises from L1 to L2"}},
		"before 1.0.0 it counts too":    {lifecycle.Description{"0.1.0", one, 1}, lifecycle.Description{"0.2.0", one, 2}, []string{"ect_assurance_level rises from L1 to L2"}},
		"both":                          {lifecycle.Description{"1.0.0", both, 1}, lifecycle.Description{"1.1.0", one, 3}, []string{`protocol "mcp-v1 2025-11-25" is taken out`, "ect_assurance_level rises from L1 to L3"}},
		"beyond what a number can hold": {lifecycle.Description{"99999999999999999999.0.0", one, 1}, lifecycle.Description{"100000000000000000000.0.0", one, 2}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := lifecycle.CheckVersion(tc.before, tc.after)
			if len(tc.breaks) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused, ok := errors.AsType[*lifecycle.VersionError](err)
			if !ok || !slices.Equal(refused.Breaks, tc.breaks) || refused.Before != tc.before.Version || refused.After != tc.after.Version {
				t.Fatalf("%+v", err)
			}
			if !strings.Contains(err.Error(), refused.After) {
				t.Error(err)
			}
		})
	}
}

// TestCheckSemver_Grammar: examples of semver.org, and what is close to them.
func TestCheckSemver_Grammar(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"0.0.0", "1.2.3", "10.20.30", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-0.3.7", "1.0.0-x-y-z.--", "1.0.0--", "1.0.0-0A.is.legal",
		"1.0.0-alpha+001", "1.0.0+20130313144700", "1.0.0+21AF26D3----117B344092BD", "1.0.0+0.build.1-rc.10000aaa-kk-0.1",
		"99999999999999999999999.999999999999999999.99999999999999999", "1.0.0-rc.1+build.1", "1.0.0-" + strings.Repeat("a", 250),
	} {
		if err := lifecycle.CheckSemver(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "1", "1.2", "1.2.3.4", "v1.2.3", "01.1.1", "1.01.1", "1.1.01", "1.2.3-", "1.2.3+", "1.2.3-+b", "1.2.3-a..b", "1.2.3-01",
		"1.2.3-a.01", "1.2.3+a+b", "1.2.3-a_b", "1.2.3+a_b", "1.2.3 ", " 1.2.3", "1.2.-3", "1..3", "-1.0.0", "+1.0.0", "1.2.3-ü", "1.2.٣",
		"1.2.3\n", "1.0.0-" + strings.Repeat("a", 251),
	} {
		if err := lifecycle.CheckSemver(text); !isA[*lifecycle.SemverError](err) {
			t.Errorf("%q: %v", text, err)
		}
		good := lifecycle.Description{Version: "1.0.0"}
		bad := lifecycle.Description{Version: text}
		if !isA[*lifecycle.SemverError](lifecycle.CheckVersion(good, bad)) || !isA[*lifecycle.SemverError](lifecycle.CheckVersion(bad, good)) {
			t.Errorf("%q is compared", text)
		}
	}
}
