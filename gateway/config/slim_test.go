package config_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
)

const goodNode = `{url: "https://slim.example", organization: org, namespace: ns, shared_secret_file: /s, caller: spiffe://example.com/gw, id: spiffe://example.com/node}`

const goodJWT = `jwt: {key: /k, keys: /j, issuer: i}`

// TestSLIM_DefaultsAndWatchedFiles: what is not said, and which files are watched.
func TestSLIM_DefaultsAndWatchedFiles(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(`{identity: {workload_api: "unix:///run/a.sock"}, slim: {nodes: [
		{url: "https://a.example", organization: o, namespace: n, jwt: {key: /k, keys: /j, issuer: i, audience: [x, y]}, groups: 3},
		{url: "https://b.example", organization: o, namespace: n, jwt_svid: {}, groups: -1}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if files := c.Files(); len(files) != 1 || files[0] != "/j" {
		t.Errorf("%v", files)
	}
	for i, want := range []struct {
		audience string
		groups   int
	}{{"x y", 3}, {"slim", 0}} {
		if n := c.SLIM.Nodes[i]; strings.Join(n.Audiences(), " ") != want.audience || n.MaxGroups() != want.groups {
			t.Errorf("%v %d", n.Audiences(), n.MaxGroups())
		}
	}
}

func TestSLIM_NodeAddresses(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte("slim: {nodes: [" + goodNode + `, {url: "http://127.0.0.1:1234", organization: o, namespace: n, shared_secret_file: s}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"slim.example:46357", "127.0.0.1:1234"} {
		if address, plain := c.SLIM.Nodes[i].Address(); address != want || plain != (i == 1) {
			t.Errorf("%s %v", address, plain)
		}
	}
	if err := c.Serve(); err == nil || !strings.Contains(err.Error(), "slim.nodes[1].url: a node without TLS is for dev") || strings.Contains(err.Error(), "nodes[0]") {
		t.Error(err)
	}
}

// TestSLIM_MistakesHavePositions: each is said where it stands.
func TestSLIM_MistakesHavePositions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, to, want string }{
		"no URL":                {`url: "https://slim.example"`, `url: ""`, "a node is https://HOST:PORT"},
		"another scheme":        {"https://slim.example", "ws://slim.example", "a node is https://HOST:PORT"},
		"a path":                {"https://slim.example", "https://slim.example/x", "a node is https://HOST:PORT"},
		"credentials":           {"https://slim.example", "https://u:p@slim.example", "a node is https://HOST:PORT"},
		"a query":               {"https://slim.example", "https://slim.example?x", "a node is https://HOST:PORT"},
		"port zero":             {"https://slim.example", "https://slim.example:0", "its port is no port"},
		"port too high":         {"https://slim.example", "https://slim.example:70000", "its port is no port"},
		"plain to somewhere":    {"https://slim.example", "http://slim.example", "a node without TLS is on loopback"},
		"plain to an address":   {"https://slim.example", "http://10.0.0.1", "a node without TLS is on loopback"},
		"no organization":       {"organization: org, ", "", "required: 1 to 63 of"},
		"a slash in a name":     {"organization: org", "organization: o/x", "required: 1 to 63 of"},
		"a space in a name":     {"namespace: ns", `namespace: "n s"`, "required: 1 to 63 of"},
		"a name too long":       {"namespace: ns", "namespace: " + strings.Repeat("n", 64), "required: 1 to 63 of"},
		"no secret":             {"shared_secret_file: /s, ", "", "shared_secret_file: required, or jwt, or jwt_svid"},
		"two ways":              {"shared_secret_file: /s", "shared_secret_file: /s, " + goodJWT, "only one of it, jwt and jwt_svid"},
		"a caller with JWTs":    {"shared_secret_file: /s", goodJWT, "tokens say who calls"},
		"JWTs without a key":    {"shared_secret_file: /s", strings.Replace(goodJWT, "key: /k, ", "", 1), "jwt.key: required"},
		"JWTs without keys":     {"shared_secret_file: /s", strings.Replace(goodJWT, "keys: /j, ", "", 1), "jwt.keys: required"},
		"JWTs of nobody":        {"shared_secret_file: /s", strings.Replace(goodJWT, "issuer: i", "lifetime: 1h", 1), "jwt.issuer: required"},
		"a short life":          {"shared_secret_file: /s", strings.Replace(goodJWT, "issuer: i", "issuer: i, lifetime: 59s", 1), "between 1m and 24h"},
		"a member without id":   {"shared_secret_file: /s", strings.Replace(goodJWT, "issuer: i", "issuer: i, callers: {a: alice}", 1), "not the SPIFFE id of a workload"},
		"a member as a pattern": {"shared_secret_file: /s", strings.Replace(goodJWT, "issuer: i", `issuer: i, callers: {a: "spiffe://x/*"}`, 1), "not the SPIFFE id of a workload"},
		"an empty audience":     {"shared_secret_file: /s", strings.Replace(goodJWT, "issuer: i", `issuer: i, audience: [""]`, 1), "no audience"},
		"SVIDs of no agent":     {"shared_secret_file: /s, caller: spiffe://example.com/gw", "jwt_svid: {}", "needs identity.workload_api"},
		"claims as audience":    {"shared_secret_file: /s", `jwt_svid: {audience: ["slim-claims:x"]}`, "no audience"},
		"too many groups":       {"namespace: ns", "namespace: ns, groups: 1025", "between -1 and 1024"},
		"the secret itself":     {"shared_secret_file: /s", "shared_secret: hush", "unknown field"},
		"a caller without path": {"spiffe://example.com/gw", "spiffe://example.com", "not the SPIFFE id of a workload"},
		"a caller of no kind":   {"spiffe://example.com/gw", "alice", "not the SPIFFE id of a workload"},
		"a pattern as a caller": {"spiffe://example.com/gw", `"spiffe://example.com/*"`, "not the SPIFFE id of a workload"},
		"a node's id":           {"spiffe://example.com/node", "node", "not the SPIFFE id of a workload"},
		"twice":                 {goodNode, goodNode + ", " + goodNode, "the node is there already"},
		"too many":              {goodNode, strings.Repeat(goodNode+", ", 16) + goodNode, "more than 16"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace("slim: {nodes: ["+goodNode+"]}", c.from, c.to, 1)
			_, err := config.Parse([]byte(text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
