package interop

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// typed is the message that calls a tool: one data part {skill, input}. The SDK
// writes a raw input as it is, so numbers keep every digit on their way out.
func typed(skill, input string) *a2a.Message {
	part := a2a.NewDataPart(map[string]any{"skill": skill, "input": json.RawMessage(input)})
	part.MediaType = "application/json"
	return a2a.NewMessage(a2a.MessageRoleUser, part)
}

func said(text string) *a2a.Message {
	return a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
}

// a2aToMCP has A2A SDK clients call tools of MCP servers of both eras, which they
// take for A2A agents.
func a2aToMCP(t *testing.T, g *gw) {
	t.Helper()
	t.Run("stateless", func(t *testing.T) { a2aGoToTools(t, g, "modern", true) })
	t.Run("stateful", func(t *testing.T) { a2aGoToTools(t, g, "legacy", false) })
	t.Run("text", func(t *testing.T) { a2aGoText(t, g) })
	t.Run("JavaScript", func(t *testing.T) { a2aJSToTools(t, g) })
}

func a2aGoToTools(t *testing.T, g *gw, name string, stateless bool) {
	t.Helper()
	server := g.toolbox(t, name, stateless)
	for _, tt := range []struct {
		name, skill, input string
		state              a2a.TaskState
		wire, text         string // what the response holds, literally; what the SDK reads from it
	}{
		{
			"sum above 2^53", "add", `{"a":9007199254740993,"b":2}`,
			a2a.TaskStateCompleted, `"sum":9007199254740995`, "",
		},
		{
			"sum above 2^64", "add", `{"a":18446744073709551616,"b":1}`,
			a2a.TaskStateCompleted, `"sum":18446744073709551617`, "",
		},
		{"echo", "echo", `{"message":"good evening"}`, a2a.TaskStateCompleted, "good evening", "good evening"},
		{"a failing tool fails the task", "fail", `{}`, a2a.TaskStateFailed, "always fails", "this tool always fails"},
		{
			"a refused argument fails the task", "add", `{"a":1,"b":1.5}`,
			a2a.TaskStateFailed, "not an integer", "b is not an integer",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			who := g.authenticated(t)
			got, err := peers.A2ACall(t.Context(), who.client, g.agentURL(name), typed(tt.skill, tt.input))
			if err != nil {
				t.Fatal(err)
			}
			checkSkills(t, got.Card, "add", "echo", "fail", "weather")
			if got.State() != tt.state || got.Text() != tt.text {
				t.Errorf("state %s text %q, want %s %q", got.State(), got.Text(), tt.state, tt.text)
			}
			e := only(t, who.wire.exchanges())
			if !strings.Contains(e.Response, tt.wire) {
				t.Errorf("response %s lacks %s", e.Response, tt.wire)
			}
			check(t, g.auditor().answered(e, who.id, server.Received()))
		})
	}
	t.Run("an unknown tool is an error", func(t *testing.T) {
		who := g.anonymous(t)
		if got, err := peers.A2ACall(t.Context(), who.client, g.agentURL(name), typed("nonesuch", `{}`)); err == nil {
			t.Fatalf("task %s", got.State())
		}
		e := only(t, who.wire.exchanges())
		if code, _ := rpcError(t, e); code != -32602 {
			t.Errorf("code %d in %s", code, e.Response)
		}
		check(t, g.auditor().refused(e))
	})
}

// a2aGoText sends plain text to servers with one tool.
func a2aGoText(t *testing.T, g *gw) {
	t.Helper()
	echo := g.toolbox(t, "echoing", true, "echo")
	g.toolbox(t, "forecast", true, "weather")
	t.Run("binds to the one required string", func(t *testing.T) {
		who := g.anonymous(t)
		got, err := peers.A2ACall(t.Context(), who.client, g.agentURL("echoing"), said("good evening"))
		if err != nil {
			t.Fatal(err)
		}
		if got.State() != a2a.TaskStateCompleted || got.Text() != "good evening" {
			t.Errorf("state %s text %q", got.State(), got.Text())
		}
		check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, echo.Received()))
	})
	t.Run("a schema that text cannot fill is asked for, and filled", func(t *testing.T) {
		who := g.authenticated(t)
		request, err := peers.A2ACall(t.Context(), who.client, g.agentURL("forecast"), said("Oslo, please"))
		if err != nil || request.State() != a2a.TaskStateInputRequired {
			t.Fatalf("%v: %v", request, err)
		}
		e := only(t, who.wire.exchanges())
		if !strings.Contains(e.Response, `"required":["city","day"]`) {
			t.Errorf("the question is %s", e.Response)
		}
		answer := typed("weather", `{"city":"Oslo","day":"today"}`)
		answer.TaskID, answer.ContextID = request.Task.ID, request.Task.ContextID
		answer.Parts = a2a.ContentParts{a2a.NewDataPart(map[string]any{"city": "Oslo", "day": "today"})}
		done, err := peers.A2ACall(t.Context(), who.client, g.agentURL("forecast"), answer)
		if err != nil || done.State() != a2a.TaskStateCompleted {
			t.Fatalf("%v: %v", done, err)
		}
	})
}

// a2aJSToTools is the same by the JavaScript SDK, whose numbers are doubles.
func a2aJSToTools(t *testing.T, g *gw) {
	t.Helper()
	server := g.toolbox(t, "toolbox", true)
	js := newJavascript(t)
	for _, base := range []string{"/a2a", "/a2a/"} { // it looks for the card beside the one and below the other
		t.Run(base, func(t *testing.T) {
			var got jsA2AReport
			js.run(t, g.CAFile(), "a2a-client.mjs", jsA2AJob{Base: g.agentURL("toolbox") + base, Messages: [][]jsPart{
				jsData(`{"skill":"add","input":{"a":40,"b":2}}`),
				jsData(`{"skill":"echo","input":{"message":"good evening"}}`),
				jsData(`{"skill":"fail","input":{}}`),
			}}, &got)
			if !sameSet(got.Card.Skills, "add", "echo", "fail", "weather") {
				t.Errorf("skills %v", got.Card.Skills)
			}
			sum, echo, failed := got.Results[0], got.Results[1], got.Results[2]
			if sum.State != "TASK_STATE_COMPLETED" || len(sum.Data) != 1 || string(sum.Data[0]) != `{"sum":42}` {
				t.Errorf("add: %+v", sum)
			}
			if echo.State != "TASK_STATE_COMPLETED" || echo.Text != "good evening" {
				t.Errorf("echo: %+v", echo)
			}
			if failed.State != "TASK_STATE_FAILED" || failed.Text != "this tool always fails" {
				t.Errorf("fail: %+v", failed)
			}
			for _, e := range got.Exchanges {
				check(t, g.auditor().answered(e, g.anonymousID(), server.Received()))
			}
		})
	}
}

func (g *gw) auditor() auditor { return auditor{roots: g.Roots(), gateway: g.GatewayID()} }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func checkSkills(t *testing.T, card *a2a.AgentCard, want ...string) {
	t.Helper()
	var ids []string
	for _, skill := range card.Skills {
		ids = append(ids, skill.ID)
	}
	if !sameSet(ids, want...) {
		t.Errorf("skills %v, want %v", ids, want)
	}
}

func sameSet(got []string, want ...string) bool {
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

func only(t *testing.T, all []exchange) exchange {
	t.Helper()
	if len(all) != 1 || all[0].Status != http.StatusOK {
		t.Fatalf("%d exchanges: %+v", len(all), all)
	}
	return all[0]
}

// rpcError reads the code and the data of a JSON-RPC error.
func rpcError(t *testing.T, e exchange) (int, []json.RawMessage) {
	t.Helper()
	var envelope struct {
		Error struct {
			Code int               `json:"code"`
			Data []json.RawMessage `json:"data"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(e.payload()), &envelope); err != nil {
		t.Fatalf("%v in %s", err, e.Response)
	}
	return envelope.Error.Code, envelope.Error.Data
}
