package uacp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// TestEncode_LongMessageNamesItsEvidence: a message that may leave no room for its
// token names it, and that is hashed, and no part of what it says.
func TestEncode_LongMessageNamesItsEvidence(t *testing.T) {
	t.Parallel()
	tr := uacp.New(translators.Config{})
	for name, tc := range map[string]struct {
		bytes int
		form  string
		token string
		names bool
	}{
		"short":               {4 << 10, uacp.FormEnveloped, jti, false},
		"long":                {9 << 10, uacp.FormEnveloped, jti, true},
		"long, and unproven":  {9 << 10, uacp.FormEnveloped, "", false},
		"long, and to a bare": {9 << 10, uacp.FormBare, jti, false},
	} {
		m := &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: []byte("7")},
			Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: strings.Repeat("x", tc.bytes)}}}},
		}
		target := translators.Target{Form: tc.form}
		plain, _, err := tr.Encode(m, target)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		target.Stamp.Token = tc.token
		w, _, err := tr.Encode(m, target)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if names := strings.Contains(string(w.Body), `"parent_jti":"`+jti+`"`); names != tc.names {
			t.Errorf("%s: names its evidence: %t", name, names)
		}
		one, _ := uacp.HashInput(plain.Body)
		two, err := uacp.HashInput(w.Body)
		if err != nil || (string(one) == string(two)) == tc.names {
			t.Errorf("%s: the name is not hashed with the rest: %v", name, err)
		}
		want, err := tr.Decode(plain)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := tr.Decode(w)
		want.Origin.Raw, got.Origin.Raw = nil, nil
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, said (-without +with its name):\n%s", name, err, diff)
		}
	}
}

// TestStatus_TooLarge: by the detail that says it, whatever code goes with it; and
// that code comes back.
func TestStatus_TooLarge(t *testing.T) {
	t.Parallel()
	tr := uacp.New(translators.Config{})
	for kind, status := range map[string]uint8{"urn:aepb:problem:too_large": 0x4A, "urn:aepb:problem:internal_error": 0x80} {
		m := &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseError, Correlation: canonical.Correlation{WireID: []byte("7")},
			Body: &canonical.Error{Code: canonical.CodeInternal, Message: "no", Details: []json.RawMessage{[]byte(`"x"`), []byte(`{"@type":"` + kind + `"}`)}},
		}
		w, _, err := tr.Encode(m, translators.Target{Form: uacp.FormEnveloped})
		if err != nil {
			t.Fatal(err)
		}
		f, err := uacp.ParseFrame(w.Body)
		if err != nil || f.Code != status {
			t.Errorf("%s: got %#x, %v", kind, f.Code, err)
		}
		back, err := tr.Decode(w)
		if err != nil {
			t.Fatal(err)
		}
		if answer, ok := back.Body.(*canonical.Error); !ok || answer.Code != canonical.CodeInternal || len(answer.Details) != 2 {
			t.Errorf("%s: came back as %+v", kind, back.Body)
		}
	}
}

// A call from a protocol that says it as a turn too takes the room of one: most of a
// frame is the caller's.
func TestEncode_LargeCallFitsAFrame(t *testing.T) {
	t.Parallel()
	args := json.RawMessage(`{"text":"` + strings.Repeat("a", 50_000) + `"}`)
	m := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"7"`)},
		Body: &canonical.Invoke{Call: &canonical.Call{Name: "write", Args: args}, Turn: canonical.Content{
			Parts: []canonical.Part{{Kind: canonical.KindData, Media: "application/json", Data: json.RawMessage(`{"skill":"write","input":` + string(args) + `}`)}},
		}},
	}
	form := uacp.New(translators.Config{})
	wire, losses, err := form.Encode(m, translators.Target{Capability: &canonical.Capability{ID: "write", Profile: canonical.ProfileTyped, InputSchema: json.RawMessage(`{"type":"object"}`)}})
	if err != nil || len(wire.Body) > 51_000 {
		t.Fatalf("%d bytes, %v", len(wire.Body), err)
	}
	got, err := form.Decode(wire)
	if err != nil {
		t.Fatal(err)
	}
	if parts := got.Body.(*canonical.Invoke).Turn.Parts; len(parts) != 1 || !strings.Contains(string(parts[0].Data), string(args)) {
		t.Errorf("the turn has %d parts, and %v was lost", len(parts), losses)
	}
}
