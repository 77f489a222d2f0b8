package directory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxQuestions bounds how often one negotiation asks a gateway about a pair.
const maxQuestions = 64

// Offer is what one side brings to a negotiation.
type Offer struct {
	Protocols []Endpoint
	Gateways  []string // translate endpoints, preferred first
}

// Candidate is one way that was considered.
type Candidate struct {
	From, To canonical.Binding // equal: directly
	Sum      int               // of both sides' priorities
	Gateway  string            // that serves it; empty: direct, or no gateway was found
}

// Outcome is what a negotiation came to.
type Outcome struct {
	Chosen     Candidate
	Endpoint   Endpoint    // of the other side
	Candidates []Candidate // in order of preference, with the chosen one
}

// Direct reports whether both sides speak the chosen protocol.
func (o Outcome) Direct() bool { return o.Chosen.From == o.Chosen.To }

// Negotiate chooses a protocol (AEPB, Protocol Negotiation; CPAT, Negotiation
// Handshake; R8): of those that both sides speak the one with the lowest sum of
// priorities, ties by id; else the pair with the lowest sum that a gateway of
// either side serves, ties by our id, then theirs. False: there is no path.
func Negotiate(ours, theirs Offer, serves func(gateway string, from, to canonical.Binding) bool) (Outcome, bool) {
	if direct := candidates(ours, theirs, true); len(direct) > 0 {
		return outcome(direct[0], direct, theirs), true
	}
	pairs := candidates(ours, theirs, false)
	gateways := append(slices.Clone(ours.Gateways), theirs.Gateways...)
	slices.Sort(gateways[len(ours.Gateways):])
	questions := 0
	for i, pair := range pairs {
		for _, gateway := range gateways {
			if questions++; questions > maxQuestions {
				return Outcome{Candidates: pairs}, false
			}
			if serves(gateway, pair.From, pair.To) {
				pairs[i].Gateway = gateway
				return outcome(pairs[i], pairs, theirs), true
			}
		}
	}
	return Outcome{Candidates: pairs}, false
}

func outcome(chosen Candidate, all []Candidate, theirs Offer) Outcome {
	i := slices.IndexFunc(theirs.Protocols, func(e Endpoint) bool { return e.Binding == chosen.To })
	return Outcome{Chosen: chosen, Endpoint: theirs.Protocols[i], Candidates: all}
}

func candidates(ours, theirs Offer, direct bool) []Candidate {
	var out []Candidate
	for _, a := range ours.Protocols {
		for _, b := range theirs.Protocols {
			if (a.Binding == b.Binding) == direct {
				out = append(out, Candidate{From: a.Binding, To: b.Binding, Sum: a.Rank() + b.Rank()})
			}
		}
	}
	slices.SortFunc(out, func(x, y Candidate) int {
		return cmp.Or(cmp.Compare(x.Sum, y.Sum), strings.Compare(string(x.From), string(y.From)), strings.Compare(string(x.To), string(y.To)))
	})
	return out
}
