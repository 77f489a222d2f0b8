package admission

import (
	"context"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// claim is step 5a: it uses up the sources of a permitted message and records what came with it. A
// byte-identical repetition of a message that was answered gets the answer that was kept (R6).
func (m *admitting) claim(ctx context.Context) (answer transport.Answer, repeated bool, err error) {
	if len(m.filed) == 0 {
		m.Recorded = true
		return answer, false, nil
	}
	body := m.Input
	if m.Call.Agent != "" {
		body += " " + m.Call.Agent // for another agent it is another message
	}
	own := m.own()
	for i, v := range own {
		err := m.Verifier.Claim(ctx, v, body)
		if err == nil {
			m.Used = own[:i+1]
			continue
		}
		replayed, ok := errors.AsType[*ect.ReplayedError](err)
		if ok && waits(ctx, m.Answers, replayed.Key) { // for an approval, which may be granted by now
			m.Used, m.Recorded = own, true
			return answer, false, nil
		}
		// The token was used before: what is on record about that use stays as it is.
		m.LeavesEvidence, m.Evidence = false, Evidence{}
		if ok {
			m.Used = nil
			if err := m.mayRepeat(); err != nil {
				return answer, false, err
			}
			answer, err := m.repeat(ctx, replayed.Key)
			return answer, true, err
		}
		m.Metrics.Verified(v.Level(), telemetry.VerifyResult(err))
		return answer, false, err
	}
	return answer, false, m.record(ctx)
}

// waits reports whether the message was answered with an approval that its caller has to wait for (R23), or with a rollback that goes
// on: nothing else is in progress once its tokens are used.
func waits(ctx context.Context, answers idempotency.Store, key ect.ReplayKey) bool {
	blob, ok := answers.Load(ctx, key)
	if !ok {
		return false
	}
	reply, err := idempotency.Decode(blob)
	return err == nil && reply.Problem != nil && (reply.Problem.Code == problem.CodeApprovalRequired || reply.Problem.Code == problem.CodeInProgress)
}

// record records what came with the message.
func (m *admitting) record(ctx context.Context) error {
	for _, filed := range m.filed {
		m.Dialects.Learn(filed.Token)
		// Who brings a token is charged for it: issuers may know nothing of what a gateway carries.
		err := m.Recorder.Keep(ctx, filed.Token, ect.Filing{
			Holder: m.Holder, Members: filed.Members, Begins: filed.Begins,
			ByIssuer: filed.Token.Issuer() == m.Call.Caller.ID && !m.Call.Caller.Anonymous,
		})
		if _, late := errors.AsType[*ect.ForeignRootError](err); late && filed.Begins {
			return membership.Outsider() // it has begun since the message was judged
		}
		if err != nil {
			return attest.Recording(err)
		}
	}
	m.Recorded = true
	if err := m.Gate.Observe(ctx, m.Call.Caller.ID, m.Evidence.Sources); err != nil {
		return err
	}
	return m.Gate.Observe(ctx, m.Call.Caller.ID, m.Evidence.Parents)
}

// own returns the sources that the message uses up: those that the caller issued. A caller must not
// use up a token of another caller, nor get the answer to it. Only a listed gateway brings such
// tokens.
func (m *admitting) own() []ect.Verified {
	if m.rules.IsGateway(m.Call.Caller.ID) {
		return m.Evidence.Sources
	}
	return slices.DeleteFunc(slices.Clone(m.Evidence.Sources), func(v ect.Verified) bool { return v.Issuer() != m.Call.Caller.ID })
}

// mayRepeat judges the operation of a message that was answered before: the policy may have changed
// since (R6).
func (m *admitting) mayRepeat() error {
	message, err := m.decoded()
	if err != nil {
		return nil //nolint:nilerr // the answer that was kept says why
	}
	return perform(m, message.Op)
}

// repeat answers a byte-identical repetition: with the same bytes and the
// same ECTs, or with the same refusal.
func (s *Service) repeat(ctx context.Context, key ect.ReplayKey) (transport.Answer, error) {
	blob, ok := s.Answers.Load(ctx, key)
	if !ok {
		return transport.Answer{}, &problem.InProgressError{}
	}
	reply, err := idempotency.Decode(blob)
	if err != nil {
		return transport.Answer{}, err
	}
	var tokens []string
	for _, id := range reply.Evidence {
		records, err := s.Attest.Named(ctx, ect.Ref{ID: id})
		if err != nil || len(records) == 0 {
			return transport.Answer{}, &problem.RecordingError{Err: err}
		}
		tokens = append(tokens, records[0].Compact)
	}
	answer, err := s.AnswerAgain(reply.Wire, tokens)
	if err == nil && reply.Problem != nil {
		err = &problem.StoredError{Problem: *reply.Problem}
	}
	return answer, err
}

// AnswerAgain is a message that was answered before, with its tokens. Its error is
// [transport.ErrUnsealed].
func (s *Service) AnswerAgain(wire translators.Wire, tokens []string) (transport.Answer, error) {
	form, known := s.Registry.Translator(wire.Binding)
	if known && wire.Form == rollback.Name {
		form = rollback.Over(form)
	}
	if known {
		wire.Hasher = translators.HasherOf(form)
	}
	return attest.Repeat(wire, tokens, known)
}
