package ect

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Bounds of what we put into ext, so that evidence stays a token and does not
// become a message.
const (
	MaxExtSize   = 4096 // bytes of the ext object as serialised (ECT draft -01)
	MaxExtDepth  = 5    // levels of nesting, the ext object itself being the first
	MaxTextSize  = 512  // bytes of one free text, see Ext.SetText
	WarningsSize = 2048 // bytes of aepb.translation_warnings, see Warnings
	ListSize     = 3000 // bytes of any other list, see Ext.SetList
)

// The extension keys of AEPB, "Translation ECT" and "Translation Error ECT".
const (
	ExtSourceProtocol  = "aepb.source_protocol"
	ExtDestProtocol    = "aepb.dest_protocol"
	ExtGatewayID       = "aepb.gateway_id"
	ExtWarnings        = "aepb.translation_warnings"
	ExtWarningsOmitted = ExtWarnings + suffixOmitted
	ExtWarningsHash    = ExtWarnings + suffixHash
	ExtError           = "aepb.error"
	ExtDescription     = "aepb.description"
	ExtAgentVersion    = "aepb.agent_version"
)

// The extension keys of AEPB, "Lifecycle State Transitions", beside ExtReason, which says why.
const (
	ExtAgentID   = "aepb.agent_id"
	ExtFromState = "aepb.from_state"
	ExtToState   = "aepb.to_state"
)

// Extension keys of our own, in the same name space.
const (
	ExtLeg              = "aepb.leg"                // "request" or "reply"; absent means request
	ExtCaller           = "aepb.caller"             // the authenticated caller
	ExtClient           = "aepb.client"             // client_id of the access token that the caller showed
	ExtActor            = "aepb.actor"              // sub of act in it: who acts for the caller (RFC 8693 section 4.1)
	ExtUnboundEvidence  = "aepb.unbound_evidence"   // jtis of tokens that came with a reply and do not testify to it (R4)
	ExtSourceUnattested = "aepb.source_unattested"  // true: the caller sent no ECT
	ExtStream           = "aepb.stream"             // "open" or "close": the reply is a stream; absent: it is one message
	ExtEvents           = "aepb.events"             // with "close": how many messages the hashes cover, [in, out]
	ExtOneWay           = "aepb.one_way"            // true: of a request to which there is no reply
	ExtRollback         = "aepb.rollback"           // of the request for a step: the request that the whole rollback follows
	ExtUnfinished       = "aepb.unfinished"         // true: of a reply that is a task which has not ended
	ExtHashForm         = "aepb.hash_form"          // how the hashes were taken, where it is not the whole body
	ExtCandidates       = "aepb.candidates"         // of a negotiation: the protocols to choose from
	ExtReason           = "aepb.reason"             // of a negotiation: why this one; of a lifecycle change: why
	ExtUpstreamReason   = "aepb.upstream_reason"    // of a failure: why the agent failed, without what its network would show
	ExtRule             = "aepb.rule"               // of a failure: the operator's rule that does not offer what was called
	ExtForced           = "aepb.forced"             // true: a lifecycle change that cut the 24 hours of notice short
	ExtInstance         = "aepb.instance"           // of a shutdown: the process that ended
	ExtRefusal          = "aepb.refusal"            // of sampled refusals: the code of all of them
	ExtRefusals         = "aepb.refusals"           // how many there were since the last such token for this source
	ExtRefusedSince     = "aepb.refused_since"      // NumericDate of the first of them
	ExtWork             = "aepb.work"               // of an intent: the tool or skill that its caller wants, at most 128 bytes
	ExtWorkAgent        = "aepb.work_agent"         // of an intent: the identity of the agent that is to do it, or its name in audiences
	ExtPlanVersion      = "aepb.descriptor_version" // of a start: which version of atd.descriptor the workflow follows
	ExtPlanHash         = "aepb.descriptor_hash"    // of a start: SHA-256 of that version
)

// Extension keys of our own, of decisions that the gateway signs for approvers, and of calls that they approved.
const (
	ExtApproval      = "aepb.approval"       // the approval
	ExtApprovalState = "aepb.approval_state" // how it stands since then
	ExtApprovalRules = "aepb.approval_rules" // hash of the rules that demanded it
	ExtApprovalShown = "aepb.approval_shown" // hash of the text that the approver was shown
	ExtApprover      = "aepb.approver"       // who decided: a SPIFFE id, else a name in the operator's directory
	ExtCallDigest    = "aepb.call_digest"    // hash of what the call says
)

// The extension keys of CPAT, which its endpoint writes instead of AEPB's.
const (
	ExtCPATSourceProtocol = "cpat.source_protocol"
	ExtCPATDestProtocol   = "cpat.dest_protocol"
	ExtCPATGatewayID      = "cpat.gateway_id"
	ExtCPATWarnings       = "cpat.translation_warnings"
)

// The extension keys of ATD, "Circuit Breaker Pattern".
const (
	ExtEscalation      = "atd.escalation"       // of atd:escalate: why, in one word (our own)
	ExtDownstreamAgent = "atd.downstream_agent" // whom the breaker stands before
	ExtErrorRate       = "atd.error_rate"       // of atd:circuit_open: a fraction of 1
	ExtWindow          = "atd.window_s"         // of atd:circuit_open: seconds
	ExtCooldown        = "atd.cooldown_s"       // of atd:circuit_close: seconds
)

// The extension keys of ATD for workflows, checkpoints, errors and rollbacks.
const (
	ExtWorkflowID     = "atd.wf_id"           // of a start and a completion: the workflow (R27)
	ExtDescriptor     = "atd.descriptor"      // of a start: wf_id of the descriptor that the workflow follows (R27)
	ExtATDDescription = "atd.description"     // of a start, or an error
	ExtNodeCount      = "atd.node_count"      // of a start: how many steps it expects
	ExtElapsed        = "atd.elapsed_s"       // of a completion: seconds since the start
	ExtUpstreamErrors = "atd.upstream_errors" // of an error: the ids of the errors that caused it
	ExtTerminalStatus = "atd.terminal_status" // of a completion: how the workflow ended
	ExtSeverity       = "atd.severity"        // of an error
	ExtErrorType      = "atd.error_type"      // of an error
	ExtCheckpointID   = "atd.checkpoint_id"   // of an error and a rollback result: the checkpoint
	ExtReversible     = "atd.reversible"      // of a checkpoint: true if the action can be undone
	ExtRollbackURI    = "atd.rollback_uri"    // of a checkpoint: where a rollback to it is requested
	ExtTTL            = "atd.ttl"             // of a checkpoint: seconds for which it is stored
	ExtTarget         = "atd.target"          // of a checkpoint: what is changed
	ExtATDReason      = "atd.reason"          // of a rollback request
	ExtCascade        = "atd.cascade"         // of a rollback request: what depends on it is undone, too
	ExtStatus         = "atd.status"          // of a rollback result
	ExtCascaded       = "atd.cascaded"        // of a rollback result: the status of each agent
)

// ExtPriority is the class in which a task waits for its agent (ATD, Priority Levels).
const ExtPriority = "atd.resource_priority"

// The extension keys of consensus rounds (draft-nennemann-agent-consensus-00, "Consensus Evidence in ECT Nodes").
const (
	ExtProposal         = "consensus.proposal_id"
	ExtProposer         = "consensus.proposer"
	ExtRound            = "consensus.round_id"
	ExtSubject          = "consensus.subject"   // of a proposal: its summary
	ExtMechanism        = "consensus.mechanism" // of a proposal
	ExtWeights          = "consensus.weights_hash"
	ExtRules            = "consensus.rules_hash"
	ExtVoter            = "consensus.voter"
	ExtDecision         = "consensus.decision"
	ExtRationale        = "consensus.rationale"
	ExtOutcome          = "consensus.outcome" // commit or abort
	ExtOutcomeReason    = "consensus.reason"
	ExtTally            = "consensus.tally"
	ExtOutcomeSignature = "consensus.signature" // of an outcome: the last part of the signed outcome
	ExtAnomalies        = "consensus.anomalies" // patterns of votes that may come of collusion
)

const (
	suffixOmitted = "_omitted"
	suffixHash    = "_hash"
)

// String reads a string; false if there is none.
func (e Ext) String(key string) (string, bool) { return jose.Unquote(e[key]) }

// Bool reads a boolean; false, false if there is none.
func (e Ext) Bool(key string) (value, ok bool) {
	switch string(e[key]) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// Strings reads an array of strings; false if there is none.
func (e Ext) Strings(key string) ([]string, bool) {
	return jose.UnquoteAll[string](&jose.Scanner{}, e[key])
}

// SetString writes a string as it is.
func (e Ext) SetString(key, value string) { e[key] = jose.Quote(nil, value) }

// SetText writes free text: control characters become spaces, and what exceeds
// MaxTextSize bytes is cut at a character.
func (e Ext) SetText(key, value string) {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, value)
	if len(clean) > MaxTextSize {
		cut := MaxTextSize
		for !utf8.RuneStart(clean[cut]) {
			cut--
		}
		clean = clean[:cut]
	}
	e.SetString(key, clean)
}

// SetBool writes a boolean.
func (e Ext) SetBool(key string, value bool) { e[key] = strconv.AppendBool(nil, value) }

// SetInt writes an integer.
func (e Ext) SetInt(key string, value int64) { e[key] = strconv.AppendInt(nil, value, 10) }

// SetThousandths writes a number of thousandths as a decimal without zeros at its end,
// exactly: 750 is 0.75, 60000 is 60.
func (e Ext) SetThousandths(key string, value int64) {
	var sign []byte
	size := uint64(value) //nolint:gosec // two's complement: the next line makes it the absolute value
	if value < 0 {
		sign, size = []byte{'-'}, -size
	}
	text := strconv.AppendUint(sign, size/1000, 10)
	if rest := size % 1000; rest > 0 {
		digits := strconv.AppendUint(nil, 1000+rest, 10) // the 1 keeps the zeros before them
		digits[0] = '.'
		text = append(text, bytes.TrimRight(digits, "0")...)
	}
	e[key] = text
}

// SetList writes as much of a list as fits limit bytes (0: ListSize), and, if
// something is left out, key_omitted with the count and key_hash over the whole.
func (e Ext) SetList(key string, list []string, limit int) {
	if limit <= 0 {
		limit = ListSize
	}
	size := len("[]")
	for _, entry := range list {
		size += len(entry) + len(`"",`)
	}
	text := append(make([]byte, 0, min(size, limit)), '[')
	for i, entry := range list {
		fitting := len(text)
		if i > 0 {
			text = append(text, ',')
		}
		if text = jose.Quote(text, entry); len(text)+len("]") > limit {
			text = text[:fitting]
			e.SetInt(key+suffixOmitted, int64(len(list)-i))
			e.SetString(key+suffixHash, Hash(jose.QuoteAll(nil, list)))
			break
		}
	}
	e[key] = append(text, ']')
}

// SetWarnings writes aepb.translation_warnings: an empty array for a lossless
// translation, and never more than WarningsSize bytes.
func (e Ext) SetWarnings(list []string) { e.SetList(ExtWarnings, list, WarningsSize) }

// appendTo serialises the object with its keys in order, so that equal
// extensions have equal bytes.
func (e Ext) appendTo(dst []byte) []byte {
	var space [16]string
	keys, size := space[:0], len("{}")
	for key, value := range e {
		keys = append(keys, key)
		size += len(key) + len(value) + len(`"":,`)
	}
	slices.Sort(keys)
	dst = append(slices.Grow(dst, size), '{')
	for i, key := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jose.Quote(dst, key), ':')
		dst = append(dst, e[key]...)
	}
	return append(dst, '}')
}
