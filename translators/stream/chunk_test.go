package stream_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// TestShaper_ChunkThatIsNoText: a long chunk in which no character begins is cut, and ends nothing.
func TestShaper_ChunkThatIsNoText(t *testing.T) {
	t.Parallel()
	s := stream.NewShaper(stream.Shape{From: translators.StreamsTask, To: translators.StreamsReply, Token: json.RawMessage("1")})
	part := canonical.Part{Kind: canonical.KindText, Text: strings.Repeat("\x80", 4096)}
	event := canonical.Event{Artifact: &canonical.ArtifactUpdate{Append: true, Artifact: canonical.Artifact{Parts: []canonical.Part{part}}}}
	s.Event(&event)
}
