package cors_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/httpapi/cors"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

const page = "https://app.example.com"

// answer is what a handler behind it answers: 200, or 403 as MCP's and A2A's endpoints do.
func answer(t *testing.T, origins []string, method string, header map[string]string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "https://gateway.example.com/agents/a/mcp", nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	cors.Handler(func() []string { return origins }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if transport.CheckOrigin(r, nil) != nil {
			w.WriteHeader(http.StatusForbidden)
		}
	})).ServeHTTP(w, r)
	return w.Result()
}

func TestHandler_Answers(t *testing.T) {
	t.Parallel()
	asks := map[string]string{"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,mcp-param-n"}
	with := func(name, value string) map[string]string {
		return map[string]string{"Origin": asks["Origin"], "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization", name: value}
	}
	for name, c := range map[string]struct {
		origins []string
		method  string
		header  map[string]string
		status  int
		allowed string // origin
		names   string // of header fields
		exposes bool
		varies  bool // by the origin
	}{
		"a listed page":            {[]string{page}, http.MethodPost, map[string]string{"Origin": page}, 200, page, "", true, true},
		"it asks before":           {[]string{page}, http.MethodOptions, asks, 204, page, "authorization,mcp-param-n", false, true},
		"no page":                  {[]string{page}, http.MethodPost, nil, 200, "", "", false, true},
		"another page":             {[]string{page}, http.MethodPost, map[string]string{"Origin": "https://evil.example"}, 403, "", "", false, true},
		"another page asks before": {[]string{page}, http.MethodOptions, with("Origin", "https://evil.example"), 403, "", "", false, true},
		"a page like it":           {[]string{page}, http.MethodPost, map[string]string{"Origin": page + ".evil.example"}, 403, "", "", false, true},
		"another port":             {[]string{page}, http.MethodPost, map[string]string{"Origin": page + ":8443"}, 403, "", "", false, true},
		"a file":                   {[]string{page}, http.MethodPost, map[string]string{"Origin": "null"}, 403, "", "", false, true},
		"names that are none":      {[]string{page}, http.MethodOptions, with("Access-Control-Request-Headers", "a\"b"), 204, page, "", false, true},
		"many names":               {[]string{page}, http.MethodOptions, with("Access-Control-Request-Headers", strings.Repeat("a,", 600)), 204, page, "", false, true},
		"OPTIONS that asks nothing": {
			[]string{page}, http.MethodOptions, map[string]string{"Origin": page}, 200, page, "", true, true,
		},
		"no origins are listed": {nil, http.MethodPost, map[string]string{"Origin": page}, 403, "", "", false, false},
	} {
		got := answer(t, c.origins, c.method, c.header)
		h := got.Header
		if got.StatusCode != c.status || h.Get("Access-Control-Allow-Origin") != c.allowed || h.Get("Access-Control-Allow-Headers") != c.names ||
			(h.Get("Access-Control-Expose-Headers") != "") != c.exposes || strings.Contains(strings.Join(h.Values("Vary"), ","), "Origin") != c.varies {
			t.Errorf("%s: %d %v", name, got.StatusCode, h)
		}
		if h.Get("Access-Control-Allow-Credentials") != "" || strings.Contains(h.Get("Access-Control-Allow-Origin"), "*") {
			t.Errorf("%s: a page is let show what the browser holds: %v", name, h)
		}
	}
}
