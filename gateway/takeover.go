package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// failoverPage is how many entries one look at the store reads.
const failoverPage = 100

// watched is what another process must know to follow a task in this one's place.
type watched struct {
	store.Principal

	Task store.EntryKey
	By   string    `json:",omitempty"` // who looked after it last
	At   time.Time `json:",omitzero"`
}

// principal is the caller as it is remembered.
func (x *exchange) principal() store.Principal {
	return store.Principal{
		Caller: x.in.Call.Caller.ID, Anonymous: x.in.Call.Caller.Anonymous, Attested: x.attested || len(x.in.Evidence.Sources) > 0,
		Address: x.in.Call.Address, Version: x.message.Origin.Version, Form: x.in.Call.Wire.Form,
	}
}

// standIn is an exchange about work whose caller is not there. Whoever may not call
// the agent any more has none.
func (g *Gateway) standIn(ctx context.Context, p store.Principal, rec *store.Record) (*exchange, error) {
	settings := g.settings.Load()
	call := transport.Call{
		Agent: rec.Agent, Entrance: transport.Native, To: rec.Binding, Address: p.Address, Detached: true,
		Caller: identity.Caller{Peer: ect.Peer{ID: p.Caller}, Anonymous: p.Anonymous},
		Wire:   translators.Wire{Binding: rec.Source, Version: p.Version, Form: p.Form},
	}
	message := &canonical.Message{Op: canonical.OpInvoke, Origin: canonical.Origin{Binding: rec.Source, Version: p.Version}, Body: &canonical.Invoke{}}
	in, err := g.admission.Resume(ctx, call, message, settings.rules)
	return &exchange{
		in: in, to: in.To, settings: settings, scope: &scope{began: g.Now()}, workflow: rec.Workflow, attested: p.Attested,
		trail: attest.Resume(rec.Requests), message: message,
	}, err
}

// commend asks the other processes to look after a task if this one is lost.
// Where there is no room for that, it is followed here alone.
func (g *Gateway) commend(ctx context.Context, x *exchange, rec *store.Record) {
	err := g.tasks.StartHeartbeat(ctx)
	var value []byte
	if err == nil {
		value, err = json.Marshal(watched{Principal: x.principal(), Task: rec.Key, By: g.instance})
	}
	if err == nil {
		_, _, err = g.Entries.Swap(ctx, store.FailoverKey(rec.Key), 0, value, g.Now().Add(store.RecordLife))
	}
	if err != nil {
		g.Logger.WarnContext(ctx, "a task is followed by this process alone", slog.String("task", rec.Task.ID), slog.Any("error", err))
	}
}

// TakeOver begins to look after tasks whose process was lost, as long as somebody
// wants to be told of them. It is called once; Close ends it.
func (g *Gateway) TakeOver() error {
	return g.workers.Serve(func(ctx context.Context) {
		for worker.Pause(ctx, store.HeartbeatInterval) {
			g.lookAfter(ctx)
		}
	})
}

// lookAfter looks at every task that somebody wants to be told of.
func (g *Gateway) lookAfter(ctx context.Context) {
	for after := ""; ctx.Err() == nil; {
		entries, err := g.Entries.List(ctx, store.KindFailover, "", after, failoverPage)
		if err != nil {
			g.Logger.WarnContext(ctx, "nobody looks after tasks of lost processes", slog.Any("error", err))
			return
		}
		for _, entry := range entries {
			after = entry.Key.ID
			if err := g.inherit(ctx, entry); err != nil {
				g.Logger.WarnContext(ctx, "a task is not taken over", slog.Any("error", err))
			}
		}
		if len(entries) < failoverPage {
			return
		}
	}
}

// inherit goes on with a task in place of a process that is gone.
func (g *Gateway) inherit(ctx context.Context, entry store.Entry) error {
	var w watched
	if json.Unmarshal(entry.Value, &w) != nil {
		return g.Entries.Delete(ctx, entry.Key)
	}
	rec, err := g.tasks.Load(ctx, w.Task)
	if err != nil {
		return err
	}
	if rec == nil {
		return g.Entries.Delete(ctx, entry.Key)
	}
	if err := g.failLost(ctx, rec); err != nil {
		return err
	}
	if !g.tasks.IsAbandoned(ctx, w.By, rec) {
		return g.prolongWatched(ctx, entry, rec)
	}
	if g.Now().Sub(w.At) < store.LeaseTTL && w.By != g.instance {
		return nil // another has it in hand
	}
	if err := g.tasks.StartHeartbeat(ctx); err != nil { // else others would take it over from this process
		return err
	}
	w.By, w.At = g.instance, g.Now()
	value, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if _, mine, err := g.Entries.Swap(ctx, entry.Key, entry.Revision, value, g.Now().Add(store.RecordLife)); err != nil || !mine {
		return err
	}
	return g.adopt(ctx, &w, rec)
}

// prolongWatched lets the entry of a task, and the configurations of the task, live
// as long as its record does. It reads the configurations only when the entry was
// prolonged: that is often enough, because each lives twice as long as that takes.
func (g *Gateway) prolongWatched(ctx context.Context, entry store.Entry, rec *store.Record) error {
	prolonged, err := g.tasks.ExtendEntry(ctx, entry)
	if err != nil || !prolonged {
		return err
	}
	return g.hooks.Extend(ctx, rec.Key, g.tasks.ExtendEntry)
}

// adopt posts how a task stands, because nobody knows what was posted of its last
// changes, and follows it from there.
func (g *Gateway) adopt(ctx context.Context, w *watched, rec *store.Record) error {
	rec, err := g.tasks.Load(ctx, rec.Key) // again: it may have changed, and its changes are posted in order
	if err != nil || rec == nil {
		return err
	}
	if err := g.pushWhole(ctx, rec); err != nil || rec.Task.Status.State.Terminal() {
		return err
	}
	x, err := g.standIn(ctx, w.Principal, rec)
	if err != nil { // also where its caller may not call any more: then it is not told any more
		return err
	}
	g.attend(ctx, x, rec)
	return nil
}
