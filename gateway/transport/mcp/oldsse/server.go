package oldsse

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// The paths below that of Streamable HTTP.
const (
	PathStream   = "/sse"
	PathMessages = "/messages"

	headerSession = "Mcp-Session-Id"
	parameter     = "session"
)

// Bounds of what clients may hold.
const (
	DefaultSessions = 64              // of one caller
	maxSessions     = 1024            // in all
	DefaultUnderWay = 4 << 20         // bytes of requests whose replies are to come; of one caller a half
	leastRequest    = 64 << 10        // bytes that a request counts for
	leavesWithin    = 2 * time.Second // that the end of a session takes
)

// Message is one that was taken.
type Message struct {
	Request    bool // it has a reply
	Initialize bool // it begins the session
	Size       int  // in bytes
	// Answer answers it on w.
	Answer func(ctx context.Context, w http.ResponseWriter)
}

// Pipeline is the server of Streamable HTTP. What it refuses it answers. A request is of the
// session that its field Mcp-Session-Id names.
type Pipeline interface {
	// Owner is whose a request is, and to which agent; holder is the caller alone.
	Owner(r *http.Request) (owner, holder string)
	// Admit judges a request by all but its message; an error refuses it.
	Admit(w http.ResponseWriter, r *http.Request, refused error) bool
	// Take admits a message and reads it; nil: it is refused.
	Take(w http.ResponseWriter, r *http.Request) *Message
	// Listen answers with what the agent says without being asked.
	Listen(w http.ResponseWriter, r *http.Request)
	// Leave ends a session.
	Leave(ctx context.Context, r *http.Request)
}

// Shares bound what each caller holds.
type Shares struct {
	sessions *quota.Pool
	bytes    *quota.Pool // of requests under way
	largest  int64       // of one caller, and so of one request
}

// NewShares makes shares of which nothing is held. most is how many sessions one caller may
// have; zero, or more than that: DefaultSessions. underWay is how many bytes of requests all
// callers may have under way; zero: DefaultUnderWay.
func NewShares(most int, underWay int64) (Shares, error) {
	if underWay <= 0 {
		underWay = DefaultUnderWay
	}
	if most <= 0 || most > DefaultSessions {
		most = DefaultSessions
	}
	sessions, noSessions := quota.New(quota.Config{Resource: "sessions over HTTP with SSE", Total: maxSessions, PerHolder: int64(most)})
	size, noBytes := quota.New(quota.Config{Resource: "bytes of requests over HTTP with SSE", Total: underWay, PerHolder: max(1, underWay/2)})
	return Shares{sessions, size, underWay / 2}, errors.Join(noSessions, noBytes)
}

// ServerDeps is what a Server is built from. All but Base are needed.
type ServerDeps struct {
	Pipeline Pipeline
	Shares   Shares
	Closing  context.Context //nolint:containedctx // a signal: when it ends, sessions end with the requests that are under way
	Logger   *slog.Logger    // of what should not happen
	// Base is the path of the server of Streamable HTTP as clients see it; nil: as the request has it.
	Base func(*http.Request) string
}

// Server serves clients. It is safe for concurrent use.
type Server struct {
	deps ServerDeps

	mu       sync.Mutex
	sessions map[string]*session
}

// NewServer makes a Server without sessions.
func NewServer(deps ServerDeps) *Server {
	return &Server{deps: deps, sessions: map[string]*session{}}
}

// Stream serves the GET: it begins a session, which ends with it.
func (s *Server) Stream(w http.ResponseWriter, r *http.Request) {
	if !allowed(w, r, http.MethodGet) {
		return
	}
	r = plain(r, "")
	if !s.deps.Pipeline.Admit(w, r, nil) {
		return
	}
	owner, holder := s.deps.Pipeline.Owner(r)
	grant, err := s.deps.Shares.sessions.Take(holder, 1)
	if err != nil {
		s.deps.Pipeline.Admit(w, r, err)
		return
	}
	defer grant.Release()
	ctx, leave := identity.Bound(r.Context())
	defer leave()
	one := &session{server: s, id: rand.Text(), owner: owner, holder: holder, get: r, opened: make(chan struct{})}
	one.ctx, one.end = context.WithCancel(ctx)
	s.mu.Lock()
	s.sessions[one.id] = one
	s.mu.Unlock()
	defer s.remove(one) //nolint:contextcheck // its stream has ended by then
	one.out = sse.NewWriter(w, "")
	defer one.out.Stop()
	one.run(s.endpoint(r, one.id))
}

// endpoint is where the messages of a session are posted: a path, which every client
// resolves alike.
func (s *Server) endpoint(r *http.Request, id string) string {
	var base string
	if s.deps.Base != nil {
		base = s.deps.Base(r)
	} else {
		base = strings.TrimSuffix(strings.TrimSuffix(r.URL.EscapedPath(), "/"), PathStream)
	}
	return base + PathMessages + "?" + parameter + "=" + url.QueryEscape(id)
}

// remove forgets a session that has ended, here and in the pipeline.
func (s *Server) remove(one *session) {
	s.mu.Lock()
	delete(s.sessions, one.id)
	s.mu.Unlock()
	if id := one.name(); id != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(one.get.Context()), leavesWithin)
		defer cancel()
		s.deps.Pipeline.Leave(ctx, plain(one.get, id))
	}
}

// find is the session that a request names; nil: there is none, or it is another's.
func (s *Server) find(r *http.Request) *session {
	s.mu.Lock()
	one := s.sessions[r.URL.Query().Get(parameter)]
	s.mu.Unlock()
	if one == nil {
		return nil
	}
	if owner, _ := s.deps.Pipeline.Owner(r); owner != one.owner {
		return nil
	}
	select {
	case <-one.opened:
		return one
	case <-r.Context().Done():
		return nil
	}
}

// Messages serves the POST.
func (s *Server) Messages(w http.ResponseWriter, r *http.Request) {
	if !allowed(w, r, http.MethodPost) {
		return
	}
	one := s.find(r)
	if one == nil {
		if s.deps.Pipeline.Admit(w, plain(r, ""), nil) {
			refuse(w, http.StatusNotFound, "the session is not known: open the stream again")
		}
		return
	}
	r = plain(r, one.name())
	noted := &noting{ResponseWriter: w}
	switch message := s.deps.Pipeline.Take(noted, r); {
	case message == nil:
		if noted.code == http.StatusNotFound && r.Header.Get(headerSession) != "" {
			one.end() // nothing it asks will be answered any more
		}
	case !message.Request:
		message.Answer(r.Context(), w) //nolint:contextcheck // it is that of the POST
		one.listens()
	case message.Initialize && !one.first():
		refuse(w, http.StatusBadRequest, "the session is initialized")
	default:
		if !s.take(w, r, one, message) && message.Initialize { //nolint:contextcheck // it is answered after its POST
			one.refused()
		}
	}
}

// take has a request answered on the stream; false: it is refused.
func (s *Server) take(w http.ResponseWriter, r *http.Request, one *session, message *Message) bool {
	if size := int64(message.Size); size > s.deps.Shares.largest {
		refuse(w, http.StatusRequestEntityTooLarge, "a request over HTTP with SSE has at most "+strconv.FormatInt(s.deps.Shares.largest, 10)+" bytes: send it over Streamable HTTP")
		return false
	}
	grant, err := s.deps.Shares.bytes.Take(one.holder, max(int64(message.Size), leastRequest))
	if err != nil {
		s.deps.Pipeline.Admit(w, r, err)
		return false
	}
	began := one.begin(func() {
		defer grant.Release()
		one.answer(r.Context(), message)
	})
	if !began {
		grant.Release()
		refuse(w, http.StatusNotFound, "the session has ended")
		return false
	}
	if !message.Initialize {
		one.listens()
	}
	w.WriteHeader(http.StatusAccepted)
	return true
}

// plain is a request as Streamable HTTP has it, of the session that has the id.
func plain(r *http.Request, id string) *http.Request {
	out := r.Clone(r.Context())
	out.Header.Set("Accept", "application/json, "+sse.Media)
	for _, name := range []string{headerSession, "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Last-Event-Id"} {
		out.Header.Del(name)
	}
	if id != "" {
		out.Header.Set(headerSession, id)
	}
	return out
}

func allowed(w http.ResponseWriter, r *http.Request, method string) bool {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	w.WriteHeader(http.StatusMethodNotAllowed)
	return false
}

// refuse answers a POST with an error. text needs no escape.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"` + text + `"}}`))
}

// noting remembers the status of an answer.
type noting struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (n *noting) WriteHeader(code int) {
	n.code = code
	n.ResponseWriter.WriteHeader(code)
}

// Unwrap gives the writer that stands behind it.
func (n *noting) Unwrap() http.ResponseWriter { return n.ResponseWriter }
