package state

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Entries are written as their end, then their fields: an instant is 8 octets of
// seconds and 4 of nanoseconds, a text has its length before it, a list its
// length plus one (0: there is none, which is not the same as an empty one).
// Files are full of this: a change of it is a change of format.

// A token ends with whose it is, whom it makes members, and the root of its workflow.
func appendToken(b []byte, r *ect.Record, root digest) []byte {
	b = appendInstant(b, r.Until)
	b = appendText(b, r.Compact)
	b = appendText(b, r.ID)
	b = appendText(b, r.Workflow)
	b = appendText(b, r.Issuer)
	b = appendText(b, r.Act)
	b = appendList(b, r.Audience)
	b = appendList(b, r.Parents)
	own := byte(0)
	if r.Own {
		own = 1
	}
	b = append(b, own)
	b = appendText(b, r.Holder)
	b = appendList(b, r.Members)
	if r.Workflow == "" {
		return b
	}
	return append(b, root[:]...)
}

// instantSize is the octets of an instant.
const instantSize = 8 + 4

// keyedSize is the octets of what appendKeyed writes.
const keyedSize = instantSize + len(digest{})

// appendKeyed begins uses, answers and turns: an answer follows as it is.
func appendKeyed(b []byte, until time.Time, key digest) []byte {
	return append(appendInstant(b, until), key[:]...)
}

func appendReplay(b []byte, until time.Time, key, use digest) []byte {
	return append(appendKeyed(b, until, key), use[:]...)
}

func appendTurn(b []byte, until time.Time, key digest, workflow string, id ect.ID) []byte {
	return appendText(appendText(appendKeyed(b, until, key), workflow), id)
}

func appendEntry(b []byte, e *entry) []byte {
	b = appendInstant(b, e.until)
	kind := e.key.Kind
	if e.key.Owner != "" {
		kind += "\x00" + e.key.Owner // no kind has a zero byte, and files without owners stay readable
	}
	b = appendText(b, kind)
	b = appendText(b, e.key.Group)
	b = appendText(b, e.key.ID)
	return append(b, e.value...)
}

func appendInstant(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix()))          //nolint:gosec // two's complement, there and back
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond())) //nolint:gosec // below 10^9
}

func appendText[T ~string](b []byte, text T) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

func appendList[T ~string](b []byte, list []T) []byte {
	if list == nil {
		return binary.AppendUvarint(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(list))+1)
	for _, text := range list {
		b = appendText(b, text)
	}
	return b
}

func readRecord(r *reader) (record ect.Record, root digest) {
	until := r.instant()
	record = ect.Record{
		Compact: r.text(), ID: ect.ID(r.text()), Workflow: r.text(),
		Issuer: ect.Identity(r.text()), Act: ect.Act(r.text()),
		Audience: readList[string](r), Parents: readList[ect.ID](r), Until: until,
	}
	record.Own = r.take(1) == "\x01"
	record.Holder = r.text()
	record.Members = readList[ect.Identity](r)
	if record.Workflow != "" {
		root = r.digest()
	}
	return record, root
}

// keyed is a use, an answer or a turn as it was written.
type keyed struct {
	until time.Time
	key   digest
	whole []byte
}

func readKeyed(r *reader) keyed {
	whole := []byte(r.data)
	return keyed{until: r.instant(), key: r.digest(), whole: whole}
}

func readReplay(r *reader) (e keyed, use digest) {
	return readKeyed(r), r.digest()
}

func readAnswer(r *reader) keyed {
	e := readKeyed(r)
	r.take(uint64(len(r.data)))
	return e
}

func readTurn(r *reader) keyed {
	e := readKeyed(r)
	r.text() // the workflow
	r.text() // the id
	return e
}

func readEntry(r *reader, serial uint64) *entry {
	e := &entry{
		until: r.instant(), key: EntryKey{Kind: r.text(), Group: r.text(), ID: r.text()}.own(), serial: serial,
	}
	e.key.Kind, e.key.Owner, _ = strings.Cut(e.key.Kind, "\x00")
	e.value = []byte(r.take(uint64(len(r.data))))
	e.size = e.key.Size(e.value)
	return e
}

// reader takes fields from the front of what is left. Once something is
// missing everything is: whoever reads asks done at the end.
type reader struct {
	data string
	bad  bool
}

// done is true when everything was there, and nothing more.
func (r *reader) done() bool { return !r.bad && r.data == "" }

func (r *reader) take(n uint64) string {
	if r.bad || n > uint64(len(r.data)) {
		r.bad = true
		return ""
	}
	head := r.data[:n]
	r.data = r.data[n:]
	return head
}

func (r *reader) instant() time.Time {
	octets := r.take(instantSize)
	if r.bad {
		return time.Time{}
	}
	sec := binary.BigEndian.Uint64([]byte(octets[:8]))
	nsec := binary.BigEndian.Uint32([]byte(octets[8:]))
	if nsec >= uint32(time.Second) {
		r.bad = true
	}
	return time.Unix(int64(sec), int64(nsec)) //nolint:gosec // two's complement, there and back
}

func (r *reader) digest() (d digest) {
	copy(d[:], r.take(uint64(len(d))))
	return d
}

func (r *reader) length() uint64 {
	n, size := binary.Uvarint([]byte(r.data[:min(len(r.data), binary.MaxVarintLen64)]))
	if size <= 0 {
		r.bad = true
		return 0
	}
	r.data = r.data[size:]
	return n
}

func (r *reader) text() string { return r.take(r.length()) }

// readList trusts a length no further than octets are left: each text has at
// least one, its own length.
func readList[T ~string](r *reader) []T {
	n := r.length()
	if n == 0 {
		return nil
	}
	n--
	if n > uint64(len(r.data)) || n > math.MaxInt32 {
		r.bad = true
		return nil
	}
	list := make([]T, 0, n)
	for range n {
		list = append(list, T(r.text()))
	}
	return list
}
