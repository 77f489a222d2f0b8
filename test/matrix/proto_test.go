package matrix_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/a2apb"
	"github.com/a2aproject/a2a-go/v2/a2apb/v0/pbjson"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestA2A03HTTP_ReadBySDKAndProto: nobody publishes a schema for A2A 0.3 over HTTP. What
// we write is read by the official SDK's types instead, and what has no members
// of its own that nobody knows also by the proto, which allows none.
func TestA2A03HTTP_ReadBySDKAndProto(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, from := range sides() {
		for _, c := range cases(from) {
			m, err := from.codec.Decode(translators.Wire{Version: from.version, Form: from.form, Body: []byte(c.body), Re: c.re})
			if err != nil {
				t.Fatal(err)
			}
			stamp(m)
			wire, _, err := a2a.New(translators.Config{}).Encode(m, translators.Target{Version: a2a.Version03, Form: a2a.FormHTTP, Capability: c.capability})
			if err != nil {
				t.Fatal(err)
			}
			if m.Phase == canonical.PhaseError {
				continue // which is no message of the proto
			}
			checked++
			// A number beyond all doubles is sent and declared (L16), and no peer reads it.
			if err := official(bytes.ReplaceAll(wire.Body, []byte("1e400"), []byte("1e40")), m.Phase, !strings.Contains(c.body, `"later"`)); err != nil {
				t.Errorf("%s %s: %v\n%s", from.name, c.name, err, wire.Body)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d were checked", checked)
	}
	for _, wrong := range []string{`{"message":{"messageId":"m","parts":[]}}`, `{"message":{"role":"user"}}`, `{"message":{"messageId":"m","content":[{"data":{"data":[1]}}]}}`} {
		if official([]byte(wrong), canonical.PhaseRequest, true) == nil {
			t.Errorf("the proto finds nothing in %s", wrong)
		}
	}
}

func official(body []byte, phase canonical.Phase, strictly bool) error {
	var message proto.Message = &a2apb.SendMessageResponse{}
	var err error
	if phase == canonical.PhaseRequest {
		message = &a2apb.SendMessageRequest{}
		_, err = pbjson.FromProtoSendMessageRequest(body)
	} else {
		_, err = pbjson.FromProtoSendMessageResponse(body)
	}
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(body, &plain); err != nil {
		return err
	}
	renamed, err := json.Marshal(partsForContent(plain))
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: !strictly}.Unmarshal(renamed, message)
}

// partsForContent: the SDK's copy of the proto has another name for the content
// of a message than its peers on the wire, and than ours.
func partsForContent(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = partsForContent(value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = partsForContent(value[name])
		}
		if _, message := value["messageId"]; message {
			if parts, wrong := value["parts"]; wrong {
				value["not of this form"] = parts
			}
			value["parts"] = value["content"]
			delete(value, "content")
		}
	}
	return value
}
