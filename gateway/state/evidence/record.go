package evidence

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
)

// stored is a record and where it is.
type stored struct {
	ect.Record
	serial              uint64
	again               bool   // it is put again at a start, later than what is there of it
	apart               bool   // MaxNamesakes others had its id when it came
	header              uint64 // the number of its JOSE header; 0: it stays with the record
	size                int    // of its value
	id, wid, by, holder Key    // of its id, its workflow, its issuer and its holder
}

func (r *stored) digests(v *view) *stored {
	r.id, r.holder = v.keyOf(string(r.ID)), digestOf(r.Holder)
	if r.Workflow != "" {
		r.wid = v.keyOf(r.Workflow)
	}
	return r
}

// The first byte of a record.
const (
	flagOwn   = 1
	flagApart = 2
	flagHold  = 4
)

// encode is the value of a record, what it is found by first, and its token without its
// header last.
func (r *stored) encode(header string) []byte {
	flags := byte(0)
	if r.Own {
		flags |= flagOwn
	}
	if r.apart {
		flags |= flagApart
	}
	if r.OnHold {
		flags |= flagHold
	}
	b := make([]byte, 0, 128+len(r.Compact)-len(header)+len(r.ID)+len(r.Workflow)+len(r.Issuer)+len(r.Holder)+64*(len(r.Audience)+len(r.Parents)+len(r.Members)))
	b = binary.AppendUvarint(append(b, flags), r.header)
	b = encoding.AppendInstant(b, r.Until)
	b = encoding.AppendText(b, r.ID)
	b = encoding.AppendText(b, r.Workflow)
	b = encoding.AppendText(b, r.Issuer)
	b = encoding.AppendText(b, r.Holder)
	b = encoding.AppendText(b, r.Act)
	b = encoding.AppendList(b, r.Audience)
	b = encoding.AppendList(b, r.Parents)
	b = encoding.AppendList(b, r.Members)
	return append(b, r.Compact[len(header):]...)
}

// ErrUnreadable is why a record cannot be read that was on disk.
var ErrUnreadable = errors.New("state: a record of evidence is not as it was written")

// decode reads a record; it shares nothing with the value.
func (h *headers) decode(value []byte, serial uint64) (*stored, error) {
	r := encoding.Reader{Data: string(value)}
	s := decodeIndexed(&r, serial)
	s.Act = ect.Act(r.Text())
	s.Audience, s.Parents = encoding.ReadList[string](&r), encoding.ReadList[ect.ID](&r)
	s.Members = encoding.ReadList[ect.Identity](&r)
	if r.Bad() || s.header >= uint64(len(h.list)) {
		return nil, ErrUnreadable
	}
	if s.Compact = r.Data; s.header > 0 {
		s.Compact = h.list[s.header].text + r.Data
	}
	return s, nil
}

// decodeIndexed reads what a record is found by.
func decodeIndexed(r *encoding.Reader, serial uint64) *stored {
	s := &stored{serial: serial, size: len(r.Data)}
	flags := r.Take(1)
	s.Own, s.apart = flags != "" && flags[0]&flagOwn != 0, flags != "" && flags[0]&flagApart != 0
	s.OnHold = flags != "" && flags[0]&flagHold != 0
	s.header = r.Number()
	s.Until = r.Instant()
	s.ID, s.Workflow = ect.ID(r.Text()), r.Text()
	s.Issuer, s.Holder = ect.Identity(r.Text()), r.Text()
	return s
}

// readIndexed reads only what a record is found by, which is at its beginning.
func (h *headers) readIndexed(v *view, serial uint64) (*stored, error) {
	value, _ := v.get(Records, Key{A: serial})
	for _, length := range []int{min(len(value), 512), len(value)} {
		r := encoding.Reader{Data: string(value[:length])}
		if old := decodeIndexed(&r, serial); !r.Bad() && old.header < uint64(len(h.list)) {
			old.size = len(value)
			return old, nil
		}
	}
	return nil, ErrUnreadable
}

// read finds a record that has to be there.
func (h *headers) read(v *view, serial uint64) (*stored, error) {
	value, found := v.get(Records, Key{A: serial})
	if !found {
		return nil, ErrUnreadable
	}
	return h.decode(value, serial)
}

// maxHeaders is how many different JOSE headers are kept apart from their tokens. Beyond that, as
// when a sender makes up a new one each time, a header stays with its token, and counts.
const maxHeaders = 1024

// headers keeps the JOSE header of tokens once for all that have it: an issuer of a
// thousand tokens with one key sends its certificates a thousand times, and they are
// more than half of each.
type headers struct {
	numbers map[string]uint64
	list    []header // by number; 0: that of tokens without
	free    []uint64
	left    []uint64 // are free when the tables are taken: until then records on disk may need them
}

type header struct {
	text    string
	uses    uint64
	changed bool // uses since the last save
}

func readHeaders(r Reader) headers {
	h := headers{numbers: map[string]uint64{}, list: make([]header, 1)}
	if r == nil {
		return h
	}
	for key, value, found := r.Next(Headers, Key{}); found && key.A <= maxHeaders; key, value, found = r.Next(Headers, key.next()) {
		for uint64(len(h.list)) <= key.A {
			h.list = append(h.list, header{})
		}
		one := &h.list[key.A]
		if key.N > 0 {
			one.uses = number(value, 0)
			continue
		}
		one.text = string(value)
		h.numbers[one.text] = key.A
	}
	for n := range h.list {
		h.list[n].uses++ // until all records are read: some may not be counted
	}
	return h
}

// release ends the one use more of each that was read, and makes those free that no record has.
func (h *headers) release(v *view, read int) {
	for n := range read {
		h.leave(v, uint64(n))
	}
}

// save says how many records have each header.
func (h *headers) save(changes *layer) {
	h.free, h.left = append(h.free, h.left...), nil
	for n := range h.list {
		if one := &h.list[n]; one.changed && one.uses > 0 {
			changes.set(Headers, Key{A: uint64(n), N: 1}, numbers(one.uses))
			one.changed = false
		}
	}
}

// take counts one more use of a token's header, with the dot behind it, and returns its
// number; 0: it stays with its token.
func (h *headers) take(v *view, compact string) (number uint64, text string) {
	text = compact[:strings.IndexByte(compact, '.')+1]
	if text == "" {
		return 0, ""
	}
	number, known := h.numbers[text]
	switch {
	case known:
	case len(h.free) > 0:
		number, h.free = h.free[len(h.free)-1], h.free[:len(h.free)-1]
	case len(h.list) > maxHeaders:
		return 0, ""
	default:
		number = uint64(len(h.list))
		h.list = append(h.list, header{})
	}
	one := &h.list[number]
	if !known {
		one.text = strings.Clone(text)
		h.numbers[one.text] = number
		v.set(Headers, Key{A: number}, []byte(text))
	}
	one.uses++
	one.changed = true
	return number, one.text
}

// leave counts one use less.
func (h *headers) leave(v *view, number uint64) {
	if number == 0 {
		return
	}
	one := &h.list[number]
	one.changed = true
	if one.uses--; one.uses == 0 {
		h.remove(v, number)
	}
}

func (h *headers) remove(v *view, number uint64) {
	delete(h.numbers, h.list[number].text)
	h.list[number] = header{}
	if v.disk != nil {
		h.left = append(h.left, number)
	} else {
		h.free = append(h.free, number)
	}
	v.remove(Headers, Key{A: number})
	v.remove(Headers, Key{A: number, N: 1})
}

// numbers writes numbers of 8 bytes each.
func numbers(list ...uint64) []byte {
	b := make([]byte, 0, 8*len(list))
	for _, n := range list {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// number is one of the numbers that were written; 0: there are fewer.
func number(b []byte, at int) uint64 {
	if len(b) < 8*(at+1) {
		return 0
	}
	return binary.BigEndian.Uint64(b[8*at:])
}

// keyAt is two of them, as a digest.
func keyAt(b []byte, at int) Key { return Key{A: number(b, at), B: number(b, at+1)} }
