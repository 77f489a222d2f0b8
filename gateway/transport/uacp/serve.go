package uacp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// ListenerDeps is what a Listener needs.
type ListenerDeps struct {
	Form      translators.Translator  // the µACP codec
	TLS       *tls.Config             // the service's own, whose VerifyConnection judges certificates; TLS 1.3 is demanded whatever it says
	Net       net.Listener            // plain TCP; Serve closes it
	Agent     string                  // directory name of the agent of callers that name none (session.named); empty: none
	Known     func(agent string) bool // whether there is an agent of this directory name; nil: none whose name has a dot
	Anonymous ect.Identity            // who callers without a certificate are; empty: their handshake fails
	Reserved  string                  // what ids begin with that no certificate may show; empty: there are none
	Limits    ect.Limits              // of the evidence of one request; zero: the defaults
	Config    Config
	// ByReference is called for each message whose evidence does not travel with it,
	// with the reason; nil: it is not.
	ByReference func(Reason)
	// Session makes the session of a new connection, which ends with its client's
	// SVID; nil: connections outlive it.
	Session func() *identity.Session
	Refused func(ctx context.Context, remote string, err error) // told of failed handshakes, and of connections too many; may be nil
}

// Listener takes µACP traffic in for one agent.
type Listener struct {
	deps         ListenerDeps
	identified   *quota.Places // connections, by caller
	unidentified *quota.Places // besides, by address: connections in their handshake
}

var _ transport.Listener = (*Listener)(nil)

// NewListener checks its dependencies.
func NewListener(deps ListenerDeps) (*Listener, error) {
	if deps.Form == nil || deps.Form.Info().Binding != form.Binding || deps.TLS == nil || deps.Net == nil {
		return nil, errors.New("uacp: incomplete ListenerDeps")
	}
	deps.Config = deps.Config.withDefaults()
	if deps.Refused == nil {
		deps.Refused = func(context.Context, string, error) {}
	}
	deps.TLS = deps.TLS.Clone()
	deps.TLS.MinVersion, deps.TLS.MaxVersion = tls.VersionTLS13, 0
	deps.TLS.NextProtos = []string{Protocol}
	if deps.Anonymous == "" {
		deps.TLS.ClientAuth = tls.RequireAnyClientCert // which one, VerifyConnection judges
	}
	l := &Listener{deps: deps}
	if err := l.bound(deps.Config); err != nil {
		return nil, err
	}
	return l, nil
}

// scarce reports whether Accept failed because the process lacks a resource now, or because
// the connection is gone. The listener then goes on, and serves the open connections.
func scarce(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED,
	}, func(reason syscall.Errno) bool { return errors.Is(err, reason) })
}

// acceptAgain is how long a listener waits for what is scarce.
const acceptAgain = 100 * time.Millisecond

// Serve accepts connections until ctx ends. It answers with the listener's own
// error if that ends first.
func (l *Listener) Serve(ctx context.Context, handler transport.Handler) error {
	stop := context.AfterFunc(ctx, func() { _ = l.deps.Net.Close() })
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	for {
		conn, err := l.deps.Net.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if !scarce(err) {
				return err
			}
			worker.Pause(ctx, acceptAgain)
			continue
		}
		entry, err := l.begin(conn)
		if err != nil {
			l.deps.Refused(ctx, conn.RemoteAddr().String(), err)
			_ = conn.Close()
			continue
		}
		group.Go(func() {
			defer entry.Release()
			l.connection(ctx, handler, conn, entry)
		})
	}
}

// connection serves one connection until it ends, or is idle, or ctx ends. entry is
// its share while its caller is not known.
func (l *Listener) connection(ctx context.Context, handler transport.Handler, plain net.Conn, entry *quota.Place) {
	conn, remote := tls.Server(plain, l.deps.TLS), plain.RemoteAddr().String()
	defer func() { _ = conn.Close() }()
	// Reading stops when ctx ends; what is being answered is answered, to a peer that reads.
	stop := context.AfterFunc(ctx, func() {
		_ = plain.SetReadDeadline(time.Unix(1, 0))
		time.AfterFunc(lastAnswers, func() { _ = plain.Close() })
	})
	defer stop()
	handshake, cancel := context.WithTimeout(ctx, l.deps.Config.Handshake)
	defer cancel()
	if err := conn.HandshakeContext(handshake); err != nil {
		l.deps.Refused(ctx, remote, err)
		return
	}
	ctx, leave := l.session(ctx, conn)
	defer leave()
	g := l.guest(handler, stream{conn, l.deps.Config.Write}, l.named(conn.ConnectionState().ServerName), worker.NewPool(idleWorkers))
	ctx = l.arrived(ctx, conn, transport.Host(remote))
	holder, _ := limit.KeyOf(transport.CallerFrom(ctx), transport.AddressFrom(ctx))
	share, err := l.identified.Take(holder, false, func() { _ = plain.Close() })
	if err != nil {
		l.deps.Refused(ctx, remote, err)
		g.turnAway(ctx, conn, err)
		return
	}
	defer share.Release()
	g.place = share
	entry.Release()
	g.listen(ctx, conn)
}

// named is whom a caller reaches: µACP has no recipient, so the TLS server name
// begins with the agent's, and at least one label follows. Names of agents have dots
// too: of several that it begins with, the longest is meant, and of none the first
// label. Case is nothing in the names of hosts, and names of agents have no capitals.
func (l *Listener) named(server string) string {
	server = strings.ToLower(server)
	first, domain, _ := strings.Cut(server, ".")
	if first == "" || domain == "" {
		return l.deps.Agent
	}
	for name := server; l.deps.Known != nil; {
		if name = name[:strings.LastIndexByte(name, '.')]; len(name) <= len(first) {
			break
		}
		if l.deps.Known(name) {
			return name
		}
	}
	return first
}

// arrived marks a connection's context with who is at its other end.
func (l *Listener) arrived(ctx context.Context, conn *tls.Conn, address string) context.Context {
	state := conn.ConnectionState()
	switch peer, ok := identity.PeerOf(&state); {
	case ok && l.deps.Reserved != "" && strings.HasPrefix(string(peer.ID), l.deps.Reserved):
		return transport.WithoutCaller(ctx, &problem.IdentityError{Reason: "ids under " + l.deps.Reserved + " are those of callers with access tokens"}, address)
	case ok:
		return transport.WithCaller(ctx, identity.Caller{Peer: peer}, address)
	case l.deps.Anonymous != "":
		return l.anonymous(ctx, address)
	default:
		return transport.WithoutCaller(ctx, &problem.UnauthenticatedError{}, address)
	}
}

// anonymous returns a context whose caller is the configured anonymous identity.
func (l *Listener) anonymous(ctx context.Context, address string) context.Context {
	return transport.WithCaller(ctx, identity.Caller{Peer: ect.Peer{ID: l.deps.Anonymous}, Anonymous: true}, address)
}

// lastAnswers is how long answers may take to be read after the end of Serve's context.
const lastAnswers = time.Second

// idleWorkers is how many goroutines of a connection wait for its next frames, and of
// all who send datagrams.
const idleWorkers = 4

// session is one peer.
type session struct {
	l         *Listener
	handler   transport.Handler
	line      replyWriter
	agent     string // directory name; empty: no agent
	writing   sync.Mutex
	most      int // bytes of a frame
	observers observers
	place     *quota.Place // of its connection; nil: it has none
	recent    recent
	busy      chan struct{}
	group     *worker.Pool
}

// replyWriter is the way back to a peer.
type replyWriter interface {
	write(body []byte) error
	// acked handles the acknowledgement of the TELL of this id.
	acked(id uint32)
	close()
}

func (l *Listener) guest(handler transport.Handler, at replyWriter, agent string, group *worker.Pool) *session {
	return &session{l: l, handler: handler, line: at, agent: agent, most: form.MaxFrame, busy: make(chan struct{}, l.deps.Config.InFlight), group: group}
}

// stream is a peer on a connection of its own.
type stream struct {
	conn  *tls.Conn
	limit time.Duration // for one frame
}

func (s stream) write(body []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.limit)); err != nil {
		return err
	}
	return writeFrame(s.conn, body)
}

// acked does nothing: the stream delivers a TELL, or breaks.
func (stream) acked(uint32) {}

// close sends no close_notify: a peer that does not read would block it.
func (s stream) close() { _ = s.conn.NetConn().Close() }

// listen reads frames until the connection ends. What is being answered then is
// answered; what is observed is not any more.
func (g *session) listen(ctx context.Context, conn *tls.Conn) {
	defer g.group.Wait()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	for ctx.Err() == nil {
		body, err := g.read(ctx, conn)
		if err != nil {
			return
		}
		if identity.SessionFrom(ctx).Ended() || !g.take(ctx, body, true) {
			return
		}
	}
}

// idle returns the time by which a frame must come; zero: there is no limit, since a
// peer that observes need not send.
func (g *session) idle() time.Time {
	if !g.observers.none() {
		return time.Time{}
	}
	return time.Now().Add(g.l.deps.Config.Idle)
}

// take answers one frame as soon as fewer than the permitted number are under way. With
// wait false it drops the frame instead of waiting; false: ctx has ended.
func (g *session) take(ctx context.Context, body []byte, wait bool) bool {
	f, err := form.ParseFrame(body)
	if err == nil && f.IsAck() {
		g.line.acked(f.ID)
		return true
	}
	if err == nil && (g.observers.cancel(f) || g.repeated(f, body)) {
		return true
	}
	select {
	case g.busy <- struct{}{}:
	default:
		if !wait {
			return true
		}
		select {
		case g.busy <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	callCtx, leave := context.WithoutCancel(ctx), func() {} // a request that was taken is finished
	if err == nil && f.Verb == form.Observe {
		callCtx, leave = g.observers.add(ctx, f)
	}
	g.place.Use()
	g.group.Go(func() {
		defer func() { <-g.busy }()
		defer g.place.Rest()
		defer leave()
		g.answer(callCtx, body)
	})
	return true
}

// repeated reports whether a frame with quality of service 1 came before. If it was
// answered, it sends that answer again.
func (g *session) repeated(f form.Frame, body []byte) bool {
	if f.QoS == 0 {
		return false
	}
	reply, again := g.recent.seen(body, time.Now())
	if !again || reply == nil {
		return again
	}
	select {
	case g.busy <- struct{}{}:
		g.group.Go(func() { // the reader does not wait for the writer
			defer func() { <-g.busy }()
			g.send(reply)
		})
	default: // a peer at its limit of calls under way may repeat the frame
	}
	return true
}

// answer does what one frame asks. What cannot be read has no id that could be
// answered, so the connection ends.
func (g *session) answer(ctx context.Context, body []byte) {
	opened, unread := form.Open(body)
	wire := translators.Wire{Binding: form.Binding, Form: opened.Form(), Media: form.Media, Body: body}
	q := transport.CallInfoFrom(ctx, g.agent, form.Binding)
	var limited error
	q.Pass, limited = g.handler.Limit(ctx, q)
	m, err := g.l.deps.Form.Decode(wire)
	if m == nil {
		g.line.close()
		return
	}
	var evidence []string
	var parent string
	if err == nil {
		evidence, parent, err = g.evidence(opened, unread)
	}
	switch {
	case limited != nil:
		err = limited
	case err != nil, m.Op == canonical.OpNotice, m.Op == canonical.OpPing:
		// Those who may not call the agent hear that first (architecture section 5).
		err = cmp.Or(g.handler.Admit(ctx, q), err)
	}
	if err != nil {
		g.fail(wire, m, err, nil)
		return
	}
	wire.Version = m.Origin.Version
	switch m.Op {
	case canonical.OpNotice: // it has no answer
		g.acknowledge(wire)
	case canonical.OpPing:
		g.reply(wire, m, nil)
	case canonical.OpDescribe, canonical.OpCapabilities:
		g.describe(ctx, wire, m, q)
	default:
		if input, err := opened.HashInput(); err == nil { // the pipeline needs it, and would read the frame again
			wire.Hasher = translators.Knowing(translators.HasherOf(g.l.deps.Form), body, input)
		}
		g.exchange(ctx, transport.Call{
			EntryPoint: transport.Native, Agent: g.agent, Wire: wire, Message: m, Evidence: transport.Submitted(m, evidence), Parent: parent,
			Pass: q.Pass, Caller: q.Caller, Address: q.Address,
		})
	}
}

// evidence is the tokens in a frame, and the name of the one that it came of.
func (g *session) evidence(opened form.Opened, unread error) (tokens []string, parent string, err error) {
	if unread != nil {
		return nil, "", unread
	}
	if parent, err = opened.Parent(); err != nil {
		return nil, "", err
	}
	if tokens, err = opened.Evidence(); err == nil {
		tokens, err = ect.ParseHeader(tokens, g.l.deps.Limits)
	}
	return tokens, parent, err
}

func (g *session) exchange(ctx context.Context, call transport.Call) {
	wire, m := call.Wire, call.Message
	answer, err := g.handler.Exchange(ctx, call)
	switch {
	case err == nil && answer.Events() != nil:
		g.observed(ctx, wire, m, answer)
	case err != nil:
		g.fail(wire, m, err, answer.Evidence)
	case len(answer.Wire().Body) > 0:
		g.write(wire, answering(wire.Body, answer.Wire().Body), answer.Evidence)
	default:
		g.acknowledge(wire) // a TELL has no answer
	}
}

// acknowledge says that a TELL with quality of service 1 has come.
func (g *session) acknowledge(wire translators.Wire) {
	f, err := form.ParseFrame(wire.Body)
	if err != nil || f.QoS == 0 {
		return
	}
	if out, err := form.Ack(f).Bytes(); err == nil {
		g.write(wire, out, nil)
	}
}

// describe answers from the directory (R8: no ECT, no forwarding).
func (g *session) describe(ctx context.Context, wire translators.Wire, m *canonical.Message, q transport.CallInfo) {
	q.Form = wire.Form
	d, err := g.handler.Describe(ctx, q)
	switch {
	case err != nil:
		g.fail(wire, m, err, nil)
	case m.Op == canonical.OpDescribe:
		copied := *d
		copied.Streams = true   // whatever it can do, it can be observed here
		copied.Extensions = nil // what another protocol said about an agent is not for our callers
		g.reply(wire, m, &copied)
	default:
		tools := make([]canonical.Capability, len(d.Capabilities))
		copy(tools, d.Capabilities)
		for i := range tools {
			tools[i].Extensions = nil
		}
		g.reply(wire, m, &canonical.CapabilityList{Capabilities: tools})
	}
}

func (g *session) reply(wire translators.Wire, m *canonical.Message, body canonical.Body) {
	g.say(wire, &canonical.Message{
		Op: m.Op, Phase: canonical.PhaseResponse, Body: body,
		Correlation: canonical.Correlation{WireID: m.Correlation.WireID},
	}, nil)
}

func (g *session) fail(wire translators.Wire, m *canonical.Message, err error, evidence []string) {
	if m.Correlation.WireID == nil {
		return
	}
	g.say(wire, &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseError, Body: problem.Native(err),
		Correlation: canonical.Correlation{WireID: m.Correlation.WireID},
	}, evidence)
}

func (g *session) say(wire translators.Wire, m *canonical.Message, evidence []string) {
	out, _, err := g.l.deps.Form.Encode(m, translators.Target{Form: wire.Form})
	if err != nil {
		g.line.close() // nothing is worse than a caller who waits for ever
		return
	}
	g.write(wire, answering(wire.Body, out.Body), evidence)
}

// write sends what answers a frame.
func (g *session) write(request translators.Wire, body []byte, evidence []string) {
	body = g.attested(body, evidence)
	g.recent.answered(request.Body, body)
	g.send(body)
}

// attested returns a frame with its evidence, as far as it fits.
func (g *session) attested(body []byte, evidence []string) []byte {
	out, reason := withEvidence(body, evidence, g.most)
	countReference(g.l.deps.ByReference, reason)
	return out
}

// send writes a frame; false: the peer does not take any more.
func (g *session) send(body []byte) bool {
	g.writing.Lock()
	defer g.writing.Unlock()
	if g.line.write(body) != nil {
		g.line.close()
		return false
	}
	return true
}
