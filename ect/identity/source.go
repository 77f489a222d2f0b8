package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/aepb/aepb-gateway/ect"
)

// Why a peer is refused, or a Source cannot be had.
var (
	// ErrUnexpectedPeer: the peer proved an identity, but not the one that was expected.
	ErrUnexpectedPeer = errors.New("identity: the peer is not who was expected")

	errIncomplete = errors.New("identity: a source needs an SVID with chain and key, and a bundle")
)

// SourceDeps is what a Source needs.
type SourceDeps struct {
	SVID        *SVID               // our own; required
	Bundle      *Bundle             // whom we trust; required
	Public      *tls.Certificate    // what servers show instead of the SVID, for callers that judge by host name; nil: the SVID
	Roots       []*x509.Certificate // further anchors for servers judged by host name
	SystemRoots bool                // the operating system's anchors too, for servers judged by host name
	Now         func() time.Time    // nil: time.Now
}

// Source makes TLS configurations of our SVID and our bundle. All are TLS 1.3
// only. Safe for concurrent use.
type Source struct {
	deps  SourceDeps
	known *chainCache // clients' chains, as they were judged
	own   atomic.Pointer[tls.Certificate]
	life  atomic.Pointer[Life]
	show  atomic.Pointer[tls.Certificate] // to callers that judge by host name; nil: own
}

// NewSource makes a Source that uses nothing but an SVID and a bundle.
func NewSource(svid *SVID, bundle *Bundle) (*Source, error) {
	return NewSourceFrom(SourceDeps{SVID: svid, Bundle: bundle})
}

// NewSourceFrom makes a Source with all that it may use.
func NewSourceFrom(deps SourceDeps) (*Source, error) {
	if deps.Bundle == nil {
		return nil, errIncomplete
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	s := &Source{deps: deps, known: newChainCache(defaultKnown)}
	s.Show(deps.Public)
	return s, s.Renew(deps.SVID)
}

// Show puts another certificate in place of SourceDeps.Public, from the next
// handshake on; nil: the SVID.
func (s *Source) Show(public *tls.Certificate) { s.show.Store(public) }

// Renew puts a new SVID in use, from the next handshake on.
func (s *Source) Renew(svid *SVID) error {
	if svid == nil || len(svid.Chain) == 0 || svid.Key == nil {
		return errIncomplete
	}
	path := svid.Chain
	if _, whole, err := s.deps.Bundle.verify(path, s.deps.Now()); err == nil {
		path = whole
	}
	life, cert := lifeOf(path), svid.Certificate()
	s.life.Store(&life)
	s.own.Store(&cert)
	return nil
}

// Life is that of our SVID in force, of its chain, and of the anchor that vouches
// for it.
func (s *Source) Life() Life { return *s.life.Load() }

// PublicLife is that of the certificate that servers show instead of the SVID;
// false: they show the SVID.
func (s *Source) PublicLife() (Life, bool) {
	public := s.show.Load()
	if public == nil || public.Leaf == nil {
		return Life{}, false
	}
	return lifeOf([]*x509.Certificate{public.Leaf}), true
}

// Uses reports whether an SVID and the anchors of a bundle are those in force.
func (s *Source) Uses(svid *SVID, bundle *Bundle) bool {
	return s.own.Load().Leaf.Equal(svid.Chain[0]) && sameSet(s.deps.Bundle.authorities(), bundle.authorities())
}

// wholeRecords: a peer needs a whole message before it can begin, so a message is not
// split into small records at first, each with a write of its own.
const wholeRecords = true

// ServerConfig is for everything that listens. A client certificate is asked
// for, never demanded, and verified whenever given: one that is no SVID of a
// trusted domain ends the handshake (R3). Offers HTTP/2 and HTTP/1.1.
func (s *Source) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		NextProtos:       []string{"h2", "http/1.1"},
		Time:             s.deps.Now,
		GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.public(), nil },
		ClientAuth:       tls.RequestClientCert, // judged below; doc.go says why not by crypto/tls
		VerifyConnection: s.judgeClient,

		DynamicRecordSizingDisabled: wholeRecords,
	}
}

// ClientConfig is for everything that dials. It shows our SVID to servers that
// ask. With an expected id the server must prove exactly that id, whatever its
// host name. Without one it is judged by host name or address against the
// anchors of our own trust domain, the Source's Roots, its system roots if it
// has them, and the roots given here; these anchors are those of this moment.
// An expected id that is no SPIFFE id fails every handshake.
func (s *Source) ClientConfig(expected ect.Identity, roots ...*x509.Certificate) *tls.Config {
	config := &tls.Config{
		MinVersion:           tls.VersionTLS13,
		Time:                 s.deps.Now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.own.Load(), nil },

		DynamicRecordSizingDisabled: wholeRecords,
	}
	if expected != "" {
		config.InsecureSkipVerify = true // not by name: VerifyConnection judges the chain and the SPIFFE id
		config.VerifyConnection = s.judgeServer(expected)
		return config
	}
	config.RootCAs = s.hostRoots(roots)
	config.VerifyConnection = s.judgeClaim
	return config
}

// public is the certificate that servers show.
func (s *Source) public() *tls.Certificate {
	if public := s.show.Load(); public != nil {
		return public
	}
	return s.own.Load()
}

func (s *Source) judgeClient(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	_, err := s.vouched(state.PeerCertificates, s.deps.Now())
	return err
}

func (s *Source) judgeServer(expected ect.Identity) func(tls.ConnectionState) error {
	want, wrong := spiffeid.FromString(string(expected))
	return func(state tls.ConnectionState) error {
		if wrong != nil {
			return fmt.Errorf("%w: %w", ErrUnexpectedPeer, wrong)
		}
		id, _, err := s.deps.Bundle.verify(state.PeerCertificates, s.deps.Now())
		if err != nil {
			return err
		}
		if id != want {
			return ErrUnexpectedPeer
		}
		return nil
	}
}

// judgeClaim looks at a server that crypto/tls has accepted by host name: if
// its certificate also names a SPIFFE id, that claim must hold too, or PeerOf
// would believe what only a web authority has vouched for.
func (s *Source) judgeClaim(state tls.ConnectionState) error {
	if !claimsWorkload(state.PeerCertificates[0]) {
		return nil
	}
	_, _, err := s.deps.Bundle.verify(state.PeerCertificates, s.deps.Now())
	return err
}

// hostRoots never holds anchors of other trust domains: they vouch for their
// SPIFFE ids, not for host names.
func (s *Source) hostRoots(more []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	if s.deps.SystemRoots {
		if system, err := x509.SystemCertPool(); err == nil { // without them fewer servers are trusted, never more
			pool = system
		}
	}
	for _, anchors := range [][]*x509.Certificate{s.deps.Bundle.Anchors(), s.deps.Roots, more} {
		for _, anchor := range anchors {
			pool.AddCert(anchor)
		}
	}
	return pool
}

// ErrSessionEnded is the cause of the end of what a connection carried: the SVID
// that its client showed has expired, or is not vouched for any more. It is also
// that of a stream whose caller showed a token that has expired.
var ErrSessionEnded = errors.New("identity: the SVID of this connection, or the token of this request, has expired or is not trusted any more; ask again with a valid one")

// A connection is closed in answer to its last requests before its end, so that
// a client whose SVID was renewed connects again before anything is refused: the
// last closingTime of it, or a closingPart of a shorter one.
const (
	closingTime = 10 * time.Second
	closingPart = 4
)

// Session is for how long an accepted connection may be used: as long as the
// SVID that its client showed is valid and its trust domain vouches for it.
// crypto/tls asks that once, at the handshake. Every listener makes one for each
// connection, begins it after the handshake and closes it with the connection.
// A session that was not begun, or whose client showed no SVID, does not end. All
// methods may be called on a nil Session, and at the same time.
type Session struct {
	source *Source
	ended  context.Context //nolint:containedctx // a signal that others can wait for
	end    context.CancelCauseFunc
	begun  sync.Once
	until  atomic.Int64 // nanoseconds since 1970; 0: without end
	margin time.Duration

	mu     sync.Mutex // guards what follows
	chain  []*x509.Certificate
	timer  *time.Timer
	closed bool
}

// Session makes the session of a connection whose handshake may be still to come.
func (s *Source) Session() *Session {
	session := &Session{source: s}
	session.ended, session.end = context.WithCancelCause(context.Background())
	return session
}

// Begin is told what the handshake has verified. Only the first call counts.
func (s *Session) Begin(state *tls.ConnectionState) {
	if s == nil || state == nil || !state.HandshakeComplete {
		return
	}
	s.begun.Do(func() {
		if len(state.PeerCertificates) == 0 {
			return
		}
		s.mu.Lock()
		s.chain = state.PeerCertificates
		s.mu.Unlock()
		// First known to the bundle and then judged: a change between the handshake
		// and this moment is not missed.
		s.source.deps.Bundle.watch(s)
		s.judge()
		if until := s.until.Load(); until != 0 {
			s.margin = min(closingTime, time.Unix(0, until).Sub(s.source.deps.Now())/closingPart)
		}
	})
}

// judge ends the session if its SVID does not hold now, else sets its end.
func (s *Session) judge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ended.Err() != nil {
		return
	}
	now := s.source.deps.Now()
	found, err := s.source.vouched(s.chain, now)
	if err != nil {
		s.end(ErrSessionEnded)
		return
	}
	s.until.Store(found.until.UnixNano())
	wait := found.until.Sub(now) + time.Millisecond // a chain is valid up to and including its end
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.judge)
		return
	}
	s.timer.Reset(wait)
}

// Ended reports whether the connection must not be used any more. It is cheap.
func (s *Session) Ended() bool {
	if s == nil {
		return false
	}
	until := s.until.Load()
	return s.ended.Err() != nil || until != 0 && s.source.deps.Now().UnixNano() > until
}

// Ending reports whether the session is about to end: the client should be told
// to connect again.
func (s *Session) Ending() bool {
	if s == nil {
		return false
	}
	until := s.until.Load()
	return until != 0 && s.source.deps.Now().UnixNano() > until-int64(s.margin)
}

// AfterEnd calls f, in a goroutine of its own, when the session has ended; stop
// prevents that. Closing the session does not call it.
func (s *Session) AfterEnd(f func()) (stop func() bool) {
	if s == nil {
		return func() bool { return false }
	}
	return context.AfterFunc(s.ended, f)
}

// Bound is a context that also ends with the session, with ErrSessionEnded as
// its cause. Streams use it; one answer to one request is given to its end.
func (s *Session) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := s.AfterEnd(func() { cancel(ErrSessionEnded) })
	return ctx, func() { stop(); cancel(nil) }
}

// Close forgets the session: its connection is closed.
func (s *Session) Close() {
	if s == nil {
		return
	}
	s.source.deps.Bundle.unwatch(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

type sessionKey struct{}

// WithSession marks the context of a connection with its session.
func WithSession(ctx context.Context, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

// SessionFrom is the session of the connection that a request came over; nil:
// none is known.
func SessionFrom(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey{}).(*Session)
	return s
}

type untilKey struct{}

// WithUntil marks the context of a request with the end of the token that its caller
// showed. A zero time marks that there was none.
func WithUntil(ctx context.Context, until time.Time) context.Context {
	return context.WithValue(ctx, untilKey{}, until)
}

// Bound is SessionFrom(ctx).Bound(ctx). The context also ends with the token of the
// request, with the same cause ([WithUntil]).
func Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	bound, leave := SessionFrom(ctx).Bound(ctx)
	until, _ := ctx.Value(untilKey{}).(time.Time)
	if until.IsZero() {
		return bound, leave
	}
	bound, cancel := context.WithCancelCause(bound)
	timer := time.AfterFunc(time.Until(until), func() { cancel(ErrSessionEnded) })
	return bound, func() { timer.Stop(); cancel(nil); leave() }
}

// watch lets a session be judged again when the anchors change.
func (b *Bundle) watch(s *Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions == nil {
		b.sessions = map[*Session]struct{}{}
	}
	b.sessions[s] = struct{}{}
}

func (b *Bundle) unwatch(s *Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s)
}

// vouched judges a chain as of now, or remembers that it did: connections of one
// workload show the same chain. What is remembered counts only within its
// validity and while the anchors are the same.
func (s *Source) vouched(chain []*x509.Certificate, now time.Time) (judged, error) {
	raw := make([][]byte, len(chain))
	for i, cert := range chain {
		raw[i] = cert.Raw
	}
	name, ok := chainName(raw)
	if !ok {
		return judged{}, errChainBounds
	}
	anchors := s.deps.Bundle.changes.Load() // before verifying: a change meanwhile makes the result stale
	if found, ok := s.known.get(name); ok && found.anchors == anchors && found.covers(now) {
		return found, nil
	}
	id, path, err := s.deps.Bundle.verify(chain, now)
	if err != nil {
		return judged{}, err
	}
	found := newJudged(ect.Identity(id.String()), path, anchors)
	s.known.put(name, found)
	return found, nil
}
