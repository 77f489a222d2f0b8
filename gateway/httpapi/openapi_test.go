package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/descriptor"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/httpapi/approvals"
	"github.com/aepb/aepb-gateway/gateway/httpapi/checkpoints"
	"github.com/aepb/aepb-gateway/gateway/httpapi/descriptors"
	"github.com/aepb/aepb-gateway/gateway/httpapi/workflows"
	"github.com/aepb/aepb-gateway/gateway/listing"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/transport"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/lifecycle"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// object is a JSON object of the OpenAPI document.
type object = map[string]any

// openAPI is docs/openapi.yaml.
type openAPI struct {
	root     object
	compiler *jsonschema.Compiler
}

const openAPIName = "openapi.json"

func readOpenAPI(t *testing.T) openAPI {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	root, ok := value.(object)
	if !ok {
		t.Fatal("the document is no object")
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(openAPIName, value); err != nil {
		t.Fatal(err)
	}
	return openAPI{root, compiler}
}

// at is what a JSON pointer names; a $ref there is followed.
func (o openAPI) at(t *testing.T, pointer string) (value object, resolved string) {
	t.Helper()
	current := any(o.root)
	for segment := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if list, ok := current.([]any); ok {
			i, err := strconv.Atoi(segment)
			if err != nil || i >= len(list) {
				t.Fatalf("there is no %s", pointer)
			}
			current = list[i]
			continue
		}
		members, _ := current.(object)
		current = members[strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)]
	}
	value, ok := current.(object)
	if !ok {
		t.Fatalf("there is no object %s", pointer)
	}
	if ref, ok := value["$ref"].(string); ok {
		return o.at(t, strings.TrimPrefix(ref, "#"))
	}
	return value, pointer
}

func escape(segment string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(segment) }

// each calls f with every object of the document and the pointer to it.
func each(value any, pointer string, f func(pointer string, o object)) {
	switch v := value.(type) {
	case object:
		f(pointer, v)
		for name, below := range v {
			each(below, pointer+"/"+escape(name), f)
		}
	case []any:
		for i, below := range v {
			each(below, pointer+"/"+strconv.Itoa(i), f)
		}
	}
}

// TestOpenAPI_IsValid: the document suits the JSON Schema of the OpenAPI Initiative for 3.1 (of
// 2022-10-07), every $ref leads somewhere, and every schema is one.
func TestOpenAPI_IsValid(t *testing.T) {
	t.Parallel()
	doc := readOpenAPI(t)
	text, err := os.ReadFile(filepath.Join("testdata", "openapi-3.1.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	meta, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("meta.json", meta); err != nil {
		t.Fatal(err)
	}
	if err := compiler.MustCompile("meta.json").Validate(doc.root); err != nil {
		t.Error(err)
	}
	operations := map[string]bool{}
	each(doc.root, "", func(pointer string, o object) {
		if _, ok := o["$ref"].(string); ok {
			doc.at(t, pointer)
		}
		if id, ok := o["operationId"].(string); ok {
			if operations[id] {
				t.Errorf("two operations are named %s", id)
			}
			operations[id] = true
		}
		if strings.HasSuffix(pointer, "/schema") || regexp.MustCompile("^/components/schemas/[A-Za-z]+$").MatchString(pointer) {
			if _, err := doc.compiler.Compile(openAPIName + "#" + pointer); err != nil {
				t.Errorf("%s is no schema: %v", pointer, err)
			}
		}
	})
}

// served is a gateway with everything that may be left out. Its protocol servers have the paths of those
// of cmd/aepb-gateway.
type served struct {
	public, admin, metrics http.Handler
	store                  *ecttest.Store
	round                  oneRound
}

// lifecycles has one agent with a deprecated record.
type lifecycles struct{}

func (lifecycles) Record(agent string) lifecycle.Record {
	at := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	return lifecycle.Record{Agent: agent, Status: lifecycle.Deprecated, Term: 1, DeprecatedAt: at, SunsetAt: at, At: at, Reason: "old", By: "ann", Successor: "https://b.example/x", Token: "x.y.z", Step: lifecycle.Announced}
}
func (l lifecycles) Records() []lifecycle.Record { return []lifecycle.Record{l.Record(""), {}} }
func (l lifecycles) Change(_ context.Context, agent string, order lifecycle.Order) (lifecycle.Record, string, error) {
	if order.Reason == "" {
		return lifecycle.Record{}, "", &lifecycle.ReasonError{}
	}
	return l.Record(agent), "work is under way", nil
}

// fewBreakers has two.
type fewBreakers struct{}

func (fewBreakers) List() []breakers.Event {
	return []breakers.Event{{Agent: "a", State: "half_open"}, {Agent: "spiffe://x/y", State: "escalated", Reason: "probes", At: time.Now(), Token: "x.y.z", Replica: "1"}}
}

func (fewBreakers) Watch(ect.Identity) (<-chan breakers.Event, func(), error) {
	over := make(chan breakers.Event)
	close(over)
	return over, func() {}, nil
}

type waiting struct{}

func (waiting) Await(context.Context, ect.Identity, string, string) error { return nil }

// oneWorkflow is a workflow that all callers know.
type oneWorkflow struct{}

func (oneWorkflow) Begin(context.Context, identity.Caller, string, work.Plan) (wid, compact string, err error) {
	return "w", "x.y.z", nil
}

func (oneWorkflow) Take(context.Context, identity.Caller, string, string) (string, error) {
	return "w", nil
}

func (oneWorkflow) Complete(_ context.Context, _ identity.Caller, _, wid string, _ workflow.Status) (workflow.Status, string, error) {
	if wid != "w" {
		return "", "", &problem.WaitingError{Reason: "steps run"}
	}
	return workflow.StatusPartial, "x.y.z", nil
}

func (oneWorkflow) Follows(_ context.Context, wid string, _ ect.Identity) (work.Followed, error) {
	if wid != "w" {
		return work.Followed{}, &problem.NotFoundError{What: "descriptor of this workflow"}
	}
	return work.Followed{Bound: work.Bound{Name: "refunds", Version: 1, Hash: "h"}, Text: "{}", Agents: map[string][]string{"billing": {"spiffe://example.com/billing"}}}, nil
}

func (oneWorkflow) Report(_ context.Context, wid string, _ ect.Identity) (workflow.Report, error) {
	if wid != "w" {
		return workflow.Report{}, &problem.NotFoundError{What: "workflow"}
	}
	return workflow.Report{
		Workflow: "w", Status: "partial", Declared: workflow.StatusPartial, Description: "why", Starter: "spiffe://x/y", Started: time.Now(), ElapsedSecs: 1, Expected: 2, Tokens: 3,
		Steps: []workflow.StepReport{{
			ID: "1", Planned: "node", Act: "act", Kind: workflow.KindTask, State: workflow.Failed, Caller: "spiffe://x/y", Agents: []string{"a"}, Protocol: "a → b",
			Started: time.Now(), Seconds: 1, Losses: []string{"L05"}, Errors: []string{"error, timeout"}, After: []ect.ID{"0"}, AfterNodes: []string{"first"},
		}},
		Descriptor: "refunds", Version: 1, Unplanned: []ect.ID{"3"},
		Missing: []ect.ID{"2"}, Findings: []string{"a cycle"},
	}, nil
}

func serveAll(t *testing.T) served {
	t.Helper()
	registry, err := translators.NewRegistry(a2a.New(translators.Config{}), mcp.New(translators.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	s, logger := served{store: ecttest.NewStore(), round: newRound(t)}, slog.New(slog.DiscardHandler)
	const self = "spiffe://example.com/gateway"
	members, err := membership.New(membership.Deps{Store: s.store, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	servers := httpapi.Endpoints{}
	for _, path := range []string{"/a2a", "/a2a/*rest", "/.well-known/agent-card.json", "/mcp", "/mcp/", "/mcp/sse", "/mcp/messages", "/ainp", "/ainp/"} {
		servers[path] = http.NotFoundHandler()
	}
	waits := &memory{views: map[string]approval.View{approvalID: newApproval("spiffe://example.com/client")}}
	approver := func(id ect.Identity) (policy.Operator, bool) {
		return policy.Operator{Name: "ann", ID: id, Roles: policy.Roles()}, id == "spiffe://example.com/people/ann"
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: ecttest.KeysOf(), Replay: ecttest.NewReplay(), Audience: []string{self}})
	if err != nil {
		t.Fatal(err)
	}
	calls, anyone := &fakeHandler{}, func(ect.Identity) bool { return true }
	s.public, err = httpapi.Public(httpapi.PublicDeps{
		EvidenceDeps: httpapi.EvidenceDeps{Evidence: s.store, Members: members, Tasks: oneTask{}},
		Capability:   httpapi.Capability{Self: self, Version: "1.2.3"},
		Handler:      calls, Undo: httpapi.Undo{Rollbacker: calls, Deposits: oneCheckpoint{}}, Router: &router{}, Together: httpapi.Together{Workflows: oneWorkflow{}, Rounds: s.round}, Registry: registry,
		Humans:   httpapi.Humans{Awaiter: waiting{}, Approvals: approvals.Public{Service: waits, Tokens: verified{verifier}, Operators: approver, Logger: logger}},
		Breakers: httpapi.BreakerStream{Breakers: fewBreakers{}, Watches: anyone}, Endpoints: servers,
		BaseURL: func(*http.Request) string { return "https://gw.example" }, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	monitoring := httpapi.MonitoringDeps{
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "a_metric 1\n")
		}),
		Ready: func() error { return nil }, Logger: logger,
	}
	if s.metrics, err = httpapi.Monitoring(monitoring); err != nil {
		t.Fatal(err)
	}
	agents, err := directory.New(directory.Deps{Describers: map[canonical.Binding]transport.Describer{"a2a-v1": quiet{}}, Egress: quiet{}, Now: time.Now, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := listing.New(listing.Deps{Directory: agents, Now: time.Now, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	s.admin, err = httpapi.Admin(httpapi.AdminDeps{
		MonitoringDeps: monitoring, Directory: agents, Agents: listed, Registry: registry, Records: httpapi.Records{Evidence: s.store, Workflows: s.store, Approvals: waits, Levels: levels{waits}, Consensus: s.round, Descriptors: fewDescriptors(t), Undo: checkpoints.Records{Checkpoints: oneCheckpoint{}, Rollbacks: oneCheckpoint{}}}, Self: self, PublicURL: "https://gw.example",
		Breakers: fewBreakers{}, Lifecycles: lifecycles{}, Token: "right", Hosts: []string{"127.0.0.1"},
		Running: httpapi.Running{
			Configuration: func() admindoc.Configuration {
				return admindoc.Configuration{RestartKeys: map[string]string{"listen.public": ":8443"}}
			},
			Processes: func() []admindoc.Process { return []admindoc.Process{{PID: 1, Agent: "a", Caller: "spiffe://x/y"}} },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOpenAPI_HasTheRoutes: every route of the three listeners is an operation of the document, and the reverse.
func TestOpenAPI_HasTheRoutes(t *testing.T) {
	t.Parallel()
	doc, s := readOpenAPI(t), serveAll(t)
	paths, _ := doc.at(t, "/paths")
	parameter := regexp.MustCompile(`[:*]([a-z]+)`)
	for listener, handler := range map[string]http.Handler{"public": s.public, "admin": s.admin, "metrics": s.metrics} {
		engine, ok := handler.(interface{ Routes() gin.RoutesInfo })
		if !ok {
			t.Fatalf("%s: the routes of the handler cannot be listed", listener)
		}
		registered, described := map[string][]string{}, map[string][]string{}
		for _, route := range engine.Routes() {
			path := parameter.ReplaceAllString(route.Path, "{$1}")
			registered[path] = append(registered[path], route.Method)
			if strings.HasPrefix(path, "/api/") {
				operation, _ := doc.at(t, "/paths/"+escape(path)+"/"+strings.ToLower(route.Method))
				if want := string(httpapi.RoleFor(route.Method, route.Path)); operation["x-role"] != want {
					t.Errorf("%s %s: x-role is %v, expected %s", route.Method, path, operation["x-role"], want)
				}
			}
		}
		for path, item := range paths {
			members := item.(object)
			if !slices.Contains(members["x-listener"].([]any), any(listener)) {
				continue
			}
			for _, method := range []string{"GET", "POST", "PUT", "PATCH", "HEAD", "OPTIONS", "DELETE", "CONNECT", "TRACE"} {
				if _, ok := members[strings.ToLower(method)]; ok || members["x-all-methods"] == true {
					described[path] = append(described[path], method)
				}
			}
		}
		for _, methods := range registered {
			slices.Sort(methods)
		}
		for _, methods := range described {
			slices.Sort(methods)
		}
		if diff := cmp.Diff(registered, described); diff != "" {
			t.Errorf("%s (-registered +described):\n%s", listener, diff)
		}
	}
}

// TestOpenAPI_HasTheCodes: the codes and reasons of problems are those of package problem.
func TestOpenAPI_HasTheCodes(t *testing.T) {
	t.Parallel()
	doc := readOpenAPI(t)
	var reasons []string
	for _, reason := range problem.Reasons() {
		reasons = append(reasons, string(reason))
	}
	for pointer, want := range map[string][]string{"/components/schemas/Code": problem.Codes(), "/components/schemas/Problem/properties/reason": reasons} {
		schema, _ := doc.at(t, pointer)
		var got []string
		for _, value := range schema["enum"].([]any) {
			got = append(got, value.(string))
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
			t.Errorf("%s (-code +document):\n%s", pointer, diff)
		}
	}
}

// TestOpenAPI_HasTheMembers: a schema of a Go type has its members, and requires those that are always written.
func TestOpenAPI_HasTheMembers(t *testing.T) {
	t.Parallel()
	doc := readOpenAPI(t)
	types := httpapi.Bodies()
	maps.Copy(types, map[string]reflect.Type{
		"Operator": reflect.TypeFor[admindoc.Operator](), "Agent": reflect.TypeFor[admindoc.Agent](), "Endpoint": reflect.TypeFor[admindoc.Endpoint](),
		"Summary": reflect.TypeFor[admindoc.Summary](), "Omission": reflect.TypeFor[admindoc.Omission](), "Lifecycle": reflect.TypeFor[admindoc.Lifecycle](),
		"Pin": reflect.TypeFor[admindoc.Pin](), "Pending": reflect.TypeFor[admindoc.Pending](), "Change": reflect.TypeFor[admindoc.Change](),
		"ApprovalSummary": reflect.TypeFor[approvals.Summary](), "Approval": reflect.TypeFor[approvals.Full](), "ApprovalPage": reflect.TypeFor[approvals.Page](),
		"ApprovalDemand": reflect.TypeFor[approvals.Demand](), "ApprovalCall": reflect.TypeFor[approvals.Call](), "ApprovalDecision": reflect.TypeFor[hitl.Decision](), "Approver": reflect.TypeFor[hitl.Approver](),
		"Level": reflect.TypeFor[approvals.Level](), "LevelList": reflect.TypeFor[approvals.LevelList](), "LevelOrder": reflect.TypeFor[approvals.LevelOrder](),
		"SignedDecision": reflect.TypeFor[approvals.Signed](), "DecisionOrder": reflect.TypeFor[approvals.Order](),
		"DepositedCheckpoint": reflect.TypeFor[checkpoints.Deposited](), "Checkpoint": reflect.TypeFor[checkpoints.View](), "CheckpointPage": reflect.TypeFor[checkpoints.Page](),
		"RollbackOrder": reflect.TypeFor[checkpoints.Order](), "RollbackPlan": reflect.TypeFor[checkpoints.Plan](), "RollbackStep": reflect.TypeFor[undo.Step](),
		"DescriptorVersion": reflect.TypeFor[descriptor.Version](), "Descriptor": reflect.TypeFor[descriptors.View](), "DescriptorPlan": reflect.TypeFor[descriptors.Plan](), "FollowedDescriptor": reflect.TypeFor[workflows.Followed](),
		"Rollback": reflect.TypeFor[rollback.View](), "RollbackProgress": reflect.TypeFor[undo.Progress](),
		"Process": reflect.TypeFor[admindoc.Process](), "LifecycleRecord": reflect.TypeFor[lifecycle.Record](), "Breaker": reflect.TypeFor[breakers.Event](),
	})
	consensusBodies(types)
	for name, of := range types {
		members, required := membersOf(of)
		schema, _ := doc.at(t, "/components/schemas/"+name)
		properties, _ := schema["properties"].(object)
		if diff := cmp.Diff(members, slices.Sorted(maps.Keys(properties))); diff != "" {
			t.Errorf("%s (-type +document):\n%s", name, diff)
		}
		var demanded []string
		list, _ := schema["required"].([]any)
		for _, value := range list {
			demanded = append(demanded, value.(string))
		}
		if slices.Sort(demanded); !slices.Equal(required, demanded) {
			t.Errorf("%s: required are %q, expected %q", name, demanded, required)
		}
	}
	order, _ := doc.at(t, "/components/schemas/LifecycleOrder/properties")
	if members, _ := membersOf(reflect.TypeFor[lifecycle.Order]()); !slices.Equal(members, slices.Sorted(maps.Keys(order))) {
		t.Errorf("LifecycleOrder has other members than %q", members)
	}
}

func membersOf(of reflect.Type) (all, required []string) {
	for field := range of.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			inner, demanded := membersOf(field.Type)
			all, required = append(all, inner...), append(required, demanded...)
		case name == "-" || name == "":
		default:
			if all = append(all, name); !strings.Contains(options, "omit") {
				required = append(required, name)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(required)
	return all, required
}

// TestOpenAPI_SuitsTheAnswers: answers of the three listeners suit the schema of their operation and status.
func TestOpenAPI_SuitsTheAnswers(t *testing.T) {
	t.Parallel()
	doc, s := readOpenAPI(t), serveAll(t)
	caller := ecttest.NewParty(t, "spiffe://example.com/client")
	workflow := string(ect.NewID())
	record := ect.Record{Compact: "x.y.z", ID: ect.NewID(), Workflow: workflow, Issuer: caller.ID, Until: time.Now().Add(time.Hour)}
	if err := s.store.Put(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	const agent = `{"name":"pricing","endpoints":[{"binding":"a2a-v1","url":"https://pricing.example"}]}`
	callback := `{"wid":"` + workflow + `","uri":"https://hook.example/"}`
	for _, tc := range []struct {
		on             http.Handler
		method, target string
		path           string // of the document; empty: the target
		body           string
		status         int
	}{
		{s.public, "GET", "/.well-known/aepb", "", "", 200},
		{s.public, "GET", "/.well-known/cpat", "", "", 200},
		{s.public, "GET", "/.well-known/aepb/gateway", "", "", 200},
		{s.public, "GET", "/.well-known/cpat/gateway", "", "", 200},
		{s.public, "GET", "/.well-known/aepb/gateway?from=a2a-v1&to=mcp-v1", "/.well-known/aepb/gateway", "", 200},
		{s.public, "GET", "/.well-known/aepb/gateway?from=a2a-v1", "/.well-known/aepb/gateway", "", 400},
		{s.public, "GET", "/.well-known/aepb/gateway?from=x&to=y", "/.well-known/aepb/gateway", "", 404},
		{s.public, "POST", "/aepb/translate?from=x&to=y", "/aepb/translate", "{}", 404},
		{s.public, "GET", "/ects/" + string(record.ID), "/ects/{jti}", "", 200},
		{s.public, "GET", "/ects/x", "/ects/{jti}", "", 404},
		{s.public, "GET", "/workflows/" + workflow, "/workflows/{wid}", "", 200},
		{s.public, "GET", "/workflows/" + workflow + "?limit=0", "/workflows/{wid}", "", 400},
		{s.public, "POST", "/atd/workflows", "", `{"description":"why","node_count":2}`, 201},
		{s.public, "POST", "/atd/workflows", "", "", 201},
		{s.public, "POST", "/atd/workflows", "", `{"nodes":2}`, 400},
		{s.public, "GET", "/atd/workflows/w", "/atd/workflows/{wid}", "", 200},
		{s.public, "GET", "/atd/workflows/x", "/atd/workflows/{wid}", "", 404},
		{s.public, "GET", "/atd/workflows/w/descriptor", "/atd/workflows/{wid}/descriptor", "", 200},
		{s.public, "GET", "/atd/workflows/x/descriptor", "/atd/workflows/{wid}/descriptor", "", 404},
		{s.public, "POST", "/atd/workflows/w/complete", "/atd/workflows/{wid}/complete", `{"status":"partial"}`, 200},
		{s.public, "POST", "/atd/workflows/x/complete", "/atd/workflows/{wid}/complete", "", 409},
		{s.public, "POST", "/hitl/callbacks", "", callback, 201},
		{s.public, "POST", "/hitl/callbacks", "", "{}", 400},
		{s.public, "POST", "/.well-known/atd/rollback", "", "", 403},
		{s.public, "GET", "/hitl/approvals/" + approvalID, "/hitl/approvals/{id}", "", 200},
		{s.public, "GET", "/hitl/approvals/x", "/hitl/approvals/{id}", "", 404},
		{s.public, "POST", decisionPath, "/hitl/approvals/{id}/decision", shownBody, 403},
		{s.admin, "GET", "/api/approvals?limit=1", "/api/approvals", "", 200},
		{s.admin, "GET", "/api/approvals/" + approvalID, "/api/approvals/{id}", "", 200},
		{s.admin, "POST", "/api/approvals/" + approvalID + "/decision", "/api/approvals/{id}/decision", approve, 200},
		{s.admin, "GET", "/api/approvals/" + approvalID, "/api/approvals/{id}", "", 200},
		{s.admin, "POST", "/api/approvals/" + approvalID + "/decision", "/api/approvals/{id}/decision", "{}", 400},
		{s.admin, "GET", "/api/levels", "", "", 200},
		{s.admin, "POST", "/api/levels/w", "/api/levels/{wid}", `{"step":"pause","reason":"why"}`, 200},
		{s.admin, "POST", "/api/levels/w", "/api/levels/{wid}", `{"step":"go"}`, 400},
		{s.public, "GET", "/atd/checkpoints/c", "/atd/checkpoints/{jti}", "", 200},
		{s.public, "GET", "/atd/checkpoints/x", "/atd/checkpoints/{jti}", "", 404},
		{s.public, "POST", "/atd/checkpoints", "", "state", 403},
		{s.admin, "GET", "/api/checkpoints?wid=w&limit=1", "/api/checkpoints", "", 200},
		{s.admin, "GET", "/api/checkpoints", "", "", 400},
		{s.admin, "GET", "/api/checkpoints/c", "/api/checkpoints/{jti}", "", 200},
		{s.admin, "GET", "/api/checkpoints/x", "/api/checkpoints/{jti}", "", 404},
		{s.public, "GET", "/consensus/groups/team", "/consensus/groups/{name}", "", 200},
		{s.public, "GET", "/consensus/groups/x", "/consensus/groups/{name}", "", 404},
		{s.public, "POST", "/consensus/rounds", "", s.round.body(t, false), 201},
		{s.public, "POST", "/consensus/rounds", "", "{}", 400},
		{s.public, "GET", "/consensus/rounds?limit=1", "/consensus/rounds", "", 200},
		{s.public, "GET", "/consensus/rounds/" + roundID, "/consensus/rounds/{id}", "", 200},
		{s.public, "GET", "/consensus/rounds/x", "/consensus/rounds/{id}", "", 404},
		{s.public, "POST", "/consensus/rounds/" + roundID + "/votes", "/consensus/rounds/{id}/votes", s.round.body(t, true), 202},
		{s.public, "GET", "/consensus/rounds/" + roundID + "/votes", "/consensus/rounds/{id}/votes", "", 200},
		{s.public, "GET", "/consensus/rounds/" + roundID + "/votes?after=-1", "/consensus/rounds/{id}/votes", "", 400},
		{s.public, "POST", "/consensus/rounds/" + roundID + "/ack", "/consensus/rounds/{id}/ack", "{}", 400},
		{s.public, "GET", "/consensus/rounds/" + roundID + "/events", "/consensus/rounds/{id}/events", "", 200},
		{s.admin, "GET", "/api/consensus", "", "", 200},
		{s.admin, "GET", "/api/consensus/" + roundID, "/api/consensus/{id}", "", 200},
		{s.admin, "GET", "/api/consensus/x", "/api/consensus/{id}", "", 404},
		{s.admin, "POST", "/api/descriptors?check=true", "/api/descriptors", plan, 200},
		{s.admin, "POST", "/api/descriptors", "", plan, 201},
		{s.admin, "POST", "/api/descriptors", "", "{}", 400},
		{s.admin, "POST", "/api/descriptors?check=perhaps", "/api/descriptors", plan, 400},
		{s.admin, "GET", "/api/descriptors", "", "", 200},
		{s.admin, "GET", "/api/descriptors/refunds", "/api/descriptors/{name}", "", 200},
		{s.admin, "GET", "/api/descriptors/refunds?version=x", "/api/descriptors/{name}", "", 400},
		{s.admin, "GET", "/api/descriptors/refunds?version=2", "/api/descriptors/{name}", "", 404},
		{s.admin, "POST", "/api/rollbacks", "", `{"checkpoint":"c","plan":true}`, 200},
		{s.admin, "POST", "/api/rollbacks", "", `{"checkpoint":"c","reason":"why"}`, 202},
		{s.admin, "POST", "/api/rollbacks", "", `{"checkpoint":"c"}`, 400},
		{s.admin, "GET", "/api/rollbacks/w/r", "/api/rollbacks/{wid}/{request}", "", 200},
		{s.admin, "GET", "/api/rollbacks/w/x", "/api/rollbacks/{wid}/{request}", "", 404},
		{s.admin, "GET", "/api/operator", "", "", 200},
		{s.admin, "GET", "/api/configuration", "", "", 200},
		{s.admin, "POST", "/api/agents", "", agent, 201},
		{s.admin, "POST", "/api/agents", "", `{"nome":"x"}`, 400},
		{s.admin, "GET", "/api/agents", "", "", 200},
		{s.admin, "GET", "/api/agents/pricing", "/api/agents/{name}", "", 200},
		{s.admin, "GET", "/api/agents/x", "/api/agents/{name}", "", 404},
		{s.admin, "GET", "/api/agents/pricing/negotiation", "/api/agents/{name}/negotiation", "", 200},
		{s.admin, "POST", "/api/agents/pricing/accept", "/api/agents/{name}/accept", "", 409},
		{s.admin, "GET", "/api/agents/pricing/lifecycle", "/api/agents/{name}/lifecycle", "", 200},
		{s.admin, "POST", "/api/agents/pricing/lifecycle", "/api/agents/{name}/lifecycle", `{"to":"deprecated","reason":"old"}`, 200},
		{s.admin, "POST", "/api/lifecycle", "", `{"to":"deprecated"}`, 400},
		{s.admin, "GET", "/api/lifecycle", "", "", 200},
		{s.admin, "GET", "/api/lifecycles", "", "", 200},
		{s.admin, "GET", "/api/breakers", "", "", 200},
		{s.admin, "GET", "/api/processes", "", "", 200},
		{s.admin, "GET", "/api/ects/" + string(record.ID), "/api/ects/{jti}", "", 200},
		{s.admin, "GET", "/api/workflows?since=2026-11-29T08:00:00Z&limit=1", "/api/workflows", "", 200},
		{s.admin, "GET", "/api/workflows", "", "", 400},
		{s.admin, "GET", "/api/workflows?since=yesterday", "/api/workflows", "", 400},
		{s.admin, "GET", "/api/workflows?since=2026-11-29T08:00:00Z&limit=-1", "/api/workflows", "", 400},
		{s.admin, "GET", "/api/workflows?since=2026-11-29T08:00:00Z&after=made-up", "/api/workflows", "", 400},
		{s.admin, "GET", "/api/workflows/" + workflow, "/api/workflows/{wid}", "", 200},
		{s.metrics, "GET", "/healthz", "", "", 200},
		{s.metrics, "GET", "/readyz", "", "", 200},
		{s.metrics, "GET", "/metrics", "", "", 200},
	} {
		path := tc.path
		if path == "" {
			path = tc.target
		}
		header := jsonBody()
		if strings.HasPrefix(tc.target, "/api/descriptors") {
			header.Set("Content-Type", "application/atd-workflow+json")
		}
		if tc.on == s.admin {
			tc.target = "https://127.0.0.1:9443" + tc.target
			header.Set("Authorization", "Bearer right")
		}
		w := (&surface{handler: tc.on}).do(tc.method, tc.target, tc.body, caller, header)
		if w.Code != tc.status {
			t.Errorf("%s %s: got %d %s, expected %d", tc.method, tc.target, w.Code, w.Body, tc.status)
			continue
		}
		doc.suits(t, "/paths/"+escape(path)+"/"+strings.ToLower(tc.method), w)
	}
}

// suits judges an answer by the response that an operation has for its status.
func (o openAPI) suits(t *testing.T, operation string, w *httptest.ResponseRecorder) {
	t.Helper()
	responses, _ := o.at(t, operation+"/responses")
	status := strconv.Itoa(w.Code)
	if responses[status] == nil {
		status = "default"
	}
	response, at := o.at(t, operation+"/responses/"+status)
	media, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
	content, _ := response["content"].(object)
	if content[media] == nil {
		t.Errorf("%s: %s has no content %s", operation, status, media)
		return
	}
	schema, err := o.compiler.Compile(openAPIName + "#" + at + "/content/" + escape(media) + "/schema")
	if err != nil {
		t.Errorf("%s: %v", operation, err)
		return
	}
	value := any(w.Body.String())
	if strings.HasSuffix(media, "json") {
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes())); err != nil {
			t.Errorf("%s: %v", operation, err)
			return
		}
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %s %s\n%v", operation, status, w.Body, err)
	}
}

// oneTask is a caller's only task, which no token follows.
type oneTask struct{}

func (oneTask) Following(_ context.Context, _ identity.Caller, _, _, task string) (ect.Ref, bool, error) {
	return ect.Ref{}, task == "t-1", nil
}
