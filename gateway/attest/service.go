package attest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/membership"
)

// Metrics counts tokens and losses.
type Metrics interface {
	Issued(act string, level ect.Level)
	Verified(level ect.Level, result string)
	CountLoss(from, to, code, fate string)
}

// Deps is what a Service is built from. Every field is required.
type Deps struct {
	Signer   *ect.Signer
	Dialects *ect.Dialects // how each peer writes tokens
	Verifier *ect.Verifier
	Recorder *ect.Recorder
	Evidence ect.Store
	Members  *membership.Register
	Refusals *sample.Sampler // those that leave no token each
	Metrics  Metrics
	Logger   *slog.Logger
	NewID    func() string // a fresh UUID
	Version  func() string // of the gateway now: aepb.agent_version of what belongs to no execution
}

// Service signs, verifies and records. It is safe for concurrent use.
type Service struct {
	deps         Deps
	negotiations negotiations
}

// New makes a service.
func New(deps Deps) (*Service, error) {
	if deps.Signer == nil || deps.Dialects == nil || deps.Verifier == nil || deps.Recorder == nil || deps.Evidence == nil || deps.Members == nil ||
		deps.Refusals == nil || deps.Metrics == nil || deps.Logger == nil || deps.NewID == nil || deps.Version == nil {
		return nil, errors.New("attest: incomplete Deps: every field is required")
	}
	return &Service{deps: deps}, nil
}

// Subject is for whom an execution is, and under which permit.
type Subject struct {
	Caller     identity.Caller
	Holder     string // in whose share of the store its records count
	EntryPoint transport.EntryPoint
	Version    string // of the gateway when the message came
	Unattested bool   // the caller brought no token of its own
	ByRole     bool   // only a role let the caller in: evidence makes it no member
	Gateway    bool   // the caller is a gateway, which gets to know the tokens of gateways further on
	Permit     policy.Permit
}

// Lineage is where a token stands in the graph of its workflow.
type Lineage struct {
	Workflow string
	Parents  []ect.ID
}

// self is the gateway's own identity.
func (s *Service) self() ect.Identity { return s.deps.Signer.Issuer() }

// ext is what every token about an execution says.
func (s *Service) ext(sub Subject) ect.Ext {
	ext := ect.Ext{}
	ext.SetString(ect.ExtAgentVersion, sub.Version)
	ext.SetString(ect.ExtCaller, string(sub.Caller.ID))
	if grant := sub.Caller.Grant; grant != nil {
		for key, text := range map[string]string{ect.ExtClient: grant.Client, ect.ExtActor: grant.Actor} {
			if text != "" {
				ext.SetString(key, text)
			}
		}
	}
	if sub.Unattested {
		ext[ect.ExtSourceUnattested] = json.RawMessage("true")
	}
	return ext
}

// make makes a token: the only place that does.
func (s *Service) make(dialect ect.Dialect, claims ect.Claims) (ect.Token, error) {
	return s.deps.Signer.SignAs(dialect, claims)
}

// sign makes a token and records it. The errors of the record
// are those of [Recording]; all others mean that the token could not be made.
func (s *Service) sign(ctx context.Context, dialect ect.Dialect, claims ect.Claims, permit policy.Permit, filing ect.Filing) (ect.Token, ect.Receipt, error) {
	token, err := s.make(dialect, claims)
	if err != nil {
		return ect.Token{}, ect.Receipt{}, err
	}
	receipt, err := s.deps.Recorder.Record(ctx, token, filing)
	if err != nil {
		return ect.Token{}, ect.Receipt{}, Recording(err)
	}
	s.deps.Metrics.Issued(string(claims.Act), max(permit.Level(), token.Level()))
	return token, receipt, nil
}

// filing says how a token of ours is recorded: in the caller's share, and it makes those
// members whom it is for. Who was let in by a role alone stays outside (R14).
func (s *Service) filing(sub Subject, audience []string) ect.Filing {
	caller := sub.Caller.ID
	if sub.Caller.Anonymous {
		caller = "" // many callers share that identity
	}
	f := ect.Filing{Holder: sub.Holder, Members: s.deps.Members.Own(audience, caller)}
	f.Members = slices.DeleteFunc(f.Members, func(id ect.Identity) bool {
		return id == sub.Caller.ID && (sub.ByRole || sub.Caller.Anonymous)
	})
	return f
}

// Recording says what a failure to keep evidence means: an id that is taken, a full share
// and a root in another's workflow are the sender's fault; all else is trouble of the
// store, a *[problem.RecordingError].
func Recording(err error) error {
	if conflict, ok := errors.AsType[*ect.ConflictError](err); ok {
		return conflict
	}
	if full, ok := errors.AsType[*state.FullError](err); ok && full.Own {
		return full
	}
	if foreign, ok := errors.AsType[*ect.ForeignRootError](err); ok {
		return foreign
	}
	return &problem.RecordingError{Err: err}
}
