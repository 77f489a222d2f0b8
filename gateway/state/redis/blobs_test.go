package redis_test

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

// blobs know with which words they were opened.
type blobs struct {
	state.Blobs

	config redis.Config
	sealed bool
}

func openBlobs(t testing.TB, config redis.Config, sealed bool) blobs {
	t.Helper()
	s := open(t, config)
	if sealed {
		return blobs{seal.NewBlobs(s.Blobs(), box(t)), config, true}
	}
	return blobs{s.Blobs(), config, false}
}

func box(t testing.TB) *seal.Box {
	t.Helper()
	made, err := seal.NewBox(seal.Deps{}, bytes.Repeat([]byte{7}, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func blobContract(t *testing.T, config redis.Config, sealed bool) {
	t.Helper()
	again := func(t testing.TB, b state.Blobs) state.Blobs {
		t.Helper()
		before, ok := b.(blobs)
		if !ok {
			t.Fatal("not what was opened")
		}
		return openBlobs(t, before.config, before.sealed)
	}
	h := statetest.BlobsHarness{
		Open: func(t testing.TB, bounds state.BlobBounds) state.Blobs {
			t.Helper()
			own := apart(config)
			own.Blobs = bounds
			return openBlobs(t, own, sealed)
		},
		Reopen: again, Replica: again, Elsewhere: true, Scattered: len(config.Addresses) > 1,
	}
	if sealed {
		h.Overhead = seal.Overhead
	}
	statetest.RunBlobs(t, h)
}

func TestBlobs_KeepTheContract(t *testing.T) {
	t.Parallel()
	config := redis.Config{Addresses: []string{serve(t, "--appendfsync", "everysec").address}, Timeout: 5 * time.Second}
	t.Run("in the clear", func(t *testing.T) { t.Parallel(); blobContract(t, config, false) })
	t.Run("sealed", func(t *testing.T) { t.Parallel(); blobContract(t, config, true) })
	t.Run("replaced", func(t *testing.T) { t.Parallel(); statetest.RunReplace(t, open(t, apart(config)).Blobs()) })
}

// Every change of a blob waits for a replica here.
func TestBlobs_KeepTheContractInACluster(t *testing.T) {
	t.Parallel()
	blobContract(t, redis.Config{Addresses: addresses(cluster(t, "--appendfsync", "everysec")), Wait: 1, Timeout: 5 * time.Second}, true)
}

func blobKey(id string) state.BlobKey { return state.BlobKey{Group: "w", ID: id, Owner: "owner"} }

// R18: too few replicas, and nothing is acknowledged. What was written and not confirmed is confirmed by
// the same again, once there is a replica; and so is what was deleted.
func TestBlobs_Unconfirmed(t *testing.T) {
	t.Parallel()
	server, key, until := serve(t), blobKey("1"), hence()
	config := redis.Config{Addresses: []string{server.address}, Wait: 1, Timeout: time.Second}
	b := seal.NewBlobs(open(t, config).Blobs(), box(t))
	put := func() error { return b.Put(t.Context(), key, []byte("x"), until) }
	remove := func() error { return b.Delete(t.Context(), key) }
	for _, change := range []func() error{put, put, remove, remove, put} {
		wantUnavailable(t, soon, func() error {
			err := change()
			if !errors.Is(err, redis.ErrUnconfirmed) {
				t.Errorf("got %v", err)
			}
			return err
		})
	}
	if value, _, found, err := b.Get(t.Context(), key); string(value) != "x" || !found || err != nil {
		t.Errorf("what is not confirmed is read: %q, %v, %v", value, found, err)
	}
	follower, replica := follow(t, server)
	eventually(t, soon, "the same again is confirmed", func() bool { return put() == nil })
	wantKeys := func(want int64) {
		t.Helper()
		if n, err := replica.Exists(t.Context(), redis.DefaultPrefix+"b:{"+redis.DigestOf("w")+"}:1").Result(); n != want || err != nil {
			t.Errorf("the replica has %d, %v, want %d", n, err, want)
		}
	}
	wantKeys(1)
	if err := b.Put(t.Context(), key, []byte("y"), until); !errors.As(err, new(*state.BlobTakenError)) {
		t.Errorf("other bytes: %v", err)
	}
	for range 2 {
		if err := remove(); err != nil {
			t.Error(err)
		}
		wantKeys(0)
	}
	follower.signal(syscall.SIGSTOP) // it acknowledges nothing, also not what it had before
	again := open(t, config).Blobs() // on connections that wrote nothing
	for n, change := range []func() error{
		put, func() error { return seal.NewBlobs(again, box(t)).Put(t.Context(), key, []byte("x"), until) },
		remove, func() error { return open(t, config).Blobs().Delete(t.Context(), key) },
	} {
		if err := change(); !errors.Is(err, redis.ErrUnconfirmed) {
			t.Errorf("change %d while the replica stands still: %v", n, err)
		}
	}
	follower.signal(syscall.SIGCONT)
	eventually(t, soon, "the same again is confirmed", func() bool { return put() == nil })
	wantKeys(1)
}

// follow starts a replica of a server.
func follow(t *testing.T, master *server) (*server, *goredis.Client) {
	t.Helper()
	_, port, _ := strings.Cut(master.address, ":")
	follower := serve(t, "--replicaof", "127.0.0.1 "+port)
	replica := follower.client(goredis.Options{})
	eventually(t, soon, "the replica follows", func() bool {
		info, err := replica.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	return follower, replica
}

// Nothing of blobs stays in Redis after their end, and no expired blob is on an account after the next write.
func TestBlobs_NothingStays(t *testing.T) {
	t.Parallel()
	server := serve(t)
	client := server.client(goredis.Options{})
	b := open(t, redis.Config{Addresses: []string{server.address}}).Blobs()
	for n := range 20 {
		if err := b.Put(t.Context(), blobKey(strconv.Itoa(n)), make([]byte, 100), time.Now().Add(2*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if u := b.Usage(); u.Entries != 20 {
		t.Errorf("before the end: %+v", u)
	}
	keys := func() []string { return client.Keys(t.Context(), redis.DefaultPrefix+"b*").Val() }
	if len(keys()) != 20+3+2 {
		t.Errorf("keys: %v", keys())
	}
	eventually(t, soon, "all keys leave", func() bool { return len(keys()) == 0 })
	if u := b.Usage(); u != (state.Usage{}) {
		t.Errorf("after the end: %+v", u)
	}
}

// Counters that came to nothing leave no field behind, and each change is counted once.
func TestBlobs_AccountsBalance(t *testing.T) {
	t.Parallel()
	server := serve(t)
	client := server.client(goredis.Options{})
	b := open(t, redis.Config{Addresses: []string{server.address}}).Blobs()
	for n := range 9 {
		key := state.BlobKey{Group: "w", ID: strconv.Itoa(n % 3), Owner: strconv.Itoa(n)}
		if err := b.Put(t.Context(), key, []byte("x"), hence()); err != nil {
			t.Fatal(err)
		}
	}
	// A blob that another program deleted is counted once when it is written again.
	if err := client.Del(t.Context(), redis.DefaultPrefix+"b:{"+redis.DigestOf("w")+"}:1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), blobKey("1"), []byte("x"), hence()); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if err := b.Delete(t.Context(), blobKey(strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
	for _, account := range client.Keys(t.Context(), redis.DefaultPrefix+"ba:*:h").Val() {
		t.Errorf("%s holds %v", account, client.HGetAll(t.Context(), account).Val())
	}
}

// The clear bytes of sealed blobs are nowhere in what Redis dumps.
func TestBlobs_SealedInRedis(t *testing.T) {
	t.Parallel()
	const word = "the quarterly figures of Contoso"
	server := serve(t)
	client := server.client(goredis.Options{})
	for _, sealed := range []bool{true, false} {
		b := openBlobs(t, redis.Config{Addresses: []string{server.address}}, sealed)
		if err := b.Put(t.Context(), blobKey(strconv.FormatBool(sealed)), []byte(word), hence()); err != nil {
			t.Fatal(err)
		}
		seen, dumps := false, 0
		for _, key := range client.Keys(t.Context(), "*").Val() {
			dump, err := client.Dump(t.Context(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			dumps++
			seen = seen || strings.Contains(dump, word)
		}
		if seen == sealed || dumps == 0 {
			t.Errorf("sealed %v: of %d keys one has the clear bytes: %v", sealed, dumps, seen)
		}
	}
}

// While Redis has little memory left no blob begins, and what is there stays readable, deletable and idempotent.
func TestBlobs_LeaveMemoryToRecords(t *testing.T) {
	t.Parallel()
	server := serve(t, "--maxmemory", "24mb", "--maxmemory-policy", "noeviction")
	s := open(t, redis.Config{Addresses: []string{server.address}, Timeout: 5 * time.Second})
	b := s.Blobs()
	client := server.client(goredis.Options{})
	if err := b.Put(t.Context(), blobKey("1"), []byte("x"), hence()); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if err := client.Set(t.Context(), strconv.Itoa(n), make([]byte, 1<<20), time.Hour).Err(); err != nil {
			break // it is full
		}
	}
	eventually(t, soon, "the store sees how much is in use", func() bool { return s.Filled() > redis.Crowded })
	err := b.Put(t.Context(), blobKey("2"), []byte("x"), hence())
	if full, ok := errors.AsType[*state.FullError](err); !ok || full.Own {
		t.Errorf("a new blob: %v", err)
	}
	if err := b.Put(t.Context(), blobKey("1"), []byte("x"), hence()); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := b.Delete(t.Context(), blobKey("1")); err != nil {
		t.Error(err)
	}
}

// While Redis is away every operation is refused, and what it is for is said.
func TestBlobs_RedisAway(t *testing.T) {
	t.Parallel()
	server := serve(t)
	b := open(t, redis.Config{Addresses: []string{server.address}, Timeout: 300 * time.Millisecond}).Blobs()
	server.kill()
	for _, do := range []func() error{
		func() error { return b.Put(t.Context(), blobKey("1"), nil, hence()) },
		func() error { return b.Delete(t.Context(), blobKey("1")) },
		func() error { _, _, _, err := b.Get(t.Context(), blobKey("1")); return err },
		func() error { _, err := b.List(t.Context(), "w", "", 1); return err },
	} {
		wantUnavailable(t, soon, do)
	}
	if u := b.Usage(); u != (state.Usage{}) {
		t.Errorf("usage: %+v", u)
	}
}

func BenchmarkBlobs_Put64K(b *testing.B) {
	blobs := benchBlobs(b)
	value, until := make([]byte, 64<<10), time.Now().Add(2*time.Second) // so that memory is given back
	b.SetBytes(int64(len(value)))
	n := 0
	for b.Loop() {
		if n%100 == 0 {
			until = time.Now().Add(2 * time.Second)
		}
		key := state.BlobKey{Group: strconv.Itoa(n / 256), ID: strconv.Itoa(n), Owner: strconv.Itoa(n / 1024)}
		if err := blobs.Put(b.Context(), key, value, until); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

func BenchmarkBlobs_Get64K(b *testing.B) {
	blobs := benchBlobs(b)
	const many = 64
	for n := range many {
		if err := blobs.Put(b.Context(), blobKey(strconv.Itoa(n)), make([]byte, 64<<10), hence()); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(64 << 10)
	n := 0
	for b.Loop() {
		if _, _, found, err := blobs.Get(b.Context(), blobKey(strconv.Itoa(n%many))); !found || err != nil {
			b.Fatal(found, err)
		}
		n++
	}
}

func benchBlobs(b *testing.B) state.Blobs {
	b.Helper()
	config := redis.Config{Addresses: []string{serve(b, "--appendfsync", "everysec").address}, Timeout: 5 * time.Second}
	config.Blobs = state.BlobBounds{MaxBytes: 1 << 40, MaxBytesPerGroup: 1 << 30}
	return openBlobs(b, config, true)
}
