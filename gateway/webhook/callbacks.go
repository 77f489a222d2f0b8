package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const (
	maxCallbacks = 64             // of one workflow
	ofOneMember  = 16             // of these
	callbackLife = 24 * time.Hour // humans take their time
	maxURL       = 2048           // bytes
)

// Deps is what Callbacks are built from. Every field is required.
type Deps struct {
	Entries store.Entries
	Network *outbound.Network
	Sender  outbound.Sender
	Workers *worker.Group
	Now     func() time.Time
	Logger  *slog.Logger
}

// Callbacks keeps who is told what humans decide (AEPB, HITL Callback Registration). It is
// safe for concurrent use.
type Callbacks struct {
	deps      Deps
	decisions *record.Machine[string] // by workflow and approval: the hash of the token that decided
}

// NewCallbacks makes them.
func NewCallbacks(deps Deps) (*Callbacks, error) {
	decisions, err := record.New(record.Kind[string]{
		Encode: func(hash string) ([]byte, error) { return []byte(hash), nil },
		Decode: func(text []byte) (string, error) { return string(text), nil },
		Life:   callbackLife,
	}, record.Deps{Entries: deps.Entries, Now: deps.Now, Logger: deps.Logger})
	return &Callbacks{deps, decisions}, err
}

// Callback is one that is told.
type Callback struct {
	URL    string
	Caller ect.Identity
	Since  time.Time
}

// Await registers a URI that is told what humans decide in a workflow, 16 of a member and
// 64 of a workflow at most, for a day. Its errors are *egress.DeniedError where no such URI may be called,
// *[canonical.Error] and *[problem.RecordingError].
func (c *Callbacks) Await(ctx context.Context, caller ect.Identity, workflow, uri string) error {
	switch {
	case c.deps.Network.Callbacks == nil:
		return &canonical.Error{Code: canonical.CodePushUnsupported, Message: "no decisions are told here"}
	case len(uri) > maxURL || workflow == "":
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "not a callback for a workflow"}
	}
	if err := c.deps.Network.Callbacks.Check(uri); err != nil {
		return err
	}
	known, err := c.Of(ctx, workflow)
	if err != nil {
		return err
	}
	own := 0
	for _, k := range known {
		if k.Caller != caller {
			continue
		}
		if own++; k.URL == uri {
			return nil
		}
	}
	if own >= ofOneMember || len(known) >= maxCallbacks {
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "the workflow has too many callbacks: 16 of one caller, or 64 of all"}
	}
	value, err := json.Marshal(Callback{URL: uri, Caller: caller, Since: c.deps.Now()})
	if err != nil {
		return store.ErrUnreadable
	}
	key := store.EntryKey{Kind: store.KindCallback, Group: workflow, ID: ect.Hash([]byte(string(caller) + "\x00" + uri)), Owner: string(caller)}
	if _, _, err := c.deps.Entries.Swap(ctx, key, 0, value, c.deps.Now().Add(callbackLife)); err != nil {
		return &problem.RecordingError{Err: err}
	}
	return nil
}

// Of are the callbacks of a workflow. Its errors are *[problem.RecordingError] and
// [store.ErrUnreadable].
func (c *Callbacks) Of(ctx context.Context, workflow string) ([]Callback, error) {
	entries, err := c.deps.Entries.List(ctx, store.KindCallback, workflow, "", maxCallbacks)
	if err != nil {
		return nil, &problem.RecordingError{Err: err}
	}
	list := make([]Callback, len(entries))
	for i, entry := range entries {
		if json.Unmarshal(entry.Value, &list[i]) != nil {
			return nil, store.ErrUnreadable
		}
	}
	return list, nil
}

// Announce tells a decision to all who wait for it, in the background.
func (c *Callbacks) Announce(ctx context.Context, decision *canonical.Signal, waiting []Callback) {
	if c.deps.Network.Callbacks == nil {
		return
	}
	for _, w := range waiting {
		err := c.deps.Workers.GoFor(string(w.Caller), 0, func(ctx context.Context) {
			call := &outbound.Call{Kind: outbound.Callback, Endpoint: transport.Endpoint{Caller: w.Caller}, Decision: transport.Decision{URL: w.URL, Approval: decision.Approval, Token: decision.Token}}
			if _, err := c.deps.Sender.Send(ctx, call); err != nil {
				c.deps.Logger.WarnContext(ctx, "a decision was not taken", slog.String("approval", decision.Approval), slog.Any("error", err))
			}
		})
		if err != nil {
			c.deps.Logger.WarnContext(ctx, "a decision is not told", slog.String("approval", decision.Approval), slog.Any("error", err))
		}
	}
}

// URIs are those of the callbacks of a workflow. Its errors are those of Of.
func (c *Callbacks) URIs(ctx context.Context, workflow string) ([]string, error) {
	list, err := c.Of(ctx, workflow)
	uris := make([]string, len(list))
	for i := range list {
		uris[i] = list[i].URL
	}
	return uris, err
}

// AnnounceIn tells a decision to all who wait for it in a workflow, in the background.
func (c *Callbacks) AnnounceIn(ctx context.Context, workflow string, decision *canonical.Signal) {
	waiting, err := c.Of(ctx, workflow)
	if err != nil {
		c.deps.Logger.WarnContext(ctx, "a decision is not told", slog.String("approval", decision.Approval), slog.Any("error", err))
	}
	c.Announce(ctx, decision, waiting)
}

// Decide writes down what was decided. The same again is no news (false), and another
// decision about the same is refused (R23), a *[problem.ConflictError]. Its other errors are
// *[canonical.Error] and *[problem.RecordingError].
func (c *Callbacks) Decide(ctx context.Context, decision *canonical.Signal, token ect.Verified) (fresh bool, err error) {
	if decision.Approval == "" || len(decision.Approval) > store.MaxTaskID {
		return false, &canonical.Error{Code: canonical.CodeBadParams, Message: "a decision names what it is about"}
	}
	key := store.EntryKey{Kind: store.KindDecision, Group: token.Workflow(), ID: decision.Approval, Owner: string(token.Issuer())}
	value := ect.Hash([]byte(decision.Token))
	_, fresh, err = c.decisions.Decide(ctx, key, func(before record.Found[string]) (string, *attest.Statement, error) {
		switch {
		case before.Revision == 0:
			return value, nil, nil
		case before.Value == value:
			return value, nil, record.ErrUnchanged
		}
		return "", nil, &problem.ConflictError{Reason: "this was decided before"}
	})
	if _, conflict := errors.AsType[*problem.ConflictError](err); err != nil && !conflict {
		err = &problem.RecordingError{Err: err}
	}
	return fresh, err
}
