package mcp_test

import (
	"errors"
	"net/http"
	"testing"

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
func TestLimitBeforeBody(t *testing.T) {
	t.Parallel()
	r := &road{full: &limit.ExceededError{}}
	request := newKnock(t.Context(), http.MethodPost, modernHeader("tools/call", "echo"), "")
	request.Body = untouched{t}
	if w := answerTo(t, r, request); w.Code != http.StatusTooManyRequests || len(r.calls) > 0 || len(r.limits) != 1 {
		t.Errorf("got %d %s, %d calls", w.Code, w.Body, len(r.calls))
	}
	if q := r.limits[0]; q.Agent != "chef" || q.Binding != mcp.Binding || q.Caller.ID != "spiffe://td/caller" || q.Address != "192.0.2.1" || q.Limited {
		t.Errorf("asked for %+v", q)
	}
}

// What the door answers by itself it answers to callers of the agent only.
func TestOwnAnswersAreForCallers(t *testing.T) {
	t.Parallel()
	notice := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	batch := "[" + ping + "," + notice + "]"
	for name, tc := range map[string]struct {
		body     string
		stranger error
		status   int
		asked    []bool // of each admission: was the limit asked before
	}{
		"ping":                     {ping, nil, 200, []bool{true}},
		"notification":             {notice, nil, 202, []bool{true}},
		"ping of a stranger":       {ping, &policy.Forbidden{}, 403, []bool{true}},
		"notification, a stranger": {notice, &policy.Forbidden{}, 403, []bool{true}},
		"broken, a stranger":       {"{", &policy.Forbidden{}, 403, []bool{true}},
		"a batch is one each":      {batch, nil, 200, []bool{true, false}},
	} {
		r := &road{stranger: tc.stranger}
		w := knock(t, r, http.MethodPost, legacyHeader(), tc.body)
		if w.Code != tc.status || len(r.limits) != 1 || len(r.admissions) != len(tc.asked) {
			t.Errorf("%s: got %d %s, asked the limit %d times, for admission %d times", name, w.Code, w.Body, len(r.limits), len(r.admissions))
			continue
		}
		for i, q := range r.admissions {
			if q.Limited != tc.asked[i] || q.Agent != "chef" || q.Caller.ID != "spiffe://td/caller" {
				t.Errorf("%s: admission %d for %+v", name, i, q)
			}
		}
	}
	r := &road{}
	knock(t, r, http.MethodPost, modernHeader("tools/call", "echo"), callBody)
	knock(t, r, http.MethodPost, modernHeader("tools/list", ""), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+meta+`}}`)
	if len(r.calls) != 1 || !r.calls[0].Limited || len(r.inquiries) != 1 || !r.inquiries[0].Limited {
		t.Errorf("calls %+v, inquiries %+v", r.calls, r.inquiries)
	}
}
