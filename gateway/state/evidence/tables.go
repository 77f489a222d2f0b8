package evidence

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"maps"
	bits64 "math/bits"
	"slices"

	"github.com/tidwall/btree"

	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
)

// Table is one of the tables that evidence consists of. Its number may be on disk and
// never changes.
type Table uint8

// The tables. A key begins with the digest of what is said, or with a time or an amount.
// Those from Terms on are read in the order of their keys. Records are listed in groups of
// 64 serials, which come together and as a rule go together: the value is a bit for each.
const (
	Records   Table = iota // by serial: a record
	IDs                    // by id, by id and issuer, by id and workflow: places of records
	Workflows              // by workflow: what is known of it
	Members                // by workflow and identity, of members beyond the first: the one that came before
	Accounts               // by holder: what counts for it
	Headers                // by number: a JOSE header, and behind it how many records have it
	Begun                  // by holder and number: a workflow of which only the beginning is left
	Totals                 // one value
	Terms                  // by the second in which they end: groups of records
	Ends                   // by end and workflow of which only the beginning is left
	Listed                 // by workflow: groups of its records
	Shares                 // by holder: groups of its records, our own first
	Oldest                 // by holder and number: the keys of Begun
	Largest                // by amount, the largest first, and holder: of records and of beginnings
	tables
)

// TableCount is how many tables there are.
const TableCount = int(tables)

// Key names a value in its table, which is in the order of A, B and N.
type Key struct{ A, B, N uint64 }

// KeySize is the bytes of a key on disk.
const KeySize = 24

// AppendBinary appends a key so that bytes have the order of keys.
func (k Key) AppendBinary(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, k.A)
	b = binary.BigEndian.AppendUint64(b, k.B)
	return binary.BigEndian.AppendUint64(b, k.N)
}

// ReadKey reads what AppendBinary wrote, of at least KeySize bytes.
func ReadKey(b []byte) Key {
	return Key{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
}

func (k Key) compare(other Key) int {
	switch {
	case k.A != other.A:
		return cmp.Compare(k.A, other.A)
	case k.B != other.B:
		return cmp.Compare(k.B, other.B)
	default:
		return cmp.Compare(k.N, other.N)
	}
}

// under is a key behind that of a digest.
func (k Key) under(n uint64) Key { return Key{k.A, k.B, n} }

// next is the key that follows.
func (k Key) next() Key {
	if k.N++; k.N == 0 {
		if k.B++; k.B == 0 {
			k.A++
		}
	}
	return k
}

// digestOf is the key of texts: half a SHA-256 of them.
func digestOf(texts ...string) Key {
	d := index.KeyOf(texts...)
	return Key{A: binary.BigEndian.Uint64(d[:]), B: binary.BigEndian.Uint64(d[8:])}
}

// keyOf is the key of an id, with more texts that it stands with, or of a workflow. Of those that begin
// with the time, as UUIDs of version 7 do, the latest have the last keys: what comes in one second is on
// few pages, of which a commit writes each anew. 96 bits of digest remain: enough that no second text
// for the key of another is found.
func (v *view) keyOf(texts ...string) Key {
	key := digestOf(texts...)
	if at, ok := timeIn(texts[0]); ok && at >= v.ordered {
		key.A = at/1024<<32 | key.A>>32
	}
	return key
}

// timeIn is the time of a UUID of version 7 in milliseconds (RFC 9562, section 5.7).
func timeIn(id string) (at uint64, ok bool) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[14] != '7' {
		return 0, false
	}
	var b [8]byte
	_, first := hex.Decode(b[2:], []byte(id[:8]))
	_, second := hex.Decode(b[6:], []byte(id[9:13]))
	return binary.BigEndian.Uint64(b[:]), first == nil && second == nil
}

// Reader reads tables on disk, as they were at one moment. What it returns is good until
// that view ends.
type Reader interface {
	Get(t Table, key Key) (value []byte, found bool)
	Next(t Table, from Key) (key Key, value []byte, found bool) // the first key that is not less
}

// Disk is where tables lie that do not fit into memory.
type Disk interface {
	// Begin reads what is on disk at one moment, until End, which makes an error of a panic
	// meanwhile.
	Begin() (Reader, error)
	End(r Reader, panicked any, err *error)
}

// layer is changes of tables, in memory. Tables that are not read in order are maps, which
// find faster.
type layer struct {
	maps  [Terms]map[Key][]byte // nil: the value is gone
	trees [tables - Terms]*btree.BTreeG[item]
	bytes int // of keys and values, of each key once
}

type item struct {
	key  Key
	bits uint64 // zero: it is gone
}

const itemSize = KeySize + 8

func newLayer() *layer {
	l := &layer{}
	for t := range l.maps {
		l.maps[t] = map[Key][]byte{}
	}
	for t := range l.trees {
		l.trees[t] = btree.NewBTreeGOptions(func(a, b item) bool { return a.key.compare(b.key) < 0 }, btree.Options{NoLocks: true})
	}
	return l
}

func (l *layer) set(t Table, key Key, value []byte) {
	before, changed := l.maps[t][key]
	if !changed {
		l.bytes += KeySize
	}
	l.bytes += len(value) - len(before)
	l.maps[t][key] = value
}

func (l *layer) setBits(t Table, key Key, bits uint64) {
	if _, changed := l.trees[t-Terms].Set(item{key, bits}); !changed {
		l.bytes += itemSize
	}
}

// records takes the records that came, and the headers that they need, out of the changes.
func (l *layer) records() *layer {
	taken := newLayer()
	for _, t := range []Table{Records, Headers} {
		for key, value := range l.maps[t] {
			if value != nil && key.N == 0 {
				taken.set(t, key, value)
				delete(l.maps[t], key)
			}
		}
	}
	l.bytes -= taken.bytes
	return taken
}

// add makes later changes.
func (l *layer) add(later *layer) {
	_ = later.each(func(t Table, key Key, value []byte) error {
		if t < Terms {
			l.set(t, key, value)
		} else {
			l.setBits(t, key, number(value, 0))
		}
		return nil
	})
}

// first is the first key of a table in order from a key on.
func (l *layer) first(t Table, from Key) (first item, found bool) {
	l.trees[t-Terms].Ascend(item{key: from}, func(i item) bool {
		first, found = i, true
		return false
	})
	return first, found
}

// each passes everything on, table by table, in the order of keys.
func (l *layer) each(each func(t Table, key Key, value []byte) error) (err error) {
	for t, values := range l.maps {
		for _, key := range slices.SortedFunc(maps.Keys(values), Key.compare) {
			if err := each(Table(t), key, values[key]); err != nil {
				return err
			}
		}
	}
	for t, tree := range l.trees {
		tree.Scan(func(i item) bool {
			var value []byte
			if i.bits != 0 {
				value = numbers(i.bits)
			}
			err = each(Terms+Table(t), i.key, value) //nolint:gosec // TableCount
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// view is all tables at one moment: changes before what is on disk.
type view struct {
	changes *layer
	written *layer // are being written to the disk; nil: there are none
	disk    Reader // nil: all is in changes
	gaps    *gaps  // nil: the view is of one who reads
	ordered uint64 // totals.ordered
}

// gaps are where the tables in order have no keys: keys that were removed and are still on
// disk would else be passed one by one by each who looks for the first.
type gaps [tables - Terms]gap

type gap struct{ from, to Key }

func (g gap) has(key Key) bool { return key.compare(g.from) >= 0 && key.compare(g.to) < 0 }

// get is a value of a table that is not in order.
func (v *view) get(t Table, key Key) (value []byte, found bool) {
	if value, found = v.changes.maps[t][key]; found {
		return value, value != nil
	}
	if v.written != nil {
		if value, found = v.written.maps[t][key]; found {
			return value, value != nil
		}
	}
	if v.disk != nil {
		return v.disk.Get(t, key)
	}
	return nil, false
}

// set changes a value, which is the view's own from then on.
func (v *view) set(t Table, key Key, value []byte) { v.changes.set(t, key, value) }

// setNumbers sets a value that is decoded where it is read, in its place if it has one.
func (v *view) setNumbers(t Table, key Key, list ...uint64) {
	value := v.changes.maps[t][key]
	if len(value) != 8*len(list) {
		value = make([]byte, 8*len(list))
		v.changes.set(t, key, value)
	}
	for i, n := range list {
		binary.BigEndian.PutUint64(value[8*i:], n)
	}
}

func (v *view) remove(t Table, key Key) {
	if v.disk != nil {
		v.changes.set(t, key, nil)
		return
	}
	delete(v.changes.maps[t], key)
}

// bits is the value of a table in order; zero: there is none.
func (v *view) bits(t Table, key Key) uint64 {
	for _, l := range []*layer{v.changes, v.written} {
		if l == nil {
			continue
		}
		if i, found := l.trees[t-Terms].Get(item{key: key}); found {
			return i.bits
		}
	}
	if v.disk == nil {
		return 0
	}
	value, _ := v.disk.Get(t, key)
	return number(value, 0)
}

func (v *view) setBits(t Table, key Key, bits uint64) {
	if v.gaps != nil && bits != 0 && v.gaps[t-Terms].has(key) {
		v.gaps[t-Terms].to = key
	}
	if bits == 0 && v.disk == nil {
		v.changes.trees[t-Terms].Delete(item{key: key})
		return
	}
	v.changes.setBits(t, key, bits)
}

// list puts a record behind those of a key, and unlist takes it from there. Records that
// are not our own have ofOthers in their serial, and stand behind ours.
func (v *view) list(t Table, key Key, serial uint64) {
	key.N = groupOf(serial)
	v.setBits(t, key, v.bits(t, key)|1<<(serial%groupSize))
}

func (v *view) unlist(t Table, key Key, serial uint64) {
	key.N = groupOf(serial)
	v.setBits(t, key, v.bits(t, key)&^(1<<(serial%groupSize)))
}

const groupSize = 64

// groupOf is the group of a serial; none is zero.
func groupOf(serial uint64) uint64 { return serial&ofOthers | (serial&^ofOthers)/groupSize + 1 }

// serialIn is the first serial of a group.
func serialIn(group, bits uint64) uint64 {
	return (group&^ofOthers-1)*groupSize + uint64(bits64.TrailingZeros64(bits)) //nolint:gosec // below 64
}

// next is the first key of a table in order from a key on, and its value.
func (v *view) next(t Table, from Key) (key Key, bits uint64, found bool) {
	if v.gaps == nil {
		key, bits, _, found = v.search(t, from)
		return key, bits, found
	}
	g := &v.gaps[t-Terms]
	start := from
	if g.has(from) {
		start, from = g.from, g.to
	}
	key, bits, to, found := v.search(t, from)
	if to != start {
		*g = gap{start, to}
	}
	return key, bits, found
}

// search is next without gaps. No key is between from and to.
func (v *view) search(t Table, from Key) (key Key, bits uint64, to Key, found bool) {
	for {
		first, ok := v.changes.first(t, from)
		if v.written != nil {
			if i, there := v.written.first(t, from); there && (!ok || i.key.compare(first.key) < 0) {
				first, ok = i, true
			}
		}
		if v.disk != nil {
			if key, value, there := v.disk.Next(t, from); there && (!ok || key.compare(first.key) < 0) {
				return key, number(value, 0), from, true
			}
		}
		if !ok || first.bits != 0 {
			return first.key, first.bits, from, ok
		}
		from = first.key.next()
	}
}

// behind is the first number under a digest from a number on, and its value.
func (v *view) behind(t Table, digest Key, from uint64) (n, bits uint64, found bool) {
	key, bits, found := v.next(t, digest.under(from))
	return key.N, bits, found && key.A == digest.A && key.B == digest.B
}

// listed is the first record behind a key from a serial on.
func (v *view) listed(t Table, key Key, from uint64) (serial uint64, found bool) {
	group, bits, found := v.behind(t, key, groupOf(from))
	if group == groupOf(from) {
		bits = bits >> (from % groupSize) << (from % groupSize)
	}
	if found && bits == 0 {
		group, bits, found = v.behind(t, key, group+1)
	}
	return serialIn(group, bits), found
}
