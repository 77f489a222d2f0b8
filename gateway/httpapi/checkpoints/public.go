// Package checkpoints serves checkpoints and rollbacks over HTTP: agents deposit their state with a token of their own and
// fetch it, operators see what is kept and roll back to it (ATD, Checkpoint Mechanism; R22).
//
// A state goes to the agent that deposited it alone. Operators see how work would be undone, and never a state or an
// argument.
//
// Alternatives considered: states in the body of a token, so that one path takes both. A token has at most 8 KiB.
package checkpoints

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	pure "github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/policy/limit"
)

// mediaState is the media type of a state: bytes that mean something to its agent alone.
const mediaState = "application/octet-stream"

// Deposits keeps the states of agents. It is a [checkpoint.Service].
type Deposits interface {
	Deposit(ctx context.Context, who checkpoint.Depositor, compact string, content []byte) (pure.Checkpoint, error)
	Fetch(ctx context.Context, who ect.Identity, id ect.ID) (checkpoint.Saved, []byte, error)
}

// Mount adds the routes of the public listener. Callers have an identity and are within their limit when a route is
// reached. Without deposits nothing is served.
func Mount(routes gin.IRoutes, deposits Deposits) {
	if deposits == nil {
		return
	}
	h := handler{deposits}
	routes.POST("/atd/checkpoints", h.deposit)
	routes.GET("/atd/checkpoints/:jti", h.fetch)
}

type handler struct{ deposits Deposits }

// Deposited is a state that is kept now.
type Deposited struct {
	ID       ect.ID    `json:"jti"`
	Workflow string    `json:"wid"`
	Expires  time.Time `json:"expires"` // it is kept until then
}

// deposit keeps a state of at most [checkpoint.MaxDeposit] bytes, with the atd:checkpoint that its agent signed of it.
// What has no such token is refused before the state is read.
func (h handler) deposit(c *gin.Context) {
	ctx := c.Request.Context()
	caller, address := transport.CallerFrom(ctx), transport.AddressFrom(ctx)
	compact, err := single(c.Request.Header)
	var content []byte
	if err == nil {
		content, err = state(c)
	}
	var made pure.Checkpoint
	if err == nil {
		who := checkpoint.Depositor{ID: caller.ID, Owner: admission.Owner(caller, address)}
		who.Holder, _ = limit.KeyOf(caller, address)
		made, err = h.deposits.Deposit(ctx, who, compact, content)
	}
	if err == nil {
		c.Header("Location", "/atd/checkpoints/"+url.PathEscape(string(made.ID)))
	}
	write(c, http.StatusCreated, Deposited{made.ID, made.Workflow, made.Ends()}, err)
}

// single is the one token of a deposit.
func single(header http.Header) (string, error) {
	tokens, err := ect.ParseHeader(header.Values(ect.HeaderName), ect.Limits{})
	switch {
	case err != nil:
		return "", err
	case len(tokens) == 0:
		return "", ect.ErrRequired
	case len(tokens) > 1:
		return "", &problem.QueryError{Reason: "a state is deposited with one atd:checkpoint: send that token alone"}
	}
	return tokens[0], nil
}

// state reads the body of a deposit.
func state(c *gin.Context) ([]byte, error) {
	if mediaOf(c.Request) != mediaState {
		return nil, &problem.MediaTypeError{Want: []string{mediaState}}
	}
	content, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, checkpoint.MaxDeposit))
	return content, problem.Reading(err)
}

func (h handler) fetch(c *gin.Context) {
	ctx := c.Request.Context()
	found, content, err := h.deposits.Fetch(ctx, transport.CallerFrom(ctx).ID, ect.ID(c.Param("jti")))
	if err != nil {
		write(c, 0, nil, err)
		return
	}
	transport.AddEvidence(c.Writer.Header(), []string{found.Compact})
	c.Header("Cache-Control", "private, no-store")
	c.Data(http.StatusOK, mediaState, content)
}

// mediaOf is a Content-Type without its parameters, lower case.
func mediaOf(r *http.Request) string {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// write answers with a body, or with the problem that err is.
func write(c *gin.Context, status int, body any, err error) {
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.Header("Cache-Control", "private, no-store")
	c.JSON(status, body)
}
