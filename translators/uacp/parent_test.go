package uacp_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

const (
	jti   = "6f1f8f3c-9a37-4b6e-9c55-0a4a0b7b7f10"
	other = "00000000-0000-4000-8000-00000000abcd"
)

// frameWith is a request with a payload and options of this type.
func frameWith(t *testing.T, payload string, values ...[]byte) []byte {
	t.Helper()
	f := uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 7, Payload: []byte(payload), Options: []uacp.Option{
		{Type: uacp.OptTopic, Value: []byte(uacp.TopicSend)}, {Type: uacp.OptContentType, Value: []byte{0, 0, 0, 1}},
	}}
	for _, value := range values {
		f.Options = append(f.Options, uacp.Option{Type: uacp.OptParent, Value: value})
	}
	out, err := f.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// idBytes are those of jti.
func idBytes() []byte {
	return []byte{0x6f, 0x1f, 0x8f, 0x3c, 0x9a, 0x37, 0x4b, 0x6e, 0x9c, 0x55, 0x0a, 0x4a, 0x0b, 0x7b, 0x7f, 0x10}
}

// TestParent_InEnvelopeOrOption: a frame names what it came of in its envelope or in an option, whose
// other lengths are other vendors'.
func TestParent_InEnvelopeOrOption(t *testing.T) {
	t.Parallel()
	tr := uacp.New(translators.Config{})
	for name, c := range map[string]struct {
		frame []byte
		want  string
		bad   bool
	}{
		"in the envelope":           {frameWith(t, `{"body":"x","aepb":{"parent_jti":"`+jti+`"}}`), jti, false},
		"in the option":             {frameWith(t, `"x"`, idBytes()), jti, false},
		"in both":                   {frameWith(t, `{"body":"x","aepb":{"parent_jti":"`+jti+`"}}`, idBytes()), jti, false},
		"in both, and not the same": {frameWith(t, `{"body":"x","aepb":{"parent_jti":"`+other+`"}}`, idBytes()), other + "," + jti, false},
		"nowhere":                   {frameWith(t, `{"body":"x","aepb":{}}`), "", false},
		"bare, what looks like it":  {frameWith(t, `{"parent_jti":"`+jti+`"}`), "", false},
		"an option of eight":        {frameWith(t, `"x"`, idBytes()[:8]), "", false},
		"a number":                  {frameWith(t, `{"body":"x","aepb":{"parent_jti":1}}`), "", true},
	} {
		got, err := tr.Parent(c.frame)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		m, err := tr.Decode(translators.Wire{Body: c.frame})
		if (err != nil) != c.bad {
			t.Errorf("%s: read with %v", name, err)
		}
		stored := strings.Contains(string(m.Extensions[uacp.Binding]), "6f1f8f3c9a374b6e")
		if stored != (name == "an option of eight") || strings.Contains(string(m.Extensions[uacp.Binding]), "parent_jti") {
			t.Errorf("%s: what it came of is part of what it says: %s", name, m.Extensions[uacp.Binding])
		}
	}
	if _, err := tr.Parent([]byte("x")); err == nil {
		t.Error("what is no frame names a parent")
	}
}

// TestEncode_TaggedNamesTheToken: an option names the token of a request to a bare peer that reads it.
// Nothing else is said in another way, and the hash is the same.
func TestEncode_TaggedNamesTheToken(t *testing.T) {
	t.Parallel()
	tr := uacp.New(translators.Config{})
	born := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: []byte("7")},
		Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "good day"}}}},
	}
	came, err := tr.Decode(translators.Wire{Body: frameWith(t, `"good day"`, bytes.Repeat([]byte{1}, 16))})
	if err != nil {
		t.Fatal(err)
	}
	answer := *born
	answer.Phase, answer.Body = canonical.PhaseResponse, &canonical.Result{Output: &canonical.Output{}}
	for name, c := range map[string]struct {
		m     *canonical.Message
		token string
		named bool
	}{
		"of another protocol": {born, jti, true},
		"its own":             {came, jti, true},
		"without a token":     {born, "", false},
		"of an odd token":     {born, strings.ToUpper(jti), false},
		"a reply":             {&answer, jti, false},
	} {
		bare, losses, err := tr.Encode(c.m, translators.Target{Form: uacp.FormBare, Stamp: translators.Addressing{Token: c.token}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tagged, more, err := tr.Encode(c.m, translators.Target{Form: uacp.FormTagged, Stamp: translators.Addressing{Token: c.token}})
		if err != nil || tagged.Form != uacp.FormBare {
			t.Fatalf("%s: %v, in the form %q", name, err, tagged.Form)
		}
		f, err := uacp.ParseFrame(tagged.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Option(uacp.OptParent); (got != nil) != c.named || c.named && !bytes.Equal(got, idBytes()) {
			t.Errorf("%s: the option is %x", name, got)
		}
		f.Options = slices.DeleteFunc(f.Options, func(o uacp.Option) bool { return o.Type == uacp.OptParent })
		if without, _ := f.Bytes(); !bytes.Equal(without, bare.Body) || cmp.Diff(losses, more) != "" {
			t.Errorf("%s: it says something else", name)
		}
		one, _ := uacp.HashInput(bare.Body)
		if two, err := uacp.HashInput(tagged.Body); err != nil || !bytes.Equal(one, two) {
			t.Errorf("%s: the option is hashed", name)
		}
	}
	if tr.Asks("", uacp.FormTagged) != translators.AskNone || tr.Signals(canonical.OpInvoke, translators.Target{Form: uacp.FormTagged}) {
		t.Error("a tagged peer can do more than a bare one")
	}
}
