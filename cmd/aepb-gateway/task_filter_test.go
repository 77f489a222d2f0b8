package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestListTasks_UnreadableFilters: a filter that cannot be read is refused in every
// binding. Without it the list would hold tasks that its caller did not ask for (A2A
// 1.0, 3.1.4 and the errors of 5.4).
func TestListTasks_UnreadableFilters(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	remote := b.remote(t, b.clientTLS(t, b.dev.Client))
	version := map[string]string{"A2A-Version": "1.0"}
	cases := map[string]struct{ member, json, query string }{
		"an unknown status":         {"status", `"TASK_STATE_RUNNING"`, "TASK_STATE_RUNNING"},
		"an unknown status number":  {"status", "99", ""},
		"a misspelt status":         {"status", `"working"`, "working"},
		"no timestamp":              {"statusTimestampAfter", `"yesterday"`, "yesterday"},
		"an empty timestamp":        {"statusTimestampAfter", `""`, ""},
		"a timestamp without time":  {"statusTimestampAfter", `"2026-01-02"`, "2026-01-02"},
		"a negative history length": {"historyLength", "-5", "-5"},
		"a negative page size":      {"pageSize", "-1", "-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := b.send(t, letter{at: doorA2A, header: version, body: `{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":{"` + tc.member + `":` + tc.json + `}}`})
			if !strings.Contains(string(got.body), `"code":-32602`) || !strings.Contains(string(got.body), "/params/"+tc.member) {
				t.Errorf("JSON-RPC: %d %s", got.status, got.body)
			}
			if tc.query != "" {
				got := b.send(t, letter{method: http.MethodGet, media: "-", at: doorA2A + "/tasks?" + url.Values{tc.member: {tc.query}}.Encode(), header: version})
				if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), "INVALID_ARGUMENT") || !strings.Contains(string(got.body), tc.member) {
					t.Errorf("HTTP+JSON: %d %s", got.status, got.body)
				}
			}
			if strings.HasPrefix(tc.json, `"`) {
				return // protobuf has no such value
			}
			heard := remote.Call(t.Context(), "ListTasks", [][]byte{request(t, "ListTasks", `{"tenant":"calculator","`+tc.member+`":`+tc.json+`}`)})
			if heard.Code != "INVALID_ARGUMENT" || heard.Reason != "INVALID_PARAMS" {
				t.Errorf("gRPC: %s %s", heard.Code, heard.Details)
			}
		})
	}
	t.Run("readable filters", func(t *testing.T) {
		for path, version := range map[string]string{
			"/tasks?status=TASK_STATE_WORKING&statusTimestampAfter=2026-01-02T15:04:05Z&historyLength=0&pageSize=1": "1.0",
			"/v1/tasks?status=TASK_STATE_CANCELLED": "", // as clients of 0.3 spell it
		} {
			header := map[string]string{}
			if version != "" {
				header["A2A-Version"] = version
			}
			got := b.send(t, letter{method: http.MethodGet, media: "-", at: doorA2A + path, header: header})
			if got.status != http.StatusOK {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	})
}
