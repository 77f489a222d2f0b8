package dag

import (
	"context"
)

// TranslationPath follows the way a message took: from each of the tokens that
// came with it, along par, while the nodes are translations of that token's
// leg. Start with the tokens that came with the message and nothing else: a
// token of an earlier turn, taken as parent for want of a better one, is no
// part of the way. More than limit translations (0: DefaultLimit) stop the walk. An
// error is the lookup's own.
func TranslationPath(ctx context.Context, start []Node, find Lookup, limit int) (Path, error) {
	w := walker{find: find, limit: limit, direction: func(n Node) Leg { return n.Leg }}
	return w.walk(ctx, start)
}
