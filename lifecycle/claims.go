package lifecycle

import "github.com/aepb/aepb-gateway/ect"

// Claims are what the token of a transition says (AEPB, "Lifecycle State Transitions"); agentID
// is the agent's SPIFFE id. A reason is cut at ect.MaxTextSize bytes: tokens travel in headers.
func (c Change) Claims(agentID string) (ect.Act, ect.Ext) {
	ext := ect.Ext{}
	ext.SetString(ect.ExtAgentID, agentID)
	ext.SetString(ect.ExtFromState, string(c.From.orActive()))
	ext.SetString(ect.ExtToState, string(c.To.orActive()))
	ext.SetText(ect.ExtReason, c.Reason)
	if c.Forced {
		ext.SetBool(ect.ExtForced, true)
	}
	return ect.ActLifecycleChange, ext
}

// Shutdown is what the token says that ends an agent gracefully (AEPB, "Graceful Shutdown"), or,
// with the name of an instance, one process of it (R16).
func Shutdown(agentID, instance string) (ect.Act, ect.Ext) {
	ext := ect.Ext{}
	ext.SetString(ect.ExtAgentID, agentID)
	if instance != "" {
		ext.SetString(ect.ExtInstance, instance)
	}
	return ect.ActShutdown, ext
}
