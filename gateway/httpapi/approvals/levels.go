package approvals

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// Levels knows which workflows are held, and changes that.
type Levels interface {
	// List is the workflows that are paused or stopped.
	List() []approval.Level
	// Set changes how a workflow stands. Its errors are also *[hitl.StandingError] and *[hitl.RefusedError].
	Set(ctx context.Context, wid string, e hitl.StandingEvent) (approval.Level, error)
}

// AdminLevels is what the routes of levels are made from.
type AdminLevels struct {
	Levels   Levels                                       // nil: nothing is served
	Operator func(*http.Request) (policy.Operator, error) // who asks
	Now      func() time.Time
}

// Mount adds the routes, below /api. Only operators reach them, and only those with the role operator or approver
// the route of changes.
func (a AdminLevels) Mount(routes gin.IRoutes) {
	if a.Levels == nil {
		return
	}
	routes.GET("/levels", a.list)
	routes.POST("/levels/:wid", a.change)
}

// Level is how a workflow stands.
type Level struct {
	Workflow string    `json:"wid"`
	Level    hitl.Mode `json:"level"`
	Since    time.Time `json:"since"`
	By       string    `json:"by,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Roles    []string  `json:"roles,omitempty"` // that lifting it needs
	Token    string    `json:"ect,omitempty"`
}

func levelOf(h approval.Level) Level {
	reason := h.Reason
	if reason == "" {
		reason = h.Why
	}
	return Level{h.Workflow, h.Mode, h.At, h.By, reason, h.Roles, h.Token}
}

// LevelList is the workflows that are held.
type LevelList struct {
	Levels []Level `json:"levels"`
}

func (a AdminLevels) list(c *gin.Context) {
	list := LevelList{Levels: []Level{}}
	for _, h := range a.Levels.List() {
		list.Levels = append(list.Levels, levelOf(h))
	}
	slices.SortFunc(list.Levels, func(a, b Level) int { return strings.Compare(a.Workflow, b.Workflow) })
	write(c, list, nil)
}

// LevelOrder is the body of a change.
type LevelOrder struct {
	Step   string `json:"step"` // pause, stop or lift
	Reason string `json:"reason"`
}

func (a AdminLevels) change(c *gin.Context) {
	var order LevelOrder
	err := read(c, &order)
	step := hitl.Step(order.Step)
	if err == nil && (!slices.Contains([]hitl.Step{hitl.Pause, hitl.Stop, hitl.Lift}, step) || order.Reason == "") {
		err = &problem.QueryError{Reason: "step is pause, stop or lift, and reason says why"}
	}
	var who policy.Operator
	if err == nil {
		who, err = a.Operator(c.Request)
	}
	var level approval.Level
	if err == nil {
		e := hitl.StandingEvent{Step: step, At: a.Now().UTC(), By: who.Name, Reason: order.Reason}
		if step == hitl.Lift {
			e.Roles = who.RoleNames()
		}
		level, err = a.Levels.Set(c.Request.Context(), c.Param("wid"), e)
	}
	write(c, levelOf(level), err)
}
