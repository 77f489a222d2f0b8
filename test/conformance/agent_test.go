package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// extension is what lets an A2A agent say its schemas, and hear a call as such.
const extension = "urn:aepb:translation:1"

// The smallest PNG and WAV that there are.
const (
	png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	wav = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
)

const asksName = `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`

// performance is what the agent does for one skill: its steps, then what it
// asks, then its end.
type performance struct {
	steps  []string        // said on the way
	rounds []question      // what it wants to know before it ends, one thing after the other
	parts  []*a2a.Part     // of its artifact
	failed string          // why there is none
	schema json.RawMessage // of its input; nil: an object
}

type question struct{ key, prompt, schema string }

// performances are what the suite wants of the tools of these names, as far as
// A2A has words for it.
func performances() map[string]performance {
	name := []question{{"user_name", "What is your name?", asksName}}
	color := question{"step2", "Step 2: What is your favorite color?", `{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}`}
	form := func(schema string) []question { return []question{{"form", "Please fill this in.", schema}} }
	return map[string]performance{
		"test_simple_text":       {parts: []*a2a.Part{a2a.NewTextPart("This is a simple text response for testing.")}},
		"test_image_content":     {parts: []*a2a.Part{file(png, "image/png")}},
		"test_audio_content":     {parts: []*a2a.Part{file(wav, "audio/wav")}},
		"test_embedded_resource": {parts: []*a2a.Part{file(base64.StdEncoding.EncodeToString([]byte("This is an embedded resource.")), "text/plain")}},
		"test_multiple_content_types": {parts: []*a2a.Part{
			a2a.NewTextPart("Multiple content types test:"), file(png, "image/png"), file(base64.StdEncoding.EncodeToString([]byte(`{"test":"data"}`)), "application/json"),
		}},
		"test_tool_with_progress": {steps: []string{"begun", "half", "nearly"}, parts: []*a2a.Part{a2a.NewTextPart("done")}},
		"test_tool_with_logging":  {steps: []string{"begun", "half", "nearly"}, parts: []*a2a.Part{a2a.NewTextPart("done")}},
		"test_error_handling":     {failed: "This tool intentionally returns an error for testing"},
		"test_elicitation": {
			rounds: form(`{"type":"object","properties":{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`),
			parts:  []*a2a.Part{a2a.NewTextPart("User response")},
		},
		"test_elicitation_sep1034_defaults": {
			rounds: form(`{"type":"object","properties":{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},` +
				`"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}}`),
			parts: []*a2a.Part{a2a.NewTextPart("Elicitation completed")},
		},
		"test_elicitation_sep1330_enums": {
			rounds: form(`{"type":"object","properties":{"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},` +
				`"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},` +
				`"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},` +
				`"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},` +
				`"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}}`),
			parts: []*a2a.Part{a2a.NewTextPart("Elicitation completed")},
		},
		"test_input_required_result_elicitation":    {rounds: name, parts: []*a2a.Part{a2a.NewTextPart("Hello!")}},
		"test_input_required_result_request_state":  {rounds: []question{{"confirm", "Please confirm", `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`}}, parts: []*a2a.Part{a2a.NewTextPart("state-ok")}},
		"test_input_required_result_tampered_state": {rounds: name, parts: []*a2a.Part{a2a.NewTextPart("state-ok")}},
		"test_input_required_result_multi_round":    {rounds: []question{{"step1", "Step 1: What is your name?", asksName}, color}, parts: []*a2a.Part{a2a.NewTextPart("Thank you")}},
		"json_schema_2020_12_tool": {
			parts: []*a2a.Part{a2a.NewTextPart("valid")},
			schema: json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},` +
				`"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},` +
				`"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}`),
		},
	}
}

func file(encoded, media string) *a2a.Part {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return a2a.NewTextPart(err.Error())
	}
	p := a2a.NewRawPart(raw)
	p.MediaType = media
	return p
}

// agent plays the performances.
type agent struct{ plays map[string]performance }

var _ a2asrv.AgentExecutor = agent{}

func (a agent) Execute(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		for _, event := range a.events(ec) {
			if !yield(event, nil) {
				return
			}
		}
	}
}

func (agent) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil)
	}
}

func (a agent) events(ec *a2asrv.ExecutorContext) []a2a.Event {
	answer := func(parts ...*a2a.Part) *a2a.Message {
		return a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, parts...)
	}
	message, events := ec.Message, []a2a.Event(nil)
	if ec.StoredTask == nil {
		events = append(events, a2a.NewSubmittedTask(ec, ec.Message))
	} else if len(ec.StoredTask.History) > 0 {
		message = ec.StoredTask.History[0]
	}
	p, ok := a.plays[skillOf(message)]
	switch {
	case !ok:
		return append(events, a2a.NewStatusUpdateEvent(ec, a2a.TaskStateRejected, answer(a2a.NewTextPart("no such skill"))))
	case p.failed != "":
		return append(events, a2a.NewStatusUpdateEvent(ec, a2a.TaskStateFailed, answer(a2a.NewTextPart(p.failed))))
	}
	if next := p.next(ec.StoredTask); next != nil {
		return append(events, a2a.NewStatusUpdateEvent(ec, a2a.TaskStateInputRequired, answer(next.parts()...)))
	}
	for _, step := range p.steps {
		events = append(events, a2a.NewStatusUpdateEvent(ec, a2a.TaskStateWorking, answer(a2a.NewTextPart(step))))
	}
	artifact := a2a.NewArtifactEvent(ec, p.parts...)
	artifact.LastChunk = true
	return append(events, artifact, a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCompleted, nil))
}

// next is what the agent asks next; nil: it knows everything.
func (p performance) next(task *a2a.Task) *question {
	at := 0
	if task != nil && task.Status.Message != nil && len(task.Status.Message.Parts) > 0 {
		at = 1 + slices.IndexFunc(p.rounds, func(q question) bool { return q.prompt == task.Status.Message.Parts[0].Text() })
	}
	if at >= len(p.rounds) {
		return nil
	}
	return &p.rounds[at]
}

// parts are the words of a question, and its form.
func (q question) parts() []*a2a.Part {
	var schema any // the SDK keeps no raw JSON
	if err := json.Unmarshal([]byte(q.schema), &schema); err != nil {
		return []*a2a.Part{a2a.NewTextPart(err.Error())}
	}
	form := map[string]any{"key": q.key, "mode": "form", "schema": schema}
	return []*a2a.Part{a2a.NewTextPart(q.prompt), a2a.NewDataPart(map[string]any{"elicitation": form})}
}

// skillOf is what a message calls.
func skillOf(m *a2a.Message) string {
	for _, part := range m.Parts {
		if data, ok := part.Content.(a2a.Data); ok {
			if call, ok := data.Value.(map[string]any); ok {
				if skill, ok := call["skill"].(string); ok {
					return skill
				}
			}
		}
	}
	return ""
}

// serveAgent starts the agent.
func serveAgent(t *testing.T) string {
	t.Helper()
	plays := performances()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	skills, schemas := []a2a.AgentSkill{}, map[string]any{}
	for name, p := range plays {
		skills = append(skills, a2a.AgentSkill{ID: name, Name: name, Description: "For the suite.", Tags: []string{"test"}})
		schema := p.schema
		if schema == nil {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		schemas[name] = map[string]any{"inputSchema": schema}
	}
	slices.SortFunc(skills, func(a, b a2a.AgentSkill) int { return strings.Compare(a.ID, b.ID) })
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "Everything", Description: "Does what the suite wants.", Version: "1.0.0",
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(server.URL, a2a.TransportProtocolJSONRPC)},
		Capabilities: a2a.AgentCapabilities{Streaming: true, Extensions: []a2a.AgentExtension{
			{URI: extension, Params: map[string]any{"skills": schemas}},
		}},
		DefaultInputModes: []string{"text/plain", "application/json"}, DefaultOutputModes: []string{"text/plain", "application/json"},
		Skills: skills,
	}))
	mux.Handle("/", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(agent{plays})))
	return server.URL
}
