package send

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestAttack_FileNamesOfAnswers: an agent that names its files chooses neither the folder nor a file that is there.
func TestAttack_FileNamesOfAnswers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "answers")
	var parts []canonical.Part
	for _, name := range []string{"../../.ssh/authorized_keys", `..\..\run.exe`, "/etc/passwd", ".bashrc", "..", "", "a\x1b[8m.txt", strings.Repeat("x", 500) + ".png"} {
		parts = append(parts, canonical.Part{Kind: canonical.KindFile, Name: name, Bytes: []byte("x")})
	}
	var log bytes.Buffer
	if err := saveParts(&log, out, parts); err != nil {
		t.Fatal(err)
	}
	var names []string
	if err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, strings.TrimPrefix(path, out+"/"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want := "a__8m.txt authorized_keys bashrc file-5 file-6 passwd run.exe " + strings.Repeat("x", 124) + ".png"
	if got := strings.Join(names, " "); got != want || strings.Contains(log.String(), "\x1b") {
		t.Errorf("files %s, want %s; log %q", got, want, &log)
	}
	if err := saveParts(&log, out, parts[:1]); err == nil || !strings.Contains(err.Error(), "was not saved") {
		t.Errorf("a file that is there: %v", err)
	}
}

// TestNoGateway_SaysHTTPS: a URL of http is told to be one of https.
func TestNoGateway_SaysHTTPS(t *testing.T) {
	t.Parallel()
	if got := noGateway("http://127.0.0.1:8443").Error(); !strings.HasSuffix(got, ": a gateway speaks https") {
		t.Error(got)
	}
	if got := noGateway("https://127.0.0.1:8443").Error(); strings.Contains(got, "speaks") {
		t.Error(got)
	}
}
