package gateway

import (
	"context"
	"errors"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/task"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/webhook"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// push handles push notification settings. They are served here, whatever the
// agent can do: a webhook's credentials never go to an agent.
func (g *Gateway) push(ctx context.Context, x *request) (transport.Answer, error) {
	request, ok := x.message.Body.(*canonical.PushRequest)
	if !ok || g.Network.Pushers[x.in.Source.Info().Binding] == nil {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodePushUnsupported, Message: "no push notifications are sent here"}
	}
	rec, err := store.Known(g.tasks.Load(ctx, x.keyOf(request.Config.TaskID)))
	if err != nil {
		return transport.Answer{}, err
	}
	x.about(rec)
	body, err := g.pushed(ctx, x, rec, request)
	if err != nil {
		return transport.Answer{}, err
	}
	m := &canonical.Message{Op: x.message.Op, Phase: canonical.PhaseResponse, Body: body, Correlation: canonical.Correlation{WireID: x.in.WireID}}
	return g.caller(x).Tell(ctx, m, execution.Proof{Parents: x.since(rec)})
}

// pushTarget is the push configuration of a message: the webhook that gets the changes of the task.
type pushTarget struct {
	config canonical.PushConfig
	saved  bool // it is on record
	known  bool // and so was the work, before the message
}

// takeWebhook takes the settings out of a message: they are kept here once there is
// a task, and never go to an agent, because of the credentials in them (R2).
func (g *Gateway) takeWebhook(x *request) error {
	invoke, ok := x.message.Body.(*canonical.Invoke)
	if !ok || invoke.Push == nil || x.in.Call.Agent == "" {
		return nil
	}
	if g.Network.Pushers[x.in.Source.Info().Binding] == nil {
		return &canonical.Error{Code: canonical.CodePushUnsupported, Message: "no push notifications are sent here"}
	}
	x.webhook = &pushTarget{config: *invoke.Push}
	invoke.Push = nil
	return g.acceptable(x, &x.webhook.config)
}

// acceptable refuses settings whose URL is none, or whose credentials could be
// read by others where they are stored.
func (g *Gateway) acceptable(x *request, config *canonical.PushConfig) error {
	if g.StatePlain && (config.Token != "" || config.Credentials != "") {
		return &canonical.Error{
			Code:    canonical.CodePushUnsupported,
			Message: "credentials of webhooks cannot be stored safely here: leave out token and authentication, or ask the operator to configure state.key",
		}
	}
	return g.Network.Pushers[x.in.Source.Info().Binding].Check(*config)
}

// registerKnown registers the configuration of a message to a task that is on
// record, before the agent is sent the message: what comes of the message is posted.
// A task that has ended gets none: the agent will refuse the message.
func (g *Gateway) registerKnown(ctx context.Context, x *request) error {
	if x.webhook == nil || x.webhook.saved || x.record == nil || x.record.Task.Status.State.Terminal() {
		return nil
	}
	x.webhook.known = true
	if err := g.registerPush(ctx, x, x.record); err != nil {
		return err
	}
	x.claim.Posted()
	return nil
}

// registerPush keeps the configuration of a message for a task that is on record.
func (g *Gateway) registerPush(ctx context.Context, x *request, rec *store.Record) error {
	x.webhook.saved = true
	config := x.webhook.config
	if err := g.keepPush(ctx, x, rec, &config); err != nil {
		return err
	}
	g.tasks.Enroll(ctx, x.principal(), rec)
	return nil
}

func (g *Gateway) pushed(ctx context.Context, x *request, rec *store.Record, request *canonical.PushRequest) (canonical.Body, error) {
	switch request.Verb {
	case canonical.VerbCreate:
		return g.pushTo(ctx, x, rec, request.Config)
	case canonical.VerbDelete:
		return &canonical.Done{}, g.hooks.Delete(ctx, rec.Key, request.Config.ID)
	default:
		hooks, err := g.hooks.Of(ctx, rec.Key)
		list := &canonical.PushList{Configs: make([]canonical.PushConfig, len(hooks))}
		for i := range hooks {
			list.Configs[i] = hooks[i].PushConfig
		}
		if request.Verb == canonical.VerbList || err != nil {
			return list, err
		}
		for i := range list.Configs {
			if id := request.Config.ID; id == "" || list.Configs[i].ID == id { // A2A 0.3 section 7.6: the task alone may be named
				return &list.Configs[i], nil
			}
		}
		return nil, &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such push notification settings"}
	}
}

// pushTo keeps settings, and makes sure that a replica notices what happens.
func (g *Gateway) pushTo(ctx context.Context, x *request, rec *store.Record, config canonical.PushConfig) (*canonical.PushConfig, error) {
	if err := g.acceptable(x, &config); err != nil {
		return nil, err
	}
	if err := g.keepPush(ctx, x, rec, &config); err != nil {
		return nil, err
	}
	g.tasks.Enroll(ctx, x.principal(), rec)
	g.attend(ctx, x, rec)
	return &config, nil
}

// keepPush writes settings down.
func (g *Gateway) keepPush(ctx context.Context, x *request, rec *store.Record, config *canonical.PushConfig) error {
	if config.ID == "" {
		config.ID = g.NewID()
	}
	config.TaskID = rec.Task.ID
	if err := g.hooks.Put(ctx, rec.Key, webhook.Hook{PushConfig: *config, For: x.principal()}); err != nil {
		return err
	}
	return g.tasks.MarkPushed(ctx, rec)
}

// attend follows an agent's own task that no replica follows, so that its
// changes are noticed.
func (g *Gateway) attend(ctx context.Context, x *request, rec *store.Record) {
	if rec.TaskID == "" || rec.Runner != "" || stream.Settled(rec.Task.Status.State) || g.tasks.IsAlive(ctx, rec.Follower) {
		return // a settled task waits for its caller, or has ended
	}
	following := x.derive(&canonical.Message{
		Op: canonical.OpInvoke, Origin: x.message.Origin, Body: &canonical.Invoke{}, Trace: x.message.Trace,
	})
	own := *rec
	following.lineage.Parents = []ect.ID{rec.Last}
	following.about(&own)
	following.trail.Follow(rec.Last)
	following.unseen = true
	if err := g.choose(ctx, following); err != nil {
		g.logUnfollowed(ctx, x.to.Agent.Name, err)
		return
	}
	if err := g.executions.Follow(ctx, g.work(following), rec); err != nil {
		g.logUnfollowed(ctx, x.to.Agent.Name, err)
	}
}

// sealPosts makes the messages that post events to a caller.
func (g *Gateway) sealPosts(ctx context.Context, who store.Principal, p *webhook.Posting, form string, whole bool) ([]transport.Sealed, error) {
	if p.Snapshot { // one that cannot be read is posted: to say something twice is better than not at all
		if now, err := g.tasks.Load(ctx, p.Record.Key); err == nil && now != nil && len(stream.Diff(&p.Record.Task, &now.Task)) > 0 {
			return nil, nil
		}
	}
	x, err := g.standIn(ctx, who, &p.Record)
	if err != nil {
		return nil, err
	}
	events := p.Events
	if x.in.Call.Wire.Form = form; whole {
		task, err := g.tasks.Present(&p.Record)
		if err != nil {
			return nil, err
		}
		task.Output = nil
		if progress := events[0].Progress; progress != nil && len(events) == 1 {
			if progress.Message == "" {
				return nil, nil
			}
			// The task on record does not hold its progress.
			parts := []canonical.Part{{Kind: canonical.KindText, Text: progress.Message}}
			task.Status.At, task.Status.Message = execution.Milliseconds(g.Now()), &canonical.Content{ID: task.ID + "/progress", Role: canonical.RoleAgent, Parts: parts}
		}
		events = []canonical.Event{{Task: task}}
	}
	var messages []transport.Sealed
	var errs []error
	for i := range events {
		sealed, err := g.sealPost(ctx, x, &p.Record, &events[i], whole)
		if err != nil {
			errs = append(errs, err) // what cannot be said there is said when the task is asked for
			continue
		}
		messages = append(messages, sealed)
	}
	return messages, errors.Join(errs...)
}

// sealPost translates, signs and seals an event for a webhook, like any reply. whole: the body of
// the post is the task, not an event.
func (g *Gateway) sealPost(ctx context.Context, x *request, rec *store.Record, event *canonical.Event, whole bool) (transport.Sealed, error) {
	tr := attest.Translation{
		Direction: attest.Reply, ID: ect.ID(g.NewID()), Internal: true, Input: rec.Input, Pair: attest.Pair{From: rec.Binding, To: rec.Source, HashForm: hashForm(x)},
		Message: &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Body: event, Conversation: rec.CallerNames(), Losses: rec.Losses},
		Codec:   x.in.Source, Target: translators.Target{Form: x.in.Call.Wire.Form, Stream: true},
		Audience: []string{string(x.in.Call.Caller.ID)}, Reader: x.in.Call.Caller.ID,
	}
	tr.Ext = unfinished(tr.Message)
	if whole {
		tr.Message.Op, tr.Message.Phase, tr.Message.Body = canonical.OpTaskGet, canonical.PhaseResponse, &canonical.Result{Task: event.Task}
		tr.Target.Version, tr.Target.Stream = x.message.Origin.Version, false
	}
	if x.brief(tr.Message); rec.Last != "" {
		tr.Lineage.Parents = []ect.ID{rec.Last}
	}
	out, err := g.translate(ctx, x, tr)
	if err == nil && x.callerInside() {
		wire := out.Wire()
		wire.Re, wire.Event = tr.Message.Op, !whole
		wire, _ = embedded.Insert(x.in.Source, wire, []string{out.Token()})
		out, err = out.Carrying(wire)
	}
	if err != nil {
		return transport.Sealed{}, err
	}
	return out.Seal()
}

// principal returns the caller as records store it.
func (x *request) principal() store.Principal {
	return store.Principal{
		Caller: x.in.Call.Caller.ID, Anonymous: x.in.Call.Caller.Anonymous, Attested: x.attested || len(x.in.Evidence.Sources) > 0,
		Address: x.in.Call.Address, Version: x.message.Origin.Version, Form: x.in.Call.Wire.Form,
	}
}

// standIn makes a request about work on behalf of its caller, who is not connected. It fails if the
// caller may no longer call the agent.
func (g *Gateway) standIn(ctx context.Context, p store.Principal, rec *store.Record) (*request, error) {
	return g.standInFor(ctx, p, rec, translators.Wire{Binding: rec.Source, Version: p.Version, Form: p.Form})
}

// standInFor makes a request of a message that its caller sent before.
func (g *Gateway) standInFor(ctx context.Context, p store.Principal, rec *store.Record, wire translators.Wire) (*request, error) {
	settings := g.settings.Load()
	call := transport.Call{
		Agent: rec.Agent, EntryPoint: transport.Native, Target: transport.Target{To: rec.Binding}, Address: p.Address, Detached: true,
		Caller: identity.Caller{Peer: ect.Peer{ID: p.Caller}, Anonymous: p.Anonymous},
		Wire:   wire,
	}
	message := &canonical.Message{Op: canonical.OpInvoke, Origin: canonical.Origin{Binding: rec.Source, Version: p.Version}, Body: &canonical.Invoke{}}
	in, err := g.admission.Resume(ctx, call, message, settings.rules)
	if err != nil {
		return nil, err
	}
	x := &request{
		settings: settings, scope: &scope{began: g.Now()}, lineage: attest.Lineage{Workflow: rec.Workflow},
		trail: attest.Resume(rec.Requests), work: work{attested: p.Attested},
	}
	x.admit(in, in.To)
	return x, nil
}

// followInPlace posts how a task stands, because it is not known what was posted of its last
// changes, and follows it from there.
func (g *Gateway) followInPlace(ctx context.Context, who store.Principal, rec *store.Record) error {
	// One that lives posts its changes itself; what it could not post for that long is posted here.
	if g.Now().Sub(rec.Changed) > store.LeaseTTL || !g.tasks.IsAlive(ctx, rec.Writer) {
		task, err := g.tasks.Present(rec)
		if err != nil {
			return err
		}
		task.Output = nil
		g.hooks.PostSnapshot(ctx, rec, task)
	}
	if rec.Task.Status.State.Terminal() {
		return nil
	}
	x, err := g.standIn(ctx, who, rec)
	if err != nil { // also where its caller may not call any more: then it is not told any more
		return err
	}
	g.attend(ctx, x, rec)
	return nil
}

// released is the message of a task whose call was granted, as its caller sent it. Policy is asked again.
func (g *Gateway) released(ctx context.Context, who store.Principal, rec *store.Record, approval string) (task.Exchange, func(error), error) {
	first, _, err := g.tasks.First(rec)
	if err != nil {
		return nil, nil, err
	}
	x, err := g.standInFor(ctx, who, rec, rec.Call.Wire(rec.Source, ""))
	if err != nil {
		return nil, nil, err
	}
	if x.in.Message = first; rec.Call.Tenanted {
		first.Conversation.Tenant = ""
	}
	x.admit(x.in, x.to)
	if err := x.in.Permit.Perform(string(first.Op)); err != nil {
		return nil, nil, err
	}
	first.From = canonical.Party{ID: string(who.Caller), Name: first.From.Name, Version: first.From.Version}
	x.original, x.approval = first.Body, approval
	x.about(rec)
	return exchange{g, x}, func(err error) {
		if err != nil {
			g.tasks.ReopenInput(ctx, x.claim)
			g.fail(ctx, x, transport.Answer{}, err)
		}
		g.finish(context.WithoutCancel(ctx), x, err)
	}, nil
}
