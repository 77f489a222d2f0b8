package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// echoHandler answers each call with its own id and a token of its own; a tool
// named "fail" it refuses.
type echoHandler struct {
	handler
	weight int // bytes of each answer and token
}

func (r *echoHandler) Exchange(ctx context.Context, c transport.Call) (transport.Answer, error) {
	_, _ = r.handler.Exchange(ctx, c)
	var in struct {
		ID     json.RawMessage
		Params struct{ Name string }
	}
	_ = json.Unmarshal(c.Wire.Body, &in)
	token := fmt.Sprintf("t%d.%s", len(r.calls), strings.Repeat("x", r.weight))
	answer := transport.Answer{Evidence: []string{token}}
	if in.Params.Name == "fail" {
		return answer, &canonical.Error{Code: canonical.CodeSkillNotFound, Message: "no such tool"}
	}
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"x":%q}}`, in.ID, strings.Repeat("x", r.weight))
	return transporttest.Answer(translators.Wire{Body: body}, token), r.err
}

func toolCall(id, name string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `"}}`
}

func batchOf(messages ...string) string { return "[" + strings.Join(messages, ",") + "]" }

// ids lists the ids of the answers in order; an error's with its code.
func ids(t *testing.T, body []byte) []string {
	t.Helper()
	var answers []struct {
		ID    json.RawMessage
		Error *struct{ Code int }
	}
	if err := json.Unmarshal(body, &answers); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var out []string
	for _, a := range answers {
		text := string(a.ID)
		if a.Error != nil {
			text += fmt.Sprint(" ", a.Error.Code)
		}
		out = append(out, text)
	}
	return out
}

// TestBatch_AnswersInOrder: one exchange for each message, and the answers in order.
func TestBatch_AnswersInOrder(t *testing.T) {
	t.Parallel()
	r := &echoHandler{handler: handler{description: chef()}}
	body := " " + batchOf(
		toolCall("1", "a"), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, toolCall(`"two"`, "fail"),
		`{"jsonrpc":"2.0","id":3,"method":"ping"}`, `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`, toolCall("5", "b"),
		`{"jsonrpc":"2.0","id":6,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tasks/list"}`, `{"jsonrpc":"2.0","id":8,"id":8,"method":"ping"}`, `17`,
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"t",`+meta+`}}`, `{"jsonrpc":"2.0","id":10,"result":[]}`,
	) + "\n"
	for name, h := range map[string]http.Header{
		"no version": legacyHeader(), "its own": with(legacyHeader(), "Mcp-Protocol-Version", mcp.LegacyMarch),
	} {
		r.calls = nil
		got := knock(t, r, http.MethodPost, h, body)
		want := []string{"1", `"two" -32602`, "3", "4", "5", "6 -32600", "7 -32601", " -32700", " -32600", "9 -32020", "10 -32600"}
		if diff := cmp.Diff(want, ids(t, got.Body.Bytes())); diff != "" || got.Code != http.StatusOK || got.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", name, got.Code, diff)
		}
		if diff := cmp.Diff([]string{"t1.", "t3.", "t4."}, got.Header().Values("Execution-Context")); diff != "" {
			t.Errorf("%s: evidence: %s", name, diff)
		}
		var bodies []string
		for _, c := range r.calls {
			bodies = append(bodies, string(c.Wire.Body))
			if c.Wire.Version != mcp.LegacyMarch || c.Agent != "chef" || c.Caller.ID != "spiffe://td/caller" || c.EntryPoint != transport.Native {
				t.Errorf("%s: the call: %+v", name, c)
			}
		}
		if diff := cmp.Diff([]string{toolCall("1", "a"), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, toolCall(`"two"`, "fail"), toolCall("5", "b")}, bodies); diff != "" {
			t.Errorf("%s: bodies: %s", name, diff)
		}
	}
}

func TestBatch_OnlyNotifications(t *testing.T) {
	t.Parallel()
	notice := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	got := knock(t, &handler{}, http.MethodPost, legacyHeader(), batchOf(notice, notice))
	if got.Code != http.StatusAccepted || got.Body.Len() > 0 {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
}

// TestBatch_RefusedAsAWhole: what is refused as a whole, before anything is done.
func TestBatch_RefusedAsAWhole(t *testing.T) {
	t.Parallel()
	one := toolCall("1", "a")
	for name, tc := range map[string]struct {
		header http.Header
		body   string
		code   int
		says   string
	}{
		"June":            {with(legacyHeader(), "Mcp-Protocol-Version", mcp.LegacyJune), batchOf(one), -32600, "batches are in"},
		"November":        {with(legacyHeader(), "Mcp-Protocol-Version", mcp.Legacy), batchOf(one), -32600, "batches are in"},
		"modern":          {modernHeader("tools/call", "a"), batchOf(callBody), -32600, "batches are in"},
		"unknown version": {with(legacyHeader(), "Mcp-Protocol-Version", "2024-10-07"), batchOf(one), -32022, "Unsupported"},
		"too many":        {legacyHeader(), batchOf(slices.Repeat([]string{`{}`}, 65)...), -32600, "at most 64"},
		"empty":           {legacyHeader(), "[ ]", -32600, "empty"},
		"with evidence":   {with(legacyHeader(), "Execution-Context", "a.b.c"), batchOf(one), -32600, "by itself"},
		"unfinished":      {legacyHeader(), "[" + one, -32700, ""},
		"no comma":        {legacyHeader(), "[" + one + one + "]", -32700, ""},
		"more behind":     {legacyHeader(), batchOf(one) + "x", -32700, ""},
		"two of them":     {legacyHeader(), batchOf(one) + batchOf(one), -32700, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &handler{}
			got := knock(t, r, http.MethodPost, tc.header, tc.body)
			if got.Code != http.StatusBadRequest || len(r.calls) > 0 || !strings.Contains(got.Body.String(), tc.says) {
				t.Errorf("got %d %s", got.Code, got.Body)
			}
			checkFailure(t, got, tc.code, "")
		})
	}
}

// TestBatch_IsBounded: neither its answers nor its evidence grow without end.
func TestBatch_IsBounded(t *testing.T) {
	t.Parallel()
	var messages []string
	for i := range 40 {
		messages = append(messages, toolCall(fmt.Sprint(i), "a"))
	}
	r := &echoHandler{weight: 1000}
	got := knock(t, r, http.MethodPost, legacyHeader(), batchOf(messages...))
	answers := ids(t, got.Body.Bytes())
	if len(answers) != 40 || len(r.calls) != 4 || answers[3] != "3" || answers[4] != "4 -32603" {
		t.Errorf("%d calls, answers %v", len(r.calls), answers)
	}
	r = &echoHandler{weight: 20}
	got = knock(t, r, http.MethodPost, legacyHeader(), batchOf(messages[:30]...))
	if n := len(got.Header().Values("Execution-Context")); n != 30 || len(r.calls) != 30 {
		t.Errorf("%d tokens of %d calls", n, len(r.calls))
	}
	r = &echoHandler{weight: 0}
	heavy := &heavyHandler{r}
	got = knock(t, heavy, http.MethodPost, legacyHeader(), batchOf(messages[:10]...))
	if n := len(got.Header().Values("Execution-Context")); n != 6 || len(r.calls) != 10 {
		t.Errorf("%d tokens of %d calls", n, len(r.calls))
	}
}

// heavyHandler has tokens of 2000 bytes.
type heavyHandler struct{ *echoHandler }

func (h *heavyHandler) Exchange(ctx context.Context, c transport.Call) (transport.Answer, error) {
	answer, err := h.echoHandler.Exchange(ctx, c)
	answer.Evidence = []string{strings.Repeat("x", 2000)}
	return answer, err
}

// TestBatch_FailureKeepsHTTPStatus keeps the status that HTTP clients act on.
func TestBatch_FailureKeepsHTTPStatus(t *testing.T) {
	t.Parallel()
	two := batchOf(toolCall("1", "a"), toolCall("2", "b"))
	got := knock(t, &handler{err: &limit.ExceededError{RetryAfter: 1}}, http.MethodPost, legacyHeader(), two)
	if got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" || len(ids(t, got.Body.Bytes())) != 2 {
		t.Errorf("got %d %v %s", got.Code, got.Header(), got.Body)
	}
	got = knock(t, &handler{err: &problem.UnauthenticatedError{}}, http.MethodPost, legacyHeader(), batchOf(toolCall("1", "a"), `{"jsonrpc":"2.0","id":2,"method":"ping"}`))
	if got.Code != http.StatusOK || got.Header().Get("Www-Authenticate") != "" {
		t.Errorf("got %d %v %s", got.Code, got.Header(), got.Body)
	}
}

// TestBatch_EndsWithItsCaller: nobody who hangs up has the rest done.
func TestBatch_EndsWithItsCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := &leavingHandler{cancel: cancel}
	request := newKnock(ctx, http.MethodPost, legacyHeader(), batchOf(toolCall("1", "a"), toolCall("2", "b")))
	got := answerTo(t, r, request)
	if len(r.calls) != 1 || got.Body.Len() > 0 {
		t.Errorf("%d calls, %s", len(r.calls), got.Body)
	}
}

type leavingHandler struct {
	handler
	cancel func()
}

func (r *leavingHandler) Exchange(ctx context.Context, c transport.Call) (transport.Answer, error) {
	r.cancel()
	r.answer = transporttest.Answer(translators.Wire{Body: []byte(`{}`)})
	return r.handler.Exchange(ctx, c)
}
