package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// standaloneStreams are the stand-alone streams of sessions with legacy servers
// (2025-11-25, Streamable HTTP, listening for messages from the server) that are
// open while calls of clients of 2026-07-28 are under way. Such a client has no
// stream of its own, and a server may ask on the session's what it needs for a
// call: without one it would wait in vain. There is one for each session, however
// many calls; it ends with the last of them. A server does not say for which call it
// asks there: for the only one, or the only one that does not wait for an answer
// already. With several of those it is refused at once.
type standaloneStreams struct {
	mu   sync.Mutex
	open map[sessionKey]*standaloneStream
}

// standaloneWait is how long a call waits for a server to open the stream. Some say
// nothing before they have something to say.
const standaloneWait = 500 * time.Millisecond

type standaloneStream struct {
	session session
	calls   []*besideEvents // that are under way
	ready   chan struct{}   // closed once the server has opened the stream, or will not
	ended   chan struct{}   // closed when nothing more comes
	cancel  context.CancelFunc
	work    sync.WaitGroup
	waiting map[string]bool // ids of requests that a call has taken and that are not answered
}

// standalone holds the stream of a session open for one call, until release. A
// server that has none asks nothing on it.
func (l *upstreamCall) standalone(ctx context.Context, s session, version string, b *besideEvents) (stream *standaloneStream, release func()) {
	all, key := &l.d.standalone, b.key
	all.mu.Lock()
	stream = all.open[key]
	if stream == nil || stream.session != s || stream.over() {
		life, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stream = &standaloneStream{session: s, ready: make(chan struct{}), ended: make(chan struct{}), cancel: cancel, waiting: map[string]bool{}}
		if all.open == nil {
			all.open = map[sessionKey]*standaloneStream{}
		}
		all.open[key] = stream
		stream.work.Go(func() {
			defer close(stream.ended)
			l.readStandalone(life, s, version, stream)
		})
	}
	stream.calls = append(stream.calls, b)
	all.mu.Unlock()
	release = sync.OnceFunc(func() {
		all.mu.Lock()
		stream.calls = slices.DeleteFunc(stream.calls, func(other *besideEvents) bool { return other == b })
		last := len(stream.calls) == 0
		if last && all.open[key] == stream {
			delete(all.open, key)
		}
		all.mu.Unlock()
		if last {
			stream.cancel()
			stream.work.Wait()
		}
	})
	timer := time.NewTimer(standaloneWait)
	defer timer.Stop()
	select {
	case <-stream.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
	return stream, release
}

// choose finds the call for which a server asks something, and notes that it does;
// nil: there are several for which it may.
func (a *standaloneStreams) choose(stream *standaloneStream, id json.RawMessage) *besideEvents {
	a.mu.Lock()
	defer a.mu.Unlock()
	could := stream.calls
	if len(could) > 1 {
		could = slices.DeleteFunc(slices.Clone(could), func(b *besideEvents) bool {
			return slices.ContainsFunc(b.questions, func(id string) bool { return stream.waiting[id] })
		})
	}
	if len(could) != 1 {
		return nil
	}
	could[0].questions = append(could[0].questions, string(id))
	stream.waiting[string(id)] = true
	return could[0]
}

// refuse tells a server that what it asks is not answered.
func (l *upstreamCall) refuse(ctx context.Context, id json.RawMessage, s session, why string) {
	body := bytes.Join([][]byte{[]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"error":{"code":-32603,"message":"` + why + `"}}`)}, nil)
	if response, err := l.post(ctx, translators.Wire{Body: body}, s); err == nil {
		_ = response.Body.Close()
	}
}

// answered notes that a request on the stream of a session has its answer; false: it
// had one, or there is no such request.
func (a *standaloneStreams) answered(key sessionKey, id json.RawMessage) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	stream := a.open[key]
	if stream == nil || !stream.waiting[string(id)] {
		return false
	}
	delete(stream.waiting, string(id))
	return true
}

// over reports whether nothing more comes.
func (s *standaloneStream) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// readStandalone hands on what the server asks. Its notifications belong to no call.
func (l *upstreamCall) readStandalone(ctx context.Context, s session, version string, stream *standaloneStream) {
	opened := sync.OnceFunc(func() { close(stream.ready) })
	defer opened()
	response, err := (&upstreamCall{d: l.d, ep: l.ep}).get(ctx, s, "")
	if err != nil {
		return
	}
	defer func() { _ = response.Body.Close() }()
	if !streaming(response) {
		return
	}
	opened()
	in := sse.NewReader(response.Body, sse.Limits{Event: l.limit(), Events: maxStream, Total: max(maxBytes, 2*l.limit())})
	for {
		event, err := in.Next()
		if err != nil {
			return
		}
		for _, message := range messagesOf(event.Data, version) {
			env, err := parse(message)
			switch {
			case err != nil || env.Method == "" || len(env.ID) == 0:
			case env.Method == mcp.MethodPing:
				_ = l.pong(ctx, env.ID, s) // a server that misses it asks again
			default:
				if !l.d.standalone.choose(stream, env.ID).take(message) {
					l.d.standalone.answered(keyOf(l.ep, version), env.ID)
					l.refuse(ctx, env.ID, s, "several calls are under way in this session, and this does not say for which it is asked: ask in the stream that answers the call")
				}
			}
		}
	}
}

// askBeside asks as [line.ask] does, and hears besides what the server asks on the
// stand-alone stream of the session.
func (l *upstreamCall) askBeside(ctx context.Context, wire translators.Wire, s session, re canonical.Op) (transport.Reply, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &besideEvents{
		line: l, key: keyOf(l.ep, wire.Version), life: life, cancel: cancel, requests: make(chan json.RawMessage), answered: make(chan opened, 1), events: make(chan saidEvent),
		wire: translators.Wire{Binding: mcp.Binding, Version: wire.Version, Media: mediaJSON, Re: re, Event: true},
	}
	b.stream, b.release = l.standalone(ctx, s, wire.Version, b)
	b.work.Go(func() {
		reply, err := l.ask(life, wire, s, re)
		b.answered <- opened{reply, err}
	})
	select {
	case first := <-b.answered:
		if first.err != nil || first.reply.Events == nil {
			_ = b.Close() //nolint:contextcheck // nothing is open but the stand-alone stream; what it asked is refused after the call
			return first.reply, first.err
		}
		b.follow(first.reply.Events)
		return transport.Reply{Wire: first.reply.Wire, Evidence: first.reply.Evidence, Events: b}, nil
	case request := <-b.requests:
		b.request = request
		return transport.Reply{Events: b}, nil
	case <-ctx.Done():
		_ = b.Close() //nolint:contextcheck // what was asked is refused after the call
		return transport.Reply{}, l.failed(ctx, ctx.Err())
	}
}

type opened struct {
	reply transport.Reply
	err   error
}

type saidEvent struct {
	event transport.Event
	err   error
}

// besideEvents is what a server says in answer to a call, and what it asks meanwhile on
// the stand-alone stream.
type besideEvents struct {
	line    *upstreamCall
	key     sessionKey
	stream  *standaloneStream
	wire    translators.Wire // all but the body of what it asks there
	cancel  context.CancelFunc
	release func()
	work    sync.WaitGroup

	life     context.Context      //nolint:containedctx // of the call, which is longer than the wait for its first event
	requests chan json.RawMessage // that the server makes on the stand-alone stream
	answered chan opened
	events   chan saidEvent
	request  json.RawMessage // read before the first Next
	last     bool            // the reply was no stream, and was given

	questions []string // ids of what the server asked on the stand-alone stream; of standaloneStreams.mu

	mu     sync.Mutex
	answer transport.Events // nil: there is none yet
}

var _ transport.Events = (*besideEvents)(nil)

// take hands a request of the server on to the reader of the call; false: it is over.
func (b *besideEvents) take(request json.RawMessage) bool {
	if b == nil {
		return false
	}
	select {
	case b.requests <- request:
		return true
	case <-b.life.Done():
		return false
	}
}

// follow reads the stream that answers the call.
func (b *besideEvents) follow(events transport.Events) {
	b.mu.Lock()
	b.answer = events
	b.mu.Unlock()
	b.work.Go(func() {
		for {
			event, err := events.Next(b.life)
			select {
			case b.events <- saidEvent{event, err}:
			case <-b.life.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
}

// Next waits for the next message, wherever it comes.
func (b *besideEvents) Next(ctx context.Context) (transport.Event, error) {
	if b.last {
		return transport.Event{}, io.EOF
	}
	request := b.request
	if b.request = nil; request != nil {
		return b.ask(request), nil
	}
	select {
	case event := <-b.events:
		return event.event, event.err
	case request := <-b.requests:
		return b.ask(request), nil
	case first := <-b.answered:
		reply, err := known(first.reply, first.err) // it asked in the session, and has not lost it
		switch {
		case err != nil:
			return transport.Event{}, err
		case reply.Events == nil:
			b.last = true
			reply.Wire.Event = true
			return transport.Event{Wire: reply.Wire}, nil
		}
		b.follow(reply.Events)
		return b.Next(ctx)
	case <-ctx.Done():
		b.cancel()
		return transport.Event{}, ctx.Err()
	}
}

func (b *besideEvents) ask(request json.RawMessage) transport.Event {
	wire := b.wire
	wire.Body = request
	return transport.Event{Wire: wire}
}

// refuse answers what this call took and what nothing will answer any more.
func (b *besideEvents) refuse() {
	all := &b.line.d.standalone
	all.mu.Lock()
	ids := slices.Clone(b.questions)
	all.mu.Unlock()
	for _, id := range ids {
		if !all.answered(b.key, json.RawMessage(id)) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		b.line.refuse(ctx, json.RawMessage(id), b.stream.session, "the call during which this was asked is over")
		cancel()
	}
}

// Close gives both streams back.
func (b *besideEvents) Close() error {
	b.cancel()
	b.work.Wait()
	select {
	case late := <-b.answered:
		if late.reply.Events != nil {
			_ = late.reply.Events.Close()
		}
	default:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	if b.answer != nil {
		err = b.answer.Close()
	}
	b.refuse()
	b.release()
	return err
}
