package redis_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

// cutter stands between a client and a server. Armed, it lets the next script
// through and cuts the line instead of passing on its answer.
type cutter struct {
	address string
	armed   atomic.Bool
	cut     atomic.Int64
}

func newCutter(t *testing.T, server string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{address: l.Addr().String()}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				_ = near.Close()
				continue
			}
			var script atomic.Bool
			group.Go(func() { c.pass(far, near, func(data []byte) bool { c.mark(&script, data); return true }) })
			group.Go(func() { c.pass(near, far, func([]byte) bool { return !script.Load() }) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); group.Wait() })
	return c
}

func (c *cutter) mark(script *atomic.Bool, data []byte) {
	if bytes.Contains(data, []byte("evalsha")) && c.armed.CompareAndSwap(true, false) {
		c.cut.Add(1)
		script.Store(true)
	}
}

func (c *cutter) pass(to, from net.Conn, look func([]byte) bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !look(buffer[:n]) {
			return
		}
		if _, err2 := io.Copy(to, bytes.NewReader(buffer[:n])); err != nil || err2 != nil {
			return
		}
	}
}

// A script whose answer was lost is sent again and knows itself: nobody is told
// that somebody else was first when it was he.
func TestScript_ResentAfterLostReply(t *testing.T) {
	t.Parallel()
	line := newCutter(t, serve(t).address)
	s := open(t, redis.Config{Addresses: []string{line.address}})
	if err := swapOne(s, "warm"); err != nil {
		t.Fatal(err)
	}
	issued := time.Now().Add(time.Second)
	if got, err := claim(s, "warm", issued); got != ect.ReplayFresh || err != nil {
		t.Fatal(got, err)
	}
	line.armed.Store(true)
	revision, ok, err := s.Entries().Swap(t.Context(), entryKey("1"), 0, []byte("one"), hence())
	if !ok || err != nil {
		t.Errorf("a swap: %v, %v", ok, err)
	}
	if got, _, err := s.Entries().Get(t.Context(), entryKey("1")); err != nil || got.Revision != revision {
		t.Errorf("stands at %d, %v; told was %d", got.Revision, err, revision)
	}
	line.armed.Store(true)
	if got, err := claim(s, "1", issued); got != ect.ReplayFresh || err != nil {
		t.Errorf("the first use of a token: %v, %v", got, err)
	}
	if got, err := claim(s, "1", issued); got != ect.ReplaySame || err != nil {
		t.Errorf("the second use of a token: %v, %v", got, err)
	}
	if line.cut.Load() != 2 {
		t.Errorf("%d answers were lost, want 2", line.cut.Load())
	}
}

// A statement that a replica kept on hold, and did not note in its workflow before it ended, is noted when another replica
// brings the same bytes.
func TestPut_NotesWhatAnotherReplicaLeft(t *testing.T) {
	t.Parallel()
	server := serve(t)
	s := open(t, redis.Config{Addresses: []string{server.address}})
	r := ect.Record{Compact: "c", ID: "1", Workflow: "w", Issuer: "spiffe://x/g", Parents: []ect.ID{"p"}, Until: hence(), Own: true, OnHold: true}
	if err := s.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(&goredis.Options{Addr: server.address})
	t.Cleanup(func() { _ = client.Close() })
	lists, err := client.Keys(t.Context(), "*w:"+redis.DigestOf("w")).Result()
	if err != nil || len(lists) != 1 || client.Del(t.Context(), lists...).Err() != nil {
		t.Fatalf("the list of the workflow: %v, %v", lists, err)
	}
	if found, _, err := s.Workflow(t.Context(), "w", "", 10); err != nil || len(found) != 0 {
		t.Fatalf("without its list the workflow has %d records, %v", len(found), err)
	}
	r.Own, r.OnHold = false, false
	if err := s.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if found, _, err := s.Workflow(t.Context(), "w", "", 10); err != nil || len(found) != 1 || !found[0].OnHold {
		t.Errorf("the workflow has %+v, %v, expected the statement on hold", found, err)
	}
}
