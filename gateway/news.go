package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/mcpbridge"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// changeSubscription answers a request for news where the agent's revision asks for it in
// another way than the caller's. False: they agree, or this is none.
func (g *Gateway) changeSubscription(ctx context.Context, x *request) (answer transport.Answer, done bool, err error) {
	native, ok := x.message.Body.(*canonical.Native)
	notifier := x.notifier()
	if !ok || notifier == nil {
		return answer, false, nil
	}
	wanted, wrong := notifier.Wants(native)
	unknown := wanted == nil || g.choose(ctx, x) != nil || x.to.Via != nil
	if unknown { // the pipeline says why
		return answer, false, nil
	}
	if method := notifier.Ask(x.route.Endpoint.Version, *wanted); method != nil && method.Method == native.Method {
		return answer, false, nil
	}
	if wrong != nil {
		return answer, true, wrong
	}
	if ctx, err = g.register(ctx, x); err != nil {
		return answer, true, err
	}
	if wanted.Verb == translators.FilterListen {
		answer, err = g.listen(ctx, x, notifier, *wanted)
	} else {
		answer, err = g.subscribe(ctx, x, notifier, *wanted)
	}
	return answer, true, err
}

// subscribe keeps what a session wants to hear from now on. Whether the agent would
// tell that, it is asked at once: what it refuses, its caller hears.
func (g *Gateway) subscribe(ctx context.Context, x *request, notifier translators.Notifier, wanted translators.NotificationFilter) (transport.Answer, error) {
	offers := notifier.Offers(x.route.Description)
	if x.in.Call.Session == "" || wanted.Verb == translators.FilterLevel && !offers.Log || wanted.Verb != translators.FilterLevel && !offers.Any {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeNoMethod, Message: "the agent has no such method"}
	}
	var agreed string
	var parents []ect.ID
	var err error
	if wanted.Verb == translators.FilterSubscribe {
		agreed, parents, err = g.sound(ctx, x, notifier, wanted)
	} else {
		g.lineage(x)
		parents = x.lineage.Parents
	}
	if err == nil {
		err = sessionsOf(g).Change(ctx, x.sessionKey(), wanted)
	}
	if err != nil {
		return transport.Answer{}, err
	}
	m := &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Body: &canonical.Native{Result: json.RawMessage("{}")},
		Correlation: canonical.Correlation{WireID: x.in.WireID}, Origin: x.from(),
	}
	tr := g.caller(x).translation(m, parents)
	tr.Input = agreed
	out, err := g.translate(ctx, x, tr)
	return x.answer(out), err
}

// sound asks an agent to tell of something, until it has agreed.
func (g *Gateway) sound(ctx context.Context, x *request, notifier translators.Notifier, wanted translators.NotificationFilter) (agreed string, parents []ect.ID, err error) {
	sealed, _, err := g.request(ctx, x.saying(x.instead(notifier.Ask(x.route.Endpoint.Version, wanted))))
	if err != nil {
		return "", nil, err
	}
	reply, err := g.agent(x).Send(ctx, sealed, x.route.Endpoint.Timeout)
	defer outbound.CloseReply(reply)
	if err != nil {
		return "", nil, err
	}
	if parents, err = g.agent(x).Prove(ctx, reply); err != nil {
		return "", nil, err
	}
	wire := reply.Wire
	if reply.Events != nil {
		within, cancel := context.WithTimeout(ctx, x.route.Endpoint.Timeout)
		defer cancel()
		event, err := reply.Events.Next(within)
		if err != nil && ctx.Err() == nil && within.Err() != nil {
			err = &transport.TimeoutError{Agent: x.to.Agent.Name, After: x.route.Endpoint.Timeout}
		}
		if err != nil {
			return "", nil, err
		}
		wire = event.Wire
		wire.Event = true
	}
	m, err := g.agent(x).decode(wire, x.message.Op)
	if err != nil {
		return "", nil, err
	}
	if refused, ok := m.Body.(*canonical.Error); ok {
		return "", nil, refused
	}
	if !slices.Contains(agreedIn(notifier, m).URIs, wanted.URIs[0]) {
		return "", nil, &canonical.Error{Code: canonical.CodeResourceNotFound, Message: "the agent does not tell of this resource"}
	}
	return ect.Hash(wire.HashInput()), parents, nil
}

// agreedIn returns the notifications that an agent promises in a message, if it does.
func agreedIn(notifier translators.Notifier, m *canonical.Message) translators.NotificationFilter {
	if event, ok := m.Body.(*canonical.Event); ok && event.Native != nil {
		if filter, err := notifier.Wants(event.Native); err == nil && filter != nil && filter.Verb == translators.FilterAgreed {
			return *filter
		}
	}
	return translators.NotificationFilter{}
}

// instead returns the message with another body, which asks for the same in another revision.
func (x *request) instead(native *canonical.Native) *canonical.Message {
	other := *x.message
	other.Body = native
	return &other
}

// notifiedCaller gets notifications in another MCP revision than that of the agent.
type notifiedCaller struct {
	translators.Subscriber
	session string // at the agent, for this stream only; empty: there is none
}

// listen begins to send a caller the notifications of the agent.
func (g *Gateway) listen(ctx context.Context, x *request, notifier translators.Notifier, wanted translators.NotificationFilter) (transport.Answer, error) {
	h := &upstreamSubscription{g: g, x: x, notifier: notifier, offers: notifier.Offers(x.route.Description)}
	x.hearer = &notifiedCaller{Subscriber: translators.Subscriber{Version: x.message.Origin.Version, ID: x.in.WireID}}
	if len(x.in.WireID) == 0 {
		if h.offers.Quiet() && !h.offers.Any {
			return transport.Answer{}, nil
		}
		h.changing = true
	} else {
		x.hearer.session = g.NewID()
	}
	if err := h.prepare(ctx, wanted); err != nil {
		return transport.Answer{}, err
	}
	x.hearer.Filter = h.wants
	return g.executions.Subscribe(ctx, g.work(x), x.afterRequest(), h, h.wants.Quiet())
}

// upstreamSubscription reads the notifications of an agent for a caller whose revision subscribes
// in another way. It makes one listen request after the other, since either side may end one, and
// the caller may change what it wants. The gateway closes a request only when the next one is
// answered, so that it misses no notification.
type upstreamSubscription struct {
	g        *Gateway
	x        *request // of the caller's stream: read, and never changed
	notifier translators.Notifier
	offers   translators.NotificationFilter
	wants    translators.NotificationFilter
	changing bool // the session may want something else later

	sealed  *transport.Sealed // the first request
	now     *listenRequest    // which is heard
	next    *listenRequest    // which will be, once it is answered
	wait    time.Duration     // before the next request; zero: none is due
	due     bool
	changes chan mcpbridge.Subscriptions
	end     context.CancelFunc
}

// listenRequest is one open request for notifications.
type listenRequest struct {
	*outbound.Reader
	granted translators.NotificationFilter // what of it the agent will tell; known with the reply
	whole   ect.StreamHash
}

// reader returns what reads the stream of the request; nil of nil.
func (e *listenRequest) reader() *outbound.Reader {
	if e == nil {
		return nil
	}
	return e.Reader
}

// prepare finds out what the caller wants, and which of it the agent offers.
func (h *upstreamSubscription) prepare(ctx context.Context, wanted translators.NotificationFilter) error {
	h.wants = wanted.Among(h.offers)
	if h.changing {
		w, err := sessionsOf(h.g).Load(ctx, h.x.sessionKey())
		if err != nil {
			return err
		}
		h.wants = h.with(w)
	}
	if h.wants.Quiet() {
		h.g.lineage(h.x)
		return h.x.in.Permit.Carry(h.x.route.Security(h.x.in.Call.Agent != ""))
	}
	sealed, _, err := h.g.request(ctx, h.x.saying(h.x.instead(h.notifier.Ask(h.x.route.Endpoint.Version, h.wants))))
	if err != nil {
		return err
	}
	if h.sealed, h.due = &sealed, true; h.changing {
		return nil // no caller waits to be told what is agreed
	}
	first := h.listen(ctx)
	got, err := first.Next(ctx, h.x.route.Endpoint.Timeout)
	if errors.Is(err, outbound.ErrNothingYet) {
		err = &transport.TimeoutError{Agent: h.x.to.Agent.Name, After: h.x.route.Endpoint.Timeout}
	}
	if err != nil {
		first.reader().Stop()
		return err
	}
	if got.Reply.Events == nil { // it never says anything
		first.reader().Stop()
		h.wants = translators.NotificationFilter{Verb: translators.FilterListen}
		return nil
	}
	h.now, h.wants = first, first.granted
	return nil
}

// with returns what a session wants of what the agent offers.
func (h *upstreamSubscription) with(w mcpbridge.Subscriptions) translators.NotificationFilter {
	all := translators.NotificationFilter{Verb: translators.FilterListen, Tools: true, Prompts: true, Resources: true, URIs: w.URIs}
	return all.Among(h.offers)
}

// listen begins to ask for what is wanted.
func (h *upstreamSubscription) listen(ctx context.Context) *listenRequest {
	e, wants, sealed := &listenRequest{}, h.wants, h.sealed
	h.sealed, h.due = nil, false
	e.Reader = outbound.StartReader(context.WithoutCancel(ctx), func(ctx context.Context) (transport.Reply, error) {
		reply, err := h.ask(ctx, wants, sealed)
		if err == nil && reply.Events != nil {
			e.granted, err = h.more(ctx, wants)
		}
		if err != nil {
			outbound.CloseReply(reply)
		}
		return reply, err
	})
	return e
}

// own makes a request for one message of the gateway.
func (h *upstreamSubscription) own() *request {
	return h.x.derive(h.x.message)
}

func (h *upstreamSubscription) seal(ctx context.Context, own *request, filter translators.NotificationFilter) (transport.Sealed, error) {
	m := &canonical.Message{
		Op: canonical.OpNative, Phase: canonical.PhaseRequest, Body: h.notifier.Ask(own.route.Endpoint.Version, filter),
		Origin: own.message.Origin, Trace: own.message.Trace,
	}
	m.Preferences.CanAnswer = own.route.Endpoint.AnswerModes
	return h.g.agent(own).Seal(ctx, m)
}

// ask sends one request for news.
func (h *upstreamSubscription) ask(ctx context.Context, wants translators.NotificationFilter, first *transport.Sealed) (transport.Reply, error) {
	own := h.own()
	if first == nil {
		sealed, err := h.seal(ctx, own, wants)
		if err != nil {
			return transport.Reply{}, err
		}
		first = &sealed
	}
	reply, err := h.g.agent(own).Send(ctx, *first, own.route.Endpoint.Timeout)
	if err == nil {
		_, err = h.g.agent(own).Prove(ctx, reply)
	}
	return reply, err
}

const (
	resubscribeAfter  = time.Second      // before an agent is asked for news again
	resubscribeAtMost = 30 * time.Second // and again
)

var _ transport.Events = (*upstreamSubscription)(nil)

// more asks for what is asked apart: which resources. Those that the agent
// refuses it will not tell of.
func (h *upstreamSubscription) more(ctx context.Context, wants translators.NotificationFilter) (translators.NotificationFilter, error) {
	version := h.x.route.Endpoint.Version
	whole := h.notifier.Ask(version, wants)
	uris := slices.Clone(wants.URIs)
	for _, uri := range wants.URIs {
		one := translators.NotificationFilter{Verb: translators.FilterSubscribe, URIs: []string{uri}}
		if apart := h.notifier.Ask(version, one); apart == nil || apart.Method == whole.Method {
			break // it was asked for all of them at once
		}
		own := h.own()
		sealed, err := h.seal(ctx, own, one)
		if err == nil {
			_, _, _, err = h.g.agent(own).acknowledged(ctx, sealed)
		}
		if _, refused := errors.AsType[*canonical.Error](err); refused {
			uris = slices.DeleteFunc(uris, func(u string) bool { return u == uri })
		} else if err != nil {
			return wants, err
		}
	}
	wants.URIs = uris
	return wants, nil
}

// Next waits for the next piece of news.
func (h *upstreamSubscription) Next(ctx context.Context) (transport.Event, error) {
	h.attend(ctx)
	for {
		var again <-chan time.Time
		if h.due && h.next == nil {
			again = time.After(h.wait)
		}
		select {
		case got, ok := <-h.now.reader().Out():
			if event, ok, err := h.hear(ctx, h.now, got, ok); ok || err != nil {
				return event, err
			}
		case got, ok := <-h.next.reader().Out():
			if err := h.answered(got, ok); err != nil {
				return transport.Event{}, err
			}
		case w := <-h.changes:
			h.change(w)
		case <-again:
			h.wait = min(max(resubscribeAfter, 2*h.wait), resubscribeAtMost)
			h.next = h.listen(ctx)
		case <-ctx.Done():
			return transport.Event{}, ctx.Err()
		}
	}
}

// change asks for what is wanted from now on.
func (h *upstreamSubscription) change(w mcpbridge.Subscriptions) {
	wants := h.with(w)
	if wants.Same(h.wants) {
		return
	}
	h.next.reader().Stop()
	h.next, h.wants, h.wait = nil, wants, 0
	if h.due = !wants.Quiet(); !h.due {
		h.now.reader().Stop()
		h.now = nil
	}
}

// answered takes the answer to a request that is to take the place of another.
func (h *upstreamSubscription) answered(got outbound.Incoming, open bool) error {
	next := h.next
	h.next = nil
	switch {
	case open && got.Err == nil && got.Reply.Events != nil:
		h.now.reader().Stop()
		h.now, h.wait = next, 0
		return nil
	case open && got.Err == nil && len(got.Reply.Wire.Body) == 0:
		next.reader().Stop() // it has no stream
	case open && got.Err == nil:
		next.reader().Stop()
		m, err := h.g.agent(h.own()).decode(got.Reply.Wire, canonical.OpNative)
		if err != nil {
			return err
		}
		refused, ok := m.Body.(*canonical.Error)
		h.due = ok && execution.IsPassing(refused.Code) // else it has nothing to say of its own accord
	default:
		next.reader().Stop()
		h.due = true
	}
	return nil
}

// hear takes one thing that an agent said; false: it is no news.
func (h *upstreamSubscription) hear(ctx context.Context, e *listenRequest, got outbound.Incoming, open bool) (transport.Event, bool, error) {
	if broken := !open || got.Err != nil; broken {
		h.interrupted()
		return transport.Event{}, false, nil
	}
	own := h.own()
	wire := got.Event.Wire
	if len(wire.Body) == 0 {
		_, err := h.g.attest.Receive(ctx, own.trail, own.received(got.Event.Evidence, ect.Check{Purpose: ect.Reply, Body: e.whole.Sum()}))
		return transport.Event{}, false, err
	}
	e.whole.Add(wire.HashInput())
	wire.Event = true
	m, err := h.g.agent(own).decode(wire, canonical.OpNative)
	if _, unread := errors.AsType[*translators.UnreadableNoticeError](err); unread {
		return transport.Event{}, false, nil
	}
	if err != nil {
		return transport.Event{}, false, err
	}
	event, ok := m.Body.(*canonical.Event)
	switch {
	case !ok: // it has ended what it says
		h.interrupted()
		return transport.Event{}, false, nil
	case event.Ask != nil:
		return transport.Event{}, false, h.refuse(ctx, own, event.Ask)
	}
	return transport.Event{Wire: wire}, true, nil
}

// interrupted plans a new request for notifications, since the last one has ended.
func (h *upstreamSubscription) interrupted() {
	h.now.reader().Stop()
	h.now, h.due, h.wait = nil, true, max(h.wait, resubscribeAfter)
}

// refuse answers a question: a caller who only listens cannot be asked.
func (h *upstreamSubscription) refuse(ctx context.Context, own *request, ask *canonical.Ask) error {
	m := &canonical.Message{Op: canonical.OpAnswer, Phase: canonical.PhaseRequest, Origin: own.message.Origin, Body: &canonical.Reply{
		ID: ask.ID, Failure: &canonical.Error{Code: canonical.CodeNoMethod, Message: "the caller of this stream cannot be asked"},
	}}
	sealed, err := h.g.agent(own).Seal(ctx, m)
	if err != nil {
		return err
	}
	reply, _ := h.g.agent(own).Send(ctx, sealed, own.route.Endpoint.Timeout) // the caller hears nothing, or this
	outbound.CloseReply(reply)
	return nil
}

// attend begins to watch what the session wants.
func (h *upstreamSubscription) attend(ctx context.Context) {
	if !h.changing || h.changes != nil {
		return
	}
	h.changes = make(chan mcpbridge.Subscriptions)
	ctx, h.end = context.WithCancel(context.WithoutCancel(ctx))
	watching := h.g.workers.GoFor(h.x.owner(), 0, func(life context.Context) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(life, stop)()
		sessionsOf(h.g).Watch(ctx, h.x.sessionKey(), h.changes)
	})
	if watching != nil {
		h.end()
	}
}

// Close gives back what is open.
func (h *upstreamSubscription) Close() error {
	if h.end != nil {
		h.end()
	}
	h.next.reader().Stop()
	h.now.reader().Stop()
	h.now, h.next, h.due = nil, nil, false
	return nil
}
