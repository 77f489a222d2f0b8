package httpapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/descriptor"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy"
)

// plan is a descriptor.
const plan = `{"wf_id":"refunds","nodes":[{"id":"a","label":"find","agent":"orders"},{"id":"b","label":"refund","hitl_required":true}],"edges":[{"from":"a","to":"b"}]}`

// fewDescriptors stores descriptors where the agent orders is listed.
func fewDescriptors(t *testing.T) *descriptor.Service {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s, err := descriptor.New(descriptor.Deps{
		Entries: memory.Entries(), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Names: func(_ context.Context, agent string) ([]string, bool) {
			return []string{"spiffe://example.com/orders"}, agent == "orders"
		},
		Operators: func() []policy.Operator { return []policy.Operator{{Name: "ann", Roles: policy.Roles()}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDescriptors_CheckedAndStored: a check stores nothing, a version has its bytes, and other media types are refused.
func TestDescriptors_CheckedAndStored(t *testing.T) {
	t.Parallel()
	s := serveAll(t)
	ask := func(method, target, media, body string) (int, string) {
		w := (&surface{handler: s.admin}).do(method, "https://127.0.0.1:9443/api/descriptors"+target, body, nil, http.Header{"Authorization": {"Bearer right"}, "Content-Type": {media}})
		return w.Code, w.Body.String()
	}
	const media = "application/atd-workflow+json"
	for _, tc := range []struct {
		method, target, media, body string
		status                      int
		want                        string
	}{
		{"POST", "", "application/json", plan, 415, media},
		{"POST", "?check=true", media, plan, 200, `"order":["a","b"],"waves":[["a"],["b"]],"agents":{"orders":["spiffe://example.com/orders"]}`},
		{"GET", "", "", "", 200, `{"descriptors":[]}`},
		{"POST", "", media, strings.Replace(plan, "orders", "others", 1), 400, "is not in the directory"},
		{"POST", "", media, strings.Repeat(" ", 256<<10) + plan, 413, ""},
		{"POST", "", media + "; charset=utf-8", plan, 201, `"version":1`},
		{"POST", "", media, plan, 201, `"version":1`},
		{"POST", "", media, plan + "\n", 201, `"version":2`},
		{"GET", "/refunds?version=1", "", "", 200, `"by":"developer"`},
		{"GET", "/others", "", "", 404, "aepbctl workflow put"},
	} {
		if status, body := ask(tc.method, tc.target, tc.media, tc.body); status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s %s: %d %s, want %d and %s", tc.method, tc.target, tc.media, status, body, tc.status, tc.want)
		}
	}
}
