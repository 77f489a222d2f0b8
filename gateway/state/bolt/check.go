package bolt

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"io"
	"math"
	"os"
)

// The layout of a bbolt file: pages of one size, each with a header of 16
// octets (number, flags, count of elements, pages that follow it as overflow).
// Pages 0 and 1 are the meta pages; the valid one with the higher transaction
// names the root of the tree of buckets and the list of free pages. Integers
// are in the order of the machine.
const (
	headerSize  = 16
	elementSize = 16
	metaSize    = 64

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10
	flagBucket   = 0x01 // of an element of a leaf: its value is a bucket

	magic      = 0xED0CDAED
	layout     = 2
	noFreelist = math.MaxUint64

	smallestPage = 1 << 10
	largestPage  = 16 << 20
)

// inspector reads the structure of a file page by page, each at most once.
type inspector struct {
	file     io.ReaderAt
	pageSize uint64
	pages    uint64 // in use, according to the meta page, and there
	seen     []bool // pages that are part of something
	todo     []uint64
	buffer   []byte
}

// inspect refuses a file that bbolt could not read to its end: a page that is
// not there, or is another, or is used twice, or whose elements lie outside.
func inspect(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	x := &inspector{file: file}
	m, err := x.meta()
	if err != nil {
		return err
	}
	x.pages = min(m.pages, uint64(info.Size())/x.pageSize) //nolint:gosec // a size
	x.seen = make([]bool, x.pages)
	x.todo = []uint64{m.root}
	for len(x.todo) > 0 {
		next := x.todo[len(x.todo)-1]
		x.todo = x.todo[:len(x.todo)-1]
		if err := x.node(next); err != nil {
			return err
		}
	}
	if m.freelist == noFreelist {
		return nil
	}
	return x.freelist(m.freelist, m.pages)
}

type metaPage struct{ pageSize, root, freelist, pages, transaction uint64 }

// meta chooses the meta page as bbolt does: the first says where the second
// is, or, if it cannot, the second is where it is found.
func (x *inspector) meta() (metaPage, error) {
	first, ok := x.metaAt(0)
	if ok {
		x.pageSize = first.pageSize
		if second, ok := x.metaAt(first.pageSize); ok && second.transaction > first.transaction {
			return second, nil
		}
		return first, nil
	}
	for size := uint64(smallestPage); size <= largestPage; size *= 2 {
		if second, ok := x.metaAt(size); ok {
			x.pageSize = second.pageSize
			return second, nil
		}
	}
	return metaPage{}, corrupt("there is no valid meta page")
}

func (x *inspector) metaAt(offset uint64) (m metaPage, ok bool) {
	page := make([]byte, headerSize+metaSize)
	if _, err := x.file.ReadAt(page, int64(offset)); err != nil { //nolint:gosec // at most largestPage
		return m, false
	}
	body := page[headerSize:]
	m = metaPage{
		pageSize: uint64(u32(body, 8)), root: u64(body, 16), freelist: u64(body, 32),
		pages: u64(body, 40), transaction: u64(body, 48),
	}
	return m, u32(body, 0) == magic && u32(body, 4) == layout && u64(body, 56) == sum(body[:56]) &&
		m.pageSize >= smallestPage && m.pageSize <= largestPage
}

func sum(octets []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(octets)
	return h.Sum64()
}

// page reads a page with its overflow, which are from now on part of something.
func (x *inspector) page(number uint64) ([]byte, error) {
	if number < 2 || number >= x.pages {
		return nil, corrupt("page %d of %d", number, x.pages)
	}
	header, err := x.read(number, headerSize)
	if err != nil {
		return nil, err
	}
	overflow := uint64(u32(header, 12))
	if u64(header, 0) != number || overflow >= x.pages-number {
		return nil, corrupt("page %d is another", number)
	}
	for i := number; i <= number+overflow; i++ {
		if x.seen[i] {
			return nil, corrupt("page %d is used twice", i)
		}
		x.seen[i] = true
	}
	return x.read(number, (overflow+1)*x.pageSize)
}

// read reads from the beginning of a page. The octets are good until the next read.
func (x *inspector) read(number, size uint64) ([]byte, error) {
	if uint64(len(x.buffer)) < size {
		x.buffer = make([]byte, size)
	}
	_, err := x.file.ReadAt(x.buffer[:size], int64(number*x.pageSize)) //nolint:gosec // within a file
	return x.buffer[:size], err
}

// node is a page of the tree, with what it points to still to be done.
func (x *inspector) node(number uint64) error {
	page, err := x.page(number)
	if err != nil {
		return err
	}
	switch flags := u16(page, 8); flags {
	case flagBranch:
		return x.branch(number, page)
	case flagLeaf:
		return x.leaf(number, page, true)
	default:
		return corrupt("page %d has flags %#x", number, flags)
	}
}

func (x *inspector) branch(number uint64, page []byte) error {
	if u16(page, 10) == 0 {
		return corrupt("page %d is an empty branch", number)
	}
	return elements(number, page, func(element []byte, at int, last []byte) (key []byte, err error) {
		key, ok := cut(page, at, uint64(u32(element, 0)), uint64(u32(element, 4)))
		if !ok || last != nil && bytes.Compare(last, key) >= 0 {
			return nil, corrupt("page %d has a wrong element", number)
		}
		x.todo = append(x.todo, u64(element, 8))
		return key, nil
	})
}

// leaf checks the elements of a leaf, nested ones of a bucket too small for a
// page of its own included.
func (x *inspector) leaf(number uint64, page []byte, outer bool) error {
	return elements(number, page, func(element []byte, at int, last []byte) (key []byte, err error) {
		pos, keySize, size := uint64(u32(element, 4)), uint64(u32(element, 8)), uint64(u32(element, 12))
		key, ok := cut(page, at, pos, keySize)
		value, valueOK := cut(page, at, pos+keySize, size)
		if !ok || !valueOK || last != nil && bytes.Compare(last, key) >= 0 {
			return nil, corrupt("page %d has a wrong element", number)
		}
		if u32(element, 0)&flagBucket == 0 {
			return key, nil
		}
		return key, x.bucket(number, value, outer)
	})
}

func (x *inspector) bucket(number uint64, value []byte, outer bool) error {
	if len(value) < 16 || !outer {
		return corrupt("page %d has a wrong bucket", number)
	}
	if root := u64(value, 0); root != 0 {
		x.todo = append(x.todo, root)
		return nil
	}
	inline := value[16:]
	if len(inline) < headerSize || u16(inline, 8) != flagLeaf {
		return corrupt("page %d has a wrong bucket", number)
	}
	return x.leaf(number, inline, false)
}

// elements visits the elements of a page; each is told the key before its own.
func elements(number uint64, page []byte, visit func(element []byte, at int, last []byte) ([]byte, error)) error {
	count := int(u16(page, 10))
	if headerSize+count*elementSize > len(page) {
		return corrupt("page %d has %d elements", number, count)
	}
	var last []byte
	for i := range count {
		at := headerSize + i*elementSize
		key, err := visit(page[at:at+elementSize], at, last)
		if err != nil {
			return err
		}
		last = key
	}
	return nil
}

// cut is size octets, pos after the element at.
func cut(page []byte, at int, pos, size uint64) ([]byte, bool) {
	begin := uint64(at) + pos //nolint:gosec // within a page
	if begin+size > uint64(len(page)) {
		return nil, false
	}
	return page[begin : begin+size], true
}

// freelist checks that what is free is not part of the tree, and free once.
func (x *inspector) freelist(number, used uint64) error {
	page, err := x.page(number)
	if err != nil {
		return err
	}
	count, at := uint64(u16(page, 10)), headerSize
	if count == math.MaxUint16 {
		count, at = u64(page, headerSize), headerSize+8
	}
	if u16(page, 8) != flagFreelist || count > uint64(len(page[at:]))/8 {
		return corrupt("page %d is no list of free pages", number)
	}
	for i := range int(count) { //nolint:gosec // fits the page
		free := u64(page, at+8*i)
		if free < 2 || free >= used || free < x.pages && x.seen[free] {
			return corrupt("page %d cannot be free", free)
		}
		if free < x.pages {
			x.seen[free] = true
		}
	}
	return nil
}

func u16(b []byte, at int) uint16 { return binary.NativeEndian.Uint16(b[at:]) }
func u32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
