package approval

import (
	"context"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/membership"
)

// Tokens judges decisions that approvers sign. Every field is required.
type Tokens struct {
	Attest  *attest.Service
	Members *membership.Register
}

// Decision verifies and records the token of a decision that an approver brings itself. Its errors are those of
// [attest.Statements.Bring], and *[policy.Forbidden] for one that is not bound to what it decides about (R23).
func (t Tokens) Decision(ctx context.Context, caller identity.Caller, holder, compact string) (ect.Verified, error) {
	token, err := t.Attest.Verify(ctx, compact, ect.Check{Purpose: ect.Parent})
	if err != nil {
		return token, err
	}
	_, bound, err := t.Members.Gate(ctx, token, "")
	if err != nil {
		return token, attest.Recording(err)
	}
	if !bound {
		return token, &policy.Forbidden{Reason: "the decision is not bound to what it decides, or its approver has a part in the work"}
	}
	return t.Attest.Statements().Bring(ctx, compact, caller.ID, holder)
}
