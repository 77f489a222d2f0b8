package ainp_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// The known answer: the key is test-caller of the reference repository's fixtures.
const (
	callerDID = "did:key:z6MkoSJvBnjUzXHyqUTmRQsNRVNoqAmZ6V5kQC7EiwsFiKWs"

	known = `{"from_did":"did:key:z6MkoSJvBnjUzXHyqUTmRQsNRVNoqAmZ6V5kQC7EiwsFiKWs","id":"770e8400-e29b-41d4-a716-446655440002","msg_type":"INTENT","payload":{"@context":"https://ainp.dev/contexts/freeform/v1","@type":"FreeformNote","budget":{"max_credits":1,"max_rounds":1,"timeout_ms":10000},"semantics":{"body":"hi","format":"text"},"version":"1.0.0"},"qos":{"bid":0,"ethicalWeight":0.5,"importance":0.5,"novelty":0.5,"urgency":0.5},"schema":"https://ainp.dev/schemas/intents/freeform-note/v1","timestamp":1728259400000,"to_did":"did:key:z6MkoZEkdRmntcgza19hqCvbzZ7di4ttojSgs6FW59sFNqA3","trace_id":"trace-ghi789","ttl":30000,"version":"0.1.0"}`

	// The same message with members in another order, numbers in other forms,
	// white space, escapes, and a signature.
	spoken = `{ "version":"0.1.0", "msg_type":"INTENT","id":"770e8400-e29b-41d4-a716-446655440002","timestamp":1.7282594e12,"ttl":30000.0,` +
		`"trace_id":"trace-ghi\u0037\u00389","from_did":"did:key:z6MkoSJvBnjUzXHyqUTmRQsNRVNoqAmZ6V5kQC7EiwsFiKWs","to_did":"did:key:z6MkoZEkdRmntcgza19hqCvbzZ7di4ttojSgs6FW59sFNqA3",` +
		`"schema":"https:\/\/ainp.dev/schemas/intents/freeform-note/v1","qos":{"urgency":0.50,"importance":5e-1,"novelty":0.5,"ethicalWeight":0.5,"bid":-0},` +
		`"payload":{"version":"1.0.0","@type":"FreeformNote","@context":"https://ainp.dev/contexts/freeform/v1","semantics":{"format":"text","body":"hi"},"budget":{"timeout_ms":1e4,"max_rounds":1,"max_credits":1}},"sig":"x"}`

	digest   = "6740ab48bb52f2f38214ffc594ae47378b90f8738aaa873b6d5df3c57b8b1dc9"
	sigDraft = "EJeC8DAXsyTqYMclYR9vFHynMinwWTcrc/qpL36svIa+FxqPOxzEUXNAnxYNE6jvEfgias0H3jnolS/doC/uAg=="
	sigRaw   = "98qoxsZ30JT6zjg2y9+fMihoFVG7Hz/wroRUzOyRYvkdorqj/hj2ICXww9L4muUmZ4OMHw8bqGmcGFbZlQXZDA=="
)

// publicKey reads an Ed25519 did:key: base58 of the multicodec 0xed01 and the key.
func publicKey(t *testing.T, did string) ed25519.PublicKey {
	t.Helper()
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	n := new(big.Int)
	for _, c := range strings.TrimPrefix(did, "did:key:z") {
		n.Mul(n, big.NewInt(58)).Add(n, big.NewInt(int64(strings.IndexRune(alphabet, c))))
	}
	raw := n.Bytes()
	if len(raw) != 34 || raw[0] != 0xed || raw[1] != 0x01 {
		t.Fatalf("%s is no Ed25519 key: %x", did, raw)
	}
	return raw[2:]
}

func TestCanonical_KnownAnswers(t *testing.T) {
	t.Parallel()
	key := publicKey(t, callerDID)
	for name, body := range map[string]string{"canonical": known, "as spoken": spoken} {
		_, text := opened(t, []byte(body))
		if string(text) != known || len(text) != 634 {
			t.Errorf("%s: %d bytes:\n%s", name, len(text), text)
		}
		for profile, sig := range map[ainp.SigProfile]string{ainp.SigDraft: sigDraft, ainp.SigRaw: sigRaw} {
			input := text.SigningInput(profile)
			signature, err := base64.StdEncoding.DecodeString(sig)
			if err != nil || !ed25519.Verify(key, input, signature) {
				t.Errorf("%s: the %s signature does not verify", name, profile)
			}
		}
		if input := text.SigningInput(ainp.SigDraft); hex.EncodeToString(input) != digest {
			t.Errorf("%s: digest %x", name, input)
		}
		hashed, err := ainp.HashInput([]byte(body))
		if err != nil || string(hashed) != known {
			t.Errorf("%s: hash input %s, %v", name, hashed, err)
		}
	}
}

// TestEvidence_KeepsTheHash: what is inserted can be read, and neither it nor the signature
// changes what is hashed.
func TestEvidence_KeepsTheHash(t *testing.T) {
	t.Parallel()
	tokens := []string{"a.b.c", "d.e.f"}
	for name, payload := range map[string]string{
		"plain":              `{"@type":"X"}`,
		"empty":              `{}`,
		"with an object":     `{"@type":"X","aepb":{"task_id":"t"}}`,
		"with an empty one":  `{"aepb":{}}`,
		"with attestations":  `{"attestations":["vc:1",{"an":"object"}]}`,
		"with an empty list": `{"attestations":[]}`,
		"with old evidence":  `{"aepb":{"ect":["x.y.z"],"hitl_callback":"https://x.example"},"attestations":["x.y.z","vc:1"]}`,
		"with an empty slot": `{"aepb":{"ect":[]}}`,
	} {
		body := message("INTENT", requestID, payload)
		with, err := ainp.WithEvidence(body, tokens)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		evident, content := opened(t, with)
		_, text := opened(t, body)
		if text, err = text.WithEvidence(tokens); err != nil || string(text) != string(content) {
			t.Errorf("%s: the text with evidence is %s, %v; that of the envelope with it %s", name, text, err, content)
		}
		got, err := ainp.Evidence(with)
		if diff := cmp.Diff(tokens, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if bytes.Contains(with, []byte(`"sig"`)) || bytes.Contains(with, []byte("x.y.z")) {
			t.Errorf("%s: something old is left: %s", name, with)
		}
		signed := evident.WithSignature("c2ln")
		plain, _ := opened(t, body)
		if both, err := plain.WithEvidence(tokens, "c2ln"); err != nil || string(both) != string(signed) {
			t.Errorf("%s: with evidence and signature %s, %v; one after the other %s", name, both, err, signed)
		}
		if got := ainp.Text(bytes.Clone(content)).WithSignature("c2ln"); plain.Exact() && !rawjson.Equal(got, signed) {
			t.Errorf("%s: the signed text is %s, the envelope %s", name, got, signed)
		}
		if hashed, err := ainp.HashInput(body); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if again, err := ainp.Text(hashed).WithEvidence(tokens); err != nil || string(again) != string(content) {
			t.Errorf("%s: what is hashed has the text %s with evidence, %v; the envelope %s", name, again, err, content)
		}
		if bytes.Count(with, []byte("a.b.c")) != 2 || bytes.Count(with, []byte("d.e.f")) != 1 {
			t.Errorf("%s: the newest alone vouches for it: %s", name, with)
		}
		if one, two := hashOf(t, body), hashOf(t, signed); one != two {
			t.Errorf("%s: the evidence changes the hash", name)
		}
		m, err := ainp.New(translators.Config{}).Decode(translators.Wire{Body: signed})
		if err == nil && strings.Contains(string(m.Extensions[ainp.Binding]), "a.b.c") {
			t.Errorf("%s: a token became part of the message", name)
		}
	}
	if hashOf(t, message("INTENT", requestID, `{"a":1}`)) == hashOf(t, message("INTENT", requestID, `{"a":2}`)) {
		t.Error("two messages, one hash")
	}
}

// opened is an envelope and its text.
func opened(t *testing.T, body []byte) (ainp.Envelope, ainp.Text) {
	t.Helper()
	e, err := ainp.Open(body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := e.Text()
	if err != nil {
		t.Fatal(err)
	}
	return e, text
}

func hashOf(t *testing.T, body []byte) string {
	t.Helper()
	input, err := ainp.HashInput(body)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(input)
	return hex.EncodeToString(sum[:])
}

func TestEvidence_Refuses(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"no JSON":         `{`,
		"a list":          `[]`,
		"a member twice":  `{"payload":{"a":1,"a":2}}`,
		"payload a list":  `{"payload":[]}`,
		"object a list":   `{"payload":{"aepb":[]}}`,
		"slot a string":   `{"payload":{"aepb":{"ect":"a.b.c"}}}`,
		"slot of numbers": `{"payload":{"aepb":{"ect":[1]}}}`,
	} {
		if _, err := ainp.Evidence([]byte(body)); !errors.Is(err, translators.ErrMalformed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	tr := ainp.New(translators.Config{})
	for name, body := range map[string]string{"not JSON": `{`, "object a list": `{"payload":{"aepb":[]}}`, "a number": `{"payload":{"aepb":{"parent_jti":1}}}`} {
		if _, err := tr.Parent([]byte(body)); !errors.Is(err, translators.ErrMalformed) {
			t.Errorf("a parent, %s: got %v", name, err)
		}
	}
	for body, want := range map[string]string{`{}`: "", `{"payload":{}}`: "", `{"payload":{"aepb":{"parent_jti":"p"}}}`: "p", `{"payload":{"parent_jti":"p"}}`: ""} {
		if got, err := tr.Parent([]byte(body)); got != want || err != nil {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
	for name, body := range map[string]string{
		"payload a list": `{"payload":[]}`, "attestations an object": `{"payload":{"attestations":{}}}`, "not JSON": `x`,
	} {
		if _, err := ainp.WithEvidence([]byte(body), []string{"a.b.c"}); !errors.Is(err, translators.ErrMalformed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
