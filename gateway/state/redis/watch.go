package redis

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/gateway/worker"
)

// watchEvery is how often every master is looked at.
const watchEvery = time.Second

// watch asks Redis every second until the store is closed, so that readiness and a failover are
// known also while there are no writes.
func (s *Store) watch() {
	worker.Every(s.ctx, watchEvery, func() {
		ctx, cancel := context.WithTimeout(s.ctx, 2*s.config.Timeout)
		defer cancel()
		_ = s.inspect(ctx) // Failing tells
	})
}

// inspect looks at every master, and notes what it finds.
func (s *Store) inspect(ctx context.Context) error {
	var space int64
	var fullest float64
	err := s.masters(ctx, func(ctx context.Context, c *goredis.Client) error {
		text, err := c.Info(ctx).Result()
		if err != nil {
			return err
		}
		info := infoOf(text)
		if err := s.fit(info); err != nil {
			return err
		}
		bound, part := memoryOf(info)
		space, fullest = space+bound, max(fullest, part)
		return nil
	})
	if err == nil {
		s.shrinkShares(space, fullest)
		s.filled.Store(math.Float64bits(fullest))
	}
	if err == nil {
		err = s.touchEpochs(ctx)
	}
	s.report(ctx, err)
	return err
}

// masters visits every master; of several at a time, one at a time.
func (s *Store) masters(ctx context.Context, visit func(context.Context, *goredis.Client) error) error {
	switch c := s.client.(type) {
	case *goredis.ClusterClient:
		var one sync.Mutex
		return c.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
			one.Lock()
			defer one.Unlock()
			return visit(ctx, node)
		})
	case *goredis.Client:
		return visit(ctx, c)
	default:
		return fmt.Errorf("%w: a client of another kind", errUnsafe)
	}
}

// infoOf is what a server says of itself.
func infoOf(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// fit is nil for a master that forgets nothing by itself (R18).
func (s *Store) fit(info map[string]string) error {
	cluster := info["cluster_enabled"] == "1"
	switch {
	case info["role"] != "master" && cluster && s.sharded(): // it was one a moment ago, as far as the cluster told us
		return fmt.Errorf("%w: its role is %.20q now", errFailover, info["role"])
	case info["role"] != "master":
		return fmt.Errorf("%w: its role is %.20q, not master", errUnsafe, info["role"])
	case info["maxmemory_policy"] != "noeviction":
		return fmt.Errorf("%w: maxmemory-policy is %.20q, not noeviction", errUnsafe, info["maxmemory_policy"])
	case info["aof_enabled"] != "1" && !s.config.Assert:
		return fmt.Errorf("%w: appendonly is off (state.redis.durability: asserted, if something else makes it durable)", errUnsafe)
	case cluster != s.sharded():
		return fmt.Errorf("%w: cluster_enabled is %s, against the configuration", errUnsafe, strconv.FormatBool(cluster))
	}
	return nil
}

// report notes how a look ended, and says when trouble begins and when it ends.
func (s *Store) report(ctx context.Context, err error) {
	before := s.trouble.Load()
	if s.ctx.Err() != nil {
		return
	}
	if err != nil {
		down := &downError{text: s.described(err), err: err}
		s.trouble.Store(&trouble{err: down, fatal: unfit(err)})
		if before == nil || before.err.Error() != down.text { // another reason is news
			s.logger.ErrorContext(ctx, "redis cannot be used: what depends on it is refused until it can",
				slog.String("reason", down.text), slog.Any("error", err))
		}
		return
	}
	s.trouble.Store(nil)
	if before != nil {
		s.logger.InfoContext(ctx, "redis is back")
		s.entries.watches.wakeAll()
	}
}
