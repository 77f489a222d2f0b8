package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/builtin"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

var schemaFile = filepath.Join(documents, "configuration.schema.json")

// object is a JSON object of the schema.
type object = map[string]any

// mostOfLimit is the largest value of most limits (check.go).
const mostOfLimit = 1 << 20

// rules are what the checks of the package say about a value, by the path of its key: of a list or a
// map about each of its values. What follows a # is about the keys of a map.
func rules() map[string]object {
	var losses, roles, bindings []string
	for _, entry := range canonical.Catalogue() {
		losses = append(losses, string(entry.Code))
	}
	for _, role := range policy.Roles() {
		roles = append(roles, string(role))
	}
	for _, form := range builtin.Forms(translators.Config{}) {
		bindings = append(bindings, string(form.Info().Binding))
	}
	levels := enum("L1", "L2")
	all := map[string]object{
		"log.level":                       enum("debug", "info", "warn", "error"),
		"state.evidence_mib":              between(0, 1<<20),
		"state.records":                   between(0, 1<<24),
		"state.records_mib":               between(0, 65536),
		"state.records_per_caller":        between(0, 1<<24),
		"state.records_kib_per_caller":    between(0, 65536<<10),
		"state.answers_mib":               between(0, 65536),
		"state.answers_kib_per_caller":    between(0, 65536<<10),
		"state.redis.wait":                between(0, 16),
		"state.redis.durability":          enum("asserted"),
		"state.redis.max_replicas":        between(0, 1000),
		"state.redis.plaintext":           enum("loopback"),
		"limits.rate":                     between(0, 1e9),
		"limits.burst":                    {"minimum": 0},
		"limits.memory_mib":               between(192, mostOfLimit),
		"limits.mcp_sessions":             between(0, 1<<16),
		"limits.background":               between(0, 10_000),
		"policy.min_protocol_security":    enum("tls-1.3"),
		"policy.max_translation_hops":     {"minimum": 0},
		"policy.hop_scope":                enum("path", "ancestry"),
		"policy.min_level":                levels,
		"policy.allow_losses":             enum(losses...),
		"policy.gateways":                 pattern("^spiffe://"),
		"policy.circuit_threshold":        {"type": []string{"string", "number"}, "pattern": `^(0(\.[0-9]{1,3})?|1(\.0{1,3})?)$`, "exclusiveMinimum": 0, "maximum": 1},
		"policy.circuit_samples":          between(0, policy.MaxCircuitSamples),
		"policy.escalation_url":           pattern("^https://"),
		"admin.operators.NAME.id":         pattern("^spiffe://[^*#]+$"),
		"admin.operators.NAME.roles":      enum(roles...),
		"admin.operators":                 {"required": []string{"id", "roles"}},
		"peers#":                          pattern("^spiffe://[^*#]+$"),
		"peers.NAME.gateway":              pattern("^https://"),
		"peers.NAME.dialect":              enum("seed", "00", "01", "dual"),
		"peers.NAME.min_level":            levels,
		"agents#":                         pattern(`^[a-z0-9][a-z0-9._-]{0,62}$`),
		"agents.NAME.id":                  pattern("^spiffe://[^/*#]+/[^*#]+$"),
		"agents.NAME.callers":             pattern("^spiffe://"),
		"agents.NAME.revision":            enum(mcp.Revisions()...),
		"agents.NAME.expose":              enum("tools", "prompts", "resources"),
		"agents.NAME.ect_assurance_level": enum("L1", "L2", "L3"),
		"agents.NAME.endpoints": {"anyOf": []object{
			{"required": []string{"through"}}, {"properties": object{"binding": enum(bindings...)}},
		}},
		"agents.NAME.endpoints[].priority":           {"minimum": 0},
		"agents.NAME.endpoints[].form":               enum("enveloped", "bare", "tagged"),
		"agents.NAME.endpoints[].did":                pattern("^did:(key|web):"),
		"agents.NAME.endpoints[].signature":          enum("draft", "jcs-raw", "none"),
		"agents.NAME.endpoints[].program.memory_mib": between(0, 64<<10),
		"ainp.did":                               pattern("^did:(key|web):"),
		"ainp.callers":                           pattern("^spiffe://[^*#]+$"),
		"ainp.callers#":                          pattern("^did:(key|web):"),
		"slim.nodes":                             {"required": []string{"url", "organization", "namespace"}},
		"slim.nodes[].url":                       pattern("^https?://[^/?#@]+/?$"),
		"slim.nodes[].organization":              pattern("^[a-zA-Z0-9._-]{1,63}$"),
		"slim.nodes[].namespace":                 pattern("^[a-zA-Z0-9._-]{1,63}$"),
		"slim.nodes[].groups":                    between(-1, 1024),
		"slim.nodes[].jwt":                       {"required": []string{"key", "keys", "issuer"}},
		"slim.nodes[].jwt.callers":               pattern("^spiffe://[^*#]+$"),
		"agents.NAME.lifecycle":                  {"dependentRequired": object{"status": []string{"reason"}}},
		"agents.NAME.lifecycle.status":           enum("active", "deprecated", "draining"),
		"agents.NAME.rollback":                   enum("own"),
		"agents.NAME.read_only":                  {"minLength": 1, "maxLength": 128},
		"agents.NAME.compensate#":                {"minLength": 1, "maxLength": 128, "not": object{"const": "*"}},
		"agents.NAME.compensate":                 {"required": []string{"tool"}},
		"agents.NAME.compensate.NAME.before":     {"required": []string{"tool"}},
		"consensus.groups#":                      pattern(`^[a-z0-9][a-z0-9._-]{0,62}$`),
		"consensus.groups":                       {"required": []string{"members", "proposers"}},
		"consensus.groups.NAME.members":          {"required": []string{"id"}},
		"consensus.groups.NAME.members[].id":     pattern("^spiffe://[^*#]+$"),
		"consensus.groups.NAME.members[].weight": between(0, 1_000_000),
		"consensus.groups.NAME.proposers#":       pattern("^spiffe://[^*#]+$"),
		"consensus.groups.NAME.proposers":        between(0, 3),
		"consensus.groups.NAME.mechanisms":       enum("majority", "weighted", "leader", "optimistic"),
		"consensus.groups.NAME.leader":           pattern("^spiffe://[^*#]+$"),
		"consensus.groups.NAME.threshold":        between(0, 99),
		"consensus.groups.NAME.max_faulty":       between(0, 249),
		"consensus.groups.NAME.deadlock":         enum("escalate", "oldest", "random"),
		"oauth#":                                 pattern(oauth.NamePattern),
		"oauth":                                  {"required": []string{"issuer", "identities"}},
		"oauth.NAME.issuer":                      pattern("^https://"),
		"oauth.NAME.jwks_url":                    pattern("^https://"),
		"oauth.NAME.algorithms":                  enum(oauth.Algorithms()...),
		"oauth.NAME.identities":                  {"required": []string{"path"}},
		"oauth.NAME.introspection.url":           pattern("^https://"),
		"oauth.NAME.proxies":                     pattern("^spiffe://[^*#]+$"),
		"lifecycle":                              {"dependentRequired": object{"status": []string{"reason"}}},
		"lifecycle.status":                       enum("active", "deprecated", "draining"),
	}
	for _, name := range []string{"connections", "connections_per_address", "requests", "streams", "in_flight_mib", "share"} {
		all["limits."+name] = between(0, mostOfLimit)
	}
	for _, name := range []string{"total", "per_caller", "unidentified", "per_address"} {
		all["listen.uacp_connections."+name], all["ainp.sockets."+name] = between(0, mostOfLimit), between(0, mostOfLimit)
	}
	return all
}

func enum(values ...string) object       { return object{"enum": values} }
func pattern(text string) object         { return object{"pattern": text} }
func between(least, most float64) object { return object{"minimum": least, "maximum": most} }

// durations are those of Go that are not negative; the number 0 is one too.
func durations() object {
	return object{
		"type": []string{"string", "integer"}, "minimum": 0, "maximum": 0,
		"pattern": `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`,
	}
}

// schemaOf is the schema of a section.
func schemaOf(keys []key, rules map[string]object) object {
	properties := object{}
	for _, k := range keys {
		value := valueOf(k, rules)
		switch k.kind {
		case "list":
			value = object{"type": "array", "items": value}
		case "map":
			value = object{"type": []string{"object", "null"}, "additionalProperties": value}
			if names, ok := rules[k.path+"#"]; ok {
				value["propertyNames"] = names
			}
		}
		value["description"] = k.text
		properties[k.name] = value
	}
	return object{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}

func valueOf(k key, rules map[string]object) object {
	value := object{}
	switch k.of {
	case "string":
		value["type"] = "string"
	case "bool":
		value["type"] = "boolean"
	case "int", "int64":
		value["type"] = "integer"
	case "float64":
		value["type"] = "number"
	case "Duration":
		value = durations()
	case "Patterns":
		value["type"], value["items"] = "array", object{"type": "string"}
	case "Arguments":
		value["type"] = []string{"object", "null"}
	default:
		value = schemaOf(k.keys, rules)
	}
	maps.Copy(value, rules[k.path])
	return value
}

func TestSchema_IsThatOfTheCode(t *testing.T) {
	t.Parallel()
	keys, all := declared(t), rules()
	schema := schemaOf(keys, all)
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "Configuration of aepb-gateway"
	schema["$comment"] = "Generated from gateway/config by make vectors."
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	compare(t, schemaFile, text.String())

	known := map[string]bool{}
	each(keys, func(k key) { known[k.path] = true })
	for path := range all {
		if !known[strings.TrimSuffix(path, "#")] {
			t.Errorf("a rule is about %s, which is no key", path)
		}
	}
}

// TestSchema_HasTheKeysOfTheParser: the parser reads the fields of config.Config, found here by
// reflection and not from the source.
func TestSchema_HasTheKeysOfTheParser(t *testing.T) {
	t.Parallel()
	var parsed, described []string
	fields(reflect.TypeFor[config.Config](), "", &parsed)
	properties(document(t), "", &described)
	slices.Sort(parsed)
	slices.Sort(described)
	for _, path := range parsed {
		if !slices.Contains(described, path) {
			t.Errorf("the schema lacks %s", path)
		}
	}
	for _, path := range described {
		if !slices.Contains(parsed, path) {
			t.Errorf("the parser lacks %s", path)
		}
	}
}

func fields(of reflect.Type, prefix string, paths *[]string) {
	switch of.Kind() {
	case reflect.Pointer:
		fields(of.Elem(), prefix, paths)
	case reflect.Map:
		fields(of.Elem(), prefix+".NAME", paths)
	case reflect.Slice:
		fields(of.Elem(), prefix+"[]", paths)
	case reflect.Struct:
		for field := range of.Fields() {
			if name, ok := field.Tag.Lookup("yaml"); ok {
				path := strings.TrimPrefix(prefix+"."+name, ".")
				*paths = append(*paths, path)
				fields(field.Type, path, paths)
			}
		}
	default: // a value has no keys
	}
}

func properties(schema object, prefix string, paths *[]string) {
	if members, ok := schema["properties"].(object); ok {
		for name, value := range members {
			path := strings.TrimPrefix(prefix+"."+name, ".")
			*paths = append(*paths, path)
			properties(value.(object), path, paths)
		}
	}
	if items, ok := schema["items"].(object); ok {
		properties(items, prefix+"[]", paths)
	}
	if values, ok := schema["additionalProperties"].(object); ok {
		properties(values, prefix+".NAME", paths)
	}
}

func document(t *testing.T) (schema object) {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// compiled is the schema; it must be valid by the meta schema of its draft.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("configuration.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("configuration.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// accepts validates a configuration as an editor does: it reads the YAML and applies the schema.
func accepts(schema *jsonschema.Schema, text string) error {
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// manyVoters are as many members as a group may have.
func manyVoters() string {
	var all []string
	for i := range 500 {
		all = append(all, fmt.Sprintf(`{id: "spiffe://x/%d"}`, i))
	}
	return strings.Join(all, ", ")
}

// probes are configurations with a place for one value of a key; path is where the place is, and the
// rest is what else a valid file needs.
var probes = []struct{ path, text string }{
	{"log.level", `{log: {level: VALUE}}`},
	{"state.redis.", `{state: {redis: {addresses: ["127.0.0.1:1"], KEY: VALUE}}}`},
	{"state.records_per_caller", `{state: {records: 16777216, KEY: VALUE}}`},
	{"state.records_kib_per_caller", `{state: {records_mib: 65536, KEY: VALUE}}`},
	{"state.answers_kib_per_caller", `{state: {answers_mib: 65536, KEY: VALUE}}`},
	{"state.", `{state: {KEY: VALUE}}`},
	{"limits.connections_per_address", `{limits: {connections: 1048576, KEY: VALUE}}`},
	{"limits.", `{limits: {KEY: VALUE}}`},
	{"policy.allow_losses", `{policy: {KEY: [VALUE]}}`},
	{"policy.gateways", `{policy: {KEY: [VALUE]}}`},
	{"policy.", `{policy: {KEY: VALUE}}`},
	{"admin.operators.NAME.id", `{admin: {operators: {ann: {id: VALUE, roles: [viewer]}}}}`},
	{"admin.operators.NAME.roles", `{admin: {operators: {ann: {id: "spiffe://x/y", roles: [VALUE]}}}}`},
	{"peers.NAME.", `{peers: {"spiffe://x/y": {KEY: VALUE}}}`},
	{"agents.NAME.endpoints[].form", `{agents: {a: {endpoints: [{binding: uacp-v1, url: "uacps://a:1", KEY: VALUE}]}}}`},
	{"agents.NAME.endpoints[].did", `{agents: {a: {endpoints: [{binding: ainp-v1, url: "https://a", KEY: VALUE}]}}}`},
	{"agents.NAME.endpoints[].signature", `{agents: {a: {endpoints: [{binding: ainp-v1, url: "https://a", KEY: VALUE}]}}}`},
	{"agents.NAME.endpoints[].program.", `{agents: {a: {endpoints: [{binding: mcp-v1, program: {command: [sh], KEY: VALUE}}]}}}`},
	{"agents.NAME.endpoints[].", `{agents: {a: {endpoints: [{binding: mcp-v1, url: "https://a", KEY: VALUE}]}}}`},
	{"agents.NAME.lifecycle.", `{agents: {a: {lifecycle: {reason: old, KEY: VALUE}, endpoints: [{binding: mcp-v1, url: "https://a"}]}}}`},
	{"agents.NAME.callers", `{agents: {a: {callers: [VALUE], endpoints: [{binding: mcp-v1, url: "https://a"}]}}}`},
	{"agents.NAME.expose", `{agents: {a: {expose: [VALUE], endpoints: [{binding: mcp-v1, url: "https://a"}]}}}`},
	{"agents.NAME.", `{agents: {a: {KEY: VALUE, endpoints: [{binding: mcp-v1, url: "https://a"}]}}}`},
	{"listen.uacp_connections.", `{listen: {uacp_connections: {total: 1048576, unidentified: 1048576, KEY: VALUE}}}`},
	{"ainp.sockets.", `{ainp: {sockets: {total: 1048576, unidentified: 1048576, KEY: VALUE}}}`},
	{"ainp.callers", `{ainp: {callers: {"did:key:z": VALUE}}}`},
	{"ainp.did", `{ainp: {did: VALUE}}`},
	{"slim.nodes[].jwt.callers", `{slim: {nodes: [{url: "https://n", organization: o, namespace: n, jwt: {key: k, keys: k, issuer: i, callers: {a: VALUE}}}]}}`},
	{"slim.nodes[].", `{slim: {nodes: [{url: "https://n", organization: o, namespace: n, shared_secret_file: s, KEY: VALUE}]}}`},
	{"consensus.groups.NAME.members[].id", `{consensus: {groups: {g: {members: [{KEY: VALUE}], proposers: {"spiffe://x/y": 1}}}}}`},
	{"consensus.groups.NAME.members[].weight", `{consensus: {groups: {g: {members: [{id: "spiffe://x/y", KEY: VALUE}], proposers: {"spiffe://x/y": 1}}}}}`},
	{"consensus.groups.NAME.proposers", `{consensus: {groups: {g: {members: [{id: "spiffe://x/y"}], KEY: {"spiffe://x/y": VALUE}}}}}`},
	{"consensus.groups.NAME.mechanisms", `{consensus: {groups: {g: {members: [{id: "spiffe://x/y"}], proposers: {"spiffe://x/y": 1}, KEY: [VALUE]}}}}`},
	{"consensus.groups.NAME.max_faulty", `{consensus: {groups: {g: {members: [` + manyVoters() + `], proposers: {"spiffe://x/y": 1}, KEY: VALUE}}}}`},
	{"consensus.groups.NAME.", `{consensus: {groups: {g: {members: [{id: "spiffe://x/y"}], proposers: {"spiffe://x/y": 1}, KEY: VALUE}}}}`},
	{"oauth.NAME.algorithms", `{oauth: {a: {issuer: "https://a", identities: [{path: x}], KEY: [VALUE]}}}`},
	{"oauth.NAME.proxies", `{oauth: {a: {issuer: "https://a", identities: [{path: x}], KEY: [VALUE]}}}`},
	{"oauth.NAME.introspection.", `{oauth: {a: {issuer: "https://a", identities: [{path: x}], introspection: {client_id: x, client_secret_file: x, KEY: VALUE}}}}`},
	{"oauth.NAME.issuer", `{oauth: {a: {KEY: VALUE, identities: [{path: x}]}}}`},
	{"oauth.NAME.", `{oauth: {a: {issuer: "https://a", identities: [{path: x}], KEY: VALUE}}}`},
	{"lifecycle.", `{lifecycle: {reason: old, KEY: VALUE}}`},
}

// TestSchema_AgreesWithTheChecks: for each rule of the schema about one value, the values at and beyond its
// bounds are judged alike by the schema and by the checks of serve.
func TestSchema_AgreesWithTheChecks(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	for path, rule := range rules() {
		good, bad := valuesOf(rule)
		if len(good)+len(bad) == 0 || strings.HasSuffix(path, "#") {
			continue
		}
		at := slices.IndexFunc(probes, func(p struct{ path, text string }) bool { return strings.HasPrefix(path, p.path) })
		if at < 0 {
			t.Errorf("%s: no configuration to try it in", path)
			continue
		}
		for i, value := range slices.Concat(good, bad) {
			text := in(probes[at].text, path[strings.LastIndex(path, ".")+1:], value)
			parser, editor := serves(text), accepts(schema, text)
			if want := i < len(good); (parser == nil) != want || (editor == nil) != want {
				t.Errorf("%s: %s\nthe parser says %v\nthe schema says %v", path, text, parser, editor)
			}
		}
	}
}

// in puts a value in a configuration. A key that is there already is replaced.
func in(text, key, value string) string {
	for _, there := range []string{`url: "https://n", `, "organization: o, ", "namespace: n, ", "total: 1048576, ", "unidentified: 1048576, "} {
		if strings.HasPrefix(there, key+": ") {
			text = strings.Replace(text, there, "", 1)
		}
	}
	return strings.NewReplacer("KEY", key, "VALUE", value).Replace(text)
}

// serves is Parse, and for what it leaves to serve the mistakes of agents.
func serves(text string) error {
	c, err := config.Parse([]byte(text))
	if err != nil {
		return err
	}
	if err := c.Serve(); err != nil && strings.Contains(err.Error(), "agents.") {
		return err
	}
	return nil
}

// valuesOf are values that a rule allows, and values that it does not.
func valuesOf(rule object) (good, bad []string) {
	if values, ok := rule["enum"].([]string); ok {
		for _, value := range values {
			good = append(good, `"`+value+`"`)
		}
		bad = append(bad, "nonsense")
	}
	for name, beyond := range map[string]float64{"minimum": -1, "maximum": 1} {
		if bound, ok := rule[name].(float64); ok && rule["type"] == nil {
			good = append(good, fmt.Sprintf("%.0f", bound))
			bad = append(bad, fmt.Sprintf("%.0f", bound+beyond))
		}
	}
	if bound, ok := rule["minimum"].(int); ok && rule["type"] == nil {
		good, bad = append(good, fmt.Sprint(bound)), append(bad, fmt.Sprint(bound-1))
	}
	switch text, _ := rule["pattern"].(string); {
	case strings.HasPrefix(text, "^spiffe://"):
		good, bad = append(good, `"spiffe://example.com/a"`), append(bad, "alice", `"https://example.com/a"`)
	case strings.HasPrefix(text, "^did:"):
		good, bad = append(good, `"did:web:a.example"`), append(bad, `"did:plc:a"`)
	case strings.HasPrefix(text, "^https?"):
		good, bad = append(good, `"https://a.example:1"`), append(bad, `"ftp://a.example"`, `"https://a.example/path"`)
	case strings.HasPrefix(text, "^https"):
		good, bad = append(good, `"https://a.example/aepb/translate"`), append(bad, `"ftp://a.example"`)
	case strings.HasPrefix(text, "^["):
		good, bad = append(good, "a-b_C.9"), append(bad, `""`, `"a/b"`, strings.Repeat("a", 64))
	case text != "":
		good, bad = append(good, "0.5", `"0.125"`, "1"), append(bad, "0", "1.5", `"0.1234"`, "high")
	}
	return good, bad
}

// TestSchema_RefusesWhatTheParserRefuses: mistakes of every kind.
func TestSchema_RefusesWhatTheParserRefuses(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	for name, text := range map[string]string{
		"unknown key":          "limits: {rat: 1}",
		"unknown section":      "limit: {}",
		"unknown agent key":    "agents: {a: {endpoint: []}}",
		"text for a number":    "limits: {burst: many}",
		"text for a switch":    "ect: {require: maybe}",
		"list for a section":   "identity: [a]",
		"text for a list":      "policy: {allow_losses: L07}",
		"number for a section": "log: 3",
		"duration as a word":   "timeout: soon",
		"duration, negative":   "timeout: -1s",
		"duration, no unit":    "timeout: 60",
		"duration, quoted":     `agents: {a: {timeout: "60", endpoints: [{binding: a2a-v1, url: "https://a"}]}}`,
		"unknown binding":      `agents: {a: {endpoints: [{binding: mcp, url: "https://a"}]}}`,
		"agent name":           `agents: {Calc: {endpoints: [{binding: mcp-v1, url: "https://a"}]}}`,
		"agent id":             `agents: {a: {id: calc, endpoints: [{binding: mcp-v1, url: "https://a"}]}}`,
		"peer name":            "peers: {gw2: {}}",
		"DID of a caller":      `ainp: {callers: {alice: "spiffe://x/y"}}`,
		"operator, no role":    `admin: {operators: {ann: {id: "spiffe://x/y"}}}`,
		"operator, no id":      "admin: {operators: {ann: {roles: [viewer]}}}",
		"node, no namespace":   `slim: {nodes: [{url: "https://n", organization: o, shared_secret_file: s}]}`,
		"JWT, no issuer":       `slim: {nodes: [{url: "https://n", organization: o, namespace: n, jwt: {key: k, keys: k}}]}`,
		"rule, no tool":        inAgent("compensate: {book: {arguments: {}}}"),
		"rule, unknown key":    inAgent("compensate: {book: {tool: cancel, args: {}}}"),
		"rule for all tools":   inAgent(`compensate: {"*": {tool: cancel}}`),
		"reading, no tool":     inAgent("compensate: {book: {tool: cancel, before: {arguments: {}}}}"),
		"list of arguments":    inAgent("compensate: {book: {tool: cancel, arguments: [1]}}"),
		"tool without a name":  inAgent(`read_only: [""]`),
		"status, no reason":    "lifecycle: {status: deprecated}",
		"secret in the file":   "admin: {token: x}",
	} {
		if parser, editor := serves(text), accepts(schema, text); parser == nil || editor == nil {
			t.Errorf("%s: the parser says %v, the schema says %v", name, parser, editor)
		}
	}
}

// TestSchema_AcceptsWhatTheParserAccepts: forms that a schema may easily refuse.
func TestSchema_AcceptsWhatTheParserAccepts(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	for _, text := range []string{
		manyKeys, whole, whole + "slim: {nodes: [" + strings.Replace(goodNode, "shared_secret_file: /s, caller: spiffe://example.com/gw", goodJWT, 1) + "]}",
		"{}", "limits: {}", "log:", "agents:", "timeout: 0", "timeout: 1h30m", "timeout: 1.5s", "timeout: 250ms",
		"policy: {allowed_dest_protocols: []}", "limits: {rate: 10.5}",
		`agents: {a: {endpoints: [{binding: other-v1, through: "spiffe://x/y"}]}}` + "\n" + `peers: {"spiffe://x/y": {gateway: "https://gw.example/aepb/translate"}}`,
		"slim: {nodes: [" + goodNode + "]}",
		`slim: {nodes: [{url: "https://b.example", organization: o, namespace: n, jwt_svid: {}}]}` + "\n" + `identity: {workload_api: "unix:///run/a.sock"}`,
		inAgent(undoing), inAgent("compensate: {book: {tool: cancel, arguments: , before: }}"), "policy: {checkpoint_ttl: 720h}",
		"lifecycle: {status: deprecated, reason: old, sunset_at: 2027-01-31T00:00:00Z}",
	} {
		if parser, editor := serves(text), accepts(schema, text); parser != nil || editor != nil {
			t.Errorf("%s\nthe parser says %v\nthe schema says %v", text, parser, editor)
		}
	}
}
