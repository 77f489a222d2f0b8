package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/gateway/httpapi/resource"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Authenticator finds out who sent a request from its header fields; false if
// it shows no credential of that kind.
type Authenticator func(context.Context, credential.Request) (identity.Caller, bool, error)

// Callers is how callers are known.
type Callers struct {
	Authenticators []Authenticator // tried in order for callers that show a token
	Anonymous      ect.Identity    // of callers without credentials; empty: they are refused (R3)
	TrustDomain    string          // of certificates that are taken; empty: refusals do not name it
	Failures       *Failures       // nil: failed authentications cost nothing
	// Reasons reports whether a caller may know why an agent failed; nil: none may.
	Reasons   func(ect.Identity) bool
	Resources resource.Source // of endpoints, for clients with access tokens; nil: none are accepted
	Reserved  string          // what the ids that access tokens give begin with, which no other credential may show while tokens are accepted
}

// Identify marks the context of a request with who makes it. state is what the
// handshake has verified, remote the address of the other end. broken: it shows
// a credential that is no good.
func (who Callers) Identify(ctx context.Context, state *tls.ConnectionState, remote string, r credential.Request) (marked context.Context, broken error) {
	address := transport.Host(remote)
	caller, err := who.judge(ctx, state, address, r)
	if err == nil && who.Reasons != nil && who.Reasons(caller.ID) {
		ctx = problem.WithReasons(ctx)
	}
	switch {
	case err == nil && caller.ID != "":
		if who.byAccessToken(caller) {
			ctx = transport.WithSubjectToken(ctx, oauth.Shown(r), typeAccessToken)
		}
		return transport.WithCaller(ctx, caller, address), nil
	case err == nil && who.Anonymous != "":
		return transport.WithCaller(ctx, identity.Caller{Peer: ect.Peer{ID: who.Anonymous}, Anonymous: true}, address), nil
	case err == nil:
		err = who.Resources.Challenge(&problem.UnauthenticatedError{TrustDomain: who.TrustDomain}, r.Target, false)
		return transport.WithoutCaller(ctx, err, address), nil
	default:
		err = who.Resources.Challenge(err, r.Target, true)
		return transport.WithoutCaller(ctx, err, address), err
	}
}

// typeAccessToken is RFC 8693 section 3.
const typeAccessToken = "urn:ietf:params:oauth:token-type:access_token" //nolint:gosec // the name of a kind

// byAccessToken reports whether an access token has given the id of a caller. Such a token may be exchanged for an agent.
func (who Callers) byAccessToken(caller identity.Caller) bool {
	return caller.Grant != nil && who.Reserved != "" && strings.HasPrefix(string(caller.ID), who.Reserved)
}

// judge is whoIs where failures count. Without a certificate an address that failed
// too often is refused before its tokens are judged.
func (who Callers) judge(ctx context.Context, state *tls.ConnectionState, address string, r credential.Request) (identity.Caller, error) {
	peer, certified := identity.PeerOf(state)
	if r.Source = string(peer.ID); !certified {
		r.Source = address
	}
	var pays payer
	if !certified {
		var err error
		if pays, err = who.Failures.allow(ctx, address, r); err != nil {
			return identity.Caller{}, err
		}
	}
	caller, err := who.whoIs(ctx, peer, certified, r)
	switch {
	case err != nil && resource.Uncounted(err):
		return identity.Caller{}, err
	case err != nil:
		return identity.Caller{}, who.Failures.failed(ctx, peer.ID, address, pays, err)
	case !certified && caller.ID != "":
		who.Failures.passed(r)
	}
	return caller, nil
}

// identify finds the identity of the caller. The TLS handshake verified the client certificate, if
// there is one (R3). A token may replace the certificate. A token beside a certificate must name
// the same workload, unless it was made for another server. A caller without either is anonymous
// where the operator allows that. The endpoint refuses a caller without an identity (step 2), after
// it has judged the form of the request.
func identify(deps PublicDeps) gin.HandlerFunc {
	who := deps.Callers
	return func(c *gin.Context) {
		ctx, err := who.Identify(c.Request.Context(), c.Request.TLS, c.Request.RemoteAddr, credential.Request{
			Fields: c.Request.Header.Values, Target: deps.BaseURL(c.Request) + c.Request.URL.EscapedPath(), Query: c.Request.URL.RawQuery,
		})
		if err != nil {
			c.Set(brokenCredential, err)
		}
		c.Request = c.Request.WithContext(ctx)
		if err := underWay(c, transport.CallerFrom(ctx), transport.AddressFrom(ctx)); err != nil {
			problem.Write(c.Writer, c.Request, err)
			c.Abort()
			return
		}
		c.Next()
	}
}

// underWay lets a request count for its caller, or its address.
func underWay(c *gin.Context, caller identity.Caller, address string) error {
	holder, identified := limit.KeyOf(caller, address)
	if identified {
		accept.Prove(c.Request.Context(), string(caller.ID))
	}
	return inflight.Admit(c.Writer, c.Request, holder, identified)
}

// whoIs returns the caller by certificate, by token, or by both if they agree; the zero Caller has
// no identity. Of callers with access tokens a proxy may show its own certificate.
func (who Callers) whoIs(ctx context.Context, peer ect.Peer, certified bool, r credential.Request) (identity.Caller, error) {
	for _, authenticate := range who.Authenticators {
		caller, ok, err := authenticate(ctx, r)
		switch {
		case certified && foreign(err):
			continue // some clients send every server their token; the certificate alone says who it is
		case err != nil:
			return identity.Caller{}, err
		case ok && caller.Grant != nil:
			return caller, beside(peer, certified, *caller.Grant)
		case ok && certified && caller.ID != peer.ID:
			return identity.Caller{}, &problem.IdentityError{Reason: "the certificate and the token name different workloads"}
		case ok:
			return caller, who.reserved(caller)
		}
	}
	return identity.Caller{Peer: peer}, who.reserved(identity.Caller{Peer: peer})
}

// beside refuses a certificate beside an access token, except that of a proxy.
func beside(peer ect.Peer, certified bool, grant identity.Grant) error {
	if !certified || slices.Contains(grant.Proxies, peer.ID) {
		return nil
	}
	return &problem.IdentityError{Reason: "the certificate is none of the proxies of the issuer of the access token: show one of the two"}
}

// reserved refuses an id that only an access token may give.
func (who Callers) reserved(caller identity.Caller) error {
	if caller.Grant != nil || !who.Resources.Accepts() || !strings.HasPrefix(string(caller.ID), who.Reserved) {
		return nil
	}
	return &problem.IdentityError{Reason: "ids under " + who.Reserved + " are those of callers with access tokens: show one, or a certificate with another id"}
}

// foreign reports whether a token was refused that cannot have been meant for us.
func foreign(err error) bool {
	refused, ok := errors.AsType[*identity.CredentialError](err)
	return ok && refused.Foreign
}

// admitted lets a caller with an identity of its own pass, within its limit.
func admitted(deps PublicDeps) gin.HandlerFunc {
	return func(c *gin.Context) {
		if _, err := admit(c.Request.Context(), deps.Handler, ""); err != nil {
			problem.Write(c.Writer, c.Request, err)
			c.Abort()
		}
	}
}

// admit is steps 2 and 3 of an endpoint without anonymous callers.
func admit(ctx context.Context, handler transport.Handler, binding canonical.Binding) (limit.Pass, error) {
	caller := transport.CallerFrom(ctx)
	if (caller.ID == "" || caller.Anonymous) && transport.Refusal(ctx) == nil { // else the limit refuses it, and counts
		return limit.Pass{}, &problem.UnauthenticatedError{}
	}
	return handler.Limit(ctx, transport.CallInfoFrom(ctx, "", binding))
}

// brokenCredential marks a request whose credential is no good.
const brokenCredential = "broken credential"

// identified refuses a broken credential where no credential is needed, so that its owner learns of
// the fault.
func identified(c *gin.Context) {
	if _, broken := c.Get(brokenCredential); broken {
		problem.Write(c.Writer, c.Request, transport.Refusal(c.Request.Context()))
		c.Abort()
	}
}

// mount hands a gin route to an endpoint, which knows the agent by path value. To
// the router an empty segment is a name too; to an endpoint it would be no agent.
func mount(h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Param("agent") == "" {
			problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "resource"})
			return
		}
		c.Request.SetPathValue("agent", c.Param("agent"))
		c.Request.SetPathValue("rest", c.Param("rest"))
		h.ServeHTTP(c.Writer, c.Request)
	}
}
