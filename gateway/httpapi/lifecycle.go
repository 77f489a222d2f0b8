package httpapi

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle"
)

// Lifecycles knows and changes how agents stand; an empty name is this gateway.
type Lifecycles interface {
	Record(agent string) lifecycle.Record
	Records() []lifecycle.Record
	Change(ctx context.Context, agent string, order lifecycle.Order) (lifecycle.Record, string, error)
}

// lifecycleAnswer is how an agent stands, and what its operator should know.
type lifecycleAnswer struct {
	lifecycle.Record
	Warning string `json:"warning,omitempty"`
}

func (a admin) lifecycles(c *gin.Context) {
	list := a.deps.Lifecycles.Records()
	if list == nil {
		list = []lifecycle.Record{}
	}
	c.JSON(http.StatusOK, gin.H{"lifecycles": list})
}

// agentOf is the agent that a path names, which must be listed; empty: this gateway.
func (a admin) agentOf(c *gin.Context) (string, error) {
	name := c.Param("name")
	if _, listed := a.deps.Directory.Find(name); name != "" && !listed && a.deps.Lifecycles.Record(name).Term == 0 {
		return "", &problem.UnknownAgentError{Agent: name}
	}
	return name, nil
}

func (a admin) showLifecycle(c *gin.Context) {
	name, err := a.agentOf(c)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.JSON(http.StatusOK, lifecycleAnswer{Record: a.deps.Lifecycles.Record(name)})
}

// changeLifecycle makes a transition that an operator orders (AEPB, Lifecycle State Transitions).
func (a admin) changeLifecycle(c *gin.Context) {
	name, err := a.agentOf(c)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	var order lifecycle.Order
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxAdminBody))
	if err = problem.Reading(err); err == nil && json.Unmarshal(body, &order, json.RejectUnknownMembers(true)) != nil {
		err = &directory.InvalidAgentError{Name: name, Reason: "the order is no JSON object of to, reason, successor, sunset_at, force, now and forget"}
	}
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	who, err := a.whoOperates(c.Request)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	order.By, order.At = who.Name, time.Now()
	record, warning, err := a.deps.Lifecycles.Change(c.Request.Context(), name, order)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.JSON(http.StatusOK, lifecycleAnswer{record, warning})
}

// lifecycleMembers is a lifecycle as capability documents say it.
func lifecycleMembers(r lifecycle.Record, version string) *admindoc.Lifecycle {
	out := &admindoc.Lifecycle{
		Status: string(cmp.Or(r.Status, lifecycle.Active)), Version: version, DeprecatedAt: instant(r.DeprecatedAt), SunsetAt: instant(r.SunsetAt),
	}
	if r.Successor != "" {
		out.Successor = &r.Successor
	}
	return out
}

// noticeOf is what answers say of the gateway's own future.
func noticeOf(own lifecycle.Record) transport.LifecycleNotice {
	if own.Status != lifecycle.Deprecated {
		return transport.LifecycleNotice{}
	}
	return transport.LifecycleNotice{Deprecated: own.DeprecatedAt, Sunset: own.SunsetAt, Successor: own.Successor}
}
