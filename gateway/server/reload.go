package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/config/advice"
)

// Reload puts in force what can change while running: agents, limits, policy,
// operators, and who we are and whom we trust. Agents that were added through the admin API stay. On an error nothing changes.
func (out *Server) Reload(ctx context.Context, c config.Config) error {
	if !out.config.Development {
		if err := c.Serve(); err != nil {
			return err
		}
	}
	next := *out.inForce.Load()
	files, err := out.identity.reread(next, c)
	if err != nil {
		return err
	}
	if err := config.ReadCredentials(c); err != nil {
		return err
	}
	renewSLIM, err := next.renewSLIM(c.SLIM)
	if err != nil {
		return err
	}
	c.Version = next.Settings.Version // a change needs a restart
	next.Settings = c
	if next.Policy, err = loadPolicy(&c); err != nil {
		return err
	}
	for _, agent := range c.Directory(next.Development) {
		if err := out.agents.directory.Check(agent); err != nil {
			return err
		}
	}
	if err := errors.Join(out.agents.limiter.Reconfigure(next.limits()), out.surfaces.publicBounds.reconfigure(c, next.Development), out.surfaces.adminBounds.reconfigure(c, next.Development)); err != nil {
		return err
	}
	if err := out.renew(ctx, c, files); err != nil {
		return err
	}
	renewSLIM()
	if err := out.agents.use(next); err != nil {
		return err
	}
	out.gateway.Apply(next.Pipeline())
	out.identity.operate(c)
	out.escalations.use(c.Policy.EscalationURL)
	out.inForce.Store(&next)
	out.orderLives(ctx, c)
	out.waiting(ctx)
	out.config.Logger.InfoContext(ctx, "configuration reloaded", slog.Int("agents", len(c.Agents)), slog.String("config", c.Hash()))
	return nil
}

// waiting tells which changes of the file wait for a restart.
func (out *Server) waiting(ctx context.Context) {
	changes := advice.Waiting(out.config.restartKeys(), out.inForce.Load().restartKeys())
	for _, change := range changes {
		out.config.Logger.WarnContext(ctx, change.String(), slog.String("key", change.Key))
	}
	out.metrics.WaitForRestart(len(changes))
}

// lookEvery is how often the files are looked at. Looking is a read of a few
// small files; it also sees what notifications miss, such as a swapped symbolic
// link.
const lookEvery = 2 * time.Second

// watcher applies a changed configuration, on SIGHUP and by itself: the file, or
// one that it names. Whatever is bad leaves the old configuration in force.
type watcher struct {
	file   string
	named  []string         // by the last file that could be read, also if it was refused
	hangup <-chan os.Signal // SIGHUP; nil: never
	pushed <-chan struct{}  // the Workload API has something new; nil: never
	apply  func(context.Context, config.Config) error
	keep   func(ctx context.Context, anyway bool) error // of Server.keepIdentity
	count  func(applied bool)
	logger *slog.Logger
	seen   [sha256.Size]byte
	// refused: the last look ended so. It is tried again in silence: what was wrong
	// may end without a change of a file, such as a certificate that begins later.
	refused bool
}

// Follow has [Server.Run] watch the file that the gateway was made from, and those that it names, and put in force what
// changes there; at once when hangup is received. It belongs before Run.
func (out *Server) Follow(from File, hangup <-chan os.Signal) { out.watch = out.watcher(from, hangup) }

func (out *Server) watcher(from File, hangup <-chan os.Signal) *watcher {
	w := &watcher{
		file: from.path, hangup: hangup, named: from.Config.Files(), seen: from.sum,
		apply: out.Reload, keep: out.keepIdentity, count: out.metrics.Reloaded, logger: out.config.Logger,
	}
	if out.config.Identity.Workload != nil {
		w.pushed = out.config.Identity.Workload.Changed()
	}
	return w
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.hangup:
			w.look(ctx, true)
		case <-w.pushed:
			w.look(ctx, true)
		case <-tick.C:
			w.look(ctx, false)
		}
	}
}

// File is a configuration, and the fingerprint of its file and of those that it names, taken before any of them was
// used: what changes from then on differs from it.
type File struct {
	Config config.Config
	path   string
	sum    [sha256.Size]byte
}

// ReadFile reads a configuration; an empty name is the empty one.
func ReadFile(file string) (File, error) {
	if file == "" {
		return File{}, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return File{}, err
	}
	c, err := config.Parse(data)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", file, err)
	}
	return File{path: file, Config: c, sum: fingerprint(data, c.Files())}, nil
}

// fingerprint is that of a configuration and of the files that it names. One that is not there is a state like any other.
func fingerprint(data []byte, named []string) [sha256.Size]byte {
	all := sha256.New()
	all.Write(data)
	for _, file := range named {
		content, err := os.ReadFile(file) //nolint:gosec // the operator names the files
		fmt.Fprintf(all, "%x %t %q", sha256.Sum256(content), err == nil, file)
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// look applies the configuration if a file changed, or anyway.
func (w *watcher) look(ctx context.Context, anyway bool) {
	data, err := os.ReadFile(w.file)
	now := fingerprint(data, w.named)
	again := !anyway && now == w.seen
	if err == nil && again && !w.refused {
		return
	}
	if err != nil && !anyway { // it may be on its way; the next look sees it
		_ = w.keep(ctx, false) // warnings before it expires tell of what goes wrong
		return
	}
	w.seen = now
	var c config.Config
	if err == nil {
		c, err = config.Parse(data)
	}
	if err == nil {
		w.named = c.Files()
		w.seen = fingerprint(data, w.named)
		err = w.apply(ctx, c)
	}
	w.refused = err != nil
	var retained error
	if w.refused {
		retained = w.keep(ctx, !again)
	}
	if w.refused && again {
		return // it was told
	}
	w.count(err == nil)
	if err != nil {
		w.logger.ErrorContext(ctx, "the new configuration is refused, the old one stays in force", slog.Any("error", err), slog.Any("identity", retained))
	}
}
