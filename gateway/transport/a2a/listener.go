package a2a

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
)

// Bounds of one connection over gRPC, and of one stream of it.
const (
	maxStreams    = 256      // at once on a connection
	maxMetadata   = 64 << 10 // bytes of a request's metadata
	connectWithin = 5 * time.Second
	idleFor       = 2 * time.Minute  // a connection without streams is closed
	pingAfter     = 30 * time.Second // of silence
	pingWithin    = 10 * time.Second
	pingsApart    = 10 * time.Second // of a caller; one that pings more often is cut off
	defaultRead   = 60 * time.Second // for a request to arrive as a whole
	defaultWrite  = 30 * time.Second
	defaultGrace  = 30 * time.Second
)

// Arrival holds what the listener knows of the caller of a gRPC call.
type Arrival struct {
	Remote string                     // address, with its port
	TLS    *tls.ConnectionState       // nil: unknown
	Fields func(name string) []string // its metadata
	Method string                     // full name, with a slash in front
}

// ListenerDeps is what a Listener needs.
type ListenerDeps struct {
	Form   translators.Translator // of this protocol
	Accept net.Listener           // where callers connect; Serve closes it
	TLS    *tls.Config
	// Session makes the session of a new connection, which ends with its client's
	// SVID; nil: connections outlive it.
	Session func() *identity.Session
	// Identify marks a call's context with who makes it (transport.WithCaller, WithStranger).
	Identify func(context.Context, Arrival) context.Context
	AgentURL func(agent string) string // where an agent is reached over HTTP, for its card
	GRPC     string                    // and over gRPC: host:port
	Limits   ect.Limits                // of the evidence of one request; zero: the defaults
	Read     time.Duration             // for a request to arrive; zero: one minute
	Grace    func() time.Duration      // for what runs when Serve is to end, asked then; nil: 30 s
	Write    time.Duration             // for a reader to take a part of an answer; zero: half a minute
	Requests *inflight.Limits          // what callers hold; nil: nothing is bounded
	Logger   *slog.Logger
	Refused  func(ctx context.Context, remote string, err error) // told of failed handshakes, and of connections and calls too many; may be nil
}

// Listener takes native traffic in over gRPC.
type Listener struct{ deps ListenerDeps }

var _ transport.Listener = (*Listener)(nil)

// NewListener checks its dependencies.
func NewListener(deps ListenerDeps) (*Listener, error) {
	if deps.Form == nil || deps.Accept == nil || deps.TLS == nil || deps.Identify == nil || deps.AgentURL == nil || deps.Logger == nil {
		return nil, errors.New("transport/a2a: incomplete ListenerDeps")
	}
	if deps.Session == nil {
		deps.Session = func() *identity.Session { return nil }
	}
	if deps.Refused == nil {
		deps.Refused = func(context.Context, string, error) {}
	}
	quota.OrDefault(&deps.Read, defaultRead)
	quota.OrDefault(&deps.Write, defaultWrite)
	if deps.Grace == nil {
		deps.Grace = func() time.Duration { return defaultGrace }
	}
	return &Listener{deps}, nil
}

// Serve takes calls in until its context ends, then lets those under way finish
// within the grace period.
func (l *Listener) Serve(ctx context.Context, handler transport.Handler) error {
	server := grpc.NewServer(l.options(handler)...) //nolint:contextcheck // every call has its own
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(l.deps.Accept); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		cut := time.AfterFunc(l.deps.Grace(), server.Stop)
		defer cut.Stop()
		server.GracefulStop()
		return nil
	})
	return group.Wait()
}

func (l *Listener) options(handler transport.Handler) []grpc.ServerOption {
	conf := l.deps.TLS.Clone()
	conf.NextProtos = []string{"h2"}
	most := l.deps.Form.Info().BodyLimit
	return []grpc.ServerOption{
		grpc.Creds(sessionCredentials{credentials.NewTLS(conf), l.deps}), grpc.ForceServerCodecV2(rawCodec{}), grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return l.call(s, handler) }),
		grpc.InTapHandle(l.limitReading),
		grpc.MaxRecvMsgSize(most), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxMetadata),
		grpc.ConnectionTimeout(connectWithin),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleFor, Time: pingAfter, Timeout: pingWithin}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsApart, PermitWithoutStream: true}),
	}
}

// errSlow ends a call whose request did not arrive in time.
var errSlow = errors.New("transport/a2a: the request did not arrive in time")

// errSession ends a connection, or a stream of it, that has outlived the client's SVID.
var errSession = status.Error(codes.Unauthenticated, "the SVID of this connection, or the token of this call, has expired or is not trusted any more; call again with a valid one")

type readingKey struct{}

// cutter ends a call from outside its handler.
type cutter struct {
	cut  context.CancelCauseFunc
	stop func() // the request has arrived
}

// limitReading cuts a call off whose request does not arrive. The call's
// handler calls it off when it has.
func (l *Listener) limitReading(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(l.deps.Read, func() { cancel(errSlow) })
	return context.WithValue(ctx, readingKey{}, cutter{cancel, sync.OnceFunc(func() { timer.Stop() })}), nil
}

func arrived(ctx context.Context) {
	if c, ok := ctx.Value(readingKey{}).(cutter); ok {
		c.stop()
	}
}

// cut ends the call, its reading and its writing.
func (c *remote) cut(cause error) {
	if outer, ok := c.stream.Context().Value(readingKey{}).(cutter); ok {
		outer.cut(cause)
	}
}

// call serves one call, whatever happens in it.
func (l *Listener) call(s grpc.ServerStream, handler transport.Handler) (err error) {
	defer arrived(s.Context())
	defer func() {
		if r := recover(); r != nil {
			l.deps.Logger.ErrorContext(s.Context(), "panic in a handler", slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
			err = status.Error(codes.Internal, "the gateway failed")
		}
	}()
	method, _ := grpc.MethodFromServerStream(s)
	fields, _ := metadata.FromIncomingContext(s.Context())
	arrival, ctx := Arrival{Fields: fields.Get, Method: method}, s.Context()
	var conn *accept.Conn
	var at *connection
	if from, ok := peer.FromContext(ctx); ok {
		arrival.Remote = from.Addr.String()
		if info, ok := from.AuthInfo.(connectionInfo); ok {
			defer info.at.done()
			if !info.at.begin() {
				return errSession
			}
			at = info.at
			arrival.TLS, conn, ctx = &info.State, info.at.counted, identity.WithSession(ctx, info.at.session)
		}
	}
	c := &remote{Listener: l, handler: handler, stream: s, fields: fields, share: &callShare{}, at: at, ctx: l.deps.Identify(ctx, arrival)}
	if c.share.Request, err = l.begin(c.ctx, arrival, conn); err != nil {
		l.deps.Refused(c.ctx, arrival.Remote, err)
		return c.refuse(err)
	}
	if c.share.Request != nil {
		c.ctx = transport.WithShare(c.ctx, c.share.Request)
	}
	c.share.use()
	defer c.share.done()
	return c.serve(method)
}

// begin lets a call count for its connection and its caller. Without limits there
// is no share.
func (l *Listener) begin(ctx context.Context, arrival Arrival, conn *accept.Conn) (*inflight.Request, error) {
	if !conn.Begun() {
		peer, _ := identity.PeerOf(arrival.TLS)
		if err := conn.Begin(string(peer.ID)); err != nil {
			return nil, err
		}
	}
	if l.deps.Requests == nil {
		return nil, nil //nolint:nilnil // nothing is bounded
	}
	caller := transport.CallerFrom(ctx)
	holder, identified := limit.KeyOf(caller, transport.AddressFrom(ctx))
	if identified {
		conn.Prove(string(caller.ID))
	}
	return l.deps.Requests.Begin(holder, identified)
}

// rawCodec is the codec of messages that are read and written as they travel.
type rawCodec struct{}

// Name is that of protobuf's own form, which the bytes are in.
func (rawCodec) Name() string { return "proto" }

// Marshal takes []byte, or an [outgoing] message.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*outgoing); ok {
		return mem.BufferSlice{mem.NewBuffer(&m.body, m)}, nil
	}
	body, ok := v.([]byte)
	if !ok {
		return nil, errors.New("transport/a2a: not bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(body)}, nil
}

// Unmarshal fills a *[]byte.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	body, ok := v.(*[]byte)
	if !ok {
		return errors.New("transport/a2a: not bytes")
	}
	*body = data.Materialize()
	return nil
}

// linger is how long the last status on a connection may take to leave, once its
// session has ended.
const linger = time.Second

// sessionCredentials are TLS credentials whose connections end with the SVIDs of
// their clients (identity.Session).
type sessionCredentials struct {
	credentials.TransportCredentials

	deps ListenerDeps
}

// ServerHandshake implements credentials.TransportCredentials.
func (c sessionCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	secured, ok := info.(credentials.TLSInfo)
	if err != nil {
		c.deps.Refused(context.Background(), raw.RemoteAddr().String(), err)
	}
	if err != nil || !ok {
		return conn, info, err
	}
	at := &connection{Conn: conn, counted: accept.From(raw), session: c.deps.Session()}
	at.session.AfterEnd(at.end) // for good: a closed session does not end
	at.session.Begin(&secured.State)
	if peer, ok := identity.PeerOf(&secured.State); ok {
		_ = at.counted.Begin(string(peer.ID)) // if there are too many, the first call is refused
	}
	return at, connectionInfo{secured, at}, nil
}

// Clone implements credentials.TransportCredentials.
func (c sessionCredentials) Clone() credentials.TransportCredentials {
	return sessionCredentials{c.TransportCredentials.Clone(), c.deps}
}

// connectionInfo is what gRPC tells a call of its connection.
type connectionInfo struct {
	credentials.TLSInfo

	at *connection
}

// connection counts its calls, so that it can be closed when there are none. gRPC
// has no GOAWAY for one connection.
type connection struct {
	net.Conn
	counted *accept.Conn // nil: it is not counted
	session *identity.Session

	mu      sync.Mutex
	calls   int
	closing bool // soon
	queued  map[*outgoing]bool
}

// begin counts a call; false: the connection must not be used any more.
func (c *connection) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.counted.Enter()
	return !c.session.Ended()
}

// done ends a call, and after the last one a connection whose session has ended.
func (c *connection) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted.Leave()
	if c.calls--; c.calls == 0 && c.session.Ended() {
		c.closing = true
		time.AfterFunc(linger, func() { _ = c.Close() })
	}
}

func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == 0 && !c.closing {
		_ = c.Conn.Close()
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.session.Close()
	err := c.Conn.Close()
	c.drop()
	return err
}

// queue remembers a message that gRPC has, in case the connection ends first.
func (c *connection) queue(m *outgoing) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queued == nil {
		c.queued = map[*outgoing]bool{}
	}
	c.queued[m] = true
}

func (c *connection) forget(m *outgoing) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queued, m)
}

// abandon closes a connection that is not read.
func (c *connection) abandon() {
	if c != nil {
		_ = c.Close()
	}
}

// drop releases what was queued on a connection that has ended.
func (c *connection) drop() {
	c.mu.Lock()
	queued := c.queued
	c.queued = nil
	c.mu.Unlock()
	for m := range queued {
		m.release()
	}
}
