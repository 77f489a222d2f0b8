package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/inbody"
)

// The values of aepb.leg (R1).
const (
	legRequest = "request"
	legReply   = "reply"
)

// leg is one translation: what goes in, and for whom its evidence is.
type leg struct {
	name         string
	id           ect.ID // of the token that this leg signs
	message      *canonical.Message
	input        string            // hash of what was decoded; empty: nothing was, the message is our own
	verbatim     *translators.Wire // goes on as it came: nothing is encoded; nil: is encoded
	ext          ect.Ext           // what else the token says
	aside        bool              // a message of our own about the work: the caller is not told of its token
	encoder      translators.Translator
	target       translators.Target
	source, dest canonical.Binding
	parents      []ect.ID
	audience     []string
	reader       ect.Identity // the peer in whose dialect the token is written
}

// leg encodes, judges, signs and records one translation. Nothing may be
// forwarded or answered without the receipt that it returns (AEPB, Gateway
// Requirements item 3).
func (g *Gateway) leg(ctx context.Context, x *exchange, l leg) (translators.Wire, ect.Receipt, error) {
	wire, losses, err := g.say(x, l)
	if err != nil {
		return translators.Wire{}, ect.Receipt{}, err
	}
	words, dialect := wordsOf(x.call.Entrance), g.Dialects.For(l.reader)
	token, err := g.Signer.SignAs(dialect, ect.Claims{
		ID: l.id, Act: words.act, Audience: l.audience, Workflow: x.workflow, Parents: l.parents,
		InputHash: l.input, OutputHash: ect.Hash(wire.Octets()),
		Ext: g.translationExt(x, words, dialect, l, losses),
	})
	if err != nil {
		return translators.Wire{}, ect.Receipt{}, err
	}
	receipt, err := g.Recorder.Record(ctx, token, g.ownFiling(x, l.audience))
	if err != nil {
		return translators.Wire{}, ect.Receipt{}, recording(err)
	}
	if l.name == legRequest {
		x.legs.add(l.id)
	}
	g.Metrics.Issued(string(words.act), x.permit.Level())
	if l.aside {
		return wire, receipt, nil
	}
	if l.name == legRequest {
		x.requestID = l.id
	} else {
		x.replyID = l.id
	}
	x.issued, x.issuedIDs = append(x.issued, token.Compact()), append(x.issuedIDs, token.ID())
	x.losses = append(x.losses, losses...)
	g.saveArtifacts(ctx, x)
	return wire, receipt, nil
}

// say encodes a message and judges what that loses.
func (g *Gateway) say(x *exchange, l leg) (translators.Wire, []canonical.Loss, error) {
	if l.verbatim != nil {
		return *l.verbatim, nil, nil
	}
	l.target.Stamp = g.stamp(x, l)
	if l.name == legRequest {
		l.message = x.thread.ToAgent(x.parties(), l.message, x.recordedNames())
	} else {
		l.message = x.thread.ToCaller(x.parties(), l.message, x.recordedNames())
	}
	wire, added, err := l.encoder.Encode(l.message, l.target)
	if err != nil {
		return translators.Wire{}, nil, err
	}
	wire, unheld, err := g.frame(l.dest, wire)
	if err != nil {
		return translators.Wire{}, nil, err
	}
	losses := slices.Concat(l.message.Losses, added, unheld)
	g.countLosses(l, losses)
	if err := x.permit.Judge(judged(losses)); err != nil {
		return translators.Wire{}, nil, err
	}
	wire.Hasher = translators.HasherOf(l.encoder)
	return wire.Hashed(), losses, nil
}

// stamp is what only we know of a message: the name of its evidence and, in a
// protocol that says so, who sends it to whom, and when.
func (g *Gateway) stamp(x *exchange, l leg) translators.Stamp {
	stamper, ok := g.Dialers[l.dest].(transport.Stamper)
	if !ok {
		return translators.Stamp{Token: string(l.id), At: g.now()}
	}
	out := translators.Stamp{From: stamper.Self(), To: x.call.Sender, At: g.Now(), Token: string(l.id)}
	if l.name == legRequest {
		out.To = stamper.Receiver(x.agent.Name)
	}
	return out
}

// frame gives a message the octets that travel, where those are others than the codec's.
func (g *Gateway) frame(binding canonical.Binding, wire translators.Wire) (translators.Wire, []canonical.Loss, error) {
	if framer, ok := g.Dialers[binding].(transport.Framer); ok {
		return framer.Frame(wire)
	}
	return wire, nil, nil
}

// unframe gives a message the octets that the codec reads.
func (g *Gateway) unframe(binding canonical.Binding, wire translators.Wire) (translators.Wire, error) {
	if framer, ok := g.Dialers[binding].(transport.Framer); ok {
		return framer.Unframe(wire)
	}
	return wire, nil
}

// read decodes a message as it travelled. What of that its codec never sees is
// lost like what it sees and cannot say.
func (g *Gateway) read(form translators.Translator, wire translators.Wire) (*canonical.Message, error) {
	wire, err := g.unframe(wire.Binding, wire)
	if err != nil {
		return nil, err
	}
	m, err := form.Decode(wire)
	if m != nil && len(wire.Lost) > 0 {
		m.Losses = append(m.Losses, wire.Lost...)
	}
	return m, err
}

// words are the names of a translation ECT. They follow the endpoint that was
// called (R10): AEPB, Gateway as DAG Node; CPAT, Translation ECT Claims.
type words struct {
	act                             ect.Act
	source, dest, gateway, warnings string
}

func wordsOf(entrance transport.Entrance) words {
	if entrance == transport.TranslateCPAT {
		return words{
			ect.ActCPATTranslate, ect.ExtCPATSourceProtocol, ect.ExtCPATDestProtocol,
			ect.ExtCPATGatewayID, ect.ExtCPATWarnings,
		}
	}
	return words{ect.ActTranslate, ect.ExtSourceProtocol, ect.ExtDestProtocol, ect.ExtGatewayID, ect.ExtWarnings}
}

// translationExt is the ext claim of a translation ECT, with what R1, R3 and
// R10 add.
func (g *Gateway) translationExt(x *exchange, words words, dialect ect.Dialect, l leg, losses []canonical.Loss) ect.Ext {
	warnings := make([]string, len(losses))
	for i, loss := range losses {
		warnings[i] = loss.String()
	}
	ext := x.commonExt()
	ext.SetString(words.source, string(l.source))
	ext.SetString(words.dest, string(l.dest))
	ext.SetString(words.gateway, string(g.Self()))
	ext.SetString(ect.ExtLeg, l.name)
	if form := hashForm(x); form != "" {
		ext.SetString(ect.ExtHashForm, form)
	}
	ext.SetList(words.warnings, warnings, min(ect.WarningsSize, dialect.MaxExt()/2))
	if unbound := x.unbound.all(); l.name == legReply && len(unbound) > 0 {
		ext.SetList(ect.ExtUnboundEvidence, unbound, maxUnbound)
	}
	maps.Copy(ext, l.ext)
	return ext
}

func (x *exchange) commonExt() ect.Ext {
	ext := ect.Ext{}
	ext.SetString(ect.ExtAgentVersion, x.settings.Version)
	ext.SetString(ect.ExtCaller, string(x.call.Caller.ID))
	if len(x.evidence.sources) == 0 && !x.attested {
		ext[ect.ExtSourceUnattested] = json.RawMessage("true")
	}
	return ext
}

// hashForm names how the messages of the two protocols were hashed, where it is
// not octet by octet (R5). It is said of the protocol that has evidence inside
// its messages; the other one's are hashed as they are.
// Where both have, in two ways, it is both.
func hashForm(x *exchange) string {
	form := ""
	if h := translators.HasherOf(x.dest); h != nil {
		form = h.HashForm()
	}
	if h := translators.HasherOf(x.source); h != nil {
		form = h.HashForm()
	}
	if x.callerInside() || x.agentInside() {
		form = strings.TrimSpace(form + " " + inbody.HashForm)
	}
	return form
}

func judged(losses []canonical.Loss) []policy.Loss {
	out := make([]policy.Loss, len(losses))
	for i, loss := range losses {
		out[i] = policy.Loss{Code: string(loss.Code), Semantic: loss.Semantic(), Text: loss.String()}
	}
	return out
}

func (g *Gateway) countLosses(l leg, losses []canonical.Loss) {
	for _, loss := range losses {
		g.Metrics.Lost(string(l.source), string(l.dest), string(loss.Code), string(loss.Fate))
	}
}

// decodeRequest reads the caller's message. What no agent is asked on the road
// has no counterpart in the other protocol: that is semantic_loss (R7).
func (g *Gateway) decodeRequest(x *exchange) (*canonical.Message, error) {
	message, err := g.spoken(x)
	if err != nil {
		return nil, err
	}
	if !carried(message.Op) || message.Phase != canonical.PhaseRequest {
		loss := canonical.Loss{Code: canonical.LossOperation, Path: "/" + string(message.Op), Fate: canonical.Dropped}
		return nil, x.permit.Judge(judged([]canonical.Loss{loss}))
	}
	if err := x.permit.Perform(string(message.Op)); err != nil {
		return nil, err
	}
	x.wireID = message.Correlation.WireID
	if x.call.Tenanted {
		message.Conversation.Tenant = ""
	}
	message.From = canonical.Party{ID: string(x.call.Caller.ID), Name: message.From.Name, Version: message.From.Version}
	if message.Preferences.CanAnswer == nil {
		message.Preferences.CanAnswer = x.call.CanAnswer
	}
	return message, nil
}

// spoken is what the caller says. The road writes into it, so that of what its
// door has read there is a copy here.
func (g *Gateway) spoken(x *exchange) (*canonical.Message, error) {
	if x.call.Message == nil {
		return g.read(x.source, x.call.Wire)
	}
	message := *x.call.Message
	if invoke, ok := message.Body.(*canonical.Invoke); ok {
		body := *invoke
		message.Body = &body
	}
	return &message, nil
}

// carried: discovery is answered from the directory (R8), and nobody answers a notice.
func carried(op canonical.Op) bool {
	return !slices.Contains([]canonical.Op{canonical.OpDescribe, canonical.OpCapabilities, canonical.OpPing, canonical.OpNotice}, op)
}

// decodeReply reads what an agent said: a reply, or an event of a stream.
// *transport.BadReplyError, or *translators.UnreadableNoticeError of an event.
func (g *Gateway) decodeReply(x *exchange, wire translators.Wire, re canonical.Op) (*canonical.Message, error) {
	wire.Binding, wire.Version, wire.Re = x.dest.Info().Binding, x.endpoint.Version, re
	if called := x.capable(); called != nil {
		wire.Profile = called.Profile
	}
	message, err := g.read(x.dest, wire)
	if unread, ok := errors.AsType[*translators.UnreadableNoticeError](err); ok {
		return nil, unread
	}
	if err != nil {
		return nil, &transport.BadReplyError{Agent: x.agent.Name, Reason: "not a reply of " + string(wire.Binding)}
	}
	if result, ok := message.Body.(*canonical.Result); ok && result.Pending != nil && len(result.Pending.Inputs) == 0 && result.Pending.State == "" {
		return nil, &transport.BadReplyError{Agent: x.agent.Name, Reason: "it waits for an answer and asks nothing"}
	}
	if id := message.Conversation.ContextID; id != "" {
		x.thread = x.thread.WithAgentID(id)
	}
	return message, nil
}

// audience is who must be able to verify leg 1: the destination and we (R4).
func (g *Gateway) audience(x *exchange) []string {
	switch {
	case x.via != nil:
		return []string{string(x.via.peer.ID), string(g.Self())}
	case x.call.Agent == "":
		return []string{string(x.call.Caller.ID), string(g.Self())}
	case x.agent.ID != "":
		return []string{string(x.agent.ID), string(g.Self())}
	default:
		return []string{x.endpoint.URL, string(g.Self())}
	}
}

// marked is what an ECT says that opens or closes a stream.
type marked struct {
	state         string // "open" or "close"
	parents       []ect.ID
	input, output string // hashes; empty: nothing has been said yet
	in, out       int    // messages that they cover
	losses        []canonical.Loss
}

// mark signs and records the ECT that opens or closes the caller's stream.
func (g *Gateway) mark(ctx context.Context, x *exchange, m marked) (ect.ID, error) {
	words, dialect := wordsOf(x.call.Entrance), g.Dialects.For(x.call.Caller.ID)
	l := leg{name: legReply, source: x.dest.Info().Binding, dest: x.source.Info().Binding, ext: ect.Ext{}}
	l.ext.SetString(ect.ExtStream, m.state)
	if m.state == "close" {
		l.ext[ect.ExtEvents] = counts(m.in, m.out)
	}
	token, err := g.Signer.SignAs(dialect, ect.Claims{
		ID: ect.ID(g.NewID()), Act: words.act, Audience: []string{string(x.call.Caller.ID)}, Workflow: x.workflow,
		Parents: m.parents, InputHash: m.input, OutputHash: m.output, Ext: g.translationExt(x, words, dialect, l, m.losses),
	})
	if err != nil {
		return "", err
	}
	if _, err := g.Recorder.Record(ctx, token, g.ownFiling(x, []string{string(x.call.Caller.ID)})); err != nil {
		return "", recording(err)
	}
	g.Metrics.Issued(string(words.act), ect.L2)
	x.issued, x.issuedIDs = append(x.issued, token.Compact()), append(x.issuedIDs, token.ID())
	x.losses = append(x.losses, m.losses...)
	return token.ID(), nil
}

// finishRun settles the books of a message whose answer was a stream.
func (g *Gateway) finishRun(ctx context.Context, x *exchange, err error) {
	x.scope.close(func() { g.finish(ctx, x, err) })
}
