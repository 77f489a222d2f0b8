package httpapi

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/httpapi/approvals"
	"github.com/aepb/aepb-gateway/gateway/httpapi/checkpoints"
	"github.com/aepb/aepb-gateway/gateway/httpapi/consensus"
	"github.com/aepb/aepb-gateway/gateway/httpapi/descriptors"
	"github.com/aepb/aepb-gateway/gateway/listing"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxAdminBody bounds what an operator may post, in bytes.
const maxAdminBody = 64 << 10

// MonitoringDeps is what the pages for Prometheus and for probes are built from.
type MonitoringDeps struct {
	Metrics http.Handler
	// Ready says why no new work should come; no error: it may. Its text is shown
	// to all who ask.
	Ready func() error
	// Warning is a line about what an operator should know although new work may come; empty:
	// nothing. Nil: nothing ever.
	Warning func() string
	Logger  *slog.Logger
}

// Monitoring builds a surface of /metrics, /healthz and /readyz alone. Prometheus
// cannot choose the Host that it sends, so every Host is answered: a web page that
// reaches the listener by DNS rebinding can read these pages. They change nothing
// and hold no secrets, but they name agents and count what passes.
func Monitoring(deps MonitoringDeps) (http.Handler, error) {
	if deps.Metrics == nil || deps.Ready == nil || deps.Logger == nil {
		return nil, errors.New("httpapi: incomplete MonitoringDeps")
	}
	engine := surface(deps.Logger, nil)
	deps.pages(engine)
	return engine, nil
}

func (m MonitoringDeps) pages(engine *gin.Engine) {
	engine.GET("/healthz", func(c *gin.Context) { c.String(http.StatusOK, "ok\n") })
	engine.GET("/readyz", m.ready)
	engine.GET("/metrics", gin.WrapH(m.Metrics))
}

func (m MonitoringDeps) ready(c *gin.Context) {
	if err := m.Ready(); err != nil {
		c.String(http.StatusServiceUnavailable, "%v\n", err)
		return
	}
	text := "ready\n"
	if m.Warning != nil {
		text += m.Warning()
	}
	c.String(http.StatusOK, "%s", text)
}

// AdminDeps is what the admin surface is built from.
type AdminDeps struct {
	MonitoringDeps
	Directory *directory.Directory
	Agents    *listing.Agents // what is listed there
	Breakers  Breakers        // nil: there are none
	Running
	// Lifecycles knows and changes how agents stand; nil: all are active.
	Lifecycles Lifecycles
	Registry   *translators.Registry // for negotiation
	Records
	Self      ect.Identity
	PublicURL string
	// Operators are who may use /api, by client certificate: loopback is no identity (R17).
	Operators Operators
	// Token makes its bearer an operator with every role: dev has one. Empty: none does.
	Token string
	Hosts []string // host names, without port, that may stand in the Host of a request to /api (R17)
	// Failures bounds refused operators; nil: they cost nothing.
	Failures *Failures
	// Answered is told the status of every answer but those of probes; nil: it is not told to anything.
	Answered func(r *http.Request, status int)
	Open     bool // a development gateway: agents without callers are open to everybody (R2)
}

// Running is what operators may know of the process. What is nil is not served.
type Running struct {
	Processes     func() []admindoc.Process // that run for agents
	Credential    func(agent string) *admindoc.Credential
	Configuration func() admindoc.Configuration
}

// Records are what operators read and decide about. What is nil is not served.
type Records struct {
	Evidence  ect.Store  // for auditors
	Workflows ect.Lister // of Evidence, for auditors
	Approvals approvals.Service
	Levels    approvals.Levels
	Undo      checkpoints.Records // what operators roll back to
	Consensus consensus.Reader
	// Descriptors are the plans of workflows.
	Descriptors descriptors.Service
}

// Admin builds the admin surface: the pages of [Monitoring], and /api.
func Admin(deps AdminDeps) (http.Handler, error) {
	if deps.Directory == nil || deps.Agents == nil || deps.Registry == nil || deps.Metrics == nil || deps.Ready == nil ||
		(deps.Token == "" && deps.Operators == nil) || deps.Logger == nil {
		return nil, errors.New("httpapi: incomplete AdminDeps")
	}
	a := admin{deps}
	engine := surface(deps.Logger, a.answered)
	engine.Use(a.underWay, a.origin)
	deps.pages(engine)
	api := engine.Group("/api", a.host, a.operator)
	api.GET("/operator", a.self)
	api.GET("/agents", a.list)
	api.POST("/agents", a.put)
	api.GET("/agents/:name", a.show)
	if deps.Configuration != nil {
		api.GET("/configuration", func(c *gin.Context) { c.JSON(http.StatusOK, deps.Configuration()) })
	}
	if deps.Processes != nil {
		api.GET("/processes", a.processes)
	}
	if deps.Breakers != nil {
		api.GET("/breakers", a.listBreakers)
	}
	if deps.Lifecycles != nil {
		api.GET("/lifecycles", a.lifecycles)
		for _, path := range []string{"/lifecycle", "/agents/:name/lifecycle"} { // of this gateway, and of an agent
			api.GET(path, a.showLifecycle)
			api.POST(path, a.changeLifecycle)
		}
	}
	api.DELETE("/agents/:name", a.remove)
	api.POST("/agents/:name/accept", a.accept)
	api.GET("/agents/:name/negotiation", a.negotiation)
	approvals.Admin{Service: deps.Approvals, Operator: a.whoOperates, Logger: deps.Logger}.Mount(api)
	approvals.AdminLevels{Levels: deps.Levels, Operator: a.whoOperates, Now: time.Now}.Mount(api)
	checkpoints.Admin{Records: deps.Undo, Operator: a.whoOperates}.Mount(api)
	descriptors.Admin{Service: deps.Descriptors, Operator: a.whoOperates}.Mount(api)
	consensus.Admin{Rounds: deps.Consensus}.Mount(api)
	if deps.Evidence != nil {
		e := evidence{store: deps.Evidence, self: deps.Self, reader: a.auditor, logger: deps.Logger}
		e.mount(api, deps.Workflows)
	}
	return engine, nil
}

type admin struct{ deps AdminDeps }

const pathReady = "/readyz"

// answered leaves out probes: that this replica is not ready refuses no caller.
func (a admin) answered(r *http.Request, status int) {
	if a.deps.Answered != nil && (r.URL.Path != pathReady || status != http.StatusServiceUnavailable) {
		a.deps.Answered(r, status)
	}
}

// underWay lets a request count for who its connection is, or its address.
func (a admin) underWay(c *gin.Context) {
	peer, _ := identity.PeerOf(c.Request.TLS)
	if err := underWay(c, identity.Caller{Peer: peer}, c.Request.RemoteAddr); err != nil {
		problem.Write(c.Writer, c.Request, err)
		c.Abort()
	}
}

// origin refuses what a web page of another origin has a browser send (R17).
func (a admin) origin(c *gin.Context) {
	if origin := c.GetHeader("Origin"); origin != "" && origin != "https://"+c.Request.Host {
		refuse(c)
	}
}

// host refuses a foreign Host: a web page elsewhere has its own name lead to this
// address (DNS rebinding), and then its requests have no foreign Origin (R17).
func (a admin) host(c *gin.Context) {
	name := strings.Trim(transport.Host(c.Request.Host), "[]")
	if !slices.ContainsFunc(a.deps.Hosts, func(ours string) bool { return strings.EqualFold(ours, name) }) {
		refuse(c)
	}
}

func refuse(c *gin.Context) {
	problem.Write(c.Writer, c.Request, &policy.Forbidden{Constraint: policy.ConstraintCallers})
	c.Abort()
}

func (a admin) list(c *gin.Context) {
	documents := []admindoc.Agent{}
	for _, agent := range a.deps.Directory.List() {
		documents = append(documents, a.document(agent))
	}
	c.JSON(http.StatusOK, map[string][]admindoc.Agent{"agents": documents})
}

func (a admin) show(c *gin.Context) {
	agent, ok := a.deps.Directory.Find(c.Param("name"))
	if !ok {
		problem.Write(c.Writer, c.Request, &problem.UnknownAgentError{Agent: c.Param("name")})
		return
	}
	agent, err := a.deps.Directory.Resolve(c.Request.Context(), agent)
	doc := a.document(agent)
	var description *canonical.Description
	var endpoint transport.Endpoint
	if err == nil && len(agent.Endpoints) == 0 {
		err = &problem.NoPathError{From: "any", To: agent.Name, Detail: "no protocol in common"}
	}
	if err == nil {
		description, endpoint, err = a.deps.Directory.DescribeAnew(c.Request.Context(), agent, agent.Endpoints[0])
		doc.Descriptions = a.pins(c, agent)
	}
	if err != nil {
		doc.Description = &admindoc.Summary{Error: problem.Explain(err)}
	} else {
		doc.Description = &admindoc.Summary{Name: description.Name, Version: description.Version, Protocol: endpoint.Version}
		if endpoint.Why != "" {
			doc.Description.URL, doc.Description.Why = endpoint.URL, endpoint.Why
		}
		viewer := directory.Viewer{CanAnswer: []canonical.Mode{canonical.ModeForm, canonical.ModeURL}} // like an A2A client
		if _, asking, err := a.deps.Directory.DescribeFor(c.Request.Context(), agent, agent.Endpoints[0], viewer); err == nil && asking.Version != endpoint.Version {
			doc.Description.Asking = asking.Version
		}
		for _, o := range description.Omitted {
			doc.Description.Omitted = append(doc.Description.Omitted, admindoc.Omission(o))
		}
		for _, capability := range description.Capabilities {
			doc.Description.Capabilities = append(doc.Description.Capabilities, capability.ID)
		}
	}
	c.JSON(http.StatusOK, doc)
}

func (a admin) put(c *gin.Context) {
	var doc admindoc.Agent
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxAdminBody))
	if err = problem.Reading(err); err == nil && json.Unmarshal(body, &doc, json.RejectUnknownMembers(true)) != nil {
		err = &problem.QueryError{Reason: "the body is no agent document"}
	}
	if err == nil {
		err = a.deps.Agents.Put(c.Request.Context(), doc)
	}
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	shown := a.document(listing.AgentOf(doc, a.deps.Open))
	a.deps.Logger.InfoContext(c.Request.Context(), "agent listed", slog.String("agent", doc.Name), slog.String("from", shown.From))
	c.JSON(http.StatusCreated, shown)
}

func (a admin) remove(c *gin.Context) {
	found, err := a.deps.Agents.Remove(c.Request.Context(), c.Param("name"))
	if err == nil && !found {
		err = &problem.UnknownAgentError{Agent: c.Param("name")}
	}
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.Status(http.StatusNoContent)
}

func (a admin) document(agent directory.Agent) admindoc.Agent {
	doc := listing.DocumentOf(agent)
	doc.From, doc.Lifecycle = a.deps.Agents.From(agent.Name), lifecycleOf(a.deps.Directory.Known(agent))
	if a.deps.Credential != nil && doc.From == "configuration" {
		doc.Credential = a.deps.Credential(agent.Name)
	}
	return doc
}

// processes answers who runs what: the question whose process it is.
func (a admin) processes(c *gin.Context) {
	c.JSON(http.StatusOK, map[string][]admindoc.Process{"processes": a.deps.Processes()})
}
