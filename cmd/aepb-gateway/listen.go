package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/cmd/release"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/httpapi/coalesce"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	ta2a "github.com/aepb/aepb-gateway/gateway/transport/a2a"
	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
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

// ports are what a gateway listens on.
type ports struct {
	public, admin       net.Listener
	grpc, metrics, uacp net.Listener // nil: off
	datagrams           net.PacketConn
}

// open listens wherever there is an address. On an error nothing stays open.
func open(l config.Listen) (p ports, err error) {
	for _, one := range []struct {
		at, say string // where it is said
		to      *net.Listener
	}{
		{l.Public, "--addr, or listen.public", &p.public},
		{l.Admin, "--admin-addr, or listen.admin", &p.admin},
		{l.GRPC, "listen.grpc", &p.grpc},
		{l.Metrics, "listen.metrics", &p.metrics},
		{l.UACP, "--uacp-addr, or listen.uacp", &p.uacp},
	} {
		if one.at == "" {
			continue
		}
		if *one.to, err = net.Listen("tcp", one.at); err != nil {
			return ports{}, errors.Join(taken(err, one.at, one.say), p.close())
		}
	}
	return p, nil
}

// taken says what to do about an address at which something else listens.
func taken(err error, at, say string) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use: give another address with %s, or stop what listens there: %w", at, say, err)
	}
	return err
}

// listenDatagrams opens the socket for µACP in datagrams; nil: it is not configured.
func (p *ports) listenDatagrams(c config.Config, w io.Writer) (net.PacketConn, error) {
	if c.Listen.UACPUDP == "" {
		return nil, nil //nolint:nilnil // it is off
	}
	var err error
	if p.datagrams, err = net.ListenPacket("udp", c.Listen.UACPUDP); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "ready uacp datagrams %s\n", p.datagrams.LocalAddr())
	return p.datagrams, nil
}

func (p ports) close() error {
	var errs []error
	if p.datagrams != nil {
		errs = append(errs, p.datagrams.Close())
	}
	for _, l := range []net.Listener{p.public, p.admin, p.grpc, p.metrics, p.uacp} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

func (p ports) addresses() addresses {
	a := addresses{Public: "https://" + p.public.Addr().String(), Admin: "https://" + p.admin.Addr().String()}
	if p.uacp != nil {
		a.UACP = tuacp.Scheme + "://" + p.uacp.Addr().String()
	}
	if p.metrics != nil {
		a.Metrics = "http://" + p.metrics.Addr().String()
	}
	return a
}

// run serves the listeners until ctx ends, then lets what is in flight finish
// within the grace period.
func (out *service) run(ctx context.Context, public, admin net.Listener) error {
	servers := []*http.Server{
		out.server(out.publicBounds.handler(out.public), out.refusals[telemetry.ListenerPublic].ServerLog()),
		out.server(out.adminBounds.handler(out.admin), out.refusals[telemetry.ListenerAdmin].ServerLog()),
	}
	listeners := []net.Listener{out.publicBounds.listen(public), out.adminBounds.listen(admin)}
	group, ctx := errgroup.WithContext(ctx)
	for i, listener := range listeners {
		server := servers[i]
		group.Go(func() error { return served(server.ServeTLS(listener, "", "")) })
	}
	if out.scraped != nil {
		server := out.monitoringServer()
		servers = append(servers, server)
		group.Go(func() error { return served(server.Serve(out.scrapes.Listen(out.scraped))) })
	}
	// What is no HTTP listens longer: calls that came in here go out there.
	calls, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	if out.grpc != nil {
		group.Go(func() error {
			return out.grpc.Serve(calls, out.refusals[telemetry.ListenerGRPC].Handler(out.gateway))
		})
	}
	if out.watch != nil {
		group.Go(func() error { return out.watch.run(ctx) })
	}
	group.Go(func() error { return out.expiry.run(ctx) })
	group.Go(func() error { return returnMemory(ctx) })
	if memory, ok := out.replay.(*state.Memory); ok {
		group.Go(func() error { return sweeping(ctx, memory) })
	}
	group.Go(func() error { return out.agents.Run(ctx) })
	listening, endListening := context.WithCancel(context.WithoutCancel(ctx))
	for name, listener := range out.listeners {
		out.listening.Add(1)
		group.Go(func() error {
			defer out.listening.Done()
			return listener.Serve(listening, out.refusals[string(name)].Handler(out.gateway))
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		return out.stop(context.WithoutCancel(ctx), servers, endCalls, endListening)
	})
	return group.Wait()
}

func (out *service) server(handler http.Handler, failures slog.Handler) *http.Server {
	sessions := httpapi.NewSessions(out.source)
	return &http.Server{
		Handler: sessions.Handler(coalesce.Handler(handler)), ConnState: sessions.State, TLSConfig: out.tls.Clone(),
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return sessions.Conn(connection(ctx, c), c) },
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(failures, slog.LevelDebug),
	}
}

// monitoringServer speaks plain HTTP/1.1: Prometheus and kubelets have no certificate
// of the trust domain. A connection has one request, so that no client can keep one.
func (out *service) monitoringServer() *http.Server {
	server := &http.Server{
		Handler: accept.Handler(out.monitoring), ConnContext: accept.Context,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: monitoringTimeout, WriteTimeout: monitoringTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(out.logger.Handler(), slog.LevelDebug),
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

// started logs what is in force, so that replicas and rollouts can be compared. It
// belongs before run, in which the configuration may change.
func (out *service) started(ctx context.Context) {
	s := out.settings
	out.logger.InfoContext(ctx, "started",
		slog.String("version", version()), slog.String("commit", release.Current().Commit), slog.String("config", s.config.Hash()),
		slog.String("state", out.backend), slog.String("identity", string(s.svid.ID)), slog.Time("identity_expires", s.svid.Chain[0].NotAfter))
}

// stop is a graceful shutdown (R16). Readiness fails first, and everything goes on
// until load balancers have noticed. Then new work is refused, and what is under way has
// the grace to end, with all listeners open, since it may need its callers. What is left
// then fails on record and is told so. The admin listener closes after the public one,
// and that of the metrics last, so that a scraper sees the end. From the end of the grace to the end
// of this process it takes two seconds at most.
func (out *service) stop(ctx context.Context, servers []*http.Server, endCalls, endListening func()) error {
	out.stopping.Store(true)
	out.logger.InfoContext(ctx, "stopping", slog.Duration("delay", out.delay), slog.Duration("grace", out.grace))
	<-time.After(out.delay)
	within, cancel := context.WithTimeout(ctx, out.grace)
	defer cancel()
	for _, drain := range out.drain {
		drain()
	}
	servers[0].SetKeepAlivesEnabled(false) // the next request of a caller goes where there is work for it
	out.gateway.Drain(within)
	var errs []error
	if within.Err() != nil {
		out.logger.WarnContext(ctx, "the grace is over: work that is left fails on record, and its callers are told")
		errs = append(errs, out.gateway.Close())
		last, cancelLast := context.WithTimeout(ctx, lastAnswers)
		defer cancelLast()
		within = last
	}
	if end, ok := within.Deadline(); ok {
		out.cutAt.Store(&end)
	}
	endCalls()
	endListening()
	errs = append(errs, out.drainServer(within, servers[0]))
	for _, drained := range out.drained {
		drained(within)
	}
	out.listening.Wait()
	if out.untilCut() < shutdownPart {
		rest, cancelRest := context.WithTimeout(ctx, shutdownPart)
		defer cancelRest()
		within = rest
	}
	for _, server := range servers[1:] {
		errs = append(errs, out.drainServer(within, server))
	}
	return errors.Join(append(errs, out.shut())...)
}

// untilCut is how long answers that are being written may still take.
func (out *service) untilCut() time.Duration {
	if end := out.cutAt.Load(); end != nil {
		return time.Until(*end)
	}
	return lastAnswers // it ends without a stop
}

// drainServer waits until a server's connections have ended. An HTTP/2 connection whose
// handshake ends only after Shutdown has begun is not told of it (net/http tells
// those that it knows then), so it is begun again now and then. Connections that are left
// when ctx ends are cut: their clients do not read, which is no failure of this process.
func (out *service) drainServer(ctx context.Context, server *http.Server) error {
	for {
		part, cancel := context.WithTimeout(ctx, shutdownPart)
		err := server.Shutdown(part)
		cancel()
		switch {
		case err == nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		case ctx.Err() != nil:
			out.logger.WarnContext(ctx, "connections are cut whose clients have not read their answers")
			return server.Close()
		}
	}
}

// shut closes what was opened, the last first.
func (out *service) shut() error {
	var errs []error
	for _, closing := range slices.Backward(out.close) {
		errs = append(errs, closing())
	}
	return errors.Join(errs...)
}

func announceGRPC(w io.Writer, l net.Listener) {
	if l != nil {
		fmt.Fprintf(w, "ready grpc %s\n", l.Addr())
	}
}

// publicGRPC is where callers reach it, as cards say it; empty: it is off.
func (s settings) publicGRPC() string {
	if s.grpc == nil {
		return ""
	}
	if s.config.PublicRPC != "" {
		return s.config.PublicRPC
	}
	_, port, err := net.SplitHostPort(s.grpc.Addr().String())
	public, bad := url.Parse(s.publicURL)
	if err != nil || bad != nil {
		return ""
	}
	return net.JoinHostPort(public.Hostname(), port)
}

// overGRPC makes the endpoint of A2A over gRPC: the certificate and the callers are
// those of the public listener.
func (out *service) overGRPC(s settings, form translators.Translator, callers httpapi.Callers) error {
	if s.grpc == nil {
		return nil
	}
	at := s.publicGRPC()
	listener, err := ta2a.NewListener(ta2a.ListenerDeps{
		Form: form, Accept: out.publicBounds.connections.Listen(s.grpc), TLS: out.tls, Session: s.source.Session, Logger: s.logger, GRPC: at, Grace: out.untilCut,
		Requests: out.publicBounds.requests, Write: s.config.InFlight().WriteWait,
		AgentURL: func(agent string) string { return s.publicURL + "/agents/" + agent },
		Refused:  out.refusals[telemetry.ListenerGRPC].Connection,
		Identify: func(ctx context.Context, a ta2a.Arrival) context.Context {
			marked, _ := callers.Identify(ctx, a.TLS, a.Remote, credential.Request{Fields: a.Fields, Target: "https://" + at + a.Method})
			return marked
		},
	})
	if err != nil {
		return err
	}
	out.grpc = listener
	return nil
}
