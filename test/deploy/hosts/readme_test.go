package hosts

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// TestReadme_NamesEachFile: the guide links to each example and each file for systemd.
func TestReadme_NamesEachFile(t *testing.T) {
	t.Parallel()
	text := read(t, filepath.Join(folder, "README.md"))
	if lines := strings.Count(text, "\n"); lines > 150 {
		t.Errorf("%d lines, want at most 150", lines)
	}
	for _, dir := range []string{examples, systemd} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(folder, path)
			if name = filepath.ToSlash(name); !strings.Contains(text, "]("+name+")") && !strings.Contains(text, "deploy/"+name+" ") {
				t.Errorf("%s is not named", name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadme_NumbersHold: numbers of the guide are those of the program and of the unit.
func TestReadme_NumbersHold(t *testing.T) {
	t.Parallel()
	text, u := read(t, filepath.Join(folder, "README.md")), loadUnit(t)
	large := config.Config{Limits: config.Limits{MemoryMiB: 11_064}} // of which 12,000 connections follow
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{"`limits.connections` above 12,000", large.Accept(false).Connections == 12_000 && files(large) <= 5*12_000 && 5*12_000 <= u.number(t, "LimitNOFILE")},
		{"20 minutes after the end", 20*60 > int64((ect.DefaultMaxAge + ect.DefaultSkew).Seconds())},
		{"their sum and 5 s", u.seconds(t, "TimeoutStopSec") == stopTime(config.Config{})+3*time.Second},
	} {
		if !strings.Contains(text, c.text) || !c.ok {
			t.Errorf("%q: in the guide: %v, holds: %v", c.text, strings.Contains(text, c.text), c.ok)
		}
	}
}
