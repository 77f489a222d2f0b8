package hitl

import (
	"encoding/json"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Unreachable says what becomes of a call about which no human decides in time (R23).
type Unreachable string

// What may become of it.
const (
	DenyCall Unreachable = "deny"     // it is not sent
	Escalate Unreachable = "escalate" // operators are told, and it waits as long again; then it is not sent
	Continue Unreachable = "continue" // it is sent without a decision, where the rule allows that override
)

// Facts are what rules are matched against: what is known of one call before it is sent.
type Facts struct {
	Caller    ect.Identity
	Agent     string          // its name in the directory
	Operation string          // of the message
	Tool      string          // as the agent names it; empty: the call names none
	Args      json.RawMessage // the arguments of the call; nil: there are none
	Words     bool            // the message is text, of which arguments are made later: a rule about arguments matches
	Losses    []string        // codes of what the translation loses
}

// Demand is what the rules demand before a call is sent. Where several rules match, all of them hold: the roles
// of all, the most approvers, the shortest time, and of Unreachable the strictest.
type Demand struct {
	Rules       []string      `json:"rules"` // the ids of the rules that match, in their order
	Roles       []string      `json:"roles"` // that each approver has
	Approvers   int           `json:"approvers"`
	Wait        time.Duration `json:"wait"`
	Unreachable Unreachable   `json:"unreachable"`
	Hash        string        `json:"hash"` // of what the matching rules say
}
