package gateway_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// storedFile is a bbolt file that a former version wrote. To write one with this version:
// AEPB_UPDATE_STORED=1 go test -run TestStored_FileOfFormerVersion ./gateway.
const storedFile = "testdata/stored.bolt.gz"

// onFile is a gateway whose entries and replies are in a file. The bubble's clock begins
// at the same moment in each run, so nothing in the file has expired.
func onFile(t *testing.T, s *stage, path string) (limiting, func()) {
	t.Helper()
	file, err := bolt.Open(bolt.Config{Path: path}, bolt.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s.view, s.shared = file.Entries(), file
	g := s.replica(t)
	return g, func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStored_FileOfFormerVersion: tasks that a former version stored are told, listed and
// gone on with by this one: one that ended with its first reply, one that ended later, and
// one that waits for its caller.
func TestStored_FileOfFormerVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	if os.Getenv("AEPB_UPDATE_STORED") != "" {
		writeStored(t, path)
		compress(t, path)
	}
	packed, err := os.Open(storedFile)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(unpacked)
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	readStored(t, path)
}

// compress makes storedFile of a file.
func compress(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(raw)
	if err = errors.Join(err, w.Close()); err == nil {
		err = os.WriteFile(storedFile, packed.Bytes(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// storedScenes are those of an MCP server that asks for a name, or has it.
func storedScenes(reply string) map[string][]scene {
	return map[string][]scene{calling: {{reply: result(reply)}}}
}

func writeStored(t *testing.T, path string) {
	t.Helper()
	era(t, mcp.Modern, storedScenes(`{"resultType":"input_required","inputRequests":{"name":`+wantsName+`},"requestState":"s1"}`), func(s *stage) {
		t := s.t
		g, done := onFile(t, s, path)
		defer done()
		s.begin(g)
		close(s.tools.gate)
		<-time.After(20 * time.Second)
		s.ask(t, g, s.adds(invoking, adding))
		if body := s.ask(t, g, s.asks(invoking, called)).Wire().Body; !strings.Contains(string(body), "INPUT_REQUIRED") {
			t.Fatalf("it begins with %s", body)
		}
	})
}

func readStored(t *testing.T, path string) {
	t.Helper()
	era(t, mcp.Modern, storedScenes(complete), func(s *stage) {
		t := s.t
		g, done := onFile(t, s, path)
		defer done()
		list := string(s.ask(t, g, s.adds("ListTasks", `{"includeArtifacts":true}`)).Wire().Body)
		if strings.Count(list, "TASK_STATE_COMPLETED") != 2 || !strings.Contains(list, `"totalSize":2`) {
			t.Errorf("the calculator's tasks are %s", list)
		}
		waits := string(s.ask(t, g, s.asks("ListTasks", `{}`)).Wire().Body)
		if strings.Count(waits, "TASK_STATE_INPUT_REQUIRED") != 1 {
			t.Fatalf("the asker's tasks are %s", waits)
		}
		_, after, _ := strings.Cut(waits, `"id":"`)
		id, _, _ := strings.Cut(after, `"`)
		answer := `{"message":{"messageId":"m2","role":"ROLE_USER","taskId":"` + id + `","parts":[{"data":{"name":"Ada"}}]}}`
		if body := string(s.ask(t, g, s.asks(invoking, answer)).Wire().Body); !strings.Contains(body, "TASK_STATE_COMPLETED") {
			t.Errorf("the answer leads to %s", body)
		}
	})
}
