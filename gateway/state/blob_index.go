package state

import (
	"container/heap"
	"slices"
	"time"
)

// BlobIndex knows the blobs of one process without their bytes: names, sizes, owners and ends, and
// decides by [BlobBounds] whether there is space for one more. With each blob is D: where its bytes are.
// It is not safe for concurrent use, and does no I/O.
type BlobIndex[D any] struct {
	bounds BlobBounds
	groups map[string]*blobGroup[D]
	owners map[string]*amount
	all    amount
	ends   order[*blob[D]] // the one that ends first is the first
}

// blob is one blob in the index.
type blob[D any] struct {
	info  BlobInfo
	data  D
	place int // in the order of ends
}

func (b *blob[D]) before(other *blob[D]) bool { return b.info.Until.Before(other.info.Until) }
func (b *blob[D]) moved(place int)            { b.place = place }
func (b *blob[D]) cost() int64                { return b.info.Key.Cost(b.info.Size) }

// blobGroup is what is listed together.
type blobGroup[D any] struct {
	byID   map[string]*blob[D]
	ids    []string // in order
	owners map[string]*amount
	all    amount
}

// IndexedBlob is a blob, and where its bytes are.
type IndexedBlob[D any] struct {
	BlobInfo

	Data D
}

// NewBlobIndex makes an index without a blob. Zero bounds take their defaults.
func NewBlobIndex[D any](bounds BlobBounds) *BlobIndex[D] {
	return &BlobIndex[D]{bounds: bounds.WithDefaults(), groups: map[string]*blobGroup[D]{}, owners: map[string]*amount{}}
}

func (x *BlobIndex[D]) find(key BlobKey) *blob[D] {
	if group := x.groups[key.Group]; group != nil {
		return group.byID[key.ID]
	}
	return nil
}

// Find finds a blob up to and including its end.
func (x *BlobIndex[D]) Find(key BlobKey, now time.Time) (info BlobInfo, data D, found bool) {
	one := x.find(key)
	if one == nil || now.After(one.info.Until) {
		return BlobInfo{}, data, false
	}
	return one.info, one.data, true
}

// Admit is a [FullError] if there is no space for one more blob. What has expired takes space until
// TakeExpired takes it out.
func (x *BlobIndex[D]) Admit(key BlobKey, size int) error {
	if err := x.bounds.CheckSize(key, size); err != nil {
		return err
	}
	var used, has amount
	if group := x.groups[key.Group]; group != nil {
		used, has = group.all, amountOf(group.owners, key.Owner)
	}
	if refusal := x.bounds.group().refusal(used, has, key.Cost(size)); refusal != nil {
		return FullGroup(refusal.Own)
	}
	if refusal := x.bounds.store().refusal(x.all, amountOf(x.owners, key.Owner), key.Cost(size)); refusal != nil {
		return FullBlobs(refusal.Own)
	}
	return nil
}

// Add adds a blob whatever the bounds are, in place of another of its name.
func (x *BlobIndex[D]) Add(info BlobInfo, data D) {
	x.Remove(info.Key)
	group := x.groups[info.Key.Group]
	if group == nil {
		group = &blobGroup[D]{byID: map[string]*blob[D]{}, owners: map[string]*amount{}}
		x.groups[info.Key.Group] = group
	}
	one := &blob[D]{info: info, data: data}
	group.byID[info.Key.ID] = one
	at, _ := slices.BinarySearch(group.ids, info.Key.ID)
	group.ids = slices.Insert(group.ids, at, info.Key.ID)
	for _, owners := range []map[string]*amount{group.owners, x.owners} {
		if owners[info.Key.Owner] == nil {
			owners[info.Key.Owner] = &amount{}
		}
		owners[info.Key.Owner].add(one.cost())
	}
	group.all.add(one.cost())
	x.all.add(one.cost())
	heap.Push(&x.ends, one)
}

// Prolong gives a blob a later end, and other data.
func (x *BlobIndex[D]) Prolong(key BlobKey, data D, until time.Time) {
	if one := x.find(key); one != nil {
		one.data, one.info.Until = data, until
		heap.Fix(&x.ends, one.place)
	}
}

// Remove takes a blob out; one that is not there is no error.
func (x *BlobIndex[D]) Remove(key BlobKey) {
	one := x.find(key)
	if one == nil {
		return
	}
	key = one.info.Key
	group := x.groups[key.Group]
	delete(group.byID, key.ID)
	if at, there := slices.BinarySearch(group.ids, key.ID); there {
		group.ids = slices.Delete(group.ids, at, at+1)
	}
	for _, owners := range []map[string]*amount{group.owners, x.owners} {
		if owners[key.Owner].remove(one.cost()); owners[key.Owner].count == 0 {
			delete(owners, key.Owner)
		}
	}
	group.all.remove(one.cost())
	x.all.remove(one.cost())
	heap.Remove(&x.ends, one.place)
	if len(group.ids) == 0 {
		delete(x.groups, key.Group)
	}
}

// TakeExpired takes out up to so many blobs that have expired, the longest expired first.
func (x *BlobIndex[D]) TakeExpired(now time.Time, most int) (taken []IndexedBlob[D]) {
	for len(x.ends) > 0 && len(taken) < most && now.After(x.ends[0].info.Until) {
		first := x.ends[0]
		taken = append(taken, IndexedBlob[D]{first.info, first.data})
		x.Remove(first.info.Key)
	}
	return taken
}

// List returns up to limit blobs of a group in order of ID, after the given ID, without expired ones.
func (x *BlobIndex[D]) List(name, after string, limit int, now time.Time) (found []BlobInfo) {
	group := x.groups[name]
	if group == nil {
		return nil
	}
	at, there := slices.BinarySearch(group.ids, after)
	if there {
		at++
	}
	for _, id := range group.ids[at:] {
		if len(found) >= limit {
			break
		}
		if one := group.byID[id]; !now.After(one.info.Until) {
			found = append(found, one.info)
		}
	}
	return found
}

// Usage says how much is taken, with what has expired and is not taken out yet.
func (x *BlobIndex[D]) Usage() Usage { return Usage{Entries: x.all.count, Bytes: x.all.bytes} }
