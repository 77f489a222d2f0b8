package policy

import (
	"fmt"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

// Request is everything that a decision depends on.
type Request struct {
	Caller    ect.Identity // who was authenticated by the transport; anonymous callers have an id of their own
	Anonymous bool         // the caller showed no credentials (R3: dev, native endpoints only)
	Native    bool         // the message came through a native endpoint, not the translate endpoint

	Agent string // directory name of the destination; empty: translate only
	// Operation is what is asked of the agent ("invoke"), the word after # in
	// Rules.Callers. Empty: not known yet; the holder of the permit calls
	// [Permit.Perform] once it is.
	Operation string
	Rules     Rules
	Gateways  []ect.Identity // peers that may carry other parties' ECTs (R2), as ids or prefixes

	Source, Dest string // binding ids; an empty one is not judged

	// SourceLevel and DestLevel are what the agents at both ends declare as
	// their ect_assurance_level (CPAT, Protocol Capability Advertisement); 0:
	// nothing. Ours is the higher of them and at least L2.
	SourceLevel, DestLevel ect.Level

	Evidence []ect.Verified // the source ECTs (R4)
	Path     dag.Path       // the translation path of the evidence (R1)
	Ancestry dag.Path       // every translation among the ancestors; read only under ScopeAncestry
	Self     ect.Identity   // our own identity

	Constraints Constraints
}

// Evaluate judges a request. Its errors are *[Forbidden], *[Denied],
// *[LevelError], *ect.InvalidError and errors that match ect.ErrRequired.
//
// The order: callers, ECT required, the ECT's issuer, its constraints, level,
// protocols, hops, loop.
func Evaluate(r Request) (Permit, error) {
	for _, question := range []func(Request) error{callerMayCall, evidenceSuffices, issuerIsCaller} {
		if err := question(r); err != nil {
			return Permit{}, err
		}
	}
	var err error
	if r.Constraints, err = narrowed(r); err != nil {
		return Permit{}, err
	}
	for _, question := range []func(Request) error{levelSuffices, protocolsAllowed, pathAllowed} {
		if err := question(r); err != nil {
			return Permit{}, err
		}
	}
	return mint(r), nil
}

// evidenceSuffices checks that there is an ECT: for translate endpoints always, for native ones
// where the rules say so (R3) or policy sets a level for what callers bring. The level
// that an agent declares is no such rule: the gateway's own root is L2, and meets it. A
// verifier has refused unsigned translations before (R16; AEPB, Gateway Requirements item 7).
func evidenceSuffices(r Request) error {
	if len(r.Evidence) == 0 && (!r.Native || r.Rules.needsECT() || r.Constraints.MinLevel > 0) {
		return fmt.Errorf("policy: message without evidence: %w", ect.ErrRequired)
	}
	return nil
}

// issuerIsCaller checks that the newest ECT is the caller's own, so that no caller
// uses evidence that was given to another; only peer gateways may
// carry other parties' ECTs (R2). Dates have whole seconds: of several that
// are newest one suffices, since a caller can always make one now.
func issuerIsCaller(r Request) error {
	if len(r.Evidence) == 0 || (!r.Anonymous && Listed(r.Gateways, r.Caller)) {
		return nil
	}
	var newest ect.Verified
	own := false
	for i, v := range r.Evidence {
		if i == 0 || v.IssuedAt() > newest.IssuedAt() {
			newest, own = v, false
		}
		if v.IssuedAt() == newest.IssuedAt() {
			own = own || (v.Issuer() == r.Caller && !r.Anonymous)
		}
	}
	if own {
		return nil
	}
	return &ect.InvalidError{Reason: ect.ReasonIssuerMismatch, ID: newest.ID(), Claim: "iss"}
}

// Highest is the highest level of which this gateway can sign evidence.
const Highest = ect.L2

// levelSuffices checks two levels: the gateway can sign at the higher of both agents' levels,
// and the sender's evidence has at least the level that the destination demands of
// its callers (CPAT, Protocol Capability Advertisement and Assurance Level
// Inheritance).
func levelSuffices(r Request) error {
	if level := required(r); level > Highest {
		return &LevelError{Required: level}
	}
	for _, v := range r.Evidence {
		if v.Level() < max(r.DestLevel, r.Constraints.MinLevel) {
			return &ect.InvalidError{Reason: ect.ReasonLevelTooLow, ID: v.ID()}
		}
	}
	return nil
}

// required is the level of our evidence. Translations are never below L2 (AEPB,
// Gateway Requirements item 7).
func required(r Request) ect.Level { return max(ect.L2, r.SourceLevel, r.DestLevel) }

// protocolsAllowed judges aepb.allowed_source_protocols and
// aepb.allowed_dest_protocols (AEPB, Translation Policy; CPAT likewise).
func protocolsAllowed(r Request) error {
	c := r.Constraints
	if r.Source != "" && c.RestrictSource && !slices.Contains(c.AllowedSource, r.Source) {
		return &Denied{Constraint: ConstraintSourceProtocols}
	}
	if r.Dest != "" && c.RestrictDest && !slices.Contains(c.AllowedDest, r.Dest) {
		return &Denied{Constraint: ConstraintDestProtocols}
	}
	return nil
}
