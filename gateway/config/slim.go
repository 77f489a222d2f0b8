package config

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
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
	SecretFile   string `yaml:"shared_secret_file"` // file with what all members know, 32 octets or more
	Caller       string `yaml:"caller"`             // the SPIFFE id that callers there have: whoever knows the secret could be each of them; default: nobody may call, in dev everybody
}

// slimPort is that of nodes whose URL names none.
const slimPort = "46357"

const maxNodes = 16

// Address is the node's host:port; plain: without TLS.
func (n SLIMNode) Address() (address string, plain bool) {
	u, err := url.Parse(n.URL)
	if err != nil {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = slimPort
	}
	return net.JoinHostPort(u.Hostname(), port), u.Scheme == "http"
}

// check finds the mistakes of slim.
func (s SLIM) check(say func(path, reason string)) {
	if len(s.Nodes) > maxNodes {
		say("$.slim.nodes", "more than "+strconv.Itoa(maxNodes))
	}
	seen := map[string]bool{}
	for i, n := range s.Nodes {
		path := "$.slim.nodes[" + strconv.Itoa(i) + "]"
		n.check(path, say)
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
	if n.SecretFile == "" {
		say(path+".shared_secret_file", "required")
	}
	for key, id := range map[string]string{"id": n.ID, "caller": n.Caller} {
		if id != "" && directory.Validate(directory.Agent{
			Name: "x", ID: ect.Identity(id), Endpoints: []directory.Endpoint{{URL: "https://x"}},
		}, false) != nil {
			say(path+"."+key, "no SPIFFE id of a workload")
		}
	}
}

// nodeURL judges where a node is; empty: it will do.
func nodeURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return "a node is https://HOST:PORT"
	}
	if port, err := strconv.ParseUint(orPort(u.Port()), 10, 16); err != nil || port == 0 {
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

func orPort(port string) string {
	if port == "" {
		return slimPort
	}
	return port
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
