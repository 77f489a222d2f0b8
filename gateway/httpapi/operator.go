package httpapi

import (
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
)

// Operators finds an operator by the SPIFFE id of its certificate; false: it is not an operator.
type Operators func(ect.Identity) (policy.Operator, bool)

// right is who may look at and who may change what lies below a path. The first
// row that holds a path decides.
type right struct {
	below        string
	look, change policy.Role
	also         policy.Role // may change, too, as far as what is changed says so; empty: no other role may
}

// rights has a last row for every path: a route without a row of its own is for operators.
var rights = []right{
	{"/api/approvals", policy.RoleViewer, policy.RoleApprover, policy.RoleOperator},
	{"/api/levels", policy.RoleViewer, policy.RoleOperator, policy.RoleApprover},
	{"/api/ledger", policy.RoleAuditor, policy.RoleAuditor, ""},
	{"/api/ects", policy.RoleAuditor, policy.RoleAuditor, ""},
	{"/api/workflows", policy.RoleAuditor, policy.RoleAuditor, ""},
	{"/", policy.RoleViewer, policy.RoleOperator, ""},
}

// rolesFor is the role that a request needs, and one that does as well; empty: none does.
func rolesFor(method, path string) (need, also policy.Role) {
	for _, row := range rights {
		if path != row.below && !strings.HasPrefix(path, strings.TrimSuffix(row.below, "/")+"/") {
			continue
		}
		if method == http.MethodGet || method == http.MethodHead {
			return row.look, ""
		}
		return row.change, row.also
	}
	return policy.RoleOperator, ""
}

// operator lets operators in whose role allows the request, and writes down who
// changed what (R17).
func (a admin) operator(c *gin.Context) {
	who, err := a.judge(c.Request)
	need, also := rolesFor(c.Request.Method, c.FullPath())
	if err == nil && !who.May(need) && !who.May(also) {
		err = &policy.Forbidden{Reason: "this operator lacks the role " + string(need)}
	}
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		a.audit(c, who, "refused")
		c.Abort()
		return
	}
	c.Next()
	if c.Request.Method != http.MethodGet && c.Request.Method != http.MethodHead {
		a.audit(c, who, "done")
	}
}

// judge is whoOperates where failures count: of the identity that a connection has
// proved, or of its address.
func (a admin) judge(r *http.Request) (policy.Operator, error) {
	peer, certified := identity.PeerOf(r.TLS)
	address, shows := r.RemoteAddr, credential.Request{Fields: r.Header.Values}
	var pays payer
	if !certified {
		var err error
		if pays, err = a.deps.Failures.allow(r.Context(), address, shows); err != nil {
			return policy.Operator{}, err
		}
	}
	who, err := a.whoOperates(r)
	switch {
	case err != nil:
		err = a.deps.Failures.failed(r.Context(), peer.ID, address, pays, err)
	case !certified:
		a.deps.Failures.passed(shows)
	}
	return who, err
}

// whoOperates is who a client certificate, or in dev the token, says it is. A
// token that is given is judged: a certificate does not mend it.
func (a admin) whoOperates(r *http.Request) (policy.Operator, error) {
	given := r.Header.Get("Authorization") != ""
	if given && a.deps.Token == "" {
		return policy.Operator{}, &policy.Forbidden{Reason: "operators show a client certificate, nothing else"}
	}
	if given {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(token), []byte(a.deps.Token)) != 1 {
			return policy.Operator{}, &problem.UnauthenticatedError{Scheme: "Bearer"}
		}
		return policy.Operator{Name: "developer", Roles: policy.Roles()}, nil
	}
	peer, certified := identity.PeerOf(r.TLS)
	if certified && a.deps.Operators != nil {
		if who, ok := a.deps.Operators(peer.ID); ok {
			return who, nil
		}
	}
	switch {
	case a.deps.Token != "":
		return policy.Operator{}, &problem.UnauthenticatedError{Scheme: "Bearer"}
	case certified:
		return policy.Operator{ID: peer.ID}, &policy.Forbidden{Reason: "the client certificate is no operator's"}
	default:
		return policy.Operator{}, &policy.Forbidden{Reason: "operators show a client certificate"}
	}
}

// self answers operators who ask as whom they are known, and whether agents without
// callers are open to everybody here.
func (a admin) self(c *gin.Context) {
	who, err := a.whoOperates(c.Request)
	if err != nil { // cannot be: operator has let it in
		problem.Write(c.Writer, c.Request, err)
		return
	}
	c.JSON(http.StatusOK, admindoc.Operator{Name: who.Name, ID: string(who.ID), Roles: who.Roles, Open: a.deps.Open})
}

// auditor is the operator who reads evidence: operator() lets no other in.
func (a admin) auditor(c *gin.Context) reader {
	who, err := a.whoOperates(c.Request)
	return reader{id: who.ID, name: who.Name, auditor: err == nil && who.May(policy.RoleAuditor)}
}

func (a admin) audit(c *gin.Context, who policy.Operator, result string) {
	a.deps.Logger.InfoContext(c.Request.Context(), "operator", slog.String("result", result),
		slog.String("operator", who.Name), slog.String("id", string(who.ID)),
		slog.String("method", c.Request.Method), slog.String("path", c.Request.URL.Path), slog.Int("status", c.Writer.Status()))
}
