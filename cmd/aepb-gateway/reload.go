package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// lookEvery is how often the files are looked at. Looking is a read of a few
// small files; it also sees what notifications miss, such as a swapped symbolic
// link.
const lookEvery = 2 * time.Second

// watcher applies a changed configuration, on SIGHUP and by itself: the file, or
// one that it names. Whatever is bad leaves the old configuration in force.
type watcher struct {
	file   string
	named  []string         // by the last file that could be read, also if it was refused
	hangup <-chan os.Signal // of hangups; nil: never
	pushed <-chan struct{}  // the Workload API has something new; nil: never
	apply  func(context.Context, config.Config) error
	keep   func(ctx context.Context, anyway bool) error // of service.keepIdentity
	count  func(applied bool)
	logger *slog.Logger
	seen   [sha256.Size]byte
	// refused: the last look ended so. It is tried again in silence: what was wrong
	// may end without a change of a file, such as a certificate that begins later.
	refused bool
}

// hangups hears SIGHUP from now on, and keeps one until a watcher runs. It belongs
// before anything that takes time: without it, SIGHUP ends the process.
func hangups() (signals <-chan os.Signal, stop func()) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	return hangup, func() { signal.Stop(hangup) }
}

func (out *service) watcher(file string, hangup <-chan os.Signal) *watcher {
	w := &watcher{
		file: file, hangup: hangup, named: out.settings.config.Files(),
		apply: out.reload, keep: out.keepIdentity, count: out.metrics.Reloaded, logger: out.logger,
	}
	if out.settings.workload != nil {
		w.pushed = out.settings.workload.Changed()
	}
	return w
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w.seen, _, _ = w.print()
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

// print is the fingerprint of all files, and the configuration itself. A named
// file that is not there is a state like any other.
func (w *watcher) print() (sum [sha256.Size]byte, data []byte, err error) {
	all := sha256.New()
	data, err = os.ReadFile(w.file)
	all.Write(data)
	for _, file := range w.named {
		content, err := os.ReadFile(file)
		one := sha256.Sum256(content)
		all.Write(one[:])
		fmt.Fprintf(all, "%t %q", err == nil, file)
	}
	return [sha256.Size]byte(all.Sum(nil)), data, err
}

// look applies the configuration if a file changed, or anyway.
func (w *watcher) look(ctx context.Context, anyway bool) {
	now, data, err := w.print()
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
		if named := c.Files(); !slices.Equal(named, w.named) {
			w.named = named
			w.seen, _, _ = w.print()
		}
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

// reload puts in force what can change while running: agents, limits, policy,
// operators, and who we are and whom we trust. Agents that were added through the admin API stay. On an error nothing changes.
func (out *service) reload(ctx context.Context, c config.Config) error {
	if !out.settings.dev {
		if err := c.Serve(); err != nil {
			return err
		}
	}
	next := out.settings
	c.Version = next.config.Version // a change needs a restart
	next.config = c
	document, approvals, err := loadPolicy(&c)
	if err != nil {
		return err
	}
	next.document, next.approvals = document, approvals
	for _, agent := range c.Directory(next.dev) {
		if err := out.directory.Check(agent); err != nil {
			return err
		}
	}
	files, err := out.reread(c)
	if err != nil {
		return err
	}
	renewSLIM, err := out.settings.renewSLIM(c.SLIM)
	if err != nil {
		return err
	}
	if err := out.limiter.Reconfigure(next.limits()); err != nil {
		return err
	}
	if err := errors.Join(out.publicBounds.reconfigure(c, next.dev), out.adminBounds.reconfigure(c, next.dev)); err != nil {
		return err
	}
	if err := out.renew(ctx, c, files); err != nil {
		return err
	}
	renewSLIM()
	if err := out.directory.UsePeers(c.PeerGateways(next.dev)); err != nil {
		return err // never: config.Parse has judged them
	}
	if err := out.agents.Configure(c.Directory(next.dev)); err != nil {
		return err
	}
	if err := out.directory.AllowDocuments(c.VisitorRules(next.dev)); err != nil {
		return err // never: config.Parse has judged them
	}
	out.gateway.Apply(next.gatewaySettings())
	out.operate(c)
	out.escalations.use(c.Policy.EscalationURL)
	out.settings = next
	out.orderLives(ctx, c)
	out.logger.InfoContext(ctx, "configuration reloaded", slog.Int("agents", len(c.Agents)), slog.String("config", c.Hash()))
	return nil
}

// gatewaySettings is the settings as the pipeline takes it.
func (s settings) gatewaySettings() gateway.Settings {
	return gateway.Settings{
		Constraints: s.config.Constraints(), Document: s.document, Gateways: s.config.Gateways(), RequireECT: s.config.ECT.Require,
		Timeout: time.Duration(s.config.Timeout), TaskUnchanged: time.Duration(s.config.Limits.TaskUnchanged),
		AnswerWait: time.Duration(s.config.Limits.AnswerWait), Version: s.version(), ECTInBody: s.config.InBody(),
		Approvals: s.approvals, CheckpointTTL: s.config.Policy.CheckpointLifetime(),
	}
}
