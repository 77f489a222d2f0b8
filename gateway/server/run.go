package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/httpapi/coalesce"
	"github.com/aepb/aepb-gateway/gateway/httpapi/cors"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport/accept"
)

// Bounds of one connection. A caller that sends slower than these is cut off.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 60 * time.Second
	idleTimeout       = 120 * time.Second
	shutdownPart      = 500 * time.Millisecond
	lastAnswers       = time.Second // after the grace, for what is told on all listeners then
	maxHeaderBytes    = 64 << 10
)

// Run serves the sockets until ctx ends, then lets what is in flight finish
// within the grace period, and closes everything (R16).
func (out *Server) Run(ctx context.Context) error {
	if out.config.Sockets.Public == nil || out.config.Sockets.Admin == nil {
		return errors.Join(errors.New("server: no sockets to serve: set Sockets.Public and Sockets.Admin, with Listen"), out.Close())
	}
	public := cors.Handler(func() []string { return out.Settings().CORS.Origins }, out.surfaces.public)
	servers := []*http.Server{
		out.server(out.surfaces.publicBounds.handler(public), out.surfaces.refusals[telemetry.ListenerPublic].ServerLog()),
		out.server(out.surfaces.adminBounds.handler(out.surfaces.admin), out.surfaces.refusals[telemetry.ListenerAdmin].ServerLog()),
	}
	listeners := []net.Listener{out.surfaces.publicBounds.listen(out.config.Sockets.Public), out.surfaces.adminBounds.listen(out.config.Sockets.Admin)}
	group, ctx := errgroup.WithContext(ctx)
	for i, listener := range listeners {
		server := servers[i]
		group.Go(func() error { return served(server.ServeTLS(listener, "", "")) })
	}
	if out.config.Sockets.Metrics != nil {
		server := out.monitoringServer()
		servers = append(servers, server)
		group.Go(func() error { return served(server.Serve(out.surfaces.scrapes.Listen(out.config.Sockets.Metrics))) })
	}
	// What is no HTTP listens longer: calls that came in here go out there.
	calls, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	if out.surfaces.grpc != nil {
		group.Go(func() error {
			return out.surfaces.grpc.Serve(calls, out.surfaces.refusals[telemetry.ListenerGRPC].Handler(out.gateway))
		})
	}
	if out.watch != nil {
		group.Go(func() error { return out.watch.run(ctx) })
	}
	group.Go(func() error { return out.identity.expiry.run(ctx) })
	group.Go(func() error { return returnMemory(ctx) })
	if memory, ok := out.state.replay.(*state.Memory); ok {
		group.Go(func() error { return sweeping(ctx, memory) })
	}
	group.Go(func() error { return out.agents.listed.Run(ctx) })
	listening, endListening := context.WithCancel(context.WithoutCancel(ctx))
	for name, listener := range out.surfaces.listeners {
		out.stopper.listening.Add(1)
		group.Go(func() error {
			defer out.stopper.listening.Done()
			return listener.Serve(listening, out.surfaces.refusals[string(name)].Handler(out.gateway))
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		return out.stop(context.WithoutCancel(ctx), servers, endCalls, endListening)
	})
	return group.Wait()
}

func (out *Server) server(handler http.Handler, failures slog.Handler) *http.Server {
	sessions := httpapi.NewSessions(out.config.Identity.Source)
	return &http.Server{
		Handler: grown(sessions.Handler(coalesce.Handler(handler))), ConnState: sessions.State, TLSConfig: out.identity.tls.Clone(),
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return sessions.Conn(connection(ctx, c), c) },
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(failures, slog.LevelDebug),
	}
}

// monitoringServer speaks plain HTTP/1.1: Prometheus and kubelets have no certificate
// of the trust domain. A connection has one request, so that no client can keep one.
func (out *Server) monitoringServer() *http.Server {
	server := &http.Server{
		Handler: accept.Handler(out.surfaces.monitoring), ConnContext: accept.Context,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: monitoringTimeout, WriteTimeout: monitoringTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(out.config.Logger.Handler(), slog.LevelDebug),
	}
	server.SetKeepAlivesEnabled(false)
	return server
}

// served is what a server ended with; being shut down is no error.
func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// LogStart logs what is in force, so that replicas and rollouts can be compared. It
// belongs before Run, in which the configuration may change.
func (out *Server) LogStart(ctx context.Context) {
	s := out.config
	out.config.Logger.InfoContext(ctx, "started",
		slog.String("version", out.config.Program.Version), slog.String("commit", out.config.Program.Commit), slog.String("config", s.Settings.Hash()),
		slog.String("state", out.state.driver.name), slog.String("identity", string(s.Identity.SVID.ID)), slog.Time("identity_expires", s.Identity.SVID.Chain[0].NotAfter))
}

// stopper is what a stop needs to know. It is made while a gateway is built, and not changed afterwards.
type stopper struct {
	delay, grace time.Duration           // as configured at the start
	drain        []func()                // end the streams on which nothing is said
	drained      []func(context.Context) // wait for the connections that are not the HTTP server's
	close        []func() error          // in order, after the last request is answered
	listening    sync.WaitGroup          // listeners
	stopping     atomic.Bool
	cutAt        atomic.Pointer[time.Time] // what is left of a stop; nil: it has not come to that
}

// later has something closed at the end: what came later is closed earlier.
func (s *stopper) later(closing func() error) { s.close = append(s.close, closing) }

// Close ends a gateway that was built and does not run, and closes its sockets. [Server.Run] does so itself.
func (out *Server) Close() error { return errors.Join(out.stopper.shut(), out.config.Sockets.Close()) }

// stop is a graceful shutdown (R16). Readiness fails first, and everything goes on
// until load balancers have noticed. Then new work is refused, and what is under way has
// the grace to end, with all listeners open, since it may need its callers. What is left
// then fails on record and is told so. The admin listener closes after the public one,
// and that of the metrics last, so that a scraper sees the end. From the end of the grace to the end
// of this process it takes two seconds at most.
func (out *Server) stop(ctx context.Context, servers []*http.Server, endCalls, endListening func()) error {
	out.stopper.stopping.Store(true)
	out.config.Logger.InfoContext(ctx, "stopping", slog.Duration("delay", out.stopper.delay), slog.Duration("grace", out.stopper.grace))
	<-time.After(out.stopper.delay)
	within, cancel := context.WithTimeout(ctx, out.stopper.grace)
	defer cancel()
	for _, drain := range out.stopper.drain {
		drain()
	}
	servers[0].SetKeepAlivesEnabled(false) // the next request of a caller goes where there is work for it
	out.gateway.Drain(within)
	var errs []error
	if within.Err() != nil {
		out.config.Logger.WarnContext(ctx, "the grace is over: work that is left fails on record, and its callers are told")
		errs = append(errs, out.gateway.Close()) //nolint:contextcheck // what it writes is not bound to the end of a call
		last, cancelLast := context.WithTimeout(ctx, lastAnswers)
		defer cancelLast()
		within = last
	}
	if end, ok := within.Deadline(); ok {
		out.stopper.cutAt.Store(&end)
	}
	endCalls()
	endListening()
	errs = append(errs, out.drainServer(within, servers[0]))
	for _, drained := range out.stopper.drained {
		drained(within)
	}
	out.stopper.listening.Wait()
	if out.stopper.untilCut() < shutdownPart {
		rest, cancelRest := context.WithTimeout(ctx, shutdownPart)
		defer cancelRest()
		within = rest
	}
	for _, server := range servers[1:] {
		errs = append(errs, out.drainServer(within, server))
	}
	return errors.Join(append(errs, out.stopper.shut())...)
}

// untilCut is how long answers that are being written may still take.
func (s *stopper) untilCut() time.Duration {
	if end := s.cutAt.Load(); end != nil {
		return time.Until(*end)
	}
	return lastAnswers // it ends without a stop
}

// drainServer waits until a server's connections have ended. An HTTP/2 connection whose
// handshake ends only after Shutdown has begun is not told of it (net/http tells
// those that it knows then), so it is begun again now and then. Connections that are left
// when ctx ends are cut: their clients do not read, which is no failure of this process.
func (out *Server) drainServer(ctx context.Context, server *http.Server) error {
	for {
		part, cancel := context.WithTimeout(ctx, shutdownPart)
		err := server.Shutdown(part)
		cancel()
		switch {
		case err == nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		case ctx.Err() != nil:
			out.config.Logger.WarnContext(ctx, "connections are cut whose clients have not read their answers")
			return server.Close()
		}
	}
}

// shut closes what was opened, the last first.
func (s *stopper) shut() error {
	var errs []error
	for _, closing := range slices.Backward(s.close) {
		errs = append(errs, closing())
	}
	return errors.Join(errs...)
}
