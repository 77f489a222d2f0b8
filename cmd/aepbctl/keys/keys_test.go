package keys

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

// run runs a command of the group.
func run(t *testing.T, args ...string) (code int, out, failed string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = program.Run(t.Context(), Commands, append([]string{"keys"}, args...), nil, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// caller is who a gateway with the file finds in a request with the key; empty: it refuses the key.
func caller(t *testing.T, file, key string) string {
	t.Helper()
	list, err := apikey.Load(file, "example.com")
	if err != nil {
		t.Fatal(err)
	}
	who, ok, err := apikey.NewKeys(list, nil).Caller(credential.Request{Fields: http.Header{"X-Api-Key": {key}}.Values})
	if ok != (err == nil) {
		t.Fatalf("%t, %v", ok, err)
	}
	return string(who.ID)
}

func TestKeys_FromNewToRevoked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.yaml")
	const who = "spiffe://example.com/reports"
	code, out, note := run(t, "new", "--file", file, "--caller", who, "--id", "ci", "--days", "30")
	key := strings.TrimSuffix(out, "\n")
	if code != program.ExitOK || !strings.HasPrefix(key, "aepb_ci_") || strings.ContainsAny(key, " \n") || caller(t, file, key) != who || strings.Contains(note, key) {
		t.Fatalf("new: %d %q %q", code, out, note)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	code, out, _ = run(t, "new", "--file", file, "--caller", who, "-o", "json")
	var made view
	if err := json.Unmarshal([]byte(out), &made); code != program.ExitOK || err != nil || caller(t, file, made.Key) != who || made.Until.Sub(made.Created).Round(24*time.Hour) != 90*24*time.Hour {
		t.Errorf("new, as JSON: %d %v %s", code, err, out)
	}
	for _, form := range []string{"text", "json"} {
		code, out, _ := run(t, "list", "--file", file, "-o", form)
		if code != program.ExitOK || !strings.Contains(out, "ci") || !strings.Contains(out, made.ID) || !strings.Contains(out, who) {
			t.Errorf("list: %d %s", code, out)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if _, value, ok := strings.Cut(line, "hash: "); ok && strings.Contains(out, strings.Trim(value, "\"\n")) {
				t.Errorf("list shows a hash: %s", out)
			}
		}
	}
	if code, out, _ := run(t, "revoke", "--file", file, "ci"); code != program.ExitOK || caller(t, file, key) != "" || caller(t, file, made.Key) != who {
		t.Errorf("revoke: %d %s", code, out)
	}
	if code, _, failed := run(t, "revoke", "--file", file, "ci"); code != program.ExitFailed || !strings.Contains(failed, "has no key ci") {
		t.Errorf("revoke again: %d %s", code, failed)
	}
	if code, out, _ := run(t, "revoke", "--file", file, made.ID); code != program.ExitOK || caller(t, file, made.Key) != "" {
		t.Errorf("revoke the last: %d %s", code, out)
	}
	if code, out, _ := run(t, "list", "--file", file); code != program.ExitOK || out != "no keys\n" {
		t.Errorf("list none: %d %s", code, out)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*")); err != nil || len(left) != 1 {
		t.Errorf("files are left: %v", left)
	}
}

func TestKeys_Refused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, bad, busy := filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "busy.yaml")
	for name, text := range map[string]string{bad: "- {id: x}\n", busy: "[]\n", busy + ".lock": ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const who = "spiffe://example.com/reports"
	if code, _, failed := run(t, "new", "--file", file, "--caller", who, "--id", "ci"); code != program.ExitOK {
		t.Fatal(failed)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args string
		want int
		text string
	}{
		"id that is there":    {"new --file " + file + " --caller " + who + " --id ci", program.ExitFailed, "has a key ci already"},
		"bad id":              {"new --file " + file + " --caller " + who + " --id A", program.ExitUsage, "1 to 32 of a-z"},
		"bad caller":          {"new --file " + file + " --caller reports", program.ExitUsage, "SPIFFE ID"},
		"no days":             {"new --file " + file + " --caller " + who + " --days 0", program.ExitUsage, "1 to 3650"},
		"too many days":       {"new --file " + file + " --caller " + who + " --days 3651", program.ExitUsage, "1 to 3650"},
		"no caller":           {"new --file " + file, program.ExitUsage, "caller"},
		"no file":             {"list", program.ExitUsage, "file"},
		"file is not there":   {"list --file " + file + "x", program.ExitFailed, "no such file"},
		"revoke from no file": {"revoke --file " + file + "x ci", program.ExitFailed, "has no key"},
		"bad file":            {"new --file " + bad + " --caller " + who, program.ExitFailed, "key 1"},
		"changed by another":  {"new --file " + busy + " --caller " + who, program.ExitFailed, "remove " + busy + ".lock"},
		"no folder":           {"new --file " + filepath.Join(dir, "x", "y") + " --caller " + who, program.ExitFailed, "no such file"},
	} {
		code, out, failed := run(t, strings.Fields(c.args)...)
		if code != c.want || !strings.Contains(failed, c.text) || strings.Contains(out, "aepb_") {
			t.Errorf("%s: %d %q %q", name, code, out, failed)
		}
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file has changed: %v", err)
	}
}

// TestKeys_BehindALink: the file behind a symbolic link is changed, and the link stays.
func TestKeys_BehindALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("[]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	const who = "spiffe://example.com/reports"
	if code, out, _ := run(t, "new", "--file", link, "--caller", who); code != program.ExitOK || caller(t, file, strings.TrimSpace(out)) != who {
		t.Errorf("%d", code)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v", info, err)
	}
}
