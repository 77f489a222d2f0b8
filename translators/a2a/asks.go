package a2a

import "github.com/aepb/aepb-gateway/translators"

var _ translators.Asker = (*Translator)(nil)

// Asks: a task of any version can say that it needs input.
func (t *Translator) Asks(string) translators.Asking { return translators.AskTask }
