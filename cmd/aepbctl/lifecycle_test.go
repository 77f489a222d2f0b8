package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
)

// TestLifecycle_Check: a capability document that breaks callers needs a higher major version.
func TestLifecycle_Check(t *testing.T) {
	t.Parallel()
	document := func(version, level string, protocols ...string) string {
		for i, p := range protocols {
			protocols[i] = `{"id":"` + p + `","version":"1.0","endpoint":"https://example.com/` + p + `","priority":1}`
		}
		file := filepath.Join(t.TempDir(), "document.json")
		text := `{"aepb_version":"1.0","agent_id":"spiffe://example.com/a","protocols":[` + strings.Join(protocols, ",") + `],"translation_gateways":[],"ect_assurance_level":"` + level +
			`","ect_namespaces":["aepb"],"lifecycle":{"status":"active","version":"` + version + `","deprecated_at":null,"sunset_at":null,"successor":null}}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	before := document("1.4.0", "L1", "a2a-v1", "mcp-v1")
	for name, c := range map[string]struct {
		after string
		want  int
		text  string
	}{
		"a protocol more":            {document("1.5.0", "L1", "a2a-v1", "mcp-v1", "ainp-v1"), exitOK, "1.5.0 may follow 1.4.0"},
		"a protocol less":            {document("1.5.0", "L1", "a2a-v1"), exitFailed, "mcp-v1"},
		"a protocol less, major":     {document("2.0.0", "L1", "a2a-v1"), exitOK, "may follow"},
		"a higher level":             {document("1.4.1", "L2", "a2a-v1", "mcp-v1"), exitFailed, "ect_assurance_level"},
		"a version that is none":     {document("one", "L1", "a2a-v1", "mcp-v1"), exitFailed, "version"},
		"a file that is no document": {os.DevNull, exitFailed, "capability document"},
		"a file that is not there":   {filepath.Join(t.TempDir(), "x"), exitFailed, "no such file"},
	} {
		var out, failed bytes.Buffer
		if got := run(t.Context(), []string{"lifecycle", "check", before, c.after}, nil, &out, &failed); got != c.want || !strings.Contains(out.String()+failed.String(), c.text) {
			t.Errorf("%s: exit %d, %s%s", name, got, &out, &failed)
		}
	}
}

// TestLifecycle_Commands: each verb posts its order, and says how the agent stands then.
func TestLifecycle_Commands(t *testing.T) {
	t.Parallel()
	var path, order string
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		path, order = r.Method+" "+r.URL.Path, string(body)
		answer := map[string]any{"agent": "pricing", "status": "draining", "step": "announced", "reason": "old", "by": "ann", "warning": "cut short"}
		switch r.URL.Path {
		case "/api/lifecycles":
			answer = map[string]any{"lifecycles": []any{answer}}
		case "/api/breakers":
			answer = map[string]any{"breakers": []any{map[string]any{"agent": "pricing", "state": "open", "at": "2026-11-26T12:00:00Z", "instance": "one"}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer admin.Close()
	dir := t.TempDir()
	if _, err := identity.LoadOrCreate(dir, "example.org", time.Now); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args              []string
		code              int
		path, order, text string
	}{
		"drain":     {[]string{"lifecycle", "drain", "pricing", "--reason", "old", "--force"}, exitOK, "POST /api/agents/pricing/lifecycle", `{"to":"draining","reason":"old","force":true}`, `warning: "cut short"`},
		"deprecate": {[]string{"lifecycle", "deprecate", "pricing", "--reason", "old", "--sunset", "2030-01-01T00:00:00Z", "--successor", "https://x/y"}, exitOK, "POST /api/agents/pricing/lifecycle", `{"to":"deprecated","reason":"old","successor":"https://x/y","sunset_at":"2030-01-01T00:00:00Z"}`, "draining"},
		"itself":    {[]string{"lifecycle", "retire", "--itself", "--reason", "old"}, exitOK, "POST /api/lifecycle", `{"to":"retired","reason":"old"}`, "draining"},
		"show":      {[]string{"lifecycle", "show"}, exitOK, "GET /api/lifecycles", "", "announced"},
		"show one":  {[]string{"lifecycle", "show", "pricing"}, exitOK, "GET /api/agents/pricing/lifecycle", "", "announced"},
		"no agent":  {[]string{"lifecycle", "activate", "--reason", "old"}, exitFailed, "", "", "--itself"},
		"bad time":  {[]string{"lifecycle", "deprecate", "pricing", "--sunset", "soon"}, exitFailed, "", "", "2027-01-31T00:00:00Z"},
		"breakers":  {[]string{"breakers"}, exitOK, "GET /api/breakers", "", "open"},
	} {
		path, order = "", ""
		var out, failed bytes.Buffer
		got := run(t.Context(), append(c.args, "--dir", dir, "--admin", admin.URL), nil, &out, &failed)
		if got != c.code || path != c.path || order != c.order || !strings.Contains(out.String()+failed.String(), c.text) {
			t.Errorf("%s: exit %d, asked %q %q, said %s%s", name, got, path, order, &out, &failed)
		}
	}
}
