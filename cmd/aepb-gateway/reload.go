package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/config/advice"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
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

// watcher watches the file of a configuration that the service was made from.
func (out *service) watcher(from loaded, hangup <-chan os.Signal) *watcher {
	w := &watcher{
		file: from.file, hangup: hangup, named: from.config.Files(), seen: from.sum,
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

// loaded is a configuration, and the fingerprint of its file and of those that it names, taken before any of them was
// used: what changes from then on differs from it.
type loaded struct {
	file   string
	config config.Config
	sum    [sha256.Size]byte
}

// load reads a configuration; an empty name is the empty one.
func load(file string) (loaded, error) {
	if file == "" {
		return loaded{}, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return loaded{}, err
	}
	c, err := config.Parse(data)
	if err != nil {
		return loaded{}, fmt.Errorf("%s: %w", file, err)
	}
	return loaded{file: file, config: c, sum: fingerprint(data, c.Files())}, nil
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
	out.waiting(ctx)
	out.logger.InfoContext(ctx, "configuration reloaded", slog.Int("agents", len(c.Agents)), slog.String("config", c.Hash()))
	return nil
}

// waiting tells which changes of the file wait for a restart.
func (out *service) waiting(ctx context.Context) {
	s := out.settings
	changes := advice.Waiting(s.atStart, advice.RestartKeys(s.config, s.dev))
	for _, change := range changes {
		out.logger.WarnContext(ctx, change.String(), slog.String("key", change.Key))
	}
	out.metrics.WaitForRestart(len(changes))
}

// begun notes what only a restart changes.
func (s settings) begun() settings {
	s.atStart = advice.RestartKeys(s.config, s.dev)
	return s
}

// inForce is the configuration as operators compare it with a file.
func (s settings) inForce() admindoc.Configuration {
	return admindoc.Configuration{RestartKeys: s.atStart}
}

// gatewaySettings is the settings as the pipeline takes it.
func (s settings) gatewaySettings() gateway.Settings {
	return gateway.Settings{
		Constraints: s.config.Constraints(), Document: s.document, Gateways: s.config.Gateways(), RequireECT: s.config.ECT.Require,
		Timeout: time.Duration(s.config.Timeout), TaskUnchanged: time.Duration(s.config.Limits.TaskUnchanged),
		AnswerWait: time.Duration(s.config.Limits.AnswerWait), Version: s.version(), ECTInBody: s.config.InBody(),
		Approvals: s.approvals, CheckpointTTL: s.config.Policy.CheckpointLifetime(), Groups: s.config.Consensus.List(),
	}
}
