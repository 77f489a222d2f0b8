package server

import (
	"context"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// What the tests of this folder that start gateways see of them.

// LookEvery is how often the files are looked at.
const LookEvery = lookEvery

// Watcher is that of a gateway.
type Watcher = watcher

// WatcherOf is a watcher of a gateway's file.
func WatcherOf(out *Server, from File) *Watcher { return out.watcher(from, nil) }

// Look looks at the files once, and reports whether what they say is refused.
func (w *watcher) Look(ctx context.Context) (refused bool) {
	w.look(ctx, false)
	return w.refused
}

// SetApply has something else done with a new configuration.
func (w *watcher) SetApply(apply func(context.Context, config.Config) error) { w.apply = apply }

// FileAt is one that was not read yet.
func FileAt(path string) File { return File{path: path} }

// RunBehind runs what a gateway does beside its listeners, until the function that is returned is called.
func RunBehind(ctx context.Context, out *Server, from File) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = out.identity.expiry.run(ctx) })
	running.Go(func() { _ = out.watcher(from, nil).run(ctx) })
	return func() error {
		cancel()
		running.Wait()
		return out.stopper.shut()
	}
}

// LogFailures is logFailures.
var LogFailures = logFailures //nolint:gochecknoglobals // the name of a function

// Trusted says what is in force for an issuer: whether its key is known, whether tokens of identity are taken, and what
// is special about it.
func Trusted(ctx context.Context, out *Server, key ect.KeyRequest) (known, tokens bool, dialect ect.Dialect, level ect.Level) {
	_, err := out.identity.keys.Resolve(ctx, key)
	return err == nil, out.identity.wimse.Load() != nil, out.identity.dialects.For(key.Issuer), out.identity.minLevel(key.Issuer)
}
