// Package transporttest makes answers for tests of protocols, which have no gateway behind
// them that signs.
package transporttest

import (
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
)

// Answer is an answer with a message and tokens.
func Answer(wire translators.Wire, evidence ...string) transport.Answer {
	return vouched(wire, nil, evidence)
}

// Stream is an answer with a stream and tokens.
func Stream(events transport.Events, evidence ...string) transport.Answer {
	return vouched(translators.Wire{}, events, evidence)
}

// vouched is an empty answer outside of tests.
func vouched(wire translators.Wire, events transport.Events, evidence []string) transport.Answer {
	if !testing.Testing() {
		return transport.Answer{}
	}
	a := transport.Vouch(wire, events)
	a.Evidence = evidence
	return a
}
