package transport_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// TestAddEvidence_Reversible: an answer with a checkpoint says whether it can be undone, and others say nothing.
func TestAddEvidence_Reversible(t *testing.T) {
	t.Parallel()
	token := func(act ect.Act, ext ect.Ext) string {
		signed, err := ecttest.NewParty(t, "spiffe://example.com/gateway").Signer(t, time.Now).Sign(ect.Claims{Act: act, Audience: []string{"spiffe://example.com/client"}, Ext: ext})
		if err != nil {
			t.Fatal(err)
		}
		return signed.Compact()
	}
	direction := token(ect.ActTranslate, nil)
	for want, ext := range map[string]ect.Ext{"true": {ect.ExtReversible: json.RawMessage("true")}, "false": {ect.ExtReversible: json.RawMessage("false")}, "": {}} {
		h := http.Header{}
		transport.AddEvidence(h, []string{direction, token(ect.ActCheckpoint, ext), direction})
		if got := h.Get(transport.FieldReversible); got != want {
			t.Errorf("it says %q, expected %q", got, want)
		}
	}
	h := http.Header{}
	if transport.AddEvidence(h, []string{direction, direction}); h.Get(transport.FieldReversible) != "" || len(h.Values(ect.HeaderName)) != 2 {
		t.Errorf("without a checkpoint: %v", h)
	}
}
