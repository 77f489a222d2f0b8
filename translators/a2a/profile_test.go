package a2a

import (
	"encoding/json"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// profileVector is one of the published vectors of the community that uses the
// same shape as profile P2.
type profileVector struct {
	ID       string          `json:"id"`
	Valid    bool            `json:"valid"`
	Error    string          `json:"expected_error"`
	Message  json.RawMessage `json:"message"`
	Response json.RawMessage `json:"response"`
	Card     json.RawMessage `json:"agent_card"`
}

// notOurs are negative vectors about that community's own words inside a message
// that is well formed, and about who asked for its extension. A codec carries
// what it does not know, so it must come home unchanged.
var notOurs = map[string]string{
	"extension_not_activated":                    "the activation stands in a header field, and our profile needs none",
	"submitted_handler_return_not_a2a_completed": "the state of a task is its agent's to say",
	"adcp_task_id_metadata_duplication":          "metadata is carried unread",
}

// TestProfile_VectorsOfP2 holds profile P2 to all of them.
func TestProfile_VectorsOfP2(t *testing.T) {
	t.Parallel()
	data := published(t, "adcp", "a2a-profile-extension-v3.json")
	if data == nil {
		return
	}
	var set struct {
		Invocations []profileVector `json:"invocation_vectors"`
		Responses   []profileVector `json:"response_vectors"`
		Cards       []profileVector `json:"advertisement_vectors"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	tr := New(translators.Config{})
	positive, negative, carried := 0, 0, 0
	hold := func(vectors []profileVector, judge func(*testing.T, *Translator, profileVector)) {
		for _, v := range vectors {
			switch {
			case v.Valid:
				positive++
			case notOurs[v.Error] != "":
				carried++
			default:
				negative++
			}
			t.Run(v.ID, func(t *testing.T) { judge(t, tr, v) })
		}
	}
	hold(set.Invocations, invocationVector)
	hold(set.Responses, responseVector)
	hold(set.Cards, cardVector)
	t.Logf("typed-profile: %d positive, %d negative; %d more negative ones are about what a codec carries unread", positive, negative, carried)
	if positive != 7 || negative != 8 || carried != 3 {
		t.Errorf("%d, %d and %d vectors", positive, negative, carried)
	}
}

func invocationVector(t *testing.T, tr *Translator, v profileVector) {
	t.Helper()
	params := rawjson.NewBuilder().Raw("message", v.Message).Bytes()
	body := rawjson.NewBuilder().String("jsonrpc", "2.0").String("id", "1").String("method", methodSend).Raw("params", params).Bytes()
	m, err := tr.Decode(translators.Wire{Body: body})
	if v.Error == "invalid_a2a_message" {
		if err == nil {
			t.Error("accepted")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	typed := v.Valid || notOurs[v.Error] != "" // the others are messages, but no typed invocations
	if got := m.Body.(*canonical.Invoke).Call != nil; got != typed {
		t.Errorf("typed invocation %v", got)
	}
	roundTrip(t, tr, translators.Wire{Body: body})
}

func responseVector(t *testing.T, tr *Translator, v profileVector) {
	t.Helper()
	wire := translators.Wire{Re: canonical.OpInvoke, Body: rawjson.NewBuilder().String("jsonrpc", "2.0").String("id", "1").Raw("result", v.Response).Bytes()}
	if v.Valid || notOurs[v.Error] != "" {
		roundTrip(t, tr, wire)
	} else if _, err := tr.Decode(wire); err == nil {
		t.Error("accepted")
	}
}

// cardVector: the cards that are wrong are also incomplete. Whole, they must not
// be taken for cards that offer the extension or the skill.
func cardVector(t *testing.T, tr *Translator, v profileVector) {
	t.Helper()
	if v.Valid {
		roundTrip(t, tr, translators.Wire{Body: v.Card, Re: canonical.OpDescribe})
		return
	}
	if _, err := tr.Decode(translators.Wire{Body: v.Card, Re: canonical.OpDescribe}); err == nil {
		t.Error("accepted")
	}
	whole := rawjson.NewBuilder().Merge(v.Card).String("name", "n").String("description", "d").String("version", "1").
		Array("supportedInterfaces", []json.RawMessage{[]byte(`{"url":"https://a.example","protocolBinding":"JSONRPC","protocolVersion":"1.0"}`)}).Bytes()
	m, err := tr.Decode(translators.Wire{Body: whole, Re: canonical.OpDescribe})
	if err != nil {
		return
	}
	for _, c := range m.Body.(*canonical.Description).Capabilities {
		if c.ID == "get_adcp_capabilities" {
			t.Error("the skill's name was taken for its id")
		}
	}
}
