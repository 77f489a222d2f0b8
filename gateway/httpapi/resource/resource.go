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
// paths below an agent's. A nil Metadata has none.
func (m *Metadata) Mount(routes gin.IRoutes, base func(*http.Request) string, endpoints []string) {
	if m == nil {
		return
	}
	var protocols []string
	for _, path := range endpoints {
		if name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); name != ".well-known" {
			protocols = append(protocols, name)
		}
	}
	routes.GET(oauth.WellKnown+"/agents/:agent/:protocol", func(c *gin.Context) {
		agent, protocol := c.Param("agent"), c.Param("protocol")
		if !named(agent) || !slices.Contains(protocols, protocol) {
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
// agent. shown: a credential was shown. A nil Metadata changes nothing.
func (m *Metadata) Challenge(err error, target string, shown bool) error {
	at := oauth.ResourceOf(target)
	if m == nil || at.Metadata == "" {
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
