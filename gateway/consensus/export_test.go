package consensus

import "context"

// Turn is one look at all rounds, as Run does it.
func (s *Service) Turn(ctx context.Context) { s.turn(ctx, true) }
