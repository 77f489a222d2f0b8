package state

import (
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
)

// workflows is what is known of each workflow of which a record is kept: who issued
// its first root, who is a member, and where its records are. It holds no pointers,
// as shelf does not. It is not safe for concurrent use: its owner has the lock.
type workflows struct {
	byKey   *index.Index[workflow]
	shares  *shares
	swept   int                  // the holder that was looked at last
	members *index.Index[digest] // under a workflow and an identity: the member that came before in the same workflow
}

// workflow is one workflow with a record, or whose last record left before its end. Who
// began such a one stays known until then, so that no other can begin it again.
type workflow struct {
	first, latest digest // the keys of its records
	root          digest // the issuer of the root that was its first record; noRoot: that was no root
	member        digest // the key of the member that came last; zero: there are none
	members       int32
	records       int32
	holder        uint32 // for whom its members count: who holds its first record
	until         int64  // when the last of its records ends
	older, newer  uint32 // without a record: the holder's others, by number
}

// noRoot is the root of a workflow that began with a record that has parents. It is
// the digest of nothing.
func noRoot() digest { return digest{1} }

func newWorkflows() *workflows {
	return &workflows{byKey: index.New[workflow](), members: index.New[digest]()}
}

// alive finds a workflow that has a record which has not ended.
func (x *workflows) alive(key digest, now time.Time) *workflow {
	w := x.byKey.Find(key)
	if w == nil || w.until < nanos(now) {
		return nil
	}
	return w
}

// rootFor is the root of the workflow that a record comes into. False: the record
// would begin the workflow, and may not be there.
func (x *workflows) rootFor(key digest, r *ect.Record, now time.Time) (root digest, allowed bool) {
	if r.Workflow == "" {
		return digest{}, true
	}
	root = noRoot()
	if r.IsRoot() {
		root = digestOf(string(r.Issuer))
	}
	w := x.alive(key, now)
	if w == nil {
		return root, true
	}
	return w.root, !r.IsRoot() && !r.Begins || w.root == root
}

// enter counts one more record of a workflow, and begins it if all others are over.
func (x *workflows) enter(key, root digest, h *holder, until, now time.Time) {
	if key == (digest{}) {
		return
	}
	w := x.byKey.Find(key)
	switch {
	case w == nil:
		w = x.byKey.Insert(key)
		w.holder = h.number
		h.pinned++
		w.until = nanos(until)
		w.root = root
	case w.records == 0:
		x.unlink(w)
	}
	if w.until < nanos(now) { // what is left of it is not swept yet
		x.dismiss(w)
		w.root = root
	}
	w.records++
	w.until = max(w.until, nanos(until))
}

// leave counts one record less. With the last the members are forgotten, and at the end of
// its term the workflow.
func (x *workflows) leave(key digest, now time.Time) {
	w := x.byKey.Find(key)
	if w == nil {
		return
	}
	if w.records--; w.records > 0 {
		return
	}
	x.dismiss(w)
	h := x.shares.list[w.holder-1]
	if w.until < nanos(now) {
		x.byKey.Delete(key)
		x.shares.leave(h)
		return
	}
	x.link(x.byKey.Number(key), w)
}

// link puts a workflow that lost its last record behind the others of its holder.
func (x *workflows) link(number uint32, w *workflow) {
	h := x.shares.list[w.holder-1]
	w.older, w.newer = h.beginnings.latest, 0
	if h.beginnings.latest == 0 {
		h.beginnings.oldest = number
	} else {
		_, before := x.byKey.At(h.beginnings.latest)
		before.newer = number
	}
	h.beginnings.latest = number
	x.shares.begin(h, 1)
	for x.shares.crowded() {
		x.forget(x.shares.heaviest(func(h *holder) bool { return h.begun > 0 }))
	}
}

// unlink takes it out again.
func (x *workflows) unlink(w *workflow) {
	h := x.shares.list[w.holder-1]
	if w.older == 0 {
		h.beginnings.oldest = w.newer
	} else {
		_, before := x.byKey.At(w.older)
		before.newer = w.newer
	}
	if w.newer == 0 {
		h.beginnings.latest = w.older
	} else {
		_, after := x.byKey.At(w.newer)
		after.older = w.older
	}
	x.shares.begin(h, -1)
}

// forget drops the holder's workflow that has been without a record for longest.
func (x *workflows) forget(h *holder) {
	number := h.beginnings.oldest
	key, w := x.byKey.At(number)
	x.unlink(w)
	x.byKey.Delete(key)
	x.shares.leave(h)
}

// sweep drops workflows without a record whose term is over: it looks at the oldest ones of
// so many holders, others each time.
func (x *workflows) sweep(now time.Time, holders int) {
	for range min(holders, len(x.shares.list)) {
		x.swept = (x.swept + 1) % len(x.shares.list)
		for h := x.shares.list[x.swept]; h != nil && h.beginnings.oldest != 0; {
			if _, w := x.byKey.At(h.beginnings.oldest); w.until >= nanos(now) {
				break
			}
			x.forget(h)
			h = x.shares.list[x.swept] // nil: it had nothing more
		}
	}
}

// dismiss forgets all members.
func (x *workflows) dismiss(w *workflow) {
	for w.member != (digest{}) {
		before := *x.members.Find(w.member)
		x.members.Delete(w.member)
		w.member = before
	}
	x.shares.charge(x.shares.list[w.holder-1], -memberWeight*int64(w.members))
	w.members = 0
}

// admit makes those members whom a record names, as far as there is room.
func (x *workflows) admit(w *workflow, r *ect.Record) {
	for _, who := range r.Members {
		key := digestOf(r.Workflow, string(who))
		if w.members == ect.MaxMembers || x.members.Find(key) != nil {
			continue
		}
		*x.members.Insert(key) = w.member
		w.member = key
		w.members++
		x.shares.charge(x.shares.list[w.holder-1], memberWeight)
	}
}

func (x *workflows) standing(wid string, who ect.Identity, now time.Time) ect.Standing {
	w := x.alive(digestOf(wid), now)
	if w == nil {
		return ect.Standing{}
	}
	root := w.root == digestOf(string(who))
	return ect.Standing{Known: true, Root: root, Member: root || x.members.Find(digestOf(wid, string(who))) != nil}
}

// apart is the number of a record that came when MaxNamesakes others had its id. It has
// the key of its issuer, so that each issuer has a place whatever others do.
const apart = -1

// keyOf is the key of a record with a number.
func keyOf(r *ect.Record, number int) digest {
	if number == apart {
		return issuedBy(r.ID, r.Issuer)
	}
	return numbered(r.ID, number)
}

// issuedBy is the key of the record of an issuer that is apart.
func issuedBy(id ect.ID, issuer ect.Identity) digest {
	return digestOf(string(id), "iss", string(issuer))
}

// namesakes finds the records that are apart: by their keys, which name their issuers,
// and by their workflows. It holds no pointers, as shelf does not. It is not safe for
// concurrent use: its owner has the lock.
type namesakes struct {
	count  int                  // records that are apart
	listed *index.Index[digest] // under an id and a workflow, at places below MaxNamesakes: the key of a record
}

func newNamesakes() *namesakes { return &namesakes{listed: index.New[digest]()} }

// some reports whether any record is apart. Nearly always there is none.
func (x *namesakes) some() bool { return x.count > 0 }

// placesOf are the keys of the places of an id in a workflow; without one there are no
// places.
func placesOf(id ect.ID, workflow string) (places []digest) {
	if workflow == "" {
		return nil
	}
	first := digestOf(string(id), "wid", workflow)
	for n := range ect.MaxNamesakes {
		place := first
		place[0] ^= byte(n)
		places = append(places, place)
	}
	return places
}

// find is the keys of the records that a reference may mean.
func (x *namesakes) find(ref ect.Ref) (keys []digest) {
	if !x.some() {
		return nil
	}
	for _, place := range placesOf(ref.ID, ref.Workflow) {
		if key := x.listed.Find(place); key != nil {
			keys = append(keys, *key)
		}
	}
	if key := issuedBy(ref.ID, ref.Issuer); ref.Issuer != "" && !slices.Contains(keys, key) {
		keys = append(keys, key)
	}
	return keys
}

// add counts a record that is kept apart, and lists it in its workflow while there is a
// place: members alone record there.
func (x *namesakes) add(key digest, r *ect.Record) {
	x.count++
	for _, place := range placesOf(r.ID, r.Workflow) {
		if x.listed.Find(place) == nil {
			*x.listed.Insert(place) = key
			return
		}
	}
}

// remove forgets a record that leaves, if it was apart.
func (x *namesakes) remove(key digest, r *ect.Record) {
	if !x.some() || key != issuedBy(r.ID, r.Issuer) {
		return
	}
	x.count--
	for _, place := range placesOf(r.ID, r.Workflow) {
		if at := x.listed.Find(place); at != nil && *at == key {
			x.listed.Delete(place)
			return
		}
	}
}
