package profile

import (
	"encoding/json"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TurnFromArgs reads the arguments of a P1 tool back into a turn and the
// dialogue that it belongs to. Arguments of another shape are a
// *canonical.Error of code CodeBadParams with the schema.
func TurnFromArgs(args json.RawMessage) (canonical.Content, canonical.Conversation, error) {
	a, err := readArgs("chat", args)
	if err != nil {
		return canonical.Content{}, canonical.Conversation{}, err
	}
	return canonical.Content{Role: canonical.RoleCaller, Parts: a.parts()}, a.conversation(), nil
}
