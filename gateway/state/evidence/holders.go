package evidence

import (
	"cmp"
	"math/bits"
)

// partOfOthers: the tokens that others issued keep 1/partOfOthers of what a holder has. So the
// token that begins an exchange is not dropped at once.
const partOfOthers = 8

// A workflow whose last record was dropped before its end costs the holder of its first record
// beginningWeight bytes; all such workflows together take at most 1/partOfBeginnings of the store.
// A member costs that holder memberWeight.
const (
	beginningWeight  = 192
	partOfBeginnings = 4
	memberWeight     = 96
)

// What is on hold of one holder takes at most 1/partOfHold of the store, in number and bytes, and that of all
// 1/partOfHolds. So what is not on hold always has space, and four holders at least share what is.
const (
	partOfHold  = 8
	partOfHolds = 2
)

// ofOthers is in the number of a record of its holder that we did not sign, so that it
// is behind ours. ofRecords is in the first number of the order of holders by records,
// which is behind that by beginnings.
const (
	ofOthers  = 1 << 63
	ofRecords = 1 << 63
)

// account is what a holder has, in bytes, or how that changes: what becomes less is added
// as its complement.
type account struct {
	others, own, members uint64 // records of others, and ours; members of workflows
	begun                uint64 // workflows of which only the beginning is left
	records              uint64 // how many
	onHold               uint64 // records on hold, in an account that has no others
}

func (a *account) bytes() uint64 { return a.others + a.own + a.members + a.onHold }

// evictable is what puts a holder in the order of those that lose records: what is on hold leaves last.
func (a *account) evictable() uint64 { return a.bytes() - a.onHold }

// perRecord is about what tables take for each record beside its value, in bytes.
const perRecord = 512

// account is what a record counts for.
func (r *stored) account() account {
	weight := uint64(r.size + perRecord) //nolint:gosec // a size
	if r.OnHold {
		return account{onHold: weight, records: 1}
	}
	if r.Own {
		return account{own: weight, records: 1}
	}
	return account{others: weight, records: 1}
}

func (a account) negative() account {
	return account{-a.others, -a.own, -a.members, -a.begun, -a.records, -a.onHold}
}

// share is whose account a record is in: what is on hold has one of its own beside its holder's.
func (r *stored) share() Key {
	if r.OnHold {
		return digestOf(r.Holder, "hold")
	}
	return r.holder
}

// makeFit drops what has ended as long as there is no space for a record that comes in place of old, whatever else
// leaves; old may be nil.
func (s *Store) makeFit(v *view, r, old *stored, now int64) error {
	comes, more := r.account(), r.OnHold && (old == nil || !old.OnHold)
	for {
		var full error
		switch mine := accountOf(v, r.share()); {
		case comes.bytes() > s.bounds.Bytes:
			full = s.deps.Full
		case more && s.bounds.exceeded(partOfHold, mine.onHold+comes.onHold, mine.records+1):
			full = s.deps.FullHold(true)
		case more && s.bounds.exceeded(partOfHolds, s.totals.onHold+comes.onHold, s.totals.holds+1):
			full = s.deps.FullHold(false)
		default:
			return nil
		}
		if ended, err := s.dropEnded(v, now); err != nil || !ended {
			return cmp.Or(err, full)
		}
	}
}

// exceeded is true if so much is more than a part of the bounds.
func (b Bounds) exceeded(part, bytes, records uint64) bool {
	return bytes > b.Bytes/part || records > b.Records/part
}

func rounded(amount uint64) uint64 {
	if length := bits.Len64(amount); length > 5 {
		return amount >> (length - 5) << (length - 5)
	}
	return amount
}

func accountOf(v *view, holder Key) account {
	value, _ := v.get(Accounts, holder)
	return account{number(value, 0), number(value, 1), number(value, 2), number(value, 3), number(value, 4), number(value, 5)}
}

// charge changes what a holder has.
func (s *Store) charge(v *view, holder Key, more account) {
	if more == (account{}) {
		return
	}
	before := accountOf(v, holder)
	after := account{
		before.others + more.others, before.own + more.own, before.members + more.members, before.begun + more.begun, before.records + more.records,
		before.onHold + more.onHold,
	}
	s.totals.bytes += more.bytes()
	s.totals.begun += more.begun
	if s.totals.onHold += more.onHold; more.onHold != 0 {
		s.totals.holds += more.records
	}
	v.rank(ofRecords, holder, before.evictable(), before.records > 0, after.evictable(), after.records > 0)
	v.rank(0, holder, before.begun, before.begun > 0, after.begun, after.begun > 0)
	if after == (account{}) {
		v.remove(Accounts, holder)
		return
	}
	v.setNumbers(Accounts, holder, after.others, after.own, after.members, after.begun, after.records, after.onHold)
}

// rank moves a holder to its place in an order, the largest first. By records only one
// that has some is there. Amounts are compared by their first five bits, so that a place
// seldom changes.
func (v *view) rank(order uint64, holder Key, before uint64, was bool, after uint64, is bool) {
	place := func(amount uint64) Key { return Key{order | ^uint64(0)>>1 - rounded(amount), holder.A, holder.B} }
	if was == is && rounded(before) == rounded(after) {
		return
	}
	if was {
		v.setBits(Largest, place(before), 0)
	}
	if is {
		v.setBits(Largest, place(after), 1)
	}
}

// heaviest is the holder of most, from a place in the order on.
func heaviest(v *view, from uint64) (holder Key, found bool) {
	place, _, found := v.next(Largest, Key{A: from})
	return Key{A: place.B, B: place.N}, found && place.A&ofRecords == from
}

// evictFor drops records until what comes fits, at most so many: those of the holder that would
// then have most. While there is space, one holder may have any amount.
func (s *Store) evictFor(v *view, holder Key, comes account, most int, now int64) error {
	for range most {
		if s.totals.bytes+comes.bytes() <= s.bounds.Bytes && s.totals.records+comes.records <= s.bounds.Records {
			return nil
		}
		if ended, err := s.dropEnded(v, now); err != nil || ended {
			if err != nil {
				return err
			}
			continue
		}
		largest, found := heaviest(v, ofRecords)
		if !found {
			return nil
		}
		if largest != holder {
			bringer, other := accountOf(v, holder), accountOf(v, largest)
			if bringer.records > 0 && bringer.bytes()+comes.bytes() >= other.bytes() {
				largest = holder
			}
		}
		if err := s.evict(v, largest, now); err != nil {
			return err
		}
	}
	return nil
}

// evict drops a record of a holder, or of what is on hold of one if nothing else is left: the oldest that others issued while those take more than
// 1/partOfOthers of what it has, else the oldest that we issued.
func (s *Store) evict(v *view, holder Key, now int64) error {
	a, from := accountOf(v, holder), uint64(ofOthers)
	if a.others == 0 || a.own > 0 && a.others <= (a.others+a.own)/partOfOthers {
		from = 1
	}
	serial, _ := v.listed(Shares, holder, from)
	r, err := s.headers.readIndexed(v, serial)
	if err != nil {
		v.unlist(Shares, holder, serial|from&ofOthers) // one damaged record is in the way once
		return err
	}
	s.evictions++
	s.deps.Evicted(r.Own)
	s.drop(v, r, now)
	return nil
}
