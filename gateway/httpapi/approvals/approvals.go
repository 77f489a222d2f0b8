// Package approvals serves approvals over HTTP: callers see how theirs stand, approvers read what waits and decide
// about it, with a token of their own on the public listener and as operators on the admin listener (R23).
//
// Alternatives considered: decisions on the admin listener alone. An approver that signs its decision needs no
// gateway that is trusted to say who decided.
package approvals

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// maxBody bounds the body of a decision, in bytes.
const maxBody = 8 << 10

// Service keeps approvals. What is not there is a *[problem.NotFoundError].
type Service interface {
	List(ctx context.Context, q approval.Query) (approval.Page, error)
	Show(ctx context.Context, id string) (approval.View, error)
	// Decide judges and keeps a decision. Its errors are also *[hitl.StateError] and *[hitl.RefusedError].
	Decide(ctx context.Context, id string, d approval.Decision) (hitl.Approval, error)
}

// Summary is an approval as the caller of the call sees it.
type Summary struct {
	ID       string     `json:"id"`
	State    hitl.State `json:"state"`
	Rules    []string   `json:"rules"`
	Until    time.Time  `json:"until"`
	Workflow string     `json:"wid"`
	Task     string     `json:"task,omitempty"`
}

// Full is an approval as approvers and operators see it.
type Full struct {
	Summary

	Call      Call            `json:"call"`
	Gated     ect.ID          `json:"gated"`
	Before    string          `json:"before,omitempty"`
	Demand    Demand          `json:"demand"`
	Shown     string          `json:"shown"`
	Whole     bool            `json:"whole"`
	Opened    time.Time       `json:"opened"`
	Decisions []hitl.Decision `json:"decisions,omitempty"`
	Why       string          `json:"why,omitempty"`
	Text      string          `json:"text,omitempty"`
}

// Call is what is approved, with the inp_hash of its gated ECT, and who is told the decision.
type Call struct {
	hitl.Call

	Input     string   `json:"inp_hash"`
	Callbacks []string `json:"callbacks,omitempty"` // URIs that are told the decision
}

// Demand is what the rules demand.
type Demand struct {
	Roles       []string         `json:"roles"` // that each approver has
	Approvers   int              `json:"approvers"`
	Unreachable hitl.Unreachable `json:"unreachable"`
}

// Page is a part of the approvals.
type Page struct {
	Approvals []Full `json:"approvals"`
	Next      string `json:"next,omitempty"`
}

func summaryOf(a hitl.Approval) Summary {
	return Summary{a.ID, a.State, append([]string{}, a.Demand.Rules...), a.Until, a.Origin.Workflow, a.Task}
}

func fullOf(a hitl.Approval, text string) Full {
	return Full{
		Summary: summaryOf(a), Call: Call{a.Call, a.Origin.Input, nil}, Gated: a.Origin.Gated, Before: a.Origin.Before,
		Demand: Demand{append([]string{}, a.Demand.Roles...), a.Demand.Approvers, a.Demand.Unreachable},
		Shown:  a.Shown, Whole: a.Whole, Opened: a.Opened, Decisions: a.Decisions, Why: a.End.Why, Text: text,
	}
}

// decides reports whether an operator may read the text of an approval to decide about it: as an approver, or with
// a role that the approval demands. Whether the decision itself is allowed is judged by the service.
func decides(who policy.Operator, a hitl.Approval) bool {
	has := func(role string) bool { return slices.Contains(a.Demand.Roles, role) }
	return who.May(policy.RoleApprover) || slices.ContainsFunc(who.RoleNames(), has)
}

// find is the approval of an id. What is not there has the same problem as what others may not see.
func find(ctx context.Context, service Service, id string) (approval.View, error) {
	view, err := service.Show(ctx, id)
	if _, absent := errors.AsType[*problem.NotFoundError](err); absent {
		return approval.View{}, notFound()
	}
	return view, err
}

func notFound() error { return &problem.NotFoundError{What: "approval"} }

// read reads the body of a decision into a pointer to its type.
func read(c *gin.Context, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	media, _, _ := strings.Cut(c.Request.Header.Get("Content-Type"), ";")
	switch {
	case err != nil:
		return problem.Reading(err)
	case !strings.EqualFold(strings.TrimSpace(media), "application/json"):
		return &problem.MediaTypeError{Want: []string{"application/json"}}
	case json.Unmarshal(body, into, json.RejectUnknownMembers(true)) != nil:
		return &problem.QueryError{Reason: "the body is a JSON object with the members that docs/http-api.md lists, each once"}
	}
	return nil
}

// check judges what both listeners take of a decision.
func check(shown, reason string) error {
	unprintable := func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) }
	switch {
	case shown == "":
		return &problem.QueryError{Reason: "shown is required: the hash of the text that the approval shows"}
	case len(reason) > approval.MaxReason || strings.ContainsFunc(reason, unprintable):
		return &problem.QueryError{Reason: "reason is one line of at most 512 bytes, without control characters"}
	}
	return nil
}

// record logs that an operator read the text of an approval.
func record(c *gin.Context, logger *slog.Logger, who policy.Operator, a hitl.Approval) {
	logger.InfoContext(c.Request.Context(), "text of an approval read", slog.String("operator", who.Name),
		slog.String("id", string(who.ID)), slog.String("approval", a.ID), slog.String("wid", a.Origin.Workflow), slog.String("path", c.Request.URL.Path))
}

// write answers with a body, or with the problem that err is.
func write(c *gin.Context, body any, err error) {
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.Header("Cache-Control", "private, no-store")
	c.JSON(http.StatusOK, body)
}

// shownOf is an approval as those who decide about it see it.
func shownOf(view approval.View, text string) Full {
	full := fullOf(view.Approval, text)
	full.Call.Callbacks = view.Callbacks
	return full
}
