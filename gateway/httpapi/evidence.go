package httpapi

import (
	"cmp"
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
// its workflow. A jti is unique to its issuer only: of several that the caller
// may see, ours comes first, then his; ?iss= names another.
func (e evidence) token(c *gin.Context) {
	ctx := c.Request.Context()
	found, err := e.deps.Evidence.Get(ctx, ect.ID(c.Param("jti")))
	if err != nil {
		problem.Write(c.Writer, c.Request, &problem.RecordingError{Err: err})
		return
	}
	records := found[0]
	issuer, caller := ect.Identity(c.Query("iss")), transport.CallerFrom(ctx).ID
	slices.SortFunc(records, func(a, b ect.Record) int {
		return cmp.Or(cmp.Compare(e.rank(a, caller), e.rank(b, caller)), cmp.Compare(a.Issuer, b.Issuer))
	})
	for _, record := range records {
		if issuer != "" && record.Issuer != issuer || !concerns(record, caller) && !e.member(ctx, record.Workflow, caller) {
			continue
		}
		c.Header("Cache-Control", "private, no-store")
		c.Data(http.StatusOK, "application/exec+jwt", []byte(record.Compact))
		return
	}
	problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "ECT"})
}

func (e evidence) rank(r ect.Record, caller ect.Identity) int {
	switch r.Issuer {
	case e.deps.Self:
		return 0
	case caller:
		return 1
	default:
		return 2
	}
}

// workflow serves every ECT of a workflow to its members: whoever is issuer or
// audience of one of them (R14). A wid of one's own making opens nothing.
func (e evidence) workflow(c *gin.Context) {
	ctx := c.Request.Context()
	records, err := allOf(ctx, e.deps.Evidence, c.Param("wid"))
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
	records, err := allOf(ctx, e.deps.Evidence, workflow)
	return err == nil && slices.ContainsFunc(records, func(r ect.Record) bool { return concerns(r, caller) })
}

// allOf reads a whole workflow, page by page.
func allOf(ctx context.Context, store ect.Store, wid string) (records []ect.Record, err error) {
	const page = 256
	for after := ""; ; {
		some, next, err := store.Workflow(ctx, wid, after, page)
		if records = append(records, some...); err != nil || next == "" {
			return records, err
		}
		after = next
	}
}

func concerns(record ect.Record, id ect.Identity) bool {
	return record.Issuer == id || slices.Contains(record.Audience, string(id))
}
