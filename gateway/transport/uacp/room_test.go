package uacp_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// filled is a message of so many bytes that came with somebody's token.
func filled(t *testing.T, bytes int) translators.Wire {
	t.Helper()
	say := func(n int) translators.Wire {
		w, _, err := form.New(translators.Config{}).Encode(&canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`5`)},
			Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: strings.Repeat("x", n)}}}},
		}, translators.Target{Form: form.FormEnveloped})
		if err != nil {
			t.Fatal(err)
		}
		frame, err := form.Open(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if w.Body, err = frame.WithEvidence([]string{"some.body.s"}); err != nil {
			t.Fatal(err)
		}
		return w
	}
	return say(bytes - len(say(0).Body))
}

// descended is a recorded message whose token was made of another one.
func descended(t *testing.T, w translators.Wire) (transport.Sealed, string) {
	t.Helper()
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: ecttest.NewStore(), Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	signer := ecttest.NewParty(t, "spiffe://td/gw").Signer(t, time.Now)
	claims := ect.Claims{Act: ect.ActTranslate, Audience: []string{"x"}, Workflow: "6f1f8f3c-9a37-4b6e-9c55-0a4a0b7b7f10"}
	first, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	claims.Parents, claims.OutputHash = []ect.ID{first.ID()}, ect.Hash(w.HashInput())
	own, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := recorder.Record(t.Context(), own, ect.Filing{})
	if err != nil {
		t.Fatal(err)
	}
	attested, err := transport.Attest(receipt, w)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := attested.Seal(first.Compact())
	if err != nil {
		t.Fatal(err)
	}
	return sealed, own.Compact()
}

// short answers anything with a word, and no evidence.
func short(call transport.Call) (transport.Answer, error) {
	w, _, err := form.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Correlation: call.Message.Correlation,
		Body: &canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{{Kind: canonical.KindText, Text: "done"}}}},
	}, translators.Target{Form: call.Wire.Form})
	return transporttest.Answer(w), err
}

// TestEvidence_ByReferenceIsReported: whoever wants to know is told of each message whose
// own token stays here, and why; ancestors of it that stay are no news. No
// token of somebody else's goes on in its place.
func TestEvidence_ByReferenceIsReported(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		message translators.Wire
		arrives int // tokens
		stored  []wire.Reason
	}{
		"room for all":     {filled(t, 1000), 2, nil},
		"room for our own": {filled(t, form.MaxFrame-1500), 1, nil},
		"room for none":    {filled(t, form.MaxFrame-5), 0, []wire.Reason{wire.ReasonFull}},
		"no place":         {message(form.FormBare), 0, []wire.Reason{wire.ReasonBare}},
	} {
		r := &handler{exchange: short}
		var stored []wire.Reason
		d, err := wire.NewDialer(wire.DialerDeps{
			Network: network{}, Form: form.New(translators.Config{}), ByReference: func(why wire.Reason) { stored = append(stored, why) },
		})
		if err != nil {
			t.Fatal(err)
		}
		sealed, own := descended(t, tc.message)
		if _, err := d.Dial(t.Context(), endpoint(open(t, r, wire.Config{})), sealed); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := r.seen()[0].Evidence
		if len(got) != tc.arrives || len(got) > 0 && got[0] != own {
			t.Errorf("%s: %d tokens arrived, want %d with our own first, of %d bytes", name, len(got), tc.arrives, len(own))
		}
		if diff := cmp.Diff(tc.stored, stored); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", name, diff)
		}
	}
}
