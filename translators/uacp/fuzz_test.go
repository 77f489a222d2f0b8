package uacp_test

import (
	"bytes"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// FuzzEnvelope_EvidenceKeepsTheHash: evidence goes in and comes out, and changes nothing that is hashed.
func FuzzEnvelope_EvidenceKeepsTheHash(f *testing.F) {
	for _, w := range wires() {
		f.Add(w.Body)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = uacp.Evidence(data)
		_ = uacp.MarkOf(data)
		before, err := uacp.HashInput(data)
		if err != nil {
			return
		}
		with, err := uacp.WithEvidence(data, []string{"a.b.c", "d.e.f"})
		if err != nil {
			return
		}
		after, err := uacp.HashInput(with)
		if err != nil || !bytes.Equal(before, after) {
			t.Fatalf("hashed %q, then %q, %v", before, after, err)
		}
		if tokens, err := uacp.Evidence(with); err != nil || len(tokens) != 2 || tokens[0] != "a.b.c" {
			t.Fatalf("%v came out, %v", tokens, err)
		}
	})
}

// FuzzEvent_Roundtrip: an event that is understood can be said again, and is then the same.
func FuzzEvent_Roundtrip(f *testing.F) {
	for _, w := range wires() {
		if w.Event {
			f.Add(w.Body)
		}
	}
	form := uacp.New(translators.Config{})
	f.Fuzz(func(t *testing.T, data []byte) {
		w := translators.Wire{Body: data, Re: canonical.OpInvoke, Event: true}
		m, err := form.Decode(w)
		if err != nil {
			return
		}
		out, _, err := form.Encode(m, translators.Target{})
		if err != nil {
			return
		}
		w.Body = out.Body
		again, err := form.Decode(w)
		if err != nil || again.Phase != m.Phase {
			t.Fatalf("%q became %q: %v", data, out.Body, err)
		}
	})
}
