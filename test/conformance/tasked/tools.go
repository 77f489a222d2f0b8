package tasked

import (
	"context"
	"encoding/json"
	"time"
)

const maxSeconds = 600

// tools are those that the suite calls (tasks-*, required server fixtures).
const tools = `[
{"name":"greet","description":"Greets","inputSchema":{"type":"object","properties":{"name":{"type":"string"}}}},
{"name":"slow_compute","description":"Takes its time","inputSchema":{"type":"object","properties":{"seconds":{"type":"number"},"label":{"type":"string"}}}},
{"name":"failing_job","description":"Fails","inputSchema":{"type":"object"}},
{"name":"protocol_error_job","description":"Breaks down","inputSchema":{"type":"object"}},
{"name":"confirm_delete","description":"Asks before it deletes","inputSchema":{"type":"object","properties":{"filename":{"type":"string"}}}},
{"name":"multi_input","description":"Asks two things at once","inputSchema":{"type":"object"}},
{"name":"test_tool_with_task","description":"Asks for a name, then begins a task","inputSchema":{"type":"object"}}]`

// form asks for one field.
func form(message, field, kind string) json.RawMessage {
	return json.RawMessage(`{"method":"elicitation/create","params":{"mode":"form","message":"` + message +
		`","requestedSchema":{"type":"object","properties":{"` + field + `":{"type":"` + kind + `"}},"required":["` + field + `"]}}}`)
}

// text is the result of a tool.
func text(said string, failed bool) json.RawMessage {
	raw, err := json.Marshal(struct {
		Type    string           `json:"resultType"`
		Content []map[string]any `json:"content"`
		Failed  bool             `json:"isError,omitempty"`
	}{"complete", []map[string]any{{"type": "text", "text": said}}, failed})
	if err != nil {
		return nil // text is always JSON
	}
	return raw
}

func says(said string, failed bool) func(map[string]json.RawMessage) (json.RawMessage, *rpcError) {
	return func(map[string]json.RawMessage) (json.RawMessage, *rpcError) { return text(said, failed), nil }
}

// call calls a tool.
func (s *Server) call(ctx context.Context, req *request) (any, error) {
	p := &req.Params
	switch p.Name {
	case "greet":
		return text("Hello, "+p.Arguments.Name+"!", false), nil
	case "slow_compute":
		return s.slow(ctx, req)
	case "failing_job", "protocol_error_job", "confirm_delete", "multi_input", "test_tool_with_task":
		if !req.tasked() {
			return nil, missing()
		}
	default:
		return nil, &rpcError{Code: codeBadParams, Message: "Unknown tool: " + p.Name}
	}
	switch p.Name {
	case "failing_job":
		return s.begin(time.Second, nil, says("this job always fails", true)).brief("task"), nil
	case "protocol_error_job":
		return s.begin(time.Second, nil, func(map[string]json.RawMessage) (json.RawMessage, *rpcError) {
			return nil, &rpcError{Code: codeInternal, Message: "the job broke down"}
		}).brief("task"), nil
	case "confirm_delete":
		return s.begin(0, map[string]json.RawMessage{"confirm": form("Really?", "confirm", "boolean")}, confirmed(p.Arguments.Filename)).brief("task"), nil
	case "multi_input":
		asks := map[string]json.RawMessage{"first": form("The first?", "name", "string"), "second": form("The second?", "name", "string")}
		return s.begin(0, asks, says("thank you for both", false)).brief("task"), nil
	default:
		return s.named(req)
	}
}

// slow waits, or has a client that understands tasks wait.
func (s *Server) slow(ctx context.Context, req *request) (any, error) {
	seconds, err := req.Params.Arguments.Seconds.Float64()
	if err != nil || seconds < 0 || seconds > maxSeconds {
		seconds = 0
	}
	takes := time.Duration(seconds * float64(time.Second))
	said := "computed " + req.Params.Arguments.Label
	if req.tasked() {
		return s.begin(takes, nil, says(said, false)).brief("task"), nil
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return text(said, false), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func confirmed(file string) func(map[string]json.RawMessage) (json.RawMessage, *rpcError) {
	return func(answers map[string]json.RawMessage) (json.RawMessage, *rpcError) {
		var answer struct {
			Action  string `json:"action"`
			Content struct {
				Confirm bool `json:"confirm"`
			} `json:"content"`
		}
		if json.Unmarshal(answers["confirm"], &answer) == nil && answer.Action == "accept" && answer.Content.Confirm {
			return text("deleted "+file, false), nil
		}
		return text("kept "+file, false), nil
	}
}

// named asks for a name, and begins a task once it has it.
func (s *Server) named(req *request) (any, error) {
	var answer struct {
		Content struct {
			Name string `json:"name"`
		} `json:"content"`
	}
	err := json.Unmarshal(req.Params.Responses["user_name"], &answer)
	if asked := err == nil && req.Params.State == "asked"; !asked {
		return json.RawMessage(`{"resultType":"input_required","inputRequests":{"user_name":` + string(form("What is your name?", "name", "string")) + `},"requestState":"asked"}`), nil
	}
	return s.begin(0, nil, says("Hello, "+answer.Content.Name+", from a task", false)).brief("task"), nil
}
