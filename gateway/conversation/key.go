package conversation

import (
	"context"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
)

// Store keeps the workflow and the last ECT of each dialogue (R3). The key "" is never
// remembered and never found. A key begins with the owner of the dialogue, up to the
// first zero byte: one owner cannot have the dialogues of others evicted. An error of
// Last says that it is not known whether the dialogue is remembered.
type Store interface {
	Last(ctx context.Context, key string) (workflow string, id ect.ID, ok bool, err error)
	Remember(ctx context.Context, key, workflow string, id ect.ID)
}

// Parties are the two sides of a dialogue.
type Parties struct {
	Owner string // the caller, to whom the dialogue belongs (R2)
	Agent string // its name in the directory; empty: the message is translated only
}

// Key is the key of a dialogue in the Store; empty: the message names no dialogue.
func (p Parties) Key(id string) string {
	if id == "" {
		return ""
	}
	return strings.Join([]string{p.Owner, p.Agent, id}, "\x00")
}

// BoundID is the id under which the agent knows a dialogue that it has not named
// itself. It need not be secret: it lets only its own caller in, and no other id of any
// caller leads to it.
func (p Parties) BoundID(id string) string {
	return "ctx-" + ect.Hash([]byte("aepb context\x00"+p.Key(id)))
}

// OfCall is the id of the dialogue that a call and its repetition are, where an agent asks with a state that its caller
// brings back by calling again (MCP, requestState); empty: there is no state. An agent may give several calls one state.
func OfCall(state, tool string, args []byte) string {
	if state == "" {
		return ""
	}
	return "call-" + ect.Hash([]byte(state+"\x00"+tool+"\x00"+string(args)))
}
