package arch_test

import (
	"fmt"
	"slices"
	"strings"
)

// border is one row of the import law. The first row that holds a folder judges it.
type border struct {
	room    string
	may     []string // our folders that it may import
	not     []string // exact packages it may not, although may would allow them
	because string
}

var borders = []border{
	{"translators/canonical", []string{"translators/canonical"}, nil, "the pivot knows nobody"},
	{"translators", []string{"translators"}, nil, "form is pure: no tokens, policy, network, clock"},
	{"ect", []string{"ect"}, nil, "evidence must not depend on what it testifies about"},
	{"policy", []string{"policy", "ect"}, nil, "policy reads evidence and decides; it knows neither form nor road"},
	{"lifecycle", []string{"lifecycle", "ect"}, nil, "lifecycle reads and writes evidence, nothing else"},
	{
		"gateway/transport",
		[]string{"gateway", "translators", "ect", "policy", "lifecycle"},
		[]string{"gateway"},
		"a wire serves the road; it must be testable without it",
	},
	{"gateway", []string{"gateway", "translators", "ect", "policy", "lifecycle"}, nil, "the roof stands on the pillars, and nothing above it is below it"},
	{"cmd", []string{"cmd", "gateway", "translators", "ect", "policy", "lifecycle"}, nil, "the door may open every room but the test room"},
	{"test", []string{""}, nil, "tests look everywhere"},
}

func importLaw(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		row, ok := borderOf(s.dir)
		if !ok {
			continue // top-level folders are the business of topLevel
		}
		for _, spec := range s.tree.Imports {
			target, ours := strings.CutPrefix(importPath(spec), module+"/")
			if ours && !row.allows(target) {
				failures = append(failures, fmt.Sprintf("%s: %s imports %s: %s", s.at(spec), row.room, target, row.because))
			}
		}
	}
	return failures
}

func borderOf(dir string) (border, bool) {
	for _, row := range borders {
		if under(dir, row.room) {
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

// room is where a third party lives. Every third party has a row: a new
// dependency is a decision. The test folder may use all of them.
type room struct {
	module  string
	rooms   []string // folders, with what lies below them
	tests   bool     // test files anywhere may use it too
	because string
}

var rooms = []room{
	{"github.com/gin-gonic/gin", []string{"gateway/httpapi"}, false, "one HTTP surface; handlers elsewhere are net/http"},
	{"github.com/spiffe/go-spiffe", []string{"ect/identity"}, false, "identities are ect.Identity outside"},
	{"github.com/golang-jwt/jwt", []string{"ect"}, false, "tokens are made and judged in one place"},
	{"github.com/redis/go-redis", []string{"gateway/state"}, false, "state is reached through the pillars' small interfaces"},
	{"github.com/tidwall/btree", []string{"gateway/state/evidence"}, false, "tables in order, in memory"},
	{"go.etcd.io/bbolt", []string{"gateway/state"}, false, "state is reached through the pillars' small interfaces"},
	{"github.com/alicebob/miniredis", []string{"gateway/state"}, true, "the store of a test"},
	{"github.com/prometheus", []string{"gateway/telemetry"}, false, "every metric name stands in one file"},
	{"golang.org/x/crypto", []string{"ect/internal/jose"}, false, "the numbers of a signature are read where signatures are made"},
	{"golang.org/x/time", []string{"policy/limit"}, false, "limits are counted in one place"},
	{"github.com/transparency-dev", []string{"ect/ledger"}, false, "the ledger is one implementation of an interface of ect"},
	{"google.golang.org/grpc", []string{"gateway/transport/slim", "gateway/transport/a2a", "ect/identity", "cmd/aepb-gateway/demo"}, false, "two wires speak it, the Workload API is called with it and played, and so are peers"},
	{"google.golang.org/protobuf", []string{"gateway/transport/slim", "gateway/transport/a2a", "cmd/aepb-gateway/demo"}, false, "a protobuf Struct rounds numbers; it stays at the wire that needs it"},
	{"google.golang.org/genproto", []string{"gateway/transport/a2a", "cmd/aepb-gateway/demo"}, false, "a status of gRPC and its details are messages of google.rpc"},
	{"github.com/coder/websocket", []string{"gateway/transport/ainp"}, true, "one wire speaks it; egress dials for it"},
	{"github.com/cespare/xxhash", []string{"gateway/transport/slim"}, false, "SLIM's nodes route by it; it is no hash for evidence"},
	{"github.com/goccy/go-yaml", []string{"gateway/config"}, true, "configuration is read in one place; a test may check that a shipped file is valid"},
	{"github.com/spf13", []string{"cmd"}, false, "flags are the door's"},
	{"github.com/go-json-experiment/json", []string{"translators", "ect", "gateway/httpapi", "gateway/directory", "gateway/transport/mcp/channel"}, true, "exact reading of what others send: messages, tokens, capability documents, operators' documents"},
	{"golang.org/x/sync", []string{"gateway", "cmd"}, false, "goroutines with an owner are the roof's"},
	{"github.com/gowebpki/jcs", []string{"ect"}, true, "canonical bytes are for hashing evidence; in translators it would round numbers"},
	{"github.com/google/uuid", []string{"ect", "gateway", "cmd"}, true, "whoever stamps ids; a translator never does"},
	{"github.com/a2aproject/a2a-go", []string{"cmd/aepb-gateway/demo", "gateway/transport/a2a"}, false, "we are tested against the SDK, not built from it; but the messages of A2A over gRPC are generated from its schema there"},
	{"github.com/modelcontextprotocol/go-sdk", []string{"cmd/aepb-gateway/demo"}, false, "we are tested against the SDKs, not built from them"},
	{"github.com/KimMachineGun/automemlimit", []string{"cmd/aepb-gateway"}, true, "the memory limits of both versions of cgroups, which serve reads at its start"},
	{"github.com/santhosh-tekuri/jsonschema", []string{"translators/internal/form"}, true, "values are held against schemas from outside in one place, which bounds both"},
	{"golang.org/x/text", []string{"translators/internal/form"}, false, "the reasons of jsonschema are said in a language"},
	{"github.com/google/go-cmp", nil, true, "comparison for tests"},
	{"github.com/rogpeppe/go-internal", nil, true, "scripts for tests"},
	{"golang.org/x/tools", nil, true, "archives of texts for tests"},
	{"go.uber.org/goleak", nil, true, "for tests"},
}

func thirdParties(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		for _, spec := range s.tree.Imports {
			target := importPath(spec)
			host, _, _ := strings.Cut(target, "/")
			if !strings.Contains(host, ".") || under(target, module) {
				continue
			}
			row, known := roomOf(target)
			switch {
			case !known:
				failures = append(failures, fmt.Sprintf("%s: %s has no room: add a row with its reason, or do without", s.at(spec), target))
			case !row.holds(s):
				failures = append(failures, fmt.Sprintf("%s: %s lives in %s: %s", s.at(spec), target, strings.Join(row.rooms, ", "), row.because))
			}
		}
	}
	return failures
}

func roomOf(target string) (room, bool) {
	for _, row := range rooms {
		if under(target, row.module) {
			return row, true
		}
	}
	return room{}, false
}

func (r room) holds(s *source) bool {
	return (r.tests && s.test) || s.in(r.rooms...) || s.in("test")
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
