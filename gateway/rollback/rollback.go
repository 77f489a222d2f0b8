package rollback

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/rollback"
)

const (
	resultLife = 30 * 24 * time.Hour // how long the same request gets the same result, at least as long as its token lives
	maxBehind  = 64                  // tokens that are looked at for whom a checkpoint concerns
)

// Deps is what a Service is built from. Every field is required.
type Deps struct {
	Exchange    func(context.Context, transport.Call) (transport.Answer, error) // carries a request that came over HTTP
	Admission   *admission.Service
	Attest      *attest.Service
	Directory   *directory.Directory
	Network     *outbound.Network
	Checkpoints *checkpoint.Service
	Agents      Agents
	Workflows   Workflows
	Find        func(ctx context.Context, refs ...ect.Ref) ([][]ect.Record, error) // of the evidence store
	Patience    func() time.Duration                                               // how long the longest call may take
	Notices     Notices
	Replicas    Replicas
	Entries     store.Entries
	Now         func() time.Time
	Logger      *slog.Logger
	Self        ect.Identity
}

// Notices are told how rollbacks go on.
type Notices struct {
	Escalate func(ctx context.Context, wid, compact string) // calls operators, and does not wait for that
	Count    func(status string)
	Humans   Humans
}

// Workflows are those whose work is undone.
type Workflows interface {
	// Read reads a workflow from its tokens.
	Read(ctx context.Context, wid string, who ect.Identity) (workflow.Run, []workflow.Token, error)
	// Critical says which planned nodes of a workflow are critical; a nil function: none is.
	Critical(ctx context.Context, wid string) (func(node string) bool, error)
}

// Humans decide what rollbacks cannot.
type Humans interface {
	// Hold pauses or stops the workflow of a lineage. An event has no time. What is held as demanded stays so.
	Hold(ctx context.Context, e hitl.StandingEvent, after attest.Lineage) error
	// Lift lets a workflow go on that was paused for a reason, after humans granted a question about that. One that was paused or stopped
	// for another reason stays so.
	Lift(ctx context.Context, wid, by, why string) error
	// Standing is how a workflow stands, as all replicas know it.
	Standing(ctx context.Context, wid string) (hitl.Mode, error)
	// Ask asks humans; the same question is asked once. Answer is what they answered.
	Ask(ctx context.Context, q Question) error
	Answer(ctx context.Context, id string) (granted, over bool, err error)
}

// Replicas are the processes of this gateway that carry out rollbacks.
type Replicas struct {
	Self  string                                                // the name of this one
	Alive func(ctx context.Context, replica string) bool        // whether one has a heartbeat
	Go    func(holder string, work func(context.Context)) error // works in the background
}

// Service takes rollback requests, and carries out those to checkpoints that are saved here. It is safe for concurrent use.
type Service struct {
	deps     Deps
	journals *record.Machine[underWay]
	says     statements
	after    *follower
	runs     *runs // rollbacks by their workflow, and aftermaths
}

// New makes a service.
func New(deps Deps) (*Service, error) {
	records := record.Deps{
		Entries: deps.Entries, Evidence: func() record.Evidence { return deps.Attest.Statements() }, Now: deps.Now, Logger: deps.Logger,
	}
	made, err := journals(records)
	if err != nil {
		return nil, err
	}
	after, err := aftermaths(records)
	s := &Service{deps: deps, journals: made, says: statements{deps.Self, deps.Directory}, runs: &runs{deps: deps, all: map[string]bool{}, rest: map[string]rest{}}}
	s.after = &follower{s, after}
	return s, err
}

// Rollback takes a rollback request that came over HTTP apart from every agent's
// endpoint (ATD, Basic Rollback): token is the request, and Evidence of the call has it
// too. The pipeline carries it to the agent that the checkpoint concerns, in that
// agent's protocol, or the gateway rolls back itself. The same request gets the same result for 30
// days, also when its token is no longer valid (R6); other bytes under its jti are refused. Errors are those of Exchange.
func (s *Service) Rollback(ctx context.Context, call transport.Call, token string) (transport.Answer, error) {
	request, _, err := ect.ParseUnverified(token)
	if err != nil {
		return transport.Answer{}, err
	}
	o := Order{
		Workflow: request.Workflow, Issuer: call.Caller.ID, Request: request.ID, Digest: ect.Hash([]byte(token)), Owner: admission.Owner(call.Caller, call.Address),
	}
	if answer, done, err := s.again(ctx, call, o); done || err != nil {
		return answer, err
	}
	if err := (finder{s.deps}).address(ctx, &call, request); err != nil {
		return transport.Answer{}, err
	}
	answer, err := s.deps.Exchange(ctx, call)
	if err != nil {
		return answer, err
	}
	s.save(ctx, o, call.Agent, answer)
	return answer, nil
}

// again answers a request that was taken before; false: it was not. One whose rollback goes on waits for it.
func (s *Service) again(ctx context.Context, call transport.Call, o Order) (transport.Answer, bool, error) {
	k, done, err := s.result(ctx, o.Workflow, o.Issuer, o.Request)
	if err == nil && !done {
		u, running, failed := s.begun(ctx, o.Workflow)
		if err = failed; err != nil || !running || u.Issuer != o.Issuer || u.Request != o.Request {
			return transport.Answer{}, false, err
		}
		if u.Digest != o.Digest {
			return transport.Answer{}, true, conflicting(o.Request)
		}
		if _, err := s.await(ctx, o); err != nil {
			return transport.Answer{}, true, err
		}
		k, _, err = s.result(ctx, o.Workflow, o.Issuer, o.Request)
	}
	switch {
	case err != nil:
		return transport.Answer{}, true, err
	case k.Digest != o.Digest:
		return transport.Answer{}, true, conflicting(o.Request)
	}
	if k.Status != "" && len(k.Ours) == 0 {
		if err := s.cover(ctx, o, &k); err != nil {
			return transport.Answer{}, true, err
		}
	}
	answer, err := s.answerAgain(call.Caller, k)
	return answer, true, err
}

// cover signs the answer to a request whose caller has not heard the result so far, and keeps both.
func (s *Service) cover(ctx context.Context, o Order, k *saved) error {
	k.Body, k.Media = form.Body(k.Result), form.Media
	ext := ect.Ext{}
	ext.SetString(ect.ExtLeg, string(attest.Reply))
	ext.SetString(ect.ExtCaller, string(o.Issuer))
	compact, err := s.deps.Attest.Statements().State(ctx, attest.Statement{
		Act: ect.ActTranslate, Lineage: attest.After(k.Result), Audience: []string{string(o.Issuer)}, Output: ect.Hash(k.Body), Ext: ext, Holder: o.Holder,
	})
	if err != nil {
		return err
	}
	k.Ours = []string{compact}
	s.keep(ctx, o, *k)
	return nil
}

// keep adds to a result that is saved how its caller was told. What cannot be saved is made again.
func (s *Service) keep(ctx context.Context, o Order, k saved) {
	key := resultKey(o.Workflow, o.Issuer, o.Request, o.Owner)
	entry, found, err := s.deps.Entries.Get(ctx, key)
	value, failed := json.Marshal(k)
	if err = errors.Join(err, failed); err == nil && found {
		_, _, err = s.deps.Entries.Swap(context.WithoutCancel(ctx), key, entry.Revision, value, entry.Until)
	}
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "the answer to a rollback is not saved", slog.Any("error", err))
	}
}

// save keeps an answer. What cannot be saved is known at least for as long as
// the request's token lives.
func (s *Service) save(ctx context.Context, o Order, agent string, answer transport.Answer) {
	wire := answer.Wire()
	value, err := json.Marshal(saved{
		Digest: o.Digest, Agent: agent, Binding: string(wire.Binding), Media: wire.Media, Result: wire.Header.Get(form.Field), Body: wire.Body, Ours: answer.Evidence,
	})
	if k, done, _ := s.result(ctx, o.Workflow, o.Issuer, o.Request); done { // a rollback of the gateway's own
		k.Media, k.Body, k.Ours = wire.Media, wire.Body, answer.Evidence
		s.keep(ctx, o, k)
		return
	}
	if err == nil {
		_, _, err = s.deps.Entries.Swap(context.WithoutCancel(ctx), resultKey(o.Workflow, o.Issuer, o.Request, o.Owner), 0, value, s.deps.Now().Add(resultLife))
	}
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "the answer to a rollback is saved only while its token lives", slog.Any("error", err))
	}
}

// answerAgain is an answer that was saved, for a caller who may call the agent now (R6). A result of the gateway's own is for the caller
// whose request it answers.
func (s *Service) answerAgain(caller identity.Caller, k saved) (transport.Answer, error) {
	wire := translators.Wire{
		Binding: canonical.Binding(k.Binding), Form: form.Name, Media: k.Media, Header: http.Header{form.Field: {k.Result}}, Body: k.Body,
		Re: canonical.OpRollback,
	}
	if k.Status != "" {
		return s.deps.Admission.AnswerAgain(wire, k.Ours)
	}
	agent, ok := s.deps.Directory.Find(k.Agent)
	if !ok {
		return transport.Answer{}, &problem.UnknownAgentError{Agent: k.Agent}
	}
	if err := destination.MayCall(caller, agent.Rules); err != nil {
		return transport.Answer{}, err
	}
	if err := policy.AdmitTo(caller.ID, string(canonical.OpRollback), agent.Rules); err != nil {
		return transport.Answer{}, err
	}
	if err := caller.Permits(agent.Name, string(canonical.OpRollback)); err != nil {
		return transport.Answer{}, err
	}
	return s.deps.Admission.AnswerAgain(wire, k.Ours)
}

// finder finds out whom requests are for.
type finder struct{ deps Deps }

// address finds whom a rollback request is for, and in which protocol its caller
// asked for the work: on record, behind the checkpoint. A workflow that is not
// known here has no members.
func (f finder) address(ctx context.Context, call *transport.Call, request ect.Claims) error {
	queue, seen := request.Parents, map[ect.ID]bool{}
	for i := 0; i < len(queue) && i < maxBehind && (call.Agent == "" || call.Wire.Binding == ""); i++ {
		if seen[queue[i]] {
			continue
		}
		seen[queue[i]] = true
		records, err := f.deps.Attest.Named(ctx, ect.Ref{ID: queue[i], Workflow: request.Workflow})
		if err != nil {
			return attest.Recording(err)
		}
		for _, r := range records {
			if r.Workflow != request.Workflow {
				continue
			}
			if agent, ok := f.concerned(r, call.Caller.ID); ok && call.Agent == "" {
				call.Agent = agent.Name
			}
			if call.Wire.Binding == "" {
				call.Wire.Binding = f.protocolOf(r, call.Caller.ID)
			}
			queue = append(queue, r.Parents...)
		}
	}
	if call.Agent == "" || len(f.deps.Network.Rollbacks) == 0 {
		return &policy.Forbidden{Reason: "the caller has no part in this workflow"}
	}
	if call.Wire.Binding == "" { // it asked in a protocol that is not HTTP, or another asked
		call.Wire.Binding = slices.Min(slices.Collect(maps.Keys(f.deps.Network.Rollbacks)))
	}
	return nil
}

// concerned is the agent that made a token, or that a token of ours was made for.
func (f finder) concerned(r ect.Record, caller ect.Identity) (directory.Agent, bool) {
	if r.Issuer != f.deps.Self {
		if r.Issuer == caller {
			return directory.Agent{}, false
		}
		return f.deps.Directory.Find(string(r.Issuer))
	}
	for _, who := range r.Audience {
		if who == string(f.deps.Self) || who == string(caller) {
			continue
		}
		if agent, ok := f.deps.Directory.Find(who); ok {
			return agent, true
		}
		for _, agent := range f.deps.Directory.List() { // one without an identity
			if slices.ContainsFunc(agent.Endpoints, func(e directory.Endpoint) bool { return e.Audience(agent.Name) == who }) {
				return agent, true
			}
		}
	}
	return directory.Agent{}, false
}

// protocolOf is the protocol in which this identity asked for what a token of ours is
// about, if it is one with rollbacks over HTTP.
func (f finder) protocolOf(r ect.Record, who ect.Identity) canonical.Binding {
	if r.Issuer != f.deps.Self {
		return ""
	}
	claims, _, err := ect.ParseUnverified(r.Compact) // ours
	if err != nil {
		return ""
	}
	caller, _ := claims.Ext.String(ect.ExtCaller)
	direction, _ := claims.Ext.String(ect.ExtLeg)
	source, _ := claims.Ext.String(ect.ExtSourceProtocol)
	if _, ok := f.deps.Network.Rollbacks[canonical.Binding(source)]; !ok || caller != string(who) || attest.Direction(direction) != attest.Request {
		return ""
	}
	return canonical.Binding(source)
}
