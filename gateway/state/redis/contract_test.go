package redis_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

// shared knows with which words it was opened.
type shared struct {
	*redis.Entries
	config redis.Config
}

func contract(t *testing.T, config redis.Config) {
	t.Helper()
	t.Run("ect.Store", func(t *testing.T) {
		t.Parallel()
		ecttest.StoreSuite(t, func() ect.Store { return open(t, apart(config)) })
	})
	for name, test := range ecttest.ListerCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, apart(config)))
		})
	}
	t.Run("ect.ReplayCache", func(t *testing.T) {
		t.Parallel()
		ecttest.ReplaySuite(t, func() ect.ReplayCache { return open(t, apart(config)) })
	})
	statetest.RunShares(t, func(t testing.TB, bounds state.Config) ect.Store {
		t.Helper()
		own := apart(config)
		own.Bounds = bounds
		return open(t, own)
	})
	t.Run("answers of an owner", func(t *testing.T) {
		t.Parallel()
		answersOfAnOwner(t, config)
	})
	another := func(t testing.TB, config redis.Config) statetest.Entries {
		t.Helper()
		return shared{open(t, config).Entries(), config}
	}
	again := func(t testing.TB, e statetest.Entries) statetest.Entries {
		t.Helper()
		before, ok := e.(shared)
		if !ok {
			t.Fatal("not what was opened")
		}
		return another(t, before.config)
	}
	statetest.RunEntries(t, statetest.EntriesHarness{
		Open: func(t testing.TB, bounds state.Config) statetest.Entries {
			t.Helper()
			own := apart(config)
			own.Bounds = bounds
			return another(t, own)
		},
		Reopen: again, Replica: again, Elsewhere: true, Scattered: len(config.Addresses) > 1,
	})
}

// answersOfAnOwner: an owner with more than its share loses those of its own that end
// first; what has ended counts no more, and what is replaced counts once.
func answersOfAnOwner(t *testing.T, config redis.Config) {
	t.Helper()
	config.Bounds = state.Config{MaxAnswersBytesPerOwner: 3000}
	s := open(t, apart(config))
	key := func(owner, jti string) ect.ReplayKey {
		return ect.ReplayKey{Issuer: ect.Identity(owner), Workflow: "w", ID: ect.ID(jti)}
	}
	finish := func(owner, jti string, size int, life time.Duration) {
		s.Finish(t.Context(), key(owner, jti), make([]byte, size), time.Now().Add(life))
	}
	want := func(owner, jti string, want bool) {
		t.Helper()
		if _, ok := s.Load(t.Context(), key(owner, jti)); ok != want {
			t.Errorf("answer %s of %q is there: %v, want %v", jti, owner, ok, want)
		}
	}
	finish("other", "1", 1000, time.Minute)
	finish("greedy", "2", 1000, 20*time.Minute)
	finish("greedy", "1", 1000, 10*time.Minute)
	finish("greedy", "1", 1000, 10*time.Minute)
	want("greedy", "2", true)
	if err := s.Confirm(t.Context(), key("task\x00greedy\x00agent", "3"), make([]byte, 1000), time.Now().Add(30*time.Minute)); err != nil {
		t.Error(err)
	}
	want("greedy", "1", false)
	want("greedy", "2", true)
	want("task\x00greedy\x00agent", "3", true)
	finish("greedy", "4", 2800, time.Hour)
	want("greedy", "4", false)
	want("greedy", "2", true)
	finish("brief", "1", 1000, 300*time.Millisecond)
	finish("brief", "2", 1000, time.Minute)
	<-time.After(400 * time.Millisecond)
	finish("brief", "3", 1000, time.Minute)
	want("brief", "2", true)
	want("brief", "3", true)
	want("other", "1", true)
}

func TestStore_Contract(t *testing.T) {
	t.Parallel()
	s := serve(t, "--appendfsync", "everysec") // many tests on one disk, and some look at the clock
	contract(t, redis.Config{Addresses: []string{s.address}, Timeout: 5 * time.Second, Keys: [][]byte{make([]byte, redis.KeySize)}})
}

// Every write of an entry waits for a replica here.
func TestStore_ContractInACluster(t *testing.T) {
	t.Parallel()
	contract(t, redis.Config{Addresses: addresses(cluster(t, "--appendfsync", "everysec")), Wait: 1, Timeout: 5 * time.Second})
}

func TestStore_AnswersAndConversations(t *testing.T) {
	t.Parallel()
	const life = 4 * time.Second
	config := redis.Config{Addresses: []string{serve(t).address}, Bounds: state.Config{MaxAnswerBytes: 10, ConversationLifetime: life}}
	a, b := open(t, config), open(t, config)
	key := ect.ReplayKey{Issuer: "i", Workflow: "w", ID: "1"}
	a.Finish(t.Context(), key, []byte("answer\x00\xff"), time.Now().Add(life))
	if got, ok := b.Load(t.Context(), key); !ok || string(got) != "answer\x00\xff" {
		t.Errorf("got %q, %v", got, ok)
	}
	a.Finish(t.Context(), ect.ReplayKey{ID: "2"}, make([]byte, 11), time.Now().Add(time.Minute))
	if _, ok := b.Load(t.Context(), ect.ReplayKey{ID: "2"}); ok {
		t.Error("an answer beyond the bound was kept")
	}
	a.Remember(t.Context(), "c", "w", "one")
	a.Remember(t.Context(), "c", "w", "two")
	a.Remember(t.Context(), "", "w", "none")
	if workflow, id, ok, _ := b.Last(t.Context(), "c"); workflow != "w" || id != "two" || !ok {
		t.Errorf("got %q, %q, %v", workflow, id, ok)
	}
	if _, _, ok, _ := b.Last(t.Context(), ""); ok {
		t.Error("the empty key was remembered")
	}
	eventually(t, soon, "both end", func() bool {
		_, answered := b.Load(t.Context(), key)
		_, _, known, _ := b.Last(t.Context(), "c")
		return !answered && !known
	})
}

// An owner that begins more conversations than its share loses its own oldest,
// and no other holder's; while Redis is away, shares cannot be read.
func TestConversations_SharePerOwner(t *testing.T) {
	t.Parallel()
	bounds := state.Config{MaxConversations: 4 * state.ConversationShares, ConversationLifetime: time.Minute}
	s := open(t, redis.Config{Addresses: []string{serve(t).address}, Bounds: bounds})
	s.Remember(t.Context(), "victim\x00agent\x00c", "w", "1")
	for n := range 20 {
		s.Remember(t.Context(), "flooder\x00agent\x00"+strconv.Itoa(n), "w", "1")
	}
	stored := 0
	for n := range 20 {
		if _, _, ok, _ := s.Last(t.Context(), "flooder\x00agent\x00"+strconv.Itoa(n)); ok {
			stored++
		}
	}
	if _, _, ok, err := s.Last(t.Context(), "victim\x00agent\x00c"); !ok || err != nil || stored != 4 {
		t.Errorf("the victim's is known: %v, %v; of the flooder's there are %d", ok, err, stored)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := s.Last(t.Context(), "victim\x00agent\x00c"); ok || err == nil {
		t.Error("without Redis a conversation is unknown, and that is no error")
	}
}

// TestStore_OperationsDoNotQueue: while the server is slow, operations of one caller do not wait
// for a connection until those of others are answered.
func TestStore_OperationsDoNotQueue(t *testing.T) {
	t.Parallel()
	server := serve(t)
	s, admin := open(t, redis.Config{Addresses: []string{server.address}, Timeout: soon / 2}), server.client(goredis.Options{})
	if err := admin.Do(t.Context(), "CLIENT", "PAUSE", soon.Milliseconds(), "WRITE").Err(); err != nil {
		t.Fatal(err)
	}
	const atOnce = 200
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() { s.Remember(t.Context(), "owner\x00agent\x00c", "w", "1") })
	}
	eventually(t, soon/2, "all are with the server", func() bool {
		info, err := admin.InfoMap(t.Context(), "clients").Result()
		n, _ := strconv.Atoi(info["Clients"]["blocked_clients"])
		return err == nil && n == atOnce
	})
	if err := admin.Do(t.Context(), "CLIENT", "UNPAUSE").Err(); err != nil {
		t.Error(err)
	}
	all.Wait()
}

// What one replica keeps, all know.
func TestStore_SharedBetweenReplicas(t *testing.T) {
	t.Parallel()
	config := redis.Config{Addresses: []string{serve(t).address}}
	a, b := open(t, config), open(t, config)
	issued := time.Now().Add(time.Second)
	if got, err := claim(a, "1", issued); got != ect.ReplayFresh || err != nil {
		t.Error(got, err)
	}
	if got, err := claim(b, "1", issued); got != ect.ReplaySame || err != nil {
		t.Error("a token can be used once per replica:", got, err)
	}
	first := time.Now().Add(2 * time.Second)
	r := ect.Record{Compact: "h.p.s", ID: "1", Workflow: "w", Parents: []ect.ID{}, Until: first}
	if err := a.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.Until = first.Add(4 * time.Second)
	if err := b.Put(t.Context(), r); err != nil { // prolonged
		t.Fatal(err)
	}
	<-time.After(time.Until(first) + time.Second/10)
	if found, err := ecttest.All(t.Context(), a, "w"); err != nil || len(found) != 1 || !found[0].Until.Equal(r.Until) || found[0].Parents == nil {
		t.Errorf("got %+v, %v", found, err)
	}
	eventually(t, soon, "it ends", func() bool {
		named, err := ecttest.Find(t.Context(), a, "1")
		found, _ := ecttest.All(t.Context(), a, "w")
		return err == nil && len(named) == 0 && len(found) == 0
	})
}

// What came when many others had its id outlives them under its own key, and leaves with
// its holder's account.
func TestNamesakes_OutliveTheOthers(t *testing.T) {
	t.Parallel()
	s := open(t, redis.Config{Addresses: []string{serve(t).address}, Bounds: state.Config{MaxTokens: 1000, MaxTokenBytes: 64 << 10}})
	end := time.Now().Add(time.Second)
	named := func(who, wid string, until time.Time) ect.Record {
		return ect.Record{Compact: "token of " + who, ID: "id", Workflow: wid, Issuer: ect.Identity(who), Holder: who, Until: until}
	}
	put := func(r ect.Record) {
		t.Helper()
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for n := range ect.MaxNamesakes {
		put(named(fmt.Sprint("stranger", n), fmt.Sprint("w", n), end))
	}
	put(named("owner", "w", end.Add(time.Hour)))
	<-time.After(time.Until(end) + time.Second/10)
	there := func(want int) {
		t.Helper()
		listed, err := ecttest.All(t.Context(), s, "w")
		found, err2 := s.Get(t.Context(), ect.Ref{ID: "id", Workflow: "w"}, ect.Ref{ID: "id", Issuer: "owner"}, ect.Ref{ID: "id"})
		if err != nil || err2 != nil || len(listed) != want || len(found[0]) != want || len(found[1]) != want || len(found[2]) != 0 {
			t.Errorf("want %d: the workflow lists %d; found %v, %v, %v", want, len(listed), found, err, err2)
		}
	}
	there(1)
	put(named("owner", "w", end.Add(2*time.Hour)))
	there(1)
	for n := range 60 { // pushes it out of its share
		r := named("owner", "", end.Add(time.Hour))
		r.ID = ect.ID(fmt.Sprint("other", n))
		put(r)
	}
	there(0)
}

// TestEvicted_BeginningIsBounded: of a workflow whose records left before their end, only
// who began it is kept, and for an hour: no account counts it, so that one identity could
// otherwise fill Redis with workflows and their members until the term of its records.
func TestEvicted_BeginningIsBounded(t *testing.T) {
	t.Parallel()
	server := serve(t)
	s := open(t, redis.Config{Addresses: []string{server.address}, Bounds: state.Config{MaxTokens: 1000, MaxTokenBytes: 64 << 10}})
	for n := range 120 {
		r := ect.Record{
			Compact: fmt.Sprint("token ", n), ID: ect.ID(fmt.Sprint("id", n)), Workflow: fmt.Sprint("w", n), Issuer: "mallory", Holder: "mallory",
			Until: time.Now().Add(48 * time.Hour), Members: []ect.Identity{"a", "b", "c"},
		}
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if standing, err := s.Standing(t.Context(), "w0", "mallory"); err != nil || !standing.Root {
		t.Errorf("who began the first is %+v, %v", standing, err)
	}
	client, left := server.client(goredis.Options{}), 0
	defer func() { _ = client.Close() }()
	keys, err := client.Keys(t.Context(), "*m:{*").Result()
	if err != nil || len(keys) != 120 {
		t.Fatalf("%d standings, %v", len(keys), err)
	}
	for _, key := range keys {
		life, fields := client.PTTL(t.Context(), key).Val(), client.HLen(t.Context(), key).Val()
		if life <= time.Hour && fields == 3 {
			left++
		} else if life < 47*time.Hour || fields != 6 {
			t.Errorf("%s lives for %v with %d fields", key, life, fields)
		}
	}
	if left < 60 {
		t.Errorf("%d beginnings are bounded, expected most of 120", left)
	}
}

// TestEntries_OfAnEarlierVersion: entries that were written before all owners had an account
// are read, changed and deleted, and count from their next change on.
func TestEntries_OfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	server := serve(t)
	e := open(t, redis.Config{Addresses: []string{server.address}, Bounds: state.Config{MaxEntries: 2, MaxEntriesPerOwner: 2}}).Entries()
	write := func(id string, old uint64) (uint64, error) {
		t.Helper()
		key := state.EntryKey{Kind: "session", Group: id, ID: id}
		revision, ok, err := e.Swap(t.Context(), key, old, []byte(id), hence())
		if !ok && err == nil {
			t.Errorf("%s is not at revision %d", id, old)
		}
		return revision, err
	}
	first, err := write("kept", 0)
	_, err2 := write("deleted", 0)
	client := server.client(goredis.Options{})
	gone, err3 := client.Del(t.Context(), "aepb:o:all:h", "aepb:o:all:z", "aepb:o:all:o").Result()
	if err := errors.Join(err, err2, err3); err != nil || gone != 2 {
		t.Fatal(gone, err)
	}
	if got, ok, err := e.Get(t.Context(), state.EntryKey{Kind: "session", Group: "kept", ID: "kept"}); !ok || err != nil || string(got.Value) != "kept" {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if err := e.Delete(t.Context(), state.EntryKey{Kind: "session", Group: "deleted", ID: "deleted"}); err != nil {
		t.Error(err)
	}
	_, err = write("kept", first)
	_, err2 = write("new", 0)
	_, err3 = write("one more", 0)
	if full, ok := errors.AsType[*state.FullError](err3); err != nil || err2 != nil || !ok || full.Own {
		t.Errorf("the old one %v, a new one %v, one more %v, want the last refused", err, err2, err3)
	}
}

// TestWorkflows_LeaveTheList: a workflow that lost its last record is no more in the list, also where its records left before
// their end: one holder cannot fill Redis with names of workflows.
func TestWorkflows_LeaveTheList(t *testing.T) {
	t.Parallel()
	server := serve(t, "--appendfsync", "everysec")
	config := redis.Config{Addresses: []string{server.address}, Timeout: 5 * time.Second, Prefix: "evicted:", Bounds: state.Config{MaxTokenBytes: 64 << 10}}
	s := open(t, config)
	bring := func(name string, count int, lives time.Duration) {
		t.Helper()
		for n := range count {
			id := fmt.Sprint(name, n)
			r := ect.Record{Compact: "h.p." + id, ID: ect.ID(id), Workflow: "w-" + id, Issuer: "i", Holder: "one", Parents: []ect.ID{"p"}, Until: time.Now().Add(lives)}
			if err := s.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	client := goredis.NewClient(&goredis.Options{Addr: server.address})
	defer func() { _ = client.Close() }()
	want := func(least, most int) {
		t.Helper()
		wids, err := ecttest.Workflows(t.Context(), s, time.Time{}, 10)
		if err != nil || len(wids) < least || len(wids) > most {
			t.Errorf("%d workflows are listed, %v, want %d to %d", len(wids), err, least, most)
		}
		var counts [3]int
		for part := range 16 {
			for i, name := range []string{"wl", "we"} {
				counts[i] += int(client.ZCard(t.Context(), fmt.Sprintf("%s%s:{wids%x}", config.Prefix, name, part)).Val())
			}
			counts[2] += int(client.HLen(t.Context(), fmt.Sprintf("%swn:{wids%x}", config.Prefix, part)).Val())
		}
		if counts[0] != counts[1] || counts[1] != counts[2] || counts[0] != len(wids) {
			t.Errorf("Redis has %v entries of workflows, want %d", counts, len(wids))
		}
	}
	bring("evicted", 300, time.Hour)
	want(20, 64) // 64 KiB, 1.25 KiB each and more
	config.Prefix = "ended:"
	s = open(t, config)
	bring("stays", 20, time.Hour)
	bring("ended", 20, 500*time.Millisecond)
	<-time.After(time.Second)
	bring("later", 200, time.Hour) // writing sweeps
	want(20, 64)
}

// TestWorkflows_HaveOnePlaceEach: two workflows never have one place in the list, also where the clock of Redis was set back: a
// cursor between them would leave one out.
func TestWorkflows_HaveOnePlaceEach(t *testing.T) {
	t.Parallel()
	config := redis.Config{Addresses: []string{serve(t, "--appendfsync", "everysec").address}, Prefix: "places:", Timeout: 5 * time.Second}
	s := open(t, config)
	client := goredis.NewClient(&goredis.Options{Addr: config.Addresses[0]})
	defer func() { _ = client.Close() }()
	ahead := float64(time.Now().Add(time.Hour).UnixMicro())
	for part := range 16 {
		client.ZAdd(t.Context(), fmt.Sprintf("places:wl:{wids%x}", part), goredis.Z{Score: ahead, Member: "before"})
	}
	for n := range 100 {
		id := strconv.Itoa(n)
		r := ect.Record{Compact: "h.p." + id, ID: ect.ID(id), Workflow: "w" + id, Issuer: "i", Parents: []ect.ID{"p"}, Until: time.Now().Add(time.Hour)}
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for part := range 16 {
		places := map[float64]bool{}
		for _, z := range client.ZRangeWithScores(t.Context(), fmt.Sprintf("places:wl:{wids%x}", part), 0, -1).Val() {
			if places[z.Score] || z.Score < ahead {
				t.Errorf("part %x: %v is at %.0f, expected a place of its own behind %.0f", part, z.Member, z.Score, ahead)
			}
			places[z.Score] = true
		}
	}
}
