package state

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// Replays keeps which tokens were used, and for what (R6). It is safe for concurrent use.
type Replays struct {
	now     func() time.Time
	epoch   time.Time
	passing bool // uses are forgotten when the process ends

	mu      sync.Mutex
	uses    *uses
	refused uint64 // since the start
}

var _ ect.ReplayCache = (*Replays)(nil)

// digest stands for a key or a use: half a SHA-256. A sender that finds two keys with one digest
// (2^64 work) gains nothing: the second token is refused.
type digest = index.Key

func newReplays(config Config, deps Deps) *Replays {
	table := &uses{
		bounds:   quota.Config{Resource: "uses of tokens", Total: int64(config.MaxReplays), PerHolder: int64(config.MaxReplaysPerIssuer)},
		byHolder: map[uint64]int64{}, byKey: index.New[usage](), ends: map[int64][]digest{}, journal: deps.Journal,
	}
	return &Replays{now: deps.Now, epoch: deps.Epoch, passing: deps.Passing, uses: table}
}

// Claim notes the use of a token. When live uses fill the store or the share of the holder, it
// refuses with a [UsesError]: a use that is forgotten could happen again. While even a token issued
// now is older than the epoch, it refuses with an [UnavailableError] that says for how long; later
// such a token is [ect.ReplayUnknown] for good. If uses end with the process, a token that is dated
// ahead waits for its date ([AwaitIssue]).
func (r *Replays) Claim(ctx context.Context, key ect.ReplayKey, use ect.ReplayUse) (ect.ReplayState, error) {
	if ahead := use.Issued.Sub(r.now()); r.passing && ahead > 0 {
		if err := AwaitIssue(ctx, ahead); err != nil {
			return ect.ReplayUnknown, err
		}
	}
	k := index.KeyOf(string(key.Issuer), key.Workflow, string(key.ID))
	u := index.KeyOf(use.Token, use.Body)
	holder := holderOf(cmp.Or(use.Holder, key.Issuer))
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if earlier, ok := r.uses.get(k, now); ok {
		if earlier == u {
			return ect.ReplaySame, nil
		}
		return ect.ReplayConflict, nil
	}
	if use.Issued.Before(r.epoch) {
		return ect.ReplayUnknown, r.Young()
	}
	if err := r.uses.add(k, usage{u, encoding.Nanos(use.Until), 0, holder}, now); err != nil {
		r.refused++
		own := int64(r.uses.byKey.Len()) < r.uses.bounds.Total
		return ect.ReplayUnknown, &UsesError{Own: own, RetryAfter: r.full(now).RetryAfter}
	}
	return ect.ReplayFresh, nil
}

// maxAhead is how far ahead of time a token may be dated whose use waits for its date.
const maxAhead = 5 * time.Second

// AwaitIssue waits for the date of a token that is dated so far ahead. So every token that
// is dated after a loss of uses is known to be new, at once. [UnavailableError]: it is
// dated more than 5 seconds ahead, and the same token can be sent again at its date; else
// the context's error.
func AwaitIssue(ctx context.Context, ahead time.Duration) error {
	if ahead > maxAhead {
		return &UnavailableError{Err: errors.New("state: the token is dated more than 5 seconds ahead: used now, it could be used again after a restart"), RetryAfter: ahead, Lacks: LacksReplay}
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errYoung is why a token is refused that may have been used before the start.
var errYoung = errors.New("state: uses of tokens that are made now may have been forgotten when the gateway ended")

// Young is why a token that is made now would be refused: the epoch is ahead; nil later.
// Tokens carry whole seconds.
func (r *Replays) Young() error {
	first := r.epoch.Add(time.Second - time.Nanosecond).Truncate(time.Second)
	if left := first.Sub(r.now()); left > 0 {
		return &UnavailableError{Err: errYoung, RetryAfter: left, Lacks: LacksReplay}
	}
	return nil
}

// UsesError: the use of one more token cannot be remembered, so the token is refused. It
// passes when others run out.
type UsesError struct {
	Own        bool          // the issuer has its share; else others have all there is
	RetryAfter time.Duration // when the first of all uses will have run out
}

func (e *UsesError) Error() string {
	if e.Own {
		return "this issuer's used tokens fill its share of the memory of used tokens: wait until some of them have run out, or issue fewer"
	}
	return "the memory of used tokens is full: wait until some of them have run out"
}

// full says when the next use expires.
func (r *Replays) full(now time.Time) *FullError {
	return &FullError{What: "uses of tokens", RetryAfter: time.Unix(r.uses.seconds[0], 0).Sub(now)}
}

// restore reports whether a use is in the cache again. [FullError]: there is no space for it.
func (r *Replays) restore(e keyed, use digest, holder, serial uint64) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if restored := r.uses.restore(e.key, usage{use, encoding.Nanos(e.until), serial, holder}, now); restored || e.until.Before(now) {
		return restored, nil
	}
	return false, r.full(now)
}

func (r *Replays) sweep(most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uses.clean(r.now(), most)
}

// Usage says how full the cache is.
func (r *Replays) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Usage{Entries: r.uses.byKey.Len()}
}

// Refused counts the uses that were refused with a [UsesError].
func (r *Replays) Refused() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// uses is a map whose entries end at an instant of their own, like expiring,
// for what there is by far the most of. Nothing in it is a pointer, so that the
// collector never looks at it; and since tokens live about equally long, uses
// that end in the same second are swept together, without a heap.
//
// No holder may fill it: each has a share, by the rule of [quota.Pool]. They are counted
// under the same lock, by digests, since what is restored has no names.
type uses struct {
	bounds   quota.Config
	byHolder map[uint64]int64 // uses, by holder
	byKey    *index.Index[usage]
	ends     map[int64][]digest // by the second in which they end, rounded up
	seconds  []int64            // of ends, in order
	serial   uint64             // of the latest entry
	journal  Journal            // may be nil
}

type usage struct {
	use    digest
	until  int64 // Unix time in nanoseconds, that instant included
	serial uint64
	holder uint64
}

// holderOf stands for whom a use is counted for, also on disk. Who finds another identity
// with the same (2^64 work) shares its share.
func holderOf(id ect.Identity) uint64 {
	d := index.KeyOf(string(id))
	return binary.BigEndian.Uint64(d[:])
}

func (x *uses) get(key digest, now time.Time) (digest, bool) {
	u := x.byKey.Find(key)
	if u == nil || u.until < encoding.Nanos(now) {
		return digest{}, false
	}
	return u.use, true
}

// add notes a new use, or says which bound is in the way.
func (x *uses) add(key digest, u usage, now time.Time) *quota.ExceededError {
	x.clean(now, sweep)
	for {
		err := x.bounds.Admit(int64(x.byKey.Len()), x.byHolder[u.holder], 1)
		if err == nil {
			break
		}
		if !x.clean(now, sweep) {
			return err
		}
	}
	x.serial++
	u.serial = x.serial
	old := x.insert(key, u)
	if x.journal == nil {
		return nil
	}
	come := appendReplay(make([]byte, 0, keyedSize+len(u.use)+holderSize), key, u)
	x.journal.Note(Change{Kind: KindReplay, Serial: x.serial, Size: overhead, content: come})
	x.left(old)
	return nil
}

// restore puts back a use of a journal, beyond its holder's share, too; false: it has ended, or
// there is no space.
func (x *uses) restore(key digest, u usage, now time.Time) bool {
	x.serial = max(x.serial, u.serial)
	if u.until < encoding.Nanos(now) {
		return false
	}
	for int64(x.byKey.Len()) >= x.bounds.Total && x.byKey.Find(key) == nil {
		if !x.clean(now, sweep) {
			return false
		}
	}
	x.left(x.insert(key, u))
	return true
}

// insert gives back what stood there before; without a serial: nothing did.
func (x *uses) insert(key digest, u usage) (old usage) {
	in := x.byKey.Find(key)
	if in != nil {
		old = *in
		x.give(old.holder)
	} else {
		in = x.byKey.Insert(key)
	}
	x.byHolder[u.holder]++
	*in = u
	second := ceil(u.until)
	list, ok := x.ends[second]
	if !ok {
		at, _ := slices.BinarySearch(x.seconds, second)
		x.seconds = slices.Insert(x.seconds, at, second)
	}
	x.ends[second] = append(list, key)
	return old
}

// give counts one use less for its holder.
func (x *uses) give(holder uint64) {
	if x.byHolder[holder]--; x.byHolder[holder] == 0 {
		delete(x.byHolder, holder)
	}
}

// clean drops uses that have ended, about as many as it is told; false: there
// was none.
func (x *uses) clean(now time.Time, most int) bool {
	some := false
	for most > 0 && len(x.seconds) > 0 && x.seconds[0]*int64(time.Second) < encoding.Nanos(now) {
		second := x.seconds[0]
		list := x.ends[second]
		for ; most > 0 && len(list) > 0; most-- {
			key := list[len(list)-1]
			list = list[:len(list)-1]
			if u := x.byKey.Find(key); u != nil && ceil(u.until) == second {
				x.left(*u)
				x.give(u.holder)
				x.byKey.Delete(key)
				some = true
			}
		}
		if x.ends[second] = list; len(list) == 0 {
			delete(x.ends, second)
			x.seconds = x.seconds[1:]
		}
	}
	return some
}

func (x *uses) left(u usage) {
	if x.journal != nil && u.serial > 0 {
		x.journal.Note(Change{Kind: KindReplay, Serial: u.serial})
	}
}

func ceil(nanos int64) int64 {
	const second = int64(time.Second)
	if nanos > 0 && nanos%second != 0 {
		return nanos/second + 1
	}
	return nanos / second
}
