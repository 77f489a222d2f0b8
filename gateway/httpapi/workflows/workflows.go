// Package workflows serves workflows over HTTP: they begin, they are completed, and their members see how far
// they are (ATD, Workflow Boundary ECTs and Node States).
//
// Alternatives considered: to have callers send an ECT alone, as the draft has it. Callers that sign no tokens
// could begin no workflow.
package workflows

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 8 << 10

// Service begins, completes and shows workflows.
type Service interface {
	Begin(ctx context.Context, caller identity.Caller, holder string, plan work.Plan) (wid, compact string, err error)
	Take(ctx context.Context, caller identity.Caller, holder, compact string) (wid string, err error)
	Complete(ctx context.Context, caller identity.Caller, holder, wid string, declared workflow.Status) (workflow.Status, string, error)
	Report(ctx context.Context, wid string, who ect.Identity) (workflow.Report, error)
	Follows(ctx context.Context, wid string, who ect.Identity) (work.Followed, error)
}

// Mount adds the routes. Callers have an identity and are within their limit when a route is reached.
func Mount(routes gin.IRoutes, service Service) {
	h := handler{service}
	routes.POST("/atd/workflows", h.begin)
	routes.POST("/atd/workflows/:wid/complete", h.complete)
	routes.GET("/atd/workflows/:wid", h.report)
	routes.GET("/atd/workflows/:wid/descriptor", h.follows)
}

type handler struct{ service Service }

// beginning is the body of a request to begin a workflow.
type beginning struct {
	Description string `json:"description"`
	Steps       int    `json:"node_count"`
	Descriptor  string `json:"descriptor"` // wf_id of a descriptor that is stored (R27)
	Version     int    `json:"version"`    // of it; absent: the newest
}

// Boundary is what begins or completes a workflow.
type Boundary struct {
	Workflow string          `json:"wid"`
	Status   workflow.Status `json:"status,omitempty"` // how it ended
	Token    string          `json:"ect"`
	ID       ect.ID          `json:"jti"` // of the token: the first tasks name it as their parent
}

// begin begins a workflow: with the caller's own atd:workflow_start in Execution-Context, or with one that
// the gateway signs for it.
func (h handler) begin(c *gin.Context) {
	ctx := c.Request.Context()
	caller, holder := callerOf(c)
	var body beginning
	err := read(c, &body)
	tokens, headerErr := ect.ParseHeader(c.Request.Header.Values(ect.HeaderName), ect.Limits{})
	if err == nil {
		err = headerErr
	}
	var out Boundary
	switch {
	case err != nil:
	case len(tokens) == 1:
		out.Token = tokens[0]
		out.Workflow, err = h.service.Take(ctx, caller, holder, tokens[0])
	case len(tokens) > 1:
		err = &problem.QueryError{Reason: "a workflow begins with one atd:workflow_start: send that token alone, or none"}
	default:
		out.Workflow, out.Token, err = h.service.Begin(ctx, caller, holder, work.Plan{Description: body.Description, Steps: body.Steps, Descriptor: body.Descriptor, Version: body.Version})
	}
	write(c, http.StatusCreated, out, err)
}

// completion is the body of a request to complete a workflow.
type completion struct {
	Status workflow.Status `json:"status"`
}

func (h handler) complete(c *gin.Context) {
	caller, holder := callerOf(c)
	var body completion
	out := Boundary{Workflow: c.Param("wid")}
	err := read(c, &body)
	if err == nil {
		out.Status, out.Token, err = h.service.Complete(c.Request.Context(), caller, holder, out.Workflow, body.Status)
	}
	write(c, http.StatusOK, out, err)
}

func (h handler) report(c *gin.Context) {
	report, err := h.service.Report(c.Request.Context(), c.Param("wid"), transport.CallerFrom(c.Request.Context()).ID)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.Header("Cache-Control", "private, no-store")
	c.JSON(http.StatusOK, report)
}

// Followed is the plan that a workflow follows (R27).
type Followed struct {
	Name    string              `json:"wf_id"`
	Version int                 `json:"version"`
	Hash    string              `json:"sha256"`
	Text    string              `json:"text"`
	Agents  map[string][]string `json:"agents"` // what tokens call each agent that it names
}

func (h handler) follows(c *gin.Context) {
	plan, err := h.service.Follows(c.Request.Context(), c.Param("wid"), transport.CallerFrom(c.Request.Context()).ID)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.Header("Cache-Control", "private, no-store")
	c.JSON(http.StatusOK, Followed{plan.Name, plan.Version, plan.Hash, plan.Text, plan.Agents})
}

func callerOf(c *gin.Context) (identity.Caller, string) {
	ctx := c.Request.Context()
	caller := transport.CallerFrom(ctx)
	holder, _ := limit.KeyOf(caller, transport.AddressFrom(ctx))
	return caller, holder
}

// read reads a body of JSON; an empty one is an empty object.
func read(c *gin.Context, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	media, _, _ := strings.Cut(c.Request.Header.Get("Content-Type"), ";")
	switch {
	case err != nil:
		return problem.Reading(err)
	case len(body) == 0:
		return nil
	case !strings.EqualFold(strings.TrimSpace(media), "application/json"):
		return &problem.MediaTypeError{Want: []string{"application/json"}}
	case json.Unmarshal(body, into, json.RejectUnknownMembers(true)) != nil:
		return &problem.QueryError{Reason: "the body is a JSON object with the members that docs/http-api.md lists, each once"}
	}
	return nil
}

func write(c *gin.Context, status int, out Boundary, err error) {
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	if claims, err := ect.ParseRecorded(out.Token); err == nil {
		out.ID = claims.ID
	}
	c.Header("Cache-Control", "private, no-store")
	c.JSON(status, out)
}
