package server

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi/coalesce"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
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

func (s Config) bounds() (bounds, error) {
	connections, err := accept.New(s.Settings.Accept(s.Development))
	if err != nil {
		return bounds{}, err
	}
	requests, err := inflight.New(s.Settings.InFlight())
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
func (out *Server) bound(s Config) (err error) {
	out.stopper.delay, out.stopper.grace = s.Settings.Shutdown(s.Development)
	if out.surfaces.publicBounds, err = s.bounds(); err != nil {
		return err
	}
	if out.surfaces.adminBounds, err = s.bounds(); err != nil {
		return err
	}
	out.surfaces.scrapes, err = scrapeGate()
	return err
}

// counted has the refusals of all surfaces counted.
func (out *Server) counted() (err error) {
	refused := func() { out.metrics.RateLimited(limit.ScopeShare) }
	out.surfaces.scrapes.OnRefusal(refused)
	for _, b := range []bounds{out.surfaces.publicBounds, out.surfaces.adminBounds} {
		b.connections.OnRefusal(refused)
		b.requests.OnRefusal(refused)
	}
	out.surfaces.refusals = map[string]*telemetry.Refusals{}
	for _, name := range append(out.surfaces.lasting, telemetry.ListenerPublic, telemetry.ListenerAdmin, telemetry.ListenerGRPC) {
		if out.surfaces.refusals[name], err = telemetry.NewRefusals(name, out.metrics, out.config.Logger, time.Now); err != nil {
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

// stackOfCall is about how much stack a call needs, in bytes. With it a goroutine has 32 KiB.
const stackOfCall = 24 << 10

// grown grows the stack of an HTTP/2 request once. net/http gives each its own goroutine, whose
// 2 KiB would be doubled and copied again and again on the way down. The goroutine of an HTTP/1.1
// connection keeps what it has grown to.
func grown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor > 1 {
			growStack()
		}
		next.ServeHTTP(w, r)
	})
}

//go:noinline
func growStack() {
	var space [stackOfCall]byte
	runtime.KeepAlive(&space)
}
