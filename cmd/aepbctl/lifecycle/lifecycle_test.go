package lifecycle

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

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
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
		"a protocol more":            {document("1.5.0", "L1", "a2a-v1", "mcp-v1", "ainp-v1"), program.ExitOK, "1.5.0 may follow 1.4.0"},
		"a protocol less":            {document("1.5.0", "L1", "a2a-v1"), program.ExitFailed, "mcp-v1"},
		"a protocol less, major":     {document("2.0.0", "L1", "a2a-v1"), program.ExitOK, "may follow"},
		"a higher level":             {document("1.4.1", "L2", "a2a-v1", "mcp-v1"), program.ExitFailed, "ect_assurance_level"},
		"a version that is none":     {document("one", "L1", "a2a-v1", "mcp-v1"), program.ExitFailed, "version"},
		"a file that is no document": {os.DevNull, program.ExitFailed, "capability document"},
		"a file that is not there":   {filepath.Join(t.TempDir(), "x"), program.ExitFailed, "no such file"},
	} {
		var out, failed bytes.Buffer
		if got := program.Run(t.Context(), Commands, []string{"lifecycle", "check", before, c.after}, nil, &out, &failed); got != c.want || !strings.Contains(out.String()+failed.String(), c.text) {
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
		answer := map[string]any{"agent": "pricing", "status": "draining", "step": "finished", "final_at": "2030-01-01T00:10:00Z", "reason": "old", "by": "ann", "warning": "cut short"}
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
		"drain":        {[]string{"lifecycle", "drain", "pricing", "--reason", "old", "--force", "--yes"}, program.ExitOK, "POST /api/agents/pricing/lifecycle", `{"to":"draining","reason":"old","force":true}`, "warning: cut short\n"},
		"deprecate":    {[]string{"lifecycle", "deprecate", "pricing", "--reason", "old", "--sunset", "2030-01-01T00:00:00Z", "--successor", "https://x/y"}, program.ExitOK, "POST /api/agents/pricing/lifecycle", `{"to":"deprecated","reason":"old","successor":"https://x/y","sunset_at":"2030-01-01T00:00:00Z"}`, "draining"},
		"itself":       {[]string{"lifecycle", "retire", "--itself", "--reason", "old", "--yes", "--now"}, program.ExitOK, "POST /api/lifecycle", `{"to":"retired","reason":"old","now":true}`, "draining"},
		"forget":       {[]string{"lifecycle", "forget", "pricing", "--reason", "old"}, program.ExitOK, "POST /api/agents/pricing/lifecycle", `{"to":"active","reason":"old","forget":true}`, "draining"},
		"show":         {[]string{"lifecycle", "show"}, program.ExitOK, "GET /api/lifecycles", "", "pricing is retired for good at 2030-01-01T00:10:00Z; until then: aepbctl lifecycle activate pricing --reason TEXT\n"},
		"show one":     {[]string{"lifecycle", "show", "pricing"}, program.ExitOK, "GET /api/agents/pricing/lifecycle", "", "finished"},
		"no agent":     {[]string{"lifecycle", "activate", "--reason", "old"}, program.ExitFailed, "", "", "--itself"},
		"no reason":    {[]string{"lifecycle", "forget", "pricing"}, program.ExitUsage, "", "", "--reason is required: say why, for callers and auditors"},
		"no sunset":    {[]string{"lifecycle", "retire", "pricing", "--reason", "old", "--sunset", "2030-01-01T00:00:00Z"}, program.ExitUsage, "", "", "unknown flag: --sunset"},
		"no successor": {[]string{"lifecycle", "activate", "pricing", "--reason", "old", "--successor", "https://x/y"}, program.ExitUsage, "", "", "unknown flag: --successor"},
		"bad time":     {[]string{"lifecycle", "deprecate", "pricing", "--reason", "old", "--sunset", "soon"}, program.ExitFailed, "", "", "2027-01-31T00:00:00Z"},
		"breakers":     {[]string{"breakers"}, program.ExitOK, "GET /api/breakers", "", "open"},
	} {
		path, order = "", ""
		var out, failed bytes.Buffer
		got := program.Run(t.Context(), Commands, append(c.args, "--dir", dir, "--admin", admin.URL), nil, &out, &failed)
		if got != c.code || path != c.path || order != c.order || !strings.Contains(out.String()+failed.String(), c.text) {
			t.Errorf("%s: exit %d, asked %q %q, said %s%s", name, got, path, order, &out, &failed)
		}
	}
}

// TestLifecycle_AsksBeforeWhatIsFinal: an order that ends an agent for good says when that is, and what takes it back,
// and is given after yes alone; a script passes --yes.
func TestLifecycle_AsksBeforeWhatIsFinal(t *testing.T) {
	t.Parallel()
	orders := 0
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		_, _ = io.WriteString(w, `{"agent":"pricing","status":"draining","term":1}`)
	}))
	defer admin.Close()
	dir := t.TempDir()
	if _, err := identity.LoadOrCreate(dir, "example.org", time.Now); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--reason", "old", "--dir", dir, "--admin", admin.URL}
	const back = "Until then it is taken back by: aepbctl lifecycle activate pricing --reason TEXT"
	const forget = "Only a development gateway can forget it: aepbctl lifecycle forget"
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"drain":           {[]string{"drain", "pricing"}, []string{"pricing takes no new work, and ten minutes after its last work has ended it is retired for good", back}},
		"drain, forced":   {[]string{"drain", "pricing", "--force"}, []string{"ten minutes after its last work has ended", "never takes the name back", back}},
		"drain now":       {[]string{"drain", "pricing", "--now"}, []string{"within seconds if it has none, it is retired for good", forget}},
		"retire":          {[]string{"retire", "pricing"}, []string{"pricing is retired for good in ten minutes, also if it has work then", back}},
		"retire now":      {[]string{"retire", "pricing", "--now"}, []string{"pricing is retired for good at once, and work under way is lost", forget}},
		"drain of itself": {[]string{"drain", "--itself"}, []string{"this gateway takes no new work", "aepbctl lifecycle activate --itself --reason TEXT"}},
	} {
		says := func(how, text string, code, wantCode, want int) {
			t.Helper()
			for _, part := range c.says {
				if !strings.Contains(text, part) {
					t.Errorf("%s, %s: no %q in %q", name, how, part, text)
				}
			}
			if code != wantCode || orders != want {
				t.Errorf("%s, %s: exit %d, %d orders, %s", name, how, code, orders, text)
			}
			orders = 0
		}
		args := append(append([]string{"lifecycle"}, c.args...), flags...)
		var errs bytes.Buffer
		code := program.Run(t.Context(), Commands, args, strings.NewReader("yes\n"), io.Discard, &errs) // of a pipe: it is not read
		says("a script without --yes", errs.String(), code, program.ExitUsage, 0)
		if !strings.Contains(errs.String(), "--yes is required") {
			t.Error(&errs)
		}
		for answer, want := range map[string]int{"yes\n": 1, "\n": 0} {
			var screen terminaltest.Screen
			code := program.Run(t.Context(), Commands, args, terminaltest.Keyboard{Reader: strings.NewReader(answer)}, io.Discard, &screen)
			says("answered "+answer, screen.String(), code, map[int]int{1: program.ExitOK, 0: program.ExitFailed}[want], want)
		}
		if code := program.Run(t.Context(), Commands, append(args, "--yes"), nil, io.Discard, io.Discard); code != program.ExitOK || orders != 1 {
			t.Errorf("%s with --yes: exit %d, %d orders", name, code, orders)
		}
		orders = 0
	}
}

// TestLifecycle_NothingToShow: lists without entries are a sentence, and in JSON an empty list.
func TestLifecycle_NothingToShow(t *testing.T) {
	t.Parallel()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"`+strings.TrimPrefix(r.URL.Path, "/api/")+`":[]}`)
	}))
	defer admin.Close()
	dir := t.TempDir()
	if _, err := identity.LoadOrCreate(dir, "example.org", time.Now); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no lifecycle was ever changed: all agents and this gateway are active\n":       {"lifecycle", "show"},
		"no circuit breaker has opened since the gateway was started: all are closed\n": {"breakers"},
	} {
		for _, output := range []string{"text", "json"} {
			var out bytes.Buffer
			code := program.Run(t.Context(), Commands, append(args, "--dir", dir, "--admin", admin.URL, "-o", output), nil, &out, io.Discard)
			if code != program.ExitOK || (out.String() == want) != (output == "text") || (output == "json") != strings.Contains(out.String(), "[]") {
				t.Errorf("%v as %s: exit %d, %q", args, output, code, &out)
			}
		}
	}
}
