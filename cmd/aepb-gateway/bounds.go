package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi/coalesce"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// bounds are what the callers of one surface hold of this process. The admin
// listener has its own: operators come in when callers hold all of the others.
type bounds struct {
	connections *accept.Gate
	requests    *inflight.Limits
}

// aside is what is held for a caller whose request counts elsewhere, or has ended.
func (b bounds) aside(caller identity.Caller, address string) transport.Share {
	return b.requests.Aside(limit.KeyOf(caller, address))
}

// asideOf is that of a call.
func (b bounds) asideOf(ctx context.Context, id ect.Identity) transport.Share {
	caller := transport.CallerFrom(ctx)
	caller.ID = cmp.Or(caller.ID, id)
	return b.aside(caller, transport.AddressFrom(ctx))
}

func (s settings) bounds() (bounds, error) {
	connections, err := accept.New(s.config.Accept(s.dev))
	if err != nil {
		return bounds{}, err
	}
	requests, err := inflight.New(s.config.InFlight())
	return bounds{connections, requests}, err
}

// scrapeGate bounds the connections of listen.metrics: 64 of strangers, and 16 from one
// address, as Prometheus and probes may come through one proxy.
func scrapeGate() (*accept.Gate, error) {
	return accept.New(accept.Config{
		Connections: 256, PerAddress: 16, PerIdentity: 1,
		FirstRequest: readHeaderTimeout, StrangerIdle: readHeaderTimeout, WriteWait: monitoringTimeout,
	})
}

// monitoringTimeout is how long one request to listen.metrics may take to be read and
// answered: longer than Prometheus waits.
const monitoringTimeout = 30 * time.Second

// bound makes the bounds of all surfaces.
func (out *service) bound(s settings) (err error) {
	out.delay, out.grace = s.config.Shutdown(s.dev)
	if out.publicBounds, err = s.bounds(); err != nil {
		return err
	}
	if out.adminBounds, err = s.bounds(); err != nil {
		return err
	}
	out.scrapes, err = scrapeGate()
	return err
}

// counted has the refusals of all surfaces counted.
func (out *service) counted() (err error) {
	refused := func() { out.metrics.RateLimited(limit.ScopeShare) }
	out.scrapes.OnRefusal(refused)
	for _, b := range []bounds{out.publicBounds, out.adminBounds} {
		b.connections.OnRefusal(refused)
		b.requests.OnRefusal(refused)
	}
	out.refusals = map[string]*telemetry.Refusals{}
	for _, name := range append(out.lasting, telemetry.ListenerPublic, telemetry.ListenerAdmin, telemetry.ListenerGRPC) {
		if out.refusals[name], err = telemetry.NewRefusals(name, out.metrics, out.logger, time.Now); err != nil {
			return err
		}
	}
	return nil
}

// open is how many connections there are, as metrics name them.
func (b bounds) open() map[string]float64 {
	u := b.connections.Usage()
	return map[string]float64{"fresh": float64(u.Fresh.Used), "stranger": float64(u.Strangers.Used), "identified": float64(u.Identified.Used)}
}

// usage is what callers hold, as metrics name it.
func (b bounds) usage() map[string]telemetry.Use {
	open := b.connections.Usage()
	requests, streams, bytes := b.requests.Usage()
	return map[string]telemetry.Use{
		"connections": telemetry.UseOf(config.BytesOfConnection, open.Fresh, open.Strangers, open.Identified),
		"requests":    telemetry.UseOf(config.BytesOfRequest, requests[:]...),
		"streams":     telemetry.UseOf(config.BytesOfRequest, streams[:]...),
		"in_flight":   telemetry.UseOf(1, bytes[:]...),
	}
}

func (b bounds) reconfigure(c config.Config, dev bool) error {
	return errors.Join(b.connections.Reconfigure(c.Accept(dev)), b.requests.Reconfigure(c.InFlight()))
}

// Without requests Go does not collect garbage for two minutes, and afterwards returns
// little by little what is free, so that what a load needed stays resident long after it.
const (
	restEvery = 30 * time.Second
	restMost  = 4 << 20  // bytes that are made in this time by scrapes and regular work
	loadLeast = 16 << 20 // bytes since the last load that are worth a collection
	restLooks = 4        // collections after a load: idle connections to agents end meanwhile
)

// rest tells when a load is over. It is not safe for concurrent use.
type rest struct {
	seen, returned uint64
	looks          int // that are left after a load
}

// after reports whether memory is to be returned, by how many bytes were ever made.
func (r *rest) after(made uint64) bool {
	quiet := made-r.seen < restMost
	r.seen = made
	if made-r.returned >= loadLeast {
		r.looks = restLooks
	}
	if !quiet || r.looks == 0 {
		return false
	}
	r.returned = made
	r.looks--
	return true
}

// returnMemory gives memory back to the system after each load, until ctx ends.
func returnMemory(ctx context.Context) error {
	made, r := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}, rest{}
	worker.Every(ctx, restEvery, func() {
		if metrics.Read(made); r.after(made[0].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	})
	return nil
}

// listen prepares a listener for a server of this surface.
func (b bounds) listen(l net.Listener) net.Listener { return coalesce.Listen(b.connections.Listen(l)) }

// handler goes around what the surface answers.
func (b bounds) handler(next http.Handler) http.Handler {
	return accept.Handler(b.requests.Handler(next))
}

// connection is what a request is to know of the connection that it comes on.
func connection(ctx context.Context, c net.Conn) context.Context {
	return accept.Context(coalesce.Conn(ctx, c), c)
}

const defaultPort = "443"

// hostPort splits a Host header; without a port it is that of https.
func hostPort(host string) (name, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, defaultPort
	}
	return strings.Trim(name, "[]"), port
}

// baseURL is where this caller reaches us: its own Host header if that is one of
// our names at a port where we listen or are published, else what the operator
// said. A foreign Host never gets into a card, nor does a foreign port of our own.
func (s settings) baseURL(r *http.Request) string {
	if r.Host == strings.TrimPrefix(s.publicURL, "https://") {
		return s.publicURL
	}
	name, port := hostPort(r.Host)
	if !slices.Contains(s.hosts, name) || !slices.Contains(s.publicPorts(), port) {
		return s.publicURL
	}
	host := net.JoinHostPort(name, port)
	if port == defaultPort {
		host = strings.TrimSuffix(host, ":"+defaultPort)
	}
	return "https://" + host
}

// publicPorts are where we are published, and where we listen.
func (s settings) publicPorts() []string {
	ports := []string{s.listening}
	if public, err := url.Parse(s.publicURL); err == nil {
		_, port := hostPort(public.Host)
		ports = append(ports, port)
	}
	return ports
}

// portOf is the port that a listener listens at; empty: it has none.
func portOf(l net.Listener) string {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return ""
	}
	return port
}

// memory is what a process may take, in bytes.
type memory struct {
	bound     int64 // by its configuration
	container int64 // by the cgroups that it is in; 0: they have no limit
	soft      int64 // near it Go collects garbage more often
}

// programBytes are the code and the constants of this program, which Go does not count.
const programBytes = 48 << 20

// memoryOf leaves a tenth of the container to what Go does not count, and of the bound the program itself.
func memoryOf(bound int64, container func() (uint64, error)) (memory, error) {
	m := memory{bound: bound, soft: bound - programBytes}
	limit, err := container()
	if errors.Is(err, memlimit.ErrNoLimit) || errors.Is(err, memlimit.ErrNoCgroup) || errors.Is(err, memlimit.ErrCgroupsNotSupported) {
		return m, nil
	}
	if err == nil && limit <= math.MaxInt64/2 {
		m.container = int64(limit)
		m.soft = min(m.soft, m.container/10*9)
	}
	return m, err
}

// collectAfter is by how many percent of what is in use the heap grows before the collector
// runs, while the soft limit allows: little is in use, since evidence is on disk, and with
// Go's default the collector takes about 5 % of the calls (test/bench). With 300, strangers
// who fill all their connections cost more memory than test/abuse grants them, and with 250 as much; with 200, calls of many
// callers cost 4 to 8 % more CPU.
const collectAfter = 225

// limitMemory lets the collector run before the heap grows beyond what the configuration
// states, and beyond the container. It is set at the start, as the bounds of state are. A
// limit in the environment is the operator's own, and stays.
func limitMemory(ctx context.Context, c config.Config, container func() (uint64, error), logger *slog.Logger) {
	const mib = 1 << 20
	m, err := memoryOf(c.MemoryBound(), container)
	if err != nil {
		logger.WarnContext(ctx, "the memory limit of the container cannot be read; that of the configuration counts", slog.Any("error", err))
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.soft)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAfter)
	}
	logger.InfoContext(ctx, "memory", slog.Int64("bound_mib", m.bound/mib), slog.Int64("container_mib", m.container/mib), slog.Int64("soft_limit_mib", debug.SetMemoryLimit(-1)/mib))
	if m.container > 0 && m.bound > m.container {
		logger.WarnContext(ctx, "the bounds of the configuration add up to more memory than the container has, which may kill the process: give the container more, or lower limits.memory_mib to three quarters of what it has",
			slog.Int64("bound_mib", m.bound/mib), slog.Int64("container_mib", m.container/mib), slog.Int64("memory_mib", m.container/mib*3/4))
	}
}
