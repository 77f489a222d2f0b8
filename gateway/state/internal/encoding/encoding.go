// Package encoding is how state is written: an instant is 8 bytes of seconds and 4 of
// nanoseconds, a text has its length before it, a list its length plus one (0: there is
// none, which is not the same as an empty one). Files are full of this: a change of it is
// a change of format.
package encoding

import (
	"encoding/binary"
	"math"
	"time"
)

// InstantSize is the bytes of an instant.
const InstantSize = 8 + 4

// AppendInstant appends an instant.
func AppendInstant(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix()))          //nolint:gosec // two's complement, there and back
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond())) //nolint:gosec // below 10^9
}

// AppendText appends a text.
func AppendText[T ~string](b []byte, text T) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// AppendList appends a list of texts.
func AppendList[T ~string](b []byte, list []T) []byte {
	if list == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(list))+1)
	for _, text := range list {
		b = AppendText(b, text)
	}
	return b
}

// Reader takes fields from the front of what is left. Once something is missing
// everything is: Done tells it at the end.
type Reader struct {
	Data string // what is left
	bad  bool
}

// Bad is true when something was missing.
func (r *Reader) Bad() bool { return r.bad }

// Done is true when everything was there, and nothing more.
func (r *Reader) Done() bool { return !r.bad && r.Data == "" }

// Take takes so many bytes.
func (r *Reader) Take(n uint64) string {
	if r.bad || n > uint64(len(r.Data)) {
		r.bad = true
		return ""
	}
	first := r.Data[:n]
	r.Data = r.Data[n:]
	return first
}

// Instant takes an instant.
func (r *Reader) Instant() time.Time {
	taken := r.Take(InstantSize)
	if r.bad {
		return time.Time{}
	}
	sec := binary.BigEndian.Uint64([]byte(taken[:8]))
	nsec := binary.BigEndian.Uint32([]byte(taken[8:]))
	if nsec >= uint32(time.Second) {
		r.bad = true
	}
	return time.Unix(int64(sec), int64(nsec)) //nolint:gosec // two's complement, there and back
}

// Number takes a number of variable length.
func (r *Reader) Number() uint64 {
	n, size := binary.Uvarint([]byte(r.Data[:min(len(r.Data), binary.MaxVarintLen64)]))
	if size <= 0 {
		r.bad = true
		return 0
	}
	r.Data = r.Data[size:]
	return n
}

// Text takes a text.
func (r *Reader) Text() string { return r.Take(r.Number()) }

// ReadList takes a list of texts. It trusts a length no further than bytes are left: each
// text has at least one, its own length.
func ReadList[T ~string](r *Reader) []T {
	n := r.Number()
	if n == 0 {
		return nil
	}
	n--
	if n > uint64(len(r.Data)) || n > math.MaxInt32 {
		r.bad = true
		return nil
	}
	list := make([]T, 0, n)
	for range n {
		list = append(list, T(r.Text()))
	}
	return list
}

// Nanos is Unix time in nanoseconds; what lies before 1970 or beyond the years that fit is
// the nearest that fits.
func Nanos(t time.Time) int64 {
	const latest = math.MaxInt64 / int64(time.Second)
	if seconds := t.Unix(); seconds >= latest || seconds < 0 {
		return max(min(seconds, latest), 0) * int64(time.Second)
	}
	return t.UnixNano()
}
