package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/policy/quota"
)

// BlobKey names a blob: Group is the workflow, ID the checkpoint.
type BlobKey struct {
	Group string // listed together
	ID    string // unique within the group

	// Owner is the caller whose share the blob takes. It is no part of the name, and needed by Put
	// alone. A blob stays with the owner that wrote it first.
	Owner string
}

// BlobInfo is a blob without its bytes.
type BlobInfo struct {
	Key   BlobKey
	Size  int       // bytes of the value
	Until time.Time // found up to and including this instant
}

// Blobs keeps values of up to 1 MiB for days: the contents of checkpoints. A blob is written once and
// never changes. No blob leaves before its end, unless it is deleted: where there is no space, Put
// refuses. It is safe for concurrent use. [BlobBounds] says what there is space for.
type Blobs interface {
	// Put writes once, and returns when the bytes last: with a file on disk, with Redis on as many
	// replicas as entries wait for. The same name with the same bytes again is no error, and makes the
	// end later if it is later. Other bytes: [BlobTakenError], and nothing changes. [FullError]: there
	// is no space; Own: the share of the owner is used up. [UnavailableError]: it may be
	// written or not; Put the same again.
	Put(ctx context.Context, key BlobKey, value []byte, until time.Time) error
	// Get finds a blob up to and including its end.
	Get(ctx context.Context, key BlobKey) (value []byte, until time.Time, found bool, err error)
	// Delete removes a blob, and returns when that lasts; one that is not there is no error.
	Delete(ctx context.Context, key BlobKey) error
	// List returns up to limit blobs of a group in order of ID, after the given ID, without expired ones.
	List(ctx context.Context, group, after string, limit int) ([]BlobInfo, error)
	// Usage says how full the store is, for metrics.
	Usage() Usage
}

// BlobTakenError: a blob of this name has other bytes, and a blob is written once.
type BlobTakenError struct{ Key BlobKey }

func (e *BlobTakenError) Error() string {
	return fmt.Sprintf("state: blob %q of group %q has other bytes already, and a blob is written once: write these bytes under another ID", e.Key.ID, e.Key.Group)
}

const (
	// MaxBlobName bounds Group, ID and Owner of a [BlobKey] together, in bytes.
	MaxBlobName = 4 << 10
	// MaxSealedOverhead is by how many bytes a value may be larger when it is sealed.
	MaxSealedOverhead = 64

	blobBookkeeping = 1 << 10 // bytes that a blob is accounted with beside its value and its name
	blobShare       = 16      // one owner has this part of all blobs
	blobMember      = 4       // one owner has this part of a group
	retryBlobs      = time.Minute
)

// Cost is the bytes that a blob with a value of so many bytes is accounted with, the same in all drivers.
func (k BlobKey) Cost(size int) int64 {
	return int64(blobBookkeeping + 2*len(k.Group) + 2*len(k.ID) + len(k.Owner) + size)
}

// name is the key without what is no part of the name.
func (k BlobKey) name() BlobKey {
	k.Owner = ""
	return k
}

// own shares nothing with a larger text of the caller's.
func (k BlobKey) own() BlobKey {
	return BlobKey{Group: strings.Clone(k.Group), ID: strings.Clone(k.ID), Owner: strings.Clone(k.Owner)}
}

// BlobBounds bounds blobs. A zero field takes its default. Bytes are those of [BlobKey.Cost].
//
// An owner and a bound are as a holder and its limit in package quota: the last quarter of a
// group, and that of the store, are for owners that have at most an eighth of their own bound there.
//
// What one caller can do to others with each bound:
//
//   - MaxBlobBytes: nothing. A larger value is refused to its own writer.
//   - MaxPerMember, MaxBytesPerMember: one owner at its bound in a group takes a quarter of it. Three
//     of them leave the last quarter, in which each of the next writes an eighth of its bound. So a
//     member that fills its part of a workflow stops its own steps alone; eleven members of one
//     workflow that act together stop it.
//   - MaxPerGroup, MaxBytesPerGroup: a workflow at its bound stops no other workflow.
//   - MaxPerOwner, MaxBytesPerOwner: one owner at its bound takes a sixteenth of the store, with
//     however many workflows. Twelve of them leave the last quarter, in which each of the next
//     has an eighth of its bound; in all it takes 44 owners to fill the store.
//   - MaxBlobs, MaxBytes: a full store refuses new checkpoints. It takes nothing from entries, evidence
//     or replays, which have bounds of their own, and drops no blob.
type BlobBounds struct {
	MaxBlobs     int   // in all; default: one for each 4 KiB of MaxBytes
	MaxBytes     int64 // in all; default: 64 MiB in memory, 1 GiB in a file, 256 MiB in Redis
	MaxBlobBytes int   // bytes of one value, as it is stored; default: 1 MiB and MaxSealedOverhead

	MaxPerGroup      int   // blobs of one group; default: 1024
	MaxBytesPerGroup int64 // bytes of one group; default: 64 MiB

	MaxPerMember      int   // blobs of one owner in one group; default: a quarter of MaxPerGroup
	MaxBytesPerMember int64 // bytes of one owner in one group; default: a quarter of MaxBytesPerGroup

	MaxPerOwner      int   // blobs of one owner in all groups; default: a sixteenth of MaxBlobs
	MaxBytesPerOwner int64 // bytes of one owner in all groups; default: a sixteenth of MaxBytes
}

// Defaults of BlobBounds.
const (
	DefaultMaxBlobsBytes     = 64 << 20
	DefaultMaxBlobBytes      = 1<<20 + MaxSealedOverhead
	DefaultMaxBlobsPerGroup  = 1024
	DefaultMaxBlobGroupBytes = 64 << 20
)

// WithDefaults fills the zero fields.
func (b BlobBounds) WithDefaults() BlobBounds {
	orDefault(&b.MaxBytes, DefaultMaxBlobsBytes)
	orDefault(&b.MaxBlobs, max(1, int(b.MaxBytes>>12)))
	orDefault(&b.MaxBlobBytes, DefaultMaxBlobBytes)
	orDefault(&b.MaxPerGroup, DefaultMaxBlobsPerGroup)
	orDefault(&b.MaxBytesPerGroup, DefaultMaxBlobGroupBytes)
	orDefault(&b.MaxPerMember, max(1, b.MaxPerGroup/blobMember))
	orDefault(&b.MaxBytesPerMember, max(1, b.MaxBytesPerGroup/blobMember))
	orDefault(&b.MaxPerOwner, max(1, b.MaxBlobs/blobShare))
	orDefault(&b.MaxBytesPerOwner, max(1, b.MaxBytes/blobShare))
	return b
}

// Validate refuses bounds that bound nothing.
func (b BlobBounds) Validate() error {
	for _, bound := range []int64{
		int64(b.MaxBlobs), b.MaxBytes, int64(b.MaxBlobBytes), int64(b.MaxPerGroup), b.MaxBytesPerGroup,
		int64(b.MaxPerMember), b.MaxBytesPerMember, int64(b.MaxPerOwner), b.MaxBytesPerOwner,
	} {
		if bound < 0 {
			return errors.New("state: a bound of blobs must not be negative")
		}
	}
	return nil
}

// CheckSize is a [FullError] for a value or a name that is too large for any blob.
func (b BlobBounds) CheckSize(key BlobKey, size int) error {
	switch {
	case size > b.MaxBlobBytes:
		return &FullError{What: fmt.Sprintf("a blob of %d bytes, of which one has %d at most", size, b.MaxBlobBytes)}
	case len(key.Group)+len(key.ID)+len(key.Owner) > MaxBlobName:
		return &FullError{What: fmt.Sprintf("a blob with a name of more than %d bytes", MaxBlobName)}
	default:
		return nil
	}
}

// FullGroup is why a group has no space; own: the share of the owner in it is used up.
func FullGroup(own bool) *FullError {
	return &FullError{What: "blobs in this group", Own: own, RetryAfter: retryBlobs}
}

// FullBlobs is why the store has no space; own: the share of the owner is used up.
func FullBlobs(own bool) *FullError {
	return &FullError{What: "blobs", Own: own, RetryAfter: retryBlobs}
}

func (b BlobBounds) group() blobBound {
	return blobBound{amount{b.MaxPerGroup, b.MaxBytesPerGroup}, amount{b.MaxPerMember, b.MaxBytesPerMember}}
}

func (b BlobBounds) store() blobBound {
	return blobBound{amount{b.MaxBlobs, b.MaxBytes}, amount{b.MaxPerOwner, b.MaxBytesPerOwner}}
}

// blobBound bounds all blobs of a place, and those of one owner there.
type blobBound struct{ all, owner amount }

// refusal is why an owner that has some of what is used may not have one more; nil: it may.
func (b blobBound) refusal(used, has amount, cost int64) *quota.ExceededError {
	counts := quota.Config{Total: int64(b.all.count), PerHolder: int64(b.owner.count)}
	bytes := quota.Config{Total: b.all.bytes, PerHolder: b.owner.bytes}
	return cmp.Or(counts.Admit(int64(used.count), int64(has.count), 1), bytes.Admit(used.bytes, has.bytes, cost))
}

// MemoryBlobs are [Blobs] in memory: they last as long as the process.
type MemoryBlobs struct {
	now func() time.Time

	mu    sync.RWMutex
	index *BlobIndex[[]byte]
}

var _ Blobs = (*MemoryBlobs)(nil)

// NewMemoryBlobs makes an empty store; now is nil for time.Now. It fails for bounds that bound nothing.
func NewMemoryBlobs(bounds BlobBounds, now func() time.Time) (*MemoryBlobs, error) {
	if err := bounds.Validate(); err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	return &MemoryBlobs{now: now, index: NewBlobIndex[[]byte](bounds)}, nil
}

// Put writes once, as [Blobs] explains it.
func (s *MemoryBlobs) Put(_ context.Context, key BlobKey, value []byte, until time.Time) error {
	return s.put(key, nil, value, until)
}

// Replace is Put that also takes the place of was, with as many bytes and a later end: a sealed value
// is sealed anew with its end. [BlobTakenError]: the blob has bytes that are neither.
func (s *MemoryBlobs) Replace(_ context.Context, key BlobKey, was, value []byte, until time.Time) error {
	return s.put(key, was, value, until)
}

func (s *MemoryBlobs) put(key BlobKey, was, value []byte, until time.Time) error {
	key, value = key.own(), bytes.Clone(value)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.index.TakeExpired(now, sweep)
	if info, stored, found := s.index.Find(key, now); found {
		if !SameBlob(stored, was, value) {
			return &BlobTakenError{Key: key.name()}
		}
		if until.After(info.Until) {
			s.index.Prolong(key, value, until)
		}
		return nil
	}
	for {
		err := s.index.Admit(key, len(value))
		switch {
		case err == nil:
			s.index.Add(BlobInfo{Key: key, Size: len(value), Until: until}, value)
			return nil
		case len(s.index.TakeExpired(now, sweep)) == 0:
			return err
		}
	}
}

// SameBlob is true if a value that is put is no other than what is stored, or may replace it: see
// [MemoryBlobs.Replace]. was is nil for a value that replaces nothing.
func SameBlob(stored, was, value []byte) bool {
	return bytes.Equal(stored, value) || was != nil && len(was) == len(value) && bytes.Equal(stored, was)
}

// Get finds a blob, as [Blobs] explains it.
func (s *MemoryBlobs) Get(_ context.Context, key BlobKey) (value []byte, until time.Time, found bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	info, stored, found := s.index.Find(key, s.now())
	if !found {
		return nil, time.Time{}, false, nil
	}
	return bytes.Clone(stored), info.Until, true, nil
}

// Delete removes a blob, as [Blobs] explains it.
func (s *MemoryBlobs) Delete(_ context.Context, key BlobKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.Remove(key)
	return nil
}

// List lists blobs, as [Blobs] explains it.
func (s *MemoryBlobs) List(_ context.Context, group, after string, limit int) ([]BlobInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.List(group, after, limit, s.now()), nil
}

// Usage says how full the store is.
func (s *MemoryBlobs) Usage() Usage {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.Usage()
}

func (s *MemoryBlobs) sweep(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.TakeExpired(s.now(), most)
}
