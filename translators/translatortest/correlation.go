package translatortest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// ids that are easily taken for one another, or rounded, or escaped away.
func ids() []string {
	return []string{
		`1`, `"1"`, `0`, `-7`, `9007199254740993`, `123456789012345678901234567890`,
		`""`, `"a/b ~ \"quoted\" é"`, `"null"`,
	}
}

// Correlation: an id goes through unchanged, 1 stays a number and "1" a string,
// long integers keep every digit; a message without an id gets none; a reply
// leaves under the id in Message.Correlation.WireID. A protocol that cannot
// hold an id refuses it or declares the loss.
//
// The gateway sets ids; a codec that makes them up would pair a reply with
// another request.
func Correlation(tr translators.Translator, s Samples) []string {
	var failures []string
	for i, wire := range s.Wires {
		m, err := decode(tr, wire)
		if err != nil {
			continue
		}
		who := name("wire", i, m)
		if m.Correlation.WireID == nil {
			failures = append(failures, uninvented(tr, who, m)...)
			continue
		}
		for _, id := range ids() {
			failures = append(failures, keeps(tr, who, m, json.RawMessage(id))...)
		}
		failures = append(failures, uninvented(tr, who, m)...)
	}
	return failures
}

func keeps(tr translators.Translator, who string, m *canonical.Message, id json.RawMessage) []string {
	m = stripped(m)
	m.Correlation.WireID = id
	wire, losses, err := encode(tr, m, homeward(m, ""))
	if err != nil {
		if isCanonical(err) {
			return nil
		}
		return []string{fmt.Sprintf("%s: id %s: Encode: %v", who, id, err)}
	}
	back, err := again(tr, wire, m)
	if err != nil {
		return []string{fmt.Sprintf("%s: id %s: Decode: %v", who, id, err)}
	}
	if _, same := sameJSON(id, back.Correlation.WireID); same || len(fates(losses, "/correlation/wireid")) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: id %s became %s", who, id, orNothing(back.Correlation.WireID))}
}

// uninvented encodes m without an id. The codec may refuse; it may not make one up.
func uninvented(tr translators.Translator, who string, m *canonical.Message) []string {
	m = stripped(m)
	m.Correlation.WireID = nil
	wire, _, err := encode(tr, m, homeward(m, ""))
	if err != nil {
		return nil
	}
	back, err := again(tr, wire, m)
	if err != nil || back.Correlation.WireID == nil || string(back.Correlation.WireID) == "null" {
		return nil
	}
	return []string{fmt.Sprintf("%s: no id became %s", who, back.Correlation.WireID)}
}

func orNothing(id json.RawMessage) string {
	if strings.TrimSpace(string(id)) == "" {
		return "nothing"
	}
	return string(id)
}
