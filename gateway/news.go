package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/mcpbridge"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// sessionsOf keeps what sessions subscribe to.
func sessionsOf(g *Gateway) mcpbridge.Sessions {
	return mcpbridge.Sessions{Tasks: g.tasks.Store, Entries: g.Entries, Now: g.Now}
}

// sessionKey names what the caller's session subscribes to at the agent.
func (x *request) sessionKey() store.EntryKey {
	return mcpbridge.KeyOf(x.in.Call.Session, x.to.Agent.Name, x.owner())
}

// herald is what knows how news is asked for; nil: the two sides have no such in common.
func (x *request) herald() translators.Herald {
	herald := x.in.Features.Notifier
	if herald == nil || x.in.Call.Agent == "" || x.to.Via != nil || !x.in.Call.Entrance.Native() || !x.mode.Relay {
		return nil
	}
	return herald
}

// hears: the caller's stream is open for news, and may be silent for long.
func (x *request) hears() bool {
	herald, native := x.herald(), canonical.Native{}
	if asked, ok := x.message.Body.(*canonical.Native); ok {
		native = *asked
	}
	if x.listens() || herald == nil || x.message.Op != canonical.OpNative {
		return x.listens()
	}
	news, _ := herald.Wants(&native)
	return news != nil && news.Verb == translators.NewsListen
}

// listens: the caller wants to hear what the agent says without being asked (MCP
// before 2026-07-28). Nothing ends that but one of the two. Other protocols have
// forms whose requests bear no id.
func (x *request) listens() bool {
	tells := x.in.Features.Notifier != nil
	return tells && x.message.Op == canonical.OpNative && len(x.in.WireID) == 0
}

// asksIn reports whether the agent, which can be reached, asks in its replies, or else
// in streams, where it may say something without being asked.
func (g *Gateway) asksIn(ctx context.Context, x *request, replies bool) bool {
	asker := x.to.Features.Asker
	return asker != nil && x.mode.Relay && g.choose(ctx, x) == nil && (asker.Asks(x.route.Endpoint.Version, x.route.Endpoint.Form) == translators.AskReply) == replies
}

// news answers a request for news where the agent's revision asks for it in
// another way than the caller's. False: they agree, or this is none.
func (g *Gateway) news(ctx context.Context, x *request) (answer transport.Answer, done bool, err error) {
	native, ok := x.message.Body.(*canonical.Native)
	herald := x.herald()
	if !ok || herald == nil {
		return answer, false, nil
	}
	wanted, wrong := herald.Wants(native)
	unknown := wanted == nil || g.choose(ctx, x) != nil || x.to.Via != nil
	if unknown { // why, the road will say
		return answer, false, nil
	}
	if asked := herald.Ask(x.route.Endpoint.Version, *wanted); asked != nil && asked.Method == native.Method {
		return answer, false, nil
	}
	if wrong != nil {
		return answer, true, wrong
	}
	if ctx, err = g.register(ctx, x); err != nil {
		return answer, true, err
	}
	if wanted.Verb == translators.NewsListen {
		answer, err = g.hearken(ctx, x, herald, *wanted)
	} else {
		answer, err = g.wish(ctx, x, herald, *wanted)
	}
	return answer, true, err
}

// wish keeps what a session wants to hear from now on. Whether the agent would
// tell that, it is asked at once: what it refuses, its caller hears.
func (g *Gateway) wish(ctx context.Context, x *request, herald translators.Herald, wanted translators.News) (transport.Answer, error) {
	offers := herald.Offers(x.route.Description)
	if x.in.Call.Session == "" || wanted.Verb == translators.NewsLevel && !offers.Log || wanted.Verb != translators.NewsLevel && !offers.Any {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeNoMethod, Message: "the agent has no such method"}
	}
	var heard string
	var parents []ect.ID
	var err error
	if wanted.Verb == translators.NewsMore {
		heard, parents, err = g.sound(ctx, x, herald, wanted)
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
	tr.Input = heard
	out, err := g.translate(ctx, x, tr)
	return x.answer(out), err
}

// sound asks an agent to tell of something, until it has agreed.
func (g *Gateway) sound(ctx context.Context, x *request, herald translators.Herald, wanted translators.News) (heard string, parents []ect.ID, err error) {
	sealed, _, err := g.request(ctx, x.saying(x.instead(herald.Ask(x.route.Endpoint.Version, wanted))))
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
	if !slices.Contains(agreedIn(herald, m).URIs, wanted.URIs[0]) {
		return "", nil, &canonical.Error{Code: canonical.CodeResourceNotFound, Message: "the agent does not tell of this resource"}
	}
	return ect.Hash(wire.Octets()), parents, nil
}

// agreedIn is what an agent says that it will tell; nothing: it says something else.
func agreedIn(herald translators.Herald, m *canonical.Message) translators.News {
	if event, ok := m.Body.(*canonical.Event); ok && event.Native != nil {
		if news, err := herald.Wants(event.Native); err == nil && news != nil && news.Verb == translators.NewsAgreed {
			return *news
		}
	}
	return translators.News{}
}

// instead is the message, asking for the same in other words.
func (x *request) instead(native *canonical.Native) *canonical.Message {
	other := *x.message
	other.Body = native
	return &other
}

// hearer is a caller who is told news in the way of another revision than the agent's.
type hearer struct {
	translators.Hearer
	session string // at the agent, of which this stream alone hears; empty: there is none
}

// hearken begins to tell a caller what the agent says without being asked.
func (g *Gateway) hearken(ctx context.Context, x *request, herald translators.Herald, wanted translators.News) (transport.Answer, error) {
	h := &hearing{g: g, x: x, herald: herald, offers: herald.Offers(x.route.Description)}
	x.hearer = &hearer{Hearer: translators.Hearer{Version: x.message.Origin.Version, ID: x.in.WireID}}
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
	x.hearer.News = h.wants
	return g.executions.Subscribe(ctx, g.work(x), x.afterRequest(), h, h.wants.Quiet())
}

// subscriber is such a caller, for its execution.
type subscriber struct{ x *request }

// First implements [execution.Subscriber].
func (s subscriber) First() *canonical.Native {
	first, _ := s.x.herald().Frame(s.x.hearer.Hearer)
	return first
}

// Last implements [execution.Subscriber].
func (s subscriber) Last() *canonical.Message {
	x := s.x
	_, last := x.herald().Frame(x.hearer.Hearer)
	if last == nil {
		return nil
	}
	return &canonical.Message{
		Op: x.message.Op, Phase: canonical.PhaseResponse, Body: last,
		Origin: canonical.Origin{Binding: x.in.Source.Info().Binding, Version: x.message.Origin.Version},
	}
}

// Translate implements [execution.Subscriber].
func (s subscriber) Translate(e *canonical.Event) bool {
	if e.Native == nil {
		return len(s.x.hearer.ID) == 0
	}
	e.Native = s.x.herald().Retell(e.Native, s.x.hearer.Hearer)
	return e.Native != nil
}

// level sees to it that the caller hears the agent's log from the level on that it
// wants, where one side says that once, and the other with every request.
func (g *Gateway) level(ctx context.Context, x *request) (*canonical.Message, error) {
	herald := x.herald()
	if herald == nil || x.message.Origin.Version == x.route.Endpoint.Version || x.route.Description == nil || !herald.Offers(x.route.Description).Log {
		return x.message, nil
	}
	wanted := translators.News{Verb: translators.NewsLevel, Level: x.message.Preferences.LogLevel}
	said, heard := herald.Ask(x.message.Origin.Version, wanted), herald.Ask(x.route.Endpoint.Version, wanted)
	switch {
	case said != nil && heard == nil && wanted.Level == "" && x.in.Call.Session != "":
		w, err := sessionsOf(g).Load(ctx, x.sessionKey())
		if err != nil || w.Level == "" {
			return x.message, err
		}
		louder := *x.message
		louder.Preferences.LogLevel = w.Level
		return &louder, nil
	case said == nil && heard != nil && wanted.Level != "":
		return x.message, g.turnUp(ctx, x, heard)
	}
	return x.message, nil
}

// turnUp tells an agent from which level on its log is wanted, before the request
// that wants it. What it refuses costs the log and nothing else. Of requests of one
// caller at the same time the last one's level holds.
func (g *Gateway) turnUp(ctx context.Context, x *request, asking *canonical.Native) error {
	m := *x.message
	m.Op, m.Body, m.Preferences = canonical.OpNative, asking, canonical.Preferences{CanAnswer: x.route.Endpoint.Asked}
	own := x.derive(&m)
	sealed, err := g.agent(own).Seal(ctx, &m)
	if err == nil {
		_, _, _, err = g.agent(own).acknowledged(ctx, sealed)
	}
	if _, refused := errors.AsType[*canonical.Error](err); refused {
		return nil
	}
	return err
}
