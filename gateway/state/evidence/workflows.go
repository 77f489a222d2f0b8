package evidence

import (
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
)

// workflow is what is known of a workflow with a record, or whose last record left before
// its end. The issuer that began such a one stays known until then, so that no other can
// begin it again.
type workflow struct {
	root    Key               // the issuer of the root that was its first record; noRoot: that was no root
	until   int64             // when the last of its records ends
	holder  Key               // for which its members and its beginning count: that of its first record
	member  Key               // that came last, of those in the table of members; zero: there are none
	members uint64            // how many
	records uint64            // how many
	begun   uint64            // without a record: its place among those of the holder
	first   [firstMembers]Key // the first members
	within  int               // how many members are in first; the others are in the table
}

// firstMembers is how many members are in the value of their workflow. Most workflows have
// no more, and need no value of another table for each.
const firstMembers = 8

const workflowNumbers = 10

// noRoot is the root of a workflow that began with a record that has parents. It is the
// digest of nothing.
func noRoot() Key { return Key{A: 1} }

func workflowOf(v *view, key Key) (w workflow, found bool) {
	b, found := v.get(Workflows, key)
	w = workflow{
		root: keyAt(b, 0), until: int64(number(b, 2)), holder: keyAt(b, 3), member: keyAt(b, 5), //nolint:gosec // as it was written
		members: number(b, 7), records: number(b, 8), begun: number(b, 9),
	}
	w.within = min(max(len(b)/8-workflowNumbers, 0)/2, firstMembers)
	for i := range w.within {
		w.first[i] = keyAt(b, workflowNumbers+2*i)
	}
	return w, found
}

func (w *workflow) save(v *view, key Key) {
	list := [workflowNumbers + 2*firstMembers]uint64{
		w.root.A, w.root.B, uint64(w.until), w.holder.A, w.holder.B, w.member.A, w.member.B, w.members, w.records, w.begun, //nolint:gosec // there and back
	}
	for i, member := range w.first[:w.within] {
		list[workflowNumbers+2*i], list[workflowNumbers+2*i+1] = member.A, member.B
	}
	v.setNumbers(Workflows, key, list[:workflowNumbers+2*w.within]...)
}

// rootFor is the root of the workflow that a record comes into. False: the record would
// begin the workflow, and may not be there.
func rootFor(w workflow, known bool, r *stored, now int64) (root Key, allowed bool) {
	root = noRoot()
	if r.IsRoot() {
		root = r.by
	}
	if !known || w.until < now {
		return root, true
	}
	return w.root, !r.IsRoot() && !r.Begins || w.root == root
}

// enter counts one more record of a workflow, and begins it if all others are over. The
// caller saves it.
func (s *Store) enter(v *view, r *stored, w *workflow, root Key, now int64) {
	if w.begun > 0 {
		s.unlink(v, r.wid, w)
	}
	if w.until < now { // there was none, or what is left of it has ended
		s.dismiss(v, w)
		w.root, w.holder = root, r.holder
	}
	w.records++
	w.until = max(w.until, encoding.Nanos(r.Until))
}

// exit counts one record less. With the last the members are forgotten, and at the end of
// its term the workflow.
func (s *Store) exit(v *view, key Key, now int64) {
	w, found := workflowOf(v, key)
	if !found {
		return
	}
	if w.records--; w.records > 0 {
		w.save(v, key)
		return
	}
	s.dismiss(v, &w)
	if w.until < now {
		v.remove(Workflows, key)
		return
	}
	s.totals.serial++
	w.begun = s.totals.serial
	w.save(v, key)
	v.setNumbers(Begun, w.holder.under(w.begun), key.A, key.B)
	v.setBits(Oldest, w.holder.under(w.begun), 1)
	s.nextEnd = min(s.nextEnd, w.until)
	v.setBits(Ends, Key{uint64(w.until), key.A, key.B}, 1) //nolint:gosec // not negative
	s.charge(v, w.holder, account{begun: beginningWeight})
	for s.totals.begun > s.bounds.Bytes/partOfBeginnings {
		holder, found := heaviest(v, 0)
		oldest, _, there := v.behind(Oldest, holder, 0)
		value, _ := v.get(Begun, holder.under(oldest))
		if !found || !there || !s.forget(v, keyAt(value, 0)) {
			return
		}
	}
}

// unlink takes a workflow from those of which only the beginning is left.
func (s *Store) unlink(v *view, key Key, w *workflow) {
	v.remove(Begun, w.holder.under(w.begun))
	v.setBits(Oldest, w.holder.under(w.begun), 0)
	v.setBits(Ends, Key{uint64(w.until), key.A, key.B}, 0) //nolint:gosec // not negative
	w.begun = 0
	s.charge(v, w.holder, account{begun: beginningWeight}.negative())
}

// forget drops what is left of a workflow without a record. False: there is none.
func (s *Store) forget(v *view, key Key) bool {
	w, found := workflowOf(v, key)
	if !found || w.begun == 0 {
		return false
	}
	s.unlink(v, key, &w)
	v.remove(Workflows, key)
	return true
}

// dismiss forgets all members.
func (s *Store) dismiss(v *view, w *workflow) {
	if w.members == 0 {
		return
	}
	for member := w.member; member != (Key{}); {
		value, _ := v.get(Members, member)
		v.remove(Members, member)
		member = keyAt(value, 0)
	}
	s.charge(v, w.holder, account{members: memberWeight * w.members}.negative())
	w.member, w.members, w.within = Key{}, 0, 0
}

// admit makes the identities members that a record names, up to ect.MaxMembers, and returns how many came.
func (w *workflow) admit(v *view, r *ect.Record) (came uint64) {
	for _, identity := range r.Members {
		member := digestOf(r.Workflow, string(identity))
		if w.members == ect.MaxMembers || w.has(v, member) {
			continue
		}
		if w.within < firstMembers {
			w.first[w.within] = member
			w.within++
		} else {
			v.setNumbers(Members, member, w.member.A, w.member.B)
			w.member = member
		}
		w.members++
		came++
	}
	return came
}

// has is true of a member, which is named by its digest.
func (w *workflow) has(v *view, member Key) bool {
	if slices.Contains(w.first[:w.within], member) {
		return true
	}
	if w.member == (Key{}) {
		return false
	}
	_, found := v.get(Members, member)
	return found
}

func standingOf(v *view, wid string, identity ect.Identity, now int64) ect.Standing {
	w, found := workflowOf(v, v.keyOf(wid))
	if !found || w.until < now {
		return ect.Standing{}
	}
	root := w.root == digestOf(string(identity))
	return ect.Standing{Known: true, Root: root, Member: root || w.has(v, digestOf(wid, string(identity)))}
}
