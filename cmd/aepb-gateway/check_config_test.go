package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// badFile is a configuration with mistakes: each with where it is told, and a word of it.
type badFile struct {
	file string // DIR stands for the folder of keys
	want []string
}

const goodFile = `public_url: https://127.0.0.1:8443
listen: {public: "127.0.0.1:0", admin: "127.0.0.1:0"}
identity: {trust_domain: aepb.dev, certificate: DIR/gateway.pem, key: DIR/gateway-key.pem, bundle: DIR/trust-bundle.json}
admin: {operators: {ann: {id: "spiffe://aepb.dev/client", roles: [operator]}}}
`

// badFiles are forty files. The lines of what is added to the good one begin with the fifth.
func badFiles() map[string]badFile {
	agent := func(rest string) string { return goodFile + "agents:\n  calc:\n" + rest }
	swap := func(old, replacement string) string {
		if !strings.Contains(goodFile, old) {
			panic(old)
		}
		return strings.Replace(goodFile, old, replacement, 1)
	}
	return map[string]badFile{
		"empty":                          {"", []string{"[1:1] public_url", "[1:1] identity.certificate", "[1:1] identity.key", "[1:1] identity.bundle", "[1:1] identity.trust_domain", "[1:1] admin.operators"}},
		"no identity":                    {"public_url: https://a\nadmin: {operators: {ann: {id: \"spiffe://a/b\", roles: [operator]}}}\n", []string{"identity.certificate: required", "identity.key: required", "identity.bundle: required", "identity.trust_domain: required"}},
		"half an identity":               {swap("certificate: DIR/gateway.pem, ", ""), []string{"[3:1", "identity.certificate: required"}},
		"lost key":                       {swap("DIR/gateway-key.pem", "DIR/lost.pem"), []string{"[3:49] identity.certificate: ", "lost.pem"}},
		"another's key":                  {swap("DIR/gateway-key.pem", "DIR/client-key.pem"), []string{"[3:49] identity.certificate: "}},
		"lost bundle":                    {swap("DIR/trust-bundle.json", "/lost"), []string{"identity.bundle: open /lost"}},
		"plain public URL":               {swap("https://127.0.0.1:8443", "http://127.0.0.1:8443"), []string{"[1:13] public_url: "}},
		"public URL with a path":         {swap("https://127.0.0.1:8443", "https://127.0.0.1/x"), []string{"[1:13] public_url: "}},
		"no port":                        {swap(`public: "127.0.0.1:0"`, `public: "8777"`), []string{"[2:18] listen.public: "}},
		"the same port twice":            {swap(`{public: "127.0.0.1:0", admin: "127.0.0.1:0"}`, `{public: "127.0.0.1:8443", admin: "127.0.0.1:8443"}`), []string{"[2:43] listen.admin: the same address as listen.public"}},
		"an unknown role":                {swap("[operator]", "[admin]"), []string{"[4:26] admin.operators.'ann': ", "admin"}},
		"an operator without id":         {swap(`id: "spiffe://aepb.dev/client", `, ""), []string{"admin.operators.'ann'"}},
		"no operator":                    {swap(`admin: {operators: {ann: {id: "spiffe://aepb.dev/client", roles: [operator]}}}`, "admin: {}"), []string{"[4:8] admin.operators: at least one"}},
		"half a certificate":             {goodFile + "tls: {certificate: DIR/gateway.pem}\n", []string{"[5:6] tls: certificate and key go together"}},
		"lost certificate":               {goodFile + "tls: {certificate: /lost, key: /lost}\n", []string{"[5:20] tls.certificate: open /lost"}},
		"lost issuers":                   {goodFile + "peers:\n  spiffe://a/b: {keys: /lost}\n", []string{"[6:24] peers.'spiffe://a/b'.keys: "}},
		"lost state key":                 {goodFile + "state: {key: /lost, path: /x}\n", []string{"[5:14] state.key: open /lost"}},
		"a role that decides nothing":    {goodFile + "policy:\n  approvals:\n    - {tool: x, role: viewer}\n", []string{"[7:23] policy.approvals[0].role: "}},
		"an approver that is not listed": {goodFile + "policy:\n  approvals:\n    - {tool: x, role: \"operator:bob\"}\n", []string{"policy.approvals: no operator of admin.operators has the name bob"}},
		"a rule without a condition":     {goodFile + "policy:\n  approvals:\n    - {wait: 5m}\n", []string{"policy.approvals[0]: it has no condition"}},
		"lost API keys":                  {goodFile + "api_keys: {file: /lost}\n", []string{"[5:18] api_keys.file: apikey: open /lost"}},
		"API keys of no form":            {goodFile + "api_keys: {file: DIR/gateway.pem}\n", []string{"[5:18] api_keys.file: apikey: expected one YAML list"}},
		"lost policy":                    {goodFile + "policy:\n  document: /lost\n", []string{"[6:13] policy.document: open /lost"}},
		"lost key of AINP":               {goodFile + "ainp:\n  key: /lost\n", []string{"[6:8] ainp.key: open /lost"}},
		"Redis without a key":            {goodFile + "state: {redis: {addresses: [\"127.0.0.1:6379\"], plaintext: loopback}}\n", []string{"[5:8] state.key: missing"}},
		"Redis without TLS":              {goodFile + "state: {unverified: true, redis: {addresses: [\"10.0.0.1:6379\"], plaintext: loopback}}\n", []string{"[5:47] state.redis.addresses[0]"}},
		"datagrams":                      {goodFile + "listen_: 1\n", []string{"[5:1] listen_: unknown field"}},
		"a secret that is too short":     {goodFile + "slim: {nodes: [{url: \"https://n:1\", id: \"spiffe://a/n\", shared_secret_file: DIR/admin-token-that-is-lost}]}\n", []string{"slim.nodes[0]"}},
		"memory":                         {goodFile + "limits: {memory_mib: 10}\n", []string{"limits.memory_mib"}},
		"a rate in words":                {goodFile + "limits: {rate: fast, burst: many}\nlog: {level: loud}\n", []string{"[5:16] limits.rate", "[5:29] limits.burst", "[6:14] log.level"}},
		"a time without a unit":          {goodFile + "timeout: 60\n", []string{"[5:10] timeout"}},
		"a loss that is none":            {goodFile + "policy: {allow_losses: [L01, L99]}\n", []string{"[5:30] policy.allow_losses[1]"}},
		"an unknown binding":             {agent("    endpoints: [{binding: mcp, url: \"https://a\"}]\n"), []string{"[7:27] agents.'calc'.endpoints[0].binding"}},
		"no endpoint":                    {agent("    callers: [\"spiffe://a/*\"]\n"), []string{"agents.'calc': at least one endpoint"}},
		"a plain URL":                    {agent("    endpoints: [{binding: mcp-v1, url: \"http://a\"}]\n"), []string{"agents.'calc': the endpoint must be an https URL"}},
		"no URL":                         {agent("    endpoints: [{binding: mcp-v1, url: \"npx server\"}]\n"), []string{"agents.'calc': the endpoint is not an absolute URL", "--stdio"}},
		"two documents":                  {goodFile + "---\nfoo: 1\n", []string{"[6:4] a second document begins here"}},
		"a peer without an id":           {goodFile + "peers: {gw2: {}}\n", []string{"[5:14] peers.'gw2': a peer has the name of its SPIFFE id"}},
		"no folder for the state":        {goodFile + "state: {path: /lost/state.db}\n", []string{"[5:15] state.path: the folder of the file cannot be used: stat /lost"}},
		"an operator of strangers":       {swap("spiffe://aepb.dev/client", "spiffe://other.test/ann"), []string{"[4:31] admin.operators.'ann'.id: nothing vouches for the trust domain"}},
		"mistakes of three agents": {agent("    endpoints: [{binding: mcp-v1, url: \"https://a\", priority: high}]\n  Big: {id: x, endpoints: [{binding: mcp-v1, url: \"ftp://a\"}]}\n  third: {callers: [\"spiffe://a/*\"]}\n"), []string{
			"[7:63] agents.calc.endpoints[0].priority", "agents.'Big': a name is", "agents.'Big': the id is not", "agents.'Big': the endpoint must be", "agents.'third': at least one endpoint",
		}},
		"no SPIFFE id":                   {agent("    id: calc\n    endpoints: [{binding: mcp-v1, url: \"https://a\"}]\n"), []string{"agents.'calc': the id"}},
		"a caller that is no id":         {agent("    callers: [alice]\n    endpoints: [{binding: mcp-v1, url: \"https://a\"}]\n"), []string{"[7:15] agents.'calc'.callers[0]"}},
		"a name with capitals":           {goodFile + "agents:\n  Calc:\n    endpoints: [{binding: mcp-v1, url: \"https://a\"}]\n", []string{"[7:14] agents.'Calc': a name is"}},
		"no such program":                {agent("    endpoints: [{binding: mcp-v1, program: {command: [no-such-program]}}]\n"), []string{"agents.'calc'.endpoints[0].program.command", "no-such-program"}},
		"a program and a URL":            {agent("    endpoints: [{binding: mcp-v1, url: \"https://a\", program: {command: [sh]}}]\n"), []string{"agents.'calc'.endpoints[0].program: "}},
		"a program for A2A":              {agent("    endpoints: [{binding: a2a-v1, program: {command: [sh]}}]\n"), []string{"agents.'calc': a program speaks mcp-v1"}},
		"a dialect":                      {goodFile + "peers:\n  spiffe://a/b: {dialect: klingon}\n", []string{"[6:27] peers.'spiffe://a/b'.dialect"}},
		"mistakes of all kinds":          {swap("https://127.0.0.1:8443", "http://x") + "limits: {rate: fast}\nstate: {key: /lost, path: /x}\nagents:\n  calc:\n    endpoints: [{binding: mcp, url: 7}]\nnosuch: 1\n", []string{"[1:13] public_url", "[5:16] limits.rate", "[6:14] state.key", "[9:27] agents.'calc'.endpoints[0].binding", "[10:1] nosuch"}},
		"a group without members":        {goodFile + "consensus:\n  groups:\n    team:\n      proposers: {\"spiffe://a/b\": 1}\n", []string{"consensus.groups.'team': consensus: group \"team\": it has 1 to 500 members"}},
		"a group without proposers":      {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}]\n", []string{"consensus.groups.'team': consensus: group \"team\": it has no proposers"}},
		"a member twice":                 {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}, {id: \"spiffe://a/b\"}]\n      proposers: {\"spiffe://a/b\": 1}\n", []string{"each once"}},
		"a member that is a prefix":      {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/*\"}]\n      proposers: {\"spiffe://a/b\": 1}\n", []string{"SPIFFE ids"}},
		"a proposer that is no id":       {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}]\n      proposers: {alice: 1}\n", []string{"SPIFFE ids"}},
		"a leader that is no id":         {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}]\n      proposers: {\"spiffe://a/b\": 1}\n      leader: alice\n", []string{"SPIFFE ids"}},
		"a weight that is too large":     {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\", weight: 1000001}]\n      proposers: {\"spiffe://a/b\": 1}\n", []string{"weight"}},
		"an unknown mechanism":           {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}]\n      proposers: {\"spiffe://a/b\": 1}\n      mechanisms: [dice]\n", []string{"is no mechanism"}},
		"too many faulty members":        {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}]\n      proposers: {\"spiffe://a/b\": 1}\n      max_faulty: 1\n", []string{"max_faulty"}},
		"an unknown strategy":            {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}]\n      proposers: {\"spiffe://a/b\": 1}\n      deadlock: coin\n", []string{"breaks no deadlock"}},
		"a round of a month":             {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}]\n      proposers: {\"spiffe://a/b\": 1}\n      longest: 720h\n", []string{"between 1s and 168h"}},
		"an authority of four":           {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}]\n      proposers: {\"spiffe://a/b\": 4}\n", []string{"authority"}},
		"a threshold of all":             {goodFile + "consensus:\n  groups:\n    team:\n      members: [{id: \"spiffe://a/b\"}]\n      proposers: {\"spiffe://a/b\": 1}\n      threshold: 100\n", []string{"threshold"}},
		"a group with a path for a name": {goodFile + "consensus:\n  groups:\n    a/b:\n      members: [{id: \"spiffe://a/b\"}]\n      proposers: {\"spiffe://a/b\": 1}\n", []string{"the name of a group"}},
		"no YAML":                        {goodFile + "limits: {rate: [1\n", []string{"[5:"}},
	}
}

// TestCheckConfig_SixtyBadFiles: each mistake of a file is found in one run, with its place,
// and whatever serve refuses at its start does not pass.
func TestCheckConfig_SixtyBadFiles(t *testing.T) {
	t.Parallel()
	files := badFiles()
	if len(files) != 64 {
		t.Errorf("%d files", len(files))
	}
	dir := t.TempDir()
	_, err := identity.LoadOrCreate(dir, gatewaytest.TrustDomain, time.Now)
	gatewaytest.Must(t, err)
	placed := regexp.MustCompile(`(?m)^([^ ]+: )?config: \[\d+:\d+\] `)
	for name, bad := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "gateway.yaml")
			gatewaytest.Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(bad.file, "DIR", dir)), 0o600))
			_, err := checked(file)
			if err == nil {
				t.Fatal("ok")
			}
			for _, want := range bad.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("not told: %s\n%s", want, err)
				}
			}
			if name == "a caller that is no id" && strings.Count(err.Error(), "alice") != 1 {
				t.Errorf("told more than once: %s", err)
			}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !placed.MatchString(line) {
					t.Errorf("without a place: %s", line)
				}
			}
			if started := serve(t.Context(), file, io.Discard, io.Discard); started == nil || !strings.Contains(started.Error(), bad.want[len(bad.want)-1]) {
				t.Errorf("serve: %v", started)
			}
		})
	}
}

// TestCheckConfig_WarnsWithoutARuleAboutCriticalErrors: where there are operators, check-config says that no rule holds a
// workflow after a critical error (ATD, HITL Escalation on Error).
func TestCheckConfig_WarnsWithoutARuleAboutCriticalErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := identity.LoadOrCreate(dir, gatewaytest.TrustDomain, time.Now)
	gatewaytest.Must(t, err)
	for rules, warned := range map[string]bool{
		"": true,
		"policy:\n  approvals:\n    - {tool: x}\n":                          true,
		"policy:\n  approvals:\n    - {severity: error}\n":                  true,
		"policy:\n  approvals:\n    - {severity: critical}\n":               false,
		"policy:\n  approvals:\n    - {severity: critical, action: stop}\n": false,
	} {
		file := filepath.Join(t.TempDir(), "gateway.yaml")
		gatewaytest.Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(goodFile, "DIR", dir)+rules), 0o600))
		cmd := checkConfigCommand()
		var out strings.Builder
		cmd.SetArgs([]string{file})
		cmd.SetOut(&out)
		gatewaytest.Must(t, cmd.Execute())
		if got := strings.Contains(out.String(), "no rule about critical errors"); got != warned || !strings.Contains(out.String(), "ok\n") {
			t.Errorf("%q: %s", rules, out.String())
		}
	}
}

// TestCheckConfig_Warns: settings that serve accepts but that are probably mistakes are reported as warnings, and the
// command succeeds. serve logs the same warnings at its start.
func TestCheckConfig_Warns(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(dir, text string) string
		want   string
	}{
		"nothing": {func(_, text string) string { return text }, ""},
		"a key that all can read": {func(dir, text string) string {
			gatewaytest.Must(t, os.Chmod(filepath.Join(dir, "gateway-key.pem"), 0o644))
			return text
		}, "warning: identity.key: all users of this machine can read the secret in "},
		"a name that is not in the certificate": {func(_, text string) string {
			return strings.Replace(text, "https://127.0.0.1:8443", "https://gw.example.com", 1)
		}, "warning: public_url: callers are sent to gw.example.com, and the certificate is for localhost, 127.0.0.1, ::1: "},
		"a certificate of its own": {func(_, text string) string {
			return strings.Replace(text, "https://127.0.0.1:8443", "https://gw.example.com", 1) + "tls: {certificate: DIR/gateway.pem, key: DIR/gateway-key.pem}\n"
		}, "warning: public_url: callers are sent to gw.example.com, "},
		"operators from everywhere": {func(_, text string) string {
			return strings.Replace(text, `admin: "127.0.0.1:0"`, `admin: ":0"`, 1)
		}, "warning: listen.admin: the API of operators listens on all addresses of this machine (:0) -> "},
	} {
		dir, file := gatewaytest.Operated(t, "policy: {approvals: [{severity: critical}]}\n")
		text, err := os.ReadFile(file)
		gatewaytest.Must(t, err)
		gatewaytest.Must(t, os.WriteFile(file, []byte(strings.ReplaceAll(tc.change(dir, string(text)), "DIR", dir)), 0o600))
		cmd := checkConfigCommand()
		var out strings.Builder
		cmd.SetArgs([]string{file})
		cmd.SetOut(&out)
		if err := cmd.Execute(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if warned := strings.Count(out.String(), "warning: "); !strings.Contains(out.String(), tc.want) || warned != min(len(tc.want), 1) {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}
