package stories

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestListTasks_UnreadableFilters: a filter that cannot be read is refused in every
// binding. Without it the list would hold tasks that its caller did not ask for (A2A
// 1.0, 3.1.4 and the errors of 5.4).
func TestListTasks_UnreadableFilters(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	remote := b.Remote(t, b.ClientTLS(t, b.Dev.Client))
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
			got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Header: version, Body: `{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":{"` + tc.member + `":` + tc.json + `}}`})
			if !strings.Contains(string(got.Body), `"code":-32602`) || !strings.Contains(string(got.Body), "/params/"+tc.member) {
				t.Errorf("JSON-RPC: %d %s", got.Status, got.Body)
			}
			if tc.query != "" {
				got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: gatewaytest.EndpointA2A + "/tasks?" + url.Values{tc.member: {tc.query}}.Encode(), Header: version})
				if got.Status != http.StatusBadRequest || !strings.Contains(string(got.Body), "INVALID_ARGUMENT") || !strings.Contains(string(got.Body), tc.member) {
					t.Errorf("HTTP+JSON: %d %s", got.Status, got.Body)
				}
			}
			if strings.HasPrefix(tc.json, `"`) {
				return // protobuf has no such value
			}
			received := remote.Call(t.Context(), "ListTasks", [][]byte{gatewaytest.Request(t, "ListTasks", `{"tenant":"calculator","`+tc.member+`":`+tc.json+`}`)})
			if received.Code != "INVALID_ARGUMENT" || received.Reason != "INVALID_PARAMS" {
				t.Errorf("gRPC: %s %s", received.Code, received.Details)
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
			got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: gatewaytest.EndpointA2A + path, Header: header})
			if got.Status != http.StatusOK {
				t.Errorf("%s: %d %s", path, got.Status, got.Body)
			}
		}
	})
}
