package translatortest

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Errors: every canonical code becomes a native error, comes back as an error
// with the same code, or with another one and the loss L37 declared, and its
// text comes back or is declared.
//
// Foreign numbers are never copied across protocols, so each codec has a table
// of its own, and a hole in a table shows only when the rare code happens.
func Errors(tr translators.Translator, s Samples) []string {
	var failures []string
	for _, code := range canonical.Codes() {
		m := &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseError,
			Correlation: canonical.Correlation{WireID: json.RawMessage(`"e1"`)},
			Body:        &canonical.Error{Code: code, Message: "what went wrong"},
		}
		for _, failure := range failing(tr, s, m) {
			failures = append(failures, fmt.Sprintf("code %s: %s", code, failure))
		}
	}
	return failures
}

func failing(tr translators.Translator, s Samples, m *canonical.Message) []string {
	wire, losses, err := encode(tr, m, s.target(m))
	if err != nil {
		return []string{fmt.Sprintf("Encode: %v", err)}
	}
	back, err := again(tr, wire, m)
	if err != nil {
		return []string{fmt.Sprintf("Decode: %v", err)}
	}
	want := m.Body.(*canonical.Error)
	got, ok := back.Body.(*canonical.Error)
	if back.Phase != canonical.PhaseError || !ok {
		return []string{fmt.Sprintf("came back as a %s with a %T", back.Phase, back.Body)}
	}
	var failures []string
	coarser := slices.ContainsFunc(losses, func(l canonical.Loss) bool { return l.Code == canonical.LossErrorCode })
	if got.Code != want.Code && !coarser {
		failures = append(failures, fmt.Sprintf("came back as %s, and %s is not declared", got.Code, canonical.LossErrorCode))
	}
	if got.Message != want.Message && len(fates(losses, "/body/message")) == 0 {
		failures = append(failures, fmt.Sprintf("its text came back as %q, undeclared", clip(got.Message)))
	}
	return failures
}
