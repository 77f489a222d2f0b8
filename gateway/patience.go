package gateway

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// grace is how long a caller who asked for a stream, or not to wait, waits all
// the same: what fails at once is refused in words, and what is done at once is
// answered with its result.
const grace = 250 * time.Millisecond

// promptly is how long whoever asked not to wait waits for a result: so little that
// the task is promised within the grace, evidence and record included.
const promptly = 150 * time.Millisecond

// lifetime is how long the work goes on: it ends with the caller's connection
// only where that means to stop, and always with the gateway.
func (g *Gateway) lifetime(ctx context.Context, x *request) context.Context {
	if x.in.Call.Detached {
		return g.workers.Detach(ctx)
	}
	return ctx
}

// brief leaves out the history of a task that its caller did not ask for (A2A,
// historyLength).
func (x *request) brief(m *canonical.Message) {
	if x.verbatim() {
		return
	}
	shorten := func(t *canonical.Task) *canonical.Task {
		if t == nil || len(t.History) == 0 {
			return t
		}
		short := *t
		short.History = x.shortened(t.History)
		return &short
	}
	switch body := m.Body.(type) {
	case *canonical.Result:
		if task := shorten(body.Task); task != body.Task {
			short := *body
			short.Task, m.Body = task, &short
		}
	case *canonical.Event:
		if task := shorten(body.Task); task != body.Task {
			short := *body
			short.Task, m.Body = task, &short
		}
	case *canonical.TaskList:
		for i := range body.Tasks {
			body.Tasks[i] = *shorten(&body.Tasks[i])
		}
	}
}

// pose says what a task asks in the way of a caller who is asked in forms.
func (x *request) pose(m *canonical.Message) {
	result, ok := m.Body.(*canonical.Result)
	if !ok || result.Task == nil || x.mode.Relay || x.mode.Asking == translators.AskNone || x.mode.Asking == translators.AskTask {
		return
	}
	state := result.Task.Status.State
	if !stream.Settled(state) || state.Terminal() {
		return
	}
	asks, asking := *result, *result.Task
	asking.Inputs = stream.Forms(stream.Inputs(&asking))
	asks.Task, m.Body = &asking, &asks
}

// stepLong is step with an agent's patience. Who listens for news may hear nothing
// for longer; the listener keeps such a connection alive.
func (r *run) stepLong(ctx context.Context) (step, error) {
	for silent := time.Duration(0); ; silent += r.x.route.Endpoint.Timeout {
		s, err := r.step(ctx, r.x.route.Endpoint.Timeout)
		if !errors.Is(err, errPatience) || !r.began || !r.x.hears() || silent >= longestSilence {
			return s, err
		}
	}
}

// heard is one thing that came from an agent.
type heard struct {
	reply transport.Reply  // of the first; its Wire is set if it was no stream
	event *transport.Event // of a stream, one after the other
	err   error            // the end of it; nil: something was said
}

// pump asks an agent and hands on what it says, one thing at a time: it reads
// the next only when the last was taken.
type pump struct {
	out    chan heard
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// startPump begins to ask. The request lives until the pump is stopped, also when its
// caller waits no longer.
func startPump(ctx context.Context, ask func(context.Context) (transport.Reply, error)) *pump {
	ctx, cancel := context.WithCancel(ctx)
	p := &pump{out: make(chan heard), cancel: cancel}
	p.done.Go(func() { p.work(ctx, ask) })
	return p
}

func (p *pump) work(ctx context.Context, ask func(context.Context) (transport.Reply, error)) {
	defer close(p.out)
	reply, err := ask(ctx)
	if err != nil {
		p.put(ctx, heard{err: err})
		return
	}
	if reply.Events != nil {
		defer func() { _ = reply.Events.Close() }()
	}
	for ok := p.put(ctx, heard{reply: reply}); ok && reply.Events != nil; {
		event, err := reply.Events.Next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		ok = p.put(ctx, heard{event: &event, err: err}) && err == nil
	}
}

func (p *pump) put(ctx context.Context, h heard) bool {
	select {
	case p.out <- h:
		return true
	case <-ctx.Done():
		return false
	}
}

// errPatience: nothing was said for as long as one waits.
var errPatience = errors.New("gateway: nothing was said in time")

// next waits for the next thing, but no longer than patience. io.EOF: there is
// no more.
func (p *pump) next(ctx context.Context, patience time.Duration) (heard, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case h, ok := <-p.out:
		if !ok {
			return heard{}, io.EOF
		}
		return h, h.err
	case <-timer.C:
		return heard{}, errPatience
	case <-ctx.Done():
		return heard{}, ctx.Err()
	}
}

// stop ends the asking and waits until it has ended.
func (p *pump) stop() {
	if p == nil {
		return
	}
	p.cancel()
	p.done.Wait()
}

// undoing puts the form of rollbacks over HTTP in place of a protocol that has
// none of its own, where the agent can be asked that way.
func (g *Gateway) undoing(x *request) {
	if x.message.Op != canonical.OpRollback || x.to.Codec == nil || x.to.Via != nil || g.Network.Rollbacks[x.to.Codec.Info().Binding] == nil {
		return
	}
	x.to.Codec = rollback.Over(x.to.Codec)
	x.to.Features = translators.FeaturesOf(x.to.Codec)
}

// reader is what hears the agent, and what proves what was heard.
type reader struct {
	pump    *pump
	op      canonical.Op    // what the messages that are heard answer
	began   bool            // the present request has been answered
	fresh   bool            // a subscription has not said anything but how things stand
	blind   bool            // it cannot be subscribed to
	broken  int             // requests that broke off since anything new was heard
	repeats int             // of the call, for an agent that asked nothing
	said    ect.StreamHash  // everything that the agent said
	stream  *ect.StreamHash // of that, the stream that answers the present request; nil: no stream does
	sole    string          // the hash of that if it was one message and no stream
	parents []ect.ID        // the evidence for it
}

// maxParents bounds what one token names: the first, and the newest.
const maxParents = 8

// follows adds the evidence of a reply to what the work is proven by.
func (r *reader) follows(parents []ect.ID) {
	for _, id := range parents {
		if !slices.Contains(r.parents, id) {
			r.parents = append(r.parents, id)
		}
	}
	if extra := len(r.parents) - maxParents; extra > 0 {
		r.parents = slices.Delete(slices.Clone(r.parents), 1, 1+extra)
	}
}

// hash adds what the agent said to the hashes of it.
func (r *reader) hash(wire translators.Wire) {
	if r.stream != nil && wire.Event {
		r.stream.Add(wire.Octets())
	}
	if r.said.Add(wire.Octets()); r.said.Count() == 1 && !wire.Event {
		r.sole = ect.Hash(wire.Octets())
	} else {
		r.sole = ""
	}
}

// input is the hash of what the agent said, and what else the token must say
// about it.
func (r *reader) input() (string, ect.Ext) {
	if r.sole != "" {
		return r.sole, nil
	}
	return r.said.Sum(), ect.Ext{ect.ExtEvents: attest.Events(r.said.Count(), 1)}
}
