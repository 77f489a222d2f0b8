package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// lookEvery is how often a file is looked at. Looking is a read of a small
// file; it also sees what notifications miss, such as a swapped symbolic link.
const lookEvery = 2 * time.Second

// watcher applies a changed configuration file, on SIGHUP and by itself. A bad
// file leaves the old configuration in force.
type watcher struct {
	file   string
	apply  func(context.Context, config.Config) error
	count  func(applied bool)
	logger *slog.Logger
	seen   []byte
}

func (out *service) watcher(file string) *watcher {
	return &watcher{file: file, apply: out.reload, count: out.metrics.Reloaded, logger: out.logger}
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w.seen, _ = os.ReadFile(w.file)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			w.look(ctx, true)
		case <-tick.C:
			w.look(ctx, false)
		}
	}
}

// look applies the file if it changed, or anyway.
func (w *watcher) look(ctx context.Context, anyway bool) {
	data, err := os.ReadFile(w.file)
	if err == nil && !anyway && bytes.Equal(data, w.seen) {
		return
	}
	if err != nil && !anyway {
		return // it may be on its way; the next look sees it
	}
	w.seen = data
	var c config.Config
	if err == nil {
		c, err = config.Parse(data)
	}
	if err == nil {
		err = w.apply(ctx, c)
	}
	w.count(err == nil)
	if err != nil {
		w.logger.ErrorContext(ctx, "the new configuration is refused, the old one stays in force", slog.Any("error", err))
	}
}

// reload puts in force what can change while running: agents, limits, policy.
// Agents that were added through the admin API stay. On an error nothing changes.
func (out *service) reload(ctx context.Context, c config.Config) error {
	if !out.settings.dev {
		if err := c.Serve(); err != nil {
			return err
		}
	}
	next := out.settings
	next.config = c
	document, err := loadPolicy(c.Policy.Document)
	if err != nil {
		return err
	}
	next.document = document
	for _, agent := range c.Directory(next.dev) {
		if err := out.directory.Check(agent); err != nil {
			return err
		}
	}
	if err := out.limiter.Reconfigure(next.limits()); err != nil {
		return err
	}
	for name := range out.settings.config.Agents {
		if _, stays := c.Agents[name]; !stays {
			out.directory.Remove(name)
		}
	}
	for _, agent := range c.Directory(next.dev) {
		if err := out.directory.Put(agent); err != nil {
			return err
		}
	}
	if err := out.directory.AllowDocuments(c.VisitorRules(next.dev)); err != nil {
		return err // never: config.Parse has judged them
	}
	out.road.Apply(next.road())
	out.settings = next
	out.logger.InfoContext(ctx, "configuration reloaded", slog.Int("agents", len(c.Agents)))
	return nil
}

// road is the settings in the words of the road.
func (s settings) road() gateway.Settings {
	return gateway.Settings{
		Constraints: s.config.Constraints(), Document: s.document, Gateways: s.config.Gateways(), RequireECT: s.config.ECT.Require,
		Timeout: time.Duration(s.config.Timeout), Version: version,
	}
}
