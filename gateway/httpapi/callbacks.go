package httpapi

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// maxCallback bounds the body of a registration, in bytes.
const maxCallback = 8 << 10

// callbacks takes the callbacks of the bindings that are HTTP: a webhook, as AEPB
// has it (HITL Callback Registration).
type callbacks struct{ deps PublicDeps }

// registration is the body: who is told, and of which workflow.
type registration struct {
	Workflow string `json:"wid"`
	URI      string `json:"uri"`
}

// register keeps a webhook for the members of a workflow (R14); for others there is
// no such workflow. The same once more changes nothing.
func (h callbacks) register(c *gin.Context) {
	var request registration
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxCallback))
	switch {
	case err != nil:
		err = problem.Reading(err)
	case mediaType(c.Request) != mediaJSON:
		err = &problem.MediaTypeError{Want: []string{mediaJSON}}
	case json.Unmarshal(body, &request, json.RejectUnknownMembers(true)) != nil || request.Workflow == "" || request.URI == "":
		err = &problem.QueryError{Reason: "the body is an object with wid and uri"}
	case h.deps.Awaiter == nil:
		err = &problem.NotFoundError{What: "resource"}
	default:
		err = h.keep(c, request)
	}
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.JSON(http.StatusCreated, request)
}

func (h callbacks) keep(c *gin.Context, request registration) error {
	ctx := c.Request.Context()
	caller := transport.CallerFrom(ctx).ID
	member, err := h.deps.Members.Belongs(ctx, request.Workflow, caller)
	if err != nil {
		return &problem.RecordingError{Err: err}
	}
	if !member {
		return &problem.NotFoundError{What: "workflow"}
	}
	return h.deps.Awaiter.Await(ctx, caller, request.Workflow, request.URI)
}
