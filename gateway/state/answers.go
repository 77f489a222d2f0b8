package state

import (
	"bytes"
	"container/heap"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
)

// Answers keeps what was answered to a message with an ECT, so that a
// byte-identical repetition gets the same bytes (R6). Each owner has a share, and
// loses its own oldest answers when it has more. When the store is full, the owner
// that has most loses its oldest. It is safe for concurrent use.
type Answers struct {
	now      func() time.Time
	largest  int
	total    amount
	perOwner int64 // bytes

	mu     sync.RWMutex
	blobs  *boundedMap[ownerNumber] // as appendKeyed writes them
	owners answerOwners
}

func newAnswers(config Config, deps Deps) *Answers {
	a := &Answers{
		now: deps.Now, largest: config.MaxAnswerBytes,
		total: amount{config.MaxAnswers, config.MaxAnswersBytes}, perOwner: config.MaxAnswersBytesPerOwner,
		blobs:  newBoundedMap[ownerNumber](KindAnswer, config.MaxAnswers, config.MaxAnswersBytes, deps.Journal),
		owners: answerOwners{byName: map[string]*answerAccount{}, byNumber: map[ownerNumber]*answerAccount{}},
	}
	a.blobs.dropped = func(_ digest, p place[ownerNumber]) { a.owners.remove(p.meta, a.blobs.weight(int(p.size))) }
	return a
}

// AnswerOwner is the caller that an answer is accounted to: who issued the token
// that it answers, or, where the gateway keeps something under a name that no issuer
// has, what stands between the first two zero bytes of that.
func AnswerOwner(key ect.ReplayKey) string {
	_, rest, found := strings.Cut(string(key.Issuer), "\x00")
	if !found {
		return string(key.Issuer)
	}
	owner, _, _ := strings.Cut(rest, "\x00")
	return owner
}

// Finish stores an answer; a later one under the same key replaces it. One that is
// too large is not kept, and when there is no space others go: their repetitions are
// then refused as in progress.
func (a *Answers) Finish(_ context.Context, key ect.ReplayKey, answer []byte, until time.Time) {
	if len(answer) > a.largest {
		return
	}
	k := index.KeyOf(string(key.Issuer), key.Workflow, string(key.ID))
	a.mu.Lock()
	defer a.mu.Unlock()
	now, owner := a.now(), AnswerOwner(key)
	weight := a.blobs.weight(keyedSize + len(answer))
	if !a.makeSpace(owner, k, weight, now) {
		return
	}
	account := a.owners.named(owner)
	var head [keyedSize]byte
	if a.blobs.add(k, account.number, until, now, appendKeyed(head[:0], until, k), answer) {
		a.owners.add(account, k, a.blobs.serial, weight)
		a.tidy(account)
	}
}

// tidy drops from a queue what has left the store, once that is most of it.
func (a *Answers) tidy(account *answerAccount) {
	if len(account.queue) < 2*account.all.count+64 {
		return
	}
	remaining := account.queue[:0]
	for _, one := range account.queue[account.next:] {
		if p := a.blobs.byKey.Find(one.key); p != nil && p.serial == one.serial {
			remaining = append(remaining, one)
		}
	}
	account.queue, account.next = remaining, 0
}

// makeSpace drops what has to go for an answer; false: it is larger than a share.
func (a *Answers) makeSpace(owner string, key digest, weight int64, now time.Time) bool {
	if weight > a.perOwner || weight > a.total.bytes {
		return false
	}
	for {
		own, all := amount{}, amount{a.blobs.byKey.Len(), a.blobs.bytes}
		account := a.owners.byName[owner]
		if account != nil {
			own = account.all
		}
		if old := a.blobs.byKey.Find(key); old != nil { // it is replaced
			all.remove(a.blobs.weight(int(old.size)))
			if account != nil && old.meta == account.number {
				own.remove(a.blobs.weight(int(old.size)))
			}
		}
		switch {
		case own.bytes+weight > a.perOwner:
		case !amount{all.count + 1, all.bytes + weight}.within(a.total):
			if before := a.blobs.byKey.Len(); a.cleaned(now) < before {
				continue
			}
			account = a.owners.order[0]
		default:
			return true
		}
		a.dropOldest(account)
	}
}

// cleaned drops some of what has expired, and is how many answers are left.
func (a *Answers) cleaned(now time.Time) int {
	a.blobs.clean(now, sweep)
	return a.blobs.byKey.Len()
}

// dropOldest drops the oldest answer of an account that has one.
func (a *Answers) dropOldest(account *answerAccount) {
	for {
		oldest := account.queue[account.next]
		account.next++
		if p := a.blobs.byKey.Find(oldest.key); p != nil && p.serial == oldest.serial {
			a.blobs.evicted++
			a.blobs.drop(oldest.key, *p)
			return
		}
	}
}

// Load finds a stored answer; false: there is none, or not yet. The bytes are
// the caller's own.
func (a *Answers) Load(_ context.Context, key ect.ReplayKey) ([]byte, bool) {
	k := index.KeyOf(string(key.Issuer), key.Workflow, string(key.ID))
	a.mu.RLock()
	defer a.mu.RUnlock()
	blob, _, ok := a.blobs.get(k, a.now())
	if !ok {
		return nil, false
	}
	return bytes.Clone(blob[keyedSize:]), true
}

// Usage says how full the store is.
func (a *Answers) Usage() Usage {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.blobs.usage()
}

// restore puts an answer back. Whose it was is not on disk: those of before a restart
// are all accounted to the owner without a name, as if they were one caller's.
func (a *Answers) restore(e keyed, serial uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	account := a.owners.named("")
	if len(e.whole)-keyedSize > a.largest || !a.blobs.restore(e.key, account.number, serial, e.until, a.now(), e.whole) {
		return false
	}
	a.owners.add(account, e.key, serial, a.blobs.weight(len(e.whole)))
	return true
}

func (a *Answers) sweep(most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blobs.clean(a.now(), most)
}

// ownerNumber names an owner where there is no place for a name.
type ownerNumber uint64

// answerAccount is what one owner has of the answers.
type answerAccount struct {
	name   string
	number ownerNumber
	all    amount
	queue  []queued // what came, in order; what has left since may still stand here
	next   int      // everything before this has left
	place  int      // in the order of accounts; -1: it has nothing
}

// queued is an answer, as long as the one under this key has this serial.
type queued struct {
	key    digest
	serial uint64
}

// before orders accounts by their bytes, the largest first.
func (a *answerAccount) before(other *answerAccount) bool { return a.all.bytes > other.all.bytes }

func (a *answerAccount) moved(place int) { a.place = place }

// answerOwners is what each owner has of the answers. Only owners that have something
// are kept.
type answerOwners struct {
	byName   map[string]*answerAccount
	byNumber map[ownerNumber]*answerAccount
	order    order[*answerAccount]
	last     ownerNumber
}

// named is the account of an owner, which may be new.
func (o *answerOwners) named(owner string) *answerAccount {
	if found := o.byName[owner]; found != nil {
		return found
	}
	o.last++
	made := &answerAccount{name: strings.Clone(owner), number: o.last, place: -1}
	o.byName[made.name], o.byNumber[made.number] = made, made
	return made
}

// add accounts for an answer that came.
func (o *answerOwners) add(to *answerAccount, key digest, serial uint64, weight int64) {
	o.byName[to.name], o.byNumber[to.number] = to, to // it may have lost the one that was replaced
	to.queue = append(to.queue, queued{key, serial})
	if to.all.add(weight); to.place < 0 {
		heap.Push(&o.order, to)
	} else {
		heap.Fix(&o.order, to.place)
	}
}

// remove accounts for an answer that left.
func (o *answerOwners) remove(number ownerNumber, weight int64) {
	from := o.byNumber[number]
	if from.all.remove(weight); from.all.count > 0 {
		heap.Fix(&o.order, from.place)
		return
	}
	heap.Remove(&o.order, from.place)
	from.queue, from.next = nil, 0
	delete(o.byName, from.name)
	delete(o.byNumber, number)
}
