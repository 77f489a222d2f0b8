package consensus

import (
	"context"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/quota"
)

const (
	watchInterval = 500 * time.Millisecond // between two looks at a round that is watched
	beat          = 15 * time.Second       // after which a watcher without news is told that the stream goes on
	watchesOfOne  = 16                     // streams of one identity at this replica
	watchesOfAll  = 512
)

// Follow tells how a round stands, and each change that lasts, until ctx ends, the round is over, or tell fails. Without news
// it tells now and then that nothing has changed. Its errors are those of [Service.Show], *[quota.ExceededError], and that of
// tell.
func (s *Service) Follow(ctx context.Context, id string, who ect.Identity, tell func(r consensus.Round, changed bool) error) error {
	r, err := s.Show(ctx, id, who)
	if err != nil {
		return err
	}
	end, err := s.streams.begin(who)
	if err != nil {
		return err
	}
	defer end()
	if err := tell(r, true); err != nil {
		return err
	}
	latest := s.deps.Now()
	for !r.Phase.Over() && worker.Pause(ctx, watchInterval) {
		changed := false
		if now, err := s.archive.read(ctx, id); err == nil && now.Term != r.Term { // else the store is away: the stream goes on when it is back
			if now, err = s.Show(ctx, id, who); err == nil {
				r, changed = now, true
			}
		}
		if !changed && s.deps.Now().Sub(latest) < beat {
			continue
		}
		if err := tell(r, changed); err != nil {
			return err
		}
		latest = s.deps.Now()
	}
	return nil
}

// streams counts those that are open at this replica, by who reads them.
type streams struct {
	mu   sync.Mutex
	open map[ect.Identity]int
}

// begin books a stream. Its error is a *[quota.ExceededError].
func (s *streams) begin(who ect.Identity) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for _, n := range s.open {
		all += n
	}
	if own := s.open[who] >= watchesOfOne; own || all >= watchesOfAll {
		return nil, &quota.ExceededError{Resource: "streams of consensus rounds", Own: own}
	}
	s.open[who]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[who]--; s.open[who] == 0 {
			delete(s.open, who)
		}
	}, nil
}
