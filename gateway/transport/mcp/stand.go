package mcp

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/oldsse"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	longestStand = 50 * time.Minute // of one stream; a client that still wants to hear comes back
	maxStanding  = 4096             // streams, in all
	knockEvery   = time.Minute      // whether a stream's session still lives
)

// serverStreams holds the streams on which clients of legacy revisions read notifications: one
// for each session. A second stream in a session ends the first.
type serverStreams struct {
	streams *quota.Pool

	mu     sync.Mutex
	places map[string]*post
}

type post struct {
	end   context.CancelFunc
	grant *quota.Grant
}

// take gives a session its stream. [quota.ExceededError]: there are too many.
func (s *serverStreams) take(key, caller string, end context.CancelFunc) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := &post{end: end}
	if old := s.places[key]; old != nil { // the stream takes the place, and the share, of the one before
		old.end()
		mine.grant = old.grant
	} else if mine.grant, err = s.streams.Take(caller, 1); err != nil {
		return nil, err
	}
	if s.places == nil {
		s.places = map[string]*post{}
	}
	s.places[key] = mine
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.places[key] == mine {
			delete(s.places, key)
			mine.grant.Release()
		}
	}, nil
}

// end ends the stream of a session, if there is one.
func (s *serverStreams) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current := s.places[key]; current != nil {
		current.end()
	}
}

// stand opens the stream on which a server of a legacy revision may speak
// without being asked: what the agent says so is told on it. It ends with its
// session.
func (v *serverCall) stand(ctx context.Context) {
	if err := v.known(ctx); err != nil {
		v.fail(err)
		return
	}
	if !accepts(v.r.Header.Values("Accept"), mediaEvents) {
		v.fail(&admissionError{http.StatusNotAcceptable, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "the answer is " + mediaEvents + ", which Accept does not admit"}})
		return
	}
	ctx, end := context.WithTimeout(ctx, longestStand)
	defer end()
	q := v.asking(ctx)
	holder, _ := limit.KeyOf(q.Caller, q.Address)
	leave, err := v.server.standing.take(v.session, holder, end)
	if err != nil {
		v.fail(err)
		return
	}
	defer leave()
	defer context.AfterFunc(v.server.closing, end)() //nolint:contextcheck // the server's end ends all streams
	ctx, unbind := identity.Bound(ctx)
	defer unbind()
	answer, err := v.handler.Exchange(ctx, v.listening(ctx))
	if err != nil {
		v.issue(answer.Evidence)
		v.fail(err)
		return
	}
	out := v.open(answer.Evidence, answer.Events() != nil)
	defer out.Stop()
	var knocking sync.WaitGroup
	defer knocking.Wait()
	defer end()
	knocking.Go(func() { v.keepAlive(ctx, end) })
	if answer.Events() == nil { // of an agent that never speaks unasked
		<-ctx.Done()
		return
	}
	defer func() { _ = answer.Events().Close() }()
	pass(ctx, out, answer.Events())
}

// pass tells what is said until nothing is any more.
func pass(ctx context.Context, out *sse.Writer, events transport.Events) {
	for {
		event, err := events.Next(ctx)
		if err != nil {
			return
		}
		if env, err := parse(event.Wire.Body); err == nil && env.Method != "" && out.Send(event.Wire.Body) != nil {
			return
		}
		if len(event.Evidence) > 0 {
			out.Close(event.Evidence)
		}
	}
}

// listening is the wish to hear as the pipeline takes it. It ends with the stream.
func (v *serverCall) listening(ctx context.Context) transport.Call {
	return transport.Call{
		EntryPoint: transport.Native, Agent: v.r.PathValue("agent"), Caller: transport.CallerFrom(ctx), Address: transport.AddressFrom(ctx),
		Pass: v.pass, Session: v.session, CanAnswer: v.guest.CanAnswer, Program: transport.Program{Client: v.guest.Client},
		Wire: translators.Wire{Binding: mcp.Binding, Version: v.guest.Version, Verb: http.MethodGet, Header: messageHeader(v.r.Header)},
	}
}

// keepAlive keeps a session alive whose stream is open, and ends the stream of one
// that was ended, by whichever replica.
func (v *serverCall) keepAlive(ctx context.Context, end context.CancelFunc) {
	ticker := time.NewTicker(knockEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := v.loadSession(ctx)
		if _, away := err.(*problem.RecordingError); err != nil && !away { //nolint:errorlint // recognise returns it as it is
			end()
			return
		}
	}
}

// OverSSE serves agents to clients of HTTP with SSE, the transport of revision
// 2024-11-05 (package oldsse).
func (d *Server) OverSSE(exchanger transport.Handler) *oldsse.Server {
	return oldsse.NewServer(oldsse.ServerDeps{
		Pipeline: pipeline{d, exchanger}, Shares: d.shares, Closing: d.closing, Logger: d.deps.Logger, Base: d.deps.Base,
	})
}

// pipeline is the server as package oldsse uses it.
type pipeline struct {
	*Server
	exchanger transport.Handler
}

var _ oldsse.Pipeline = pipeline{}

// Owner implements [oldsse.Pipeline].
func (p pipeline) Owner(r *http.Request) (owner, holder string) {
	v := p.visit(p.exchanger, nil, r)
	q := v.asking(r.Context())
	holder, _ = limit.KeyOf(q.Caller, q.Address)
	return v.group(r.Context()), holder
}

// Admit implements [oldsse.Pipeline].
func (p pipeline) Admit(w http.ResponseWriter, r *http.Request, refused error) bool {
	v := p.visit(p.exchanger, w, r)
	v.answers = true // so that an error has an HTTP status
	if refused == nil {
		refused = v.enter(r.Context())
	}
	if refused != nil {
		v.fail(refused)
	}
	return refused == nil
}

// Take implements [oldsse.Pipeline].
func (p pipeline) Take(w http.ResponseWriter, r *http.Request) *oldsse.Message {
	v := p.visit(p.exchanger, w, r)
	refused := v.admit()
	var wire translators.Wire
	if refused == nil {
		wire, refused = v.read(r.Context())
	}
	if refused != nil {
		v.answers = true
		v.fail(refused)
		return nil
	}
	received, _ := parse(wire.Body)
	m := &oldsse.Message{
		Request:    isBatch(wire.Body) || received.Method != "" && len(received.ID) > 0,
		Initialize: received.Method == mcp.MethodInitialize, Size: len(wire.Body),
	}
	v.answers = v.answers || !m.Request
	m.Answer = func(ctx context.Context, w http.ResponseWriter) {
		v.w = w
		v.decode(ctx, wire)
	}
	return m
}

// Listen implements [oldsse.Pipeline].
func (p pipeline) Listen(w http.ResponseWriter, r *http.Request) {
	p.visit(p.exchanger, w, r).stand(r.Context())
}

// Leave implements [oldsse.Pipeline].
func (p pipeline) Leave(ctx context.Context, r *http.Request) {
	if keeper, id := p.deps.Keeper, r.Header.Get(headerSession); keeper != nil && id != "" {
		_ = keeper.Delete(ctx, p.visit(p.exchanger, nil, r).group(ctx), id) // else it ends by itself
		p.standing.end(id)
	}
}
