package mcp

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	longestStand = 50 * time.Minute // of one stream; a client that still wants to hear comes back
	maxStanding  = 4096             // streams, in all
	knockEvery   = time.Minute      // whether a stream's session still lives
)

// standing is the streams on which clients of legacy revisions hear what nobody
// asked for: one for each session. Whoever opens a second has lost the first.
type standing struct {
	mu     sync.Mutex
	places map[string]*post
}

type post struct{ end context.CancelFunc }

// take gives a session its stream; false: there are too many.
func (s *standing) take(key string, end context.CancelFunc) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.places[key]
	if old == nil && len(s.places) >= maxStanding {
		return nil, false
	}
	if old != nil {
		old.end()
	}
	if s.places == nil {
		s.places = map[string]*post{}
	}
	mine := &post{end}
	s.places[key] = mine
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.places[key] == mine {
			delete(s.places, key)
		}
	}, true
}

// end ends the stream of a session, if there is one.
func (s *standing) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.places[key]; held != nil {
		held.end()
	}
}

// stand opens the stream on which a server of a legacy revision may speak
// without being asked: what the agent says so is told on it. It ends with its
// session.
func (v *visit) stand(ctx context.Context) {
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
	leave, ok := v.door.standing.take(v.session, end)
	if !ok {
		v.fail(&canonical.Error{Code: canonical.CodeUnavailable, Message: "too many open streams", RetryAfter: time.Minute})
		return
	}
	defer leave()
	defer context.AfterFunc(v.door.closing, end)() //nolint:contextcheck // the door's end is everybody's
	defer identity.SessionFrom(ctx).AfterEnd(end)()
	answer, err := v.road.Exchange(ctx, v.listening(ctx))
	if err != nil {
		v.issued = answer.Evidence
		v.fail(err)
		return
	}
	out := v.open(answer.Evidence, answer.Events != nil)
	defer out.Stop()
	var knocking sync.WaitGroup
	defer knocking.Wait()
	defer end()
	knocking.Go(func() { v.knock(ctx, end) })
	if answer.Events == nil { // of an agent that never speaks unasked
		<-ctx.Done()
		return
	}
	defer func() { _ = answer.Events.Close() }()
	pass(ctx, out, answer.Events)
}

// pass tells what is said until nothing is any more.
func pass(ctx context.Context, out *sse.Writer, said transport.Events) {
	for {
		event, err := said.Next(ctx)
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

// listening is the wish to hear as the road takes it. It ends with the stream.
func (v *visit) listening(ctx context.Context) transport.Call {
	return transport.Call{
		Entrance: transport.Native, Agent: v.r.PathValue("agent"), Caller: transport.CallerFrom(ctx), Address: transport.AddressFrom(ctx),
		Limited: v.limited, Session: v.session, CanAnswer: v.guest.Asked,
		Wire: translators.Wire{Binding: mcp.Binding, Version: v.guest.Version, Verb: http.MethodGet, Header: messageHeader(v.r.Header)},
	}
}

// knock keeps a session alive whose stream is open, and ends the stream of one
// that was ended, by whichever replica.
func (v *visit) knock(ctx context.Context, end context.CancelFunc) {
	ticker := time.NewTicker(knockEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := v.recognise(ctx)
		if _, away := err.(*problem.RecordingError); err != nil && !away { //nolint:errorlint // recognise returns it as it is
			end()
			return
		}
	}
}
