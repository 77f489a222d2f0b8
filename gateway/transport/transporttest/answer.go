// Package transporttest makes answers and passes for tests of protocols, which have no
// gateway behind them that signs and limits.
package transporttest

import (
	"cmp"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
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

// Pass is what [transport.Handler] answers to Limit: a valid Pass, unless it refuses.
func Pass(refusal error) (limit.Pass, error) {
	limiter, err := limit.New(limit.Config{}, limit.Deps{})
	if refusal != nil || err != nil || !testing.Testing() {
		return limit.Pass{}, cmp.Or(refusal, err)
	}
	return limiter.Allow("test").Pass, nil
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
