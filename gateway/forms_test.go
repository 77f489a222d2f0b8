package gateway_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	oldAdd  = `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"data","data":{"skill":"add","input":{"a":1,"b":2}}}]}}}`
	bareAdd = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":1,"b":2}}}]}}`
)

// TestReplyInTheWordsOfTheRequest: version and form of the answer are those
// that the caller used, and the evidence covers the octets on its wire (R5).
func TestReplyInTheWordsOfTheRequest(t *testing.T) {
	t.Parallel()
	b := newBed(t, gateway.Settings{}, policy.Rules{Open: true})
	for name, c := range map[string]struct {
		wire translators.Wire
		want string
	}{
		"0.3":       {translators.Wire{Body: []byte(oldAdd)}, `{"jsonrpc":"2.0","id":7,"result":{"kind":"task"`},
		"0.3, said": {translators.Wire{Body: []byte(oldAdd), Version: a2a.Version03}, `{"jsonrpc":"2.0","id":7,"result":{"kind":"task"`},
		"HTTP":      {translators.Wire{Body: []byte(bareAdd), Form: a2a.FormHTTP}, `{"task":{"id":`},
	} {
		call := b.call(string(c.wire.Body))
		c.wire.Binding, c.wire.Media = a2a.Binding, a2a.Media
		call.Wire = c.wire
		answer, err := b.Exchange(t.Context(), call)
		if err != nil || !strings.HasPrefix(string(answer.Wire.Body), c.want) || answer.Wire.Form != c.wire.Form {
			t.Errorf("%s: %v %+v %s", name, err, answer.Wire.Form, answer.Wire.Body)
			continue
		}
		legs := answer.Evidence
		if got := claims(t, legs[0]).InputHash; got != ect.Hash(c.wire.Body) {
			t.Errorf("%s: the request's evidence covers something else", name)
		}
		if got := claims(t, legs[1]).OutputHash; got != ect.Hash(answer.Wire.Body) {
			t.Errorf("%s: the reply's evidence covers something else", name)
		}
	}
}

// TestOldA2AAtTheTranslateEndpoint: a2a-v1@0.3 as source and as destination (R8).
func TestOldA2AAtTheTranslateEndpoint(t *testing.T) {
	t.Parallel()
	b := newBed(t, gateway.Settings{}, policy.Rules{Open: true})
	old := translators.Wire{Binding: a2a.Binding, Version: a2a.Version03, Body: []byte(oldAdd)}
	answer, err := b.Exchange(t.Context(), b.revised(t, "", old, mcp.Binding, ""))
	if err != nil || !strings.Contains(string(answer.Wire.Body), `"name":"add","arguments":{"a":1,"b":2}`) {
		t.Errorf("from 0.3: %v %s", err, answer.Wire.Body)
	}
	tool := translators.Wire{Binding: mcp.Binding, Version: mcp.Legacy, Body: []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1}}}`)}
	answer, err = b.Exchange(t.Context(), b.revised(t, "", tool, a2a.Binding, a2a.Version03))
	if err != nil || answer.Wire.Version != a2a.Version03 || !strings.Contains(string(answer.Wire.Body), `"method":"message/send"`) {
		t.Errorf("to 0.3: %v %s", err, answer.Wire.Body)
	}
	lies := translators.Wire{Binding: a2a.Binding, Version: a2a.Version03, Body: []byte(addBody)}
	if _, err := b.Exchange(t.Context(), b.revised(t, "", lies, mcp.Binding, "")); err == nil {
		t.Error("1.0 was taken for 0.3")
	}
}
