package spelling_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/spelling"
)

func TestNearest_CloseNameIsFound(t *testing.T) {
	t.Parallel()
	names := []string{"calculator", "concierge", "get-sum", "get-tip", "échos", strings.Repeat("x", 100), "aaab", "aaac"}
	for given, want := range map[string]string{
		"calculatro": "calculator", "Calculator": "calculator", "clacualtor": "calculator", "conceirge": "concierge", "echos": "échos",
		"get-sum": "", "getsum": "get-sum", "get-sup": "get-sum", "get-tum": "get-sum", "aaad": "", // as close to two
		"nobody": "", "": "", "x": "", strings.Repeat("x", 99): "",
	} {
		if got := spelling.Nearest(given, names); got != want {
			t.Errorf("for %q: %q, want %q", given, got, want)
		}
	}
	if got := spelling.DidYouMean("calculatro", names); got != "; did you mean calculator?" {
		t.Error(got)
	}
	if got := spelling.DidYouMean("nobody", names); got != "" {
		t.Error(got)
	}
}
