package redis_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

// TestAttack_RedisContentMakesMembers is the Redis part of finding 18: a program that can
// write to Redis makes itself root issuer and member of a workflow, and changes, moves and
// adds evidence. Before, all of that was believed. With a key that the replicas share none
// of it is, and what they wrote themselves is still found; without one it is believed, as
// the log says at the start.
func TestAttack_RedisContentMakesMembers(t *testing.T) {
	t.Parallel()
	address := serve(t, "--appendfsync", "everysec").address
	for name, keys := range map[string][][]byte{"with a key": {bytes.Repeat([]byte{7}, redis.KeySize)}, "without a key": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := apart(redis.Config{Addresses: []string{address}, Timeout: 5 * time.Second, Keys: keys})
			believed := keys == nil
			s := open(t, config)
			const owner, mallory = "spiffe://a.test/owner", "spiffe://a.test/mallory"
			root := ect.Record{Compact: "h.p.root", ID: "root", Workflow: "w", Issuer: owner, Until: time.Now().Add(time.Hour)}
			direction := ect.Record{
				Compact: "h.p.leg", ID: "leg", Workflow: "w", Issuer: "spiffe://a.test/gateway", Parents: []ect.ID{"root"},
				Members: []ect.Identity{"spiffe://a.test/agent"}, Until: time.Now().Add(time.Hour), Own: true,
			}
			moved := ect.Record{Compact: "h.p.moved", ID: "elsewhere", Workflow: "v", Issuer: mallory, Until: time.Now().Add(time.Hour)}
			for _, r := range []ect.Record{root, direction, moved} {
				if err := s.Put(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			forge(t, config, owner, mallory)
			standing, err := s.Standing(t.Context(), "w", mallory)
			if want := (ect.Standing{Known: true, Root: believed, Member: believed}); err != nil || standing != want {
				t.Errorf("the attacker is %+v, %v, want %+v", standing, err, want)
			}
			if found, err := ecttest.Find(t.Context(), s, "leg"); err != nil || (len(found) == 1) != believed {
				t.Errorf("a changed record: got %d, %v", len(found), err)
			}
			if found, err := ecttest.Find(t.Context(), s, "new"); err != nil || len(found) != 0 {
				t.Errorf("a record under another id: got %d, %v", len(found), err)
			}
			if found, err := ecttest.Find(t.Context(), s, "root"); err != nil || len(found) != 1 {
				t.Errorf("what was left alone: got %d, %v", len(found), err)
			}
			if got, err := s.Standing(t.Context(), "w", "spiffe://a.test/agent"); err != nil || !got.Member {
				t.Errorf("a true member is %+v, %v", got, err)
			}
			if (s.Ignored() > 0) == believed {
				t.Errorf("%d were ignored", s.Ignored())
			}
			if other := open(t, config); other.Put(t.Context(), direction) != nil {
				t.Error("another replica cannot put the record again")
			}
		})
	}
}

// TestAttack_RedisMovesAConversation is finding N4 for conversations: a program that
// writes to Redis has the next message of a caller continue another workflow. Before, it
// did. With a key only what a replica wrote, for this conversation, is believed.
func TestAttack_RedisMovesAConversation(t *testing.T) {
	t.Parallel()
	config := apart(redis.Config{Addresses: []string{serve(t, "--appendfsync", "everysec").address}, Timeout: 5 * time.Second})
	client := goredis.NewClient(&goredis.Options{Addr: config.Addresses[0]})
	defer func() { _ = client.Close() }()
	with := config
	with.Keys = [][]byte{bytes.Repeat([]byte{7}, redis.KeySize)}
	s, unverified := open(t, with), open(t, config)
	last := func() string {
		workflow, id, _, err := s.Last(t.Context(), "victim\x00c")
		if err != nil {
			t.Fatal(err)
		}
		return workflow + " " + string(id)
	}
	s.Remember(t.Context(), "victim\x00c", "w", "1")
	if got := last(); got != "w 1" {
		t.Fatalf("what a replica wrote: %q", got)
	}
	mine := client.Keys(t.Context(), config.Prefix+"c:*").Val()
	own := client.Get(t.Context(), mine[0]).Val()
	s.Remember(t.Context(), "mallory\x00c", "w", "2")
	var moved string
	for _, key := range client.Keys(t.Context(), config.Prefix+"c:*").Val() {
		if key != mine[0] {
			moved = client.Get(t.Context(), key).Val()
		}
	}
	for what, value := range map[string]string{
		"moved": moved, "changed": strings.Replace(own, "w", "v", 1), "no code": "w\x001", "no parts": "w", "empty": "",
	} {
		if err := client.Set(t.Context(), mine[0], value, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if got := last(); got != " " {
			t.Errorf("%s: %q is believed", what, got)
		}
	}
	unverified.Remember(t.Context(), "victim\x00c", "v", "3")
	if got := last(); got != " " || s.Ignored() < 6 {
		t.Errorf("what a gateway without the key wrote: %q, and %d were ignored", got, s.Ignored())
	}
	s.Remember(t.Context(), "victim\x00c", "w", "4")
	if got := last(); got != "w 4" {
		t.Errorf("what a replica wrote afterwards: %q", got)
	}
}

// forge does what a program can that writes to Redis and has read it.
func forge(t *testing.T, config redis.Config, owner, mallory string) {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: config.Addresses[0]})
	defer func() { _ = client.Close() }()
	ctx := t.Context()
	digestOf := map[string]string{}
	var standing, own, foreign string // of w; and the keys of two records
	keys, err := client.Keys(ctx, config.Prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		fields, err := client.HGetAll(ctx, key).Result()
		if err != nil {
			continue // no hash
		}
		for name, value := range fields {
			who, ok := strings.CutSuffix(name, ":about")
			switch {
			case ok && strings.Contains(value, owner):
				digestOf[owner] = who
			case ok && strings.Contains(value, mallory):
				digestOf[mallory], foreign = who, key
			case ok:
				own = key
				changed := strings.Replace(value, "spiffe://a.test/agent", mallory, 1)
				if err := client.HSet(ctx, key, name, changed).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, key := range keys {
		if fields, _ := client.HGetAll(ctx, key).Result(); fields["root"] == digestOf[owner] && fields["root"] != "" {
			standing = key
		}
	}
	if standing == "" || own == "" || foreign == "" {
		t.Fatal("the attacker did not find what it looks for")
	}
	if err := client.HSet(ctx, standing, "root", digestOf[mallory], "m:"+digestOf[mallory], "1").Err(); err != nil {
		t.Fatal(err)
	}
	to := strings.Replace(own, own[strings.LastIndex(own, ":")+1:], redis.DigestOf("new"), 1)
	if err := client.Copy(ctx, foreign, to, 0, true).Err(); err != nil {
		t.Fatal(err)
	}
}

// A new key stands before the old one in the file of all replicas: what was written with
// the old one is still believed, and what has neither is not.
func TestKeys_Rotation(t *testing.T) {
	t.Parallel()
	config := apart(redis.Config{Addresses: []string{serve(t, "--appendfsync", "everysec").address}, Timeout: 5 * time.Second})
	former, next := bytes.Repeat([]byte{1}, redis.KeySize), bytes.Repeat([]byte{2}, redis.KeySize)
	with := func(keys ...[]byte) *redis.Store {
		config.Keys = keys
		return open(t, config)
	}
	root := ect.Record{Compact: "h.p.root", ID: "root", Workflow: "w", Issuer: "spiffe://a.test/owner", Until: time.Now().Add(time.Hour)}
	if err := with(former).Put(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	both := with(next, former)
	if found, err := ecttest.Find(t.Context(), both, "root"); err != nil || len(found) != 1 {
		t.Errorf("with both: %d, %v", len(found), err)
	}
	another := root
	another.ID, another.Compact = "another", "h.p.another"
	if err := both.Put(t.Context(), another); err != nil {
		t.Errorf("another root by the same issuer: %v", err)
	}
	if got, err := both.Standing(t.Context(), "w", root.Issuer); err != nil || !got.Root {
		t.Errorf("with both: %+v, %v", got, err)
	}
	if found, err := ecttest.Find(t.Context(), with(next), "root"); err != nil || len(found) != 0 {
		t.Errorf("with the new one alone: %d, %v", len(found), err)
	}
	config.Keys = [][]byte{{1, 2, 3}}
	if _, err := redis.Open(config, redis.Deps{}); err == nil {
		t.Error("a key of three bytes was accepted")
	}
}

// TestAttack_RedisWriterHidesAGroup: a program that can write to Redis spoils single
// entries of a group. Before, no list of the group was to be had.
func TestAttack_RedisWriterHidesAGroup(t *testing.T) {
	t.Parallel()
	address := serve(t, "--appendfsync", "everysec").address
	s := open(t, redis.Config{Addresses: []string{address}, Timeout: 5 * time.Second})
	for _, id := range []string{"a", "b", "c"} {
		_, ok, err := s.Entries().Swap(t.Context(), state.EntryKey{Kind: "watched", ID: id}, 0, []byte(id), time.Now().Add(time.Hour))
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	client := goredis.NewClient(&goredis.Options{Addr: address})
	defer func() { _ = client.Close() }()
	entries, err := client.Keys(t.Context(), "*e:{*}:[abc]").Result()
	if err != nil || len(entries) != 3 {
		t.Fatal(entries, err)
	}
	for _, name := range entries {
		switch name[len(name)-1] {
		case 'a':
			err = client.Set(t.Context(), name, "no hash", 0).Err()
		case 'b':
			err = client.HSet(t.Context(), name, "revision", "no number").Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.Entries().List(t.Context(), "watched", "", "", 1)
	if err != nil || len(list) != 1 || list[0].Key.ID != "c" || s.Ignored() != 2 {
		t.Errorf("listed %v, %v, and %d were ignored; want c and 2", list, err, s.Ignored())
	}
}
