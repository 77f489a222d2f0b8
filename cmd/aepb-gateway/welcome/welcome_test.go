package welcome_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/welcome"
)

// TestHandler_ShowsBrowsersThePage: browsers get the page at /, with nothing that runs and all names escaped;
// others, and other paths, are the gateway's as before.
func TestHandler_ShowsBrowsersThePage(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h, err := welcome.Handler(next, welcome.Deps{
		Agents: func() []string { return []string{"kitchen", `<script>alert(1)</script>`} },
		Base:   func(*http.Request) string { return "https://127.0.0.1:8443" }, CA: ".aepb/ca.pem",
	})
	if err != nil {
		t.Fatal(err)
	}
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	for _, c := range []struct {
		method, path, accept string
		page                 bool
	}{
		{"GET", "/", browser, true},
		{"HEAD", "/", browser, true},
		{"GET", "/", "*/*", false},
		{"GET", "/", "application/json", false},
		{"GET", "/", "", false},
		{"POST", "/", browser, false},
		{"GET", "/agents/kitchen", browser, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		r.Header.Set("Accept", c.accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if shown := w.Code == http.StatusOK; shown != c.page {
			t.Errorf("%s %s %s: %d", c.method, c.path, c.accept, w.Code)
		}
		if !c.page {
			continue
		}
		text := w.Body.String()
		for _, want := range []string{"https://127.0.0.1:8443/agents/kitchen/a2a", "https://127.0.0.1:8443/agents/kitchen/mcp", ".aepb/ca.pem", "pip install mcp", "&lt;script&gt;"} {
			if !strings.Contains(text, want) {
				t.Errorf("the page has no %s", want)
			}
		}
		if strings.Contains(text, "<script") || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("something may run: %v %s", w.Header(), text)
		}
	}
}
