package arch_test

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// exits are the ways out to the network, by package; a name that ends in * is
// the beginning of names.
var exits = map[string][]string{
	"net":                    {"Dial*", "Resolver", "DefaultResolver", "Lookup*", "ResolveTCPAddr", "ResolveUDPAddr", "ResolveIPAddr"},
	"net/http":               {"Client", "Transport", "DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm"},
	"net/http/httputil":      {"ReverseProxy", "NewSingleHostReverseProxy"},
	"crypto/tls":             {"Dial*"},
	"net/rpc":                {"Dial*"},
	"net/smtp":               {"*"},
	"os/exec":                {"*"},
	"golang.org/x/net/http2": {"Transport"},
	"golang.org/x/net/proxy": {"*"},
}

// ownClients may open connections or start programs by themselves.
var ownClients = []struct{ folder, because string }{
	{"gateway/transport/egress", "it opens the connections of the gateway"},
	{"gateway/transport/stdio", "it alone starts the programs of agents, and opens no connection"},
	{"cmd/aepbctl", "the user's own tool, on the user's own machine: it is a client and nothing else"},
	{"cmd/aepb-gateway/demo", "it plays the foreign agents and their clients"},
	{"test", "tests play clients and agents"},
}

// egressLaw: only egress dials, resolves or builds a client. A reference to the type
// counts too: a package that has a client of its own can avoid egress.
func egressLaw(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if s.test || slices.ContainsFunc(ownClients, func(c struct{ folder, because string }) bool { return s.in(c.folder) }) {
			continue
		}
		s.uses(func(n ast.Node, pkg, name string) {
			if slices.ContainsFunc(exits[pkg], func(exit string) bool { return matches(exit, name) }) {
				failures = append(failures, fmt.Sprintf("%s: %s.%s: only gateway/transport/egress has the allow-list, the address classes and the pinned DNS answer", s.at(n), pkg, name))
			}
		})
	}
	return failures
}

func matches(pattern, name string) bool {
	if start, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(name, start)
	}
	return name == pattern
}
