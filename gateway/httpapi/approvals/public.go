package approvals

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// Tokens verifies tokens of approvers.
type Tokens interface {
	// Decision verifies and records the token of a decision, if it is bound to what it decides about.
	Decision(ctx context.Context, caller identity.Caller, holder, compact string) (ect.Verified, error)
}

// Public is what the routes of the public listener are made from.
type Public struct {
	Service   Service // nil: nothing is served
	Tokens    Tokens
	Operators func(ect.Identity) (policy.Operator, bool) // by the SPIFFE id of a certificate
	Logger    *slog.Logger
}

// Mount adds the routes. Callers have an identity and are within their limit when a route is reached.
func (p Public) Mount(routes gin.IRoutes) error {
	switch {
	case p.Service == nil:
		return nil
	case p.Tokens == nil || p.Operators == nil || p.Logger == nil:
		return errors.New("approvals: incomplete Public")
	}
	routes.GET("/hitl/approvals/:id", p.show)
	routes.POST("/hitl/approvals/:id/decision", p.decide)
	return nil
}

// operator is the operator that a caller is; zero: none. A token is no certificate (R17).
func (p Public) operator(c *gin.Context) policy.Operator {
	peer, certified := identity.PeerOf(c.Request.TLS)
	if !certified || peer.ID != transport.CallerFrom(c.Request.Context()).ID {
		return policy.Operator{}
	}
	who, _ := p.Operators(peer.ID)
	return who
}

// visible is an approval for its caller and for those who decide about it. For others there is none.
func (p Public) visible(c *gin.Context, who policy.Operator) (approval.View, error) {
	ctx := c.Request.Context()
	view, err := find(ctx, p.Service, c.Param("id"))
	if err != nil {
		return approval.View{}, err
	}
	caller := transport.CallerFrom(ctx)
	own := view.Call.Caller == caller.ID && caller.Anonymous == (view.Call.Address != "") && (!caller.Anonymous || view.Call.Address == transport.AddressFrom(ctx))
	if !own && !decides(who, view.Approval) {
		return approval.View{}, notFound()
	}
	return view, nil
}

func (p Public) show(c *gin.Context) {
	who := p.operator(c)
	view, err := p.visible(c, who)
	if err != nil || !decides(who, view.Approval) {
		write(c, summaryOf(view.Approval), err)
		return
	}
	record(c, p.Logger, who, view.Approval)
	write(c, shownOf(view, view.Text), nil)
}

// Signed is the body of a decision whose token says what was decided.
type Signed struct {
	Shown  string `json:"shown"`
	Reason string `json:"reason,omitempty"`
}

func (p Public) decide(c *gin.Context) {
	var body Signed
	err := read(c, &body)
	if err == nil {
		err = check(body.Shown, body.Reason)
	}
	var compact string
	if err == nil {
		compact, err = single(c)
	}
	var decided hitl.Approval
	if err == nil {
		decided, err = p.take(c, compact, body)
	}
	write(c, fullOf(decided, ""), err)
}

// single is the one token of a decision.
func single(c *gin.Context) (string, error) {
	tokens, err := ect.ParseHeader(c.Request.Header.Values(ect.HeaderName), ect.Limits{})
	switch {
	case err != nil:
		return "", err
	case len(tokens) == 0:
		return "", ect.ErrRequired
	case len(tokens) > 1:
		return "", &problem.QueryError{Reason: "a decision is one hitl:approval_granted or hitl:approval_denied: send that token alone"}
	}
	return tokens[0], nil
}

// take judges a token by the approval before it is verified and recorded: a token that is about something else is not
// used up.
func (p Public) take(c *gin.Context, compact string, body Signed) (hitl.Approval, error) {
	ctx, who := c.Request.Context(), p.operator(c)
	caller := transport.CallerFrom(ctx)
	claims, _, err := ect.ParseUnverified(compact)
	if err != nil {
		return hitl.Approval{}, err
	}
	view, err := p.visible(c, who)
	if err != nil {
		return hitl.Approval{}, err
	}
	if err := judge(claims, caller.ID, who, view.Approval); err != nil {
		return hitl.Approval{}, err
	}
	repeated := func(d hitl.Decision) bool {
		return d.Token == claims.ID && d.Approver.ID == caller.ID && d.Granted == (claims.Act == ect.ActApprovalGranted)
	}
	if slices.ContainsFunc(view.Decisions, repeated) {
		return view.Approval, nil
	}
	holder, _ := limit.KeyOf(caller, transport.AddressFrom(ctx))
	token, err := p.Tokens.Decision(ctx, caller, holder, compact)
	switch {
	case err != nil:
		return hitl.Approval{}, err
	case token.Level() < ect.L2: // ATD, Security Considerations
		return hitl.Approval{}, &ect.InvalidError{Reason: ect.ReasonLevelTooLow, ID: token.ID()}
	}
	return p.Service.Decide(ctx, view.ID, approval.Decision{
		Grant: token.Act() == ect.ActApprovalGranted, Approver: hitl.Approver{ID: caller.ID, Name: who.Name}, Roles: who.RoleNames(),
		Reason: body.Reason, Shown: body.Shown, Token: token.ID(),
	})
}

// judge refuses who does not decide about an approval, and a token that is not bound to it.
func judge(claims ect.Claims, caller ect.Identity, who policy.Operator, a hitl.Approval) error {
	switch {
	case !decides(who, a):
		return errNoApprover()
	case claims.Act != ect.ActApprovalGranted && claims.Act != ect.ActApprovalDenied:
		return &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: claims.ID, Claim: "exec_act"}
	case claims.Issuer != caller:
		return &ect.InvalidError{Reason: ect.ReasonIssuerMismatch, ID: claims.ID}
	case !slices.Equal(claims.Parents, []ect.ID{a.Origin.Gated}) || claims.Workflow != a.Origin.Workflow || claims.InputHash != a.Origin.Input:
		return &policy.Forbidden{Reason: "the decision is not bound to what it decides: par is gated of the approval alone, wid and inp_hash are those of the approval"}
	}
	return nil
}
