package server

import (
	"maps"
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/builtin"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestProtocols_EachHasATransport: there is one list of protocols, and what carries them
// is neither more nor less.
func TestProtocols_EachHasATransport(t *testing.T) {
	t.Parallel()
	var listed []canonical.Binding
	for _, form := range builtin.Forms(translators.Config{}) {
		listed = append(listed, form.Info().Binding)
	}
	slices.Sort(listed)
	if carried := slices.Sorted(maps.Keys(carriers())); !slices.Equal(listed, carried) {
		t.Errorf("listed are %v, and carried %v", listed, carried)
	}
}
