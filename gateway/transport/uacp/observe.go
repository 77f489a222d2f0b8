package uacp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// observers are the observations of one connection, by their requests.
type observers struct {
	mu   sync.Mutex
	list []observer
}

type observer struct {
	request form.Frame
	cancel  context.CancelFunc
}

// add lets an observation begin; what it returns gives it back.
func (o *observers) add(ctx context.Context, request form.Frame) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, observer{request, cancel})
	return ctx, func() {
		cancel()
		o.mu.Lock()
		defer o.mu.Unlock()
		o.list = slices.DeleteFunc(o.list, func(have observer) bool { return have.request.ID == request.ID })
	}
}

// cancel ends those that a frame means; false: none.
func (o *observers) cancel(f form.Frame) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := false
	for _, have := range o.list {
		if f.Cancels(have.request) {
			have.cancel()
			found = true
		}
	}
	return found
}

// none reports whether the peer observes nothing.
func (o *observers) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.list) == 0
}

// observed tells a caller what it observes: that it does, with the evidence
// that opens the stream; each event as a TELL, numbered from its request on;
// and the reply that ends it, with the evidence that closes it. The next event
// is asked for when the last was taken.
func (g *session) observed(ctx context.Context, wire translators.Wire, m *canonical.Message, answer transport.Answer) {
	defer func() { _ = answer.Events().Close() }()
	request, err := form.ParseFrame(wire.Body)
	if err != nil {
		return
	}
	g.mark(form.MarkOpen, wire, request, answer.Evidence)
	var end []byte
	for n := uint32(1); ; n++ {
		event, err := answer.Events().Next(ctx)
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			g.finish(wire, request, end, nil)
			return
		case err != nil:
			g.fail(wire, m, err, nil)
			return
		case len(event.Wire.Body) == 0:
			if len(event.Evidence) > 0 { // the last one
				g.finish(wire, request, end, event.Evidence)
				return
			}
			continue
		}
		f, err := form.ParseFrame(event.Wire.Body)
		if err != nil {
			g.fail(wire, m, err, nil)
			return
		}
		id := request.ID + n
		if f.Verb != form.Tell { // it ends the observation
			f.Verb, id = form.Observe, request.ID
		}
		out, err := f.ReplyTo(request, id).Bytes()
		if err != nil {
			g.fail(wire, m, err, nil)
			return
		}
		if f.Verb != form.Tell {
			end = out
			continue
		}
		if !g.send(g.attested(out, event.Evidence)) {
			return
		}
	}
}

func (g *session) mark(mark form.Mark, wire translators.Wire, request form.Frame, evidence []string) {
	if out, err := form.Marker(mark, wire.Form, request).Bytes(); err == nil {
		g.write(wire, out, evidence)
	}
}

// finish ends an observation, with what ended it or the mark for that.
func (g *session) finish(wire translators.Wire, request form.Frame, end []byte, evidence []string) {
	if end != nil {
		g.write(wire, end, evidence)
		return
	}
	g.mark(form.MarkEnd, wire, request, evidence)
}

// answering gives a reply the verb of its request.
func answering(request, reply []byte) []byte {
	sent, err := form.ParseFrame(request)
	if err != nil || sent.Verb != form.Observe {
		return reply
	}
	f, err := form.ParseFrame(reply)
	if err != nil {
		return reply
	}
	f.Verb = form.Observe
	if out, err := f.Bytes(); err == nil {
		return out
	}
	return reply
}

// closeTimeout is how long an agent may take to hear that it need not tell any more.
const closeTimeout = time.Second

// observation is what an agent tells of what is observed there.
type observation struct {
	dialer  *Dialer
	ep      transport.Endpoint
	conn    link
	request form.Frame
	first   []byte // read already; nil: nothing was
	stop    func() // of its request's context
	over    bool
	last    []byte // the latest TELL: the same again is a repetition
	recent  recent // and in datagrams, which may come late, any of the latest
	once    sync.Once
}

var _ transport.Events = (*observation)(nil)

// link is a connection to an agent, frame by frame.
type link interface {
	read() ([]byte, error)
	write(body []byte) error
	// interrupt ends what waits, and everything after it.
	interrupt()
	close()
}

// observe sends an OBSERVE. The reply is a stream once the agent has taken it,
// or begins to tell; else the one answer that there is.
func (d *Dialer) observe(ctx context.Context, ep transport.Endpoint, body []byte, request form.Frame) (transport.Reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := make(chan struct{})
	timer := time.AfterFunc(ep.Timeout, func() { close(late); cancel() })
	defer timer.Stop()
	fail := func(err error) (transport.Reply, error) {
		defer cancel()
		select {
		case <-late:
			return transport.Reply{}, &transport.TimeoutError{Agent: ep.Agent, After: ep.Timeout}
		default:
			return transport.Reply{}, failed(ctx, ep, err)
		}
	}
	conn, err := d.connect(ctx, ep)
	if err != nil {
		return fail(err)
	}
	unlink := context.AfterFunc(ctx, conn.interrupt)
	o := &observation{dialer: d, ep: ep, conn: conn, request: request, stop: func() { unlink(); cancel() }}
	if err = conn.write(body); err == nil {
		body, err = o.read()
	}
	if err != nil {
		conn.close()
		return fail(err)
	}
	f, err := form.ParseFrame(body)
	if err == nil && (f.Verb == form.Tell || form.MarkOf(body) == form.MarkOpen) {
		reply := transport.Reply{Events: o}
		if f.Verb == form.Tell {
			o.first = body
			return reply, nil
		}
		if _, reply.Evidence, err = d.open(ep, body); err != nil {
			_ = o.Close()
		}
		return reply, err
	}
	o.over = true
	defer func() { _ = o.Close() }()
	return d.replied(ep, body, canonical.OpInvoke)
}

// read reads what belongs to the observation, and each thing once.
func (o *observation) read() ([]byte, error) {
	for range strays {
		body, err := o.conn.read()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // it ends with a word, and not without
		}
		if err != nil {
			return nil, err
		}
		f, err := form.ParseFrame(body)
		switch {
		case err != nil:
			return nil, &transport.BadReplyError{Agent: o.ep.Agent, Reason: "not a µACP frame"}
		case f.IsAck() || !f.Follows(o.request):
			continue
		case f.Verb == form.Tell && f.QoS > 0:
			if err := o.ack(f); err != nil {
				return nil, err
			}
			if o.repeated(body) {
				continue
			}
		}
		return body, nil
	}
	return nil, &transport.BadReplyError{Agent: o.ep.Agent, Reason: "it answers everything but the request"}
}

// repeated reports whether a TELL came before; then it was handled already.
func (o *observation) repeated(body []byte) bool {
	if _, lossy := o.conn.(*datagramConn); lossy {
		_, again := o.recent.seen(body, time.Now())
		return again
	}
	if bytes.Equal(body, o.last) {
		return true
	}
	o.last = body
	return false
}

func (o *observation) ack(f form.Frame) error {
	out, err := form.Ack(f).Bytes()
	if err != nil {
		return err
	}
	return o.conn.write(out)
}

// Next reads the next event. io.EOF: the agent has said that there is no more.
func (o *observation) Next(ctx context.Context) (transport.Event, error) {
	if o.over {
		return transport.Event{}, io.EOF
	}
	defer context.AfterFunc(ctx, o.conn.interrupt)()
	body := o.first
	if o.first = nil; body == nil {
		var err error
		if body, err = o.read(); err != nil {
			o.over = true
			return transport.Event{}, failed(ctx, o.ep, err)
		}
	}
	carriage, evidence, err := o.dialer.open(o.ep, body)
	if err != nil {
		o.over = true
		return transport.Event{}, err
	}
	event := transport.Event{Evidence: evidence, Wire: translators.Wire{
		Binding: form.Binding, Version: form.Profile, Form: carriage, Media: form.Media, Body: body, Re: canonical.OpInvoke, Event: true,
	}}
	if f, err := form.ParseFrame(body); err == nil && f.Verb != form.Tell {
		o.over = true
		if form.MarkOf(body) == form.MarkEnd && event.Wire.Form == form.FormEnveloped {
			event.Wire = translators.Wire{} // its last event said so
		}
	}
	return event, nil
}

// Close ends the observation. It asks an agent that still sends events to stop.
func (o *observation) Close() error {
	o.once.Do(func() {
		if !o.over {
			patient := time.AfterFunc(closeTimeout, o.conn.interrupt)
			if out, err := form.Cancel(o.request).Bytes(); err == nil {
				_ = o.conn.write(out)
			}
			patient.Stop()
		}
		o.stop()
		o.conn.close()
	})
	return nil
}

// open reads the form of a frame that an agent sent, and its tokens.
func (d *Dialer) open(ep transport.Endpoint, body []byte) (carriage string, tokens []string, err error) {
	opened, err := form.Open(body)
	if err == nil {
		tokens, err = opened.Evidence()
	}
	if err == nil && len(tokens) > 0 {
		tokens, err = ect.ParseHeader(tokens, d.deps.Limits)
	}
	if err != nil {
		return "", nil, &transport.BadReplyError{Agent: ep.Agent, Reason: "its evidence is malformed or too large"}
	}
	return opened.Form(), tokens, nil
}
