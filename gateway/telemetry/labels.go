package telemetry

import (
	"errors"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	other = "other" // every value that is on no list
	none  = "none"  // no value at all: translate only has no agent, a broken request no protocol
)

// The listeners for HTTP and gRPC; others are named by their protocols.
const (
	ListenerPublic = "public"
	ListenerAdmin  = "admin"
	ListenerGRPC   = "grpc"
)

// maxAgents bounds the agent label. Agents are listed by operators, but each
// costs a histogram; those beyond share one.
const maxAgents = 512

// set is a list of label values.
type set map[string]bool

func setOf[S ~string](values ...S) set {
	out := make(set, len(values))
	for _, v := range values {
		out[string(v)] = true
	}
	return out
}

func (s set) label(value string) string {
	switch {
	case s[value]:
		return value
	case value == "":
		return none
	default:
		return other
	}
}

// The closed sets.
var (
	stages  = setOf(StageSend, StageTotal)
	results = setOf(append(problem.Codes(), resultOK)...)
	fates   = setOf(canonical.Carried, canonical.Dropped)
	acts    = setOf(ect.ActTranslate, ect.ActTranslateError, ect.ActCPATTranslate, ect.ActNegotiate, ect.ActCircuitOpen, ect.ActCircuitClose, ect.ActEscalate, ect.ActLifecycleChange, ect.ActShutdown,
		ect.ActConsensusPropose, ect.ActConsensusVote, ect.ActConsensusCommit)
	circuit = setOf(circuitStates...)
	alarms  = setOf(breaker.ReasonProbes, breaker.ReasonCoordinated, breaker.ReasonManyAgents)
	queries = setOf("served", "unserved", "failed")
	scopes  = setOf(limit.Scopes()...)
	kinds   = setOf("bare", "full")
	faults  = setOf(problem.Reasons()...)
	// What has a bound: state, entries by their kinds, and what callers hold of the process.
	used = setOf(
		"memory", "tokens", "replays", "answers", "conversations", "entries", "lasting_entries",
		"entries_task", "entries_mail", "entries_question", "entries_halt", "entries_runner", "entries_push", "entries_callback",
		"entries_decided", "entries_undone", "entries_shelf", "entries_watched", "entries_ended", "entries_pin", "entries_session",
		"requests", "streams", "in_flight", "background", "connections", "uacp_connections", "ainp_sockets", "programs",
	)
	// Why requests are refused.
	refused = setOf(
		"unauthenticated", "forbidden", "rate_limited", "unavailable",
		"tls_version", "tls_certificate", "tls_plain", "tls_closed", "tls_other",
	)
	rules   = setOf(policy.AllConstraints()...)
	reasons = setOf(
		resultOK, resultRefused, resultMalformed, resultTooLarge, resultRepeated,
		ect.ReasonLevelTooLow, ect.ReasonWrongType, ect.ReasonUnsupportedAlg, ect.ReasonUnsupportedCritical,
		ect.ReasonUnknownKey, ect.ReasonKeyNotTrusted, ect.ReasonInvalidSignature, ect.ReasonMissingClaim,
		ect.ReasonConflictingParents, ect.ReasonConflictingExt, ect.ReasonInvalidClaim, ect.ReasonIssuerMismatch,
		ect.ReasonAudienceMismatch, ect.ReasonExpired, ect.ReasonIssuedInFuture, ect.ReasonTooOld,
		ect.ReasonLifetimeTooLong, ect.ReasonHashMismatch, ect.ReasonReplay,
		ect.ReasonGraphDuplicate, ect.ReasonGraphParent, ect.ReasonGraphTime, ect.ReasonGraphWorkflow, ect.ReasonGraphCycle, ect.ReasonGraphLimit,
	)
)

const (
	resultOK        = "ok"
	resultRefused   = "refused"
	resultMalformed = "malformed"
	resultTooLarge  = "too_large"
	resultRepeated  = "repeated"
)

func lossLabel(code string) string {
	if _, ok := canonical.Lookup(canonical.LossCode(code)); ok {
		return code
	}
	return other
}

func levelLabel(level ect.Level) string {
	names := [...]string{none, "L1", "L2", "L3"}
	if level < 0 || int(level) >= len(names) {
		return other
	}
	return names[level]
}

// VerifyResult is the result label for what verification answered.
func VerifyResult(err error) string {
	if err == nil { // before there is anything to allocate
		return resultOK
	}
	var invalid *ect.InvalidError
	switch {
	case errors.As(err, &invalid):
		return string(invalid.Reason)
	case errors.As(err, new(*ect.MalformedError)):
		return resultMalformed
	case errors.As(err, new(*ect.TooLargeError)):
		return resultTooLarge
	case errors.As(err, new(*ect.ReplayedError)):
		return resultRepeated
	default:
		return other
	}
}

// firstSeen lets the first so many values be labels.
type firstSeen struct {
	max   int
	mu    sync.RWMutex
	known []string // sorted
}

func (f *firstSeen) label(value string) string {
	if value == "" {
		return none
	}
	f.mu.RLock()
	_, ok := slices.BinarySearch(f.known, value)
	f.mu.RUnlock()
	if ok {
		return value
	}
	return f.add(value)
}

func (f *firstSeen) add(value string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := slices.BinarySearch(f.known, value)
	switch {
	case ok:
		return value
	case len(f.known) >= f.max || !utf8.ValidString(value):
		return other
	}
	f.known = slices.Insert(f.known, at, value)
	return value
}
