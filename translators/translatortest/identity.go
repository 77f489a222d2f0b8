package translatortest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Identity: a valid message of the protocol, decoded and encoded in the same
// protocol and version, is the same JSON value with every number digit for
// digit, loses nothing on the way, and reads the same again.
//
// The verbatim body is taken away first: an encoder that answers with it would
// be right for the wrong reason and wrong as soon as the gateway stamps anything.
func Identity(tr translators.Translator, s Samples) []string {
	var failures []string
	for i, wire := range s.Wires {
		for _, failure := range identical(tr, wire) {
			failures = append(failures, fmt.Sprintf("wire %d: %s", i, failure))
		}
	}
	return failures
}

func identical(tr translators.Translator, wire translators.Wire) []string {
	m, err := decode(tr, wire)
	if err != nil {
		return []string{fmt.Sprintf("Decode: %v", err)}
	}
	home, losses, err := encode(tr, stripped(m), homeward(m, wire.Form))
	if err != nil {
		return []string{fmt.Sprintf("Encode: %v", err)}
	}
	var failures []string
	for _, loss := range append(m.Losses, losses...) {
		failures = append(failures, fmt.Sprintf("a loss on the way home: %s", loss))
	}
	if what, same := sameBody(wire.Body, home.Body); !same {
		failures = append(failures, "the body differs: "+what)
	}
	if wire.Verb != "" && (wire.Verb != home.Verb || wire.Path != home.Path) {
		failures = append(failures, fmt.Sprintf("%s %s went to %s %s", wire.Verb, wire.Path, home.Verb, home.Path))
	}
	if home.Event != (m.Phase == canonical.PhaseEvent) {
		failures = append(failures, "an event came home as none, or another message as one")
	}
	back, err := again(tr, home, m)
	if err != nil {
		return append(failures, fmt.Sprintf("Decode of what came home: %v", err))
	}
	for _, l := range difference(leaves(m), leaves(back)) {
		failures = append(failures, fmt.Sprintf("%s is not read again: %q", l.path, clip(l.value)))
	}
	for _, l := range difference(leaves(back), leaves(m)) {
		failures = append(failures, fmt.Sprintf("%s was not there before: %q", l.path, clip(l.value)))
	}
	return failures
}

// homeward is the target for a message that returns to where it came from: its
// own view is native there, so no capability has to be chosen.
func homeward(m *canonical.Message, form string) translators.Target {
	return translators.Target{Version: m.Origin.Version, Form: form}
}

func stripped(m *canonical.Message) *canonical.Message {
	out := clone(m)
	out.Origin.Raw = nil
	return out
}

// sameBody compares as JSON values where both are JSON, else as bytes.
func sameBody(a, b []byte) (string, bool) {
	if json.Valid(a) && json.Valid(b) {
		return sameJSON(a, b)
	}
	return fmt.Sprintf("%d bytes became %d", len(a), len(b)), bytes.Equal(a, b)
}
