package transport_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
)

// Only the very bytes that a recorded token covers can be sealed, and only
// what was sealed can be opened.
func TestSeal_OnlyBytesOfARecordedToken(t *testing.T) {
	t.Parallel()
	body := []byte(`{"jsonrpc":"2.0"}`)
	receipt := recorded(t, body)
	for name, tc := range map[string]struct {
		receipt ect.Receipt
		body    []byte
		ok      bool
	}{
		"covered":          {receipt, body, true},
		"one byte more":    {receipt, append(slices.Clone(body), ' '), false},
		"nothing":          {receipt, nil, false},
		"without receipt":  {ect.Receipt{}, body, false},
		"nothing and none": {ect.Receipt{}, nil, false},
	} {
		attested, err := transport.Attest(tc.receipt, translators.Wire{Body: tc.body})
		if tc.ok != (err == nil) || !tc.ok && !errors.Is(err, transport.ErrUnsealed) {
			t.Errorf("%s: got %v", name, err)
		}
		sealed, err := attested.Seal("ancestor")
		if tc.ok != (err == nil) || !tc.ok && !errors.Is(err, transport.ErrUnsealed) {
			t.Errorf("%s: sealed with %v", name, err)
		}
		wire, tokens, err := sealed.Open()
		if tc.ok != (err == nil) {
			t.Errorf("%s: opened with %v", name, err)
		}
		if tc.ok && (string(wire.Body) != string(body) || !slices.Equal(tokens, []string{receipt.Compact(), "ancestor"})) {
			t.Errorf("%s: got %q with %d tokens", name, wire.Body, len(tokens))
		}
	}
}
