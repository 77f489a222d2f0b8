package breaker

import "github.com/aepb/aepb-gateway/ect"

// Claims are those of the token that the draft demands of a change (ATD, Circuit Breaker
// Pattern): atd:circuit_open when calls have failed, atd:circuit_close when a probe has
// not. The agent is the identity that the breaker stands before. False: this change has
// no token, as when a cool-down ends, when a probe taught nothing, or when another
// replica has found it out.
func (c Change) Claims(agent string) (act ect.Act, ext ect.Ext, ok bool) {
	ext = ect.Ext{}
	ext.SetString(ect.ExtDownstreamAgent, agent)
	switch {
	case c.To == Open && c.Samples > 0:
		ext.SetThousandths(ect.ExtErrorRate, c.rate())
		ext.SetThousandths(ect.ExtWindow, c.Window.Milliseconds())
		return ect.ActCircuitOpen, ext, true
	case c.To == Closed && c.Cooldown > 0:
		ext.SetThousandths(ect.ExtCooldown, c.Cooldown.Milliseconds())
		return ect.ActCircuitClose, ext, true
	}
	return "", nil, false
}

// EscalationClaims are those of the token that says that an agent needs a human, and why.
func EscalationClaims(agent, reason string) (ect.Act, ect.Ext) {
	ext := ect.Ext{}
	ext.SetString(ect.ExtDownstreamAgent, agent)
	ext.SetString(ect.ExtEscalation, reason)
	return ect.ActEscalate, ext
}

// rate is in thousandths, rounded up, so that what is above a threshold is above it in
// the token too.
func (c Change) rate() int64 {
	failures, samples := int64(c.Failures), int64(c.Samples)
	return (failures*maxThreshold + samples - 1) / samples
}
