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
	Nodes []SLIMNode `yaml:"nodes"` // the first is preferred; none: SLIM is not spoken
}

// SLIMNode is one node.
type SLIMNode struct {
	URL          string `yaml:"url"`                // such as https://slim.example.com:46357; in dev also http to loopback
	ID           string `yaml:"id"`                 // the SPIFFE id of its certificate; default: that names its host
	Organization string `yaml:"organization"`       // the first part of our names there
	Namespace    string `yaml:"namespace"`          // the second
	SecretFile   string `yaml:"shared_secret_file"` // file with what all members know, 32 bytes or more; one of this, jwt and jwt_svid says who the members are
	Caller       string `yaml:"caller"`             // with shared_secret_file: the SPIFFE id that callers there have: whoever knows the secret could be each of them; default: nobody may call, in dev everybody
	Groups       int    `yaml:"groups"`             // how many groups each agent may be in at a time; of four or more, a quarter is kept for moderators that have few; default 16; -1: none

	JWT     *SLIMJWT     `yaml:"jwt"`      // members show JWTs of one issuer
	JWTSVID *SLIMJWTSVID `yaml:"jwt_svid"` // members show SPIFFE JWT-SVIDs, and callers are who these say; ours come from identity.workload_api, the keys of others from there or from identity.bundle
}

// SLIMJWT is how members know each other by the JWTs of one issuer.
type SLIMJWT struct {
	Key      string            `yaml:"key"`      // file with the key that signs our tokens, PEM (PKCS #8): P-256 or Ed25519
	KeyID    string            `yaml:"key_id"`   // its name in our tokens, kid; default: its RFC 7638 thumbprint
	Keys     string            `yaml:"keys"`     // file with the JWK set that members' tokens are signed with, read again when it changes
	Issuer   string            `yaml:"issuer"`   // iss of all of them, ours too
	Audience []string          `yaml:"audience"` // aud of ours, and one of which members' must have; default slim
	Subject  string            `yaml:"subject"`  // sub of ours; default: each of our names, organization/namespace/NAME
	Lifetime Duration          `yaml:"lifetime"` // of ours; default 10m
	Callers  map[string]string `yaml:"callers"`  // the SPIFFE ids that members have as callers, by sub; others may not call, in dev all may
}

// SLIMJWTSVID is how members know each other by SPIFFE JWT-SVIDs.
type SLIMJWTSVID struct {
	Audience []string `yaml:"audience"` // aud of ours, and one of which members' must have; default slim
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
