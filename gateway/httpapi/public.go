package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/httpapi/approvals"
	"github.com/aepb/aepb-gateway/gateway/httpapi/checkpoints"
	"github.com/aepb/aepb-gateway/gateway/httpapi/consensus"
	"github.com/aepb/aepb-gateway/gateway/httpapi/workflows"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// Endpoints are the native HTTP endpoints, by the path that follows /agents/{agent}; a
// path that ends in /*rest is everything below it too.
type Endpoints map[string]http.Handler

// PublicDeps is what the public surface is built from.
type PublicDeps struct {
	Handler   transport.Handler
	Router    Router // nil: only our own pairs are served
	Undo      Undo
	Together  Together
	Registry  *translators.Registry
	Endpoints Endpoints
	EvidenceDeps
	Humans
	Capability
	Callers
	Now      func() time.Time // nil: time.Now
	Breakers BreakerStream
	// LifecycleNotice is what is known of an agent's future, to those who may call it; nil: nothing.
	Notice func(transport.CallInfo) transport.LifecycleNotice
	// Answered is told the status of every answer; nil: it is not told to anything.
	Answered func(r *http.Request, status int)
	BaseURL  func(*http.Request) string // where callers reach us, no trailing slash
	Logger   *slog.Logger
}

// Together is what agents do together.
type Together struct {
	Workflows workflows.Service // nil: none begins here
	Rounds    consensus.Rounds  // nil: agents do not decide together here
}

// Undo is how work is undone.
type Undo struct {
	Rollbacker Rollbacker
	Deposits   checkpoints.Deposits // nil: agents deposit no state here
}

// EvidenceDeps is where execution context tokens are stored, and who may read them.
type EvidenceDeps struct {
	Evidence ect.Store
	Members  Members
	Auditor  func(ect.Identity) (name string, ok bool) // operators who read all evidence; nil: none does
	Tasks    Tasks                                     // nil: which token an answer follows is not told
}

// Humans is how humans decide.
type Humans struct {
	Awaiter   Awaiter          // nil: decisions are not told
	Approvals approvals.Public // without a service: there are none
}

// Capability is what the capability document says of this gateway, and what signs it.
type Capability struct {
	Self      ect.Identity
	Signer    *ect.Signer             // nil: the document is served unsigned
	Lifecycle func() lifecycle.Record // nil: the gateway is active
	Version   string
}

// Router knows what is served, from here or through other gateways, and for how
// long that holds.
type Router interface {
	Serves(context.Context, transport.PairQuery) (bool, time.Duration)
}

// Awaiter keeps who is told what humans decide in a workflow.
type Awaiter interface {
	Await(ctx context.Context, caller ect.Identity, workflow, uri string) error
}

// Quiet stops gin from printing its routes. Call it once, before any surface is built.
func Quiet() { gin.SetMode(gin.ReleaseMode) }

// Public builds the public surface.
func Public(deps PublicDeps) (http.Handler, error) {
	if deps.Handler == nil || deps.Undo.Rollbacker == nil || deps.Registry == nil || deps.Evidence == nil || deps.Members == nil || deps.BaseURL == nil || deps.Logger == nil {
		return nil, errors.New("httpapi: incomplete PublicDeps")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Lifecycle == nil {
		deps.Lifecycle = func() lifecycle.Record { return lifecycle.Record{} }
	}
	engine := surface(deps.Logger, deps.Answered)
	engine.Use(announced(deps), identify(deps))
	for names, entrance := range map[names]transport.EntryPoint{
		aepbNames(): transport.Translate, cpatNames(): transport.TranslateCPAT,
	} {
		w := wellKnown{deps, names, &statements{signed: map[string]statement{}}}
		engine.GET(names.wellKnown, identified, w.document)
		engine.GET(names.wellKnown+"/gateway", identified, w.gateway)
		engine.POST(names.translate, translate{deps, entrance}.serve)
	}
	e := evidence{store: deps.Evidence, self: deps.Self, members: deps.Members, reader: callerReads(deps.Auditor), tasks: deps.Tasks, logger: deps.Logger}
	engine.GET("/ects/:jti", admitted(deps), e.token)
	if deps.Tasks != nil {
		engine.GET("/ects", admitted(deps), e.following)
	}
	engine.GET("/workflows/:wid", admitted(deps), e.workflow)
	engine.POST("/hitl/callbacks", admitted(deps), callbacks{deps}.register)
	engine.POST(rollback.Path, rollbacks{deps}.serve)
	if deps.Together.Workflows != nil {
		workflows.Mount(engine.Group("", admitted(deps)), deps.Together.Workflows)
	}
	checkpoints.Mount(engine.Group("", admitted(deps)), deps.Undo.Deposits)
	consensus.Mount(engine.Group("", admitted(deps)), deps.Together.Rounds)
	if err := deps.Approvals.Mount(engine.Group("", admitted(deps))); err != nil {
		return nil, err
	}
	if deps.Breakers.Breakers != nil {
		engine.GET("/atd/breakers", admitted(deps), deps.Breakers.serve)
	}
	native(engine.Group("/agents/:agent"), deps.Endpoints)
	deps.Resources.Mount(engine, deps.BaseURL, slices.Collect(maps.Keys(deps.Endpoints)))
	return engine, nil
}

// native mounts the endpoints (R9). Every method reaches an endpoint, which knows what
// its protocol says to the wrong one.
func native(group *gin.RouterGroup, endpoints Endpoints) {
	for path, server := range endpoints {
		group.Any(path, mount(server))
	}
}

// surface is an engine that answers everything, even its own mistakes, with a
// problem document.
func surface(logger *slog.Logger, answered func(*http.Request, int)) *gin.Engine {
	engine := gin.New()
	engine.RedirectTrailingSlash, engine.RedirectFixedPath = false, false
	engine.HandleMethodNotAllowed = true
	engine.UseRawPath = false
	engine.Use(numbered)
	if answered != nil {
		engine.Use(func(c *gin.Context) {
			c.Next()
			answered(c.Request, c.Writer.Status())
		})
	}
	engine.Use(recovery(logger))
	// An answer to HEAD has no body; unless its header is out, gin writes a text.
	engine.NoRoute(func(c *gin.Context) {
		problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "resource", Hint: whereAgentsAre(c.Request.URL.Path)})
		c.Writer.WriteHeaderNow()
	})
	engine.NoMethod(func(c *gin.Context) {
		problem.Write(c.Writer, c.Request, &problem.MethodError{Allow: c.Writer.Header().Get("Allow")})
		c.Writer.WriteHeaderNow()
	})
	return engine
}

// whereAgentsAre helps clients that were given the URL of an agent and not one of its protocols. A client of
// A2A that is given such a URL without a slash at its end looks for the card beside it.
func whereAgentsAre(path string) string {
	rest, ok := strings.CutPrefix(path, "/agents/")
	switch {
	case !ok:
		return ""
	case strings.HasPrefix(rest, ".well-known/"):
		return "give the client the agent's URL with its protocol or with a slash at its end, /agents/NAME/a2a or /agents/NAME/"
	default:
		return "an agent is an A2A agent at /agents/NAME/a2a, an MCP server at /agents/NAME/mcp, and its card is at /agents/NAME" + a2aCard
	}
}

// a2aCard is where the card of an agent is, below its URL.
const a2aCard = "/.well-known/agent-card.json"

// fieldRequest names a request to its caller, as the log names it. A caller's own
// id is not taken over: two requests could have one, and a caller could choose it.
const fieldRequest = "X-Request-Id"

// numbered gives a request its id.
func numbered(c *gin.Context) {
	id := string(ect.NewID())
	c.Request = c.Request.WithContext(transport.WithRequestID(c.Request.Context(), id))
	c.Header(fieldRequest, id)
}

// recovery turns a panic into a problem document; its text stays in the log. The
// one that ends a stream that broke off goes on to net/http: the client must see it.
func recovery(logger *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			if r := recover(); r != nil {
				if err, ok := r.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(http.ErrAbortHandler)
				}
				logger.ErrorContext(c.Request.Context(), "panic in a handler",
					slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
				if !c.Writer.Written() {
					problem.Write(c.Writer, c.Request, errors.New("internal"))
				}
				c.Abort()
			}
		}()
		c.Next()
	}
}

// mediaType is a Content-Type without its parameters, lower case.
func mediaType(r *http.Request) string {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// announced has every answer, refusals and streams included, say what is known of the future of the agent
// whose endpoint it is from, or of this gateway (AEPB, Lifecycle States: in all responses). At an endpoint of the
// gateway it says nothing where the answer already tells the future of an agent: the fields hold one.
func announced(deps PublicDeps) gin.HandlerFunc {
	return func(c *gin.Context) {
		agent := c.Param("agent")
		own := !strings.HasPrefix(c.Request.URL.Path, "/agents/")
		if !own && (agent == "" || deps.Notice == nil) {
			return
		}
		c.Writer = &announcer{ResponseWriter: c.Writer, announce: func(h http.Header) {
			switch {
			case !own:
				deps.Notice(transport.CallInfoFrom(c.Request.Context(), agent, "")).Announce(h)
			case h.Get("Deprecation") == "":
				noticeOf(deps.Lifecycle()).Announce(h)
			}
		}}
	}
}

// announcer completes a header just before it goes out.
type announcer struct {
	gin.ResponseWriter
	announce func(http.Header)
	done     bool
}

// WriteHeader implements http.ResponseWriter.
func (a *announcer) WriteHeader(code int) {
	a.complete()
	a.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (a *announcer) Write(data []byte) (int, error) {
	a.complete()
	return a.ResponseWriter.Write(data)
}

func (a *announcer) complete() {
	if !a.done {
		a.done = true
		a.announce(a.Header())
	}
}

// Unwrap lets an http.ResponseController reach the connection.
func (a *announcer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
