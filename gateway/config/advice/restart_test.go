package advice_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/config/advice"
)

func parsed(t *testing.T, text string) config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWaiting_OfEachKey: what a change of one key says; nothing: a reload puts it in force.
func TestWaiting_OfEachKey(t *testing.T) {
	t.Parallel()
	const addresses = ": in force the default, in the file "
	for text, want := range map[string]string{
		"":                                       "",
		"listen: {public: \":8443\"}":            "", // as by default
		"listen: {public: \"127.0.0.1:1\"}":      "listen.public takes a restart: in force :8443, in the file 127.0.0.1:1",
		"listen: {metrics: \":9464\"}":           "listen.metrics takes a restart" + addresses + ":9464",
		"listen: {uacp_connections: {total: 9}}": "listen.uacp_connections.total takes a restart" + addresses + "9",
		"public_url: https://gw.example.com":     "public_url takes a restart" + addresses + "https://gw.example.com",
		"state: {path: /var/lib/state.db}":       "state.path takes a restart" + addresses + "/var/lib/state.db",
		"state: {redis: {addresses: [\"a:1\", \"b:1\"]}, unverified: true}": "state.redis.addresses[0] takes a restart" + addresses + "a:1; state.redis.addresses[1] takes a restart" + addresses +
			"b:1; state.unverified takes a restart" + addresses + "true",
		"log: {level: debug}":                                             "log.level takes a restart" + addresses + "debug",
		"shutdown_delay: 0s":                                              "shutdown_delay takes a restart" + addresses + "0s",
		"identity: {trust_domain: a.test}":                                "identity.trust_domain takes a restart" + addresses + "a.test",
		"identity: {certificate: a, key: b}":                              "",
		"tls: {certificate: a, key: b}":                                   "",
		"limits: {rate: 5, background: 7}":                                "limits.background takes a restart" + addresses + "7",
		"limits: {memory_mib: 512}":                                       "limits.memory_mib takes a restart for state, background tasks and MCP" + addresses + "512",
		"ainp: {key: a, callers: {\"did:web:a.test\": \"spiffe://a/b\"}}": "ainp.key takes a restart" + addresses + "a",
		"admin: {hosts: [gw.test], operators: {ann: {id: \"spiffe://a/b\", roles: [viewer]}}}": "admin.hosts[0] takes a restart" + addresses + "gw.test",
		"agents: {a: {endpoints: [{binding: mcp-v1, url: \"https://a\"}]}}":                    "",
		"policy: {max_translation_hops: 0}":                                                    "",
		"timeout: 3s":                                                                          "",
	} {
		changes := advice.Waiting(advice.RestartKeys(config.Config{}, false), advice.RestartKeys(parsed(t, text), false))
		texts := make([]string, len(changes))
		for i, change := range changes {
			texts[i] = change.String()
		}
		if got := strings.Join(texts, "; "); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestWaiting_TakenOut: a key that is in force and not in the file any more waits too.
func TestWaiting_TakenOut(t *testing.T) {
	t.Parallel()
	got := advice.Waiting(advice.RestartKeys(parsed(t, "state: {path: /a}"), false), advice.RestartKeys(config.Config{}, false))
	if want := []advice.Change{{Key: "state.path", InForce: "/a"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRestartKeys_OfDev: flags say where dev listens, and a file does not.
func TestRestartKeys_OfDev(t *testing.T) {
	t.Parallel()
	if got := advice.RestartKeys(parsed(t, "listen: {public: \":1\", admin: \":2\"}"), true); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// TestRestartKeys_AgreeWithTheReference: a key whose documentation says "Needs a restart" is one of them.
func TestRestartKeys_AgreeWithTheReference(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\|.*Needs a restart").FindAllStringSubmatch(string(text), -1)
	if len(keys) < 5 {
		t.Fatalf("the reference names %d keys", len(keys))
	}
	for _, key := range keys {
		if !advice.TakesRestart(key[1]) {
			t.Errorf("a reload is said to put %s in force", key[1])
		}
	}
}
