package stories

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/builtin"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestApprovalError_InEveryProtocol: the error of each protocol names the path of the approval, in its data and in its text.
func TestApprovalError_InEveryProtocol(t *testing.T) {
	t.Parallel()
	err := &problem.ApprovalError{ID: "0b39f2a1-6a0c-4a3e-9f0e-3c1a4f6f5d11", State: "pending", Until: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	for _, form := range builtin.Forms(translators.Config{}) {
		binding := form.Info().Binding
		wire, _, failed := form.Encode(&canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseError, Correlation: canonical.Correlation{WireID: json.RawMessage(`"7"`)}, Body: problem.Native(err),
		}, translators.Target{Stamp: translators.Addressing{From: "did:web:gateway.example", At: time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)}})
		if failed != nil {
			t.Errorf("%s: %v", binding, failed)
			continue
		}
		if got := bytes.Count(wire.Body, []byte("/hitl/approvals/"+err.ID)); got != 2 {
			t.Errorf("%s: the path is there %d times, expected 2: %q", binding, got, wire.Body)
		}
	}
}
