package gateway_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestExchange_DecodedMessageIsNotReadAgain: a message that its door has read is not read again, and
// its door finds it as it was.
func TestExchange_DecodedMessageIsNotReadAgain(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	read := func() *canonical.Message {
		m, err := a2a.New(translators.Config{}).Decode(translators.Wire{Binding: a2a.Binding, Body: []byte(addBody)})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	call := b.call("never read")
	call.Message = read()
	answer, err := b.Exchange(t.Context(), call)
	if err != nil || !strings.Contains(string(answer.Wire().Body), `"id":7`) || !strings.Contains(string(answer.Wire().Body), `"sum":3`) {
		t.Errorf("got %s, %v", answer.Wire().Body, err)
	}
	if diff := cmp.Diff(read(), call.Message); diff != "" {
		t.Errorf("the door's message has changed (-was +is):\n%s", diff)
	}
}
