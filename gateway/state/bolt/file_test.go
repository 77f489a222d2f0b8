package bolt_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
)

// However things come, are replaced and end, large and small, over several
// lives of the file: what a file holds is what the memory held.
func TestFile_HoldsWhatTheMemoryHolds(t *testing.T) {
	t.Parallel()
	for _, tokens := range []int{120, keys} {
		t.Run(fmt.Sprint(tokens), func(t *testing.T) {
			t.Parallel()
			holdsWhatTheMemoryHolds(t, tokens)
		})
	}
}

// keys is how many different things of each kind there are.
const keys = 300

func holdsWhatTheMemoryHolds(t *testing.T, tokens int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		random, path := rand.New(rand.NewPCG(5, 6)), filePath(t)
		config := bolt.Config{Path: path, Bounds: state.Config{ConversationLifetime: 20 * time.Second, MaxTokens: tokens}}
		s := open(t, config)
		for step := range 150 {
			for range random.IntN(200) {
				change(t, s, random)
			}
			time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			flush(t, s)
			if step%10 != 9 {
				continue
			}
			left := open(t, bolt.Config{Path: powerCut(t, path), Bounds: config.Bounds})
			wantSame(t, s, left, tokens)
			if step%50 == 49 {
				closed(t, s)
				s = open(t, config)
				wantSame(t, s, left, tokens)
			}
			flush(t, left)
			if n := left.UsageOf(state.KindToken).Entries; n > tokens {
				t.Errorf("%d tokens, of at most %d", n, tokens)
			}
			closed(t, left)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for kind, n := range onDisk(t, powerCut(t, path)) {
			if n != 0 {
				t.Errorf("%d %s stay on the disk", n, kind)
			}
		}
		if n := rawKeys(t, powerCut(t, path)); n != 1 { // the totals of evidence
			t.Errorf("%d keys stay on the disk", n)
		}
	})
}

// change changes one thing, of a size from nothing to more than fits a page.
func change(t *testing.T, s *bolt.Store, random *rand.Rand) {
	t.Helper()
	n, until := random.IntN(keys), time.Now().Add(time.Duration(1+random.IntN(20_000))*time.Millisecond)
	switch random.IntN(4) {
	case 0:
		r := record(n)
		r.Until = until
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	case 1:
		u := use(time.Now())
		u.Until = until
		if _, err := s.Claim(t.Context(), replayKey(n), u); err != nil {
			t.Fatal(err)
		}
	case 2:
		s.Finish(t.Context(), replayKey(n), bytes.Repeat([]byte{byte(n)}, random.IntN(1<<random.IntN(18))), until)
	default:
		s.Remember(t.Context(), fmt.Sprint(n), "w", ect.ID(fmt.Sprint(random.IntN(1000))))
	}
}

func wantSame(t *testing.T, want, got *bolt.Store, tokens int) {
	t.Helper()
	for n := range keys {
		// What was evicted may be there again.
		if a, b := has(t, want, n), has(t, got, n); a != b && (a || tokens == keys) {
			t.Fatalf("record %d: %v, want %v", n, b, a)
		}
		a, _ := want.Load(t.Context(), replayKey(n))
		if b, _ := got.Load(t.Context(), replayKey(n)); !bytes.Equal(a, b) {
			t.Fatalf("answer %d: %d bytes, want %d", n, len(b), len(a))
		}
		_, before, _, _ := want.Last(t.Context(), fmt.Sprint(n))
		if _, after, _, _ := got.Last(t.Context(), fmt.Sprint(n)); before != after {
			t.Fatalf("turn %d: %q, want %q", n, after, before)
		}
	}
	if a, b := want.UsageOf(state.KindReplay).Entries, got.UsageOf(state.KindReplay).Entries; b > a {
		t.Errorf("%d replays, of %d", b, a)
	}
}

// rawKeys counts what bbolt has, our own notes apart.
func rawKeys(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if string(name) != "meta" {
				n += b.Stats().KeyN
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
