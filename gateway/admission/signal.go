package admission

import (
	"context"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Signal is the token that an admitted message is (canonical.Signal), verified with the rest of
// its evidence, if its sender was party to the work that it is about (ATD, Rollback
// Authorization; R14, R23). Its errors are *[canonical.Error], [ect.ErrRequired],
// *[ect.InvalidError], *[policy.Forbidden] and those of [attest.Recording].
func (s *Service) Signal(ctx context.Context, a Admitted, rules Rules) (ect.Verified, error) {
	signal, ok := a.Message.Body.(*canonical.Signal)
	if !ok {
		return ect.Verified{}, &canonical.Error{Code: canonical.CodeInvalidRequest, Message: "not a signal"}
	}
	submitted := slices.Concat(a.Evidence.Sources, a.Evidence.Parents) // behind a gateway it is an ancestor
	at := slices.IndexFunc(submitted, func(v ect.Verified) bool { return v.Compact() == signal.Token })
	if at < 0 {
		return ect.Verified{}, ect.ErrRequired
	}
	token := submitted[at]
	switch {
	case token.Level() < ect.L2: // ATD, Security Considerations
		return token, &ect.InvalidError{Reason: ect.ReasonLevelTooLow, ID: token.ID()}
	case !isSignal(a.Message.Op, token.Act()):
		return token, &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: token.ID(), Claim: "exec_act"}
	case token.Issuer() != a.Call.Caller.ID && !rules.IsGateway(a.Call.Caller.ID):
		return token, &ect.InvalidError{Reason: ect.ReasonIssuerMismatch, ID: token.ID()}
	case len(token.Parents()) == 0:
		return token, &ect.InvalidError{Reason: ect.ReasonMissingClaim, ID: token.ID(), Claim: "par"}
	}
	if a.Message.Op == canonical.OpDecision {
		return token, s.mayDecide(ctx, a, token)
	}
	return token, s.mayRollBack(ctx, a, token)
}

// isSignal says which acts a signal may be of.
func isSignal(op canonical.Op, act ect.Act) bool {
	if op == canonical.OpRollback {
		return act == ect.ActRollbackRequest
	}
	return act == ect.ActApprovalGranted || act == ect.ActApprovalDenied
}

// mayRollBack refuses the sender of a rollback request who has no part in everything that
// it is about (ATD, Rollback Authorization; R14).
func (s *Service) mayRollBack(ctx context.Context, a Admitted, token ect.Verified) error {
	party, err := s.Members.IsParty(ctx, membership.Signal{
		Workflow: token.Workflow(), Sender: token.Issuer(), Parents: token.Parents(), Agent: a.To.Agent.ID,
	})
	if err != nil {
		return attest.Recording(err)
	}
	if !party {
		return &policy.Forbidden{Agent: a.To.Agent.Name, Reason: "the caller has no part in this workflow"}
	}
	return nil
}

// mayDecide refuses a decision of an identity without the role of an approver, and
// one that is not bound to the token that it is about (R23).
func (s *Service) mayDecide(ctx context.Context, a Admitted, token ect.Verified) error {
	if !s.Decides(token.Issuer()) {
		return &policy.Forbidden{Agent: a.To.Agent.Name, Reason: "only an operator with the role approver decides: ask one, or have the role granted"}
	}
	_, bound, err := s.Members.Gate(ctx, token, a.To.Agent.ID)
	if err != nil {
		return attest.Recording(err)
	}
	if !bound {
		return &policy.Forbidden{
			Agent:  a.To.Agent.Name,
			Reason: "the decision is not bound to what it decides: its only parent must be that token of this workflow, with the same inp_hash, and neither signed nor asked for by the approver",
		}
	}
	return nil
}
