package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

const (
	undoneLife = 30 * 24 * time.Hour // how long the same request gets the same result, at least as long as its token lives
	maxBehind  = 64                  // tokens that are looked at for whom a checkpoint concerns
)

// Rollback takes a rollback request that came over HTTP apart from every agent's
// door (ATD, Basic Rollback): token is the request, and Evidence of the call has it
// too. The road carries it to the agent that the checkpoint concerns, in that
// agent's protocol. The same request of the same caller gets the same result for 30
// days, also when its token is no longer valid (R6); while the first is under way it
// is refused as in progress. Errors are those of Exchange.
func (g *Gateway) Rollback(ctx context.Context, call transport.Call, token string) (transport.Answer, error) {
	asked, _, err := ect.ParseUnverified(token)
	if err != nil {
		return transport.Answer{}, err
	}
	key := store.EntryKey{Kind: store.KindRollback, Group: asked.Workflow, ID: ect.Hash([]byte(string(call.Caller.ID) + "\x00" + token)), Owner: admission.Owner(call.Caller, call.Address)}
	entry, done, err := g.Entries.Get(ctx, key)
	switch {
	case err != nil:
		return transport.Answer{}, &problem.RecordingError{Err: err}
	case done:
		return g.recalled(call.Caller, entry.Value)
	}
	if err := g.address(ctx, &call, asked); err != nil {
		return transport.Answer{}, err
	}
	answer, err := g.Exchange(ctx, call)
	if err != nil {
		return answer, err
	}
	g.keepUndone(ctx, key, call.Agent, answer)
	return answer, nil
}

// undone is the answer to a rollback as it is kept: with its tokens, which may be
// gone from the record by the time that somebody asks again.
type undone struct {
	Agent   string // directory name
	Binding canonical.Binding
	Media   string
	Result  string // compact
	Body    []byte
	Ours    []string // compact
}

// keepUndone keeps an answer. What cannot be kept is known at least for as long as
// the request's token lives.
func (g *Gateway) keepUndone(ctx context.Context, key store.EntryKey, agent string, answer transport.Answer) {
	wire := answer.Wire()
	value, err := json.Marshal(undone{
		agent, wire.Binding, wire.Media, wire.Header.Get(rollback.Field), wire.Body, answer.Evidence,
	})
	if err == nil {
		_, _, err = g.Entries.Swap(context.WithoutCancel(ctx), key, 0, value, g.Now().Add(undoneLife))
	}
	if err != nil {
		g.Logger.WarnContext(ctx, "the answer to a rollback is kept only while its token lives", slog.Any("error", err))
	}
}

// recalled is a kept answer, for a caller who may call the agent now (R6).
func (g *Gateway) recalled(caller identity.Caller, value []byte) (transport.Answer, error) {
	var kept undone
	if json.Unmarshal(value, &kept) != nil {
		return transport.Answer{}, store.ErrUnreadable
	}
	agent, ok := g.Directory.Find(kept.Agent)
	if !ok {
		return transport.Answer{}, &problem.UnknownAgentError{Agent: kept.Agent}
	}
	if err := destination.MayCall(caller, agent.Rules); err != nil {
		return transport.Answer{}, err
	}
	if err := policy.AdmitTo(caller.ID, string(canonical.OpRollback), agent.Rules); err != nil {
		return transport.Answer{}, err
	}
	return g.admission.AnswerAgain(translators.Wire{
		Binding: kept.Binding, Form: rollback.Name, Media: kept.Media, Header: http.Header{rollback.Field: {kept.Result}}, Body: kept.Body,
		Re: canonical.OpRollback,
	}, kept.Ours)
}

// address finds whom a rollback request is for, and in which protocol its caller
// asked for the work: on record, behind the checkpoint. A workflow that is not
// known here has no members.
func (g *Gateway) address(ctx context.Context, call *transport.Call, asked ect.Claims) error {
	queue, seen := asked.Parents, map[ect.ID]bool{}
	for i := 0; i < len(queue) && i < maxBehind && (call.Agent == "" || call.Wire.Binding == ""); i++ {
		if seen[queue[i]] {
			continue
		}
		seen[queue[i]] = true
		records, err := g.attest.Named(ctx, ect.Ref{ID: queue[i], Workflow: asked.Workflow})
		if err != nil {
			return attest.Recording(err)
		}
		for _, r := range records {
			if r.Workflow != asked.Workflow {
				continue
			}
			if agent, ok := g.concerned(r, call.Caller.ID); ok && call.Agent == "" {
				call.Agent = agent.Name
			}
			if call.Wire.Binding == "" {
				call.Wire.Binding = g.askedIn(r, call.Caller.ID)
			}
			queue = append(queue, r.Parents...)
		}
	}
	if call.Agent == "" || len(g.Network.Rollbacks) == 0 {
		return &policy.Forbidden{Reason: "the caller has no part in this workflow"}
	}
	if call.Wire.Binding == "" { // it asked in a protocol that is not HTTP, or another asked
		call.Wire.Binding = slices.Min(slices.Collect(maps.Keys(g.Network.Rollbacks)))
	}
	return nil
}

// concerned is the agent that made a token, or that a token of ours was made for.
func (g *Gateway) concerned(r ect.Record, caller ect.Identity) (directory.Agent, bool) {
	if r.Issuer != g.Self() {
		if r.Issuer == caller {
			return directory.Agent{}, false
		}
		return g.Directory.Find(string(r.Issuer))
	}
	for _, who := range r.Audience {
		if who == string(g.Self()) || who == string(caller) {
			continue
		}
		if agent, ok := g.Directory.Find(who); ok {
			return agent, true
		}
		for _, agent := range g.Directory.List() { // one without an identity is named by its URL
			if slices.ContainsFunc(agent.Endpoints, func(e directory.Endpoint) bool { return e.URL == who }) {
				return agent, true
			}
		}
	}
	return directory.Agent{}, false
}

// askedIn is the protocol in which somebody asked for what a token of ours is
// about, if it is one with rollbacks over HTTP.
func (g *Gateway) askedIn(r ect.Record, who ect.Identity) canonical.Binding {
	if r.Issuer != g.Self() {
		return ""
	}
	claims, _, err := ect.ParseUnverified(r.Compact) // ours
	if err != nil {
		return ""
	}
	caller, _ := claims.Ext.String(ect.ExtCaller)
	leg, _ := claims.Ext.String(ect.ExtLeg)
	source, _ := claims.Ext.String(ect.ExtSourceProtocol)
	if _, ok := g.Network.Rollbacks[canonical.Binding(source)]; !ok || caller != string(who) || attest.Direction(leg) != attest.Request {
		return ""
	}
	return canonical.Binding(source)
}

// undoing puts the form of rollbacks over HTTP in place of a protocol that has
// none of its own, where the agent can be asked that way.
func (g *Gateway) undoing(x *exchange) {
	if x.message.Op != canonical.OpRollback || x.to.Codec == nil || x.to.Via != nil || g.Network.Rollbacks[x.to.Codec.Info().Binding] == nil {
		return
	}
	x.to.Codec = rollback.Over(x.to.Codec)
}

// apart is where an agent is asked to roll back: nobody asks its endpoint first
// who it is (AEPB, Checkpoint and Rollback Signal Carriage). false: it is asked at
// its endpoint, like anything else.
func (x *exchange) apart(listed directory.Endpoint) bool {
	if _, ok := x.to.Codec.(*rollback.Form); !ok {
		return false
	}
	x.endpoint = transport.Endpoint{
		Agent: x.to.Agent.Name, ID: x.to.Agent.ID, Binding: listed.Binding, URL: listed.URL, Caller: x.in.Call.Caller.ID, Timeout: x.to.Agent.Timeout,
	}
	x.dress()
	return true
}
