package record_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
)

// round is a record that ends once, with one of many outcomes.
type round struct {
	Outcome string // empty: it is open
	Token   string
}

func encode(r round) ([]byte, error)          { return json.Marshal(r) }
func decode(text []byte) (r round, err error) { return r, json.Unmarshal(text, &r) }
func token(r round) string                    { return r.Token }
func sealed(r round, compact string) round    { r.Token = compact; return r }

// end closes a round with an outcome, unless it is closed.
func end(outcome string) record.Step[round] {
	return func(before record.Found[round]) (round, *attest.Statement, error) {
		if before.Value.Outcome != "" {
			return before.Value, nil, record.ErrUnchanged
		}
		return round{Outcome: outcome}, &attest.Statement{}, nil
	}
}

// childOf names the store of a process that decides one round; its value is ADDRESS NAME STEP.
const childOf = "AEPB_RECORD_CHILD"

func TestMain(m *testing.M) {
	if child := os.Getenv(childOf); child != "" {
		if err := decide(child); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// mortal is a store and its evidence in a process that kills itself before a step; below 0: never.
type mortal struct {
	*redis.Entries

	name string
	left int
}

func (m *mortal) step() {
	if m.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	m.left--
}

func (m *mortal) Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error) {
	m.step()
	defer m.step()
	return m.Entries.Get(ctx, key)
}

func (m *mortal) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	m.step()
	defer m.step()
	return m.Entries.Swap(ctx, key, old, value, until)
}

func (m *mortal) Confirm(ctx context.Context, key state.EntryKey, revision uint64) (bool, error) {
	m.step()
	defer m.step()
	return m.Entries.Confirm(ctx, key, revision)
}

func (m *mortal) Sign(context.Context, attest.Statement) (attest.Signed, error) {
	m.step()
	return attest.Signed{}, nil
}

// Record and Keep tell the outside that evidence is recorded.
func (m *mortal) Record(context.Context, attest.Signed) error { return m.say("recorded " + m.name) }

func (m *mortal) Keep(_ context.Context, compact string) error { return m.say("recorded " + compact) }

func (m *mortal) say(what string) error {
	m.step()
	_, err := fmt.Fprintln(os.Stdout, what)
	m.step()
	return err
}

// decide is what the process does: it ends a round, and tells what was announced.
func decide(child string) (err error) {
	var address string
	m := &mortal{}
	if _, err := fmt.Sscan(child, &address, &m.name, &m.left); err != nil {
		return err
	}
	store, err := redis.Open(redis.Config{Addresses: []string{address}}, redis.Deps{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	m.Entries = store.Entries()
	rounds, err := record.New(record.Kind[round]{
		Encode: encode, Decode: decode, Life: time.Hour, Token: token,
		Sealed: func(r round, _ string) round { return sealed(r, m.name) },
		Announce: func(_ context.Context, _ state.EntryKey, r round) error {
			return m.say("announced " + r.Outcome + " " + r.Token)
		},
	}, record.Deps{Entries: m, Evidence: func() record.Evidence { return m }, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, _, err = rounds.Decide(context.Background(), state.EntryKey{Kind: "round", Group: "rounds", ID: os.Getenv(childOf + "_ROUND")}, end(m.name))
	return err
}

// TestMachine_KilledAtEachStep: a process that is killed at any step of a decision, and two that come after it
// at once, tell one outcome of the round together, with the evidence that belongs to it.
func TestMachine_KilledAtEachStep(t *testing.T) {
	t.Parallel()
	server, err := redisserver.Start(t.Context(), filepath.Join(t.TempDir(), "redis"))
	if server != nil {
		t.Cleanup(func() { _ = server.End(syscall.SIGKILL) })
	}
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for step := range 12 {
		var mu sync.Mutex
		var lines []string
		run := func(name string, left int) error {
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), childOf+"="+server.Address()+" "+name+" "+strconv.Itoa(left), childOf+"_ROUND=round-"+strconv.Itoa(step))
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, os.Stderr
			err := cmd.Run()
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, strings.Split(strings.TrimSpace(out.String()), "\n")...)
			return err
		}
		if err := run("killed", step); err != nil {
			killed++
		}
		var group sync.WaitGroup
		for _, name := range []string{"one", "two"} {
			group.Go(func() {
				if err := run(name, -1); err != nil {
					t.Errorf("step %d: %s: %v", step, name, err)
				}
			})
		}
		group.Wait()
		announced, recorded := map[string]bool{}, map[string]bool{}
		for _, line := range lines {
			if what, ok := strings.CutPrefix(line, "announced "); ok {
				announced[what] = true
			}
			if what, ok := strings.CutPrefix(line, "recorded "); ok {
				recorded[what] = true
			}
		}
		if len(announced) != 1 {
			t.Errorf("killed before step %d: announced %v, expected one outcome", step, announced)
		}
		for what := range announced {
			if outcome, compact, _ := strings.Cut(what, " "); outcome != compact || !recorded[compact] {
				t.Errorf("killed before step %d: announced %q, and recorded %v", step, what, recorded)
			}
		}
	}
	if killed < 8 {
		t.Errorf("%d processes were killed, expected one at each step of a decision", killed)
	}
}
