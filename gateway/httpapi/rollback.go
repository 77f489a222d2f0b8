package httpapi

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// maxRollback bounds the body of a rollback request, in bytes.
const maxRollback = 64 << 10

// Rollbacker carries rollback requests to the agents that they concern.
type Rollbacker interface {
	Rollback(ctx context.Context, call transport.Call, token string) (transport.Answer, error)
}

// rollbacks takes rollback requests, apart from the endpoints of agents (ATD, Basic
// Rollback; AEPB, Checkpoint and Rollback Signal Carriage).
type rollbacks struct{ deps PublicDeps }

// serve answers with the result's claims; its token comes first in
// Execution-Context, and then our own.
func (h rollbacks) serve(c *gin.Context) {
	call, token, err := h.read(c)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	answer, err := h.deps.Undo.Rollbacker.Rollback(c.Request.Context(), call, token)
	transport.AddEvidence(c.Writer.Header(), append(slices.Clone(answer.Wire().Header.Values(rollback.Field)), answer.Evidence...))
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.Header("Cache-Control", "private, no-store")
	c.Data(http.StatusOK, answer.Wire().Media, answer.Wire().Body)
}

// read finds the request among the tokens: it is the one of that act. The rest are
// evidence like any other. A body is not needed; where there is one, it is JSON.
func (h rollbacks) read(c *gin.Context) (transport.Call, string, error) {
	ctx := c.Request.Context()
	pass, err := admit(ctx, h.deps.Handler, "")
	if err != nil {
		return transport.Call{}, "", err
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxRollback))
	switch {
	case err != nil:
		return transport.Call{}, "", problem.Reading(err)
	case len(body) > 0 && mediaType(c.Request) != mediaJSON:
		return transport.Call{}, "", &problem.MediaTypeError{Want: []string{mediaJSON}}
	}
	tokens, err := ect.ParseHeader(c.Request.Header.Values(ect.HeaderName), ect.Limits{})
	if err != nil {
		return transport.Call{}, "", err
	}
	at := slices.IndexFunc(tokens, func(token string) bool {
		claims, _, err := ect.ParseUnverified(token)
		return err == nil && claims.Act == ect.ActRollbackRequest
	})
	if at < 0 {
		return transport.Call{}, "", ect.ErrRequired
	}
	return transport.Call{
		Caller: transport.CallerFrom(ctx), Address: transport.AddressFrom(ctx), Evidence: tokens, Pass: pass,
		Wire: translators.Wire{
			Form: rollback.Name, Media: rollback.Media, Header: http.Header{rollback.Field: {tokens[at]}}, Body: body,
			Verb: http.MethodPost, Path: rollback.Path,
		},
	}, tokens[at], nil
}
