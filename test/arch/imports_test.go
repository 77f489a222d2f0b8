package arch_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// border is one row of the import rule. The first row whose folder holds a package applies to it.
type border struct {
	folder  string
	may     []string // our folders that it may import
	not     []string // exact packages it may not, although may would allow them
	because string
}

var borders = []border{
	{"translators/canonical", []string{"translators/canonical"}, nil, "the canonical message knows no protocol and no other package"},
	{"translators", []string{"translators"}, nil, "codecs are pure: no tokens, policy, network or clock"},
	{"ect", []string{"ect"}, nil, "evidence must not depend on what it proves"},
	{"policy", []string{"policy", "ect"}, nil, "policy reads evidence and decides; it knows neither codecs nor the pipeline"},
	{"lifecycle", []string{"lifecycle", "ect"}, nil, "lifecycle reads and writes evidence, nothing else"},
	{
		"gateway/transport",
		[]string{"gateway", "translators", "ect", "policy", "lifecycle"},
		[]string{"gateway"},
		"a transport serves the pipeline; it must be testable without it",
	},
	{"gateway", []string{"gateway", "translators", "ect", "policy", "lifecycle"}, nil, "the gateway uses the other layers, and never the programs or the tests"},
	{"cmd", []string{"cmd", "gateway", "translators", "ect", "policy", "lifecycle"}, nil, "programs may use every package except tests"}, // their tests may use test/harness
	{"test", []string{""}, nil, "tests may use every package"},
}

func importLaw(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		row, ok := borderOf(s.dir)
		if !ok {
			continue // topLevel checks top-level folders
		}
		for _, spec := range s.tree.Imports {
			target, ours := strings.CutPrefix(importPath(spec), module+"/")
			if ours && !row.allows(target) && !(s.test && s.in("cmd", "gateway/server") && under(target, "test/harness")) {
				failures = append(failures, fmt.Sprintf("%s: %s imports %s: %s", s.at(spec), row.folder, target, row.because))
			}
		}
	}
	return failures
}

func borderOf(dir string) (border, bool) {
	for _, row := range borders {
		if under(dir, row.folder) {
			return row, true
		}
	}
	return border{}, false
}

func (b border) allows(target string) bool {
	if slices.Contains(b.not, target) {
		return false
	}
	for _, folder := range b.may {
		if folder == "" || under(target, folder) {
			return true
		}
	}
	return false
}

// thirdParty says where a third-party module may be imported. Every module has a row: a new
// dependency is a decision. The test folder may use all of them.
type thirdParty struct {
	module  string
	folders []string // with the folders below them
	tests   bool     // test files anywhere may use it too
	because string
}

var modules = []thirdParty{
	{"github.com/gin-gonic/gin", []string{"gateway/httpapi"}, false, "one HTTP surface; handlers elsewhere are net/http"},
	{"github.com/spiffe/go-spiffe", []string{"ect/identity"}, false, "identities are ect.Identity outside"},
	{"github.com/golang-jwt/jwt", []string{"ect"}, false, "tokens are made and judged in one place"},
	{"github.com/redis/go-redis", []string{"gateway/state"}, false, "other packages use state through small interfaces of their own"},
	{"github.com/tidwall/btree", []string{"gateway/state/evidence"}, false, "ordered tables in memory"},
	{"go.etcd.io/bbolt", []string{"gateway/state"}, false, "other packages use state through small interfaces of their own"},
	{"github.com/alicebob/miniredis", []string{"gateway/state"}, true, "a store for tests"},
	{"github.com/prometheus", []string{"gateway/telemetry"}, false, "every metric name stands in one file"},
	{"golang.org/x/crypto", []string{"ect/internal/jose"}, false, "the numbers of a signature are read where signatures are made"},
	{"golang.org/x/time", []string{"policy/limit"}, false, "limits are counted in one place"},
	{"github.com/transparency-dev", []string{"ect/ledger"}, false, "the ledger is one implementation of an interface of ect"},
	{"google.golang.org/grpc", []string{"gateway/transport/slim", "gateway/transport/a2a", "ect/identity", "cmd/aepb-gateway/demo"}, false, "two transports and the client of the Workload API use it, and the demo's peers"},
	{"google.golang.org/protobuf", []string{"gateway/transport/slim", "gateway/transport/a2a", "cmd/aepb-gateway/demo"}, false, "a protobuf Struct rounds numbers; it stays in the transports that need it"},
	{"google.golang.org/genproto", []string{"gateway/transport/a2a", "cmd/aepb-gateway/demo"}, false, "a status of gRPC and its details are messages of google.rpc"},
	{"github.com/coder/websocket", []string{"gateway/transport/ainp"}, true, "one transport uses it; egress dials for it"},
	{"github.com/cespare/xxhash", []string{"gateway/transport/slim"}, false, "SLIM's nodes route by it; it is no hash for evidence"},
	{"github.com/goccy/go-yaml", []string{"gateway/config", "ect/identity/apikey"}, true, "configuration is read in one place, and the file of API keys in another; a test may check that a shipped file is valid"},
	{"github.com/spf13", []string{"cmd"}, false, "only the programs have flags"},
	{"github.com/go-json-experiment/json", []string{"translators", "ect", "gateway/httpapi", "gateway/directory", "gateway/transport/mcp/channel", "gateway/breakers/peers", "lifecycle/compensation", "lifecycle/descriptor", "policy/consensus", "cmd/aepbctl/consensus", "cmd/aepbctl/proof"}, true, "exact reading of what others send: messages, tokens, capability documents, operators' documents and rules, events of other gateways"},
	{"golang.org/x/sync", []string{"gateway", "cmd"}, false, "only the gateway and the programs start goroutines"},
	{"golang.org/x/net/http/httpguts", []string{"gateway/transport/egress"}, false, "what a header may hold, as net/http has it, where requests are written"},
	{"github.com/gowebpki/jcs", []string{"ect"}, true, "canonical bytes are for hashing evidence; in translators it would round numbers"},
	{"github.com/google/uuid", []string{"ect", "gateway", "cmd"}, true, "for packages that make ids; a translator never does"},
	{"github.com/a2aproject/a2a-go", []string{"cmd/aepb-gateway/demo", "gateway/transport/a2a"}, false, "we are tested against the SDK, not built from it; but the messages of A2A over gRPC are generated from its schema there"},
	{"github.com/modelcontextprotocol/go-sdk", []string{"cmd/aepb-gateway/demo"}, false, "we are tested against the SDKs, not built from them"},
	{"github.com/KimMachineGun/automemlimit", []string{"gateway/server", "cmd/aepb-gateway"}, true, "the memory limits of both versions of cgroups, which serve reads at its start"},
	{"github.com/santhosh-tekuri/jsonschema", []string{"translators/internal/form"}, true, "values are held against schemas from outside in one place, which bounds both"},
	{"golang.org/x/text", []string{"translators/internal/form"}, false, "jsonschema needs it for the language of its reasons"},
	{"github.com/google/go-cmp", nil, true, "comparison for tests"},
	{"github.com/rogpeppe/go-internal", nil, true, "scripts for tests"},
	{"golang.org/x/tools", nil, true, "archives of texts for tests"},
	{"go.uber.org/goleak", nil, true, "for tests"},
}

// thirdParties judges what enters the module; folders with a go.mod of their own are others.
func thirdParties(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if t.elsewhere(s.dir) {
			continue
		}
		for _, spec := range s.tree.Imports {
			target := importPath(spec)
			host, _, _ := strings.Cut(target, "/")
			if !strings.Contains(host, ".") || under(target, module) {
				continue
			}
			row, known := moduleOf(target)
			switch {
			case !known:
				failures = append(failures, fmt.Sprintf("%s: %s has no row: add one with its reason to modules in test/arch/imports_test.go, or do without", s.at(spec), target))
			case !row.holds(s):
				failures = append(failures, fmt.Sprintf("%s: %s may be imported in %s: %s", s.at(spec), target, strings.Join(row.folders, ", "), row.because))
			}
		}
	}
	return failures
}

// elsewhere reports whether a folder belongs to a module below ours.
func (t tree) elsewhere(dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := t.files[dir+"/go.mod"]; ok {
			return true
		}
	}
	return false
}

func moduleOf(target string) (thirdParty, bool) {
	for _, row := range modules {
		if under(target, row.module) {
			return row, true
		}
	}
	return thirdParty{}, false
}

func (p thirdParty) holds(s *source) bool {
	return (p.tests && s.test) || s.in(p.folders...) || s.in("test")
}

// impure lists what form has no use for: a codec is a function of its input.
var impure = map[string]string{
	"net": "no network", "os": "no files, no environment", "os/exec": "no processes", "io/fs": "no files",
	"context": "its absence says that nothing here waits", "log/slog": "losses are values, never log lines",
	"math/rand/v2": "no chance", "crypto/rand": "no ids of its own", "time/tzdata": "no clock",
	"sync": "nothing shared", "sync/atomic": "nothing shared", "unsafe": "no tricks",
}

// pureForm: translators are pure, and so are the state machines of lifecycle. The contract suite plays many callers and
// damaged input, so it is no codec.
func pureForm(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if s.test || !s.in("translators", "lifecycle") || s.in("translators/translatortest") {
			continue
		}
		for _, spec := range s.tree.Imports {
			if why := impure[importPath(spec)]; why != "" {
				failures = append(failures, fmt.Sprintf("%s: pure code imports %s: %s", s.at(spec), importPath(spec), why))
			}
		}
		s.uses(clock(s, &failures))
	}
	return failures
}
