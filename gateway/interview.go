package gateway

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// outcomeOf answers a caller who waits for what comes of held work. What the work
// asks meanwhile, the caller is asked on the stream of this answer (MCP
// 2025-11-25, tasks/result); whoever holds the work hears the answer.
func (g *Gateway) outcomeOf(ctx context.Context, x *exchange, rec *record) (transport.Answer, error) {
	asks := x.asking() == translators.AskStream && x.call.Session != ""
	for end := time.Now().Add(x.timeout()); !rec.Task.Status.State.Terminal() && (!asks || rec.Waits != waitsOpen); {
		next, err := g.changed(ctx, rec, time.Until(end))
		if err != nil {
			return transport.Answer{}, err
		}
		if next == nil {
			return transport.Answer{}, &transport.TimeoutError{Agent: x.agent.Name, After: x.timeout()}
		}
		rec = next
	}
	if rec.Task.Status.State.Terminal() {
		return g.tellRecord(ctx, x, rec, false)
	}
	parents := x.behind(rec)
	if len(parents) == 0 {
		parents = x.parents
	}
	w := &watching{g: g, x: x, rec: rec, round: -1, asks: true}
	w.left, w.depart = context.WithCancel(context.Background())
	opening, err := g.mark(ctx, x, marked{state: "open", parents: parents})
	if err != nil {
		return transport.Answer{}, err
	}
	w.opening = opening
	if err := w.interview(ctx); err != nil {
		return transport.Answer{}, err
	}
	return transport.Answer{Events: w, Evidence: x.issued, Losses: x.losses, Notice: notice(x.agent.Lifecycle)}, nil
}

// interview asks what is open and was not asked yet, else waits for what happens;
// the outcome ends it.
func (w *watching) interview(ctx context.Context) error {
	switch {
	case w.rec.Task.Status.State.Terminal():
		result, err := w.g.resultOf(w.x, w.rec)
		if err == nil {
			err = w.tell(&canonical.Message{Op: w.x.message.Op, Phase: canonical.PhaseResponse, Body: result})
		}
		if err != nil {
			return err
		}
		return w.end(ctx)
	case w.rec.Waits == waitsOpen && w.rec.Round != w.round:
		w.round = w.rec.Round
		w.x.record = w.rec
		for _, in := range stream.Forms(stream.Inputs(&w.rec.Task)) {
			id := w.g.NewID()
			if err := w.g.question(ctx, w.x, id, in.Key); err != nil {
				return err
			}
			ask := &canonical.Event{Ask: &canonical.Ask{ID: quoted(id), Input: in}}
			if err := w.tell(&canonical.Message{Op: w.x.message.Op, Phase: canonical.PhaseEvent, Body: ask}); err != nil {
				return err
			}
		}
		return nil
	default:
		next, err := w.g.changed(ctx, w.rec, 2*runnerLife)
		if next != nil {
			w.rec = next
		}
		return err
	}
}

// tell says one thing that has to be said.
func (w *watching) tell(m *canonical.Message) error {
	m.Correlation.WireID, m.Conversation = w.x.wireID, w.rec.own()
	l := w.g.toCaller(w.x, m, nil)
	l.target.Stream = true
	wire, losses, err := w.g.say(w.x, l)
	if err != nil {
		return err
	}
	w.losses = merge(w.losses, losses)
	w.told.Add(wire.Octets())
	w.queue = append(w.queue, transport.Event{Wire: wire})
	return nil
}
