package a2a

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/jsonrpc"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Places03 is what the places of 0.3 over HTTP are below.
const Places03 = "/v1"

// route is the place of an operation over HTTP (A2A 5.3, 11.3). In its path,
// {id} and {config} stand for the names that are said there.
type route struct {
	method string // of the operation, in 1.0
	verb   string
	path   string
	other  string // a verb that is taken as well
	body   bool   // what is not in the path is in the body, not in the query
}

var routes = [...]route{
	{methodSend, http.MethodPost, "/message:send", "", true},
	{"SendStreamingMessage", http.MethodPost, "/message:stream", "", true},
	{"CancelTask", http.MethodPost, "/tasks/{id}:cancel", "", true},
	{methodSubscribe, http.MethodPost, "/tasks/{id}:subscribe", http.MethodGet, false},
	{"CreateTaskPushNotificationConfig", http.MethodPost, "/tasks/{id}/pushNotificationConfigs", "", true},
	{"ListTaskPushNotificationConfigs", http.MethodGet, "/tasks/{id}/pushNotificationConfigs", "", false},
	{"GetTaskPushNotificationConfig", http.MethodGet, "/tasks/{id}/pushNotificationConfigs/{config}", "", false},
	{"DeleteTaskPushNotificationConfig", http.MethodDelete, "/tasks/{id}/pushNotificationConfigs/{config}", "", false},
	{methodList, http.MethodGet, "/tasks", "", false},
	{"GetTask", http.MethodGet, "/tasks/{id}", "", false},
	{methodCard, http.MethodGet, "/extendedAgentCard", "", false},
}

// card03 is where 0.3 has the extended card.
const card03 = "/card"

// names are the members that a place says, in the words of JSON-RPC of the version.
func (r *route) names(version string) (id, config string) {
	push := strings.Contains(r.path, "/pushNotificationConfigs")
	switch {
	case push && version != Version03, push && r.method == "CreateTaskPushNotificationConfig":
		return "taskId", "id"
	case push:
		return "id", "pushNotificationConfigId"
	default:
		return "id", ""
	}
}

// Route finds the operation that has its place at path, below the agent's URL
// and without query, and whether it is asked for by that verb. tenant is what
// stands before the place in 1.0. found is false if nothing has its place there.
func Route(verb, path, version string) (allow []string, stream, found bool) {
	for _, r := range routes {
		if _, _, _, ok := r.match(path, version); !ok {
			continue
		}
		found = true
		if r.verb == verb || r.other == verb {
			return nil, operationOf(r.method, Version).stream, true
		}
		allow = append(allow, r.verb)
	}
	return allow, false, found
}

// match takes a path apart.
func (r *route) match(path, version string) (tenant, id, config string, ok bool) {
	pattern := r.path
	if version == Version03 {
		if path, ok = strings.CutPrefix(path, Places03); !ok {
			return "", "", "", false
		}
		if r.method == methodCard {
			pattern = card03
		}
	}
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	extra := len(have) - len(want)
	if extra < 0 || extra > 1 || version == Version03 && extra > 0 || have[0] != "" {
		return "", "", "", false
	}
	if slices.ContainsFunc(have[1:], steps) || extra == 1 && isVersion(have[1]) {
		return "", "", "", false
	}
	tenant = strings.Join(have[1:1+extra], "/")
	have = have[1+extra:]
	for i, segment := range want[1:] {
		switch {
		case segment == have[i]:
		case segment == "{config}":
			config = have[i]
		case strings.HasPrefix(segment, "{id}"):
			if id, ok = strings.CutSuffix(have[i], strings.TrimPrefix(segment, "{id}")); !ok {
				return "", "", "", false
			}
			if segment == "{id}" && (strings.HasSuffix(id, ":cancel") || strings.HasSuffix(id, ":subscribe")) && i == len(want)-2 {
				return "", "", "", false
			}
			if id == "" {
				return "", "", "", false
			}
		default:
			return "", "", "", false
		}
	}
	return tenant, id, config, !strings.Contains(pattern[strings.LastIndexByte(pattern, '/'):], "{config}") || config != ""
}

// isVersion reports whether a segment looks like the places of a version: of one
// that is not spoken here, and not of a tenant.
func isVersion(segment string) bool {
	digits, ok := strings.CutPrefix(segment, "v")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// steps reports whether a segment is none of a name, but a step in the path.
func steps(segment string) bool { return segment == "" || segment == "." || segment == ".." }

// placed reads a request as what JSON-RPC would have around it. One that says
// no place is a message: so it was before others were served.
func placed(w translators.Wire) (jsonrpc.Message, error) {
	version := Spoken(w.Version)
	if w.Verb == "" && w.Path == "" {
		if version == Version03 {
			return jsonrpc.Message{Method: methodSend03, Params: w.Body}, objectError(w.Body)
		}
		return jsonrpc.Message{Method: methodSend, Params: w.Body}, objectError(w.Body)
	}
	path, query, _ := strings.Cut(w.Path, "?")
	for _, r := range routes {
		tenant, id, config, ok := r.match(path, version)
		if ok && (r.verb == w.Verb || r.other == w.Verb) {
			if err := objectError(rawjson.OrEmpty(w.Body)); len(w.Body) > 0 && err != nil {
				return jsonrpc.Message{}, err
			}
			m, err := r.read(w, version, query, [3]string{tenant, id, config})
			return m, badParams(err)
		}
	}
	return jsonrpc.Message{}, &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such operation"}
}

func objectError(body []byte) error { return rawjson.Parse(body, "").Err() }

// read joins what the path, the query and the body say. One thing said twice is
// refused: who reads which is a way around policy.
func (r *route) read(w translators.Wire, version, query string, at [3]string) (jsonrpc.Message, error) {
	o := operationOf(r.method, Version)
	m := jsonrpc.Message{Method: o.name}
	if version == Version03 {
		if m.Method = o.old; m.Method == "" {
			m.Method = methodList03
		}
	}
	body := json.RawMessage(w.Body)
	if len(body) == 0 || !r.body {
		if len(body) > 0 && !rawjson.Equal(body, []byte("{}")) {
			return m, &translators.MalformedError{Path: "", Reason: "expected no body"}
		}
		body = json.RawMessage("{}")
	}
	if err := objectError(body); err != nil {
		return m, err
	}
	b, members := rawjson.NewBuilder().Merge(body), rawjson.Parse(body, "")
	idName, configName := r.names(version)
	for i, name := range []string{"tenant", idName, configName} {
		value, err := url.PathUnescape(at[i])
		if err != nil {
			return m, &translators.MalformedError{Path: "/" + name, Reason: "the path is not escaped: expected percent-encoding"}
		}
		switch {
		case value == "":
		case !members.Has(name):
			b.String(name, value)
		case !sameText(members.Peek(name), value):
			return m, &translators.MalformedError{Path: "/" + name, Reason: "not the same value as in the URL"}
		}
	}
	if err := addQuery(b, query); err != nil {
		return m, err
	}
	m.Params = b.Bytes()
	return m, rawjson.Check(m.Params, translators.DefaultBodyLimit+len(query)+len(w.Path), translators.DefaultDepth)
}

// methodList03 stands for what 0.3 has over HTTP and not over JSON-RPC.
const methodList03 = "tasks/list"

func sameText(raw json.RawMessage, text string) bool {
	value, ok := rawjson.Unquote(raw)
	return ok && value == text
}

// queryKinds are the parameters that are no text, and spellings that peers have
// for others.
var (
	queryNumbers  = []string{"historyLength", "pageSize"}
	queryFlags    = []string{"includeArtifacts"}
	queryAliases  = map[string]string{"lastUpdatedAfter": "statusTimestampAfter"}
	queryVersions = []string{HeaderVersion}
)

// addQuery makes parameters of the query members.
func addQuery(b *rawjson.Builder, query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return &translators.MalformedError{Reason: "not a query"}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if slices.Contains(queryVersions, name) {
			continue
		}
		if len(value) != 1 {
			return &translators.MalformedError{Path: "/" + name, Reason: "given twice"}
		}
		if other := queryAliases[name]; other != "" {
			name = other
		}
		switch {
		case slices.Contains(queryFlags, name) && (value[0] == "true" || value[0] == "false"):
			b.Raw(name, json.RawMessage(value[0]))
		case slices.Contains(queryNumbers, name) && isInteger(value[0]):
			b.Raw(name, json.RawMessage(value[0]))
		default:
			b.String(name, value[0])
		}
	}
	return nil
}

func isInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && len(digits) <= 10 && (digits[0] != '0' || len(digits) == 1) && strings.Trim(digits, "0123456789") == ""
}

// place is a request at its place: what the path says is not said again.
func place(o *operation, version string, params json.RawMessage) (translators.Wire, error) {
	var r route
	for _, other := range routes {
		if other.method == o.name {
			r = other
		}
	}
	members := rawjson.Parse(rawjson.OrEmpty(params), "")
	path := r.path
	if version == Version03 {
		if r.method == methodCard {
			path = card03
		}
		path = Places03 + path
	}
	idName, configName := r.names(version)
	for _, slot := range [2][2]string{{"{id}", idName}, {"{config}", configName}} {
		if !strings.Contains(path, slot[0]) {
			continue
		}
		value, _ := rawjson.Unquote(members.Take(slot[1]))
		if value == "" {
			return translators.Wire{}, unstamped("name of what is asked about")
		}
		path = strings.Replace(path, slot[0], segmentFor(value), 1)
	}
	if tenant, ok := rawjson.Unquote(members.Peek("tenant")); ok && tenant != "" && version != Version03 {
		path = "/" + segmentFor(tenant) + path
		if !r.body { // bodies say it as well, as peers send it
			members.Take("tenant")
		}
	}
	wire := translators.Wire{Verb: r.verb, Path: path}
	if r.body {
		wire.Body = rawjson.OrEmpty(members.Rest())
		return wire, nil
	}
	if query := queryOf(members); query != "" {
		wire.Path += "?" + query
	}
	return wire, nil
}

// segmentFor makes one segment of a path. Dots alone would be a step in the path
// rather than a name.
func segmentFor(text string) string {
	if strings.Trim(text, ".") == "" {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return url.PathEscape(text)
}

// queryOf says members as parameters of a query. What is no plain value has no
// place there; nothing of A2A's own is such.
func queryOf(members *rawjson.Object) string {
	values := url.Values{}
	for _, m := range members.Members() {
		if text, ok := rawjson.Unquote(m.Value); ok {
			values.Set(m.Name, text)
		} else if len(m.Value) > 0 && m.Value[0] != '{' && m.Value[0] != '[' && m.Value[0] != 'n' {
			values.Set(m.Name, string(m.Value))
		}
	}
	return values.Encode()
}
