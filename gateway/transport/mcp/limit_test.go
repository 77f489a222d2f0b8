package mcp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// untouched is a body that nobody may read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, errors.New("read")
}

func (untouched) Close() error { return nil }

// Whoever asks too often gets no work done, not even the reading of a body.
func TestLimit_BeforeBody(t *testing.T) {
	t.Parallel()
	r := &handler{full: &limit.ExceededError{}}
	request := newKnock(t.Context(), http.MethodPost, modernHeader("tools/call", "echo"), "")
	request.Body = untouched{t}
	if w := answerTo(t, r, request); w.Code != http.StatusTooManyRequests || len(r.calls) > 0 || len(r.limits) != 1 {
		t.Errorf("got %d %s, %d calls", w.Code, w.Body, len(r.calls))
	}
	if q := r.limits[0]; q.Agent != "chef" || q.Binding != mcp.Binding || q.Caller.ID != "spiffe://td/caller" || q.Address != "192.0.2.1" || q.Pass.Valid() {
		t.Errorf("asked for %+v", q)
	}
}

// What the door answers by itself it answers to callers of the agent only.
func TestServer_OwnAnswersNeedAdmission(t *testing.T) {
	t.Parallel()
	notice := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	batch := "[" + ping + "," + notice + "]"
	for name, tc := range map[string]struct {
		body     string
		stranger error
		status   int
		queries  int // for admission, and the limit before each
	}{
		"ping":                     {ping, nil, 200, 1},
		"notification":             {notice, nil, 202, 1},
		"ping of a stranger":       {ping, &policy.Forbidden{}, 403, 1},
		"notification, a stranger": {notice, &policy.Forbidden{}, 403, 1},
		"broken, a stranger":       {"{", &policy.Forbidden{}, 403, 1},
		"a batch is one each":      {batch, nil, 200, 2},
	} {
		r := &handler{stranger: tc.stranger}
		w := knock(t, r, http.MethodPost, legacyHeader(), tc.body)
		if w.Code != tc.status || len(r.limits) != tc.queries || len(r.admissions) != tc.queries {
			t.Errorf("%s: got %d %s, asked the limit %d times, for admission %d times", name, w.Code, w.Body, len(r.limits), len(r.admissions))
			continue
		}
		for i, q := range r.admissions {
			if !q.Pass.Valid() || q.Agent != "chef" || q.Caller.ID != "spiffe://td/caller" {
				t.Errorf("%s: admission %d for %+v", name, i, q)
			}
		}
	}
	r := &handler{}
	knock(t, r, http.MethodPost, modernHeader("tools/call", "echo"), callBody)
	knock(t, r, http.MethodPost, modernHeader("tools/list", ""), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+meta+`}}`)
	if len(r.calls) != 1 || !r.calls[0].Pass.Valid() || len(r.inquiries) != 1 || !r.inquiries[0].Pass.Valid() || len(r.limits) != 2 {
		t.Errorf("calls %+v, inquiries %+v, asked the limit %d times", r.calls, r.inquiries, len(r.limits))
	}
}

// scarce refuses what comes after so many requests.
type scarce struct {
	handler
	left int
}

func (r *scarce) Limit(ctx context.Context, q transport.CallInfo) (limit.Pass, error) {
	if r.left--; r.left < 0 {
		r.full = &limit.ExceededError{Scope: limit.ScopeIdentity}
	}
	return r.handler.Limit(ctx, q)
}

// Each message of a batch is one request. What cannot be read costs nothing, except as the
// first, which came with the batch.
func TestBatch_TakesOneRequestForEachMessage(t *testing.T) {
	t.Parallel()
	list := `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	for name, tc := range map[string]struct {
		body                     string
		limits, calls, inquiries int
	}{
		"each":       {batchOf(toolCall("1", "a"), ping, list, toolCall("4", "b")), 4, 2, 1},
		"unreadable": {batchOf(`{}`, toolCall("1", "a"), `{}`, list), 3, 1, 1},
	} {
		r := &handler{}
		if got := knock(t, r, http.MethodPost, legacyHeader(), tc.body); got.Code != http.StatusOK || len(r.limits) != tc.limits || len(r.calls) != tc.calls || len(r.inquiries) != tc.inquiries {
			t.Errorf("%s: got %d %s, asked the limit %d times, %d calls, %d inquiries", name, got.Code, got.Body, len(r.limits), len(r.calls), len(r.inquiries))
		}
	}
	r := &scarce{left: 2}
	got := knock(t, r, http.MethodPost, legacyHeader(), batchOf(toolCall("1", "a"), toolCall("2", "b"), list, ping))
	if len(r.limits) != 4 || len(r.calls) != 2 || len(r.inquiries)+len(r.admissions) > 0 || strings.Count(got.Body.String(), "Too many requests") != 2 {
		t.Errorf("asked the limit %d times, %d calls, %d inquiries: %s", len(r.limits), len(r.calls), len(r.inquiries), got.Body)
	}
}
