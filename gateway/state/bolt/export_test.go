package bolt

import (
	"os"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/evidence"
)

// Handle is the file that bbolt writes to.
func (s *Store) Handle() *os.File { return s.owner.file.handle }

// DB is the database below.
func (s *Store) DB() *bbolt.DB { return s.owner.file.db }

// What tests of time need to know.
const (
	RetryEvery = retryEvery
	LockWait   = lockWait
	PageSize   = pageSize
)

// Seal writes a value as the file has it.
func Seal(key string, content []byte) []byte { return seal([]byte(key), content) }

// ErrBroken is the cause when bbolt gave up.
var ErrBroken = errBroken

// Each passes on what a file holds of a kind.
func Each(tx *bbolt.Tx, kind state.Kind, each func(content []byte)) error {
	name := []byte(kind.String())
	if kind == state.KindToken {
		name = evidenceBucket(evidence.Records)
	}
	return tx.Bucket(name).ForEach(func(key, sealed []byte) error {
		content, err := unseal(key, sealed)
		each(content)
		return err
	})
}

// Stats counts what happened since Open.
type Stats struct {
	Queued      int           // changes that wait for the next commit
	QueuedBytes int64         // the same in bytes, about
	Waits       uint64        // writers that found the queue full
	Waited      time.Duration // how long they waited in all
	Commits     uint64        // transactions on disk
	Failures    uint64        // transactions that failed
	Written     uint64        // entries on disk
	Deleted     uint64        // entries deleted there
	Skipped     uint64        // answers and turns that could not be kept
	Slowest     time.Duration // the longest commit
}

// Stats is a snapshot.
func (s *Store) Stats() Stats {
	out := Stats{
		Commits: s.owner.counters.commits.Load(), Failures: s.owner.counters.failures.Load(), Skipped: s.owner.counters.skipped.Load(),
		Written: s.owner.counters.written.Load(), Deleted: s.owner.counters.deleted.Load(), Slowest: time.Duration(s.owner.counters.slowest.Load()),
	}
	s.queue.fill(&out)
	return out
}

// fill adds to s what the queue knows.
func (q *queue) fill(s *Stats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Queued, s.QueuedBytes = q.waiting(), q.bytes
	s.Waits, s.Waited = q.waits, q.waited
}

// Unclean is true if uses of tokens may be unknown: the process before ended
// without closing the file, or left more than there is room for now.
func (s *Store) Unclean() bool { return s.unclean }

// BlobsOnDisk counts the records of blobs and the values in the file.
func (s *Store) BlobsOnDisk(tb testing.TB) (counts [2]int) {
	tb.Helper()
	err := s.owner.file.view(func(tx *bbolt.Tx) error {
		for i, name := range []string{blobBucket, blobBytesBucket} {
			counts[i] = tx.Bucket([]byte(name)).Stats().KeyN
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return counts
}

// Occupy has the owner do nothing until release is closed, as with a disk that hangs.
func (s *Store) Occupy(release <-chan struct{}) {
	s.owner.works <- work{func() error { <-release; return nil }, make(chan error, 1)}
}
