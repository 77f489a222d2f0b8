package canonical

import "strings"

// The signals about a workflow that every binding can carry (AEPB, Checkpoint
// and Rollback Signal Carriage; HITL Callback Registration).
const (
	OpRollback Op = "rollback" // undo what a checkpoint stands for; the agent answers with what became of it
	OpDecision Op = "decision" // a human has decided; the receiver acknowledges it
)

// Signal is a message that says nothing but a token:
//
//	OpRollback  request   atd:rollback_request, whose parent is the checkpoint
//	            response  atd:rollback_result, whose parent is the request
//	OpDecision  request   hitl:approval_granted or hitl:approval_denied
//
// The token of a request is evidence as well: the transport that receives the message
// submits it with the rest (transport.Submitted).
type Signal struct {
	Token      string // compact JWS
	Approval   string // OpDecision: what was decided about, as its protocol names it
	Extensions Extensions
}

// IsToken reports whether a text looks like a compact JWS. Whether it is one shows later.
func IsToken(text string) bool {
	return strings.Count(text, ".") == 2 && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}
