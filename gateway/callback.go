package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	maxCallbacks = 16             // of one workflow
	callbackLife = 24 * time.Hour // humans take their time
	maxURL       = 2048           // octets
)

// callback is who wants to be told what a human decides in a workflow.
type callback struct {
	URL    string
	Caller ect.Identity
	Since  time.Time
}

// await takes the callback of a request: it is kept here, told from here, and
// goes on to an agent whose protocol has a place for it. Where nobody is asked,
// nobody here hears of a decision.
func (g *Gateway) await(ctx context.Context, x *exchange) error {
	m := x.message
	if m.Callback == "" {
		return nil
	}
	if x.call.Agent != "" {
		if err := g.Await(ctx, x.call.Caller.ID, x.workflow, m.Callback); err != nil {
			return err
		}
	}
	if !signalling(x.to.Codec, m.Op, x.endpoint.Version, x.endpoint.Form) {
		said := *m
		said.Callback = ""
		said.Losses = append(slices.Clip(said.Losses),
			canonical.Loss{Code: canonical.LossCallback, Path: "/callback", Fate: canonical.Dropped})
		x.message = &said
	}
	return nil
}

// Await registers a URI that is told what humans decide in a workflow (AEPB,
// HITL Callback Registration), 16 of a workflow at most, for a day. Its errors
// are *egress.DeniedError where no such URI may be called, *canonical.Error and
// *problem.RecordingError.
func (g *Gateway) Await(ctx context.Context, caller ect.Identity, workflow, uri string) error {
	switch {
	case g.Network.Callbacks == nil:
		return &canonical.Error{Code: canonical.CodePushUnsupported, Message: "no decisions are told here"}
	case len(uri) > maxURL || workflow == "":
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "not a callback for a workflow"}
	}
	if err := g.Network.Callbacks.Check(uri); err != nil {
		return err
	}
	known, err := g.callbacks(ctx, workflow)
	if err != nil {
		return err
	}
	for _, c := range known {
		if c.URL == uri && c.Caller == caller {
			return nil
		}
	}
	if len(known) >= maxCallbacks {
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "the workflow has too many callbacks"}
	}
	value, err := json.Marshal(callback{URL: uri, Caller: caller, Since: g.Now()})
	if err != nil {
		return store.ErrUnreadable
	}
	key := store.EntryKey{Kind: store.KindCallback, Group: workflow, ID: ect.Hash([]byte(string(caller) + "\x00" + uri)), Owner: string(caller)}
	if _, _, err := g.Entries.Swap(ctx, key, 0, value, g.Now().Add(callbackLife)); err != nil {
		return &problem.RecordingError{Err: err}
	}
	return nil
}

func (g *Gateway) callbacks(ctx context.Context, workflow string) ([]callback, error) {
	entries, err := g.Entries.List(ctx, store.KindCallback, workflow, "", maxCallbacks)
	if err != nil {
		return nil, &problem.RecordingError{Err: err}
	}
	list := make([]callback, len(entries))
	for i, entry := range entries {
		if json.Unmarshal(entry.Value, &list[i]) != nil {
			return nil, store.ErrUnreadable
		}
	}
	return list, nil
}

// announce tells a decision to everybody who waits for it, in the background.
func (g *Gateway) announce(ctx context.Context, said *canonical.Signal, waiting []callback) {
	if g.Network.Callbacks == nil {
		return
	}
	for _, w := range waiting {
		err := g.workers.GoFor(string(w.Caller), 0, func(ctx context.Context) {
			call := outbound.Call{Kind: outbound.Callback, Decision: transport.Decision{URL: w.URL, Approval: said.Approval, Token: said.Token}}
			if _, err := g.outbound.Send(ctx, call); err != nil {
				g.Logger.WarnContext(ctx, "a decision was not taken", slog.String("approval", said.Approval), slog.Any("error", err))
			}
		})
		if err != nil {
			g.Logger.WarnContext(ctx, "a decision is not told", slog.String("approval", said.Approval), slog.Any("error", err))
		}
	}
}
