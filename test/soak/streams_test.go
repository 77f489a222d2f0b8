package main

import (
	"errors"
	"strings"
	"testing"
)

// TestStreams_Judge: each figure that is out of its bound is named, and no other.
func TestStreams_Judge(t *testing.T) {
	t.Parallel()
	good := poured{Streams: 900, Want: 1000, Idle: footprint{1500, 1000}, Peak: 4000, After: footprint{3000, 1100}, Bound: 4000}
	if err := good.judge(); err != nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct {
		spoil func(*poured)
		says  string
	}{
		"too few":         {func(p *poured) { p.Streams-- }, "899 were made, want 1000"},
		"above the bound": {func(p *poured) { p.Peak++ }, "4001 KiB were resident under load, the bound is 4000"},
		"does not return": {func(p *poured) { p.After.Own++ }, "3000 KiB (1101 its own) are resident 2m0s after the load"},
	} {
		p := good
		tc.spoil(&p)
		if err := p.judge(); !errors.Is(err, errStreams) || !strings.Contains(err.Error(), tc.says) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v, want %q alone", name, err, tc.says)
		}
	}
}
