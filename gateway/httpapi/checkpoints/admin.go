package checkpoints

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/policy"
)

const (
	maxBody   = 8 << 10 // of a request for a rollback, in bytes
	maxReason = 512     // bytes
	maxPage   = 100     // checkpoints
)

// Checkpoints finds what is kept. It is a [checkpoint.Service].
type Checkpoints interface {
	Find(ctx context.Context, workflow string, id ect.ID) (checkpoint.Saved, error)
	Page(ctx context.Context, workflow, after string, limit int) (page []checkpoint.Saved, next string, err error)
}

// Rollbacks plans rollbacks, begins them and says how they stand. It is a [rollback.Service].
type Rollbacks interface {
	Locate(ctx context.Context, wid string, id ect.ID) (string, error)
	Foresee(ctx context.Context, c rollback.Command) (wid string, plan undo.Plan, err error)
	Begin(ctx context.Context, c rollback.Command) (rollback.View, error)
	Look(ctx context.Context, wid string, request ect.ID) (rollback.View, error)
}

// Records is what operators see and roll back to. Both are there, or nothing is served.
type Records struct {
	Checkpoints Checkpoints
	Rollbacks   Rollbacks
}

// Admin is what the routes of the admin listener are made from.
type Admin struct {
	Records

	Operator func(*http.Request) (policy.Operator, error) // who asks
}

// Mount adds the routes, below /api. Only operators reach them, and only those with the role operator the route that
// begins rollbacks.
func (a Admin) Mount(routes gin.IRoutes) {
	if a.Checkpoints == nil || a.Rollbacks == nil {
		return
	}
	routes.GET("/checkpoints", a.list)
	routes.GET("/checkpoints/:jti", a.show)
	routes.POST("/rollbacks", a.begin)
	routes.GET("/rollbacks/:wid/:request", a.look)
}

// How says how the work behind a checkpoint would be undone.
type How string

// The ways.
const (
	ByCall       How = "compensation" // a call of the same agent undoes it
	ByAgent      How = "agent"        // the agent rolls back itself
	ByDeposit    How = "deposit"      // the agent rolls back itself, to the state that it deposited
	Irreversible How = "irreversible" // there is no way: a human is told
)

// What is known of the outcome of a call whose plan needs it.
const (
	outcomeKnown   = "known"
	outcomeFailed  = "failed" // the agent said that its action failed: there is nothing to undo
	outcomeUnknown = "unknown"
)

// View is a checkpoint as operators see it, without its state and without arguments.
type View struct {
	ID         ect.ID    `json:"jti"`
	Workflow   string    `json:"wid"`
	Parents    []ect.ID  `json:"par"`   // the token of the action, or the checkpoints that it groups
	Agent      string    `json:"agent"` // directory name; of a deposit: the identity of its agent
	Tool       string    `json:"tool,omitempty"`
	Reversible bool      `json:"reversible"`
	How        How       `json:"how"`
	UndoTool   string    `json:"undo_tool,omitempty"` // of How compensation: the tool that is called
	Made       time.Time `json:"made"`
	Expires    time.Time `json:"expires"`
	Size       int       `json:"size"`              // of the state, in bytes
	Outcome    string    `json:"outcome,omitempty"` // known, failed or unknown; empty: undoing does not need it
}

func viewOf(k checkpoint.Saved) View {
	v := View{
		ID: k.ID, Workflow: k.Workflow, Parents: k.Parents, Agent: string(k.Issuer), Reversible: k.Reversible, How: Irreversible,
		Made: k.At, Expires: k.Ends(), Size: k.Size, Outcome: outcomeOf(k),
	}
	if k.Plan != nil {
		v.Agent, v.Tool = k.Plan.Agent, k.Plan.Tool
	}
	switch {
	case !k.Reversible:
	case k.Plan == nil:
		v.How = ByDeposit
	case k.Plan.Own:
		v.How = ByAgent
	case k.Plan.Undo != nil:
		v.How, v.UndoTool = ByCall, k.Plan.Undo.Tool
	}
	return v
}

func outcomeOf(k checkpoint.Saved) string {
	switch {
	case k.Outcome != nil && k.Outcome.Failed:
		return outcomeFailed
	case k.Outcome != nil:
		return outcomeKnown
	case k.Plan != nil && k.Plan.Undo != nil && k.Plan.Undo.Result:
		return outcomeUnknown
	default:
		return ""
	}
}

// Page is a part of the checkpoints of a workflow.
type Page struct {
	Checkpoints []View `json:"checkpoints"`
	Next        string `json:"next,omitempty"`
}

func (a Admin) list(c *gin.Context) {
	wid, limit, err := queryOf(c)
	var found []checkpoint.Saved
	out := Page{Checkpoints: []View{}}
	if err == nil {
		found, out.Next, err = a.Checkpoints.Page(c.Request.Context(), wid, c.Query("after"), limit)
	}
	for _, k := range found {
		out.Checkpoints = append(out.Checkpoints, viewOf(k))
	}
	if err == nil && out.Next != "" {
		next := url.Values{"wid": {wid}, "after": {out.Next}, "limit": {strconv.Itoa(limit)}}
		c.Header("Link", "<?"+next.Encode()+`>; rel="next"`)
	}
	write(c, http.StatusOK, out, err)
}

func queryOf(c *gin.Context) (wid string, limit int, err error) {
	wid, limit = c.Query("wid"), maxPage
	if wid == "" {
		return "", 0, &problem.QueryError{Reason: "wid is required: the workflow whose checkpoints are listed"}
	}
	if text := c.Query("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return "", 0, &problem.QueryError{Reason: "limit is a number from 1 to 100"}
		}
		limit = min(n, maxPage)
	}
	return wid, limit, nil
}

func (a Admin) show(c *gin.Context) {
	ctx, id := c.Request.Context(), ect.ID(c.Param("jti"))
	var k checkpoint.Saved
	wid, err := a.Rollbacks.Locate(ctx, c.Query("wid"), id)
	if err == nil {
		k, err = a.Checkpoints.Find(ctx, wid, id)
	}
	if err != nil {
		write(c, 0, nil, err)
		return
	}
	write(c, http.StatusOK, viewOf(k), nil)
}

// Order is the body of a request for a rollback.
type Order struct {
	Checkpoint ect.ID `json:"checkpoint"`
	Workflow   string `json:"wid,omitempty"`     // needed where several workflows have a checkpoint of this id
	Cascade    bool   `json:"cascade,omitempty"` // what depends on it is undone as well
	Reason     string `json:"reason,omitempty"`  // required, unless Plan: one line of at most 512 bytes
	Plan       bool   `json:"plan,omitempty"`    // say what would happen, and do nothing
}

// Plan is what a rollback would do.
type Plan struct {
	Workflow string      `json:"wid"`
	From     ect.ID      `json:"checkpoint"`
	Cascade  bool        `json:"cascade"`
	Steps    []undo.Step `json:"steps"`    // in the order in which they are undone
	Agents   []string    `json:"agents"`   // whose work is undone (ATD, Blast Radius)
	Escalate []ect.ID    `json:"escalate"` // checkpoints that a human has to deal with
	Stale    []ect.ID    `json:"stale"`    // tokens of steps that used what is undone, and have nothing to undo
	By       time.Time   `json:"by"`       // when the time for the rollback would be over, if it began now
}

func planOf(wid string, p undo.Plan) Plan {
	return Plan{
		Workflow: wid, From: p.From, Cascade: p.Cascade, Steps: list(p.Steps), Agents: list(p.Blast), Escalate: list(p.Escalate),
		Stale: list(p.Stale), By: p.By,
	}
}

// list is a list that is never null in JSON.
func list[T any](of []T) []T { return append([]T{}, of...) }

// begin begins a rollback in the name of the operator that asks, or says what it would do.
func (a Admin) begin(c *gin.Context) {
	ctx := c.Request.Context()
	order, err := orderOf(c)
	var who policy.Operator
	if err == nil {
		who, err = a.Operator(c.Request)
	}
	if err != nil {
		write(c, 0, nil, err)
		return
	}
	command := rollback.Command{Workflow: order.Workflow, From: order.Checkpoint, Cascade: order.Cascade, Reason: order.Reason, Operator: who.Name}
	if order.Plan {
		wid, plan, err := a.Rollbacks.Foresee(ctx, command)
		write(c, http.StatusOK, planOf(wid, plan), err)
		return
	}
	view, err := a.Rollbacks.Begin(ctx, command)
	if err == nil {
		c.Header("Location", "/api/rollbacks/"+url.PathEscape(view.Workflow)+"/"+url.PathEscape(string(view.Request)))
	}
	write(c, http.StatusAccepted, shown(view), err)
}

func (a Admin) look(c *gin.Context) {
	view, err := a.Rollbacks.Look(c.Request.Context(), c.Param("wid"), ect.ID(c.Param("request")))
	write(c, http.StatusOK, shown(view), err)
}

// shown is how a rollback stands, with a list of steps also where there is no step.
func shown(v rollback.View) rollback.View {
	v.Steps = list(v.Steps)
	return v
}

// orderOf reads and judges the body of a request for a rollback.
func orderOf(c *gin.Context) (order Order, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	unprintable := func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) }
	switch {
	case err != nil:
		return order, problem.Reading(err)
	case mediaOf(c.Request) != "application/json":
		return order, &problem.MediaTypeError{Want: []string{"application/json"}}
	case json.Unmarshal(body, &order, json.RejectUnknownMembers(true)) != nil:
		return order, &problem.QueryError{Reason: "the body is a JSON object with the members that docs/http-api.md lists, each once"}
	case order.Checkpoint == "":
		return order, &problem.QueryError{Reason: "checkpoint is required: the jti of the checkpoint that is rolled back to"}
	case order.Reason == "" && !order.Plan:
		return order, &problem.QueryError{Reason: "reason is required: why this is rolled back, for the record"}
	case len(order.Reason) > maxReason || strings.ContainsFunc(order.Reason, unprintable):
		return order, &problem.QueryError{Reason: "reason is one line of at most 512 bytes, without control characters"}
	}
	return order, nil
}
