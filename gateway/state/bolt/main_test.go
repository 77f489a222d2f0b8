package bolt_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
)

// TestMain is also the beginning of the process that the crash test kills.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		os.Exit(crashing(path, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

func filePath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "state.db")
}

// open opens a store and closes it at the end, in whatever state it is then.
func open(tb testing.TB, config bolt.Config) *bolt.Store {
	tb.Helper()
	s, err := bolt.Open(config, bolt.Deps{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func closed(tb testing.TB, s *bolt.Store) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
}

func flush(tb testing.TB, s *bolt.Store) {
	tb.Helper()
	if err := s.Flush(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// powerCut is what would be left if the process ended here: a copy of the file.
func powerCut(tb testing.TB, path string) string {
	tb.Helper()
	from, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	name := filePath(tb)
	to, err := os.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		tb.Fatal(err)
	}
	return name
}

func record(n int) ect.Record {
	return ect.Record{
		Compact: fmt.Sprintf("header.payload-%d.signature", n), ID: ect.ID(fmt.Sprintf("id-%d", n)), Workflow: "w",
		Issuer: "spiffe://a.test/a", Audience: []string{"spiffe://b.test/b"}, Act: ect.ActTranslate,
		Parents: []ect.ID{"parent"}, Until: time.Now().Add(time.Hour),
	}
}

func put(tb testing.TB, s *bolt.Store, n int) {
	tb.Helper()
	if err := s.Put(tb.Context(), record(n)); err != nil {
		tb.Fatal(err)
	}
}

func replayKey(n int) ect.ReplayKey {
	return ect.ReplayKey{Issuer: "i", Workflow: "w", ID: ect.ID(fmt.Sprint(n))}
}

func use(issued time.Time) ect.ReplayUse {
	return ect.ReplayUse{Token: "t", Body: "b", Issued: issued, Until: time.Now().Add(time.Hour)}
}

func wantClaim(tb testing.TB, s *bolt.Store, n int, issued time.Time, want ect.ReplayState) {
	tb.Helper()
	if got, err := s.Claim(tb.Context(), replayKey(n), use(issued)); got != want || err != nil {
		tb.Errorf("claim %d: got %d, %v, want %d", n, got, err, want)
	}
}

func has(tb testing.TB, s *bolt.Store, n int) bool {
	tb.Helper()
	found, err := ecttest.Find(tb.Context(), s, record(n).ID)
	if err != nil {
		tb.Fatal(err)
	}
	return len(found) > 0
}

// onDisk counts entries, with bbolt's own judgement of the file.
func onDisk(tb testing.TB, path string) map[string]int {
	tb.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	counts := map[string]int{}
	err = db.View(func(tx *bbolt.Tx) error {
		var errs []error
		for err := range tx.Check() {
			errs = append(errs, err)
		}
		for _, kind := range state.Kinds() {
			counts[kind.String()] = 0
			errs = append(errs, bolt.Each(tx, kind, func([]byte) { counts[kind.String()]++ }))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		tb.Fatal(err)
	}
	return counts
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
