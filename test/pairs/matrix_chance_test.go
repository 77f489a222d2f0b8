package pairs

import (
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// foreseen demands that every hazard is one of what the table has.
func foreseen(t *testing.T, natures map[string]*gatewaytest.Traits) {
	t.Helper()
	for _, h := range gatewaytest.Races {
		found := false
		for _, line := range declaredMatrix(t) {
			words := strings.Fields(line)
			from, to := natures[words[0]], natures[words[1]]
			for _, mark := range words[2:] {
				bare := strings.Trim(mark, "()")
				found = found || bare != mark && to != nil && h.Covers(words[2], bare) && h.Where(from, to)
			}
		}
		if !found {
			t.Errorf("nothing is chance because %s (%s)", h.Because, h.Play)
		}
	}
}
