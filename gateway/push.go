package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/inbody"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// maxPushes bounds the settings of one task.
const maxPushes = 16

// push handles push notification settings. They are served here, whatever the
// agent can do: a webhook's credentials never go to an agent.
func (g *Gateway) push(ctx context.Context, x *exchange) (transport.Answer, error) {
	request, ok := x.message.Body.(*canonical.PushRequest)
	if !ok || g.Network.Pushers[x.in.Source.Info().Binding] == nil {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodePushUnsupported, Message: "no push notifications are sent here"}
	}
	rec, err := store.Known(g.tasks.Load(ctx, x.keyOf(request.Config.TaskID)))
	if err != nil {
		return transport.Answer{}, err
	}
	x.record, x.workflow = rec, rec.Workflow
	body, err := g.pushed(ctx, x, rec, request)
	if err != nil {
		return transport.Answer{}, err
	}
	m := &canonical.Message{Op: x.message.Op, Phase: canonical.PhaseResponse, Body: body, Correlation: canonical.Correlation{WireID: x.in.WireID}}
	out, err := g.translate(ctx, x, g.toCaller(x, m, x.behind(rec)))
	return x.answer(out), err
}

// pushTarget is the push configuration that came with a message: who is to be told of changes
// of the work.
type pushTarget struct {
	config canonical.PushConfig
	saved  bool // it is on record
	known  bool // and so was the work, before the message
}

// takeWebhook takes the settings out of a message: they are kept here once there is
// a task, and never go to an agent, because of the credentials in them (R2).
func (g *Gateway) takeWebhook(x *exchange) error {
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
func (g *Gateway) acceptable(x *exchange, config *canonical.PushConfig) error {
	if g.StatePlain && (config.Token != "" || config.Credentials != "") {
		return &canonical.Error{
			Code:    canonical.CodePushUnsupported,
			Message: "credentials of webhooks cannot be stored safely here: leave out token and authentication, or ask the operator to configure state.key",
		}
	}
	return g.Network.Pushers[x.in.Source.Info().Binding].Check(*config)
}

// registerNew registers the configuration of a message for the task that the message
// began, and posts the task as it stands, because nothing was posted of it before.
// Without a configuration, or after it was registered, it does nothing.
func (g *Gateway) registerNew(ctx context.Context, x *exchange, rec *store.Record) error {
	if x.webhook == nil || x.webhook.saved {
		return nil
	}
	if err := g.registerPush(ctx, x, rec); err != nil {
		return err
	}
	return g.pushWhole(ctx, rec)
}

// pushWhole posts a task as it stands.
func (g *Gateway) pushWhole(ctx context.Context, rec *store.Record) error {
	task, err := g.present(rec)
	if err == nil {
		task.Output = nil
		g.pushes(ctx, rec, []canonical.Event{{Task: task}})
	}
	return err
}

// registerKnown registers the configuration of a message to a task that is on
// record, before the agent is sent the message: what comes of the message is posted.
// A task that has ended gets none: the agent will refuse the message.
func (g *Gateway) registerKnown(ctx context.Context, x *exchange) error {
	if x.webhook == nil || x.webhook.saved || x.record == nil || x.record.Task.Status.State.Terminal() {
		return nil
	}
	x.webhook.known = true
	if err := g.registerPush(ctx, x, x.record); err != nil {
		return err
	}
	if x.prior != nil { // what is put back if the agent cannot be reached
		x.prior.Pushes = true
		if rec := x.record; rec.Resume == store.ResumeNone && rec.Round == x.prior.Round+1 && !rec.Task.Status.State.Terminal() {
			x.prior.Revision = rec.Revision
		}
	}
	return nil
}

// registerPush keeps the configuration of a message for a task that is on record.
func (g *Gateway) registerPush(ctx context.Context, x *exchange, rec *store.Record) error {
	x.webhook.saved = true
	config := x.webhook.config
	if err := g.keepPush(ctx, x, rec, &config); err != nil {
		return err
	}
	g.commend(ctx, x, rec)
	return nil
}

func pushGroup(task store.EntryKey) string { return task.Group + "\x00" + task.ID }

func (g *Gateway) pushed(ctx context.Context, x *exchange, rec *store.Record, request *canonical.PushRequest) (canonical.Body, error) {
	key := store.EntryKey{Kind: store.KindPush, Group: pushGroup(rec.Key), ID: request.Config.ID}
	switch request.Verb {
	case canonical.VerbCreate:
		return g.pushTo(ctx, x, rec, request.Config)
	case canonical.VerbDelete:
		if err := g.Entries.Delete(ctx, key); err != nil {
			return nil, &problem.RecordingError{Err: err}
		}
		return &canonical.Done{}, nil
	default:
		hooks, err := g.hooks(ctx, rec.Key)
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

// pushTo keeps settings, and makes sure that somebody notices what happens.
func (g *Gateway) pushTo(ctx context.Context, x *exchange, rec *store.Record, config canonical.PushConfig) (*canonical.PushConfig, error) {
	if err := g.acceptable(x, &config); err != nil {
		return nil, err
	}
	if err := g.keepPush(ctx, x, rec, &config); err != nil {
		return nil, err
	}
	g.commend(ctx, x, rec)
	g.attend(ctx, x, rec)
	return &config, nil
}

// keepPush writes settings down.
func (g *Gateway) keepPush(ctx context.Context, x *exchange, rec *store.Record, config *canonical.PushConfig) error {
	hooks, err := g.hooks(ctx, rec.Key)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(hooks, func(h hook) bool { return h.ID == config.ID })
	if len(hooks) >= maxPushes && !known {
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "the task has too many push notification settings"}
	}
	if config.ID == "" {
		config.ID = g.NewID()
	}
	config.TaskID = rec.Task.ID
	value, err := json.Marshal(hook{*config, x.principal()})
	if err != nil {
		return store.ErrUnreadable
	}
	key := store.EntryKey{Kind: store.KindPush, Group: pushGroup(rec.Key), ID: config.ID}
	old, _, err := g.Entries.Get(ctx, key)
	if err == nil {
		_, _, err = g.Entries.Swap(ctx, key, old.Revision, value, g.Now().Add(store.RecordLife))
	}
	if err != nil {
		return &problem.RecordingError{Err: err}
	}
	return g.tasks.MarkPushed(ctx, rec)
}

// attend follows an agent's own task that nobody else here follows, so that its
// changes are noticed.
func (g *Gateway) attend(ctx context.Context, x *exchange, rec *store.Record) {
	if rec.TaskID == "" || rec.Runner != "" || stream.Settled(rec.Task.Status.State) || g.tasks.IsAlive(ctx, rec.Follower) {
		return // a settled task waits for its caller, or has ended
	}
	following := x.again()
	following.message = &canonical.Message{
		Op: canonical.OpInvoke, Origin: x.message.Origin, Body: &canonical.Invoke{}, Trace: x.message.Trace,
	}
	own := *rec
	following.parents, following.record = []ect.ID{rec.Last}, &own
	following.trail.Follow(rec.Last)
	following.unseen = true
	if err := g.choose(ctx, following); err != nil {
		g.Logger.WarnContext(ctx, "a task cannot be followed", slog.String("agent", x.to.Agent.Name), slog.Any("error", err))
		return
	}
	r := g.newRun(following, nil)
	task := rec.Task
	if err := r.fold.Add(&canonical.Event{Task: &task}, r.own); err != nil || r.settled() {
		return // it waits for its caller
	}
	mine, err := g.tasks.Follow(ctx, &own)
	if mine {
		*rec = own
		err = r.look(ctx)
	}
	if err != nil {
		g.Logger.WarnContext(ctx, "a task cannot be followed", slog.String("agent", x.to.Agent.Name), slog.Any("error", err))
	}
	switch {
	case !mine:
		return
	case err != nil:
		r.lose(context.WithoutCancel(ctx), "")
		return
	}
	r.handOver(ctx)
}

// hook is where changes of a task are posted to, and for whom.
type hook struct {
	canonical.PushConfig

	For principal
}

func (g *Gateway) hooks(ctx context.Context, task store.EntryKey) ([]hook, error) {
	entries, err := g.Entries.List(ctx, store.KindPush, pushGroup(task), "", maxPushes)
	if err != nil {
		return nil, &problem.RecordingError{Err: err}
	}
	hooks := make([]hook, len(entries))
	for i, entry := range entries {
		if hooks[i], err = readHook(entry); err != nil {
			return nil, err
		}
	}
	return hooks, nil
}

func readHook(entry store.Entry) (hook, error) {
	var h hook
	if json.Unmarshal(entry.Value, &h) != nil {
		return h, store.ErrUnreadable
	}
	return h, nil
}

// pushes posts what happened to those who want to be told, one after the other.
func (g *Gateway) pushes(ctx context.Context, rec *store.Record, events []canonical.Event) {
	if !rec.Pushes || len(events) == 0 || g.Network.Pushers[rec.Source] == nil {
		return
	}
	key := rec.Key // the record goes on changing
	if !g.outbox.add(key, posting{rec: *rec, events: events}) {
		return // whoever posts already comes to it
	}
	if err := g.workers.GoFor(key.OwnerOf(), 0, func(ctx context.Context) { g.deliver(ctx, key) }); err != nil {
		g.outbox.clear(key)
		g.Logger.WarnContext(ctx, "changes of a task are not posted", slog.String("task", rec.Task.ID), slog.Any("error", err))
	}
}

// deliver posts what there is about one task.
func (g *Gateway) deliver(ctx context.Context, key store.EntryKey) {
	for {
		next, ok := g.outbox.next(key)
		if !ok {
			return
		}
		if err := g.postAll(ctx, &next); err != nil {
			g.Logger.WarnContext(ctx, "changes of a task are not posted", slog.String("task", key.ID), slog.Any("error", err))
			if store.CanRetry(err) {
				continue
			}
		}
		if ctx.Err() == nil && next.rec.Task.Status.State.Terminal() {
			_ = g.Entries.Delete(ctx, store.FailoverKey(key)) // else the end is posted once more
		}
	}
}

// postAll posts some events to all who want to be told. An error says why one
// cannot be, to nobody; a webhook that does not take it is none.
func (g *Gateway) postAll(ctx context.Context, p *posting) error {
	hooks, err := g.hooks(ctx, p.rec.Key)
	if err != nil {
		return err
	}
	var errs []error
	for len(hooks) > 0 { // a task has one caller, who may have spoken several versions
		spoken := hooks[0].For.Version
		others := slices.DeleteFunc(slices.Clone(hooks), func(h hook) bool { return h.For.Version == spoken })
		errs = append(errs, g.postTo(ctx, p, slices.DeleteFunc(hooks, func(h hook) bool { return h.For.Version != spoken })))
		hooks = others
	}
	return errors.Join(errs...)
}

// postTo posts some events to webhooks of one version.
func (g *Gateway) postTo(ctx context.Context, p *posting, hooks []hook) error {
	x, err := g.standIn(ctx, hooks[0].For, &p.rec)
	if err != nil {
		return err
	}
	events := p.events
	form, whole := g.Network.Pushers[p.rec.Source].Form(hooks[0].For.Version)
	if x.in.Call.Wire.Form = form; whole {
		task, err := g.present(&p.rec)
		if err != nil {
			return err
		}
		task.Output = nil
		if said := events[0].Progress; said != nil && len(events) == 1 {
			if said.Message == "" {
				return nil
			}
			g.tellProgress(task, said)
		}
		events = []canonical.Event{{Task: task}}
	}
	var errs []error
	for i := range events {
		sealed, err := g.sealPost(ctx, x, &p.rec, &events[i], whole)
		if err != nil {
			errs = append(errs, err) // what cannot be said there is said when the task is asked for
			continue
		}
		for i := range hooks {
			call := outbound.Call{Kind: outbound.Webhook, Endpoint: transport.Endpoint{Binding: p.rec.Source}, Sealed: sealed, Webhook: hooks[i].PushConfig}
			if _, err := g.Sender.Send(ctx, call); err != nil {
				g.Logger.WarnContext(ctx, "a push notification was not taken", slog.String("task", p.rec.Task.ID), slog.Any("error", err))
			}
		}
	}
	return errors.Join(errs...)
}

// sealPost is an event as it is posted, with its evidence: a translation like any
// other, of what the agent has said by then. whole: it is a task, posted by itself.
func (g *Gateway) sealPost(ctx context.Context, x *exchange, rec *store.Record, event *canonical.Event, whole bool) (transport.Sealed, error) {
	tr := attest.Translation{
		Direction: attest.Reply, ID: ect.ID(g.NewID()), Internal: true, Input: rec.Input, Pair: attest.Pair{From: rec.Binding, To: rec.Source, HashForm: hashForm(x)},
		Message: &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Body: event, Conversation: rec.CallerNames(), Losses: rec.Losses},
		Codec:   x.in.Source, Target: translators.Target{Form: x.in.Call.Wire.Form, Stream: true},
		Audience: []string{string(x.in.Call.Caller.ID)}, Reader: x.in.Call.Caller.ID,
	}
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
		wire, _ = inbody.Insert(x.in.Source, wire, []string{out.Token()})
		out, err = out.Carrying(wire)
	}
	if err != nil {
		return transport.Sealed{}, err
	}
	return out.Seal()
}

// posting is what happened to a task, and is still to be posted.
type posting struct {
	rec    store.Record
	events []canonical.Event
}

// maxPostings bounds what waits to be posted about one task. Of what is too
// much, the oldest is not posted: the task itself can be asked for.
const maxPostings = 64

// outbox is what is still to be posted, in order for each task.
type outbox struct {
	mu      sync.Mutex
	waiting map[store.EntryKey][]posting // with an entry, if empty, while a worker posts
}

// add reports whether somebody has to begin posting.
func (o *outbox) add(key store.EntryKey, p posting) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting == nil {
		o.waiting = map[store.EntryKey][]posting{}
	}
	list, busy := o.waiting[key]
	if list = append(list, p); len(list) > maxPostings {
		list = list[1:]
	}
	o.waiting[key] = list
	return !busy
}

// next is the oldest; false: there is none, and whoever posts has finished.
func (o *outbox) next(key store.EntryKey) (posting, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.waiting[key]
	if len(list) == 0 {
		delete(o.waiting, key)
		return posting{}, false
	}
	o.waiting[key] = list[1:]
	return list[0], true
}

func (o *outbox) clear(key store.EntryKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.waiting, key)
}
