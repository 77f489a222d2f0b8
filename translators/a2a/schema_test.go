package a2a

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// dataFolder holds the schemas that the protocols' communities publish; they
// are not part of this repository.
var dataFolder = filepath.Join("..", "..", "..", "shared", "data")

// published reads one of those files; nil, and a word in the log, without it.
func published(t *testing.T, name ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{dataFolder}, name...)...))
	if err != nil {
		t.Logf("%s is not here: only the vectors of this repository are checked", filepath.Join(name...))
		return nil
	}
	return data
}

const schemaBase = "https://schema.test/"

// schemas compiles the published bundle; nil: it is not here.
func schemas(t *testing.T) *jsonschema.Compiler {
	t.Helper()
	data := published(t, "a2a", "schema-1.0.json")
	if data == nil {
		return nil
	}
	var bundle struct {
		Definitions map[string]json.RawMessage `json:"definitions"`
	}
	if err := json.Unmarshal(data, &bundle); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	for title, definition := range bundle.Definitions {
		name := strings.ReplaceAll(title, " ", "")
		prefix := "lf.a2a.v1."
		if name == "Struct" || name == "Value" || name == "Timestamp" {
			prefix = "google.protobuf."
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(definition))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource(schemaBase+prefix+name+".jsonschema.json", doc); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// schema03 compiles a definition of the published schema of 0.3; nil: it is not here.
func schema03(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	data := published(t, "a2a", "schema-0.3.json")
	if data == nil {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaBase+"0.3", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(schemaBase + "0.3#/definitions/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, value []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// TestEncode_ValidUnderSchema03: the same for 0.3, envelopes and errors included.
func TestEncode_ValidUnderSchema03(t *testing.T) {
	t.Parallel()
	request, response, card := schema03(t, "SendMessageRequest"), schema03(t, "SendMessageResponse"), schema03(t, "AgentCard")
	if request == nil {
		return
	}
	checked := 0
	for i, m := range foreigners() {
		m.Extensions, m.Body = clean(m.Extensions), cleaned(m.Body)
		wire, _, err := New(translators.Config{}).Encode(m, translators.Target{Version: Version03})
		if err != nil {
			continue
		}
		s := map[canonical.Phase]*jsonschema.Schema{canonical.PhaseRequest: request, canonical.PhaseResponse: response, canonical.PhaseError: response}[m.Phase]
		if m.Op == canonical.OpDescribe {
			s = card
		}
		if err := valid(t, s, wire.Body); err != nil {
			t.Errorf("message %d: %v\n%s", i, err, indent(wire.Body))
		}
		checked++
	}
	if checked < 13 {
		t.Errorf("only %d messages were checked", checked)
	}
	if valid(t, request, []byte(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[]}}}`)) == nil {
		t.Error("the schema finds nothing")
	}
}

// TestServedCard_ValidInBothVersions: the card that a gateway serves is, for a client of either
// version, one of its own.
func TestServedCard_ValidInBothVersions(t *testing.T) {
	t.Parallel()
	old, c := schema03(t, "AgentCard"), schemas(t)
	if old == nil || c == nil {
		return
	}
	for _, name := range []string{"card", "03-card", "card-union"} {
		m := readCard(t, name)
		served := Served(m.Body.(*canonical.Description), "https://gw.example/agents/w/a2a", true)
		text, _ := encodeCard(t, &canonical.Message{Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Body: served})
		if err := valid(t, old, []byte(text)); err != nil {
			t.Errorf("%s for 0.3: %v", name, err)
		}
		o := rawjson.Parse(raw(text), "")
		for _, member := range []string{"url", "preferredTransport", "additionalInterfaces", "protocolVersion"} {
			if o.Take(member) == nil {
				t.Errorf("%s: no %s", name, member)
			}
		}
		if body := o.Take("supportsAuthenticatedExtendedCard"); (body != nil) != served.Extended {
			t.Errorf("%s: of an extended card it says %s", name, body)
		}
		o.Take("skills") // the samples' have members of later versions
		if err := valid(t, schema(t, c, "AgentCard"), o.Rest()); err != nil {
			t.Errorf("%s for 1.0: %v", name, err)
		}
	}
}

// TestServedCard_OfOneVersion: the card for a client that names its version has the
// members that its schema knows, and no other; so does one without skills.
func TestServedCard_OfOneVersion(t *testing.T) {
	t.Parallel()
	old, c := schema03(t, "AgentCard"), schemas(t)
	if old == nil || c == nil {
		return
	}
	for _, name := range []string{"card", "03-card", "card-union"} {
		d := *readCard(t, name).Body.(*canonical.Description)
		d.Extended = true
		for _, skills := range []bool{true, false} {
			if !skills {
				d.Capabilities = []canonical.Capability{impliedSkill(&d)}
			}
			m := &canonical.Message{Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Body: Served(&d, "https://gw.example/agents/w/a2a", false)}
			for version, s := range map[string]*jsonschema.Schema{Version: schema(t, c, "AgentCard"), Version03: old} {
				wire, _, err := New(translators.Config{}).Encode(m, translators.Target{Version: version})
				if err != nil {
					t.Fatal(err)
				}
				card := rawjson.Parse(wire.Body, "")
				listed := card.Take("skills") // the samples' have members of later versions
				if whole := rawjson.NewBuilder().Merge(card.Rest()).Raw("skills", raw("[]")).Bytes(); valid(t, s, whole) != nil {
					t.Errorf("%s for %s: %v", name, version, valid(t, s, whole))
				}
				if !skills && string(listed) != "[]" {
					t.Errorf("%s for %s has the skills %s", name, version, listed)
				}
				if version == Version03 && (string(card.Peek("supportsAuthenticatedExtendedCard")) != "true" || card.Has("supportedInterfaces")) {
					t.Errorf("%s is no card of 0.3: %s", name, wire.Body)
				}
			}
		}
	}
}

func schema(t *testing.T, c *jsonschema.Compiler, name string) *jsonschema.Schema {
	t.Helper()
	s, err := c.Compile(schemaBase + "lf.a2a.v1." + name + ".jsonschema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEncode_ValidUnderSchema: what other protocols said is, in A2A's words, what the
// published schema allows.
func TestEncode_ValidUnderSchema(t *testing.T) {
	t.Parallel()
	c := schemas(t)
	if c == nil {
		return
	}
	request, response, card := schema(t, c, "SendMessageRequest"), schema(t, c, "SendMessageResponse"), schema(t, c, "AgentCard")
	tr := New(translators.Config{})
	checked := 0
	for i, m := range foreigners() {
		m.Extensions, m.Body = clean(m.Extensions), cleaned(m.Body)
		wire, _, err := tr.Encode(m, translators.Target{})
		if err != nil {
			continue
		}
		s, value := card, json.RawMessage(wire.Body)
		if m.Op != canonical.OpDescribe {
			env := rawjson.Parse(wire.Body, "")
			switch m.Phase {
			case canonical.PhaseRequest:
				s, value = request, env.Take("params")
			case canonical.PhaseResponse:
				s, value = response, env.Take("result")
			default:
				continue
			}
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(doc); err != nil {
			t.Errorf("message %d: %v\n%s", i, err, indent(value))
		}
		checked++
	}
	if checked < 12 {
		t.Errorf("only %d messages were checked", checked)
	}
}

// TestEncode_TasksValidUnderSchema: so is what they said of tasks, events and settings.
func TestEncode_TasksValidUnderSchema(t *testing.T) {
	t.Parallel()
	c := schemas(t)
	if c == nil {
		return
	}
	checked := 0
	for i, m := range tasksOfOthers() {
		name := map[string]string{
			"task.get request": "GetTaskRequest", "task.get response": "Task", "task.cancel request": "CancelTaskRequest",
			"task.subscribe request": "SubscribeToTaskRequest", "task.list request": "ListTasksRequest", "task.list response": "ListTasksResponse",
			"invoke event": "StreamResponse", "invoke request": "SendMessageRequest",
		}[string(m.Op)+" "+string(m.Phase)]
		switch m.Body.(type) {
		case *canonical.PushConfig:
			name = "TaskPushNotificationConfig"
		case *canonical.PushList:
			name = "ListTaskPushNotificationConfigsResponse"
		}
		wire, _, err := New(translators.Config{}).Encode(m, translators.Target{})
		if err != nil || name == "" {
			continue
		}
		env := rawjson.Parse(wire.Body, "")
		value := env.Take("result")
		if m.Phase == canonical.PhaseRequest {
			value = env.Take("params")
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema(t, c, name).Validate(doc); err != nil {
			t.Errorf("message %d: %v\n%s", i, err, indent(value))
		}
		checked++
	}
	if checked < 20 {
		t.Errorf("only %d messages were checked", checked)
	}
}

// clean takes away what says of itself that it is A2A of another version.
func clean(ext canonical.Extensions) canonical.Extensions {
	delete(ext, Binding)
	return ext
}

func cleaned(body canonical.Body) canonical.Body {
	if r, ok := body.(*canonical.Result); ok {
		r.Extensions = clean(r.Extensions)
	}
	return body
}

// TestGenerator_ValidUnderSchema keeps the generator honest: without members of later
// versions, its messages are what the published schema allows.
func TestGenerator_ValidUnderSchema(t *testing.T) {
	t.Parallel()
	c := schemas(t)
	if c == nil {
		return
	}
	s := schema(t, c, "Part")
	valid := 0
	for seed := range uint64(200) {
		part := generator{rand.New(rand.NewPCG(seed, 2))}.part()
		if strings.Contains(string(part), "x-later") || strings.Contains(string(part), ":null") {
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(part))
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate(doc) == nil {
			valid++
		}
	}
	if valid < 30 {
		t.Errorf("only %d of the random parts are valid", valid)
	}
}
