package gateway

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxPushes bounds the settings of one task.
const maxPushes = 16

// push handles push notification settings. They are served here, whatever the
// agent can do: a webhook's credentials never go to an agent.
func (g *Gateway) push(ctx context.Context, x *exchange) (transport.Answer, error) {
	request, ok := x.message.Body.(*canonical.PushRequest)
	if !ok || g.Pushers[x.source.Info().Binding] == nil {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodePushUnsupported, Message: "no push notifications are sent here"}
	}
	rec, err := g.load(ctx, g.keyOf(x, request.Config.TaskID))
	if err == nil && rec == nil {
		err = &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such task"}
	}
	if err != nil {
		return transport.Answer{}, err
	}
	x.record, x.workflow = rec, rec.Workflow
	body, err := g.pushed(ctx, x, rec, request)
	if err != nil {
		return transport.Answer{}, err
	}
	m := &canonical.Message{Op: x.message.Op, Phase: canonical.PhaseResponse, Body: body, Correlation: canonical.Correlation{WireID: x.wireID}}
	wire, _, err := g.leg(ctx, x, g.toCaller(x, m, []ect.ID{rec.Last}))
	return g.answer(x, wire), err
}

func pushGroup(task EntryKey) string { return task.Group + "\x00" + task.ID }

func (g *Gateway) pushed(ctx context.Context, x *exchange, rec *record, request *canonical.PushRequest) (canonical.Body, error) {
	key := EntryKey{Kind: entryPush, Group: pushGroup(rec.key), ID: request.Config.ID}
	switch request.Verb {
	case canonical.VerbCreate:
		return g.pushTo(ctx, x, rec, request.Config)
	case canonical.VerbDelete:
		if err := g.Entries.Delete(ctx, key); err != nil {
			return nil, &problem.RecordingError{Err: err}
		}
		return &canonical.Done{}, nil
	case canonical.VerbList:
		configs, err := g.pushConfigs(ctx, rec.key)
		return &canonical.PushList{Configs: configs}, err
	default:
		entry, ok, err := g.Entries.Get(ctx, key)
		if err != nil {
			return nil, &problem.RecordingError{Err: err}
		}
		if !ok {
			return nil, &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such push notification settings"}
		}
		return readPush(entry)
	}
}

// pushTo keeps settings, and makes sure that somebody notices what happens.
func (g *Gateway) pushTo(ctx context.Context, x *exchange, rec *record, config canonical.PushConfig) (*canonical.PushConfig, error) {
	if err := g.Pushers[x.source.Info().Binding].Check(config.URL); err != nil {
		return nil, err
	}
	configs, err := g.pushConfigs(ctx, rec.key)
	if err != nil {
		return nil, err
	}
	if len(configs) >= maxPushes {
		return nil, &canonical.Error{Code: canonical.CodeBadParams, Message: "the task has too many push notification settings"}
	}
	if config.ID == "" {
		config.ID = g.NewID()
	}
	config.TaskID = rec.Task.ID
	value, err := json.Marshal(config)
	if err != nil {
		return nil, errRecord
	}
	key := EntryKey{Kind: entryPush, Group: pushGroup(rec.key), ID: config.ID}
	old, _, err := g.Entries.Get(ctx, key)
	if err == nil {
		_, _, err = g.Entries.Swap(ctx, key, old.Revision, value, g.Now().Add(recordLife))
	}
	if err != nil {
		return nil, &problem.RecordingError{Err: err}
	}
	if !rec.Pushes {
		rec.Pushes = true
		if ok, err := g.save(ctx, rec); err != nil || !ok {
			return nil, conflict(err)
		}
	}
	g.attend(ctx, x, rec)
	return &config, nil
}

// attend follows an agent's own task that nobody else here follows, so that its
// changes are noticed.
func (g *Gateway) attend(ctx context.Context, x *exchange, rec *record) {
	if rec.TaskID == "" || rec.Runner != "" || rec.Task.Status.State.Terminal() {
		return
	}
	following := x.again()
	following.message = &canonical.Message{
		Op: canonical.OpInvoke, Origin: x.message.Origin, Body: &canonical.Invoke{}, Trace: x.message.Trace,
	}
	following.parents, following.requestID, following.record = []ect.ID{rec.Last}, rec.Last, rec
	following.call.Wire.Body = nil // what was said is on record
	if err := g.choose(ctx, following); err != nil {
		g.Logger.WarnContext(ctx, "a task cannot be followed", slog.String("agent", x.agent.Name), slog.Any("error", err))
		return
	}
	r := g.newRun(following, nil)
	if err := r.look(ctx); err == nil {
		r.handOver(ctx)
	}
}

func (g *Gateway) pushConfigs(ctx context.Context, task EntryKey) ([]canonical.PushConfig, error) {
	entries, err := g.Entries.List(ctx, entryPush, pushGroup(task), "", maxPushes)
	if err != nil {
		return nil, &problem.RecordingError{Err: err}
	}
	configs := make([]canonical.PushConfig, 0, len(entries))
	for _, entry := range entries {
		config, err := readPush(entry)
		if err != nil {
			return nil, err
		}
		configs = append(configs, *config)
	}
	return configs, nil
}

func readPush(entry Entry) (*canonical.PushConfig, error) {
	config := &canonical.PushConfig{}
	if json.Unmarshal(entry.Value, config) != nil {
		return nil, errRecord
	}
	return config, nil
}

// pushes posts what happened to those who want to be told.
func (g *Gateway) pushes(ctx context.Context, rec *record, events []canonical.Event) {
	if !rec.Pushes || len(events) == 0 {
		return
	}
	binding := rec.Source
	form, ok := g.Registry.Translator(binding)
	pusher := g.Pushers[binding]
	configs, err := g.pushConfigs(ctx, rec.key)
	if !ok || pusher == nil || err != nil || len(configs) == 0 {
		return
	}
	own := rec.own()
	_ = g.crew.run(func(ctx context.Context) {
		for i := range events {
			m := &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Body: &events[i], Conversation: own}
			wire, _, err := form.Encode(m, translators.Target{Form: pusher.Form(), Stream: true})
			if err != nil {
				continue // what cannot be said there is said when the task is asked for
			}
			for _, config := range configs {
				if err := pusher.Push(ctx, config, wire); err != nil {
					g.Logger.WarnContext(ctx, "a push notification was not taken", slog.String("task", own.TaskID), slog.Any("error", err))
				}
			}
		}
	})
}
