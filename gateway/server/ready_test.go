package server

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/task/store"
)

// TestReady_SaysThatReplaysAreUnknown: while tokens that are made now are refused, no new
// work should come, and the reason is that and not the store. A start in memory waits
// instead, and a file that ended in order has lost nothing.
func TestReady_SaysThatReplaysAreUnknown(t *testing.T) {
	t.Parallel()
	at := time.Now().Truncate(time.Second).Add(300 * time.Millisecond)
	now := func() time.Time { return at }
	folder := t.TempDir()
	file := func(name string) *bolt.Store {
		store, err := bolt.Open(bolt.Config{Path: filepath.Join(folder, name)}, bolt.Deps{Now: now})
		must(t, err)
		t.Cleanup(func() { must(t, store.Close()) })
		return store
	}
	first := file("killed")
	left, err := os.ReadFile(filepath.Join(folder, "killed"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "again"), left, 0o600)) // as a process leaves it that was killed
	memory, err := state.New(state.Config{}, state.Deps{Now: now, Epoch: at})
	must(t, err)
	waited, err := openState(Config{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	good := func() error { return nil }
	for name, tc := range map[string]struct {
		replays replays
		young   bool
	}{
		"memory": {memory, true}, "a file after an unclean end": {file("again"), true},
		"a new file": {first, false}, "memory after its start": {waited.replay, false},
	} {
		if err := tc.replays.Young(); (err != nil) != tc.young {
			t.Errorf("%s: %v", name, err)
		} else if err != nil && !errors.Is((&Server{state: stores{driver: driver{failing: good}, replay: tc.replays}}).ready(), errYoung) {
			t.Errorf("%s: ready says something else", name)
		}
	}
}

func TestMetricsListener_EveryPartOfARequestHasItsTime(t *testing.T) {
	t.Parallel()
	s := (&Server{config: Config{Logger: slog.New(slog.DiscardHandler)}}).monitoringServer()
	for name, limit := range map[string]time.Duration{
		"header": s.ReadHeaderTimeout, "request": s.ReadTimeout, "answer": s.WriteTimeout,
	} {
		if limit <= 0 || limit > 2*time.Minute {
			t.Errorf("%s: %v", name, limit)
		}
	}
	if s.MaxHeaderBytes <= 0 || s.MaxHeaderBytes > 64<<10 {
		t.Errorf("%d bytes of header", s.MaxHeaderBytes)
	}
}

// The key of a file is made once and kept; without it, or with another, what is
// sealed is not taken for nothing, and the error says what to do. No new one is made
// beside what the lost one has sealed.
func TestStateKey_IsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := Config{Settings: config.Config{State: config.State{Path: path}}, Logger: slog.New(slog.DiscardHandler)}
	name := store.EntryKey{Kind: "push", Group: "g", ID: "1"}
	open := func() stores {
		k, err := openState(s)
		must(t, err)
		k, err = k.sealed(s)
		must(t, err)
		return k
	}
	first := open()
	_, ok, err := first.entries.Swap(t.Context(), name, 0, []byte("hush"), time.Now().Add(time.Hour))
	if must(t, err); !ok {
		t.Fatal("not written")
	}
	must(t, first.driver.close())
	must(t, os.Chmod(path+".key", 0o644))
	again := open()
	if e, ok, err := again.entries.Get(t.Context(), name); err != nil || !ok || string(e.Value) != "hush" {
		t.Errorf("after a restart: %q, %v, %v", e.Value, ok, err)
	}
	must(t, again.driver.close())
	if made, err := os.Stat(path + ".key"); err != nil || made.Mode().Perm() != 0o600 {
		t.Errorf("others may read the key: %v, %v", made, err)
	}
	former, err := os.ReadFile(path + ".key")
	must(t, err)
	must(t, os.Remove(path+".key"))
	without, err := openState(s)
	must(t, err)
	if _, err := without.sealed(s); !errors.Is(err, errKeyLost) || !strings.Contains(err.Error(), path+".key") {
		t.Errorf("without the key: %v", err)
	}
	must(t, without.driver.close())
	if _, err := os.Stat(path + ".key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a new key is made beside what another sealed: %v", err)
	}
	s.Settings.State.Key = filepath.Join(dir, "keys")
	must(t, os.WriteFile(s.Settings.State.Key, seal.NewKey(), 0o600))
	s.State.Keys, err = loadStateKeys(s.Settings.State.Key)
	must(t, err)
	other := open()
	if _, ok, err := other.entries.Get(t.Context(), name); ok || !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("with another key: %v, %v", ok, err)
	}
	must(t, other.driver.close())
	must(t, os.WriteFile(s.Settings.State.Key, append(seal.NewKey(), former...), 0o600))
	s.State.Keys, err = loadStateKeys(s.Settings.State.Key)
	must(t, err)
	rotated := open()
	if e, ok, err := rotated.entries.Get(t.Context(), name); err != nil || !ok || string(e.Value) != "hush" {
		t.Errorf("behind a new key: %q, %v, %v", e.Value, ok, err)
	}
	must(t, rotated.driver.close())
	must(t, os.WriteFile(s.Settings.State.Key, []byte("secret words"), 0o600))
	if _, err := loadStateKeys(s.Settings.State.Key); !errors.Is(err, seal.ErrKeys) || strings.Contains(err.Error(), "words") {
		t.Errorf("no key: %v", err)
	}
	shared := stores{driver: driver{name: "redis"}}
	if sealed, err := shared.sealed(Config{Logger: s.Logger}); !errors.Is(err, errNoStateKey) || sealed.plain {
		t.Errorf("Redis without a key: plain %v, %v", sealed.plain, err)
	}
	unverified := Config{Logger: s.Logger, Settings: config.Config{State: config.State{Unverified: true}}}
	if sealed, err := shared.sealed(unverified); err != nil || !sealed.plain {
		t.Errorf("Redis that is not verified: plain %v, %v", sealed.plain, err)
	}
}
