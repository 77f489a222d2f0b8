package rollback

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
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
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
	Exchange  func(context.Context, transport.Call) (transport.Answer, error) // carries the request to the agent
	Admission *admission.Service
	Attest    *attest.Service
	Directory *directory.Directory
	Network   *outbound.Network
	Entries   store.Entries
	Now       func() time.Time
	Logger    *slog.Logger
	Self      ect.Identity
}

// Service takes rollback requests. It is safe for concurrent use.
type Service struct{ deps Deps }

// New makes a service.
func New(deps Deps) *Service { return &Service{deps} }

// Rollback takes a rollback request that came over HTTP apart from every agent's
// endpoint (ATD, Basic Rollback): token is the request, and Evidence of the call has it
// too. The pipeline carries it to the agent that the checkpoint concerns, in that
// agent's protocol. The same request of the same caller gets the same result for 30
// days, also when its token is no longer valid (R6); while the first is under way it
// is refused as in progress. Errors are those of Exchange.
func (s *Service) Rollback(ctx context.Context, call transport.Call, token string) (transport.Answer, error) {
	request, _, err := ect.ParseUnverified(token)
	if err != nil {
		return transport.Answer{}, err
	}
	key := store.EntryKey{Kind: store.KindRollback, Group: request.Workflow, ID: ect.Hash([]byte(string(call.Caller.ID) + "\x00" + token)), Owner: admission.Owner(call.Caller, call.Address)}
	entry, done, err := s.deps.Entries.Get(ctx, key)
	switch {
	case err != nil:
		return transport.Answer{}, &problem.RecordingError{Err: err}
	case done:
		return s.answerAgain(call.Caller, entry.Value)
	}
	if err := s.address(ctx, &call, request); err != nil {
		return transport.Answer{}, err
	}
	answer, err := s.deps.Exchange(ctx, call)
	if err != nil {
		return answer, err
	}
	s.save(ctx, key, call.Agent, answer)
	return answer, nil
}

// result is the answer to a rollback as it is kept: with its tokens, which may be
// gone from the record when the request comes again.
type result struct {
	Agent   string // directory name
	Binding canonical.Binding
	Media   string
	Result  string // compact
	Body    []byte
	Ours    []string // compact
}

// save keeps an answer. What cannot be kept is known at least for as long as
// the request's token lives.
func (s *Service) save(ctx context.Context, key store.EntryKey, agent string, answer transport.Answer) {
	wire := answer.Wire()
	value, err := json.Marshal(result{
		agent, wire.Binding, wire.Media, wire.Header.Get(form.Field), wire.Body, answer.Evidence,
	})
	if err == nil {
		_, _, err = s.deps.Entries.Swap(context.WithoutCancel(ctx), key, 0, value, s.deps.Now().Add(resultLife))
	}
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "the answer to a rollback is kept only while its token lives", slog.Any("error", err))
	}
}

// answerAgain is an answer that was kept, for a caller who may call the agent now (R6).
func (s *Service) answerAgain(caller identity.Caller, value []byte) (transport.Answer, error) {
	var r result
	if json.Unmarshal(value, &r) != nil {
		return transport.Answer{}, store.ErrUnreadable
	}
	agent, ok := s.deps.Directory.Find(r.Agent)
	if !ok {
		return transport.Answer{}, &problem.UnknownAgentError{Agent: r.Agent}
	}
	if err := destination.MayCall(caller, agent.Rules); err != nil {
		return transport.Answer{}, err
	}
	if err := policy.AdmitTo(caller.ID, string(canonical.OpRollback), agent.Rules); err != nil {
		return transport.Answer{}, err
	}
	return s.deps.Admission.AnswerAgain(translators.Wire{
		Binding: r.Binding, Form: form.Name, Media: r.Media, Header: http.Header{form.Field: {r.Result}}, Body: r.Body,
		Re: canonical.OpRollback,
	}, r.Ours)
}

// address finds whom a rollback request is for, and in which protocol its caller
// asked for the work: on record, behind the checkpoint. A workflow that is not
// known here has no members.
func (s *Service) address(ctx context.Context, call *transport.Call, request ect.Claims) error {
	queue, seen := request.Parents, map[ect.ID]bool{}
	for i := 0; i < len(queue) && i < maxBehind && (call.Agent == "" || call.Wire.Binding == ""); i++ {
		if seen[queue[i]] {
			continue
		}
		seen[queue[i]] = true
		records, err := s.deps.Attest.Named(ctx, ect.Ref{ID: queue[i], Workflow: request.Workflow})
		if err != nil {
			return attest.Recording(err)
		}
		for _, r := range records {
			if r.Workflow != request.Workflow {
				continue
			}
			if agent, ok := s.concerned(r, call.Caller.ID); ok && call.Agent == "" {
				call.Agent = agent.Name
			}
			if call.Wire.Binding == "" {
				call.Wire.Binding = s.protocolOf(r, call.Caller.ID)
			}
			queue = append(queue, r.Parents...)
		}
	}
	if call.Agent == "" || len(s.deps.Network.Rollbacks) == 0 {
		return &policy.Forbidden{Reason: "the caller has no part in this workflow"}
	}
	if call.Wire.Binding == "" { // it asked in a protocol that is not HTTP, or another asked
		call.Wire.Binding = slices.Min(slices.Collect(maps.Keys(s.deps.Network.Rollbacks)))
	}
	return nil
}

// concerned is the agent that made a token, or that a token of ours was made for.
func (s *Service) concerned(r ect.Record, caller ect.Identity) (directory.Agent, bool) {
	if r.Issuer != s.deps.Self {
		if r.Issuer == caller {
			return directory.Agent{}, false
		}
		return s.deps.Directory.Find(string(r.Issuer))
	}
	for _, who := range r.Audience {
		if who == string(s.deps.Self) || who == string(caller) {
			continue
		}
		if agent, ok := s.deps.Directory.Find(who); ok {
			return agent, true
		}
		for _, agent := range s.deps.Directory.List() { // one without an identity
			if slices.ContainsFunc(agent.Endpoints, func(e directory.Endpoint) bool { return e.Audience(agent.Name) == who }) {
				return agent, true
			}
		}
	}
	return directory.Agent{}, false
}

// protocolOf is the protocol in which this identity asked for what a token of ours is
// about, if it is one with rollbacks over HTTP.
func (s *Service) protocolOf(r ect.Record, who ect.Identity) canonical.Binding {
	if r.Issuer != s.deps.Self {
		return ""
	}
	claims, _, err := ect.ParseUnverified(r.Compact) // ours
	if err != nil {
		return ""
	}
	caller, _ := claims.Ext.String(ect.ExtCaller)
	direction, _ := claims.Ext.String(ect.ExtLeg)
	source, _ := claims.Ext.String(ect.ExtSourceProtocol)
	if _, ok := s.deps.Network.Rollbacks[canonical.Binding(source)]; !ok || caller != string(who) || attest.Direction(direction) != attest.Request {
		return ""
	}
	return canonical.Binding(source)
}
