package state

import (
	"bytes"
	"container/heap"
	"container/list"
	"slices"
	"strings"
)

// EndedMark begins the value of an entry whose work has ended. Such an entry is
// kept until its end where there is space, and is the first to be dropped where
// there is none: of its own caller when that caller is at its share, and of the
// caller that holds most when the store is full.
const EndedMark = `{"Ended":true,`

// Ended is true for the value of an entry that may be dropped before its end.
func Ended(value []byte) bool { return bytes.HasPrefix(value, []byte(EndedMark)) }

// OwnerOf is the caller that an entry is accounted to: the one that the key
// names, or else what precedes the first zero byte of its group.
func (k EntryKey) OwnerOf() string {
	if k.Owner != "" {
		return k.Owner
	}
	owner, _, _ := strings.Cut(k.Group, "\x00")
	return owner
}

// KindShare is the part of a bound that entries of one kind may take, so that the
// other kinds have space when one fills the rest.
func KindShare[N int | int64](most N) N { return most - most/4 }

// BulkShare is the part of a bound that all kinds together may take that are not of
// Config.RecordKinds. The rest, an eighth and at least one, is a reserve for records.
func BulkShare[N int | int64](most N) N { return most - max(1, most/8) }

// amount is a number of entries and the bytes that they take.
type amount struct {
	count int
	bytes int64
}

func (a *amount) add(bytes int64)    { a.count, a.bytes = a.count+1, a.bytes+bytes }
func (a *amount) remove(bytes int64) { a.count, a.bytes = a.count-1, a.bytes-bytes }

// with is an amount with one more entry of so many bytes, in place of old; nil: there was none.
func (a amount) with(bytes int64, old *entry) amount {
	a.add(bytes)
	if old != nil {
		a.remove(old.size)
	}
	return a
}

// within is true if an amount does not exceed the bound.
func (a amount) within(bound amount) bool { return a.count <= bound.count && a.bytes <= bound.bytes }

// of is the part of a bound that an amount takes: of the number or of the bytes,
// whichever is larger.
func (a amount) of(bound amount) float64 {
	part := float64(a.count) / float64(max(1, bound.count))
	if bound.bytes > 0 {
		part = max(part, float64(a.bytes)/float64(bound.bytes))
	}
	return part
}

// ofKind is the bound of one kind of entries within a bound of all kinds.
func (a amount) ofKind() amount { return amount{KindShare(a.count), KindShare(a.bytes)} }

// account is what one owner has in a store.
type account struct {
	owner  string
	all    amount
	kinds  map[string]*amount
	ended  list.List // of *entry: those that may be dropped, in the order in which they ended
	weight int64     // bytes that one entry more counts for
	place  int       // in the order of accounts; -1: it has nothing that may be dropped
}

// accounts is what each owner has. It is not safe for concurrent use.
type accounts struct {
	records []string // the kinds of records: see Config.RecordKinds
	byOwner map[string]*account
	kinds   map[string]*amount // of all owners
	ended   amount             // of all owners: what may be dropped
	order   order[*account]    // the largest first: of those that have something that may be dropped
	weight  int64              // bytes that one entry more counts for when owners are compared
}

func newAccounts(bound amount, records []string) *accounts {
	return &accounts{
		records: slices.Clone(records),
		byOwner: map[string]*account{}, kinds: map[string]*amount{}, weight: bound.bytes / int64(max(1, bound.count)),
	}
}

// of is what an owner has: in all, and of each kind.
func (a *accounts) of(owner string) (all amount, kinds map[string]*amount) {
	if found := a.byOwner[owner]; found != nil {
		return found.all, found.kinds
	}
	return amount{}, nil
}

// isRecord is true for the kinds that the reserve is for.
func (a *accounts) isRecord(kind string) bool { return slices.Contains(a.records, kind) }

// ends is true for an entry that may be dropped before its end: no record is.
func (a *accounts) ends(kind string, value []byte) bool { return Ended(value) && !a.isRecord(kind) }

// bulk is an amount without the kinds of records.
func (a *accounts) bulk(all amount, kinds map[string]*amount) amount {
	for _, kind := range a.records {
		record := amountOf(kinds, kind)
		all = amount{all.count - record.count, all.bytes - record.bytes}
	}
	return all
}

// ofBulk is the bound of all other kinds within a bound of all. Without kinds of records there is no reserve.
func (a *accounts) ofBulk(bound amount) amount {
	if len(a.records) == 0 {
		return bound
	}
	return amount{BulkShare(bound.count), BulkShare(bound.bytes)}
}

func amountOf(kinds map[string]*amount, kind string) amount {
	if found := kinds[kind]; found != nil {
		return *found
	}
	return amount{}
}

// add accounts for an entry that came.
func (a *accounts) add(e *entry) {
	owner := e.key.OwnerOf()
	found := a.byOwner[owner]
	if found == nil {
		found = &account{owner: strings.Clone(owner), kinds: map[string]*amount{}, weight: a.weight, place: -1}
		a.byOwner[found.owner] = found
	}
	for _, of := range []map[string]*amount{found.kinds, a.kinds} {
		if of[e.key.Kind] == nil {
			of[e.key.Kind] = &amount{}
		}
		of[e.key.Kind].add(e.size)
	}
	if found.all.add(e.size); a.ends(e.key.Kind, e.value) {
		e.ended = found.ended.PushBack(e)
		a.ended.add(e.size)
	}
	a.sort(found)
}

// remove accounts for an entry that left.
func (a *accounts) remove(e *entry) {
	found := a.byOwner[e.key.OwnerOf()]
	found.all.remove(e.size)
	found.kinds[e.key.Kind].remove(e.size)
	a.kinds[e.key.Kind].remove(e.size)
	if e.ended != nil {
		found.ended.Remove(e.ended)
		a.ended.remove(e.size)
		e.ended = nil
	}
	if a.sort(found); found.all.count == 0 {
		delete(a.byOwner, found.owner)
	}
}

// sort puts an account where it belongs in the order.
func (a *accounts) sort(changed *account) {
	switch listed, lists := changed.place >= 0, changed.ended.Len() > 0; {
	case listed && lists:
		heap.Fix(&a.order, changed.place)
	case lists:
		heap.Push(&a.order, changed)
	case listed:
		heap.Remove(&a.order, changed.place)
	}
}

// oldestOf is the entry of an owner that may be dropped first; nil: there is none.
func (a *accounts) oldestOf(owner string) *entry {
	found := a.byOwner[owner]
	if found == nil || found.ended.Len() == 0 {
		return nil
	}
	e, _ := found.ended.Front().Value.(*entry)
	return e
}

// oldestOfLargest is the entry that may be dropped first of the owner that has
// most; nil: no owner has one.
func (a *accounts) oldestOfLargest() *entry {
	if len(a.order) == 0 {
		return nil
	}
	return a.oldestOf(a.order[0].owner)
}

// before orders accounts by what they have, the largest first.
func (a *account) before(other *account) bool {
	return a.all.bytes+int64(a.all.count)*a.weight > other.all.bytes+int64(other.all.count)*other.weight
}

func (a *account) moved(place int) { a.place = place }

// placed has a place in an [order]. It is told which; -1: it left.
type placed[A any] interface {
	before(other A) bool
	moved(place int)
}

// order is a heap for container/heap.
type order[A placed[A]] []A

func (l order[A]) Len() int           { return len(l) }
func (l order[A]) Less(i, j int) bool { return l[i].before(l[j]) }

func (l order[A]) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].moved(i)
	l[j].moved(j)
}

func (l *order[A]) Push(x any) {
	a, ok := x.(A)
	if !ok {
		return
	}
	a.moved(len(*l))
	*l = append(*l, a)
}

func (l *order[A]) Pop() any {
	last := len(*l) - 1
	a := (*l)[last]
	var none A
	(*l)[last] = none
	*l = (*l)[:last]
	a.moved(-1)
	return a
}
