package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// maxPage bounds the ECTs of one page of a workflow: 800 KiB, with the largest
// tokens that are taken.
const maxPage = 100

// Members says who may read what (R14).
type Members interface {
	// Belongs reports whether an identity belongs to a workflow.
	Belongs(ctx context.Context, workflow string, who ect.Identity) (bool, error)
	// MayRead reports whether an identity may read a record.
	MayRead(ctx context.Context, r ect.Record, who ect.Identity) (bool, error)
}

// Tasks knows which token a caller's next message about its task names as parent.
type Tasks interface {
	// Following finds it; false: the caller has no such task.
	Following(ctx context.Context, caller identity.Caller, address, agent, task string) (ect.Ref, bool, error)
}

// evidence serves ECTs to those whom they concern. For others they are not
// found, as if there were none (R2).
type evidence struct {
	store   ect.Store
	self    ect.Identity
	members Members
	reader  func(*gin.Context) reader
	tasks   Tasks // nil: no caller has tasks here
	logger  *slog.Logger
}

// mount adds the routes for auditors. workflows may be nil.
func (e evidence) mount(api gin.IRoutes, workflows ect.Lister) {
	api.GET("/ects/:jti", e.token)
	api.GET("/workflows/:wid", e.workflow)
	if workflows != nil {
		api.GET("/workflows", func(c *gin.Context) { e.list(c, workflows) })
	}
}

// reader is who asks for evidence.
type reader struct {
	id      ect.Identity
	auditor bool   // an operator who reads everything; each read is logged
	name    string // of the operator
}

// callerReads is a caller of the public listener. An operator with the role of an
// auditor, who shows a client certificate (R17), reads everything.
func callerReads(auditor func(ect.Identity) (name string, ok bool)) func(*gin.Context) reader {
	return func(c *gin.Context) reader {
		r := reader{id: transport.CallerFrom(c.Request.Context()).ID}
		if peer, certified := identity.PeerOf(c.Request.TLS); auditor != nil && certified && peer.ID == r.id {
			r.name, r.auditor = auditor(r.id)
		}
		return r
	}
}

// token serves one ECT to its issuer, to those that it names, and to the members of
// its workflow. A jti is unique to its issuer only: of several that the reader may
// see, ours comes first, then the reader's own; ?iss= and ?wid= name another issuer and
// the workflow: others may have used the id so often that only these tell.
func (e evidence) token(c *gin.Context) {
	ctx, who := c.Request.Context(), e.reader(c)
	issuer, wid := ect.Identity(c.Query("iss")), c.Query("wid")
	found, err := e.store.Get(ctx, ect.Ref{ID: ect.ID(c.Param("jti")), Workflow: wid, Issuer: cmp.Or(issuer, who.id)})
	if err != nil {
		problem.Write(c.Writer, c.Request, &problem.RecordingError{Err: err})
		return
	}
	records := found[0]
	slices.SortFunc(records, func(a, b ect.Record) int {
		return cmp.Or(cmp.Compare(e.rank(a, who.id), e.rank(b, who.id)), cmp.Compare(a.Issuer, b.Issuer))
	})
	for _, record := range records {
		if issuer != "" && record.Issuer != issuer || wid != "" && record.Workflow != wid {
			continue
		}
		may, err := e.mayRead(ctx, record, who)
		if err != nil {
			problem.Write(c.Writer, c.Request, &problem.RecordingError{Err: err})
			return
		}
		if may {
			e.log(c, who, record.Workflow)
			c.Header("Cache-Control", "private, no-store")
			c.Data(http.StatusOK, "application/exec+jwt", []byte(record.Compact))
			return
		}
	}
	problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "ECT"})
}

// following serves the token that the caller's next message about a task of its own names as parent: the answer to a
// question stays in the workflow of the question, although its caller signs it.
func (e evidence) following(c *gin.Context) {
	ctx := c.Request.Context()
	agent, task := c.Query("agent"), c.Query("task")
	if agent == "" || task == "" {
		problem.Write(c.Writer, c.Request, &problem.QueryError{Reason: "agent and task name a task of yours: expected both"})
		return
	}
	ref, found, err := e.tasks.Following(ctx, transport.CallerFrom(ctx), transport.AddressFrom(ctx), agent, task)
	var records [][]ect.Record
	if err == nil && found {
		if records, err = e.store.Get(ctx, ref); err != nil {
			err = &problem.RecordingError{Err: err}
		}
	}
	if err == nil && (!found || len(records[0]) == 0) {
		err = &problem.NotFoundError{What: "task"}
	}
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	for _, record := range records[0] {
		if record.Issuer == ref.Issuer && record.Workflow == ref.Workflow {
			c.Header("Cache-Control", "private, no-store")
			c.Data(http.StatusOK, "application/exec+jwt", []byte(record.Compact))
			return
		}
	}
	problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "task"})
}

func (e evidence) mayRead(ctx context.Context, r ect.Record, who reader) (bool, error) {
	if who.auditor {
		return true, nil
	}
	return e.members.MayRead(ctx, r, who.id)
}

func (e evidence) rank(r ect.Record, caller ect.Identity) int {
	switch r.Issuer {
	case e.self:
		return 0
	case caller:
		return 1
	default:
		return 2
	}
}

// workflowPage is one page of a workflow.
type workflowPage struct {
	Workflow string   `json:"wid"`
	ECTs     []string `json:"ects"`
	Next     string   `json:"next,omitempty"` // what ?after= takes for the next page; absent: this is the last
}

// workflow serves the ECTs of a workflow to its members (R14), in the order in which
// they came, 100 at most at a time: ?after= takes the cursor of the page before,
// ?limit= a smaller number.
func (e evidence) workflow(c *gin.Context) {
	ctx, who, wid := c.Request.Context(), e.reader(c), c.Param("wid")
	limit, err := limitOf(c)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	may := who.auditor
	if !may {
		if may, err = e.members.Belongs(ctx, wid, who.id); err != nil {
			problem.Write(c.Writer, c.Request, &problem.RecordingError{Err: err})
			return
		}
	}
	var records []ect.Record
	page := workflowPage{Workflow: wid, ECTs: []string{}}
	if may {
		if records, page.Next, err = e.store.Workflow(ctx, wid, c.Query("after"), limit); err != nil {
			problem.Write(c.Writer, c.Request, pageError(err))
			return
		}
	}
	if len(records) == 0 && c.Query("after") == "" {
		problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "workflow"})
		return
	}
	for _, record := range records {
		page.ECTs = append(page.ECTs, record.Compact)
	}
	e.log(c, who, wid)
	c.Header("Cache-Control", "private, no-store")
	if page.Next != "" {
		next := url.Values{"after": {page.Next}, "limit": {strconv.Itoa(limit)}}
		c.Header("Link", "<?"+next.Encode()+`>; rel="next"`)
	}
	c.JSON(http.StatusOK, page)
}

// limitOf is how many entries a page may have.
func limitOf(c *gin.Context) (int, error) {
	text := c.Query("limit")
	if text == "" {
		return maxPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, &problem.QueryError{Reason: "limit is a number from 1 to 100"}
	}
	return min(n, maxPage), nil
}

// workflowList is one page of the workflows that have a record since a time.
type workflowList struct {
	Workflows []string `json:"wids"`           // may be empty although others follow
	Next      string   `json:"next,omitempty"` // what ?after= takes for the next page; absent: this is the last
}

// list serves auditors the ids of workflows with a record since a time, 100 at most at a time.
func (e evidence) list(c *gin.Context, workflows ect.Lister) {
	limit, err := limitOf(c)
	since, timeErr := time.Parse(time.RFC3339, c.Query("since"))
	if err == nil && timeErr != nil {
		err = &problem.QueryError{Reason: "since is a time of RFC 3339, such as 2026-11-29T08:00:00Z"}
	}
	page := workflowList{}
	if err == nil {
		page.Workflows, page.Next, err = workflows.Workflows(c.Request.Context(), since, c.Query("after"), limit)
		if err != nil {
			err = pageError(err)
		}
	}
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	page.Workflows = append([]string{}, page.Workflows...)
	e.log(c, e.reader(c), "")
	c.Header("Cache-Control", "private, no-store")
	c.JSON(http.StatusOK, page)
}

// pageError tells a cursor that is not ours from trouble of the store.
func pageError(err error) error {
	if errors.Is(err, ect.ErrCursor) {
		return &problem.QueryError{Reason: "after is a cursor that an earlier page returned as next"}
	}
	return &problem.RecordingError{Err: err}
}

// log records that an auditor read something. What members read is theirs.
func (e evidence) log(c *gin.Context, who reader, workflow string) {
	if who.auditor {
		e.logger.InfoContext(c.Request.Context(), "evidence read by an auditor", slog.String("operator", who.name),
			slog.String("id", string(who.id)), slog.String("wid", workflow), slog.String("path", c.Request.URL.Path))
	}
}
