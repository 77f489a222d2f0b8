package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// evidence serves ECTs to those whom they concern. For others they are not
// found, as if there were none (R2).
type evidence struct{ deps PublicDeps }

// token serves one ECT to its issuer and audience, and to the other members of
// its workflow.
func (e evidence) token(c *gin.Context) {
	ctx := c.Request.Context()
	record, ok, err := e.deps.Evidence.Get(ctx, ect.ID(c.Param("jti")))
	if err != nil {
		problem.Write(c.Writer, c.Request, &problem.RecordingError{Err: err})
		return
	}
	caller := transport.CallerFrom(ctx).ID
	if !ok || !concerns(record, caller) && !e.member(ctx, record.Workflow, caller) {
		problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "ECT"})
		return
	}
	c.Header("Cache-Control", "private, no-store")
	c.Data(http.StatusOK, "application/exec+jwt", []byte(record.Compact))
}

// workflow serves every ECT of a workflow to its members: whoever is issuer or
// audience of one of them (R14). A wid of one's own making opens nothing.
func (e evidence) workflow(c *gin.Context) {
	ctx := c.Request.Context()
	records, err := e.deps.Evidence.Workflow(ctx, c.Param("wid"))
	if err != nil {
		problem.Write(c.Writer, c.Request, &problem.RecordingError{Err: err})
		return
	}
	caller := transport.CallerFrom(ctx).ID
	if !slices.ContainsFunc(records, func(r ect.Record) bool { return concerns(r, caller) }) {
		problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "workflow"})
		return
	}
	tokens := make([]string, len(records))
	for i, record := range records {
		tokens[i] = record.Compact
	}
	c.Header("Cache-Control", "private, no-store")
	c.JSON(http.StatusOK, map[string]any{"wid": c.Param("wid"), "ects": tokens})
}

// member reports whether a caller belongs to a workflow. A token without one
// concerns nobody but its parties.
func (e evidence) member(ctx context.Context, workflow string, caller ect.Identity) bool {
	if workflow == "" {
		return false
	}
	records, err := e.deps.Evidence.Workflow(ctx, workflow)
	return err == nil && slices.ContainsFunc(records, func(r ect.Record) bool { return concerns(r, caller) })
}

func concerns(record ect.Record, id ect.Identity) bool {
	return record.Issuer == id || slices.Contains(record.Audience, string(id))
}
