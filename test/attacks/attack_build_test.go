package attacks

import (
	"os"
	"regexp"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestAttack_ImageBehindATagIsReplaced is an item of hardening finding 18: the image
// that the container is built with was named by a tag, behind which its registry can
// put another one. Now each has a digest.
func TestAttack_ImageBehindATagIsReplaced(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Dockerfile")
	gatewaytest.Must(t, err)
	pinned, stages, images := regexp.MustCompile(`^[^ @]+@sha256:[0-9a-f]{64}$`), map[string]bool{"scratch": true}, 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "FROM" {
			continue
		}
		image := words[1]
		if strings.HasPrefix(image, "--") && len(words) > 2 {
			image = words[2]
		}
		if len(words) > 3 {
			stages[words[len(words)-1]] = true
		}
		if images++; !stages[image] && !pinned.MatchString(image) {
			t.Errorf("%s has no digest", image)
		}
	}
	if images == 0 {
		t.Error("the Dockerfile names no image")
	}
}
