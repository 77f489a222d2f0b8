package config

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
)

// SLIM connects agents to SLIM nodes: each is org/namespace/NAME there.
type SLIM struct {
	Nodes []SLIMNode `yaml:"nodes"` // SLIM nodes, at most 16; the first is preferred. Default: SLIM is not spoken.
}

// SLIMNode is one node.
type SLIMNode struct {
	URL          string `yaml:"url"`                // URL of the node, such as https://slim.example.com:46357; in dev also http to loopback. Required.
	ID           string `yaml:"id"`                 // SPIFFE ID that the node's certificate must carry. Default: the certificate must carry the host name.
	Organization string `yaml:"organization"`       // First part of the names of this gateway's agents at the node. Required.
	Namespace    string `yaml:"namespace"`          // Second part of these names. Required.
	SecretFile   string `yaml:"shared_secret_file"` // File with a secret of at least 32 bytes that all members know. Exactly one of this, jwt and jwt_svid is required.
	Caller       string `yaml:"caller"`             // With shared_secret_file: SPIFFE ID of all callers from this node. Default: no caller, in dev every caller.
	Groups       int    `yaml:"groups"`             // Groups that each agent may be in at once, up to 1024; -1: none. Of four or more, a quarter is reserved for moderators with few groups. Default: 16.

	JWT     *SLIMJWT     `yaml:"jwt"`      // Members authenticate with JWTs of one issuer.
	JWTSVID *SLIMJWTSVID `yaml:"jwt_svid"` // Members authenticate with SPIFFE JWT-SVIDs, which also name the callers. Needs identity.workload_api.
}

// SLIMJWT is how members know each other by the JWTs of one issuer.
type SLIMJWT struct {
	Key      string            `yaml:"key"`      // File with the private key that signs this gateway's tokens (PEM, PKCS #8): P-256 or Ed25519. Required.
	KeyID    string            `yaml:"key_id"`   // kid of this gateway's tokens. Default: the RFC 7638 thumbprint of the key.
	Keys     string            `yaml:"keys"`     // File with the JWK set that verifies members' tokens; read again when it changes. Required.
	Issuer   string            `yaml:"issuer"`   // iss of all tokens, this gateway's included. Required.
	Audience []string          `yaml:"audience"` // aud of this gateway's tokens; a member's token must name one of these. Default: slim.
	Subject  string            `yaml:"subject"`  // sub of this gateway's tokens. Default: the name at the node, ORGANIZATION/NAMESPACE/NAME.
	Lifetime Duration          `yaml:"lifetime"` // Lifetime of this gateway's tokens, 1m to 24h. Default: 10m.
	Callers  map[string]string `yaml:"callers"`  // SPIFFE IDs of members as callers, by sub. Default: no caller, in dev every caller.
}

// SLIMJWTSVID is how members know each other by SPIFFE JWT-SVIDs.
type SLIMJWTSVID struct {
	Audience []string `yaml:"audience"` // aud of this gateway's tokens; a member's token must name one of these. Default: slim.
}

// Audiences are the audiences of a node's tokens.
func (n SLIMNode) Audiences() []string {
	var list []string
	switch {
	case n.JWT != nil:
		list = n.JWT.Audience
	case n.JWTSVID != nil:
		list = n.JWTSVID.Audience
	}
	if len(list) == 0 {
		return []string{"slim"}
	}
	return list
}

// MaxGroups is how many groups an agent may be in there.
func (n SLIMNode) MaxGroups() int {
	switch {
	case n.Groups < 0:
		return 0
	case n.Groups == 0:
		return defaultGroups
	default:
		return n.Groups
	}
}

const (
	defaultGroups = 16
	maxGroups     = 1024
)

// slimPort is that of nodes whose URL names none.
const slimPort = "46357"

const maxNodes = 16

// Address is the node's host:port; plain: without TLS.
func (n SLIMNode) Address() (address string, plain bool) {
	u, err := url.Parse(n.URL)
	if err != nil {
		return "", false
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), slimPort)), u.Scheme == "http"
}

// check finds the mistakes of slim.
func (s SLIM) check(workload bool, say func(path, reason string)) {
	if len(s.Nodes) > maxNodes {
		say("$.slim.nodes", "more than "+strconv.Itoa(maxNodes))
	}
	seen := map[string]bool{}
	for i, n := range s.Nodes {
		path := "$.slim.nodes[" + strconv.Itoa(i) + "]"
		n.check(path, say)
		if n.JWTSVID != nil && !workload {
			say(path+".jwt_svid", "needs identity.workload_api")
		}
		address, _ := n.Address()
		if seen[address] {
			say(path+".url", "the node is there already")
		}
		seen[address] = true
	}
}

func (n SLIMNode) check(path string, say func(path, reason string)) {
	if reason := nodeURL(n.URL); reason != "" {
		say(path+".url", reason)
	}
	for key, part := range map[string]string{"organization": n.Organization, "namespace": n.Namespace} {
		if !namePart(part) {
			say(path+"."+key, "required: 1 to 63 of a-z A-Z 0-9 - _ .")
		}
	}
	n.checkMembers(path, say)
	if n.Groups < -1 || n.Groups > maxGroups {
		say(path+".groups", "must be between -1 and 1024")
	}
	for key, id := range map[string]string{"id": n.ID, "caller": n.Caller} {
		if id != "" && directory.Validate(directory.Agent{
			Name: "x", ID: ect.Identity(id), Endpoints: []directory.Endpoint{{URL: "https://x"}},
		}, false) != nil {
			say(path+"."+key, strconv.Quote(id)+" is not the SPIFFE id of a workload, such as spiffe://example.com/gateway")
		}
	}
}

// checkMembers: one way to know each other, and whole.
func (n SLIMNode) checkMembers(path string, say func(path, reason string)) {
	ways := 0
	for _, used := range [...]bool{n.SecretFile != "", n.JWT != nil, n.JWTSVID != nil} {
		if used {
			ways++
		}
	}
	switch {
	case ways == 0:
		say(path+".shared_secret_file", "required, or jwt, or jwt_svid")
	case ways > 1:
		say(path+".shared_secret_file", "only one of it, jwt and jwt_svid")
	}
	if n.Caller != "" && n.SecretFile == "" {
		say(path+".caller", "goes with shared_secret_file: tokens say who calls")
	}
	if n.JWT != nil {
		n.JWT.check(path+".jwt", say)
	}
	for i, audience := range n.Audiences() {
		if audience == "" || strings.HasPrefix(audience, "slim-claims:") {
			say(path+".audience["+strconv.Itoa(i)+"]", "no audience")
		}
	}
}

func (j SLIMJWT) check(path string, say func(path, reason string)) {
	for key, value := range map[string]string{"key": j.Key, "keys": j.Keys, "issuer": j.Issuer} {
		if value == "" {
			say(path+"."+key, "required")
		}
	}
	if life := time.Duration(j.Lifetime); life != 0 && (life < minLifetime || life > maxLifetime) {
		say(path+".lifetime", "must be between 1m and 24h")
	}
	for _, sub := range slices.Sorted(maps.Keys(j.Callers)) {
		id := j.Callers[sub]
		if sub == "" || (policy.Rules{Callers: []string{id}}).Validate() != nil || strings.ContainsAny(id, "*#") {
			say(path+".callers.'"+sub+"'", strconv.Quote(id)+" is not the SPIFFE id of a workload, such as spiffe://example.com/calculator")
		}
	}
}

// Bounds of a token's life: shorter ones would be minted all the time.
const (
	minLifetime = time.Minute
	maxLifetime = 24 * time.Hour
)

// nodeURL judges where a node is; empty: it will do.
func nodeURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return "a node is https://HOST:PORT"
	}
	if port, err := strconv.ParseUint(cmp.Or(u.Port(), slimPort), 10, 16); err != nil || port == 0 {
		return "its port is no port"
	}
	address, err := netip.ParseAddr(u.Hostname())
	loopback := u.Hostname() == "localhost" || err == nil && address.IsLoopback()
	switch {
	case u.Scheme == "https", u.Scheme == "http" && loopback:
		return ""
	case u.Scheme == "http":
		return "a node without TLS is on loopback"
	default:
		return "a node is https://HOST:PORT"
	}
}

// namePart reports whether text may be a part of our names.
func namePart(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return text != "" && len(text) <= 63
}

// serve: in production every node is reached over TLS.
func (s SLIM) serve() []error {
	var errs []error
	for i, n := range s.Nodes {
		if _, plain := n.Address(); plain {
			errs = append(errs, &Error{Reason: "slim.nodes[" + strconv.Itoa(i) + "].url: a node without TLS is for dev"})
		}
	}
	return errs
}
