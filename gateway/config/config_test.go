package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/policy"
)

// manyKeys is a file with keys of most sections.
const manyKeys = `
limits: {rate: 10.5, burst: 20}
policy:
  max_translation_hops: 2
  allowed_source_protocols: [a2a-v1]
  allowed_dest_protocols: []
  allow_losses: [L07]
  gateways: [spiffe://example.com/gateways/*]
ect: {require: true}
timeout: 90s
agents:
  pricing:
    id: spiffe://example.com/agents/pricing
    callers: [spiffe://example.com/clients/*]
    timeout: 5s
    endpoints:
      - {binding: mcp-v1, url: "https://pricing.example/mcp", priority: 10}
`

func TestParse_AllSections(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(manyKeys))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Constraints{
		AllowedSource: []string{"a2a-v1"}, AllowedDest: []string{}, RestrictSource: true, RestrictDest: true,
		MaxHops: 2, AllowLosses: []string{"L07"},
	}
	if diff := cmp.Diff(want, c.Constraints()); diff != "" {
		t.Errorf("constraints (-want +got):\n%s", diff)
	}
	if got := c.Limit(); got.Rate != 10.5 || got.Burst != 20 {
		t.Errorf("limit: got %+v", got)
	}
	agents := c.Directory(true)
	if len(agents) != 1 || agents[0].Name != "pricing" || agents[0].Timeout != 5*time.Second || agents[0].Rules.Open {
		t.Errorf("agents: got %+v", agents)
	}
	if time.Duration(c.Timeout) != 90*time.Second || !c.ECT.Require || len(c.Gateways()) != 1 {
		t.Errorf("got %+v", c)
	}
}

func TestParse_Defaults(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"empty": "", "comment": "# nothing\n", "one section": "limits: {}\n"} {
		c, err := config.Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := c.Constraints(); got.RestrictSource || got.RestrictDest || got.MaxHops != 0 {
			t.Errorf("%s: constraints %+v", name, got)
		}
	}
	none, err := config.Parse([]byte("policy: {max_translation_hops: 0}"))
	if err != nil || none.Constraints().MaxHops >= 0 {
		t.Errorf("no hops at all: got %+v, %v", none.Constraints(), err)
	}
	open, err := config.Parse([]byte(`agents: {a: {endpoints: [{binding: a2a-v1, url: "https://a.example"}]}}`))
	if err != nil || !open.Directory(true)[0].Rules.Open || open.Directory(false)[0].Rules.Open {
		t.Errorf("an agent without callers is open in dev and nowhere else: %v", err)
	}
}

// An operator is told where the mistake is.
func TestParse_MistakesHavePositions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, says string }{
		"unknown key":       {"limits:\n  rat: 1\n", "[2:3]"},
		"unknown section":   {"\n\nlimit: {}\n", "[3:1]"},
		"a tab":             {"limits:\n\tburst: 5\n", "[2:1] a tab: indent with spaces"},
		"wrong type":        {"limits:\n  burst: many\n", "[2:10]"},
		"duplicate key":     {"ect: {require: true}\nect: {require: false}\n", "[2:1]"},
		"bad duration":      {"timeout: soon\n", "not a duration"},
		"negative duration": {"timeout: -1s\n", "not a duration"},
		"unknown loss":      {"policy:\n  allow_losses: [L07, L99]\n", "[2:23] policy.allow_losses[1]"},
		"bad hop scope":     {"policy: {hop_scope: all}\n", "[1:21] policy.hop_scope"},
		"negative hops":     {"policy: {max_translation_hops: -1}\n", "[1:32]"},
		"bad caller":        {"agents:\n  a:\n    callers: ['*']\n", "[3:15]"},
		"bad gateway":       {"policy:\n  gateways:\n    - nobody\n", "[3:7]"},
		"caller by path":    {"agents:\n  a:\n    callers: [/agents/x]\n", "[3:15]"},
		"caller by URL":     {"agents:\n  a:\n    callers:\n      - spiffe://x/y\n      - https://x/y\n", "[5:9] agents.'a'.callers[1]"},
		"bad operation":     {"agents:\n  a:\n    callers: ['spiffe://x/y#task.get', 'spiffe://x/y#tasks/get']\n", "[3:40] agents.'a'.callers[1]: no operation"},
		"bad assurance":     {"agents:\n  a:\n    ect_assurance_level: high\n", "[3:26] agents.'a'.ect_assurance_level"},
		"bad exposure":      {"agents:\n  a:\n    expose: [prompts, completion]\n", "[3:23] agents.'a'.expose[1]: what is exposed"},
		"unknown revision":  {"agents:\n  a:\n    revision: 2027-01-01\n", "[3:15] agents.'a'.revision: no MCP revision \"2027-01-01\" is spoken here: expected one of 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26"},
		"revision of A2A":   {"agents:\n  a:\n    revision: 2025-11-25\n    endpoints:\n      - binding: a2a-v1\n        url: https://a\n", "agents.'a'.revision: expected an endpoint with binding mcp-v1"},
		"two revisions":     {"agents:\n  a:\n    revision: 2025-11-25\n    endpoints:\n      - binding: mcp-v1\n        version: 2025-06-18\n        url: https://a\n", "agents.'a'.revision: expected an endpoint with binding mcp-v1"},
		"exposed twice":     {"agents:\n  a:\n    expose:\n      - prompts\n      - prompts\n", "[5:9] agents.'a'.expose[1]: stands twice"},
		"exposed as text":   {"agents:\n  a:\n    expose: prompts\n", "[3:13]"},
		"circuit threshold": {"policy: {circuit_threshold: 1.5}\n", "[1:29] policy.circuit_threshold"},
		"circuit window":    {"policy: {circuit_window: 2h}\n", "[1:26] policy.circuit_window"},
		"circuit samples":   {"policy: {circuit_samples: -1}\n", "[1:27] policy.circuit_samples"},
		"escalation URL":    {"policy: {escalation_url: http://ops.example/}\n", "[1:26] policy.escalation_url"},
		"escalation user":   {"policy: {escalation_url: \"https://ann:pw@ops.example/\"}\n", "[1:26] policy.escalation_url"},
		"no semver":         {"version: \"1\"\n", "[1:10] version: no semantic version"},
		"retired here":      {"agents:\n  a:\n    lifecycle: {status: retired, reason: old}\n", "agents.'a'.lifecycle: "},
		"no reason":         {"lifecycle: {status: deprecated}\n", "lifecycle: "},
		"no sunset":         {"lifecycle: {status: deprecated, reason: old, sunset_at: tomorrow}\n", "lifecycle.sunset_at: expected a time"},
		"bad security":      {"policy: {min_protocol_security: tls-1.2}\n", "[1:33] policy.min_protocol_security"},
		"no endpoint":       {"agents:\n  a-b:\n    id: spiffe://x/y\n", "at least one endpoint"},
		"bad log level":     {"log: {level: loud}\n", "[1:14]"},
		"bad limits":        {"limits: {rate: -1}\n", "limits: limit: rate"},
		"bad dialect":       {"peers:\n  spiffe://x/y: {dialect: new}\n", "a dialect is"},
		"bad level":         {"peers:\n  spiffe://x/y: {min_level: L3}\n", "a minimum level is"},
		"gateway's URL":     {"peers:\n  spiffe://x/y: {gateway: \"http://gw.example/aepb/translate\"}\n", "[2:27] peers.'spiffe://x/y'.gateway"},
		"no gateway's":      {"peers:\n  spiffe://x/y: {callers: [\"spiffe://x/*\"]}\n", "[2:27] peers.'spiffe://x/y'.callers: only of"},
		"through nobody":    {"agents:\n  a:\n    endpoints: [{binding: ainp-v1, through: \"spiffe://x/y\"}]\n", "agents.'a'.endpoints[0].through: no peer"},
		"operator's id":     {"admin:\n  operators:\n    ann: {id: spiffe://x/*, roles: [viewer]}\n", "[3:10] admin.operators.'ann': policy: operator: \"spiffe://x/*\" is no exact"},
		"operator's role":   {"admin:\n  operators:\n    ann: {id: spiffe://x/y, roles: [root]}\n", "is no role"},
		"two in one":        {"admin:\n  operators:\n    ann: {id: spiffe://x/y, roles: [viewer]}\n    bob: {id: spiffe://x/y, roles: [viewer]}\n", "[4:15] admin.operators.'bob'.id"},
		"token in a file":   {"admin: {token: x}\n", "[1:9]"},
		"workload API":      {"identity: {workload_api: \"tcp://10.0.0.1:1\"}\n", "[1:26] identity.workload_api: identity: the Workload API has a wrong address"},
		"federated twice":   {"identity: {workload_api: \"unix:///a.sock\", federated: {b.example: b.pem}}\n", "identity.federated: the Workload API says"},
		"federated by id":   {"identity:\n  federated: {'spiffe://b.example': b.pem}\n", "identity.federated.'spiffe://b.example': no trust domain"},
		"federated self":    {"identity:\n  trust_domain: a.example\n  federated: {a.example: b.pem}\n", "identity.federated.'a.example': is our own"},
		"federated nothing": {"identity:\n  federated: {b.example: ''}\n", "identity.federated.'b.example': the file"},
		"two identities":    {"identity: {key: k, workload_api: \"unix:///a.sock\"}\n", "[1:34] identity.workload_api: stands instead"},
		"evidence":          {"state: {evidence_mib: -1}\n", "[1:23]"},
		"records":           {"state: {records: -1}\n", "[1:18] state.records"},
		"a caller's":        {"state: {records: 10, records_per_caller: 11}\n", "between 1 and 10"},
		"a caller's bytes":  {"state: {records_kib_per_caller: 32769}\n", "between 1 and 32768"},
		"answers":           {"state: {answers_mib: 65537}\n", "state.answers_mib"},
		"a caller's answer": {"state: {answers_mib: 1, answers_kib_per_caller: 1025}\n", "between 1 and 1024"},
		"sessions":          {"limits: {mcp_sessions: 65537}\n", "limits.mcp_sessions"},
		"share":             {"limits: {share: -1}\n", "limits.share"},
		"redis and a file":  {"state:\n  path: a.db\n  redis: {addresses: [\"127.0.0.1:1\"], plaintext: loopback}\n", "[2:9] state.path"},
		"redis nowhere":     {"state: {redis: {wait: 1}}\n", "nothing without addresses"},
		"redis address":     {"state: {redis: {addresses: [nowhere]}}\n", "[1:29] state.redis.addresses[0]: not host:port"},
		"redis far":         {"state: {redis: {plaintext: loopback, addresses: [\"192.0.2.1:6379\"]}}\n", "so it needs TLS"},
		"redis by name":     {"state: {redis: {plaintext: loopback, addresses: [\"redis.example:6379\"]}}\n", "so it needs TLS"},
		"redis plaintext":   {"state: {redis: {plaintext: everywhere, addresses: [\"127.0.0.1:1\"]}}\n", "[1:28] state.redis.plaintext"},
		"redis and TLS":     {"state: {redis: {plaintext: loopback, tls: {ca: a.pem}, addresses: [\"127.0.0.1:1\"]}}\n", "plaintext has none"},
		"redis half a TLS":  {"state: {redis: {tls: {key: a.pem}, addresses: [\"127.0.0.1:1\"]}}\n", "go together"},
		"redis wait":        {"state: {redis: {wait: -1, addresses: [\"127.0.0.1:1\"]}}\n", "[1:23] state.redis.wait"},
		"redis durability":  {"state: {redis: {durability: hoped, addresses: [\"127.0.0.1:1\"]}}\n", "[1:29] state.redis.durability"},
		"redis replicas":    {"state: {redis: {max_replicas: 1001, addresses: [\"127.0.0.1:1\"]}}\n", "[1:31] state.redis.max_replicas"},
		"redis timeout":     {"state: {redis: {timeout: 1m, addresses: [\"127.0.0.1:1\"]}}\n", "[1:26] state.redis.timeout"},
		"redis two ways":    {"state: {redis: {cluster: true, master: m, addresses: [\"127.0.0.1:1\"]}}\n", "[1:26] state.redis.cluster"},
		"unverified file":   {"state: {unverified: true, path: a.db}\n", "[1:21] state.unverified"},
		"unverified, key":   {"state: {unverified: true, key: k, redis: {plaintext: loopback, addresses: [\"127.0.0.1:1\"]}}\n", "leave out one of them"},
		"unverified how":    {"state: {unverified: maybe}\n", "[1:21]"},
		"redis username":    {"state: {redis: {username_file: u, addresses: [\"127.0.0.1:1\"]}}\n", "without a password"},
		"redis key":         {"state:\n  redis:\n    host: x\n", "[3:5]"},
		"two mistakes":      {"log: {level: loud}\npolicy: {hop_scope: all}\n", "[2:21]"},
		"not YAML":          {"a: [", "config:"},
		"too large":         {strings.Repeat("#", config.MaxSize+1), "longer than"},
	} {
		_, err := config.Parse([]byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want it to say %q", name, err, tc.says)
		}
	}
}

// whole is as little as serve takes.
const whole = `
public_url: https://gw.example
identity: {trust_domain: example.com, certificate: a.pem, key: b.pem, bundle: c.pem}
admin: {operators: {ann: {id: spiffe://example.com/ann, roles: [viewer]}}}
`

// Production names its identity; development makes one up.
func TestServe_RequiredSettings(t *testing.T) {
	t.Parallel()
	const redis = `state: {redis: {plaintext: loopback, addresses: ["127.0.0.1:1"]}`
	for name, tc := range map[string]struct {
		text string
		says []string
	}{
		"whole":      {whole, nil},
		"nothing":    {"", []string{"identity.certificate", "identity.key", "identity.bundle", "identity.trust_domain", "admin.operators", "public_url"}},
		"pushed":     {strings.Replace(whole, "certificate: a.pem, key: b.pem, bundle: c.pem", `workload_api: "unix:///a.sock"`, 1), nil},
		"no key":     {whole + redis + "}\n", []string{"state.key: missing", "state.unverified: true"}},
		"a key":      {whole + redis + ", key: k}\n", nil},
		"unverified": {whole + redis + ", unverified: true}\n", nil},
		"half a TLS": {whole + "tls: {key: x}\n", []string{"certificate and key go together"}},
		"plain http": {whole + `agents: {a: {endpoints: [{binding: a2a-v1, url: "http://127.0.0.1"}]}}`, []string{"https"}},
		"a bad name": {whole + `agents: {A: {endpoints: [{binding: a2a-v1, url: "https://a.example"}]}}`, []string{"a name is"}},
	} {
		c, err := config.Parse([]byte(tc.text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err = c.Serve()
		if (err == nil) != (tc.says == nil) {
			t.Errorf("%s: got %v", name, err)
		}
		for _, say := range tc.says {
			if err != nil && !strings.Contains(err.Error(), say) {
				t.Errorf("%s: %q is not in %v", name, say, err)
			}
		}
	}
}

// Whoever shares limits knows among how many.
func TestLimit_Replicas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 1,
		"state: {redis: {addresses: [\"redis.example:6379\"]}}":                  3,
		"state: {redis: {addresses: [\"redis.example:6379\"], max_replicas: 7}}": 7,
	} {
		c, err := config.Parse([]byte(text))
		if got := c.Limit().Replicas; err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
}

// FuzzConfig_Parse: a file is understood, and then every question about it has an
// answer, or each mistake in it has a place.
func FuzzConfig_Parse(f *testing.F) {
	f.Add([]byte("limits: {rate: 1}\n"))
	f.Add([]byte("agents: {a: {endpoints: [{binding: a2a-v1, url: x}]}}"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("policy: {hop_scope: sideways, gateways: [x]}\npeers: {\"a'b\": {dialect: 9}}\n"))
	f.Add([]byte(inAgent(undoing)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse(data)
		if err != nil {
			var mistake *config.Error
			if !errors.As(err, &mistake) || mistake.Line < 0 || mistake.Line > 1+strings.Count(string(data), "\n")+strings.Count(string(data), "\r") {
				t.Errorf("a mistake without a place: %v", err)
			}
			return
		}
		_ = c.Serve()
		_, _, _, _ = c.Constraints(), c.Gateways(), c.LogLevel(), c.Limit()
		if len(c.Directory(true)) != len(c.Agents) {
			t.Error("agents got lost")
		}
		for _, agent := range c.Directory(true) {
			if len(agent.Undo.Compensate) != len(c.Agents[agent.Name].Compensate) {
				t.Errorf("rules of %s got lost", agent.Name)
			}
		}
	})
}

// TestGRPC_NoECTsInBody: an agent cannot be reached over gRPC alone and have its
// ECTs in JSON.
func TestGRPC_NoECTsInBody(t *testing.T) {
	t.Parallel()
	const text = "agents:\n  a:\n    id: spiffe://example.com/a\n    endpoints:\n      - {binding: a2a-v1, url: https://a.example, grpc: a.example:50051}\n" +
		"peers:\n  spiffe://example.com/PEER: {ect_in_body: true}\n"
	var answer *config.Error
	if _, err := config.Parse([]byte(strings.Replace(text, "PEER", "a", 1))); !errors.As(err, &answer) || !strings.Contains(err.Error(), "ect_in_body") {
		t.Errorf("got %v", err)
	}
	if _, err := config.Parse([]byte(strings.Replace(text, "PEER", "b", 1))); err != nil {
		t.Errorf("another peer: %v", err)
	}
	if _, err := config.Parse([]byte(strings.NewReplacer("PEER", "a", ", grpc: a.example:50051", "").Replace(text))); err != nil {
		t.Errorf("over JSON: %v", err)
	}
}

func TestGRPC_Addresses(t *testing.T) {
	t.Parallel()
	const text = "public_grpc: PUBLIC\nagents:\n  a:\n    endpoints:\n      - {binding: a2a-v1, url: https://a.example, grpc: PLACE}\n"
	parse := func(public, place string) (config.Config, error) {
		return config.Parse([]byte(strings.NewReplacer("PUBLIC", `"`+public+`"`, "PLACE", `"`+place+`"`).Replace(text)))
	}
	c, err := parse("gw.example:8444", "a.example:50051")
	if err != nil || c.PublicRPC != "gw.example:8444" || c.Directory(false)[0].Endpoints[0].GRPC != "a.example:50051" {
		t.Errorf("got %+v %v", c, err)
	}
	for _, bad := range []string{"a.example", "a.example:0", "a.example:99999", ":1", "https://a.example:1", "a.example:1/x", "u@a.example:1"} {
		var answer *config.Error
		if _, err := parse("gw.example:1", bad); !errors.As(err, &answer) || !strings.Contains(err.Error(), "grpc") {
			t.Errorf("agent at %q: %v", bad, err)
		}
		if _, err := parse(bad, "a.example:1"); !errors.As(err, &answer) || !strings.Contains(err.Error(), "public_grpc") {
			t.Errorf("we at %q: %v", bad, err)
		}
	}
}

// TestRevision_Pinned: the key pins the MCP endpoint of an agent, and no other.
func TestRevision_Pinned(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte("agents:\n  a:\n    revision: 2025-11-25\n    endpoints:\n      - {binding: mcp-v1, url: https://a}\n      - {binding: a2a-v1, url: https://a}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if e := c.Directory(false)[0].Endpoints; e[0].Version != "2025-11-25" || e[1].Version != "" {
		t.Errorf("got %+v", e)
	}
}
