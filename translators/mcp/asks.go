package mcp

import "github.com/aepb/aepb-gateway/translators"

var _ translators.Asker = (*Translator)(nil)

// Asks: elicitation came with 2025-06-18, as a request of the server; since
// 2026-07-28 it is a result.
func (t *Translator) Asks(version string) translators.Asking {
	switch version {
	case Modern, "":
		return translators.AskReply
	case LegacyMarch:
		return translators.AskNone
	default:
		return translators.AskStream
	}
}
