package main

import (
	"errors"
	"strings"
	"testing"
)

// TestEvidence_Judge: each figure that is out of its bound is named, and no other.
func TestEvidence_Judge(t *testing.T) {
	t.Parallel()
	good := lasted{Calls: 899, Want: 900, Tokens: 3600, Quarter: footprint{1500, 1000}, End: footprint{3000, 1100}}
	if err := good.judge(); err != nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct {
		spoil func(*lasted)
		says  string
	}{
		"too few calls":      {func(l *lasted) { l.Want = 1000 }, "899 calls were made, want 1000"},
		"a token is lost":    {func(l *lasted) { l.Missing++ }, "of 3600 tokens of 900 calls 1 are not on record"},
		"a token not issued": {func(l *lasted) { l.Tokens-- }, "of 3599 tokens of 900 calls 0 are not on record"},
		"memory grows":       {func(l *lasted) { l.End.Own++ }, "3000 KiB (1101 its own) are resident at the end"},
	} {
		l := good
		tc.spoil(&l)
		if err := l.judge(); !errors.Is(err, errEvidence) || !strings.Contains(err.Error(), tc.says) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v, want %q alone", name, err, tc.says)
		}
	}
}
