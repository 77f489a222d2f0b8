// Package descriptors serves the plans of workflows to operators (ATD, Optional Declarative Workflow Format; R27).
package descriptors

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/gateway/descriptor"
	"github.com/aepb/aepb-gateway/gateway/problem"
	pure "github.com/aepb/aepb-gateway/lifecycle/descriptor"
	"github.com/aepb/aepb-gateway/policy"
)

// Service stores and finds descriptors. It is a [descriptor.Service].
type Service interface {
	Check(ctx context.Context, text []byte) (descriptor.Checked, error)
	Put(ctx context.Context, text []byte, operator string) (descriptor.Version, error)
	Get(ctx context.Context, name string, version int) (descriptor.Version, []byte, error)
	List(ctx context.Context) ([]descriptor.Version, error)
	Names(ctx context.Context, d pure.Descriptor) map[string][]string
}

// Admin is what the routes of the admin listener are made from.
type Admin struct {
	Service  Service                                      // nil: nothing is served
	Operator func(*http.Request) (policy.Operator, error) // who asks
}

// Mount adds the routes, below /api. Only operators reach them, and only those with the role operator those that store.
func (a Admin) Mount(routes gin.IRoutes) {
	if a.Service == nil {
		return
	}
	routes.GET("/descriptors", a.list)
	routes.POST("/descriptors", a.put)
	routes.GET("/descriptors/:name", a.show)
}

// Plan is what a descriptor says, worked out.
type Plan struct {
	Name   string              `json:"wf_id"`
	Order  []string            `json:"order"`  // ids of the nodes, each behind those before it
	Waves  [][]string          `json:"waves"`  // the nodes of one wave may run at once
	Agents map[string][]string `json:"agents"` // what tokens call each agent that it names
}

// View is a version with its text.
type View struct {
	descriptor.Version

	Text string `json:"text"` // byte for byte
	Plan Plan   `json:"plan"`
}

func planOf(d pure.Descriptor, agents map[string][]string) Plan {
	p := Plan{Name: d.Name(), Agents: agents}
	for _, wave := range d.Waves() {
		ids := make([]string, len(wave))
		for i, n := range wave {
			ids[i] = n.ID
		}
		p.Waves, p.Order = append(p.Waves, ids), append(p.Order, ids...)
	}
	return p
}

func (a Admin) list(c *gin.Context) {
	all, err := a.Service.List(c.Request.Context())
	write(c, http.StatusOK, map[string][]descriptor.Version{"descriptors": all}, err)
}

// put stores a descriptor, or with check only says what it is.
func (a Admin) put(c *gin.Context) {
	ctx := c.Request.Context()
	text, err := read(c)
	check, invalid := strconv.ParseBool(cmp.Or(c.Query("check"), "false"))
	if err == nil && invalid != nil {
		err = &problem.QueryError{Reason: "check is true or false"}
	}
	if err == nil && check {
		var checked descriptor.Checked
		checked, err = a.Service.Check(ctx, text)
		write(c, http.StatusOK, planOf(checked.Descriptor, checked.Agents), err)
		return
	}
	var who policy.Operator
	if err == nil {
		who, err = a.Operator(c.Request)
	}
	var v descriptor.Version
	if err == nil {
		v, err = a.Service.Put(ctx, text, who.Name)
	}
	write(c, http.StatusCreated, v, err)
}

func read(c *gin.Context) ([]byte, error) {
	media, _, _ := strings.Cut(c.GetHeader("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(media), pure.MediaType) {
		return nil, &problem.MediaTypeError{Want: []string{pure.MediaType}}
	}
	text, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, pure.MaxText))
	return text, problem.Reading(err)
}

func (a Admin) show(c *gin.Context) {
	version, err := strconv.Atoi(cmp.Or(c.Query("version"), "0"))
	if err != nil || version < 0 {
		write(c, 0, nil, &problem.QueryError{Reason: "version is the number of a version, from 1"})
		return
	}
	var out View
	v, text, err := a.Service.Get(c.Request.Context(), c.Param("name"), version)
	if err == nil {
		var d pure.Descriptor
		d, err = pure.Parse(text)
		out = View{v, string(text), planOf(d, a.Service.Names(c.Request.Context(), d))}
	}
	write(c, http.StatusOK, out, err)
}

func write(c *gin.Context, status int, out any, err error) {
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.Header("Cache-Control", "private, no-store")
	c.JSON(status, out)
}
