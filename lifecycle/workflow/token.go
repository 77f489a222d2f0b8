package workflow

import (
	"cmp"
	"strconv"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

// Token is what the states of steps depend on in a token, and what a report shows of it.
// Texts are as the token has them; a claim that is absent or of a wrong type is empty.
type Token struct {
	Node           dag.Node
	Audience       []string
	Caller         ect.Identity // aepb.caller
	Stream         string       // aepb.stream: "open", "close" or empty; of a reply that is a task which has not ended "task"
	Error          string       // aepb.error
	Losses         []string     // aepb.translation_warnings or cpat.translation_warnings
	Severity       string       // atd.severity
	ErrorType      string       // atd.error_type
	Checkpoint     ect.ID       // atd.checkpoint_id
	Reversible     bool         // atd.reversible
	Status         string       // atd.status
	TerminalStatus string       // atd.terminal_status
	Description    string       // atd.description or aepb.description
	NodeCount      int          // atd.node_count; 0: it is absent, or no count
	Protocols      Protocols
	Work           Work
}

// Protocols are those of a translation: aepb.source_protocol and aepb.dest_protocol.
type Protocols struct{ From, To string }

// Work is what an intent wants: aepb.work and aepb.work_agent.
type Work struct{ Name, Agent string }

// TokenOf reads a token that was verified, or that is on record.
func TokenOf(c ect.Claims) Token {
	text := func(key string) string {
		value, _ := c.Ext.String(key)
		return value
	}
	t := Token{
		Node: dag.NodeOfClaims(c), Audience: c.Audience,
		Caller: ect.Identity(text(ect.ExtCaller)), Stream: text(ect.ExtStream), Error: text(ect.ExtError),
		Severity: text(ect.ExtSeverity), ErrorType: text(ect.ExtErrorType), Checkpoint: ect.ID(text(ect.ExtCheckpointID)),
		Status: text(ect.ExtStatus), TerminalStatus: text(ect.ExtTerminalStatus),
		Work: Work{text(ect.ExtWork), text(ect.ExtWorkAgent)},
	}
	t.Reversible, _ = c.Ext.Bool(ect.ExtReversible)
	if unfinished, _ := c.Ext.Bool(ect.ExtUnfinished); unfinished {
		t.Stream = "task"
	}
	t.Description = cmp.Or(text(ect.ExtATDDescription), text(ect.ExtDescription))
	t.Protocols.From, t.Protocols.To = cmp.Or(text(ect.ExtSourceProtocol), text(ect.ExtCPATSourceProtocol)), cmp.Or(text(ect.ExtDestProtocol), text(ect.ExtCPATDestProtocol))
	if n, err := strconv.Atoi(string(c.Ext[ect.ExtNodeCount])); err == nil {
		t.NodeCount = max(n, 0)
	}
	for _, key := range [...]string{ect.ExtWarnings, ect.ExtCPATWarnings} {
		if list, there := c.Ext.Strings(key); there {
			t.Losses = list
		}
	}
	return t
}

// isTask reports whether an act is that of a task node (R26).
func isTask(act ect.Act) bool { return !act.Namespaced() }

// isSignal reports whether an act is about earlier work and does not continue it.
func isSignal(act ect.Act) bool {
	switch act {
	case ect.ActRollbackRequest, ect.ActRollbackResult, ect.ActApprovalGranted, ect.ActApprovalDenied:
		return true
	default:
		return false
	}
}

// isRequest reports whether a token is that of a request that was translated.
func (t *Token) isRequest() bool { return t.Node.Act.Translation() && t.Node.Leg == dag.Request }

// mild reports whether an error says that it stops nothing: its severity is info or warning.
func (t *Token) mild() bool {
	return t.Severity == severities[SeverityInfo] || t.Severity == severities[SeverityWarning]
}

// isCompletion reports whether a token says that a message was answered: it is that of the reply
// of a unary exchange, or the one that closes a stream.
func (t *Token) isCompletion() bool {
	return t.Node.Act.Translation() && t.Node.Leg == dag.Reply && (t.Stream == "" || t.Stream == "close")
}
