package approvals

import (
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// Admin is what the routes of the admin listener are made from.
type Admin struct {
	Service  Service                                      // nil: nothing is served
	Operator func(*http.Request) (policy.Operator, error) // who asks
	Logger   *slog.Logger
}

// Mount adds the routes, below /api. Only operators reach them, and only those with the role approver or operator
// the route of decisions.
func (a Admin) Mount(routes gin.IRoutes) {
	if a.Service == nil {
		return
	}
	routes.GET("/approvals", a.list)
	routes.GET("/approvals/:id", a.show)
	routes.POST("/approvals/:id/decision", a.decide)
}

func (a Admin) list(c *gin.Context) {
	q, err := queryOf(c)
	var page approval.Page
	if err == nil {
		page, err = a.Service.List(c.Request.Context(), q)
	}
	out := Page{Approvals: []Full{}, Next: page.Next}
	for _, one := range page.Approvals {
		out.Approvals = append(out.Approvals, fullOf(one, ""))
	}
	if err == nil && page.Next != "" {
		next := url.Values{"after": {page.Next}, "limit": {strconv.Itoa(q.Limit)}}
		if q.State != "" {
			next.Set("state", string(q.State))
		}
		c.Header("Link", "<?"+next.Encode()+`>; rel="next"`)
	}
	write(c, out, err)
}

func queryOf(c *gin.Context) (approval.Query, error) {
	q := approval.Query{State: hitl.State(c.Query("state")), After: c.Query("after"), Limit: approval.MaxPage}
	if q.State != "" && !slices.Contains(hitl.States(), q.State) {
		return q, &problem.QueryError{Reason: "state is pending, granted, denied, expired, canceled or consumed"}
	}
	if text := c.Query("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return q, &problem.QueryError{Reason: "limit is a number from 1 to 100"}
		}
		q.Limit = min(n, approval.MaxPage)
	}
	return q, nil
}

func (a Admin) show(c *gin.Context) {
	who, err := a.Operator(c.Request)
	var view approval.View
	if err == nil {
		view, err = find(c.Request.Context(), a.Service, c.Param("id"))
	}
	text := ""
	if err == nil && (who.May(policy.RoleAuditor) || decides(who, view.Approval)) {
		text = view.Text
		record(c, a.Logger, who, view.Approval)
	}
	write(c, shownOf(view, text), err)
}

// Order is the body of an operator's decision.
type Order struct {
	Decision string `json:"decision"` // approve or deny
	Shown    string `json:"shown"`
	Reason   string `json:"reason,omitempty"`
}

func (a Admin) decide(c *gin.Context) {
	var order Order
	err := read(c, &order)
	if err == nil && order.Decision != "approve" && order.Decision != "deny" {
		err = &problem.QueryError{Reason: "decision is approve or deny"}
	}
	if err == nil {
		err = check(order.Shown, order.Reason)
	}
	var decided hitl.Approval
	if err == nil {
		decided, err = a.order(c, order)
	}
	write(c, fullOf(decided, ""), err)
}

func (a Admin) order(c *gin.Context, order Order) (hitl.Approval, error) {
	ctx, id := c.Request.Context(), c.Param("id")
	who, err := a.Operator(c.Request)
	if err != nil {
		return hitl.Approval{}, err
	}
	view, err := find(ctx, a.Service, id)
	if err != nil {
		return hitl.Approval{}, err
	}
	if !decides(who, view.Approval) {
		return hitl.Approval{}, errNoApprover()
	}
	return a.Service.Decide(ctx, id, approval.Decision{
		Grant: order.Decision == "approve", Approver: hitl.Approver{ID: who.ID, Name: who.Name}, Roles: who.RoleNames(),
		Reason: order.Reason, Shown: order.Shown,
	})
}

func errNoApprover() error {
	return &policy.Forbidden{Reason: "only an operator with the role approver, or with one that the approval demands, decides about it"}
}
