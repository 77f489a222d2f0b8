// Package resource tells clients where they get an access token for an endpoint of an agent: by the
// metadata of the endpoint, and by the challenge of a refusal (RFC 9728).
//
// The metadata of an endpoint depend on its path and on the configuration alone, and not on whether there is such an
// agent: they are public, and who may call which agent is not.
//
// Alternatives considered: scopes_supported and scope by agent, as scopes name agents. Strangers would learn the names of
// agents from them.
package resource

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/gateway/problem"
)

// Source gives the metadata that are in force; nil, or without servers: no access tokens are accepted.
type Source func() *Metadata

// now are the metadata that are in force; false: there are none.
func (s Source) now() (*Metadata, bool) {
	if s == nil {
		return nil, false
	}
	m := s()
	return m, len(m.Servers) > 0
}

// Accepts reports whether access tokens are accepted.
func (s Source) Accepts() bool {
	_, accepts := s.now()
	return accepts
}

// Metadata is what all endpoints have in common. It does not change.
type Metadata struct {
	Servers []string // URLs of the issuers
	Scopes  []string // all
	First   []string // that a client without a token should ask for
}

// document is RFC 9728 section 2.
type document struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
}

// cacheFor is how long clients may keep the metadata.
const cacheFor = "max-age=3600"

// named reports whether an agent may be called so.
func named(agent string) bool {
	const signs = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	return agent != "" && len(agent) <= 63 && strings.Trim(agent, signs) == "" && !strings.ContainsAny(agent[:1], "._-")
}

// Mount adds the route of the metadata (RFC 9728 section 3). base is where a caller reaches the gateway; endpoints are the
// paths below an agent's. While there are no metadata it answers as if there were no route.
func (s Source) Mount(routes gin.IRoutes, base func(*http.Request) string, endpoints []string) {
	var protocols []string
	for _, path := range endpoints {
		if name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); name != ".well-known" {
			protocols = append(protocols, name)
		}
	}
	routes.GET(oauth.WellKnown+"/agents/:agent/:protocol", func(c *gin.Context) {
		agent, protocol := c.Param("agent"), c.Param("protocol")
		m, accepts := s.now()
		if !accepts || !named(agent) || !slices.Contains(protocols, protocol) {
			problem.Write(c.Writer, c.Request, &problem.NotFoundError{What: "resource"})
			return
		}
		body, err := json.Marshal(document{
			Resource: base(c.Request) + "/agents/" + agent + "/" + protocol,
			Servers:  m.Servers, Scopes: m.Scopes, Methods: []string{"header"},
		})
		if err != nil { // texts always can be
			problem.Write(c.Writer, c.Request, err)
			return
		}
		c.Header("Cache-Control", cacheFor)
		c.Data(http.StatusOK, "application/json", body)
	})
}

// Challenge is a refusal at a target URI with the challenge of its endpoint (RFC 9728 section 5.1), if it is an endpoint of an
// agent. shown: a credential was shown. Without metadata nothing changes.
func (s Source) Challenge(err error, target string, shown bool) error {
	at := oauth.ResourceOf(target)
	m, accepts := s.now()
	if !accepts || at.Metadata == "" {
		return err
	}
	return &problem.ChallengedError{Err: err, Metadata: at.Metadata, Scopes: m.First, Shown: shown}
}

// Uncounted reports whether a refusal is not the fault of who showed a token, and takes nothing from the share of
// failures.
func Uncounted(err error) bool {
	_, away := errors.AsType[*oauth.UnavailableError](err)
	return away
}
