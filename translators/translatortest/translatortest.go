package translatortest

import (
	"fmt"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Samples is what a plugin brings along. The more of its protocol it shows,
// the more the laws prove.
type Samples struct {
	// Wires are valid native messages: every operation and phase that the
	// codec serves, replies with Re set.
	Wires []translators.Wire
	// Malformed are bodies that are no message of the protocol.
	Malformed [][]byte
	// Foreign are canonical messages born in another protocol. Encode says them
	// or refuses them with a *canonical.Error.
	Foreign []*canonical.Message
	// Target answers with what the gateway would have chosen for a foreign message;
	// nil: the newest version and no capability.
	Target func(*canonical.Message) translators.Target
}

func (s Samples) target(m *canonical.Message) translators.Target {
	if s.Target == nil {
		return translators.Target{}
	}
	return s.Target(m)
}

// Law is one clause of the contract.
type Law struct {
	Name    string
	Because string
	// Check answers with one line for every violation.
	Check func(translators.Translator, Samples) []string
}

// Laws lists the contract.
func Laws() []Law {
	return []Law{
		{"samples", "a contract tried on nothing is passed by everything", Sufficient},
		{"honesty", "the warnings in signed evidence are all that a reader learns about what was lost", Honesty},
		{"purity", "the hash in the evidence must be the hash of what is sent, also with concurrent translations", Purity},
		{"totality", "whatever a stranger sends, the gateway answers it and lives", Totality},
		{"identity", "a message sent home through the pivot must be the message", Identity},
		{"correlation", "a reply that cannot be paired with its request is lost", Correlation},
		{"errors", "a caller that is told success after a failure acts on it", Errors},
		{"catalogue", "policy judges losses by their code, and people find them by their place", Catalogue},
	}
}

// Run holds a translator to every law, each as a subtest of its name.
func Run(t *testing.T, tr translators.Translator, s Samples) {
	t.Helper()
	for _, law := range Laws() {
		t.Run(law.Name, func(t *testing.T) {
			t.Parallel()
			report(t, law, law.Check(tr, s))
		})
	}
}

// shown is how many failures of one law are worth reading.
const shown = 25

func report(t *testing.T, law Law, failures []string) {
	t.Helper()
	for i, failure := range failures {
		if i == shown {
			t.Errorf("and %d more", len(failures)-shown)
			break
		}
		t.Error(failure)
	}
	if len(failures) > 0 {
		t.Logf("%s: %s", law.Name, law.Because)
	}
}

// Sufficient: the samples show a request, a response and an error, something
// malformed and something foreign.
func Sufficient(tr translators.Translator, s Samples) []string {
	var failures []string
	seen := map[canonical.Phase]bool{}
	for i, wire := range s.Wires {
		m, err := decode(tr, wire)
		if err != nil {
			failures = append(failures, fmt.Sprintf("wire %d: Decode: %v", i, err))
			continue
		}
		seen[m.Phase] = true
	}
	for _, phase := range []canonical.Phase{canonical.PhaseRequest, canonical.PhaseResponse, canonical.PhaseError} {
		if !seen[phase] {
			failures = append(failures, fmt.Sprintf("no wire is a %s", phase))
		}
	}
	if len(s.Malformed) == 0 {
		failures = append(failures, "no malformed body")
	}
	if len(s.Foreign) == 0 {
		failures = append(failures, "no foreign message")
	}
	return failures
}
