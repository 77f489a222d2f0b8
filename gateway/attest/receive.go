package attest

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
)

// Verify verifies a token: the only place that does. It is not used up, and nothing is
// recorded. Its errors are those of [ect.Verifier.Verify].
func (s *Service) Verify(ctx context.Context, compact string, check ect.Check) (ect.Verified, error) {
	v, err := s.deps.Verifier.Verify(ctx, compact, check)
	s.deps.Metrics.Verified(v.Level(), telemetry.VerifyResult(err))
	return v, err
}

// Submission is one of the tokens of a message, unverified.
type Submission struct {
	Compact string
	Source  bool // no other token of the message names it as parent (R4)
}

// Split tells sources from ancestors among the tokens of a message, sources first. Its
// errors are *[ect.TooLargeError] for more than [MaxSignatures], and those of [ect.Heads].
func Split(tokens []string) ([]Submission, error) {
	if len(tokens) > MaxSignatures {
		return nil, &ect.TooLargeError{What: "signatures to verify", Limit: MaxSignatures}
	}
	if len(tokens) == 1 { // the usual case, and it saves reading the token twice
		return []Submission{{Compact: tokens[0], Source: true}}, nil
	}
	sources, ancestors, err := ect.Heads(tokens)
	if err != nil {
		return nil, err
	}
	out := make([]Submission, 0, len(tokens))
	for _, compact := range sources {
		out = append(out, Submission{Compact: compact, Source: true})
	}
	for _, compact := range ancestors {
		out = append(out, Submission{Compact: compact})
	}
	return out, nil
}

// Received is the tokens that came with what an agent said.
type Received struct {
	Subject  Subject
	Tokens   []string
	Check    ect.Check // its own token is held to this
	Reply    membership.Reply
	Agent    string // its name, in errors and logs
	Replier  string // in whose share the tokens count, a key of policy/limit
	Requests []ect.ID
}

// Receive verifies an agent's tokens and records them: its own is held to a check, what
// that was made of is an ancestor. It returns the ids of its own that are bound to this
// execution, to stand as parents of the reply. Others are declared and recorded apart (R4).
// A broken token makes the answer untrustworthy: a *[transport.BadReplyError]; the other
// errors are those of [Recording].
func (s *Service) Receive(ctx context.Context, t *Trail, in Received) ([]ect.ID, error) {
	submitted, err := Split(in.Tokens)
	if err != nil {
		return nil, &transport.BadReplyError{Agent: in.Agent, Reason: "its ECT is unreadable"}
	}
	verified, sources := make([]ect.Verified, len(submitted)), map[ect.ID]bool{}
	for i, one := range submitted {
		if one.Source && len(submitted) > 1 && onward(one.Compact) {
			one.Source = false
		}
		check := ect.Check{Purpose: ect.Parent}
		if one.Source {
			check = in.Check
		}
		check.Holder = in.Subject.Caller.ID // others may ask the agent, too
		v, err := s.Verify(ctx, one.Compact, check)
		if full, ok := errors.AsType[*state.UsesError](err); ok {
			return nil, full
		}
		if err != nil {
			return nil, &transport.BadReplyError{Agent: in.Agent, Reason: "its ECT does not verify"}
		}
		s.deps.Dialects.Learn(v)
		t.learn(in.Subject, v)
		verified[i], sources[v.ID()] = v, one.Source
	}
	return s.bind(ctx, t, in, verified, sources)
}

// Refused keeps the evidence of a gateway that carried a message no further: the graph
// shows then where it ended. What does not verify is no evidence, and is left out.
func (s *Service) Refused(ctx context.Context, t *Trail, in Received) {
	if len(in.Tokens) > MaxSignatures {
		return
	}
	var verified []ect.Verified
	for _, compact := range in.Tokens {
		if v, err := s.Verify(ctx, compact, ect.Check{Purpose: ect.Parent}); err == nil {
			verified = append(verified, v)
			t.learn(in.Subject, v)
		}
	}
	if _, err := s.bind(ctx, t, in, verified, nil); err != nil {
		s.deps.Logger.WarnContext(ctx, "evidence of a refusal not recorded", slog.String("agent", in.Agent), slog.Any("error", err))
	}
}

// onward tells a next gateway's token of the way there, unverified: it testifies to the
// request that was passed on, not to the reply that it comes with, and what joins the two
// may be known only further on.
func onward(compact string) bool {
	claims, _, err := ect.ParseUnverified(compact)
	direction, known := claims.Ext.String(ect.ExtLeg)
	return err == nil && known && Direction(direction) == Request
}

// bind records an agent's tokens: those that are bound to this execution in its workflow,
// others apart from it. It returns the bound ones of sources that may stand as parents of
// the reply.
func (s *Service) bind(ctx context.Context, t *Trail, in Received, tokens []ect.Verified, sources map[ect.ID]bool) ([]ect.ID, error) {
	in.Reply.Requests, in.Reply.Tokens = t.Requests(in.Requests), tokens
	bound, unbound, err := s.deps.Members.Bind(ctx, in.Reply)
	if err != nil {
		return nil, Recording(err)
	}
	var parents []ect.ID
	for _, filed := range bound {
		v := filed.Token
		err := s.deps.Recorder.Keep(ctx, v, ect.Filing{Holder: in.Replier, Members: filed.Members})
		if Outside(err) {
			unbound = append(unbound, v)
			continue
		}
		if err != nil {
			return nil, Recording(err)
		}
		switch {
		case !sources[v.ID()]:
		case in.Reply.Testifies(v.Issuer()):
			parents = append(parents, v.ID())
		default:
			unbound = append(unbound, v)
		}
	}
	return parents, s.keepApart(ctx, t, in, unbound)
}

// keepApart declares the tokens that do not testify to a reply, and records them outside
// of every workflow. What is on record stays as it is: an agent cannot take a token out of
// the workflow in which another one brought it.
func (s *Service) keepApart(ctx context.Context, t *Trail, in Received, unbound []ect.Verified) error {
	for _, v := range unbound {
		t.leaveUnbound(v.ID())
		s.deps.Logger.DebugContext(ctx, "reply evidence is not bound to the request", slog.String("agent", in.Agent), slog.String("jti", string(v.ID())))
		found, err := s.deps.Evidence.Get(ctx, ect.Ref{ID: v.ID(), Issuer: v.Issuer()})
		if err != nil {
			return Recording(err)
		}
		if slices.ContainsFunc(found[0], func(r ect.Record) bool { return r.Compact == v.Compact() }) {
			continue
		}
		err = s.deps.Recorder.Keep(ctx, v, ect.Filing{Holder: in.Replier, Unlisted: true})
		if err != nil && !Outside(err) {
			return Recording(err)
		}
	}
	return nil
}

// Outside reports whether a token was not recorded because it does not belong where it
// says: it is a root in another issuer's workflow, or has the id of another token.
func Outside(err error) bool {
	_, foreign := errors.AsType[*ect.ForeignRootError](err)
	_, conflict := errors.AsType[*ect.ConflictError](err)
	return foreign || conflict
}

// Passed is a message that other gateways translated for a caller.
type Passed struct {
	Subject  Subject
	Workflow string
	Tokens   []string
	Wire     translators.Wire
	Known    bool // its protocol is spoken here
}

// Learn verifies and records what other gateways say of a message that they translated:
// the newest of their tokens covers it, and was made of ours, step by step (AEPB,
// Multi-Hop Translation). It returns the answer, else what is wrong.
func (s *Service) Learn(ctx context.Context, t *Trail, in Passed) (_ transport.Answer, reason string, err error) {
	submitted, err := Split(in.Tokens)
	if err != nil || len(submitted) == 0 {
		return transport.Answer{}, "a translation without an ECT that can be read", nil //nolint:nilerr // the reason says so
	}
	steps, tokens := map[ect.ID]ect.Verified{}, make([]ect.Verified, len(submitted))
	for i, one := range submitted {
		v, err := s.Verify(ctx, one.Compact, ect.Check{Purpose: ect.Parent})
		if err != nil || !v.Act().Translation() || v.Workflow() != in.Workflow {
			return transport.Answer{}, "its ECT does not verify", nil //nolint:nilerr // the reason says so
		}
		steps[v.ID()], tokens[i] = v, v
	}
	head := tokens[0] // of all that there is, or something is left
	if to, _ := head.Extension(ect.ExtDestProtocol); to != string(in.Wire.Binding) || !covers(head.Claims(), in.Wire, in.Known) {
		return transport.Answer{}, "its ECT is about another message", nil
	}
	for at := head; ; at = steps[at.Parents()[0]] {
		delete(steps, at.ID())
		if slices.Contains(at.Parents(), t.Request()) && len(steps) == 0 {
			break
		}
		if len(at.Parents()) != 1 || steps[at.Parents()[0]].ID() == "" {
			return transport.Answer{}, "its ECT was not made of ours", nil
		}
	}
	if err := s.recordSteps(ctx, t, tokens); err != nil {
		return transport.Answer{}, "", err
	}
	return transport.Vouch(in.Wire, nil), "", nil
}

// recordSteps records the tokens of other gateways, which go back with ours as far as they fit.
func (s *Service) recordSteps(ctx context.Context, t *Trail, tokens []ect.Verified) error {
	size := 0
	for _, v := range tokens {
		s.deps.Dialects.Learn(v)
		if err := s.deps.Recorder.Keep(ctx, v, ect.Filing{Holder: limit.Identity(string(v.Issuer()))}); err != nil {
			return Recording(err)
		}
		if size += len(v.Compact()); size <= maxProof {
			t.issued(v.Compact(), v.ID(), nil)
		}
	}
	return nil
}

// covers reports whether a token is about this message. For a protocol that the gateway does not
// know, it cannot compute a hash other than that of the bytes.
func covers(c ect.Claims, wire translators.Wire, known bool) bool {
	if _, otherwise := c.Ext.String(ect.ExtHashForm); otherwise && !known {
		return c.OutputHash != ""
	}
	return c.OutputHash == ect.Hash(wire.HashInput())
}

// Repeat returns a stored answer with its tokens. [transport.ErrUnsealed]: no token covers the
// message. known: the gateway knows its protocol.
func Repeat(wire translators.Wire, tokens []string, known bool) (transport.Answer, error) {
	covered := len(wire.Body) == 0 || slices.ContainsFunc(tokens, func(compact string) bool {
		claims, _, err := ect.ParseUnverified(compact) // from the record
		return err == nil && covers(claims, wire, known)
	})
	if !covered {
		return transport.Answer{}, transport.ErrUnsealed
	}
	answer := transport.Vouch(wire, nil)
	answer.Evidence = tokens
	return answer, nil
}

// Bound records a token that an agent's message is, if it is bound to the request that it
// answers (ATD, Basic Rollback). Its errors are those of [Recording].
func (s *Service) Bound(ctx context.Context, v ect.Verified, reply membership.Reply, replier string) error {
	reply.Tokens = []ect.Verified{v}
	bound, _, err := s.deps.Members.Bind(ctx, reply)
	if err != nil {
		return Recording(err)
	}
	for _, filed := range bound {
		if err := s.deps.Recorder.Keep(ctx, v, ect.Filing{Holder: replier, Members: filed.Members}); err != nil {
			return Recording(err)
		}
	}
	return nil
}

// Named finds what an id means: the gateway's own token, if it ever used that id, for then
// all others with it came later; else whatever any issuer calls by it.
func (s *Service) Named(ctx context.Context, ref ect.Ref) ([]ect.Record, error) {
	found, err := s.deps.Evidence.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	records := found[0]
	if i := slices.IndexFunc(records, func(r ect.Record) bool { return r.Issuer == s.self() }); i >= 0 {
		return records[i : i+1], nil
	}
	return records, nil
}
